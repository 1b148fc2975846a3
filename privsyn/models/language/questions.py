"""Questions about a record's text, which a local language model answers with a declared value.

Privacy. An answer depends on its own text and on public settings [C1 of columns/guarantee.md]. So a
text is read in passes of its own: in a pass with others their number and lengths would round its
scores. It is never free text, and whatever a text makes fail is the answer ``other``.

Source: the likeliest value beside what it is without a text, after Zhao et al. 2021, Calibrate
Before Use, section 3, and Holtzman et al. 2021, Surface Form Competition, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data.columns import Ask, Column
from privsyn.errors import ModelError
from privsyn.models.language.likelihood import of_sequences
from privsyn.models.language.prompts import PromptEncoder, context_length
from privsyn.models.protocols import PromptTemplate

RULE = "privsyn-answers/1"
"""Name of how a question is asked, in plans. Another prompt, bound or score is another rule."""
PROMPT = "Text: {reference}\n\nQuestion: {question}\nAnswer with one of: {values}.\n"
OPENING = "Answer:"
NO_TEXT = "N/A"
MOST_TOKENS = 1024
"""Tokens of a text that are read: its first ones."""
_Scores = Callable[[str], NDArray[np.float64]]
"""From a text to the log-likelihoods of a question's answers behind it, in nats; (values,)."""


class Answerer:
    """A causal language model that is asked for one of a column's values.

    Args:
        network: A transformers model in eval mode.
        tokenizer: Its tokenizer.
        source: What the model is called in messages.
        revision: Digest that enters the release id.
    """

    def __init__(self, network: Any, tokenizer: Any, source: str, revision: str) -> None:
        self.revision = revision
        self._network, self._chat = network, bool(tokenizer.chat_template)
        self._prompts, self._source = PromptEncoder(tokenizer, source), source
        self._questions: dict[Column, tuple[_Scores, NDArray[np.float64]]] = {}

    def ask(self, columns: Mapping[str, Column]) -> Ask:
        """What answers a record's columns that are asked, and leaves the others as they are.

        Raises:
            ModelError: A question leaves no room for a text.
        """
        for column in columns.values():
            if column.ask is not None:
                self._question(column)

        def answered(text: str, row: Sequence[int]) -> tuple[int, ...]:
            cells = zip(columns.values(), row, strict=True)
            return tuple(cell if one.ask is None else self.answer(one, text) for one, cell in cells)

        return answered

    def answer(self, column: Column, text: str) -> int:
        """The cell of a record's answer: a declared value, or ``other``. Never raises on a text.

        Raises:
            ModelError: The question leaves no room for any text.
            MemoryError: The machine has too little memory for one.
        """
        scores_of, without = self._question(column)
        other = len(column.cells) - 2
        try:
            # how much likelier each value is with the text than without one
            scores = scores_of(text) - without
        except MemoryError:
            raise
        except Exception as error:
            # privacy: a text that could end the run would decide whether there is a release
            if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported here
                raise
            return other
        return int(scores.argmax()) if np.isfinite(scores).all() else other

    def check(self, column: Column) -> None:
        """Ask about a public text of the most tokens that are read.

        Raises:
            ModelError: The question leaves no room for a text, or its scores are not finite.
        """
        if self.answer(column, "word " * MOST_TOKENS) >= len(column.values or ()):
            raise ModelError(
                f"models.language={self._source}: its answers are not finite numbers.",
                hint="Name another model, or set models.dtype=float32.",
            )

    def _question(self, column: Column) -> tuple[_Scores, NDArray[np.float64]]:
        """What scores the answers to a question behind a text, and their scores without one."""
        if column not in self._questions:
            values = column.values or ()
            prompt = PROMPT.replace("{question}", column.ask or "")
            prompt = prompt.replace("{values}", ", ".join(values))
            prompt = f"[user]\n{prompt}[assistant]\n{OPENING}" if self._chat else prompt + OPENING
            template = PromptTemplate(prompt, "", self._chat)
            before, lead, after = self._prompts.private(template, None)
            ends = [self._prompts.reference(value, " ", MOST_TOKENS) for value in values]
            around = len(before) + len(after) + max(map(len, ends))
            context = context_length(self._network.config.get_text_config())
            most = MOST_TOKENS if context is None else min(MOST_TOKENS, context - around)
            if most < 1:
                raise ModelError(
                    f"models.language={self._source}: its context of {context} tokens has no room "
                    f"for a text beside a question of dataset.columns ({around} tokens).",
                    hint="Shorten ask or values, or name another model.",
                )

            def scores(text: str) -> NDArray[np.float64]:
                body = self._prompts.reference(text.strip(), lead, most)
                head = [*before, *body, *after]
                return of_sequences(self._network, [(head, end) for end in ends])

            self._questions[column] = scores, scores(NO_TEXT)
        return self._questions[column]
