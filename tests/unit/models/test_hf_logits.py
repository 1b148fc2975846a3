"""The transformers backend: independent rows to the last bit, the right logits, public shapes."""

from functools import cache

import numpy as np
import pytest
import torch

from privsyn.errors import ModelError
from privsyn.models.language import rowwise
from privsyn.models.language.likelihood import of_sequences
from privsyn.models.language.prompts import PromptEncoder
from privsyn.models.loading import load_language_model
from privsyn.models.model_identity import describe
from privsyn.models.protocols import PromptTemplate
from privsyn.models.settings import ModelsConfig, PerformanceConfig

TEMPLATE = PromptTemplate("Text: {reference}</s>Text:", "Text:")
STEPS = 5
REFERENCE_TOKENS = 12
MODELS = ["tiny", "llama", "gpt2", "sliding", "softcapped", "hybrid", "falcon"]
OTHERS = [f"my bill number {i} is late" for i in range(20)]
MINE = "please help with an appointment"


@pytest.fixture(scope="session")
def load(folders):
    @cache
    def loaded(name, dtype="float32"):
        return in_passes_of_16(folders(name), dtype)

    return loaded


def in_passes_of_16(folder, dtype="float32"):
    cfg = ModelsConfig(language=str(folder), dtype=dtype)
    return load_language_model(cfg, PerformanceConfig(rows_per_pass=16))


def rows_of(model, references, labels=None, template=TEMPLATE, length=REFERENCE_TOKENS,
            steps=STEPS, declared=(None,)):  # fmt: skip
    """Private rows, of no label where none is given."""
    labels = [None] * len(references) if labels is None else labels
    return model.private_rows(template, labels, references, length, steps, declared=declared)


def next_tokens(references, step):
    """Tokens for each row that only its own text decides."""
    return [5 + (len(text) * 7 + step) % 200 for text in references]


def decoded(model, references):
    """Logits of every step."""
    rows = rows_of(model, references)
    steps = []
    for step in range(STEPS):
        steps.append(rows.logits())
        rows.append(next_tokens(references, step))
    return np.stack(steps, axis=1)  # (rows, steps, vocabulary)


@pytest.fixture
def passes(monkeypatch):
    """``passes(model)``: shapes of the ids and the mask of each forward pass from now on."""

    def of(model):
        seen, forward = [], type(model).forward

        def watched(self, cache, ids, mask):
            seen.append((tuple(ids.shape), tuple(mask.shape)))
            return forward(self, cache, ids, mask)

        monkeypatch.setattr(type(model), "forward", watched)
        return seen

    return of


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [*MODELS, "chat"])
def test_a_row_does_not_see_the_others(load, name, dtype):
    model = load(name, dtype)
    base = decoded(model, [*OTHERS, MINE])  # 21 rows: two micro-batches, the last filled up
    spare = [token for token in model._ends if token != model.eos]
    assert np.isfinite(np.delete(base, spare, axis=2)).all()
    assert (base[..., spare] == -np.inf).all()

    def same(rows, expected):
        np.testing.assert_array_equal(rows, expected)

    longer = [text * 100 if i % 2 else text for i, text in enumerate(OTHERS)]
    same(decoded(model, [MINE, *longer])[[0, 1, 19]], base[[20, 0, 18]])  # moved and lengthened
    same(decoded(model, [MINE]), base[20:])  # all others deleted
    same(decoded(model, [*OTHERS[:7], "inserted", *OTHERS[7:], MINE])[[0, -1]], base[[0, -1]])
    full = decoded(model, ["the " * 99] * 15 + [MINE])  # no row of the batch but mine is padded
    same(full[15], base[20])


def test_probe_refuses_a_model_whose_rows_mix(folders):
    model = in_passes_of_16(folders("llama"))
    forward = model._body.forward

    def leaky(*args, **kwargs):
        out = forward(*args, **kwargs)
        states = out.last_hidden_state
        out.last_hidden_state = states + 1e-5 * states.mean(0, keepdim=True)
        return out

    model._body.forward = leaky
    with pytest.raises(ModelError, match="change with its place in the batch"):
        rows_of(model, [MINE])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("heads", "groups"), [(3, 3), (4, 1), (1, 7)])
