"""What students of a release know of real texts, as a section of the report that stays inside.

The numbers read held-out real records, so the section is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from privsyn.report.blocks import Bar, Bars, Block, Missing, Number, Numbers
from privsyn.report.document import STAYS, Grade, Section

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
