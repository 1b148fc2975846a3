"""The disclosure audit: it finds planted leaks, counts units, cries wolf as seldom as it says."""

import json
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from privsyn.data.images import to_content
from privsyn.data.records import Record
from privsyn.dp.adjacency import Adjacency
from privsyn.evaluation.audit import (
    FEWEST,
    IMAGES,
    TEXTS,
    AuditResult,
    Claim,
    Guesses,
    Person,
    audit,
    gather,
    section,
)

CLAIM = Claim(1.0, 1e-6, Adjacency.ADD_REMOVE, 0.5)
WORDS = np.array([f"word{chr(97 + i)}{chr(97 + k)}" for i in range(20) for k in range(20)])


def text(rng, length=14):
    return " ".join(rng.choice(WORDS, length))


def people(rng, count=400, records=1, holdout=0.5):
    return [
        Person(bool(rng.random() >= holdout), [text(rng) for _ in range(records)])
        for _ in range(count)
    ]


def copied(crowd, inside=True):
    return [content for person in crowd for content in person.contents if person.inside is inside]


def test_copies_of_training_records_are_found():
    rng = np.random.default_rng(1)
    crowd = people(rng)
    found = audit(copied(crowd)[:150], crowd, CLAIM, TEXTS)
    assert found.exceeds
    assert found.epsilon > 3
    assert found.p_value < 1e-30
    by_name = {test.name: test for test in found.tests}
    assert by_name["rare_ngrams"].inside == by_name["rare_ngrams"].named == 150
    assert by_name["near_duplicates"].inside == 150
    assert by_name["identifiers"].named == 0


def test_copies_in_another_form_of_unicode_are_found():
    rng = np.random.default_rng(1)
    letters, crowd = [chr(point) for point in range(ord("が"), ord("ぽ"))], people(rng)
    for number, person in enumerate(crowd):
        digits = "".join(chr(ord("\uff10") + int(digit)) for digit in f"{number:07}")
        person.contents[:] = ["".join(rng.choice(letters, 40)) + digits]
    for form in ("NFKC", "NFKD"):
        written = [unicodedata.normalize(form, text) for text in copied(crowd)[:150]]
        assert {test.name: test.inside for test in audit(written, crowd, CLAIM, TEXTS).tests} == {
            "rare_ngrams": 150, "identifiers": 150, "near_duplicates": 150,
        }  # fmt: skip


