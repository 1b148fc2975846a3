"""The notebooks run as they stand, and show nothing private and nothing of a machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pyarrow import parquet

from tests import preloaded
from tests.integration.e2e.small_project import CANARY

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {
    name: nbformat.read(ROOT / "docs/notebooks" / f"{name}.ipynb", as_version=4)
    for name in (
        "ten_minutes",
        "auditor",  # goes on from the first
        "budget_year",
        "choosing",
        "images",
        "student",
    )
}
PLANTED = f"frame['text'] += ' {CANARY}'"
FRAMES = ("portal/.privsyn/data/portal-v1.parquet", "school/.privsyn/data/school-v1.parquet",
          "choice/.privsyn/data/choice-v1.parquet")  # fmt: skip


def shown(notebook):
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            found += [str(output.get("text", "")), str(output.get("evalue", ""))]
            found += [str(output.get("traceback", ""))]
            data = output.get("data", {})
            found += [str(value) for kind, value in data.items() if kind.startswith("text/")]
    return "\n".join(found)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_they_run_and_show_no_record_of_a_frame(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "executable", preloaded.python())  # a kernel each
    for name, saved in NOTEBOOKS.items():
        notebook = nbformat.from_dict(saved)
        private = [
            place
            for place, cell in enumerate(notebook.cells)
            if "private-data" in cell.metadata.get("tags", ())
        ]
        for place in private:
            notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(PLANTED))
        NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
        ).execute()
        assert CANARY not in shown(notebook), name
        assert len(shown(notebook)) > 3000, name
    for kept in FRAMES:
        rows = str(parquet.read_table(tmp_path / kept).to_pylist())
        assert CANARY in rows, f"the canary was not planted in {kept}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_are_saved_with_outputs_in_order_and_without_a_path_or_an_error(name):
    notebook = NOTEBOOKS[name]
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) / 2
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    written = nbformat.writes(notebook)
    assert not re.search(r"/(home|tmp|root|work|Users|var)/", written)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


def test_every_notebook_is_run():
    assert {file.stem for file in (ROOT / "docs/notebooks").glob("*.ipynb")} == NOTEBOOKS.keys()
