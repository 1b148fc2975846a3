"""Fresh texts and variations of texts from a language model that completes prompts.

A model that follows instructions gets a request to write or to rephrase. A model that only
continues text gets the text and its first part, and writes a new second part.

Source: Xie et al. 2024, "Differentially private synthetic data via foundation model APIs 2: Text"
(Aug-PE): prompts with random style words, rephrasing and filling in, a length for each variation.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from privsyn.data import public_files
from privsyn.data.settings import TextExample
from privsyn.data.words import LETTER, MARKS, WORD, names, runs, word_count, word_ends
from privsyn.data.words import words as words_of
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.protocols import (
    AdaptableModel,
    PromptTemplate,
    TellsLikelihoods,
    TextModel,
    Token,
)
from privsyn.models.rows import ANYTHING, Subject, row_slots, with_columns
from privsyn.models.trial import SENTENCE, refuse_assistant, refuse_silence, try_texts
from privsyn.section import Section

log = logging.getLogger(__name__)

STYLES = (
    "brief and plain",
    "detailed",
    "casual",
    "formal",
    "polite",
    "impatient",
    "as a question",
    "as a statement",
    "in the first person",
    "with an example",
)
"""Ways to write, for prompts that name {style}."""

TOP_P = 0.9
"""Default share of likely tokens. Sampling is public, so it costs nothing."""

ATTEMPTS = 4
"""Most requests for one text; each follows a failed one (Ending.failed)."""

# After a request to write, small chat models talk about the task ("Here is a ...").
CHAT_RANDOM = "The following is {document}.\nTopic: {label}\nWords to build on: {phrases}\nText:"
"""Prompt of a fresh text for chat models, also in keyphrase seeding; ``chat_random`` fills it."""
# Finds "patient" in "a message from a patient to a clinic", nothing in "an abstract of an article".
_WRITER = re.compile(
    r"\b(?:from|by) (?:an?|the|one of the) ([^\W\d][\w' -]{1,40}?)"
    r"(?= (?:to|for|about|at|of|on|in|with|after|before|who|that|which)\b|[,.;(]|\s*\Z)"
)

# A prompt with style, length and amount of change makes them write about these (RESULTS.md).
_CHAT_VARY = "Say this in other words: {text}"
LISTED = "Each text below is {document}.\n\n{examples}Topic: {label}\nWords: {phrases}\nText:"
"""Prompt of a fresh text where there are public examples: a list that the model continues. A small
chat model answers a request about a text, and continues a list in the voice of its texts."""
_MOST_SHOWN = 6
"""Most examples of a prompt. Of fifteen in a row a small model lost the label."""
_SHOWN_WORDS = 4
"""Words that a prompt shows of an example, where it names phrases."""
_LENGTH_SPREAD = 8
"""Words by which a variation may outgrow its text, or is asked to differ."""
# These are compiled at their first use, which takes a tenth of a second.
_SHOWN = rf"(?:{LETTER}){{2,4}}|{WORD}"
"""A word of an example, or the first letters of a clause without spaces."""
_NAME_OF_SLOT = rf"(?m)^((?:[A-Z]|{LETTER})[\w{MARKS}]*)[:\uff1a]"
_COPIED = 5
"""A run of so many words of an example marks a text that copies it."""
_SLOTS = {
    "random_prompt": ("label", "style", "document", "examples", "columns"),
    "vary_prompt": ("text", "label", "style", "length", "change", "document", "columns"),
}


MaxTokens = Annotated[int, Field(ge=1, le=100_000, description="Most tokens of a text.")]
TopP = Annotated[
    float,
    Field(
        gt=0,
        le=1,
        description="Sample among the likeliest tokens that hold this much probability: a small "
        "model's tail is heavy.",
    ),
]
LabelWords = Annotated[
    dict[str, str], Field(description="What prompts say for a label. Empty: as in the dataset.")
]
"""Settings of all methods whose texts are sampled by a prompt."""


class TextConfig(Section):
    """Prompts and lengths of texts. All are public.

    An empty slot (no label) removes its line, from the last ``>`` in it on.
    """

    random_prompt: str | None = None
    """Prompt of a fresh text; may name {label}, {style}, {columns} or one of them
    ({columns.age}), and {examples} before them. Null: a list of the examples, or the model's own
    prompt without examples."""
    name_labels: bool = True
    """Whether prompts name the {label}. False: for labels that are codes; mean_share then says
    whose candidate a text is."""
    vary_prompt: str | None = None
    """Prompt of a variation of {text}; may name {label}, {style}, {length}, {change}, {columns}.
    Null: the model's own."""
    temperature: float = Field(default=0.8, ge=0, le=10)
    """Temperature of sampling."""
    max_tokens: MaxTokens = 64

    @field_validator("random_prompt", "vary_prompt")
    @classmethod
    def _has_known_slots(cls, value: str | None, info: ValidationInfo) -> str | None:
        slots = _SLOTS[str(info.field_name)]
        if "text" in slots and value is not None and value.count("{text}") != 1:
            raise ValueError("must contain {text} exactly once")
        if unknown := set(re.findall(r"\{(\w+)\}", value or "")).difference(slots):
            raise ValueError(f"{{{min(unknown)}}} is not one of {', '.join(slots)}")
        return value

    def resolved(self, own: PromptTemplate, subject: Subject = ANYTHING) -> TextSettings:
        """These settings, with a model's own prompts for those that are null.

        Args:
            own: The model's prompts with and without a reference.
            subject: What prompts say of records. A request to rephrase names no columns by itself.
        """
        if own.chat:
            fresh, vary = chat_random(subject.document), _CHAT_VARY
        else:
            fresh, vary = own.public, own.private.replace("{reference}", "{text}")
            head, marker, _ = fresh.rpartition("Text:")
            if marker and "{label}" not in fresh:
                fresh = f"{head}Topic: {{label}}\nText:"
        if subject.examples:
            fresh = LISTED
        fresh = fill_slots(fresh, {"phrases": ""})  # keyphrase seeding alone has some
        record_noun = subject.document or "a short text"
        fresh, vary = self.random_prompt or fresh, self.vary_prompt or vary
        subject.refuse_unknown(fresh, vary)
        if subject.columns:
            fresh, vary = with_columns(fresh), vary if own.chat else with_columns(vary)
        return TextSettings(
            random_prompt=fresh.replace("{document}", record_noun),
            vary_prompt=vary.replace("{document}", record_noun),
            name_labels=self.name_labels,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            labels=dict(subject.descriptions),
            examples=subject.examples,
            rephrase=own.chat,
            roles=subject.roles,
        )


