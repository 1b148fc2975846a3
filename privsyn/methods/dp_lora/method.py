"""DP-LoRA: an adapter trained on the records by DP-SGD, and texts it writes at no further cost.

Source: Yu et al. 2023, "Training private and efficient language models with synthetic data from
LLMs", sections 2 and 3, Table 2; the training loop is Algorithm 1 of Abadi et al. 2016, "Deep
learning with differential privacy", with Poisson sampling. Guarantee, assumptions and every
deviation: guarantee.md, whose tags [L1] ... stand at the lines they speak of.

Symbols as in Abadi et al.: sampling rate q, steps T, clip norm C, noise multiplier sigma.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from privsyn.data.records import Bucket, Cell
from privsyn.derived.student.distillation import SIZES
from privsyn.dp import accountant
from privsyn.dp.accountant import Guarantee
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.events import Event
from privsyn.dp.events import Sequence as EventSequence
from privsyn.dp.mechanisms import DiscreteGaussian, SampledGaussian, Sampler
from privsyn.errors import ConfigError, PrivsynError
from privsyn.methods.base import ANYTHING, Backends, MethodPlan, Role, Sample, Subject, unwatched
from privsyn.methods.dp_lora.settings import DPLoraConfig
from privsyn.methods.shared import label_split
from privsyn.methods.shared.alone import Recipe
from privsyn.methods.shared.prompts import RECORDS, PromptConfig, default_prompt
from privsyn.models.language.loading import check_layers
from privsyn.models.protocols import PromptTemplate, Trainer, Training
from privsyn.models.settings import ModelsConfig, PerformanceConfig

if TYPE_CHECKING:
    from privsyn.data.journal import Journal
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity

LABELS = "labels.json"
"""Among the trained files: how many texts of each label the release holds."""

_LATTICE = 1 << 20

_WRITTEN_TOGETHER = 256

_TOLERANCE = 1e-3
"""How close to the least noise the solver goes: each look at a loss distribution takes a while."""


class DPLora:
    """A language model adapted to the records by DP-SGD, which then writes the release.

    Guarantee: T steps of a Poisson-sampled Gaussian mechanism with rate q and noise multiplier
    sigma, for neighbours that differ by one unit that is there or contributes nothing (Abadi et al.
    2016; Mironov, Talwar, Zhang 2019). A unit's gradient, over all its records, is clipped once, so
    sigma does not grow with the records of a unit. What is written is post-processing.
    """

    name: ClassVar[str] = "dp_lora"
    title: ClassVar[str] = "DP-LoRA"
    paper: ClassVar[str] = "Yu et al. 2023, Synthetic data from LLMs, section 3"
    Config: ClassVar[type[DPLoraConfig]] = DPLoraConfig
    whole: ClassVar[bool] = True  # a step samples from all records
    samples: ClassVar[bool] = True
    makes_students: ClassVar[bool] = True
    counts: ClassVar[str] = "texts"

    def roles(self, cfg: DPLoraConfig) -> tuple[Role, ...]:
        """A language model that can be trained."""
        return ("base",)

    def resolve(
        self, cfg: DPLoraConfig, models: Mapping[Role, ModelIdentity], subject: Subject = ANYTHING
    ) -> DPLoraConfig:
        """Settings with the model's own prompt where the config leaves it open."""
        own = default_prompt(models["base"])
        if own.chat:  # an instruction is no prefix of a text
            own = PromptConfig(private=RECORDS.private, public=RECORDS.public)
        if cfg.prompt is not None:
            own = PromptConfig(private="{reference}", public=cfg.prompt, chat=cfg.chat)
        return cfg.model_copy(
            update={
                "prompt": subject.fill(own.public),
                "chat": own.chat,
                "label_descriptions": cfg.label_descriptions or dict(subject.descriptions),
            }
        )

    def plan(
        self,
        cfg: DPLoraConfig,
        target: Guarantee,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        labels: Sequence[str],
        solved: Mapping[str, float] | None = None,
    ) -> MethodPlan:
        """Event of all steps; sigma is the least the target allows where the config is open.

        Raises:
            ConfigError: Adjacency replace_one, a split that does not fit the labels, or a target
                that so many steps cannot reach.
        """
        if adjacency is Adjacency.REPLACE_ONE:  # [L1]
            raise ConfigError(
                "account.adjacency=replace_one: Poisson sampling is not private in this sense at "
                "the price charged here.",
                hint="Use an account with add_remove or replace_null, or another method.",
            )
        sizes = _sizes(cfg, list(labels) or [None])
        sigma = solved["noise_multiplier"] if solved else cfg.noise_multiplier
        if sigma is None:
            sigma = _least_noise(
                cfg.sampling_rate, cfg.steps, cfg.label_noise, unit.max_records, target
            )
        event = _event(cfg.sampling_rate, sigma, cfg.steps, cfg.label_noise, unit.max_records)
        return MethodPlan(
            event=event,
            derived=dict(solved)
            if solved and "epsilon_rdp" in solved
            else {
                "noise_multiplier": sigma,
                "epsilon_rdp": accountant.renyi_epsilon(event, target.delta),
                **_tight(event, target.delta),
            },
            warnings=_advice(cfg, sigma),
            rows=(sum(sizes), sum(sizes)),
        )

    def cells(self, cfg: DPLoraConfig, labels: Sequence[str]) -> list[Cell]:
        """One cell per label."""
        return Cell.grid(labels, 1)

    def alone(self, cfg: DPLoraConfig, labels: Sequence[str]) -> Recipe | None:
        """The prompt, answered by the model before it is trained."""
        template = cfg.template(labels)
        prompt = PromptConfig(
            private=template.private,
            public=template.public,
            chat=template.chat,
            labels=dict(template.labels),
            stops=(),
        )
        return Recipe(
            prompt=prompt,
            max_tokens=cfg.max_tokens,
            temperature=cfg.temperature,
            top_k=cfg.top_k,
        )

    def prompt(self, cfg: DPLoraConfig) -> tuple[PromptTemplate, int, int]:
        """What the model's context must hold: prompt and record."""
        return cfg.template(["label"]), cfg.max_tokens, 0

    def preflight(
        self, cfg: DPLoraConfig, unit: PrivacyUnit, labels: Sequence[str], models: Backends
    ) -> None:
        """A public pass of the model that is to be trained."""
        models.base.check(_training(cfg, list(labels) or [None], unit))

    def check_models(self, cfg: DPLoraConfig, models: ModelsConfig) -> None:
        """Whether the model has the layers to adapt; a model made for the release has none yet."""
        if cfg.student is None:
            check_layers(models, cfg.target_modules)

    def writes_behind(self, cfg: DPLoraConfig, labels: Sequence[str]) -> PromptTemplate:
        """The prompt of a record."""
        return cfg.template(labels)

    def teacher(self, cfg: DPLoraConfig, base: Path, trained: Path, dtype: str, device: Any) -> Any:
        """The language model with the release's adapter merged into it."""
        from privsyn.models.training.causal_lm import load_teacher

        return load_teacher(base, trained, dtype, device)

    def as_student(self, size: str) -> Mapping[str, Any]:
        """A small model in place of an adapter."""
        return {"student": size}

    def train(
        self,
        cfg: DPLoraConfig,
        plan: MethodPlan,
        adjacency: Adjacency,
        unit: PrivacyUnit,
        buckets: Sequence[Bucket],
        models: Backends,
        noise: NoiseSource,
        journal: Journal,
        performance: PerformanceConfig,
        progress: Callable[[int, int], None] = unwatched,
    ) -> Mapping[str, bytes]:
        """The adapter's files: the only thing that is computed from records.

        Raises:
            PrivsynError: The adapter did not move, though it was trained.
        """
        mechanism = _mechanism(
            cfg.sampling_rate, plan.derived["noise_multiplier"], cfg.steps, cfg.sampler
        )
        labels = [bucket.cell.label for bucket in buckets]
        trainer = models.base.trainer(_training(cfg, labels, unit))
        sizes = _sizes(cfg, labels)
        if cfg.label_noise is not None:  # [L6]
            draw = partial(_label_histogram, cfg.label_noise, buckets, unit, noise)
            sizes = label_split.apportion(
                sum(sizes), journal.draw_array("labels", draw, len(labels))
            )
        units = _units(trainer, buckets)
        done = max((t for t in range(cfg.steps + 1) if journal.has(f"steps/{t}")), default=0)
        while done < cfg.steps:  # [L5]
            if done:
                trainer.restore(journal.draw_file(f"steps/{done}", _never))
            steps = range(done, min(done + performance.checkpoint_steps, cfg.steps))
            advance = partial(_advance, cfg, mechanism, trainer, units, noise, steps, progress)
            journal.draw_file(f"steps/{steps.stop}", advance)
            if done:
                journal.drop_file(f"steps/{done}")
            done = steps.stop
        trainer.restore(journal.draw_file(f"steps/{done}", _never))
        if not trainer.moved():
            raise PrivsynError("the adapter did not move in training: its layers are not reached.")
        counts = dict(zip(map(str, labels), sizes, strict=True))
        return {**trainer.files(), LABELS: (json.dumps(counts) + "\n").encode()}

    def write(
        self,
        cfg: DPLoraConfig,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
        trained: Path,
        shard: tuple[int, int],
        progress: Callable[[int, int], None] = unwatched,
    ) -> Iterator[Sample]:
        """The texts of one shard, by the adapted model: every n-th, from the shard's number on."""
        number, shards = shard
        counts = json.loads((trained / LABELS).read_bytes())
        cells = self.cells(cfg, labels)
        wanted = [cell for cell in cells for _ in range(counts[str(cell.label)])][number::shards]
        writer = models.base.writer(
            _training(cfg, [cell.label for cell in cells], unit),
            trained,
            top_k=cfg.top_k,
            temperature=cfg.temperature,
        )
        for start in range(0, len(wanted), _WRITTEN_TOGETHER):
            progress(start, len(wanted))
            part = wanted[start : start + _WRITTEN_TOGETHER]
            texts = writer.write([cell.label for cell in part])
            yield from (Sample(cell, text) for cell, text in zip(part, texts, strict=True))

    def more(
        self,
        cfg: DPLoraConfig,
        models: Backends,
        records: Sequence[tuple[str | None, str | bytes]],
        count: int,
        trained: Path | None = None,
        progress: Callable[[int, int], None] = unwatched,
    ) -> Iterator[tuple[str | None, str | bytes]]:
        """Further texts by the released adapter, labels in the release's shares. Free, unlimited.

        Raises:
            ConfigError: The release's adapter is not here.
        """
        if trained is None:
            raise ConfigError("the release holds no adapter.", hint="Restore its folder with DVC.")
        known = list(dict.fromkeys(label for label, _ in records))
        places = np.linspace(0, len(records), count, endpoint=False).astype(int)
        wanted = [records[place][0] for place in places]
        writer = models.base.writer(
            _training(cfg, known, PrivacyUnit()),
            trained,
            top_k=cfg.top_k,
            temperature=cfg.temperature,
        )
        for start in range(0, count, _WRITTEN_TOGETHER):
            progress(start, count)
            part = wanted[start : start + _WRITTEN_TOGETHER]
            yield from zip(part, writer.write(part), strict=True)


