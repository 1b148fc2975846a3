"""The notation of the sample's grammar, and the grammar itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from random import Random

import pytest

from tools.portal import phrases, registers
from tools.portal.compose import labels
from tools.portal.people import Patient, invent_patients
from tools.portal.scene import MessageScene, Thread
from tools.portal.templates import Label, Scenario, expand, names, parse, read_label

TODAY = date(2025, 3, 14)
GRAMMAR = labels()
PATIENTS = invent_patients(400, Random(5))


class Fixed:
    """A scene that always takes one option and knows a rule and a slot."""

    def __init__(self, option: int = 0, *, third: bool = False) -> None:
        self.option, self.third_person = option, third

    def pick(self, n: int) -> int:
        return self.option % n

    def rule(self, name: str) -> str:
        return {"ask": "can you [call|ring]", "say": "I wonder whether you can call"}[name]

    def slot(self, name: str) -> str:
        return {"drug": "ibuprofen", "doc": "Dr. Vantrell", "odd": "[not | parsed]"}[name]


@pytest.mark.parametrize(
    ("template", "option", "third", "text"),
    [
        ("a [red|blue] car", 1, False, "a blue car"),
        ("[one [two|three]|four] five", 0, False, "one two five"),
        ("so[, well|] yes", 1, False, "so yes"),
        ("(I have/{drug} has) it", 0, True, "ibuprofen has it"),
        ("(I have/{drug} has) it", 0, False, "I have it"),
        ("in brackets (like this)", 0, False, "in brackets (like this)"),
        ("{3..7} pills", 2, False, "5 pills"),
        ("<ask> me~", 1, False, "can you ring me?"),
        ("<say> me~", 0, False, "I wonder whether you can call me."),
        ("can you ask {doc}~", 0, False, "can you ask Dr. Vantrell?"),
        ("take a {drug} or a pill", 0, False, "take an ibuprofen or a pill"),
        (
            "a unit, a user, a hour, a 8 day week",
            0,
            False,
            "a unit, a user, an hour, an 8 day week",
        ),
        ("paid[, thanks|].", 1, False, "paid."),
        ("the the 4th of May visit", 0, False, "the 4th of May visit"),
        ("{odd}", 0, False, "[not | parsed]"),
    ],
)
def test_notation(template: str, option: int, third: bool, text: str) -> None:
    assert expand(template, Fixed(option, third=third)) == text


@pytest.mark.parametrize("template", ["[a|b", "a]", "(a/b", "a | b", "<ask", "{drug", "a > b"])
def test_a_malformed_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="template"):
        parse(template)


@pytest.mark.parametrize("grammar", ["fact I have none", "joke: a horse walks in", "fact: [open"])
def test_a_malformed_grammar_is_refused(grammar: str) -> None:
    with pytest.raises(ValueError, match=r"line|template"):
        read_label("Billing", grammar)


def test_grammar_lines_scenarios_and_continuations() -> None:
    label = read_label("Billing", "ask: why\n  me\n\n== owed, adult\nfact: I owe\nfact: you owe\n")
    assert label.shared == {"ask": ("why me",)}
    assert label.scenarios == (Scenario("owed", {"fact": ("I owe", "you owe")}, "adult"),)


def everything() -> list[tuple[Label, Scenario, str]]:
    """Every template of the grammar with a scenario it can stand in."""
    found = []
    for label in GRAMMAR:
        found += [
            (label, label.scenarios[0], line) for kind in label.shared.values() for line in kind
        ]
        found += [
            (label, scenario, line)
            for scenario in label.scenarios
            for kind in scenario.lines.values()
            for line in kind
        ]
    return found


def adult(patient: Patient) -> bool:
    return not patient.is_child and not patient.relation


def looked_after(patient: Patient) -> bool:
    return not patient.is_child and bool(patient.relation)


def child(patient: Patient) -> bool:
    return patient.is_child


@pytest.mark.parametrize("who", [adult, looked_after, child])
def test_every_template_reads_as_a_sentence_for_every_patient(
    who: Callable[[Patient], bool],
) -> None:
    rng = Random(9)
    pool = [patient for patient in PATIENTS if who(patient)]
    for label, scenario, template in everything():
        for _ in range(3):
            scene = MessageScene(rng.choice(pool), Thread(label, scenario), TODAY, rng)
            text = expand(template, scene)
            assert text
            assert not re.search(r"[\[\]{}<>|~\\]|  | [.,?!]|\b(\w+) \1\b", text), text
            assert not re.search(r"\b[Aa] (?!one)[aeio]|\bthe (?:my|the|a)\b|\$\$", text), text
            if scene.third_person:
                assert not re.match(r"(?:he|she|him|her|his)\b", text, re.IGNORECASE), text


def test_a_patient_is_introduced_before_a_pronoun_stands_for_them() -> None:
    patient = next(p for p in PATIENTS if p.relation == "daughter")
    scene = MessageScene(patient, Thread(GRAMMAR[0], GRAMMAR[0].scenarios[0]), TODAY, Random(1))
    first = expand("{S} (have/has) a cold", scene)
    assert "daughter" in first or patient.first in first or "year old" in first
    assert expand("{S} (have/has) {my} cold", scene) == "she has her cold"


def test_every_rule_is_defined_and_every_rule_is_used() -> None:
    lines = [template for _, _, template in everything()]
    for bank in (phrases.BASE, *registers.VOICED.values()):
        lines += [line for variants in bank.values() for line in variants]
    lines += [
        line
        for bank in (registers.GREETINGS, registers.SIGNATURES)
        for v in bank.values()
        for line in v
    ]
    used = set().union(*(names(line)[0] for line in lines))
    by_the_calendar = {
        "weekday", "month", "hello", "clock", "past", "pastday", "future", "futureday", "since",
    }  # fmt: skip
    in_the_plan = {"opener", "life", "contact", "close", "second"}
    assert used - by_the_calendar <= set(phrases.BASE)
    assert set(phrases.BASE) - used == in_the_plan
    assert set(registers.GREETINGS) == set(registers.SIGNATURES) == set(registers.REGISTERS)
    assert set(registers.VOICED) <= set(registers.REGISTERS)
    for bank in registers.VOICED.values():
        assert set(bank) <= set(phrases.BASE)


def test_every_scenario_can_open_and_be_followed_up() -> None:
    for label in GRAMMAR:
        assert len(label.scenarios) >= 10
        assert {"detail", "ask", "aside", "follow"} == set(label.shared)
        for scenario in label.scenarios:
            assert len(scenario.lines["topic"]) >= 2
            assert len(scenario.lines["fact"]) >= 2
            assert scenario.who in ("any", "adult", "child")


def test_patients_have_identifiers_of_their_own() -> None:
    for attribute in ("id", "phone", "mrn"):
        assert len({getattr(patient, attribute) for patient in PATIENTS}) == len(PATIENTS)
    assert len({(patient.first, patient.last) for patient in PATIENTS}) > 0.97 * len(PATIENTS)
    for patient in PATIENTS:
        assert patient.drugs
        assert len(patient.tests) > 1
        assert bool(patient.relation) == bool(patient.role)
        assert patient.relation or not patient.is_child
