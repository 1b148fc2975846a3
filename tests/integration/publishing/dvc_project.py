"""Projects with the shipped dvc.yaml and DVC settings, and a stand-in for the stage commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import preloaded

REPOSITORY = Path(__file__).parents[3]
METHOD = "invisible_ink"

PARAMS = """\
dataset: {name: portal, path: private/portal.jsonl, version: v1}
account: {name: portal, adjacency: add_remove, epsilon: 10, delta: 1.0e-06}
privacy: {epsilon: 1.0, delta: 1.0e-06}
columns: {share: 0.25}
models: {}
pipeline: [invisible_ink]
methods:
  invisible_ink:
    batch_size: 8
validation: {}
evaluate: {}
"""

STAND_IN = f"""#!{sys.executable}
import json, pathlib, sys

_, _, stage, *rest = sys.argv
with open("private-calls.log", "a") as log:
    log.write(stage + "\\n")


def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


options = dict(zip(rest[::2], rest[1::2]))
if stage == "plan":
    method, settings = options["--method"], pathlib.Path("params.yaml").read_text()
    write(options["--out"], json.dumps({{"method": method, "settings": settings}}))
method = json.loads(pathlib.Path(options.get("--plan", options.get("--out"))).read_text())["method"]
if stage == "generate":
    write(f"synthetic/{{method}}/synthetic.jsonl", '{{"text": "drawn"}}\\n')
    write(f"synthetic/{{method}}/certificate.json", "{{}}\\n")
if stage == "validate":
    write(f"reports/{{method}}/report.html", "<p>valid</p>\\n")
    write(f"reports/{{method}}/report.json", "{{}}\\n")
    write(f"reports/{{method}}/validation.json", '{{"success": true}}\\n')
    write(f"reports/{{method}}/quality.json", '{{"distinct_1": 0.5}}\\n')
"""


@dataclass(frozen=True)
class Project:
    """A project folder and what a user does in it."""

    root: Path

    def release(self, release_id, text="hello"):
        folder = self.root / "releases" / release_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "synthetic.jsonl").write_text(json.dumps({"id": release_id, "text": text}) + "\n")
        (folder / "certificate.json").write_text(
            json.dumps({"release": release_id, "reserved_on": "2026-11-20"}) + "\n"
        )
        (folder / "validation.json").write_text('{"success": true}\n')
        (folder / "report.html").write_text("<p>valid</p>\n")
        (folder / "report.json").write_text("{}\n")
        (folder / "quality.json").write_text('{"distinct_1": 0.5}\n')
        return folder

    def current(self, release):
        for place, names in (
            ("synthetic", ("synthetic.jsonl", "certificate.json")),
            ("reports", ("validation.json", "report.html", "report.json", "quality.json")),
        ):
            folder = self.root / place / METHOD
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(release / name, folder / name)
        plan = self.root / "plans" / f"{METHOD}.json"
        plan.parent.mkdir(exist_ok=True)
        plan.write_text(json.dumps({"release_id": release.name, "method": METHOD}) + "\n")

    def dvc(self, *arguments):
        done = subprocess.run(
            [preloaded.python(), "-m", "dvc", *arguments],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def git(self, *arguments):
        return subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout

    def calls(self):
        log = self.root / "private-calls.log"
        lines = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


def read(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
