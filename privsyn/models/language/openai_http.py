"""A TextModel behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, OpenAI and others).

An error or a log never holds a completion or a key, and no prompt except a public one of a trial.
The client's exceptions hold bodies of answers. So each becomes a few words where it is caught, is
never chained, and the client's loggers are muted.

Servers accept different parameters. After a refusal the request is sent without the refused
parameter, and a warning says so. Servers that can leave out a model's thoughts are asked to.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import openai

from privsyn.errors import ModelError, ServerError
from privsyn.models.language.answers import as_text, is_thought, plain_marks
from privsyn.models.language.degenerate_text import thinks_aloud, whole_words
from privsyn.models.language.prompts import CHARS_PER_TOKEN
from privsyn.models.settings import ServerConfig
from privsyn.models.trial import STILL_THINKING, THOUGHTS_ALONE

log = logging.getLogger(__name__)

LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 300.0
"""Longest pause that a server may ask for, in seconds; beyond it the run stops and can resume."""

_LATER = {408, 409, 425, 429}
_UNWANTED = {400, 413, 422}
_HINTS = {
    401: "Check the key in the environment variable models.server.key_variable.",
    403: "Check the key in the environment variable models.server.key_variable.",
    404: "Check models.server.url, models.server.model and models.server.chat.",
    429: "Lower models.server.concurrency, or wait until the quota allows more.",
}

NO_THOUGHTS: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
"""vLLM, SGLang and llama.cpp pass this to chat templates; Ollama and others ignore it."""
_MOST_STOPS = 4
"""OpenAI's limit."""
_LIMITS = ("max_tokens", "max_completion_tokens")
"""Names of the limit of tokens; OpenAI's newer models know only the second."""
_EFFECTS = {
    "chat_template_kwargs": "a model that thinks may think",
    "stop": "a text is written on to its limit of tokens",
    "top_p": "the model samples among all its tokens",
    "temperature": "the model samples at a temperature of its own",
    "max_tokens": "the limit is sent as max_completion_tokens",
}
"""Parameters that a request may omit, in the order of omission, and the effect of each."""
_LONGEST_BODY, _LONGEST_WORDS = 20_000, 240


@dataclass
class Usage:
    """What this process has asked of a model behind a server.

    Prompts and answers are public or privatized, so these counts are post-processing.

    Attributes:
        requests: Requests, retries included.
        tokens_in: Tokens of prompts, as the server counts them.
        tokens_out: Tokens of answers, thoughts included.
        uncounted: Answers of which the server gave no count.
    """

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    uncounted: int = 0

    def __str__(self) -> str:
        """In words."""
        unknown = f", {self.uncounted:,} answers without a count" if self.uncounted else ""
        return (
            f"{self.requests:,} requests, {self.tokens_in:,} tokens in, {self.tokens_out:,} out"
            f"{unknown}"
        )


_used: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
_used_lock = threading.Lock()


def usage(cfg: ServerConfig) -> Usage:
    """What this process has asked of a server so far."""
    with _used_lock:
        return replace(_used[cfg.url, cfg.model])


@dataclass(frozen=True)
class _Sampling:
    max_tokens: int
    temperature: float
    top_p: float = 1.0
    until: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Failure:
    """The reason why a request brought no text.

    Attributes:
        why: The reason, in our own words.
        again: Whether another attempt may help.
        pause: Pause that the server asks for, in seconds.
        hint: The next step.
        unwanted: The server refuses this request, but not every request of ours.
        words: The server's message, which may repeat the prompt.
        about: The server's whole answer, which names a refused parameter.
    """

    why: str
    again: bool = True
    pause: float | None = None
    hint: str = "Start it or wait, and run again."
    unwanted: bool = False
    words: str = ""
    about: str = ""


