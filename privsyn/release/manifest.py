"""What a store holds of a release: its manifest, and which files are those of a release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privsyn.errors import VerificationError
from privsyn.files import parse_json
from privsyn.release import layout

SETTING = "services.releases"
RELEASES, QUARANTINE = "releases", "quarantine"
"""Places of a store, and of a project: who may read a bucket's quarantine is its owner's to say."""

SCHEMA = "privsyn-stored-release/1"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLAIN = frozenset(
    {
        layout.ARTIFACT,
        layout.MODEL_ARTIFACT,
        layout.CERTIFICATE,
        layout.SIGNATURE,
        *layout.REPORTS,
    }
)


@dataclass(frozen=True)
class Manifest:
    """What a store holds of a release.

    Attributes:
        name: The release, or what was made from one.
        account: Account that paid; empty for what was made from a release, which costs nothing.
        certificate: SHA-256 of its certificate.
        lies: Its place in a project.
        change: Number of this version of it, from 1.
        files: SHA-256 by name.
    """

    name: str
    account: str
    certificate: str
    lies: str
    change: int
    files: Mapping[str, str]

    @classmethod
    def read(cls, raw: bytes, name: str) -> Manifest:
        """A manifest, believed in nothing.

        Raises:
            VerificationError: It is none, or of another release.
        """
        try:
            content = parse_json(raw)
            if content.pop("schema") != SCHEMA:
                raise ValueError
            manifest = cls(**content)
            fine = (
                manifest.name == name
                and manifest.lies in (RELEASES, QUARANTINE)
                and isinstance(manifest.change, int)
                and isinstance(manifest.account, str)
                and manifest.files[layout.CERTIFICATE] == manifest.certificate
                and all(is_of_release(file) for file in manifest.files)
                and all(_SHA256.fullmatch(sha) for sha in manifest.files.values())
            )
        except (ValueError, LookupError, TypeError, AttributeError):
            fine = False
        if not fine:
            raise VerificationError(
                f"{SETTING}: the manifest of {name} is none that privsyn wrote.",
                hint="Somebody changed the store. Bring the release back from DVC.",
            )
        return manifest


def is_of_release(file: Any) -> bool:
    """Whether a name is one that a file of a release may have, in a place it may lie in."""
    if not isinstance(file, str):
        return False
    above, slash, name = file.rpartition("/")
    if not slash:
        return name in _PLAIN
    return above in layout.FOLDERS and bool(name) and not name.startswith(".") and "\0" not in name
