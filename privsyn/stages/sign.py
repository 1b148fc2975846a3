"""sign: a finished release gets the deployment's signature, where there is a key."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.errors import ConfigError
from privsyn.release import layout, signature
from privsyn.release.key_files import check_place
from privsyn.release.settings import KEY_VARIABLE
from privsyn.release.signing_key import load
from privsyn.stages.base import Context

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

log = logging.getLogger(__name__)


def check_key(ctx: Context) -> None:
    """Try the signing key, before anything is spent.

    Raises:
        ConfigError: ``signing.required`` is on and there is none here; or there is one that cannot
            be used.
    """
    _signer(ctx)


def key_id(ctx: Context) -> str:
    """Id of the key that will sign releases here; empty where there is none.

    Raises:
        ConfigError: See check_key.
    """
    signer = _signer(ctx)
    return "" if signer is None else str(signer.public_key.keyid)


def sign(ctx: Context, folder: Path) -> str | None:
    """Sign a release whose files are all there. Again is harmless: what holds is kept.

    Guarantee: see release.signature; nothing is charged.

    Returns:
        Id of the key; None where there is no key here. A signature of before that does not hold any
        more is taken away then.

    Raises:
        ConfigError: See check_key.
    """
    signer = _signer(ctx)
    if signer is not None:
        return signature.sign(folder, signer)
    if ctx.config.signing.file is not None:
        log.warning("%s is not signed: the key of signing.key is not on this machine", folder.name)
    if not signature.fits(folder):
        unsign(folder)
    return None


def unsign(folder: Path) -> None:
    """Take the signature of a release away: it failed its checks, or another is to come."""
    (folder / layout.SIGNATURE).unlink(missing_ok=True)


def _signer(ctx: Context) -> CryptoSigner | None:
    """The signer; None where none is asked for, or its file is on other machines alone."""
    config = ctx.config.signing
    if config.file is None:
        if config.required:
            raise ConfigError(
                "signing.required is on, and no key is named.",
                hint=f"Set signing.key or {KEY_VARIABLE}; make a key with: privsyn keys new",
            )
        return None
    file = ctx.path(config.file)
    check_place(file, ctx.workspace.published, "signing.key")
    try:
        return load(file)
    except FileNotFoundError:
        if config.required:
            raise ConfigError(
                f"signing.required is on, and the key {file} is not on this machine.",
                hint=f"Put it there, or name it with signing.key or {KEY_VARIABLE}.",
            ) from None
        return None
