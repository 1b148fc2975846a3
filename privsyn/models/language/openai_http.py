"""A TextModel behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, OpenAI and others).

An error or a log never holds a completion or a key, and no prompt except a public one of a trial.
The client's exceptions hold bodies of answers. So each becomes a few words where it is caught, is
never chained, and the client's loggers are muted.

The client asks again after 408, 409, 429, 5xx, a timeout and a lost connection, with growing
pauses or the one that the server asks for.

Where a server takes ``logit_bias``, tokens are words that are found on this machine. Only words of
public texts are sent to be looked up, never a record.

Servers accept different parameters. After a refusal the request is sent without the refused
parameter, and a warning says so. Servers that can leave out a model's thoughts are asked to.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import openai

from privsyn.data.words import LETTER, words
from privsyn.errors import ModelError, ServerError
from privsyn.models.language.answers import as_text, is_thought, plain_marks
from privsyn.models.language.degenerate_text import thinks_aloud, whole_words
from privsyn.models.language.prompts import CHARS_PER_TOKEN
from privsyn.models.settings import ENVIRONMENT, SERVER_KEY, ServerConfig, is_secret
from privsyn.models.trial import NO_TEXT_LEFT, PARSED_AWAY, STILL_THINKING, THOUGHTS_ALONE

log = logging.getLogger(__name__)

TOGETHER = 16
"""Requests at the same time; a server that takes fewer lets the others wait."""
RETRIES = 5
"""Further attempts of the client: 15 seconds of pauses, unless the server asks for more."""
_TRIES = 3
"""Requests for one prompt whose answer has status 200 and is an error or none of the protocol."""
_UNWANTED = {400, 413, 422}
_KEY = (
    "Check the key: the environment variable OPENAI_API_KEY, or the one that models.server.headers "
    "names."
)
_HINTS = {
    400: "Change the prompt, or name another model.",
    401: _KEY,
    402: "Pay or raise the limit at the provider, and run again: it goes on where it stopped.",
    403: _KEY,
    404: "Check models.server.url, models.server.model and models.server.chat.",
    429: "Wait until the quota allows more, and run again: it goes on where it stopped.",
}
_NO_BIAS = "Set models.server.logit_bias=false, which gives the votes all of the budget."
_LOOK = "Look into the server's own log, and run again."
_ENVIRONMENT = (
    "Check models.server.url, that the server runs there, and the proxies and certificates that "
    "the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE)."
)
_UNPAID = r"insufficient[\W_]?(?:quota|credit|balance|fund)|credit balance|out of credit"
"""In a refusal of a prompt: it is the account that is refused, and the release can go on later."""

NO_THOUGHTS: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
"""vLLM, SGLang and llama.cpp pass this to chat templates; Ollama and others ignore it."""
_MOST_STOPS = 4
"""OpenAI's limit."""
_EFFECTS = {
    "chat_template_kwargs": "a model that thinks may think",
    "stop": "a text is written on to its limit of tokens",
    "top_p": "the server's own top_p holds",
    "temperature": "the model samples at a temperature of its own",
    "max_tokens": "the limit is sent as max_completion_tokens",
}
"""Parameters that a request may omit, in the order of omission, and the effect of each."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message that hold its thought."""
_LONGEST_WORDS = 240
_WORDS_READ = 4096
"""Words of a text that are read as its tokens."""
_PROBES, _CERTAIN = ("privacy", "yellow", "river", "window", "music"), 100.0
"""Words of which a trial makes one certain, by the most that servers take."""


