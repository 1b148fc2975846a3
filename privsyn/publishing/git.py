"""The optional git step of publishing: a commit of the published DVC files and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from privsyn.errors import PublishError


def in_git(root: Path) -> bool:
    """Whether a folder lies in a git working tree."""
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def ignored(file: Path) -> bool:
    """Whether git leaves a file out because of a .gitignore; no where there is no git."""
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
    """Commit those of the files that exist, leaving whatever else is staged; the commit's id.

    Args:
        root: The project.
        files: Relative to it.
        message: Of the commit.
        day: Its date (ISO): when a release was finished depends on its records.

    Raises:
        PublishError: No identity, a lock, or a hook refused.
    """
    present = [file for file in files if (root / file).exists()]
    # Also where a .gitignore has the folder of the releases: to commit them was asked for.
    _git(root, "add", "--force", "--", *present)
    if _git(root, "status", "--porcelain", "--", *present):
        _git(root, "commit", "--quiet", "--message", message, "--", *present, day=day)
    return _git(root, "rev-parse", "HEAD")


def _git(root: Path, *arguments: str, day: str | None = None) -> str:
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
        said = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        raise PublishError(
            f"git {arguments[0]}: {said.strip()[:300].rstrip('.')}.",
            hint="The release is pushed; repair git, then publish again.",
        )
    return done.stdout.strip()
