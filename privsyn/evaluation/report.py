"""What a release is worth beside real records, as graded sections of the report that stays inside.

The numbers read held-out real records, so every section is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from privsyn.evaluation.circumstances import (
    CUT_OFF,
    FEWEST,
    Circumstances,
    easiest_first,
    graded_section,
)
from privsyn.evaluation.grades import downstream
from privsyn.report.blocks import Bar, Bars, Block, Missing, Number, Numbers
from privsyn.report.document import STAYS, Grade, Section


def sections(metrics: Sequence[Mapping[str, Any]], about: Circumstances) -> list[Section]:
    """The report's sections from the metrics of evaluation.json.

    Args:
        metrics: As Metric.to_json writes them.
        about: The circumstances.
    """
    value = {str(metric["name"]): float(metric["value"]) for metric in metrics}
    return [
        downstream(value, metrics, about),
        _likeness(value, metrics, about),
        *_reading(value, metrics, about),
    ]


_ALIKE: Mapping[str, tuple[str, float, float]] = {
    "mauve": ("at least", 0.9, 0.6),
    "length_ks": ("at most", 0.1, 0.3),
    "labels_apart": ("at most", 0.1, 0.3),
    "precision": ("at least", 0.8, 0.5),
    "recall": ("at least", 0.6, 0.3),
}
"""Numbers that are graded: which way is good, and where good and fair end. Of precision and recall
the share of what other real images have is graded, where that was measured."""


def _likeness(
    value: Mapping[str, float], metrics: Sequence[Mapping[str, Any]], about: Circumstances
) -> Section:
    """Do the records look like real ones?"""
    title = "Does it look like the real records?"
    shown = [metric for metric in metrics if _of_likeness(str(metric["name"]))]
    numbers = [Number(_called(str(m["name"])), float(m["value"]), str(m["note"])) for m in shown]
    graded = {
        name: _grade_of(name, value[name] / (value.get(f"{name}_real", 1.0) or 1.0))
        for name in _ALIKE
        if name in value
    }
    missing = _of_images(metrics, about)
    if not graded:
        why = (
            "no real records are held out"
            if not about.held_out
            else "evaluate.enabled is off"
            if not about.enabled
            else CUT_OFF
            if not about.measured
            else f"measuring failed ({about.failed})"
            if about.failed
            else "there are too few records"
        )
        missing = missing or (f"UNAVAILABLE, since {why}.",)
        return graded_section("likeness", title, None, "Not measured.", (), numbers, missing)
    order: tuple[Grade, ...] = ("poor", "fair", "good")
    worst = min(graded.values(), key=order.index)
    weak = [name for name, grade in graded.items() if grade == worst]
    if worst == "good":
        said = "By every number measured."
        return graded_section("likeness", title, worst, said, (), numbers, missing)
    advice = f"Weakest by {' and '.join(map(_called, weak))}."
    if "labels_apart" in weak:
        advice += " Labels are in other proportions than those of the real records."
        advice += f" {about.proportions}" if about.proportions else ""
    if "length_ks" in weak:
        advice += _of_lengths(value.get("length_shift"), about.longest)
    if "mauve" in weak:
        advice += f" Raise {about.levers}; MAUVE of fewer than some hundred texts says little."
    if "precision" in weak:
        advice += f" Many look like no real image: raise {about.levers}."
    if "recall" in weak:
        advice += " Many real images look like none of these: let it make more of them."
    advice = easiest_first(advice, about)
    if about.aside:
        advice += f" And {about.aside}."
    return graded_section("likeness", title, worst, advice, (), numbers, missing)


def _of_lengths(shift: float | None, longest: str) -> str:
    """Which way lengths differ, and the next step; ``shift`` in words, None where unknown."""
    if shift is None or abs(shift) < 1:
        how = "differ" if shift is None else "differ, but not their median"
        return f" Lengths {how}: look at {longest} and at the method's prompt."
    than = f"than real ones, by {abs(shift):g} words in the median"
    if shift < 0:
        return (
            f" Its texts are shorter {than}: raise {longest} if they are cut off, else ask for "
            "longer ones in the method's prompt."
        )
    return (
        f" Its texts are longer {than}: lower {longest}, or ask for shorter ones in the method's "
        "prompt."
    )


def _of_images(metrics: Sequence[Mapping[str, Any]], about: Circumstances) -> tuple[str, ...]:
    """Why distances between images are missing, or flatter; empty where they are sound."""
    if about.texts:
        return ()
    what = "FID, KID, precision and recall"
    if found := [str(metric["note"]) for metric in metrics if metric["name"] == "fid"]:
        if _VOTER not in found[0]:
            return ()
        return (
            f"{what} are in features of models.image_embedder: where it cast the votes of the "
            "release they flatter. Run evaluate again to have them by evaluate.image_encoder.",
        )
    why = (
        "evaluate.enabled is off."
        if not about.enabled
        else "no real records are held out."
        if not about.held_out
        else f"{CUT_OFF}."
        if not about.measured
        else "evaluate.embeddings is off."
        if not about.embedded
        else about.encoder
        or f"a side had fewer than {FEWEST} images, or the encoder was not here when the release "
        "was measured: run evaluate again."
    )
    return (f"{what}: UNAVAILABLE, since {why}",)


_VOTER = "models.image_embedder="
"""In the notes of releases that the voter's own encoder measured."""


