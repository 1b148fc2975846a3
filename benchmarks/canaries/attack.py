"""What canaries add to each answer of a mechanism.

The attacker is the strongest that a guarantee speaks of: he knows every canary, all settings and
every noisy answer of the mechanism, and not who was in, nor the noise. What a canary would add to
an answer he gets from the method's own code, run on that canary alone with the answers put in
(``Replayed``). What the answers then say of each canary is in ``posterior.py``.

privacy: this opens records. ``contributions`` refuses any account but that of a throw-away release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privsyn.data.journal import public_entry
from privsyn.data.partition import load_shard, partition
from privsyn.data.records import Bucket, Private
from privsyn.data.unit_key import UnitKey
from privsyn.dp.mechanisms import _FINER
from privsyn.dp.noise import NoiseSource
from privsyn.errors import ConfigError
from privsyn.methods.base import Backends, Draw, TrainsModel
from privsyn.release.plan import Plan
from privsyn.stages.base import Context, find_workdir, open_plan

T = TypeVar("T")

ACCOUNT = "throw-away"
"""Name of the one account whose releases are attacked."""


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


class Relayed:
    """A noise source before another one: what it does to noise on vectors is said once."""

    def _vector(self, draw: str, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        raise NotImplementedError

    def laplace(self, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("laplace", values, scale)

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("gaussian", values, sigma)

    def fine_gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """See NoiseSource."""
        return self._vector("fine_gaussian", values, sigma)


class Recorded(Relayed):
    """A noise source that notes the answers of another one.

    Args:
        true: Where the noise comes from.
        answers: Gets the notes.
    """

    def __init__(self, true: NoiseSource, answers: list[Answer]) -> None:
        self._true, self._answers = true, answers
        self.kind = true.kind

    def noisy_max(self, scores: NDArray[np.int64], scale: float, sensitivity: int) -> int:
        """See NoiseSource."""
        drawn = int(self._true.noisy_max(scores, scale, sensitivity))
        self._answers.append(Answer("noisy_max", drawn, scale))
        return drawn

    def _vector(self, draw: str, values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        drawn: NDArray[np.int64] = getattr(self._true, draw)(values, scale)
        self._answers.append(Answer(draw, drawn, scale))
        return drawn

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


class Kept:
    """A journal that draws anew, about the public things that a finished run was about.

    Args:
        journal: The run's.
    """

    drawn = False

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    def has(self, key: str) -> bool:
        """Nothing is on file."""
        return False

    def draw_all(self, items: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        """All draws, made."""
        return [draw() for _, draw in items]

    def draw_array(
        self, key: str, draw: Callable[[], NDArray[np.int64]], size: int
    ) -> NDArray[np.int64]:
        """A draw, made."""
        return draw()

    def public_file(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What the run kept."""
        file = self._journal.with_name(f"{self._journal.name}.kept") / public_entry(key)[1]
        return file.read_bytes() if file.is_file() else make()

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
        shards: Answers of each shard, with the journal that they are in.
    """

    ctx: Context
    planned: Plan
    backends: Backends
    shards: list[tuple[Path, list[Answer]]]


def contributions(run: Run, units: Sequence[str]) -> Iterator[tuple[Answer, Any, Any]]:
    """Every answer, what is asked without records, and what canaries add, shape (canaries, .).

    Raises:
        ConfigError: The release is not a throw-away.
    """
    ctx, planned = run.ctx, run.planned
    if planned.account != ACCOUNT:
        raise ConfigError(
            f"account.name={planned.account}: canaries are looked for in releases of the account "
            f"{ACCOUNT} alone.",
            hint="Use benchmarks/audit.py, which makes one of its own.",
        )
    release = open_plan(ctx, planned)
    method, settings = release.method, release.settings
    key = ctx.open_account().partition_key.reveal()
    source = release.source
    cells = method.cells(settings, planned.dataset.labels)
    parts = 1 if method.whole else planned.shards
    out = ctx.workspace.root / "everybody"
    if not out.exists():
        work = find_workdir(ctx, ctx.ledger.releases.get(planned.id))
        work.resume()  # everybody is where the release put them
        whole = source.model_copy(update={"holdout": 0.0})
        partition(
            whole, key, cells, out, parts, seed=work.seed
        )  # everybody is where the release put them
    names = {UnitKey(key).name(unit)[0]: i for i, unit in enumerate(units)}
    for shard, (journal, answers) in enumerate(run.shards):
        everybody = load_shard(out, shard, cells, parts)
        if isinstance(method, TrainsModel):
            yield from _trained(run, everybody, (journal, answers), names)
            continue

        def asked(
            buckets: Sequence[Bucket],
            answers: Sequence[Answer] = answers,
            kept: Kept = Kept(journal),  # noqa: B008  of this shard
        ) -> Any:
            noise = Replayed(answers)
            draw = Draw(run.backends, noise, kept, ctx.config.performance)  # type: ignore[arg-type]
            try:
                for _ in method.run(settings, release.mechanism, buckets, draw):  # type: ignore
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
    run: Run,
    buckets: Sequence[Bucket],
    shard: tuple[Path, Sequence[Answer]],
    names: Mapping[str, int],
) -> Iterator[tuple[Answer, Any, Any]]:
    """As contributions, of a method that trains: one run with all canaries, each summed alone."""
    release = open_plan(run.ctx, run.planned)
    method, settings = release.method, release.settings
    model = ApartModel(run.backends.base)
    journal, answers = shard
    noise = Replayed(answers)
    backends = Backends({**run.backends.models, "base": model})
    performance = run.ctx.config.performance
    draw = Draw(backends, noise, Kept(journal), performance)  # type: ignore[arg-type]
    try:
        method.train(settings, release.mechanism, buckets, draw)  # type: ignore[attr-defined]
    except Told:
        pass
    order = [names[unit] for unit in sorted({u for b in buckets for u in b.units.reveal()})]
    for answer, own in zip(answers, model.sums, strict=True):
        ordered = np.zeros(own.shape)
        ordered[order] = own * float(_FINER)
        yield answer, np.zeros(own.shape[1]), ordered
