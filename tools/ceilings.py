"""Measure how large the project is, and compare with the ceilings in tools/ceilings.toml.

    python tools/ceilings.py            # exit code 1 if a measure is above its ceiling
    python tools/ceilings.py --update   # lower the ceilings to today's measures; none is raised
    python tools/ceilings.py --list     # the measures, and what is counted

Measures: lines of code in ``privsyn/`` without comments, docstrings and blank lines; settings of
params.yaml, those of every method included; functions of more than 60 lines without the docstring;
pairs of packages that import each other, whatever the line (imports for type checkers do not
count); words in ``docs/*.md`` and in ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parent.parent
CEILINGS = Path(__file__).with_name("ceilings.toml")
LONG = 60  # lines of a function, without its docstring
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines with a token that is neither a comment nor part of a bare string."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def long_functions(tree: ast.AST) -> Iterator[str]:
    """Names of the functions with more lines than ``LONG``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            first = node.body[1].lineno if documented else node.lineno
            if (node.end_lineno or first) - first + 1 > LONG:
                yield node.name


def imported_packages(tree: ast.AST) -> set[str]:
    """Packages of privsyn that a module imports, anywhere but for type checkers."""
    typed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            typed.update(ast.walk(node))
    names: list[str] = []
    for node in ast.walk(tree):
        if node in typed:
            continue
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "privsyn":
            names += [f"privsyn.{name.name}" for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.split(".")[1] for name in names if name.startswith("privsyn.")}


def two_way_pairs(imports: dict[str, set[str]]) -> list[str]:
    """Pairs of packages that import each other."""
    return sorted(
        f"{name} and {other}"
        for name, others in imports.items()
        for other in others
        if name < other and name in imports.get(other, ())
    )


def settings() -> dict[str, Any]:
    """All settings by their dotted names: the leaves of the configuration and of each method's."""
    from pydantic import BaseModel

    from privsyn.config import Config
    from privsyn.methods.registry import METHODS, load_method
    from privsyn.section import descriptions

    def models(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        for inner in get_args(annotation):
            yield from models(inner)

    def leaves(
        model: type[BaseModel], path: str, above: tuple[type, ...]
    ) -> Iterator[tuple[str, Any]]:
        for name, field in model.model_fields.items():
            sections = [inner for inner in models(field.annotation) if inner not in above]
            if not sections:
                field.description = descriptions(model)[name]
                yield path + name, field
            for section in sections:
                yield from leaves(section, f"{path}{name}.", (*above, section))

    found = dict(leaves(Config, "", ()))
    for method in METHODS:
        found.update(leaves(load_method(method).Config, f"methods.{method}.", ()))
    return found


def words(*files: Path) -> int:
    """Words of documents, as ``wc -w`` counts them."""
    return sum(len(file.read_text(encoding="utf-8").split()) for file in files)


def measures() -> dict[str, int | list[str]]:
    """Today's measures by the names of tools/ceilings.toml: a number, or what is counted."""
    lines = 0
    functions: list[str] = []
    imports: dict[str, set[str]] = {}
    for file in sorted(ROOT.glob("privsyn/**/*.py")):
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines += code_lines(source)
        functions += [f"{file.relative_to(ROOT)}:{name}" for name in long_functions(tree)]
        package = file.relative_to(ROOT / "privsyn").parts[0].removesuffix(".py")
        imports.setdefault(package, set()).update(imported_packages(tree) - {package})
    return {
        "code_lines": lines,
        "settings": sorted(settings()),
        "functions_over_60_lines": functions,
        "two_way_packages": two_way_pairs(imports),
        "words_in_docs": words(*ROOT.glob("docs/*.md")),
        "words_in_results": words(ROOT / "benchmarks" / "RESULTS.md"),
    }


def main(arguments: list[str]) -> int:
    """Compare today's measures with the ceilings."""
    comment, _, table = CEILINGS.read_text(encoding="utf-8").partition("\n\n")
    ceilings = tomllib.loads(table)
    listed = measures()
    today = {name: len(now) if isinstance(now, list) else now for name, now in listed.items()}
    if "--list" in arguments:
        for name, now in listed.items():
            print(name, today[name], *(now if isinstance(now, list) else ()), sep="\n  ")
    if "--update" in arguments:
        ceilings = {name: min(ceiling, today[name]) for name, ceiling in ceilings.items()}
        table = "".join(f"{name} = {ceiling}\n" for name, ceiling in ceilings.items())
        CEILINGS.write_text(f"{comment}\n\n{table}", encoding="utf-8")
    above = [name for name, ceiling in ceilings.items() if today[name] > ceiling]
    for name in above:
        print(f"{name}={today[name]} exceeds its ceiling {ceilings[name]} in tools/ceilings.toml.")
    if above:
        print("Take something away, or raise the ceiling by hand in a commit of its own.")
    return int(bool(above))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