def _called(name: str) -> str:
    """A metric as people call it."""
    written = {"mauve": "MAUVE", "fid": "FID", "kid": "KID", "length_ks": "lengths (KS)"}
    written |= {
        "length_wasserstein": "lengths, words apart",
        "words_divergence_real": "words divergence of real texts",
    }
    written |= {"length_shift": "lengths, words longer than real texts"}
    written |= {"mauve_low": "MAUVE, resampled: from", "mauve_high": "MAUVE, resampled: to"}
    first = name.removesuffix("_real")
    if first != name and first in ("fid", "kid", "precision", "recall"):
        return f"{_called(first)} of real images"
    return written.get(name) or name.replace("_", " ").replace(".", " ")


def _of_likeness(name: str) -> bool:
    return not name.startswith(
        ("downstream.", "vectors.", "nearness.", "audit.", "fields.", *_READ)
    )


_READ = ("perplexity.", "in_context.")


def _reading(
    value: Mapping[str, float], metrics: Sequence[Mapping[str, Any]], about: Circumstances
) -> list[Section]:
    """What the public language model makes of the release; of texts alone."""
    if not about.texts:
        return []
    title = "What does the public model make of it?"
    numbers = [
        Number(
            _called(str(m["name"])),
            float(m["value"]),
            str(m["note"]),
            value.get(f"{m['name']}_low"),
            value.get(f"{m['name']}_high"),
        )
        for m in metrics
        if str(m["name"]).startswith(_READ) and not str(m["name"]).endswith(("_low", "_high"))
    ]
    missing = [
        f"{what}: UNAVAILABLE, since {why}."
        for name, what, why in (
            ("perplexity.gap", "Perplexity", _why_unread(about, "perplexity_texts")),
            (
                "in_context.synthetic",
                "Accuracy with examples in the prompt",
                _why_unread(about, "in_context_records"),
            ),
        )
        if name not in value
    ]
    advice = "Not measured."
    grade: Grade | None = None
    if "perplexity.gap" in value:
        low, high = value["perplexity.gap_low"], value["perplexity.gap_high"]
        none, small = low <= 0 <= high, abs(value["perplexity.gap"]) <= _WIDE
        told = max(-low, high) <= _WIDE
        grade = "good" if none and told else "fair" if none or small else "poor"
        advice = (
            "The model finds synthetic and real texts about equally surprising."
            if none and told
            else "Too few texts to tell whether synthetic or real ones surprise it more"
            + (
                ". Raise evaluate.perplexity_texts."
                if about.rows > about.perplexity_texts
                else f": the release, of {about.rows}, is too small. Have more texts written."
            )
            if none
            else "Synthetic texts are more surprising to it than real ones: they may be broken. "
            f"Read some; lower the method's temperature, or raise {about.levers}."
            if low > 0
            else "Synthetic texts are less surprising to it than real ones: they hold more of what "
            f"it writes anyway. Raise {about.levers}."
        )
    names = {
        "synthetic": "this release",
        "chance": "commonest label",
        "public": "public model alone",
        "real": "real records",
    }
    bars = [
        Bar(
            said,
            value[f"in_context.{name}"],
            value.get("in_context.low") if name == "synthetic" else None,
            value.get("in_context.high") if name == "synthetic" else None,
            ours=name == "synthetic",
        )
        for name, said in names.items()
        if f"in_context.{name}" in value
    ]
    of = "Accuracy of the model on real records, with labelled examples in its prompt"
    return [graded_section("reading", title, grade, advice, bars, numbers, missing, of)]


_WIDE = 0.5
"""A perplexity gap beyond which it is poor; good is one that may be none, and no larger."""


def _why_unread(
    about: Circumstances, setting: Literal["perplexity_texts", "in_context_records"]
) -> str:
    """Why the public model did not read the release, as far as it can be told."""
    if not about.enabled:
        return "evaluate.enabled is off"
    if not about.held_out:
        return "no real records are held out"
    if not about.measured:
        return CUT_OFF
    if about.failed:
        return f"measuring failed ({about.failed})"
    asked = about.perplexity_texts if setting == "perplexity_texts" else about.in_context_records
    if not asked:
        return f"evaluate.{setting} is 0"
    if not about.reader:
        return "models.language is not read on this machine (models.server is set)"
    if setting == "in_context_records":
        if not about.labelled:
            return "the records have no labels to tell apart"
        few = f"fewer than {2 * FEWEST} real records with a label are held out"
    elif asked < FEWEST:
        return f"evaluate.{setting}={asked} is fewer than {FEWEST}"
    elif about.rows < FEWEST:
        return f"the release holds {about.rows} records, fewer than {FEWEST}"
    else:
        few = f"fewer than {FEWEST} real records are held out"
    return f"{few}, or evaluate ran with other settings: run it again"


