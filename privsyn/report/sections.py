"""Sections of the outward report: its first card, and what the synthetic records look like.

The first card says what was checked and what a person decides. A tool can say that nothing it
checks forbids sharing a release. Whether the protection is enough for a use is for a person to say,
so the card never says yes, and names what is not known. Charts, numbers and samples of the records
are made from the release folder alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.profile import (
    COLUMNS,
    fields,
    objects,
    profile,
    profile_images,
    read_image_rows,
    read_rows,
    sample_sheet,
)
from privsyn.data.words import names, words
from privsyn.dp.accountant import format_epsilon
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.risk import Risk, Strength, strength
from privsyn.errors import VerificationError
from privsyn.files import parse_json, read_file
from privsyn.release import certificate
from privsyn.release.advice import scale_of
from privsyn.release.facts import WANTED, ReleaseFacts, one_line
from privsyn.release.plan import Plan
from privsyn.release.settings import Card, Stated
from privsyn.report.document import LEAVES, Answer, Block, Number, ReportSection, Tone

ASKED_FIRST: tuple[Card, ...] = ("curators", "contact", "license", "intended_use")
"""Fields of ``deployment`` that the card shows, or says are not stated."""


@dataclass(frozen=True)
class Known:
    """What is known of a release when its page is written: all of it public.

    Attributes:
        made: What it holds: 100 synthetic texts.
        instead_of: Name and version of the private dataset.
        document: What a record is, in the owner's words; empty: not stated.
        cls: ``dp-release``, or anything else for a release that is not private.
        passed: Whether its checks passed; None: it was not checked.
        checks: How many checks were made.
        unchecked: What was not looked for in the records, as the checks name it.
        epsilon: By which the release is judged: see ``advice.rated_epsilon``.
        delta: Of the release.
        risk: Of its event.
        cap: Epsilon that all releases of its account stay within.
        unit: What is protected.
        units: Several of them.
        not_people: What to know where units are rows or files; empty where a column names them.
        most: Records of a unit that are used.
        adjacency: What neighbors differ by.
        secret: What its cost counts on, in a sentence; empty where it counts on no secret.
        stated: What the owner says of it.
        unanswered: Questions of the privacy review that nobody has answered.
        cautions: How many cautions stand on the page.
        audited: Whether it is published only where an internal audit passes.
        signer: Id of the key that is to sign it; empty: there was none.
        good: How good it is as far as its own bytes tell.
        compared: Beside what it was compared.
    """

    made: str
    instead_of: str
    document: str
    cls: str
    passed: bool | None
    checks: int
    unchecked: tuple[str, ...]
    epsilon: float
    delta: float
    risk: Risk
    cap: float
    unit: str
    units: str
    not_people: str
    most: int
    adjacency: Adjacency
    secret: str
    stated: Stated
    unanswered: tuple[str, ...]
    cautions: int
    audited: bool
    signer: str
    good: str
    compared: str

    @property
    def strength(self) -> Strength:
        """How strong the protection is."""
        return strength(self.epsilon, self.risk.right)

    @property
    def missing(self) -> tuple[str, ...]:
        """What the card should show and nobody has stated."""
        return tuple(WANTED[name] for name in ASKED_FIRST if not self.stated.get(name))


def first_card(known: Known) -> tuple[Answer, ...]:
    """The questions of somebody who reads nothing else, answered. No answer says yes."""
    return (
        Answer("What is it?", _what(known)),
        _owner(known),
        _private(known),
        _for_whom(known),
        Answer("How good is it?", known.good, "bad" if known.passed is False else "plain"),
        Answer("Compared with what?", known.compared),
        _hand_out(known),
    )


def _what(known: Known) -> str:
    text = f"{known.made}, in place of the private dataset {known.instead_of}."
    if known.document:
        text += f" A record is described as: {known.document}."
    if description := known.stated.get("description"):
        text += f" {_cut(description)}"
    return text


def _owner(known: Known) -> Answer:
    stated = known.stated
    fields = {
        "Published by": stated.get("curators"),
        "Contact": stated.get("contact"),
        "License": stated.get("license"),
        "Meant for": stated.get("intended_use"),
    }
    lines = [f"{name}: {_cut(value).rstrip('.')}." for name, value in fields.items() if value]
    if known.missing:
        lines.append(f"Not stated: {', '.join(known.missing)}.")
    # A license and a purpose may be missing; without a name to ask, nobody answers for the data.
    bad = not (stated.get("curators") and stated.get("contact"))
    return Answer("Who answers for it?", " ".join(lines), "bad" if bad else "plain")


def _private(known: Known) -> Answer:
    if known.cls != LEAVES:
        # No epsilon here: a number beside predictable noise would be read as a guarantee.
        return Answer("How private is it?", "Not at all: see below.", "bad")
    epsilon, delta = (format_epsilon(value, digits=4) for value in (known.epsilon, known.delta))
    by = scale_of(known.epsilon, known.risk.right)
    whose = f" of one {known.unit}" if known.not_people else ""
    text = f"Epsilon {epsilon} at delta {delta}: {known.strength}{whose} ({by})."
    odds = known.risk.words(known.unit, known.adjacency, known.units)
    if known.secret:
        odds = *odds, known.secret
    return Answer("How private is it?", text, _tone(known), odds)


def _tone(known: Known) -> Tone:
    # Where rows or files stand for people, epsilon protects one row, so that even a small one
    # warns.
    weak = known.strength in (Strength.WEAK, Strength.NONE)
    return "bad" if weak or known.not_people else "plain"


def _for_whom(known: Known) -> Answer:
    common = (
        f"What many {known.units} have in common is what the records are meant to teach, and is "
        "not hidden."
    )
    if known.not_people:
        return Answer("For whom?", f"{known.not_people} {common}", "bad")
    used = (
        "one record of each is" if known.most == 1 else f"up to {known.most:,} records of each are"
    )
    return Answer("For whom?", f"Every single {known.unit}; {used} used. {common}")


def _hand_out(known: Known) -> Answer:
    question = "May I hand it out?"
    if known.cls != LEAVES:
        return Answer(
            question, "No. It was drawn with noise that can be predicted, for tests only.", "bad"
        )
    # The order matters: the strongest reason to refuse comes first, and only one is given.
    if known.passed is None:
        return Answer(
            question,
            "Not yet: it was not checked. Its owner can: `privsyn stage validate --plan RELEASE`.",
            "bad",
        )
    if not known.passed:
        return Answer(
            question,
            "No. It failed its checks and stays in quarantine; its cost stays charged.",
            "bad",
        )
    if known.strength is Strength.NONE:
        return Answer(
            question,
            f"Not on the strength of its guarantee, which is {known.strength}: treat it like the "
            "private data.",
            "bad",
            tuple(left_to_decide(known)),
        )
    return Answer(
        question,
        "That is for a person to decide, and not for this tool. Nothing that it checked forbids "
        "it: the noise was drawn from a secure source, the budget was set aside before the "
        f"records were read, and all {known.checks} format checks passed. It does not know:",
        "plain",
        tuple(left_to_decide(known)),
    )


def left_to_decide(known: Known) -> Iterator[str]:
    """What a person has to know or decide before the release is handed out."""
    owner = known.stated.get("curators", "the owner of the data")
    if known.not_people:
        # In lower case, since it goes on with a sentence.
        yield f"whether this is enough: {known.not_people[:1].lower()}{known.not_people[1:]}"
    enough = (
        f"whether {known.strength} is enough for the use that is meant: {owner} answers for that"
    )
    yield (
        enough
        if known.strength is not Strength.NONE
        else (f"whether {owner} would hand out the private data itself")
    )
    if known.cautions:
        yield f"what follows from {_count(known.cautions, 'caution')} below"
    if known.missing:
        yield (
            f"{', '.join(known.missing)}: not stated. Its owner can state it for free: by "
            "`deployment` in params.yaml, and `privsyn stage validate --plan RELEASE` again"
        )
    if known.unanswered:
        number = _count(len(known.unanswered), "question")
        yield f"{number} of the privacy review that nobody answered: {' '.join(known.unanswered)}"
    yield (
        # A cap holds within one account. The same records under another account cost on top.
        "what else was released of the same data: this account's releases stay within epsilon "
        f"{format_epsilon(known.cap, digits=4)} together; other accounts are not counted"
    )
    if known.unchecked:
        yield f"what was not checked: {'; '.join(known.unchecked)}"
    if known.audited:
        yield (
            # privacy: the audit's outcome depends on real records, so it is on no outward page.
            # This page says only that there is an audit.
            "whether the internal audit let it out (`evaluate.audit: block`): a copy from "
            "quarantine is not to be handed out"
        )
    if not known.signer:
        yield (
            "who made it: no signing key was set, so only the owner's ledger can say. Its owner "
            "can sign it: `signing.key`"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _cut(words: str | None) -> str:
    """The owner's words on one line, not longer than a card holds."""
    return one_line(words or "")


