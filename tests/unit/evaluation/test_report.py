"""What is internal of a report: grades, what is unavailable, students beside their baselines."""

from types import SimpleNamespace

import pytest

from privsyn.evaluation.metrics import GRADES
from privsyn.evaluation.report import (
    Availability,
    StudentMetrics,
    inside,
    sections,
    student_section,
)
from privsyn.report.document import LEAVES, STAYS, Answer, Block, Document, Number, ReportSection
from privsyn.sentences import fill, worth

ABOUT = Availability(
    texts=True, held_out=True, labeled=True, models=True, rows=40, tuning_hint="the dial"
)


OUTWARD = Document(
    LEAVES, "k", "t", "s", {},
    (ReportSection("short", "s", LEAVES, [Block("answers", Answer("How good is it?", ""))]),),
)  # fmt: skip


def items(section, kind):
    return [item for block in section.blocks if block.kind in kind for item in block.items]


def measured(**values):
    default = {
        "vectors.accuracy": 0.7, "vectors.accuracy_low": 0.6, "vectors.accuracy_high": 0.8,
        "vectors.chance": 0.2, "vectors.real": 0.75, "vectors.real_records": 40,
        "vectors.public": 0.5, "vectors.gain": 0.2, "vectors.gain_low": 0.1,
        "vectors.gain_high": 0.3, "words.accuracy": 0.65, "words.chance": 0.2, "words.real": 0.7,
        "words.real_records": 40, "words.public": 0.45, "words.gain": 0.2, "words.gain_low": 0.1,
        "words.gain_high": 0.3, "mauve": 0.95, "length_ks": 0.05,
    }  # fmt: skip
    return [
        {"name": name.replace("__", "."), "value": value, "note": f"what {name} is", "class": "x"}
        for name, value in (default | values).items()
        if value is not None
    ]


@pytest.mark.parametrize(
    ("values", "grade"),
    [
        ({}, "good"),
        ({"vectors.real": 0.95}, "fair"),  # worth its epsilon, and far behind real records
        ({"vectors.gain_low": -0.01}, "fair"),  # by words alone
        ({"words.gain_low": 0.0}, "fair"),  # by vectors alone
        ({"vectors.gain_low": 0.0, "words.gain_low": -0.1}, "poor"),
    ],
)
def test_a_release_is_graded_by_its_gain_over_what_is_free(values, grade):
    useful, found, *_ = sections(measured(**values), ABOUT)
    assert found.grade == grade
    assert ("the dial" in found.advice) == (grade != "good")
    for one in (useful, found):
        assert [bar.name for bar in items(one, "bars") if bar.ours] == ["this release"] * 2
        assert items(one, "missing") == []
    assert [bar.value for bar in items(found, "bars")] == [0.7, 0.2, 0.5, 0.65, 0.2, 0.45]
    real = values.get("vectors.real", 0.75)
    assert [bar.value for bar in items(useful, "bars")] == [0.7, 0.2, real, 0.65, 0.2, 0.7]


def test_usefulness_and_what_the_records_added_are_two_grades():
    """A release as good as real records is not poor, though what is free is as good."""
    lost = {"vectors.gain_low": -0.02, "words.gain_low": -0.1, "vectors.public": 0.74}
    useful, added, *_ = sections(measured(**lost, **{"vectors.accuracy": 0.74}), ABOUT)
    assert (useful.grade, added.grade) == ("good", "poor")
    assert "right about 74% of real records" in useful.advice
    page = inside(OUTWARD, [useful, added], "")
    (first,) = (item for item in page.sections[1].blocks[0].items if "good" in item.question)
    assert first.answer == ("How useful is it? GOOD. Did your records add to what is free? POOR.")


def test_a_release_without_an_encoder_that_took_no_part_is_never_good():
    none = {name: None for name in measured_names() if name.startswith("vectors.")}
    for encoder in ("evaluate.encoder=here took part in this release.", None):
        _, found, likeness, *_ = sections(
            measured(mauve=None, **none), Availability(**(vars(ABOUT) | {"encoder": encoder}))
        )
        assert found.grade == "fair"
        missing = " ".join(items(found, "missing"))
        assert "An encoder that took no part: UNAVAILABLE" in missing
        assert (encoder or "it was not here when the release was measured") in missing
        assert ("MAUVE: UNAVAILABLE" in " ".join(items(likeness, "missing"))) == bool(encoder)


