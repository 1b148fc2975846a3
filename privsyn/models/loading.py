"""Load models by role: for each role, its setting, and how the model is identified and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.models import model_identity
from privsyn.models.images import image_folders
from privsyn.models.language.prompts import PromptEncoder, refuse_overlong
from privsyn.models.model_files import read_json
from privsyn.models.model_identity import (
    ModelIdentity,
    describe,
    describe_base,
    describe_image,
    describe_text,
    fingerprint,
    layer_names,
    open_model,
    refuse_row_mixing,
)
from privsyn.models.protocols import Embedder, PromptTemplate, TextModel, VariationAPI
from privsyn.models.references import ModelReference
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.torch_runtime import prepare_model, quiet, reading, ready, refuse_missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.models.images.image_embed import ImageEmbedder
    from privsyn.models.language.embed_hf import HFEmbedder
    from privsyn.models.language.hf_logits import HFLogitModel
    from privsyn.models.language.questions import Answerer
    from privsyn.models.training.lora import LoraModel


_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is fetched while a model loads, and no code that a model brings along runs."""


def _facts(identity: ModelIdentity, performance: PerformanceConfig) -> dict[str, Any]:
    """What a loaded model knows of itself."""
    return {
        "source": identity.source,
        "revision": identity.revision,
        "rows_per_pass": performance.rows_per_pass,
    }


def load_language_model(cfg: ModelsConfig, performance: PerformanceConfig) -> HFLogitModel:
    """Load weights and tokenizer onto the device.

    Args:
        cfg: Names the model.
        performance: Rows per pass.

    Raises:
        ModelError: The model is missing, incomplete, unreachable, or of an unusable kind.
    """
    identity = describe(cfg)
    model, tokenizer = _load_causal(cfg, reads_private=True)
    from privsyn.models.language.hf_logits import HFLogitModel

    return HFLogitModel(model, tokenizer, **_facts(identity, performance))


def load_text_model(cfg: ModelsConfig, performance: PerformanceConfig) -> TextModel:
    """Load the model that completes prompts: the server of ``models.server``, or a local model.

    A server gets a trial request, so that its faults show before a private draw. A local model may
    mix the rows of a batch here, because its prompts are public.

    Args:
        cfg: Names the model or the server.
        performance: Rows per pass.

    Raises:
        ModelError: As load_language_model; retryable where a server does not answer.
    """
    if cfg.server is not None:
        from privsyn.models.language.openai_http import ServerTextModel

        server = ServerTextModel(cfg.server, describe_text(cfg).revision)
        server.check()
        return server
    identity = describe_text(cfg)
    model, tokenizer = _load_causal(cfg, reads_private=False)
    from privsyn.models.language.hf_text import HFTextModel

    return HFTextModel(model, tokenizer, **_facts(identity, performance))


def load_answerer(cfg: ModelsConfig, _: PerformanceConfig) -> Answerer:
    """Load the local language model for questions about records; no server sees these.

    Arguments and errors: those of load_language_model. Rows of a batch may mix: it has no batches.
    """
    identity = model_identity.describe_answers(cfg)
    model, tokenizer = _load_causal(cfg, reads_private=False)
    from privsyn.models.language.questions import Answerer

    return Answerer(model, tokenizer, identity.source, identity.revision)


def load_trainable_model(cfg: ModelsConfig, performance: PerformanceConfig) -> LoraModel:
    """Load a language model together with what trains an adapter for it.

    Arguments and errors: those of load_language_model. ModelError also without an end token.
    """
    identity = describe_base(cfg)
    from privsyn.models.training.lora import LoraModel

    def load() -> tuple[Any, Any]:
        return _load_causal(cfg, reads_private=True, trained=True)

    return LoraModel(
        load,
        lambda network: prepare_model(network, network.device),
        **_facts(identity, performance),
    )


