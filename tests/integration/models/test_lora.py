"""Adapters trained by DP-SGD: per-sample gradients, clipping, unit independence, files."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load as load_tensors

from privsyn.dp.mechanisms import CLIP_STEPS, SampledGaussian
from privsyn.errors import ModelError
from privsyn.methods.dp_lora.method import _advance
from privsyn.methods.dp_lora.settings import DPLoraConfig
from privsyn.models.language.prompts import PromptEncoder
from privsyn.models.loading import check_layers, load_trainable_model
from privsyn.models.protocols import PromptTemplate, Sampling, TrainableModel, Training
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.training.lora import LoraTrainer, clip_to_lattice
from tests.noise import NoNoise
from tests.unit.models.tiny_models import BOS, EOS, save_llama

TEMPLATE = PromptTemplate("Topic: {label}\nText:{reference}", "Topic: {label}\nText:")
TRAINING = Training(
    template=TEMPLATE, labels=("a", "b"), max_tokens=12, clip_norm=0.05, records_per_unit=1,
    micro_batch=4, rank=2, alpha=4.0, target_modules=None,
)  # fmt: skip
TEXTS = [
    "my bill is ready", "help", "", "the visit was late " * 9, "please, an appointment",
    "text and text", "was it late?", "a", "for my visit",
]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(folders):
    def get(name, *, dtype="float32"):
        performance = PerformanceConfig()
        return load_trainable_model(ModelsConfig(language=folders(name), dtype=dtype), performance)

    return get


@pytest.fixture
def make(model, folders):
    """``make(name, **training)``: a trainer whose adapter is no longer the first one."""

    def get(name="llama", *, dtype="float32", **changes):
        lora = model(name, dtype=dtype)
        return stirred(lora.trainer(replace(TRAINING, **changes)))

    return get


def stirred(trainer):
    """Both halves of every adapter off zero, so that both have gradients."""
    rng = np.random.default_rng(3)
    trainer.update(rng.normal(size=trainer.size), 0.05)
    return trainer


def units_of(trainer, texts=TEXTS, records=1):
    rows = [trainer.encode("ab"[i % 2], text) for i, text in enumerate(texts)]
    return [rows[i : i + records] for i in range(0, len(rows), records)]


def reference(trainer, folder, tmp_path):
    """The same model built apart, by transformers and PEFT from the trainer's files alone."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    for name, content in trainer.files().items():
        (tmp_path / name).write_bytes(content)
    base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice to each other
        return PeftModel.from_pretrained(base, str(tmp_path), is_trainable=True).eval()


def own_gradient(network, unit):
    """Sum over a unit's rows of the gradient of each row's mean loss, one row at a time."""
    network.zero_grad()
    for ids, start in unit:
        logits = network(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1]
        torch.nn.functional.cross_entropy(logits, torch.tensor(ids[start:])).backward()
    parts = [p for p in network.parameters() if p.requires_grad]
    return torch.cat([p.grad.flatten() for p in parts]).double().numpy()


def clipped(gradient, clip_norm):
    """Algorithm 1's clipping, in lattice steps."""
    return gradient * CLIP_STEPS / max(float(np.linalg.norm(gradient)), clip_norm)


def apart(found, wanted):
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


# --- gradients ------------------------------------------------------------------------------------