MODEL = "files of a model"
"""What a release holds that is a model: no records."""

NOTES: Mapping[str, str] = {
    "student.loss": "cross entropy of a token of the synthetic texts in the last epoch, in nats",
    "student.parameters": "numbers in its weights",
    "student.steps": "batches it was trained on",
    "student.texts": "synthetic texts it was trained on",
    "student.tokens": "tokens of these texts",
    "student.vocabulary": "tokens that it knows",
}
"""What the numbers of a student are."""


@dataclass(frozen=True)
class Records:
    """The synthetic records, as a document shows them.

    Attributes:
        things: What they are called.
        rows: How many there are.
        numbers: About them alone.
        charts: The same as pictures.
        shown: Some of them.
        fields: Of structured records, what their fields hold.
    """

    things: str
    rows: int
    numbers: tuple[Number, ...]
    charts: tuple[Block, ...] = ()
    shown: tuple[Block, ...] = ()
    fields: tuple[Block, ...] = ()

    def content_text(self) -> str:
        """What the release holds, in a few words."""
        if self.things == MODEL:
            return f"A model in {self.rows:,} files, taught by synthetic texts"
        return f"{self.rows:,} synthetic {self.things}"

    def in_short(self, validation: Mapping[str, Any]) -> str:
        """How good it is as far as its own bytes tell."""
        checks = validation.get("expectations", validation.get("checks", ()))
        failed = sum(check.get("success", check.get("passed")) is False for check in checks)
        if not validation:
            form = "Its format was not checked yet."
        elif failed:
            form = f"{failed} of {len(checks)} format checks failed."
        else:
            form = f"All {len(checks)} format checks passed, which say nothing of quality."
        # Repeats within the release. Whether a record repeats a real one is for the internal audit.
        values = {number.name: number.value for number in self.numbers}
        if "duplicate share" in values and self.rows > 1:
            share = values["duplicate share"]
            whole = f"{self.rows:,} {self.things}"
            form += (
                f" {share:.1%} of {whole} repeat another."
                if share
                else (f" None of {whole} repeats another.")
            )
        look = "Look at the samples below, and ask" if self.shown else "Ask"
        return f"{form} {look} its owner what was measured for your purpose."

    def sections(self) -> list[ReportSection]:
        """Samples; charts; fields."""
        sections = []
        if self.shown:
            title, how = "Samples", "Taken from the file at even distances, and not picked."
            sections.append(ReportSection("samples", title, LEAVES, self.shown, advice=how))
        if self.charts:
            title = f"What the {self.things} look like"
            sections.append(ReportSection("statistics", title, LEAVES, self.charts))
        if self.fields:
            sections.append(ReportSection("fields", "What the fields hold", LEAVES, self.fields))
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
    return read[facts.media_type](folder, file, facts, _numbers(folder, validation))


