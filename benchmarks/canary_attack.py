"""The attack of audit.py: what canaries add to each answer of a mechanism, and who was in.

Noise sources that note their answers and give them again, a journal and a trainer that look, and
the scores. See audit.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from privsyn.data.partition import load_shard, partition
from privsyn.data.records import Bucket, Private
from privsyn.data.unit_key import UnitKey
from privsyn.dp.mechanisms import _FINER
from privsyn.dp.noise import NoiseSource, OpenDPNoise
from privsyn.methods.base import Backends, Draw, TrainsModel
from privsyn.release.plan import Plan
from privsyn.stages.base import Context
from privsyn.testing import NullJournal


class Answer(NamedTuple):
    """One answer of a mechanism.

    Attributes:
        draw: Method of the noise source.
        given: What came out.
        scale: Of the noise, as priced.
    """

    draw: str
    given: Any
    scale: float


class Recorded:
    """A noise source that notes its answers; ``by`` times too quiet, which is what breaks it."""

    def __init__(self, by: float, answers: list[Answer]) -> None:
        self._true: NoiseSource = OpenDPNoise()
        self._by, self._answers = by, answers
        self.kind = "opendp" if by == 1 else "broken"

    def _noted(self, draw: str, scale: float, given: Any) -> Any:
        self._answers.append(Answer(draw, given, scale))
        return given

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """See NoiseSource."""
        off = math.isinf(self._by)
        drawn = (
            int(np.argmax(scores))
            if off
            else self._true.noisy_max(scores, scale / self._by, sensitivity)
        )
        return int(self._noted("noisy_max", scale, drawn))

    def _vector(self, draw: str, values: NDArray[np.int64], scale: float) -> Any:
        off = math.isinf(self._by)
        drawn = values if off else getattr(self._true, draw)(values, scale / self._by)
        return self._noted(draw, scale, drawn)

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("laplace", values, scale)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("gaussian", values, sigma)

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("fine_gaussian", values, sigma)

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """See NoiseSource. Not an answer: samples are secret."""
        return self._true.sample(units, rate)


class Told(BaseException):
    """All answers were replayed: what a method does after its last one is of no interest."""


class Replayed:
    """Gives the answers of a finished run, whatever it is asked, and notes what it was asked."""

    kind = "replayed"

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = answers
        self.asked: list[NDArray[np.int64]] = []

    def _next(self, values: NDArray[np.int64]) -> Any:
        given = self._answers[len(self.asked)].given
        self.asked.append(np.array(values))
        if len(self.asked) == len(self._answers):
            raise Told
        return given

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """See NoiseSource."""
        return int(self._next(scores))

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return np.asarray(self._next(values))

    gaussian = fine_gaussian = laplace

    def sample(self, units: int, rate: float) -> NDArray[np.bool_]:
        """Everybody: the attacker does not know the sample."""
        return np.ones(units, np.bool_)


class Kept(NullJournal):
    """A journal that draws anew, about the public things that the run was about."""

    def __init__(self, kept: Mapping[str, bytes]) -> None:
        self._kept = kept

    def keep(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What the run kept."""
        return self._kept[key] if key in self._kept else make()

    def draw_file(self, key: str, make: Callable[[], bytes]) -> bytes:
        """A checkpoint."""
        return make()


class Apart:
    """A trainer whose sums are noted unit by unit."""

    def __init__(self, true: Any, sums: list[NDArray[np.int64]]) -> None:
        self._true, self._sums = true, sums

    def __getattr__(self, name: str) -> Any:
        return getattr(self._true, name)

    def clipped_sum(self, units: Sequence[Any]) -> NDArray[np.int64]:
        """The sum; what each unit adds goes into the notes, shape (units, numbers)."""
        own = np.stack([self._true.clipped_sum([unit]) for unit in units])
        self._sums.append(own)
        return np.asarray(own.sum(axis=0))


class ApartModel:
    """A model to be trained whose trainers note their sums."""

    def __init__(self, true: Any) -> None:
        self._true = true
        self.sums: list[NDArray[np.int64]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._true, name)

    def trainer(self, training: Any) -> Apart:
        """See TrainableModel."""
        return Apart(self._true.trainer(training), self.sums)