def check_layers(cfg: ModelsConfig, targets: Sequence[str] | None) -> None:
    """Refuse a model that lacks the layers to adapt. It reads the config, not the weights.

    Raises:
        ModelError: The layers are missing; the message lists the model's linear layers.
    """
    reference = ModelReference("models.language", cfg.language)
    place, folder = open_model(reference, small=True)
    with quiet():
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        from privsyn.models.training.lora import target_modules

        with reading(reference):
            config = AutoConfig.from_pretrained(folder, **_LOCAL)
            # Layers without memory: only their names are needed.
            with torch.device("meta"):
                network = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        target_modules(network, targets, place.source)


def _load_causal(
    cfg: ModelsConfig, *, reads_private: bool, trained: bool = False
) -> tuple[Any, Any]:
    """The language model's weights, on the device, and its tokenizer.

    A model for training keeps its layers as they are, because packed layers have no gradients.
    """
    from privsyn.models.language import rowwise

    reference = ModelReference("models.language", cfg.language)
    _, folder = open_model(reference)
    with ready() as device:
        with reading(reference):
            if reads_private:  # before the weights, which may take minutes to load
                from transformers import AutoConfig

                config = AutoConfig.from_pretrained(folder, **_LOCAL)
                refuse_row_mixing(config.to_dict(), str(reference))
            attention = "sdpa" if trained else rowwise.register(mixes=not reads_private)
            model, tokenizer = _read(cfg, folder, attention)
            if reads_private:
                refuse_row_mixing(model.config.to_dict(), str(reference), layer_names(model))
            rowwise.refuse_peeking(model, str(reference))
        if trained:
            return model.to(device).requires_grad_(False), tokenizer
        return prepare_model(model, device), tokenizer


