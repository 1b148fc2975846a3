"""Check a release folder against its certificate, its digests and the ledger."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn import __version__
from privsyn.data.artifacts import sha256_file
from privsyn.data.unit_key import ID_RULE
from privsyn.dp.accountant import epsilon_without_secret, format_epsilon, guarantee, mu, rho
from privsyn.dp.event_tree import is_amplified, without_secret
from privsyn.dp.events import Event, dump
from privsyn.dp.risk import group_risk, risk
from privsyn.errors import PrivsynError, VerificationError
from privsyn.files import parse_json, read_file
from privsyn.layout import (
    CERTIFICATE,
    FOLDERS,
    MODEL,
    MODEL_ROWS,
    NAMED_BY_ROWS,
    REPORT_JSON,
    REPORT_PAGE,
    REPORTS,
    SIGNATURE,
    VALIDATION,
)
from privsyn.ledger.chain import DECISIONS, DERIVED, VALIDATED
from privsyn.ledger.decisions import Decision, What
from privsyn.ledger.entries import Change, State
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.spec import Terms
from privsyn.modalities.registry import drawn_with
from privsyn.release import signature
from privsyn.release.certificate import (
    OTHER_HINT,
    RESTORE_HINT,
    SCHEMA,
    accuracy_figures,
    agree,
    canonical,
    day_of,
    differences,
    digest,
    is_plain_file,
    made_by_newer,
    origin,
    read,
    seal_of,
)
from privsyn.release.plan import Plan
from privsyn.release.workspace import Workspace
from privsyn.report.document import wording
from privsyn.report.outward import outward
from privsyn.sentences import Rows

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

SIGNED = "signature"
"""Name of the check of the signature."""
NEWER, OTHER = "privsyn is as new", "privsyn reads it"
_STORED = (
    "artifact", "images", "exhibits", "model", "nothing else", "ledger", "report", "signature",
    "validation reports",
)  # fmt: skip
"""Beginnings of the checks that compare what is stored. The others compute it again, which another
version may do in another way."""


_SAYS = Rows(Path(__file__).parent / "templates" / "checks.yaml")


@dataclass(frozen=True)
class Check:
    """One thing verify looked at. ``passed`` is None where it could not be checked."""

    name: str
    passed: bool | None
    detail: str


def _check(name: str, passed: bool | None, /, **facts: Any) -> Check:
    """A check, and what ``templates/checks.yaml`` says of it."""
    return Check(name, passed, _SAYS.first(name, {"passed": passed, **facts})["says"])


def verify(folder: Path, ledger: Ledger | None, key: SSlibKey | None = None) -> list[Check]:
    """Check a release folder: bytes, identity, event, guarantee; ledger and signature if at hand.

    Recomputes the event from settings, adjacency and unit, and the guarantee from the event; trusts
    no number it can derive. Every file of the folder is covered by the certificate or by the
    ledger's note of the validation, or is named as not covered; any other is a failure. A signature
    covers them all.

    Args:
        folder: The release.
        ledger: Its ledger, if at hand.
        key: The public key of who should have signed it.

    Returns:
        The checks made, failed ones included; see ``raise_on_failure``.

    Raises:
        VerificationError: There is no certificate, or it cannot be read.
        LedgerUnavailable: The ledger cannot be asked.
    """
    raw, certificate = read(folder)
    checks = [_check("certificate is sealed", _is_sealed(raw, certificate))]
    made = made_by_newer(certificate)  # this one may not know all of it
    newer = [] if made is None else [_check(NEWER, None, made=made, version=__version__)]
    try:
        # From here on a forged certificate may hold anything, so a missing field is a failed check.
        checks += [_nothing_else(folder, certificate), *_artifact(folder, certificate)]
        paid = origin(certificate)
        plan = Plan.from_certificate(paid)
        if paid is not certificate:
            whole = (
                paid.get("seal") == seal_of(paid)
                and len(certificate["parents"]) == 1
                and certificate["class"] == paid["class"]
                and certificate["schema"] == SCHEMA
            )
            checks.append(_check("parent", whole, release=paid["plan"]["release_id"]))
        checks += _fields(folder, plan, certificate)
        checks += _cost(plan, paid)
    except _UNREADABLE as error:
        return [*checks, _unread(checks, error), *newer]
    try:
        return [
            *checks,
            *newer,
            *([_check("no audit decides", None)] if plan.audit_decides else []),
            *_reports(folder, plan, certificate, ledger),
            *_ledger(plan, certificate, ledger),
            *_signature(folder, certificate, key),
        ]
    except _BROKEN as error:
        return [*checks, _unread(checks, error), *newer]


def _unread(checks: Sequence[Check], error: Exception) -> Check:
    """A certificate that cannot be read; where its seal holds, nobody changed what was sealed.

    It fails all the same: a seal has no key, and whoever writes a certificate can make one.
    """
    field = error.args[0] if isinstance(error, KeyError) else type(error).__name__
    if not checks[0].passed:
        return _check("certificate is complete", False, field=field)
    return _check(OTHER, False, field=field, version=__version__)


def authentic(checks: Sequence[Check]) -> bool:
    """Whether a ledger confirms a release. Without one it only agrees with itself."""
    rows = [check.passed for check in checks if check.name.startswith("ledger ")]
    # Without a ledger the only such row is None, and the release is no more than consistent.
    return bool(rows) and all(rows)


def note_reports(folder: Path, ledger: Ledger) -> None:
    """Have the ledger note the reports of a validated folder.

    Raises:
        VerificationError: There is no certificate.
        BudgetError: The ledger knows no such release.
    """
    _, certificate = read(folder)
    release_id = origin(certificate)["plan"]["release_id"]
    reports = {name: sha256_file(folder / name) for name in REPORTS if is_plain_file(folder / name)}
    name = str(certificate.get("name", release_id))
    ledger.releases.note_validation(release_id, name, digest(certificate), reports)


def covers_reports(folder: Path, ledger: Ledger) -> bool:
    """Whether a folder's reports are those that the ledger noted when it was validated."""
    _, certificate = read(folder)
    plan = Plan.from_certificate(origin(certificate))
    # Read by name: a release without a note in the ledger has no such check, and is not covered.
    results = {check.name: check.passed for check in _reports(folder, plan, certificate, ledger)}
    return results.get(NOTED) is True and False not in results.values()


