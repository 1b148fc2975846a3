"""A TextModel behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, OpenAI and others).

An error or a log never holds a completion or a key, and no prompt except a public one of a trial.
The client's exceptions hold bodies of answers. So each becomes a few words where it is caught, is
never chained, and the client's loggers are muted.

Servers accept different parameters. After a refusal the request is sent without the refused
parameter, and a warning says so. Servers that can leave out a model's thoughts are asked to.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import ssl
import threading
import urllib.request
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
from privsyn.models.trial import NO_TEXT_LEFT, PARSED_AWAY, STILL_THINKING, THOUGHTS_ALONE

log = logging.getLogger(__name__)

LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 300.0
"""Longest pause that a server may ask for, in seconds; beyond it the run stops and can resume."""

_LATER = {408, 409, 425, 429}
_UNWANTED = {400, 413, 422}
_HINTS = {
    400: "Change the prompt, or name another model.",
    401: "Check the key in the environment variable models.server.key_variable.",
    402: "Pay or raise the limit at the provider, and run again: it goes on where it stopped.",
    403: "Check the key in the environment variable models.server.key_variable.",
    404: "Check models.server.url, models.server.model and models.server.chat.",
    429: "Lower models.server.concurrency, or wait until the quota allows more.",
}
_QUOTA = (
    r"insufficient[\W_]?(?:quota|credit|balance|fund)|billing|payment|credit balance|out of credit"
)
_CODES = {
    402: _QUOTA,
    429: r"rate[\W_]?limit|too[\W_]?many|quota|resource[\W_]?exhausted|throttl",
    401: r"api[\W_]?key|unauthori|unauthenticated|authentication",
    403: r"permission|forbidden|access[\W_]?denied",
    404: r"not[\W_]?found|no such|does not exist|unknown[\W_]?model",
    503: r"overload|unavailable|capacity|busy|loading|timed?[\W_]?out|internal|server|gateway",
    400: r"invalid|bad[\W_]?request|context|too long|unsupported|content[\W_]?(?:filter|policy)",
}
"""Statuses and how the errors in a body spell them; the first that fits holds."""
_STATUS = re.compile(r"(?i)\W*(?:(?:http|error|status|code)\W*){0,3}([45]\d\d)\b")

NO_THOUGHTS: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
"""vLLM, SGLang and llama.cpp pass this to chat templates; Ollama and others ignore it."""
_MOST_STOPS = 4
"""OpenAI's limit."""
_LIMITS = ("max_tokens", "max_completion_tokens")
"""Names of the limit of tokens; OpenAI's newer models know only the second."""
_EFFECTS = {
    "chat_template_kwargs": "a model that thinks may think",
    "stop": "a text is written on to its limit of tokens",
    "top_p": "the server's own top_p holds",
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
        of_account: Whether the message speaks of the account alone, so that a run shows it, too.
        about: The server's whole answer, which names a refused parameter.
    """

    why: str
    again: bool = True
    pause: float | None = None
    hint: str = "Start it or wait, and run again."
    unwanted: bool = False
    words: str = ""
    of_account: bool = False
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
        try:
            self._client = openai.OpenAI(
                base_url=cfg.url,
                api_key=key or "none",
                timeout=cfg.timeout_seconds,
                # The client's own retries do not count against max_requests, accept garbage as an
                # answer, sleep on when another prompt has failed, and wait 8 s at most (120 s where
                # a server asks).
                max_retries=0,
            )
        except Exception as error:  # what it reads of the environment, by whatever it parses that
            raise _misconfigured(self._name, error) from None

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
        raise self._error(outcome, outcome.words if outcome.of_account else "")

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
        # Also at 1: a server fills what is missing from the model's own defaults.
        settings: dict[str, Any] = {
            limit: sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
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
        key = str(self._client.api_key)
        try:
            if self._cfg.chat:
                message = {"role": "user", "content": text}
                chat: Any = self._client.chat.completions.with_raw_response
                response = chat.create(messages=[message], **requests).http_response
            else:
                completions: Any = self._client.completions.with_raw_response
                response = completions.create(prompt=text, **requests).http_response
            answer = json.loads(response.content)
            if (error := _error_in(answer)) is not None:
                return _refusal(response, error, text, key)
            if answer["choices"] == []:
                return self._no_choice(answer)
            choice = answer["choices"][0]
            content, thought = choice.get("text"), False
            if self._cfg.chat:
                content, thought = _content(choice["message"])
            finish = choice.get("finish_reason")
        except openai.APIConnectionError as error:
            return _unreached(error, self._cfg)
        except openai.APIStatusError as error:
            return _refusal(error.response, _as_json(error.response.text), text, key)
        except Exception as error:  # the client may raise anything on an invalid answer
            return _garbage(type(error).__name__)
        self._count(answer.get("usage"))
        if not (isinstance(content, str) or (content is None and self._cfg.chat)):
            return _garbage(f"a {type(content).__name__} for a text")
        if finish == "error":
            return _Failure("it stops with an error", hint="Look into its log, and run again.")
        if not (content or "").strip() and finish != "content_filter":
            self._empty(_why_nothing(finish, thought, choice, answer.get("usage")))
            return ""
        return self._text_of(content or "", text, sampling, finish)

    def _no_choice(self, answer: dict[str, Any]) -> str | _Failure:
        """An answer without choices: a filter's, or one to ask for again."""
        if any("filter" in name or "feedback" in name for name in map(str.casefold, answer)):
            self._empty(_FILTERED)
            return ""
        hint = "Look into the server's own log, and at its filter."
        return replace(_garbage("choices is empty"), hint=hint)

    def _text_of(self, content: str, prompt: str, sampling: _Sampling, finish: Any) -> str:
        """The text of an answer; empty where it has none, and then the reason is noted."""
        if finish == "content_filter":
            self._empty(_FILTERED)
            return ""
        if len(prompt) > 20 and content.lstrip().startswith(prompt):  # it sends the prompt back
            content = content.lstrip()[len(prompt) :]
        text = as_text(content)[: CHARS_PER_TOKEN * sampling.max_tokens]
        over = finish == "length"
        if over:
            text = whole_words(text)
        if (over and thinks_aloud(text)) or (not text.strip() and is_thought(content)):
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
        numbers = counts if isinstance(counts, dict) else {}
        sent, got = numbers.get("prompt_tokens"), numbers.get("completion_tokens")
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


_FILTERED = "the server's filter stopped it"
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thoughts")


def _content(message: dict[str, Any]) -> tuple[Any, bool]:
    """The content of a chat message, and whether it also has a thought.

    Some servers split the content into parts: texts and thoughts.
    """
    thought = any(message.get(name) for name in _THOUGHTS)
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, dict) and "type" in p for p in content):
        texts = [part.get("text") for part in content if part["type"] in ("text", "output_text")]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts), thought or len(texts) < len(content)
    return content, thought


