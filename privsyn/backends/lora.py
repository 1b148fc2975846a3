"""A TrainableModel over transformers: low-rank adapters by PEFT, per-sample gradients by Opacus.

Every pass has one fixed shape: rows are padded on the right to a public length and spare slots hold
rows without loss, so that a row's gradient depends on its own tokens and the adapter alone. Whether
the kernels of this machine keep to that is probed before the first private row; where they do not,
units go through one by one. Sums are of integers, exact in any order.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from privsyn.backends.hf_text import HFTextModel
from privsyn.backends.prompts import PromptEncoder, context_length
from privsyn.backends.protocols import Row, Training
from privsyn.backends.student import Shape, new_model, read_model, save, seeded
from privsyn.backends.trial import refuse_no_numbers
from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.errors import ModelError

WIDTH_MULTIPLE = 16
"""Rows are padded to a multiple: attention in float32 treats odd lengths apart."""

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_SAFE = 1 - 2.0**-20
"""Taken off a clipped gradient for the roundings of float32."""

_IGNORED = -100
_START = 0
"""Seed of the first weights: a resumed run begins from the same, and can tell that they moved."""


class LoraModel:
    """A causal language model to be adapted. See protocols.TrainableModel.

    Args:
        load: Reads the model anew, on its device: an adapter changes it for good.
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
        self._fresh = [load()]  # now: a model that does not load must not cost anything

    def check(self, training: Training) -> None:
        """See protocols.TrainableModel."""
        if not self._fresh:
            self._fresh.append(self._load())
        network, tokenizer = self._fresh[-1]
        prompts = PromptEncoder(tokenizer, self._source)
        rows = [prompts.public(training.template, label) for label in training.labels]
        if training.student is not None:
            return  # of random weights: nothing of this network is trained
        _within_context(network, max(map(len, rows)) + training.max_tokens, self._source)
        target_modules(network, training.target_modules, self._source)
        with torch.no_grad():
            ids = torch.tensor([rows[0]], device=network.device)
            refuse_no_numbers(network(input_ids=ids).logits[:, -1].float().cpu().numpy())

    def trainer(self, training: Training) -> LoraTrainer:
        """See protocols.TrainableModel."""
        network, tokenizer = self._take()
        return LoraTrainer(network, tokenizer, training, self._source, self._checkpointing)

    def writer(
        self, training: Training, folder: Path, *, top_k: int | None, temperature: float
    ) -> LoraWriter:
        """See protocols.TrainableModel."""
        network, tokenizer = self._take()
        if training.student is not None:
            adapted = read_model(folder).to(network.device)
        else:
            from peft import PeftModel

            with _unwarned():
                adapted = PeftModel.from_pretrained(network, str(folder)).merge_and_unload()
        model = HFTextModel(
            self._settle(adapted),
            tokenizer,
            source=self._source,
            revision=self.revision,
            rows_per_pass=self._rows,
            cache_bytes=self._cache_bytes,
            top_k=top_k,
        )
        return LoraWriter(model, PromptEncoder(tokenizer, self._source), training, temperature)

    def _take(self) -> tuple[Any, Any]:
        return self._fresh.pop() if self._fresh else self._load()


class LoraWriter:
    """See protocols.Writer."""

    def __init__(
        self, model: HFTextModel, prompts: PromptEncoder, training: Training, temperature: float
    ) -> None:
        self._model, self._prompts, self._training = model, prompts, training
        self._temperature = temperature

    def write(self, labels: Sequence[str | None]) -> list[str]:
        """See protocols.Writer."""
        template, most = self._training.template, self._training.max_tokens
        rows = [self._prompts.public(template, label) for label in labels]
        texts = self._model.continued(rows, max_tokens=most, temperature=self._temperature)
        return [text.strip() for text in texts]