def _mechanism(
    rate: float, sigma: float, steps: int, sampler: Sampler = "opendp"
) -> SampledGaussian:
    """Samples and noise of all steps: the one place where noise and cost come from."""
    return SampledGaussian(rate, sigma, steps, sampler)


def _advance(
    cfg: DPLoraConfig,
    mechanism: SampledGaussian,
    trainer: Trainer,
    units: Sequence[Sequence[Any]],
    noise: NoiseSource,
    steps: range,
    progress: Callable[[int, int], None],
) -> bytes:
    """Algorithm 1 of Abadi et al. from one checkpoint to the next."""
    for t in steps:
        progress(t, cfg.steps)
        chosen = mechanism.sample(len(units), noise)  # a random sample L_t [L2]
        total = trainer.clipped_sum(list(compress(units, chosen)))  # [L3]
        noisy = mechanism.draw(total, noise)  # also where nobody was sampled
        trainer.update(noisy * (cfg.clip_norm / cfg.expected_batch), cfg.rate(t))  # [L4]
    return trainer.state()


def _units(trainer: Trainer, buckets: Sequence[Bucket]) -> list[list[Any]]:
    """Training sequences by unit, over all labels."""
    units: dict[str, list[Any]] = {}
    for bucket in buckets:
        pairs = zip(bucket.units.reveal(), bucket.texts.reveal(), strict=True)
        for unit, text in pairs:
            units.setdefault(unit, []).append(trainer.encode(bucket.cell.label, text))
    return [units[unit] for unit in sorted(units)]