def test_one_token_attention_keeps_rows_and_agrees(threads, heads, groups):
    """Stock attention over filled-up query tokens: the plain sums, the same wherever a row is."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    try:
        for length in (1, 17, 70, 131):
            key, value = torch.randn(2, 48, heads, length, 64, generator=generator)
            q = torch.randn(48, heads, groups, 64, generator=generator) / 8
            mask = torch.ones(48, 1, 1, length, dtype=torch.bool)
            mask[:, :, :, : length // 3] = torch.rand(48, 1, 1, length // 3) > 0.5
            found = rowwise._attend_padded(q, key, value, mask)
            torch.testing.assert_close(found, rowwise._attend(q, key, value, mask))
            torch.testing.assert_close(found, rowwise._attend_grouped(q, key, value, mask))
            order = torch.randperm(48, generator=generator)
            key, value, q = key[order], value[order], q[order]
            key[:16], q[:16] = 9.0, 1.0  # other rows beside them
            again = rowwise._attend_padded(q, key, value, mask[order])
            assert torch.equal(again[16:], found[order][16:])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_a_plain_forward_pass(load, folders, name):
    from transformers import AutoModelForCausalLM

    from privsyn.models.references import BUILTIN

    model = load(name)
    folder = str(BUILTIN) if name == "tiny" else folders(name)
    plain = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    before, lead, after = model._prompts.private(TEMPLATE, None)
    ids = [*before, *model._prompts.reference(MINE, lead, REFERENCE_TOKENS), *after]
    ids += [next_tokens([MINE], step)[0] for step in range(STEPS - 1)]
    with torch.inference_mode():
        expected = plain(torch.tensor([ids])).logits[0, -STEPS:].numpy()
    np.testing.assert_allclose(decoded(model, [*OTHERS, MINE])[20], expected, atol=2e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_likelihoods_are_those_of_the_public_rows(load, name):
    """Texts of several lengths, read together, against one token at a time."""
    model = load(name)
    template = PromptTemplate("About {label}: {reference}", "About {label}:")
    labels = ["a bill", "a visit", "a bill", "a visit"]
    texts = ["please pay", "my bill was ready and late", "late", ""]
    rows = [
        model._prompts.public_and_text(template, label, text, 5)
        for label, text in zip(labels, texts, strict=True)
    ]
    found = of_sequences(model.network, rows)
    for label, text, nats in zip(labels, texts, found, strict=True):
        _, tokens = model._prompts.public_and_text(template, label, text, 5)
        assert len(tokens) <= 5
        rows, total = model.public_rows(template, [label], 8), 0.0
        for token in tokens:
            logits = rows.logits()[0].astype(np.float64)
            total += logits[token] - np.logaddexp.reduce(logits)
            rows.append([token])
        assert nats == pytest.approx(total, abs=1e-3)


def test_rows_are_as_wide_as_the_longest_declared_label(load):
    template = PromptTemplate("{label}: {reference}</s>{label}:", "{label}:")
    long = "a label of many more words, and then some"

    def width(labels, declared):
        rows = rows_of(load("llama"), [MINE] * len(labels), labels, template, declared=declared)
        return int(rows._width)

    assert width(["a"], ["a", long]) == width([long], ["a", long]) == width([], ["a", long])
    assert width(["a"], ["a", long]) > width(["a"], ["a"])


@pytest.mark.parametrize(
    ("template", "one", "other"),
    [
        ("{label}: {reference}</s>{label}:", "a", "a label of many more words"),
        # one token with what stands before it, which breaks the prefix for all rows
        ("bill visi{label} {reference}</s>{label}:", "late", "t"),
    ],
)
def test_which_labels_have_records_changes_no_bit(load, template, one, other):
    model, template = load("llama"), PromptTemplate(template, "{label}:")
    if other == "t":
        shared = model._prompts.shared_tokens
        assert len(shared(template, [other])) < len(shared(template, []))

    def first(labels):
        rows = rows_of(model, [MINE] * len(labels), labels, template, declared=[one, other])
        return rows.logits()[0]

    np.testing.assert_array_equal(first([one]), first([one, other]))


def test_the_shared_prefix_begins_every_declared_prompt():
    class Encoder(PromptEncoder):
        """Words as tokens, but that some labels change what stands before them."""

        def __init__(self): ...

        def _pieces(self, template, label):
            return {
                "merges": ([1, 2, 9, 5], "", []),
                "short": ([1, 2], "", []),
                "other": ([7], "", []),
            }.get(label or "", ([1, 2, 3, 4, 5], "", []))

    template, shared = PromptTemplate("{label} {reference}", ""), Encoder().shared_tokens
    assert shared(template, ["a", "b"]) == [1, 2, 3, 4]
    assert shared(template, ["a", "merges"]) == [1]
    assert shared(template, ["short"]) == [1]
    assert shared(template, ["other"]) == []
    assert shared(PromptTemplate("{reference}", ""), ["a"]) == [1, 2, 3, 4, 5]


def test_the_probe_runs_the_shapes_of_the_private_rows(load, monkeypatch):
    """Rows that mix at the real width alone: behind the prefix, and longer than 16 tokens."""
    model = load("llama")
    forward = type(model).forward
    template = PromptTemplate("my appointment Text: {reference}</s>Text:", "Text:")
    seen = set()
    longest = 10**9

    def mixing(self, cache, ids, mask):
        states = forward(self, cache, ids, mask)
        seen.add((tuple(ids.shape), mask.shape[1]))
        return states + 1e-3 * states.mean(0) if mask.shape[1] > longest else states

    monkeypatch.setattr(model, "_probed", set())
    monkeypatch.setattr(type(model), "forward", mixing)
    rows_of(model, [MINE], None, template, 16, 2).logits()
    shapes = set(seen)
    rows_of(model, [MINE], None, template, 16, 2).logits()
    assert seen == shapes  # the probe had been there
    longest = max(columns for _, columns in shapes)
    with pytest.raises(ModelError, match="change with its place"):
        rows_of(model, [MINE], None, template, 48, 2)


def test_the_vocabulary_layer_sees_one_number_of_rows(load, monkeypatch):
    """A layer whose bits depend on how many rows there are, as those of BLAS may."""
    model = load("llama")
    width, size = model._text.hidden_size, model.vocab_size

    class Counting(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + len(x)

    monkeypatch.setattr(model, "_head", Counting(width, size, bias=False))
    columns_of = rowwise.columns_of

    def counting(head, outputs):
        part = columns_of(head, outputs)
        plain = part.forward
        part.forward = lambda x: plain(x) + len(x)
        return part

    monkeypatch.setattr(rowwise, "columns_of", counting)
    states = torch.randn(21, width, generator=torch.Generator().manual_seed(0))
    for columns in (None, np.array([3, 7, 200])):
        whole = model.score(states, 16, columns)
        for count in (1, 15, 16, 17):
            np.testing.assert_allclose(
                model.score(states[:count], 16, columns), whole[:count], 1e-4
            )


def test_shapes_are_public(load, passes):
    """What reaches the model has the same shape whatever the references hold."""
    model = load("llama")
    rows_of(model, [""], steps=2)  # probes
    seen, shapes = passes(model), []
    for references in (["a"], ["", "x" * 1_000_000], ["the"] * 16):
        seen.clear()
        rows = rows_of(model, references, steps=2)
        rows.logits()
        rows.append([7] * len(references))
        rows.logits()
        shapes.append(list(seen))
    assert shapes[0] == shapes[1] == shapes[2]
    assert shapes[0][0][0][0] == 16
    seen.clear()
    model.public_rows(TEMPLATE, [None] * 5, 2).logits()
    assert [ids[0] for ids, _ in seen] == [16]


def test_replay_without_reading_logits_gives_the_same_state(load):
    """A resumed run feeds journalled tokens and asks for logits only where the journal ends."""
    model = load("llama")
    read, replayed = (rows_of(model, [MINE, "x"]) for _ in range(2))
    for step in range(STEPS - 1):
        read.logits()
        read.append([10 + step, 20 + step])
        replayed.append([10 + step, 20 + step])
    np.testing.assert_array_equal(read.logits(), replayed.logits())


@pytest.mark.parametrize("name", [*MODELS, "chat"])
def test_a_few_columns_are_those_of_all(load, name):
    model = load(name)
    rows = rows_of(model, [*OTHERS, MINE], steps=2)
    columns = np.array([7, 250, 12, *model._ends, 99])
    whole = rows.logits()
    some = rows.logits(slice(3, 20), columns)
    assert some.dtype == np.float32
    np.testing.assert_allclose(some, whole[3:20, columns], atol=1e-4)
    # A row's few columns depend on that row alone, to the last bit.
    np.testing.assert_array_equal(rows.logits(slice(5, 6), columns), some[2:3])
    np.testing.assert_array_equal(rows.logits(slice(4, 21), columns)[:16], some[1:])


@pytest.mark.parametrize("name", MODELS)
def test_another_text_begins_where_the_prompt_ends(load, name):
    model = load(name)

    def text(rows, first):
        steps = []
        for step in range(STEPS):
            steps.append(rows.logits())
            rows.append([first + step, first + 2 * step])
        return steps

    def fresh():
        return rows_of(model, [MINE, "x"])

    rows = fresh()
    text(rows, 30)
    rows.rewind()
    for again, expected in zip(text(rows, 60), text(fresh(), 60), strict=True):
        np.testing.assert_array_equal(again, expected)
    rows.rewind()
    rows.append([model.eos, 9])
    rows.logits()
    rows.rewind()  # a finished row begins anew too
    np.testing.assert_array_equal(rows.logits(), fresh().logits())


@pytest.mark.parametrize("name", ["llama", "gpt2", "sliding"])
def test_rows_beyond_the_memory_are_read_anew_and_the_same(load, monkeypatch, name):
    model = load(name)
    texts = [f"bill {i}" for i in range(40)]  # three micro-batches
    plain = decoded(model, texts)
    monkeypatch.setattr(model, "_cache_bytes", 1.0)
    rows = rows_of(model, texts)
    for step in range(STEPS):
        np.testing.assert_array_equal(rows.logits(), plain[:, step])
        assert sum(part.cache is not None for part in rows._passes) == 1
        rows.append(next_tokens(texts, step))
    rows.rewind()
    np.testing.assert_array_equal(rows.logits(), plain[:, 0])


def test_the_common_prefix_is_read_once(load, monkeypatch, passes):
    model = load("llama")
    template = PromptTemplate(
        "my appointment with label {label} Text: {reference}</s>Text:", "{label} Text:"
    )
    labels = ["a", "late", "ready please help"]

    def rows():
        return rows_of(model, [MINE] * 3, labels, template, steps=2, declared=labels)

    rows()  # probes
    prefix = model._prompts.shared_tokens(template, labels)
    assert len(prefix) == 4
    seen = passes(model)
    shared = rows().logits()
    width = model._prompts.length(template, labels) + 12
    assert seen[-1][0] == (16, -(-(width - len(prefix)) // 16) * 16)
    monkeypatch.setattr(type(model._prompts), "shared_tokens", lambda self, *args: [])
    apart = rows().logits()
    assert seen[-1][0] == (16, -(-width // 16) * 16)
    np.testing.assert_allclose(shared, apart, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2", "hybrid"])
def test_finished_rows_free_passes_and_change_no_bit(load, passes, name):
    model = load(name)
    texts = [f"bill {i}" for i in range(40)]  # three micro-batches
    plain = decoded(model, texts)
    calls = passes(model)
    rows = rows_of(model, texts)
    ends = np.array([1 + i % 3 for i in range(40)])  # 14 end after 1 token, 13 after 2, 13 after 3
    for step in range(STEPS):
        logits = rows.logits()
        live = step < ends
        np.testing.assert_array_equal(logits[live], plain[live, step])
        assert not logits[~live].any()
        tokens = np.array(next_tokens(texts, step))
        tokens[step + 1 >= ends] = model.eos
        rows.append(tokens.tolist())
    regroups = name != "hybrid"  # a model with state of its own keeps its passes
    assert len(calls) == (3 + 2 + 1 if regroups else 3 + 3 + 3)


def test_model_without_keys_and_values(load):
    with pytest.raises(ModelError, match="MambaForCausalLM keeps no key-value cache"):
        load("mamba")


def test_decode_is_total(load):
    for name in ("tiny", "llama", "chat"):
        model = load(name)
        text = model.decode([*range(-3, model.vocab_size + 5), 10**12])
        assert not any(mark in text for mark in ("<|end|>", "</s>", "<s>", "<|im_end|>"))
        assert model.decode([]) == ""
    assert load("tiny").decode([73, 74]) == "hi"


def test_all_end_tokens_count_as_the_end(load):
    """A chat model ends a turn with one token and a document with another."""
    model = load("chat")
    template = describe(ModelsConfig(language=str(model.network.name_or_path))).template_default
    rows = model.public_rows(template, [None], 2)
    logits = rows.logits()[0]
    np.testing.assert_array_equal(rows.logits()[0], logits)  # asking twice gathers once
    model._ends, ends = [model.eos], model._ends
    raw = model.public_rows(template, [None], 2).logits()[0]
    model._ends = ends
    assert ends == [1, 3]
    assert logits[3] == pytest.approx(np.logaddexp(raw[1], raw[3]), abs=1e-5)
    assert logits[1] == -np.inf  # never drawn, whatever the row and the columns


def test_check_says_by_how_many_tokens(load):
    model = load("llama")  # 128 positions; "<s>Text:" and "</s>Text:" around the reference
    prompt = len(model._prompts.public(TEMPLATE, None))
    rest = 128 - 2 * prompt
    model.check(TEMPLATE, rest - 40, 40)
    with pytest.raises(ModelError, match=r"128 tokens is 3 short .* max_tokens \(43\)"):
        model.check(TEMPLATE, rest - 40, 43)
    labeled = PromptTemplate("{label}: {reference}", "{label}:")
    with pytest.raises(ModelError, match="short"):
        model.check(labeled, 60, 60)
    with pytest.raises(ModelError, match="short"):
        rows_of(model, ["x"], length=100, steps=40)
    with pytest.raises(ModelError, match="short"):
        model.public_rows(PromptTemplate("{label} {reference}", "{label}"), ["late " * 200], 4)


def test_rope_that_rescales_with_the_batch_is_held_to_its_first_length(tmp_path):
    from tests.unit.models.tiny_models import save_llama

    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    rope |= {"original_max_position_embeddings": 32}
    folder = save_llama(tmp_path / "m", rope_parameters=rope)
    with pytest.raises(ModelError, match="32 tokens is"):
        in_passes_of_16(folder).check(TEMPLATE, 20, 20)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_on_cuda(folders, dtype):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for name in ("tiny", "llama", "gpt2"):
        model = in_passes_of_16(folders(name), dtype)
        base = decoded(model, [*OTHERS, MINE])
        np.testing.assert_array_equal(decoded(model, [MINE, *OTHERS])[0], base[20])


def test_a_model_that_caps_its_logits_is_left_whole(load):
    assert load("softcapped")._head is None
    assert load("llama")._head is not None
    assert load("gpt2")._head is not None


def test_no_private_rows(load):
    rows = rows_of(load("llama"), [])
    assert rows.logits().shape == (0, load("llama").vocab_size)
    rows.append([])
    assert rows.logits().shape == (0, load("llama").vocab_size)


@pytest.mark.usefixtures("two_threads")
def test_probe_catches_stock_kernels_that_treat_positions_apart(load, folders):
    """One-token SDPA in float32 on two threads: the defect rowwise.py is there for.

    Should torch repair it one day the rows agree, and the model may pass.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from privsyn.models.language.hf_logits import HFLogitModel

    stock = AutoModelForCausalLM.from_pretrained(folders("llama"), attn_implementation="sdpa")
    tokenizer = AutoTokenizer.from_pretrained(folders("llama"))
    model = HFLogitModel(stock.eval(), tokenizer, source="stock", revision="r", rows_per_pass=64)
    try:
        rows = decoded(model, [*OTHERS, MINE])
    except ModelError as error:
        assert "OMP_NUM_THREADS=1" in str(error)  # noqa: PT017  either outcome is sound
    else:
        np.testing.assert_array_equal(decoded(model, [MINE, *OTHERS])[0], rows[20])


def test_public_rows_are_the_prompt_without_a_reference(load):
    model = load("llama")
    rows = model.public_rows(TEMPLATE, [None] * 6, STEPS)
    assert rows.logits().shape == (6, model.vocab_size)
    again = model.public_rows(TEMPLATE, [None], STEPS)
    np.testing.assert_array_equal(rows.logits()[5], again.logits()[0])
    assert rows.logits().dtype == np.float32