class LoraTrainer:
    """Per-unit clipped gradients of a LoRA adapter. See protocols.Trainer.

    Args:
        network: A transformers model on its device; an adapter is added to it.
        tokenizer: Its tokenizer.
        training: Public settings.
        source: What the model is called in messages.
        checkpointing: See LoraModel.

    Raises:
        ModelError: No layer to adapt, or a context shorter than prompt and record.

    Source: Hu et al. 2022 (LoRA); Abadi et al. 2016, Algorithm 1 (clipping).
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        training: Training,
        source: str,
        checkpointing: bool = False,
    ) -> None:
        self._training, self._source = training, source
        self._eos = int(tokenizer.eos_token_id)
        self._prompts = PromptEncoder(tokenizer, source)
        longest = max(len(self._prompts.public(training.template, x)) for x in training.labels)
        self._width = _padded(longest + training.max_tokens)
        self._device = network.device
        if training.student is None:
            self._width = _within_context(network, longest + training.max_tokens, source)
            self._network = adapt(network, training, source)
        else:
            network = self._network = small(network, tokenizer, training.student, self._width)
        self._tokenizer = tokenizer
        _without_dropout(self._network)
        if checkpointing:
            network.enable_input_require_grads()
            with _unwarned():  # transformers renames it
                network.gradient_checkpointing_enable({"use_reentrant": True})
        self._network.train()
        self._parts = [p for p in self._network.parameters() if p.requires_grad]
        self.size = sum(part.numel() for part in self._parts)
        self._theta = nn.Parameter(torch.cat([p.detach().float().flatten() for p in self._parts]))
        self._began = self._theta.detach().clone()
        self._optimiser = torch.optim.AdamW([self._theta], weight_decay=0.0)
        self._hooks = _attach_hooks(self._network)
        self.units_per_pass = max(1, training.micro_batch // training.records_per_unit)
        self._settle_passes()

    def encode(self, label: str | None, text: str) -> Row:
        """Prompt, record, and the end where the record was not cut. See protocols.Trainer."""
        prompt = self._prompts.public(self._training.template, label)
        template = self._training.template
        lead = "" if template.chat or template.public.endswith((" ", "\n")) else " "
        ids = self._prompts.reference(text.strip(), lead, self._training.max_tokens)
        if len(ids) < self._training.max_tokens:
            ids.append(self._eos)
        return [*prompt, *ids], len(prompt)

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """See protocols.Trainer."""
        while True:
            try:
                return self._sum(units)
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                if self.units_per_pass == 1:
                    raise MemoryError("one unit's records do not fit") from None
            # Outside the except block, which would keep the tensors of the failed pass.
            self.units_per_pass = -(-self.units_per_pass // 2)
            self._forget()
            self._settle_passes()  # other shapes may take other kernels

    def _sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        total = torch.zeros(self.size, dtype=torch.float64, device=self._device)
        for start in range(0, len(units), self.units_per_pass):
            parts = self._contributions(units[start : start + self.units_per_pass])
            # Whole numbers below 2^53: exact in float64 and in any order.
            total += torch.cat([part.sum(0, dtype=torch.float64) for part in parts])
        return np.asarray(total.to(torch.int64).cpu().numpy())

    def _contributions(self, units: Sequence[Sequence[Row]]) -> list[Tensor]:
        """What each slot adds, whole numbers in float32, shape (slots, numbers) by part."""
        self._backward(*self._batch(units))
        records = self._training.records_per_unit
        gradients = []
        for part in self._parts:
            rows = part.grad_sample.flatten(1)
            part.grad_sample = part.grad = None
            gradients.append(rows.view(-1, records, rows.shape[1]).sum(1) if records > 1 else rows)
        return clip_to_lattice(gradients, self._training.clip_norm)

    def _batch(self, units: Sequence[Sequence[Row]]) -> tuple[Tensor, Tensor]:
        """Tokens and what is to be predicted, each of one shape whatever the units."""
        records = self._training.records_per_unit
        tokens = np.full((self.units_per_pass * records, self._width), self._eos)
        targets = np.full_like(tokens, _IGNORED)
        for place, unit in enumerate(units):
            for number, (ids, start) in enumerate(unit[:records]):
                row = place * records + number
                tokens[row, : len(ids)] = ids
                targets[row, start - 1 : len(ids) - 1] = ids[start:]
        return tuple(torch.from_numpy(array).to(self._device) for array in (tokens, targets))

    def _backward(self, tokens: Tensor, targets: Tensor) -> None:
        """Sum over rows of each row's own mean loss: never a mean over the batch's tokens."""
        logits = self._network(input_ids=tokens, use_cache=False).logits
        flat = F.cross_entropy(
            logits.flatten(0, 1).float(),
            targets.flatten(),
            ignore_index=_IGNORED,
            reduction="none",
        )
        losses = flat.view_as(targets)
        own = (targets != _IGNORED).sum(1).clamp(min=1)
        with _unwarned():
            (losses.sum(1) / own).sum().backward()

    def _forget(self) -> None:
        """Drop what a pass that failed left behind."""
        for part in self._parts:
            part.grad_sample = part.grad = None
            part.__dict__.pop("_current_grad_sample", None)
            part._forward_counter = 0
        for module in self._network.modules():
            module.__dict__.pop("max_batch_len", None)
            if hasattr(module, "activations"):
                module.activations = []

    def _settle_passes(self) -> None:
        """So many units per pass, or half as many, as memory has room for; one where they mix."""
        while True:
            try:
                apart: bool | None = self._keeps_units_apart()
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                apart = None
            if apart is None:
                self._forget()
            if apart or self.units_per_pass == 1:
                return
            self.units_per_pass = 1 if apart is False else -(-self.units_per_pass // 2)

    def _keeps_units_apart(self) -> bool:
        """Whether a unit's contribution is the same to the last bit wherever it stands.

        And beside whom: a mean over the batch does not mind the order.
        """
        rng = np.random.default_rng(0)  # public numbers; any would do
        size = int(self._network.config.get_text_config().vocab_size)
        rows = [
            (rng.integers(0, size, rng.integers(2, self._width + 1)).tolist(), 1)
            for _ in range(self.units_per_pass)
        ]
        # Fresh adapters have a half of zeros, and gradients of the other half then are zero too.
        noise = torch.from_numpy(rng.normal(scale=0.02, size=self.size)).float()
        self._write(self._theta.detach() + noise.to(self._device))
        try:
            # A process's first pass may take other kernels than all after it: it does not count.
            for _ in range(2):
                forth = self._contributions([[row] for row in rows])
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
        """See protocols.Trainer."""
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._theta.grad = torch.from_numpy(gradient).float().to(self._device)
        self._optimiser.step()
        self._write(self._theta.detach())

    def numbers(self) -> NDArray[np.float32]:
        """See protocols.SharedTrainer."""
        return np.array(self._theta.detach().cpu().numpy())

    def take(self, numbers: NDArray[np.float32]) -> None:
        """See protocols.SharedTrainer."""
        with torch.no_grad():
            self._theta.copy_(torch.from_numpy(numbers))
        self._write(self._theta.detach())

    def _write(self, theta: Tensor) -> None:
        """Numbers into the network."""
        start = 0
        with torch.no_grad():
            for part in self._parts:
                part.copy_(theta[start : start + part.numel()].view_as(part))
                start += part.numel()

    def _read(self) -> Tensor:
        """Numbers the network computes with."""
        return torch.cat([part.detach().float().flatten() for part in self._parts])

    def state(self) -> bytes:
        """See protocols.Trainer."""
        kept = self._optimiser.state[self._theta] if self._optimiser.state else {}
        tensors = {name: torch.as_tensor(value) for name, value in kept.items()}
        saved: bytes = save_tensors(
            {"theta": self._theta.detach().cpu()}
            | {f"optimiser.{name}": tensor.cpu() for name, tensor in tensors.items()}
        )
        return saved

    def restore(self, state: bytes) -> None:
        """See protocols.Trainer."""
        tensors = load_tensors(state)
        with torch.no_grad():
            self._theta.copy_(tensors.pop("theta").to(self._device))
        own = {name.partition(".")[2]: value for name, value in tensors.items()}
        whole = self._optimiser.state_dict()
        self._optimiser.load_state_dict(whole | {"state": {0: own} if own else {}})
        self._write(self._theta.detach())

    def moved(self) -> bool:
        """See protocols.Trainer."""
        return not torch.equal(self._read(), self._began)

    def files(self) -> Mapping[str, bytes]:
        """The adapter as PEFT reads it, or a model folder. See protocols.Trainer."""
        if self._training.student is not None:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                save(self._network, self._tokenizer, self._training.template, folder)
                return {file.name: file.read_bytes() for file in folder.iterdir()}
        from peft import get_peft_model_state_dict

        tensors = get_peft_model_state_dict(self._network)
        config = self._network.peft_config["default"].to_dict()
        config |= {"base_model_name_or_path": self._source, "inference_mode": True}
        plain = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
        return {
            WEIGHTS: save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()}),
            CONFIG: (json.dumps(plain, indent=2, sort_keys=True) + "\n").encode(),
        }


def clip_to_lattice(gradients: Sequence[Tensor], clip_norm: float) -> list[Tensor]:
    """Scale the gradient of every unit to at most ``clip_norm`` and round it toward zero.

    Guarantee: what a unit adds has an L2 norm of at most CLIP_STEPS over all parts together, for
    any input whatever, and is a function of that unit's gradient alone. The norm is checked on the
    whole numbers themselves, exactly; a unit that fails the check, or is not finite, adds zeros.

    Args:
        gradients: By part, shape (units, numbers).
        clip_norm: The norm C that becomes CLIP_STEPS lattice steps.

    Returns:
        Whole numbers of at most CLIP_STEPS in float32, which holds them exactly; shapes as given.

    Source: Abadi et al. 2016, Algorithm 1.
    """
    norms = _squares(gradients).sqrt()
    factors = (_SAFE * CLIP_STEPS / norms.clamp(min=clip_norm)).float()[:, None]
    whole = [(part.float() * factors).trunc_() for part in gradients]
    # Sums of squares below 2^53 are exact, and false for NaN.
    sound = (_squares(whole) <= CLIP_STEPS**2)[:, None]
    return [torch.where(sound, part, torch.zeros_like(part)) for part in whole]


def _squares(parts: Sequence[Tensor]) -> Tensor:
    """Squared L2 norm of each row over all parts, in float64."""
    return torch.stack([part.double().square().sum(1) for part in parts]).sum(0)


def adapt(network: Any, training: Training, source: str) -> Any:
    """The network with a fresh low-rank adapter, the only part that is trained.

    Raises:
        ModelError: It has none of the wanted layers; says which linear layers it has.
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
    with _unwarned(), seeded(_START, network.device):
        return get_peft_model(network, config)


