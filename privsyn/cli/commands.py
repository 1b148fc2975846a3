"""privsyn: every command, and what becomes of an error."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from privsyn import __version__
from privsyn.errors import TASK, Defect, PrivsynError

INTERRUPTED = 130

BEGIN, LOOK = "From a file to a release, in this order", "Look at a release"
EXPORT, MORE = "Share a release", "More from a release"
BUDGET, INNER = "Budget, approvals and keys", "For schedulers and repair"

COMMANDS: dict[str, tuple[str, str]] = {
    "init": (BEGIN, "project:init"),
    "sample-data": (BEGIN, "project:sample_data"),
    "models": (BEGIN, "project:models_app"),
    "check": (BEGIN, "run:check"),
    "plan": (BEGIN, "run:plan"),
    "run": (BEGIN, "run:run"),
    "verify": (LOOK, "run:verify"),
    "report": (LOOK, "run:report"),
    "export": (EXPORT, "releases:export"),
    "record": (EXPORT, "run:record"),
    "restore": (EXPORT, "run:restore"),
    "more": (MORE, "releases:more"),
    "distill": (MORE, "releases:distill"),
    "ledger": (BUDGET, "ledger:ledger_app"),
    "approve": (BUDGET, "ledger:approve"),
    "reject": (BUDGET, "ledger:reject"),
    "keys": (BUDGET, "project:keys_app"),
    "stage": (INNER, "stage:stage_app"),
    "lineage": (INNER, "ledger:lineage_app"),
    "sweep": (INNER, "run:sweep"),
}
"""Commands as `privsyn --help` groups them, and where each lies below privsyn.cli."""


def summary(name: str) -> str:
    """What a command says of itself, read from its source: importing all would take seconds."""
    module, _, attribute = COMMANDS[name][1].partition(":")
    source = Path(__file__).with_name(f"{module}.py").read_text("utf-8")
    begins = rf'(?:def {attribute}\(.*?"""|{attribute} = typer\.Typer\(help=")'
    return str(re.findall(rf'(?ms)^{begins}([^"\n]+)', source)[0])


@cache
def loaded(name: str) -> Any:
    """A command, imported now: help, completion and version import none."""
    module, _, attribute = COMMANDS[name][1].partition(":")
    command = getattr(import_module(f"privsyn.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        return typer.main.get_group(command)
    # privacy: pretty exceptions print the values of local variables, which may be records.
    alone = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    alone.command(name)(command)
    return typer.main.get_command(alone)


class CommandGroup(TyperGroup):
    """The commands. For an unknown word it suggests the closest one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, as the help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """What the help and the shell know of a command."""
        if name not in COMMANDS:
            return None
        return TyperCommand(name, help=summary(name), rich_help_panel=COMMANDS[name][0])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word."""
        name = args[0]
        if name in COMMANDS:
            return name, loaded(name), args[1:]
        if ctx.resilient_parsing:  # the shell completes a word
            return None, None, args
        from privsyn.section import nearest

        # A person who mistypes is not sent to a command for schedulers or repair.
        near = nearest(name, [known for known, (panel, _) in COMMANDS.items() if panel != INNER])
        ctx.fail(f"No such command {name!r}.{f' Did you mean {near}?' if near else ''}")


app = typer.Typer(
    name="privsyn",
    cls=CommandGroup,
    help="Differentially private synthetic data: plan, draw, certify, verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        print(f"privsyn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of privsyn itself."""


def _error_line(error: PrivsynError) -> str:
    """One line for a person; for a scheduler one JSON object, whose class decides on a retry."""
    # A parent task reads this line and raises the same error with its hint.
    if "PRIVSYN_ORIGIN" in os.environ:
        return json.dumps(
            {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        )
    return f"privsyn: {_one_line(str(error))}"


def _one_line(text: str) -> str:
    """A message on one line, whatever it quotes: a file's name may hold a line break."""
    return " ".join(text.split())


_UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""What the command line's parser raises: a class of click's, or of the copy typer carries."""


def die_with_task() -> None:
    """Have this process end with the Airflow task that started it, if one did.

    A task that is killed by SIGKILL can clean nothing up, so its child asks the kernel (Linux) for
    a SIGKILL at its death. The child does so itself: between fork and exec only C is safe.
    """
    task = os.environ.pop(TASK, None)  # what this process starts is no child of the task
    # prctl is Linux's: elsewhere a task that is killed may leave its child behind.
    if task is not None and sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(task):  # it died before the kernel knew
            sys.exit(1)


def main() -> NoReturn:
    """Run the command line. A user's mistake is one line and an exit code, never a traceback."""
    die_with_task()
    try:
        # In standalone mode typer would print errors itself and end the process with its own codes.
        code = app(standalone_mode=False)
    except PrivsynError as error:
        print(_error_line(error), file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Abort:  # Ctrl-C or Ctrl-D at a question
        print(
            "\nprivsyn: stopped at a question; run the same command again to answer it.",
            file=sys.stderr,
        )
        sys.exit(INTERRUPTED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        # Before the check for PRIVSYN_DEBUG: a mistyped option is no defect and needs no traceback.
        if isinstance(error, _UsageError):
            _say_usage(error)
            sys.exit(2)
        if os.environ.get("PRIVSYN_DEBUG"):
            raise
        # privacy: the message of a foreign exception may quote a record.
        defect = Defect.of(error)
        print(
            f"privsyn: {defect}" if isinstance(defect, Defect) else _error_line(defect),
            file=sys.stderr,
        )
        sys.exit(defect.exit_code)
    if code == INTERRUPTED:
        print("privsyn: interrupted; run the same command again to resume.", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _say_usage(error: Any) -> None:
    """What is wrong with the words of a command: one line; the help where no word was given."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    context = error.ctx
    hint = f" See: {context.command_path} --help" if context else ""
    # A mistyped value is quoted by click and may hold line breaks, and a log takes each line for
    # itself.
    message = _one_line(error.format_message())
    if type(error.__cause__).__name__ == "ValidationError":  # pydantic's, by which typer reads
        from privsyn.section import option_problem

        message = f"{message.partition(': ')[0]}: {option_problem(error.__cause__)}"
    message += "" if message.endswith((".", "?")) else "."
    if type(error).__name__ == "NoSuchOption" and context is not None:
        if any("--set" in one.opts for one in context.command.params):
            message += " A setting is given by its name: -S NAME=VALUE."
    print(f"privsyn: {message}{hint}", file=sys.stderr)
