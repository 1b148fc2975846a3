"""What decides which numbers of a report can be had, and how a section of it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privsyn.report.blocks import Bar, Bars, Block, Missing, Number, Numbers
from privsyn.report.document import STAYS, Grade, Section

FEWEST = 20
"""Labelled texts a side below which ``classifiers.compare`` measures nothing."""

CUT_OFF = "evaluate did not run or was cut off (privsyn report --measure RELEASE: it costs nothing)"


@dataclass(frozen=True)
class Circumstances:
    """What decides whether a metric can be had.

    Attributes:
        texts: Whether records are texts.
        held_out: Whether the settings set real records aside.
        labelled: Whether records have labels to tell apart: two or more.
        embedded: Whether sentence vectors were asked for.
        enabled: Whether releases are measured at all.
        measured: Whether this one was.
        encoder: Why no encoder can compare images, in words; None where one can.
        rows: Synthetic records.
        levers: The settings of the method that raise what the data is worth.
        failed: What could not be measured: name and error of each, in words; empty for nothing.
        first: What helps before its levers do, in words; empty for nothing.
        aside: What else there is to say where a release is not good, in words; empty for nothing.
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
    failed: str = ""
    first: str = ""
    aside: str = ""
    proportions: str = ""
    longest: str = "max_tokens"
    perplexity_texts: int = 32
    in_context_records: int = 0
    reader: bool = True


def easiest_first(advice: str, about: Circumstances) -> str:
    """Advice with what helps before a method's levers in front of these."""
    if not about.first:
        return advice
    said, mark, levers = advice.partition(" Raise ")
    return f"{said} First: {about.first}.{mark}{levers}"


def graded_section(
    key: str,
    title: str,
    grade: Grade | None,
    advice: str,
    bars: Sequence[Bar] = (),
    numbers: Sequence[Number] = (),
    missing: Sequence[str] = (),
    of: str = "Accuracy of a classifier on held-out real records",
) -> Section:
    """A section that stays inside: what is missing, then bars, then numbers."""
    blocks: list[Block] = []
    if missing:
        blocks.append(Missing(tuple(missing)))
    if bars:
        blocks.append(Bars(tuple(bars), of))
    if numbers:
        blocks.append(Numbers(tuple(numbers)))
    return Section(key, title, STAYS, tuple(blocks), grade, advice)
