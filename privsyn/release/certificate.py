"""The certificate beside every artifact: what was spent, on what, and how to check it.

A certificate holds public facts only. It names the dataset by an opaque version, never by a digest
of private data: a digest would let anyone who holds a candidate dataset confirm it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isclose
from pathlib import Path
from typing import Any

from privsyn import __version__
from privsyn.data.artifacts import ArtifactRef, atomic_file, sha256_file
from privsyn.dp.accuracy import CONFIDENCE, STEPS, NoisyAccuracy
from privsyn.dp.event_tree import without_secret
from privsyn.dp.events import load
from privsyn.dp.risk import group_risk, risk
from privsyn.errors import VerificationError
from privsyn.files import parse_json, read_file
from privsyn.layout import CERTIFICATE, MODEL_ROWS, REPORTS, VALIDATION
from privsyn.ledger.decisions import Decision
from privsyn.ledger.entries import Change, Entry, Fill, moment
from privsyn.release.plan import Plan

SCHEMA = "privsyn-certificate/1"

LIBRARIES = (
    "privsyn opendp numpy scipy torch transformers peft opacus diffusers faiss-cpu openai"
).split()

RESTORE_HINT = "Do not use this copy. Bring the published one back: privsyn restore {release}"
OTHER_HINT = (
    "If another version or build of privsyn made it, verify it with that one. If this one did: "
    "do not use this copy, and bring the published one back: privsyn restore {release}"
)


def build(
    plan: Plan,
    artifact: ArtifactRef,
    entry: Entry,
    reserved: Change,
    balance: Fill,
    *,
    noise: str,
    counts: Mapping[str, int],
    exhibits: Mapping[str, str],
    model: Mapping[str, str],
    accuracy: Mapping[str, Any] | None = None,
    root: Path,
    approval: Decision | None = None,
) -> dict[str, Any]:
    """The certificate of a finished artifact, sealed with a digest of itself.

    Args:
        plan: The release.
        artifact: The synthetic file.
        entry: The release in the ledger.
        reserved: The row of the ledger's chained history that set its cost aside.
        balance: The account as it was with this release when its cost was set aside: a later one
            would tell whether other releases were finished by then.
        noise: Kind of noise source. Anything but ``opendp`` makes the release ``not-private``.
        counts: What the method counted while drawing: outputs of the mechanism.
        exhibits: SHA-256 of each of its pictures and tables, by name.
        model: SHA-256 of each file of the model trained for it, by name.
        accuracy: What was drawn of the accuracy that it pays for, if any was.
        root: Project folder, for its git commit.
        approval: Of its cost, where one was needed: the hash of its row, and no name.
    """
    method, settings = plan.load_method()
    body: dict[str, Any] = {
        "schema": SCHEMA,
        # Fails closed: any noise source that is not known to be secure gives no guarantee.
        "class": "dp-release" if noise == "opendp" else "not-private",
        # privacy: the day its cost was set aside. How long a drawing took depends on the data, and
        # who makes releases one after the other sets this one's cost aside when the last is done.
        "reserved_on": day_of(reserved),
        # What is excluded does not shape the output, and would make equal releases differ.
        "plan": plan.model_dump(mode="json", exclude={"warnings", "shards", "dates"}),
        "risk": risk(load(plan.event)).figures(),
        "risk_together": group_risk(load(plan.event)).figures(),
        "method": {
            "name": method.name,
            "title": method.title,
            "paper": method.cites(settings, plan.dataset.labels),
        },
        "artifact": _artifact_facts(artifact),
        "account": {
            "name": plan.account,
            **balance.figures(),
            "loss": entry.loss,
        },
        "ledger": {"entry": entry.number, "hash": reserved.hash},
        "noise": noise,
        "parents": [],
        "software": _software(root),
    }
    if plan.amplified:
        # Both figures: a reader may not trust that the buckets of units stayed secret.
        known = without_secret(load(plan.event))
        body["risk_without_secret"] = risk(known).figures()
    if accuracy is not None:
        body["accuracy"] = dict(accuracy)
    if approval is not None:
        # privacy: the hash leads to the row in the ledger; the approver's name is not published.
        body["ledger"]["approval"] = {"hash": approval.hash}
    if counts:
        body["drawn"] = dict(counts)
    if exhibits:
        body["exhibits"] = dict(exhibits)
    if model:
        body["model"] = dict(model)
    return body | {"seal": seal_of(body)}


def day_of(reserved: Change) -> str:
    """The day (UTC) on which a row set a cost aside: the one time that a certificate tells."""
    return moment(reserved.at).date().isoformat()


def derive(
    parent: Mapping[str, Any],
    artifact: ArtifactRef,
    *,
    name: str,
    how: Mapping[str, Any],
    root: Path,
) -> dict[str, Any]:
    """The certificate of an artifact made from a release's records alone, which costs nothing.

    It carries its parent's certificate whole, so that it is checked without the parent's folder;
    the ledger notes its digest with the parent's entry.

    Args:
        parent: The parent's certificate.
        artifact: The new file.
        name: What the new artifact is called.
        how: Public settings it was made with.
        root: Project folder, for its git commit.
    """
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "class": parent["class"],
        "name": name,
        "derived": dict(how),
        "artifact": _artifact_facts(artifact),
        # Whole and not by digest: whoever gets the student can check the cost without the parent.
        "parents": [dict(parent)],
        "software": _software(root),
    }
    return body | {"seal": seal_of(body)}


def origin(certificate: Mapping[str, Any]) -> Mapping[str, Any]:
    """The certificate of the release that was paid for: this one, or its parent."""
    paid: Mapping[str, Any] = certificate["parents"][0] if "derived" in certificate else certificate
    return paid


def canonical(certificate: Mapping[str, Any]) -> bytes:
    """The one byte form of a certificate."""
    # One form of bytes per content, so that equal certificates have equal digests.
    return (json.dumps(certificate, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()


def digest(certificate: Mapping[str, Any]) -> str:
    """SHA-256 of the certificate file: what the ledger and the Airflow asset carry."""
    return hashlib.sha256(canonical(certificate)).hexdigest()


def seal_reports(folder: Path) -> None:
    """Seal what validation said, with the certificate it is of and the other reports' digests.

    Raises:
        VerificationError: There is no certificate.
        StorageError: Disk full or no permission.
    """
    _, certificate = read(folder)
    validation = dict(parse_json(read_file(folder / VALIDATION)))
    validation |= {
        "certificate_sha256": digest(certificate),
        "privsyn": __version__,
        "reports": {
            name: sha256_file(folder / name)
            for name in REPORTS
            if name != VALIDATION and is_plain_file(folder / name)
        },
    }
    with atomic_file(folder / VALIDATION, mode=0o644) as stream:
        stream.write(canonical(validation | {"seal": seal_of(validation)}))


def read(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """The certificate of a release folder, as bytes and parsed.

    Raises:
        VerificationError: It is missing or not JSON.
    """
    file = folder / CERTIFICATE
    try:
        raw = read_file(file)
        parsed = parse_json(raw)
    except FileNotFoundError:
        if not folder.exists():
            raise VerificationError(
                f"{folder} does not exist.", hint="Pass the folder of a release."
            ) from None
        raise VerificationError(
            f"{folder} holds no {CERTIFICATE}.", hint="Pass the folder of a release."
        ) from None
    except OSError as error:
        raise VerificationError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise VerificationError(f"{file} is not JSON: it was changed.") from None
    if not isinstance(parsed, dict):
        raise VerificationError(f"{file} is not a certificate.")
    return raw, parsed


def made_by_newer(certificate: Mapping[str, Any]) -> str | None:
    """The version of privsyn that made a release, where it is newer than this one."""
    software = certificate.get("software")
    made = software.get("privsyn") if isinstance(software, Mapping) else None
    if not isinstance(made, str) or _order(made) <= _order(__version__):
        return None
    return ".".join(map(str, _order(made)))


def _order(version: str) -> tuple[int, ...]:
    """A version for comparison: the numbers it begins with."""
    # A bounded number of digits: int() of a very long string takes quadratic time.
    begins = re.match(r"\d{1,9}(\.\d{1,9}){0,3}", version)
    return tuple(map(int, begins[0].split("."))) if begins else ()


def seal_of(certificate: Mapping[str, Any]) -> str:
    """SHA-256 of all of a certificate but its seal."""
    # The seal cannot cover itself.
    body = {key: value for key, value in certificate.items() if key != "seal"}
    return hashlib.sha256(canonical(body)).hexdigest()


def _artifact_facts(artifact: ArtifactRef) -> dict[str, Any]:
    """The artifact, and whether it holds synthetic records: ids of their rows name the release."""
    return {
        "file": artifact.path.name,
        "sha256": artifact.sha256,
        "media_type": artifact.media_type,
        "rows": artifact.rows,
        "synthetic": artifact.media_type != MODEL_ROWS,
    }


def _software(root: Path) -> dict[str, str | None]:
    return {name: _version(name) for name in LIBRARIES} | {
        "python": platform.python_version(),
        "git": _git_commit(root),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_commit(root: Path) -> str | None:
    """Commit of the project folder; None outside git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            # A git on a dead network drive must not hold up a release that is paid for.
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def is_plain_file(file: Path) -> bool:
    """Whether a path is a regular file, and no link to one."""
    try:
        # lstat: a link could lead out of the folder, to a file that nobody checks.
        return stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        return False


