"""Low-rank adapters on a network, and the hooks that give per-sample gradients of them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from privsyn.errors import ModelError
from privsyn.models.language.prompts import context_length
from privsyn.models.protocols import Training
from privsyn.models.training.causal_lm import Shape, new_model, seeded

WIDTH_MULTIPLE = 16
"""Rows are padded to a multiple: float32 attention kernels give odd lengths other bits."""

SEED_OF_FIRST_WEIGHTS = 0
"""Seed of the first weights: a resumed run has the same and can tell whether they moved."""

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def adapt(network: Any, training: Training, source: str) -> Any:
    """The network with a fresh low-rank adapter, the only part that is trained.

    Raises:
        ModelError: It has none of the requested layers; says which linear layers it has.
    """
    from peft import LoraConfig, get_peft_model

    targets = target_modules(network, training.target_modules, source)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=training.rank,
        lora_alpha=training.alpha,  # type: ignore[arg-type]  # a float divides as well
        lora_dropout=0.0,
        target_modules=targets,
        fan_in_fan_out=_is_transposed(network, targets),
    )
    with unwarned(), seeded(SEED_OF_FIRST_WEIGHTS, network.device):
        return get_peft_model(network, config)


def small(network: Any, tokenizer: Any, shape: tuple[int, int, int], width: int) -> Any:
    """A student with random weights over the vocabulary of a network, trained whole.

    Only the scales of its norms stay 1: Opacus has no per-sample gradients of Llama's norms.
    """
    vocabulary = int(network.config.get_text_config().vocab_size)
    with seeded(SEED_OF_FIRST_WEIGHTS, network.device):
        model = new_model(Shape(*shape), vocabulary, tokenizer, width)
    for name, part in model.named_parameters():
        part.requires_grad_("norm" not in name)
    return model.to(network.device)


def target_modules(network: Any, requested: Sequence[str] | None, source: str) -> list[str]:
    """Names of the layers to adapt: those requested, or PEFT's default for the architecture.

    ``("all-linear",)`` names every linear layer but the one of the vocabulary.

    Raises:
        ModelError: The network lacks one of them, or its architecture is not known to PEFT.
    """
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    layers = linear_layers(network)
    listing = (
        f"Its linear layers are: {', '.join(layers)}." if layers else "It has no linear layer."
    )
    where = f"models.language={source}"
    if requested == ("all-linear",) and layers:
        return layers
    kind = network.config.get_text_config().model_type
    names = list(requested) if requested else list(KNOWN.get(kind, ()))
    if not names:
        raise ModelError(
            f"{where}: no layers to adapt are known for the architecture {kind}. {listing}",
            hint="Set methods.dp_lora.target_modules to some of them.",
        )
    missing = [name for name in names if name not in layers]
    if missing:
        raise ModelError(
            f"{where} has no linear layer {missing[0]} to adapt. {listing}",
            hint="Set methods.dp_lora.target_modules to some of them.",
        )
    return names


def linear_layers(network: Any) -> list[str]:
    """Last names of the linear layers but the vocabulary's, each once, in order."""
    from transformers.pytorch_utils import Conv1D

    head = network.get_output_embeddings()
    layers = (
        name.rpartition(".")[2]
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    )
    return list(dict.fromkeys(layers))


def _is_transposed(network: Any, targets: Sequence[str]) -> bool:
    """Whether the targets keep their weights as (in, out), as GPT-2's do."""
    from transformers.pytorch_utils import Conv1D

    return any(
        isinstance(module, Conv1D) and name.rpartition(".")[2] in targets
        for name, module in network.named_modules()
    )


def attach_hooks(network: Any) -> Any:
    """Per-sample gradients of every trained parameter: ``grad_sample``, (rows, *its shape)."""
    root = logging.getLogger()
    before = list(root.handlers)
    from opacus.grad_sample import GradSampleHooks

    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)  # opacus sets up everybody's logging when it is imported
    return GradSampleHooks(network, loss_reduction="sum", strict=False)


def drop_dropout(network: nn.Module) -> None:
    """Set all dropout rates to 0.

    Architectures keep their rates in modules, in attributes of layers, and in the config.
    """
    # privacy: dropout draws one mask for the whole batch, so rows would not be independent
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(vars(holder).items() if holder is not None else ()):
                if "drop" in name and isinstance(value, float):
                    setattr(holder, name, 0.0)


def padded_width(tokens: int) -> int:
    """The next multiple of WIDTH_MULTIPLE."""
    return -(-tokens // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


def within_context(network: Any, tokens: int, source: str) -> int:
    """Length that rows are padded to: the next multiple, at most the context.

    Raises:
        ModelError: The context is shorter than ``tokens``.
    """
    longest = context_length(network.config.get_text_config())
    if longest is None:
        return padded_width(tokens)
    if tokens > longest:
        raise ModelError(
            f"models.language={source}: its context of {longest} tokens is shorter than prompt and "
            f"record together ({tokens}).",
            hint="Lower methods.dp_lora.max_tokens, or use another model.",
        )
    return min(padded_width(tokens), longest)


@contextmanager
def unwarned() -> Iterator[None]:
    """Keep the libraries' advice to each other off the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory, of the host or the device, did not suffice."""
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "DefaultCPUAllocator" in text
        or "out of memory" in text
        or "ALLOC_FAILED" in text
    )
