"""privsyn: differentially private synthetic data on a schedule."""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "Project": "privsyn.api.project",
    "Release": "privsyn.api.released",
    "PrivsynError": "privsyn.errors",
}
"""The public names, and where they are: loaded when they are asked for."""

__all__ = ["PrivsynError", "Project", "Release", "__version__"]


def __getattr__(name: str) -> object:
    """A public name, loaded on demand: `import privsyn` is cheap."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'privsyn' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
