"""Which way imports may point, and what a light command may load."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

from privsyn.methods.registry import METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()

OUTSIDE = ("by file", "by Airflow", "in a process", "by command", "by XCom")

STEP = re.compile(r"(?m)^\| (\d+) \| `([^`]+)` \| ([^|]+) \| [^|]+ \|$")


def is_reached(steps, number):
    """Whether a step uses an earlier one by name, or is used by it or by the code named with it."""
    where, how = steps[number]
    kind, _, other = how.rstrip("`").partition(" `")
    used = names_in(node_of(where))
    if kind in OUTSIDE:
        return True
    places = [place for place, _ in steps[:number]] + [other] * (":" in other)
    named = {place: re.split("[:.]", place)[-1] for place in (where, *places)}
    return any(named[where] in names_in(node_of(place)) or named[place] in used for place in places)


def walks():
    """Where each step of a walk is, and how it is reached, by the walk's title."""
    found = {}
    for part in PAGE.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        if title.startswith("Walk: "):
            steps = STEP.findall(body)
            assert [number for number, *_ in steps] == [str(i + 1) for i in range(len(steps))]
            found[title.removeprefix("Walk: ")] = [(where, how) for _, where, how in steps]
    return found


WALKS = walks()


@functools.cache
def node_of(where):
    path, _, name = where.partition(":")
    top = ROOT if path.startswith("dags/") else ROOT / "privsyn"
    node: ast.AST = ast.parse((top / path).read_text())
    for part in filter(None, name.split(".")):
        node = next(
            child
            for child in getattr(node, "body", [])
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
        )
    return node


OF_ALL_METHODS = ("privsyn.methods.base", "privsyn.methods.registry", "privsyn.methods.shared")


def sources(package):
    """A module, or those of a folder; of privsyn without the operators, which import more."""
    module = ROOT / f"{package}.py"
    files = [module] if module.is_file() else list((ROOT / package).rglob("*.py"))
    assert files, package
    return [file for file in files if package != "privsyn" or "airflow" not in file.parts]


@functools.cache
def imports(file, *, at_run=False):
    """Modules and names that a file imports, wherever in it: ``from a import b`` is ``a.b``.

    Args:
        file: The file.
        at_run: Leave out what stands under ``if TYPE_CHECKING``.
    """
    found, tree = set(), ast.parse(file.read_text())
    typed = {
        part
        for node in ast.walk(tree)
        if at_run and isinstance(node, ast.If) and "TYPE_CHECKING" in names_in(node.test)
        for part in ast.walk(node)
    }
    for node in [part for part in ast.walk(tree) if part not in typed]:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}, line {node.lineno}: write the whole name"
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def within(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_every_form_of_an_import_is_seen(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "import privsyn.ledger as books, os\n"
        "from privsyn import stages\n"
        "def later():\n    from privsyn.stages import plan\n"
    )
    assert imports(file) == {"privsyn.ledger", "os", "privsyn.stages", "privsyn.stages.plan"}
    other = tmp_path / "other.py"
    other.write_text("from . import stages\n")
    with pytest.raises(AssertionError, match=r"other\.py, line 1: write the whole name"):
        imports(other)


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
        ("privsyn/dp", "methods stages ledger"),
        ("privsyn/ledger", "methods stages data.readers.formats"),
        ("privsyn/models", "methods stages ledger"),
        ("privsyn/methods", "stages ledger tracking"),
        ("privsyn/data", "stages methods"),
        ("privsyn", "airflow"),
    ],
)
def test_imports_point_inward(package, may_not):
    banned = [*(f"privsyn.{name}" for name in may_not.split()), "privsyn.airflow", "airflow"]
    for file in sources(package):
        for name in imports(file):
            assert not within(name, banned), f"{file} imports {name}"
    for file in (*sources("privsyn"), *sources("privsyn/airflow"), *sources("dags")):
        assert not any(within(name, ["tools"]) for name in imports(file)), file


@pytest.mark.parametrize(
    ("package", "may"),
    [
        (
            "validation",
            "data dp errors files ledger.settings modalities on_disk release.advice layout section",
        ),
        ("evaluation", "models data dp errors files section sentences layout report.document"),
        ("tracking", "errors files"),
        ("publishing", "config data errors files layout section"),
    ],
)
def test_what_stages_call_imports_little_of_privsyn(package, may):
    allowed = tuple(f"privsyn.{name}" for name in (package, *may.split()))
    for file in sources(f"privsyn/{package}"):
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


def test_packages_import_each_other_nowhere_new():
    """Else neither can be read without the other. Imports for types alone do not count."""
    arrows = set()
    for file in (ROOT / "privsyn").rglob("*.py"):
        mine = file.relative_to(ROOT / "privsyn").parts[0].removesuffix(".py")
        wanted = imports(file, at_run=True)
        arrows |= {(mine, name.split(".")[1]) for name in wanted if within(name, ("privsyn",))}
    both = {f"{a}, {b}" for a, b in arrows if a < b and (b, a) in arrows}
    assert not both, f"these import each other: {sorted(both)}"


def test_stand_ins_stay_in_tests():
    """No release can come to be drawn with a fake because something imported one."""
    for folder in ("privsyn", "dags", "operators"):
        for file in (ROOT / folder).rglob("*.py"):
            assert not any(within(name, ("tests",)) for name in imports(file)), file


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
        "data/readers/formats.py", "data/partition.py", "stages/base.py", "stages/audit.py",
        "stages/partition.py", "stages/draw.py", "columns/marginals.py",
    }  # fmt: skip


def test_the_operators_have_one_name():
    """By the name `operators` a user's own package may stand beside them."""
    for folder in ("privsyn", "dags", "tests", "tools", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            assert not any(name.split(".")[0] == "operators" for name in imports(file)), file


@pytest.mark.parametrize("package", ["privsyn/stages", "privsyn/students", "privsyn/airflow"])
def test_what_serves_all_methods_names_none(package):
    """Code that a new method would have to touch: strings beside docstrings, and settings."""
    shipped = {
        # is about the methods that are shipped
        "privsyn/stages/plan.py"  # advice on images
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


def is_documented(node):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds)


def names_in(node):
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


@pytest.mark.parametrize("walk", WALKS)
def test_the_code_goes_the_way_of_a_walk(walk):
    steps = WALKS[walk]
    assert steps[0][1] == "start"
    lost = [steps[number] for number in range(1, len(steps)) if not is_reached(steps, number)]
    assert lost == []
    strange = [*steps, ("data/words.py:worth", "called")]
    assert not is_reached(strange, len(steps))


def test_the_first_draw_is_near():
    steps = WALKS["from a DAG file to the first private draw"]
    files = {where.partition(":")[0] for where, _ in steps}
    assert f"{len(steps)} steps in {len(files)} files" in PAGE
    assert len(steps) <= 18
    assert len(files) <= 11


def test_there_are_four_walks():
    assert list(WALKS) == [
        "from a DAG file to the first private draw",
        "a private record",
        "a setting",
        "a privacy event",
    ]
    assert all(len(steps) > 15 for steps in WALKS.values())