class TextSettings(TextConfig):
    """Prompts and lengths with a model's own prompts and the public facts filled in.

    Attributes:
        labels: What prompts say for a label, where not the label itself.
        examples: Invented texts that prompts show.
        rephrase: Whether the answer is the variation; else the model goes on from a kept first part
            of the text.
        top_p: Sample among the likeliest tokens that hold this much probability.
        roles: Of a conversation: two must speak.
    """

    labels: LabelWords = Field(default={})
    examples: tuple[TextExample, ...] = ()
    rephrase: bool = False
    top_p: TopP = TOP_P
    # A release of other texts keeps its id.
    roles: tuple[str, ...] = Field(default=(), exclude_if=lambda roles: not roles)


class ExampleList:
    """A prompt with invented texts in the place of {examples}, each behind the same request.

    Args:
        prompt: Its part after {examples} is the request, which the model continues.
        examples: The invented texts.
        label_text: What the request says for a label.
    """

    def __init__(
        self,
        prompt: str,
        examples: Sequence[TextExample],
        label_text: Callable[[str | None], str],
    ) -> None:
        self._before, mark, self._request = prompt.rpartition("{examples}")
        self._examples = tuple(examples) if mark else ()
        self._label_text = label_text
        self._copied = {
            run for example in examples for run in runs(public_files.words(example.text), _COPIED)
        }
        # A word of the request, or one in small letters somewhere, is no name.
        spoken = " ".join([prompt, *(label_text(one.label) for one in self._examples)])
        others = words_of(" ".join([spoken.casefold(), *(one.text for one in self._examples)]))
        named = {name for one in self._examples for name in names(one.text)}
        self._names = {name for name in named if name.casefold() not in others}
        slots = re.findall(_NAME_OF_SLOT, self._request) if self._examples else []
        self._next = re.compile(rf"\n\s*(?:{'|'.join(slots)})(?!\w)") if slots else None
        self.until = tuple(f"\n{slot}" for slot in slots) if self._examples else None
        """Where a continued list goes on to the next text; None: no list, so a request."""

    def draw(self, label: str | None, rng: np.random.Generator) -> list[TextExample]:
        """The examples of a prompt: few, one of a label at most, the asked one's among them.

        They stand as written: small models copy from the last, which so has any label.
        """
        labels = [one.label for one in self._examples]
        order = rng.permutation(len(labels)).tolist()
        apart = {place if labels[place] is None else labels[place]: place for place in order}
        some = sorted(apart.values(), key=lambda place: labels[place] == label)[-_MOST_SHOWN:]
        return [self._examples[place] for place in sorted(some)]

    def fill(self, slots: Mapping[str, str], shown: Sequence[TextExample]) -> tuple[str, str]:
        """The prompt with its slots filled, and its part after the shown examples."""
        listed = "".join(self._example(example, slots) for example in shown)
        request = fill_slots(self._request, slots)
        return fill_slots(self._before, slots) + listed + request, request

    def _example(self, example: TextExample, slots: Mapping[str, str]) -> str:
        # The longest words stand for what a text is about; the model learns to use such words. They
        # are the same in every prompt, since a model reads what all prompts begin with once.
        pieces = dict.fromkeys(re.findall(_SHOWN, example.text.casefold()))
        longest = sorted(pieces, key=len, reverse=True)
        shown = dict(slots) | {"label": self._label_text(example.label), "columns": ""}
        if slots.get("phrases"):
            shown["phrases"] = ", ".join(longest[:_SHOWN_WORDS])
        return f"{fill_slots(self._request, shown)} {example.text.strip()}\n\n"

    def before_next(self, text: str) -> str:
        """An answer, without the next text of the list that the model may have begun."""
        following = self._next.search(text) if self._next else None
        return text[: following.start()] if following else text

    def copies(self, text: str) -> bool:
        """Whether a text repeats an example at length, or a name of one."""
        copied = not self._copied.isdisjoint(runs(public_files.words(text), _COPIED))
        return copied or not self._names.isdisjoint(words_of(text))


