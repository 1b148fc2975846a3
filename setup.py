"""Puts the repository's own project files into the wheel, as the template of new projects."""

from pathlib import Path
from shutil import copyfile

from setuptools import setup
from setuptools.command.build_py import build_py

FILES = ["params.yaml", "dvc.yaml", ".gitignore", "dags/.airflowignore"]
FILES += sorted(path.as_posix() for path in Path("dags").glob("*.py"))


class BuildWithTemplate(build_py):
    """``build_py`` that also copies ``FILES``. In a checkout they are read where they are."""

    def run(self):
        """Copy the files where a wheel is built."""
        super().run()
        if not self.editable_mode:
            for name in FILES:
                target = Path(self.build_lib, "privsyn", "template", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                copyfile(name, target)

    def get_source_files(self):
        """Sources of an sdist: a wheel may be built from it."""
        return [*super().get_source_files(), *FILES]


setup(cmdclass={"build_py": BuildWithTemplate})
