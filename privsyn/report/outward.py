"""The outward report, which may be handed out: all of it from the release folder.

A release is the output of the mechanism and a certificate holds public facts, so every word here
is post-processing or public, and whoever has the folder can make the document again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.dp.accountant import percent
from privsyn.errors import PrivsynError, VerificationError
from privsyn.files import parse_json, read_file
from privsyn.release import certificate
from privsyn.release.advice import MOVES, of_epsilon
from privsyn.release.facts import UNSTATED, ReleaseFacts, one_line
from privsyn.release.metadata import Review, checklist
from privsyn.release.settings import stated_in
from privsyn.report.document import LEAVES, Answer, Block, Document, Fact, Number, ReportSection
from privsyn.report.sections import MODEL, PAGE, Records, first_card, records_of

MOST_PICTURES = 9
"""Exhibits that are shown at most."""


def outward(folder: Path) -> Document:
    """The report of a release, from its folder alone.

    Guarantee: reads the synthetic records, the certificate and what validation wrote; nothing that
    depends on a private record otherwise.

    Args:
        folder: A release, a derived one, or a student; whoever wrote it is not trusted.

    Raises:
        VerificationError: There is no certificate, or a file of the folder cannot be read.
        DataError: The synthetic file cannot be read.
    """
    # One line each: the owner's words must not be able to look like another part of the page.
    facts = ReleaseFacts.read(folder, words=one_line)
    with _readable(folder):
        validation = _with_caution(_validation(folder), facts)
        # What the owner states may change after the draw at no cost, so it is kept with the checks
        # and not in the certificate.
        facts = replace(facts, deployment=stated_in(validation.get("deployment")))
        release = public_facts(facts)
        records = records_of(folder, facts, validation)
        review = checklist(facts)
        checks = _checks(validation)
        open_ = [row.question for row in review if row.answer.startswith(UNSTATED)]
        card = Block("answers", *first_card(facts, validation, records, open_))
        sections = [
            ReportSection("short", "In short", LEAVES, (card,)),
            *_warnings(facts, validation),
            *_paid_accuracy(facts),
            # Failed checks stand where everybody reads, passed ones among what specialists read.
            *([] if checks.for_specialists else [checks]),
            *records.sections(),
            *_exhibits(folder),
            _checking(facts, validation),
            _guarantee(facts),
            _release(facts, records),
            *([checks] if checks.for_specialists else []),
            *records.number_sections(),
            _settings(facts),
            _review_section(review),
        ]
        return Document(
            # No time, machine or path: `verify` makes the page again on another machine and
            # compares it.
            cls=LEAVES,
            kicker="Public report on synthetic data",
            title=f"{release['dataset']} {release['version']}".strip(),
            subtitle=f"{records.content_text()} by {release['method']} "
            f"(budget set aside on {release['reserved']})",
            release=release,
            sections=tuple(sections),
            footer=(
                "Computed from the release folder alone: the synthetic records, their certificate, "
                "the checks. It is post-processing of the release and costs no privacy.",
                f"The same as JSON: {layout.REPORT_JSON}.",
            ),
        )


def public_facts(facts: ReleaseFacts) -> dict[str, Any]:
    """What a reader wants to know of a release, for JSON: all from its certificate."""
    plan = facts.plan
    return {
        "release_id": facts.name,
        "class": facts.kind,
        "method": facts.method_title,
        "epsilon": plan.epsilon,
        "risk": facts.odds,
        "delta": plan.delta,
        "adjacency": plan.adjacency.value,
        "unit": facts.unit,
        "max_records_per_unit": plan.max_records_per_unit,
        "dataset": plan.dataset.name,
        "version": plan.dataset.version,
        "rows": facts.rows,
        "reserved": facts.reserved_on,
        "certificate_sha256": facts.certificate_sha256,
        "account": facts.account_balance["name"],
        "account_left": facts.account_balance["left_epsilon"],
    }


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except PrivsynError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        raise VerificationError(
            # privacy: the type alone. A message of a parser may quote the file.
            f"{folder} is not as privsyn writes a release: {type(error).__name__}.",
            hint=f"Check it with: privsyn verify {folder}",
        ) from None


def _validation(folder: Path) -> Mapping[str, Any]:
    """What the checks said; empty where there were none."""
    if not certificate.is_plain_file(folder / layout.VALIDATION):
        return {}
    validation = parse_json(read_file(folder / layout.VALIDATION))
    if not isinstance(validation, dict):
        raise ValueError
    return validation


def _with_caution(validation: Mapping[str, Any], facts: ReleaseFacts) -> Mapping[str, Any]:
    """What the checks said; of what is made from a release, with the caution on its epsilon.

    The checks of a student know no account. It is as private as its release, and no more.
    """
    if not validation or not facts.is_derived or "cautions" in validation:
        return validation
    plan, right = facts.plan, facts.risk.right
    cautions = of_epsilon(plan.target_epsilon, facts.unit, plan.epsilon, right)
    return {**validation, "cautions": cautions}


def _warnings(facts: ReleaseFacts, validation: Mapping[str, Any]) -> list[ReportSection]:
    sections = []
    if not facts.is_private:
        words = [Block("words", *PAGE.says("predictable"))]
        sections.append(ReportSection("void", "Not private", LEAVES, words, tone="bad"))
    if validation.get("cautions"):
        cautions = Block("words", *map(str, validation["cautions"]), points=True)
        title = "Before you rely on this guarantee"
        sections.append(ReportSection("cautions", title, LEAVES, (cautions,), tone="bad"))
    return sections


# --- guarantee, release, cost ---------------------------------------------------------------------


def _guarantee(facts: ReleaseFacts) -> ReportSection:
    plan, unit = facts.plan, facts.unit
    used = plan.max_records_per_unit
    balance = facts.account_balance
    cap, left = balance["cap"], balance["left_epsilon"]
    room = "" if left is None else f"epsilon {float(left):.4g} (Gaussian noise)"
    # The guarantee covers all records of a unit together; a reader may think of one record.
    meaning = PAGE.says(
        "meaning", moves=MOVES[plan.adjacency].format(unit=unit), used=used, unit=unit
    )
    blocks: list[Block] = [
        Block("figures", Number("epsilon", plan.epsilon), Number("delta", plan.delta)),
        Block("words", *meaning),
        Block("words", *facts.odds, points=True),
        _facts(
            ("Unit", unit, False),
            ("Adjacency", plan.adjacency.value.replace("_", " "), False),
            ("Account", str(balance["name"]), False),
            ("Lifetime cap", f"epsilon {cap['epsilon']:g}, delta {cap['delta']:g}", False),
            # by the filter that is least full, as `privsyn ledger show` has it
            ("Spent with it", f"{percent(float(balance['share']))} of the cap", False),
            ("Room for one more", room, False),
        ),
    ]
    title = "How private, and for whom"
    return ReportSection("guarantee", title, LEAVES, tuple(blocks), half=True, for_specialists=True)


def _facts(*rows: tuple[str, str | int, bool]) -> Block:
    """Name, value and whether it is code of each fact; one without a value is left out."""
    return Block("facts", *(Fact(*row) for row in rows if row[1] != ""))


def _release(facts: ReleaseFacts, records: Records) -> ReportSection:
    dataset = facts.plan.dataset
    plan, derived, model = facts.plan, facts.is_derived, records.things == MODEL
    blocks = (
        _facts(
            ("Release", facts.name, True),
            ("Made from", facts.release_id if derived else "", True),
            ("Dataset", dataset.name, False),
            ("Version", dataset.version, False),
            ("Files" if model else "Rows", facts.rows, False),
            ("Labels", "" if derived else plan.label_shares, False),
            ("Method", facts.method, False),
            ("Class", facts.kind, False),
            ("Certificate", facts.certificate_sha256, True),
            ("List of files" if model else "Records", facts.sha256, True),
            ("Ledger", f"release {facts.paid['ledger']['entry']} of its ledger", False),
            ("privsyn", str(facts.software.get("privsyn") or "unknown"), False),
        ),
    )
    return ReportSection("release", "Release", LEAVES, blocks, half=True, for_specialists=True)


# --- checks and statistics ------------------------------------------------------------------------


def _checks(validation: Mapping[str, Any]) -> ReportSection:
    title = "Format checks"
    if not validation:
        words = Block("words", "It was not checked yet.")
        return ReportSection("validation", title, LEAVES, (words,))
    items = [
        {
            "title": str(check["title"]),
            "passed": check["success"],
            "detail": str(check["detail"]),
            "name": f"{check['name']} on {check['column']}" if check["column"] else check["name"],
        }
        for check in validation["expectations"]
    ]
    # Stable: failed ones first, otherwise in the suite's order.
    items.sort(key=lambda check: check["passed"] is not False)
    blocks: list[Block] = [
        Block("checks", *items, left_out=[*map(str, validation.get("left_out", ()))])
    ]
    if "suite" in validation:
        run = f"Suite {validation['suite']}, run by Great Expectations {validation['gx_version']}."
        blocks.append(Block("words", run))
    failed = sum(check["passed"] is False for check in items)
    advice = (
        f"{failed} of {len(items)} failed."
        if failed
        else f"All {len(items)} passed. They say nothing of quality."
    )
    return ReportSection(
        "validation",
        title,
        LEAVES,
        tuple(blocks),
        advice=advice,
        tone="bad" if failed else "plain",
        for_specialists=not failed,
    )


def _exhibits(folder: Path) -> list[ReportSection]:
    """The pictures among the exhibits; of many the first, the last and some between."""
    place = folder / layout.EXHIBITS
    # A link could put another folder's pictures on the page, which may be private.
    if place.is_symlink() or not place.is_dir():
        return []
    files = [file for file in sorted(place.glob("*.png")) if certificate.is_plain_file(file)]
    if len(files) > MOST_PICTURES:
        steps = MOST_PICTURES - 1
        # Evenly spaced, with both ends: a run's first and last population are what a reader
        # compares.
        files = [files[i * (len(files) - 1) // steps] for i in range(MOST_PICTURES)]
    pictures = tuple(
        Block("picture", title=_caption(file.stem), png=read_file(file)) for file in files
    )
    return [ReportSection("exhibits", "How it came about", LEAVES, pictures)] if pictures else []


def _caption(stem: str) -> str:
    """Of ``population-0003``: population 3, and how a population came about."""
    name, dash, number = stem.rpartition("-")
    if not dash or not number.isdecimal():
        return stem
    title = f"{name} {int(number)}"
    if name != "population":
        return title
    return str(PAGE.first("population", {"number": int(number)})["says"])


def _review_section(review: Sequence[Review]) -> ReportSection:
    """The questions of NIST SP 800-226."""
    items = tuple(Answer(row.question, f"{_upper(row.answer)} ({row.where})") for row in review)
    title = "Questions of a privacy review"
    return ReportSection("review", title, LEAVES, [Block("answers", *items)], for_specialists=True)


# --- handing out ----------------------------------------------------------------------------------


def _checking(facts: ReleaseFacts, validation: Mapping[str, Any]) -> ReportSection:
    name = facts.name
    signer = str(validation.get("signer") or "")
    blocks = (
        Block("words", *PAGE.says("check", signer=signer, validation=layout.VALIDATION)),
        Block(
            "commands",
            f"privsyn verify {name}",
            f"privsyn verify {name} --require-ledger --ledger URL",
            f"privsyn verify {name} --key PUBLIC.PEM",
        ),
    )
    return ReportSection("check", "How do I check this page and its release?", LEAVES, blocks)


def _upper(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


MOST_CHARS = 2000
"""Of a setting, such as a prompt."""


def _settings(facts: ReleaseFacts) -> ReportSection:
    """The public settings a release was drawn with, what was solved for, and what was counted.

    Of what is made from a release its settings come first.
    """
    plan = facts.plan
    later = {
        name: value
        for kind, made in facts.derived.items()
        if isinstance(made, Mapping)
        for name, value in _flat(made.get("settings") or {}, f"{kind}.")
    }
    values = {
        **later,
        **dict(_flat(_of_modality(plan.settings))),
        **dict(_flat(plan.derived)),
        **{f"models.{role}": use.source for role, use in plan.models.items()},
        "dataset.holdout": plan.dataset.holdout,
        **dict(_flat(facts.draw_counts, "drawn.")),
    }
    items = tuple(Fact(name, _cut(value), code=True) for name, value in values.items())
    title = "Settings it was drawn with"
    if later:
        title = "Settings it was made with, and those of the release it was made from"
    return ReportSection("settings", title, LEAVES, [Block("facts", *items)], for_specialists=True)


def _of_modality(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without those of another kind of records than theirs."""
    modality = settings.get("modality")
    # Settings hold the defaults of both kinds; those of the other kind had no effect on the draw.
    others = {"text", "image"} - {modality} if modality is not None else set()
    return {name: value for name, value in settings.items() if name not in others}


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value not in (None, "", [], ()):
            yield f"{before}{name}", value


def _cut(value: Any) -> str | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return words if len(words) <= MOST_CHARS else f"{words[:MOST_CHARS]} ..."


def _paid_accuracy(facts: ReleaseFacts) -> list[ReportSection]:
    """How often a classifier is right about held-out units, by a mechanism that was paid for."""
    accuracy = facts.accuracy
    if not accuracy:
        return []
    blocks: list[Block] = []
    if accuracy["value"] is not None:
        value = float(accuracy["value"])
        bars = [
            # Two intervals of one value: the wider one adds the sampling of people to the noise.
            Number(name, value, "", float(accuracy[low]), float(accuracy[high]), ours=True)
            for name, low, high in (
                ("people like those tested", "low", "high"),
                ("those tested themselves", "noise_low", "noise_high"),
            )
        ]
        blocks.append(Block("bars", *bars, of="Accuracy, drawn with noise"))
    sentences = [f"{_upper(words)}." for words in facts.accuracy_sentences]
    blocks.append(Block("words", *sentences, points=True))
    return [ReportSection("accuracy", "How good, for real people held out", LEAVES, tuple(blocks))]