def small(network: Any, tokenizer: Any, shape: tuple[int, int, int], width: int) -> Any:
    """A student with random weights, for the tokens of a network, all of which is trained.

    But for the scales of its norms, which stay 1: Opacus has no per-sample gradients of Llama's.
    """
    vocabulary = int(network.config.get_text_config().vocab_size)
    with seeded(_START, network.device):
        model = new_model(Shape(*shape), vocabulary, tokenizer, width)
    for name, part in model.named_parameters():
        part.requires_grad_("norm" not in name)
    return model.to(network.device)


def target_modules(network: Any, wanted: Sequence[str] | None, source: str) -> list[str]:
    """Names of the layers to adapt: those wanted, or what PEFT takes for the architecture.

    ``("all-linear",)`` names every linear layer but the one of the vocabulary.

    Raises:
        ModelError: The network lacks one of them, or its architecture is not known to PEFT.
    """
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    found = linear_layers(network)
    listed = f"Its linear layers are: {', '.join(found)}." if found else "It has no linear layer."
    where = f"models.language={source}"
    if wanted == ("all-linear",) and found:
        return found
    kind = network.config.get_text_config().model_type
    names = list(wanted) if wanted else list(KNOWN.get(kind, ()))
    if not names:
        raise ModelError(
            f"{where}: no layers to adapt are known for the architecture {kind}. {listed}",
            hint="Set methods.dp_lora.target_modules to some of them.",
        )
    missing = [name for name in names if name not in found]
    if missing:
        raise ModelError(
            f"{where} has no linear layer {missing[0]} to adapt. {listed}",
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


def _attach_hooks(network: Any) -> Any:
    """Per-sample gradients of every layer with something to train, as ``grad_sample``."""
    root = logging.getLogger()
    before = list(root.handlers)
    from opacus.grad_sample import GradSampleHooks

    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)  # opacus sets up everybody's logging when it is imported
    return GradSampleHooks(network, loss_reduction="sum", strict=False)


def _without_dropout(network: nn.Module) -> None:
    """Dropout draws for the whole batch at once: rows would not be independent.

    Architectures keep their rates in modules, in attributes of layers, and in the config.
    """
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(vars(holder).items() if holder is not None else ()):
                if "drop" in name and isinstance(value, float):
                    setattr(holder, name, 0.0)


def _padded(tokens: int) -> int:
    return -(-tokens // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


def _within_context(network: Any, tokens: int, source: str) -> int:
    """Length rows are padded to, which may be all of the context."""
    longest = context_length(network.config.get_text_config())
    if longest is None:
        return _padded(tokens)
    if tokens > longest:
        raise ModelError(
            f"models.language={source}: its context of {longest} tokens is shorter than prompt and "
            f"record together ({tokens}).",
            hint="Lower methods.dp_lora.max_tokens, or use another model.",
        )
    return min(_padded(tokens), longest)


@contextmanager
def _unwarned() -> Iterator[None]:
    """Keep the libraries' advice to each other off the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "DefaultCPUAllocator" in text
        or "out of memory" in text
        or "ALLOC_FAILED" in text
    )
