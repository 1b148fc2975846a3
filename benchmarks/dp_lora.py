"""One step of DP-LoRA against a step of ordinary LoRA: tokens per second and peak memory.

    python benchmarks/dp_lora.py [gpt2 tiny smollm2] [--batch 8 64] [--tokens 64] [--runs 5]
        [--dtype bfloat16]

``gpt2`` is GPT-2-small with random weights. A step is a logical batch of full rows: per-unit
gradients, clipping, the exact sum, noise by the sampler that is named, AdamW; or one backward pass
per micro-batch and AdamW. Runs alternate; the median of their ratios is printed. Peak memory is
that of processes of their own, less what the loaded model takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import torch

from privsyn.dp.mechanisms import SampledGaussian, Sampler
from privsyn.dp.noise import OpenDPNoise
from privsyn.models.loading import load_role
from privsyn.models.protocols import PromptTemplate, Training
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training.lora import LoraTrainer

TEMPLATE = PromptTemplate("\n{reference}", "\n")


def load(name: str, training: Training, arguments: argparse.Namespace) -> tuple[Any, Any]:
    """A model and a tokenizer."""
    language = "tiny" if name == "gpt2" else name  # its tokenizer
    cfg = ModelsConfig(language=language, dtype=arguments.dtype)
    base = load_role(cfg, "base", PerformanceConfig())
    network, tokenizer = base._take(training)
    if name == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        shape = GPT2Config(bos_token_id=0, eos_token_id=1)
        network = GPT2LMHeadModel(shape).to(network.device, network.dtype).requires_grad_(False)
    return network, tokenizer


def steps(
    name: str, batch: int, arguments: argparse.Namespace
) -> tuple[Callable[[], None], Callable[[], None]]:
    """A private step and an ordinary one over the same rows."""
    training = Training(
        TEMPLATE, (None,), arguments.tokens - 1, 1.0, 1, min(batch, arguments.micro_batch),
        arguments.rank, 32.0, None,
    )  # fmt: skip
    network, tokenizer = load(name, training, arguments)
    trainer = LoraTrainer(network, tokenizer, training, name)
    rng = np.random.default_rng(0)
    size = network.config.vocab_size
    width = trainer._width
    units = [[(rng.integers(0, size, width).tolist(), 1)] for _ in range(batch)]
    mechanism = SampledGaussian(0.01, 1.0, 1000, arguments.sampler)
    noise = OpenDPNoise()
    optimizer = torch.optim.AdamW(trainer._parts, lr=1e-4)
    passes = [
        trainer._batch(units[start : start + trainer.units_per_pass])
        for start in range(0, batch, trainer.units_per_pass)
    ]

    def private() -> None:
        noisy = mechanism.draw(trainer.clipped_sum(units), noise)
        trainer.update(noisy / batch, 1e-4)

    def ordinary() -> None:
        trainer._hooks.disable_hooks()
        for tokens, targets in passes:
            trainer._backward(tokens, targets)
        optimizer.step()
        optimizer.zero_grad()
        trainer._hooks.enable_hooks()

    return private, ordinary


def peak() -> float:
    """Peak memory of this process so far, MB."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure_memory(name: str, batch: int, which: int, arguments: argparse.Namespace) -> None:
    """Print the peak of a step above the loaded model, MB."""
    LoraTrainer._settle_passes = lambda self: None  # its private passes would hide the difference
    both = steps(name, batch, arguments)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    both[which]()
    print(peak())


def main() -> None:
    """Print one JSON object per model and batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["gpt2", "tiny"])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--sampler", choices=get_args(Sampler), default="auto")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory is not None:
        measure_memory(arguments.models[0], arguments.batch[0], arguments.memory, arguments)
        return
    for name in arguments.models:
        for batch in arguments.batch:
            both = steps(name, batch, arguments)
            for step in both:
                step()
            seconds: list[tuple[float, float]] = []
            for _ in range(arguments.runs):
                pair = []
                for step in both:
                    start = time.perf_counter()
                    step()
                    pair.append(time.perf_counter() - start)
                seconds.append((pair[0], pair[1]))
            tokens = batch * arguments.tokens
            peaks = [
                float(
                    subprocess.run(
                        [sys.executable, __file__, name, "--memory", str(which), "--batch",
                         str(batch), *sys.argv[1 + len(arguments.models):]],
                        capture_output=True, text=True, check=True,
                    ).stdout.split()[-1]
                )
                for which in (0, 1)
            ]  # fmt: skip
            print(
                json.dumps(
                    {
                        "model": name,
                        "batch": batch,
                        "private_tokens_per_second": round(
                            tokens / statistics.median(one for one, _ in seconds)
                        ),
                        "ordinary_tokens_per_second": round(
                            tokens / statistics.median(two for _, two in seconds)
                        ),
                        "ratio": round(statistics.median(two / one for one, two in seconds), 3),
                        "private_peak_mb": round(peaks[0]),
                        "ordinary_peak_mb": round(peaks[1]),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
