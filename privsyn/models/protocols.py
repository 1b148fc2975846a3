"""The seams between methods and models. Batch in, batch out; each has a fake in testing/."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
T_in = TypeVar("T_in", contravariant=True)


@dataclass(frozen=True)
class PromptTemplate:
    """One prompt with two places to fill: the public ``{label}`` and the private ``{reference}``.

    Of a chat prompt, a line ``[user]``, ``[assistant]`` or ``[system]`` begins a message; without
    such a line all of it is the user's. Where the last message is the assistant's, it is the
    beginning of the answer, and the text goes on from it.

    Attributes:
        private: Prompt around a reference. Must contain ``{reference}`` once.
        public: Prompt without one. Must not contain ``{reference}``.
        chat: Whether the filled prompt goes through the tokenizer's chat template.
        labels: (label, text) pairs: the text stands in a prompt for the label.
    """

    private: str
    public: str
    chat: bool = False
    labels: tuple[tuple[str, str], ...] = ()


class Session(Protocol):
    """Rows that are decoded together, one token at a time, over a KV cache."""

    def logits(
        self, rows: slice = slice(None), columns: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Next-token logits, shape (rows, columns).

        Args:
            rows: Which rows; default all.
            columns: Which tokens of the vocabulary; default all. A few cost little.
        """

    def append(self, tokens: Sequence[int]) -> None:
        """Append one token to every row."""

    def rewind(self) -> None:
        """Take every row back to the end of its prompt, to begin another text."""


@runtime_checkable
class TellsReading(Session, Protocol):
    """A session that says how far it has read its prompts, which may take minutes."""

    def watch(self, heard: Callable[[int], None]) -> None:
        """Have it told, while the prompts are read, how many rows are: from the first, in order.

        Of private rows their number is private, too: a method makes of it what may be shown.
        """


class Grammar(Protocol):
    """A public rule that says which tokens may follow."""

    def allowed(self, text: Sequence[int]) -> NDArray[np.int64]:
        """The tokens that may follow a text of allowed tokens, sorted; at least one."""


class LogitModel(Protocol):
    """A causal language model whose logits a method may read.

    Row independence (what the privacy proofs need): the logits of a row depend on that row's own
    tokens and on nothing else: not on its position, its neighbours, or how many there are.
    """

    @property
    def revision(self) -> str:
        """Digest of weights, tokenizer and numeric settings: enters the release id."""

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""

    @property
    def eos(self) -> int:
        """Token that ends a text. A row it was appended to is finished; its logits may be zeros."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens after which a text does not go on: ``eos``, and all others that are no text."""

    @property
    def breaks(self) -> NDArray[np.int64]:
        """The ends, and every token that holds a line break."""

    def check(self, template: PromptTemplate, reference_tokens: int, max_tokens: int) -> None:
        """Refuse, naming the numbers, a template or lengths that do not fit the model's context."""

    def public_rows(
        self, template: PromptTemplate, labels: Sequence[str | None], max_tokens: int
    ) -> Session:
        """One row per label entry without any reference, in fixed-shape passes of their own."""

    def private_rows(
        self,
        template: PromptTemplate,
        labels: Sequence[str | None],
        references: Sequence[str],
        reference_tokens: int,
        max_tokens: int,
        *,
        declared: Collection[str | None],
    ) -> Session:
        """One row per (label, reference); zero rows are allowed.

        ``declared`` are all labels a row may have: public, and what a shape or a shared prefix is
        decided by. Which of them are in ``labels`` depends on the data.

        Each reference is cut to ``reference_tokens`` tokens and the row padded to the same public
        length; micro-batches have one fixed shape, the last is filled up with dummy rows. Special
        tokens inside a reference are plain text.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens without special tokens. Total: never raises on any token."""

    def likelihoods(
        self,
        template: PromptTemplate,
        labels: Sequence[str | None],
        texts: Sequence[str],
        max_tokens: int,
    ) -> NDArray[np.float64]:
        """Log-likelihood in nats of public texts behind the public prompt of a label; (texts,).

        Of each, ``max_tokens`` tokens are read.
        """

    def grammar(self, schema: Mapping[str, Any]) -> Grammar:
        """The tokens that continue a record of a JSON schema.

        Raises:
            ModelError: The tokenizer or the schema cannot be used so.
        """


class TextModel(Protocol):
    """A language model that completes prompts: whole texts, no logits.

    Its prompts must be public or privatised already: it may run anywhere. Its sampling is public
    randomness.
    """

    @property
    def revision(self) -> str:
        """Digest of weights and tokenizer, or server and model name: enters the release id."""

    def check(self) -> None:
        """Try one public prompt.

        Raises:
            ModelError: It cannot be completed. Retryable where the model may answer later.
        """

    def complete(
        self, prompts: Sequence[str], *, max_tokens: int, temperature: float, top_p: float = 1.0
    ) -> list[str]:
        """One completion per prompt, in order, without the prompt; an empty one where none came.

        Args:
            prompts: What the model reads. Cut from the left where it outgrows the context.
            max_tokens: Longest completion, in tokens; a word they end in is left out.
            temperature: Of sampling; 0 takes the likeliest token.
            top_p: Sample among the likeliest tokens that hold this much probability.

        Raises:
            ModelError: Retryable where the model may answer later (a server that is down).
        """


@runtime_checkable
class TellsEmpty(Protocol):
    """A TextModel that knows why a completion is empty."""

    def why_empty(self) -> str | None:
        """Why the last empty completion was empty. To be told of public prompts alone."""


