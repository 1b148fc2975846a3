"""A TextModel behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, OpenAI and others).

No prompt, completion or key is ever in an error or a log: the client's exceptions carry bodies, so
they are turned into a few words where they are caught and never chained, and its loggers are
muted.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import openai

from privsyn.errors import ModelError, ServerError
from privsyn.models.language.prompts import CHARS_PER_TOKEN
from privsyn.models.language.text_ending import whole_words
from privsyn.models.settings import ServerConfig

LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 300.0
"""Seconds a server may ask us to wait; beyond that the run stops, to be retried later."""

_LATER = {408, 409, 425, 429}
_UNWANTED = {400, 413, 422}
_HINTS = {
    401: "Check the key in the environment variable models.server.key_variable.",
    403: "Check the key in the environment variable models.server.key_variable.",
    404: "Check models.server.url, models.server.model and models.server.chat.",
    429: "Lower models.server.concurrency, or wait until the quota allows more.",
}

_sent: Counter[tuple[str, str]] = Counter()
_sent_lock = threading.Lock()


@dataclass(frozen=True)
class _Sampling:
    max_tokens: int
    temperature: float
    top_p: float = 1.0


@dataclass(frozen=True)
class _Failure:
    """Why a request brought no text.

    Attributes:
        why: In our own words.
        again: Whether another attempt may help.
        pause: Seconds the server asks us to wait.
        hint: The next step.
        unwanted: The server refuses this prompt, not us.
        parameter: The parameter it names as unknown.
    """

    why: str
    again: bool = True
    pause: float | None = None
    hint: str = "Start it or wait, and run again."
    unwanted: bool = False
    parameter: str | None = None


class ServerTextModel:
    """Completions of a model that a server runs. See protocols.TextModel.

    A prompt the server refuses (too long for its model, or by a filter), and an answer without
    text, is an empty completion.

    Args:
        cfg: Address, model and patience. The key is read from the environment, once.
        revision: Enters the release id; see identity.describe_server.
        backoff_seconds: Pause after the first failure; doubled after each further one.

    Raises:
        ModelError: The key's variable is not set, or does not hold a key.
    """

    def __init__(self, cfg: ServerConfig, revision: str, *, backoff_seconds: float = 0.5) -> None:
        self.revision = revision
        self._cfg, self._backoff = cfg, backoff_seconds
        self._name = f"models.server: {cfg.model} at {urlsplit(cfg.url).netloc}"
        self._limit = "max_tokens"
        key = _key(cfg.key_variable)
        self._headers: Any = {"Authorization": openai.Omit()} if key is None else {}
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            logger = logging.getLogger(name)  # some versions log requests whole
            logger.setLevel(max(logger.level, logging.WARNING))
        self._client = openai.OpenAI(
            base_url=cfg.url,
            api_key=key or "none",
            timeout=cfg.timeout_seconds,
            # Its retries do not count against max_requests, take garbage for an answer, sleep on
            # when another prompt has failed, and wait 8 s at most, 120 s where a server asks.
            max_retries=0,
        )

    def check(self) -> None:
        """Send one trial request, so that what is wrong shows before a private draw.

        Raises:
            ServerError: What is wrong, in one line.
        """
        failure = self._try("Say yes.", _Sampling(16, 1.0), threading.Event())
        if isinstance(failure, _Failure) and failure.parameter == self._limit and self._cfg.chat:
            self._limit = "max_completion_tokens"  # OpenAI's newer name; most servers know the old
            failure = self._try("Say yes.", _Sampling(16, 1.0), threading.Event())
        if isinstance(failure, _Failure):
            raise self._error(failure)

    def complete(
        self, prompts: Sequence[str], *, max_tokens: int, temperature: float, top_p: float = 1.0
    ) -> list[str]:
        """One completion per prompt, in order. See protocols.TextModel.

        Raises:
            ServerError: The server does not answer, answers garbage or refuses us, after retries;
                or ``max_requests`` does not allow so many prompts, before the first is sent.
        """
        if max_tokens < 1 or not temperature >= 0:
            raise ValueError(f"max_tokens={max_tokens}, temperature={temperature}")
        if not prompts:
            return []
        self._refuse_beyond(len(prompts))
        stop = threading.Event()
        pool = ThreadPoolExecutor(min(self._cfg.concurrency, len(prompts)))
        try:
            asked = [
                pool.submit(self._answer, prompt, _Sampling(max_tokens, temperature, top_p), stop)
                for prompt in prompts
            ]
            wait(asked, return_when=FIRST_EXCEPTION)
            if error := next(filter(None, map(_error_of, asked)), None):
                raise error
            return [future.result() for future in asked]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)

    def _answer(self, prompt: str, sampling: _Sampling, stop: threading.Event) -> str:
        outcome = self._try(prompt, sampling, stop)
        if isinstance(outcome, str):
            return outcome
        if outcome.unwanted:
            return ""
        raise self._error(outcome)

    def _try(self, prompt: str, sampling: _Sampling, stop: threading.Event) -> str | _Failure:
        """Ask, and ask again after a pause, until there is a text or no attempt is left."""
        for attempt in range(self._cfg.retries + 1):
            self._refuse_beyond(1, taken=1)
            outcome = self._ask(prompt, sampling)
            if isinstance(outcome, str) or not outcome.again or attempt == self._cfg.retries:
                break
            pause = outcome.pause
            if pause is None:
                pause = min(self._backoff * 2**attempt, LONGEST_BACKOFF)
                pause *= random.uniform(0.5, 1)  # noqa: S311  rows that failed together part
            if pause > LONGEST_WAIT or stop.wait(pause):
                break
        return outcome

    def _ask(self, prompt: str, sampling: _Sampling) -> str | _Failure:
        """One request: its text, or what went wrong."""
        text = prompt.encode("utf-8", "replace").decode("utf-8")
        settings: dict[str, Any] = {
            "model": self._cfg.model,
            "temperature": sampling.temperature,
            self._limit: sampling.max_tokens,
            "extra_headers": self._headers,
        }
        if sampling.top_p < 1:
            settings["top_p"] = sampling.top_p
        try:
            if self._cfg.chat:
                message: Any = {"role": "user", "content": text}
                answer: Any = self._client.chat.completions.create(messages=[message], **settings)
                choice = answer.choices[0]
                found = choice.message.content
            else:
                answer = self._client.completions.create(prompt=text, **settings)
                choice = answer.choices[0]
                found = choice.text
        except openai.APITimeoutError:
            return _Failure(f"no answer within timeout_seconds={self._cfg.timeout_seconds:g}")
        except openai.APIConnectionError:
            return _Failure("it cannot be reached")
        except openai.APIStatusError as error:
            return _refusal(error)
        except Exception as error:  # whatever the client makes of an answer that is none
            return _garbage(type(error).__name__)
        if found is None and self._cfg.chat:
            return ""  # a refusal, or a model that was still thinking at its last token
        if not isinstance(found, str):
            return _garbage(f"a {type(found).__name__} for a text")
        cut = found[: CHARS_PER_TOKEN * sampling.max_tokens]
        if getattr(choice, "finish_reason", None) == "length":
            cut = whole_words(cut)
        return cut.encode("utf-8", "replace").decode("utf-8")

    def _refuse_beyond(self, count: int, taken: int = 0) -> None:
        """Refuse ``count`` requests beyond the process's budget; else book ``taken`` of them."""
        place = (self._cfg.url, self._cfg.model)
        with _sent_lock:
            left = self._cfg.max_requests - _sent[place]
            if count <= left:
                _sent[place] += taken
                return
        raise ServerError(
            f"models.server.max_requests={self._cfg.max_requests}: {count} more requests are "
            f"needed, and this process may send {max(left, 0)}.",
            hint="Raise it, or ask for fewer texts.",
        )

    def _error(self, failure: _Failure) -> ServerError:
        return ServerError(f"{self._name}: {failure.why}.", hint=failure.hint)


