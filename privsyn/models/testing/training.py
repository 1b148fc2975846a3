"""A toy that is trained: a bag of words by label, with exact gradients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.errors import ModelError
from privsyn.models.protocols import Row, Sampling, Training
from privsyn.models.testing.language import WORDS


@dataclass(frozen=True)
class FakeTrainableModel:
    """A TrainableModel over a handful of words: which word follows which, one state per label more.

    All of it is a pure function of what it is given, but for what is written.

    Attributes:
        vocabulary: Word of every token; the first one is the end.
        context: Longest text, in words.
        rng: Public randomness of the writer; seeded, so that a run can be repeated.

    >>> from privsyn.models.protocols import PromptTemplate
    >>> training = Training(PromptTemplate("{reference}", ""), (None,), 4, 1.0, 1, 1, 1, 1.0, None)
    >>> trainer = FakeTrainableModel(("<end>", "a", "b")).trainer(training)
    >>> trainer.encode(None, "a b unknown")
    ([3, 1, 2, 0], 1)
    >>> trainer.clipped_sum([]).tolist() == [0] * trainer.size
    True
    """

    vocabulary: tuple[str, ...] = WORDS
    context: int = 512
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    revision: str = "fake-trainable-1"

    def check(self, training: Training) -> None:
        """Refuse what ``trainer`` refuses."""
        self.trainer(training)

    def trainer(self, training: Training) -> FakeTrainer:
        """A trainer of zeros: all words are as likely.

        Raises:
            ModelError: ``max_tokens`` outgrows the context.
        """
        if training.max_tokens > self.context:
            raise ModelError(
                f"models.language=fake: context={self.context} is shorter than "
                f"max_tokens={training.max_tokens}."
            )
        return FakeTrainer(self, training)

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> FakeWriter:
        """The model with the numbers in a folder."""
        numbers = load_tensors((folder / "adapter_model.safetensors").read_bytes())["theta"]
        return FakeWriter(self, training, numbers, sampling)


class FakeTrainer:
    """See protocols.Trainer. ``theta`` holds the trained numbers, shape (words and labels, words).

    Adam in float64, without weight decay.
    """

    def __init__(self, model: FakeTrainableModel, training: Training) -> None:
        self._training = training
        self._tokens = {word: i for i, word in enumerate(model.vocabulary)}
        words = len(model.vocabulary)
        self._starts = {label: words + i for i, label in enumerate(training.labels)}
        self.theta = np.zeros((words + len(training.labels), words))
        self.size = self.theta.size
        self._moments = np.zeros((2, *self.theta.shape))
        self._steps = 0

    def encode(self, label: str | None, text: str) -> Row:
        """The label's state, the known words, and the end where there is room for it."""
        most = self._training.max_tokens
        known = [self._tokens[word] for word in text.split() if self._tokens.get(word)][:most]
        return [self._starts[label], *known, *[0][: most - len(known)]], 1

    def gradient(self, unit: Sequence[Row]) -> NDArray[np.float64]:
        """Of a unit's rows, each its own mean loss, as ``theta`` is shaped."""
        total = np.zeros_like(self.theta)
        for ids, start in unit[: self._training.records_per_unit]:
            for before, token in pairwise(ids[start - 1 :]):
                likely = np.exp(self.theta[before] - self.theta[before].max())
                total[before] += likely / likely.sum() / (len(ids) - start)
                total[before, token] -= 1 / (len(ids) - start)
        return total

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """See protocols.Trainer."""
        total = np.zeros(self.size, np.int64)
        for unit in units:
            gradient = self.gradient(unit).ravel()
            norm = max(float(np.linalg.norm(gradient)), self._training.clip_norm)
            whole = np.trunc(gradient * ((1 - 2.0**-20) * CLIP_STEPS / norm))
            # False for NaN; of so few numbers the squares are summed exactly.
            if (whole**2).sum() <= CLIP_STEPS**2:
                total += whole.astype(np.int64)
        return total

    def update(self, gradient: NDArray[np.float64], learning_rate: float) -> None:
        """See protocols.Trainer."""
        self._steps += 1
        powers = np.stack([gradient, gradient**2]).reshape(self._moments.shape)
        keep = np.array([0.9, 0.999]).reshape(2, 1, 1)
        self._moments = keep * self._moments + (1 - keep) * powers
        mean, square = self._moments / (1 - keep**self._steps)
        self.theta = self.theta - learning_rate * mean / (np.sqrt(square) + 1e-8)

    def state(self) -> bytes:
        """See protocols.Trainer."""
        steps = np.array([self._steps])
        return bytes(save_tensors({"theta": self.theta, "moments": self._moments, "steps": steps}))

    def restore(self, state: bytes) -> None:
        """See protocols.Trainer."""
        tensors = load_tensors(state)
        self.theta, self._moments = tensors["theta"], tensors["moments"]
        self._steps = int(tensors["steps"][0])

    def moved(self) -> bool:
        """See protocols.Trainer."""
        return bool(self.theta.any())

    def files(self) -> Mapping[str, bytes]:
        """See protocols.Trainer; under the names that PEFT gives an adapter's files."""
        return {
            "adapter_model.safetensors": bytes(save_tensors({"theta": self.theta})),
            "adapter_config.json": json.dumps({"rank": self._training.rank}).encode(),
        }


class FakeWriter:
    """See protocols.Writer. A text holds at least one word."""

    def __init__(
        self,
        model: FakeTrainableModel,
        training: Training,
        theta: NDArray[np.float64],
        sampling: Sampling,
    ) -> None:
        self._model, self._training, self._theta = model, training, theta
        self._sampling = sampling

    def write(self, labels: Sequence[str | None]) -> list[str]:
        """See protocols.Writer."""
        return [self._text(label) for label in labels]

    def likelihoods(
        self, labels: Sequence[str | None], texts: Sequence[str]
    ) -> NDArray[np.float64]:
        """See protocols.Writer."""
        return np.array([self._nats(*pair) for pair in zip(labels, texts, strict=True)])

    def _nats(self, label: str | None, text: str) -> float:
        words = self._model.vocabulary
        start = len(words) + self._training.labels.index(label)
        tokens = [start, *(words.index(word) for word in text.split())]
        return sum(
            float(self._theta[before, token] - np.logaddexp.reduce(self._theta[before]))
            for before, token in pairwise(tokens)
        )

    def _text(self, label: str | None) -> str:
        words = self._model.vocabulary
        tokens = [len(words) + self._training.labels.index(label)]
        for place in range(self._training.max_tokens):
            scores = self._theta[tokens[-1]] / self._sampling.temperature
            scores[0] = -np.inf if place == 0 else scores[0]
            best = np.argsort(-scores, kind="stable")
            scores[best[self._sampling.top_k or len(words) :]] = -np.inf
            likely = np.exp(scores - scores.max())
            likely /= likely.sum()
            outside = likely[best].cumsum() - likely[best] >= self._sampling.top_p
            likely[best[outside]] = 0
            tokens.append(int(self._model.rng.choice(len(words), p=likely / likely.sum())))
            if tokens[-1] == 0:
                break
        return " ".join(words[token] for token in tokens[1:] if token)
