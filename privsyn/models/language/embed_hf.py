"""Sentence embeddings over plain transformers: pooled, normalized, with independent rows.

It reads the files of sentence-transformers without that package, whose import takes ten seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from privsyn import files
from privsyn.errors import ModelError
from privsyn.models.language.prompts import CHARS_PER_TOKEN
from privsyn.models.model_files import read_json
from privsyn.models.trial import refuse_mixing_rows

log = logging.getLogger(__name__)

LENGTHS = (16, 32, 64, 128, 256)
"""Padded lengths. privacy: a text's own tokens alone decide its padded length."""

ROW_MULTIPLE = 16


@dataclass(frozen=True)
class Pooling:
    """How token vectors become one vector, read from a sentence-embedding folder.

    Attributes:
        mode: The mean of all tokens, or the first token.
        normalize: Whether vectors are scaled to length 1.
        max_tokens: Texts are cut to this length, including special tokens. None: the model's limit.
        lower: Whether texts are lower-cased first.
        prompt: What stands before every text, as the model was trained. Public.
    """

    mode: Literal["mean", "first"] = "mean"
    normalize: bool = True
    max_tokens: int | None = None
    lower: bool = False
    prompt: str = ""

    @classmethod
    def read(cls, folder: Path, where: str) -> Pooling:
        """Settings of a folder; without ``modules.json`` it is the normalized mean.

        Raises:
            ModelError: The folder needs other modules.
        """
        modules, prompt = folder / "modules.json", _default_prompt(folder, where)
        if not modules.is_file():
            return cls(prompt=prompt)
        try:
            entries = files.read_json(modules)
            kinds = [str(module.get("type", "")).rpartition(".")[2] for module in entries]
        except (OSError, ValueError, AttributeError, TypeError):
            raise ModelError(
                f"{where}: modules.json cannot be read as a JSON list of objects.",
                hint="Copy or download it again.",
            ) from None
        if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= {"Normalize"}:
            raise ModelError(
                f"{where}: modules.json lists {', '.join(kinds)}; known are Transformer, Pooling, "
                "Normalize.",
                hint="Name a sentence embedder without further layers.",
            )
        pooling = read_json(folder / str(entries[1].get("path", "")) / "config.json", where)
        mode: Literal["mean", "first"] = "mean"
        modes = sorted(
            name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            for name, on in pooling.items()
            if name.startswith("pooling_mode_") and on is True
        ) or [str(pooling.get("pooling_mode", "mean"))]
        if modes == ["cls"]:
            mode = "first"
        elif modes != ["mean"]:
            raise ModelError(
                f"{where}: pooling by {', '.join(modes)} is not supported; known are mean and cls.",
                hint="Name a sentence embedder that pools by the mean.",
            )
        settings: dict[str, Any] = {}
        for name in ("sentence_bert_config.json", "sentence_roberta_config.json"):
            if (folder / name).is_file():
                settings = read_json(folder / name, where)
        limit = settings.get("max_seq_length")
        return cls(
            mode,
            "Normalize" in kinds,
            int(limit) if limit else None,
            bool(settings.get("do_lower_case", False)),
            prompt,
        )


