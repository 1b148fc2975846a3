"""export: a finished release as a folder for others' tools, with a card and its certificate."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

from privsyn.data.artifacts import storage_error, sync_folder
from privsyn.errors import ConfigError
from privsyn.handover.card import dataset_card
from privsyn.handover.formats import FORMATS
from privsyn.ledger.store import Ledger
from privsyn.release import certificate, layout, verification
from privsyn.release.release_store import set_times
from privsyn.spelling import nearest
from privsyn.stages.base import Context
from privsyn.stages.certify import copy_release
from privsyn.stages.validate import refuse_unreleased

RELEASE = "release"
"""The release as it was certified, in an export."""


def export(
    folder: Path,
    form: str,
    target: Path,
    *,
    ledger: Ledger | None = None,
    ctx: Context | None = None,
    licence: str | None = None,
) -> Path:
    """Write a release as ``form`` into a new folder, whole or not at all. Pushes nothing.

    Guarantee: the release's own; nothing else is read.

    Args:
        folder: The release.
        form: hf, parquet, csv, jsonl or webdataset.
        target: The folder to make.
        ledger: Asked whether it vouches for the release, and whether that may be published; None:
            nobody is.
        ctx: The project, whose ``evaluate.audit`` may block what lies in it; None: there is none.
        licence: Identifier of a licence for the card.

    Returns:
        The folder: README.md (the card), certificate.json, the records, and ``release/``.

    Raises:
        ConfigError: No such form, the target exists, or the release is a model.
        VerificationError: It is not what was certified, or was drawn with predictable noise.
        ValidationFailed: It has not passed its suite, lies in quarantine, or waits for its audit.
        ApprovalNeeded: Its account asks that somebody approves what is published, and nobody has.
        StorageError: Disk full or no permission.
    """
    if form not in FORMATS:
        near = nearest(form, list(FORMATS))
        raise ConfigError(
            f"--to={form}: no such form.",
            hint=f"Did you mean {near}?" if near else f"There is {', '.join(FORMATS)}.",
        )
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target} exists already.", hint="Name another folder with --out.")
    if folder.absolute().resolve() in target.absolute().resolve().parents:
        raise ConfigError(
            f"{target} lies in the release itself.", hint="Name another folder with --out."
        )
    verification.raise_failed(folder, verification.verify(folder, ledger))
    refuse_unreleased(folder, ctx)
    _, sealed = certificate.read(folder)
    verification.refuse_predictable(folder, sealed)
    if sealed["artifact"]["media_type"] == layout.MODEL_ROWS:
        raise ConfigError(
            f"{folder} is a model, not records.", hint=f"transformers reads {folder / layout.MODEL}"
        )
    if ledger is not None:
        paid = certificate.origin(sealed)["plan"]["release_id"]
        name = str(sealed.get("name", paid))
        ledger.check_published(paid, certificate.digest(sealed), name=name)
    building = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
    try:
        building.mkdir(parents=True)
        inside = copy_release(folder, building / RELEASE)
        for name in (*layout.REPORTS, layout.SIGNATURE):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, inside / name)
        # Of the copy: what is exported is what lies beside it.
        verification.raise_failed(inside, verification.verify(inside, ledger))
        with (inside / layout.ARTIFACT).open(encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream]
        FORMATS[form](rows, building, inside)
        shutil.copyfile(inside / layout.CERTIFICATE, building / layout.CERTIFICATE)
        card = dataset_card(sealed, form, licence)
        (building / "README.md").write_text(card, encoding="utf-8")
        set_times(building, inside)
        os.rename(building, target)
        sync_folder(target.absolute().parent)
    except OSError as error:
        raise storage_error("write", target, error) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target
