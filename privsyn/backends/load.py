"""Load the models a config names: shipped, fetched, a directory or a hub id, by one path."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.backends import image_folders
from privsyn.backends.identity import (
    ModelIdentity,
    Place,
    Wanted,
    describe,
    describe_role,
    fetch_all,
    fingerprint,
    locate,
    refuse_row_mixing,
    unknown_role,
)
from privsyn.backends.model_files import read_json
from privsyn.backends.prompts import PromptEncoder, refuse_overlong
from privsyn.backends.protocols import PromptTemplate, TextModel, VariationAPI
from privsyn.config import ModelsConfig, PerformanceConfig
from privsyn.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.backends.embed_hf import HFEmbedder
    from privsyn.backends.hf_logits import HFLogitModel
    from privsyn.backends.image_embed import ImageEmbedder
    from privsyn.backends.lora import LoraModel

__all__ = [
    "ModelIdentity",
    "check_layers",
    "check_prompt",
    "describe",
    "describe_role",
    "load_embedder",
    "load_image_embedder",
    "load_image_model",
    "load_language_model",
    "load_role",
    "load_text_model",
    "load_trainable_model",
    "quiet",
    "ready",
]


def load_role(cfg: ModelsConfig, role: str, performance: PerformanceConfig) -> Any:
    """Load the model that plays a role. See load_language_model.

    Raises:
        ModelError: As load_language_model; or there is no such role.
    """
    match role:
        case "embedder":
            return load_embedder(cfg, performance)
        case "base":
            return load_trainable_model(cfg, performance)
        case "text":
            return load_text_model(cfg, performance)
        case "image":
            return load_image_model(cfg, performance)
        case "image_embedder":
            return load_image_embedder(cfg, performance)
        case "language":
            return load_language_model(cfg, performance)
        case _:
            raise unknown_role(role)


def load_language_model(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> HFLogitModel:
    """Load weights and tokenizer onto the device.

    Args:
        cfg: Names the model.
        performance: Device, rows per pass and threads (the latter set for the whole process).
        cache_dir: As for describe.

    Raises:
        ModelError: The model is missing, incomplete, unreachable, or of a kind that cannot be used;
            one line.
    """
    identity = describe(cfg, cache_dir)
    model, tokenizer = _load_causal(cfg, performance, reads_private=True)
    from privsyn.backends.hf_logits import HFLogitModel

    return HFLogitModel(
        model,
        tokenizer,
        source=identity.source,
        revision=identity.revision,
        rows_per_pass=performance.rows_per_pass,
        cache_bytes=performance.cache_gb * 1e9,
    )


def load_text_model(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> TextModel:
    """Load what completes prompts: the server of ``models.server``, else the language model here.

    A server is sent one trial request, so that what is wrong with it shows before a private draw.
    A language model that mixes the rows of a batch is fine: its prompts are public.

    Args:
        cfg: Names the model or the server.
        performance: Device, rows per pass and threads (the latter set for the whole process).
        cache_dir: As for describe.

    Raises:
        ModelError: As load_language_model; retryable where a server does not answer.
    """
    if cfg.server is not None:
        from privsyn.backends.openai_http import ServerTextModel

        server = ServerTextModel(cfg.server, describe_role(cfg, "text").revision)
        server.check()
        return server
    identity = describe_role(cfg, "text", cache_dir)
    model, tokenizer = _load_causal(cfg, performance, reads_private=False)
    from privsyn.backends.hf_text import HFTextModel

    return HFTextModel(
        model,
        tokenizer,
        source=identity.source,
        revision=identity.revision,
        rows_per_pass=performance.rows_per_pass,
        cache_bytes=performance.cache_gb * 1e9,
    )


def load_trainable_model(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> LoraModel:
    """Load a language model that an adapter can be trained for.

    Arguments and errors as load_language_model; ModelError too where the tokenizer has no end.
    """
    identity = describe_role(cfg, "base", cache_dir)
    from privsyn.backends.lora import LoraModel

    def load() -> tuple[Any, Any]:
        return _load_causal(cfg, performance, reads_private=True, trained=True)

    return LoraModel(
        load,
        lambda network: _settle(network, network.device),
        source=identity.source,
        revision=identity.revision,
        rows_per_pass=performance.rows_per_pass,
        cache_bytes=performance.cache_gb * 1e9,
        checkpointing=performance.gradient_checkpointing,
    )


def check_layers(cfg: ModelsConfig, targets: Sequence[str] | None) -> None:
    """Refuse a model without the layers to adapt, from its config alone, without its weights.

    Raises:
        ModelError: Lists the linear layers it has.
    """
    wanted = Wanted.language(cfg)
    place = locate(wanted)
    name, options = _where(cfg, place)
    with quiet():
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        from privsyn.backends.lora import target_modules

        try:
            config = AutoConfig.from_pretrained(name, **options)
            with torch.device("meta"):
                network = AutoModelForCausalLM.from_config(
                    config, trust_remote_code=cfg.trust_remote_code
                )
        except Exception as error:  # transformers raises whatever its parsers raise
            raise _explained(error, wanted, place) from None
        target_modules(network, targets, place.source)


def _where(cfg: ModelsConfig, place: Place) -> tuple[str, dict[str, Any]]:
    """What transformers reads a model by: its folder, or hub id and commit."""
    options: dict[str, Any] = {"trust_remote_code": cfg.trust_remote_code}
    options |= {"local_files_only": True} if place.folder else {"revision": place.commit}
    return str(place.folder or place.source), options


def _load_causal(
    cfg: ModelsConfig,
    performance: PerformanceConfig,
    *,
    reads_private: bool,
    trained: bool = False,
) -> tuple[Any, Any]:
    """Weights on the device, and tokenizer, of the language model. See load_language_model.

    A model that is to be trained is left as it came: without packed layers, which have no
    gradients.
    """
    wanted = Wanted.language(cfg)
    place = locate(wanted)
    _prepare_torch()
    with quiet():
        device = _device(performance.device)
        _set_threads(performance)
        try:
            if reads_private:  # before the weights: those a file lacks are made up, for minutes
                from transformers import AutoConfig

                name, options = _where(cfg, place)
                config = AutoConfig.from_pretrained(name, **options)
                refuse_row_mixing(config.to_dict(), str(wanted))
            model, tokenizer = _read(cfg, place, "sdpa" if trained else None)
            if reads_private:
                refuse_row_mixing(model.config.to_dict(), str(wanted), _layers(model))
        except ModelError:
            raise
        except Exception as error:  # transformers raises whatever its parsers raise
            raise _explained(error, wanted, place) from None
        if trained:
            return model.to(device).requires_grad_(False), tokenizer
        return _settle(model, device), tokenizer


def load_embedder(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> HFEmbedder:
    """Load the sentence embedder a config names. Arguments and errors as load_language_model."""
    wanted = Wanted.embedder(cfg)
    place = locate(wanted)
    _prepare_torch()
    with quiet():
        from transformers import AutoModel, AutoTokenizer

        from privsyn.backends import rowwise
        from privsyn.backends.embed_hf import HFEmbedder, Pooling

        device = _device(performance.device)
        _set_threads(performance)
        folder = place.folder or fetch_all(wanted, place)
        pooling = Pooling.read(folder, str(wanted))
        options: dict[str, Any] = {
            "trust_remote_code": cfg.trust_remote_code,
            "local_files_only": True,
        }
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            options |= {"dtype": "float32", "attn_implementation": rowwise.register()}
            model = AutoModel.from_pretrained(folder, **options)
        except Exception as error:  # transformers raises whatever its parsers raise
            raise _explained(error, wanted, place) from None
        refuse_row_mixing(model.config.to_dict(), str(wanted), _layers(model))
        model = _settle(model, device)
    return HFEmbedder(
        model,
        tokenizer,
        pooling,
        source=str(wanted),
        revision=fingerprint(place, cache_dir),
        rows_per_pass=performance.rows_per_pass,
    )


def load_image_model(
    cfg: ModelsConfig,
    performance: PerformanceConfig,
    cache_dir: Path | None = None,
    rng: np.random.Generator | None = None,
) -> VariationAPI[NDArray[np.uint8]]:
    """Load the generator of images a config names.

    Args:
        cfg: Names the model and how it samples.
        performance: As for load_language_model.
        cache_dir: As for describe.
        rng: Public randomness; by default from the operating system.

    Raises:
        ModelError: As load_language_model.
    """
    if cfg.image == "simulator":
        from privsyn.backends.simulator import FontSimulator

        return FontSimulator(rng)
    revision = describe_role(cfg, "image", cache_dir).revision
    wanted = Wanted.image(cfg)
    place = locate(wanted, image_folders.check_generator)
    _prepare_torch()
    with quiet():
        from diffusers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        folder = place.folder or fetch_all(wanted, place)
        facts = image_folders.read_facts(folder, cfg)
        device = _device(performance.device)
        _set_threads(performance)
        common: Any = {"revision": revision, "rows_per_pass": performance.rows_per_pass, "rng": rng}
        try:
            if facts.prompted:
                pipelines = _read_pipelines(cfg, folder, device)
            else:
                unet, scheduler = _read_unet(folder, device)
        except Exception as error:  # diffusers raises whatever its parsers raise
            raise _explained(error, wanted, place) from None
        from privsyn.backends.diffusers_image import DiffusionImages, PromptedImages

        if facts.prompted:
            return PromptedImages(*pipelines, facts, prompt=cfg.image_prompt, **common)
        return DiffusionImages(unet, scheduler, facts, source=str(wanted), **common)


def _read_unet(folder: Path, device: Any) -> tuple[Any, Any]:
    import diffusers
    import torch

    unet = diffusers.UNet2DModel.from_pretrained(
        folder, subfolder="unet", torch_dtype=torch.float32, local_files_only=True
    )
    index = read_json(folder / "model_index.json", str(folder))
    scheduler = getattr(diffusers, str(index["scheduler"][-1])).from_pretrained(
        folder, subfolder="scheduler", local_files_only=True
    )
    unet = unet.eval().requires_grad_(False)
    return unet.to(device, memory_format=torch.channels_last), scheduler


def _read_pipelines(cfg: ModelsConfig, folder: Path, device: Any) -> tuple[Any, Any]:
    """Text to image, and image to image over the same weights."""
    import torch
    from diffusers import AutoPipelineForImage2Image, AutoPipelineForText2Image

    fresh = AutoPipelineForText2Image.from_pretrained(
        folder, torch_dtype=getattr(torch, cfg.dtype), local_files_only=True
    ).to(device)
    again = AutoPipelineForImage2Image.from_pipe(fresh)
    for pipeline in (fresh, again):
        pipeline.set_progress_bar_config(disable=True)
    return fresh, again


def load_image_embedder(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> ImageEmbedder:
    """Load the encoder of images a config names. Arguments and errors as load_language_model."""
    wanted = Wanted.image_embedder(cfg)
    place = locate(wanted, image_folders.check_encoder)
    _prepare_torch()
    common: Any = {
        "source": str(wanted),
        "revision": fingerprint(place, cache_dir),
        "rows_per_pass": performance.rows_per_pass,
    }
    with quiet():
        from privsyn.backends import image_embed

        folder = place.folder or fetch_all(wanted, place)
        device = _device(performance.device)
        _set_threads(performance)
        if image_folders.is_own_encoder(folder, str(wanted)):
            encoder = _settle(image_embed.ImageEncoder.read(folder, str(wanted)), device)
            return image_embed.encoder_embedder(encoder, device, **common)
        from transformers import AutoImageProcessor, AutoModel

        options: dict[str, Any] = {
            "trust_remote_code": cfg.trust_remote_code,
            "local_files_only": True,
        }
        try:
            processor = AutoImageProcessor.from_pretrained(folder, **options)
            # SDPA mixes rows where tokens are odd in number, and the class token makes them so.
            options |= {"dtype": "float32", "attn_implementation": "eager"}
            model = _settle(AutoModel.from_pretrained(folder, **options), device)
        except Exception as error:  # transformers raises whatever its parsers raise
            raise _explained(error, wanted, place) from None
        refuse_row_mixing(model.config.to_dict(), str(wanted), _layers(model))
        return image_embed.transformers_embedder(model, processor, device, **common)


@contextlib.contextmanager
def ready(performance: PerformanceConfig) -> Iterator[Any]:
    """The torch device of a config, in a process that keeps transformers quiet.

    Raises:
        ModelError: There is no such device.
    """
    _prepare_torch()
    with quiet():
        _set_threads(performance)
        yield _device(performance.device)


def _prepare_torch() -> None:
    """Settings that torch and CUDA read when they start."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    # Read when torch starts: threads that spin at every barrier ran 4 times slower beside a busy
    # process.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _set_threads(performance: PerformanceConfig) -> None:
    import torch

    if performance.threads is not None:
        torch.set_num_threads(performance.threads)


