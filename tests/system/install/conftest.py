"""The wheel that the tests of installations install."""

import shutil
import sys

import pytest

from tests.system.install.test_install import ROOT, done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the files that git has or would take."""
    root = tmp_path_factory.mktemp("wheel")
    source = root / "source"
    known = done("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in known.split("\0"):
        if name and (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    done(sys.executable, "-W", "ignore", "-c", build, cwd=source)
    (made,) = root.glob("*.whl")
    return made
