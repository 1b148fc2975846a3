"""privsyn: every command, and what becomes of an error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup, TyperOption

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
from privsyn.spelling import nearest


class Commands(TyperGroup):
    """The commands; of a word that is none it says which was meant, by people's own words, too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word."""
        self.suggest_commands = False
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if not isinstance(error, _UsageError):
                raise
            known = [name for name in self.commands if name not in _INNER]
            meant = _MEANT.get(args[0].casefold()) or nearest(args[0], known) if args else None
            if meant in self.commands:
                error.message = f"{error.message.rstrip('.')}. Did you mean {meant}?"
            raise


_INNER = ("stage", "sweep", "lineage")
"""Commands for schedulers and repair, which nobody means by another word."""
_MEANT = {
    **dict.fromkeys(("start", "generate", "make", "synthesize", "release"), "run"),
    **dict.fromkeys(("new", "create", "begin", "setup", "project"), "init"),
    **dict.fromkeys(("cost", "price", "estimate"), "plan"),
    **dict.fromkeys(("count", "inspect", "validate"), "check"),
    **dict.fromkeys(("budget", "account", "accounts", "spent"), "ledger"),
    **dict.fromkeys(("download", "fetch", "model"), "models"),
    **dict.fromkeys(("demo", "sample", "example"), "sample-data"),
}
"""Words that people try -> the command that does it."""


app = typer.Typer(
    name="privsyn",
    cls=Commands,
    help="Differentially private synthetic data: plan, draw, certify, verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


BEGIN, LOOK = "From a file to a release, in this order", "Look at a release"
HAND_ON, MORE = "Hand a release on", "More from a release, or a better one"
BUDGET, INNER = "Budget, people and keys", "For schedulers and repair"

PANELS: Mapping[str, Sequence[Callable[..., Any] | tuple[str, typer.Typer]]] = {
    BEGIN: (init, sample_data, ("models", models_app), check, plan, run),
    LOOK: (verify, report, compare),
    HAND_ON: (export, record, restore),
    MORE: (more, distill, tune),
    BUDGET: (("ledger", ledger_app), approve, reject, ("keys", keys_app)),
    INNER: (("stage", stage_app), ("lineage", lineage_app), sweep),
}
"""Commands as `privsyn --help` groups them."""
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, tuple):
            app.add_typer(command[1], name=command[0], rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(command)


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


_UsageError: type[Any] = typer.BadParameter.__mro__[1]
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
        told = Defect.of(error)
        print(f"privsyn: {told}", file=sys.stderr)
        sys.exit(told.exit_code)
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
    said = _one_line(error.format_message())
    if setting := _setting_meant(error):
        said = f"No such option: {error.option_name}. A setting is given by its name: {setting}."
    print(f"privsyn: {said}{hint}", file=sys.stderr)


def _setting_meant(error: Any) -> str:
    """How a setting is given that somebody took for an option; empty where it is none."""
    option, context = getattr(error, "option_name", None), error.ctx
    takes = context is not None and any("--set" in one.opts for one in context.command.params)
    if type(error).__name__ != "NoSuchOption" or not takes or option is None:
        return ""
    from privsyn.config import Config
    from privsyn.methods.registry import METHODS, settings_model
    from privsyn.spelling import settings_called

    methods = {f"methods.{name}.": settings_model(name) for name in METHODS}
    found = settings_called(Config, option.lstrip("-").replace("-", "_"), methods)
    return f"-S NAME=VALUE, where NAME is {found}" if found else ""


def _without_kinds_of_flags(self: Any, ctx: Any) -> str | None:
    """What the help says that an option takes: nothing of a flag, which takes nothing."""
    return None if getattr(self, "is_flag", False) else _DISPLAY(self, ctx)


_DISPLAY = TyperOption.display_type_rich
TyperOption.display_type_rich = _without_kinds_of_flags  # type: ignore[method-assign]
