"""The dataset card of an export, in Hugging Face's form: front matter, then what to know.

All of it is public: the certificate's facts and the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from privsyn.dp.accountant import shown
from privsyn.dp.adjacency import Adjacency
from privsyn.dp.risk import Risk, strength
from privsyn.handover.formats import DATA_FILES
from privsyn.release import certificate, layout
from privsyn.release.warnings import (
    RESEMBLANCE,
    definition,
    judged,
    not_people,
    protected,
    scale_of,
)

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def dataset_card(sealed: Mapping[str, Any], form: str, licence: str | None) -> str:
    """The card of a release, as README.md of a folder with it in it.

    Args:
        sealed: The release's certificate.
        form: What it is exported as, a key of FORMATS.
        licence: Identifier of a licence, such as cc-by-4.0; None: the card names none.
    """
    paid = certificate.origin(sealed)
    plan, artifact = paid["plan"], sealed["artifact"]
    images = artifact["media_type"] == layout.IMAGE_ROWS
    things = "images" if images else "texts"
    front = yaml.safe_dump(
        _front(plan, artifact, form, licence, images=images), sort_keys=False, allow_unicode=True
    )
    labels = plan["dataset"]["labels"]
    name = str(sealed.get("name", plan["release_id"]))
    unit = protected(plan["dataset"], str(plan["unit"]))
    defined = definition(plan["epsilon"], plan["delta"], unit, Adjacency(plan["adjacency"]))
    risk, epsilon = Risk(**paid["risk"]), judged(plan["target_epsilon"], plan["epsilon"])
    dataset = plan["dataset"]
    rows = not_people(dataset["unit"], by_file=bool(dataset.get("images")))
    parts = [
        f"---\n{front}---\n",
        f"# Synthetic {things} of {_plain(plan['dataset']['name'])}\n",
        f"{artifact['rows']:,} synthetic {things} by {paid['method']['title']} "
        f"({paid['method']['paper']}), drawn under differential privacy from private records. "
        f"{RESEMBLANCE.format(unit=unit)}\n",
        "## Guarantee\n",
        f"{strength(epsilon, risk.right).capitalize()} ({scale_of(epsilon, risk.right)}). "
        f"{' '.join(risk.words(unit, plan['adjacency']))}\n",
        f"{rows}\n" if rows else "",
        _facts(
            {
                "epsilon": shown(plan["epsilon"]),
                "delta": f"{plan['delta']:g}",
                "who is protected": _used(unit, int(plan["max_records_per_unit"])),
                "neighbouring datasets": plan["adjacency"],
                "labels, public": ", ".join(map(_plain, labels)) or "none",
                "version of the private dataset": _plain(plan["dataset"]["version"]),
                "release": f"`{name}`",
                "SHA-256 of its certificate": f"`{certificate.digest(sealed)}`",
            }
        ),
        f"Definition: {defined}.\n",
        "## Intended use\n",
        f"To develop and test software, to train and compare models, and to show {things} of this "
        "kind where the private ones may not be shown. Use of it is free of further privacy cost: "
        "whatever is computed from it has the guarantee above.\n",
        "## Limits\n",
        "- The guarantee bounds what the release adds to what is known of one "
        f"{unit}; it does not hide what many have in common.\n"
        f"- Other releases of the same dataset have costs of their own, and costs add up: the "
        f"account they are charged to is in the certificate.\n"
        f"- {things.capitalize()} are written by a model. They are no facts, may repeat what the "
        "public model knows, and rare kinds of records are missing or few.\n"
        "- Counts and shares are not those of the private dataset.\n"
        + (
            "- In `train.csv` cells that a spreadsheet would compute begin with an apostrophe; the "
            "rows as certified are in `release/`.\n"
            if form == "csv"
            else ""
        ),
        "## How to verify\n",
        "`release/` is the release as it was certified, with its certificate and the reports of "
        "its checks. Digests, identity and guarantee are recomputed by\n",
        "```console\n$ pip install privsyn\n$ privsyn verify release\n```\n",
        "which needs no private data. Who made it a ledger says (`--ledger URL`) or, where "
        "`release/` holds a signature, the public key of its maker (`--key PUBLIC.PEM`).\n",
    ]
    return "\n".join(part for part in parts if part)


def _front(
    plan: Mapping[str, Any],
    artifact: Mapping[str, Any],
    form: str,
    licence: str | None,
    *,
    images: bool,
) -> dict[str, Any]:
    rows = int(artifact["rows"])
    labelled = bool(plan["dataset"]["labels"])
    kind = "image" if images else "text"
    task = f"{kind}-classification" if labelled else f"unconditional-{kind}-generation"
    if not images and not labelled:
        task = "text-generation"
    front: dict[str, Any] = {
        "pretty_name": f"Synthetic {plan['dataset']['name']}",
        "task_categories": [task],
        "size_categories": [next((name for most, name in _SIZES if rows < most), "n>1M")],
        "tags": ["synthetic", "differential-privacy", "privsyn"],
        "annotations_creators": ["machine-generated"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": "train", "path": DATA_FILES[form]}],
            }
        ],
    }
    if licence is not None:
        front = {"license": licence} | front
    if form in ("hf", "parquet"):
        names = ["id", *(["label"] if labelled else []), "image" if images else "text"]
        front["dataset_info"] = {
            "features": [
                {"name": name, "dtype": "image" if name == "image" else "string"} for name in names
            ]
        }
    return front


def _used(unit: str, most: int) -> str:
    records = "one record was" if most == 1 else f"at most {most} records were"
    return f"{unit}, of which {records} used"


def _facts(rows: Mapping[str, str]) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines]) + "\n"


def _plain(text: str) -> str:
    """Words of a setting in a table of Markdown: no mark-up, no new column, one line."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in " ".join(text.split()))
