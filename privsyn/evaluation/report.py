"""Utility of a release compared with real records: graded sections of the internal report.

The numbers read held-out real records, so every section is internal. A grade is the first row of
its table whose condition holds. A sentence is a template, here in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

from privsyn.evaluation.classifiers import FEWEST, FEWEST_A_SIDE, TAKEN_FOR, Interval
from privsyn.evaluation.judge import (
    ENCODER,
    GAIN,
    NEARNESS,
    RELEASE,
    RULERS,
    Ruler,
    Scores,
)
from privsyn.report.document import (
    STAYS,
    Answer,
    Bar,
    Block,
    Document,
    Grade,
    Number,
    ReportSection,
)

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
        embedded: Whether sentence vectors are enabled.
        enabled: Whether releases are measured.
        measured: Whether this release was measured.
        encoder: Why no encoder that took no part can measure it; None if one can.
        rows: Synthetic records.
        tuning_hint: The settings of the method that raise utility.
        failed: Name and error of each measurement that failed; empty if none did.
        first: What helps before the method's settings do; empty for nothing.
        aside: Further advice for a release that is not good; empty for nothing.
        proportions: What decides how many records a label has, in a sentence.
        longest: The setting that limits a text's length.
        perplexity_texts: Texts a side for perplexity.
        in_context_records: Real records that the model labels from examples in its prompt.
        reader: Whether models.language runs on this machine, not on a server.
    """

    texts: bool
    held_out: bool
    labeled: bool
    embedded: bool
    rows: int
    tuning_hint: str
    enabled: bool = True
    measured: bool = True
    encoder: str | None = None
    failed: str = ""
    first: str = ""
    aside: str = ""
    proportions: str = ""
    longest: str = "max_tokens"
    perplexity_texts: int = 32
    in_context_records: int = 0
    reader: bool = True

    @property
    def why_never(self) -> str | None:
        """Why no release has a metric that reads real records; None if one can."""
        if not self.enabled:
            return "evaluate.enabled is off"
        return None if self.held_out else "no real records are held out"

    @property
    def why_not(self) -> str | None:
        """Why this release has none; None if nothing is known to prevent it."""
        if self.why_never is None and self.measured and self.failed:
            return f"measuring failed ({self.failed})"
        return self.why_never or (None if self.measured else CUT_OFF)


@dataclass(frozen=True)
class Graded:
    """A row of a table of grades: the first whose condition holds is taken.

    Attributes:
        holds: Whether it is the row, by the facts.
        grade: The grade; None for none.
        sentence: What it means: a template over the facts.
        step: What to do: the same; empty for nothing.
    """

    holds: Callable[[Any], bool]
    grade: Grade | None
    sentence: str
    step: str = ""


def _otherwise(_: Any) -> bool:
    return True


Decided = tuple[Grade | None, tuple[str, ...]]
"""A grade, and the sentences of what it means and what to do."""


def _decide(rows: Sequence[Graded], facts: Mapping[str, Any]) -> Decided:
    row = next(row for row in rows if row.holds(SimpleNamespace(**facts)))
    return row.grade, tuple(part.format_map(facts) for part in (row.sentence, row.step) if part)


def _advice(decided: Decided, about: Availability, *more: str) -> str:
    """What a grade means, what helps first, what to do, and what else may be the reason."""
    grade, (summary, *steps) = decided
    if grade in (None, "good"):
        return " ".join([summary, *steps])
    first = f"First: {about.first}." if about.first else ""
    aside = f"And {about.aside}." if about.aside else ""
    return " ".join(filter(None, [summary, first, *steps, *more, aside]))


# --- what it teaches, and what the records added --------------------------------------------------

_CLOSE, _HALF = 0.9, 0.5
"""Shares of what real records teach beyond the commonest label. A tenth is about what 300 test
records can tell: two standard errors of such an accuracy are .04 to .06. Half is a convention."""
_TAUGHT = 0.05
"""Accuracy over the commonest label from which on real records teach something: the same errors."""
_NEAR_ALL = 0.95
"""Above this accuracy of what is free no release can show a gain: the interval reaches 1."""