class ServerTextModel:
    """Completions of a model that a server runs. See protocols.TextModel.

    A prompt the server refuses (too long for its model, or by a filter), and an answer without
    text, is an empty completion: see ``why_empty``.

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
        self._left_out: frozenset[str] = frozenset()
        self._why: str | None = None
        self._warnings: set[str] = set()
        self._lock = threading.Lock()
        key = _key(cfg.key_variable)
        self._headers: Any = {"Authorization": openai.Omit()} if key is None else {}
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            logger = logging.getLogger(name)  # some versions log requests whole
            logger.setLevel(max(logger.level, logging.WARNING))
        self._client = openai.OpenAI(
            base_url=cfg.url,
            api_key=key or "none",
            timeout=cfg.timeout_seconds,
            # The client's own retries do not count against max_requests, accept garbage as an
            # answer, sleep on when another prompt has failed, and wait 8 s at most (120 s where a
            # server asks).
            max_retries=0,
        )

    def check(self) -> None:
        """Send trial requests, so that faults show before a private draw.

        One is enough where the server accepts every parameter. More of them find the refused
        parameter where the server does not name it.

        Raises:
            ServerError: The trial failed; the message has the server's words.
        """
        prompt, sampling = "Say yes.", _Sampling(16, 0.7, 0.9, ("\nText",))
        outcome = self._try(prompt, sampling, threading.Event())
        if isinstance(outcome, _Failure) and outcome.unwanted:
            outcome = self._without(prompt, sampling, outcome)
        if isinstance(outcome, _Failure):
            raise self._error(outcome, outcome.words)
        if self._cfg.token_limit is not None and usage(self._cfg).uncounted:
            raise ModelError(
                f"{self._name} does not count tokens, and models.server.token_limit="
                f"{self._cfg.token_limit} asks for it.",
                hint="Set models.server.token_limit=null; models.server.max_requests holds.",
            )

    def why_empty(self) -> str | None:
        """The reason for the last empty completion. Show it for public prompts only."""
        return self._why

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        until: Sequence[str] | None = None,
    ) -> list[str]:
        """One completion per prompt, in order; "" where the server refuses a prompt.

        ``models.server.chat`` decides whether a prompt is a chat message, also where it is a text
        to continue: chat models continue a list of examples, too.

        Raises:
            ServerError: After retries the server gives no valid answer or refuses us; or
                ``max_requests`` allows fewer prompts, which is found before the first is sent.
        """
        if max_tokens < 1 or not temperature >= 0:
            raise ValueError(f"max_tokens={max_tokens}, temperature={temperature}")
        if not prompts:
            return []
        self._refuse_beyond(len(prompts))
        stop = threading.Event()
        sampling = _Sampling(max_tokens, temperature, top_p, tuple(until or ())[:_MOST_STOPS])
        pool = ThreadPoolExecutor(min(self._cfg.concurrency, len(prompts)))
        try:
            requests = [pool.submit(self._answer, prompt, sampling, stop) for prompt in prompts]
            wait(requests, return_when=FIRST_EXCEPTION)
            if error := next(filter(None, map(_error_of, requests)), None):
                raise error
            return [future.result() for future in requests]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)

    def _answer(self, prompt: str, sampling: _Sampling, stop: threading.Event) -> str:
        outcome = self._try(prompt, sampling, stop)
        if isinstance(outcome, str):
            return outcome
        if outcome.unwanted:
            self._empty(outcome.why, outcome.words)
            return ""
        raise self._error(outcome)

    def _try(self, prompt: str, sampling: _Sampling, stop: threading.Event) -> str | _Failure:
        """Ask, and ask again after a pause, until a text comes or no attempt is left.

        A parameter that the server names as refused is omitted, and stays so if that helps.
        """
        left_out = self._left_out
        attempt = 0
        while True:
            self._refuse_beyond(1, taken=1)
            outcome = self._ask(prompt, sampling, left_out)
            if isinstance(outcome, str):
                self._leave_out(left_out)
                return outcome
            if name := self._refused_parameter(outcome, sampling, left_out):
                left_out |= {name}
                continue
            if not outcome.again or attempt == self._cfg.retries:
                return outcome
            pause = outcome.pause
            if pause is None:
                pause = min(self._backoff * 2**attempt, LONGEST_BACKOFF)
                pause *= random.uniform(0.5, 1)  # noqa: S311  rows that failed together part
            if pause > LONGEST_WAIT or stop.wait(pause):
                return outcome
            attempt += 1

    def _without(self, prompt: str, sampling: _Sampling, refused: _Failure) -> str | _Failure:
        """Omit one parameter after another; then restore each that was not the cause."""
        left_out, tried = self._left_out, []
        for name in self._may_go(sampling, left_out):
            left_out |= {name}
            tried.append(name)
            self._refuse_beyond(1, taken=1)
            outcome = self._ask(prompt, sampling, left_out)
            if isinstance(outcome, str):
                break
        else:
            return refused
        for name in tried[:-1]:
            self._refuse_beyond(1, taken=1)
            again = self._ask(prompt, sampling, left_out - {name})
            if isinstance(again, str):
                left_out -= {name}
        self._leave_out(left_out)
        return outcome

    def _may_go(self, sampling: _Sampling, left_out: frozenset[str]) -> list[str]:
        """The parameters that a request may omit, in the order of omission."""
        sent = self._parameters(sampling, left_out)
        extra = self._cfg.extra_body
        return [name for name in _EFFECTS if name in sent and name not in extra]

    def _refused_parameter(
        self, failure: _Failure, sampling: _Sampling, left_out: frozenset[str]
    ) -> str | None:
        """The parameter that a refusal names; None for another failure."""
        if not failure.unwanted:
            return None
        may_go = self._may_go(sampling, left_out)
        return next((name for name in may_go if re.search(rf"\b{name}\b", failure.about)), None)

    def _leave_out(self, names: frozenset[str]) -> None:
        """Remember the refused parameters for the run, and warn: they change the sampling."""
        with self._lock:
            new = [name for name in _EFFECTS if name in names - self._left_out]
            self._left_out |= names
        for name in new:
            log.warning("%s refuses %s: %s.", self._name, name, _EFFECTS[name])

    def _empty(self, why: str, words: str = "") -> None:
        """Note why a completion is empty; warn once per reason, without a word of the answer."""
        with self._lock:
            self._why = f"{why}: {words}" if words else why
            new = why not in self._warnings
            self._warnings.add(why)
        if new:
            log.warning("%s: an answer holds no text (%s).", self._name, why)

    def _parameters(self, sampling: _Sampling, left_out: frozenset[str]) -> dict[str, Any]:
        """A request's parameters, without prompt, model and key."""
        extra: dict[str, Any] = dict(NO_THOUGHTS) if self._cfg.chat else {}
        for name, value in self._cfg.extra_body.items():
            both = isinstance(value, dict) and isinstance(extra.get(name), dict)
            extra[name] = {**extra[name], **value} if both else value
        limit = _LIMITS["max_tokens" in left_out and self._cfg.chat]
        settings: dict[str, Any] = {limit: sampling.max_tokens, "temperature": sampling.temperature}
        if sampling.top_p < 1:
            settings["top_p"] = sampling.top_p
        if sampling.until:
            settings["stop"] = list(sampling.until)
        settings |= {name: value for name, value in extra.items() if value is not None}
        return {name: value for name, value in settings.items() if name not in left_out}

    def _ask(self, prompt: str, sampling: _Sampling, left_out: frozenset[str]) -> str | _Failure:
        """Send one request; return its text, or the failure."""
        text = prompt.encode("utf-8", "replace").decode("utf-8")
        requests: dict[str, Any] = {
            "model": self._cfg.model,
            "extra_headers": self._headers,
            "extra_body": self._parameters(sampling, left_out),
        }
        try:
            if self._cfg.chat:
                message: Any = {"role": "user", "content": text}
                answer: Any = self._client.chat.completions.create(messages=[message], **requests)
                content, thought = _content(answer.choices[0].message)
            else:
                answer = self._client.completions.create(prompt=text, **requests)
                content, thought = answer.choices[0].text, False
            finish = getattr(answer.choices[0], "finish_reason", None)
        except openai.APITimeoutError:
            return _Failure(f"no answer within timeout_seconds={self._cfg.timeout_seconds:g}")
        except openai.APIConnectionError:
            return _Failure("it cannot be reached")
        except openai.APIStatusError as error:
            return _refusal(error, text, str(self._client.api_key))
        except Exception as error:  # the client may raise anything on an invalid answer
            return _garbage(type(error).__name__)
        self._count(getattr(answer, "usage", None))
        if not (isinstance(content, str) or (content is None and self._cfg.chat)):
            return _garbage(f"a {type(content).__name__} for a text")
        return self._text_of(content or "", text, sampling, finish, thought)

    def _text_of(
        self, content: str, prompt: str, sampling: _Sampling, finish: Any, thought: bool
    ) -> str:
        """The text of an answer; empty where it has none, and then the reason is noted."""
        if finish == "content_filter":
            self._empty("the server's filter stopped it")
            return ""
        if len(prompt) > 20 and content.lstrip().startswith(prompt):  # it sends the prompt back
            content = content.lstrip()[len(prompt) :]
        text = as_text(content)[: CHARS_PER_TOKEN * sampling.max_tokens]
        over = finish == "length"
        if over:
            text = whole_words(text)
        if (over and thinks_aloud(text)) or (not text.strip() and (thought or is_thought(content))):
            self._empty(STILL_THINKING if over else THOUGHTS_ALONE)
            return ""
        if not text.strip():
            self._empty("the server's answer is empty")
        return text.encode("utf-8", "replace").decode("utf-8")

    def _refuse_beyond(self, count: int, taken: int = 0) -> None:
        """Refuse ``count`` requests beyond the process's limits, or count ``taken`` as sent."""
        limit = self._cfg.token_limit
        with _used_lock:
            used = _used[self._cfg.url, self._cfg.model]
            tokens = used.tokens_in + used.tokens_out
            left = self._cfg.max_requests - used.requests
            full = limit is not None and tokens >= limit
            if count <= left and not full:
                used.requests += taken
                return
        if full:
            raise ServerError(
                f"models.server.token_limit={limit}: this process has used {tokens} tokens.",
                hint="Raise it, or ask for fewer or shorter texts.",
            )
        raise ServerError(
            f"models.server.max_requests={self._cfg.max_requests}: {count} more requests are "
            f"needed, and this process may send {max(left, 0)}.",
            hint="Raise it, or ask for fewer texts.",
        )

    def _count(self, counts: Any) -> None:
        """Add the tokens of an answer, whatever becomes of its text."""
        sent = getattr(counts, "prompt_tokens", None)
        got = getattr(counts, "completion_tokens", None)
        with _used_lock:
            used = _used[self._cfg.url, self._cfg.model]
            if isinstance(sent, int) and isinstance(got, int) and min(sent, got) >= 0:
                used.tokens_in += sent
                used.tokens_out += got
            else:
                used.uncounted += 1

    def _error(self, failure: _Failure, words: str = "") -> ServerError:
        message = f"{failure.why} ({words})" if words else failure.why
        return ServerError(f"{self._name}: {message}.", hint=failure.hint)


