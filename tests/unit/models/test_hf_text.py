"""Completions by a local model: the shipped one, and tiny random ones of several architectures."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from privsyn.errors import ModelError
from privsyn.models.language.answers import as_text
from privsyn.models.language.degenerate_text import whole_words
from privsyn.models.language.hf_text import HFTextModel
from privsyn.models.language.likelihood import log_likelihoods
from privsyn.models.loading import describe_role, load_language_model, load_role
from privsyn.models.protocols import Sampling
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tests.unit.models.tiny_models import save_mixtral

PROMPTS = ["the visit", "my bill is ready please help", "", "text", "an appointment " * 9, "late"]
CPU = PerformanceConfig(rows_per_pass=4)


@pytest.fixture(scope="session")
def load(folders):
    known = {}

    def get(name):
        if name not in known:
            known[name] = load_role(ModelsConfig(language=folders(name)), "text", CPU)
        return known[name]

    return get


def copied(model, **settings):
    given = {"source": "test", "revision": model.revision, "rows_per_pass": 4, **settings}
    return HFTextModel(model.network, model.tokenizer, **given)


def seeded(model, seed, **settings):
    return copied(model, generator=torch.Generator().manual_seed(seed), **settings)


def sampler():
    """A model that only samples: without a network."""
    model = HFTextModel.__new__(HFTextModel)
    model._generator = torch.Generator().manual_seed(3)
    return model


ALL = ["tiny", "llama", "chat", "gpt2", "sliding", "softcapped", "hybrid", "falcon"]


@pytest.mark.parametrize("name", ALL)
def test_one_completion_a_prompt_in_order_whatever_the_batch(load, name):
    model = load(name)
    together = model.complete(PROMPTS, max_tokens=12, temperature=0)
    assert len(together) == len(PROMPTS)
    assert together == model.complete(PROMPTS, max_tokens=12, temperature=0)
    alone = [model.complete([p], max_tokens=12, temperature=0)[0] for p in PROMPTS]
    assert together == alone
    assert len(set(together)) > 1
    assert all(not text.startswith(p) for p, text in zip(PROMPTS, together, strict=True) if p)


@pytest.mark.parametrize("name", ["llama", "gpt2", "chat"])
def test_greedy_completions_are_those_of_transformers(load, name):
    from transformers import AutoModelForCausalLM

    model = load(name)
    stock = AutoModelForCausalLM.from_pretrained(model.network.config._name_or_path)
    for prompt, text in zip(
        PROMPTS, model.complete(PROMPTS, max_tokens=12, temperature=0), strict=True
    ):
        ids = torch.tensor([model._prompts.whole(prompt, 116)])
        for _ in range(12):
            step = stock(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
            if int(step) in model._ends:
                break
            ids = torch.cat([ids, step], dim=-1)
        new = ids[0, len(model._prompts.whole(prompt, 116)) :].tolist()
        kept = [t for t in new if t in model._plain]
        written = model.tokenizer.decode(kept, clean_up_tokenization_spaces=False)
        written = as_text(written)
        assert text == (whole_words(written) if len(new) == 12 else written)


def test_tokens_are_drawn_in_proportion():
    model = sampler()
    logits = torch.tensor([0.0, 2.0, -torch.inf, 1.0, 3.0])
    rows = logits.repeat(20_000, 1)

    def counts(temperature, **settings):
        drawn = model._sample(rows, Sampling(temperature, **settings))
        return np.bincount(drawn.numpy(), minlength=5)

    for temperature in (1.0, 2.0):
        found = counts(temperature)
        expected = torch.softmax(logits / temperature, 0).double().numpy()
        expected = expected / expected.sum() * len(rows)
        assert found[2] == 0
        held = expected > 0
        # A seeded generator: always or never.
        assert chisquare(found[held], expected[held]).pvalue > 1e-4
        wrong = torch.softmax(logits / (temperature * 1.2), 0).double().numpy()[held]
        assert chisquare(found[held], wrong / wrong.sum() * len(rows)).pvalue < 1e-9
    assert counts(0)[4] == counts(1e-9)[4] == len(rows)
    assert set(np.flatnonzero(counts(1.0, top_k=2))) == {1, 4}
    assert set(np.flatnonzero(counts(1.0, top_p=0.7))) == {1, 4}  # 3: .644, 2: .237
    assert set(np.flatnonzero(counts(1.0, top_p=0.6))) == {4}
    broken = torch.tensor([[torch.nan] * 3, [torch.inf, torch.nan, 0.0]])
    assert model._sample(broken, Sampling()).max() < 3


@pytest.mark.parametrize("name", ["llama", "chat"])
def test_what_prompts_begin_with_is_read_once_and_changes_nothing(load, name, monkeypatch):
    model = copied(load(name), rows_per_pass=8)
    beginning = "an appointment " * 12
    prompts = [beginning + end for end in ("visit", "my bill is ready", "please", "text my bill")]
    shapes = []

    def forward(cache, ids, mask):
        shapes.append(tuple(ids.shape))
        return type(model)._forward(model, cache, ids, mask)

    def written(of):
        shapes.clear()
        return model.complete(of, max_tokens=12, temperature=0)

    def apart(of):  # nothing was read before
        fresh = (copied(load(name)) for _ in of)
        return [
            m.complete([p], max_tokens=12, temperature=0)[0] for m, p in zip(fresh, of, strict=True)
        ]

    monkeypatch.setattr(model, "_forward", forward)
    assert written(prompts) == apart(prompts)
    (once, shared), (rows, own) = shapes[:2]
    assert (once, rows) == (1, len(prompts))
    assert shared >= 16 > own > 0
    # The next prompts begin alike, longer, shorter and otherwise.
    assert written(prompts) == apart(prompts)
    assert shapes[0] == (rows, own)
    longer = [beginning + "please call me " + end for end in ("visit", "my bill")]
    assert written(longer) == apart(longer)
    assert shapes[0][0] == 1
    assert 0 < shapes[0][1] < 16
    assert written(prompts[:1]) == apart(prompts[:1])
    assert sum(many for _, many in shapes[:-12]) < 16
    others = ["my bill " * 15 + end for end in ("visit", "please")]
    assert written(others) == apart(others)
    assert written(prompts) == apart(prompts)


@pytest.mark.parametrize("spread", [0.1, 4.0])
def test_a_nucleus_is_that_of_the_whole_vocabulary(spread):
    """Flat rows and steep ones; within it columns are as likely as they were."""
    model = sampler()
    row = torch.randn(300, generator=torch.Generator().manual_seed(5)) * spread
    order = row.sort(descending=True)
    shares = order.values.double().softmax(-1)
    nucleus = order.indices[shares.cumsum(-1) - shares < 0.9].numpy()
    drawn = model._sample(row.repeat(100_000, 1), Sampling(top_p=0.9))
    counts = np.bincount(drawn.numpy(), minlength=300)
    assert set(np.flatnonzero(counts)) <= set(nucleus)
    expected = shares[: len(nucleus)].numpy()
    expected = expected / expected.sum() * counts.sum()
    often = expected > 5
    assert counts[nucleus[~often]].sum() <= 2 * expected[~often].sum() + 20
    # A seeded generator: always or never.
    held = np.append(counts[nucleus[often]], counts[nucleus[~often]].sum() + 1)
    hoped = np.append(expected[often], expected[~often].sum() + 1)
    assert chisquare(held, hoped * held.sum() / hoped.sum()).pvalue > 1e-4


@pytest.mark.parametrize("name", ["llama", "chat"])
def test_a_row_stops_at_its_end(load, name, monkeypatch):
    """The end is forced upon single rows at single steps; the others go on as they would."""
    model = load(name)
    free = model.complete(PROMPTS, max_tokens=10, temperature=0)
    batch = copied(model, rows_per_pass=len(PROMPTS))
    order = sorted(range(len(PROMPTS)), key=lambda i: len(batch._prompts.whole(PROMPTS[i], 99)))
    decoded, steps = batch._decode, []
    lengths = []

    def forward(cache, ids, mask):
        logits = type(batch)._forward(batch, cache, ids, mask)
        steps.append(len(ids))
        if len(steps) == 3:  # the two shortest prompts and the longest end here
            logits[[0, 1, -1], batch._ends[-1]] = torch.finfo(torch.float32).max
        return logits

    def watched(*args):
        out = decoded(*args)
        lengths.extend(len(tokens) for tokens in out)
        return out

    monkeypatch.setattr(batch, "_forward", forward)
    monkeypatch.setattr(batch, "_decode", watched)
    ended = batch.complete(PROMPTS, max_tokens=10, temperature=0)
    assert [lengths[0], lengths[1], lengths[-1]] == [2, 2, 2]
    for place, i in enumerate(order):
        if place in (0, 1, len(order) - 1):
            assert free[i].startswith(ended[i])
            assert len(ended[i]) < len(free[i])
        else:
            assert ended[i] == free[i]
    assert steps[0] == len(PROMPTS)
    assert steps[3] == 3  # the rest was closed up


@pytest.mark.parametrize("name", ["llama", "chat"])
def test_a_row_stops_where_the_next_text_begins(load, name, monkeypatch):
    """A row with a stop in it is not written on, and the others go on as they would."""
    model = copied(load(name), rows_per_pass=len(PROMPTS))
    free = model.complete(PROMPTS, max_tokens=10, temperature=0, until=())
    order = sorted(range(len(PROMPTS)), key=lambda i: len(model._prompts.whole(PROMPTS[i], 99)))
    steps = []
    text_of, first = type(model).decode, order[0]

    def forward(cache, ids, mask):
        steps.append(len(ids))
        return type(model)._forward(model, cache, ids, mask)

    def text(tokens):
        """What the tokens say; the shortest prompt's third token begins the next text."""
        said = text_of(model, tokens)
        return f"{said}\nTopic: more" if tuple(tokens) == marked else said

    ended = {}
    whole = model._decode

    def watched(*args):
        out = whole(*args)
        ended.update(zip(order, out, strict=True))
        return out

    monkeypatch.setattr(model, "_decode", watched)
    marked = ()
    model.complete(PROMPTS, max_tokens=10, temperature=0, until=())
    marked = tuple(ended[first][:3])
    monkeypatch.setattr(model, "decode", text)
    monkeypatch.setattr(model, "_forward", forward)
    texts = model.complete(PROMPTS, max_tokens=10, temperature=0, until=["\nTopic", "\nText"])
    assert len(ended[first]) == 3
    assert texts[first].strip() == text_of(model, marked).strip()
    assert [texts[i] for i in order[1:]] == [free[i] for i in order[1:]]
    assert len(steps) == 10