class TextVariation:
    """A generator of texts by prompts to a language model.

    Args:
        settings: Prompts and lengths, ``resolved``.
        model: Completes the prompts.
        rng: Public randomness of styles, lengths and kept parts. None takes a seed from the
            operating system.
        log_ratios: What is added to the logits of tokens, by label: public, or paid for by the
            caller. Only for an AdaptableModel.
    """

    def __init__(
        self,
        settings: TextSettings,
        model: TextModel,
        rng: np.random.Generator | None = None,
        log_ratios: Mapping[str | None, Mapping[Token, float]] | None = None,
    ) -> None:
        if settings.random_prompt is None or settings.vary_prompt is None:
            raise ValueError("settings are not resolved")
        self._settings, self._model = settings, model
        self._vary = settings.vary_prompt
        self._label_text = partial(label_text, words=settings.labels, named=settings.name_labels)
        self._fresh = ExampleList(settings.random_prompt, settings.examples, self._label_text)
        examples = (example.text for example in settings.examples)
        self._ending = Ending.of(settings.max_tokens, examples, settings.roles)
        self._rng = rng or np.random.default_rng()
        self._log_ratios = log_ratios or {}
        self._rows: Sequence[str] = ()
        self._told = False

    def with_log_ratios(
        self, log_ratios: Mapping[str | None, Mapping[Token, float]]
    ) -> TextVariation:
        """The same generator, which adds these to the logits of tokens, by label."""
        return TextVariation(self._settings, self._model, self._rng, log_ratios)

    def with_rows(self, words: Sequence[str]) -> TextVariation:
        """The same generator, whose n-th text is for the row of the n-th words, over and over."""
        written = copy(self)
        written._rows = words
        return written

    def tokens(self, text: str) -> Sequence[Token]:
        """The distinct tokens of a text, which may be private."""
        if not isinstance(self._model, AdaptableModel):
            raise TypeError(f"{type(self._model).__name__} tells no tokens")
        return self._model.tokens(text)

    @property
    def revision(self) -> str:
        """The model's revision and a digest of the settings."""
        digest = hashlib.sha256(self._settings.model_dump_json().encode()).hexdigest()
        return f"{self._model.revision}+{digest[:16]}"

    def random(self, count: int, label: str | None) -> list[str]:
        """``count`` fresh texts, with new requests for those that fail (Ending.failed).

        Raises:
            ModelError: No text came at all, or the model failed.
        """
        texts, answers, failed = [""] * count, [""], [True] * count
        for _ in range(ATTEMPTS):
            again = [i for i in range(count) if failed[i]]
            if not again:
                return texts
            # One list for all, since a model reads what all prompts begin with once.
            shown = self._fresh.draw(label, self._rng)
            requests = [self._request(label, shown, i) for i in again]
            prompts = [prompt for prompt, _ in requests]
            answers = self._complete(prompts, label, self._fresh.until)
            for i, (_, request), answer in zip(again, requests, answers, strict=True):
                text = self._clean_fresh(answer)
                failed[i] = self._ending.is_unusable(text, request) or self._fresh.copies(text)
                if not failed[i] or len(text) > len(texts[i]):
                    texts[i] = text
        self._tell_refusals(sum(failed), count)
        if count:
            refuse_silence(self._model, [*texts, *answers], ATTEMPTS * count)
        # A release never holds an assistant's answer or a thought: another text takes its place.
        some = self._ending.texts(texts)
        if count and not some:
            refuse_assistant(ATTEMPTS * count)
        chosen = set(some)
        return [t if t in chosen else some[self._rng.integers(len(some))] for t in texts]

    def readings(self, texts: Sequence[str], label: str | None) -> NDArray[np.float64] | None:
        """Nats a token of each text behind its prompt, by the model without log ratios, (texts,).

        None of a model whose likelihoods cannot be read, as behind a server.
        """
        if not isinstance(self._model, TellsLikelihoods):
            return None
        slots = (self._slots(label, number) | {"style": ""} for number in range(len(texts)))
        prompts = (self._fresh.fill(of, ())[0] for of in slots)
        return self._model.read(list(zip(prompts, (f" {text}" for text in texts), strict=True)))

    def check(self, labels: Sequence[str | None], degree: float) -> list[str]:
        """Fresh texts and variations of them, for two public prompts of each kind.

        Raises:
            ModelError: No fresh text, or no variation, came; the message has the reason.
        """
        wanted_labels = [labels[place % len(labels)] if labels else None for place in range(2)]
        prompts = [
            self._request(label, self._fresh.draw(label, self._rng))[0] for label in wanted_labels
        ]
        fresh = self._try_once(prompts, self._fresh.until)
        if not 0 < degree < 1:
            return fresh
        texts = (fresh or [SENTENCE]) * len(wanted_labels)
        pairs = zip(texts, wanted_labels, strict=False)
        prompts = [self._prompt(text, label, degree)[0] for text, label in pairs]
        return fresh + self._try_once(prompts)

    def _try_once(self, prompts: Sequence[str], until: Sequence[str] | None = None) -> list[str]:
        """The answers to public prompts, cleaned, without empty ones."""
        settings = self._settings
        texts = try_texts(
            self._model,
            prompts,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            until=until,
            clean=self._ending.cut if until is None else self._clean_fresh,
        )
        return list(filter(None, texts))

    def vary(self, samples: Sequence[str], label: str | None, degree: float) -> list[str]:
        """One variation of each text, or the text itself where the model gives none.

        ``degree`` is the share of a text that is new.
        """
        if degree <= 0:
            return list(samples)
        if degree >= 1:
            return self.random(len(samples), label)
        pairs = [self._prompt(text, label, degree, i) for i, text in enumerate(samples)]
        prompts = [prompt for prompt, _ in pairs]
        answers = self._complete(prompts, label)
        variations = [
            self._ending.cut(beginning + text if text.strip() else "", self._longest(sample))
            for (_, beginning), text, sample in zip(pairs, answers, samples, strict=True)
        ]
        slots = self._slots(label) | {"length": "0", "change": "somewhat"}
        wanted_labels = fill_slots(self._vary.replace("{text}", ""), slots)
        worse = [
            self._worse(new, old, wanted_labels)
            for new, old in zip(variations, samples, strict=True)
        ]
        self._tell_refusals(sum(worse), len(worse))
        choices = zip(variations, samples, strict=True)
        return [pair[bad] for pair, bad in zip(choices, worse, strict=True)]

    def _tell_refusals(self, refused: int, count: int) -> None:
        """Warn once where most of the model's answers are refused."""
        if 2 * refused > count and not self._told:
            self._told = True
            log.warning(
                "Of %d texts the model's answers for %d were refused (too short, broken off, "
                "several texts, an assistant's answer, or the prompt again): the release is worse "
                "and may repeat itself. Change the prompt, or name another model.",
                count,
                refused,
            )

    def _worse(self, new: str, old: str, prompt: str) -> bool:
        """Whether a variation is worse than its text: too short, broken off, or strayed.

        Args:
            new: The variation.
            old: The varied text.
            prompt: The prompt without the text.
        """
        ending = self._ending
        if ending.short(new) and len(new) < len(old):
            return True
        if ending.is_monologue(new) and not ending.is_monologue(old):
            return True
        if ending.breaks_off(new) and not ending.breaks_off(old):
            return True
        return ending.strays(new, prompt) and not ending.strays(old, prompt)

    def _prompt(
        self, text: str, label: str | None, degree: float, number: int = 0
    ) -> tuple[str, str]:
        """The prompt of a variation, and the part of the text that the answer continues."""
        words = word_ends(text)
        more = int(self._rng.integers(-_LENGTH_SPREAD, _LENGTH_SPREAD + 1))
        slots = self._slots(label, number) | {
            "text": text,
            "length": str(max(1, len(words) + more)),
            "change": "a little" if degree < 1 / 3 else "a lot" if degree > 2 / 3 else "somewhat",
        }
        prompt = fill_slots(self._vary, slots)
        if self._settings.rephrase or not words:
            return prompt, ""
        # [E9] Keep 1 - degree on average, at random, so that texts also change at their beginning.
        share = self._rng.uniform(0, 2 * (1 - degree))
        count = min(int(share * len(words)), len(words) - 1)
        beginning = text[: words[count - 1]].lstrip() if count else ""
        return (f"{prompt} {beginning}" if beginning else prompt), beginning

    def _longest(self, text: str) -> int | None:
        """Most words of a variation."""
        if self._settings.rephrase:
            return None
        return word_count(text) + _LENGTH_SPREAD

    def _request(
        self, label: str | None, shown: Sequence[TextExample], number: int = 0
    ) -> tuple[str, str]:
        """The prompt of a fresh text, and its part after the examples."""
        return self._fresh.fill(self._slots(label, number), shown)

    def _clean_fresh(self, text: str) -> str:
        """A fresh text, before the beginning of another one."""
        return self._ending.cut(self._fresh.before_next(text))

    def _complete(
        self, prompts: Sequence[str], label: str | None, until: Sequence[str] | None = None
    ) -> list[str]:
        settings, adapted = self._settings, {}
        if log_ratios := self._log_ratios.get(label):
            adapted = {"log_ratios": log_ratios}
        answers = self._model.complete(
            prompts,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            until=until,
            **adapted,
        )
        # A model may return fewer texts than prompts: the missing ones count as failed.
        return [*answers, *[""] * (len(prompts) - len(answers))][: len(prompts)]

    def _slots(self, label: str | None, number: int = 0) -> dict[str, str]:
        style = STYLES[self._rng.integers(len(STYLES))]
        words = self._rows[number % len(self._rows)] if self._rows else ""
        return {"label": self._label_text(label), "style": style, "columns": words}


