"""Utility of a release compared with real records: graded sections of the internal report.

The numbers read held-out real records, so every section is internal. What a grade needs, and every
sentence, is in ``grades.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from privsyn.evaluation.classifiers import FEWEST, FEWEST_A_SIDE, Interval
from privsyn.evaluation.judge import ENCODER, GAIN, RELEASE, RULERS, Ruler, Scores
from privsyn.evaluation.metrics import GRADES
from privsyn.report.document import STAYS, Answer, Block, Document, Grade, Number, ReportSection

CUT_OFF = "evaluate did not run or was cut off (privsyn report --measure RELEASE: it costs nothing)"
Metrics = Sequence[Mapping[str, Any]]
"""As Metric.to_json writes them."""


@dataclass(frozen=True)
class Availability:
    """Which metrics a release can have, and what the advice of the report names.

    Attributes:
        texts: Whether records are texts.
        held_out: Whether the settings hold real records out.
        labeled: Whether records have two or more labels.
        models: Whether releases are measured with models.
        rows: Synthetic records.
        tuning_hint: The settings of the method that raise utility.
        enabled: Whether releases are measured.
        measured: Whether this release was measured.
        encoder: Why no encoder that took no part can measure it; None if one can.
        failed: Name and error of each measurement that failed; empty if none did.
        proportions: What decides how many records a label has, in a sentence.
        longest: The setting that limits a text's length.
        reader: Whether the method reads the logits of models.language, which is then here.
        table: Whether records are rows without a text.
    """

    texts: bool
    held_out: bool
    labeled: bool
    models: bool
    rows: int
    tuning_hint: str
    enabled: bool = True
    measured: bool = True
    encoder: str | None = None
    failed: str = ""
    proportions: str = ""
    longest: str = "max_tokens"
    reader: bool = True
    table: bool = False

    @property
    def why_never(self) -> str | None:
        """Why no release has a metric that reads real records; None if one can."""
        if not self.enabled:
            return "evaluate.by is nothing"
        return None if self.held_out else "no real records are held out"

    @property
    def why_not(self) -> str | None:
        """Why this release has none; None if nothing is known to prevent it."""
        if self.why_never is None and self.measured and self.failed:
            return f"measuring failed ({self.failed})"
        return self.why_never or (None if self.measured else CUT_OFF)


Decided = tuple[Grade | None, tuple[str, ...]]
"""A grade, and the sentences of what it means and what to do."""


def _decide(table: str, facts: Mapping[str, Any]) -> Decided:
    row = GRADES.first(table, facts)
    return row.get("grade"), tuple(row[part] for part in ("says", "do") if part in row)


def _advice(decided: Decided, *more: str) -> str:
    """What a grade means and what to do; of one that is not good, more."""
    grade, sentences = decided
    return " ".join(filter(None, sentences if grade in (None, "good") else [*sentences, *more]))


# --- what it teaches, and what the records added --------------------------------------------------

_STATES = {True: "yes", False: "not shown", None: "not measured"}


def _facts(scores: Scores, ruler: Ruler, **more: Any) -> dict[str, Any]:
    """What the templates and conditions know of one ruler."""
    name = ruler.name
    gain = scores.table.get((name, GAIN))
    best = scores.best_free(name) if scores.rivals(name, free=True) else None
    return {
        "ruler": ruler,
        "words": ruler.words,
        "value": scores.value(name, RELEASE),
        "low": scores[name, RELEASE].low,
        "chance": scores.value(name, "chance"),
        "real": scores.value(name, "real") if (name, "real") in scores else None,
        "real_records": f"{scores.value(name, 'real_records'):.0f}",
        "best": best and best.words,
        "free": best and scores.value(name, best.name),
        "gain": gain and gain.value,
        "gain_low": gain and gain.low,
        "gain_high": gain and gain.high,
        **more,
    }


def usefulness(scores: Scores, levers: str = "") -> Decided:
    """How useful a release is, by the first ruler that measured it."""
    ruler = next(iter(scores.rulers), None)
    if ruler is None:
        return _decide("useful", {"ruler": None})
    facts = _facts(scores, ruler, levers=levers, ref=None)
    if paid := scores.rivals(ruler.name, free=False):
        ref = scores.value(ruler.name, paid[-1].name)  # all real records, where they are more
        reached = (facts["value"] - facts["chance"]) / max(ref - facts["chance"], 1e-9)
        facts |= {"ref": ref, "reached": reached}
        facts["reference"] = scores.words_for(ruler.name, paid[-1])
    return _decide("useful", facts)


def gains(scores: Scores, style: float | None, levers: str = "") -> Decided:
    """What the records added, by all rulers that decide together.

    Args:
        scores: Of the release.
        style: Lower end of its gain in style; None where it was not measured.
        levers: The settings that raise utility.
    """
    deciding = scores.deciding
    if not deciding:
        return _decide("added", {"deciding": ()})
    of_kind = [one for one in RULERS if one.decides and one.labeled == deciding[0].labeled]
    shown = {ruler.name: scores[ruler.name, GAIN].low > 0 for ruler in deciding}
    aspects: dict[str, bool | None] = {}
    for ruler in of_kind:
        before, state = aspects.get(ruler.adds), shown.get(ruler.name)
        aspects[ruler.adds] = before if state is None else bool(before or state)
    if deciding[0].labeled:
        aspects["style"] = None if style is None else style > 0
    facts = _facts(
        scores,
        deciding[0],
        levers=levers,
        deciding=deciding,
        every=all(shown.values()),
        some=any(aspects.values()),
        complete=all(ruler.name in shown for ruler in of_kind if ruler.required),
        halfway=all(_is_halfway(scores, ruler.name) for ruler in deciding),
        aspects=", ".join(f"{name}: {_STATES[state]}" for name, state in aspects.items()),
    )
    facts["real"] = 1.0 if facts["real"] is None else facts["real"]
    return _decide("added", facts)


def _is_halfway(scores: Scores, ruler: str) -> bool:
    """Whether the gain is half of what as many real records gain."""
    possible = scores.value(ruler, "real") - scores.value(ruler, scores.best_free(ruler).name)
    return (ruler, "real") in scores and scores.value(ruler, GAIN) >= possible / 2


def is_coded(scores: Scores) -> bool:
    """Whether the labels mean nothing to the public model: by their words it is at chance."""
    if not {(ENCODER, "chance"), (ENCODER, "zero_shot")} <= scores.table.keys():
        return False
    by = [(ENCODER, name) for name in ("zero_shot", "public") if (ENCODER, name) in scores]
    return max(scores[place].low for place in by) <= scores.value(ENCODER, "chance")


def comparison(scores: Scores) -> str:
    """A line for each ruler that decides, or else for each; empty where nothing was measured."""
    rulers = scores.deciding or scores.rulers
    lines = [_decide("lines", _facts(scores, ruler))[1][0] for ruler in rulers]
    return " ".join([*lines, *GRADES.says("coded", coded=is_coded(scores))])


def verdict(value: Mapping[str, float]) -> str | None:
    """How useful a release is, what the records added, and by which numbers; None for nothing.

    Args:
        value: Metrics by name.
    """
    scores = Scores.read(value)
    decided = usefulness(scores), gains(scores, value.get(_STYLE))
    sentences = [parts[0] for grade, parts in decided if grade is not None]
    return " ".join([*sentences, comparison(scores)]) if scores.rulers else None


_STYLE = "likeness.style_gain_low"


def sections(metrics: Metrics, about: Availability) -> list[ReportSection]:
    """The report's sections from the metrics of evaluation.json.

    Args:
        metrics: As Metric.to_json writes them.
        about: What is available.
    """
    value = {str(metric["name"]): float(metric["value"]) for metric in metrics}
    if about.table:
        return [_columns(value, metrics, about)]
    scores = Scores.read(value)
    return [
        _useful_section(scores, metrics, about),
        _added_section(scores, value.get(_STYLE), about),
        _likeness(value, metrics, about),
        *([_reading(value, metrics, about)] if about.texts else []),
        *([_columns(value, metrics, about)] if "columns.fit" in value else []),
    ]


def graded_section(
    key: str,
    title: str,
    grade: Grade | None,
    advice: str,
    missing: Sequence[str] = (),
    *blocks: Block,
) -> ReportSection:
    """An internal section: what is missing, then the blocks that hold something."""
    first = (Block("missing", *missing),) if missing else ()
    shown = (*first, *(block for block in blocks if block.items))
    return ReportSection(key, title, STAYS, shown, grade, advice)


def _bars(scores: Scores, ruler: Ruler, *, free: bool) -> Block:
    """The release and its rivals by a ruler: those that are free, or real records."""
    rivals = [one for one in scores.rivals(ruler.name) if one.free == free or one.name == "chance"]
    name = ruler.name
    bars = [_bar("this release", scores[name, RELEASE], ours=True)]
    bars += [_bar(scores.words_for(name, one), scores[name, one.name]) for one in rivals]
    return Block("bars", *bars, of=f"{ruler.number.capitalize()} on real records, by {ruler.words}")


def _bar(name: str, interval: Interval, *, ours: bool = False) -> Number:
    """A number, with the ends of its interval if it has one."""
    low, high = (interval.low, interval.high) if interval.low != interval.high else (None, None)
    return Number(name, interval.value, "", low, high, ours=ours)


def _useful_section(scores: Scores, metrics: Metrics, about: Availability) -> ReportSection:
    """How good is a classifier that learned from the release?"""
    recalls = tuple(
        Number(str(metric["label"]), float(metric["value"]), str(metric["note"]))
        for metric in metrics
        if str(metric["name"]).startswith("downstream.recall.")
    )
    decided = usefulness(scores, about.tuning_hint)
    measured = scores.deciding or (scores.rulers and not about.texts)
    block = Block("numbers", *recalls)
    if len(recalls) <= _DRAWN:
        of = "Share of each label's real records that are found, by a simple classifier"
        block = Block("bars", *(replace(one, note="", ours=True) for one in recalls), of=of)
    return graded_section(
        "useful",
        "How useful is it?",
        decided[0],
        _advice(decided),
        () if measured else _why_unmeasured(about),
        *(_bars(scores, ruler, free=False) for ruler in scores.rulers),
        block,
    )


_DRAWN = 20
"""Most labels whose recalls are bars; more labels become a table."""


def _added_section(scores: Scores, style: float | None, about: Availability) -> ReportSection:
    """Is it better than what costs no privacy?"""
    decided = gains(scores, style, about.tuning_hint)
    numbers = []
    for ruler in scores.deciding:
        gain, best = scores[ruler.name, GAIN], scores.best_free(ruler.name).words
        note = f"over the best of what is free: {best}"
        numbers.append(Number(f"gain by {ruler.words}", gain.value, note, gain.low, gain.high))
    missing = GRADES.says(
        "not_beside",
        about=about,
        deciding=scores.deciding,
        encoder=(ENCODER, RELEASE) in scores,
        public=any(column == "public" for _, column in scores.table),
    )
    return graded_section(
        "added",
        "Did your records add to what is free?",
        decided[0],
        _advice(decided, *GRADES.says("coded", coded=is_coded(scores))),
        missing,
        *(_bars(scores, one, free=True) for one in scores.rulers if (one.name, GAIN) in scores),
        Block("numbers", *numbers),
    )


def _why_unmeasured(about: Availability) -> tuple[str, ...]:
    least = FEWEST if about.labeled else FEWEST_A_SIDE
    why = [*GRADES.says("unmeasured", about=about, least=least, cut_off=CUT_OFF)]
    why = why or [f"one side has fewer than {least}{' labeled' * about.labeled} records"]
    if about.texts and not about.labeled and about.encoder and not about.failed:
        why.append(about.encoder.rstrip("."))
    what = "Accuracy" if about.labeled else "Nearness"
    return (
        f"{what}, with an interval, beside what is free: UNAVAILABLE, since {' and '.join(why)}.",
    )


# --- likeness -------------------------------------------------------------------------------------


def _likeness(value: Mapping[str, float], metrics: Metrics, about: Availability) -> ReportSection:
    """Do the records look like real ones?"""
    title = "Does it look like real records?"
    numbers = Block("numbers", *_numbers(value, (m for m in metrics if _is_likeness(m["name"]))))
    shift = {"shift": value.get("length_shift"), "longest": about.longest}
    facts = {"about": about, "lengths": GRADES.first("lengths", shift)["says"]}
    rows = [row for row in GRADES.holding("alike", facts) if row["name"] in value]
    graded = [(_alike(row, value), row) for row in rows]
    missing = _images_unmeasured(metrics, about)
    if about.texts and about.encoder and "mauve" not in value and graded:
        missing = (f"MAUVE: UNAVAILABLE, since {about.encoder.rstrip('.')}.",)
    if not graded:
        why = about.why_not or "there are too few records"
        missing = missing or (f"UNAVAILABLE, since {why}.",)
        return graded_section("likeness", title, None, "Not measured.", missing, numbers)
    order: tuple[Grade, ...] = ("poor", "fair", "good")
    worst = min((grade for grade, _ in graded), key=order.index)
    weak = [row for grade, row in graded if grade == worst]
    decided: Decided = ("good", ("It does, by every number measured.",))
    if worst != "good":
        names = ", ".join(_display_name(row["name"]) for row in weak)
        steps = [row["says"].strip() for row in weak]
        decided = (worst, (f"The weakest numbers: {names}.", *steps))
    return graded_section("likeness", title, worst, _advice(decided), missing, numbers)


def _alike(row: Mapping[str, Any], value: Mapping[str, float]) -> Grade:
    """The grade of a number of likeness by the limits of its row."""
    name, sign = row["name"], 1 if row["better"] == "more" else -1
    number = sign * value[name] / (value.get(f"{name}_real", 1.0) or 1.0)
    enough: tuple[Grade, ...] = ("good", "fair")
    return next((grade for grade in enough if number >= sign * row[grade]), "poor")


def _images_unmeasured(metrics: Metrics, about: Availability) -> tuple[str, ...]:
    """Why distances between images are missing or biased; empty if they are sound."""
    note = next((str(metric["note"]) for metric in metrics if metric["name"] == "fid"), None)
    # Notes name the encoder: this one cast the votes.
    voted = "models.image_embedder=" in (note or "")
    facts = {"about": about, "fid_note": note, "voted": voted, "fewest": FEWEST}
    return tuple(filter(None, [GRADES.first("images", facts)["says"]]))


def _numbers(value: Mapping[str, float], metrics: Iterator[Mapping[str, Any]]) -> Iterator[Number]:
    """Metrics as rows of a table. Some have their ends in the row, others in rows of their own."""
    for metric in metrics:
        name = str(metric["name"])
        at = (f"{name}_{end}" for end in ("low", "high"))
        ends = map(value.get, at) if name.startswith(_WITH_ENDS) else (None, None)
        yield Number(_display_name(name), float(metric["value"]), str(metric["note"]), *ends)


_WITH_ENDS = ("likeness.", "perplexity.")
_ELSEWHERE = (
    "downstream.", "perplexity.", "columns.", *(f"{ruler.name}." for ruler in RULERS)
)  # fmt: skip


def _is_likeness(name: str) -> bool:
    is_end = name.startswith(_WITH_ENDS) and name.endswith(("_low", "_high"))
    return not (is_end or name.startswith(_ELSEWHERE))


def _display_name(name: str) -> str:
    """Display name of a metric."""
    first = name.removesuffix("_real")
    if first != name and first in ("fid", "precision", "recall"):
        return f"{_display_name(first)} of real images"
    for end, of in (("_public", ", public model alone"), ("_real", ", real texts")):
        if name.endswith(end) and name.removesuffix(end) in _WRITTEN:
            return _WRITTEN[name.removesuffix(end)] + of
    return _WRITTEN.get(name) or name.replace("_", " ").replace(".", " ")


_WRITTEN: dict[str, str] = {row["name"]: row["says"] for row in GRADES.holding("names", {})}


# --- reading --------------------------------------------------------------------------------------


def _reading(value: Mapping[str, float], metrics: Metrics, about: Availability) -> ReportSection:
    """Perplexity under the public language model."""
    gap, low, high = (value.get(f"perplexity.gap{end}") for end in ("", "_low", "_high"))
    decided = _decide("reading", {"gap": gap, "low": low, "high": high, "about": about})
    missing = []
    if gap is None:
        why = GRADES.first("unread", {"about": about, "fewest": FEWEST})["says"]
        missing = [f"Perplexity: UNAVAILABLE, since {why}."]
    return graded_section(
        "reading",
        "How does the public model read it?",
        decided[0],
        " ".join(decided[1]),
        missing,
        Block("numbers", *_numbers(value, _without_ends(metrics, "perplexity."))),
    )


def _without_ends(metrics: Metrics, prefix: str) -> Iterator[Mapping[str, Any]]:
    """Metrics of a prefix, without the ends of their intervals."""
    for metric in metrics:
        name = str(metric["name"])
        if name.startswith(prefix) and not name.endswith(("_low", "_high")):
            yield metric


def _columns(value: Mapping[str, float], metrics: Metrics, about: Availability) -> ReportSection:
    """Do the columns follow the records, and do texts fit their rows?"""
    least, untied = (
        value.get(f"columns.{name}", 0.0) for name in ("fit_independent", "pairs_apart_independent")
    )
    sentences = GRADES.says(
        "columns",
        apart=value.get("columns.apart", 0.0),
        even=value.get("columns.apart_public", 1.0),
        both=value.get("columns.label.both"),
        alone=max(value.get(f"columns.label.{name}", 0.0) for name in ("columns", "text")),
        kept=untied - value.get("columns.pairs_apart", 0.0),
        tied=untied - value.get("columns.pairs_apart_sampling", 0.0),
        told=value["columns.fit_real"] - least if about.texts else None,
        fits=value["columns.fit"] - least if about.texts else None,
        chance=value.get("columns.fit_chance", 0.0),
    )
    missing: tuple[str, ...] = ()
    if "columns.apart" not in value:
        why = about.why_not or f"one side has fewer than {FEWEST} records"
        missing = (f"UNAVAILABLE, since {why}.",)
    return graded_section(
        "columns",
        "Do columns and texts belong together?"
        if about.texts
        else "Do the columns follow the records?",
        None,
        " ".join(sentences),
        missing,
        Block("numbers", *_numbers(value, _without_ends(metrics, "columns."))),
    )


# --- students -------------------------------------------------------------------------------------

_STUDENT, _COMMONEST = "student.next_token_accuracy", "student.commonest_token"
_PUBLIC = "public.next_token_accuracy"
_STUDENT_BARS = {
    _STUDENT: "this release",
    _COMMONEST: "commonest token",
    _PUBLIC: "public model alone",
}


@dataclass(frozen=True)
class StudentMetrics:
    """Metrics of a student of the release.

    Attributes:
        name: Its name.
        parameters: Number of parameters.
        values: Value by metric name; empty if it was not measured.
    """

    name: str
    parameters: int
    values: Mapping[str, float] = field(default_factory=dict)


def student_section(
    students: Sequence[StudentMetrics], release_id: str, why: str | None = None
) -> ReportSection:
    """Next-token accuracy of the release's students on held-out real texts.

    Args:
        students: Students in the workspace.
        release_id: The release.
        why: Why no student can be measured; None if one can.
    """
    measured = [student for student in students if _STUDENT in student.values]
    decided = [
        _decide(
            "students",
            {
                "name": student.name.rpartition(".")[2],
                "value": student.values[_STUDENT],
                "low": student.values.get(f"{_STUDENT}_low", 0.0),
                "least": student.values.get(_COMMONEST, 0.0),
                "public": student.values.get(_PUBLIC),
            },
        )
        for student in measured
    ]
    grades = [grade for grade, _ in decided]
    best = next((grade for grade in ("good", "fair", "poor") if grade in grades), None)
    advice = [sentences[0] for _, sentences in decided] or ["Not measured."]
    missing = [] if measured else [_no_student(students, release_id, why)]
    return graded_section(
        "students",
        "What does a small model learn from it?",
        best,
        " ".join([*advice, *GRADES.says("student_help", grade=best)]),
        missing,
        *(block for student in measured for block in _student_blocks(student)),
    )


def _student_blocks(student: StudentMetrics) -> tuple[Block, ...]:
    value = student.values
    bars = [
        Number(
            called, value[name], "", value.get(f"{name}_low"), value.get(f"{name}_high"),
            ours=name == _STUDENT,
        )
        for name, called in _STUDENT_BARS.items()
        if name in value
    ]  # fmt: skip
    of = (
        f"Share of tokens of held-out real texts that {student.name}, of {student.parameters:,} "
        "parameters, finds the most likely"
    )
    missing = (Block("missing", one) for one in GRADES.says("no_public", public=_PUBLIC in value))
    return (*missing, Block("bars", *bars, of=of))


def _no_student(students: Sequence[StudentMetrics], release_id: str, why: str | None) -> str:
    facts = {"students": students, "release_id": release_id, "why": why}
    reason = GRADES.first("no_student", facts)["says"]
    return f"Next-token accuracy of a small student: UNAVAILABLE, since {reason}"


# --- the document ---------------------------------------------------------------------------------

_NOT_THIS = {"May I hand it out?": "May I hand out the release?"}
"""Of questions that would be asked of this page too: what they are asked of."""

RISK = frozenset({"disclosure"})
"""Sections that say what the release may leak, and nothing of what it is worth."""


def inside(outward: Document, graded: Sequence[ReportSection], beside: str) -> Document:
    """The report that stays inside.

    Args:
        outward: The one that may leave the room.
        graded: Internal sections.
        beside: What the release was compared with, in sentences; empty for nothing.
    """
    short, *others = outward.sections
    (answers,) = (block for block in short.blocks if block.kind == "answers")
    internal = {
        "How good is it?": _grades(graded),
        "Compared with what?": beside or "With nothing: the comparison was not measured.",
    }
    items = tuple(
        replace(item, answer=internal[item.question], tone="plain")
        if item.question in internal
        else replace(item, question=_NOT_THIS.get(item.question, item.question))
        for item in answers.items
    )
    answer = Answer("And this page?", "No: it stays where the real records are.", "bad")
    return replace(
        outward,
        cls=STAYS,
        kicker="Internal report on synthetic data",
        sections=(
            ReportSection(
                "internal",
                "Internal",
                STAYS,
                (Block("words", *GRADES.says("warning")),),
                tone="bad",
            ),
            replace(short, cls=STAYS, blocks=(Block("answers", *items, answer),)),
            *graded,
            *others,
        ),
        footer=(
            "Public sections are as in the release folder's report; numbers of "
            "the others as in evaluation.json.",
        ),
    )


def _grades(sections: Sequence[ReportSection]) -> str:
    worth = [section for section in sections if section.key not in RISK]
    graded = [section for section in worth if section.grade]
    if not graded:
        kinds = ("bars", "numbers")
        measured = any(block.kind in kinds for section in worth for block in section.blocks)
        return "Not graded: see the numbers below." if measured else "Not measured: see below why."
    return " ".join(f"{section.title} {str(section.grade).upper()}." for section in graded)
