"""What methods that draw texts from the logits of a language model do alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from privsyn.data.records import Bucket
from privsyn.dp.adjacency import PrivacyUnit
from privsyn.methods.base import Backends, Method, Role, SettingsT
from privsyn.models.protocols import LogitModel, PromptTemplate, Session
from privsyn.models.trial import try_logits


class LogitMethod(Method[SettingsT]):
    """A method that draws texts token by token, from logits of one language model."""

    whole: ClassVar[bool] = False
    counts: ClassVar[str] = "tokens"

    def roles(self, cfg: Any) -> tuple[Role, ...]:
        """One language model, whose logits are read."""
        return ("language",)

    def prompt(self, settings: Any) -> tuple[PromptTemplate, int, int]:
        """What the model's context must hold: both prompts, one reference, one text."""
        # A reference is cut to as many tokens as a text may have.
        return settings.prompt.template, settings.max_tokens, settings.max_tokens

    def preflight(
        self, settings: Any, unit: PrivacyUnit, labels: Sequence[str], models: Backends
    ) -> None:
        """Compute logits of a public row, and of a row with a public reference."""
        try_logits(models.language, self.prompt(settings), labels)


def open_rows(
    model: LogitModel,
    prompt: tuple[PromptTemplate, int, int],
    buckets: Sequence[Bucket],
    keys: Sequence[str | None],
    declared: Collection[str | None],
) -> tuple[Session, Session, list[slice]]:
    """A public row for each bucket, the private rows of all in one list, and the rows of each.

    Args:
        model: The language model.
        prompt: Template, reference tokens and output tokens.
        buckets: Opened here.
        keys: The label of each bucket, with the words of the row that its text is written for.
        declared: All public labels and rows, which decide the width of a row of tokens.
    """
    template, reference_tokens, most = prompt
    references, owners, rows = list[str](), list[str | None](), list[slice]()
    for bucket, key in zip(buckets, keys, strict=True):
        texts = bucket.contents.reveal()
        rows.append(slice(len(references), len(references) + len(texts)))
        references += texts
        owners += [key] * len(texts)
    public = model.public_rows(template, keys, most)
    private = model.private_rows(
        template, owners, references, reference_tokens, most, declared=declared
    )
    return public, private, rows