class VariationAPI(Protocol[T]):
    """A generator of public samples (texts, images): fresh ones, and variations of samples.

    It sees nothing private: a mechanism chose the samples it varies. Its randomness is public.
    Source: Lin et al. 2024, section 4 (RANDOM_API, VARIATION_API).
    """

    @property
    def revision(self) -> str:
        """Digest of weights and settings: enters the release id."""

    def random(self, count: int, label: str | None) -> list[T]:
        """``count`` fresh samples, of a label where there is one; exactly so many."""

    def vary(self, samples: Sequence[T], label: str | None, degree: float) -> list[T]:
        """One variation of each sample, in order.

        Args:
            samples: What to vary.
            label: Their label.
            degree: Share of the sample that changes: 0 returns the sample, 1 a fresh one.
        """


class Embedder(Protocol[T_in]):
    """A map from texts or images to vectors.

    Row independence, as for LogitModel: a vector depends on its own text and on nothing else.
    """

    @property
    def revision(self) -> str:
        """Digest of weights and of what prepares a sample for them."""

    @property
    def width(self) -> int:
        """Length of a vector."""

    def embed(self, samples: Sequence[T_in], /) -> NDArray[np.float32]:
        """Vectors of the samples, in order, shape (samples, width). Total: never raises."""


@runtime_checkable
class ManyShapes(Protocol):
    """An embedder that runs samples in more than one public shape, by what each of them is."""

    def probe(self) -> None:
        """Check on this machine that rows of every shape are independent, each shape once.

        Before the first private sample, whatever samples come: else those that do would decide
        whether there is a release.

        Raises:
            ModelError: They are not.
        """


Row = tuple[Sequence[int], int]
"""Tokens of one training sequence, and the position where the prompt ends and the record begins."""


@dataclass(frozen=True)
class Training:
    """Public settings of a trainer.

    Attributes:
        template: Its public prompt stands before a record.
        labels: All labels a record may have; (None,) where there are none.
        max_tokens: Longest part of a record that is read.
        clip_norm: L2 norm a unit's gradient is clipped to (C).
        records_per_unit: Records a unit may have at most (m).
        micro_batch: Records per pass through the model.
        rank: Inner size of the adapter.
        student: Width, inner width and layers of a small model that is trained whole, from random
            weights, in place of an adapter. None: an adapter is.
        alpha: The adapter's output is scaled by alpha / rank.
        target_modules: Names of the linear layers that are adapted; None: as the architecture has
            them.
    """

    template: PromptTemplate
    labels: tuple[str | None, ...]
    max_tokens: int
    clip_norm: float
    records_per_unit: int
    micro_batch: int
    rank: int
    alpha: float
    target_modules: tuple[str, ...] | None
    student: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Sampling:
    """How tokens of a text are drawn.

    Attributes:
        temperature: Of sampling; 0 takes the likeliest token.
        top_k: Sample among so many likeliest tokens. None: among all.
        top_p: Sample among the likeliest tokens that hold this much probability.
        whole_sentences: A text that runs out of tokens ends with its last whole sentence, or word.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    whole_sentences: bool = False


class Trainer(Protocol):
    """Trainable numbers of a language model, and their gradients, unit by unit.

    Unit independence: what a unit adds to ``clipped_sum`` depends on its own rows and the trained
    numbers alone: not on its position, the other units, or how many there are.
    """

    @property
    def size(self) -> int:
        """Number of trained numbers."""

    def encode(self, label: str | None, text: str) -> Row:
        """The training sequence of a record. Total: never raises on any text."""

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """Sum over units of their clipped gradients, shape (size,), exact.

        A unit's gradient is the sum over its rows of the gradient of the row's own mean loss. It is
        scaled to an L2 norm of at most the clip norm, on a lattice of dp.mechanisms.CLIP_STEPS
        steps per clip norm and rounded toward zero. Zero units give zeros; a gradient that is not
        finite counts as zero.

        Raises:
            MemoryError: Not even one unit fits into memory.
        """

    def update(self, gradient: NDArray[np.float64], learning_rate: float) -> None:
        """One step of the optimiser, AdamW, against a gradient of shape (size,)."""

    def state(self) -> bytes:
        """Trained numbers and the optimiser's, to go on from."""

    def restore(self, state: bytes) -> None:
        """Go on from a state."""

    def moved(self) -> bool:
        """Whether the model's trained numbers differ from those it began with."""

    def files(self) -> Mapping[str, bytes]:
        """Files of the trained weights by name, without optimiser state or randomness."""


class SharedTrainer(Trainer, Protocol):
    """A trainer that several processes hold copies of, each for a share of the units."""

    units_per_pass: int
    """Units of a forward pass. Falls where memory does not suffice."""

    def numbers(self) -> NDArray[np.float32]:
        """Trained numbers, shape (size,)."""

    def take(self, numbers: NDArray[np.float32]) -> None:
        """Set the trained numbers, shape (size,); the optimiser stays as it is."""


class Writer(Protocol):
    """A trained language model that writes records."""

    def write(self, labels: Sequence[str | None]) -> list[str]:
        """One text per label, each ended by the model or cut at the longest length."""

    def likelihoods(
        self, labels: Sequence[str | None], texts: Sequence[str]
    ) -> NDArray[np.float64]:
        """Log-likelihood in nats of each text behind the prompt of a label, shape (texts,)."""


class TrainableModel(Protocol):
    """A causal language model that an adapter can be trained for."""

    @property
    def revision(self) -> str:
        """Digest of weights and tokenizer: enters the release id."""

    def check(self, training: Training) -> None:
        """Try a whole release in small on public rows: a step, its files, a text. Changes nothing.

        Raises:
            ModelError: These settings cannot train it, or its logits are no numbers.
        """

    def trainer(self, training: Training) -> Trainer:
        """A trainer before its first step.

        Raises:
            ModelError: The model has no layer to adapt, or its context is too short.
        """

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> Writer:
        """The model with the trained weights of a folder (a trainer's ``files``)."""