def _why_nothing(finish: Any, thought: bool, choice: dict[str, Any], counts: Any) -> str:
    """The reason why an answer has no content."""
    if finish == "length":
        details = counts.get("completion_tokens_details") if isinstance(counts, dict) else None
        tokens = details.get("reasoning_tokens") if isinstance(details, dict) else None
        return f"{NO_TEXT_LEFT} ({tokens} tokens of thoughts)" if tokens else NO_TEXT_LEFT
    message = choice.get("message")
    if isinstance(message, dict) and message.get("refusal"):
        return "the model refuses the prompt"
    return PARSED_AWAY if thought else "the server's answer is empty"


def _as_json(body: str) -> Any:
    """A body as JSON; None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_in(answer: Any) -> Any:
    """The error in the body of an answer with status 200; None where there is none."""
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict):
        return None
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for part in (answer, first):
        error = part.get("error") if isinstance(part, dict) else None
        if any(error.values()) if isinstance(error, dict) else error:
            return {**answer, "error": error}
    return None if choices or not any(map(answer.get, _MESSAGES)) else answer


_MESSAGES = ("message", "detail", "msg", "error_msg", "error", "errors")
"""Where bodies have the message of an error."""


def _error_of(future: Future[str]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None


def _garbage(what: str) -> _Failure:
    return _Failure(
        f"its answer is not one of an OpenAI-compatible API ({what})",
        hint="Check models.server.url and models.server.chat.",
    )


def _refusal(response: Any, body: Any, prompt: str, key: str) -> _Failure:
    """The failure that an answer's status or the error in its body tells."""
    status = response.status_code
    words, named = _words(body, prompt, key), _codes(body)
    why = f"it answers HTTP {status}"
    if status == 200:
        status = _status_of(named, words)
        spelled = next((code for code in named if re.fullmatch(r"[A-Za-z_.-]{4,40}", code)), None)
        why += f" with error {status}" + (f", {spelled}" if spelled else "")
    # A 429 by its codes alone: messages of rate limits also speak of billing.
    of_quota = [*named, words] if status in {400, 403} else named if status == 429 else []
    if any(re.search(_QUOTA, text.casefold()) for text in of_quota):
        status = 402  # waiting brings nothing
    pause = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
    if pause is not None and pause > LONGEST_WAIT:
        why += f" and asks for a pause of {pause:.0f} s, more than {LONGEST_WAIT:.0f} s"
    unwanted = status in _UNWANTED
    return _Failure(
        why,
        again=status in _LATER or status >= 500,
        pause=pause,
        hint=_HINTS.get(status, "Look into the server's own log, and run again."),
        unwanted=unwanted,
        words=words,
        of_account=status == 402,
        about=response.text[:_LONGEST_BODY] if unwanted else "",
    )


def _codes(body: Any) -> list[str]:
    """What an error's body says of its kind, the error's own code first."""
    parts = [body.get("error"), body] if isinstance(body, dict) else [body]
    errors = body.get("errors") if isinstance(body, dict) else None
    parts += errors[:1] if isinstance(errors, list) else []
    names = ("code", "status", "status_code", "error_code", "type")
    return [
        str(part[name])
        for part in parts
        if isinstance(part, dict)
        for name in names
        if isinstance(part.get(name), str | int | float)
    ]


