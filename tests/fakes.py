"""Fake models in numpy for tests: no weights, exact row independence, scripted logits.

Noise and a journal for such tests are in ``tests/noise.py``.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from privsyn.data.journal import Journal
from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.errors import ModelError
from privsyn.methods.base import Backends, Draw
from privsyn.models.rows import split_row
from privsyn.models.settings import PerformanceConfig

LogitScript = Callable[
    [str | None, str | None, tuple[int, ...]], Sequence[float] | NDArray[np.float32]
]
"""(label, reference or None in a public row, tokens so far) -> one logit per vocabulary entry."""

WORDS = (
    "<end>", "the", "visit", "was", "late", "and", "my", "bill", "is", "ready", "please", "help",
)  # fmt: skip


def hashed_script(vocabulary):
    """Logits in [-2, 2] from a hash of the row, plus 2 for every word of the reference.

    A pure function of (label, reference, tokens), so rows are independent to the last bit. The end
    becomes likelier with length.
    """

    def script(label, reference, tokens):
        digest = hashlib.shake_128(repr((label, tokens)).encode()).digest(2 * len(vocabulary))
        logits = np.frombuffer(digest, dtype="<u2").astype(np.float32) / np.float32(2**14) - 2
        known = set(reference.split()) if reference else set()
        logits += np.array([2.0 if word in known else 0.0 for word in vocabulary], np.float32)
        logits[0] += np.float32(0.25 * len(tokens) - 4.0)
        return logits

    return script


@dataclass(frozen=True)
class FakeLogitModel:
    """A LogitModel over a handful of words; token 0 ends a text.

    Attributes:
        vocabulary: Word of every token; the first one is the end.
        script: The logits; by default ``hashed_script``.
        context: Longest prompt plus output, in words.
        heard: Every request for rows: whether private, and all its arguments.

    >>> from privsyn.models.protocols import PromptTemplate
    >>> model = FakeLogitModel(("<end>", "a"), script=lambda label, reference, tokens: (0.0, 1.0))
    >>> rows = model.public_rows(PromptTemplate("{reference}", ""), [None], max_tokens=3)
    >>> rows.logits().tolist()
    [[0.0, 1.0]]
    """

    vocabulary: tuple[str, ...] = WORDS
    script: LogitScript | None = None
    context: int = 512
    heard: list[dict[str, Any]] = field(default_factory=list, compare=False, repr=False)
    revision: str = "fake-1"
    eos: int = field(default=0, init=False)

    @property
    def vocab_size(self):
        return len(self.vocabulary)

    @property
    def ends(self):
        return frozenset([self.eos])

    @property
    def breaks(self):
        return np.array([self.eos], np.int64)

    def check(self, template, reference_tokens, max_tokens):
        """Refuse a prompt that with ``max_tokens`` outgrows ``context``.

        Raises:
            ModelError: Says by how many tokens.
        """
        prompt = len(template.private.replace("{reference}", " ").split()) + reference_tokens
        if prompt + max_tokens > self.context:
            raise ModelError(
                f"models.language=fake: context={self.context} is "
                f"{prompt + max_tokens - self.context} tokens shorter than the prompt of {prompt} "
                f"plus max_tokens={max_tokens}."
            )

    def public_rows(self, template, labels, max_tokens):
        self.heard.append({"template": template, "labels": labels, "max_tokens": max_tokens})
        return FakeSession(self, [(label, None) for label in labels], max_tokens)

    def private_rows(self, template, labels, references, reference_tokens, max_tokens, *, declared):
        if not set(labels) <= set(declared):
            raise ValueError(f"labels {set(labels)} are not all declared: {set(declared)}")
        self.heard.append(
            {
                "template": template,
                "labels": labels,
                "references": references,
                "reference_tokens": reference_tokens,
                "max_tokens": max_tokens,
                "declared": declared,
            }
        )
        cut = [" ".join(text.split()[:reference_tokens]) for text in references]
        return FakeSession(self, list(zip(labels, cut, strict=True)), max_tokens)

    def decode(self, tokens):
        return " ".join(self.vocabulary[t] for t in tokens if 0 < t < len(self.vocabulary))

    def grammar(self, schema):
        raise ModelError("models.language=fake: its tokens cannot follow a JSON schema.")


class FakeSession:
    """A Session of a FakeLogitModel."""

    def __init__(self, model, rows, max_tokens):
        self._model = model
        self._rows = list(rows)
        self._tokens: list[tuple[int, ...]] = [()] * len(rows)
        self._max_tokens = max_tokens
        self._script = model.script or hashed_script(model.vocabulary)

    def logits(self, rows=slice(None), columns=None):
        out = np.empty((len(self._rows), self._model.vocab_size), np.float32)
        for i, ((label, reference), tokens) in enumerate(
            zip(self._rows, self._tokens, strict=True)
        ):
            out[i] = self._script(label, reference, tokens)
        return out[rows] if columns is None else out[rows][:, columns]

    def rewind(self):
        self._tokens = [()] * len(self._rows)

    def append(self, tokens):
        """Append one token to every row.

        Raises:
            ValueError: Not one token per row, or more than ``max_tokens`` of them.
        """
        if len(tokens) != len(self._rows):
            raise ValueError(f"{len(tokens)} tokens for {len(self._rows)} rows")
        if self._tokens and len(self._tokens[0]) >= self._max_tokens:
            raise ValueError(f"a row already holds max_tokens={self._max_tokens} tokens")
        self._tokens = [(*row, int(token)) for row, token in zip(self._tokens, tokens, strict=True)]


@dataclass(frozen=True)
class FakeTextModel:
    """A TextModel over a handful of words that records all it is given.

    Tests read ``prompts`` and ``heard`` to see what reached the language model.

    Attributes:
        script: (prompt, number of earlier requests) -> completion. By default words chosen by a
            hash of both; the second is ignored at temperature 0.
        prompts: All prompts so far, in order.
        heard: Every request: its prompts and all its settings.

    >>> model = FakeTextModel(script=lambda prompt, before: f"{prompt}!" * (before + 1))
    >>> model.complete(["a", "b", "a"], max_tokens=9, temperature=1.0)
    ['a!', 'b!', 'a!a!']
    >>> model.prompts
    ['a', 'b', 'a']
    """

    script: Callable[[str, int], str] | None = None
    prompts: list[str] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    revision: str = "fake-text-1"

    @property
    def log_ratios(self):
        return [request["log_ratios"] for request in self.heard if request["log_ratios"]]

    def check(self):
        """Pass: nothing can be wrong."""

    def tokens(self, text):
        return sorted({WORDS.index(word) for word in text.split(" ") if word in WORDS})

    def complete(self, prompts, *, max_tokens, temperature, top_p=1.0, until=None, log_ratios=None):
        """One completion per prompt, of at most ``max_tokens`` words.

        Without a script any other ``log_ratios`` are another text.
        """
        out = []
        self.heard.append(
            {
                "prompts": list(prompts), "max_tokens": max_tokens, "temperature": temperature,
                "top_p": top_p, "until": until, "log_ratios": log_ratios,
            }
        )  # fmt: skip
        for prompt in prompts:
            before = self.prompts.count(prompt) if temperature > 0 else 0
            self.prompts.append(prompt)
            if self.script is None:
                text = _hashed_words(prompt, before, log_ratios or {})
            else:
                text = self.script(prompt, before)
            out.append(" ".join(text.split(" ")[:max_tokens]))
        return out


def _hashed_words(prompt, before, log_ratios):
    row = (prompt, before, *sorted(log_ratios.items()))
    digest = hashlib.sha256(repr(row).encode("utf-8", "replace")).digest()
    return " ".join(WORDS[1 + byte % (len(WORDS) - 1)] for byte in digest[1 : 4 + digest[0] % 13])


@dataclass(frozen=True)
class FakeTrainableModel:
    """A TrainableModel over a handful of words: a table of which word follows which.

    Everything except writing is a pure function of its arguments. Each label is one more state.

    Attributes:
        vocabulary: Word of every token; the first one is the end.
        context: Longest text, in words.
        rng: Public randomness of the writer, seeded for repeatable runs.

    >>> from privsyn.models.protocols import PromptTemplate, Training
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

    def check(self, training):
        self.trainer(training)

    def trainer(self, training):
        """A trainer that starts at zeros: all words are equally likely.

        Raises:
            ModelError: ``max_tokens`` outgrows the context.
        """
        if training.max_tokens > self.context:
            raise ModelError(
                f"models.language=fake: context={self.context} is shorter than "
                f"max_tokens={training.max_tokens}."
            )
        return FakeTrainer(self, training)

    def writer(self, training, folder, sampling):
        numbers = load_tensors((folder / "adapter_model.safetensors").read_bytes())["theta"]
        return FakeWriter(self, training, numbers, sampling)