def measured_names():
    return [str(one["name"]) for one in measured()]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"held_out": False}, "no real records are held out"),
        ({"labeled": False}, "Nearness, with an interval, beside what is free"),
        ({"labeled": False, "rows": 9}, "9 records, fewer than 10"),
        ({"models": False}, "evaluate.by is not models"),
        ({"enabled": False}, "evaluate.by is nothing"),
        ({"measured": False}, "evaluate did not run or was cut off"),
        ({"rows": 5}, "5 records, fewer than 20"),
        ({}, "fewer than 20 labeled records"),
    ],
)
def test_what_cannot_be_measured_says_why(about, why):
    circumstances = Availability(**(vars(ABOUT) | about))
    useful, added, likeness, *_ = sections([], circumstances)
    assert {useful.grade, added.grade, likeness.grade} == {None}
    assert any("UNAVAILABLE" in line and why in line for line in items(useful, "missing"))
    assert "UNAVAILABLE" in items(likeness, "missing")[0]


@pytest.mark.parametrize(
    ("values", "grade", "weak"),
    [
        ({}, "good", ""),
        ({"mauve": 0.7}, "fair", "MAUVE"),
        ({"length_ks": 0.4}, "poor", "lengths (KS)"),
        ({"mauve": 0.1, "length_ks": 0.2}, "poor", "MAUVE"),
    ],
)
def test_likeness_is_as_good_as_its_weakest_number(values, grade, weak):
    _, _, found, *_ = sections(measured(**values), ABOUT)
    assert found.grade == grade
    assert weak in found.advice


def test_every_section_is_internal_and_holds_every_number():
    found = sections(measured(), ABOUT)
    assert {section.cls for section in found} == {STAYS}
    shown = [item for section in found for item in items(section, ("numbers", "bars"))]
    assert {0.7, 0.2, 0.5, 0.75, 0.95, 0.05} <= {item.value for item in shown}
    assert Number("MAUVE", 0.95, "what mauve is") in shown


IMAGES = Availability(**(vars(ABOUT) | {"texts": False}))


def of_images(about=(), **values):
    note = "24 a side, 8 features of evaluate.encoder=efficientnet-lite0"
    metrics = [
        {"name": name, "value": value, "note": values.get("note", note)}
        for name, value in values.items()
        if name != "note"
    ]
    found = Availability(**(vars(IMAGES) | dict(about)))
    return next(one for one in sections(metrics, found) if one.key == "likeness")


@pytest.mark.parametrize(
    ("accuracy", "low", "real", "grade", "said"),
    [
        (0.9, 0.8, 0.95, "good", "30 real records (as many of each label) is right about 95%."),
        (0.6, 0.5, 0.95, "fair", "is right about 95%. Raise the dial."),
        (0.2, 0.1, 0.95, "poor", "always naming the commonest label (10%). Raise the dial."),
    ],
)
def test_a_release_of_images_is_graded_beside_as_many_real_ones(accuracy, low, real, grade, said):
    value = {"accuracy": accuracy, "accuracy_low": low, "chance": 0.1, "real": real}
    metrics = [
        {"name": f"downstream.{name}", "value": one, "note": "n"}
        for name, one in (value | {"real_records": 30}).items()
    ]
    recall = {"name": "downstream.recall.a", "label": "a", "value": 0.25, "note": "n"}
    found, *_ = sections([*metrics, recall], IMAGES)
    assert (found.grade, said in found.advice) == (grade, True)
    assert [bar.name for bar in items(found, "bars")][-2:] == [
        "30 real records (as many of each label)",
        "a",
    ]


def test_images_are_graded_by_what_other_real_images_have():
    assert of_images(precision=0.4, recall=0.4).grade == "poor"
    found = of_images(precision=0.4, recall=0.4, precision_real=0.45, recall_real=0.5)
    assert found.grade == "good"
    weak = of_images(precision=0.1, recall=0.1, precision_real=0.45, recall_real=0.5)
    assert weak.grade == "poor"
    assert "raise the dial" in weak.advice
    assert "precision of real images" in {number.name for number in items(weak, "numbers")}


@pytest.mark.parametrize(
    ("gap", "grade"),
    [
        ((0.1, -0.1, 0.3), "good"),
        ((-0.4, -0.6, -0.2), "fair"),
        ((2, 1, 3), "poor"),
        ((0.1, -0.4, 0.6), "fair"),
    ],
)
def test_what_the_model_makes_of_it_is_graded(gap, grade):
    names = ("perplexity.gap", "perplexity.gap_low", "perplexity.gap_high")
    *_, found = sections(measured(**dict(zip(names, gap, strict=True))), ABOUT)
    assert found.grade == grade
    (shown,) = (item for item in items(found, "numbers") if item.name == "perplexity gap")
    assert (shown.value, shown.low, shown.high) == gap


