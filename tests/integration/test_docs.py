"""The site of the documents builds."""

import re
import subprocess
import sys

import pytest

from tests.unit.test_docs import ROOT


@pytest.mark.slow
def test_the_site_builds(docs_site, tmp_path):
    """Strictly: no dead link, no page beside the nav; and nothing in it of this machine."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    notes = list((ROOT / "privsyn").rglob("*.md"))
    assert len(list(site.glob("notes/*.html"))) == len(notes) >= 7
    notebooks = {file.stem for file in (ROOT / "docs/notebooks").glob("*.ipynb")}
    assert {file.stem for file in site.glob("notebooks/*.html")} == notebooks
    assert "Authentic: confirmed by the ledger" in (site / "notebooks/ten_minutes.html").read_text()
    assert len(list(site.glob("reference/*.html"))) == len(docs_site.modules()) + 2 > 100
    pages = {file: file.read_text() for file in site.rglob("*.html")}
    pages |= {file: file.read_text() for file in site.rglob("*.json")}
    assert [file.name for file, text in pages.items() if str(ROOT) in text] == []
    fetched = r'<(?:script|img|link|iframe)[^>]*(?:src|href)="?(?:https?:)?//'
    assert [file.name for file, text in pages.items() if re.search(fetched, text)] == []