class FakeTrainer:
    """A Trainer whose parameters are ``theta``, shape (words + labels, words).

    Adam in float64, without weight decay.
    """

    def __init__(self, model, training):
        self._training = training
        self._tokens = {word: i for i, word in enumerate(model.vocabulary)}
        words = len(model.vocabulary)
        self._starts = {split_row(key)[0]: words + i for i, key in enumerate(training.labels)}
        self.theta = np.zeros((words + len(training.labels), words))
        self.size = self.theta.size
        self._moments = np.zeros((2, *self.theta.shape))
        self._steps = 0

    def encode(self, label, text):
        """The label's state, the known words, and the end if there is room."""
        most = self._training.max_tokens
        known = [self._tokens[word] for word in text.split() if self._tokens.get(word)][:most]
        return [self._starts[split_row(label)[0]], *known, *[0][: most - len(known)]], 1

    def gradient(self, unit):
        """Gradient of the sum of each row's mean loss, in the shape of ``theta``."""
        total = np.zeros_like(self.theta)
        for ids, start in unit[: self._training.records_per_unit]:
            for before, token in pairwise(ids[start - 1 :]):
                likely = np.exp(self.theta[before] - self.theta[before].max())
                total[before] += likely / likely.sum() / (len(ids) - start)
                total[before, token] -= 1 / (len(ids) - start)
        return total

    def clipped_sum(self, units):
        total = np.zeros(self.size, np.int64)
        for unit in units:
            gradient = self.gradient(unit).ravel()
            # A float norm may be a little small; the factor below 1 keeps the lattice vector within
            # its bound.
            norm = max(float(np.linalg.norm(gradient)), self._training.clip_norm)
            whole = np.trunc(gradient * ((1 - 2.0**-20) * CLIP_STEPS / norm))
            # False for NaN. So few squares are summed exactly in float64.
            if (whole**2).sum() <= CLIP_STEPS**2:
                total += whole.astype(np.int64)
        return total

    def update(self, gradient, learning_rate):
        self._steps += 1
        powers = np.stack([gradient, gradient**2]).reshape(self._moments.shape)
        keep = np.array([0.9, 0.999]).reshape(2, 1, 1)
        self._moments = keep * self._moments + (1 - keep) * powers
        mean, square = self._moments / (1 - keep**self._steps)
        self.theta = self.theta - learning_rate * mean / (np.sqrt(square) + 1e-8)

    def state(self):
        steps = np.array([self._steps])
        return bytes(save_tensors({"theta": self.theta, "moments": self._moments, "steps": steps}))

    def restore(self, state):
        tensors = load_tensors(state)
        self.theta, self._moments = tensors["theta"], tensors["moments"]
        self._steps = int(tensors["steps"][0])

    def has_moved(self):
        return bool(self.theta.any())

    def files(self):
        return {
            "adapter_model.safetensors": bytes(save_tensors({"theta": self.theta})),
            "adapter_config.json": json.dumps({"rank": self._training.rank}).encode(),
        }


