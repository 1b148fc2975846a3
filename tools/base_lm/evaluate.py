"""Two tables: loss on held-out public text, and what references are worth to the model."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

CONTEXTS = ("none", "one, same label", "one, other label", "three, same label")
TEXT_TOKENS = 100
"""Texts and references are cut here: four of them fit the context."""

_BATCH = 16


def _load(folder: Path) -> tuple[Any, Tokenizer]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))


def _nats(model: Any, rows: list[list[int]], scored: list[int], end: int) -> tuple[float, int]:
    """Summed nats of the last ``scored[i]`` tokens of every row, and how many these are."""
    total = 0.0
    with torch.inference_mode():
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            longest = max(map(len, part))
            ids = torch.full((len(part), longest), end)
            for i, row in enumerate(part):
                ids[i, : len(row)] = torch.tensor(row)
            logits = model(ids).logits
            for i, (row, number) in enumerate(zip(part, scored[start:], strict=False)):
                span = slice(len(row) - number - 1, len(row) - 1)
                total += float(F.cross_entropy(logits[i, span], ids[i, 1:][span], reduction="sum"))
    return total, sum(scored)


def held_out(model: Any, tokenizer: Tokenizer, work: Path) -> dict[str, float]:
    """Nats per token, perplexity and bits per byte of the held-out rows.

    Raises:
        SystemExit: The model's tokenizer is not the one the rows were made with.
    """
    if tokenizer.to_str() != Tokenizer.from_file(str(work / "tokenizer.json")).to_str():
        raise SystemExit(f"{work} was prepared with another tokenizer: nats per token differ")
    rows = np.load(work / "held_out.npy").astype(np.int64)
    size = sum(len(tokenizer.decode(row[1:].tolist()).encode()) for row in rows)
    total, counted = _nats(model, rows.tolist(), [rows.shape[1] - 1] * len(rows), 1)
    nats = total / counted
    return {
        "nats": nats,
        "perplexity": float(np.exp(nats)),
        "bits_per_byte": total / size / np.log(2),
    }


def context_gain(
    model: Any, tokenizer: Tokenizer, texts: list[tuple[str, str]], number: int, seed: int = 0
) -> list[float]:
    """Nats per token of a text after no reference, one of its label, one of another, three of its.

    ``texts`` are (text, label); ``number`` of them are scored, end token included.
    """
    rng = random.Random(seed)
    start, end = tokenizer.token_to_id("<|start|>"), tokenizer.token_to_id("<|end|>")
    head = tokenizer.encode("Text:").ids
    groups: dict[str, list[str]] = defaultdict(list)
    for text, label in texts:
        groups[label].append(text)
    labels = sorted(label for label, members in groups.items() if len(members) > 3)
    if len(labels) < 2:
        raise SystemExit("context gain needs two labels of four texts each")

    def passage(text: str) -> list[int]:
        return [*tokenizer.encode(f" {text}").ids[:TEXT_TOKENS], end]

    rows: list[list[list[int]]] = [[] for _ in CONTEXTS]
    scored = []
    for _ in range(number):
        label = rng.choice(labels)
        other = rng.choice([each for each in labels if each != label])
        text, *same = rng.sample(groups[label], 4)
        target = [*head, *passage(text)]
        scored.append(len(target) - len(head))
        for references, table in zip(
            ([], same[:1], [rng.choice(groups[other])], same), rows, strict=True
        ):
            before = [token for text in references for token in (*head, *passage(text))]
            table.append([start, *before, *target])
    return [total / count for total, count in (_nats(model, each, scored, end) for each in rows)]


def _labelled(path: Path) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [(r["text"], str(r.get("label", r.get("answer")))) for r in records]


def report(models: list[Path], work: Path | None, texts: Path | None, number: int) -> None:
    """Print the tables of every model, in Markdown."""
    loaded = [(folder, *_load(folder)) for folder in models]
    if work:
        print("| model | parameters | held-out nats/token | perplexity | bits/byte |")
        print("|---|---|---|---|---|")
        for folder, model, tokenizer in loaded:
            found = held_out(model, tokenizer, work)
            size = sum(weight.numel() for weight in model.parameters())
            print(
                f"| {folder.name} | {size / 1e6:.2f}M | {found['nats']:.3f} "
                f"| {found['perplexity']:.1f} | {found['bits_per_byte']:.3f} |",
                flush=True,
            )
        print()
    if texts:
        print(f"| model | set | {' | '.join(CONTEXTS)} | gain of one |")
        print("|---|---|---|---|---|---|---|")
        for folder, model, tokenizer in loaded:
            for path in sorted(texts.glob("*.train.jsonl.gz")):
                rows = _labelled(path)
                if len({label for _, label in rows}) < 2:
                    continue
                found = context_gain(model, tokenizer, rows, number)
                values = " | ".join(f"{value:.3f}" for value in found)
                name = path.name.removesuffix(".train.jsonl.gz")
                print(
                    f"| {folder.name} | {name} | {values} | {found[0] - found[1]:.3f} |", flush=True
                )
