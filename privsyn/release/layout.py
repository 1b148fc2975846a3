"""What lies in a release folder, by name: the one place that says it."""

from __future__ import annotations

ARTIFACT = "synthetic.jsonl"

MODEL_ARTIFACT = "model.jsonl"
"""In place of the records where a derived release is a model: its files, each with its digest."""

CERTIFICATE = "certificate.json"

IMAGE_ROWS = "application/jsonl; profile=images"

MODEL_ROWS = "application/jsonl; profile=model"

IMAGES, EXHIBITS, MODEL = "images", "exhibits", "model"
"""Folders of a release: its images, pictures and tables about it, the model it was drawn from."""

FOLDERS = (IMAGES, EXHIBITS, MODEL)

NAMED_BY_ROWS = {IMAGE_ROWS: IMAGES, MODEL_ROWS: MODEL}
"""Media type of an artifact whose rows name files -> the folder of these."""

INSIDE_PAGE, INSIDE_NUMBERS = "report.html", "report.json"
"""Of what a release is worth: internal, in the state folder and never in the release's own."""

SIGNATURE = "signature.dsse.json"
"""Of all other files, where the deployment has a key."""

REPORTS = ("validation.json", "validation.html", "quality.json")
"""Written after the certificate, by validation; the ledger notes their digests."""
