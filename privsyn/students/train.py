"""Small language models from a release's texts, after Yu et al. 2023.

A large model, the teacher, is trained with differential privacy and writes texts (``dp_lora``, or
any method that releases texts). A small model is trained on those texts by an ordinary optimizer.
Yu et al. call this knowledge distillation by sampling. The guarantee is in guarantee.md.

Source: Yu et al. 2023, *Training Private and Efficient Language Models with Synthetic Data from
LLMs*, sections 3.1 and 4, Table 2 and Appendix A.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privsyn.errors import ConfigError, ModelError
from privsyn.methods.shared.distill import SIZES, DistillConfig
from privsyn.models.rows import split_row, with_columns
from privsyn.models.torch_runtime import ready

if TYPE_CHECKING:
    from privsyn.models.protocols import PromptTemplate
    from privsyn.models.training.causal_lm import Encoded

CLIP_NORM = 1.0

BETAS, WEIGHT_DECAY = (0.9, 0.95), 0.01


@dataclass(frozen=True)
class Student:
    """Public facts of a trained student.

    Attributes:
        parameters: Number of parameters; tied embeddings count once.
        vocabulary: Number of tokens in its vocabulary.
        texts: Number of training texts.
        tokens: Tokens of the texts after cutting, including ends.
        steps: Steps of the optimizer.
        loss: Mean cross entropy per token over the last epoch, in nats.
    """

    parameters: int
    vocabulary: int
    texts: int
    tokens: int
    steps: int
    loss: float


def train_student(
    cfg: DistillConfig,
    texts: Sequence[tuple[str | None, str]],
    base: Path,
    target: Path,
    *,
    template: PromptTemplate | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Student:
    """Train a small language model on texts and write it to a folder.

    Guarantee: for texts of a release this is post-processing: a function of the texts, public
    models and public randomness. A model that was trained on private texts is private.

    Args:
        cfg: Settings.
        texts: Pairs of label and text, at least one. A label may have the words of a row with it.
        base: Folder of the language model whose tokenizer and prompt the student uses; only its
            small files are read. If ``cfg.init`` is a directory, that directory is used instead.
        target: Folder to write; made if missing.
        template: The prompt before the texts. None: the base model's own.
        on_progress: Called after every pass with texts read and texts to read, over all epochs.

    Raises:
        ConfigError: The directory does not exist, or there is no text.
        ModelError: A model cannot be loaded or is too short, or training diverged.
    """
    from privsyn.models.training import causal_lm as student

    if not texts:
        raise ConfigError("a student needs at least one text.")
    folder = start_folder(cfg) or base
    seed = secrets.randbits(63) if cfg.seed is None else cfg.seed
    with ready() as device:
        tokenizer = student.read_tokenizer(folder)
        template = template or student.prompt_of(folder)
        if any(split_row(label)[1] for label, _ in texts):
            private, public = map(with_columns, (template.private, template.public))
            template = replace(template, private=private, public=public)
        encoded = student.encode(tokenizer, template, texts, cfg.max_tokens)
        with student.seed_torch(seed, device):
            model = _start(cfg, folder, tokenizer, encoded)
            loss, steps = _fit(cfg, model.to(device), encoded, seed, device, on_progress)
        student.save(model, tokenizer, template, target)
    return Student(
        parameters=sum(weights.numel() for weights in model.parameters()),
        vocabulary=model.get_input_embeddings().num_embeddings,
        texts=len(encoded),
        tokens=sum(text.scored_tokens for text in encoded),
        steps=steps,
        loss=loss,
    )


def start_folder(cfg: DistillConfig) -> Path | None:
    """The directory that a student starts from; None for a student of a given size.

    Raises:
        ConfigError: ``init`` names a directory that is missing or not public.
    """
    return None if cfg.init == "random" else cfg.folder("init")


def _start(cfg: DistillConfig, folder: Path, tokenizer: Any, texts: Sequence[Encoded]) -> Any:
    """The student before its first step."""
    from privsyn.models.training import causal_lm as student

    if cfg.init != "random":
        model = student.read_model(folder)
        student.refuse_long(model, texts, cfg.max_tokens, f"methods.distill.init={folder.name}")
        return model
    # Of the longest allowed text, and not the longest actual one.
    longest = max(text.start for text in texts) + cfg.max_tokens
    return student.new_model(SIZES[cfg.student], student.vocabulary_of(folder), tokenizer, longest)


def _fit(
    cfg: DistillConfig,
    model: Any,
    texts: Sequence[Encoded],
    seed: int,
    device: Any,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[float, int]:
    """AdamW over shuffled batches; returns the mean loss per token of the last epoch, and steps.

    A batch's loss is the mean cross entropy of its text tokens, which are samples of the teacher
    (Yu et al. 2023, Appendix B), independent of its split into forward passes.
    """
    import torch
    import torch.nn.functional as F

    from privsyn.models.training import causal_lm as student

    rng = np.random.default_rng(seed)  # public randomness: the order of public texts
    steps, taken, read = cfg.epochs * -(-len(texts) // cfg.batch_size), 0, 0
    vocabulary = model.get_input_embeddings().num_embeddings
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=cfg.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY
    )
    model.train()
    epoch_loss = 0.0
    for _ in range(cfg.epochs):
        order, epoch_loss = rng.permutation(len(texts)), 0.0
        for start in range(0, len(texts), cfg.batch_size):
            batch = [texts[i] for i in order[start : start + cfg.batch_size]]
            # Over the whole batch: the loss is a mean over its tokens, whatever the passes are.
            counted = sum(text.scored_tokens for text in batch)
            for group in student.passes(batch, vocabulary, device):
                ids, targets = student.pad(group, device)
                # logits: (texts, tokens, vocabulary), in bfloat16 on GPUs.
                with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                    logits = model(input_ids=ids, use_cache=False).logits
                counts = targets != student.NOT_COUNTED
                # bfloat16 is too coarse for a sum of many tokens.
                loss = F.cross_entropy(logits[counts].float(), targets[counts], reduction="sum")
                # Gradients of all passes of a batch add up before the optimizer's step.
                (loss / counted).backward()
                epoch_loss += float(loss.item())
                read += len(group)
                if on_progress is not None:
                    on_progress(read, cfg.epochs * len(texts))
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            for part in optimizer.param_groups:
                part["lr"] = cfg.learning_rate * pace(taken, steps, WARMUP)
            optimizer.step()
            optimizer.zero_grad()
            taken += 1
    # A diverged student would be released as a model of NaN, which loads without an error.
    whole = all(bool(torch.isfinite(weights).all()) for weights in model.parameters())
    if not (whole and math.isfinite(epoch_loss)):
        raise ModelError(
            f"the student diverged with methods.distill.learning_rate={cfg.learning_rate:g}.",
            hint="Lower it; the paper's grid is 3e-5 to 3e-3.",
        )
    model.eval()
    return epoch_loss / sum(text.scored_tokens for text in texts), taken


WARMUP = 0.05
"""Share of the steps in which the learning rate rises."""


def pace(step: int, steps: int, warmup_share: float) -> float:
    """Share of the highest learning rate at a step (from 0): linear warm-up, then cosine to 0."""
    rising = warmup_share * steps
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))
