"""Commands of DVC and git in one project.

DVC runs as a command because its Python API is not public.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from privsyn.data.artifacts import atomic_file
from privsyn.errors import ConfigError, PublishError

PROJECT_FILES = {
    ".dvc/config": """\
[core]
    analytics = false
    check_update = false
    remote = local
['remote "local"']
    url = ../.privsyn/dvc-remote
    verify = true
""",
    ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
    ".dvcignore": """\
# Folders DVC never looks into: private state, failed releases, the environment.
.privsyn/
quarantine/
.venv/
.airflow/
""",
}
"""Files of a new DVC project. Its remote is a local directory, and DVC verifies what it reads."""

_BUSY = ("Unable to acquire lock", "is busy, it is being blocked by")


class DvcCommand:
    """Runs DVC in a project, and waits for other DVC commands.

    Args:
        root: The project.
        busy_timeout: Seconds to wait for another DVC command.
    """

    def __init__(self, root: Path, *, busy_timeout: float) -> None:
        self.root = root
        self._busy_timeout = busy_timeout

    def prepare(self) -> None:
        """Make the folder a DVC project if it is not one yet, also without git."""
        if not (self.root / ".dvc" / "config").exists():
            for name, content in PROJECT_FILES.items():
                if not (self.root / name).exists():
                    with atomic_file(self.root / name, mode=0o644) as stream:
                        stream.write(content.encode())
        local = self.root / ".dvc" / "config.local"
        if not in_git(self.root) and not (local.exists() and "no_scm" in local.read_text()):
            self.run("config", "--local", "core.no_scm", "true")

    def run(self, *arguments: str) -> str:
        """Run one command and return what it printed.

        Raises:
            ConfigError: A setting of DVC or params.yaml is wrong.
            PublishError: DVC refused, or another DVC command ran for too long.
        """
        # -P: Python must not import a file of the project in place of a package.
        command = [sys.executable, "-P", "-m", "dvc", *arguments]
        deadline = time.monotonic() + self._busy_timeout
        while True:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=os.environ | {"DVC_NO_ANALYTICS": "1"},
                # A prompt, such as for a password, must fail and not wait.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            busy = any(sign in done.stdout for sign in _BUSY)
            if not busy or time.monotonic() >= deadline:
                raise _refusal(arguments, done.stdout, busy=busy)
            time.sleep(0.5)


def _refusal(arguments: Sequence[str], output: str, *, busy: bool) -> PublishError | ConfigError:
    """DVC's own error in one line, with the next step."""
    # A remote's URL may hold a password, and this text ends up in logs.
    text = re.sub(r"//[^/@\s]*:[^/@\s]*@", "//***@", output)
    match = re.search(r"^ERROR: (.*?)(?=^ERROR: |\Z)", text, re.MULTILINE | re.DOTALL)
    reason = (match[1] if match else text[-300:]).split(" - ", 1)[-1]
    message = f"dvc {arguments[0]}: {' '.join(reason.split())[:300].rstrip('.')}."
    if busy:
        return PublishError(message, hint="Another DVC command runs in this project: wait for it.")
    if "are missing from 'params.yaml'" in message:
        return ConfigError(message, hint="dvc.yaml names these sections; they may be empty: {}.")
    if "config file error" in output:
        return ConfigError(message, hint="See services.dvc_remote and: dvc remote list.")
    return PublishError(message, hint="Nothing is lost: repair it and run the same again.")


def in_git(root: Path) -> bool:
    """Whether a folder is in a git working tree."""
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def ignored(file: Path) -> bool:
    """Whether a .gitignore excludes a file; False without git."""
    try:
        done = subprocess.run(
            ["git", "check-ignore", "--quiet", file.name],
            cwd=file.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def commit_files(root: Path, files: Sequence[str], message: str, day: str) -> str:
    """Commit the existing ones of these files and nothing else; returns the commit's id.

    Args:
        root: The project.
        files: Paths relative to the project.
        message: Message of the commit.
        day: Date of the commit (ISO). privacy: the time of a finish depends on the records.

    Raises:
        PublishError: No identity, a lock, or a hook refused.
    """
    present = [file for file in files if (root / file).exists()]
    # --force: the setting asks for the commit, even if a .gitignore has the folder of releases.
    _git(root, "add", "--force", "--", *present)
    # Nothing to commit is an error for git, and a repeated publish has nothing.
    if _git(root, "status", "--porcelain", "--", *present):
        _git(root, "commit", "--quiet", "--message", message, "--", *present, day=day)
    return _git(root, "rev-parse", "HEAD")


def _git(root: Path, *arguments: str, day: str | None = None) -> str:
    # Both dates: git shows the author's and stores the committer's.
    at = f"{day}T00:00:00+0000"
    dates = {} if day is None else {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    done = subprocess.run(
        ["git", *arguments],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=os.environ | dates,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        message = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        raise PublishError(
            f"git {arguments[0]}: {message.strip()[:300].rstrip('.')}.",
            hint="The release is pushed; repair git, then publish again.",
        )
    return done.stdout.strip()
