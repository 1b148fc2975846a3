"""The sentence embedder: the vectors of sentence-transformers, each from its own text alone."""

import json
import shutil

import numpy as np
import pytest

from privsyn.errors import ModelError
from privsyn.models.loading import load_embedder
from privsyn.models.model_identity import locate
from privsyn.models.references import ModelReference
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tests.unit.models.tiny_models import save_tokenizer

TEXTS = [
    "The bill for my visit is late.", "", "ünïcode — 漢字 \ud800 <|end|> [SEP]", "word " * 2000,
    "A short one", "Please help with an appointment. " * 6,
]  # fmt: skip


def load(embedder="builtin", **settings):
    cfg = ModelsConfig(embedder=str(embedder), **settings)
    return load_embedder(cfg, PerformanceConfig(rows_per_pass=16))


@pytest.fixture(scope="module")
def builtin():
    return load()


@pytest.fixture
def own(tmp_path):
    """A copy of the builtin's small files with tiny random weights, as a user would bring it."""
    import torch
    from transformers import BertConfig, BertModel

    source = locate(ModelReference("models.embedder", "builtin")).folder
    assert source is not None
    folder = tmp_path / "own"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "data_config*"))
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(
        folder, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=36
    )
    BertModel(config).save_pretrained(folder)
    return folder


def test_revision_is_of_the_files(own, builtin):
    before = load(own).revision
    assert before.startswith("sha256:")
    assert before != builtin.revision
    edit(own / "config.json", layer_norm_eps=1e-6)
    assert load(own).revision != before


def edit(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_vectors_are_those_of_sentence_transformers(builtin):
    package = pytest.importorskip("sentence_transformers", reason="not installed: not compared")
    folder = str(locate(ModelReference("models.embedder", "builtin")).folder)
    texts = [text for text in TEXTS if "\ud800" not in text]
    expected = package.SentenceTransformer(folder, device="cpu").encode(texts)
    np.testing.assert_allclose(builtin.embed(texts), expected, atol=1e-5)


def test_a_vector_depends_on_its_own_text_alone(builtin):
    base = builtin.embed([*TEXTS, *TEXTS, *TEXTS])
    assert base.shape == (18, builtin.width)
    np.testing.assert_allclose(np.linalg.norm(base, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(builtin.embed(TEXTS[::-1])[::-1], base[:6])
    np.testing.assert_array_equal(builtin.embed([TEXTS[0]]), base[:1])
    others = [f"Another text number {i} that is longer." * (i % 7) for i in range(40)]
    mixed = builtin.embed([*others[:23], TEXTS[0], *others[23:]])
    np.testing.assert_array_equal(mixed[23], base[0])
    assert builtin.embed([]).shape == (0, builtin.width)


class Shaped:
    """A network whose bits depend on the shape of the pass, as those of BLAS kernels may.

    Args:
        network: The network within.
        mixes: Shapes (rows, length) in which a row also sees the others.
    """

    def __init__(self, network, mixes=None):
        self._network, self._mixes = network, mixes
        self.config, self.device = network.config, network.device

    def __call__(self, input_ids, attention_mask):
        out = self._network(input_ids=input_ids, attention_mask=attention_mask)
        rows, length = input_ids.shape
        states = out.last_hidden_state
        if self._mixes is None:
            out.last_hidden_state = states * (1 + 1e-3 * length + 1e-5 * rows) + length
        elif self._mixes(rows, length):
            out.last_hidden_state = states + 1e-3 * states.mean(0)
        return out


def test_a_text_is_padded_by_its_own_tokens_alone(own):
    embedder = load(own)
    embedder._network = Shaped(embedder._network)
    texts = ["bill", "late " * 20, "late " * 50, "late " * 100, "late " * 400]
    alone = [embedder.embed([text])[0] for text in texts]
    for others in (texts, texts[::-1], texts[:1] * 40 + texts[3:4]):
        for text, vector in zip(others, embedder.embed(others), strict=True):
            np.testing.assert_array_equal(vector, alone[texts.index(text)])


@pytest.mark.parametrize("length", [32, 64, 128, 256])
def test_rows_are_probed_at_every_length_that_is_read(own, length):
    """Also before a text is there: ``probe`` tries every length."""
    embedder = load(own)
    embedder._network = Shaped(embedder._network, mixes=lambda rows, found: found == length)
    embedder.embed(["bill"])
    fresh = load(own)
    fresh._network = embedder._network
    for ask in (lambda: embedder.embed(["bill", "late " * (length - 10)]), fresh.probe):
        with pytest.raises(ModelError, match="changes with its place"):
            ask()


def test_pooling_follows_the_folder(own):
    mean = load(own).embed(TEXTS)
    edit(own / "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    first = load(own).embed(TEXTS)
    assert not np.allclose(mean, first, atol=1e-3)
    modules = json.loads((own / "modules.json").read_text())
    (own / "modules.json").write_text(json.dumps(modules[:2]))
    raw = load(own).embed(TEXTS)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert not np.allclose(lengths, 1)
    np.testing.assert_allclose(raw / lengths, first, atol=1e-6)


def gone(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def _cut_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])


def _with_a_dense_layer(folder):
    modules = [{"type": f"m.{kind}"} for kind in ("Transformer", "Pooling", "Dense")]
    (folder / "modules.json").write_text(json.dumps(modules))


def _pooled_by_max(folder):
    modes = {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}
    edit(folder / "1_Pooling/config.json", **modes)


def _without_padding(folder):
    gone("vocab.txt", "special_tokens_map.json")(folder)
    save_tokenizer(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (gone("config.json"), "config.json is missing"),
        (gone("model.safetensors"), "no weights"),
        (_cut_weights, "model.safetensors is truncated"),
        (gone("tokenizer.json", "vocab.txt"), "no tokenizer"),
        (lambda f: (f / "modules.json").write_text("{"), "modules.json cannot be read"),
        (_with_a_dense_layer, "lists Transformer, Pooling, Dense"),
        (_pooled_by_max, "pooling by max is not supported"),
        (_without_padding, "no padding token"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(own, damage, message):
    damage(own)
    with pytest.raises(ModelError, match=message) as error:
        load(own)
    assert "models.embedder=" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_prompt_that_an_embedder_was_trained_with(own, caplog):
    """As sentence-transformers does: the default one stands before each text, no other does."""
    file = own / "config_sentence_transformers.json"
    prompts = {"query": "query: ", "passage": "passage: "}
    plain = load(own).embed(["query: A short one", "A short one"])
    assert not caplog.messages
    file.write_text(json.dumps({"prompts": prompts, "default_prompt_name": "query"}))
    np.testing.assert_array_equal(load(own).embed(["A short one"])[0], plain[0])
    assert not caplog.messages
    file.write_text(json.dumps({"prompts": prompts, "default_prompt_name": None}))
    np.testing.assert_array_equal(load(own).embed(["A short one"])[0], plain[1])
    assert "has prompts (passage, query) and names none as the default" in caplog.text
    file.write_text(json.dumps({"prompts": {"query": "", "document": ""}}))
    caplog.clear()
    load(own)
    assert not caplog.messages
