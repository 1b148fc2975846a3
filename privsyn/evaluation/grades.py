"""What a release teaches, or how near it comes, as the first section of the internal report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from privsyn.evaluation.circumstances import (
    CUT_OFF,
    FEWEST,
    Circumstances,
    easiest_first,
    graded_section,
)
from privsyn.evaluation.classifiers import FEWEST_A_SIDE, TAKEN_FOR
from privsyn.report.blocks import Bar, Bars, Block, Number, Numbers
from privsyn.report.document import Grade, Section


def downstream(
    value: Mapping[str, float], metrics: Sequence[Mapping[str, Any]], about: Circumstances
) -> Section:
    """Does a classifier trained on the release work on real records?"""
    if "nearness.cosine" in value:
        return _nearness(value, about)
    title = "Does what it teaches hold on real records?"
    missing = _why_no_headline(about) if "vectors.accuracy" not in value else ()
    recalls = tuple(
        Number(str(metric["label"]), float(metric["value"]), str(metric["note"]))
        for metric in metrics
        if str(metric["name"]).startswith("downstream.recall.")
    )
    by, how = ("by words", "by TF-IDF") if about.texts else ("by pixels", "of a kernel classifier")
    words = tuple(
        Number(name, value[key], note, value.get(f"{key}_low"), value.get(f"{key}_high"))
        for key, name, note in (
            (
                "downstream.accuracy",
                by,
                f"accuracy {how}, trained on the release; its 95% interval over test records",
            ),
            ("downstream.public", f"{by}, public model alone", "the same, of its texts"),
            ("downstream.real", f"{by}, real records", "the same, of as many real records"),
            ("downstream.majority", "commonest label", "accuracy of naming it always"),
        )
        if key in value
    )
    if "vectors.accuracy" not in value:
        rough = tuple(
            Bar(
                name,
                value[key],
                value.get(f"{key}_low"),
                value.get(f"{key}_high"),
                ours=key == "downstream.accuracy",
            )
            for key, name in (
                ("downstream.accuracy", "this release"),
                ("downstream.majority", "commonest label"),
                ("downstream.real", f"{value.get('downstream.real_records', 0):.0f} real records"),
            )
            if key in value and (key != "downstream.real" or not about.texts)
        )
        graded: Grade | None = None
        advice = "Not graded." if rough else "Not measured."
        if rough and not about.texts:
            missing = (_NO_GENERATOR,)
            if "downstream.real" in value:
                graded, advice = _by_pixels(value, about.levers)
                advice += _least_found(recalls, metrics) if graded != "good" else ""
        found = graded_section("downstream", title, graded, advice, rough, words, missing)
        return _with_recalls(found, recalls, by)
    bars = [
        Bar(
            "this release",
            value["vectors.accuracy"],
            value.get("vectors.accuracy_low"),
            value.get("vectors.accuracy_high"),
            ours=True,
        ),
        Bar("commonest label", value["vectors.chance"]),
    ]
    if "vectors.public" in value:
        bars.append(Bar("public model alone", value["vectors.public"]))
    else:
        missing = ("The public model alone was not measured beside it.",)
    bars.append(Bar(f"{value['vectors.real_records']:.0f} real records", value["vectors.real"]))
    grade, advice = _worth(value, about.levers)
    if grade != "good" and recalls:
        # Recalls are those of the classifier over words, which is not the one that is graded.
        help_ = " Say in dataset.label_descriptions how they differ."
        if weakest := _least_found(recalls, metrics, help_):
            advice += f" {by.capitalize()}:{weakest}"
    if grade != "good":
        advice = easiest_first(advice, about) + _aside(about)
    found = graded_section("downstream", title, grade, advice, bars, words, missing)
    return _with_recalls(found, recalls, by)


def _nearness(value: Mapping[str, float], about: Circumstances) -> Section:
    """Of records without labels: do its texts come near real ones?"""
    real = f"{value['nearness.real_records']:.0f} real records"
    bars = [
        Bar(
            "this release",
            value["nearness.cosine"],
            value["nearness.cosine_low"],
            value["nearness.cosine_high"],
            ours=True,
        ),
        Bar(real, value["nearness.real"]),
    ]
    missing: tuple[str, ...] = ("The public model alone was not measured beside it.",)
    grade: Grade | None = None
    advice = "Not graded."
    if "nearness.gain" in value:
        bars.insert(1, Bar("public model alone", value["nearness.public"]))
        missing, possible = (), value["nearness.real"] - value["nearness.public"]
        grade, advice = "good", "Nearer than the public model alone."
        if value["nearness.gain_low"] <= 0:
            grade = "poor"
            advice = (
                "Not shown to be worth its epsilon: its gain over the public model alone is within "
                f"the interval. Raise {about.levers}, or spend more epsilon."
            )
        elif value["nearness.gain"] < possible / 2:
            grade = "fair"
            advice += f" As many real records gain {possible:.3f}. Raise {about.levers}."
        if grade != "good":
            advice = easiest_first(advice, about) + _aside(about)
    of = "Mean cosine of a held-out real record to the nearest text"
    title = "Does it come near what real records say?"
    return graded_section("downstream", title, grade, advice, bars, (), missing, of)


def _aside(about: Circumstances) -> str:
    return f" And {about.aside}." if about.aside else ""


_ALL = 0.99
"""Share of a label that is all of it, as two digits say it."""
_DRAWN = 20
"""Labels whose shares are drawn at most; of more there is a table."""


def _with_recalls(section: Section, recalls: Sequence[Number], by: str) -> Section:
    """The section and, of each label, the share that is found: as bars, of many as a table."""
    if not recalls:
        return section
    of = f"Share of each label's real records that are found, {by}"
    block: Block = Numbers(tuple(recalls))
    if len(recalls) <= _DRAWN:
        block = Bars(tuple(Bar(one.name, one.value, ours=True) for one in recalls), of)
    return replace(section, blocks=(*section.blocks, block))


def _least_found(
    recalls: Sequence[Number], metrics: Sequence[Mapping[str, Any]], help_: str = ""
) -> str:
    """The label that is found least, what its records are taken for, and what may help."""
    if not recalls:
        return ""
    least = min(recalls, key=lambda recall: recall.value)
    if least.value > _ALL:
        return ""
    label = least.name
    said = f" Of {label} the smallest share is found, {least.value:.2f}"
    for metric in metrics:
        if str(metric["name"]).startswith("downstream.confused.") and metric["label"] == label:
            other = str(metric["note"]).removeprefix(TAKEN_FOR)
            said += f", and {float(metric['value']):.2f} are taken for {other}: synthetic records "
            return f"{said}of the two look alike.{help_}"
    return f"{said}."


def _worth(value: Mapping[str, float], levers: str) -> tuple[Grade, str]:
    """Grade and advice: the gain over what is free, and how near real records it comes."""
    behind = value["vectors.real"] - value["vectors.accuracy"]
    free = {"the commonest label": value["vectors.accuracy_low"] - value["vectors.chance"]}
    if "vectors.gain" in value:  # what the public model teaches may be worse than nothing
        free[_ALONE] = value["vectors.gain_low"]
    over, low = min(free.items(), key=lambda one: one[1])
    public, real = value.get("vectors.public", 0.0), value["vectors.real"]
    if low <= 0 and over == _ALONE and (public >= real or public > _NEAR_ALL):
        return "poor", (
            f"Nothing to buy here: {over} teaches about as much ({public:.2f}) as that many real "
            f"records do ({real:.2f}). Take what costs nothing."
        )
    if low <= 0:
        return "poor", (
            f"Not shown to be worth its epsilon: its gain over {over} is within the interval. "
            f"Raise {levers}, or spend more epsilon, or take what costs nothing."
        )
    all_free = " and ".join(free)
    if behind > 0.1:
        return "fair", (
            f"Better than {all_free}, and {behind:.2f} behind as many real records. Raise {levers}."
        )
    near = f"within {max(behind, 0.0):.2f} of as many real records"
    return "good", f"Better than {all_free}, and {near}."


_ALONE = "the public model alone"
_NEAR_ALL = 0.95
"""Accuracy of the public model alone above which no release can be shown to gain much."""


def _why_no_headline(about: Circumstances) -> tuple[str, ...]:
    least = FEWEST if about.labelled else FEWEST_A_SIDE
    reasons = {
        "evaluate.enabled is off": not about.enabled,
        CUT_OFF: about.enabled and about.held_out and not about.measured,
        "that is measured of texts alone": not about.texts,
        "no real records are held out (dataset.holdout, dataset.test_path)": not about.held_out,
        "evaluate.embeddings is off": not about.embedded,
        f"the release holds {about.rows} records, fewer than {least}": about.rows < least,
    }
    why = [reason for reason, holds in reasons.items() if holds]
    if about.failed:
        why.append(f"measuring failed ({about.failed})")
    why = why or [f"one side has fewer than {least}{' labelled' * about.labelled} records"]
    what = "Accuracy" if about.labelled else "Nearness"
    what += " by sentence vectors, with an interval and beside what is free"
    return (f"{what}: UNAVAILABLE, since {' and '.join(why)}.",)


_NO_GENERATOR = (
    "The public model alone: UNAVAILABLE, since it is not measured of images. What it makes is "
    "shown where the release keeps its first population."
)


def _by_pixels(value: Mapping[str, float], levers: str) -> tuple[Grade, str]:
    """As _worth, of images: beside naming the commonest label, and as many real images."""
    behind = value["downstream.real"] - value["downstream.accuracy"]
    if value["downstream.accuracy_low"] <= value["downstream.majority"]:
        return "poor", f"Not shown to beat naming the commonest label. Raise {levers}."
    if behind > 0.1:
        return "fair", f"{behind:.2f} behind as many real images. Raise {levers}."
    return "good", f"Within {max(behind, 0.0):.2f} of as many real images."
