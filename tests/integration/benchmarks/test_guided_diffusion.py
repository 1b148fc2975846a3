"""OpenAI's checkpoints: the converted network against one written down here, and what is refused.

The reference follows the papers' U-Net by the names of the state dict alone, layer after layer.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from privsyn.errors import ModelError
from privsyn.models.images.image_folders import read_facts
from privsyn.models.loading import load_image_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).parents[3] / "benchmarks" / "papers" / "private_evolution")
    from guided_diffusion import convert

CPU = PerformanceConfig(rows_per_pass=4)
BASE, MULTIPLES, BLOCKS, SIDE, CLASSES = 32, (1, 2, 4), 2, 8, 10
ATTENDS = (False, True, True)


def checkpoint(*, improved, classes=CLASSES, channels=6):
    """A random state dict with the names and shapes of the released networks, but smaller."""
    torch.manual_seed(0)
    state: dict[str, Tensor] = {}
    wide = 4 * BASE

    def linear(name, inputs, outputs, *kernel):
        scale = 1 / math.sqrt(inputs * math.prod(kernel))
        state[f"{name}.weight"] = scale * torch.randn(outputs, inputs, *kernel)
        state[f"{name}.bias"] = 0.1 * torch.randn(outputs)

    def norm(name, width):
        state[f"{name}.weight"] = 1 + 0.1 * torch.randn(width)
        state[f"{name}.bias"] = 0.1 * torch.randn(width)

    def residual(name, inputs, outputs):
        norm(f"{name}.in_layers.0", inputs)
        linear(f"{name}.in_layers.2", inputs, outputs, 3, 3)
        linear(f"{name}.emb_layers.1", wide, 2 * outputs)
        norm(f"{name}.out_layers.0", outputs)
        linear(f"{name}.out_layers.3", outputs, outputs, 3, 3)
        if inputs != outputs:
            linear(f"{name}.skip_connection", inputs, outputs, 1, 1)

    def attention(name, width):
        norm(f"{name}.norm", width)
        linear(f"{name}.qkv", width, 3 * width, 1)
        linear(f"{name}.proj_out", width, width, 1)

    linear("time_embed.0", BASE, wide)
    linear("time_embed.2", wide, wide)
    if classes:
        state["label_emb.weight"] = torch.randn(classes, wide)
    linear("input_blocks.0.0", 3, BASE, 3, 3)
    widths, at, place = [BASE], BASE, 1
    for level, multiple in enumerate(MULTIPLES):
        for _ in range(BLOCKS):
            residual(f"input_blocks.{place}.0", at, at := multiple * BASE)
            if ATTENDS[level]:
                attention(f"input_blocks.{place}.1", at)
            widths.append(at)
            place += 1
        if level < len(MULTIPLES) - 1:
            if improved:
                linear(f"input_blocks.{place}.0.op", at, at, 3, 3)
            else:
                residual(f"input_blocks.{place}.0", at, at)
            widths.append(at)
            place += 1
    residual("middle_block.0", at, at)
    attention("middle_block.1", at)
    residual("middle_block.2", at, at)
    place = 0
    for level in reversed(range(len(MULTIPLES))):
        for block in range(BLOCKS + 1):
            residual(f"output_blocks.{place}.0", at + widths.pop(), at := MULTIPLES[level] * BASE)
            last = 1
            if ATTENDS[level]:
                attention(f"output_blocks.{place}.1", at)
                last = 2
            if level and block == BLOCKS:
                if improved:
                    linear(f"output_blocks.{place}.{last}.conv", at, at, 3, 3)
                else:
                    residual(f"output_blocks.{place}.{last}", at, at)
            place += 1
    norm("out.0", BASE)
    linear("out.2", BASE, channels, 3, 3)
    return state


class Reference:
    """The network by its state dict."""

    def __init__(self, state, *, improved):
        self.state, self.improved = state, improved

    def __call__(self, x, times, classes):
        half = BASE // 2
        angles = times[:, None].float() * torch.exp(
            -math.log(10000) * torch.arange(half).float() / half
        )
        embedded = torch.cat([torch.cos(angles), torch.sin(angles)], 1)
        embedded = F.linear(embedded, *self.of("time_embed.0"))
        embedded = F.linear(F.silu(embedded), *self.of("time_embed.2"))
        if classes is not None:
            embedded = embedded + self.state["label_emb.weight"][classes]
        x, left = F.conv2d(x, *self.of("input_blocks.0.0"), padding=1), []
        left.append(x)
        for place in range(1, (BLOCKS + 1) * len(MULTIPLES)):
            shrinks = place % (BLOCKS + 1) == 0
            if shrinks and self.improved:
                x = F.conv2d(x, *self.of(f"input_blocks.{place}.0.op"), stride=2, padding=1)
            else:
                half_size = (lambda y: F.avg_pool2d(y, 2)) if shrinks else None
                x = self.residual(f"input_blocks.{place}.0", x, embedded, half_size)
            x = self.attention(f"input_blocks.{place}.1", x)
            left.append(x)
        x = self.residual("middle_block.0", x, embedded)
        x = self.attention("middle_block.1", x)
        x = self.residual("middle_block.2", x, embedded)
        for place in range((BLOCKS + 1) * len(MULTIPLES)):
            x = torch.cat([x, left.pop()], 1)
            x = self.residual(f"output_blocks.{place}.0", x, embedded)
            x = self.attention(f"output_blocks.{place}.1", x)
            for last in (1, 2):
                home = f"output_blocks.{place}.{last}"
                if f"{home}.conv.weight" in self.state:
                    x = F.conv2d(self.doubled(x), *self.of(f"{home}.conv"), padding=1)
                elif f"{home}.in_layers.0.weight" in self.state:
                    x = self.residual(home, x, embedded, self.doubled)
        x = F.silu(F.group_norm(x, 32, *self.of("out.0")))
        return F.conv2d(x, *self.of("out.2"), padding=1)

    def of(self, name):
        return self.state[f"{name}.weight"], self.state[f"{name}.bias"]

    @staticmethod
    def doubled(x):
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)

    def residual(self, name, x, embedded, resize=None):
        y = F.silu(F.group_norm(x, 32, *self.of(f"{name}.in_layers.0")))
        if resize is not None:
            x, y = resize(x), resize(y)
        y = F.conv2d(y, *self.of(f"{name}.in_layers.2"), padding=1)
        moved = F.linear(F.silu(embedded), *self.of(f"{name}.emb_layers.1"))[..., None, None]
        scale, shift = moved.chunk(2, 1)
        y = F.group_norm(y, 32, *self.of(f"{name}.out_layers.0")) * (1 + scale) + shift
        y = F.conv2d(F.silu(y), *self.of(f"{name}.out_layers.3"), padding=1)
        if f"{name}.skip_connection.weight" in self.state:
            x = F.conv2d(x, *self.of(f"{name}.skip_connection"))
        return x + y

    def attention(self, name, x):
        if f"{name}.qkv.weight" not in self.state:
            return x
        rows, width, height, side = x.shape
        heads = 4 if self.improved else width // 64
        flat = x.reshape(rows, width, height * side)
        joint = F.conv1d(F.group_norm(flat, 32, *self.of(f"{name}.norm")), *self.of(f"{name}.qkv"))
        out = torch.empty_like(flat)
        each = width // heads
        for head in range(heads):
            if self.improved:  # one head's queries, keys and values, then the next head's
                q, k, v = joint[:, 3 * head * each : 3 * (head + 1) * each].split(each, 1)
            else:  # all queries, then all keys, then all values
                q, k, v = (
                    part[:, head * each : (head + 1) * each] for part in joint.split(width, 1)
                )
            weights = torch.softmax(q.transpose(1, 2) @ k / math.sqrt(each), -1)
            out[:, head * each : (head + 1) * each] = v @ weights.transpose(1, 2)
        return x + F.conv1d(out, *self.of(f"{name}.proj_out")).reshape(x.shape)


def saved(tmp_path, state):
    file = tmp_path / "checkpoint.pt"
    torch.save(state, file)
    return file


@pytest.mark.parametrize("improved", [True, False])
def test_the_converted_network_is_the_checkpoint_s(tmp_path, improved):
    state = checkpoint(improved=improved)
    # Half precision, as some are saved: numbers that are exact in both.
    state = {name: value.half().float() for name, value in state.items()}
    convert(
        saved(tmp_path, {name: value.half() for name, value in state.items()}),
        tmp_path / "unet", side=SIDE,
    )  # fmt: skip
    model = load_image_model(ModelsConfig(image=str(tmp_path / "unet")), CPU)
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(3, 3, SIDE, SIDE, generator=rng)
    for time in (0, 1, 37, 999):
        classes = torch.tensor([0, 4, CLASSES - 1])
        with torch.no_grad():
            ours = model._unet(x, time, class_labels=classes).sample
            truth = Reference(state, improved=improved)(x, torch.full((3,), time), classes)
        assert truth.std() > 0.1
        assert (ours - truth).abs().max() < 1e-4
    facts = read_facts(tmp_path / "unet", ModelsConfig(image=str(tmp_path / "unet")))
    assert (facts.size, facts.mode, facts.classes, facts.steps) == ((SIDE, SIDE), "RGB", 10, 100)
    assert facts.labels == tuple("0123456789")
    assert len(model._alphas) == (4000 if improved else 1000)
    assert model.random_of(["3", "9"], None)[0].shape == (SIDE, SIDE, 3)


class Runs:
    def __reduce__(self):
        return Path.touch, (Path("ran"),)


def test_code_in_a_checkpoint_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(pickle.dumps(Runs()))
    with pytest.raises(ModelError, match="not a checkpoint of tensors"):
        convert(tmp_path / "checkpoint.pt", tmp_path / "unet", side=SIDE)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
