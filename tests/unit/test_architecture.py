"""Which way imports may point, and what a light command may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from privsyn.methods.registry import METHODS

ROOT = Path(__file__).parents[2]
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


OF_ALL_METHODS = ("privsyn.methods.base", "privsyn.methods.registry", "privsyn.methods.shared")


def imports(file: Path) -> set[str]:
    """Modules and names that a file imports, wherever in it: ``from a import b`` is ``a.b``."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}, line {node.lineno}: write the whole name"
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_every_form_of_an_import_is_seen(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "import privsyn.ledger as books, os\n"
        "from privsyn import stages\n"
        "def later():\n    from privsyn.stages import plan\n"
    )
    assert imports(file) == {"privsyn.ledger", "os", "privsyn.stages", "privsyn.stages.plan"}
    file.write_text("from . import stages\n")
    with pytest.raises(AssertionError, match=r"some\.py, line 1: write the whole name"):
        imports(file)


def test_the_core_imports_numpy_scipy_and_opendp_only():
    allowed = {"numpy", "scipy", "opendp", "privsyn"} | set(sys.stdlib_module_names)
    banned = {"os", "pathlib", "time", "datetime", "random", "subprocess", "socket", "logging"}
    for file in (ROOT / "privsyn/dp").glob("*.py"):
        names = imports(file)
        tops = {name.partition(".")[0] for name in names}
        assert tops <= allowed, file
        assert not tops & banned, file
        assert all(within(name, ("privsyn.dp",)) for name in names if within(name, ("privsyn",)))


@pytest.mark.parametrize(
    ("package", "may_not"),
    [
        ("privsyn/dp", ("privsyn.methods", "privsyn.stages", "privsyn.ledger", "privsyn.airflow")),
        (
            "privsyn/ledger",
            (
                "privsyn.methods",
                "privsyn.stages",
                "privsyn.data.readers.formats",
                "privsyn.airflow",
            ),
        ),
        (
            "privsyn/models",
            ("privsyn.methods", "privsyn.stages", "privsyn.ledger", "privsyn.airflow"),
        ),
        (
            "privsyn/methods",
            ("privsyn.stages", "privsyn.ledger", "privsyn.tracking", "privsyn.airflow"),
        ),
        ("privsyn/data", ("privsyn.stages", "privsyn.methods", "privsyn.airflow")),
        ("privsyn/stages", ("privsyn.airflow", "airflow")),
        ("privsyn", ("privsyn.airflow", "airflow", "tools")),
        ("operators", ("tools",)),
        ("dags", ("tools",)),
    ],
)
def test_imports_point_inward(package, may_not):
    for file in (ROOT / package).rglob("*.py"):
        for name in imports(file):
            assert not within(name, may_not), f"{file} imports {name}"


@pytest.mark.parametrize(
    ("package", "may"),
    [
        (
            "validation",
            (
                "data",
                "dp",
                "errors",
                "files",
                "ledger.settings",
                "on_disk",
                "release.warnings",
                "release.layout",
                "section",
                "spelling",
            ),
        ),
        (
            "evaluation",
            (
                "models",
                "data",
                "dp",
                "errors",
                "section",
                "report.blocks",
                "report.document",
                "validation.fields",
                "validation.image_profile",
            ),
        ),
        ("tracking", ("errors", "filelock")),
        (
            "publishing",
            (
                "config",
                "data",
                "errors",
                "filelock",
                "files",
                "release.layout",
                "section",
                "spelling",
            ),
        ),
    ],
)
def test_what_stages_call_imports_little_of_privsyn(package, may):
    allowed = tuple(f"privsyn.{name}" for name in (package, *may))
    for file in (ROOT / "privsyn" / package).rglob("*.py"):
        for name in imports(file):
            assert not within(name, ("privsyn",)) or within(name, allowed), f"{file} imports {name}"


def test_no_module_imports_itself_by_way_of_others():
    """Circles, wherever in a file the import stands."""
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in (ROOT / "privsyn").rglob("*.py")
    }
    graph = {
        name: {
            next((part for part in (said, said.rpartition(".")[0]) if part in modules), name)
            for said in imports(file)
        }
        - {name}
        for name, file in modules.items()
    }
    while leaves := {name for name, wanted in graph.items() if not wanted}:
        graph = {name: wanted - leaves for name, wanted in graph.items() if name not in leaves}
    assert not graph, f"each of these waits for another of them: {sorted(graph)}"


def test_stand_ins_stay_in_tests():
    """No release can come to be drawn with a fake because something imported one."""
    stand_ins = ("privsyn.testing", "privsyn.models.fakes")
    for folder in ("privsyn", "operators", "dags"):
        for file in (ROOT / folder).rglob("*.py"):
            if within(".".join(file.relative_to(ROOT).with_suffix("").parts), stand_ins):
                continue
            assert not any(within(name, stand_ins) for name in imports(file)), file


def test_a_record_is_revealed_in_few_places():
    """Where Private is opened; stages/base.py opens a key of the ledger, and no record."""
    asked = {
        file.relative_to(ROOT / "privsyn").as_posix()
        for file in (ROOT / "privsyn").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "reveal"
    }
    methods = {file for file in asked if file.startswith("methods/")}
    assert asked - methods == {
        "data/readers/formats.py", "data/partition.py", "stages/base.py", "stages/holdout.py",
        "students/evaluate.py", "stages/partition.py", "stages/accuracy.py",
    }  # fmt: skip


def test_the_operators_have_one_name():
    """As `operators` they would be a second copy, beside which a user's own package may stand."""
    for folder in ("privsyn", "operators", "dags", "tests", "tools", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            assert not any(name.split(".")[0] == "operators" for name in imports(file)), file
    link = ROOT / "privsyn" / "airflow"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "operators"


@pytest.mark.parametrize(
    "statement",
    [
        "import privsyn.cli, privsyn.stages.plan, privsyn.ledger.ledger",
        *(f"import privsyn.methods.{name}.method" for name in METHODS),
        "import privsyn.students.train",
        "from pathlib import Path; from privsyn.config import load_config; "
        "load_config(Path('params.yaml'))",
    ],
)
def test_planning_loads_nothing_heavy(statement):
    heavy = {*HEAVY, "opendp", "scipy"}
    code = f"import sys; {statement}; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["privsyn/stages", "privsyn/students", "operators"])
def test_what_serves_all_methods_names_none(package):
    """Code that a new method would have to touch: strings beside docstrings, and settings."""
    shipped = {
        # is about the methods that are shipped
        "privsyn/stages/plan.py",  # advice on images
    }
    for file in (ROOT / package).rglob("*.py"):
        if file.relative_to(ROOT).as_posix() in shipped:
            continue
        tree = ast.parse(file.read_text())
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        said -= {
            ast.get_docstring(node, clean=False) for node in ast.walk(tree) if is_documented(node)
        }
        for name in METHODS:
            assert not any(name in text for text in said if isinstance(text, str)), (file, name)
        wanted = {name for name in imports(file) if within(name, ("privsyn.methods",))}
        assert all(within(name, OF_ALL_METHODS) for name in wanted)


def is_documented(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds)