class HFEmbedder:
    """An Embedder of texts.

    Rows are cut and padded to one of a few public lengths. Passes have a fixed number of rows; the
    last pass of a length is filled with dummies. So a vector depends on its own text alone.

    Args:
        model: A transformers encoder in eval mode.
        tokenizer: Its tokenizer.
        pooling: How token vectors become one vector.
        source: What the model is called in messages.
        revision: Digest of its files.
        rows_per_pass: Texts per forward pass, rounded up to a multiple of 16.

    Raises:
        ModelError: The tokenizer has no padding token, or rows are not independent on this machine.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        pooling: Pooling,
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
    ) -> None:
        if tokenizer.pad_token_id is None:
            raise ModelError(
                f"{source}: the tokenizer has no padding token (pad_token).",
                hint="Set it in tokenizer_config.json.",
            )
        self.revision, self.width = revision, int(model.config.hidden_size)
        self._network, self._tokenizer, self._pooling = model, tokenizer, pooling
        self._source = source
        self._slots = -(-rows_per_pass // ROW_MULTIPLE) * ROW_MULTIPLE
        context = int(getattr(model.config, "max_position_embeddings", LENGTHS[-1]))
        # RoBERTa's positions begin after the padding token's id.
        context -= tokenizer.pad_token_id + 1 if model.config.model_type in _OFFSET else 0
        self._longest = min(pooling.max_tokens or LENGTHS[-1], context)
        self._lengths = [*(n for n in LENGTHS if n < self._longest), self._longest]
        self._probed: set[int] = set()
        self._probe(self._lengths[0])

    def probe(self) -> None:
        """Check that rows of every padded length are independent."""
        for length in self._lengths:
            self._probe(length)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of the texts, in order, shape (texts, width). Total: any string has one.

        Raises:
            ModelError: Rows of a padded length are not independent on this machine.
        """
        ids = [self._encode(text) for text in texts]
        out = np.empty((len(texts), self.width), np.float32)
        widths = [next(n for n in self._lengths if n >= len(row)) for row in ids]
        for length in self._lengths:
            numbers = np.flatnonzero(np.array(widths, dtype=int) == length)
            if len(numbers):
                self._probe(length)
            for start in range(0, len(numbers), self._slots):
                part = numbers[start : start + self._slots]
                out[part] = self._pass([ids[i] for i in part], length)[: len(part)]
        return out

    def _encode(self, text: str) -> list[int]:
        # Before tokenizing, so that a very long text costs no more than its cut.
        cut = text[: CHARS_PER_TOKEN * self._longest].encode("utf-8", "replace").decode("utf-8")
        cut = self._pooling.prompt + cut.strip()
        cut = cut.lower() if self._pooling.lower else cut
        ids: list[int] = self._tokenizer(
            cut, truncation=True, max_length=self._longest, verbose=False
        )["input_ids"]
        return ids or [self._tokenizer.pad_token_id]

    def _pass(self, rows: Sequence[Sequence[int]], length: int) -> NDArray[np.float32]:
        """One forward pass of a fixed shape; spare slots hold dummy rows."""
        ids = np.full((self._slots, length), self._tokenizer.pad_token_id)
        mask = np.zeros((self._slots, length), dtype=np.int64)
        mask[len(rows) :, 0] = 1
        for slot, row in enumerate(rows):
            ids[slot, : len(row)] = row
            mask[slot, : len(row)] = 1
        device = self._network.device
        with torch.inference_mode():
            attended = torch.from_numpy(mask).to(device)
            states = self._network(
                input_ids=torch.from_numpy(ids).to(device), attention_mask=attended
            ).last_hidden_state.float()
            if self._pooling.mode == "first":
                vectors = states[:, 0]
            else:
                weights = attended[..., None].float()
                vectors = (states * weights).sum(1) / weights.sum(1)
            if self._pooling.normalize:
                vectors = F.normalize(vectors, dim=-1)
            array: NDArray[np.float32] = vectors.cpu().numpy()
        return array

    def _probe(self, length: int) -> None:
        """Embed public random rows in two places among other rows, and compare bits.

        It runs once per length, before the first text of that length, because kernels also depend
        on the length of rows.
        """
        if length in self._probed:
            return
        rng = np.random.default_rng(0)  # public randomness: which tokens the probe reads
        n = self._slots
        size = int(self._network.config.vocab_size)
        rows = [rng.integers(0, size, rng.integers(1, length + 1)).tolist() for _ in range(2 * n)]
        where = f"{self._source}: with rows_per_pass={n}"
        refuse_mixing_rows(rows, partial(self._pass, length=length), where)
        self._probed.add(length)


_OFFSET = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")


def _default_prompt(folder: Path, where: str) -> str:
    """The prompt that sentence-transformers puts before a text unless told otherwise."""
    file = folder / "config_sentence_transformers.json"
    settings = read_json(file, where) if file.is_file() else {}
    prompts = settings.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    default = prompts.get(settings.get("default_prompt_name"))
    if default is None and any(prompts.values()):
        log.warning(
            "%s has prompts (%s) and names none as the default: its texts are embedded without. "
            "Set default_prompt_name in %s of a copy.",
            where,
            ", ".join(sorted(name for name, prompt in prompts.items() if prompt)),
            file.name,
        )
    return str(default or "")
