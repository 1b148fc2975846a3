"""Utility of a release compared with real records: graded sections of the internal report.

The numbers read held-out real records, so every section is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from privsyn.evaluation.classifiers import FEWEST, FEWEST_A_SIDE, TAKEN_FOR
from privsyn.evaluation.judge import (
    COUNTED,
    ENCODER,
    FREE,
    HOW,
    OTHERS,
    VOTER,
    best_free,
    rivals_in,
    weigh,
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


def _more_advice(advice: str, about: Availability) -> str:
    """Advice that names ``about.first`` before the method's settings, and ``about.aside`` last."""
    if about.first:
        summary, mark, settings = advice.partition(" Raise ")
        advice = f"{summary} First: {about.first}.{mark}{settings}"
    return f"{advice} And {about.aside}." if about.aside else advice


def graded_section(
    key: str,
    title: str,
    grade: Grade | None,
    advice: str,
    bars: Sequence[Bar] = (),
    numbers: Sequence[Number] = (),
    missing: Sequence[str] = (),
    of: str = "Accuracy of a classifier on held-out real records",
) -> ReportSection:
    """An internal section: what is missing, then bars, then numbers."""
    blocks: list[Block] = []
    if missing:
        blocks.append(Block("missing", *missing))
    if bars:
        blocks.append(Block("bars", *bars, of=of))
    if numbers:
        blocks.append(Block("numbers", *numbers))
    return ReportSection(key, title, STAYS, tuple(blocks), grade, advice)


def _bar(
    value: Mapping[str, float], key: str, name: str = "this release", *, ours: bool = True
) -> Bar:
    """A metric as a bar, with its interval if it has one."""
    return Bar(name, value[key], value.get(f"{key}_low"), value.get(f"{key}_high"), ours=ours)


def sections(metrics: Sequence[Mapping[str, Any]], about: Availability) -> list[ReportSection]:
    """The report's sections from the metrics of evaluation.json.

    Args:
        metrics: As Metric.to_json writes them.
        about: What is available.
    """
    value = {str(metric["name"]): float(metric["value"]) for metric in metrics}
    return [
        downstream(value, metrics, about),
        _likeness(value, metrics, about),
        *_reading(value, metrics, about),
    ]


