"""Prompts as settings: the two sides of a comparison, and forms of them for common tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from privsyn.backends.protocols import PromptTemplate
from privsyn.config import Section

if TYPE_CHECKING:
    from privsyn.backends.identity import ModelIdentity

Task = Literal["plain", "classification", "extraction", "json"]


class PromptConfig(Section):
    """The two prompts, as data."""

    private: str = Field(description="Prompt around a {reference}; may name the {label}.")
    public: str = Field(description="The same prompt without a reference.")
    chat: bool = Field(default=False, description="Send as one message of the chat template.")

    @model_validator(mode="after")
    def _reference_stays_private(self) -> PromptConfig:
        if self.private.count("{reference}") != 1:
            raise ValueError("private must contain {reference} exactly once")
        if "{reference}" in self.public:
            raise ValueError("public must not contain {reference}")
        return self

    @property
    def template(self) -> PromptTemplate:
        """As a language model takes it."""
        return PromptTemplate(self.private, self.public, self.chat)


def default_prompt(
    model: ModelIdentity, task: Task = "plain", schema: Mapping[str, Any] | None = None
) -> PromptConfig:
    """The prompt of a model where the config sets none.

    A chat model gets the task's form (Amin et al. 2024, Appendix E.2). Any other model keeps its
    own prompt, from its folder's ``privsyn.json``, or the plain one.

    Args:
        model: Names the model's own prompt.
        task: What a record is.
        schema: The public JSON schema of the records, for the task ``json``.
    """
    own = model.template_default
    if not own.chat or task == "plain":
        return PromptConfig(private=own.private, public=own.public, chat=own.chat)
    private, public = _FORMS[task]
    return PromptConfig(
        private=private,
        public=public.replace("{schema}", json.dumps(schema, indent=2, ensure_ascii=False)),
        chat=True,
    )


_ANOTHER = "\n\nPlease give me another one. Answer with the text alone."
_RECORD = (
    "\n```\nPlease give me another JSON record that complies with the above schema. Answer with "
    "the record alone."
)
_EXTRACTION = "Give me a text and the phrase extracted from it.\n\n"
_FORMS: Mapping[str, tuple[str, str]] = {
    "classification": (
        "Here are texts with label: {label}.\n\nText: {reference}" + _ANOTHER,
        "Here are texts with label: {label}.\n\nText: <text with label: {label}>" + _ANOTHER,
    ),
    "extraction": (
        _EXTRACTION + "{reference}" + _ANOTHER,
        _EXTRACTION + 'Phrase: "<phrase>"\nText: "<text containing the phrase>"' + _ANOTHER,
    ),
    "json": (
        "Here is a JSON record:\n```\n{reference}" + _RECORD,
        "Here is the schema for a JSON record:\nSchema:\n```\n{schema}" + _RECORD,
    ),
}
