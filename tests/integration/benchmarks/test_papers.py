"""The experiments of the papers: their configurations, and the small run of each."""

import json
from pathlib import Path

import pytest

from privsyn.config import load_config

PAPERS = Path(__file__).parents[3] / "benchmarks" / "papers"
with pytest.MonkeyPatch.context() as patch:  # as where a benchmark is started
    patch.syspath_prepend(PAPERS)
    from run import SMALL, main


@pytest.mark.parametrize("paper", SMALL)
def test_a_papers_configuration_is_its_preset_for_its_data(paper):
    config = load_config(PAPERS / paper / "params.yaml")
    assert config.pipeline == (paper,)
    assert config.preset(paper) == "paper"
    page = (PAPERS / paper / "README.md").read_text(encoding="utf-8")
    assert "Data: " in page
    assert "| paper, " in page


@pytest.mark.parametrize("paper", SMALL)
def test_a_small_run_gives_a_row(paper, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([paper, str(tmp_path / "run"), "--small"])
    printed = capsys.readouterr().out
    row, _ = json.JSONDecoder().raw_decode(printed)
    assert row["paper"] == paper
    assert 0 < row["epsilon"] <= 20
    assert row["metrics"]
    assert (tmp_path / "run" / "releases" / row["release"] / "certificate.json").is_file()
    assert "| paper, " in printed