def downstream(
    value: Mapping[str, float], metrics: Sequence[Mapping[str, Any]], about: Availability
) -> ReportSection:
    """Does a classifier trained on the release work on real records?"""
    if "nearness.cosine" in value:
        return _nearness(value, about)
    title = "Does what it teaches hold on real records?"
    recalls = tuple(
        Number(str(metric["label"]), float(metric["value"]), str(metric["note"]))
        for metric in metrics
        if str(metric["name"]).startswith("downstream.recall.")
    )
    by, how = ("by words", "by TF-IDF") if about.texts else ("by pixels", "of a kernel classifier")
    if (judged := _verdict_section(value, metrics, about, recalls)) is not None:
        return judged
    missing = _why_no_headline(about)
    words = tuple(
        Number(name, value[key], note, value.get(f"{key}_low"), value.get(f"{key}_high"))
        for key, name, note in (
            (
                "downstream.accuracy",
                by,
                f"accuracy {how}, trained on the release; its 95% interval over test records",
            ),
            ("downstream.majority", "commonest label", "accuracy of naming it always"),
        )
        if key in value
    )
    rough = tuple(
        _bar(value, key, name, ours=key == "downstream.accuracy")
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
            graded, advice = _by_pixels(value, about.tuning_hint)
            advice += _least_found(recalls, metrics) if graded != "good" else ""
    section = graded_section("downstream", title, graded, advice, rough, words, missing)
    return _with_recalls(section, recalls, by)


def _verdict_section(
    value: Mapping[str, float],
    metrics: Sequence[Mapping[str, Any]],
    about: Availability,
    recalls: Sequence[Number],
) -> ReportSection | None:
    """The verdict of evaluation/judge.py: the release and its rivals, a chart a ruler."""
    judgment = weigh(value)
    if judgment is None:
        return None
    blocks: list[Block] = []
    if missing := _missing_rulers(value, about):
        blocks.append(Block("missing", *missing))
    notes = {str(metric["name"]): str(metric.get("note", "")) for metric in metrics}
    for ruler in (*COUNTED, VOTER):
        if f"{ruler}.accuracy" in value:
            bars = [_bar(value, f"{ruler}.accuracy")]
            bars += [
                _bar(value, f"{ruler}.{name}", _rival(name, value, ruler), ours=False)
                for name in rivals_in(value, ruler)
            ]
            by = HOW[ruler] + (": it flatters, and decides nothing" if ruler == VOTER else "")
            blocks.append(Block("bars", *bars, of=f"Accuracy on held-out real records, by {by}"))
    gains = [
        Number(
            f"gain by {HOW[ruler]}",
            value[f"{ruler}.gain"],
            notes.get(f"{ruler}.gain", ""),
            value.get(f"{ruler}.gain_low"),
            value.get(f"{ruler}.gain_high"),
        )
        for ruler in COUNTED
        if f"{ruler}.gain" in value
    ]
    blocks.append(Block("numbers", *gains))
    advice = f"{judgment.sentence} {_next_step(value, judgment.grade, about)}"
    if judgment.grade != "good":
        help_ = " Describe in dataset.label_descriptions how they differ."
        if recalls and (weakest := _least_found(recalls, metrics, help_)):
            advice += f" By words:{weakest}"
        advice = _more_advice(advice, about)
    title = "Does what it teaches hold on real records?"
    section = ReportSection("downstream", title, STAYS, tuple(blocks), judgment.grade, advice)
    return _with_recalls(section, recalls, "by words")


def _rival(name: str, value: Mapping[str, float], ruler: str) -> str:
    """What a rival is called, in a chart."""
    if name == "real":
        return f"{value.get(f'{ruler}.real_records', 0):.0f} real records"
    return FREE.get(name) or OTHERS[name]


def _missing_rulers(value: Mapping[str, float], about: Availability) -> list[str]:
    """Why a ruler or a rival is not there."""
    why = []
    if f"{ENCODER}.accuracy" not in value:
        because = about.encoder or "it was not here when the release was measured: run it again"
        why.append(f"An encoder that took no part: UNAVAILABLE, since {because.rstrip('.')}.")
    if not any(f"{ruler}.public" in value for ruler in (*COUNTED, VOTER)):
        why.append("The public model alone was not measured.")
    if about.failed:
        why.append(f"Measuring failed ({about.failed}).")
    return why


def _next_step(value: Mapping[str, float], grade: Grade, about: Availability) -> str:
    """What to do about a grade."""
    first = next(ruler for ruler in COUNTED if f"{ruler}.gain" in value)
    rivals = rivals_in(value, first)
    name = best_free(rivals)
    called, free, real = FREE[name], rivals[name], rivals.get("real", 1.0)
    if grade == "good":
        steps = f"Every ruler puts it above what is free, of which {called} is the best."
    elif grade == "poor" and (
        free > _NEAR_ALL or (free >= real and real - rivals.get("chance", 0.0) > _TAUGHT)
    ):
        steps = (
            f"Not worth any epsilon: what is free ({called}) does about as well ({free:.2f}) as "
            f"{value.get(f'{first}.real_records', 0):.0f} real records ({real:.2f}). Take what "
            "costs nothing."
        )
    elif grade == "poor":
        steps = (
            f"Not shown to be worth its epsilon: what is free ({called}) gives {free:.2f}. Raise "
            f"{about.tuning_hint}, or spend more epsilon, or take what costs nothing."
        )
    else:
        steps = f"The best of what is free is {called}. Raise {about.tuning_hint}."
    if (means := rivals.get("means", 0.0)) > value.get(f"{first}.accuracy_high", 1.0):
        steps += (
            " For a classifier alone, without texts, noisy class means at the same epsilon do "
            f"better ({means:.2f})."
        )
    return steps


def _nearness(value: Mapping[str, float], about: Availability) -> ReportSection:
    """Records without labels: are its texts close to real ones?"""
    real = f"{value['nearness.real_records']:.0f} real records"
    bars = [_bar(value, "nearness.cosine"), Bar(real, value["nearness.real"])]
    missing: tuple[str, ...] = ("The public model alone was not measured.",)
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
                f"the interval. Raise {about.tuning_hint}, or spend more epsilon."
            )
        elif value["nearness.gain"] < possible / 2:
            grade = "fair"
            advice += f" As many real records gain {possible:.3f}. Raise {about.tuning_hint}."
        if grade != "good":
            advice = _more_advice(advice, about)
    of = "Mean cosine of a held-out real record to the nearest text"
    title = "Are its texts close to real ones?"
    return graded_section("downstream", title, grade, advice, bars, (), missing, of)


