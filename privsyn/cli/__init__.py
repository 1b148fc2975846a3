"""The command line: every command is a thin driver of the stage functions."""

from privsyn.cli.commands import main

__all__ = ["main"]
