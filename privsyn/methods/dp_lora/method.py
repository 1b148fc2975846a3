"""DP-LoRA: trains an adapter on the records by DP-SGD, then writes texts at no further cost.

Source: Yu et al. 2023, "Training private and efficient language models with synthetic data from
LLMs", sections 2 and 3, Table 2; the training loop is Algorithm 1 of Abadi et al. 2016, "Deep
learning with differential privacy", with Poisson sampling. guarantee.md has the guarantee, its
assumptions and every deviation from the papers; its tags [L1] ... mark the lines they explain.

Symbols as in Abadi et al.: sampling rate q, steps T, clip norm C, noise multiplier sigma.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from privsyn import layout
from privsyn.data.records import Bucket
from privsyn.dp.adjacency import PrivacyUnit
from privsyn.dp.mechanisms import SampledGaussian
from privsyn.errors import ConfigError, PrivsynError
from privsyn.methods.base import (
    Backends,
    Draw,
    Finished,
    Method,
    OnProgress,
    Record,
    Role,
    Sample,
    Size,
    Work,
    silent,
)
from privsyn.methods.dp_lora.mechanism import DPLoraMechanism, calibrate, rebuild, sizes_of
from privsyn.methods.dp_lora.settings import DPLoraConfig, DPLoraSettings
from privsyn.methods.shared import label_choice
from privsyn.methods.shared.label_choice import best_of
from privsyn.methods.shared.prompts import RECORDS, Prompt, default_prompt
from privsyn.models.loading import check_layers
from privsyn.models.protocols import PromptTemplate, Trainer, Training, Writer
from privsyn.models.rows import ANYTHING, NO_ROWS, Subject, SyntheticRows, with_row
from privsyn.models.settings import ModelsConfig
from privsyn.models.trial import SENTENCE

if TYPE_CHECKING:
    from privsyn.dp.noise import NoiseSource
    from privsyn.models.model_identity import ModelIdentity

LABELS = "labels.json"
"""Name of the trained file with the number of texts per label."""
CHECKPOINT_STEPS = 10
"""Training steps between checkpoints; a killed run repeats at most this many."""

_WRITTEN_TOGETHER = 256
"""Texts per call of the writer."""
_TRAINING_PASS = 8
"""Memory of a row that is trained on, in rows of a forward pass, roughly."""
_ALPHA = 2.0
"""The adapter's output is scaled by this, as is usual: alpha over its rank."""
_LARGEST_RATE = 0.25
"""Most of all units that a step samples, where sizes follow from their number: for equally many
passes large batches have more signal, and beyond it sampling hardly adds privacy."""


