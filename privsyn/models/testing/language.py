"""Toys in numpy in place of models: no weights, exact row independence, logits by script.

For tests and for reading a method without a language model. Where a test needs to know the exact
distribution of an output it passes its own ``script``; a test of what must *not* happen sets
``coupling`` and gets the row dependence of a shared padded batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.models.protocols import Grammar, PromptTemplate

LogitScript = Callable[
    [str | None, str | None, tuple[int, ...]], Sequence[float] | NDArray[np.float32]
]
"""(label, reference or None in a public row, tokens so far) -> one logit per vocabulary entry."""

WORDS = (
    "<end>",
    "the",
    "visit",
    "was",
    "late",
    "and",
    "my",
    "bill",
    "is",
    "ready",
    "please",
    "help",
)


def hashed_script(vocabulary: Sequence[str]) -> LogitScript:
    """Logits in [-2, 2] from a hash of the row, plus 2 for every word the reference holds.

    A pure function of (label, reference, tokens), so rows are independent to the last bit. The end
    becomes likelier with length.
    """

    def script(
        label: str | None, reference: str | None, tokens: tuple[int, ...]
    ) -> NDArray[np.float32]:
        digest = hashlib.shake_128(repr((label, tokens)).encode()).digest(2 * len(vocabulary))
        logits = np.frombuffer(digest, dtype="<u2").astype(np.float32) / np.float32(2**14) - 2
        held = set(reference.split()) if reference else set()
        logits += np.array([2.0 if word in held else 0.0 for word in vocabulary], np.float32)
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
        coupling: Row dependence to inject: this much of the other rows' logits leaks into each row.
            0 keeps rows exactly independent.

    >>> model = FakeLogitModel(("<end>", "a"), script=lambda label, reference, tokens: (0.0, 1.0))
    >>> rows = model.public_rows(PromptTemplate("{reference}", ""), [None], max_tokens=3)
    >>> rows.logits().tolist()
    [[0.0, 1.0]]
    """

    vocabulary: tuple[str, ...] = WORDS
    script: LogitScript | None = None
    context: int = 512
    coupling: float = 0.0
    revision: str = "fake-1"
    eos: int = field(default=0, init=False)

    @property
    def vocab_size(self) -> int:
        """Number of words."""
        return len(self.vocabulary)

    @property
    def ends(self) -> frozenset[int]:
        """The end."""
        return frozenset([self.eos])

    @property
    def breaks(self) -> NDArray[np.int64]:
        """The end: no word holds a line break."""
        return np.array([self.eos], np.int64)

    def check(self, template: PromptTemplate, reference_tokens: int, max_tokens: int) -> None:
        """Refuse a prompt that with ``max_tokens`` outgrows ``context``.

        Raises:
            ModelError: By how many tokens.
        """
        prompt = len(template.private.replace("{reference}", " ").split()) + reference_tokens
        if prompt + max_tokens > self.context:
            raise ModelError(
                f"models.language=fake: context={self.context} is "
                f"{prompt + max_tokens - self.context} tokens shorter than the prompt of {prompt} "
                f"plus max_tokens={max_tokens}."
            )

    def public_rows(
        self, template: PromptTemplate, labels: Sequence[str | None], max_tokens: int
    ) -> FakeSession:
        """One row per label entry, its reference None."""
        return FakeSession(self, [(label, None) for label in labels], max_tokens)

    def private_rows(
        self,
        template: PromptTemplate,
        labels: Sequence[str | None],
        references: Sequence[str],
        reference_tokens: int,
        max_tokens: int,
        *,
        declared: Collection[str | None],
    ) -> FakeSession:
        """One row per (label, reference), the reference cut to ``reference_tokens`` words."""
        if not set(labels) <= set(declared):
            raise ValueError(f"labels {set(labels)} are not all declared: {set(declared)}")
        cut = [" ".join(text.split()[:reference_tokens]) for text in references]
        return FakeSession(self, list(zip(labels, cut, strict=True)), max_tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        """The words, without the end and without anything outside the vocabulary."""
        return " ".join(self.vocabulary[t] for t in tokens if 0 < t < len(self.vocabulary))

    def likelihoods(
        self,
        template: PromptTemplate,
        labels: Sequence[str | None],
        texts: Sequence[str],
        max_tokens: int,
    ) -> NDArray[np.float64]:
        """Of the words of each text, by the script of its label."""
        return np.array([self._nats(*pair, max_tokens) for pair in zip(labels, texts, strict=True)])

    def _nats(self, label: str | None, text: str, max_tokens: int) -> float:
        tokens = tuple(self.vocabulary.index(word) for word in text.split()[:max_tokens])
        script, total = self.script or hashed_script(self.vocabulary), 0.0
        for place, token in enumerate(tokens):
            logits = np.asarray(script(label, None, tokens[:place]), np.float64)
            total += float(logits[token] - np.logaddexp.reduce(logits))
        return total

    def grammar(self, schema: Mapping[str, Any]) -> Grammar:
        """Not of a toy: its tokens are words."""
        raise ModelError("models.language=fake: its tokens cannot follow a JSON schema.")


class FakeSession:
    """Rows of a FakeLogitModel. See protocols.Session."""

    def __init__(
        self,
        model: FakeLogitModel,
        rows: Sequence[tuple[str | None, str | None]],
        max_tokens: int,
    ) -> None:
        self._model = model
        self._rows = list(rows)
        self._tokens: list[tuple[int, ...]] = [()] * len(rows)
        self._max_tokens = max_tokens
        self._script = model.script or hashed_script(model.vocabulary)

    def logits(
        self, rows: slice = slice(None), columns: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Next-token logits, shape (rows, columns)."""
        out = np.empty((len(self._rows), self._model.vocab_size), np.float32)
        for i, ((label, reference), tokens) in enumerate(
            zip(self._rows, self._tokens, strict=True)
        ):
            out[i] = self._script(label, reference, tokens)
        if self._model.coupling and len(out):
            out += np.float32(self._model.coupling) * out.sum(axis=0, keepdims=True)
        return out[rows] if columns is None else out[rows][:, columns]

    def rewind(self) -> None:
        """Forget all tokens."""
        self._tokens = [()] * len(self._rows)

    def append(self, tokens: Sequence[int]) -> None:
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
    """A TextModel over a handful of words, which keeps every prompt it was given.

    A test of what may reach a language model reads ``prompts``.

    Attributes:
        script: (prompt, how often it was asked before) -> completion. By default words chosen by a
            hash of both, the second left out at temperature 0.
        prompts: All prompts so far, in order.

    >>> model = FakeTextModel(script=lambda prompt, before: f"{prompt}!" * (before + 1))
    >>> model.complete(["a", "b", "a"], max_tokens=9, temperature=1.0)
    ['a!', 'b!', 'a!a!']
    >>> model.prompts
    ['a', 'b', 'a']
    """

    script: Callable[[str, int], str] | None = None
    prompts: list[str] = field(default_factory=list)
    revision: str = "fake-text-1"

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def complete(
        self, prompts: Sequence[str], *, max_tokens: int, temperature: float, top_p: float = 1.0
    ) -> list[str]:
        """One completion per prompt, of at most ``max_tokens`` words."""
        out = []
        for prompt in prompts:
            before = self.prompts.count(prompt) if temperature > 0 else 0
            self.prompts.append(prompt)
            text = (self.script or _hashed_words)(prompt, before)
            out.append(" ".join(text.split(" ")[:max_tokens]))
        return out


def _hashed_words(prompt: str, before: int) -> str:
    digest = hashlib.sha256(repr((prompt, before)).encode("utf-8", "replace")).digest()
    return " ".join(WORDS[1 + byte % (len(WORDS) - 1)] for byte in digest[1 : 4 + digest[0] % 13])