def _numbers(folder: Path, validation: Mapping[str, Any]) -> tuple[Number, ...]:
    """Numbers that validation took of the synthetic records, in its words where it noted any."""
    noted = validation.get("numbers")
    if noted is None:
        file = folder / layout.QUALITY
        values = parse_json(read_file(file)) if certificate.is_plain_file(file) else {}
        noted = [{"name": name, "value": value, "note": ""} for name, value in values.items()]
    return tuple(
        Number(str(one["name"]).replace("_", " "), float(one["value"]), str(one["note"]))
        for one in noted
        # privacy: numbers that were measured on real records have the class internal.
        if one.get("class", LEAVES) == LEAVES
    )


def _texts(folder: Path, file: Path, facts: ReleaseFacts, numbers: tuple[Number, ...]) -> Records:
    rows = read_rows(file)
    summary = profile(rows, facts.plan.dataset.labels)
    # An id begins with the release's name, which stands at the top of the page already.
    before = f"{facts.name}-"
    charts = _charts(summary.words, summary.median, "words per text", "texts", summary.labels)
    items = tuple(
        {"text": row.text or "", "label": row.label, "id": (row.id or "").removeprefix(before)}
        for row in summary.samples
    )
    extremes = (
        Number("shortest", summary.shortest, "words of the shortest text"),
        Number("longest", summary.longest, "words of the longest text"),
    )
    texts = [row.text or "" for row in rows]
    samples = (Block("samples", *items), *_invented(facts.plan, texts))
    return Records("texts", len(rows), (*numbers, *extremes), charts, samples, _fields(texts))


