"""Prompts of keyphrase seeding: public text around privatised phrases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privsyn.errors import ConfigError
from privsyn.files import parse_json
from privsyn.methods.keyphrase_seeding.settings import (
    SECTION,
    KeyphraseSeedingConfig,
    KeyphraseSeedingSettings,
)
from privsyn.models.protocols import PromptTemplate

if TYPE_CHECKING:
    pass


def fill(settings: KeyphraseSeedingSettings, label: str | None, phrases: Sequence[str]) -> str:
    """A prompt: public text, privatised phrases, and the label only where labels are public."""
    prompt = settings.prompt or "{phrases}"
    if settings.labels_public:
        label_text = settings.label_descriptions.get(label, label) if label else ""
        prompt = prompt.replace("{label}", label_text)
    return prompt.replace("{phrases}", ", ".join(phrases))


def default_prompt(cfg: KeyphraseSeedingConfig, template: PromptTemplate) -> str:
    """The paper's prompt; a model that only continues text keeps its own, phrases as reference."""
    if template.chat:
        of_class = " of the class {label}" if cfg.labels_public else ""
        return (
            f"Write a {{document}}{of_class} that contains the following terms: {{phrases}}.\n"
            "Answer with the {document} alone."
        )
    lines = template.private.splitlines(keepends=True)
    if not cfg.labels_public:
        lines = [line for line in lines if "{label}" not in line]
    return "".join(lines).replace("{reference}", "{phrases}")


def with_examples(cfg: KeyphraseSeedingConfig, prompt: str) -> str:
    """Public examples before the prompt: each the prompt of its phrases, then its text."""
    if cfg.examples is None:
        return ""
    blocks = []
    try:
        for line in cfg.read("examples").decode("utf-8").splitlines():
            if line.strip():
                example = parse_json(line)
                phrases = ", ".join(map(str, example["phrases"]))
                question = prompt.replace("{phrases}", phrases)
                if cfg.labels_public:
                    question = question.replace("{label}", str(example["label"]))
                blocks.append(f"{question}\n{example['text']}\n\n")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{SECTION}.examples={cfg.examples} cannot be read ({type(error).__name__}).",
            hint='Every line must be like {"phrases": ["..."], "text": "..."}, with a label where '
            "labels_public=true.",
        ) from None
    return "".join(blocks).replace("{phrases}", "").replace("{label}", "")
