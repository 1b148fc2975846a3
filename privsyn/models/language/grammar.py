"""Which tokens may continue a record of a public JSON schema.

Computed from the schema and the tokens drawn so far alone, so that leaving the others out costs no
privacy. The grammar engine is llguidance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""White space as ``json.dumps`` writes it: free white space could go on for ever."""


class JSONGrammar:
    """The tokens that keep a text on the way to a record. See protocols.Grammar.

    Args:
        tokenizer: A transformers tokenizer backed by the ``tokenizers`` library.
        schema: A JSON schema.
        vocab_size: Columns of the logits.
        eos: Token that ends a text.
        source: What the model is called in messages.

    Raises:
        ModelError: The tokenizer is of another kind, or the schema asks for what the grammar engine
            cannot follow.
    """

    def __init__(
        self, tokenizer: Any, schema: Mapping[str, Any], vocab_size: int, eos: int, source: str
    ) -> None:
        import llguidance
        from llguidance.hf import from_tokenizer

        try:
            vocabulary = from_tokenizer(tokenizer, n_vocab=vocab_size, eos_token=eos)
        except Exception as error:  # the engine's errors are plain ones of Rust
            raise ModelError(
                f"models.language={source}: its tokenizer cannot follow a JSON schema "
                f"({type(error).__name__}).",
                hint="Leave json_schema out, or name a model with a tokenizer.json.",
            ) from None
        rules = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=_SPACING)
        if problem := llguidance.LLMatcher.validate_grammar(rules, vocabulary):
            raise ModelError(
                f"json_schema cannot be followed while drawing: {' '.join(problem.split())[:200]}.",
                hint="Simplify the schema; validation.json_schema may stay strict.",
            )
        self._matcher = llguidance.LLMatcher(vocabulary, rules)
        self._size, self._eos = vocab_size, eos
        self._text: list[int] = []

    def allowed(self, text: Sequence[int]) -> NDArray[np.int64]:
        """The tokens that may follow, sorted; the end alone where a record is whole or broken."""
        if self._text != list(text[: len(self._text)]):
            self._matcher.reset()
            self._text = []
        for token in text[len(self._text) :]:
            self._matcher.consume_token(int(token))
            self._text.append(int(token))
        if self._matcher.is_stopped() or self._matcher.is_error():
            return np.array([self._eos])
        bits = np.unpackbits(
            np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little"
        )
        tokens = np.flatnonzero(bits[: self._size])
        return tokens if len(tokens) else np.array([self._eos])