KINDS = [
    ("llama", {}), ("gpt2", {}), ("gpt2", {"target_modules": ("all-linear",)}), ("sliding", {}),
    ("softcapped", {}), ("falcon", {}), ("hybrid", {"target_modules": ("q_proj", "in_proj", "w2")}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes"), KINDS, ids=str)
@pytest.mark.parametrize("records", [1, 3])
def test_contributions_are_clipped_gradients_of_the_units_own_rows(
    make, folders, tmp_path, name, changes, records
):
    """Against one backward pass a row, without padding, through a model built apart."""
    for clip_norm in (1e-3, 1e3):  # every unit clipped, none clipped
        trainer = make(
            name, clip_norm=clip_norm, records_per_unit=records,
            micro_batch=4 * records, **changes,
        )  # fmt: skip
        network = reference(trainer, folders(name), tmp_path)
        units = units_of(trainer, records=records)
        wanted = [clipped(own_gradient(network, unit), clip_norm) for unit in units]
        steps = trainer.size**0.5  # what rounding toward zero takes off, at most
        for unit, own in zip(units, wanted, strict=True):
            found = trainer.clipped_sum([unit])
            assert np.linalg.norm(found - own) <= 1e-5 * np.linalg.norm(own) + steps
        total = trainer.clipped_sum(units)
        error = np.linalg.norm(total - np.sum(wanted, axis=0))
        assert error <= 1e-5 * sum(map(np.linalg.norm, wanted)) + len(units) * steps
    assert trainer.clipped_sum([]).tolist() == [0] * trainer.size


def test_a_units_rows_add_up_before_it_is_clipped_once(make, folders, tmp_path):
    """Three equal rows weigh no more than one; two that pull apart weigh less."""
    trainer = make(records_per_unit=3, clip_norm=1e-3)
    network = reference(trainer, folders("llama"), tmp_path)
    row, other = trainer.encode("a", TEXTS[0]), trainer.encode("b", TEXTS[4])
    one = trainer.clipped_sum([[row]])
    assert apart(trainer.clipped_sum([[row] * 3]), one) < 1e-5
    both = trainer.clipped_sum([[row, other]])
    summed = own_gradient(network, [row]) + own_gradient(network, [other])
    assert apart(both, clipped(summed, 1e-3)) < 1e-5
    each = one + trainer.clipped_sum([[other]])
    assert np.linalg.norm(each) > 1.2 * np.linalg.norm(both)  # clipped one by one it would be more
    for found in (one, both):
        assert sum(int(value) ** 2 for value in found) <= CLIP_STEPS**2
    fourth = trainer.clipped_sum([[row, row, row, other]])
    np.testing.assert_array_equal(fourth, trainer.clipped_sum([[row, row, row]]))


def test_every_token_of_the_record_counts_and_none_of_the_prompt(make, folders, tmp_path):
    """A unit's loss is the mean over its own tokens: its length does not scale it."""
    trainer = make(clip_norm=1e3)
    network = reference(trainer, folders("llama"), tmp_path)
    ids, start = trainer.encode("a", TEXTS[3])
    whole = own_gradient(network, [(ids, start)])
    assert apart(own_gradient(network, [(ids, 1)]), whole) > 0.01  # the prompt's would be seen
    assert apart(own_gradient(network, [(ids[:-1], start)]), whole) > 0.01
    assert apart(trainer.clipped_sum([[(ids, start)]]), clipped(whole, 1e3)) < 1e-3


@pytest.mark.parametrize("clip_norm", [0.05, 2.0])
def test_a_step_without_noise_is_the_clipped_sum_over_the_public_divisor(make, clip_norm):
    trainer = make(clip_norm=clip_norm)
    units = units_of(trainer)
    cfg = DPLoraConfig(
        clip_norm=clip_norm,
        expected_batch=5.5,
        learning_rate=0.01,
        steps=4,
    )
    begun = trainer.state()
    total = trainer.clipped_sum(units)
    after = _advance(
        cfg, SampledGaussian(0.5, 1.0, 4), trainer, units, NoNoise(), range(2, 3), lambda *_: None
    )
    before = load_tensors(begun)
    theta = torch.nn.Parameter(before["theta"].clone())
    optimizer = torch.optim.AdamW([theta], lr=0.005, weight_decay=0.0)
    kept = {name.partition(".")[2]: value for name, value in before.items() if "." in name}
    optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: kept}})
    optimizer.param_groups[0]["lr"] = 0.005  # two of four steps have passed
    theta.grad = torch.from_numpy(total / CLIP_STEPS * (clip_norm / 5.5)).float()
    optimizer.step()
    assert torch.equal(load_tensors(after)["theta"], theta.detach())
    assert not torch.equal(load_tensors(after)["theta"], before["theta"])


# --- units do not see each other ------------------------------------------------------------------