def load_embedder(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> HFEmbedder:
    """Load the config's sentence embedder. Arguments and errors: those of load_language_model."""
    return _embedder(ModelReference("models.embedder", cfg.embedder), performance, cache_dir)


def load_measuring_encoder(
    name: str | None, performance: PerformanceConfig, cache_dir: Path | None = None
) -> Embedder[str]:
    """Load the encoder that measures releases of texts: ``evaluate.encoder``.

    Args:
        name: A directory as sentence-transformers writes it; None takes multilingual-e5-small.
        performance: Rows per pass.
        cache_dir: Folder of cached digests of model files; None computes them anew.

    Raises:
        ModelError: It is not here, or of an unusable kind.
        MissingExtra: The package that brings multilingual-e5-small is not installed.
    """
    if name is None:
        from privsyn.models.language.embed_e5 import E5Embedder

        return E5Embedder()
    return _embedder(ModelReference("evaluate.encoder", name), performance, cache_dir)


def _embedder(
    reference: ModelReference,
    performance: PerformanceConfig,
    cache_dir: Path | None,
) -> HFEmbedder:
    place, folder = open_model(reference)
    with ready() as device:
        from transformers import AutoModel, AutoTokenizer

        from privsyn.models.language import rowwise
        from privsyn.models.language.embed_hf import HFEmbedder, Pooling

        pooling = Pooling.read(folder, str(reference))
        with reading(reference):
            tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
            model = AutoModel.from_pretrained(
                folder, dtype="float32", attn_implementation=rowwise.register(), **_LOCAL
            )
        refuse_row_mixing(model.config.to_dict(), str(reference), layer_names(model))
        model = prepare_model(model, device)
    return HFEmbedder(
        model,
        tokenizer,
        pooling,
        source=str(reference),
        revision=fingerprint(place, cache_dir),
        rows_per_pass=_encoder_rows(performance, device),
    )


def _encoder_rows(performance: PerformanceConfig, device: Any) -> int:
    """Rows per pass of an encoder, which rounds them up to 16."""
    # Every pass has as many, spare ones are dummies: 50 records of three lengths left 140 of 192
    # spare. A CPU is as fast with few rows.
    return 1 if device.type == "cpu" else performance.rows_per_pass


def check_prompt(
    cfg: ModelsConfig,
    template: PromptTemplate,
    reference_tokens: int,
    max_tokens: int,
    labels: Sequence[str | None] = (None,),
) -> None:
    """Refuse a template, labels or lengths that do not fit the model, without loading its weights.

    Raises:
        ModelError: The lengths exceed the context, a label is too long, or the template or the
            tokenizer is unusable.
    """
    reference = ModelReference("models.language", cfg.language)
    place, folder = open_model(reference, small=True)
    with quiet():
        from transformers import AutoConfig, AutoTokenizer

        with reading(reference):
            config = AutoConfig.from_pretrained(folder, **_LOCAL)
            tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
    encoder = PromptEncoder(tokenizer, place.source)
    prompt = encoder.length(template, labels) + reference_tokens
    refuse_overlong(place.source, config.get_text_config(), prompt, max_tokens)


def _read(cfg: ModelsConfig, folder: Path, attention: str) -> tuple[Any, Any]:
    """Weights and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from privsyn.models.language import rowwise

    tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
    options = {**_LOCAL, "dtype": getattr(torch, cfg.dtype), "output_loading_info": True}
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation=attention, **options
        )
    except (ValueError, KeyError) as error:  # the architecture has only its own attention
        if "attention" not in str(error).lower() and rowwise.ATTENTION not in str(error):
            raise
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", **options
        )
    refuse_missing(f"models.language={cfg.language}", info)
    return model, tokenizer


def load_image_model(
    cfg: ModelsConfig, performance: PerformanceConfig, rng: np.random.Generator | None = None
) -> VariationAPI[NDArray[np.uint8]]:
    """Load the config's generator of images.

    Args:
        cfg: The model and the rules of its sampling.
        performance: Rows per pass.
        rng: Public randomness; by default from the operating system.

    Raises:
        ModelError: The model is missing, incomplete, unreachable, or of an unusable kind.
    """
    revision = describe_image(cfg).revision
    reference = ModelReference("models.image", cfg.image)
    _, folder = open_model(reference, image_folders.check_generator, image_folders.ADAPTERS)
    facts = image_folders.read_facts(folder, cfg)
    with ready() as device:
        from diffusers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        common: Any = {"revision": revision, "rows_per_pass": performance.rows_per_pass, "rng": rng}
        with reading(reference):
            if facts.prompted:
                pipelines = _read_pipelines(cfg, folder, device)
            else:
                unet, scheduler = _read_unet(folder, device, facts.heads)
        from privsyn.models.images.diffusers_image import DiffusionImages, PromptedImages

        if facts.prompted:
            return PromptedImages(*pipelines, facts, **common)
        return DiffusionImages(unet, scheduler, facts, source=str(reference), **common)


def _read_unet(folder: Path, device: Any, heads: int | None) -> tuple[Any, Any]:
    import diffusers
    import torch
    from diffusers.models.attention_processor import Attention

    unet = diffusers.UNet2DModel.from_pretrained(
        folder, subfolder="unet", torch_dtype=torch.float32, local_files_only=True
    )
    index = read_json(folder / "model_index.json", str(folder))
    scheduler = getattr(diffusers, str(index["scheduler"][-1])).from_pretrained(
        folder, subfolder="scheduler", local_files_only=True
    )
    unet = unet.eval().requires_grad_(False)
    for layer in unet.modules() if heads else ():
        if isinstance(layer, Attention):
            # A config of diffusers says channels a head, not heads.
            layer.heads, layer.scale = heads, (layer.inner_dim // heads) ** -0.5
    return unet.to(device, memory_format=torch.channels_last), scheduler


def _read_pipelines(cfg: ModelsConfig, folder: Path, device: Any) -> tuple[Any, Any]:
    """The text-to-image pipeline, and the image-to-image pipeline over the same weights."""
    import torch
    from diffusers import AutoPipelineForImage2Image, AutoPipelineForText2Image

    fresh = AutoPipelineForText2Image.from_pretrained(
        folder, torch_dtype=getattr(torch, cfg.dtype), local_files_only=True
    ).to(device)
    again = AutoPipelineForImage2Image.from_pipe(fresh)
    for pipeline in (fresh, again):
        pipeline.set_progress_bar_config(disable=True)
    return fresh, again


def load_image_embedder(cfg: ModelsConfig, performance: PerformanceConfig) -> ImageEmbedder:
    """Load the config's encoder of images. Arguments and errors: those of load_language_model."""
    reference = ModelReference("models.image_embedder", cfg.image_embedder)
    return load_image_encoder(reference, performance, unit=True)


def load_image_encoder(
    reference: ModelReference,
    performance: PerformanceConfig,
    cache_dir: Path | None = None,
    *,
    unit: bool = False,
) -> ImageEmbedder:
    """Load an encoder of images. Other arguments and errors: those of load_language_model.

    Args:
        reference: The encoder.
        performance: Rows per pass.
        cache_dir: Folder of cached digests of model files.
        unit: Whether vectors of a model of transformers are scaled to length 1, for votes.
            Distances of distributions are of its features as they are.
    """
    place, folder = open_model(reference, image_folders.check_encoder)
    common: Any = {"source": str(reference), "revision": fingerprint(place, cache_dir)}
    with ready() as device:
        from privsyn.models.images import image_embed

        common["rows_per_pass"] = _encoder_rows(performance, device)
        config = read_json(folder / "config.json", str(reference))
        if image_folders.OWN in config:
            encoder = prepare_model(image_embed.ImageEncoder.read(folder, str(reference)), device)
            return image_embed.encoder_embedder(encoder, device, **common)
        if config.get("model_type") == image_folders.EFFICIENTNET:
            network = prepare_model(
                image_embed.EfficientNetLite.read(folder, str(reference)), device
            )
            return image_embed.efficientnet_embedder(network, device, **common)
        from transformers import AutoImageProcessor, AutoModel

        with reading(reference):
            processor = AutoImageProcessor.from_pretrained(folder, **_LOCAL)
            # SDPA mixes rows when the number of tokens is odd, and the class token makes it odd.
            model = AutoModel.from_pretrained(
                folder, dtype="float32", attn_implementation="eager", **_LOCAL
            )
            model = prepare_model(model, device)
        refuse_row_mixing(model.config.to_dict(), str(reference), layer_names(model))
        return image_embed.transformers_embedder(model, processor, device, unit=unit, **common)


@dataclass(frozen=True)
class ModelRole:
    """The role of a model.

    Attributes:
        setting: The setting that names the model.
        describe: Returns its identity, from settings and a cache folder for digests (or None).
        load: Loads the model, from settings of models and of performance.
    """

    setting: str
    describe: Callable[[ModelsConfig, Path | None], ModelIdentity]
    load: Callable[[ModelsConfig, PerformanceConfig], Any]


ROLES: Mapping[str, ModelRole] = {
    "language": ModelRole("models.language", model_identity.describe, load_language_model),
    "text": ModelRole("models.language", model_identity.describe_text, load_text_model),
    "embedder": ModelRole("models.embedder", model_identity.describe_embedder, load_embedder),
    "image": ModelRole("models.image", model_identity.describe_image, load_image_model),
    "image_embedder": ModelRole(
        "models.image_embedder", model_identity.describe_image_embedder, load_image_embedder
    ),
    "base": ModelRole("models.language", model_identity.describe_base, load_trainable_model),
    "answers": ModelRole("models.language", model_identity.describe_answers, load_answerer),
}
"""The roles, which methods.base.Role explains."""


def describe_role(cfg: ModelsConfig, role: str, cache_dir: Path | None = None) -> ModelIdentity:
    """The identity of the model in a role.

    Raises:
        ModelError: The model cannot be used.
    """
    return ROLES[role].describe(cfg, cache_dir)


def load_role(cfg: ModelsConfig, role: str, performance: PerformanceConfig) -> Any:
    """Load the model in a role.

    Raises:
        ModelError: The model cannot be used.
    """
    return ROLES[role].load(cfg, performance)
