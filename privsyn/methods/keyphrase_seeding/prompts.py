"""Prompts of keyphrase seeding: public text around privatised phrases."""

from __future__ import annotations

from collections.abc import Sequence

from privsyn.errors import ConfigError
from privsyn.files import parse_json
from privsyn.methods.keyphrase_seeding.settings import (
    SECTION,
    KeyphraseSeedingConfig,
    KeyphraseSeedingSettings,
)
from privsyn.models.language.text_variation import chat_random, filled
from privsyn.models.protocols import PromptTemplate


def fill(settings: KeyphraseSeedingSettings, label: str | None, phrases: Sequence[str]) -> str:
    """A prompt: public text, privatised phrases, and the label only where labels are public."""
    label_text = ""
    if settings.labels_public and label is not None:
        label_text = settings.label_descriptions.get(label, label)
    prompt = settings.prompt or "{phrases}"
    if phrases and not label_text:  # a missing label takes no phrases along
        lines = prompt.splitlines(keepends=True)
        prompt = "".join(
            line.replace("{label}", "") if "{phrases}" in line else line for line in lines
        )
    return filled(prompt, {"label": label_text, "phrases": ", ".join(phrases)})


def default_prompt(
    cfg: KeyphraseSeedingConfig, template: PromptTemplate, document: str | None = None
) -> str:
    """What a chat model answers with the text itself; another's own, phrases as the reference."""
    if template.chat:
        prompt = chat_random(document).replace("{words}", "{phrases}")
    else:
        prompt = template.private.replace("{reference}", "{phrases}")
    if cfg.labels_public:
        return prompt
    lines = prompt.splitlines(keepends=True)
    return "".join(line for line in lines if "{label}" not in line)


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
                if "{label}" in question:
                    question = question.replace("{label}", str(example["label"]))
                blocks.append(f"{question}\n{example['text']}\n\n")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{SECTION}.examples={cfg.examples} cannot be read ({type(error).__name__}).",
            hint='Every line must be like {"phrases": ["..."], "text": "..."}, with a label where '
            "labels_public=true.",
        ) from None
    return "".join(blocks).replace("{phrases}", "").replace("{label}", "")
