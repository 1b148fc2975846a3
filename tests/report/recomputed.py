"""Every number of the outward report, computed once more from the release folder, by other code."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

NUMBER = re.compile(r"(?<![\w.#-])\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?![\w-])")
WORD = re.compile(r"\w+")


def numbers(folder: Path) -> dict[str, float]:
    """What tables may say of a release of texts, by name."""
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    texts = [row["text"] for row in rows]
    words = [WORD.findall(text.lower()) for text in texts]
    singles = [word for text in words for word in text]
    pairs = [pair for text in words for pair in itertools.pairwise(text)]
    lengths = [len(text.split()) for text in texts]
    plan = json.loads((folder / "certificate.json").read_text())["plan"]
    return {
        "texts": len(texts),
        "words mean": len(singles) / len(texts),
        "vocabulary": len(set(singles)),
        "distinct 1": len(set(singles)) / len(singles),
        "distinct 2": len(set(pairs)) / len(pairs),
        "duplicate share": 1 - len(set(texts)) / len(texts),
        "empty share": sum(not text.strip() for text in texts) / len(texts),
        "shortest": min(lengths),
        "longest": max(lengths),
        "epsilon": plan["epsilon"],
        "delta": plan["delta"],
    }


def labels(folder: Path) -> dict[str, int]:
    """Rows per label."""
    rows = (folder / "synthetic.jsonl").read_text().splitlines()
    return dict(Counter(json.loads(line)["label"] for line in rows))


def histogram(folder: Path, edges: list[int]) -> tuple[list[int], float]:
    """Texts per bin of these edges, the last open above, and the median length."""
    rows = (folder / "synthetic.jsonl").read_text().splitlines()
    lengths = [len(json.loads(line)["text"].split()) for line in rows]
    starts, ends = edges[:-1], [*edges[1:-1], math.inf]
    counts = [sum(low <= n < high for n in lengths) for low, high in zip(starts, ends, strict=True)]
    return counts, float(median(lengths))


def sayable(folder: Path) -> set[str]:
    """Numbers that sentences and facts may hold: the certificate's, and what follows from it."""
    sealed = json.loads((folder / "certificate.json").read_text())
    plan, account, risk = sealed["plan"], sealed["account"], sealed["risk"]
    rows = (folder / "synthetic.jsonl").read_text().splitlines()
    validated = json.loads((folder / "validation.json").read_text())
    checks = validated["expectations"]
    said = {form for value in leaves(sealed) for form in forms(value)}
    said |= {form for check in checks for form in NUMBER.findall(check["detail"])}
    said |= {form for value in (len(rows), len(checks)) for form in forms(value)}
    said |= set(NUMBER.findall(f"{validated['gx_version']}."))
    shares = (account["loss"] / account["budget"], account["spent"] / account["budget"])
    said |= {f"{math.ceil(1000 * share - 1e-9) / 10:g}" for share in shares}  # never told too low
    said.add(f"{100 * numbers(folder)['duplicate share']:.1f}")
    said |= set(forms(math.ceil(math.exp(plan["epsilon"]))))
    found = {
        100: ((1 + risk["advantage"]) / 2, risk["found_at_1_percent"]),
        1000: (risk["found_at_1_permille"],),
    }
    said |= {f"{math.ceil(v * of - 1e-9):,}" for of, values in found.items() for v in values}
    at = datetime.fromisoformat(sealed["reserved_at"])
    said |= {f"{at:%d}", f"{at:%Y}", f"{at:%H}", f"{at:%M}"}
    # A coin's 50 in 100, wrong accusations of 1 in 1,000, the 0 that would tell nothing.
    return said | {"0", "1", "50", "100", "1,000"}


def leaves(value: Any) -> Iterator[Any]:
    """What stands in a JSON value, keys left out."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def forms(value: Any) -> list[str]:
    """How a number may be written; of words the numbers in them."""
    if isinstance(value, str):
        return NUMBER.findall(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return []
    up = f"{math.ceil(value * 1e4) / 1e4:g}"
    return [f"{value:g}", f"{value:.4g}", f"{value:,}", f"{round(value):,}", up]


def blocks(report: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key of the section and block."""
    for section in report["sections"]:
        for block in section["blocks"]:
            yield section["key"], block


def check(folder: Path) -> int:
    """Compare every number of the report's JSON; how many there were."""
    report = json.loads((folder / "report.json").read_text())
    known, sentences, seen = numbers(folder), sayable(folder), 0
    for key, block in blocks(report):
        kind = block["kind"]
        if kind in ("numbers", "figures"):
            for item in block["items"]:
                assert math.isclose(item["value"], known[item["name"]]), item
                assert item["low"] is item["high"] is None
                seen += 1
        elif kind == "counts":
            assert {name: count for name, count in block["items"] if count} == labels(folder)
            seen += len(block["items"])
        elif kind == "histogram":
            assert (block["counts"], block["median"]) == histogram(folder, block["edges"])
            seen += len(block["counts"])
        elif kind == "samples":
            text = (folder / "synthetic.jsonl").read_text()
            assert all(json.dumps(item["text"]) in text for item in block["items"])
        else:
            assert kind in ("answers", "facts", "words", "checks", "commands"), kind
            said = {form for leaf in leaves(block) for form in forms_of(leaf)}
            assert said <= sentences, (key, said - sentences)
            seen += len(said)
    advised = {n for section in report["sections"] for n in NUMBER.findall(section["advice"])}
    assert advised <= sentences
    return seen


def forms_of(leaf: Any) -> list[str]:
    """As a document writes it: one form."""
    if isinstance(leaf, str):
        return NUMBER.findall(leaf)
    if isinstance(leaf, bool) or not isinstance(leaf, int | float):
        return []
    return [f"{leaf:,}" if isinstance(leaf, int) else f"{leaf:.4g}"]


def on_page(folder: Path) -> set[str]:
    """Numbers in the words of the page, beside charts, samples and digests."""
    page = (folder / "report.html").read_text()
    for part in ("style", "svg", "blockquote", "code", "figcaption", "sup"):
        page = re.sub(rf"(?s)<{part}[ >].*?</{part}>", " ", page)
    return set(NUMBER.findall(re.sub(r"<[^>]*>", " ", page)))
