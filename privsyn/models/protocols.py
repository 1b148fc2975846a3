"""Protocols between methods and models. Batch in, batch out. Fakes are in tests/fakes.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
T_in = TypeVar("T_in", contravariant=True)
Token = Any
"""A token of a text model: its number, or a word where the model is behind a server."""


@dataclass(frozen=True)
class PromptTemplate:
    """One prompt with two places to fill: the public ``{label}`` and the private ``{reference}``.

    In a chat prompt, a line ``[user]``, ``[assistant]`` or ``[system]`` begins a message; without
    such a line the whole prompt is the user's message. If the last message is the assistant's, it
    is the beginning of the answer, and the generated text continues it.

    Attributes:
        private: Prompt around a reference. Must contain ``{reference}`` once.
        public: Prompt without a reference. Must not contain ``{reference}``.
        chat: Whether the filled prompt goes through the tokenizer's chat template.
        labels: Pairs of a label and the text that replaces it in a prompt.
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
            rows: Rows to return; by default all.
            columns: Tokens of the vocabulary; by default all. A few are much cheaper.
        """

    def append(self, tokens: Sequence[int]) -> None:
        """Append one token to every row."""

    def rewind(self) -> None:
        """Return every row to the end of its prompt, to begin another text."""


class Grammar(Protocol):
    """A public rule that decides which tokens may follow."""

    def allowed_tokens(self, text: Sequence[int]) -> NDArray[np.int64]:
        """The tokens that may follow a text of allowed tokens, sorted; at least one."""


class LogitModel(Protocol):
    """A causal language model whose logits a method may read.

    Row independence, which the privacy proofs need: the logits of a row depend on that row's own
    tokens alone, not on its position, its neighbors, or the number of rows.
    """

    @property
    def revision(self) -> str:
        """Digest of weights, tokenizer and numeric settings; part of the release id."""

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""

    @property
    def eos(self) -> int:
        """Token that ends a text. A row that ends with it is finished; its logits may be zeros."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text: ``eos`` and all others that are not text."""

    @property
    def breaks(self) -> NDArray[np.int64]:
        """The ends, and every token that holds a line break."""

    def check(self, template: PromptTemplate, reference_tokens: int, max_tokens: int) -> None:
        """Refuse a template or lengths that do not fit the model's context, with numbers."""

    def public_rows(
        self, template: PromptTemplate, labels: Sequence[str | None], max_tokens: int
    ) -> Session:
        """One row per label, without a reference, in separate passes of one fixed shape."""

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

        ``declared`` are all labels a row may have. They are public, so they decide shapes and
        shared prefixes. Which of them are in ``labels`` depends on the data.

        Each reference is cut to ``reference_tokens`` tokens and the row padded to the same public
        length; micro-batches have one fixed shape, the last is filled up with dummy rows. Special
        tokens inside a reference are plain text.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens without special tokens. Total: never raises on any token."""

    def grammar(self, schema: Mapping[str, Any]) -> Grammar:
        """The tokens that continue a record of a JSON schema.

        Raises:
            ModelError: The tokenizer or the schema does not allow it.
        """


class TextModel(Protocol):
    """A language model that completes prompts: whole texts, no logits.

    Its prompts must be public or already privatized, so it may run anywhere. Its sampling is
    public randomness.
    """

    @property
    def revision(self) -> str:
        """Digest of weights and tokenizer, or server and model name; part of the release id."""

    def check(self) -> None:
        """Try one public prompt.

        Raises:
            ModelError: It cannot be completed. Retryable if the model may answer later.
        """

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        until: Sequence[str] | None = None,
    ) -> list[str]:
        """One completion per prompt, in order, without the prompt. It may be empty.

        Args:
            prompts: Prompts. Those longer than the context are cut from the left.
            max_tokens: Longest completion, in tokens; an unfinished last word is left out.
            temperature: Temperature of sampling; 0 takes the likeliest token.
            top_p: Sample among the likeliest tokens that hold this much probability.
            until: Continue the prompt as it is, with no chat template around it, up to the first of
                these strings: they begin the next text of a list. A server that takes chat messages
                alone gets the prompt as a message. None: answer the prompt.

        Raises:
            ModelError: Retryable if the model may answer later (a server that is down).
        """


@runtime_checkable
class AdaptableModel(TextModel, Protocol):
    """A TextModel whose tokens can be made likelier or less likely.

    Its ``complete`` takes ``log_ratios``, too: what is added to the logits, by token.
    """

    def tokens(self, text: str) -> Sequence[Token]:
        """The distinct tokens of a text, in order, special ones as plain text.

        Never raises. What it gives depends on this text alone, which may be private: it is read on
        this machine, whatever runs the model.
        """


@runtime_checkable
class TellsLikelihoods(Protocol):
    """A TextModel that tells how likely it finds a text, as none behind a server does."""

    def read(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Nats a token of the second text of each pair behind the first, shape (pairs,)."""


@runtime_checkable
class TellsEmpty(Protocol):
    """A TextModel that knows why a completion is empty."""

    def why_empty(self) -> str | None:
        """Why the last empty completion was empty. Show it for public prompts only."""


class VariationAPI(Protocol[T]):
    """A generator of public samples (texts, images): new samples, and variations of samples.

    It sees nothing private: a mechanism chose the samples that it varies. Its randomness is public.
    Source: Lin et al. 2024, section 4 (RANDOM_API, VARIATION_API).
    """

    @property
    def revision(self) -> str:
        """Digest of weights and settings; part of the release id."""

    def random(self, count: int, label: str | None) -> list[T]:
        """Exactly ``count`` new samples, of the label if one is given."""

    def vary(self, samples: Sequence[T], label: str | None, degree: float) -> list[T]:
        """One variation of each sample, in order.

        Args:
            samples: What to vary.
            label: Their label.
            degree: Share of the sample that changes: 0 returns the sample, 1 a new one.
        """


