"""Small causal language models: build, read, encode texts, and save.

A student reads a text after the same public prompt and with the same tokens as its teacher. It is
saved as a folder for ``models.language``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.models.language.prompts import PLAIN, PromptEncoder, refuse_overlong
from privsyn.models.model_files import check_folder
from privsyn.models.model_identity import PROMPT_FILE, read_template
from privsyn.models.protocols import PromptTemplate
from privsyn.models.torch_runtime import reading

NOT_COUNTED = -100
"""Target of a position in the prefix or the padding."""

PASS_TOKENS = {"cpu": 2**10, "cuda": 2**15}
"""Most tokens of a forward pass: a few seconds on a CPU for the largest student."""

PASS_LOGITS = {"cpu": 2**25, "cuda": 2**30}
"""Most logits of a forward pass: 128 MB and 4 GB in float32."""


@dataclass(frozen=True)
class Encoded:
    """Tokens of a text: prefix, text, end.

    Attributes:
        tokens: All tokens, int32.
        start: Number of tokens of the prefix, which is never predicted.
    """

    tokens: NDArray[np.int32]
    start: int

    @property
    def scored_tokens(self) -> int:
        """Tokens of the text, including its end."""
        return len(self.tokens) - self.start


@contextmanager
def seed_torch(seed: int, device: Any) -> Iterator[None]:
    """Seed torch's random numbers (weights, dropout) in a with block, then restore their state."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder. One without an end-of-text token ends by its separator.

    Raises:
        ModelError: It has no end-of-text token, or cannot be loaded.
    """
    from transformers import AutoTokenizer

    with reading(f"the tokenizer in {folder.name}"):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.eos_token_id is None and tokenizer.sep_token is not None:
        tokenizer.eos_token = tokenizer.sep_token  # BERT puts texts between [CLS] and [SEP]
        if tokenizer.bos_token_id is None and tokenizer.cls_token is not None:
            tokenizer.bos_token = tokenizer.cls_token
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"{folder.name}: the tokenizer has no end-of-text token (eos_token).",
            hint="Set it in tokenizer_config.json.",
        )
    return tokenizer


def read_model(folder: Path, dtype: str = "float32") -> Any:
    """A causal language model from its folder; an encoder such as BERT under a causal mask.

    The students of Yu et al. 2023 are BERTs (section 4): with ``is_decoder`` their attention looks
    back only, and a saved student keeps it.

    Raises:
        ModelError: The folder is incomplete, holds another kind of model, or one whose logits
            depend on later tokens all the same.
    """
    from transformers import AutoModelForCausalLM

    from privsyn.models.language.rowwise import peeks, refuse_peeking

    check_folder(folder, folder.name)
    options = {"dtype": getattr(torch, dtype), "local_files_only": True}
    with reading(f"the model in {folder.name}"):
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
        if peeks(model):
            model = AutoModelForCausalLM.from_pretrained(folder, is_decoder=True, **options)
    refuse_peeking(model, folder.name)
    return model


def vocabulary_of(base: Path) -> int:
    """Number of tokens a model gives logits for.

    Raises:
        ModelError: Its config cannot be read.
    """
    from transformers import AutoConfig

    with reading(f"the config in {base.name}"):
        config = AutoConfig.from_pretrained(base, local_files_only=True).get_text_config()
    return int(config.vocab_size)


def new_model(shape: tuple[int, int, int], vocabulary: int, tokenizer: Any, longest: int) -> Any:
    """A Llama with random weights for the tokens of a base model.

    Args:
        shape: Width, width of the feed-forward layers, layers.
        vocabulary: Number of tokens the base model gives logits for.
        tokenizer: Tokenizer of the base model.
        longest: Tokens of the longest text; the context is at least 512.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    width, inner, layers = shape
    heads = width // 64
    end = tokenizer.eos_token_id
    return LlamaForCausalLM(
        LlamaConfig(
            # Some vocabularies are rounded up, and the teacher's logits have that many columns.
            vocab_size=max(vocabulary, len(tokenizer)),
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=64,
            max_position_embeddings=max(512, longest),
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=end,
            pad_token_id=end if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        )
    )


def encode(
    tokenizer: Any,
    template: PromptTemplate,
    texts: Sequence[tuple[str | None, str]],
    max_tokens: int,
) -> list[Encoded]:
    """Texts as token sequences, as the teacher reads them: public prompt, text, end.

    Text and end have at most ``max_tokens`` tokens; a text that was cut has no end. Special tokens
    spelled out in a text stay plain text.

    Args:
        tokenizer: Tokenizer of the model that will read them.
        template: Its public prompt.
        texts: Pairs of label and text.
        max_tokens: Most tokens of a text, including its end.
    """
    prompts = PromptEncoder(tokenizer, "student")
    rows = []
    for label, text in texts:
        prefix, body = prompts.public_and_text(template, label, text, max_tokens)
        if len(body) < max_tokens:
            body.append(tokenizer.eos_token_id)
        rows.append(Encoded(np.array([*prefix, *body], np.int32), len(prefix)))
    return rows


def refuse_long(model: Any, texts: Sequence[Encoded], max_tokens: int, called: str) -> None:
    """Refuse a model whose context is too short.

    Raises:
        ModelError: Says by how many tokens.
    """
    prompt = max(text.start for text in texts)
    refuse_overlong(called, model.config.get_text_config(), prompt, max_tokens)


def passes(texts: Sequence[Encoded], vocabulary: int, device: Any) -> Iterator[list[Encoded]]:
    """Texts sorted by length, in groups that fit into a forward pass."""
    group: list[Encoded] = []
    for text in sorted(texts, key=lambda text: len(text.tokens)):
        tokens = (len(group) + 1) * len(text.tokens)
        full = tokens > PASS_TOKENS[device.type] or tokens * vocabulary > PASS_LOGITS[device.type]
        if group and full:
            yield group
            group = []
        group.append(text)
    if group:
        yield group


def pad(texts: Sequence[Encoded], device: Any) -> tuple[Any, Any]:
    """Input tokens and targets, each of shape (texts, longest - 1).

    Padding is on the right, where earlier positions of a causal model do not see it.
    """
    width = max(len(text.tokens) for text in texts) - 1
    ids = np.zeros((len(texts), width), np.int64)
    targets = np.full((len(texts), width), NOT_COUNTED, np.int64)
    for row, text in enumerate(texts):
        length = len(text.tokens) - 1
        ids[row, :length] = text.tokens[:-1]
        targets[row, text.start - 1 : length] = text.tokens[text.start :]  # shifted by one
    return torch.from_numpy(ids).to(device), torch.from_numpy(targets).to(device)


def save(model: Any, tokenizer: Any, template: PromptTemplate, folder: Path) -> None:
    """Write a model folder for ``models.language``, with its prompt."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    prompt: dict[str, Any] = {"private": template.private, "public": template.public, "guidance": 1}
    if template.chat:
        prompt["chat"] = True
    (folder / PROMPT_FILE).write_text(json.dumps(prompt, indent=2) + "\n", encoding="utf-8")


def prompt_of(folder: Path) -> PromptTemplate:
    """The prompt that precedes texts when a student of this model is trained: the model's own.

    A chat model without its own prompt gets the plain one: an instruction is not a prefix of a
    text.
    """
    template, _ = read_template(folder, folder.name)
    has_prompt = (folder / PROMPT_FILE).is_file()
    return template if has_prompt or not template.chat else PLAIN