def _label_histogram(
    sigma: float, buckets: Sequence[Bucket], unit: PrivacyUnit, noise: NoiseSource
) -> Any:
    counts = np.array([len(bucket.texts.reveal()) for bucket in buckets], np.int64)
    return _histogram(sigma, unit.max_records).draw(counts * _LATTICE, noise)


def _histogram(sigma: float, records: int) -> DiscreteGaussian:
    """Records per label: a unit's m records may all be of one label."""
    return DiscreteGaussian(float(records * _LATTICE), sigma * records * _LATTICE)


def _event(rate: float, sigma: float, steps: int, label_noise: float | None, records: int) -> Event:
    event = _mechanism(rate, sigma, steps).event
    if label_noise is None:
        return event
    return EventSequence((event, _histogram(label_noise, records).event))


@lru_cache(maxsize=64)
def _least_noise(
    rate: float, steps: int, label_noise: float | None, records: int, target: Guarantee
) -> float:
    """The least sigma within the target, up to _TOLERANCE, rounded up to 4 digits."""

    def event(sigma: float) -> Event:
        return _event(rate, sigma, steps, label_noise, records)

    solve = partial(accountant.calibrate, event, target, increasing=False)
    try:
        # By the Renyi curve first: quick, and not more than a few percent too high.
        safe = solve(0.0625, 1e4, price=accountant.renyi_epsilon, tolerance=1e-2)
        safe = solve(max(0.0625, 0.7 * safe), safe, tolerance=_TOLERANCE)
    except ValueError:
        raise ConfigError(
            f"methods.dp_lora: steps={steps} at sampling_rate={rate:g} cannot be had for "
            f"privacy.epsilon={target.epsilon:g} at delta={target.delta:g}, whatever the noise.",
            hint="Lower steps or sampling_rate, or raise privacy.epsilon.",
        ) from None
    return float(math.ceil(safe * 1e4) / 1e4)


