"""Many projects in one Airflow: PRIVSYN_PARAMS is a folder."""

import shutil
from pathlib import Path

import pytest

from privsyn.airflow.project import Project, project_of, projects
from privsyn.errors import ConfigError

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def folder(project, tmp_path_factory):
    """Two projects with folders of their own, one that shares one, and a broken one."""
    place = tmp_path_factory.mktemp("projects")
    params = (project.root / "params.yaml").read_text()
    for name in ("clinic", "lab"):
        (place / name).mkdir()
        (place / name / "params.yaml").write_text(params.replace("letters", f"{name}-letters"))
    (place / "trial.yaml").write_text(params)
    (place / "broken.yaml").write_text("dataset: {name: x}")
    return place


@pytest.fixture(scope="module")
def parsed(project, folder):
    return project.run("parse_dags.py", params=folder)


def test_every_project_has_dags_of_its_own(parsed, folder):
    assert parsed["errors"] == {}
    kinds = {name.removeprefix("privsyn_clinic_") for name in parsed["dags"] if "clinic" in name}
    assert len(kinds) == 7
    names = ("clinic", "lab", "trial", "broken")
    assert set(parsed["dags"]) == {f"privsyn_{name}_{kind}" for name in names for kind in kinds}
    for name, params in (("clinic", "clinic/params.yaml"), ("trial", "trial.yaml")):
        dag = parsed["dags"][f"privsyn_{name}_invisible_ink"]
        assert f"project:{name}" in dag["tags"]
        paths = {task["params_path"] for task in dag["tasks"].values()}
        assert paths == {str(folder / params)}


def test_pools_and_assets_are_told_apart(parsed):
    places = {
        name: (
            parsed["dags"][f"privsyn_{name}_invisible_ink"]["tasks"]["publish"]["pool"],
            parsed["dags"][f"privsyn_{name}_invisible_ink"]["tasks"]["publish"]["outlets"][0],
        )
        for name in ("clinic", "lab", "trial")
    }
    assert places == {
        "clinic": ("dvc_clinic", "privsyn://clinic/clinic-letters/invisible_ink"),
        "lab": ("dvc_lab", "privsyn://lab/lab-letters/invisible_ink"),
        "trial": ("dvc", "privsyn://trial/letters/invisible_ink"),
    }


def test_a_broken_project_says_so_and_leaves_the_others_alone(parsed):
    broken = parsed["dags"]["privsyn_broken_invisible_ink"]
    assert set(broken["tasks"]) == {"plan"}
    assert "broken" in broken["tags"]
    assert "account" in broken["doc"]


def test_a_report_is_looked_for_in_the_project_of_its_dag(folder, monkeypatch):
    monkeypatch.setenv("PRIVSYN_PARAMS", str(folder))
    assert project_of("privsyn_lab_invisible_ink").root == folder / "lab"
    assert project_of("privsyn_labs_invisible_ink") is None
    assert project_of("privsyn_invisible_ink") is None


def test_names_fit_into_ids_and_are_their_own(folder, tmp_path):
    with pytest.raises(ConfigError, match="holds no project"):
        projects(tmp_path)
    shutil.copy(folder / "trial.yaml", tmp_path / "a_b.yaml")
    with pytest.raises(ConfigError, match="its name must match"):
        projects(tmp_path)
    (tmp_path / "a_b.yaml").rename(tmp_path / "ab.yaml")
    (tmp_path / "ab").mkdir()
    shutil.copy(folder / "trial.yaml", tmp_path / "ab" / "params.yaml")
    with pytest.raises(ConfigError, match="be unique"):
        projects(tmp_path)


def test_a_project_that_shares_its_folder_leaves_what_dvc_tracks_alone(folder):
    from privsyn.stages.base import open_context

    assert open_context(folder / "clinic" / "params.yaml").as_filed
    assert not open_context(folder / "trial.yaml").as_filed


def test_the_only_project_keeps_its_ids():
    only = Project(Path("params.yaml"))
    assert (only.dag_id("x"), only.dvc_pool) == ("privsyn_x", "dvc")
    assert only.asset("d", "m") == "privsyn://d/m"
