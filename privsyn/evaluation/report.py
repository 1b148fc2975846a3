"""What a release is worth beside real records, as graded sections of the report that stays inside.

The numbers read held-out real records, so every section is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from privsyn.evaluation.classify import TAKEN_FOR
from privsyn.evaluation.nearness import FEWEST
from privsyn.report.blocks import Bar, Bars, Block, Missing, Number, Numbers
from privsyn.report.document import STAYS, Grade, Section

_FEWEST = 20
"""Labelled texts a side below which evaluation.beside measures nothing."""


@dataclass(frozen=True)
class Circumstances:
    """What decides whether a metric can be had.

    Attributes:
        texts: Whether records are texts.
        held_out: Whether the settings set real records aside.
        labelled: Whether records have labels.
        embedded: Whether sentence vectors were asked for.
        enabled: Whether releases are measured at all.
        measured: Whether this one was.
        encoder: Why no encoder can compare images, in words; None where one can.
        rows: Synthetic records.
        levers: The settings of the method that raise what the data is worth.
        proportions: What decides how many records a label has, in a sentence.
        longest: The setting that bounds a text's length.
        perplexity_texts: Texts a side whose perplexity is asked for.
        in_context_records: Real records that are asked to be labelled in context.
        reader: Whether models.language is read by this machine, and not by a server.
    """

    texts: bool
    held_out: bool
    labelled: bool
    embedded: bool
    rows: int
    levers: str
    enabled: bool = True
    measured: bool = True
    encoder: str | None = None
    proportions: str = ""
    longest: str = "max_tokens"
    perplexity_texts: int = 32
    in_context_records: int = 0
    reader: bool = True


def sections(metrics: Sequence[Mapping[str, Any]], about: Circumstances) -> list[Section]:
    """The report's sections from the metrics of evaluation.json.

    Args:
        metrics: As Metric.to_json writes them.
        about: The circumstances.
    """
    value = {str(metric["name"]): float(metric["value"]) for metric in metrics}
    return [
        _downstream(value, metrics, about),
        _likeness(value, metrics, about),
        *_reading(value, metrics, about),
    ]


def _downstream(
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
        found = _section("downstream", title, graded, advice, rough, words, missing)
        return _with_recalls(found, recalls)
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
    if grade != "good":
        advice += _least_found(
            recalls, metrics, " Say in dataset.label_descriptions how they differ."
        )
    found = _section("downstream", title, grade, advice, bars, words, missing)
    return _with_recalls(found, recalls)


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
    of = "Mean cosine of a held-out real record to the nearest text"
    title = "Does it come near what real records say?"
    return _section("downstream", title, grade, advice, bars, (), missing, of)


_DRAWN = 20
"""Labels whose shares are drawn at most; of more there is a table."""


def _with_recalls(section: Section, recalls: Sequence[Number]) -> Section:
    """The section and, of each label, the share that is found: as bars, of many as a table."""
    if not recalls:
        return section
    of = "Share of each label's real records that are found"
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
    label = least.name
    said = f" Of {label} the smallest share is found, {least.value:.2f}"
    for metric in metrics:
        if str(metric["name"]).startswith("downstream.confused.") and metric["label"] == label:
            other = str(metric["note"]).removeprefix(TAKEN_FOR)
            said += f", and {float(metric['value']):.2f} are taken for {other}: synthetic records "
            return f"{said}of the two look alike.{help_}"
    return f"{said}."


def _section(
    key: str,
    title: str,
    grade: Grade | None,
    advice: str,
    bars: Sequence[Bar] = (),
    numbers: Sequence[Number] = (),
    missing: Sequence[str] = (),
    of: str = "Accuracy of a classifier on held-out real records",
) -> Section:
    blocks: list[Block] = []
    if missing:
        blocks.append(Missing(tuple(missing)))
    if bars:
        blocks.append(Bars(tuple(bars), of))
    if numbers:
        blocks.append(Numbers(tuple(numbers)))
    return Section(key, title, STAYS, tuple(blocks), grade, advice)


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
    least = _FEWEST if about.labelled else FEWEST
    reasons = {
        "evaluate.enabled is off": not about.enabled,
        CUT_OFF: about.enabled and about.held_out and not about.measured,
        "that is measured of texts alone": not about.texts,
        "no real records are held out (dataset.holdout, dataset.test_path)": not about.held_out,
        "evaluate.embeddings is off": not about.embedded,
        f"the release holds {about.rows} records, fewer than {least}": about.rows < least,
    }
    why = [reason for reason, holds in reasons.items() if holds]
    why = why or [f"one side has fewer than {least}{' labelled' * about.labelled} records"]
    what = "Accuracy" if about.labelled else "Nearness"
    what += " by sentence vectors, with an interval and beside what is free"
    return (f"{what}: UNAVAILABLE, since {' and '.join(why)}.",)


_NO_GENERATOR = (
    "The public model alone: UNAVAILABLE, since it is not measured of images. What it makes is "
    "shown where the release keeps its first population."
)

CUT_OFF = "evaluate did not run or was cut off (run the release's command again: it costs nothing)"


def _by_pixels(value: Mapping[str, float], levers: str) -> tuple[Grade, str]:
    """As _worth, of images: beside naming the commonest label, and as many real images."""
    behind = value["downstream.real"] - value["downstream.accuracy"]
    if value["downstream.accuracy_low"] <= value["downstream.majority"]:
        return "poor", f"Not shown to beat naming the commonest label. Raise {levers}."
    if behind > 0.1:
        return "fair", f"{behind:.2f} behind as many real images. Raise {levers}."
    return "good", f"Within {max(behind, 0.0):.2f} of as many real images."


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
    if not graded:
        why = (
            "no real records are held out"
            if not about.held_out
            else "evaluate.enabled is off"
            if not about.enabled
            else "there are too few records"
            if about.measured
            else CUT_OFF
        )
        missing = _of_images(metrics, about) or (f"UNAVAILABLE, since {why}.",)
        return _section("likeness", title, None, "Not measured.", (), numbers, missing)
    order: tuple[Grade, ...] = ("poor", "fair", "good")
    worst = min(graded.values(), key=order.index)
    weak = [name for name, grade in graded.items() if grade == worst]
    if worst == "good":
        said = "By every number measured."
        return _section("likeness", title, worst, said, (), numbers, _of_images(metrics, about))
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
    return _section("likeness", title, worst, advice, (), numbers, _of_images(metrics, about))


def _of_lengths(shift: float | None, longest: str) -> str:
    """Which way lengths differ, and the next step; ``shift`` in words, None where unknown."""
    if not shift:
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
        or f"a side had fewer than {_FEWEST} images, or the encoder was not here when the release "
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
    return [_section("reading", title, grade, advice, bars, numbers, missing, of)]


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
    asked = about.perplexity_texts if setting == "perplexity_texts" else about.in_context_records
    if not asked:
        return f"evaluate.{setting} is 0"
    if not about.reader:
        return "models.language is not read on this machine (models.server is set)"
    if setting == "in_context_records":
        if not about.labelled:
            return "the records have no labels"
        few = f"fewer than {2 * _FEWEST} real records with a label are held out"
    elif asked < _FEWEST:
        return f"evaluate.{setting}={asked} is fewer than {_FEWEST}"
    elif about.rows < _FEWEST:
        return f"the release holds {about.rows} records, fewer than {_FEWEST}"
    else:
        few = f"fewer than {_FEWEST} real records are held out"
    return f"{few}, or evaluate ran with other settings: run it again"


def _grade_of(name: str, value: float) -> Grade:
    which, good, fair = _ALIKE[name]
    value, good, fair = (-value, -good, -fair) if which == "at most" else (value, good, fair)
    return "good" if value >= good else "fair" if value >= fair else "poor"
