"""Small models: their sizes, their start from the embedded model, the tokens they read."""

import numpy as np
import pytest
import torch

from privsyn.errors import ModelError
from privsyn.models.language.prompts import PLAIN
from privsyn.models.language.rowwise import peeks
from privsyn.models.loading import load_language_model, load_text_model
from privsyn.models.protocols import PromptTemplate, Training
from privsyn.models.references import BUILTIN
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.torch_runtime import ready
from privsyn.models.training import causal_lm as student
from privsyn.models.training.causal_lm import NOT_COUNTED, Encoded
from privsyn.models.training.lora import LoraTrainer
from privsyn.students.train import SIZES
from tests.unit.models.tiny_models import save_bert, save_llama

OWN = PromptTemplate("<|start|>Text: {reference}<|end|>Text:", "<|start|>Text:")


@pytest.fixture(scope="module")
def tokenizer():
    return student.read_tokenizer(BUILTIN)


def build(size, tokenizer):
    torch.manual_seed(0)
    return student.new_model(SIZES[size], student.vocabulary_of(BUILTIN), tokenizer, 64)


@pytest.mark.parametrize("size", list(SIZES))
def test_the_sizes_are_the_papers(size, tokenizer):
    with torch.device("meta"):
        model = student.new_model(SIZES[size], 8192, tokenizer, 64)
    count = sum(p.numel() for p in model.parameters())
    assert count == pytest.approx(1e6 * float(size[:-1]), rel=0.02)


def test_a_models_embeddings_are_counted_once(tokenizer):
    model = build("4.4M", tokenizer)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_a_text_stands_behind_its_prompt_and_ends_unless_it_is_cut(tokenizer):
    whole, cut = student.encode(
        tokenizer, OWN, [(None, "my bill is late"), (None, "my bill is late again today")], 5
    )
    assert tokenizer.decode(whole.tokens) == "<|start|>Text: my bill is late<|end|>"
    assert tokenizer.decode(cut.tokens) == "<|start|>Text: my bill is late again"
    assert (whole.scored_tokens, cut.scored_tokens) == (5, 5)


def test_labels_are_in_the_prompt_and_special_tokens_in_a_text_are_text(tokenizer):
    (row,) = student.encode(tokenizer, PLAIN, [("Billing", "a <|end|> b")], 64)
    assert tokenizer.decode(row.tokens[: row.start]) == "Label: Billing\nText:"
    assert list(row.tokens).count(tokenizer.eos_token_id) == 1
    assert row.tokens[-1] == tokenizer.eos_token_id


def test_the_students_tokens_are_the_teachers(tokenizer):
    """As hf_logits puts a prompt and drawn tokens together."""
    prompts = student.PromptEncoder(tokenizer, "builtin")
    (row,) = student.encode(tokenizer, OWN, [(None, "my bill is late")], 64)
    drawn = tokenizer(" my bill is late", add_special_tokens=False)["input_ids"]
    assert list(row.tokens) == [*prompts.public(OWN, None), *drawn, tokenizer.eos_token_id]


@pytest.fixture
def quiet():
    """As models are loaded outside tests: peft reads names that transformers calls old."""
    with ready():
        yield


@pytest.mark.usefixtures("quiet")
def test_a_student_reads_as_the_adapters_trainer_does(tmp_path):
    folder = save_llama(tmp_path)
    template = PromptTemplate("Topic: {label}\nText:{reference}", "Topic: {label}\nText:")
    training = Training(
        template=template,
        labels=("bill",),
        max_tokens=6,
        clip_norm=1.0,
        records_per_unit=1,
        micro_batch=1,
        rank=2,
        alpha=4.0,
        target_modules=None,
    )
    read = student.read_tokenizer(folder)
    trainer = LoraTrainer(student.read_model(folder), read, training, "tiny")
    for text in ("late", " my bill is ready ", "the visit was late and my bill is ready", ""):
        (mine,) = student.encode(read, template, [("bill", text)], 6)
        assert (list(mine.tokens), mine.start) == trainer.encode("bill", text)


def test_padding_is_read_by_nothing_that_counts():
    rows = [Encoded(np.array([5, 6, 7, 8], np.int32), 2), Encoded(np.array([5, 6, 9], np.int32), 2)]
    ids, targets = student.pad(rows, torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [5, 6, 0]]
    assert targets.tolist() == [[NOT_COUNTED, 7, 8], [NOT_COUNTED, 9, NOT_COUNTED]]


def test_a_folder_that_holds_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        student.read_model(tmp_path)
    save_llama(tmp_path, eos=False)
    with pytest.raises(ModelError, match="no end-of-text token"):
        student.read_tokenizer(tmp_path)


def test_a_chat_models_instruction_is_no_prompt_of_a_student(tmp_path):
    save_llama(tmp_path, chat=True)
    assert student.prompt_of(tmp_path) == PLAIN
    assert student.prompt_of(BUILTIN) == OWN


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"))


def test_an_encoder_is_read_under_a_causal_mask_and_stays_so(bert, tmp_path):
    """Yu et al. train BERTs; read in both directions they are shown what they are to predict."""
    from transformers import AutoModelForCausalLM

    assert peeks(AutoModelForCausalLM.from_pretrained(bert))
    tokenizer, model = student.read_tokenizer(bert), student.read_model(bert).eval()
    assert not peeks(model)
    (text,) = student.encode(tokenizer, PLAIN, [(None, "the visit was late")], 20)
    assert text.tokens[0] == tokenizer.cls_token_id
    assert text.tokens[-1] == tokenizer.sep_token_id
    ids = torch.tensor(text.tokens[None].astype(np.int64))
    with torch.inference_mode():
        at_once = model(input_ids=ids).logits[0]
        for end in range(1, ids.shape[1]):
            alone = model(input_ids=ids[:, :end]).logits[0, -1]
            torch.testing.assert_close(at_once[end - 1], alone)
    student.save(model, tokenizer, PLAIN, tmp_path / "made")
    assert not peeks(AutoModelForCausalLM.from_pretrained(tmp_path / "made"))


def test_a_model_that_sees_the_next_token_is_refused(bert, tmp_path):
    with pytest.raises(ModelError, match="logits at a token move when the next token changes"):
        load_language_model(ModelsConfig(language=str(bert)), PerformanceConfig())
    made = load_language_model(
        ModelsConfig(language=str(save_llama(tmp_path / "llama"))), PerformanceConfig()
    )
    assert made.vocab_size > 0


def test_rows_may_mix_only_where_prompts_are_public():
    """A model that reads records never gets the faster attention."""
    cfg, performance = ModelsConfig(language="tiny"), PerformanceConfig()
    private = load_language_model(cfg, performance)._body.config._attn_implementation
    public = load_text_model(cfg, performance).network.config._attn_implementation
    assert (private, public) == ("privsyn_sdpa", "privsyn_sdpa_mixed")