def _status_of(codes: Sequence[str], words: str) -> int:
    """The HTTP status that codes name in numbers or letters, or else a message; 500 if none do."""
    for text in (*codes, words):
        if number := _STATUS.match(text):
            return int(number[1])
        for status, pattern in _CODES.items():
            if re.search(pattern, text.casefold()):
                return status
    return 500


def _words(body: Any, prompt: str, key: str) -> str:
    """An error's message in one short line, without the prompt and the key.

    It takes only the message of the body, because other fields may hold the model's words.
    """
    for _ in range(3):
        if isinstance(body, dict):
            body = next((body[name] for name in _MESSAGES if body.get(name)), None)
    if isinstance(body, list):  # FastAPI: one entry a field
        entries = [part for part in body if isinstance(part, dict)]
        lines = (
            [".".join(map(str, part.get("loc", ()))), str(part.get("msg", part.get("message")))]
            for part in entries
        )
        body = "; ".join(": ".join(filter(None, line)) for line in lines)
    if not isinstance(body, str):
        return ""
    message = body.replace(key, "[key]").replace(prompt, "[prompt]")
    message = " ".join(plain_marks(message).split())
    return message[:_LONGEST_WORDS].rstrip(". ")


def _unreached(error: openai.APIConnectionError, cfg: ServerConfig) -> _Failure:
    """Why no answer came, and the step that helps; never with the value of a variable."""
    causes: list[BaseException] = [error]
    while (inner := causes[-1].__cause__ or causes[-1].__context__) and len(causes) < 9:
        causes.append(inner)
    kinds = {type(cause).__name__ for cause in causes}
    root, host = causes[-1], urlsplit(cfg.url).netloc
    variable = _proxy_variable(cfg.url)
    at = f"the proxy of {variable}" if variable else host
    whose = variable or "models.server.url"
    around = f" Without the proxy: add {urlsplit(cfg.url).hostname} to NO_PROXY."
    around = around if variable else ""
    if isinstance(error, openai.APITimeoutError):
        if "ConnectTimeout" not in kinds:
            return _Failure(f"no answer within timeout_seconds={cfg.timeout_seconds:g}")
        why = f"no connection to {at} within timeout_seconds={cfg.timeout_seconds:g}"
        hint = f"Check host and port of {whose}, the firewall, and whether a proxy is needed."
        return _Failure(f"it cannot be reached: {why}", hint=hint + around)
    if isinstance(root, ssl.SSLCertVerificationError):
        why = f"the certificate of {host} is not trusted ({root.verify_message})"
        hint = (
            "Set the environment variable SSL_CERT_FILE to the certificates of your organization, "
            "or the host in models.server.url to the name in the certificate."
        )
    elif isinstance(root, ssl.SSLError):
        why = f"{at} does not speak TLS ({root.reason})"
        hint = f"Write http:// in {whose} where the server has no certificate."
    elif isinstance(root, socket.gaierror):
        why = f"the name of {at} is not known (DNS)"
        hint = f"Check the host in {whose}, and the name service of this machine."
    elif "ProxyError" in kinds:
        words = next(str(cause) for cause in causes if type(cause).__name__ == "ProxyError")
        why = f"{at} refuses ({' '.join(words.split())[:60]})"
        hint = f"Check address and password in {whose}."
    elif isinstance(root, ConnectionRefusedError):
        why = f"{at} refuses the connection, so nothing listens there"
        hint = f"Start it or wait, and run again. Check the port of {whose}."
    elif kinds & {"RemoteProtocolError", "ReadError", "WriteError"}:
        why = f"{at} ends the connection without an answer"
        hint = f"Look into its log. If it has a certificate, write https:// in {whose}."
    else:
        why = f"{at}: {root.strerror if isinstance(root, OSError) else type(root).__name__}"
        hint = "Check the network of this machine, and run again."
    final = (
        isinstance(root, ssl.SSLError)
        or (isinstance(root, socket.gaierror) and root.errno != socket.EAI_AGAIN)
        or "407" in why
    )
    return _Failure(f"it cannot be reached: {why}", again=not final, hint=hint + around)


def _proxy_variable(url: str) -> str | None:
    """The environment variable whose proxy serves an address; None without one."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    names = (f"{parts.scheme}_proxy", "all_proxy")
    return next((n for name in names for n in (name, name.upper()) if os.environ.get(n)), None)


def _misconfigured(name: str, error: Exception) -> ModelError:
    """What the client refuses of the environment: proxies and certificates."""
    names = [n for n in os.environ if re.fullmatch(r"(?i)(https?|all)_proxy", n) and os.environ[n]]
    why, hint = "not the address of a proxy.", "Write http://HOST:PORT, or unset it."
    if isinstance(error, OSError):
        names = [n for n in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(n)]
        why, hint = "no certificates can be read there.", "Name a readable file, or unset it."
    elif isinstance(error, ImportError):
        names = [n for n in names if os.environ[n].casefold().startswith("socks")]
        why = "a SOCKS proxy, which needs the package socksio."
        hint = "Run `pip install socksio`, name an http:// proxy, or unset it."
    variables = ", ".join(names) or type(error).__name__
    return ModelError(f"{name}: the environment variable {variables}: {why}", hint=hint)


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
