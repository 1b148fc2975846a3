"""Command line: train, encoder, export, evaluate."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path


def _arguments() -> argparse.ArgumentParser:
    from tools.base_image.diffusion import Recipe
    from tools.base_image.encoder import EncoderRecipe

    parser = argparse.ArgumentParser(prog="python -m tools.base_image", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)

    train = steps.add_parser("train", help="the diffusion model, or go on from its checkpoint")
    train.add_argument("images", type=Path, help=".npz of public images")
    train.add_argument("work", type=Path)
    train.add_argument("--device", default="cpu")
    train.add_argument("--threads", type=int, default=2)
    for field in fields(Recipe):
        kind = type(field.default)
        train.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)

    encoder = steps.add_parser("encoder", help="the encoder of images")
    encoder.add_argument("images", type=Path, help=".npz of public images")
    encoder.add_argument("work", type=Path)
    encoder.add_argument("--threads", type=int, default=2)
    for field in fields(EncoderRecipe):
        kind = type(field.default)
        encoder.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    return parser


def main() -> None:
    """Run one step."""
    import torch

    arguments = _arguments().parse_args()
    if arguments.step == "train":
        from tools.base_image.diffusion import Recipe, train

        torch.set_num_threads(arguments.threads)
        recipe = Recipe(**{f.name: getattr(arguments, f.name) for f in fields(Recipe)})
        train(arguments.images, arguments.work, recipe, arguments.device)
    elif arguments.step == "encoder":
        from tools.base_image.encoder import EncoderRecipe, train_encoder

        torch.set_num_threads(arguments.threads)
        encoder = {f.name: getattr(arguments, f.name) for f in fields(EncoderRecipe)}
        train_encoder(arguments.images, arguments.work, EncoderRecipe(**encoder))


if __name__ == "__main__":
    main()
