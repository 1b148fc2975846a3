"""A TrainableModel over transformers: low-rank adapters by PEFT, per-sample gradients by Opacus.

Every pass has one fixed shape: rows are padded on the right to a public length, and spare slots
hold rows without loss, so that a row's gradient depends on its own tokens and the adapter alone. A
probe before the first private row checks this for the kernels of this machine; if it fails, other
lengths are tried, then passes of one unit. Sums are sums of integers, exact in any order.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.errors import ModelError
from privsyn.models.language.answers import as_text
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.hf_text import HFTextModel
from privsyn.models.language.likelihood import of_sequences
from privsyn.models.language.prompts import PromptEncoder, context_length
from privsyn.models.protocols import Row, Sampling, Training
from privsyn.models.torch_runtime import quiet
from privsyn.models.training.causal_lm import seed_torch
from privsyn.models.trial import refuse_no_numbers

WIDTH_MULTIPLE = 8
"""Rows are padded to a multiple, since kernels round odd lengths differently. Where units mix, the
next two are tried: a pass of one unit takes almost twice as long a unit."""

SEED_OF_FIRST_WEIGHTS = 0
"""Seed of the initial weights: a resumed run has the same, so it can see whether they moved."""

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def adapt(network: Any, training: Training, source: str) -> Any:
    """The network with a new low-rank adapter, the only part that is trained.

    Raises:
        ModelError: It has none of the requested layers; says which linear layers it has.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=training.rank,
        lora_alpha=training.alpha,  # type: ignore[arg-type]  # a float divides as well
        lora_dropout=0.0,
        target_modules=target_modules(network, training.target_modules, source),
    )
    with quiet(), seed_torch(SEED_OF_FIRST_WEIGHTS, network.device):
        return get_peft_model(network, config)


def target_modules(network: Any, requested: Sequence[str] | None, source: str) -> list[str]:
    """Names of the layers to adapt: those requested, or PEFT's default for the architecture.

    ``("all-linear",)`` means every linear layer except the vocabulary layer.

    Raises:
        ModelError: The network lacks one of them, or PEFT does not know its architecture.
    """
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    layers = linear_layers(network)
    if requested == ("all-linear",) and layers:
        return layers
    kind = network.config.get_text_config().model_type
    names = list(requested) if requested else list(KNOWN.get(kind, ()))
    missing = [name for name in names if name not in layers]
    if names and not missing:
        return names
    lacks = (
        f"has no linear layer {missing[0]} to adapt"
        if missing
        else f"has the architecture {kind}, for which no layers to adapt are known"
    )
    raise ModelError(
        f"models.language={source} {lacks}. Its linear layers are: {', '.join(layers) or 'none'}.",
        hint="Set methods.dp_lora.target_modules to some of them.",
    )


def linear_layers(network: Any) -> list[str]:
    """Last names of the linear layers except the vocabulary's, each once, in order."""
    from transformers.pytorch_utils import Conv1D

    head = network.get_output_embeddings()
    layers = (
        name.rpartition(".")[2]
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    )
    return list(dict.fromkeys(layers))


def attach_hooks(network: Any) -> Any:
    """Per-sample gradients of every trained parameter: ``grad_sample``, (rows, *its shape)."""
    root = logging.getLogger()
    before = list(root.handlers)
    from opacus.grad_sample import GradSampleHooks, register_grad_sampler
    from transformers.pytorch_utils import Conv1D

    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)  # importing opacus adds a handler to the root logger
    register_grad_sampler(Conv1D)(_conv1d_gradients)
    return GradSampleHooks(network, loss_reduction="sum", strict=False)


def _conv1d_gradients(
    layer: Any, activations: Sequence[Tensor], backprops: Tensor
) -> dict[nn.Parameter, Tensor]:
    """Gradients by row of GPT-2's linear layers, whose weights are (in, out)."""
    return {
        layer.weight: torch.einsum("nti,nto->nio", activations[0], backprops),
        layer.bias: backprops.sum(1),
    }


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


