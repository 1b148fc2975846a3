"""From a patient and a reason to write to a message; and from one message to its follow-up."""

from __future__ import annotations

import re
from datetime import date
from random import Random

from tools.portal import (
    appointments,
    billing,
    prescriptions,
    registers,
    results,
    symptoms,
    voice,
)
from tools.portal.people import Patient
from tools.portal.scene import MessageScene, Thread
from tools.portal.templates import Label, expand, read_label

MIN_WORDS = 15
MAX_WORDS = 60

_TARGETS = {
    "terse": (16, 29),
    "plain": (20, 46),
    "chatty": (32, 56),
    "worried": (24, 52),
    "formal": (28, 56),
    "elderly": (28, 57),
}
_WORDS_PER_SENTENCE = 12


def labels() -> tuple[Label, ...]:
    """The five labels, read from their grammars."""
    return tuple(
        read_label(module.NAME, module.GRAMMAR)
        for module in (appointments, prescriptions, results, billing, symptoms)
    )


class Composer:
    """Writes messages of one sample.

    Args:
        rng: Source of every draw.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._labels = labels()

    def new_thread(self, patient: Patient, leaning: list[float]) -> Thread:
        """A fresh reason to write, of a label drawn by the patient's leaning."""
        label = self._rng.choices(self._labels, leaning)[0]
        unfit = "adult" if patient.is_child else "child"
        fitting = [scenario for scenario in label.scenarios if scenario.who != unfit]
        return Thread(label, self._rng.choice(fitting))

    def write(self, patient: Patient, thread: Thread, today: date, extra: str = "") -> str:
        """One message of 15 to 60 words; the thread learns its facts and its date.

        Args:
            patient: Who it is from or about.
            thread: What it is about; a follow-up if something was sent already.
            today: The day it is written.
            extra: A sentence to place in it as it is.
        """
        while True:
            scene = MessageScene(patient, thread, today, self._rng)
            text = self._attempt(scene, thread, extra)
            if MIN_WORDS <= len(text.split()) <= MAX_WORDS:
                thread.facts = scene.facts
                return text

    def _attempt(self, scene: MessageScene, thread: Thread, extra: str) -> str:
        rng, style = self._rng, scene.patient.style
        low, high = _TARGETS[style.register]
        room = rng.randint(low, high) - len(extra.split())
        plan = self._plan(thread, max(1, round(room / _WORDS_PER_SENTENCE)))
        greeting = expand(rng.choice(registers.GREETINGS[style.register]), scene)
        used: set[str] = set()
        sentences = [self._sentence(kind, thread, scene, used) for kind in plan]
        signatures = [
            signature
            for signature in registers.SIGNATURES[style.register]
            if "contact" not in plan or not re.search(r"\{(?:phone|mrn|email)\}", signature)
        ]
        signature = expand(rng.choice(signatures), scene)
        mark = "\x00"
        if extra:
            sentences.insert(rng.randint(1, len(sentences)), mark)
        text = voice.joined(greeting, sentences, signature, style, rng)
        return text.replace(mark, extra)

    def _plan(self, thread: Thread, size: int) -> list[str]:
        """Kinds of sentences in order."""
        rng = self._rng
        if thread.sent:
            core = rng.choice(
                (["opener", "follow"], ["opener", "ask"], ["follow"], ["opener", "fact"])
            )
        else:
            core = ["fact"]
        if size > len(core) and "ask" not in core and rng.random() < 0.85:
            core = ["ask", *core] if rng.random() < 0.1 else [*core, "ask"]
        before: list[str] = []
        after: list[str] = []
        while len(core) + len(before) + len(after) < size:
            kind = rng.choices(
                ("detail", "aside", "second", "life", "contact", "close"), (34, 12, 22, 13, 12, 11)
            )[0]
            if kind not in ("detail", "life") and kind in before + after:
                continue
            if kind == "close":
                after.append(kind)
            elif kind in ("life", "contact", "aside") and rng.random() < 0.35:
                before.append(kind)
            elif kind == "detail" and "ask" in core[1:]:
                core.insert(core.index("ask", 1), kind)
            else:
                after.insert(0, kind)
        return before + core + after

    def _sentence(self, kind: str, thread: Thread, scene: MessageScene, used: set[str]) -> str:
        rng = self._rng
        if kind in ("opener", "life", "contact", "close"):
            pool = [scene.rule(kind) for _ in range(3)]
        elif kind == "aside":
            others = [label for label in self._labels if label is not thread.label]
            pool = list(rng.choice(others).shared["aside"])
        elif kind == "second":
            others = [label for label in self._labels if label is not thread.label]
            unfit = "adult" if scene.patient.is_child else "child"
            fitting = [s for s in rng.choice(others).scenarios if s.who != unfit]
            fact = expand(rng.choice(rng.choice(fitting).lines["fact"]), scene)
            return f"{expand('<second>', scene)} {voice.lowered(fact)}"
        else:
            own = thread.scenario.lines.get(kind, ())
            pool = [*own, *own, *thread.label.shared.get(kind, ())]
        fresh = [template for template in pool if template not in used] or pool
        template = rng.choice(fresh)
        used.add(template)
        return expand(template, scene)