def _error_of(future: Future[str]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None


def _garbage(what: str) -> _Failure:
    return _Failure(
        f"its answer is not one of an OpenAI-compatible API ({what})",
        hint="Check models.server.url and models.server.chat.",
    )


def _refusal(error: openai.APIStatusError) -> _Failure:
    status = error.status_code
    pause = retry_after(error.response.headers.get("retry-after"), datetime.now(UTC))
    why = f"it answers HTTP {status}"
    if pause is not None and pause > LONGEST_WAIT:
        why += f" and asks for a pause of {pause:.0f} s, more than {LONGEST_WAIT:.0f} s"
    parameter = getattr(error, "param", None)
    return _Failure(
        why,
        again=status in _LATER or status >= 500,
        pause=pause,
        hint=_HINTS.get(status, "Look into the server's own log, and run again."),
        unwanted=status in _UNWANTED,
        parameter=parameter if isinstance(parameter, str) else None,
    )


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date. None: nothing usable.

    >>> retry_after("2", datetime.now(UTC))
    2.0
    """
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if seconds == seconds else None


def _key(variable: str | None) -> str | None:
    """The key from the environment. Never shown.

    Raises:
        ModelError: There is none, or it cannot stand in a header.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ModelError(
            f"models.server.key_variable={variable}: the environment variable is not set.",
            hint="Export it, or set models.server.key_variable=null for a server without keys.",
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ModelError(
            f"models.server.key_variable={variable}: what the variable holds cannot be a key "
            "(letters beyond ASCII, or spaces).",
            hint="Export it again.",
        )
    return key
