"""The document that may leave the room: all of it from what lies in the release folder.

A release is the output of the mechanism and a certificate holds public facts, so every word here
is post-processing or public, and whoever has the folder can make the document again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from privsyn.dp.accountant import percent, shown
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.risk import Risk
from privsyn.errors import PrivsynError, VerificationError
from privsyn.files import parse_json, read_file
from privsyn.release import certificate, layout
from privsyn.release.metadata.checklist import Answer as Reviewed
from privsyn.release.metadata.checklist import checklist
from privsyn.release.metadata.facts import UNSTATED, one_line
from privsyn.release.metadata.facts import Facts as About
from privsyn.release.settings import DeploymentConfig
from privsyn.release.warnings import BY_AUDIT, MOVES, judged, not_people, of_epsilon, protected
from privsyn.report.blocks import (
    Answer,
    Answers,
    Bar,
    Bars,
    Block,
    Checked,
    Checks,
    Commands,
    Fact,
    Facts,
    Figures,
    Number,
    Picture,
    Words,
)
from privsyn.report.document import LEAVES, Document, Section
from privsyn.report.first_card import Known, first_card
from privsyn.report.records import MODEL, Records, records_of

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
    _, sealed = certificate.read(folder)
    with _readable(folder):
        release, said = facts(sealed), _cautioned(_validation(folder), sealed)
        kept = records_of(folder, sealed, said)
        stated = DeploymentConfig.model_validate(said.get("deployment") or {})
        review = checklist(About(sealed, stated, one_line))
        checks = _checks(said)
        sections = [
            Section("short", "In short", LEAVES, (Answers(_short(sealed, said, kept, review)),)),
            *_warnings(release, said),
            *paid_accuracy(sealed),
            *([] if checks.for_specialists else [checks]),
            *kept.sections(),
            *_exhibits(folder),
            _checking(release, said),
            _guarantee(release, sealed),
            _release(release, sealed, kept),
            *([checks] if checks.for_specialists else []),
            *kept.measured(),
            settings_of(sealed),
            _reviewed(review),
        ]
        return Document(
            cls=LEAVES,
            kicker="Report on synthetic data: may leave the room",
            title=f"{release['dataset']} {release['version']}".strip(),
            subtitle=f"{kept.made()} by {release['method']} "
            f"(budget set aside on {_date(str(release['reserved']))})",
            release=release,
            sections=tuple(sections),
            footer=(
                "Computed from the release folder alone: the synthetic records, their certificate, "
                "the checks. It is post-processing of the release and costs no privacy.",
                f"The same as JSON: {layout.REPORT_JSON}.",
            ),
        )


def facts(sealed: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader wants to know of a release: all from its certificate."""
    paid = certificate.origin(sealed)
    plan = paid["plan"]
    unit = protected(plan["dataset"], str(plan["unit"]))
    return {
        "release_id": sealed.get("name", plan["release_id"]),
        "class": sealed["class"],
        "method": paid["method"]["title"],
        "epsilon": plan["epsilon"],
        "risk": Risk(**paid["risk"]).words(unit, plan["adjacency"]),
        "delta": plan["delta"],
        "adjacency": plan["adjacency"],
        "unit": unit,
        "max_records_per_unit": plan["max_records_per_unit"],
        "dataset": plan["dataset"]["name"],
        "version": plan["dataset"]["version"],
        "rows": sealed["artifact"]["rows"],
        "reserved": paid["reserved_on"],
        "certificate_sha256": certificate.digest(dict(sealed)),
        "account": paid["account"]["name"],
        "account_left": paid["account"]["left_epsilon"],
    }


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except PrivsynError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        raise VerificationError(
            f"{folder} is not as privsyn writes a release: {type(error).__name__}.",
            hint=f"Check it with: privsyn verify {folder}",
        ) from None


def _validation(folder: Path) -> Mapping[str, Any]:
    """What the checks said; empty where there were none."""
    if not certificate.is_plain_file(folder / layout.VALIDATION):
        return {}
    said = parse_json(read_file(folder / layout.VALIDATION))
    if not isinstance(said, dict):
        raise ValueError
    return said