def test_what_the_tests_cannot_read_is_not_graded():
    rng = np.random.default_rng(1)
    crowd = people(rng)
    for person in crowd[: len(crowd) // 2 + 1]:
        person.contents[:] = ["\U0001f600" * 30]
    found = audit(copied(crowd)[:150], crowd, CLAIM, TEXTS)
    assert found.unavailable == "most units have no record of 3 words that the tests can tell apart"
    assert section(found.to_json(), 1.0).grade is None


def test_an_identifier_in_other_words_is_found_by_its_form():
    rng = np.random.default_rng(2)
    crowd = people(rng)
    for number, person in enumerate(crowd):
        person.contents[0] += f" {number:07d} AB-{number:05d} p{number}@example.org"
    told = [i for i, person in enumerate(crowd) if person.inside][:100]
    for shape in (f"call {i:07d} soon" for i in told), (f"编号AB-{i:05d}\uff0c请查" for i in told):
        found = audit([*shape], crowd, CLAIM, TEXTS)
        assert {t.name: t.inside for t in found.tests} == {
            "rare_ngrams": 0, "identifiers": 100, "near_duplicates": 0,
        }  # fmt: skip
        assert found.exceeds


def test_words_changed_here_and_there_are_near_duplicates():
    rng = np.random.default_rng(3)
    crowd = people(rng, records=1)
    written = []
    for content in copied(crowd)[:120]:
        words = content.split()
        words[4] = words[10] = "other"
        written.append(" ".join(words))
    found = {test.name: test for test in audit(written, crowd, CLAIM, TEXTS).tests}
    assert found["near_duplicates"].inside >= 110
    assert found["near_duplicates"].named == found["near_duplicates"].inside


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_what_knows_nothing_of_who_is_in_it_is_found_out_no_more_often_than_said(adjacency):
    """Records of both sides in the release, by public knowledge: phantoms, not disclosures."""
    rng = np.random.default_rng(4)
    claim = replace(CLAIM, epsilon=0.0, adjacency=adjacency, holdout=0.25)
    contents = [person.contents for person in people(rng, count=160)]
    written = [own[0] for own in contents[:60]]
    named = {name: detect(written, contents) for name, detect in TEXTS.items()}
    assert len(named["rare_ngrams"]) == 60
    fixed = {name: lambda _, __, found=found: found for name, found in named.items()}
    runs, wolves, low = 400, 0, 0
    for _ in range(runs):
        crowd = [Person(bool(rng.random() >= claim.holdout), own) for own in contents]
        found = audit(written, crowd, claim, fixed)  # one release, its people put in or out anew
        wolves += found.exceeds
        low += found.p_value <= 0.05
    assert wolves <= 36  # of 400 at .05: above it with probability 3e-4
    assert low <= 36


def test_a_person_with_many_records_counts_once():
    rng = np.random.default_rng(5)
    crowd = people(rng, count=100)
    busy = Person(True, [text(rng) for _ in range(50)])
    found = audit(busy.contents, [*crowd, busy], CLAIM, TEXTS)
    assert {test.named for test in found.tests if test.name != "identifiers"} == {1}
    assert found.epsilon == 0
    assert found.p_value > 0.5


def test_what_two_people_share_is_about_neither():
    rng = np.random.default_rng(7)
    crowd = people(rng, count=100)
    shared = text(rng)
    for person in crowd:
        person.contents.append(shared)
    found = audit([shared] * 10, crowd, CLAIM, TEXTS)
    assert {test.named for test in found.tests} == {0}


def test_replace_one_names_pairs_and_its_prior_is_a_half():
    rng = np.random.default_rng(8)
    crowd = people(rng, count=600, holdout=0.2)
    claim = replace(CLAIM, adjacency=Adjacency.REPLACE_ONE, holdout=0.2)
    found = audit(copied(crowd), crowd, claim, TEXTS)
    ngrams = found.tests[0]
    assert ngrams.named == ngrams.inside == found.held_out  # a pair for each held-out unit
    assert found.epsilon == Guesses(
        found.held_out, ngrams.named, ngrams.inside, both=True
    ).least_epsilon(claim.delta, 0.05 / 3)


def test_too_few_units_on_a_side_is_unavailable():
    rng = np.random.default_rng(9)
    crowd = [Person(True, [text(rng)]) for _ in range(100)]
    crowd += [Person(False, [text(rng)]) for _ in range(FEWEST - 1)]
    found = audit(copied(crowd), crowd, CLAIM, TEXTS)
    assert "fewer than 20 units on one side" in found.unavailable
    assert not found.exceeds
    assert "UNAVAILABLE" in str(section(found.to_json(), 1.0).to_json())


@pytest.mark.parametrize("written", [[], [""], ["a"]])
def test_releases_with_nothing_in_them_name_nobody(written):
    rng = np.random.default_rng(10)
    crowd = [*people(rng, count=100), Person(True, [""]), Person(False, ["a"])]
    assert audit(written, crowd, CLAIM, TEXTS).epsilon == 0


def test_images_that_were_copied_are_found_and_others_are_not():
    rng = np.random.default_rng(11)

    def image():
        return to_content(rng.integers(0, 256, (16, 16), np.uint8))

    crowd = [Person(bool(rng.random() < 0.5), [image()]) for _ in range(200)]
    assert audit(copied(crowd), crowd, CLAIM, IMAGES).exceeds
    fresh = audit([image() for _ in range(50)], crowd, CLAIM, IMAGES)
    assert fresh.tests[0].named == 0


def test_people_are_gathered_by_unit_and_thinned_without_a_look_at_their_side():
    records = [(i % 2 == 0, Record(f"u{i}", None, f"text {k}")) for k in (0, 1) for i in range(50)]
    assert all(len(person.contents) == 2 for person in gather(records))
    few = gather(records, most=10)
    turned = gather([(not inside, record) for inside, record in reversed(records)], most=10)
    assert len(few) == 10
    assert [sorted(person.contents) for person in few] == [
        sorted(person.contents) for person in turned
    ]
    assert [person.inside for person in few] == [not person.inside for person in turned]


def test_nothing_but_counts_is_written():
    rng = np.random.default_rng(12)
    crowd = people(rng)
    found = audit(copied(crowd), crowd, CLAIM, TEXTS)
    shown = (
        json.dumps(found.to_json())
        + repr(found)
        + repr(crowd[0])
        + str(section(found.to_json(), 1))
    )
    assert not any(word in shown for word in WORDS)


@pytest.mark.parametrize(
    ("found", "grade", "says"),
    [
        (AuditResult(p_value=0.4), "good", "no proof"),
        (AuditResult(p_value=0.01, epsilon=0.5), "fair", "within what epsilon 1 allows"),
        (AuditResult(p_value=1e-9, epsilon=2.0, exceeds=True), "poor", "Do not share it"),
    ],
)
def test_the_report_says_what_it_means(found, grade, says):
    told = section(found.to_json(), 1.0)
    assert told.grade == grade
    assert says in told.advice


@pytest.mark.parametrize(
    ("first", "last"),
    ["一三", "あん", "กฮ", "ກຮ", "កហ", "ကဟ", "ཀཧ"],
    ids=["zh", "ja", "th", "lo", "km", "my", "bo"],
)
def test_copies_are_found_where_words_have_no_spaces(first, last):
    rng = np.random.default_rng(1)
    letters = [chr(point) for point in range(ord(first), ord(last) + 1)]
    crowd = people(rng)
    for person in crowd:
        person.contents[:] = ["".join(rng.choice(letters, 40))]
    found = audit(copied(crowd)[:150], crowd, CLAIM, TEXTS)
    assert {test.name: test.inside for test in found.tests} == {
        "rare_ngrams": 150, "identifiers": 0, "near_duplicates": 150,
    }  # fmt: skip
    assert found.exceeds