@runtime_checkable
class OwnClasses(Protocol[T]):
    """A VariationAPI that makes each sample of a class of its own.

    Classes are public: no label and no record decides them. A sample keeps its class through all
    its variations. Source: Lin et al. 2024, appendix I.
    """

    def classes(self, count: int, label: str | None) -> list[str] | None:
        """A random class for each of ``count`` new samples. None: the label alone decides."""

    def random_of(self, classes: Sequence[str], label: str | None) -> list[T]:
        """One new sample of each class."""

    def vary_of(
        self, samples: Sequence[T], classes: Sequence[str], label: str | None, degree: float
    ) -> list[T]:
        """One variation of each sample, of its class, in order. Arguments: those of ``vary``."""


@runtime_checkable
class TakesSteps(Protocol):
    """A VariationAPI that takes a number of denoising steps."""

    def with_steps(self, steps: int) -> Self:
        """The same generator, whose new samples take so many steps, and variations a share."""


class Embedder(Protocol[T_in]):
    """A map from texts or images to vectors.

    Row independence, as for LogitModel: a vector depends on its own sample alone.
    """

    @property
    def revision(self) -> str:
        """Digest of weights and of the preparation of samples."""

    @property
    def width(self) -> int:
        """Length of a vector."""

    def embed(self, samples: Sequence[T_in], /) -> NDArray[np.float32]:
        """Vectors of the samples, in order, shape (samples, width). Total: never raises."""


@runtime_checkable
class ManyShapes(Protocol):
    """An embedder with several public shapes; each sample's own size chooses its shape."""

    def probe(self) -> None:
        """Check once per shape that rows are independent on this machine.

        Call it before the first private sample. Otherwise the shapes that occur in the private
        data would decide whether a release fails.

        Raises:
            ModelError: Rows of a shape are not independent.
        """


Row = tuple[Sequence[int], int]
"""Tokens of one training sequence, and the position of the record's first token."""


@dataclass(frozen=True)
class Training:
    """Public settings of a trainer.

    Attributes:
        template: Its public prompt precedes each record.
        labels: All labels a record may have; (None,) without labels.
        max_tokens: Most tokens of a record that are read.
        clip_norm: L2 norm a unit's gradient is clipped to (C).
        records_per_unit: Records a unit may have at most (m).
        micro_batch: Records per pass through the model.
        rank: Inner size of the adapter.
        alpha: The adapter's output is scaled by alpha / rank.
        target_modules: Names of the linear layers that are adapted; None: the architecture's
            default.
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


@dataclass(frozen=True)
class Sampling:
    """How tokens of a text are sampled.

    Attributes:
        temperature: Temperature; 0 takes the likeliest token.
        top_k: Sample among this many likeliest tokens. None: among all.
        top_p: Sample among the likeliest tokens that hold this much probability.
        whole_sentences: Cut a text that runs out of tokens after its last whole sentence or word.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    whole_sentences: bool = False


class Trainer(Protocol):
    """Trainable parameters of a language model, and their gradients per unit.

    Unit independence: what a unit adds to ``clipped_sum`` depends on its own rows and the trained
    parameters alone, not on its position, the other units, or their number.
    """

    @property
    def size(self) -> int:
        """Number of trained parameters."""

    def encode(self, label: str | None, text: str) -> Row:
        """The training sequence of a record. Total: never raises on any text."""

    def clipped_sum(self, units: Sequence[Sequence[Row]]) -> NDArray[np.int64]:
        """Sum over units of their clipped gradients, shape (size,), exact.

        A unit's gradient is the sum over its rows of the gradient of each row's mean loss. It is
        scaled to an L2 norm of at most the clip norm and rounded toward zero, on a lattice of
        ``dp.mechanisms.CLIP_STEPS`` steps per clip norm. Without units the sum is zero; a gradient
        that is not finite counts as zero.

        Raises:
            MemoryError: One unit alone does not fit into memory.
        """

    def update(self, gradient: NDArray[np.float64], learning_rate: float) -> None:
        """One step of the optimizer AdamW along a gradient of shape (size,)."""

    def state(self) -> bytes:
        """State of parameters and optimizer, for ``restore``."""

    def restore(self, state: bytes) -> None:
        """Continue from a state."""

    def has_moved(self) -> bool:
        """Whether the trained parameters differ from their initial values."""

    def files(self) -> Mapping[str, bytes]:
        """Files of the trained weights by name, without the optimizer's state or randomness."""


class Writer(Protocol):
    """A trained language model that writes records."""

    def write(self, labels: Sequence[str | None]) -> list[str]:
        """One text per label, each ended by the model or cut at its longest length."""

    def likelihoods(
        self, labels: Sequence[str | None], texts: Sequence[str]
    ) -> NDArray[np.float64]:
        """Log-likelihood in nats of each text after its label's prompt, shape (texts,)."""


class TrainableModel(Protocol):
    """A causal language model that an adapter can be trained for."""

    @property
    def revision(self) -> str:
        """Digest of weights and tokenizer; part of the release id."""

    def check(self, training: Training) -> None:
        """Try one training step, its files and one text on public rows. Changes nothing.

        Raises:
            ModelError: These settings cannot train it, or its logits are not finite.
        """

    def trainer(self, training: Training) -> Trainer:
        """A trainer before its first step.

        Raises:
            ModelError: The model has no layer to adapt, or its context is too short.
        """

    def writer(self, training: Training, folder: Path, sampling: Sampling) -> Writer:
        """The model with the trained weights of a folder (a trainer's ``files``)."""