def _content(message: Any) -> tuple[Any, bool]:
    """The content of a chat message, and whether the message also has a thought.

    Some servers split the content into parts: texts and thoughts.
    """
    beside = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thoughts")
    thought = any(getattr(message, name, None) for name in beside)
    content = message.content
    if isinstance(content, list) and all(isinstance(p, dict) and "type" in p for p in content):
        texts = [part.get("text") for part in content if part["type"] in ("text", "output_text")]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts), thought or len(texts) < len(content)
    return content, thought


def _error_of(future: Future[str]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None


def _garbage(what: str) -> _Failure:
    return _Failure(
        f"its answer is not one of an OpenAI-compatible API ({what})",
        hint="Check models.server.url and models.server.chat.",
    )


def _refusal(error: openai.APIStatusError, prompt: str, key: str) -> _Failure:
    status = error.status_code
    pause = retry_after(error.response.headers.get("retry-after"), datetime.now(UTC))
    why = f"it answers HTTP {status}"
    if pause is not None and pause > LONGEST_WAIT:
        why += f" and asks for a pause of {pause:.0f} s, more than {LONGEST_WAIT:.0f} s"
    unwanted = status in _UNWANTED
    hint = "Look into the server's own log, and run again."
    return _Failure(
        why,
        again=status in _LATER or status >= 500,
        pause=pause,
        hint=_HINTS.get(status, hint),
        unwanted=unwanted,
        words=_words(error, prompt, key) if unwanted else "",
        about=error.response.text[:_LONGEST_BODY] if unwanted else "",
    )


def _words(error: openai.APIStatusError, prompt: str, key: str) -> str:
    """A refusal's message in one short line, without the prompt and the key.

    It takes only the message of the body, because other fields may hold the model's words.
    """
    body: Any = error.body
    if isinstance(body, dict):
        body = body.get("message", body.get("detail", body.get("error")))
    if isinstance(body, dict):
        body = body.get("detail", body.get("message"))
    if isinstance(body, list):  # FastAPI: one entry a field
        entries = [part for part in body if isinstance(part, dict)]
        body = "; ".join(
            f"{'.'.join(map(str, part.get('loc', ())))}: {part.get('msg')}" for part in entries
        )
    if not isinstance(body, str):
        return ""
    message = body.replace(key, "[key]").replace(prompt, "[prompt]")
    message = " ".join(plain_marks(message).split())
    return message[:_LONGEST_WORDS].rstrip(". ")


def retry_after(value: str | None, now: datetime) -> float | None:
    """The seconds of a Retry-After header, a number or a date; None where it is unusable.

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
    """The key from the environment. No message shows it.

    Raises:
        ModelError: The variable is not set, or its value is not valid in a header.
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