def _invented(plan: Plan, texts: Sequence[str]) -> tuple[Block, ...]:
    """Whose names a reader may take for people of the data; empty where no text holds any."""
    more = (plan.settings.get("text") or plan.settings).get("examples") or ()
    shown = [example.text for example in plan.dataset.examples] + [one["text"] for one in more]
    invented = {name for text in shown for name in names(text)}
    hits = [name for name in (invented.intersection(words(text)) for text in texts) if name]
    sentence = (
        f"{len(hits):,} of {len(texts):,} texts hold a name from the invented examples that "
        "prompts show (dataset.examples), which are public and no records: "
        f"{', '.join(sorted(set().union(*hits)))}."
    )
    return (Block("words", sentence),) if hits else ()


def _fields(texts: Sequence[str]) -> tuple[Block, ...]:
    """What the fields of synthetic records hold; empty unless half of the texts are JSON objects.

    Names and values are those of synthetic records alone: no schema and no real record is read.
    """
    summary = fields(objects(texts))
    # A free text may happen to be JSON now and then; fields say something of a release of records.
    if not summary.fields or 2 * summary.objects < len(texts):
        return ()
    sentence = f"{summary.objects:,} of {len(texts):,} texts are JSON objects."
    if summary.more:
        sentence += (
            f" Of their fields the {len(summary.fields)} commonest are shown, {summary.more:,} not."
        )
    numbers = (
        Number(
            one.name,
            one.present / summary.objects,
            f"share of them that have it; {one.different:,} different values",
        )
        for one in summary.fields
    )
    counted = (
        Block("counts", *one.counts, of=f"records by {one.name}")
        for one in summary.fields
        if one.counts
    )
    return (Block("words", sentence), Block("numbers", *numbers), *counted)


def _images(folder: Path, file: Path, facts: ReleaseFacts, numbers: tuple[Number, ...]) -> Records:
    rows = read_image_rows(file)
    summary = profile_images(rows, facts.plan.dataset.labels)
    of = "mean value of an image, 0 black to 255 white"
    charts = _charts(summary.means, summary.median, of, "images", summary.labels)
    sizes = tuple(
        Number(size, count, "images of this size; L is gray, RGB colored")
        for size, count in summary.sizes
    )
    sheet = sample_sheet(folder, summary)
    # The sheet has rows for the first labels alone, so there may be more labels than rows.
    names = [name for name, _ in summary.labels][: len(summary.samples) // COLUMNS]
    caption = (
        f"One row per label, from the top: {', '.join(names)}" if names else "At even distances"
    )
    shown = () if sheet is None else (Block("picture", title=caption, png=sheet, wide=True),)
    return Records("images", len(rows), (*numbers, *sizes), charts, shown)


def _model(folder: Path, file: Path, facts: ReleaseFacts, numbers: tuple[Number, ...]) -> Records:
    noted = tuple(replace(one, note=one.note or NOTES.get(one.name, "")) for one in numbers)
    return Records(MODEL, facts.rows, noted)


def _charts(
    spread: Any, median: float, of: str, things: str, labels: Sequence[tuple[str, int]]
) -> tuple[Block, ...]:
    options = vars(spread) | {"median": median, "of": of, "things": things}
    histogram = [Block("histogram", **options)] if sum(spread.counts) else []
    counts = [Block("counts", *labels, of=f"{things} per label")] if labels else []
    return (*histogram, *counts)