def differences(wrong: Mapping[str, Sequence[str]]) -> str:
    """Names of files by what is wrong with them, in words; empty where nothing is."""
    # ascii: anyone may have named the files.
    return "; ".join(
        f"{len(names)} {what}: {ascii(names[0])[1:-1]}" for what, names in wrong.items() if names
    )


def accuracy_figures(mechanism: NoisyAccuracy, right: int, wrong: int) -> dict[str, Any]:
    """What a certificate says of a paid accuracy: two draws, and all that follows from them.

    Args:
        mechanism: What drew them.
        right: Noisy weight of the held-out units answered right, in steps.
        wrong: And wrong.
    """
    return {
        "right": right,
        "wrong": wrong,
        "steps": STEPS,
        "noise": {"kind": "discrete laplace", "scale": mechanism.scale},
        "epsilon": mechanism.event.epsilon,
        "delta": 0.0,
        "confidence": CONFIDENCE,
        **asdict(mechanism.read(right, wrong)),
    }


def agree(stated: Any, computed: Any) -> bool:
    """Whether two JSON values are the same but for the last digits of their numbers."""
    if isinstance(computed, dict):
        return (
            isinstance(stated, dict)
            and stated.keys() == computed.keys()
            and all(agree(stated[key], value) for key, value in computed.items())
        )
    if isinstance(computed, float):
        # Last digits differ between processors and versions of numpy and scipy.
        return isinstance(stated, int | float) and isclose(
            stated, computed, rel_tol=1e-9, abs_tol=1e-9
        )
    return bool(stated == computed)
