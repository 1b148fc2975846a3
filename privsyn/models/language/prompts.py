"""From a template to token pieces: public prefix, private reference, public suffix.

Each piece is tokenized by itself. So a reference cannot change the tokens of the prompt around it,
and a special token that a reference spells out stays plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from privsyn.errors import ModelError
from privsyn.models.language.answers import close_thought
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import COLUMN_SLOT, row_slots, split_row, with_row

CHARS_PER_TOKEN = 32
"""Public bound: characters per token to which a reference is cut before it is tokenized."""

LABEL_TOKENS = 32
"""Tokens reserved for a ``{label}``, whatever its value, and the most that it may take."""

_REFERENCE, _LABEL = "{reference}", "{label}"
ROLE = re.compile(r"^\[(user|assistant|system)\][ \t]*(?:\n|$)", re.MULTILINE)
"""A line that begins a message of a chat prompt."""
DAY = date(2025, 1, 1)
"""The date that chat templates see as today."""
_DIRECTIVES = [
    (f"%{flag}{letter}", DAY.strftime(f"%{flag}{letter}"))
    for letter in "aAwdbBmyYHIpMSfzZjUWcxXGuVeDFThRntCgklPr%"
    for flag in ("-", "")
]
_DAY_MACRO = (
    "{%- macro strftime_now(form) -%}{%- set made = namespace(text=form) -%}"
    "{%- for name, value in privsyn_day -%}"
    "{%- set made.text = made.text.replace(name, value) -%}"
    "{%- endfor -%}{{- made.text -}}{%- endmacro %}\n"
)
"""Replaces ``strftime_now`` of transformers, which reads the clock, by the public day."""
_SLOT = "\ue000privsyn reference\ue001"  # private-use characters: in no template and no label

_CHAT = (
    "Write one new text of the same kind as the example.\n"
    "Label: {label}\n"
    "Example: {reference}\n\n"
    "Answer with the new text alone."
)
CHAT = PromptTemplate(private=_CHAT, public=_CHAT.replace(_REFERENCE, ""), chat=True)
"""Prompt of models with a chat template and without a prompt of their own.

