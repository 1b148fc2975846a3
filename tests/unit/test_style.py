"""The checks of names and phrases, and of the ceilings."""

from tools import ceilings, style


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


def test_the_project_is_below_its_ceilings(capsys):
    assert ceilings.main([]) == 0, capsys.readouterr().out


def test_a_ceiling_may_only_fall(tmp_path, monkeypatch, capsys):
    file = tmp_path / "ceilings.toml"
    file.write_text("# why\n\ncode_lines = 5\nsettings = 3\n")
    monkeypatch.setattr(ceilings, "CEILINGS", file)
    monkeypatch.setattr(ceilings, "measures", lambda: {"code_lines": 6, "settings": ["a", "b"]})

    assert ceilings.main(["--update"]) == 1
    assert file.read_text() == "# why\n\ncode_lines = 5\nsettings = 2\n"
    assert "code_lines=6 exceeds its ceiling 5 in tools/ceilings.toml." in capsys.readouterr().out
