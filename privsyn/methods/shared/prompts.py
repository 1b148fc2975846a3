"""Prompts as settings: a private and a public one, and forms for common tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import Field, model_validator

from privsyn.errors import ConfigError
from privsyn.models.language.answers import as_text
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.prompts import CHAT, PLAIN, ROLE
from privsyn.models.language.text_variation import MaxTokens
from privsyn.models.protocols import LogitModel, PromptTemplate
from privsyn.models.rows import ANYTHING, Subject
from privsyn.section import Section

if TYPE_CHECKING:
    from privsyn.models.model_identity import ModelIdentity

MIN_TOKENS = 5
"""Fewest tokens of a text where ``whole_sentences`` is set."""

WholeSentences = Annotated[
    bool,
    Field(
        description="Cut a text that ran out of tokens after its last whole sentence, or after its "
        "last whole word if too few words would be left; no text drawn token by token ends or "
        "breaks its line within 5 tokens, but JSON records. False: as the papers.",
    ),
]
"""Setting of methods whose texts may run out of tokens."""

Candidates = Annotated[
    int,
    Field(
        ge=1,
        le=1000,
        description="Texts written for each that is released: the one nearest to its phrases, or "
        "most of its label by the model that wrote it, is kept. 1: as the papers.",
    ),
]
LabelSplit = Annotated[
    dict[str, Annotated[int, Field(ge=1)]] | None,
    Field(description="Public number of records of every label. Null: equally many of each."),
]
"""Settings of methods that release as many records of a label as is asked for."""


class PromptConfig(Section):
    """The two prompts, as data."""

    private: str
    """Prompt around a {reference}; may name the {label}. A line [user], [assistant] or [system]
    begins a message in the model's chat template; a last message of the assistant is the beginning
    of the answer. Without such a line the text is continued."""
    public: str
    """The same prompt without a reference."""

    @model_validator(mode="after")
    def _reference_stays_private(self) -> PromptConfig:
        if self.private.count("{reference}") != 1:
            raise ValueError("private must contain {reference} exactly once")
        if "{reference}" in self.public:
            raise ValueError("public must not contain {reference}")
        return self


class Prompt(PromptConfig):
    """The prompts of a release, with all public facts filled in.

    Attributes:
        chat: Whether the prompts are messages in the model's chat template.
        labels: Text that replaces a label in the prompts.
        stops: A text ends before the first of these. None: none for a chat prompt; otherwise what
            separates two records, and the line that begins the next one.
    """

    chat: bool = False
    labels: dict[str, str] = Field(default={})
    stops: tuple[str, ...] | None = None

    @property
    def template(self) -> PromptTemplate:
        """The prompts as a template for language models."""
        return PromptTemplate(self.private, self.public, self.chat, tuple(self.labels.items()))

    @property
    def endings(self) -> tuple[str, ...]:
        """Where a text ends, by a public rule: ``stops``, or the text after a reference."""
        # An empty tuple is a choice, too: no stop at all.
        if self.stops is not None:
            return self.stops
        behind = self.private.partition("{reference}")[2]
        if self.chat or not behind.startswith("\n"):
            return ()
        between = behind[: len(behind) - len(behind.lstrip("\n"))]
        # The line that begins the next record, up to its label: the model may name any label there.
        line = behind.strip().partition("\n")[0].partition("{label}")[0].rstrip()
        return ((between,) if len(between) > 1 else ()) + (("\n" + line,) if line else ())


class LogitConfig(Section):
    """Settings of methods that draw texts token by token."""

    max_tokens: MaxTokens = 64
    whole_sentences: WholeSentences = True
    prompt: PromptConfig | None = None
    """Prompts. Null: the model's own default."""

    @property
    def min_tokens(self) -> int:
        """Fewest tokens before a text may end or break its line."""
        return MIN_TOKENS if self.whole_sentences else 0


