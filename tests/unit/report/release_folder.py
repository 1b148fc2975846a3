"""Release folders as validation finds them, by hand: certificate, records, what the checks said."""

import json
from pathlib import Path
from typing import Any

from privsyn import layout
from privsyn.data.artifacts import sha256_file
from privsyn.release import certificate
from privsyn.release.plan import DatasetIdentity

(GOLDEN,) = (Path(__file__).parents[2] / "golden" / "releases").glob("invisible_ink-*")
NAME = "invisible_ink-00ff"


def write_rows(folder, rows):
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    (folder / layout.ARTIFACT).write_bytes(b"".join(line + b"\n" for line in lines))
    return folder / layout.ARTIFACT


def seal_folder(folder, rows, labels=(), media="application/jsonl", plan=None, **changes):
    """Write a certificate that names the folder's records; ``plan`` and ``changes`` go on top."""
    sealed: dict[str, Any] = json.loads((GOLDEN / layout.CERTIFICATE).read_text())
    dataset = sealed["plan"]["dataset"]
    known = [name for name in DatasetIdentity.model_fields if name in dataset]
    sealed["plan"]["dataset"] = {name: dataset[name] for name in known}
    sealed["plan"]["dataset"] |= {"labels": list(labels), "name": "portal", "version": "2026-11"}
    sealed["plan"] |= {"release_id": NAME, "unit": "patient", "max_records_per_unit": 4}
    sealed["plan"] |= {"epsilon": 10.0, "target_epsilon": 10.0, "delta": 1e-5}
    sealed["plan"]["dataset"] |= dict(plan or {}).pop("dataset", {})
    sealed["plan"] |= {key: value for key, value in dict(plan or {}).items() if key != "dataset"}
    sealed["reserved_on"] = "2026-11-20"
    sealed["risk"] = {"found_at_1_percent": 0.2, "found_at_1_permille": 0.03, "advantage": 0.5}
    sealed["artifact"] = {
        "file": layout.ARTIFACT,
        "sha256": sha256_file(folder / layout.ARTIFACT),
        "media_type": media,
        "rows": rows,
    }
    sealed |= changes
    sealed["seal"] = certificate.seal_of(sealed)
    (folder / layout.CERTIFICATE).write_bytes(certificate.canonical(sealed))
    return sealed


def note_checks(folder, result, **more):
    (folder / layout.VALIDATION).write_text(json.dumps(result.to_json() | more))