Methods that show references have prompts of their own: methods/shared/prompts.py."""

PLAIN = PromptTemplate(
    private="Label: {label}\nText: {reference}\n\nLabel: {label}\nText:",
    public="Label: {label}\nText:",
)
"""Prompt of models without a chat template and without a prompt of their own."""


class PromptEncoder:
    """Fills templates for one tokenizer.

    A row without a label loses each line that holds ``{label}`` and not ``{reference}``.

    Args:
        tokenizer: A transformers tokenizer.
        source: The model's name in messages.
    """

    def __init__(self, tokenizer: Any, source: str) -> None:
        self._tokenizer = tokenizer
        self._source = source
        self._bos = tokenizer.bos_token_id
        adds = tokenizer("a")["input_ids"][:1] == [self._bos] and self._bos is not None
        self._adds_bos = adds
        self._frame: tuple[list[int], str, list[int]] | None = None
        # SentencePiece tokenizers begin every text with a space; within a prompt that is wrong.
        first = tokenizer.convert_ids_to_tokens(self._ids("a", special=False))[:1]
        self._adds_space = bool(first) and str(first[0]).startswith("\u2581")

    def public(self, template: PromptTemplate, label: str | None) -> list[int]:
        """Tokens of the prompt without a reference."""
        if _REFERENCE in template.public:
            raise ModelError("the public prompt must not contain {reference}.")
        rendered = self._render(template.public, template, label)
        return self._refuse_empty(self._prefix(rendered, template.chat))

    def public_and_text(
        self, template: PromptTemplate, label: str | None, text: str, limit: int
    ) -> tuple[list[int], list[int]]:
        """Tokens of the public prompt, and at most ``limit`` of the text after it. Never raises."""
        lead = "" if template.chat or template.public.endswith((" ", "\n")) else " "
        return self.public(template, label), self.reference(text.strip(), lead, limit)

    def private(
        self, template: PromptTemplate, label: str | None
    ) -> tuple[list[int], str, list[int]]:
        """Tokens before the reference, the space to put in front of it, tokens after it."""
        before, lead, after = self._pieces(template, label)
        return self._refuse_empty(before), lead, after

    def _pieces(
        self, template: PromptTemplate, label: str | None
    ) -> tuple[list[int], str, list[int]]:
        """The same as ``private``, but the reference may come first."""
        if template.private.count(_REFERENCE) != 1:
            raise ModelError("the private prompt must contain {reference} exactly once.")
        text = self._render(template.private.replace(_REFERENCE, _SLOT), template, label)
        if text.count(_SLOT) != 1:
            raise ModelError(
                f"models.language={self._source}: the chat template does not keep a message whole."
            )
        before, after = text.split(_SLOT)
        # " word" is one token for most tokenizers, " " and "word" two they were not trained on.
        cut = before.rstrip(" ")
        return self._prefix(cut, template.chat), before[len(cut) :], self._ids(after, inner=True)

    def shared_tokens(self, template: PromptTemplate, declared: Iterable[str | None]) -> list[int]:
        """The tokens with which the private prompts of all declared labels begin.

        privacy: all declared labels count, with records or not: the prefix must not depend on data.
        """
        labels = {None, "", "a", "7 B", "\u00e9", *declared}
        first, *others = (self._pieces(template, label)[0] for label in labels)
        if _LABEL not in template.private and not COLUMN_SLOT.search(template.private):
            return first
        columns = zip(first, *others, strict=False)
        shortest = min(map(len, (first, *others)))
        same = next((i for i, tokens in enumerate(columns) if len(set(tokens)) > 1), shortest)
        return first[: max(0, same - 1)]  # less one: a label may change the token it follows

    def length(self, template: PromptTemplate, labels: Iterable[str | None] = ()) -> int:
        """Tokens of the private prompt around its reference, at its longest.

        privacy: the longest over all declared labels, with records or not, because it sets a shape.
        Without labels it counts LABEL_TOKENS for a label.

        Raises:
            ModelError: What is wrong with the template, or a label of ``labels`` is too long.
        """
        labels = list(labels)
        self.public(template, labels[0] if labels else "a")
        bound = longest = 0
        rows = {split_row(label)[1] for label in labels} or {""}
        room = LABEL_TOKENS * template.private.count(_LABEL)
        for row in rows:
            before, _, after = self._pieces(template, with_row("", row))
            bound = max(bound, len(before) + len(after) + room)
        for label in labels:
            before, _, after = self.private(template, label)
            longest = max(longest, len(before) + len(after))
            if longest > bound:
                raise ModelError(
                    f"models.language={self._source}: the label {label!r} is longer than the "
                    f"{LABEL_TOKENS} tokens a prompt has room for.",
                    hint="Shorten it, or leave {label} out of the prompt.",
                )
        return longest if labels else bound

    def reference(self, text: str, lead: str, limit: int) -> list[int]:
        """At most ``limit`` tokens of a reference, special tokens in it as plain text.

        Never raises, and ``limit`` bounds its cost: it cuts first, and replaces lone surrogates.
        """
        # privacy: one record must not stop a run or take long: no exception, a bounded number of
        # letters.
        cut = text[: CHARS_PER_TOKEN * limit].encode("utf-8", "replace").decode("utf-8")
        return self._ids(lead + cut, special=False, inner=True)[:limit]

    def whole(self, prompt: str, longest: int | None, *, chat: bool = True) -> list[int]:
        """The tokens of a finished prompt; where it exceeds ``longest``, its last tokens.

        With a chat template the prompt is one user message: special tokens in it are plain text,
        and the template around it stays whole. Without one, or with ``chat`` off, the prompt
        follows the token that begins a text. It raises only where the template leaves no room.

        Raises:
            ModelError: The chat template alone is longer than ``longest``, or cannot be used.
        """
        if longest is not None:
            prompt = prompt[-CHARS_PER_TOKEN * max(longest, 1) :]
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")
        if chat and self._tokenizer.chat_template:
            if self._frame is None:
                self._frame = self.private(PromptTemplate(_REFERENCE, "", chat=True), None)
            before, lead, after = self._frame
            body = self._ids(lead + prompt, special=False, inner=True)
        else:
            # Of a chat model the token may begin a message: only where its tokenizer adds it.
            begins = self._bos is not None and (chat or self._adds_bos)
            before, after = [self._bos] * begins, []
            body = self._ids(prompt, special=chat)
            body = body[1:] if body[:1] == before else body
        room = len(body) if longest is None else longest - len(before) - len(after)
        if room < 1 and longest is not None:
            raise ModelError(
                f"models.language={self._source}: its context has {longest} tokens for a prompt, "
                f"and the chat template takes {len(before) + len(after)} of them.",
                hint="Lower max_tokens, or use another model.",
            )
        ids = [*before, *body[max(0, len(body) - room) :], *after]
        return ids or self._ids("\n")

    def _render(self, text: str, template: PromptTemplate, key: str | None) -> str:
        label, row = split_row(key)
        slots = row_slots(text, row)
        absent = [f"{{{name}}}" for name, word in slots.items() if not word]
        absent += [_LABEL] if label is None else []
        if any(slot in text for slot in absent):
            lines = text.splitlines(keepends=True)
            text = "".join(t for t in lines if _SLOT in t or not any(a in t for a in absent))
        label_text = dict(template.labels).get(label, label) if label else ""

        def fill(part: str) -> str:
            part = part.replace(_LABEL, label_text)
            return COLUMN_SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), part)

        if not template.chat:
            return fill(text)
        if not self._tokenizer.chat_template:
            raise ModelError(
                f"models.language={self._source} has no chat template.",
                hint="Set a plain prompt, or name an instruction-tuned model.",
            )
        messages = [message | {"content": fill(message["content"])} for message in _messages(text)]
        opening = messages.pop()["content"] if messages[-1]["role"] == "assistant" else ""
        return close_thought(self._apply_template(messages)) + opening

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        """The messages in the tokenizer's chat template, which sees the fixed public day.

        A prompt with the real date would differ between the start of a run and its continuation.

        Raises:
            ModelError: With the template's own words; it sees public text alone.
        """
        options: dict[str, Any] = {
            "enable_thinking": False,  # only templates of reasoning models read it
            "date_string": f"{DAY.day} {DAY:%B %Y}",
        }
        template = self._tokenizer.chat_template
        if isinstance(template, dict):
            if "default" not in template:
                raise ModelError(
                    f"models.language={self._source} has several chat templates "
                    f"({', '.join(sorted(template))}) and none is called default.",
                    hint="Keep one in chat_template.jinja of the model's folder.",
                )
            template = template["default"]
        if isinstance(template, str) and "strftime_now" in template:
            options |= {"chat_template": _DAY_MACRO + template, "privsyn_day": _DIRECTIVES}
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **options
            )
        except Exception as error:  # a template is a program and may raise anything
            words = " ".join(str(error).replace(_SLOT, "{reference}").split())[:200]
            kind = type(error).__name__
            raise ModelError(
                f"models.language={self._source}: its chat template refuses the prompt: "
                f"{words.rstrip('.') or kind} ({kind}).",
                hint="Change the prompt (a [system] line, for a model that takes none), repair the "
                "template, or name another model.",
            ) from None
        return rendered

    def _prefix(self, text: str, chat: bool) -> list[int]:
        ids = self._ids(text)
        # A chat template writes its own BOS where the model wants one.
        if self._adds_bos and not chat and ids[:1] != [self._bos]:
            ids = [self._bos, *ids]
        return ids

    def _refuse_empty(self, ids: list[int]) -> list[int]:
        if not ids:
            raise ModelError(
                f"models.language={self._source}: the prompt is empty before its first token.",
                hint="Begin it with a word or a special token.",
            )
        return ids

    def _ids(self, text: str, *, special: bool = True, inner: bool = False) -> list[int]:
        """Tokens of a piece; ``inner`` pieces follow another one."""
        if inner and self._adds_space:
            anchor, both = (self._encode(t, special) for t in ("\n", "\n" + text))
            if both[: len(anchor)] == anchor:
                return both[len(anchor) :]
        return self._encode(text, special)

    def _encode(self, text: str, special: bool) -> list[int]:
        ids: Sequence[int] = self._tokenizer(
            text, add_special_tokens=False, split_special_tokens=not special, verbose=False
        )["input_ids"]
        return list(ids)


def _messages(text: str) -> list[dict[str, str]]:
    """A chat prompt as messages, split at its ``[user]``, ``[assistant]``, ``[system]`` lines."""
    first, *rest = ROLE.split(text)
    messages = [{"role": "user", "content": first}] if first.strip() or not rest else []
    for role, content in zip(rest[::2], rest[1::2], strict=True):
        messages.append({"role": role, "content": content})
    # The line break before the next role line does not belong to a message.
    for message in messages[:-1]:
        message["content"] = message["content"].removesuffix("\n")
    return messages


def refuse_overlong(source: str, config: Any, prompt: int, max_tokens: int) -> None:
    """Refuse a prompt and an output that together exceed a model's context.

    Raises:
        ModelError: By how many tokens.
    """
    context = context_length(config)
    short = prompt + max_tokens - (context or prompt + max_tokens)
    if short > 0:
        raise ModelError(
            f"models.language={source}: its context of {context} tokens is {short} short "
            f"of the prompt ({prompt}) plus max_tokens ({max_tokens}).",
            hint="Lower max_tokens, or use another model.",
        )


def context_length(config: Any) -> int | None:
    """Longest sequence the model takes, or None where positions are unbounded.

    With a RoPE that rescales itself once any row of the batch grows past the original length, only
    that length is used: beyond it rows are not independent.
    """
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
    longest: int | None = next((n for n in (getattr(config, k, None) for k in names) if n), None)
    rope = getattr(config, "rope_parameters", None) or {}
    parts = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    for part in parts:
        if "dynamic" in str(part.get("rope_type")) or part.get("rope_type") == "longrope":
            original = part.get("original_max_position_embeddings") or longest
            longest = min(original, longest or original) if original else longest
    return longest
