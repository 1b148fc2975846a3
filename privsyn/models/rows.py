"""What prompts say of a record's columns, beside its label."""

from __future__ import annotations

_ROW = "\x1f"  # in no label: labels are printed
COLUMNS = "{columns}"
"""The place of a row's words in a prompt."""
_LINE = f"Details: {COLUMNS}\n"
_TEXTS = ("{reference}", "{text}", "{phrases}")


def with_row(label: str | None, words: str) -> str | None:
    """A label as prompts take it, with the words of a row; without words the label itself."""
    return f"{label or ''}{_ROW}{words}" if words else label


def split_row(key: str | None) -> tuple[str | None, str]:
    """The label and the words of ``with_row``.

    >>> split_row(with_row("sleep", "age: 40 to 49")), split_row(with_row(None, "")), split_row("a")
    (('sleep', 'age: 40 to 49'), (None, ''), ('a', ''))
    """
    label, mark, words = (key or "").partition(_ROW)
    return (label or None if mark else key), words


def with_columns(prompt: str) -> str:
    r"""A prompt that names the columns: in its own words, or in a line behind that of the label.

    >>> with_columns("Topic: {label}\nText:")
    'Topic: {label}\nDetails: {columns}\nText:'
    """
    if COLUMNS in prompt:
        return prompt
    lines = prompt.splitlines(keepends=True)
    places = [
        place
        for place, line in enumerate(lines, 1)
        if "{label}" in line and line.endswith("\n") and not any(slot in line for slot in _TEXTS)
    ]
    if not places:
        return begin_with(_LINE, prompt)
    return "".join([*lines[: places[-1]], _LINE, *lines[places[-1] :]])


def begin_with(line: str, prompt: str) -> str:
    """The prompt with a first line, after the special token that may begin it."""
    # A special token must stay the first of the prompt, where the model learned it.
    if prompt.startswith("<|") and "|>" in prompt:
        head, mark, rest = prompt.partition("|>")
        return f"{head}{mark}{line}{rest}"
    return line + prompt
