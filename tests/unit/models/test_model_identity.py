"""Naming a model: identity without torch, and every way a model can be missing or unfit."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from privsyn.errors import ModelError
from privsyn.models import loading, model_identity, model_store
from privsyn.models.language import prompts
from privsyn.models.loading import check_prompt, describe_role, load_language_model, load_role
from privsyn.models.model_identity import describe, describe_embedder, refuse_row_mixing
from privsyn.models.references import BUILTIN
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from tests.unit.models.tiny_models import save_llama

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def identity(language, cache=None, **settings):
    return describe(ModelsConfig(language=str(language), **settings), cache)


def load(language, **settings):
    return load_language_model(
        ModelsConfig(language=str(language), **settings),
        PerformanceConfig(rows_per_pass=16),
    )


def refused(language, match, **settings):
    """Both plan and load refuse it, in one line; returns the message."""
    with pytest.raises(ModelError, match=match) as error:
        load(language, **settings)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.fixture
def llama(folders, tmp_path):
    return Path(shutil.copytree(folders("llama"), tmp_path / "own"))


def edit(path, **values):
    raw = json.loads(path.read_text())
    raw.update(values)
    path.write_text(json.dumps(raw))


def test_the_embedder_is_the_same_to_a_plan_that_does_not_have_it(monkeypatch):
    here = describe_embedder(ModelsConfig())
    monkeypatch.setattr(model_identity, "EMBEDDER_PACKAGE", "not_installed")
    assert describe_embedder(ModelsConfig()) == here


def test_defaults_follow_the_chat_template(folders):
    plain, chat = identity(folders("llama")), identity(folders("chat"))
    assert plain.template_default == prompts.PLAIN
    assert chat.template_default == prompts.CHAT
    assert plain.guidance_default == chat.guidance_default == 1
    assert chat.source == "chat"


def test_revision_is_the_content(llama, tmp_path):
    cache = tmp_path / "cache"
    first = identity(llama, cache).revision
    assert first == identity(llama).revision == identity(llama, cache).revision
    assert first == identity(shutil.copytree(llama, tmp_path / "moved"), cache).revision
    assert load(llama).revision == first
    assert first != identity(llama, cache, dtype="bfloat16").revision
    (llama / "notes.md").write_text("not read by loading")
    assert first == identity(llama, cache).revision
    for name in ("model.safetensors", "tokenizer.json", "config.json", "generation_config.json"):
        before = (llama / name).read_bytes()
        (llama / name).write_bytes(before.replace(b"0", b"1", 1))
        if name != "model.safetensors":  # a changed header is a damaged file
            assert identity(llama, cache).revision != first, name
        (llama / name).write_bytes(before)
    weights = bytearray((llama / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (llama / "model.safetensors").write_bytes(weights)
    assert identity(llama, cache).revision != first


def test_digest_cache_that_cannot_be_read_or_written_only_costs_time(tmp_path):
    (tmp_path / "model-digests.json").write_text("{ torn")
    assert identity("tiny", tmp_path) == identity("tiny")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert identity("tiny", blocked / "below") == identity("tiny")


def gone(name):
    return lambda folder: (folder / name).unlink()


def pointer(name):
    said = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n"
    return lambda folder: (folder / name).write_text(said)


def cut(size):
    def damage(folder):
        path = folder / "model.safetensors"
        os.truncate(path, path.stat().st_size - 1 if size < 0 else size)

    return damage


def config(**values):
    return lambda folder: edit(folder / "config.json", **values)


def without_a_tensor(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def without_a_shard(folder):
    index = {"weight_map": {"a": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


LFS = r"is a pointer of Git LFS.*Run `git lfs pull`"
CUT = r"model\.safetensors is truncated or damaged"
OWN_CODE = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (pointer("model.safetensors"), f"model.safetensors {LFS}"),
        (pointer("tokenizer.json"), f"tokenizer.json {LFS}"),
        (gone("config.json"), "config.json is missing"),
        (gone("model.safetensors"), "no weights in the directory"),
        (gone("tokenizer.json"), "no tokenizer in the directory"),
        *((cut(size), CUT) for size in (0, 5, 1000, -1)),
        (without_a_shard, "model-00002-of-00002.safetensors, named by"),
        (without_a_tensor, "lack 1 tensors, model.norm.weight"),
        (lambda folder: save_llama(folder, eos=False), "no end-of-text token"),
        (config(num_local_experts=8), "mixture of experts"),
        (config(num_experts=4, num_experts_per_tok=1), "mixture of experts"),
        (config(n_routed_experts=16), "mixture of experts"),
        (config(text_config={"num_experts": 4}), "mixture of experts"),
        (config(router_aux_loss_coef=0.01), "mixture of experts"),
        (config(quantization_config={"quant_method": "fp8"}), "quantized"),
        (config(model_type="mine", auto_map=OWN_CODE), "contains its own code"),
    ],
)
def test_a_folder_that_does_not_do_is_refused_in_a_line(llama, damage, match):
    damage(llama)
    refused(llama, match)


FAMILIES = ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss", "switch_transformers", "jamba"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_experts_that_only_the_class_knows_of(llama, kind):
    """The file names the family alone; its weights would be made up, for minutes."""
    (llama / "config.json").write_text(json.dumps({"model_type": kind, "vocab_size": 8192}))
    with pytest.raises(ModelError, match="mixture of experts"):
        identity(llama)


@pytest.mark.parametrize("role", ["embedder", "image_embedder", "base"])
def test_experts_in_whatever_reads_private_records(llama, role):
    config = {"model_type": "qwen3_moe", "size": 28, "channels": [1], "width": 4}
    (llama / "config.json").write_text(json.dumps(config))
    (llama / "preprocessor_config.json").write_text("{}")
    setting = "language" if role == "base" else role
    cfg = ModelsConfig(**{setting: str(llama)})
    with pytest.raises(ModelError, match=rf"models\.{setting}=.* mixture of experts"):
        describe_role(cfg, role)


def test_a_model_is_asked_for_experts_before_its_weights(llama, monkeypatch):
    """Also where the plan is not asked again: what a file lacks is made up, for minutes."""
    (llama / "config.json").write_text(json.dumps({"model_type": "mixtral", "vocab_size": 8192}))
    monkeypatch.setattr(loading, "describe", lambda *args: None)
    monkeypatch.setattr(loading, "_read", lambda *args: pytest.fail("read the weights"))
    refused(llama, "mixture of experts")


def test_experts_that_only_the_layers_show():
    refuse_row_mixing({"width": 8}, "m", ["Linear", "RemoteAttention"])
    for layer in ("MyMoeBlock", "TopKRouter", "SwitchMoE", "Experts"):
        with pytest.raises(ModelError, match="mixture of experts"):
            refuse_row_mixing({"width": 8}, "m", ["Linear", layer])
    refuse_row_mixing({"num_experts": 1}, "m", ["MyMoeBlock"])  # says that it has one alone


def test_prompt_file_of_a_folder(llama):
    shutil.copy(BUILTIN / "privsyn.json", llama)
    assert identity(llama).guidance_default == 3
    (llama / "privsyn.json").write_text('{"private": "x"}')
    refused(llama, "privsyn.json needs private, public and guidance")


class TestHub:
    """Hub ids, on a machine that reaches nothing."""

    @pytest.fixture(autouse=True)
    def _no_network(self, monkeypatch, tmp_path):
        def refuse(*args, **kwargs):
            raise socket.gaierror("no network in this test")

        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        monkeypatch.setattr("time.sleep", lambda _: None)  # the client tries again, ever later
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def test_without_a_revision(self):
        message = refused("some-org/some-model", "names no commit of 40 digits")
        assert "models.language=tiny" in message
        assert "hf download" in message

    @pytest.mark.parametrize("offline", [True, False])
    def test_with_a_commit_that_is_not_cached(self, monkeypatch, capfd, offline):
        import huggingface_hub.constants

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr("urllib.request.getproxies", dict)
        message = refused(f"some-org/some-model@{COMMIT}", "cannot be fetched")
        assert "models.language=<directory of the model>" in message
        assert capfd.readouterr().err == ""

    def test_from_the_cache(self, llama, tmp_path):
        home = tmp_path / "hub" / "models--some-org--some-model"
        shutil.copytree(llama, home / "snapshots" / COMMIT)
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text(COMMIT)
        by_name = identity("some-org/some-model")
        assert by_name == identity(f"some-org/some-model@{COMMIT}")
        assert by_name.revision == f"some-org/some-model@{COMMIT}+float32"
        assert by_name.source == "some-org/some-model"
        model = load("some-org/some-model")
        assert model.revision == by_name.revision
        (home / "snapshots" / COMMIT / "model.safetensors").unlink()
        refused("some-org/some-model", "cannot be ")


def test_prompt_is_checked_without_the_weights(llama):
    cfg = ModelsConfig(language=str(llama))
    check_prompt(cfg, prompts.PLAIN, 16, 8, labels=["Billing"])
    with pytest.raises(ModelError, match=r"128 tokens is .* short"):
        check_prompt(cfg, prompts.PLAIN, 100, 100)
    with pytest.raises(ModelError, match="longer than the 32 tokens"):
        check_prompt(cfg, prompts.PLAIN, 16, 8, labels=["late " * 40])


def save_adapter(base, folder):
    """A real low-rank adapter with weights that change the model's logits."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=["q_proj"])
    )
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    model.save_pretrained(folder)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft
def test_an_adapter_beside_full_weights_is_refused_whatever_reads_them(folders, tmp_path):
    """transformers would apply it in silence: here by as much as the logits differ."""
    import torch
    from transformers import AutoModelForCausalLM

    from privsyn.models.loading import describe_role

    folder = tmp_path / "merged"
    shutil.copytree(folders("llama"), folder)
    save_adapter(Path(folders("llama")), folder)
    ids = torch.tensor([[5, 6, 7]])
    plain, moved = (
        AutoModelForCausalLM.from_pretrained(place)(ids).logits
        for place in (folders("llama"), folder)
    )
    assert not torch.allclose(plain, moved)
    performance = PerformanceConfig()
    for setting, role in (
        ("language", "language"),
        ("language", "text"),
        ("language", "base"),
        ("embedder", "embedder"),
        ("image_embedder", "image_embedder"),
        ("image", "image"),
    ):
        cfg = ModelsConfig(**{setting: str(folder)})
        for ask in (describe_role, lambda c, r: load_role(c, r, performance)):
            with pytest.raises(ModelError, match=r"adapter_config.json is beside the weights"):
                ask(cfg, role)
    (folder / "adapter_config.json").unlink()
    identity(folder)  # its weights alone are never read