@dataclass
class Usage:
    """What this process has asked of a model behind a server.

    Prompts and answers are public or privatized, so these counts are post-processing.

    Attributes:
        requests: Requests, without those the client repeated.
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
    bias: Mapping[str, float] = field(default_factory=dict)  # by the server's numbers of tokens


class _Refused(Exception):
    """A request brought no text. It never leaves this module.

    Attributes:
        why: The reason, in our own words.
        hint: The next step.
        words: The server's message, which may repeat the prompt.
        unwanted: The whole answer of a server that refuses this request, but not every request.
        again: Whether another request may help.
    """

    def __init__(
        self,
        why: str,
        hint: str,
        *,
        words: str = "",
        unwanted: str | None = None,
        again: bool = False,
    ) -> None:
        super().__init__(why)
        self.why, self.hint, self.words = why, hint, words
        self.unwanted, self.again = unwanted, again


class ServerTextModel:
    """Completions of a model that a server runs. See protocols.TextModel.

    A prompt the server refuses (too long for its model, or by a filter), and an answer without
    text, is an empty completion: see ``why_empty``.

    Args:
        cfg: Address and model. Keys are read from the environment, once.
        revision: Enters the release id; see identity.describe_server.

    Raises:
        ModelError: A header's variable is not set, or the client cannot use the environment.
    """

    def __init__(self, cfg: ServerConfig, revision: str) -> None:
        self.revision = revision
        self._cfg = cfg
        self._name = f"models.server: {cfg.model} at {urlsplit(cfg.url).netloc}"
        self._left_out: frozenset[str] = frozenset()
        self._why: str | None = None
        self._warnings: set[str] = set()
        self._lock = threading.Lock()
        self._numbers: dict[str, int | None] = {}  # of words that are one token
        headers = dict(cfg.headers)
        # A key is for one server: never OpenAI's beside that of another.
        if not any(map(is_secret, headers)) and os.environ.get(SERVER_KEY, "").strip():
            headers["Authorization"] = f"Bearer ${{{SERVER_KEY}}}"
        self._headers: Any = {"Authorization": openai.Omit()}  # in place of the client's own
        self._secrets: list[str] = []
        for name, text in headers.items():
            parts = re.split(ENVIRONMENT, text)  # every second one is a variable
            parts[1::2] = map(_secret, parts[1::2])
            self._headers[name] = "".join(parts) or openai.Omit()
            self._secrets += filter(None, [*parts[1::2], "".join(parts)])
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            logger = logging.getLogger(name)  # some versions log requests whole
            logger.setLevel(max(logger.level, logging.WARNING))
        try:
            address = urlsplit(cfg.url)
            self._client = openai.OpenAI(
                base_url=urlunsplit(address._replace(query="")),
                default_query=dict(parse_qsl(address.query)),
                api_key="none",
                max_retries=RETRIES,
            )
        except Exception as error:  # what it reads of the environment, by whatever parses that
            raise ModelError(
                f"{self._name}: the client cannot use the environment ({type(error).__name__}).",
                hint=_ENVIRONMENT,
            ) from None

    def check(self) -> None:
        """Send a trial request, so that faults show before a private draw.

        Raises:
            ServerError: The trial failed; the message has the server's words.
        """
        try:
            self._answer("Say yes.", _Sampling(16, 0.7, 0.9, ("\nText",)))
            if self._cfg.logit_bias:
                self._try_bias()
        except _Refused as refused:
            error = self._error(refused, refused.words)
        else:
            return
        raise error

    def tokens(self, text: str) -> list[str]:
        """The distinct words of a text, without digits. Nothing is sent."""
        read = words(text)[:_WORDS_READ]
        return sorted({word for word in read if not any(map(str.isdigit, word))})

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
        log_ratios: Mapping[str, float] | None = None,
    ) -> list[str]:
        """One completion per prompt, in order; "" where the server refuses a prompt.

        ``log_ratios`` are added to the logits of the words that are one token of the model. Their
        words are sent to the server: public or privatized.

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
        stops = tuple(until or ())[:_MOST_STOPS]
        try:
            bias = self._bias(log_ratios or {})
        except _Refused as refused:
            raise self._error(refused) from None
        sampling = _Sampling(max_tokens, temperature, top_p, stops, bias)
        pool = ThreadPoolExecutor(min(TOGETHER, len(prompts)))
        try:
            return list(pool.map(lambda prompt: self._text_or_empty(prompt, sampling), prompts))
        finally:
            pool.shutdown(cancel_futures=True)

    def _bias(self, log_ratios: Mapping[str, float]) -> dict[str, float]:
        """Log ratios by the server's numbers of tokens; words of several tokens have none.

        Raises:
            _Refused: The server tells no tokens.
        """
        unknown = [word for word in log_ratios if word not in self._numbers]
        if unknown:
            with ThreadPoolExecutor(TOGETHER) as pool:
                self._numbers |= dict(zip(unknown, pool.map(self._number, unknown), strict=True))
        numbers = {word: self._numbers[word] for word in log_ratios}
        return {
            str(number): round(log_ratios[word], 3)
            for word, number in numbers.items()
            if number is not None
        }

    def _try_bias(self) -> None:
        """Make a word certain that is one token of the model.

        Raises:
            _Refused: The server has no /tokenize, or takes no logit_bias.
        """
        for word in _PROBES:
            if bias := self._bias({word: _CERTAIN}):
                if word in self._answer("Say yes.", _Sampling(4, 0.7, bias=bias)):
                    return
                raise _Refused("it takes no logit_bias", _NO_BIAS)
        raise _Refused(f"none of {', '.join(_PROBES)} is one token of its model", _NO_BIAS)

    def _number(self, word: str) -> int | None:
        """The server's number of a word behind its space; None if it is more than one token."""
        text = word if re.fullmatch(LETTER, word) else f" {word}"
        # The names of vLLM and of llama.cpp; each ignores the other's.
        body: dict[str, Any] = {"model": self._cfg.model, "prompt": text, "content": text}
        body |= {"add_special_tokens": False, "add_special": False}
        base = str(self._client.base_url).rstrip("/").removesuffix("/v1")
        try:
            answer: Any = self._client.post(
                f"{base}/tokenize", cast_to=object, body=body, options={"headers": self._headers}
            )
            tokens = answer["tokens"]
            return int(tokens[0]) if len(tokens) == 1 else None
        except openai.APIConnectionError as error:
            raise _unreached(error) from None
        except Exception as error:  # whatever a server without it answers
            raise _Refused(f"it has no /tokenize ({type(error).__name__})", _NO_BIAS) from None

    def _text_or_empty(self, prompt: str, sampling: _Sampling) -> str:
        try:
            return self._answer(prompt, sampling)
        except _Refused as refused:
            if refused.unwanted is not None:
                self._empty(refused.why, refused.words)
                return ""
            error = self._error(refused)
        raise error

    def _answer(self, prompt: str, sampling: _Sampling) -> str:
        """Ask for a text, and again while a parameter is refused or an answer is no answer.

        A parameter that the server names as refused is omitted, and stays so if that helps.
        """
        left_out = self._left_out
        for attempt in itertools.count(1):
            self._refuse_beyond(1, taken=1)
            try:
                text = self._ask(prompt, sampling, left_out)
            except _Refused as refused:
                name = self._refused_parameter(refused, sampling, left_out)
                if name is not None:
                    left_out |= {name}
                elif not refused.again or attempt >= _TRIES:
                    raise
            else:
                self._leave_out(left_out)
                return text
        raise AssertionError("the loop ends by its return")

    def _refused_parameter(
        self, refused: _Refused, sampling: _Sampling, left_out: frozenset[str]
    ) -> str | None:
        """The parameter that a refusal names, if a request may omit it; None for another one."""
        sent = set(self._parameters(sampling, left_out)) - set(self._cfg.extra_body)
        named = (name for name in _EFFECTS if re.search(rf"\b{name}\b", refused.unwanted or ""))
        return next((name for name in named if name in sent), None)

    def _leave_out(self, names: frozenset[str]) -> None:
        """Remember the refused parameters for the run, and warn: they change the sampling."""
        with self._lock:
            new = [name for name in _EFFECTS if name in names - self._left_out]
            self._left_out |= names
        for name in new:
            log.warning("%s refuses %s: %s.", self._name, name, _EFFECTS[name])

    def _empty(self, why: str, words: str = "") -> str:
        """Note why a completion is empty; warn once per reason, without a word of the answer."""
        with self._lock:
            self._why = f"{why}: {words}" if words else why
            new = why not in self._warnings
            self._warnings.add(why)
        if new:
            log.warning("%s: an answer holds no text (%s).", self._name, why)
        return ""

    def _parameters(self, sampling: _Sampling, left_out: frozenset[str]) -> dict[str, Any]:
        """A request's parameters, without prompt, model and key."""
        extra: dict[str, Any] = dict(NO_THOUGHTS) if self._cfg.chat else {}
        for name, value in self._cfg.extra_body.items():
            both = isinstance(value, dict) and isinstance(extra.get(name), dict)
            extra[name] = {**extra[name], **value} if both else value
        renamed = "max_tokens" in left_out and self._cfg.chat
        # Also at 1: a server fills what is missing from the model's own defaults.
        settings: dict[str, Any] = {
            "max_completion_tokens" if renamed else "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.until:
            settings["stop"] = list(sampling.until)
        if sampling.bias:
            settings["logit_bias"] = dict(sampling.bias)
        settings |= {name: value for name, value in extra.items() if value is not None}
        return {name: value for name, value in settings.items() if name not in left_out}

    def _ask(self, prompt: str, sampling: _Sampling, left_out: frozenset[str]) -> str:
        """The text of one request's answer; empty, with the reason noted, where it has none.

        Raises:
            _Refused: No answer, or none of the protocol.
        """
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")
        create: Any = self._client.completions.with_raw_response.create
        given: dict[str, Any] = {"prompt": prompt}
        if self._cfg.chat:
            create = self._client.chat.completions.with_raw_response.create
            given = {"messages": [{"role": "user", "content": prompt}]}
        given |= {"model": self._cfg.model, "extra_headers": self._headers}
        answer: Any = None
        try:
            response = create(extra_body=self._parameters(sampling, left_out), **given)
            answer = json.loads(response.http_response.content)
            choice = answer["choices"][0]
            message = choice["message"] if self._cfg.chat else {"content": choice["text"]}
            content, finish = _content(message), choice.get("finish_reason")
            if finish == "error" or not isinstance(content, str):
                raise TypeError("no text")
        except openai.APIConnectionError as error:
            raise _unreached(error) from None
        except openai.APIStatusError as error:
            raise self._refusal(error, prompt) from None
        except Exception as error:  # the client may raise anything on an invalid answer
            raise _Refused(
                "its answer is not one of an OpenAI-compatible API, or an error "
                f"({type(error).__name__})",
                "Check models.server.url and models.server.chat, and the server's own log.",
                words=self._words(answer, prompt),
                again=True,
            ) from None
        self._count(answer.get("usage"))
        if finish == "content_filter":
            return self._empty("the server's filter stopped it")
        if not content.strip():
            return self._empty(_why_nothing(finish, message))
        return self._text_of(content, prompt, sampling, over=finish == "length")

    def _text_of(self, content: str, prompt: str, sampling: _Sampling, *, over: bool) -> str:
        """The text of an answer; empty where it has none, and then the reason is noted."""
        if len(prompt) > 20 and content.lstrip().startswith(prompt):  # it sends the prompt back
            content = content.lstrip()[len(prompt) :]
        text = as_text(content)[: CHARS_PER_TOKEN * sampling.max_tokens]
        text = whole_words(text) if over else text
        if (over and thinks_aloud(text)) or (not text.strip() and is_thought(content)):
            return self._empty(STILL_THINKING if over else THOUGHTS_ALONE)
        if not text.strip():
            self._empty("the server's answer is empty")
        return text.encode("utf-8", "replace").decode("utf-8")

    def _refuse_beyond(self, count: int, taken: int = 0) -> None:
        """Refuse ``count`` requests beyond the process's limit, or count ``taken`` as sent."""
        with _used_lock:
            used = _used[self._cfg.url, self._cfg.model]
            left = self._cfg.max_requests - used.requests
            if count <= left:
                used.requests += taken
                return
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

    def _refusal(self, error: openai.APIStatusError, prompt: str) -> _Refused:
        """The failure that an answer's status tells."""
        status, words = error.status_code, self._words(error.body, prompt)
        if status in (400, 403) and re.search(_UNPAID, words.casefold()):
            status = 402
        return _Refused(
            f"it answers HTTP {error.status_code}",
            _HINTS.get(status, _LOOK),
            words=words,
            unwanted=error.response.text if status in _UNWANTED else None,
        )

    def _words(self, body: Any, prompt: str) -> str:
        """An error's message in one short line, without the prompt and the key.

        It takes only the message of the body, because other fields may hold the model's words.
        """
        error = body.get("error") or body if isinstance(body, dict) else body
        message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        if not isinstance(message, str):
            return ""
        for key in self._secrets:
            message = message.replace(key, "[key]")
        message = message.replace(prompt, "[prompt]")
        return " ".join(plain_marks(message).split())[:_LONGEST_WORDS].rstrip(". ")

    def _error(self, refused: _Refused, words: str = "") -> ServerError:
        message = f"{refused.why} ({words})" if words else refused.why
        return ServerError(f"{self._name}: {message}.", hint=refused.hint)


def _content(message: dict[str, Any]) -> Any:
    """The content of a chat message; some servers split it into texts and thoughts."""
    content = message.get("content")
    if isinstance(content, list) and all("type" in part for part in content):
        return "".join(part["text"] for part in content if part["type"] in ("text", "output_text"))
    return "" if content is None else content


def _why_nothing(finish: Any, message: dict[str, Any]) -> str:
    """The reason why an answer has no content."""
    if finish == "length":
        return NO_TEXT_LEFT
    if message.get("refusal"):
        return "the model refuses the prompt"
    return PARSED_AWAY if any(map(message.get, _THOUGHTS)) else "the server's answer is empty"


def _unreached(error: openai.APIConnectionError) -> _Refused:
    """Why no answer came; never with the value of a variable."""
    cause: BaseException = error
    while inner := cause.__cause__ or cause.__context__:
        cause = inner
    why = cause.strerror if isinstance(cause, OSError) else None
    return _Refused(f"it cannot be reached ({why or type(cause).__name__})", _ENVIRONMENT)


def _secret(variable: str) -> str:
    """A secret from the environment. No message shows it.

    Raises:
        ModelError: The variable is not set, or its value is not valid in a header.
    """
    secret = os.environ.get(variable, "").strip()
    if not secret or not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise ModelError(
            f"models.server: the environment variable {variable} is not set, or cannot be a key "
            "(letters beyond ASCII, or spaces).",
            hint="Export it, or change models.server.headers.",
        )
    return secret