def chat_random(document: str | None) -> str:
    """CHAT_RANDOM with the writer, where the public phrase for a record names one.

    Without it small models write to that person or about them: benchmarks/RESULTS.md.

    >>> chat_random("a message from a patient to a clinic").splitlines()[2]
    'Written by the patient, in the first person.'
    """
    writer = _WRITER.search(document or "")
    if writer is None:
        return CHAT_RANDOM
    head, marker, tail = CHAT_RANDOM.rpartition("Words to build on:")
    return f"{head}Written by the {writer[1]}, in the first person.\n{marker}{tail}"


def label_text(label: str | None, words: Mapping[str, str], *, named: bool) -> str:
    """What prompts say for a label.

    Args:
        label: A public label; None where records have none.
        words: Label -> its words, where they differ from its name.
        named: Whether prompts name labels; "" where they do not.
    """
    return words.get(label, label) if label and named else ""


def fill_slots(prompt: str, slots: Mapping[str, str]) -> str:
    """The prompt with its slots filled in one pass, so that braces in a value stay as they are.

    An empty slot removes its line, from the last ``>`` in it on. ``columns`` are a row's words.
    """
    if "columns" in slots:
        slots = {**slots, **row_slots(prompt, slots["columns"])}
    for name, value in slots.items():
        if not value:
            prompt = re.sub(rf"[^\n>]*\{{{re.escape(name)}\}}[^\n]*\n?", "", prompt)
    return re.sub(r"\{([^{}\n]+)\}", lambda slot: slots.get(slot[1], slot[0]), prompt)
