"""Which way imports may point, and what a light command may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch",
    "transformers",
    "faiss",
    "openai",
    "mlflow",
    "great_expectations",
    "sklearn",
    "pandas",
    "matplotlib",
)


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def test_the_core_imports_numpy_scipy_and_opendp_only():
    allowed = {"numpy", "scipy", "opendp", "privsyn"} | set(sys.stdlib_module_names)
    banned = {"os", "pathlib", "time", "datetime", "random", "subprocess", "socket", "logging"}
    for file in (ROOT / "privsyn/dp").glob("*.py"):
        names = imports(file)
        tops = {name.partition(".")[0] for name in names}
        assert tops <= allowed, file
        assert not tops & banned, file
        assert all(name.startswith("privsyn.dp") for name in names if name.startswith("privsyn"))


@pytest.mark.parametrize(
    ("package", "may_not"),
    [
        ("privsyn/dp", ("privsyn.methods", "privsyn.stages", "privsyn.ledger", "operators")),
        (
            "privsyn/ledger",
            ("privsyn.methods", "privsyn.stages", "privsyn.data.formats", "operators"),
        ),
        ("privsyn/backends", ("privsyn.methods", "privsyn.stages", "privsyn.ledger", "operators")),
        ("privsyn/methods", ("privsyn.stages", "privsyn.ledger", "privsyn.tracking", "operators")),
        ("privsyn/data", ("privsyn.stages", "privsyn.methods", "operators")),
        ("privsyn/stages", ("operators", "airflow")),
        ("privsyn", ("operators", "airflow")),
    ],
)
def test_imports_point_inward(package, may_not):
    for file in (ROOT / package).rglob("*.py"):
        for name in imports(file):
            assert not name.startswith(may_not), f"{file} imports {name}"


@pytest.mark.parametrize(
    "statement",
    [
        "import privsyn.cli, privsyn.stages.plan, privsyn.ledger, privsyn.methods.invisible_ink",
        "import privsyn.methods.private_evolution, privsyn.methods.distill",
        "from pathlib import Path; from privsyn.config import load_config; "
        "load_config(Path('params.yaml'))",
    ],
)
def test_planning_loads_nothing_heavy(statement):
    code = (
        f"import sys; {statement}; print(sorted(set({HEAVY!r} + ('opendp',)) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
