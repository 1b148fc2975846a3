"""What the reference pages need of docstrings beyond Google's style: an extension of griffe.

Examples for doctest stand in them without a section of their own, and tags such as ``[B12]``
without being links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Plain(griffe.Extension):
    """Sessions as code, tags as text."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of whatever was read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring with its doctests fenced and its tags escaped."""
    blocks = re.split(r"\n[ \t]*\n", text)
    return "\n\n".join(map(_block, blocks))


def _block(block: str) -> str:
    if not block.lstrip().startswith(">>>"):
        return re.sub(r"(?<!`)\[([A-Z]\d+)\]", r"\\[\1\\]", block)
    indent = block[: len(block) - len(block.lstrip())]
    return f"{indent}```pycon\n{block}\n{indent}```"