_BROKEN = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_UNREADABLE = (*_BROKEN, PrivsynError)
"""What a certificate that somebody wrote by hand may run into."""


def locate(workspace: Workspace, ledger: Ledger, name: str) -> Path | None:
    """Folder of a finished release, as the store holds it and the ledger confirms it.

    Returns:
        The folder; None where the release is neither here nor stored.

    Raises:
        VerificationError: What is stored is not what was certified and committed.
        StorageError: The store cannot be reached.
    """
    if workspace.store is None:
        # Without a store the folder here is the only copy: there is nothing to compare it with.
        return workspace.here_in(name)
    entry = ledger.releases.find(name)

    def check(folder: Path) -> None:
        if not covers_reports(folder, ledger):
            # Older than the ledger's note, or of a machine that died in between: made anew.
            for report in (*REPORTS, SIGNATURE):
                (folder / report).unlink(missing_ok=True)
            # So they are missing, which is no fault of this copy.
            whole = [check for check in verify(folder, ledger) if check.name != NOTED]
            raise_on_failure(folder, whole)
            return
        raise_on_failure(folder, verify(folder, ledger))

    copy = workspace.store.fetch(
        name,
        workspace.root,
        certified=None if entry is None else entry.certificate_sha256,
        check=check,
    )
    return copy or workspace.here_in(name)


def _is_sealed(raw: bytes, certificate: Mapping[str, Any]) -> bool:
    try:
        return raw == canonical(certificate) and certificate.get("seal") == seal_of(certificate)
    except RecursionError:  # no certificate of ours is nested so deep
        return False


def raise_on_failure(folder: Path, checks: list[Check]) -> None:
    """Raise if a check failed.

    Raises:
        VerificationError: Names the failed checks.
    """
    failed = {check.name: check.detail for check in checks if check.passed is False}
    if failed:
        hint = RESTORE_HINT
        if newer := next((check.detail for check in checks if check.name == NEWER), None):
            hint = f"It was {newer}: upgrade privsyn first."
        elif failed.keys() == {OTHER}:
            hint = "Verify it with the privsyn that made it."
        elif checks[0].passed and not any(name.startswith(_STORED) for name in failed):
            hint = OTHER_HINT
        messages = [f"{name} ({detail})" for name, detail in failed.items()]
        raise VerificationError(
            f"{folder} does not verify: {'; '.join(messages)}.",
            hint=hint.format(release=folder.name),
        )


