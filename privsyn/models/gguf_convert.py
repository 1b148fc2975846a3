"""A GGUF file as a folder that transformers reads: bfloat16 weights, tokenizer, chat template.

transformers reads the file and unpacks its quantized weights. Versions and paths are removed from
its output, so that one file gives the same bytes, and so the same digest, on every machine. Two
facts that transformers ignores are added: how digits are split, and further tokens that end a text.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from privsyn.models.model_files import read_json
from privsyn.models.torch_runtime import quiet, reading, refuse_missing

_UNSTABLE = (
    "transformers_version",
    "_model_name_or_path",
    "_name_or_path",
    "name_or_path",
    "is_local",
    "local_files_only",
)
_DIGITS_APART = ("smollm", "starcoder", "refact", "command-r")
"""Values of tokenizer.ggml.pre whose tokenizers never join two digits."""

_ENDS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endofturn|>",
    "</s>",
)
"""Special tokens that end a text, whatever the file says. llama.cpp uses the same names
(llama-vocab.cpp)."""


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file into a new folder.

    Args:
        gguf: The file.
        folder: The folder to make. It must not exist.

    Raises:
        ModelError: The file is damaged, or its architecture or packing is not supported.
    """
    with quiet():
        from gguf import GGUFReader
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        where = {"gguf_file": gguf.name, "local_files_only": True}
        with reading(gguf.name):
            split = GGUFReader(gguf).fields.get("tokenizer.ggml.pre")
            with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that ignores quiet()
                model, info = AutoModelForCausalLM.from_pretrained(
                    gguf.parent,
                    dtype=torch.bfloat16,
                    quantization_config=GgufConfig(dequantize=True),
                    output_loading_info=True,
                    **where,
                )
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
        refuse_missing(gguf.name, info)
        folder.mkdir()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    _settle_json(folder, None if split is None else split.contents())
    for file in folder.iterdir():
        # The umask must not decide whether another user's process can read the model.
        file.chmod(0o644)


def _settle_json(folder: Path, split: Any) -> None:
    """Remove versions and paths from JSON files; add the splitting of digits and the end tokens."""
    tokenizer = read_json(folder / "tokenizer.json", str(folder))
    ends = {
        token["id"]
        for token in tokenizer.get("added_tokens", ())
        if token["special"] and token["content"] in _ENDS
    }
    if split in _DIGITS_APART:
        bytes_level = tokenizer["pre_tokenizer"]
        digits = {"type": "Digits", "individual_digits": True}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, bytes_level]}
    _write(folder / "tokenizer.json", tokenizer)
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file, str(folder)) if generation_file.is_file() else {}
    ids = generation.get("eos_token_id")
    ends |= set(ids) if isinstance(ids, list) else set() if ids is None else {ids}
    _write(generation_file, generation | {"eos_token_id": sorted(ends)})
    for name in ("config.json", "tokenizer_config.json"):
        _write(folder / name, read_json(folder / name, str(folder)))


def _write(file: Path, content: dict[str, Any]) -> None:
    stable = {key: value for key, value in content.items() if key not in _UNSTABLE}
    file.write_text(json.dumps(stable, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
