"""Command line: prepare, train, export, evaluate."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path

# Without these a CPU run spends a third of its time in page faults; set before the start.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "8000000000",
    "MALLOC_TRIM_THRESHOLD_": "16000000000",
    "MALLOC_TOP_PAD_": "500000000",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def _arguments() -> argparse.ArgumentParser:
    from tools.base_lm.train import Recipe

    parser = argparse.ArgumentParser(prog="python -m tools.base_lm", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)

    prepare = steps.add_parser("prepare", help="public text to rows of tokens")
    prepare.add_argument("folder", type=Path, help="*.jsonl.gz with id, text, and label or title")
    prepare.add_argument("work", type=Path, help="where the rows go")
    prepare.add_argument("--rows", type=int, default=130_000, help="rows of 512 predictions")
    prepare.add_argument("--tokenizer", type=Path, help="a tokenizer.json; else one is trained")
    prepare.add_argument("--vocabulary", type=int, default=8192)
    prepare.add_argument("--seed", type=int, default=1)

    train = steps.add_parser("train", help="train, or go on from the last checkpoint")
    train.add_argument("work", type=Path)
    train.add_argument("--device", default="cpu")
    train.add_argument("--init", type=Path, help="a folder whose weights to start from")
    train.add_argument("--no-compile", action="store_true")
    for field in fields(Recipe):
        kind = type(field.default)
        train.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)

    export = steps.add_parser("export", help="the checkpoint as a folder of a model")
    export.add_argument("work", type=Path)
    export.add_argument("folder", type=Path)

    evaluate = steps.add_parser("evaluate", help="held-out loss and what references are worth")
    evaluate.add_argument("models", type=Path, nargs="+", help="folders of models")
    evaluate.add_argument("--work", type=Path, help="folder with held_out.npy")
    evaluate.add_argument("--texts", type=Path, help="folder of labelled *.train.jsonl.gz")
    evaluate.add_argument("--number", type=int, default=400, help="texts a set")
    return parser


def main() -> None:
    """Run one step."""
    arguments = _arguments().parse_args()
    if arguments.step == "prepare":
        from tokenizers import Tokenizer

        from tools.base_lm.episodes import prepare, train_tokenizer

        if arguments.tokenizer:
            tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
        else:
            tokenizer = train_tokenizer(arguments.folder, arguments.vocabulary)
        prepare(arguments.folder, arguments.work, tokenizer, arguments.rows, arguments.seed)
    elif arguments.step == "train":
        if arguments.device == "cpu" and "MALLOC_TOP_PAD_" not in os.environ:
            command = [sys.executable, "-m", "tools.base_lm", *sys.argv[1:]]
            os.execve(sys.executable, command, {**os.environ, **MALLOC})  # noqa: S606
        from tools.base_lm.train import Recipe, train

        recipe = Recipe(**{f.name: getattr(arguments, f.name) for f in fields(Recipe)})
        compiled = not arguments.no_compile
        train(arguments.work, recipe, arguments.device, arguments.init, compiled)
    elif arguments.step == "export":
        from tools.base_lm.train import export

        export(arguments.work, arguments.folder)
    else:
        from tools.base_lm.evaluate import report

        report(arguments.models, arguments.work, arguments.texts, arguments.number)


if __name__ == "__main__":
    main()
