"""Settings of models and of how fast they run: ``models`` and ``performance``."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, field_validator

from privsyn.files import OnDisk
from privsyn.section import Section

_FIELDS_OF_OURS = frozenset(
    {"model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p"}
    | {"n", "stream", "echo", "best_of", "logprobs", "tools", "functions", "response_format"}
    | {"logit_bias"}
)
"""Fields of a request that ``models.server.extra_body`` may not hold."""
ENVIRONMENT = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
"""What stands for an environment variable in a header."""
SERVER_KEY = "OPENAI_API_KEY"
"""Environment variable of a server's key."""
_SECRETIVE = r"key|token|secret|password|auth|sig|credential|cookie"


def is_secret(name: str) -> bool:
    """Whether what a header or a parameter of a query holds may be a secret, by its name."""
    return re.search(_SECRETIVE, name.casefold()) is not None


class ServerConfig(Section):
    """An OpenAI-compatible server that completes prompts for a method.

    It gets only public and privatized text. The address, the model, ``chat``, ``logit_bias`` and
    ``extra_body`` are part of a release's identity; the key, ``headers`` and the limit are not.
    """

    url: str
    """Base URL of the API, such as https://api.openai.com/v1 or http://localhost:8000/v1, without a
    key; with a query where the server wants one:
    https://clinic.openai.azure.com/openai/deployments/gpt?api-version=2024-10-21."""
    model: str = Field(min_length=1, max_length=200)
    """The server's name of the model."""
    chat: bool = True
    """Send chat messages; false: plain completions (/completions)."""
    headers: dict[str, str] = Field(default={})
    """Further headers of every request. ${NAME} stands for the environment variable NAME:
    {Authorization: "Bearer ${MISTRAL_API_KEY}"} or {api-key: "${AZURE_KEY}"}. Never write a secret
    here. Where no header is of a key, the variable OPENAI_API_KEY is sent as one, if it is set;
    {Authorization: ""} sends none."""
    logit_bias: bool = False
    """Whether the server has /tokenize and takes logit_bias, as vLLM and llama.cpp do:
    private_evolution then makes the words of the records likelier."""
    extra_body: dict[str, Any] = Field(default={})
    """Further fields of every request, by the server's names: {chat_template_kwargs:
    {enable_thinking: false}}, which is sent anyway, or {reasoning_effort: low}. Null leaves a field
    out. Part of the release's identity; no key."""
    max_requests: int = Field(default=10_000, ge=1)
    """Requests for texts that a process may send; the run stops before the next. Not counted: what
    the client repeats after 429, 5xx or a timeout, and words that /tokenize is asked for."""

    @field_validator("extra_body")
    @classmethod
    def _has_no_settings_of_its_own(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(_FIELDS_OF_OURS.intersection(value))
        if taken:
            raise ValueError(
                f"{taken[0]} is set by privsyn: leave it out (lengths, temperature and top_p are "
                "settings of the method)"
            )
        if len(json.dumps(value)) > 10_000:
            raise ValueError("more than 10,000 characters")
        return value

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            usable = usable and parts.port != 0
        except ValueError:
            usable = False
        if not usable or "@" in value or "#" in value or not value.isprintable():
            raise ValueError("not an http(s) address without user and password")
        if any(is_secret(name) for name, _ in parse_qsl(parts.query)):
            raise ValueError("its query holds a secret: send it by models.server.headers")
        return value.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
                raise ValueError("a name that is none of a header")
            # Not quoted: it may be a secret.
            if not (text.isascii() and text.isprintable()):
                raise ValueError(f"{name} has a value that no header can have")
            if text and is_secret(name) and not re.search(ENVIRONMENT, text):
                raise ValueError(
                    f"{name} may be a secret: write ${{NAME}} and put it into that variable"
                )
        return value


class ModelsConfig(Section):
    """The models a method reads."""

    language: Annotated[str, OnDisk("model", ("smollm2", "gemma3-270m", "tiny"))] = Field(
        default="smollm2", min_length=1
    )
    """smollm2 or gemma3-270m (fetched once: `privsyn models fetch smollm2`), tiny (for tests, in a
    clone alone), a local directory, a GGUF file, or a hub id with its commit
    (owner/model@commit)."""
    embedder: Annotated[str, OnDisk("model", ("builtin",))] = Field(default="builtin", min_length=1)
    """Sentence embedder: builtin, a local directory, or a hub id with its commit."""
    server: ServerConfig | None = None
    """Server that completes prompts. Null: models.language on this machine."""
    image: Annotated[str, OnDisk("model", ("builtin",))] = Field(default="builtin", min_length=1)
    """Image generator: builtin, a local directory, or a hub id with its commit."""
    image_steps: int | None = Field(default=None, ge=1, le=1000)
    """Denoising steps of a fresh image. Null: the model folder's own."""
    image_class: Literal["label", "any"] = "label"
    """What the classes of a class-conditional generator are. label: the labels of the dataset. any:
    nothing that the labels name; each fresh image is of a class drawn at random, and its variations
    are of the same class."""
    image_embedder: Annotated[str, OnDisk("model", ("builtin",))] = Field(
        default="builtin", min_length=1
    )
    """Image encoder: builtin, a local directory, or a hub id with its commit."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Numeric type of the weights."""


class PerformanceConfig(Section):
    """Settings of speed and memory. They change neither the cost nor the id of a release.

    Draws keep their distribution up to rounding. Their values may differ: rows per pass and device
    change how numbers are rounded, and shards change which journal holds which draw.
    """

    rows_per_pass: int = Field(default=64, ge=1)
    """Rows per forward pass, and most texts decoded together; a training pass has an eighth."""
    shards: int | None = Field(default=None, ge=1, le=1000)
    """Parts of a release (mapped tasks); each loads the model. Null: one per GPU of the machine
    that plans, or one without a GPU."""