class FakeWriter:
    """A Writer whose texts have at least one word."""

    def __init__(self, model, training, theta, sampling):
        self._model, self._training, self._theta = model, training, theta
        self._sampling = sampling

    def _place(self, key):
        """The place of a label, whatever its row: the toy model has no words for one."""
        return [split_row(one)[0] for one in self._training.labels].index(split_row(key)[0])

    def write(self, labels):
        return [self._text(label) for label in labels]

    def likelihoods(self, labels, texts):
        return np.array([self._nats(*pair) for pair in zip(labels, texts, strict=True)])

    def _nats(self, label, text):
        words = self._model.vocabulary
        start = len(words) + self._place(label)
        tokens = [start, *(words.index(word) for word in text.split())]
        return sum(
            float(self._theta[before, token] - np.logaddexp.reduce(self._theta[before]))
            for before, token in pairwise(tokens)
        )

    def _text(self, label):
        words = self._model.vocabulary
        tokens = [len(words) + self._place(label)]
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


def drawing(models, noise, journal, **settings):
    """What a method draws with: these models, and the rest as by default."""
    return Draw(
        Backends(models), noise, journal, **({"performance": PerformanceConfig()} | settings)
    )


@contextmanager
def journal_at(path):
    """The journal of a run at ``path``, made where there is none."""
    Journal.create(path, {})
    with Journal.open(path, {}) as journal:
        yield journal


def run_over(path, method, cfg, plan, buckets, models, noise, **settings):
    """What a method yields with its journal at ``path``: it goes on with what is there."""
    with journal_at(path) as journal:
        yield from method.run(cfg, plan, buckets, drawing(models, noise, journal, **settings))