class Run(NamedTuple):
    """A throw-away release up to its last answer.

    Attributes:
        ctx: Its context.
        planned: Its plan.
        backends: Its models.
        shards: Answers of each shard.
        kept: What its draws were about.
    """

    ctx: Context
    planned: Plan
    backends: Backends
    shards: list[list[Answer]]
    kept: dict[str, bytes]


def contributions(run: Run, units: Sequence[str]) -> Iterator[tuple[Answer, Any, Any]]:
    """Every answer, what is asked without records, and what canaries add, shape (canaries, .)."""
    ctx, planned = run.ctx, run.planned
    method, settings = ctx.planned(planned)
    key = ctx.open_account().partition_key.reveal()
    source = ctx.source(planned)
    cells = method.cells(settings, planned.dataset.labels)
    parts = 1 if method.whole else planned.shards
    out = ctx.workspace.root / "everybody"
    if not out.exists():
        partition(source.model_copy(update={"holdout": 0.0}), key, cells, out, parts)
    names = {UnitKey(key).place(unit).unit: i for i, unit in enumerate(units)}
    for shard, answers in enumerate(run.shards):
        everybody = load_shard(out, shard, cells, parts)
        if isinstance(method, TrainsModel):
            yield from _trained(run, everybody, answers, names)
            continue

        def asked(buckets: Sequence[Bucket], answers: Sequence[Answer] = answers) -> Any:
            noise = Replayed(answers)
            performance = ctx.config.performance
            draw = Draw(run.backends, noise, Kept(run.kept), performance)  # type: ignore[arg-type]
            try:
                for _ in method.run(settings, planned.mechanism(), buckets, draw):  # type: ignore
                    pass
            except Told:
                pass
            return noise.asked

        alone = asked([Bucket(b.cell, Private([]), Private([])) for b in everybody])
        present = {names[unit] for bucket in everybody for unit in bucket.units.reveal()}
        added = {
            i: asked([_only(bucket, names, i) for bucket in everybody]) for i in sorted(present)
        }
        for k, answer in enumerate(answers):
            own = np.zeros((len(units), len(alone[k])), np.float64)
            for i, values in added.items():
                own[i] = values[k] - alone[k]
            yield answer, alone[k], own


def _only(bucket: Bucket, names: Mapping[str, int], i: int) -> Bucket:
    """A bucket with the records of one canary alone."""
    pairs = [
        (text, unit)
        for text, unit in zip(bucket.contents.reveal(), bucket.units.reveal(), strict=True)
        if names[unit] == i
    ]
    texts, units = [text for text, _ in pairs], [unit for _, unit in pairs]
    return Bucket(bucket.cell, Private(texts), Private(units))


def _trained(
    run: Run, buckets: Sequence[Bucket], answers: Sequence[Answer], names: Mapping[str, int]
) -> Iterator[tuple[Answer, Any, Any]]:
    """As contributions, of a method that trains: one run with all canaries, each summed alone."""
    method, settings = run.ctx.planned(run.planned)
    model = ApartModel(run.backends.base)
    noise = Replayed(answers)
    backends = Backends({**run.backends.models, "base": model})
    performance = run.ctx.config.performance
    draw = Draw(backends, noise, Kept(run.kept), performance)  # type: ignore[arg-type]
    try:
        method.train(settings, run.planned.mechanism(), buckets, draw)  # type: ignore[attr-defined]
    except Told:
        pass
    order = [names[unit] for unit in sorted({u for b in buckets for u in b.units.reveal()})]
    for answer, own in zip(answers, model.sums, strict=True):
        ordered = np.zeros(own.shape)
        ordered[order] = own * float(_FINER)
        yield answer, np.zeros(own.shape[1]), ordered


def scores(found: Iterator[tuple[Answer, Any, Any]], units: int) -> NDArray[np.float64]:
    """How much the answers speak for each canary having been in."""
    ratio = np.zeros(units)
    normal, right = np.eye(units) * 4, np.full(units, 2.0)  # a coin: mean 1/2, variance 1/4
    vectors = False
    for answer, alone, own in found:
        if answer.draw == "noisy_max":
            public = log_softmax(alone / answer.scale)
            moved = own / answer.scale
            ratio += moved[:, answer.given] - logsumexp(public + moved, axis=1)
        else:
            vectors = True
            design = own / answer.scale
            normal += design @ design.T
            right += design @ ((answer.given - alone) / answer.scale)
    return np.linalg.solve(normal, right) if vectors else ratio