_ALL = 0.99
"""Recall that two digits print as 1.00, or nearly."""
_DRAWN = 20
"""Most labels whose recalls are bars; more labels become a table."""


def _with_recalls(section: ReportSection, recalls: Sequence[Number], by: str) -> ReportSection:
    """The section with the recall of each label: bars, or a table if there are many labels."""
    if not recalls:
        return section
    of = f"Share of each label's real records that are found, {by}"
    block = Block("numbers", *recalls)
    if len(recalls) <= _DRAWN:
        bars = [Bar(one.name, one.value, ours=True) for one in recalls]
        block = Block("bars", *bars, of=of)
    return replace(section, blocks=(*section.blocks, block))


def _least_found(
    recalls: Sequence[Number], metrics: Sequence[Mapping[str, Any]], help_: str = ""
) -> str:
    """The label with the lowest recall, what it is confused with, and what may help."""
    if not recalls:
        return ""
    least = min(recalls, key=lambda recall: recall.value)
    if least.value > _ALL:
        return ""
    label = least.name
    summary = f" The lowest recall is that of {label}, {least.value:.2f}"
    for metric in metrics:
        if str(metric["name"]).startswith("downstream.confused.") and metric["label"] == label:
            other = str(metric["note"]).removeprefix(TAKEN_FOR)
            summary += (
                f", and {float(metric['value']):.2f} are taken for {other}: synthetic records "
            )
            return f"{summary}of the two look alike.{help_}"
    return f"{summary}."


_NEAR_ALL = 0.95
"""Above this accuracy of what is free no release can show a gain."""
_TAUGHT = 0.05
"""Accuracy over the commonest label from which on real records teach something."""


def _why_no_headline(about: Availability) -> tuple[str, ...]:
    least = FEWEST if about.labeled else FEWEST_A_SIDE
    reasons = {
        "evaluate.enabled is off": not about.enabled,
        CUT_OFF: about.enabled and about.held_out and not about.measured,
        "it is measured for texts only": not about.texts,
        "no real records are held out (dataset.holdout, dataset.test_path)": not about.held_out,
        "evaluate.embeddings is off": not about.embedded,
        f"the release holds {about.rows} records, fewer than {least}": about.rows < least,
    }
    why = [reason for reason, holds in reasons.items() if holds]
    if about.failed:
        why.append(f"measuring failed ({about.failed})")
    why = why or [f"one side has fewer than {least}{' labeled' * about.labeled} records"]
    if about.texts and not about.labeled and about.encoder and not about.failed:
        why.append(about.encoder.rstrip("."))
    what = "Accuracy" if about.labeled else "Nearness"
    what += ", with an interval, beside what is free"
    return (f"{what}: UNAVAILABLE, since {' and '.join(why)}.",)


_NO_GENERATOR = (
    "The public model alone: UNAVAILABLE, since it is not measured for images. Its images are "
    "shown if the release has its first population."
)


def _by_pixels(value: Mapping[str, float], hint: str) -> tuple[Grade, str]:
    """Grade and advice for images, beside the commonest label and real images."""
    behind = value["downstream.real"] - value["downstream.accuracy"]
    if value["downstream.accuracy_low"] <= value["downstream.majority"]:
        return "poor", f"Not shown to beat the commonest label. Raise {hint}."
    real = f"{value['downstream.real_records']:.0f} real images"
    if behind > 0.1:
        return "fair", f"{behind:.2f} behind {real}. Raise {hint}."
    return "good", f"Within {max(behind, 0.0):.2f} of {real}."


