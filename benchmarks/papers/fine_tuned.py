"""The papers' judge: a small language model fine-tuned on a release, tested on real texts.

    python benchmarks/papers/fine_tuned.py RELEASE MODEL REAL.jsonl

MODEL is a directory (BERT, RoBERTa). REAL.jsonl holds a text and a label a line, of records that
were held out. Slow on a CPU. The number reads real records: it is internal.

Source: Xie et al. 2024, "Differentially private synthetic data via foundation model APIs 2: Text",
section 5: a model fine-tuned on synthetic texts, tested on real ones, with three seeds.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.models.model_files import refuse_adapter
from privsyn.models.model_identity import locate
from privsyn.models.references import ModelReference
from privsyn.models.torch_runtime import reading, ready

SEEDS = 3
_TOKENS, _BATCH, _RATE = 128, 16, 5e-5
_EPOCHS, _FEWEST_STEPS = 5, 60


def predict_fine_tuned(
    reference: ModelReference,
    train: Sequence[tuple[str, str]],
    tested: Sequence[str],
) -> NDArray[np.str_]:
    """Labels of texts by a model that was fine-tuned on others, for each seed; (seeds, tested).

    Args:
        reference: The model's directory: an encoder or a causal model, with its tokenizer.
        train: Text and label, at least one.
        tested: Texts.

    Raises:
        ModelError: The model is missing, incomplete, or cannot classify.
    """
    labels = sorted({label for _, label in train})
    if len(labels) == 1:
        return np.full((SEEDS, len(tested)), labels[0])
    import torch

    answers = []
    with ready() as device, torch.random.fork_rng():
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model, tokenizer = _new_model(reference, len(labels))
            _train(model.to(device), tokenizer, train, labels, seed)
            places = _answers(model, tokenizer, tested)
            answers.append(np.array(labels)[places])
    return np.stack(answers)


def _new_model(reference: ModelReference, labels: int) -> tuple[Any, Any]:
    """The model with a new head for so many labels, and its tokenizer."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    place = locate(reference)
    assert place.folder is not None  # noqa: S101  the setting names a directory
    refuse_adapter(place.folder, str(reference))
    with reading(reference):
        tokenizer = AutoTokenizer.from_pretrained(place.folder, local_files_only=True)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        model = AutoModelForSequenceClassification.from_pretrained(
            place.folder,
            num_labels=labels,
            dtype=torch.float32,
            local_files_only=True,
            ignore_mismatched_sizes=True,
        )
    model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def _rows(model: Any, tokenizer: Any, texts: Sequence[str]) -> Any:
    """Tokens of texts, padded; shape (texts, tokens)."""
    cut = [text or " " for text in texts]
    return tokenizer(
        cut, truncation=True, max_length=_TOKENS, padding=True, return_tensors="pt"
    ).to(model.device)


def _train(
    model: Any, tokenizer: Any, train: Sequence[tuple[str, str]], labels: Sequence[str], seed: int
) -> None:
    import torch

    rng = np.random.default_rng(seed)
    batches = math.ceil(len(train) / _BATCH)
    epochs = max(_EPOCHS, math.ceil(_FEWEST_STEPS / batches))  # few texts are read more often
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.01)
    model.train()
    for step in range(epochs * batches):
        if step % batches == 0:
            order = rng.permutation(len(train))
        picked = [train[i] for i in order[step % batches * _BATCH :][:_BATCH]]
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 - step / (epochs * batches))
        truth = torch.tensor([labels.index(label) for _, label in picked], device=model.device)
        rows = _rows(model, tokenizer, [text for text, _ in picked])
        logits = model(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]).logits
        torch.nn.functional.cross_entropy(logits, truth).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def _answers(model: Any, tokenizer: Any, texts: Sequence[str]) -> list[int]:
    import torch

    places: list[int] = []
    with torch.inference_mode():
        for start in range(0, len(texts), 4 * _BATCH):
            rows = _rows(model, tokenizer, texts[start : start + 4 * _BATCH])
            logits = model(
                input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]
            ).logits
            places += logits.argmax(-1).tolist()
    return places


def accuracies(release: Path, model: Path, real: Path) -> list[float]:
    """The share of real texts whose label is found, for each seed."""
    sides = []
    for file in (release / "synthetic.jsonl", real):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        sides.append([(row["text"], row["label"]) for row in rows])
    train, tested = sides
    texts, labels = [text for text, _ in tested], np.array([label for _, label in tested])
    named = ModelReference("MODEL", str(model))
    found = predict_fine_tuned(named, train, texts)
    return [float(share) for share in (found == labels).mean(axis=1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("release", "model", "real"):
        parser.add_argument(name, type=Path)
    print(json.dumps(accuracies(**vars(parser.parse_args()))))