def passes(trainer):
    seen: list[int] = []
    trainer._network.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    return seen


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("llama", 1), ("llama", 2), ("gpt2", 1), ("gpt2", 2), ("sliding", 1), ("softcapped", 2),
        ("falcon", 1), ("tiny", 1),
    ],
)  # fmt: skip
def test_a_contribution_is_bit_equal_whatever_stands_beside_it(make, name, records):
    trainer = make(name, records_per_unit=records, micro_batch=4 * records)
    units = units_of(trainer, [*TEXTS, "late"], records)
    seen = passes(trainer)
    alone = [trainer.clipped_sum([unit]) for unit in units]
    assert len({total.tobytes() for total in alone}) == len(units)
    # Each pass holds 4 units, and has one shape whatever they are: else nothing was tested here.
    assert seen == [4 * records] * len(units)
    rng = np.random.default_rng(5)
    for size in (2, 4, 5, len(units)):
        order = rng.permutation(len(units))[:size]
        del seen[:]
        total = trainer.clipped_sum([units[i] for i in order])
        np.testing.assert_array_equal(total, np.sum([alone[i] for i in order], axis=0))
        assert len(seen) == -(-size // 4)
    longer = [trainer.encode("b", "the visit " * 99)]
    for others, places in (([longer], (0, 1)), ([longer] * 3, (1, 3)), ([units[2]] * 5, (4,))):
        for place in places:
            both = trainer.clipped_sum([*others[:place], units[0], *others[place:]])
            np.testing.assert_array_equal(both - trainer.clipped_sum(others), alone[0])


MIXERS = {
    "mean of the batch": lambda out: out + 5e-4 * out.mean(0, keepdim=True),
    "scale of the batch": lambda out: out * (1 + 5e-4 * out.abs().max() / 9),
    "the row before": lambda out: out + 5e-4 * out.roll(1, 0),
    "of the shortest rows": lambda out: out + 5e-4 * out.mean(0, keepdim=True) * (out.size(1) < 25),
    "the place": lambda out: out * (1 + 5e-4 * torch.arange(len(out))[:, None, None]),
}


@pytest.mark.parametrize("mixer", list(MIXERS))
def test_a_model_that_mixes_rows_is_found_and_fed_unit_by_unit(folders, mixer):
    """A little of the other rows in each row, which a tolerance would let through."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def leaky():
        network = AutoModelForCausalLM.from_pretrained(folders("llama")).requires_grad_(False)
        network.model.layers[0].register_forward_hook(lambda module, args, out: MIXERS[mixer](out))
        return network, AutoTokenizer.from_pretrained(folders("llama"))

    trainer = stirred(LoraTrainer(*leaky(), TRAINING, "leaky"))
    seen = passes(trainer)
    units = units_of(trainer)[:5]
    total = trainer.clipped_sum(units)
    assert seen == ([4, 4] if mixer == "of the shortest rows" else [1] * 5)
    np.testing.assert_array_equal(total, sum(trainer.clipped_sum([unit]) for unit in units))


def adapters(trainer):
    return load_tensors(trainer.files()["adapter_model.safetensors"])


def save_dropping(folder, kind):
    """Models that keep their dropout rates where nn.Dropout is not: in layers, in the config."""
    import transformers

    folder.mkdir()
    save_llama(folder)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    if kind == "opt":
        config = transformers.OPTConfig(
            vocab_size=size, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48, dropout=0.5,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
            attention_dropout=0.5, layerdrop=0.5, pad_token_id=1, eos_token_id=1,
        )  # fmt: skip
        transformers.OPTForCausalLM(config).save_pretrained(folder)
    else:
        config = transformers.FalconConfig(
            vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            hidden_dropout=0.5, attention_dropout=0.5, eos_token_id=1,
        )  # fmt: skip
        transformers.FalconForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ["gpt2", "opt", "falcon"])
def test_dropout_is_off_wherever_a_model_keeps_its_rate(folders, tmp_path, kind):
    folder = folders("gpt2") if kind == "gpt2" else save_dropping(tmp_path / "model", kind)
    cfg = ModelsConfig(language=folder)
    trainer = stirred(load_trainable_model(cfg, PerformanceConfig()).trainer(TRAINING))
    drawn = torch.random.get_rng_state()
    first = trainer.clipped_sum(units_of(trainer))
    np.testing.assert_array_equal(trainer.clipped_sum(units_of(trainer)), first)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    (tmp_path / "files").mkdir()
    network = reference(trainer, folder, tmp_path / "files")  # in eval mode: without dropout
    (unit,) = units_of(trainer, TEXTS[:1])
    wanted = clipped(own_gradient(network, unit), TRAINING.clip_norm)
    assert apart(trainer.clipped_sum([unit]), wanted) < 1e-5


# --- clipping -------------------------------------------------------------------------------------

LARGEST = float(np.finfo(np.float32).max)
NUMBERS = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, 1e-45, 1e-38, LARGEST, -LARGEST, math.inf, -math.inf, math.nan, 1.0, 2.0**-24]
)
ROWS = arrays.arrays(np.float32, (4, 9), elements=NUMBERS)
ONE = np.ones((4, 9), np.float32)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.floats(1e-6, 1e6), st.sampled_from(["float32", "bfloat16", "float16"]))
@example(ONE * LARGEST, 1.0, "float32")
@example(ONE * 1e-45, 1e-6, "float32")
@example(np.eye(4, 9, dtype=np.float32), 1.0, "float32")
@example(ONE / 3, 1.0, "float32")
@example(ONE * math.nan, 1.0, "bfloat16")
def test_any_gradient_is_brought_within_the_norm_exactly(rows, clip_norm, dtype):
    gradients = torch.from_numpy(rows).to(getattr(torch, dtype))
    parts = [gradients[:, :4], gradients[:, 4:5], gradients[:, 5:]]
    whole = torch.cat(clip_to_lattice(parts, clip_norm), 1)
    assert whole.dtype == torch.float32
    exact = gradients.double().numpy()
    for number, row in enumerate(whole.tolist()):
        assert all(value == int(value) for value in row)
        assert sum(int(value) ** 2 for value in row) <= CLIP_STEPS**2
        alone = torch.cat(clip_to_lattice([p[number : number + 1] for p in parts], clip_norm), 1)
        assert torch.equal(alone[0], whole[number])
        own = exact[number]
        if not np.isfinite(own).all():
            assert not any(row)
            continue
        wanted = own * (CLIP_STEPS / max(float(np.linalg.norm(own)), clip_norm))
        assert (np.abs(row) <= np.abs(wanted)).all()  # rounded toward zero, and never beyond
        assert (np.abs(row - wanted) <= 1 + 2e-6 * np.abs(wanted)).all()
        assert (np.sign(row) * np.sign(wanted) >= 0).all()


def test_a_gradient_at_the_norm_stays_within_it_in_any_direction():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2000)) * rng.lognormal(0, 4, size=(300, 2000))
    rows *= 10.0 ** rng.uniform(-30, 25, size=(300, 1)) / np.linalg.norm(rows, axis=1)[:, None]
    whole = torch.cat(clip_to_lattice([torch.from_numpy(rows).float()], 1e-32), 1).numpy()
    squares = (whole.astype(np.int64) ** 2).sum(1)
    assert (squares <= CLIP_STEPS**2).all()
    assert (squares >= 0.999 * CLIP_STEPS**2).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_a_model_that_gives_no_finite_gradient_gives_zeros(make, bad):
    trainer = make()
    units = units_of(trainer)
    trainer.update(np.full(trainer.size, -bad), 1.0)
    trainer._write(torch.full((trainer.size,), bad))
    total = trainer.clipped_sum(units)
    assert not total.any()


# --- records --------------------------------------------------------------------------------------


def test_any_text_is_a_row_of_bounded_length(make, folders):
    from transformers import AutoTokenizer

    trainer = make()
    tokenizer = AutoTokenizer.from_pretrained(folders("llama"))
    encoder = PromptEncoder(tokenizer, "x")
    prompt = encoder.public(TEMPLATE, "a")
    longest = "word visit " * 50_000
    tricky = [
        f"{EOS} late {BOS} help", "<|im_end|>" * 3, "\ud800", "\x00", " \n ", "\ufeff", "e" * 99,
    ]  # fmt: skip
    for text in ["", *TEXTS, *tricky, longest]:
        ids, start = trainer.encode("a", text)
        assert ids[:start] == prompt
        own = encoder.reference(text.strip(), " ", 12)
        assert ids[start:] == [*own, tokenizer.eos_token_id][: max(12, len(own))][:12]
        assert 1 <= len(ids) - start <= 12
        special = {tokenizer.eos_token_id, tokenizer.bos_token_id, 2, 3}
        assert not special & set(ids[start:-1])
    assert trainer.encode("a", "")[0][start:][-1] == tokenizer.eos_token_id
    units = [[trainer.encode("a", text)] for text in ["", *tricky, longest]]
    assert trainer.clipped_sum(units).any()
    with pytest.raises(AssertionError):  # as special tokens they would be found
        assert not {tokenizer.eos_token_id} & set(tokenizer(EOS)["input_ids"])


def test_a_whole_text_ends_and_a_cut_one_does_not(make):
    trainer = make(max_tokens=3)
    one, _ = trainer.encode("a", "visit")
    cut, start = trainer.encode("a", "the visit was late and my bill")
    assert one[-1] == trainer._eos
    assert len(cut) == start + 3
    assert cut[-1] != trainer._eos


def test_a_prompt_and_records_that_outgrow_the_context_are_refused(model):
    trainer = model("llama").trainer(TRAINING)
    prompt = max(trainer.encode(label, "")[1] for label in "ab")
    exactly = 128 - prompt
    trainer = model("llama").trainer(replace(TRAINING, max_tokens=exactly))
    rows = [trainer.encode(label, "word " * 999) for label in "ab"]
    assert max(len(ids) for ids, _ in rows) == 128
    assert stirred(trainer).clipped_sum([rows[:1], rows[1:]]).any()
    with pytest.raises(ModelError, match="context of 128 tokens is shorter than prompt and record"):
        model("llama").trainer(replace(TRAINING, max_tokens=exactly + 1))


# --- state and files ------------------------------------------------------------------------------


def test_going_on_from_a_state_is_going_on_without_interruption(model):
    one = model("llama").trainer(TRAINING)
    units = units_of(one)
    fresh = one.state()

    def go(trainer, steps):
        for step in steps:
            trainer.update(trainer.clipped_sum(units[step:]) / CLIP_STEPS, 0.01 * (step + 1))

    go(one, range(3))
    middle = one.state()
    go(one, range(3, 6))
    torch.manual_seed(99)  # another process has other random numbers behind it
    torch.rand(7)
    other = model("llama").trainer(TRAINING)
    assert not other.has_moved()
    other.restore(middle)
    assert other.state() == middle
    assert other.has_moved()
    go(other, range(3, 6))
    assert other.state() == one.state()
    assert other.files() == one.files()
    assert len(middle) == len(one.state())
    other.restore(fresh)  # also back to the beginning, and without what was learnt on the way
    assert other.state() == fresh
    assert not other.has_moved()
    go(other, range(6))
    assert other.state() == one.state()


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_files_are_an_adapter_as_peft_reads_it(make, folders, tmp_path, name):
    trainer = make(name)
    units = units_of(trainer)
    trainer.update(trainer.clipped_sum(units) / CLIP_STEPS, 0.01)
    network = reference(trainer, folders(name), tmp_path)
    ids = torch.tensor([units[0][0][0]])
    with torch.no_grad():
        found = network(input_ids=ids).logits
        wanted = trainer._network(input_ids=ids, use_cache=False).logits
        bare = network.get_base_model()
        with network.disable_adapter():
            unadapted = bare(input_ids=ids).logits
    assert (found - wanted).abs().max() < 1e-4
    assert (found - unadapted).abs().max() > 1e-2
    files = trainer.files()
    assert set(files) == {"adapter_model.safetensors", "adapter_config.json"}
    assert files == trainer.files()
    tensors = load_tensors(files["adapter_model.safetensors"])
    assert sum(tensor.numel() for tensor in tensors.values()) == trainer.size
    assert all("lora_A" in key or "lora_B" in key for key in tensors)


def test_the_files_hold_weights_alone(make, folders):
    """No random state, no optimizer, no place on this machine."""
    trainer = make()
    kept = load_tensors(trainer.state())
    files = trainer.files()
    everything = b"".join(files.values())
    for secret in ("exp_avg", "exp_avg_sq"):
        tensor = kept[f"optimizer.{secret}"]
        assert tensor.abs().min() > 0
        assert secret.encode() not in everything
        assert tensor.numpy().tobytes()[:64] not in everything
    assert torch.random.get_rng_state().numpy().tobytes()[:64] not in everything
    for place in (folders("llama"), str(Path(folders("llama")).parent), str(Path.cwd()), "/tmp"):
        assert place.encode() not in everything
    config = json.loads(files["adapter_config.json"])
    assert config["base_model_name_or_path"] == "llama"
    assert config["r"] == 2


def test_what_was_learnt_is_what_is_written(model, tmp_path):
    """Trained without noise on one text a label, the adapter's likeliest words are that text."""
    lora: TrainableModel = model("llama")
    training = replace(TRAINING, clip_norm=10.0, rank=8, target_modules=("all-linear",))
    trainer = lora.trainer(training)
    assert lora.revision
    own = {"a": "my bill is ready", "b": "please help"}
    units = [[trainer.encode(label, text)] for label, text in own.items()]
    for _ in range(80):
        trainer.update(trainer.clipped_sum(units) / CLIP_STEPS, 0.02)
    for name, content in trainer.files().items():
        (tmp_path / name).write_bytes(content)
    writer = lora.writer(training, tmp_path, Sampling(top_k=1))
    assert writer.write(["a", "b", "a"]) == [own["a"], own["b"], own["a"]]
    assert writer.write([]) == []
    texts = [*own.values(), ""]
    for label, text in own.items():
        nats = writer.likelihoods([label] * 3, texts)
        assert texts[int(nats.argmax())] == text
    together = writer.likelihoods(["a", "b", "b"], [own["a"], own["a"], own["b"]])
    apart = [writer.likelihoods([of], [t])[0] for of, t in
             [("a", own["a"]), ("b", own["a"]), ("b", own["b"])]]  # fmt: skip
    assert together == pytest.approx(apart, abs=1e-4)


def test_only_a_text_that_ran_out_of_tokens_loses_what_follows_its_last_sentence(model, tmp_path):
    lora: TrainableModel = model("llama")
    training = replace(
        TRAINING, clip_norm=10.0, rank=8, target_modules=("all-linear",), max_tokens=32
    )
    trainer = lora.trainer(training)
    text = "the visit was very late. please help"
    row, prompt = trainer.encode("a", text)
    for _ in range(100):
        trainer.update(trainer.clipped_sum([[(row, prompt)]]) / CLIP_STEPS, 0.02)
    for name, content in trainer.files().items():
        (tmp_path / name).write_bytes(content)

    def written(tokens, whole):
        sampling = Sampling(top_k=1, whole_sentences=whole)
        writer = lora.writer(replace(training, max_tokens=tokens), tmp_path, sampling)
        return writer.write(["a"])[0]

    with_end = len(row) - prompt
    assert written(with_end, True) == written(with_end, False) == text
    assert written(with_end - 1, False) == text  # its end was never drawn
    assert written(with_end - 1, True) == "the visit was very late."


# --- layers ---------------------------------------------------------------------------------------


def test_layers_are_those_of_the_architecture_or_those_asked_for(model):
    def adapted(name, targets):
        trainer = model(name).trainer(replace(TRAINING, target_modules=targets))
        return {key.split(".")[-3] for key in adapters(trainer)}

    assert adapted("llama", None) == {"q_proj", "v_proj"}
    assert adapted("gpt2", None) == {"c_attn"}
    assert adapted("llama", ("k_proj",)) == {"k_proj"}
    every = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert adapted("llama", ("all-linear",)) == every  # and not the vocabulary's
    assert adapted("gpt2", ("all-linear",)) == {"c_attn", "c_proj", "c_fc"}


def test_layers_that_are_not_there_are_refused_with_those_that_are(folders, model):
    for name, targets, said in (
        ("llama", ("q_proj", "qq_proj"), "no linear layer qq_proj to adapt"),
        ("llama", ("lm_head",), "no linear layer lm_head to adapt"),
        ("gpt2", ("q_proj",), "no linear layer q_proj to adapt"),
        ("hybrid", None, "architecture lfm2, for which no layers to adapt are known"),
    ):
        with pytest.raises(ModelError, match=said) as early:
            check_layers(ModelsConfig(language=folders(name)), targets)
        with pytest.raises(ModelError, match=said) as late:
            model(name).trainer(replace(TRAINING, target_modules=targets))
        assert str(early.value) == str(late.value)
        assert f"models.language={name}" in str(early.value)
        assert "Its linear layers are: " in str(early.value)
        assert "target_modules" in early.value.hint
    check_layers(ModelsConfig(language=folders("llama")), None)
    check_layers(ModelsConfig(language=folders("hybrid")), ("all-linear",))
    with pytest.raises(ModelError, match="q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj"):
        check_layers(ModelsConfig(language=folders("llama")), ("x",))


# --- numbers and memory ---------------------------------------------------------------------------


class Short:
    """A trainer's backward pass that has memory for so many rows and fails after the others."""

    def __init__(self, trainer, rows, error):
        self._real, self._rows, self._error = trainer._backward, rows, error
        self.sizes: list[int] = []
        trainer._backward = self

    def __call__(self, tokens, targets):
        self.sizes.append(len(tokens))
        if len(tokens) <= self._rows:
            return self._real(tokens, targets)
        logits_only = self._error is MemoryError
        if not logits_only:
            self._real(tokens, targets)
        raise self._error("CUDA out of memory")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
@pytest.mark.parametrize("records", [1, 2])
def test_short_of_memory_passes_are_halved_and_the_sum_is_the_same(make, error, records):
    units = None
    sums = []
    for rows in (99, 3, 1):
        trainer = make(records_per_unit=records, micro_batch=8 * records)
        units = units_of(trainer, records=records)
        short = Short(trainer, rows * records, error)
        sums.append(trainer.clipped_sum(units))
        after = trainer.clipped_sum(units)
        np.testing.assert_array_equal(after, sums[-1])
        assert short.sizes[-1] <= rows * records
    np.testing.assert_array_equal(sums[1], sums[0])
    np.testing.assert_array_equal(sums[2], sums[0])


def test_after_a_halving_units_that_mix_now_are_passed_one_by_one(folders):
    """Other shapes may take other kernels: here passes of two rows mix, those of four do not."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network = AutoModelForCausalLM.from_pretrained(folders("llama")).requires_grad_(False)
    network.model.layers[0].register_forward_hook(
        lambda module, args, out: out + 5e-4 * out.mean(0, keepdim=True) * (len(out) == 2)
    )
    trainer = LoraTrainer(network, AutoTokenizer.from_pretrained(folders("llama")), TRAINING, "x")
    stirred(trainer)
    units = units_of(trainer)
    whole, kept = trainer.clipped_sum(units), trainer.state()
    short = Short(trainer, 2, torch.OutOfMemoryError)
    np.testing.assert_array_equal(trainer.clipped_sum(units), whole)
    assert short.sizes[0] == 4
    assert short.sizes[-len(units) :] == [1] * len(units)
    assert trainer.state() == kept  # the check put everything back


def test_one_unit_that_does_not_fit_is_a_memory_error_and_others_are_passed_on(make):
    trainer = make()
    units = units_of(trainer)
    Short(trainer, 0, torch.OutOfMemoryError)
    with pytest.raises(MemoryError, match="one unit's records do not fit"):
        trainer.clipped_sum(units)
    trainer = make()

    def broken(tokens, targets):
        raise RuntimeError("shapes do not agree")

    trainer._backward = broken
    with pytest.raises(RuntimeError, match="shapes do not agree"):
        trainer.clipped_sum(units)


def test_a_model_in_bfloat16_is_adapted_in_float32(make):
    trainer = make(dtype="bfloat16", clip_norm=1.0)
    assert {part.dtype for part in trainer._parts} == {torch.float32}
    assert {t.dtype for t in adapters(trainer).values()} == {torch.float32}
    units = units_of(trainer)
    total = trainer.clipped_sum(units)
    np.testing.assert_array_equal(total, sum(trainer.clipped_sum([unit]) for unit in units))
    before = adapters(trainer)
    trainer.update(total / CLIP_STEPS, 1e-4)  # less than a step of bfloat16
    assert any(not torch.equal(before[key], value) for key, value in adapters(trainer).items())
    assert trainer.has_moved()
