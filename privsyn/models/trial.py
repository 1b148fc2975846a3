"""Trials of models on public inputs, before any budget is spent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from privsyn.errors import ModelError
from privsyn.models.language.degenerate_text import is_no_text
from privsyn.models.protocols import Embedder, LogitModel, PromptTemplate, TellsEmpty, TextModel

log = logging.getLogger(__name__)

STILL_THINKING = "the model was still thinking at max_tokens"
THOUGHTS_ALONE = "the model wrote its thoughts and no text"
NO_TEXT_LEFT = "the model used all max_tokens and wrote no text"
PARSED_AWAY = "the server took the whole answer for a thought (reasoning_content) and left no text"
"""Reasons for an empty completion."""
_NO_THOUGHT = (
    "ask it not to think (models.server.extra_body={chat_template_kwargs: "
    "{enable_thinking: false}} or {reasoning_effort: none}, depending on the server), "
    "or name a model that does not think."
)
_HINTS = {
    STILL_THINKING: f"Raise max_tokens so that thought and text fit, or {_NO_THOUGHT}",
    NO_TEXT_LEFT: f"Raise max_tokens so that thought and text fit, or {_NO_THOUGHT}",
    THOUGHTS_ALONE: f"Change the prompt, or {_NO_THOUGHT}",
    PARSED_AWAY: f"Start the server without its parser of thoughts (--reasoning-parser), "
    f"or {_NO_THOUGHT}",
}
TRIALS = 4
SENTENCE = "The quick brown fox jumps over the lazy dog."


def try_logits(
    model: LogitModel, prompt: tuple[PromptTemplate, int, int], labels: Sequence[str]
) -> None:
    """Compute two tokens of a public row, and of a private row with a public reference.

    Args:
        model: The model.
        prompt: The method's template, reference tokens and output tokens.
        labels: All labels; the first is tried.

    Raises:
        ModelError: The prompt does not fit, or the logits are not finite.
    """
    template, reference_tokens, max_tokens = prompt
    label = labels[0] if labels else None
    for rows in (
        model.public_rows(template, [label], max_tokens),
        model.private_rows(
            template, [label], [SENTENCE], reference_tokens, max_tokens, declared=labels or [None]
        ),
    ):
        token = _likeliest(rows.logits())
        if max_tokens > 1:
            rows.append([token])
            if token not in model.ends:
                _likeliest(rows.logits())


def _likeliest(logits: NDArray[np.float32]) -> int:
    """The likeliest token."""
    refuse_no_numbers(logits)
    return int(np.argmax(logits[0]))


def refuse_no_numbers(logits: Any) -> None:
    """Refuse logits, shape (rows, vocabulary), from which no token can be drawn.

    Raises:
        ModelError: A value is NaN or infinite, or a row is minus infinity everywhere.
    """
    array = np.asarray(logits, np.float64)
    # Minus infinity is fine: models mask tokens with it.
    usable = np.isfinite(array)
    if not (usable | np.isneginf(array)).all() or not usable.any(axis=-1).all():
        raise ModelError(
            "the language model's logits are not numbers (NaN or infinite): its weights are "
            "damaged, or too large for models.dtype.",
            hint="Copy or download it again, or set models.dtype=float32.",
        )


def try_texts(
    model: TextModel,
    prompts: Sequence[str],
    *,
    max_tokens: int,
    temperature: float,
    top_p: float,
    until: Sequence[str] | None = None,
    clean: Callable[[str], str] = str,
) -> list[str]:
    """Texts in the answers to public prompts, with the lengths and the sampling of a method.

    Warns about equal answers and about prompts without a text. Repeats the prompts up to
    ``TRIALS`` times if all answers are those of an assistant, thoughts, or several texts.

    Args:
        model: The model.
        prompts: Public prompts.
        max_tokens: Most tokens of an answer.
        temperature: That of the method.
        top_p: That of the method.
        until: As in TextModel.complete.
        clean: The method's text of an answer; empty where it refuses the answer.

    Raises:
        ModelError: No prompt was answered with a text; says why if the model knows.
    """
    for _ in range(TRIALS):
        answers = model.complete(
            prompts,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            until=until,
        )
        refuse_silence(model, answers)
        texts = [clean(answer) for answer in answers]
        if not all(is_no_text(text) for text in texts if text.strip()):
            break
    else:
        refuse_assistant(TRIALS * len(prompts))
    if temperature and len(prompts) > len(set(answers)) == 1 and len(answers[0].split()) >= 5:
        log.warning(
            "The text model answers %d prompts with the same text: a proxy caches answers, or a "
            "server ignores prompt and temperature. The release would repeat itself.",
            len(prompts),
        )
    if silent := sum(not text.strip() or is_no_text(text) for text in texts):
        log.warning(
            "The text model answers %d of %d prompts with no text, or with several. A release asks "
            "again after such an answer, so it takes more requests.",
            silent,
            len(prompts),
        )
    return texts


def refuse_assistant(requested: int) -> NoReturn:
    """Refuse a model that replies to prompts instead of writing a text.

    Raises:
        ModelError: Says how many prompts were sent.
    """
    raise ModelError(
        f"the text model answers {requested} prompts as an assistant (a refusal, a question, a "
        "thought about the task, several texts to choose from) instead of writing one text.",
        hint="Change the prompt (privsyn plan shows it), or name another model.",
    )


def refuse_silence(model: TextModel, answers: Sequence[str], requested: int = 0) -> None:
    """Refuse a model that wrote no text for any public prompt.

    Args:
        model: Says why if it knows.
        answers: The last answer to each prompt.
        requested: Number of prompts sent in total, if more.

    Raises:
        ModelError: Says why, and the next step.
    """
    if any(answer.strip() for answer in answers):
        return
    why = model.why_empty() if isinstance(model, TellsEmpty) else None
    hint = "Check the prompt of this method (privsyn plan shows it) with this model."
    if why:
        other = "Change the prompt, or name another model or server."
        known = (step for reason, step in _HINTS.items() if why.startswith(reason))
        hint = next(known, other)
    raise ModelError(
        f"the text model gave no text for {requested or len(answers)} prompts"
        f"{f': {why}' if why else ''}.",
        hint=hint,
    )


def refuse_mixing_rows(
    rows: Sequence[Any], embed: Callable[[Sequence[Any]], NDArray[np.float32]], where: str
) -> None:
    """Embed public rows in two places among other rows, and compare bits.

    Args:
        rows: Twice as many as a pass has.
        embed: The vectors of a whole pass.
        where: The model and its settings, for the message.

    Raises:
        ModelError: A row's vector depends on its place or on the others.
    """
    count = len(rows) // 2
    order = np.random.default_rng(0).permutation(count)  # public randomness
    among = [rows[i] for i in order]
    # A third of the rows is replaced, the others move: neither may change a row's bits.
    among[: count // 3] = rows[count : count + count // 3]
    one, other = embed(rows[:count]), embed(among)
    if not np.array_equal(one[order][count // 3 :], other[count // 3 :], equal_nan=True):
        raise ModelError(
            f"{where} a vector changes with its place in the batch, which breaks the privacy "
            "guarantee.",
            hint="Set OMP_NUM_THREADS=1, or use the CPU (CUDA_VISIBLE_DEVICES=).",
        )


def try_embedder(embedder: Embedder[Any], sample: Any) -> None:
    """Try the embedder on one public sample.

    Raises:
        ModelError: Its result is not one vector of finite numbers, or is all zeros.
    """
    vectors = np.asarray(embedder.embed([sample]))
    if vectors.shape != (1, embedder.width) or not np.isfinite(vectors).all() or not vectors.any():
        raise ModelError(
            "the embedder's vectors are not finite numbers: its weights are damaged.",
            hint="Copy or download it again.",
        )