def resolved_prompt(
    configured: PromptConfig | None,
    model: ModelIdentity,
    subject: Subject = ANYTHING,
    schema: Mapping[str, Any] | None = None,
) -> Prompt:
    """The prompt of a release: the config's or the model's, with all public facts filled in.

    Args:
        configured: The config's prompt, if any.
        model: Has the model's own prompt.
        subject: Public facts about the records.
        schema: The public JSON schema of the records, if they have one.

    Raises:
        ConfigError: It is a chat prompt, and the model has no chat template.
    """
    prompt = configured or default_prompt(model, schema)
    has_roles = ROLE.search(prompt.private) is not None
    filled = Prompt.model_validate({"chat": has_roles} | prompt.model_dump())
    if filled.chat and model.chat is False:
        raise ConfigError(
            f"models.language={model.source} has no chat template, and the prompt is for chat "
            "models.",
            hint="Name an instruction-tuned model, or set prompt (null: a list of records).",
        )
    return filled.model_copy(
        update={
            "private": subject.fill(prompt.private),
            "public": subject.fill(prompt.public),
            "labels": filled.labels or dict(subject.descriptions),
            "stops": filled.endings,
        }
    )


def default_prompt(model: ModelIdentity, schema: Mapping[str, Any] | None = None) -> Prompt:
    """The default prompt of a model.

    A prompt in the model folder's ``privsyn.json`` comes first. A chat model gets the form of JSON
    records if they have a schema. All others continue a list of records: this form gained most over
    its own public prompt (benchmarks/RESULTS.md).

    Args:
        model: Has the model's own prompt.
        schema: The public JSON schema of the records, if they have one.
    """
    template = model.template_default
    if template.chat and schema is not None:
        public = _JSON.public.replace("{schema}", json.dumps(schema, indent=2, ensure_ascii=False))
        return Prompt(private=_JSON.private, public=public, chat=True, stops=("\n```",))
    # CHAT and PLAIN are only the fallbacks of models without a prompt of their own.
    form = RECORDS if template in (CHAT, PLAIN) else template
    return Prompt(private=form.private, public=form.public, chat=form.chat)


RECORDS = PromptTemplate(
    private="The following is {document}.\n\nTopic: {label}\nText: {reference}\n\n"
    "Topic: {label}\nText:",
    public="The following is {document}.\n\nTopic: {label}\nText:",
)
"""A list of records, which the model continues."""

_ANOTHER = "\n```\nPlease give me another JSON record that complies with the above schema."
_JSON = PromptTemplate(
    private="Here is a JSON record:\n```\n{reference}" + _ANOTHER + "\n[assistant]\n```\n",
    public="Here is the schema for a JSON record:\nSchema:\n```\n{schema}"
    + _ANOTHER
    + "\n[assistant]\n```\n",
)
"""After Amin et al. 2024, Figures 8 to 12. Where the paper begins a record with a brace, the
grammar of the schema does."""


def cut_at_next_record(text: str, prompt: Prompt) -> tuple[str, bool]:
    """A text up to where it runs into the next record, and whether it did.

    It is a public rule on drawn text: post-processing.
    """
    cuts = [text.find(stop) for stop in prompt.endings]
    hits = [cut for cut in cuts if cut >= 0]
    return (text[: min(hits)] if hits else text).strip(), bool(hits)


class Writes(Protocol):
    """Settings of a method that draws texts token by token."""

    @property
    def prompt(self) -> Prompt:
        """Prompts, which say where a text runs into the next record."""

    @property
    def whole_sentences(self) -> bool:
        """Whether a text that ran out of tokens is cut after its last whole sentence."""


def released_text(tokens: Sequence[int], model: LogitModel, settings: Writes) -> str:
    """The text of drawn tokens, up to its end, the next record, or the last whole sentence.

    Thoughts, special tokens and control characters are removed (answers.as_text).

    privacy: public rules on drawn text, so post-processing.

    Args:
        tokens: At least one token, including the end if there is one.
        model: The model of these tokens.
        settings: Settings of the method, or of the public model alone.
    """
    # An end token has no text and says that the tokens did not run out.
    over = tokens[-1] in model.ends
    text, cut = cut_at_next_record(
        as_text(model.decode(tokens[:-1] if over else tokens)), settings.prompt
    )
    if over or cut or not settings.whole_sentences:
        return text
    return Ending().trim_unfinished(text)