_ALIKE: Mapping[str, tuple[str, float, float]] = {
    "likeness.auc": ("at most", 0.7, 0.85),
    "mauve": ("at least", 0.9, 0.6),
    "length_ks": ("at most", 0.1, 0.3),
    "labels_apart": ("at most", 0.1, 0.3),
    "precision": ("at least", 0.8, 0.5),
    "recall": ("at least", 0.6, 0.3),
}
"""Graded numbers: direction, limit of good, limit of fair. Precision and recall are graded relative
to those of other real images, where these were measured."""


def _likeness(
    value: Mapping[str, float], metrics: Sequence[Mapping[str, Any]], about: Availability
) -> ReportSection:
    """Do the records look like real ones?"""
    title = "Does it look like the real records?"
    shown = [metric for metric in metrics if _of_likeness(str(metric["name"]))]
    numbers = [
        Number(
            _display_name(str(m["name"])),
            float(m["value"]),
            str(m["note"]),
            *(value.get(f"{m['name']}{end}") for end in _ENDS if _has_ends(str(m["name"]))),
        )
        for m in shown
    ]
    graded = {
        name: _grade_of(name, value[name] / (value.get(f"{name}_real", 1.0) or 1.0))
        for name in _ALIKE
        if name in value
    }
    missing = _of_images(metrics, about)
    if about.texts and about.encoder and "mauve" not in value and graded:
        missing = (f"MAUVE: UNAVAILABLE, since {about.encoder.rstrip('.')}.",)
    if not graded:
        why = about.why_not or "there are too few records"
        missing = missing or (f"UNAVAILABLE, since {why}.",)
        return graded_section("likeness", title, None, "Not measured.", (), numbers, missing)
    order: tuple[Grade, ...] = ("poor", "fair", "good")
    worst = min(graded.values(), key=order.index)
    weak = [name for name, grade in graded.items() if grade == worst]
    if worst == "good":
        verdict = "By every number measured."
        return graded_section("likeness", title, worst, verdict, (), numbers, missing)
    advice = f"The weakest numbers: {', '.join(map(_display_name, weak))}."
    if "likeness.auc" in weak:
        advice += " A classifier tells it from real texts by its words."
    if "labels_apart" in weak:
        advice += " Label proportions differ from those of the real records."
        advice += f" {about.proportions}" if about.proportions else ""
    if "length_ks" in weak:
        advice += _of_lengths(value.get("length_shift"), about.longest)
    if "mauve" in weak:
        advice += f" Raise {about.tuning_hint}; MAUVE of fewer than some hundred texts says little."
    if "precision" in weak:
        advice += f" Many do not look like real images: raise {about.tuning_hint}."
    if "recall" in weak:
        advice += " Many real images have no similar synthetic one: generate more."
    advice = _more_advice(advice, about)
    return graded_section("likeness", title, worst, advice, (), numbers, missing)


def _of_lengths(shift: float | None, longest: str) -> str:
    """How lengths differ, and the next step. ``shift`` is in words; None if unknown."""
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


def _of_images(metrics: Sequence[Mapping[str, Any]], about: Availability) -> tuple[str, ...]:
    """Why distances between images are missing or biased; empty if they are sound."""
    if about.texts:
        return ()
    what = "FID, KID, precision and recall"
    if notes := [str(metric["note"]) for metric in metrics if metric["name"] == "fid"]:
        if _VOTER not in notes[0]:
            return ()
        return (
            f"{what} are in features of models.image_embedder: where it cast the votes of the "
            "release they are too good. Run evaluate again to measure with evaluate.image_encoder.",
        )
    why = (
        f"{about.why_not}."
        if about.why_not
        else "evaluate.embeddings is off."
        if not about.embedded
        else about.encoder
        or f"a side had fewer than {FEWEST} images, or the encoder was not here when the release "
        "was measured: run evaluate again."
    )
    return (f"{what}: UNAVAILABLE, since {why}",)