@pytest.mark.parametrize("name", ["llama", "gpt2", "chat"])
def test_long_prompts_are_cut_from_the_left(load, name):
    model = load(name)
    tail = "and my bill is ready please help " * 60
    first, second = model.complete(
        ["the visit was late " * 500 + tail, "text label text " * 900 + tail],
        max_tokens=20,
        temperature=0,
    )
    assert first == second
    ids = model._prompts.whole("the visit was late " * 500 + tail, 108)
    assert len(ids) == 108
    assert model.tokenizer.decode(ids[:1]) == "<s>"
    if name == "chat":
        whole = model.tokenizer.decode(ids)
        assert whole.startswith("<s><|im_start|>user\n")
        assert whole.endswith("help <|im_end|>\n<|im_start|>assistant\n")


def test_no_room_for_a_prompt(load):
    with pytest.raises(ModelError, match=r"context of 128 tokens has no room .* max_tokens=128"):
        load("llama").complete(["the"], max_tokens=128, temperature=0)
    assert len(load("llama").complete(["the visit"], max_tokens=126, temperature=0)) == 1
    with pytest.raises(ModelError, match="the chat template takes"):
        load("chat").complete(["the"], max_tokens=125, temperature=0)
    for bad in ({"max_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}):
        with pytest.raises(ValueError, match="temperature="):
            load("llama").complete(["the"], **{"max_tokens": 5, "temperature": 1.0, **bad})


def test_identity_is_that_of_the_language_model(load, folders):
    for name in ("tiny", "llama"):
        cfg = ModelsConfig(language=folders(name))
        assert load(name).revision == describe_role(cfg, "text").revision
        assert load(name).revision == load_language_model(cfg, CPU).revision


@pytest.mark.gpu
def test_on_cuda(folders):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    gpu = PerformanceConfig(rows_per_pass=4)
    for name in ("tiny", "llama", "gpt2"):
        model = load_role(ModelsConfig(language=folders(name)), "text", gpu)
        for temperature in (0, 1.0):
            texts = model.complete(PROMPTS, max_tokens=12, temperature=temperature)
            assert len(texts) == len(PROMPTS)


@pytest.mark.parametrize("name", ALL)
def test_a_token_with_a_log_ratio_is_likelier_or_less_likely(load, name):
    """In every row and at every step; the others keep their proportions."""
    model = load(name)
    for ratios in ({}, {7: 50.0}, {7: -50.0}):
        tokens = []
        watched = seeded(model, 3)
        watched.decode = lambda row, into=tokens: into.extend(row) or ""
        watched.complete(PROMPTS, max_tokens=6, temperature=1.0, log_ratios=ratios)
        assert {7: 50.0} != ratios or {*tokens} == {7}
        assert {7: -50.0} != ratios or 7 not in tokens
    again = [
        seeded(model, 3).complete(PROMPTS, max_tokens=6, temperature=1.0, **more)
        for more in ({}, {"log_ratios": dict.fromkeys(range(7), 0.0)})
    ]
    assert again[0] == again[1]


@pytest.mark.parametrize("name", ["tiny", "chat", "gpt2", "sliding"])
def test_tokens_of_a_text_are_distinct_and_say_something(load, name):
    """Numbers and spaces do not, special tokens are plain text, and no text is refused."""
    model = load(name)
    end = model.tokenizer.eos_token
    for text in ("the bill is the bill", f"late {end} bill", "", "\ud800 late", "bill " * 9000):
        tokens = model.tokens(text)
        assert tokens == sorted({*tokens})
        assert not {*tokens} & {*model._ends}
    assert model.tokens("late 2024 \n  7") == model.tokens("late")
    assert set(model.tokens("my bill")) > set(model.tokens("bill"))
    assert model.tokens(" late ") == model.tokens("late")


def test_what_a_model_finds_likely_is_read_a_token(load):
    model = load("tiny")
    pairs = [("Topic: a\nText:", " the visit was late"), ("Topic: a\nText:", ""), ("", " a")]
    nats, tokens = np.array(log_likelihoods(model, pairs, 64)).T
    np.testing.assert_allclose(model.read(pairs) * np.maximum(tokens, 1), nats)
    assert model.read(pairs[:1])[0] < 0 == model.read(pairs[1:2])[0]


def test_a_mixture_of_experts_may_read_public_prompts(tmp_path):
    """Row independence is asked for where private rows go; they never go through a TextModel."""
    cfg = ModelsConfig(language=str(save_mixtral(tmp_path)))
    model = load_role(cfg, "text", CPU)
    assert len(model.complete(PROMPTS, max_tokens=3, temperature=1.0)) == len(PROMPTS)
    for refused in (lambda: load_language_model(cfg, CPU), lambda: describe_role(cfg, "language")):
        with pytest.raises(ModelError, match="mixture of experts"):
            refused()


def test_a_model_without_a_cache(folders):
    with pytest.raises(ModelError, match="keeps no key-value cache"):
        load_role(ModelsConfig(language=folders("mamba")), "text", CPU)


def test_sampling_follows_the_generator(load):
    model = load("llama")

    def draw(seed):
        return seeded(model, seed).complete(PROMPTS, max_tokens=8, temperature=1.0)

    assert draw(1) == draw(1) != draw(2)
    same = ["the visit"] * 8
    assert len(set(model.complete(same, max_tokens=8, temperature=1.0))) > 1
    assert model.complete(same, max_tokens=8, temperature=1.0) != model.complete(
        same, max_tokens=8, temperature=1.0
    )
    assert len(set(model.complete(same, max_tokens=8, temperature=0))) == 1
