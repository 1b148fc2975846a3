"""How likely a language model on this machine holds texts to be: for evaluation alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Readable(Protocol):
    """A model whose network and tokenizer are at hand, as HFLogitModel's are."""

    network: Any
    tokenizer: Any


def log_likelihoods(
    model: Readable, pairs: Sequence[tuple[str, str]], most: int
) -> list[tuple[float, int]]:
    """Log-likelihood in nats of each text behind its prompt, and the tokens counted.

    One pair a pass: nothing is padded. A prompt and text longer than ``most`` tokens lose the
    beginning of the prompt; a text longer than that loses its end. Without a prompt the first token
    is given and not counted.

    Args:
        model: A causal language model.
        pairs: Prompt and text.
        most: Tokens of a pass.
    """
    import torch

    with torch.inference_mode():
        return [_read(model, *pair, most) for pair in pairs]


def _read(model: Readable, prompt: str, text: str, most: int) -> tuple[float, int]:
    import torch

    tail = _tokens(model, text)[:most]
    head = _tokens(model, prompt)[-(most - len(tail)) :] if len(tail) < most else []
    if not head:
        head, tail = tail[:1], tail[1:]
    if not tail:
        return 0.0, 0
    ids = torch.tensor([[*head, *tail]], device=model.network.device)  # (1, tokens)
    logits = model.network(input_ids=ids, use_cache=False).logits[0, len(head) - 1 : -1]
    chosen = logits.float().log_softmax(-1).gather(1, ids[0, len(head) :, None])
    return float(chosen.sum()), len(tail)


def _tokens(model: Readable, text: str) -> list[int]:
    return list(model.tokenizer(text, add_special_tokens=False)["input_ids"])
