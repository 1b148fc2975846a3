"""Tiny random image models on disk, as a user would bring them: real diffusers and transformers."""

import json

_BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4}


def save_unet(folder, *, classes=0, channels=1, own=None):
    """A U-Net over 8x8 pixels behind a DDPM pipeline; ``own`` goes to privsyn.json."""
    import torch
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    torch.manual_seed(0)
    unet = UNet2DModel(
        **_BLOCKS, sample_size=8, in_channels=channels, out_channels=channels, layers_per_block=1,
        down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
        attention_head_dim=8, num_class_embeds=classes or None,
    )  # fmt: skip
    DDPMPipeline(unet, DDPMScheduler(num_train_timesteps=100)).save_pretrained(folder)
    if own is not None:
        (folder / "privsyn.json").write_text(json.dumps(own))
    return folder


def save_stable_diffusion(folder):
    """Stable Diffusion over 16x16 pixels."""
    import torch
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    words = folder / "words"
    words.mkdir(parents=True)
    letters = [chr(c) for c in range(33, 127)]
    vocabulary = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    (words / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(vocabulary)}))
    (words / "merges.txt").write_text("#version: 0.2\n")
    text = CLIPTextConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=16, projection_dim=16,
        bos_token_id=len(vocabulary) - 2, eos_token_id=len(vocabulary) - 1,
    )  # fmt: skip
    StableDiffusionPipeline(
        vae=AutoencoderKL(
            **_BLOCKS, sample_size=16, down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer.from_pretrained(words, model_max_length=16),
        unet=UNet2DConditionModel(
            **_BLOCKS, sample_size=8, layers_per_block=1, cross_attention_dim=16,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), attention_head_dim=2,
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        scheduler=DDIMScheduler(num_train_timesteps=100, clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder / "model")  # fmt: skip
    return folder / "model"


def _save(folder, family, processor, size, **sizes):
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes)
    getattr(transformers, f"{family}Model")(config).save_pretrained(folder)
    _save_processor(folder, f"{processor}ImageProcessor", size)
    return folder


_SQUARE = {"height": 32, "width": 32}
_SIDE = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 36}
_PATCHES = {"image_size": 32, "patch_size": 8, "initializer_range": 0.3}


def save_vit(folder):
    """A ViT without a pooled output that differs from its first token's."""
    return _save(folder, "ViT", "ViT", _SQUARE, **_SIDE, **_PATCHES, num_hidden_layers=2)


def save_clip(folder):
    """A CLIP whose projected image features are the vectors."""
    one = _SIDE | {"num_hidden_layers": 1}
    sides = {"text_config": one | {"vocab_size": 50}, "vision_config": one | _PATCHES}
    return _save(folder, "CLIP", "CLIP", {"shortest_edge": 32}, **sides, projection_dim=20)


def save_resnet(folder):
    """A ResNet: convolutions and batch norms, pooled to 32 features."""
    sizes = {"num_channels": 3, "embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}
    return _save(folder, "ResNet", "ViT", _SQUARE, **sizes, layer_type="basic")


def _save_processor(folder, kind, size):
    settings = {"image_processor_type": kind, "size": size, "do_resize": True, "resample": 3}
    settings |= {"do_rescale": True, "do_normalize": True, "crop_size": {"height": 32, "width": 32}}
    settings |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