def _settle(model: Any, device: Any) -> Any:
    """A model ready to run: on its device, without gradients, by kernels that keep rows apart."""
    import torch

    from privsyn.backends import rowwise

    model = model.to(device).eval().requires_grad_(False)
    find = getattr(model, "get_output_embeddings", None)
    head = find() if find else None
    if device.type == "cpu":
        with torch.inference_mode():
            rowwise.pack_linears(model, head)
    return model


def check_prompt(
    cfg: ModelsConfig,
    template: PromptTemplate,
    reference_tokens: int,
    max_tokens: int,
    labels: Sequence[str] = (),
) -> None:
    """Refuse a template, labels or lengths that do not fit the model, without loading its weights.

    Raises:
        ModelError: By how many tokens, which label is too long, or what is wrong with the template
            or the tokenizer.
    """
    wanted = Wanted.language(cfg)
    place = locate(wanted)
    name, options = _where(cfg, place)
    with quiet():
        from transformers import AutoConfig, AutoTokenizer

        try:
            config = AutoConfig.from_pretrained(name, **options)
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
        except Exception as error:  # transformers raises whatever its parsers raise
            raise _explained(error, wanted, place) from None
    encoder = PromptEncoder(tokenizer, place.source)
    prompt = encoder.length(template, labels or [None]) + reference_tokens
    refuse_overlong(place.source, config.get_text_config(), prompt, max_tokens)