def _grade_of(name: str, value: float) -> Grade:
    which, good, fair = _ALIKE[name]
    value, good, fair = (-value, -good, -fair) if which == "at most" else (value, good, fair)
    return "good" if value >= good else "fair" if value >= fair else "poor"


MOST = 4
"""Students that are shown at most."""

_ACCURACY = "next_token_accuracy"
_BESIDE = {
    "public": "public model alone",
    "private": "DP-SGD on the records",
    "non_private": "real records",
}
"""What a student is measured beside, by the first part of a metric's name."""


@dataclass(frozen=True)
class Taught:
    """A student of the release.

    Attributes:
        name: Its name.
        parameters: How many it has.
        values: What was measured of it, by the metric's name; empty where nothing was.
    """

    name: str
    parameters: int
    values: Mapping[str, float] = field(default_factory=dict)


def section(students: Sequence[Taught], release_id: str, why: str | None = None) -> Section:
    """How often students of a release name the next token of held-out real texts.

    Args:
        students: Those that lie here; ``MOST`` are shown, those that were measured first.
        release_id: The release.
        why: Why none can be measured, in words; None where one can.
    """
    told = sorted(students, key=lambda student: _student(_ACCURACY) not in student.values)
    blocks: list[Block] = []
    advice: list[str] = []
    grades: list[Grade] = []
    for student in told[:MOST]:
        if _student(_ACCURACY) in student.values:
            blocks += _shown(student)
            grade, said = _worth(student)
            grades.append(grade)
            advice.append(said)
    if not advice:
        blocks.append(Missing((_missing(students, release_id, why),)))
    if len(students) > len(advice) > 0:
        rest = f"{len(students) - len(advice)} more of its students are here and not shown."
        blocks.append(Missing((rest,)))
    title = "What does a small model learn from it?"
    order: tuple[Grade, ...] = ("good", "fair", "poor")
    best = next((grade for grade in order if grade in grades), None)
    said = " ".join(advice) or "Not measured."
    if grades and best != "good":
        said += f" {_HELP}"
    return Section("students", title, STAYS, tuple(blocks), best, said)


def _student(name: str) -> str:
    return f"student.{name}"


def _shown(student: Taught) -> tuple[Block, ...]:
    value = student.values
    own = Bar(
        "this release",
        value[_student(_ACCURACY)],
        value.get(_student(f"{_ACCURACY}_low")),
        value.get(_student(f"{_ACCURACY}_high")),
        ours=True,
    )
    bars = [own]
    if (commonest := value.get(_student("commonest_token"))) is not None:
        bars.append(Bar("commonest token", commonest))
    bars += [
        Bar(called, value[f"{name}.{_ACCURACY}"])
        for name, called in _BESIDE.items()
        if f"{name}.{_ACCURACY}" in value
    ]
    numbers = [
        Number(f"cross entropy, {called}", value[f"{name}.cross_entropy"], "nats a token")
        for name, called in {"student": "this release", **_BESIDE}.items()
        if f"{name}.cross_entropy" in value
    ]
    of = (
        f"Share of tokens of held-out real texts that {student.name}, of {student.parameters:,} "
        "parameters, finds the most likely"
    )
    missing = () if f"public.{_ACCURACY}" in value else (Missing((_NO_PUBLIC,)),)
    return (*missing, Bars(tuple(bars), of), Numbers(tuple(numbers)))


_NO_PUBLIC = (
    "The public model alone: UNAVAILABLE, since methods.distill.baselines does not name public, or "
    "the config does not name the student's models any more, or they are not here."
)


_HELP = (
    "More texts teach more: privsyn more, or more rows of the method; then raise "
    "methods.distill.epochs, or begin with methods.distill.init: tiny."
)


def _worth(student: Taught) -> tuple[Grade, str]:
    """Grade and words: beside the commonest token and the public model alone."""
    value = student.values
    low = value.get(_student(f"{_ACCURACY}_low"), 0.0)
    least, name = value.get(_student("commonest_token"), 0.0), student.name.rpartition(".")[2]
    said = f"{name}: {value[_student(_ACCURACY)]:.3f} of next tokens right"
    if low <= least:
        return (
            "poor",
            f"{said}, no more than the commonest token alone: it learnt nothing to speak of.",
        )
    public = value.get(f"public.{_ACCURACY}")
    if public is None:
        return "fair", f"{said}, more than the commonest token alone."
    if low > public:
        return "good", f"{said}, more than the public model alone ({public:.3f})."
    return "fair", (
        f"{said}, not shown to be more than the public model alone ({public:.3f}), which may be "
        "far larger."
    )


def _missing(students: Sequence[Taught], release_id: str, why: str | None) -> str:
    what = "Next-token accuracy of a small student: UNAVAILABLE, since"
    if why is not None:
        return f"{what} {why}."
    if not students:
        return f"{what} none was made of this release: privsyn distill {release_id}"
    return (
        f"{what} {students[0].name} was not measured, or there was no text to measure it by: "
        f"privsyn distill {release_id}"
    )