def refuse_predictable(folder: Path, sealed: Mapping[str, Any]) -> None:
    """Refuse to take a release for public that was drawn with noise one could know.

    Args:
        folder: The release.
        sealed: Its certificate, or that of what was made from it.

    Raises:
        VerificationError: It is of another class than ``dp-release``.
    """
    if sealed["class"] != "dp-release":
        raise VerificationError(
            f"{folder} is of class {sealed['class']}: it was drawn with predictable noise, so it "
            "has no guarantee and is private like the records.",
            hint="Draw a release with OpenDP's noise.",
        )


def _nothing_else(folder: Path, certificate: Mapping[str, Any]) -> Check:
    """Whether all that lies in a folder is a release's, files are files and folders folders."""
    files = {CERTIFICATE, SIGNATURE, str(certificate["artifact"]["file"]), *REPORTS}
    wrong = []
    for path in sorted(folder.iterdir()):
        # A link to a folder could bring in files that change after they were checked.
        if path.name in FOLDERS:
            fine = path.is_dir() and not path.is_symlink()  # what is in them is checked by digest
        else:
            fine = path.name in files and is_plain_file(path)
        wrong += [] if fine else [path.name]
    first = ascii(wrong[0]) if wrong else ""
    return _check("nothing else is in the folder", not wrong, count=len(wrong), first=first)


def _reports(
    folder: Path, plan: Plan, certificate: Mapping[str, Any], ledger: Ledger | None
) -> list[Check]:
    """Whether the reports belong to the certificate, and are those that the ledger noted."""
    # exists() is False for a dangling link, which is a foreign file all the same.
    there = [name for name in REPORTS if (folder / name).exists() or (folder / name).is_symlink()]
    sealed = _sealed_reports(folder, certificate) if there else []
    noted = [] if ledger is None else [_check_reports(folder, there, plan, certificate, ledger)]
    if there or any(check.passed is False for check in noted):
        return [*sealed, *noted]
    return [_check(REPORT, None)]


REPORT, NOTED = "report", "validation reports"
"""Names of the checks of what validation wrote: by the folder alone, and by the ledger."""


def _sealed_reports(folder: Path, certificate: Mapping[str, Any]) -> list[Check]:
    """Whether the reports of a folder are whole, of this certificate, and say what it says.

    Digests show a change. They do not show a page that was written anew with digests to match, so
    the page is made again from certificate, records and checks, and compared in all but its
    pictures: another version of the library that writes these would write other bytes.
    """
    try:
        raw = read_file(folder / VALIDATION) if is_plain_file(folder / VALIDATION) else b"{}"
        validation = parse_json(raw)
        named = {VALIDATION: None, **validation["reports"]}
        digests = {name: sha for name, sha in named.items() if sha is not None}
        there = {name: sha256_file(folder / name) for name in named if is_plain_file(folder / name)}
        wrong = {
            "missing": sorted({*REPORTS} - there.keys()),
            "changed": [name for name, sha in digests.items() if there.get(name, sha) != sha],
        }
        # The bytes too: other bytes of the same content would be another file than the sealed one.
        if raw != canonical(validation) or validation["seal"] != seal_of(validation):
            wrong["changed"].insert(0, VALIDATION)
        message = differences(wrong)
        if validation["certificate_sha256"] != digest(certificate):
            message = "; ".join(filter(None, [message, "of another certificate"]))
        return [_check(REPORT, False, wrong=message)] if message else _page(folder)
    except _UNREADABLE as error:
        wrong_file = f"{VALIDATION} is missing or cannot be read ({type(error).__name__})"
        return [_check(REPORT, False, wrong=wrong_file)]


def _page(folder: Path) -> list[Check]:
    """Whether the page and its JSON are those that certificate, records and checks give."""
    shown = parse_json(read_file(folder / REPORT_JSON))
    # Other words for the same facts make another page, so a difference would prove nothing.
    if (made := shown.get("wording")) != wording():
        return [
            _check(REPORT, True, wrong="", remade=False),
            _check("page", None, made=made, wording=wording()),
        ]
    document = outward(folder)
    # Pictures are left out: a PNG's bytes depend on the machine's libraries.
    page = _PICTURES.sub(b"", document.to_html().encode())
    same = {
        REPORT_PAGE: page == _PICTURES.sub(b"", read_file(folder / REPORT_PAGE)),
        REPORT_JSON: _without_pictures(parse_json(json.dumps(document.to_json())))
        == _without_pictures(shown),
    }
    other = ", ".join(name for name, fine in same.items() if not fine)
    wrong = f"{other}: not what certificate, records and checks give" if other else ""
    return [_check(REPORT, not other, wrong=wrong, remade=True)]