def padded_widths(network: Any, tokens: int, source: str) -> list[int]:
    """Lengths that rows may be padded to (WIDTH_MULTIPLE), at most the context.

    Raises:
        ModelError: The context is shorter than ``tokens``.
    """
    longest = context_length(network.config.get_text_config()) or math.inf
    if tokens > longest:
        raise ModelError(
            f"models.language={source}: its context of {longest} tokens is shorter than prompt and "
            f"record together ({tokens}).",
            hint="Lower methods.dp_lora.max_tokens, or use another model.",
        )
    first = -(-tokens // WIDTH_MULTIPLE)
    return sorted({int(min(n * WIDTH_MULTIPLE, longest)) for n in range(first, first + 3)})


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the host or the device ran out of memory."""
    text = str(error)
    return (
        # torch raises plain RuntimeErrors from its CPU allocator, CUDA and cuBLAS.
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "DefaultCPUAllocator" in text
        or "out of memory" in text
        or "ALLOC_FAILED" in text
    )


_TRIED_TOKENS = 8
"""Tokens of the record and the text in ``check``."""

_SAFE = 1 - 2.0**-20
"""Factor on a clipped gradient: leaves room for rounding in float32."""

_IGNORED = -100
"""Target of a position without loss, which PyTorch's cross entropy ignores."""


class LoraTrainer:
    """A Trainer of a LoRA adapter: clipped gradients per unit.

    Args:
        network: A transformers model on its device. An adapter is added to it.
        tokenizer: Its tokenizer.
        training: Public settings.
        source: What the model is called in messages.

    Raises:
        ModelError: No layer to adapt, or a context shorter than prompt and record.

    Source: Hu et al. 2022 (LoRA); Abadi et al. 2016, Algorithm 1 (clipping).
    """

    def __init__(self, network: Any, tokenizer: Any, training: Training, source: str) -> None:
        self._training, self._source = training, source
        self._eos = int(tokenizer.eos_token_id)
        self._prompts = PromptEncoder(tokenizer, source)
        # privacy: the width comes from public prompts and max_tokens, not from the records
        longest = max(len(self._prompts.public(training.template, x)) for x in training.labels)
        self._most = longest + training.max_tokens
        self._device = network.device
        self._width, *self._wider = padded_widths(network, self._most, source)
        self._network = adapt(network, training, source)
        drop_dropout(self._network)
        self._network.train()
        self._parts = [p for p in self._network.parameters() if p.requires_grad]
        self.size = sum(part.numel() for part in self._parts)
        # (numbers,): all trained parameters, concatenated
        self._theta = nn.Parameter(torch.cat([p.detach().float().flatten() for p in self._parts]))
        self._began = self._theta.detach().clone()
        self._optimizer = torch.optim.AdamW([self._theta], weight_decay=0.0)
        self._hooks = attach_hooks(self._network)
        self.units_per_pass = max(1, training.micro_batch // training.records_per_unit)
        self._settle_passes()

    def encode(self, label: str | None, text: str) -> Row:
        """Prompt, record, and the end if the record was not cut."""
        prompt, ids = self._prompts.public_and_text(
            self._training.template, label, text, self._training.max_tokens
        )
        if len(ids) < self._training.max_tokens:
            ids.append(self._eos)
        # privacy: a row of columns may have more tokens than the one that set the width; what it
        # shifts beyond is cut, so that no record decides whether a step fails
        return [*prompt, *ids][: self._most], len(prompt)

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """Sum over units of their clipped gradients, shape (numbers,)."""
        while True:
            try:
                return self._sum(units)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.units_per_pass == 1:
                    raise MemoryError("one unit's records do not fit") from None
            # Outside the except block: the exception keeps the tensors of the failed pass alive.
            self.units_per_pass = -(-self.units_per_pass // 2)
            self._forget()
            self._wider.clear()  # in other widths the sum would be rounded otherwise
            self._settle_passes()  # another shape may use other kernels, so probe again

    def _sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """Sum of the units' contributions, shape (numbers,)."""
        total = torch.zeros(self.size, dtype=torch.float64, device=self._device)
        for start in range(0, len(units), self.units_per_pass):
            parts = self._contributions(units[start : start + self.units_per_pass])
            # Integers below 2^53: float64 sums are exact in any order.
            total += torch.cat([part.sum(0, dtype=torch.float64) for part in parts])
        return np.asarray(total.to(torch.int64).cpu().numpy())

    def _contributions(self, units: Sequence[Sequence[Row]]) -> list[Tensor]:
        """Contribution of each slot: per parameter, integers in float32, (slots, numbers)."""
        self._backward(*self._batch(units))
        records = self._training.records_per_unit
        gradients = []
        for part in self._parts:
            rows = part.grad_sample.flatten(1)  # (slots * records, numbers)
            part.grad_sample = part.grad = None
            # privacy: a unit's records are summed before they are clipped, as one vector [L3]
            gradients.append(rows.view(-1, records, rows.shape[1]).sum(1) if records > 1 else rows)
        return clip_to_lattice(gradients, self._training.clip_norm)

    def _batch(self, units: Sequence[Sequence[Row]]) -> tuple[Tensor, Tensor]:
        """Tokens and targets, each of the fixed shape (slots * records, width)."""
        records = self._training.records_per_unit
        tokens = np.full((self.units_per_pass * records, self._width), self._eos)
        targets = np.full_like(tokens, _IGNORED)
        for place, unit in enumerate(units):
            # privacy: a unit never uses more rows than its own slots
            for number, (ids, start) in enumerate(unit[:records]):
                row = place * records + number
                tokens[row, : len(ids)] = ids
                targets[row, start - 1 : len(ids) - 1] = ids[start:]  # shifted by one
        return tuple(torch.from_numpy(array).to(self._device) for array in (tokens, targets))

    def _backward(self, tokens: Tensor, targets: Tensor) -> None:
        """Gradients of the sum of the rows' losses, each the mean over that row's tokens."""
        logits = self._network(input_ids=tokens, use_cache=False).logits  # (rows, width, V)
        flat = F.cross_entropy(
            logits.flatten(0, 1).float(),
            targets.flatten(),
            ignore_index=_IGNORED,
            reduction="none",
        )
        losses = flat.view_as(targets)  # (rows, width)
        # privacy: a row is divided by its own length; a mean over the batch would couple rows [L3]
        lengths = (targets != _IGNORED).sum(1).clamp(min=1)  # (rows,)
        with quiet():
            (losses.sum(1) / lengths).sum().backward()

    def _forget(self) -> None:
        """Drop gradients and activations of a pass that failed."""
        for part in self._parts:
            part.grad_sample = part.grad = None
            part.__dict__.pop("_current_grad_sample", None)
            part._forward_counter = 0
        for module in self._network.modules():
            module.__dict__.pop("max_batch_len", None)
            if hasattr(module, "activations"):
                module.activations = []

    def _settle_passes(self) -> None:
        """Halve the units per pass until a pass fits in memory.

        Where passes mix their units, wider ones are tried, then passes of one unit.
        """
        while True:
            try:
                apart: bool | None = self._keeps_units_apart()
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                apart = None
            if apart is None:
                self._forget()
            if apart or self.units_per_pass == 1:
                return
            if apart is False and self._wider:
                self._width = self._wider.pop(0)
            else:
                self.units_per_pass = 1 if apart is False else -(-self.units_per_pass // 2)

    def _keeps_units_apart(self) -> bool:
        """Whether a unit's contribution has the same bits in every position and among any others.

        Reversing the order finds kernels that depend on the position. Emptying every other slot
        finds means over the batch, which do not depend on the order.
        """
        rng = np.random.default_rng(0)  # public numbers; any would do
        size = int(self._network.config.get_text_config().vocab_size)
        rows = [
            (rng.integers(0, size, rng.integers(2, self._width + 1)).tolist(), 1)
            for _ in range(self.units_per_pass)
        ]
        # Half of a new adapter is zero, so gradients of the other half are zero, too: add noise.
        noise = torch.from_numpy(rng.normal(scale=0.02, size=self.size)).float()
        self._write(self._theta.detach() + noise.to(self._device))
        try:
            # A process's first pass may use other kernels than later ones, so it does not count.
            for _ in range(2):
                forth = self._contributions([[row] for row in rows])  # each: (slots, numbers)
            back = self._contributions([[row] for row in reversed(rows)])
            thinned = self._contributions(
                [[row] if i % 2 == 0 else [] for i, row in enumerate(rows)]
            )
        finally:
            self._write(self._theta.detach())
        return all(
            torch.equal(a, b.flip(0)) and torch.equal(a[::2], c[::2])
            for a, b, c in zip(forth, back, thinned, strict=True)
        )

    def update(self, gradient: NDArray[np.float64], learning_rate: float) -> None:
        """One step of AdamW along a gradient of shape (numbers,)."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._theta.grad = torch.from_numpy(gradient).float().to(self._device)
        self._optimizer.step()
        self._write(self._theta.detach())

    def _write(self, theta: Tensor) -> None:
        """Copy a vector of parameters, (numbers,), into the network."""
        start = 0
        with torch.no_grad():
            for part in self._parts:
                part.copy_(theta[start : start + part.numel()].view_as(part))
                start += part.numel()

    def state(self) -> bytes:
        """Parameters and moments of AdamW, as safetensors."""
        moments = self._optimizer.state[self._theta] if self._optimizer.state else {}
        tensors = {name: torch.as_tensor(value) for name, value in moments.items()}
        content: bytes = save_tensors(
            {"theta": self._theta.detach().cpu()}
            | {f"optimizer.{name}": tensor.cpu() for name, tensor in tensors.items()}
        )
        return content

    def restore(self, state: bytes) -> None:
        """Continue from a state."""
        tensors = load_tensors(state)
        with torch.no_grad():
            self._theta.copy_(tensors.pop("theta").to(self._device))
        moments = {name.partition(".")[2]: value for name, value in tensors.items()}
        whole = self._optimizer.state_dict()
        self._optimizer.load_state_dict(whole | {"state": {0: moments} if moments else {}})
        self._write(self._theta.detach())

    def has_moved(self) -> bool:
        """Whether the parameters differ from their initial values."""
        # Of the network, not of theta: this finds an update that never reached the layers.
        parts = torch.cat([part.detach().float().flatten() for part in self._parts])
        return not torch.equal(parts, self._began)

    def files(self) -> Mapping[str, bytes]:
        """Files of a PEFT adapter."""
        from peft import get_peft_model_state_dict

        tensors = get_peft_model_state_dict(self._network)
        config = self._network.peft_config["default"].to_dict()
        config |= {"base_model_name_or_path": self._source, "inference_mode": True}
        # Sets have no stable order; these files are part of a release's digest.
        plain = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
        return {
            WEIGHTS: save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()}),
            CONFIG: (json.dumps(plain, indent=2, sort_keys=True) + "\n").encode(),
        }


def clip_to_lattice(gradients: Sequence[Tensor], clip_norm: float) -> list[Tensor]:
    """Scale every unit's gradient to at most ``clip_norm`` and round it toward zero.

    Guarantee: for any input, a unit's contribution has an L2 norm of at most CLIP_STEPS over all
    parts together, and depends on that unit's gradient alone. The norm is checked exactly, on the
    integers themselves. A unit that fails the check, or is not finite, adds zeros.

    Args:
        gradients: One tensor per parameter, shape (units, numbers).
        clip_norm: The norm C that becomes CLIP_STEPS lattice steps.

    Returns:
        Integers of at most CLIP_STEPS, exact in float32, in the same shapes.

    Source: Abadi et al. 2016, Algorithm 1.
    """
    norms = _squares(gradients).sqrt()  # (units,): over all parameters together [L3]
    factors = (_SAFE * CLIP_STEPS / norms.clamp(min=clip_norm)).float()[:, None]  # (units, 1)
    whole = [(part.float() * factors).trunc_() for part in gradients]
    # privacy: the bound is checked on the numbers that are summed. Sums of squares below 2^53 are
    # exact; a comparison with NaN is false.
    sound = (_squares(whole) <= CLIP_STEPS**2)[:, None]  # (units, 1)
    return [torch.where(sound, part, torch.zeros_like(part)) for part in whole]


def _squares(parts: Sequence[Tensor]) -> Tensor:
    """Squared L2 norm of each unit over all parameters, float64, shape (units,)."""
    return torch.stack([part.double().square().sum(1) for part in parts]).sum(0)


class LoraModel:
    """A TrainableModel over a causal language model of transformers.

    Args:
        load: Reads the model from disk onto its device. An adapter changes a network in place.
        settle: Prepares a trained model for writing texts.
        source: What the model is called in messages.
        revision: Digest that enters the release id.
        rows_per_pass: Most texts written together.
    """

    def __init__(
        self,
        load: Callable[[], tuple[Any, Any]],
        settle: Callable[[Any], Any],
        *,
        source: str,
        revision: str,
        rows_per_pass: int,
    ) -> None:
        self.revision = revision
        self._load, self._settle, self._source = load, settle, source
        self._rows = rows_per_pass
        self._fresh = [load()]  # now: a model that does not load must fail before budget is spent

    def check(self, training: Training) -> None:
        """Try one training step, its files and one text on public rows."""
        network, tokenizer = self._take()
        prompts = PromptEncoder(tokenizer, self._source)
        rows = [prompts.public(training.template, label) for label in training.labels]
        padded_widths(network, max(map(len, rows)) + training.max_tokens, self._source)
        target_modules(network, training.target_modules, self._source)
        with torch.no_grad():
            ids = torch.tensor([rows[0]], device=network.device)  # (1, tokens)
            refuse_no_numbers(network(input_ids=ids).logits[:, -1].float().cpu().numpy())
        self._fresh.append((network, tokenizer))
        del network
        # A failure here costs nothing; after ``begin`` it costs the whole release.
        tiny = replace(training, micro_batch=training.records_per_unit, max_tokens=_TRIED_TOKENS)
        with tempfile.TemporaryDirectory() as name:
            trainer = self.trainer(tiny)
            row = trainer.encode(training.labels[0], "A public text.")
            step = trainer.clipped_sum([[row]]) / CLIP_STEPS  # (numbers,), of a public row alone
            trainer.update(step, 1e-3)
            for file, content in trainer.files().items():
                (Path(name) / file).write_bytes(content)
            del trainer  # frees memory before the model is loaded again
            self.writer(tiny, Path(name), Sampling()).write(training.labels[:1])

    def trainer(self, training: Training) -> LoraTrainer:
        """A trainer before its first step."""
        network, tokenizer = self._take()
        return LoraTrainer(network, tokenizer, training, self._source)

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> LoraWriter:
        """The model with the trained weights of a folder."""
        from peft import PeftModel

        network, tokenizer = self._take()
        with quiet():
            adapted = PeftModel.from_pretrained(network, str(folder)).merge_and_unload()
        model = HFTextModel(
            self._settle(adapted),
            tokenizer,
            source=self._source,
            revision=self.revision,
            rows_per_pass=self._rows,
        )
        return LoraWriter(model, PromptEncoder(tokenizer, self._source), training, sampling)

    def _take(self) -> tuple[Any, Any]:
        """A network that no training has changed, and its tokenizer."""
        return self._fresh.pop() if self._fresh else self._load()


class LoraWriter:
    """A Writer over a model with its adapter merged in."""

    def __init__(
        self, model: HFTextModel, prompts: PromptEncoder, training: Training, sampling: Sampling
    ) -> None:
        self._model, self._prompts, self._training = model, prompts, training
        self._sampling = sampling

    def write(self, labels: Sequence[str | None]) -> list[str]:
        """One text per label."""
        template, most = self._training.template, self._training.max_tokens
        rows = [self._prompts.public(template, label) for label in labels]
        texts = self._model.continue_rows(
            rows,
            max_tokens=most,
            sampling=self._sampling,
            ran_out=Ending().trim_unfinished if self._sampling.whole_sentences else str,
        )
        return [as_text(text).strip() for text in texts]

    def likelihoods(
        self, labels: Sequence[str | None], texts: Sequence[str]
    ) -> NDArray[np.float64]:
        """Log-likelihood in nats of each text after its label's prompt, shape (texts,)."""
        template, most = self._training.template, self._training.max_tokens
        rows = [
            self._prompts.public_and_text(template, label, text, most)
            for label, text in zip(labels, texts, strict=True)
        ]
        return of_sequences(self._model.network, rows)
