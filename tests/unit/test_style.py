"""The checks of names and phrases, and of the ceilings."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from tools import ceilings, style


def test_arguments_and_variables_count_as_names():
    tree = ast.parse("def f(told, *, limit):\n    found = told\n    return found")

    assert {name for _, name in style.assigned(tree)} == {"told", "limit", "found"}


def test_a_banned_phrase_names_its_line():
    places = list(style.phrases(Path("page.md"), "The plan is stale.\nThere is none to mend.\n"))

    assert [(line, text) for _, _, line, text in places] == [(2, "is none"), (2, "mend")]


def test_counts_may_only_fall(tmp_path, monkeypatch, capsys):
    package = tmp_path / "privsyn" / "data"
    package.mkdir(parents=True)
    (package / "rows.py").write_text("found = 1\n")
    monkeypatch.setattr(style, "ROOT", tmp_path)
    monkeypatch.setattr(style, "ALLOWED", tmp_path / "allowed.json")
    assert style.main(["--update"]) == 0
    assert style.main([]) == 0

    (package / "rows.py").write_text("found = told = 1\n")
    assert style.main([]) == 1
    assert "privsyn/data: 2 name violations of STYLE.md, allowed 1." in capsys.readouterr().out


def test_code_may_move_between_packages(tmp_path, monkeypatch):
    for name in ("data", "dp"):
        (tmp_path / "privsyn" / name).mkdir(parents=True)
    (tmp_path / "privsyn" / "data" / "rows.py").write_text("found = 1\n")
    monkeypatch.setattr(style, "ROOT", tmp_path)
    monkeypatch.setattr(style, "ALLOWED", tmp_path / "allowed.json")
    style.main(["--update"])

    (tmp_path / "privsyn" / "data" / "rows.py").rename(tmp_path / "privsyn" / "dp" / "rows.py")

    assert style.main([]) == 0


def test_the_project_is_below_its_ceilings(capsys):
    assert ceilings.main([]) == 0, capsys.readouterr().out


def test_comments_and_docstrings_are_no_code():
    source = '"""Page.\n\nMore."""\n\nx = [  # why\n    1,\n]\n\n# note\ny = """a\nb"""\n'

    assert ceilings.code_lines(source) == 5


def test_a_docstring_does_not_make_a_function_long():
    def function(lines: int, docstring: int) -> ast.AST:
        return ast.parse(f'def f():\n    """{chr(10) * docstring}"""\n' + "    x = 1\n" * lines)

    assert list(ceilings.long_functions(function(60, 50))) == []
    assert list(ceilings.long_functions(function(61, 50))) == ["f"]


def test_packages_that_import_each_other_are_a_pair():
    source = """
    from __future__ import annotations
    from typing import TYPE_CHECKING
    import privsyn.data.rows
    from privsyn import ledger
    if TYPE_CHECKING:
        from privsyn.stages import plan
    def later():
        from privsyn.models.text import load
    """
    imported = ceilings.imported_packages(ast.parse(inspect.cleandoc(source)))

    assert imported == {"data", "ledger", "models"}
    pairs = ceilings.two_way_pairs({"api": imported, "data": {"api"}, "models": {"data"}})
    assert pairs == ["api and data"]


def test_settings_of_sections_and_methods_are_counted():
    found = ceilings.settings()

    assert {"privacy.epsilon", "methods.private_evolution.population"} <= found.keys()
    assert not {"privacy", "methods.private_evolution"} & found.keys()


def test_a_ceiling_may_only_fall(tmp_path, monkeypatch, capsys):
    file = tmp_path / "ceilings.toml"
    file.write_text("# why\n\ncode_lines = 5\nsettings = 3\n")
    monkeypatch.setattr(ceilings, "CEILINGS", file)
    monkeypatch.setattr(ceilings, "measures", lambda: {"code_lines": 6, "settings": ["a", "b"]})

    assert ceilings.main(["--update"]) == 1
    assert file.read_text() == "# why\n\ncode_lines = 5\nsettings = 2\n"
    assert "code_lines=6 exceeds its ceiling 5 in tools/ceilings.toml." in capsys.readouterr().out