def _read(cfg: ModelsConfig, place: Place, attention: str | None = None) -> tuple[Any, Any]:
    """Weights and tokenizer. ``attention`` None: the one that keeps rows apart."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from privsyn.backends import rowwise

    name, common = _where(cfg, place)
    tokenizer = AutoTokenizer.from_pretrained(name, **common)
    options = {**common, "dtype": getattr(torch, cfg.dtype), "output_loading_info": True}
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            name, attn_implementation=attention or rowwise.register(), **options
        )
    except (ValueError, KeyError) as error:  # an architecture that only has its own attention
        if "attention" not in str(error).lower() and rowwise.ATTENTION not in str(error):
            raise
        model, info = AutoModelForCausalLM.from_pretrained(
            name, attn_implementation="eager", **options
        )
    if missing := sorted(info["missing_keys"]):
        raise ModelError(
            f"models.language={cfg.language}: the weights lack {len(missing)} tensors, "
            f"{missing[0]} among them.",
            hint="Copy or download the model again.",
        )
    return model, tokenizer


def _layers(model: Any) -> set[str]:
    return {type(layer).__name__ for layer in model.modules()}


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    cards = torch.cuda.device_count()
    if device is None or device.type not in ("cpu", "cuda"):
        raise ModelError(f"performance.device={name!r} must be auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= cards:
        raise ModelError(
            f"performance.device={name}: this machine has {cards} CUDA devices.",
            hint="Use auto or cpu.",
        )
    return device


def _explained(error: Exception, wanted: Wanted, place: Place) -> ModelError:
    """One line for whatever transformers raised."""
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:
        return ModelError(
            f"{wanted} brings its own code, and models.trust_remote_code is off.",
            hint="Read that code, then set models.trust_remote_code=true; or name another model.",
        )
    if place.folder is None and isinstance(error, OSError):
        return ModelError(f"{wanted} cannot be fetched from the hub.", hint=wanted.offline)
    return ModelError(
        f"{wanted} cannot be loaded ({type(error).__name__}: {text[:200]}).",
        hint=f"Copy or download the model again, or use {wanted.shipped}.",
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the terminal, in forward passes too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        yield
