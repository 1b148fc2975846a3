"""Fixtures: projects of DVC, and the stand-in for the stage commands on PATH."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.integration.publishing.dvc_project import PARAMS, REPOSITORY, STAND_IN, Project


@pytest.fixture(scope="session", autouse=True)
def _quiet_dvc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bin")
    (folder / "privsyn").write_text(STAND_IN)
    (folder / "privsyn").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("DVC_NO_ANALYTICS", "1")
        patch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path_factory.mktemp("site")))
        patch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path_factory.mktemp("global")))
        yield


@pytest.fixture(scope="module")
def new_project(tmp_path_factory):
    def make(*, git, shipped=True):
        root = tmp_path_factory.mktemp("project")
        project = Project(root)
        (root / "params.yaml").write_text(PARAMS)
        if shipped:
            (root / ".dvc").mkdir()
            for name in ("dvc.yaml", ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore"):
                shutil.copyfile(REPOSITORY / name, root / name)
        if git:
            project.git("init", "--quiet")
            project.git("config", "user.name", "Ann")
            project.git("config", "user.email", "ann@example.org")
            project.git("add", "--all")
            project.git("commit", "--quiet", "--message", "Start")
        return project

    return make
