"""privsyn: differentially private synthetic text and images, with one budget for all releases."""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "Project": "privsyn.api.project",
    "Release": "privsyn.api.released",
    "PrivsynError": "privsyn.errors",
}
"""Public names and their modules, which are loaded on first use."""

__all__ = ["PrivsynError", "Project", "Release", "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that `import privsyn` is fast."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'privsyn' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
