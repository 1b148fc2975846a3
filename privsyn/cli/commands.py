"""privsyn: every command, and what becomes of an error."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from privsyn import __version__
from privsyn.cli.approval import approve, reject
from privsyn.cli.handover import compare, export
from privsyn.cli.keys import keys_app
from privsyn.cli.ledger import ledger_app, lineage_app
from privsyn.cli.models import models_app
from privsyn.cli.options import INTERRUPTED
from privsyn.cli.project import init, sample_data
from privsyn.cli.run import check, plan, record, report, restore, run, sweep, verify
from privsyn.cli.stage import stage_app
from privsyn.cli.students import distill, more
from privsyn.cli.tune import tune
from privsyn.errors import Defect, PrivsynError

app = typer.Typer(
    name="privsyn",
    help="Differentially private synthetic data: plan, draw, certify, verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


for command in (
    init, sample_data, check, plan, tune, run, approve, reject, verify, report, record, compare,
    export, restore, more, distill, sweep,
):  # fmt: skip
    app.command()(command)
app.add_typer(stage_app, name="stage")
app.add_typer(ledger_app, name="ledger")
app.add_typer(lineage_app, name="lineage")
app.add_typer(models_app, name="models")
app.add_typer(keys_app, name="keys")


def _version(asked: bool) -> None:
    if asked:
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
    if "PRIVSYN_ORIGIN" in os.environ:
        return json.dumps(
            {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        )
    return f"privsyn: {_one_line(str(error))}"


def _one_line(text: str) -> str:
    """A message on one line, whatever it quotes: a file's name may hold a line break."""
    return " ".join(text.split())


_UsageError = typer.BadParameter.__mro__[1]
"""What the command line's parser raises: a class of click's, or of the copy typer carries."""


def main() -> NoReturn:
    """Run the command line. A user's mistake is one line and an exit code, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except PrivsynError as error:
        print(_error_line(error), file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if isinstance(error, _UsageError):
            _say_usage(error)
            sys.exit(2)
        if os.environ.get("PRIVSYN_DEBUG"):
            raise
        print(f"privsyn: {Defect.of(error)}", file=sys.stderr)
        sys.exit(1)
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
    print(f"privsyn: {_one_line(error.format_message())}{hint}", file=sys.stderr)