_PICTURES = re.compile(rb"(?<=;base64,)[A-Za-z0-9+/=]*")


def _without_pictures(value: Any) -> Any:
    """A document's JSON without the digests of its pictures."""
    if isinstance(value, list):
        return [_without_pictures(one) for one in value]
    if not isinstance(value, dict):
        return value
    left = {"sha256"} if value.get("kind") == "picture" else set()
    return {key: _without_pictures(one) for key, one in value.items() if key not in left}


def _check_reports(
    folder: Path,
    there: Sequence[str],
    plan: Plan,
    certificate: Mapping[str, Any],
    ledger: Ledger,
) -> Check:
    """Whether the reports are those that validation wrote, by the ledger's newest note."""
    listed = ", ".join(there)
    name = str(certificate.get("name", plan.id))
    notes = [
        row
        for row in (ledger.history(plan.id) if ledger.releases.find(plan.id) else ())
        if row.change == VALIDATED
        and row.body["name"] == name
        and row.body["certificate_sha256"] == digest(certificate)
    ]
    if not notes:
        return _check(NOTED, None, listed=listed, wrong="")
    # The last note counts: a validation may be repeated with other bounds.
    noted = notes[-1].body["reports"]
    digests = {
        file: sha256_file(folder / file) if is_plain_file(folder / file) else None for file in there
    }
    wrong = differences(
        {
            "missing": [file for file in noted if file not in there],
            "changed since validation": [
                file for file, sha in digests.items() if sha is None or sha != noted.get(file)
            ],
        }
    )
    return _check(NOTED, not wrong, listed=listed, wrong=wrong)


def _artifact(folder: Path, certificate: Mapping[str, Any]) -> list[Check]:
    artifact = certificate["artifact"]
    # The name alone: a certificate must not lead verification out of the folder.
    file = folder / Path(str(artifact["file"])).name
    name = "artifact is unchanged"
    if not is_plain_file(file):
        return [_check(name, False, file=file.name, lines=None)]
    with file.open("rb") as stream:
        lines = stream.readlines()
    same = sha256_file(file) == artifact["sha256"] and len(lines) == artifact["rows"]
    checks = [_check(name, same, file=file.name, lines=len(lines))]
    named: dict[str, list[tuple[str, str]]] = {
        inside: [
            (f"{inside}/{name}", digest) for name, digest in certificate.get(inside, {}).items()
        ]
        for inside in FOLDERS
    }
    # Images and models are named, with their digests, by the rows of the artifact.
    by_rows = NAMED_BY_ROWS.get(artifact["media_type"])
    if by_rows:
        rows = map(parse_json, lines)
        named[by_rows] += [(str(row["file"]), str(row["sha256"])) for row in rows]
    for inside, files in named.items():
        if files or (folder / inside).exists():
            verb = "is" if inside == MODEL else "are"
            checks.append(_files(f"{inside} {verb} unchanged", folder / inside, files))
    return checks


def _fields(folder: Path, plan: Plan, certificate: Mapping[str, Any]) -> list[Check]:
    """Whether rows have no field but those that the plan declares and its method draws."""
    artifact = certificate["artifact"]
    file = folder / Path(str(artifact["file"])).name
    if artifact["media_type"] == MODEL_ROWS or not is_plain_file(file):
        return []
    with file.open("rb") as stream:
        names = {name for line in stream for name in parse_json(line)}
    method, settings = plan.load_method()
    # By the method: what it does not draw nothing pays for, whatever the dataset holds.
    drawn = drawn_with(method.roles(settings), columns_alone=method.columns_alone)
    known = {"id", *_CONTENT[drawn.name], *plan.dataset.columns}
    known |= {"label"} if plan.dataset.labels else set()
    wrong = differences({"not declared": sorted(names - known)})
    return [_check("artifact has the declared fields", not wrong, wrong=wrong)]


