"""Training, resumable at any step: Muon on the matrices, AdamW on embeddings and norms."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig

from tools.base_lm.model import Model, weights_of

_REPORT_EVERY = 50


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run but its rows."""

    width: int = 320
    layers: int = 5
    heads: int = 5
    feed_forward: int = 856
    context: int = 512
    rows_per_step: int = 16
    micro_batch: int = 4
    steps: int = 7000
    warm_up: int = 60
    decay: float = 0.4
    """Share of the steps, at the end, over which the learning rates go down to zero."""
    muon_rate: float = 0.02
    muon_decay: float = 0.1
    adam_rate: float = 3e-3
    save_every: int = 500
    """Steps between two checkpoints, each with a held-out loss."""
    seed: int = 0

    def rate(self, step: int) -> float:
        """Share of the learning rates at a step."""
        down = (self.steps - step) / max(1.0, self.decay * self.steps)
        return max(0.0, min(1.0, (step + 1) / self.warm_up, down))

    def config(self, vocabulary: int) -> LlamaConfig:
        """The architecture."""
        return LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=self.width,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=self.context,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            dtype="float16",
            architectures=["LlamaForCausalLM"],
        )


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised by Newton-Schulz steps (Jordan et al., 2024)."""

    def __init__(self, matrices: list[Tensor], lr: float, decay: float) -> None:
        """``matrices`` are all two-dimensional."""
        super().__init__(matrices, {"lr": lr, "momentum": 0.95, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One update; matrices of one shape go through the iteration together."""
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for weight in group["params"]:
                shapes.setdefault(tuple(weight.shape), []).append(weight)
            for weights in shapes.values():
                updates = []
                for weight in weights:
                    state = self.state[weight]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(weight)
                    state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                    updates.append(weight.grad.lerp(state["momentum"], group["momentum"]))
                scale = max(1.0, weights[0].shape[0] / weights[0].shape[1]) ** 0.5
                for weight, update in zip(weights, orthogonal(torch.stack(updates)), strict=True):
                    weight.mul_(1 - group["lr"] * group["decay"])
                    weight.add_(update.to(weight.dtype), alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Near the closest matrices with orthonormal rows or columns, ``[number, rows, columns]``."""
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


def held_out_loss(model: Model, rows: np.ndarray, batch: int) -> float:
    """Nats per token."""
    device = model.embed_tokens.weight.device
    with torch.no_grad():
        total = sum(
            float(model.loss(torch.from_numpy(rows[i : i + batch].astype(np.int64)).to(device)))
            for i in range(0, len(rows) - len(rows) % batch, batch)
        )
    counted = len(rows) - len(rows) % batch
    return total / (counted * (rows.shape[1] - 1))


def train(work: Path, recipe: Recipe, device: str, init: Path | None, compiled: bool) -> None:
    """Train on ``work/train.npy`` up to ``recipe.steps``; go on from ``work/checkpoint.pt``.

    Rows are taken in their order, from the first again when they are used up. The checkpoint holds
    weights, optimisers and step; ``work/curve.jsonl`` one line a report. ``steps`` may be changed
    between two calls: the learning rate's way down is laid out anew.
    """
    rows = np.load(work / "train.npy", mmap_mode="r")
    held_out = np.load(work / "held_out.npy")
    vocabulary = len(json.loads((work / "tokenizer.json").read_text())["model"]["vocab"])
    torch.manual_seed(recipe.seed)
    model = Model(recipe.config(vocabulary)).to(device)
    matrices = [p for block in model.layers for p in block.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    muon = Muon(matrices, recipe.muon_rate, recipe.muon_decay)
    adam = torch.optim.AdamW(
        others, recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    checkpoint, curve = work / "checkpoint.pt", work / "curve.jsonl"
    step, before = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        muon.load_state_dict(saved["muon"])
        adam.load_state_dict(saved["adam"])
        step, before = saved["step"], saved["seconds"]
    elif init is not None:
        start = load_file(init / "model.safetensors", device=device)
        model.load_state_dict({name.removeprefix("model."): w for name, w in start.items()})
    if compiled:
        model.compile_blocks()
    began, losses = time.monotonic(), []

    def save() -> None:
        seconds = before + time.monotonic() - began
        partial = checkpoint.with_suffix(".partial")
        state = {"model": model.state_dict(), "muon": muon.state_dict(), "adam": adam.state_dict()}
        torch.save({**state, "step": step, "seconds": seconds}, partial)
        partial.replace(checkpoint)

    while step < recipe.steps:
        for optimiser, rate in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
            optimiser.param_groups[0]["lr"] = rate * recipe.rate(step)
        first = step * recipe.rows_per_step
        chosen = rows[np.arange(first, first + recipe.rows_per_step) % len(rows)].astype(np.int64)
        tokens = chosen.shape[0] * (chosen.shape[1] - 1)
        total = 0.0
        for part in torch.from_numpy(chosen).to(device).split(recipe.micro_batch):
            loss = model.loss(part)
            (loss / tokens).backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step()
        adam.step()
        model.zero_grad(set_to_none=False)
        losses.append(total / tokens)
        step += 1
        saves = step % recipe.save_every == 0 or step == recipe.steps
        if step % _REPORT_EVERY == 0 or saves:
            report = {
                "step": step,
                "tokens": step * tokens,
                "seconds": round(before + time.monotonic() - began),
                "train": round(sum(losses) / len(losses), 4),
            }
            losses = []
            if saves:
                report["held_out"] = round(held_out_loss(model, held_out, recipe.micro_batch), 4)
                save()
            with curve.open("a") as lines:
                lines.write(json.dumps(report) + "\n")
            print(json.dumps(report), flush=True)
    (work / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2) + "\n")


def export(work: Path, folder: Path) -> None:
    """Write the checkpoint as a folder that ``AutoModelForCausalLM`` loads."""
    from transformers import GenerationConfig

    saved = torch.load(work / "checkpoint.pt", map_location="cpu", weights_only=True)
    recipe = Recipe(**json.loads((work / "recipe.json").read_text()))
    model = Model(recipe.config(len(saved["model"]["embed_tokens.weight"])))
    model.load_state_dict(saved["model"])
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=1).save_pretrained(folder)
    save_file(weights_of(model), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_bytes((work / "tokenizer.json").read_bytes())
    special = {"bos_token": "<|start|>", "eos_token": "<|end|>", "pad_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                **special,
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": recipe.context,
                "clean_up_tokenization_spaces": False,
            },
            indent=2,
        )
        + "\n"
    )
