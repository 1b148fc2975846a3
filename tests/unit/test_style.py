"""The check of names and phrases."""

from __future__ import annotations

import ast
from pathlib import Path

from tools import style


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