_TEACHES = (
    "A classifier that learned from it is right about {value:.0%} of real records. One that "
    "learned from {reference} is right about {ref:.0%}."
)
USEFUL = (
    Graded(lambda f: f.ruler is None, None, "Not measured."),
    Graded(lambda f: f.ruler.name == NEARNESS, None,
        "Not graded: nearness has no scale of its own. Compare the bars."),
    Graded(lambda f: f.ref is None, None,
        "Not graded: no classifier that learned from real records was measured."),
    Graded(lambda f: f.low <= f.chance, "poor",
        "It was not shown to teach more than always naming the commonest label ({chance:.0%}).",
        "Raise {levers}."),
    Graded(lambda f: f.ref - f.chance <= _TAUGHT, None,
        "Not graded: real records teach hardly more than the commonest label."),
    Graded(lambda f: f.reached >= _CLOSE, "good", _TEACHES),
    Graded(lambda f: f.reached >= _HALF, "fair", _TEACHES, "Raise {levers}."),
    Graded(_otherwise, "poor", _TEACHES, "Raise {levers}."),
)  # fmt: skip
"""How useful a release is, whatever else is as useful."""

_NOTHING = "No gain over what is free could be shown ({aspects})."
_SOMETHING = "The records added to what is free ({aspects})."
ADDED = (
    Graded(lambda f: not f.deciding, None, "Not measured."),
    Graded(lambda f: f.every and f.complete and f.halfway, "good", _SOMETHING,
        "Every ruler puts it above what is free, of which the best is: {best}."),
    Graded(lambda f: f.some, "fair", _SOMETHING,
        "The best of what is free: {best} ({free:.2f}). Raise {levers}."),
    Graded(lambda f: f.free > _NEAR_ALL or (f.free >= f.real and f.real - f.chance > _TAUGHT),
        "poor", _NOTHING,
        "What is free teaches about as much ({free:.2f}: {best}) as {real_records} real records "
        "({real:.2f}). Take what costs nothing: no epsilon is needed."),
    Graded(_otherwise, "poor", _NOTHING,
        "What is free gives {free:.2f} ({best}). Raise {levers}, or spend more epsilon, or take "
        "what costs nothing."),
)  # fmt: skip
"""What the records added. Good: every ruler shows a gain, and of at least half of the way from the
best that is free to as many real records. Fair: one shows a gain."""

_STATES = {True: "yes", False: "not shown", None: "not measured"}
_CODED = (
    "The labels mean nothing to the public model, so that what is free is at chance. "
    "dataset.label_descriptions gives them words."
)
LINES = (
    Graded(lambda f: f.gain is not None and f.real is not None, None,
        "By {words}: release {value:.3f}, best that is free {free:.3f} ({best}), {real_records} "
        "real records {real:.3f}; gain {gain:+.3f} [{gain_low:+.3f}, {gain_high:+.3f}]."),
    Graded(lambda f: f.gain is not None, None,
        "By {words}: release {value:.3f}, best that is free {free:.3f} ({best}); gain {gain:+.3f} "
        "[{gain_low:+.3f}, {gain_high:+.3f}]."),
    Graded(lambda f: not f.ruler.labeled, None,
        "By {words}: release {value:.3f}, {real_records} real records {real:.3f}."),
    Graded(lambda f: f.real is not None, None,
        "By {words}: release {value:.3f}, {real_records} real records {real:.3f}, the commonest "
        "label {chance:.3f}."),
    Graded(_otherwise, None, "By {words}: release {value:.3f}, the commonest label {chance:.3f}."),
)  # fmt: skip
"""What one ruler measured, in a line."""


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
        return _decide(USEFUL, {"ruler": None})
    facts = _facts(scores, ruler, levers=levers, ref=None)
    if paid := scores.rivals(ruler.name, free=False):
        ref = scores.value(ruler.name, paid[-1].name)  # all real records, where they are more
        reached = (facts["value"] - facts["chance"]) / max(ref - facts["chance"], 1e-9)
        facts |= {"ref": ref, "reached": reached}
        facts["reference"] = scores.words_for(ruler.name, paid[-1])
    return _decide(USEFUL, facts)