_CONTENT = {"text": ("text", "messages"), "image": ("file", "sha256"), "table": ()}
"""Fields of a row's content, by the name of what a method draws."""


def _files(name: str, folder: Path, named: Sequence[tuple[str, str]]) -> Check:
    """Whether a folder holds exactly the named files, byte for byte, and what is wrong if not."""
    plain = folder.is_dir() and not folder.is_symlink()
    there = {file.name: file for file in folder.iterdir()} if plain else {}
    digests = {Path(file).name: digest for file, digest in named}
    wrong = {
        "named elsewhere or twice": [
            file
            for file, count in Counter(file for file, _ in named).items()
            if count > 1 or file != f"{folder.name}/{Path(file).name}"
        ],
        "missing": sorted(digests.keys() - there.keys()),
        "not of the release": sorted(there.keys() - digests.keys())
        or ([] if named else [folder.name]),
        "changed": [
            file
            for file in sorted(digests.keys() & there.keys())
            if not is_plain_file(there[file]) or sha256_file(there[file]) != digests[file]
        ],
    }
    message = differences(wrong)
    says = _SAYS.first("folder", {"wrong": message, "count": len(named)})["says"]
    return Check(name, not message, says)


def _cost(plan: Plan, certificate: Mapping[str, Any]) -> list[Check]:
    # Solved again from settings and target, with nothing taken from the certificate.
    event, derived = plan.priced_again()
    # From the recomputed event and never from the stated one.
    cost = guarantee(event, plan.target_delta)
    rows = plan.mechanism().rows
    noise = certificate["noise"]
    method, settings = plan.load_method()
    cells = method.cells(settings, plan.dataset.labels)
    follows = (
        (plan.rho, plan.mu) == (rho(event), mu(event))
        and plan.amplified == is_amplified(event)
        and plan.row_bounds == (rows or (len(cells), len(cells)))
        and plan.row_bounds[0] <= certificate["artifact"]["rows"] <= plan.rows
        and plan.invariants == ()
        and certificate["schema"] == SCHEMA
    )
    # Sums of an FFT differ in the last digit between processors. What draws and what is charged is
    # the event, which has to be the same to the last one.
    same = plan.event == dump(event) and agree(plan.derived, dict(derived))
    # The stated cost may be rounded up, and never down; 1e-12 is float noise.
    covered = (
        cost.epsilon <= min(plan.epsilon, plan.target_epsilon) * (1 + 1e-12)
        and cost.delta <= plan.delta
    )
    rule = plan.unit_ids == ID_RULE
    kind = certificate["class"] == ("dp-release" if noise == "opendp" else "not-private")
    return [
        _check("release id", plan.is_its_name),
        _check("event", same),
        _check("guarantee", covered, epsilon=format_epsilon(cost.epsilon), delta=cost.delta),
        _risk(event, certificate),
        *_without_secret(plan, event),
        *_accuracy(plan, certificate),
        _check("derived facts", follows),
        _check("unit ids", rule, stated=plan.unit_ids, rule=ID_RULE),
        _check("class", kind, noise=noise),
    ]


def _risk(event: Event, certificate: Mapping[str, Any]) -> Check:
    """What it says of an attacker."""
    bounds = risk(event).figures()
    right = _covers(certificate["risk"], bounds)
    if is_amplified(event):
        known = risk(without_secret(event)).figures()
        right &= _covers(certificate["risk_without_secret"], known)
    right &= _covers(certificate.get("risk_together", {}), group_risk(event).figures())
    return _check("risk", right, advantage=bounds["advantage"])


def _covers(stated: Mapping[str, float], bounds: Mapping[str, float]) -> bool:
    return stated.keys() == bounds.keys() and all(
        bound <= stated[name] * (1 + 1e-9) for name, bound in bounds.items()
    )


def _without_secret(plan: Plan, event: Event) -> list[Check]:
    """Of a cost that counts on the secret draw of buckets: what it is for whoever knows them."""
    epsilon = epsilon_without_secret(event, plan.target_delta)
    stated = plan.epsilon_without_secret
    if epsilon is None and stated is None:
        return []
    covered = epsilon is not None and stated is not None and epsilon <= stated * (1 + 1e-12)
    known = format_epsilon(plan.epsilon if epsilon is None else epsilon)
    return [_check("without the secret", covered, unit=plan.unit, epsilon=known)]


