"""The package as users install it: a wheel, in an empty folder, beside their own `operators`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from privsyn import __version__

ROOT = Path(__file__).parents[2]
SOURCES = (
    "privsyn", "operators", "dags", "tests", "pyproject.toml", "setup.py", "README.md", "LICENSE",
    "NOTICE",
)  # fmt: skip
PROJECT = ("params.yaml", "dvc.yaml", ".gitignore")


def run(folder, *command, **environment):
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The files of a wheel that is built from an archive of a copy of the sources, unpacked."""
    root = tmp_path_factory.mktemp("wheel")
    source = root / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*SOURCES, *PROJECT):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    for place, kind in ((source, "sdist"), (root / f"privsyn-{__version__}", "wheel")):
        build = f"from setuptools import build_meta; build_meta.build_{kind}('..')"
        done = run(place, "-W", "ignore", "-c", build)
        assert done.returncode == 0, done.stderr[-2000:]
        if kind == "sdist":
            shutil.unpack_archive(root / f"privsyn-{__version__}.tar.gz", root, filter="data")
    [wheel] = root.glob("*.whl")
    target = root / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def test_a_wheel_adds_one_name_and_holds_the_operators_and_the_template(installed):
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"privsyn"}
    operators = {file.name for file in (ROOT / "privsyn/airflow").glob("*.py")}
    assert {file.name for file in (installed / "privsyn/airflow").glob("*.py")} == operators
    template = installed / "privsyn" / "template"
    for name in ("params.yaml", "dvc.yaml"):
        assert (template / name).read_text() == (ROOT / name).read_text()
    assert (template / ".gitignore").read_text() == (ROOT / ".gitignore").read_text()
    dags = {file.name for file in (ROOT / "dags").iterdir() if file.is_file()}
    assert {file.name for file in (template / "dags").iterdir() if file.is_file()} == dags
    pages = {file.name for file in (ROOT / "privsyn/report/templates").iterdir()}
    assert {file.name for file in (installed / "privsyn/report/templates").iterdir()} == pages
    [entries] = installed.glob("*.dist-info/entry_points.txt")
    assert "privsyn.airflow.plugin:PrivsynPlugin" in entries.read_text()


def test_no_file_of_the_repository_is_a_link():
    """A ZIP archive and some file systems have none."""
    known = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True)
    modes = {line.split()[0] for line in known.stdout.splitlines()}
    assert modes == {"100644", "100755"}


def test_no_release_of_a_trial_is_in_the_repository():
    """A pointer to one stops every plan in a clone: its ledger does not know the release."""
    known = subprocess.run(
        ["git", "ls-files", "releases"], cwd=ROOT, capture_output=True, text=True
    )
    assert known.stdout.split() == []


def test_it_carries_the_tested_versions_of_every_python_it_allows(installed):
    """As requirements.lock has them, and within the bounds that it declares."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = pins(ROOT / "requirements.lock")
    files = {path.name: path for path in (installed / "privsyn/constraints").iterdir()}
    pythons = [f"3.{n}" for n in range(30) if f"3.{n}" in SpecifierSet(project["requires-python"])]
    makefile = (ROOT / "Makefile").read_text()
    newest = lock["apache-airflow"]
    airflows = [newest, *re.search(r"(?m)^OLDER := (.*)$", makefile)[1].split()]
    assert set(files) == {
        f"airflow-{airflow}-python{version}.txt" for version in pythons for airflow in airflows
    }
    others = re.search(r"(?m)^NOT_OLDER := .*\((.*)\\\)", makefile)[1].split("\\|")
    declared = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        declared += [one for one in extra if not one.startswith("privsyn[")]
    for path in files.values():
        found = pins(path)
        differ = [name for name, version in found.items() if lock.get(name, version) != version]
        own = () if newest in path.name else tuple(others)
        assert not [name for name in differ if not name.startswith(own)]
        for asked in map(Requirement, declared):
            assert found[asked.name] in asked.specifier, (path.name, str(asked))


def test_every_extra_that_a_message_names_is_one():
    from privsyn.errors import EXTRAS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def pins(path):
    return dict(line.split("==") for line in path.read_text().splitlines() if "==" in line)


def test_it_begins_in_an_empty_folder_beside_a_users_own_operators(installed, tmp_path):
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "__init__.py").write_text("MINE = True\n")
    own = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{installed}"}
    code = (
        "import operators, privsyn, privsyn.airflow.project as project; "
        "print(operators.MINE, privsyn.__file__, project.__file__)"
    )
    done = run(tmp_path, "-c", code, **own)
    assert done.stdout.split() == [
        "True",
        str(installed / "privsyn/__init__.py"),
        str(installed / "privsyn/airflow/project.py"),
    ], done.stderr
    project = tmp_path / "project"
    for command in (("init", str(project)), ("sample-data", "--rows", "50"), ("plan",)):
        done = run(project if project.exists() else tmp_path, "-m", "privsyn", *command, **own)
        assert done.returncode == 0, (command, done.stderr)
    assert "fits" in done.stdout
    assert (project / "dags" / "invisible_ink.py").is_file()


def test_a_wheel_is_small_and_says_where_the_tiny_model_is(installed, tmp_path):
    [wheel] = installed.parent.glob("*.whl")
    assert wheel.stat().st_size < 6_000_000
    lm = installed / "privsyn/models/builtin/lm"
    assert not list(lm.glob("*.safetensors"))
    assert (lm / "tokenizer.json").is_file(), "students read it"
    own = {"PYTHONPATH": str(installed)}
    for command in (("init", "project"), ("sample-data", "--out", "project/m.jsonl")):
        assert run(tmp_path, "-m", "privsyn", *command, **own).returncode == 0
    asked = ("plan", "-S", "models.language=tiny")
    done = run(tmp_path / "project", "-m", "privsyn", *asked, **own)
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stderr.split())
    assert "models.language=tiny: the tiny model is for tests" in said
    assert "privsyn models fetch smollm2" in said
    assert "Traceback" not in said
    listed = run(tmp_path, "-m", "privsyn", "models", "list", **own)
    assert "in a clone of privsyn" in " ".join(listed.stdout.split()), listed.stderr
