"""A TrainableModel over transformers: low-rank adapters by PEFT, per-sample gradients by Opacus.

Every pass has one fixed shape: rows are padded on the right to a public length and spare slots hold
rows without loss, so that a row's gradient depends on its own tokens and the adapter alone. Whether
the kernels of this machine keep to that is probed before the first private row; if they do not, a
pass holds one unit. Sums are of integers, exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privsyn.models.language.answers import as_text
from privsyn.models.language.hf_text import HFTextModel
from privsyn.models.language.likelihood import prompted_likelihoods
from privsyn.models.language.prompts import PromptEncoder
from privsyn.models.language.text_ending import Ending
from privsyn.models.protocols import Sampling, Training
from privsyn.models.training.adapters import target_modules, unwarned, within_context
from privsyn.models.training.causal_lm import read_model
from privsyn.models.training.dp_trainer import LoraTrainer
from privsyn.models.trial import refuse_no_numbers


class LoraModel:
    """A causal language model to be adapted. See protocols.TrainableModel.

    Args:
        load: Reads the model from disk, on its device: an adapter changes a network in place.
        settle: Makes a trained model ready to write.
        source: What the model is called in messages.
        revision: Digest that enters the release id.
        rows_per_pass: Texts written together at most.
        cache_bytes: Memory for their keys and values.
        checkpointing: Whether activations are computed anew in the backward pass, for memory.
    """

    def __init__(
        self,
        load: Callable[[], tuple[Any, Any]],
        settle: Callable[[Any], Any],
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
        cache_bytes: float = math.inf,
        checkpointing: bool = False,
    ) -> None:
        self.revision = revision
        self._load, self._settle, self._source = load, settle, source
        self._rows, self._cache_bytes = rows_per_pass, cache_bytes
        self._checkpointing = checkpointing
        self._fresh = [load()]  # now: one that does not load must fail before budget is spent

    def check(self, training: Training) -> None:
        """See protocols.TrainableModel."""
        if not self._fresh:
            self._fresh.append(self._load())
        network, tokenizer = self._fresh[-1]
        prompts = PromptEncoder(tokenizer, self._source)
        rows = [prompts.public(training.template, label) for label in training.labels]
        if training.student is not None:
            return  # a student has random weights: this network is not trained
        within_context(network, max(map(len, rows)) + training.max_tokens, self._source)
        target_modules(network, training.target_modules, self._source)
        with torch.no_grad():
            ids = torch.tensor([rows[0]], device=network.device)  # (1, tokens)
            refuse_no_numbers(network(input_ids=ids).logits[:, -1].float().cpu().numpy())

    def trainer(self, training: Training) -> LoraTrainer:
        """See protocols.TrainableModel."""
        network, tokenizer = self._take()
        return LoraTrainer(network, tokenizer, training, self._source, self._checkpointing)

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> LoraWriter:
        """See protocols.TrainableModel."""
        network, tokenizer = self._take()
        if training.student is not None:
            adapted = read_model(folder).to(network.device)
        else:
            from peft import PeftModel

            with unwarned():
                adapted = PeftModel.from_pretrained(network, str(folder)).merge_and_unload()
        model = HFTextModel(
            self._settle(adapted),
            tokenizer,
            source=self._source,
            revision=self.revision,
            rows_per_pass=self._rows,
            cache_bytes=self._cache_bytes,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
        )
        return LoraWriter(model, PromptEncoder(tokenizer, self._source), training, sampling)

    def _take(self) -> tuple[Any, Any]:
        """Network and tokenizer that no adapter has changed yet."""
        return self._fresh.pop() if self._fresh else self._load()


class LoraWriter:
    """See protocols.Writer."""

    def __init__(
        self, model: HFTextModel, prompts: PromptEncoder, training: Training, sampling: Sampling
    ) -> None:
        self._model, self._prompts, self._training = model, prompts, training
        self._sampling = sampling

    def write(self, labels: Sequence[str | None]) -> list[str]:
        """See protocols.Writer."""
        template, most = self._training.template, self._training.max_tokens
        rows = [self._prompts.public(template, label) for label in labels]
        texts = self._model.continued(
            rows,
            max_tokens=most,
            temperature=self._sampling.temperature,
            ran_out=Ending().unfinished if self._sampling.whole_sentences else str,
        )
        return [as_text(text).strip() for text in texts]

    def likelihoods(
        self, labels: Sequence[str | None], texts: Sequence[str]
    ) -> NDArray[np.float64]:
        """See protocols.Writer."""
        of = self._training
        return prompted_likelihoods(
            self._model.network, self._prompts, of.template, labels, texts, of.max_tokens
        )
