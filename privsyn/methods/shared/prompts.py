"""Prompts as settings: a private and a public one, and forms for common tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import Field, model_validator

from privsyn.errors import ConfigError
from privsyn.methods.base import ANYTHING, Subject
from privsyn.models.language.answers import as_text
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.prompts import CHAT, PLAIN
from privsyn.models.protocols import LogitModel, PromptTemplate
from privsyn.section import Section

if TYPE_CHECKING:
    from privsyn.models.model_identity import ModelIdentity

MIN_TOKENS = 5
"""Default of the fewest tokens of a text."""

Task = Literal["plain", "classification", "extraction", "json"]

WholeSentences = Annotated[
    bool,
    Field(
        description="Cut a text that ran out of tokens after its last whole sentence, or after its "
        "last whole word if too few words would be left.",
    ),
]
"""Setting of methods whose texts may run out of tokens."""

MinTokens = Annotated[
    int | None,
    Field(
        ge=0,
        description="Fewest tokens before a text may end or break its line. Null: 5, and 0 for "
        "JSON records.",
    ),
]
ReferenceTokens = Annotated[
    int, Field(ge=1, description="References are cut and padded to exactly this length.")
]
"""Settings of methods that draw texts token by token."""

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

    private: str = Field(description="Prompt around a {reference}; may name the {label}.")
    public: str = Field(description="The same prompt without a reference.")
    chat: bool = Field(
        default=False,
        description="Use the model's chat template. A line [user], [assistant] or [system] begins "
        "a message; a last message of the assistant is the beginning of the answer.",
    )
    labels: dict[str, str] = Field(
        default={}, description="Text that replaces a label in the prompts."
    )
    stops: tuple[str, ...] | None = Field(
        default=None,
        description="A text ends before the first of these. Null: none for a chat prompt; "
        "otherwise what separates two records, and the line that begins the next one.",
    )
    begins: str = Field(
        default="",
        description="The part of an answer in the prompt that belongs to the record, such as {. "
        "It is put before every text.",
    )

    @model_validator(mode="after")
    def _reference_stays_private(self) -> PromptConfig:
        if self.private.count("{reference}") != 1:
            raise ValueError("private must contain {reference} exactly once")
        if "{reference}" in self.public:
            raise ValueError("public must not contain {reference}")
        return self

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


def resolved_prompt(
    configured: PromptConfig | None,
    model: ModelIdentity,
    subject: Subject = ANYTHING,
    task: Task = "plain",
    schema: Mapping[str, Any] | None = None,
) -> PromptConfig:
    """The prompt of a release: the config's or the model's, with all public facts filled in.

    Args:
        configured: The config's prompt, if any.
        model: Has the model's own prompt.
        subject: Public facts about the records.
        task: What a record is.
        schema: The public JSON schema of the records, for the task ``json``.

    Raises:
        ConfigError: It is a chat prompt, and the model has no chat template.
    """
    prompt = configured or default_prompt(model, task, schema)
    if prompt.chat and model.chat is False:
        raise ConfigError(
            f"models.language={model.source} has no chat template, and the prompt is for chat "
            "models.",
            hint="Name an instruction-tuned model, or set prompt (null: a list of records) and "
            "task (plain).",
        )
    return prompt.model_copy(
        update={
            "private": subject.fill(prompt.private),
            "public": subject.fill(prompt.public),
            "labels": prompt.labels or dict(subject.descriptions),
            "stops": prompt.endings,
        }
    )


def default_prompt(
    model: ModelIdentity, task: Task = "plain", schema: Mapping[str, Any] | None = None
) -> PromptConfig:
    """The default prompt of a model.

    A prompt in the model folder's ``privsyn.json`` comes first. A chat model gets the form of the
    task (Amin et al. 2024, Appendix E.2) if there is one. All others continue a list of records:
    this form gained most over its own public prompt (benchmarks/RESULTS.md).

    Args:
        model: Has the model's own prompt.
        task: What a record is.
        schema: The public JSON schema of the records, for the task ``json``.

    Raises:
        ConfigError: The task asks for a chat model, and it has no chat template.
    """
    template = model.template_default
    if model.chat is False and task in ("classification", "extraction"):
        raise ConfigError(
            f"models.language={model.source} has no chat template, and task={task} is a prompt "
            "for chat models.",
            hint="Name an instruction-tuned model, or set task=plain.",
        )
    if template.chat and task in _FORMS:
        private, public, answer, stop = _FORMS[task]
        words = json.dumps(schema, indent=2, ensure_ascii=False)
        return PromptConfig(
            private=f"{private}\n[assistant]\n{answer}",
            public=f"{public.replace('{schema}', words)}\n[assistant]\n{answer}",
            chat=True,
            stops=stop,
        )
    # CHAT and PLAIN are only the fallbacks of models without a prompt of their own.
    form = RECORDS if template in (CHAT, PLAIN) else template
    return PromptConfig(private=form.private, public=form.public, chat=form.chat)


RECORDS = PromptTemplate(
    private="The following is {document}.\n\nTopic: {label}\nText: {reference}\n\n"
    "Topic: {label}\nText:",
    public="The following is {document}.\n\nTopic: {label}\nText:",
)
"""A list of records, which the model continues."""

_ANOTHER = "\n\nPlease give me another one."
_RECORD = "\n```\nPlease give me another JSON record that complies with the above schema."
_LABELED = "Here are texts with label: {label}. Each is {document}.\n\n"
_EXTRACTION = (
    "Give me text and the extracted Phrase about its topic. The text is {document}.\n\n"
    'Phrase: "{label}"\nText: "'
)
_ANOTHER_PHRASE = (
    '"\n\nPlease give me another Phrase and Text: "{label}". IMPORTANT: The exact phrase "{label}" '
    "must be mentioned in Text."
)
_FORMS: Mapping[Task, tuple[str, str, str, tuple[str, ...]]] = {
    "classification": (
        _LABELED + "Text: {reference}" + _ANOTHER,
        _LABELED + "Text: <text with label: {label}>" + _ANOTHER,
        "Text:",
        (),
    ),
    "extraction": (
        _EXTRACTION + "{reference}" + _ANOTHER_PHRASE,
        _EXTRACTION + '<text containing phrase "{label}">' + _ANOTHER_PHRASE,
        'Phrase: "{label}"\nText: "',
        ('"',),
    ),
    "json": (
        "Here is a JSON record:\n```\n{reference}" + _RECORD,
        "Here is the schema for a JSON record:\nSchema:\n```\n{schema}" + _RECORD,
        "```\n",
        ("\n```",),
    ),
}
"""Private and public request, the beginning of the answer, and where a text ends, after Amin et al.
2024, Figures 4 to 12, of which Figure 4 alone is nearly word for word. The label of an extraction
is the phrase. Where the paper begins a record with a brace, the grammar of the schema does."""


def cut_at_next_record(text: str, prompt: PromptConfig | None) -> tuple[str, bool]:
    """A text up to where it runs into the next record, and whether it did.

    It is a public rule on drawn text: post-processing.
    """
    cuts = [text.find(stop) for stop in (prompt.endings if prompt else ())]
    hits = [cut for cut in cuts if cut >= 0]
    return (text[: min(hits)] if hits else text).strip(), bool(hits)


class Writes(Protocol):
    """Settings of a method that draws texts token by token."""

    @property
    def prompt(self) -> PromptConfig:
        """Prompts, which say where a text runs into the next record."""

    @property
    def min_tokens(self) -> int:
        """Fewest tokens of a text."""

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
        settings: Settings of the method, or of the public model alone. A cut leaves at least
            ``min_tokens`` words.
    """
    # An end token has no text and says that the tokens did not run out.
    over = tokens[-1] in model.ends
    text, cut = cut_at_next_record(
        as_text(model.decode(tokens[:-1] if over else tokens)), settings.prompt
    )
    text = settings.prompt.begins + text
    if over or cut or not settings.whole_sentences:
        return text
    return Ending(least=max(settings.min_tokens, Ending.least)).trim_unfinished(text)