class DPLora(Method[DPLoraSettings]):
    """A language model adapted to the records by DP-SGD, which then writes the release.

    Guarantee: T steps of a Poisson-sampled Gaussian mechanism with rate q and noise multiplier
    sigma. Neighbors differ by one unit that is there or contributes nothing (Abadi et al. 2016;
    Mironov, Talwar, Zhang 2019). A unit's gradient, over all its records, is clipped once, so sigma
    does not grow with the records of a unit. The texts are post-processing.
    """

    name: ClassVar[str] = "dp_lora"
    title: ClassVar[str] = "DP-LoRA"
    paper: ClassVar[str] = "Yu et al. 2023, Synthetic data from LLMs, section 3"
    Config: ClassVar[type[DPLoraConfig]] = DPLoraConfig
    Settings: ClassVar[type[DPLoraSettings]] = DPLoraSettings
    makes_students: ClassVar[bool] = True
    counts: ClassVar[str] = "texts"
    tuning_hint: ClassVar[str] = "steps or expected_batch"

    calibrate = staticmethod(calibrate)
    rebuild = staticmethod(rebuild)

    def roles(self, cfg: DPLoraConfig) -> tuple[Role, ...]:
        """One language model, which this method trains."""
        return ("base",)

    def resolve(
        self, cfg: DPLoraConfig, models: Mapping[Role, ModelIdentity], subject: Subject = ANYTHING
    ) -> DPLoraSettings:
        """Settings with the model's own prompt where the config has none."""
        prompt = default_prompt(models["base"])
        if prompt.chat:  # an instruction cannot be the beginning of a record
            prompt = Prompt(private=RECORDS.private, public=RECORDS.public)
        if cfg.prompt is not None:
            prompt = Prompt(private="{reference}", public=cfg.prompt)
        filled: dict[str, Any] = {
            "prompt": subject.fill(prompt.public),
            "label_descriptions": dict(subject.descriptions),
        }
        return DPLoraSettings(**{**dict(cfg), **filled})

    def additions(self, cfg: DPLoraConfig, labels: Sequence[str]) -> dict[str, bool]:
        """What is in no line of Yu et al."""
        chosen = cfg.candidates > 1 and len(labels) > 1
        return {"a choice among candidates by their label": chosen}

    def for_texts(self, cfg: DPLoraConfig, size: Size) -> dict[str, Any]:
        """The texts per label, and batches of the units there are, with as many passes as before.

        A step samples as many units as ``cfg`` expects, if these are at most a quarter of all.
        """
        values: dict[str, Any] = {"texts_per_label": size.each} | size.lengths("max_tokens")
        if cfg.label_split is not None:
            values = values | {"label_split": label_choice.split_by(cfg.label_split, size.texts)}
        if size.units is not None:
            rate = max(cfg.sampling_rate, min(_LARGEST_RATE, cfg.expected_batch / size.units))
            if rate > cfg.sampling_rate:
                values["sampling_rate"] = rate
                values["steps"] = max(1, round(cfg.steps * cfg.sampling_rate / rate))
            values["expected_batch"] = max(1, round(rate * size.units))
        return values

    def prompt(self, settings: DPLoraSettings) -> tuple[PromptTemplate, int, int]:
        """The prompt and the longest record, which the model's context must hold."""
        return settings.template(["label"]), settings.max_tokens, 0

    def preflight(
        self, settings: DPLoraSettings, unit: PrivacyUnit, labels: Sequence[str], models: Backends
    ) -> None:
        """Try one training pass on public text."""
        models.base.check(_training(settings, list(labels) or [None], unit))

    def trial(
        self, settings: DPLoraSettings, labels: Sequence[str], models: Backends
    ) -> Iterator[Work]:
        """Records that are trained on, texts that are written, and these read for every label."""
        names: list[Any] = list(labels) or [None]
        training = _training(settings, names, PrivacyUnit())
        trainer = models.base.trainer(replace(training, micro_batch=_TRAINING_PASS))
        units = [[trainer.encode(names[0], SENTENCE)]]
        files, train = trainer.files(), [trainer.clipped_sum]
        trained = settings.steps * settings.expected_batch
        yield Work("records", trained, lambda n: train[0](units * n), 4 * _TRAINING_PASS)
        del trainer, train[:]  # frees memory before the model is loaded again
        with tempfile.TemporaryDirectory() as name:
            for file, content in files.items():
                (Path(name) / file).write_bytes(content)
            writer = models.base.writer(training, Path(name), settings.sampling)
        count = sum(sizes_of(settings, names)) * (settings.candidates if len(labels) > 1 else 1)
        yield Work("texts", count, lambda n: writer.write(names[:1] * n))
        text, rivals = 4 * SENTENCE, min(len(labels), label_choice.MOST_LABELS)
        if settings.candidates > 1 < rivals:
            yield Work(
                "readings", count * rivals, lambda n: writer.likelihoods(names[:1] * n, [text] * n)
            )

    def check_models(self, settings: DPLoraSettings, models: ModelsConfig) -> None:
        """Check that the model has the layers to adapt."""
        check_layers(models, settings.target_modules)

    def writes_behind(self, cfg: DPLoraSettings, labels: Sequence[str]) -> PromptTemplate:
        """The prompt of a record."""
        return cfg.template(labels)

    def train(
        self,
        settings: DPLoraSettings,
        mechanism: DPLoraMechanism,
        buckets: Sequence[Bucket],
        draw: Draw,
    ) -> Mapping[str, bytes]:
        """Train the adapter and return its files, the only result that records influence.

        Raises:
            PrivsynError: The adapter did not move, though it was trained.
        """
        journal = draw.journal
        labels, unit = [bucket.cell.label for bucket in buckets], mechanism.facts.unit
        training = _training(settings, labels, unit, draw.rows)
        rows = max(1, draw.performance.rows_per_pass // _TRAINING_PASS)
        trainer = draw.models.base.trainer(replace(training, micro_batch=rows))
        sizes = sizes_of(settings, labels)
        # By unit over all labels: a unit is clipped once, whatever labels its records have [L3].
        units = _units(trainer, buckets, draw.rows)
        # Continue at the newest checkpoint. Later steps run again: nothing of them left this
        # process.
        done = max((t for t in range(settings.steps + 1) if journal.has(f"steps/{t}")), default=0)
        while done < settings.steps:  # [L5]
            if done:
                trainer.restore(journal.draw_file(f"steps/{done}", _never))
            steps = range(done, min(done + CHECKPOINT_STEPS, settings.steps))
            advance = partial(
                _advance,
                settings,
                mechanism.steps,
                trainer,
                list(units.values()),
                draw.noise,
                steps,
                draw.progress,
            )
            journal.draw_file(f"steps/{steps.stop}", advance)
            if done:
                # Only after the next checkpoint is on disk: a crash always leaves one to restore.
                journal.drop_file(f"steps/{done}")
            done = steps.stop
        trainer.restore(journal.draw_file(f"steps/{done}", _never))
        # A model whose layers PEFT does not reach trains without an error and releases nothing
        # learned.
        if not trainer.has_moved():
            raise PrivsynError("the adapter did not move in training: its layers are not reached.")
        counts = dict(zip(map(str, labels), sizes, strict=True))
        return {**trainer.files(), LABELS: (json.dumps(counts) + "\n").encode()}

    def write(
        self,
        settings: DPLoraSettings,
        unit: PrivacyUnit,
        labels: Sequence[str],
        models: Backends,
        trained: Path,
        shard: tuple[int, int],
        on_progress: OnProgress = silent,
        rows: SyntheticRows = NO_ROWS,
    ) -> Iterator[Sample]:
        """The adapted model's texts of one shard: every n-th, beginning at the shard's number."""
        number, shards = shard
        counts = json.loads((trained / LABELS).read_bytes())
        cells = self.cells(settings, labels)
        every = [(cell, place) for cell in cells for place in range(counts[str(cell.label)])]
        queue = every[number::shards]
        training = _training(settings, [cell.label for cell in cells], unit, rows)
        writer = models.base.writer(training, trained, settings.sampling)
        for start in range(0, len(queue), _WRITTEN_TOGETHER):
            on_progress(start, len(queue))
            part = queue[start : start + _WRITTEN_TOGETHER]
            keys = [rows.key(cell.label, place) for cell, place in part]
            texts = _write(writer, settings, keys, labels)
            for (cell, place), text in zip(part, texts, strict=True):
                yield Sample(cell, text, row=rows.row(cell.label, place))

    def more(self, cfg: Any, models: Backends, release: Finished, count: int) -> Iterator[Record]:
        """More texts by the released adapter, in the release's shares of labels, at no epsilon.

        Raises:
            ConfigError: The folder with the release's adapter is missing.
        """
        trained, records = release.folder / layout.MODEL, release.records
        if not trained.is_dir():
            raise ConfigError("the release holds no adapter.", hint="Restore its folder with DVC.")
        labels = list(dict.fromkeys(label for label, _ in records))
        # Evenly over the release's rows: each label keeps its share up to rounding.
        places = np.linspace(0, len(records), count, endpoint=False).astype(int)
        text_labels = [records[place][0] for place in places]
        # Only to write: the unit matters in training alone.
        training = _training(cfg, labels, PrivacyUnit(), release.rows)
        writer = models.base.writer(training, trained, cfg.sampling)
        named = [label for label in labels if label is not None]
        numbers = {label: count_from() for label in labels}
        for start in range(0, count, _WRITTEN_TOGETHER):
            release.progress(start, count)
            part = text_labels[start : start + _WRITTEN_TOGETHER]
            keys = [release.rows.key(label, next(numbers[label])) for label in part]
            yield from zip(part, _write(writer, cfg, keys, named), strict=True)


def _write(
    writer: Writer, settings: DPLoraSettings, labels: Sequence[str | None], every: Sequence[str]
) -> list[str]:
    """One text per label: the candidate that the model finds most typical of the label [L7]."""
    template = settings.template(every)
    return best_of(settings.candidates, labels, every, writer.write, writer.likelihoods, template)


def _advance(
    settings: DPLoraSettings,
    mechanism: SampledGaussian,
    trainer: Trainer,
    units: Sequence[Sequence[Any]],
    noise: NoiseSource,
    steps: range,
    progress: Callable[[int, int], None],
) -> bytes:
    """Algorithm 1 of Abadi et al. from one checkpoint to the next."""
    for t in steps:
        progress(t, settings.steps)
        sample = compress(units, mechanism.sample(len(units), noise))  # L_t [L2]
        total = trainer.clipped_sum(list(sample))  # (numbers,) [L3]
        noisy = mechanism.draw(total, noise)  # privacy: also when the sample is empty [L2]
        # The divisor is a setting: the size of the sample is private [L4].
        trainer.update(noisy * (settings.clip_norm / settings.expected_batch), settings.rate(t))
    return trainer.state()


def _units(
    trainer: Trainer, buckets: Sequence[Bucket], rows: SyntheticRows
) -> dict[str, list[Any]]:
    """Training sequences by unit, over all labels; each behind its record's label and row [L8]."""
    units: dict[str, list[Any]] = {}
    for bucket in buckets:
        records = bucket.units.reveal(), bucket.contents.reveal(), bucket.rows.reveal()
        for unit, text, row in zip(*records, strict=True):
            key = with_row(bucket.cell.label, rows.words(row))
            units.setdefault(unit, []).append(trainer.encode(key, text))
    # Sorted: which place a unit has must not depend on the order of the file.
    return {unit: units[unit] for unit in sorted(units)}


def _never() -> bytes:
    raise AssertionError("a checkpoint on file is not drawn again")


def _training(
    settings: DPLoraSettings,
    labels: Sequence[str | None],
    unit: PrivacyUnit,
    rows: SyntheticRows = NO_ROWS,
) -> Training:
    """What the model is trained with."""
    label_names = [label for label in labels if label is not None]
    return Training(
        template=settings.template(label_names),
        labels=tuple(with_row(label, rows.longest) for label in labels),
        max_tokens=settings.max_tokens,
        clip_norm=settings.clip_norm,
        records_per_unit=unit.max_records,
        micro_batch=1,
        rank=settings.rank,
        alpha=_ALPHA * settings.rank,
        target_modules=settings.target_modules,
    )
