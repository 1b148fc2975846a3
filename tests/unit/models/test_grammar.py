"""Public constrained drawing: any walk through the allowed tokens ends in a valid record."""

import json

import jsonschema
import numpy as np
import pytest

from privsyn.errors import ModelError
from privsyn.models.language.hf_logits import JSONGrammar
from privsyn.models.loading import load_language_model
from privsyn.models.settings import ModelsConfig, PerformanceConfig

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 20},
        "year": {"type": "integer", "minimum": 1890, "maximum": 2030},
        "cast": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2},
    },
    "required": ["title", "year", "cast"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["tiny", "llama"])
def model(request, folders):
    return load_language_model(
        ModelsConfig(language=folders(request.param)),
        PerformanceConfig(rows_per_pass=16),
    )


def walk(grammar, eos, seed):
    rng, text = np.random.default_rng(seed), []
    while len(text) < 600:
        text.append(int(rng.choice(grammar.allowed_tokens(text))))
        if text[-1] == eos:
            return text[:-1]
    raise AssertionError("no end")


@pytest.mark.parametrize("seed", range(8))
def test_every_walk_is_a_valid_record(model, seed):
    text = walk(model.grammar(SCHEMA), model.eos, seed)
    record = json.loads(model.decode(text))
    jsonschema.validate(record, SCHEMA)
    assert not set(model.decode(text).partition('"year"')[2]) & set("\n\t")


def test_what_is_allowed_follows_from_the_tokens_alone(model):
    """In whatever order texts are asked about, and after a resumed run."""
    grammar, fresh = model.grammar(SCHEMA), model.grammar(SCHEMA)
    one, other = (walk(model.grammar(SCHEMA), model.eos, seed) for seed in (1, 2))
    for text in (one, other, one[:3], other[:5], [], one):
        np.testing.assert_array_equal(
            grammar.allowed_tokens(text), model.grammar(SCHEMA).allowed_tokens(text)
        )
    for end in range(len(one)):
        np.testing.assert_array_equal(
            fresh.allowed_tokens(one[:end]), grammar.allowed_tokens(one[:end])
        )
        assert one[end] in grammar.allowed_tokens(one[:end])


def test_a_whole_or_broken_record_can_only_end(model):
    grammar = model.grammar(SCHEMA)
    text = walk(grammar, model.eos, 3)
    assert model.eos in grammar.allowed_tokens(text)
    assert grammar.allowed_tokens([*text, model.eos]).tolist() == [model.eos]
    wrong = next(t for t in range(5, 99) if t not in grammar.allowed_tokens([]))
    assert grammar.allowed_tokens([wrong]).tolist() == [model.eos]


def test_what_the_engine_cannot_follow_is_said(model):
    with pytest.raises(ModelError, match=r"cannot be followed while drawing: .*not"):
        model.grammar({"type": "object", "properties": {"a": {"not": {"type": "string"}}}})
    with pytest.raises(ModelError, match="cannot follow a JSON schema"):
        JSONGrammar(object(), SCHEMA, 100, 1, "toy")
