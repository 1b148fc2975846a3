"""Students: what they learn from synthetic texts, and that nothing else decides what they are."""

from __future__ import annotations

import math

import pytest
import torch

from privsyn.data.artifacts import sha256_file
from privsyn.errors import ConfigError, ModelError
from privsyn.methods.shared.distill import DistillConfig
from privsyn.models.loading import load_language_model
from privsyn.models.model_identity import describe
from privsyn.models.protocols import PromptTemplate
from privsyn.models.references import BUILTIN
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training import causal_lm as student
from privsyn.students.train import train_student

TEXTS = [(None, "my bill is late"), (None, "please help with my visit")] * 8


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(1)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=8192, tie_word_embeddings=True, **shape, **heads)
    )
    own = PromptTemplate("<|start|>Text: {reference}<|end|>Text:", "<|start|>Text:")
    student.save(model, student.read_tokenizer(BUILTIN), own, folder)
    return folder


def config(tiny, **changes):
    return DistillConfig(
        **{"init": str(tiny), "epochs": 2, "batch_size": 4, "seed": 5, "max_tokens": 16} | changes
    )


def test_a_student_learns_its_texts(tiny, tmp_path):
    seen = []
    made = train_student(
        config(tiny, epochs=60, learning_rate=3e-2),
        TEXTS,
        BUILTIN,
        tmp_path / "model",
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert (made.texts, made.steps, made.vocabulary) == (16, 240, 8192)
    assert made.tokens == 8 * (4 + 1) + 8 * (6 + 1)
    assert made.parameters == sum(p.numel() for p in student.read_model(tiny).parameters())
    assert made.loss < 0.5  # which of two texts it is, and nothing else, is left open
    assert seen == sorted(seen)
    assert seen[-1] == (960, 960)


def test_a_student_is_a_language_model_of_its_own(tiny, tmp_path):
    folder = tmp_path / "model"
    train_student(config(tiny, epochs=1), TEXTS, BUILTIN, folder)
    models = ModelsConfig(language=str(folder))
    assert (
        describe(models).template_default
        == describe(ModelsConfig(language="tiny")).template_default
    )
    assert load_language_model(models, PerformanceConfig()).vocab_size == 8192
    said = "".join(file.read_text() for file in folder.glob("*.json"))
    assert str(tiny) not in said
    assert str(tmp_path) not in said


def test_the_seed_alone_decides(tiny, tmp_path):
    def make(name, seed):
        train_student(config(tiny, seed=seed), TEXTS, BUILTIN, tmp_path / name)
        return sha256_file(tmp_path / name / "model.safetensors")

    state = torch.random.get_rng_state()
    one, again, other = make("one", 5), make("again", 5), make("other", 6)
    assert one == again != other
    assert make("open", None) != make("open again", None)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_fresh_weights_come_from_the_seed_and_the_size(tmp_path):
    made = [
        train_student(
            DistillConfig(epochs=1, batch_size=2, seed=seed),
            TEXTS[:2],
            BUILTIN,
            tmp_path / str(number),
        )
        for number, seed in enumerate((1, 1, 2))
    ]
    assert {student.parameters for student in made} == {4_396_800}
    digests = [sha256_file(tmp_path / str(n) / "model.safetensors") for n in range(3)]
    assert digests[0] == digests[1] != digests[2]


def test_what_cannot_be_trained_is_refused(tiny, tmp_path, monkeypatch):
    def attempt(match, error=ConfigError, texts=TEXTS, **how):
        with pytest.raises(error, match=match):
            train_student(config(tiny, **how), texts, BUILTIN, tmp_path / "no")
        assert not (tmp_path / "no").exists()

    attempt("is not a directory", init=str(tmp_path / "nothing"))
    attempt("at least one text", texts=[])
    long = [(None, "late " * 100)]
    attempt("context of 64 tokens", ModelError, texts=long, max_tokens=80)
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", diverging)
    attempt("diverged", ModelError)


def diverging(logits, *targets, **options):
    return logits.sum() * math.nan
