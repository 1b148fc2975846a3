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

    export = steps.add_parser("export", help="the checkpoint as a folder that diffusers loads")
    export.add_argument("work", type=Path)
    export.add_argument("folder", type=Path)
    export.add_argument("--labels", nargs="+", default=list("0123456789"))
    export.add_argument("--steps", type=int, default=10, help="denoising steps by default")
    export.add_argument("--guidance", type=float, default=1.0, help="guidance by default")

    evaluate = steps.add_parser("evaluate", help="what the encoder thinks of the images")
    evaluate.add_argument("images", type=Path, help=".npz of public images")
    evaluate.add_argument("work", type=Path, help="of the encoder")
    evaluate.add_argument("models", nargs="+", help="builtin, simulator, folders")
    evaluate.add_argument("--number", type=int, default=2000, help="images a setting")
    evaluate.add_argument("--steps", type=int, nargs="+", default=[10])
    evaluate.add_argument("--guidance", type=float, nargs="+", default=[1.0])
    evaluate.add_argument("--sheet", type=Path, help="where a contact sheet goes (PNG)")
    evaluate.add_argument("--threads", type=int, default=2)
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
    elif arguments.step == "export":
        from tools.base_image.diffusion import export

        labels, guidance = arguments.labels, arguments.guidance
        export(arguments.work, arguments.folder, labels, arguments.steps, guidance)
    else:
        from tools.base_image.evaluate import report

        a = arguments
        settings = (a.number, a.steps, a.guidance, a.sheet, a.threads)
        report(a.images, a.work, a.models, *settings)


if __name__ == "__main__":
    main()