def _cautioned(said: Mapping[str, Any], sealed: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the checks said; of what is made from a release, with the caution on its epsilon.

    The checks of a student know no account. It is as private as its release, and no more.
    """
    if not said or "derived" not in sealed or "cautions" in said:
        return said
    paid = certificate.origin(sealed)
    plan, right = paid["plan"], Risk(**paid["risk"]).right
    unit = protected(plan["dataset"], str(plan["unit"]))
    spent = float(plan["epsilon"])
    asked = float(plan["target_epsilon"])
    return {**said, "cautions": of_epsilon(asked, unit, spent, right)}


def _passed(said: Mapping[str, Any]) -> bool | None:
    return said["success"] is True if said else None


# --- in short -------------------------------------------------------------------------------------


def _short(
    sealed: Mapping[str, Any], said: Mapping[str, Any], kept: Records, review: Sequence[Reviewed]
) -> tuple[Answer, ...]:
    """The first card: see ``first_card.py``."""
    paid = certificate.origin(sealed)
    plan, cautions = paid["plan"], tuple(map(str, said.get("cautions", ())))
    dataset = plan["dataset"]
    known = Known(
        made=f"{kept.made()} by {paid['method']['title']}",
        instead_of=f"{dataset['name']} {dataset['version']}".strip(),
        document=str(dataset.get("document") or ""),
        cls=str(sealed["class"]),
        passed=_passed(said),
        checks=len(said.get("expectations", said.get("checks", ()))),
        unchecked=tuple(one for one in map(str, said.get("left_out", ())) if one.startswith("No ")),
        epsilon=judged(float(plan["target_epsilon"]), float(plan["epsilon"])),
        delta=float(plan["delta"]),
        risk=Risk(**paid["risk"]),
        cap=float(paid["account"]["cap"]["epsilon"]),
        unit=protected(dataset, str(plan["unit"])),
        not_people=not_people(dataset["unit"], by_file=bool(dataset.get("images"))),
        most=int(plan["max_records_per_unit"]),
        adjacency=Adjacency(plan["adjacency"]),
        stated=DeploymentConfig.model_validate(said.get("deployment") or {}),
        unanswered=tuple(row.question for row in review if row.answer.startswith(UNSTATED)),
        cautions=len(cautions),
        audited=BY_AUDIT in cautions,
        signer=str(said.get("signer") or ""),
        good=kept.in_short(said),
        compared=_compared(sealed, kept),
    )
    return first_card(known)


def _compared(sealed: Mapping[str, Any], kept: Records) -> str:
    if (accuracy := paid_for(sealed)) and accuracy["value"] is not None:
        return (
            f"With real records: a classifier trained on it is right about {accuracy['value']:.2f} "
            f"[{accuracy['low']:.2f}, {accuracy['high']:.2f}] of held-out ones, by a mechanism "
            "that was paid for."
        )
    if kept.things == MODEL:
        parent = certificate.origin(sealed)["plan"]["release_id"]
        return (
            "With nothing on this page. How often it finds the next word of held-out real texts, "
            "beside the commonest word and the public model alone, was or can be measured by its "
            f"owner; those numbers read real records and stay inside (`privsyn report {parent}`)."
        )
    return (
        "With nothing on this page. Beside held-out real records, the public model alone and as "
        "many real ones it was or can be measured by its owner; those numbers read real records "
        "and stay inside (`privsyn report`)."
    )


def _warnings(release: Mapping[str, Any], said: Mapping[str, Any]) -> list[Section]:
    found = []
    if release["class"] != LEAVES:
        void = (
            "This file was drawn with noise that can be predicted, for tests only. The guarantee "
            "below does not hold."
        )
        found.append(Section("void", "Not private", LEAVES, (Words((void,)),), tone="bad"))
    if said.get("cautions"):
        cautions = Words(tuple(map(str, said["cautions"])), points=True)
        title = "Before you rely on this guarantee"
        found.append(Section("cautions", title, LEAVES, (cautions,), tone="bad"))
    return found


# --- guarantee, release, cost ---------------------------------------------------------------------


def _guarantee(release: Mapping[str, Any], sealed: Mapping[str, Any]) -> Section:
    epsilon, unit = float(release["epsilon"]), str(release["unit"])
    used = int(release["max_records_per_unit"])
    account = certificate.origin(sealed)["account"]
    meaning = (
        f"{MOVES[Adjacency(release['adjacency'])].format(unit=unit)}: the probability of any "
        "outcome grows at most by the factor e^epsilon, plus delta."
    )
    if used > 1:
        meaning += f" At most {used:,} records of each {unit} are used."
    blocks: list[Block] = [
        Figures((Number("epsilon", epsilon), Number("delta", float(release["delta"])))),
        Words((meaning,)),
        Words(tuple(release["risk"]), points=True),
        Facts(
            (
                Fact("Unit", unit),
                Fact("Adjacency", str(release["adjacency"]).replace("_", " ")),
                Fact("Account", str(release["account"])),
                *_share(account),
            )
        ),
    ]
    title = "How private, and for whom"
    return Section("guarantee", title, LEAVES, tuple(blocks), half=True, for_specialists=True)


def _share(account: Mapping[str, Any]) -> Iterator[Fact]:
    """What the release took of its account, as its certificate told."""
    cap, left = account["cap"], account["left_epsilon"]
    yield Fact("Lifetime cap", f"epsilon {cap['epsilon']:g}, delta {cap['delta']:g}")
    # by the filter that is least full, as `privsyn ledger show` has it
    yield Fact("Spent with it", f"{percent(float(account['share']))} of the cap")
    if left is not None:
        yield Fact("Room for one more", f"epsilon {float(left):.4g} (Gaussian noise)")


def _release(release: Mapping[str, Any], sealed: Mapping[str, Any], kept: Records) -> Section:
    paid = certificate.origin(sealed)
    items = [
        Fact("Release", str(release["release_id"]), code=True),
        Fact("Dataset", str(release["dataset"])),
        Fact("Version", str(release["version"])),
        Fact("Files" if kept.things == MODEL else "Rows", int(release["rows"])),
        Fact("Method", f"{release['method']} ({paid['method']['paper']})"),
        Fact("Class", str(release["class"])),
        Fact("Certificate", str(release["certificate_sha256"]), code=True),
        Fact(
            "List of files" if kept.things == MODEL else "Records",
            str(sealed["artifact"]["sha256"]),
            code=True,
        ),
        Fact("Ledger", f"release {paid['ledger']['entry']} of its ledger"),
        Fact("privsyn", str(sealed["software"].get("privsyn") or "unknown")),
    ]
    if "derived" in sealed:
        items.insert(1, Fact("Made from", str(paid["plan"]["release_id"]), code=True))
    facts = (Facts(tuple(items)),)
    return Section("release", "Release", LEAVES, facts, half=True, for_specialists=True)


_MASKED = {
    "email": "e-mail addresses",
    "phone": "phone numbers",
    "record_number": "record numbers",
}

# --- checks and statistics ------------------------------------------------------------------------


def _checks(said: Mapping[str, Any]) -> Section:
    title = "Format checks"
    if not said:
        words = Words(("It was not checked yet.",))
        return Section("validation", title, LEAVES, (words,))
    items = [
        Checked(
            str(check.get("title", check["name"])),
            check["success"] if "success" in check else check["passed"],
            str(check["detail"]),
            f"{check['name']} on {check['column']}"
            if check.get("column")
            else str(check["name"])
            if "title" in check
            else "",
        )
        for check in said.get("expectations", said.get("checks", ()))
    ]
    items.sort(key=lambda check: check.passed is not False)
    blocks: list[Block] = [Checks(tuple(items), tuple(map(str, said.get("left_out", ()))))]
    if masked := said.get("masked"):
        count = ", ".join(f"{number} {_MASKED[kind]}" for kind, number in masked.items())
        blocks.append(
            Words((f"Masked before release, since a model makes such up by itself: {count}.",))
        )
    if "suite" in said:
        run = f"Suite {said['suite']}, run by Great Expectations {said['gx_version']}."
        blocks.append(Words((run,)))
    failed = sum(check.passed is False for check in items)
    advice = (
        f"{failed} of {len(items)} failed."
        if failed
        else f"All {len(items)} passed. They say nothing of quality."
    )
    return Section(
        "validation",
        title,
        LEAVES,
        tuple(blocks),
        advice=advice,
        tone="bad" if failed else "plain",
        for_specialists=not failed,
    )


def _exhibits(folder: Path) -> list[Section]:
    """The pictures among the exhibits; of many the first, the last and some between."""
    place = folder / layout.EXHIBITS
    if place.is_symlink() or not place.is_dir():
        return []
    files = [file for file in sorted(place.glob("*.png")) if certificate.is_plain_file(file)]
    if len(files) > MOST_PICTURES:
        steps = MOST_PICTURES - 1
        files = [files[i * (len(files) - 1) // steps] for i in range(MOST_PICTURES)]
    pictures = tuple(Picture(_caption(file.stem), read_file(file)) for file in files)
    return [Section("exhibits", "How it came about", LEAVES, pictures)] if pictures else []


def _caption(stem: str) -> str:
    """Of ``population-0003``: population 3, and how a population came about."""
    name, dash, number = stem.rpartition("-")
    if not dash or not number.isdecimal():
        return stem
    said = f"{name} {int(number)}"
    if name != "population":
        return said
    if int(number) == 0:
        return f"{said}: what the public model makes without the records"
    return f"{said}: after {int(number)} round{'s' if int(number) > 1 else ''} of noisy votes"


def _reviewed(review: Sequence[Reviewed]) -> Section:
    """The questions of NIST SP 800-226."""
    items = tuple(Answer(row.question, f"{_upper(row.answer)} ({row.where})") for row in review)
    title = "Questions of a privacy review"
    return Section("review", title, LEAVES, (Answers(items),), for_specialists=True)


# --- handing out ----------------------------------------------------------------------------------


def _checking(release: Mapping[str, Any], said: Mapping[str, Any]) -> Section:
    name = release["release_id"]
    signer = str(said.get("signer") or "")
    who = f"the key {signer[:16]}... signed it" if signer else "it is not signed"
    blocks = (
        Words(
            (
                "Keep the folder whole: this page belongs to it. The first command needs nothing "
                "else. It recomputes the guarantee, compares every file with the digests in the "
                f"certificate and in {layout.VALIDATION}, and makes this page again to compare it "
                "with yours: a changed word is an error.",
                f"Who made the folder that does not say; {who}. The second command asks the "
                "owner's ledger, the third checks the signature by the owner's public key.",
            )
        ),
        Commands(
            (
                f"privsyn verify {name}",
                f"privsyn verify {name} --require-ledger",
                f"privsyn verify {name} --key PUBLIC.PEM",
            )
        ),
    )
    return Section("check", "How do I check this page and its release?", LEAVES, blocks)


def _up(value: Any) -> str:
    return shown(float(value), digits=4)


def _upper(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _date(day: str) -> str:
    """An ISO date for people; anything else as it is."""
    try:
        return f"{date.fromisoformat(day):%d %b %Y}"
    except ValueError:
        return day


MOST_CHARS = 2000
"""Of a setting, such as a prompt."""


def settings_of(sealed: Mapping[str, Any]) -> Section:
    """The public settings a release was drawn with, what was solved for, and what was counted.

    Of what is made from a release its own settings come first.
    """
    paid = certificate.origin(sealed)
    plan = paid["plan"]
    models = {f"models.{role}": use["source"] for role, use in plan.get("models", {}).items()}
    held = plan["dataset"].get("holdout")
    own = {
        name: value
        for kind, made in sealed.get("derived", {}).items()
        if isinstance(made, Mapping)
        for name, value in _flat(made.get("settings") or {}, f"{kind}.")
    }
    asked = {
        **own,
        **dict(_flat(_of_modality(plan["settings"]))),
        **dict(_flat(plan.get("derived", {}))),
        **models,
        **({"dataset.holdout": held} if held is not None else {}),
        **dict(_flat(paid.get("drawn", {}), "drawn.")),
    }
    items = tuple(Fact(name, _cut(value), code=True) for name, value in asked.items())
    title = "Settings it was drawn with"
    if own:
        title = "Settings it was made with, and those of the release it was made from"
    return Section("settings", title, LEAVES, (Facts(items),))


def _of_modality(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings without those of another kind of records than theirs."""
    own = settings.get("modality")
    others = {"text", "image"} - {own} if own is not None else set()
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
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= MOST_CHARS else f"{said[:MOST_CHARS]} ..."


def paid_accuracy(sealed: Mapping[str, Any]) -> list[Section]:
    """How often a classifier is right about held-out units, by a mechanism that was paid for."""
    found = paid_for(sealed)
    if not found:
        return []
    blocks: list[Block] = []
    if found["value"] is not None:
        bars = [
            Bar(name, float(found["value"]), float(found[low]), float(found[high]), ours=True)
            for name, low, high in (
                ("people like those tested", "low", "high"),
                ("those tested themselves", "noise_low", "noise_high"),
            )
        ]
        blocks.append(Bars(tuple(bars), "Accuracy, drawn with noise"))
    said = tuple(f"{words[:1].upper()}{words[1:]}." for words in accuracy_said(sealed))
    blocks.append(Words(said, points=True))
    return [Section("accuracy", "How good, for real people held out", LEAVES, tuple(blocks))]


def paid_for(sealed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The accuracy on a certificate; empty where it has none.

    What is made from the release has none: it was not what was tested.
    """
    return dict(sealed.get("accuracy") or {})


def accuracy_said(sealed: Mapping[str, Any]) -> tuple[str, ...]:
    """The accuracy that a release pays for, in sentences; nothing where it pays for none."""
    found = paid_for(sealed)
    if not found:
        return ()
    unit, confidence = sealed["plan"]["unit"], f"{found['confidence']:.0%}"
    value = f"is about {found['value']:.3f}" if found["value"] is not None else "is lost in noise"
    return (
        f"the accuracy, for held-out {unit}s, of a classifier trained on this file alone {value}",
        f"for {unit}s like them it lies between {found['low']:.3f} and {found['high']:.3f} "
        f"({confidence}: noise and sampling); for them themselves between "
        f"{found['noise_low']:.3f} and {found['noise_high']:.3f} ({confidence}: noise alone)",
        f"it cost epsilon {shown(found['epsilon'])} of what the release did, with delta 0: "
        f"discrete Laplace noise of scale {found['noise']['scale']:.4g} {unit}s on how many it is "
        "right and wrong about",
    )