def _accuracy(plan: Plan, certificate: Mapping[str, Any]) -> list[Check]:
    """The accuracy a release pays for: on the certificate if, and as, the two draws say."""
    stated, mechanism = certificate.get("accuracy"), plan.accuracy
    if mechanism is None and stated is None:
        return []
    if mechanism is None or stated is None:
        paid = mechanism is not None
        return [_check("accuracy", False, paid=paid, stated=stated is not None)]
    # The two draws cannot be recomputed; everything that is said of them can.
    drawn = [stated[key] for key in ("right", "wrong")]
    computed = accuracy_figures(mechanism, *drawn)
    # bool is an int for isinstance, and a float would pass with a fraction of a step.
    same = all(type(value) is int for value in drawn) and agree(stated, computed)
    epsilon = format_epsilon(computed["epsilon"])
    return [_check("accuracy", same, paid=True, stated=True, epsilon=epsilon)]


def _signature(folder: Path, certificate: Mapping[str, Any], key: SSlibKey | None) -> list[Check]:
    """Whether a key signed all files. None where no key was asked for and none signed."""
    passed, detail = signature.check(folder, certificate, key)
    announced = _signer(folder)
    if key is None and announced and detail == signature.UNSIGNED:
        return [_check(SIGNED, None, announced=announced)]
    return [] if key is None and detail == signature.UNSIGNED else [Check(SIGNED, passed, detail)]


def _signer(folder: Path) -> str:
    """Id of the key that a report says its release is signed by; empty where it says none."""
    try:
        return str(parse_json(read_file(folder / VALIDATION)).get("signer") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def _ledger(plan: Plan, certificate: Mapping[str, Any], ledger: Ledger | None) -> list[Check]:
    if ledger is None:
        return [_check("ledger row", None)]
    entry = ledger.releases.find(plan.id)
    if entry is None:
        return [_check("ledger row", False, entry=None, release=plan.id)]
    paid, history = origin(certificate), ledger.history(plan.id)
    # As of the reservation: later releases change the balance, and the certificate does not.
    figures = ledger.releases.reservation(plan.id)[1].figures()
    offspring = []
    if paid is not certificate:
        digests = {
            "artifact_sha256": certificate["artifact"]["sha256"],
            "certificate_sha256": digest(certificate),
        }
        noted = any(
            row.change == DERIVED and digests.items() <= dict(row.body).items() for row in history
        )
        offspring = [_check("ledger offspring", noted, release=plan.id)]
    committed = (
        entry.state == "COMMITTED"
        and dict(entry.event) == plan.event
        and entry.account == plan.account
    )
    same = entry.artifact_sha256 == paid["artifact"][
        "sha256"
    ] and entry.certificate_sha256 == digest(paid)
    stated = (*(paid["ledger"].get(key) for key in ("hash", "entry")), paid["reserved_on"])
    chained = any(
        (row.change, row.hash, entry.number, day_of(row)) == (State.RESERVED, *stated)
        for row in history
    )
    balance = agree({key: paid["account"].get(key) for key in figures}, figures)
    return [
        *offspring,
        _check("ledger row", committed, entry=entry),
        _check("ledger digests", same),
        _check("ledger history", chained),
        _check("ledger balance", balance),
        *_approvals(certificate, paid, history, ledger.accounts.terms(plan.account)),
    ]


def _approvals(
    certificate: Mapping[str, Any],
    paid: Mapping[str, Any],
    history: Sequence[Change],
    terms: Terms,
) -> list[Check]:
    """The approvals that a certificate names, or that its account asks for."""
    decisions = [Decision.of(row) for row in history if row.change in DECISIONS]
    checks = []
    named = paid["ledger"].get("approval")
    if named is not None:
        approval = next((one for one in decisions if {"hash": one.hash} == named), None)
        # A row of another decision has a hash, too, and may not stand for this approval.
        fine = approval is not None and approval.what is What.SPEND and approval.approved
        checks.append(_check("ledger approval", fine, approval=approval))
    about = [
        one for one in decisions if one.what is What.PUBLISH and one.digest == digest(certificate)
    ]
    # Decisions can be revoked: the last one on exactly this certificate counts.
    if about:
        checks.append(_check("approval to publish", about[-1].approved or None, last=about[-1]))
    elif terms.approvals.publish:
        checks.append(_check("approval to publish", None, last=None))
    return checks