_VOTER = "models.image_embedder="
"""Marks the notes of metrics that used the encoder which cast the votes."""


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


_ENDS = ("_low", "_high")


def _has_ends(name: str) -> bool:
    """Whether the ends of a number's interval stand beside it, and not in rows of their own."""
    return name.startswith("likeness.")


def _of_likeness(name: str) -> bool:
    rulers = tuple(f"{ruler}." for ruler in HOW)
    if name.startswith(("downstream.", *rulers, "nearness.", "audit.", "fields.", *_READ)):
        return False
    return not (_has_ends(name) and name.endswith(_ENDS))


_READ = ("perplexity.", "in_context.")


def _reading(
    value: Mapping[str, float], metrics: Sequence[Mapping[str, Any]], about: Availability
) -> list[ReportSection]:
    """Perplexity and in-context accuracy under the public language model. Texts only."""
    if not about.texts:
        return []
    title = "How does the public model read it?"
    numbers = [
        Number(
            _display_name(str(m["name"])),
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
    grade, advice = (
        _surprise(value, about) if "perplexity.gap" in value else (None, "Not measured.")
    )
    names = {
        "synthetic": "this release",
        "chance": "commonest label",
        "public": "public model alone",
        "real": "real records",
    }
    bars = [
        Bar(
            label,
            value[f"in_context.{name}"],
            value.get("in_context.low") if name == "synthetic" else None,
            value.get("in_context.high") if name == "synthetic" else None,
            ours=name == "synthetic",
        )
        for name, label in names.items()
        if f"in_context.{name}" in value
    ]
    of = "Accuracy of the model on real records, with labeled examples in its prompt"
    return [graded_section("reading", title, grade, advice, bars, numbers, missing, of)]


def _surprise(value: Mapping[str, float], about: Availability) -> tuple[Grade, str]:
    """Grade and advice, by the interval of the gap between synthetic and real texts."""
    low, high = value["perplexity.gap_low"], value["perplexity.gap_high"]
    small = abs(value["perplexity.gap"]) <= _WIDE
    if low <= 0 <= high:
        # A wide interval around 0 says that there are too few texts.
        if max(-low, high) <= _WIDE:
            return "good", "The model finds synthetic and real texts about equally surprising."
        advice = "Too few texts to tell whether synthetic or real ones surprise it more"
        if about.rows > about.perplexity_texts:
            return "fair", f"{advice}. Raise evaluate.perplexity_texts."
        few = f"the release, of {about.rows}, is too small. Have more texts written."
        return "fair", f"{advice}: {few}"
    advice = (
        "more surprising to it than real ones: they may be broken. Read some; lower the method's "
        "temperature, or raise"
        if low > 0
        else "less surprising to it than real ones: they are closer to what it writes anyway. Raise"
    )
    return "fair" if small else "poor", f"Synthetic texts are {advice} {about.tuning_hint}."


_WIDE = 0.5
"""Largest gap, in nats a token, that is not poor."""


def _why_unread(
    about: Availability, setting: Literal["perplexity_texts", "in_context_records"]
) -> str:
    """Why the public model did not read the release."""
    if about.why_not:
        return about.why_not
    requested = (
        about.perplexity_texts if setting == "perplexity_texts" else about.in_context_records
    )
    if not requested:
        return f"evaluate.{setting} is 0"
    if not about.reader:
        return "models.language is not read on this machine (models.server is set)"
    if setting == "in_context_records":
        if not about.labeled:
            return "the records have fewer than two labels"
        few = f"fewer than {2 * FEWEST} real records with a label are held out"
    elif requested < FEWEST:
        return f"evaluate.{setting}={requested} is fewer than {FEWEST}"
    elif about.rows < FEWEST:
        return f"the release holds {about.rows} records, fewer than {FEWEST}"
    else:
        few = f"fewer than {FEWEST} real records are held out"
    return f"{few}, or evaluate ran with other settings: run it again"


def _grade_of(name: str, value: float) -> Grade:
    which, good, fair = _ALIKE[name]
    value, good, fair = (-value, -good, -fair) if which == "at most" else (value, good, fair)
    return "good" if value >= good else "fair" if value >= fair else "poor"


MOST_STUDENTS = 4
"""Most students that are shown."""

_ACCURACY = "next_token_accuracy"
_STUDENT_BASELINES = {
    "public": "public model alone",
    "private": "DP-SGD on the records",
    "non_private": "real records",
}
"""Baselines of a student by the first part of a metric's name."""


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
    ordered = sorted(students, key=lambda student: _student(_ACCURACY) not in student.values)
    blocks: list[Block] = []
    advice: list[str] = []
    grades: list[Grade] = []
    for student in ordered[:MOST_STUDENTS]:
        if _student(_ACCURACY) in student.values:
            blocks += _student_blocks(student)
            grade, summary = _student_worth(student)
            grades.append(grade)
            advice.append(summary)
    if not advice:
        blocks.append(Block("missing", _no_student(students, release_id, why)))
    if len(students) > len(advice) > 0:
        rest = f"{len(students) - len(advice)} more of its students are here and not shown."
        blocks.append(Block("missing", rest))
    title = "What does a small model learn from it?"
    order: tuple[Grade, ...] = ("good", "fair", "poor")
    best = next((grade for grade in order if grade in grades), None)
    summary = " ".join(advice) or "Not measured."
    if grades and best != "good":
        summary += f" {_HELP}"
    return ReportSection("students", title, STAYS, tuple(blocks), best, summary)


def _student(name: str) -> str:
    return f"student.{name}"


def _student_blocks(student: StudentMetrics) -> tuple[Block, ...]:
    value = student.values
    bars = [_bar(value, _student(_ACCURACY))]
    if (commonest := value.get(_student("commonest_token"))) is not None:
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
    "The public model alone: UNAVAILABLE, since methods.distill.baselines does not name public, or "
    "the config does not name the student's models any more, or they are not here."
)


_HELP = (
    "More texts help: privsyn more, or more rows of the method; then raise "
    "methods.distill.epochs, or start from methods.distill.init: tiny."
)


def _student_worth(student: StudentMetrics) -> tuple[Grade, str]:
    """Grade and summary, compared with the most frequent token and the public model alone."""
    value = student.values
    low = value.get(_student(f"{_ACCURACY}_low"), 0.0)
    least, name = value.get(_student("commonest_token"), 0.0), student.name.rpartition(".")[2]
    summary = f"{name}: {value[_student(_ACCURACY)]:.3f} of next tokens right"
    if low <= least:
        return (
            "poor",
            f"{summary}, no more than always naming the most frequent token: it learned almost "
            "nothing.",
        )
    public = value.get(f"public.{_ACCURACY}")
    if public is None:
        return "fair", f"{summary}, more than always naming the most frequent token."
    if low > public:
        return "good", f"{summary}, more than the public model alone ({public:.3f})."
    return "fair", (
        f"{summary}, not shown to be more than the public model alone ({public:.3f}), which may be "
        "far larger."
    )


def _no_student(students: Sequence[StudentMetrics], release_id: str, why: str | None) -> str:
    what = "Next-token accuracy of a small student: UNAVAILABLE, since"
    if why is not None:
        return f"{what} {why}."
    if not students:
        return f"{what} this release has no student. Train one: privsyn distill {release_id}"
    return (
        f"{what} {students[0].name} was not measured, or there was no text to measure it by: "
        f"privsyn distill {release_id}"
    )


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
    comparison: str,
    plots: Sequence[Block] = (),
    added: str = "",
) -> Document:
    """The report that stays inside.

    Args:
        outward: The one that may leave the room.
        graded: Internal sections.
        comparison: What the release was compared with, in a sentence.
        plots: Pictures that evaluate drew.
        added: What the records added to the release, in a sentence.
    """
    short, *others = outward.sections
    (answers,) = (block for block in short.blocks if block.kind == "answers")
    internal = {
        "How good is it?": f"{added} {_grades(graded)}".strip(),
        "Compared with what?": comparison,
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