def about(**changes):
    return Availability(**(vars(ABOUT) | changes))


@pytest.mark.parametrize(
    ("reader", "why"),
    [(True, "fewer than 20 real records"), (False, "the method reads no logits")],
)
def test_why_no_model_read_it_is_said(reader, why):
    *_, found = sections(measured(), about(reader=reader))
    assert why in items(found, "missing")[0]


@pytest.mark.parametrize(
    ("gain", "low", "grade", "said"),
    [
        (0.30, 0.2, "good", "The records added to what is free (nearness: yes)."),
        (0.10, 0.02, "fair", "as many texts of the public model (0.50). Raise the dial."),
        (0.10, -0.01, "poor", "No gain over what is free could be shown (nearness: not shown)."),
    ],
)
def test_records_without_labels_are_graded_by_how_near_they_come(gain, low, grade, said):
    numbers = {
        "cosine": 0.5 + gain, "cosine_low": 0.5, "cosine_high": 0.9, "real": 0.9, "records": 90.0,
        "real_records": 30.0, "public": 0.5, "gain": gain, "gain_low": low, "gain_high": 0.5,
    }  # fmt: skip
    metrics = [
        {"name": f"nearness.{name}", "value": value, "note": ""} for name, value in numbers.items()
    ]
    about_texts = Availability(**(vars(ABOUT) | {"labeled": False}))
    useful, found, likeness, *_ = sections(metrics, about_texts)
    assert found.grade == grade
    assert said in found.advice
    assert (useful.grade, "nearness has no scale" in useful.advice) == (None, True)
    beside = ["this release", "30 real records (as many of each label)"]
    assert [bar.name for bar in items(useful, "bars")] == beside
    beside[1] = "as many texts of the public model"
    assert [bar.name for bar in items(found, "bars")] == beside
    assert not [line for line in items(likeness, "numbers") if "nearness" in str(line)]
    without = [one for one in metrics if "public" not in one["name"] and "gain" not in one["name"]]
    _, found, *_ = sections(without, about_texts)
    assert (found.grade, found.advice) == (None, "Not measured.")


@pytest.mark.parametrize("table", ["useful", "added", "lines", "reading", "lengths", "images"])
def test_every_row_of_a_table_can_be_filled(table):
    """A misspelled fact in grades.yaml fails here, and not in a release that comes to its row."""
    facts = {
        "ruler": SimpleNamespace(name="words", labeled=True), "words": "words", "value": 0.5,
        "low": 0.4, "chance": 0.1, "real": 0.6, "real_records": "30", "best": "b", "free": 0.3,
        "gain": 0.2, "gain_low": 0.1, "gain_high": 0.3, "levers": "l", "ref": 0.6, "reached": 0.7,
        "reference": "r", "deciding": ["words"], "every": False, "complete": True, "some": True,
        "halfway": True, "aspects": "a", "shift": 3.0, "longest": "m", "gap": 0.1, "high": 0.2,
        "about": ABOUT, "fid_note": None, "voted": False, "fewest": 20,
    }  # fmt: skip
    for row in GRADES._tables[table]:
        worth(row.get("when", "true"), facts)
        assert fill({"says": row["says"], "do": row.get("do", "")}, facts)["says"] is not None


ID = "dp_lora-00ff"
OF_STUDENT = {
    "student.next_token_accuracy": 0.3,
    "student.next_token_accuracy_low": 0.25,
    "student.next_token_accuracy_high": 0.35,
    "student.commonest_token": 0.05,
    "student.cross_entropy": 4.0,
    "public.next_token_accuracy": 0.4,
}


def student(number=1, **changes):
    values = {name: value for name, value in (OF_STUDENT | changes).items() if value is not None}
    return StudentMetrics(f"{ID}.student-0000000{number}", 4_400_000, values)


def test_a_student_stands_beside_its_baselines_with_its_interval():
    found = student_section([student()], ID)
    assert (found.cls, found.grade, items(found, "missing")) == (STAYS, "fair", [])
    bars = {bar.name: (bar.value, bar.low, bar.high, bar.ours) for bar in items(found, "bars")}
    assert bars == {
        "this release": (0.3, 0.25, 0.35, True),
        "commonest token": (0.05, None, None, False),
        "public model alone": (0.4, None, None, False),
    }
    assert "0.300 of next tokens right, not shown to be more than the public" in found.advice