def _tight(event: Event, delta: float) -> dict[str, float]:
    """Epsilon by the loss distribution, where there is one."""
    found = accountant.loss_distribution_epsilon(event, delta)
    return {"epsilon_pld": found} if math.isfinite(found) else {}


def _never() -> bytes:
    raise AssertionError("a checkpoint on file is not drawn again")


def _training(cfg: DPLoraConfig, labels: Sequence[str | None], unit: PrivacyUnit) -> Training:
    named = [label for label in labels if label is not None]
    return Training(
        template=cfg.template(named),
        labels=tuple(labels),
        max_tokens=cfg.max_tokens,
        clip_norm=cfg.clip_norm,
        records_per_unit=unit.max_records,
        micro_batch=cfg.micro_batch,
        rank=cfg.rank,
        alpha=cfg.alpha,
        target_modules=cfg.target_modules,
        student=None if cfg.student is None else SIZES[cfg.student],
    )


def _sizes(cfg: DPLoraConfig, labels: Sequence[str | None]) -> list[int]:
    """Texts of every label."""
    paid = cfg.label_noise is not None
    return label_split.sizes(
        "methods.dp_lora", labels, cfg.texts_per_label, cfg.label_split, paid=paid
    )


def _advice(cfg: DPLoraConfig, sigma: float) -> tuple[str, ...]:
    where, told = "methods.dp_lora", []
    epochs = cfg.sampling_rate * cfg.steps
    if epochs < 1:
        told.append(
            f"{where}: steps={cfg.steps} at sampling_rate={cfg.sampling_rate:g} are {epochs:.2g} "
            "passes over the data; more steps would use more of it."
        )
    if sigma / cfg.expected_batch > 0.05:
        told.append(
            f"{where}: noise of {sigma:.3g} clip norms on a mean over expected_batch="
            f"{cfg.expected_batch:g} units drowns small models; a larger batch, or more budget, "
            "helps."
        )
    return tuple(told)
