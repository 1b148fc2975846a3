"""Which way imports may point, and what a light command may load."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from privsyn.methods.registry import METHODS

ROOT = Path(__file__).parents[2]


OF_ALL_METHODS = ("privsyn.methods.base", "privsyn.methods.registry", "privsyn.methods.shared")


def sources(package: str) -> list[Path]:
    """A module, or those of a folder; of privsyn without the operators, which import more."""
    module = ROOT / f"{package}.py"
    files = [module] if module.is_file() else list((ROOT / package).rglob("*.py"))
    assert files, package
    return [file for file in files if package != "privsyn" or "airflow" not in file.parts]


def imports(file: Path, *, at_run: bool = False) -> set[str]:
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
        ("privsyn/airflow", ("tools",)),
        ("dags", ("tools",)),
    ],
)
def test_imports_point_inward(package, may_not):
    for file in sources(package):
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
                "modalities",
                "on_disk",
                "release.advice",
                "layout",
                "section",
            ),
        ),
        (
            "evaluation",
            (
                "models",
                "data",
                "dp",
                "errors",
                "files",
                "section",
                "sentences",
                "layout",
                "report.document",
            ),
        ),
        ("tracking", ("errors", "files")),
        (
            "publishing",
            (
                "config",
                "data",
                "errors",
                "files",
                "layout",
                "section",
            ),
        ),
    ],
)
def test_what_stages_call_imports_little_of_privsyn(package, may):
    allowed = tuple(f"privsyn.{name}" for name in (package, *may))
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


# --- the walks of docs/architecture.md ------------------------------------------------------------

PAGE = (ROOT / "docs/architecture.md").read_text()
STEP = re.compile(r"(?m)^\| (\d+) \| `([^`]+)` \| ([^|]+) \| [^|]+ \|$")


def walks() -> dict[str, list[tuple[str, str]]]:
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
def parsed(path: str) -> ast.Module:
    top = path.partition("/")[0]
    folder = ROOT if top == "dags" else ROOT / "privsyn"
    return ast.parse((folder / path).read_text())


@functools.cache
def node_of(where: str) -> ast.AST:
    """A module, class or function, by its file and name."""
    path, _, name = where.partition(":")
    node: ast.AST = parsed(path)
    for part in filter(None, name.split(".")):
        node = next(
            child
            for child in getattr(node, "body", [])
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
        )
    return node


def names_in(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def first_use(where: str, step: str, *, read: bool = False) -> int | None:
    """Line at which the code at ``where`` first calls a step by name, or reads it as a property."""
    node, name = node_of(where), step.rpartition(":")[2].rpartition(".")[2]
    aliases = {
        alias.asname: alias.name
        for part in ast.walk(parsed(where.partition(":")[0]))
        if isinstance(part, ast.ImportFrom)
        for alias in part.names
        if alias.asname
    }
    # The step itself, not its own definition or a use of its name as an argument.
    lines = [
        part.lineno
        for part in ast.walk(node)
        if (
            isinstance(part, ast.Call)
            and name in {aliases.get(used, used) for used in names_in(part.func)}
        )
        or (read and isinstance(part, ast.Attribute) and part.attr == name)
    ]
    return min(lines, default=None)


def is_property(where: str) -> bool:
    marks = getattr(node_of(where), "decorator_list", [])
    return any(names_in(mark) & {"property", "cached_property"} for mark in marks)


def strings(node: ast.AST) -> set[str]:
    constants = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def fault(steps: Sequence[tuple[str, str]], number: int) -> str | None:
    """What is wrong with a step of a walk; None: the code goes that way."""
    where, how = steps[number]
    earlier = [place for place, _ in steps[:number]]
    before, name = earlier[-1], where.rpartition(":")[2].rpartition(".")[2]
    kind, _, other = how.partition(" `")
    other = other.rstrip("`")
    read = is_property(where)
    if kind == "called":
        good = first_use(before, where) is not None
    elif kind == "read":
        good = read and first_use(before, where, read=True) is not None
    elif kind == "takes":
        source = other or before
        known = source in earlier
        good = known and first_use(where, source, read=is_property(source)) is not None
    elif kind == "next in":
        here = first_use(other, where)
        come = [first_use(other, place, read=is_property(place)) for place in earlier]
        # Control comes back to a function that is on the way, or that called an earlier step.
        good = here is not None and (
            other in earlier or any(line is not None and line < here for line in come)
        )
    elif kind == "as a callback":
        good = any(hands_on(place, name) for place in earlier) and calls_an_argument(before)
    elif kind == "by file":
        good = other in names_in(node_of(before)) and other in names_in(node_of(where))
    elif kind == "by Airflow":
        # The row before makes the operator whose method comes next.
        good = steps[number + 1][0].rpartition(":")[2].split(".")[0] in names_in(node_of(before))
    elif kind == "in a process":
        module = parsed(before.partition(":")[0])
        commands = [
            part.targets[0].id
            for part in module.body
            if isinstance(part, ast.Assign)
            and isinstance(part.targets[0], ast.Name)
            and isinstance(part.value, ast.Constant)
            and f"{name}()" in str(part.value.value)
        ]
        good = bool(set(commands) & names_in(node_of(before)))
    elif kind == "by command":
        given = set().union(*(strings(node_of(place)) for place in earlier))
        marks = [m for m in node_of(where).decorator_list if isinstance(m, ast.Call)]  # type: ignore[attr-defined]
        good = any("command" in names_in(m.func) and strings(m) & given for m in marks)
    elif kind == "by XCom":
        good = any("xcom_pull" in text for text in strings(parsed(where.partition(":")[0])))
    else:
        return f"{where}: {how!r} is no way to a step"
    return None if good else f"{where} is not {how} after {before}"


def hands_on(where: str, name: str) -> bool:
    """Whether a function is an argument of a call here."""
    return any(
        isinstance(argument, ast.Name) and argument.id == name
        for part in ast.walk(node_of(where))
        if isinstance(part, ast.Call)
        for argument in part.args
    )


def calls_an_argument(where: str) -> bool:
    """Whether a function calls what it was given, or took out of it."""
    parts = list(ast.walk(node_of(where)))
    local = {part.arg for part in parts if isinstance(part, ast.arg)}
    local |= {p.id for p in parts if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}
    calls = (part.func for part in parts if isinstance(part, ast.Call))
    return any(isinstance(func, ast.Name) and func.id in local for func in calls)


def test_there_are_four_walks():
    assert list(WALKS) == [
        "from a DAG file to the first private draw",
        "a private record",
        "a setting",
        "a privacy event",
    ]
    assert all(len(steps) > 15 for steps in WALKS.values())


@pytest.mark.parametrize("walk", WALKS)
def test_the_code_goes_the_way_of_a_walk(walk):
    steps = WALKS[walk]
    assert steps[0][1] == "start"
    faults = [fault(steps, number) for number in range(1, len(steps))]
    assert [problem for problem in faults if problem] == []


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_that_leaves_out_a_called_step_is_refused(walk):
    """Else a page could skip what a reader has to go through."""
    steps = WALKS[walk]
    for number in range(1, len(steps) - 1):
        (where, how), (after, then) = steps[number : number + 2]
        same = where.rpartition(".")[2] == after.rpartition(".")[2]  # seen by name, so not seen
        if how == then == "called" and not same:
            shorter = [*steps[:number], *steps[number + 1 :]]
            assert fault(shorter, number), steps[number]


def test_the_first_draw_is_near():
    steps = WALKS["from a DAG file to the first private draw"]
    files = {where.partition(":")[0] for where, _ in steps}
    assert f"{len(steps)} steps in {len(files)} files" in PAGE
    assert len(steps) <= 18
    assert len(files) <= 11
