"""torch settings of a run: device, kernels with independent rows, quiet logs."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from privsyn.errors import ModelError

CPU = Path("/proc/cpuinfo")
"""Where Linux lists the instructions of a CPU."""


def made_for_bfloat16(cpu: Path = CPU) -> bool:
    """Whether the CPU has matrix instructions for bfloat16."""
    flags = cpu.read_text() if cpu.exists() else ""
    return re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", flags) is not None


@contextlib.contextmanager
def ready() -> Iterator[Any]:
    """Set torch up for a run, keep transformers quiet, and give the device: a GPU if there is one.

    ``CUDA_VISIBLE_DEVICES`` says which GPU, or none, and ``OMP_NUM_THREADS`` how many CPU threads.
    """
    prepare_torch()
    with quiet():
        import torch

        yield torch.device("cuda" if torch.cuda.is_available() else "cpu")


def prepare_torch() -> None:
    """Set the environment variables that torch and CUDA read when they start."""
    # The tokenizers library warns, and may hang, when a process forks after using threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    # Read when torch starts. Threads that spin at barriers ran 4 times slower beside a busy
    # process.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def prepare_model(model: Any, device: Any) -> Any:
    """Put a model on its device, without gradients, with kernels that keep rows independent."""
    import torch

    from privsyn.models.language import rowwise

    model = model.to(device).eval().requires_grad_(False)
    find = getattr(model, "get_output_embeddings", None)
    head = find() if find else None
    if device.type == "cpu":
        with torch.inference_mode():
            rowwise.pack_linears(model, head)
    return model


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and warnings, also during forward passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        yield


@contextlib.contextmanager
def reading(what: object) -> Iterator[None]:
    """Turn whatever the parsers of transformers and diffusers raise into a ModelError of one line.

    Args:
        what: The setting with the model, or the file, for messages.

    Raises:
        ModelError: The model contains its own code, or cannot be loaded.
    """
    try:
        yield
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        if "trust_remote_code" in text:
            raise ModelError(
                f"{what} contains its own code, which privsyn does not run.",
                hint="Name a model of an architecture that transformers knows.",
            ) from None
        raise ModelError(
            f"{what} cannot be loaded ({type(error).__name__}: {text[:200]}).",
            hint="Copy or download it again, or name another model.",
        ) from None


def refuse_missing(what: object, info: Mapping[str, Any]) -> None:
    """Refuse incomplete weights: transformers fills missing tensors with random numbers and warns.

    Args:
        what: As in ``reading``.
        info: What ``from_pretrained`` gives by ``output_loading_info``.

    Raises:
        ModelError: Names one of them.
    """
    if missing := sorted(info["missing_keys"]):
        raise ModelError(
            f"{what}: the weights lack {len(missing)} tensors, {missing[0]} among them.",
            hint="Copy or download it again, or name another model.",
        )
