"""The DAG files: they parse, they parse lightly, and a broken params.yaml says what is broken."""

import itertools
import shutil
import subprocess
import sys

import pytest

from privsyn.airflow.failures import KILLS

pytestmark = pytest.mark.airflow
HEAVY = (
    "torch", "transformers", "mlflow", "great_expectations", "sklearn", "pandas", "pyarrow",
    "opendp", "scipy", "matplotlib", "faiss", "PIL", "privsyn.stages",
)  # fmt: skip
CHAIN = (
    "plan", "reserve", "preflight", "partition", "generate", "certify", "validate", "evaluate",
    "publish",
)  # fmt: skip


@pytest.fixture(scope="module")
def parsed(project):
    return project.run("parse_dags.py")


@pytest.fixture(scope="module")
def dag(parsed):
    return parsed["dags"]["privsyn_invisible_ink"]


def test_every_file_makes_a_dag_without_error(parsed):
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == {
        "privsyn_invisible_ink", "privsyn_private_prediction", "privsyn_private_evolution",
        "privsyn_keyphrase_seeding", "privsyn_dp_lora_distill", "privsyn_columns_alone",
        "privsyn_ledger",
    }  # fmt: skip


def test_parsing_loads_nothing_heavy(parsed):
    assert [name for name in parsed["modules"] if name.startswith(HEAVY)] == []


def test_every_dag_has_owner_tags_words_and_retries(parsed):
    for name, dag in parsed["dags"].items():
        assert "privsyn" in dag["tags"], name
        assert len(dag["doc"]) > 100, name
        assert not dag["catchup"], name
        assert dag["max_active_runs"] == 1, name
        for task in dag["tasks"].values():
            assert task["owner"] == "privsyn"
            assert task["retries"] >= 1


def test_the_tasks_form_the_chain(dag):
    tasks = dag["tasks"]
    assert set(tasks) == {*CHAIN, "settle"}
    for before, after in itertools.pairwise(CHAIN):
        assert after in tasks[before]["downstream"]
    assert tasks["reserve"]["setup"]
    assert tasks["settle"]["teardown"]
    assert "settle" in tasks["reserve"]["downstream"]
    assert "settle" in tasks["publish"]["downstream"]


def test_generate_is_mapped_in_the_gpu_pool_and_publish_has_a_pool_of_its_own(dag):
    assert dag["tasks"]["generate"]["mapped"]
    assert dag["tasks"]["generate"]["pool"] == "gpu"
    assert dag["tasks"]["publish"]["pool"] == "dvc"
    assert dag["tasks"]["publish"]["outlets"] == ["privsyn://letters/invisible_ink"]


def test_schedule_account_and_cost_come_from_params_yaml(dag):
    assert dag["schedule"] == "@weekly"
    assert dag["tasks"]["plan"]["retries"] == 1 + KILLS
    for fact in ("letters", "epsilon 8", "(20, 1e-06)", "@weekly"):
        assert fact in dag["doc"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("privacy: {epsilon: -1, delta: 1.0e-6}", "privacy.epsilon=-1"),
        ("privacy: {epsilom: 1, delta: 1.0e-6}", "Did you mean epsilon?"),
        ("privacy: [", "is not valid YAML at line"),
    ],
)
def test_a_broken_params_file_is_a_readable_import_error(project, tmp_path, line, said):
    broken = type(project)(tmp_path)
    shutil.copytree(project.root / "dags", tmp_path / "dags")
    kept = (project.root / "params.yaml").read_text().splitlines(keepends=True)
    start = kept.index("privacy:\n")
    (tmp_path / "params.yaml").write_text("".join([*kept[:start], line, "\n", *kept[start + 3 :]]))
    answer = broken.run("parse_dags.py")
    assert answer["dags"] == {}
    assert len(answer["errors"]) == len(list((tmp_path / "dags").glob("*.py")))
    for text in answer["errors"].values():
        assert said in text.strip().splitlines()[-1]


def test_an_airflow_that_is_too_old_is_refused_by_name():
    """Before any import of it fails: in a process that sees another version's metadata."""
    code = (
        "import importlib.metadata as m; real = m.version\n"
        "m.version = lambda name: '3.0.6' if name == 'apache-airflow-core' else real(name)\n"
        "import privsyn.airflow.factory"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: privsyn.airflow needs Airflow 3.1 or later, and this is 3.0.6. Upgrade "
        "Airflow, or make releases by the command line: privsyn run."
    )
