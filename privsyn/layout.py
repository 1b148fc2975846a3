"""What lies in a release folder, by name: the one place that says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

Class = Literal["internal", "dp-release"]
"""Who may see a number or a section: who sees the records, or whoever has the release."""

ARTIFACT = "synthetic.jsonl"

MODEL_ARTIFACT = "model.jsonl"
"""In place of the records where a derived release is a model: its files, each with its digest."""

CERTIFICATE = "certificate.json"

TEXT_ROWS = "application/jsonl"

IMAGE_ROWS = "application/jsonl; profile=images"

MODEL_ROWS = "application/jsonl; profile=model"

IMAGES, EXHIBITS, MODEL = "images", "exhibits", "model"
"""Folders of a release: its images, pictures and tables about it, the model it was drawn from."""

FOLDERS = (IMAGES, EXHIBITS, MODEL)

NAMED_BY_ROWS = {IMAGE_ROWS: IMAGES, MODEL_ROWS: MODEL}
"""Media type of an artifact whose rows name files -> the folder of these."""

EVALUATION = "evaluation.json"
"""What was measured with held-out records: in the state folder and never in the release's own."""

INSIDE_PAGE, INSIDE_NUMBERS = "report.html", "report.json"
"""Of the report that stays inside: in the state folder and never in the release's own."""

SIGNATURE = "signature.dsse.json"
"""Of all other files, where the deployment has a key."""

VALIDATION, QUALITY = "validation.json", "quality.json"
REPORT_PAGE, REPORT_JSON = "report.html", "report.json"
"""Of the outward report, which may be handed out."""

REPORTS = (VALIDATION, REPORT_PAGE, REPORT_JSON, QUALITY)
"""Written after the certificate, by validation; the ledger notes their digests."""

QUARANTINE = "quarantine"
"""Folder of releases that are not handed out: for their owner alone."""


def held_back(folder: Path) -> str:
    """Why a release is not handed out, as its folder says it; empty where it may be."""
    success = suite_passed(folder)
    if success is None:
        return "not validated yet: nothing says whether its records pass their checks"
    if not success:
        return "failed its checks: its report says which"
    # Both: a link elsewhere may lead into the quarantine, and the quarantine itself may be a link.
    if QUARANTINE in (folder.absolute().parent.name, folder.resolve().parent.name):
        return "in quarantine: its disclosure audit holds it back, or did not run yet"
    return ""


def page_of(folder: Path) -> Path:
    """Where the page of a release is, or will be."""
    return folder / REPORT_PAGE


def suite_passed(folder: Path) -> bool | None:
    """What the checks of a release or student said; None where there is no report to read."""
    try:
        success = json.loads((folder / VALIDATION).read_text(encoding="utf-8"))["success"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    # Only true is a pass: the file may have been edited.
    return success is True
