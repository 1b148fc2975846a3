"""The core imports numpy, scipy and opendp only, and planning starts neither scipy nor opendp."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import privsyn.dp

ALLOWED = {"numpy", "scipy", "opendp", "privsyn"}


def test_core_imports_nothing_else() -> None:
    for path in Path(privsyn.dp.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path.name
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, (path.name, name)
                assert top != "privsyn" or name.startswith("privsyn.dp"), (path.name, name)
                assert top not in {"random", "time", "datetime", "os", "logging"}, (path.name, name)
