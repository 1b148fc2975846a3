"""Models of a hub: fetched once, by commit."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from privsyn.errors import ModelError, at_home
from privsyn.models.references import ModelLocation, ModelReference

_SMALL = (
    "config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "adapter_config.json",  # to be refused
)


def hub_cache() -> Path:
    """The hub cache, found as huggingface_hub does, without importing it."""
    with at_home():
        if direct := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
            return Path(direct).expanduser()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        return Path(os.environ.get("HF_HOME") or cache).expanduser() / "hub"


def fetch_small(
    reference: ModelReference, place: ModelLocation, names: Sequence[str] = _SMALL
) -> Path:
    """Download a hub model's small files, into the hub cache; returns their folder."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    if not constants.HF_HUB_OFFLINE and not _answers(constants.ENDPOINT):
        raise _unreachable(reference, place)
    folder = None
    for name in names:
        try:
            path = Path(hf_hub_download(place.source, name, revision=place.commit))
            folder = path.parents[name.count("/")]
        except LocalEntryNotFoundError:  # no network; also an EntryNotFoundError
            raise _unreachable(reference, place) from None
        except EntryNotFoundError:
            continue
        except Exception as error:  # the hub's client raises its own and its transport's errors
            raise _unreachable(reference, place, type(error).__name__) from None
    if folder is None:
        raise _unreachable(reference, place, "no config.json")
    return folder


def fetch_all(reference: ModelReference, place: ModelLocation) -> Path:
    """Download a hub model whole, into the hub cache; returns its folder.

    Raises:
        ModelError: No network, or the hub refuses.
    """
    from huggingface_hub import constants, snapshot_download

    if not constants.HF_HUB_OFFLINE and not _answers(constants.ENDPOINT):
        raise _unreachable(reference, place)
    try:
        return Path(snapshot_download(place.source, revision=place.commit))
    except Exception as error:  # the hub's client raises its own and its transport's errors
        raise _unreachable(reference, place, type(error).__name__) from None


def _answers(endpoint: str) -> bool:
    """Whether the hub takes connections: its own client would retry for half a minute, loudly."""
    if urllib.request.getproxies():
        return True
    url = urlsplit(endpoint)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        socket.create_connection((url.hostname or endpoint, port), timeout=5).close()
    except OSError:
        return False
    return True


def _unreachable(
    reference: ModelReference, place: ModelLocation, why: str = "no network"
) -> ModelError:
    return ModelError(
        f"{reference} with {reference.revision_setting}={place.commit} is not in the local hub "
        f"cache and cannot be fetched from the hub ({why}).",
        hint=reference.offline,
    )