def gains(scores: Scores, style: float | None, levers: str = "") -> Decided:
    """What the records added, by all rulers that decide together.

    Args:
        scores: Of the release.
        style: Lower end of its gain in style; None where it was not measured.
        levers: The settings that raise utility.
    """
    deciding = scores.deciding
    if not deciding:
        return _decide(ADDED, {"deciding": ()})
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
    return _decide(ADDED, facts)


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
    lines = [_decide(LINES, _facts(scores, ruler))[1][0] for ruler in rulers]
    return " ".join([*lines, *([_CODED] if is_coded(scores) else [])])


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
    scores = Scores.read(value)
    return [
        _useful_section(scores, metrics, about),
        _added_section(scores, value.get(_STYLE), about),
        _likeness(value, metrics, about),
        *([_reading(value, metrics, about)] if about.texts else []),
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
    bars = [Bar("this release", *_ends(scores[name, RELEASE]), ours=True)]
    bars += [Bar(scores.words_for(name, one), *_ends(scores[name, one.name])) for one in rivals]
    return Block("bars", *bars, of=f"{ruler.number.capitalize()} on real records, by {ruler.words}")


def _ends(interval: Interval) -> tuple[float, float | None, float | None]:
    """A number, and the ends of its interval if it has one."""
    if interval.low == interval.value == interval.high:
        return interval.value, None, None
    return interval.value, interval.low, interval.high


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
        block = Block("bars", *(Bar(one.name, one.value, ours=True) for one in recalls), of=of)
    return graded_section(
        "useful",
        "How useful is it?",
        decided[0],
        _advice(decided, about, _least_found(recalls, metrics)),
        () if measured else _why_unmeasured(about),
        *(_bars(scores, ruler, free=False) for ruler in scores.rulers),
        block,
    )


def _added_section(scores: Scores, style: float | None, about: Availability) -> ReportSection:
    """Is it better than what costs no privacy?"""
    decided = gains(scores, style, about.tuning_hint)
    numbers = []
    for ruler in scores.deciding:
        gain, best = scores[ruler.name, GAIN], scores.best_free(ruler.name).words
        note = f"over the best of what is free: {best}"
        numbers.append(Number(f"gain by {ruler.words}", gain.value, note, gain.low, gain.high))
    return graded_section(
        "added",
        "Did your records add to what is free?",
        decided[0],
        _advice(decided, about, _CODED if is_coded(scores) else ""),
        list(_not_beside(scores, about)),
        *(_bars(scores, one, free=True) for one in scores.rulers if (one.name, GAIN) in scores),
        Block("numbers", *numbers),
    )


def _not_beside(scores: Scores, about: Availability) -> Iterator[str]:
    """Which rulers and rivals are not there, and why."""
    if not about.texts:
        yield _NO_GENERATOR
    elif not scores.deciding:
        yield "What is free was not measured: see above."
        return
    elif about.labeled and (ENCODER, RELEASE) not in scores:
        why = about.encoder or "it was not here when the release was measured: run it again"
        yield f"An encoder that took no part: UNAVAILABLE, since {why.rstrip('.')}."
    if about.texts and not any(column == "public" for _, column in scores.table):
        yield "The public model alone was not measured."
    if about.failed:
        yield f"Measuring failed ({about.failed})."


_NO_GENERATOR = (
    "The public model alone: UNAVAILABLE, since it is not measured for images. Its images are "
    "shown if the release has its first population."
)
_ALL = 0.99
"""Recall that two digits print as 1.00, or nearly."""
_DRAWN = 20
"""Most labels whose recalls are bars; more labels become a table."""
_LEAST = "The label that is found least is {label} ({share:.0%})."
_CONFUSED = (
    "The label that is found least is {label} ({share:.0%}); {other_share:.0%} are taken for "
    "{other}: synthetic records of the two look alike. Describe in dataset.label_descriptions how "
    "they differ."
)


def _least_found(recalls: Sequence[Number], metrics: Metrics) -> str:
    """The label with the lowest recall, what it is confused with, and what may help."""
    least = min(recalls, key=lambda recall: recall.value, default=None)
    if least is None or least.value > _ALL:
        return ""
    facts: dict[str, Any] = {"label": least.name, "share": least.value}
    for metric in metrics:
        if str(metric["name"]).startswith("downstream.confused.") and metric["label"] == least.name:
            other = str(metric["note"]).removeprefix(TAKEN_FOR)
            return _CONFUSED.format(**facts, other=other, other_share=metric["value"])
    return _LEAST.format(**facts)


def _why_unmeasured(about: Availability) -> tuple[str, ...]:
    least = FEWEST if about.labeled else FEWEST_A_SIDE
    reasons = {
        "evaluate.enabled is off": not about.enabled,
        CUT_OFF: about.enabled and about.held_out and not about.measured,
        "no real records are held out (dataset.holdout, dataset.test_path)": not about.held_out,
        "evaluate.embeddings is off": about.texts and not about.embedded,
        f"the release holds {about.rows} records, fewer than {least}": about.rows < least,
        f"measuring failed ({about.failed})": bool(about.failed),
    }
    why = [reason for reason, holds in reasons.items() if holds]
    why = why or [f"one side has fewer than {least}{' labeled' * about.labeled} records"]
    if about.texts and not about.labeled and about.encoder and not about.failed:
        why.append(about.encoder.rstrip("."))
    what = "Accuracy" if about.labeled else "Nearness"
    return (
        f"{what}, with an interval, beside what is free: UNAVAILABLE, since {' and '.join(why)}.",
    )


# --- likeness -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alike:
    """A number of likeness that is graded.

    Attributes:
        name: Of the metric.
        better: Which way is better.
        good: Limit of good.
        fair: Limit of fair.
        step: What to know, or to do, where it is the weakest: a template.
    """

    name: str
    better: Literal["less", "more"]
    good: float
    fair: float
    step: str

    def grade(self, value: float) -> Grade:
        """The grade of a value."""
        sign = 1 if self.better == "more" else -1
        good, fair = sign * value >= sign * self.good, sign * value >= sign * self.fair
        return "good" if good else "fair" if fair else "poor"


ALIKE = (
    Alike("likeness.auc", "less", 0.7, 0.85, "A classifier tells it from real texts by its words."),
    Alike("mauve", "more", 0.9, 0.6,
          "Raise {levers}. MAUVE of fewer than some hundred texts says little."),
    Alike("length_ks", "less", 0.1, 0.3, "{lengths}"),
    Alike("labels_apart", "less", 0.1, 0.3,
          "Label proportions differ from those of the real records. {proportions}"),
    Alike("precision", "more", 0.8, 0.5, "Many do not look like real images: raise {levers}."),
    Alike("recall", "more", 0.6, 0.3,
          "Many real images have no similar synthetic one: generate more."),
)  # fmt: skip
"""Limits are conventions of this project. Precision and recall are graded relative to those of
other real images, where these were measured."""
LENGTHS = (
    Graded(lambda f: f.shift is None, None,
        "Lengths differ: look at {longest} and at the prompt."),
    Graded(lambda f: abs(f.shift) < 1, None,
        "Lengths differ, but not their median: look at {longest} and at the prompt."),
    Graded(lambda f: f.shift < 0, None,
        "Its texts are shorter than real ones, by {words:g} words in the median: raise {longest} "
        "if they are cut off, else ask for longer ones in the method's prompt."),
    Graded(_otherwise, None,
        "Its texts are longer than real ones, by {words:g} words in the median: lower {longest}, "
        "or ask for shorter ones in the method's prompt."),
)  # fmt: skip


def _likeness(value: Mapping[str, float], metrics: Metrics, about: Availability) -> ReportSection:
    """Do the records look like real ones?"""
    title, shift = "Does it look like real records?", value.get("length_shift")
    numbers = Block("numbers", *_numbers(value, (m for m in metrics if _is_likeness(m["name"]))))
    graded = {
        one: one.grade(value[one.name] / (value.get(f"{one.name}_real", 1.0) or 1.0))
        for one in ALIKE
        if one.name in value
    }
    missing = _images_unmeasured(metrics, about)
    if about.texts and about.encoder and "mauve" not in value and graded:
        missing = (f"MAUVE: UNAVAILABLE, since {about.encoder.rstrip('.')}.",)
    if not graded:
        why = about.why_not or "there are too few records"
        missing = missing or (f"UNAVAILABLE, since {why}.",)
        return graded_section("likeness", title, None, "Not measured.", missing, numbers)
    order: tuple[Grade, ...] = ("poor", "fair", "good")
    worst = next(grade for grade in order if grade in graded.values())
    weak = [one for one, grade in graded.items() if grade == worst]
    lengths = {"shift": shift, "words": abs(shift or 0), "longest": about.longest}
    facts = {
        "levers": about.tuning_hint,
        "proportions": about.proportions,
        "lengths": _decide(LENGTHS, lengths)[1][0],
    }
    decided: Decided = ("good", ("It does, by every number measured.",))
    if worst != "good":
        names = ", ".join(_display_name(one.name) for one in weak)
        steps = [one.step.format_map(facts).strip() for one in weak]
        decided = (worst, (f"The weakest numbers: {names}.", *steps))
    advice = _advice(decided, about)
    return graded_section("likeness", title, worst, advice, missing, numbers)


def _images_unmeasured(metrics: Metrics, about: Availability) -> tuple[str, ...]:
    """Why distances between images are missing or biased; empty if they are sound."""
    if about.texts:
        return ()
    what = "FID, KID, precision and recall"
    if notes := [str(metric["note"]) for metric in metrics if metric["name"] == "fid"]:
        if _VOTER_NOTE not in notes[0]:
            return ()
        return (
            f"{what} are in features of models.image_embedder: where it cast the votes of the "
            "release they are too good. Run evaluate again to measure with evaluate.image_encoder.",
        )
    why = (
        (f"{about.why_not}." if about.why_not else None)
        or (None if about.embedded else "evaluate.embeddings is off.")
        or about.encoder
        or f"a side had fewer than {FEWEST} images, or the encoder was not here when the release "
        "was measured: run evaluate again."
    )
    return (f"{what}: UNAVAILABLE, since {why}",)


_VOTER_NOTE = "models.image_embedder="
"""Marks the notes of metrics that used the encoder which cast the votes."""


def _numbers(value: Mapping[str, float], metrics: Iterator[Mapping[str, Any]]) -> Iterator[Number]:
    """Metrics as rows of a table. Some have their ends in the row, others in rows of their own."""
    for metric in metrics:
        name = str(metric["name"])
        at = (f"{name}_{end}" for end in ("low", "high"))
        ends = map(value.get, at) if name.startswith(_WITH_ENDS) else (None, None)
        yield Number(_display_name(name), float(metric["value"]), str(metric["note"]), *ends)


_READ = ("perplexity.", "in_context.")
_WITH_ENDS = ("likeness.", *_READ)
_ELSEWHERE = ("downstream.", "audit.", "fields.", *_READ, *(f"{ruler.name}." for ruler in RULERS))


def _is_likeness(name: str) -> bool:
    is_end = name.startswith(_WITH_ENDS) and name.endswith(("_low", "_high"))
    return not (is_end or name.startswith(_ELSEWHERE))


def _display_name(name: str) -> str:
    """Display name of a metric."""
    first = name.removesuffix("_real")
    if first != name and first in ("fid", "kid", "precision", "recall"):
        return f"{_display_name(first)} of real images"
    for end, of in (("_public", ", public model alone"), ("_real", ", real texts")):
        if name.endswith(end) and name.removesuffix(end) in _WRITTEN:
            return _WRITTEN[name.removesuffix(end)] + of
    return _WRITTEN.get(name) or name.replace("_", " ").replace(".", " ")


_WRITTEN = {
    "likeness.auc": "told from real texts by words (AUC)",
    "likeness.auc_vectors": "told from real texts by vectors (AUC)",
    "likeness.auc_style": "told from real texts by style (AUC)",
    "likeness.style_gain": "style, gain over the public model alone",
    "likeness.frequent_words": "frequent words that appear",
    "likeness.words_median": "median words",
    "likeness.first_person": "in the first person",
    "likeness.marks": "punctuation marks a word",
    "mauve": "MAUVE",
    "mauve_low": "MAUVE, resampled: from",
    "mauve_high": "MAUVE, resampled: to",
    "fid": "FID",
    "kid": "KID",
    "length_ks": "lengths (KS)",
    "length_wasserstein": "lengths, words apart",
    "length_shift": "lengths, words longer than real texts",
    "words_divergence_real": "words divergence of real texts",
}


# --- reading --------------------------------------------------------------------------------------

_WIDE = 0.5
"""Largest gap, in nats a token, that is not poor: a convention."""
_FEW = "Too few texts to tell whether synthetic or real ones surprise it more."
_MORE = "Synthetic texts are more surprising to it than real ones: they may be broken."
_LESS = "Synthetic texts are less surprising to it than real ones: it writes such texts anyway."
READS = (
    Graded(lambda f: f.gap is None, None, "Not measured."),
    # A wide interval around 0 says that there are too few texts.
    Graded(lambda f: f.low <= 0 <= f.high and max(-f.low, f.high) <= _WIDE, "good",
        "The model finds synthetic and real texts about equally surprising."),
    Graded(lambda f: f.low <= 0 <= f.high and f.rows > f.texts, "fair", _FEW,
        "Raise evaluate.perplexity_texts."),
    Graded(lambda f: f.low <= 0 <= f.high, "fair", _FEW,
        "The release, of {rows}, is too small: have more texts written."),
    Graded(lambda f: 0 < f.gap <= _WIDE, "fair", _MORE,
        "Read some; lower the method's temperature, or raise {levers}."),
    Graded(lambda f: f.gap > 0, "poor", _MORE,
        "Read some; lower the method's temperature, or raise {levers}."),
    Graded(lambda f: -f.gap <= _WIDE, "fair", _LESS, "Raise {levers}."),
    Graded(_otherwise, "poor", _LESS, "Raise {levers}."),
)  # fmt: skip


_READINGS = (
    ("perplexity.gap", "Perplexity", "perplexity_texts"),
    ("in_context.synthetic", "Accuracy with examples in the prompt", "in_context_records"),
)
_IN_CONTEXT = {
    "synthetic": "this release",
    "chance": "commonest label",
    "public": "public model alone",
    "real": "real records",
}


def _reading(value: Mapping[str, float], metrics: Metrics, about: Availability) -> ReportSection:
    """Perplexity and in-context accuracy under the public language model."""
    read = (metric for metric in metrics if str(metric["name"]).startswith(_READ))
    shown = (metric for metric in read if not str(metric["name"]).endswith(("_low", "_high")))
    missing = [
        f"{what}: UNAVAILABLE, since {_why_unread(about, setting)}."
        for name, what, setting in _READINGS
        if name not in value
    ]
    gap, low, high = (value.get(f"perplexity.gap{end}") for end in ("", "_low", "_high"))
    facts = {
        "gap": gap,
        "low": low,
        "high": high,
        "rows": about.rows,
        "texts": about.perplexity_texts,
        "levers": about.tuning_hint,
    }
    grade, sentences = _decide(READS, facts)
    ends = value.get("in_context.low"), value.get("in_context.high")
    bars = [
        Bar(label, value[f"in_context.{name}"], *ends, ours=True)
        if name == "synthetic"
        else Bar(label, value[f"in_context.{name}"])
        for name, label in _IN_CONTEXT.items()
        if f"in_context.{name}" in value
    ]
    of = "Accuracy of the model on real records, with labeled examples in its prompt"
    return graded_section(
        "reading",
        "How does the public model read it?",
        grade,
        " ".join(sentences),
        missing,
        Block("bars", *bars, of=of),
        Block("numbers", *_numbers(value, shown)),
    )


def _why_unread(about: Availability, setting: str) -> str:
    """Why the public model did not read the release."""
    requested, in_context = getattr(about, setting), setting == "in_context_records"
    few = 2 * FEWEST if in_context else FEWEST
    reasons = {
        str(about.why_not): about.why_not is not None,
        f"evaluate.{setting} is 0": not requested,
        "models.language is not read on this machine (models.server is set)": not about.reader,
        "the records have fewer than two labels": in_context and not about.labeled,
        f"evaluate.{setting}={requested} is fewer than {FEWEST}": (
            not in_context and requested < FEWEST
        ),
        f"the release holds {about.rows} records, fewer than {FEWEST}": (
            not in_context and about.rows < FEWEST
        ),
        f"fewer than {few} real records {'with a label ' * in_context}are held out, or evaluate "
        "ran with other settings: run it again": True,
    }
    return next(reason for reason, holds in reasons.items() if holds)


# --- students -------------------------------------------------------------------------------------

MOST_STUDENTS = 4
"""Most students that are shown."""

_ACCURACY = "next_token_accuracy"
_STUDENT, _COMMONEST = f"student.{_ACCURACY}", "student.commonest_token"
_STUDENT_BASELINES = {"public": "public model alone"}
"""Baselines of a student by the first part of a metric's name."""
STUDENTS = (
    Graded(lambda f: f.low <= f.least, "poor",
        "{name}: {value:.3f} of next tokens right, no more than always naming the most frequent "
        "token: it learned almost nothing."),
    Graded(lambda f: f.public is None, "fair",
        "{name}: {value:.3f} of next tokens right, more than always naming the most frequent "
        "token."),
    Graded(lambda f: f.low > f.public, "good",
        "{name}: {value:.3f} of next tokens right, more than the public model alone "
        "({public:.3f})."),
    Graded(_otherwise, "fair",
        "{name}: {value:.3f} of next tokens right, not shown to be more than the public model "
        "alone ({public:.3f}), which may be far larger."),
)  # fmt: skip


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
        students: Students in the workspace; ``MOST_STUDENTS`` are shown, measured ones first.
        release_id: The release.
        why: Why no student can be measured; None if one can.
    """
    measured = [student for student in students if _STUDENT in student.values][:MOST_STUDENTS]
    decided = [
        _decide(
            STUDENTS,
            {
                "name": student.name.rpartition(".")[2],
                "value": student.values[_STUDENT],
                "low": student.values.get(f"{_STUDENT}_low", 0.0),
                "least": student.values.get(_COMMONEST, 0.0),
                "public": student.values.get(f"public.{_ACCURACY}"),
            },
        )
        for student in measured
    ]
    grades = [grade for grade, _ in decided]
    best = next((grade for grade in ("good", "fair", "poor") if grade in grades), None)
    advice = [sentences[0] for _, sentences in decided] or ["Not measured."]
    missing = [] if measured else [_no_student(students, release_id, why)]
    if measured and len(students) > len(measured):
        missing = [f"{len(students) - len(measured)} more of its students are here and not shown."]
    return graded_section(
        "students",
        "What does a small model learn from it?",
        best,
        " ".join([*advice, *([_HELP] if best in ("fair", "poor") else [])]),
        missing,
        *(block for student in measured for block in _student_blocks(student)),
    )


def _student_blocks(student: StudentMetrics) -> tuple[Block, ...]:
    value = student.values
    ends = value.get(f"{_STUDENT}_low"), value.get(f"{_STUDENT}_high")
    bars = [Bar("this release", value[_STUDENT], *ends, ours=True)]
    if (commonest := value.get(_COMMONEST)) is not None:
        bars.append(Bar("commonest token", commonest))
    bars += [
        Bar(called, value[f"{name}.{_ACCURACY}"])
        for name, called in _STUDENT_BASELINES.items()
        if f"{name}.{_ACCURACY}" in value
    ]
    numbers = [
        Number(f"cross entropy, {called}", value[f"{name}.cross_entropy"], "nats a token")
        for name, called in {"student": "this release", **_STUDENT_BASELINES}.items()
        if f"{name}.cross_entropy" in value
    ]
    of = (
        f"Share of tokens of held-out real texts that {student.name}, of {student.parameters:,} "
        "parameters, finds the most likely"
    )
    missing = () if f"public.{_ACCURACY}" in value else (Block("missing", _NO_PUBLIC),)
    return (*missing, Block("bars", *bars, of=of), Block("numbers", *numbers))


_NO_PUBLIC = (
    "The public model alone: UNAVAILABLE, since the config does not name the student's models any "
    "more, or they are not here."
)
_HELP = (
    "More texts help: privsyn more, or more rows of the method; then raise "
    "methods.distill.epochs, or start from methods.distill.init: tiny."
)


def _no_student(students: Sequence[StudentMetrics], release_id: str, why: str | None) -> str:
    if why is None:
        why = f"this release has no student. Train one: privsyn distill {release_id}"
        if students:
            why = (
                f"{students[0].name} was not measured, or there was no text to measure it by: "
                f"privsyn distill {release_id}"
            )
        return f"Next-token accuracy of a small student: UNAVAILABLE, since {why}"
    return f"Next-token accuracy of a small student: UNAVAILABLE, since {why}."


# --- the document ---------------------------------------------------------------------------------

WARNING = (
    'Sections marked "internal" read held-out real records and are not differentially '
    "private. Keep this page where the records are, and share the report in the release folder "
    "instead. Choosing among releases by these numbers is a query on the records, and so is a "
    "setting that follows one of them: settings are published, and no account pays for that. Take "
    "from the advice which way to go, and how far from public numbers."
)

_NOT_THIS = {"May I hand it out?": "May I hand out the release?"}
"""Of questions that would be asked of this page too: what they are asked of."""

RISK = frozenset({"disclosure"})
"""Sections that say what the release may leak, and nothing of what it is worth."""


def inside(
    outward: Document,
    graded: Sequence[ReportSection],
    beside: str,
    plots: Sequence[Block] = (),
) -> Document:
    """The report that stays inside.

    Args:
        outward: The one that may leave the room.
        graded: Internal sections.
        beside: What the release was compared with, in sentences; empty for nothing.
        plots: Pictures that evaluate drew.
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
    drawn = [ReportSection("plots", "Plots", STAYS, tuple(plots))] if plots else []
    return replace(
        outward,
        cls=STAYS,
        kicker="Internal report on synthetic data",
        sections=(
            ReportSection("internal", "Internal", STAYS, (Block("words", WARNING),), tone="bad"),
            replace(short, cls=STAYS, blocks=(Block("answers", *items, answer),)),
            *graded,
            *drawn,
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
        measured = any(block.kind == "bars" for section in worth for block in section.blocks)
        return "Not graded: see the numbers below." if measured else "Not measured: see below why."
    return " ".join(f"{section.title} {str(section.grade).upper()}." for section in graded)
