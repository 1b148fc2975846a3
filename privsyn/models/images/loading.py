"""Load generators and embedders of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.models.images import image_folders
from privsyn.models.model_files import read_json, refuse_adapter
from privsyn.models.model_identity import (
    describe_image,
    fingerprint,
    layer_names,
    locate,
    refuse_row_mixing,
)
from privsyn.models.protocols import VariationAPI
from privsyn.models.references import ModelReference, fetch_all
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.torch_runtime import (
    device_of,
    explained,
    prepare_torch,
    quiet,
    set_threads,
    settled,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from privsyn.models.images.image_embed import ImageEmbedder


def load_image_model(
    cfg: ModelsConfig,
    performance: PerformanceConfig,
    cache_dir: Path | None = None,
    rng: np.random.Generator | None = None,
) -> VariationAPI[NDArray[np.uint8]]:
    """Load the config's generator of images.

    Args:
        cfg: The model and the rules of its sampling.
        performance: Device, rows per pass and threads (the latter set for the whole process).
        cache_dir: Folder of cached digests of model files; None computes them anew.
        rng: Public randomness; by default from the operating system.

    Raises:
        ModelError: The model is missing, incomplete, unreachable, or of an unusable kind.
    """
    if cfg.image == "simulator":
        from privsyn.models.images.simulator import FontSimulator

        return FontSimulator(rng)
    revision = describe_image(cfg, cache_dir).revision
    reference = ModelReference.image(cfg)
    place = locate(reference, image_folders.check_generator)
    prepare_torch()
    with quiet():
        from diffusers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        folder = place.folder or fetch_all(reference, place)
        refuse_adapter(folder, str(reference), image_folders.ADAPTERS)
        facts = image_folders.read_facts(folder, cfg)
        device = device_of(performance.device)
        set_threads(performance)
        common: Any = {"revision": revision, "rows_per_pass": performance.rows_per_pass, "rng": rng}
        try:
            if facts.prompted:
                pipelines = _read_pipelines(cfg, folder, device)
            else:
                unet, scheduler = _read_unet(folder, device, facts.heads)
        except Exception as error:  # diffusers raises whatever its parsers raise
            raise explained(error, reference, place) from None
        from privsyn.models.images.diffusers_image import DiffusionImages, PromptedImages

        if facts.prompted:
            return PromptedImages(*pipelines, facts, prompts=cfg.image_prompt, **common)
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


def load_image_embedder(
    cfg: ModelsConfig, performance: PerformanceConfig, cache_dir: Path | None = None
) -> ImageEmbedder:
    """Load the config's encoder of images. Arguments and errors: those of load_language_model."""
    reference = ModelReference.image_embedder(cfg)
    return load_encoder(reference, performance, cache_dir, cfg.trust_remote_code, unit=True)


def load_encoder(
    reference: ModelReference,
    performance: PerformanceConfig,
    cache_dir: Path | None = None,
    trust_remote_code: bool = False,
    *,
    unit: bool = False,
) -> ImageEmbedder:
    """Load an encoder of images. Other arguments and errors: those of load_language_model.

    Args:
        reference: The encoder.
        performance: Device, rows per pass and threads.
        cache_dir: Folder of cached digests of model files.
        trust_remote_code: Whether code of a hub model may run.
        unit: Whether vectors of a model of transformers are scaled to length 1, for votes.
            Distances of distributions are of its features as they are.
    """
    place = locate(reference, image_folders.check_encoder)
    prepare_torch()
    common: Any = {
        "source": str(reference),
        "revision": fingerprint(place, cache_dir),
        "rows_per_pass": performance.rows_per_pass,
    }
    with quiet():
        from privsyn.models.images import image_embed

        folder = place.folder or fetch_all(reference, place)
        refuse_adapter(folder, str(reference))
        device = device_of(performance.device)
        set_threads(performance)
        if image_folders.is_own_encoder(folder, str(reference)):
            encoder = settled(image_embed.ImageEncoder.read(folder, str(reference)), device)
            return image_embed.encoder_embedder(encoder, device, **common)
        if image_folders.is_efficientnet(folder, str(reference)):
            from privsyn.models.images import image_embed

            network = settled(image_embed.EfficientNetLite.read(folder, str(reference)), device)
            return image_embed.efficientnet_embedder(network, device, **common)
        from transformers import AutoImageProcessor, AutoModel

        options: dict[str, Any] = {
            "trust_remote_code": trust_remote_code,
            "local_files_only": True,
        }
        try:
            processor = AutoImageProcessor.from_pretrained(folder, **options)
            # SDPA mixes rows when the number of tokens is odd, and the class token makes it odd.
            options |= {"dtype": "float32", "attn_implementation": "eager"}
            model = settled(AutoModel.from_pretrained(folder, **options), device)
        except Exception as error:  # transformers raises whatever its parsers raise
            raise explained(error, reference, place) from None
        refuse_row_mixing(model.config.to_dict(), str(reference), layer_names(model))
        return image_embed.transformers_embedder(model, processor, device, unit=unit, **common)
