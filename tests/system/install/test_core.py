"""`pip install privsyn` without extras: plans, verifies and reports, and says what else needs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.system.install.test_install import PYTHON, ROOT, attempt, done

GOLDEN = ROOT / "tests" / "golden" / "releases"
RELEASE = next(GOLDEN.glob("invisible_ink-*"))
MOST_DISTRIBUTIONS, MOST_MEGABYTES = 45, 550


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory):
    """Where the commands of an installation without extras lie; versions as in the lock."""
    root = tmp_path_factory.mktemp("core")
    uv = [sys.executable, "-m", "uv"]
    done(*uv, "venv", "--python", PYTHON, root / "venv", cwd=root)
    done(
        *(*uv, "pip", "install", "--python", root / "venv"),
        *("--constraint", ROOT / "requirements.lock", wheel),
        cwd=root,
    )
    return root / "venv" / "bin"


@pytest.fixture(scope="module")
def project(core, tmp_path_factory):
    """A project with invented messages, a finished release and its ledger."""
    root = tmp_path_factory.mktemp("user") / "project"
    done(core / "privsyn", "init", root, cwd=root.parent)
    done(core / "privsyn", "sample-data", "--rows", "50", cwd=root)
    (root / "releases").mkdir(exist_ok=True)
    shutil.copytree(RELEASE, root / "releases" / RELEASE.name)
    with sqlite3.connect(root / "golden.db") as database:
        database.executescript((GOLDEN / "ledger.sql").read_text())
    database.close()
    return root


def test_it_is_light(core):
    site = next((core.parent / "lib").glob("python*")) / "site-packages"
    # What the wheels hold. The installer decides whether to add bytecode, some 70 MB.
    files = (file for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc")
    size = sum(file.stat().st_size for file in files) / 1e6
    assert len(list(site.glob("*.dist-info"))) <= MOST_DISTRIBUTIONS
    assert size <= MOST_MEGABYTES
    code, printed = attempt(core / "python", "-c", "import torch", cwd=core)
    assert code, printed
    assert "No module named 'torch'" in printed


def test_a_release_is_verified_and_reported(core, project):
    ledger = f"sqlite:///{project / 'golden.db'}"
    checked = done(core / "privsyn", "verify", RELEASE, "--ledger", ledger, cwd=project)
    assert "FAILED" not in checked
    assert "confirmed by the ledger" in checked
    shown = ("-S", f"services.ledger={ledger}")
    assert RELEASE.name in done(core / "privsyn", "report", RELEASE.name, *shown, cwd=project)


@pytest.mark.parametrize(
    "method",
    ["dp_lora", "invisible_ink", "keyphrase_seeding", "private_evolution", "private_prediction"],
)
def test_a_release_of_any_method_is_planned(core, project, method):
    model = f"models.language={ROOT / 'privsyn' / 'models' / 'builtin' / 'lm'}"
    printed = done(core / "privsyn", "plan", "-m", method, "-S", model, "--json", cwd=project)
    assert json.loads(printed)["account"]["fits"]
    assert "no account" in done(core / "privsyn", "ledger", "show", cwd=project)


@pytest.mark.parametrize(
    "command",
    [("run",), ("distill", RELEASE.name), ("check", "-S", "dataset.path=golden.parquet")],
)
def test_a_command_names_the_extra_that_it_lacks(
    core: Path, project: Path, command: tuple[str, ...]
) -> None:
    (project / "golden.parquet").write_bytes(b"PAR1")
    code, printed = attempt(core / "privsyn", *command, cwd=project)
    assert code == 2, printed
    [line] = printed.splitlines()
    assert line.startswith("privsyn: the package ")
    assert line.endswith('is not installed. Run: pip install "privsyn[generate]"')
    assert "no account" in done(core / "privsyn", "ledger", "show", cwd=project)
