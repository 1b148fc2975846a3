"""Files that hold a secret key: read from where nobody else may, made once, never overwritten."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from privsyn.data.artifacts import private_opener, storage_error, sync_folder
from privsyn.errors import ConfigError
from privsyn.files import open_file


def read_key(file: Path, setting: str) -> bytes:
    """The bytes of a key's file.

    Args:
        file: The file.
        setting: What names it, for messages.

    Raises:
        FileNotFoundError: There is no such file.
        ConfigError: It cannot be read, or others may read or change it.
    """
    try:
        with open_file(file) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{setting}: {file} cannot be read: {error.strerror}.") from None
    if mode & 0o027:
        raise ConfigError(
            f"{setting}: {file} can be read or written by others (mode {mode & 0o777:04o}).",
            hint=f"chmod 600 {file}; if others may have read it, make a new key.",
        )
    return content


def check_place(file: Path, refused: Sequence[Path], setting: str) -> None:
    """Refuse a key in a folder whose content leaves.

    Raises:
        ConfigError: It lies in one.
    """
    place = file.resolve()
    for folder in refused:
        if place.is_relative_to(folder.resolve()):
            raise ConfigError(
                f"{setting}: {file} lies in {folder}, whose content is published.",
                hint="Keep it outside of the project.",
            )


def refuse_repository(file: Path, setting: str) -> None:
    """Refuse a key in a git repository.

    Raises:
        ConfigError: It lies in one.
    """
    for folder in file.resolve().parents:
        if (folder / ".git").exists():
            raise ConfigError(
                f"{file} lies in the git repository {folder}, where it could be committed.",
                hint=f"Name a place outside, or set {setting} to it first.",
            )


def put_key(file: Path, content: bytes, mode: int) -> None:
    """Write a file whole, or not at all where there is one."""
    half = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(half, "xb", opener=private_opener) as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.link(half, file)  # fails where there is a file; a rename would replace it
        sync_folder(file.parent)
    except FileExistsError:
        raise ConfigError(f"{file} is there already, and a key is never overwritten.") from None
    except OSError as error:
        raise storage_error("write", file, error) from error
    finally:
        with suppress(OSError):
            half.unlink()
