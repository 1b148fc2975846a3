"""Sections of the outward report: its first card, and what the synthetic records look like.

The first card says what was checked and what a person decides. A tool can say that nothing it
checks forbids sharing a release. Whether the protection is enough for a use is for a person to say,
so the card never says yes, and names what is not known. Charts, numbers and samples of the records
are made from the release folder alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from privsyn import layout
from privsyn.data.profile import (
    MOST_ROWS,
    count_cells,
    count_labels,
    histogram,
    read_image_rows,
    read_rows,
    sample_sheet,
    samples_of,
)
from privsyn.data.words import names, word_count, words
from privsyn.dp.accountant import format_epsilon
from privsyn.dp.risk import Strength, strength
from privsyn.errors import VerificationError
from privsyn.release import certificate
from privsyn.release.advice import BY_AUDIT, scale_of
from privsyn.release.facts import WANTED, ReleaseFacts, one_line
from privsyn.release.plan import Plan
from privsyn.release.settings import Card
from privsyn.report.document import LEAVES, Answer, Block, Number, ReportSection, Tone
from privsyn.sentences import Rows

PAGE = Rows(Path(__file__).parent / "templates" / "outward.yaml")
"""Words of the outward report."""

_QUESTIONS = {
    "What is it?": "what",
    "Who answers for it?": "owner",
    "How private is it?": "private",
    "For whom?": "for_whom",
    "How good is it?": "good",
    "Compared with what?": "compared",
    "May I hand it out?": "hand_out",
}
_SHOWN: Mapping[str, Card] = {
    "Published by": "curators",
    "Contact": "contact",
    "License": "license",
    "Meant for": "intended_use",
}
"""Fields of ``deployment`` that the card shows, or says are not stated."""


def first_card(
    facts: ReleaseFacts,
    validation: Mapping[str, Any],
    records: Records,
    unanswered: Sequence[str],
) -> tuple[Answer, ...]:
    """The questions of somebody who reads nothing else, answered. No answer says yes.

    Args:
        facts: Of the release.
        validation: What its checks said; empty where they did not run.
        records: The synthetic records.
        unanswered: Questions of the privacy review that nobody has answered.
    """
    cautions = tuple(map(str, validation.get("cautions", ())))
    left_out = map(str, validation.get("left_out", ()))
    stated = {name: one_line(text) for name, text in facts.deployment.items()}
    level = strength(facts.judged_epsilon, facts.risk.right)
    numbers = {
        "epsilon": facts.judged_epsilon,
        "delta": facts.plan.delta,
        "cap": float(facts.account_balance["cap"]["epsilon"]),
    }
    known = {
        "facts": facts,
        "plan": facts.plan,
        "made": f"{records.content_text()} by {facts.method_title}",
        "instead_of": f"{facts.plan.dataset.name} {facts.plan.dataset.version}".strip(),
        # Only true is a pass: an untrusted writer may put a number or a text here.
        "passed": validation["success"] is True if validation else None,
        "checks": len(validation.get("expectations", ())),
        # Expectations on labels or a schema that there are not do not apply, and a reader misses
        # nothing. Those that begin with "No" are patterns that nobody asked to look for.
        "unchecked": [one for one in left_out if one.startswith("No ")],
        "stated": defaultdict(str, stated),
        "lines": [
            f"{name}: {stated[field].rstrip('.')}."
            for name, field in _SHOWN.items()
            if field in stated
        ],
        "missing": [WANTED[field] for field in _SHOWN.values() if not stated.get(field)],
        "unanswered": unanswered,
        "cautions": len(cautions),
        "audited": BY_AUDIT in cautions,
        "signer": str(validation.get("signer") or ""),
        "good": records.in_short(validation),
        "level": level,
        "weak": level is Strength.WEAK,
        "nothing": level is Strength.NONE,
        "scale": scale_of(facts.judged_epsilon, facts.risk.right),
        **{name: format_epsilon(value, digits=4) for name, value in numbers.items()},
    }
    points = {"odds": facts.odds, "left": PAGE.says("left", **known)}
    answers = []
    for question, table in _QUESTIONS.items():
        row = PAGE.first(table, known)
        tone: Tone = row.get("tone", "plain")
        answers.append(Answer(question, row["says"], tone, points.get(row.get("points", ""), ())))
    return tuple(answers)


MODEL = "files of a model"
"""What a release holds that is a model: no records."""


@dataclass(frozen=True)
class Records:
    """The synthetic records, as a document shows them.

    Attributes:
        things: What they are called.
        rows: How many there are.
        numbers: About them alone.
        charts: The same as pictures.
        shown: Some of them.
    """

    things: str
    rows: int
    numbers: tuple[Number, ...]
    charts: tuple[Block, ...] = ()
    shown: tuple[Block, ...] = ()

    def content_text(self) -> str:
        """What the release holds, in a few words."""
        if self.things == MODEL:
            return f"A model in {self.rows:,} files, taught by synthetic texts"
        return f"{self.rows:,} synthetic {self.things}"

    def in_short(self, validation: Mapping[str, Any]) -> str:
        """How good it is as far as its own bytes tell."""
        checks = validation.get("expectations", ())
        failed = sum(check["success"] is False for check in checks)
        form = {"checked": bool(validation), "failed": failed, "checks": len(checks)}
        values = {number.name: number.value for number in self.numbers}
        share = values.get("duplicate share") if self.rows > 1 else None
        repeats = {"share": share, "rows": self.rows, "things": self.things}
        look = "Look at the samples below, and ask" if self.shown else "Ask"
        sentences = (
            PAGE.first("form", form)["says"],
            PAGE.first("repeats", repeats)["says"],
            f"{look} its owner what was measured for your purpose.",
        )
        return " ".join(filter(None, sentences))

    def sections(self) -> list[ReportSection]:
        """Samples; charts."""
        sections = []
        if self.shown:
            title, how = "Samples", "Taken from the file at even distances, and not picked."
            sections.append(ReportSection("samples", title, LEAVES, self.shown, advice=how))
        if self.charts:
            title = f"What the {self.things} look like"
            sections.append(ReportSection("statistics", title, LEAVES, self.charts))
        return sections

    def number_sections(self) -> list[ReportSection]:
        """Numbers, for specialists."""
        if not self.numbers:
            return []
        model = self.things == MODEL
        title = "What the model is" if model else f"Numbers of the {self.things}"
        numbers = [Block("numbers", *self.numbers)]
        return [ReportSection("numbers", title, LEAVES, numbers, for_specialists=True)]


def records_of(folder: Path, facts: ReleaseFacts, validation: Mapping[str, Any]) -> Records:
    """Read the records of a release.

    Args:
        folder: The release; whoever wrote it is not trusted.
        facts: What its certificate says.
        validation: What its checks said; empty where they did not run.

    Raises:
        VerificationError: There are none.
        DataError: They cannot be read.
    """
    file = folder / facts.file
    # The certificate names the file, and its writer is not trusted: no path out of the folder, and
    # no link to another file of the reader.
    if file.parent != folder or not certificate.is_plain_file(file):
        raise VerificationError(f"{folder} lacks its records.", hint="Use a whole copy of it.")
    read = {layout.TEXT_ROWS: _texts, layout.IMAGE_ROWS: _images, layout.MODEL_ROWS: _model}
    return read[facts.media_type](folder, file, facts, _numbers(validation))


def _numbers(validation: Mapping[str, Any]) -> tuple[Number, ...]:
    """Numbers that validation took of the synthetic records, in its words."""
    return tuple(
        Number(str(one["name"]).replace("_", " "), float(one["value"]), str(one["note"]))
        for one in validation.get("numbers", ())
        # privacy: numbers that were measured on real records have the class internal.
        if one.get("class", LEAVES) == LEAVES
    )


def _texts(folder: Path, file: Path, facts: ReleaseFacts, numbers: tuple[Number, ...]) -> Records:
    rows = read_rows(file, worded=not facts.is_table)
    lengths = sorted(word_count(row.text) for row in rows if row.text is not None)
    # An id begins with the release's name, which stands at the top of the page already.
    before = f"{facts.name}-"
    things, columns = facts.things, facts.plan.dataset.columns
    labels = count_labels(rows, facts.plan.dataset.labels)
    charts = _charts(lengths, "words per text", things, labels)
    items = tuple(
        {
            "text": row.text
            or ", ".join(f"{one_line(name)}: {one_line(row.values.get(name))}" for name in columns),
            "label": row.label,
            "id": (row.id or "").removeprefix(before),
        }
        for row in samples_of(rows)
    )
    for name, column in columns.items():
        counts = zip(column.cells, count_cells(rows, name, column), strict=True)
        shown = [(cell, count) for cell, count in counts if count]
        of = f"{things} by {one_line(name)} (declared: {one_line(column.domain)})"
        charts += (Block("counts", *shown, of=of),) if shown else ()
    extremes = (
        Number("shortest", min(lengths, default=0), "words of the shortest text"),
        Number("longest", max(lengths, default=0), "words of the longest text"),
    )
    if facts.is_table:
        return Records(things, len(rows), numbers, charts, (Block("samples", *items),))
    texts = [row.text or "" for row in rows]
    samples = (Block("samples", *items), *_invented(facts.plan, texts))
    return Records(things, len(rows), (*numbers, *extremes), charts, samples)


def _invented(plan: Plan, texts: Sequence[str]) -> tuple[Block, ...]:
    """Whose names a reader may take for people of the data; empty where no text holds any."""
    more = (plan.settings.get("text") or plan.settings).get("examples") or ()
    shown = [example.text for example in plan.dataset.examples] + [one["text"] for one in more]
    invented = {name for text in shown for name in names(text)}
    hits = [name for name in (invented.intersection(words(text)) for text in texts) if name]
    if not hits:
        return ()
    facts = {"hits": len(hits), "texts": len(texts), "names": sorted(set().union(*hits))}
    return (Block("words", PAGE.first("invented", facts)["says"]),)


def _images(folder: Path, file: Path, facts: ReleaseFacts, numbers: tuple[Number, ...]) -> Records:
    rows = read_image_rows(file)
    labels = facts.plan.dataset.labels
    means = sorted(row.mean for row in rows if row.mean is not None)
    of = "mean value of an image, 0 black to 255 white"
    charts = _charts(means, of, "images", count_labels(rows, labels))
    by_size = Counter(f"{row.width} x {row.height} {row.mode}" for row in rows if row.readable)
    sizes = tuple(
        Number(size, count, "images of this size; L is gray, RGB colored")
        for size, count in by_size.most_common(5)
    )
    sheet = sample_sheet(folder, rows, labels)
    # The sheet has rows for the first labels alone, so there may be more labels than rows.
    names = labels[:MOST_ROWS]
    caption = (
        f"One row per label, from the top: {', '.join(names)}" if names else "At even distances"
    )
    shown = () if sheet is None else (Block("picture", title=caption, png=sheet, wide=True),)
    return Records("images", len(rows), (*numbers, *sizes), charts, shown)


def _model(folder: Path, file: Path, facts: ReleaseFacts, numbers: tuple[Number, ...]) -> Records:
    return Records(MODEL, facts.rows, numbers)


def _charts(
    values: Sequence[float], of: str, things: str, labels: Sequence[tuple[str, int]]
) -> tuple[Block, ...]:
    blocks = []
    if values:
        spread = histogram([round(value) for value in values])
        middle = round(float(median(values)), 1)
        blocks.append(Block("histogram", **spread, median=middle, of=of, things=things))
    if labels:
        blocks.append(Block("counts", *labels, of=f"{things} per label"))
    return tuple(blocks)
