"""Settings of what is said of a release to those outside: ``signing`` and ``deployment``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from privsyn.files import LocalPath, OnDisk
from privsyn.section import Section

KEY_VARIABLE, PASSPHRASE_VARIABLE = "PRIVSYN_SIGNING_KEY", "PRIVSYN_SIGNING_PASSPHRASE"
"""Environment variables: the key's file, before ``signing.key``; and what it is encrypted with."""


class SigningConfig(Section):
    """The key of the deployment that signs its releases. Never part of a release id."""

    key: Annotated[LocalPath, OnDisk("place")] | None = None
    """Private key in PEM (PKCS#8), as `privsyn keys new` writes it. Nothing is published without
    it. Null: releases are not signed. The environment variable PRIVSYN_SIGNING_KEY goes before
    it."""

    @property
    def file(self) -> Path | None:
        """The key's file: what the environment says, else the setting."""
        path = os.environ.get(KEY_VARIABLE)
        return Path(os.path.expanduser(path)) if path else self.key


Card = Literal[
    "name", "description", "curators", "authors", "intended_use", "region", "sector", "contact",
    "url", "license", "published", "data_source", "domain", "tuning", "access", "biases", "notes",
]  # fmt: skip
"""Fields of ``deployment``: what records of a release say and no certificate can know. They are the
names of the OpenDP Deployments Registry or those of Croissant, which say what each is for."""

Stated = Mapping[Card, str]
"""What the owner states, by field. Never part of a release id."""


def stated_in(raw: object) -> Stated:
    """What a report, which anyone may have written, says that the owner states."""
    known = raw if isinstance(raw, Mapping) else {}
    return {name: known[name] for name in get_args(Card) if isinstance(known.get(name), str)}
