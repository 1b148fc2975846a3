"""Settings of what is said of a release to those outside: ``signing`` and ``deployment``."""

from __future__ import annotations

import os
from datetime import date as Date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from privsyn.files import LocalPath, OnDisk
from privsyn.section import PAGE, Section

KEY_VARIABLE, PASSPHRASE_VARIABLE = "PRIVSYN_SIGNING_KEY", "PRIVSYN_SIGNING_PASSPHRASE"
"""Environment variables: the key's file, before ``signing.key``; and what it is encrypted with."""


class SigningConfig(Section):
    """The key of the deployment that signs its releases. Never part of a release id."""

    key: Annotated[LocalPath, OnDisk("place")] | None = Field(
        default=None,
        description="Private key in PEM (PKCS#8), as `privsyn keys new` writes it. Null: releases "
        "are not signed. The environment variable PRIVSYN_SIGNING_KEY goes before it.",
    )
    required: bool = Field(
        default=False,
        description="Reserve, begin and publish nothing where the key cannot be read.",
    )

    @property
    def file(self) -> Path | None:
        """The key's file: what the environment says, else the setting."""
        path = os.environ.get(KEY_VARIABLE)
        return Path(os.path.expanduser(path)) if path else self.key


Words = Annotated[str, Field(min_length=1, max_length=4000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]


class DeploymentConfig(Section):
    """What records of a release say and no certificate can know. Never part of a release id."""

    name: Name | None = Field(default=None, description="Name of the data product.")
    description: Words | None = Field(default=None, description="What it is, in a few sentences.")
    curators: tuple[Name, ...] = Field(default=(), description="Who publishes it.")
    authors: tuple[Name, ...] = Field(
        default=(), description="Who fills the record in. None: the curators."
    )
    intended_use: Words | None = Field(default=None, description="What it is meant for.")
    region: Name | None = Field(
        default=None, description="Which region the data is of, or whose law applies."
    )
    sector: Sector | None = Field(default=None, description="Of what domain the data is.")
    contact: Name | None = Field(default=None, description="Whom to ask: an address or a page.")
    url: Annotated[str, Field(pattern=PAGE)] | None = Field(
        default=None, description="Where the release is to be had."
    )
    license: Name | None = Field(default=None, description="License: its SPDX id or its address.")
    published: Date | None = Field(
        default=None,
        description="Day of first publication. Null: the day on which the cost was reserved.",
    )
    data_source: Literal["Static", "Dynamic"] | None = Field(
        default=None, description="Whether new records come in over time."
    )
    domain: Words | None = Field(
        default=None, description="Which datasets, actual or possible, are eligible for protection."
    )
    tuning: Words | None = Field(
        default=None, description="How settings were chosen, and what was paid for it."
    )
    access: Words | None = Field(
        default=None, description="Who may reach the private records, and how they are kept."
    )
    biases: Words | None = Field(
        default=None, description="Known biases of the records, which the release copies."
    )
    notes: Words | None = Field(default=None, description="Anything else.")