@pytest.mark.parametrize(
    ("name", "near"),
    [("nope", ""), ("smolm2", "Did you mean smollm2? "), ("Gemma3-270M", "Did you")],
)
def test_a_name_that_no_model_has(name, near):
    message = refused(name, "no known model has this name")
    assert f"{near}" in message
    assert "Known are smollm2, gemma3-270m, tiny" in message
    assert "commit hash" not in message


def test_a_project_without_a_folder_keeps_digests_beside_the_models(tmp_path, monkeypatch):
    monkeypatch.setenv(model_store.STORE, str(tmp_path / "models"))
    assert model_store.digests() is None
    (tmp_path / "models").mkdir()
    assert model_store.digests() == tmp_path / "models"
    monkeypatch.setenv(model_store.STORE, "~nobody_of_this_name/models")
    assert model_store.digests() is None


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft
def test_an_adapter_alone_names_its_base(folders, tmp_path):
    save_adapter(Path(folders("llama")), tmp_path)
    said = refused(tmp_path, "is an adapter of .*llama, not a whole model")
    assert "merge it" in said
    (tmp_path / "adapter_config.json").write_text("[]")
    refused(tmp_path, "is an adapter, not a whole model")


def test_an_adapter_of_a_checkpoint_below_is_not_read(llama):
    (llama / "checkpoint-7").mkdir()
    (llama / "checkpoint-7" / "adapter_config.json").write_text("{}")
    identity(llama)


def test_dense_member_of_a_family_with_experts(llama):
    edit(llama / "config.json", num_local_experts=0, router_aux_loss_coef=0.01)
    identity(llama)
