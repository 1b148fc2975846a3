"""Log-likelihoods of texts under a local language model. No privacy proof depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from privsyn.models.language.prompts import CHARS_PER_TOKEN, PromptEncoder
from privsyn.models.protocols import PromptTemplate

Parts = tuple[Sequence[int], Sequence[int]]
"""Given tokens, and the tokens after them."""

_TOGETHER = 1024
"""Most tokens of a pass, with padding; a longer row has its own pass."""


@runtime_checkable
class Readable(Protocol):
    """A model with accessible network and tokenizer, such as HFLogitModel."""

    network: Any
    tokenizer: Any


def log_likelihoods(
    model: Readable, pairs: Sequence[tuple[str, str]], most: int
) -> list[tuple[float, int]]:
    """Log-likelihood in nats of each text after its prompt, and the number of counted tokens.

    If prompt and text have more than ``most`` tokens, the beginning of the prompt is dropped; if
    the text alone has more, its end. Without a prompt the first token is given and not counted.

    Args:
        model: A causal language model.
        pairs: Pairs of prompt and text.
        most: Most tokens of a pair.
    """
    letters = CHARS_PER_TOKEN * most  # tokenizing a longer text would only take time and memory
    rows = [
        _cut(_tokens(model, prompt[-letters:]), _tokens(model, text[:letters]), most)
        for prompt, text in pairs
    ]
    nats = of_sequences(model.network, rows).tolist()
    return [(value, len(tail)) for value, (_, tail) in zip(nats, rows, strict=True)]


def prompted_likelihoods(
    network: Any,
    prompts: PromptEncoder,
    template: PromptTemplate,
    labels: Sequence[str | None],
    texts: Sequence[str],
    most: int,
) -> NDArray[np.float64]:
    """Log-likelihood in nats of texts after their label's public prompt, shape (texts,).

    Args:
        network: A causal language model of transformers.
        prompts: Encoder with its tokenizer.
        template: Its public prompt is used.
        labels: One label per text.
        texts: Public texts.
        most: Most tokens of a text that are read.
    """
    rows = [
        prompts.public_and_text(template, label, text, most)
        for label, text in zip(labels, texts, strict=True)
    ]
    return of_sequences(network, rows)


def of_sequences(network: Any, rows: Sequence[Parts]) -> NDArray[np.float64]:
    """Log-likelihood in nats of each row's second part after its first part, shape (rows,).

    A second part without tokens has likelihood 1. Rows are padded on the right, which a causal
    model does not see. They are read together, so their rounding may depend on each other.

    Args:
        network: A causal language model of transformers.
        rows: Tokens given, at least one where any follow, and tokens counted.
    """
    import torch

    nats = np.zeros(len(rows))
    order = [i for i in np.argsort([len(h) + len(t) for h, t in rows]).tolist() if rows[i][1]]
    while order:
        width = sum(map(len, rows[order[-1]]))
        count = max(1, _TOGETHER // width)
        part, order = order[-count:], order[:-count]
        ids = torch.zeros((len(part), width), dtype=torch.int64)
        counted = torch.zeros((len(part), width), dtype=torch.bool)
        for slot, i in enumerate(part):
            head, tail = rows[i]
            ids[slot, : len(head) + len(tail)] = torch.tensor([*head, *tail])
            counted[slot, len(head) : len(head) + len(tail)] = True
        ids, counted = ids.to(network.device), counted.to(network.device)
        with torch.inference_mode():
            logits = network(input_ids=ids, use_cache=False).logits[:, :-1]
            chosen = logits.gather(2, ids[:, 1:, None])[..., 0].float()
            each = chosen - logits.float().logsumexp(-1)  # (rows, width - 1)
        nats[part] = torch.where(counted[:, 1:], each, 0).double().sum(-1).cpu().numpy()
    return nats


def _cut(head: list[int], tail: list[int], most: int) -> Parts:
    tail = tail[:most]
    head = head[-(most - len(tail)) :] if len(tail) < most else []
    return (head, tail) if head else (tail[:1], tail[1:])


def _tokens(model: Readable, text: str) -> list[int]:
    return list(model.tokenizer(text, add_special_tokens=False)["input_ids"])
