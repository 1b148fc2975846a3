"""Log-likelihoods of texts under a local language model. No privacy proof depends on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from privsyn.models.language.prompts import CHARS_PER_TOKEN

Parts = tuple[Sequence[int], Sequence[int]]
"""Given tokens, and the tokens after them."""

_TOGETHER = 1024
"""Most tokens of a pass, with padding; a longer row has its own pass."""


@runtime_checkable
class Readable(Protocol):
    """A model with accessible network and tokenizer, such as HFLogitModel."""

    network: Any
    tokenizer: Any
    revision: str


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


def of_sequences(network: Any, rows: Sequence[Parts]) -> NDArray[np.float64]:
    """Log-likelihood in nats of each row's second part after its first part, shape (rows,).

    A second part without tokens has likelihood 1. Rows are padded on the right, which a causal
    model does not see. They are read together, so their rounding may depend on each other. What
    several begin with, such as a label's prompt, is read once.

    Args:
        network: A causal language model of transformers.
        rows: Tokens given, at least one where any follow, and tokens counted.
    """
    import torch

    from privsyn.models.language import rowwise

    config, argument = network.config, str(rowwise.cache_argument(network))

    def read(ids: Any, cache: Any) -> Any:
        """Logits of all tokens behind those of a cache, shape (rows, tokens, vocabulary)."""
        given = {} if cache is None else {argument: cache}
        with torch.inference_mode():
            ids = ids.to(network.device)
            return network(input_ids=ids, use_cache=cache is not None, **given).logits.float()

    nats, sizes = np.zeros(len(rows)), [len(head) + len(tail) for head, tail in rows]
    full = rowwise.attends_fully(config, max(sizes, default=0))
    # All but the last token of a first part: that one tells the first token that counts.
    heads = [tuple(head[:-1]) if full else () for head, _ in rows]
    known, groups = Counter(heads), defaultdict[tuple[int, ...], list[int]](list)
    for i in np.argsort(sizes).tolist():
        if rows[i][1]:
            groups[heads[i] if known[heads[i]] > 1 else ()].append(i)
    for prefix, order in groups.items():
        cache = rowwise.new_cache(config, len(prefix)) if prefix else None
        if cache is not None:
            read(torch.tensor([prefix]), cache)
        while order:
            width = sizes[order[-1]] - len(prefix)
            count = max(1, _TOGETHER // width)
            part, order = order[-count:], order[:-count]
            ids = torch.zeros((len(part), width), dtype=torch.int64)
            counted = torch.zeros((len(part), width), dtype=torch.bool)
            for slot, i in enumerate(part):
                row = [*rows[i][0], *rows[i][1]][len(prefix) :]
                ids[slot, : len(row)] = torch.tensor(row)
                counted[slot, len(rows[i][0]) - len(prefix) : len(row)] = True
            behind = None
            if cache is not None:
                behind = rowwise.new_cache(config, len(prefix) + width)
                rowwise.begin_with(behind, cache, len(part))
            logits = read(ids, behind)[:, :-1]
            chosen = logits.gather(2, ids.to(logits.device)[:, 1:, None])[..., 0]
            each = (chosen - logits.logsumexp(-1)).cpu()  # (rows, width - 1)
            nats[part] = torch.where(counted[:, 1:], each, 0).double().sum(-1).numpy()
    return nats


def _cut(head: list[int], tail: list[int], most: int) -> Parts:
    tail = tail[:most]
    head = head[-(most - len(tail)) :] if len(tail) < most else []
    return (head, tail) if head else (tail[:1], tail[1:])


def _tokens(model: Readable, text: str) -> list[int]:
    return list(model.tokenizer(text, add_special_tokens=False)["input_ids"])
