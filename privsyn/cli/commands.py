"""privsyn: every command, and what becomes of an error."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from privsyn import __version__
from privsyn.errors import TASK, Defect, PrivsynError

INTERRUPTED = 130

BEGIN, LOOK = "From a file to a release, in this order", "Look at a release"
EXPORT, MORE = "Share a release", "More from a release"
BUDGET, INNER = "Budget, approvals and keys", "For schedulers and repair"

COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": (
        BEGIN,
        "project:init",
        "Create a project: params.yaml, dvc.yaml, dags, .gitignore. Asks for what is not given.",
    ),
    "sample-data": (
        BEGIN,
        "project:sample_data",
        "Write invented patient-portal messages, or scans of digits, to try privsyn on.",
    ),
    "models": (BEGIN, "project:models_app", "List, fetch and convert models."),
    "check": (
        BEGIN,
        "run:check",
        "Count the usable records of the private file. The output is internal; no budget is used.",
    ),
    "plan": (BEGIN, "run:plan", "Show what a release would cost. Reads no records."),
    "run": (
        BEGIN,
        "run:run",
        "Make one release: plan, draw, certify, validate, evaluate, publish.",
    ),
    "verify": (
        LOOK,
        "run:verify",
        "Check a release against its certificate, the ledger and the signature.",
    ),
    "report": (LOOK, "run:report", "Write the public and the internal report of a release."),
    "compare": (
        LOOK,
        "releases:compare",
        "Compare releases of one dataset by cost and utility. The output is internal.",
    ),
    "export": (
        EXPORT,
        "releases:export",
        "Write a release as a folder for other tools, with a dataset card and its certificate.",
    ),
    "record": (
        EXPORT,
        "run:record",
        "Export metadata: OpenDP registry entry, Croissant, privacy checklist.",
    ),
    "restore": (
        EXPORT,
        "run:restore",
        "Restore a release from `services.releases` if that is set, else from DVC.",
    ),
    "more": (
        MORE,
        "releases:more",
        "Make further records from a release, at no cost. Their certificate names the release.",
    ),
    "distill": (
        MORE,
        "releases:distill",
        "Train a small language model on the texts of a release, at no cost (methods.distill).",
    ),
    "ledger": (BUDGET, "ledger:ledger_app", "Show and check the budget ledger."),
    "approve": (BUDGET, "ledger:approve", "Approve the cost or the publication of a release."),
    "reject": (BUDGET, "ledger:reject", "Reject a pending release, or revoke its approval."),
    "keys": (BUDGET, "project:keys_app", "Manage signing and vault keys."),
    "stage": (INNER, "stage:stage_app", "Run one stage, as dvc.yaml and Airflow do."),
    "lineage": (INNER, "ledger:lineage_app", "Manage the lineage in MLflow."),
    "sweep": (INNER, "run:sweep", "Delete private temporary files of finished releases."),
}
"""Commands as `privsyn --help` groups and describes them, and where each lies below privsyn.cli."""


class LoadedCommands(Mapping[str, Any]):
    """Commands by name, each imported when it is named: help and version import none."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        panel, place, _ = COMMANDS[name]
        if name not in self._loaded:
            module, _, attribute = place.partition(":")
            command = getattr(import_module(f"privsyn.cli.{module}"), attribute)
            loaded: Any
            if isinstance(command, typer.Typer):
                loaded = typer.main.get_group(command)
            else:
                # privacy: pretty exceptions print the values of local variables, which may be
                # records.
                alone = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
                alone.command(name)(command)
                loaded = typer.main.get_command(alone)
            loaded.name, loaded.rich_help_panel = name, panel
            self._loaded[name] = loaded
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandGroup(TyperGroup):
    """The commands. For an unknown word it suggests the closest one, synonyms included."""

    _helping = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # click looks a command up in this mapping, so importing can wait until one is named.
        self.commands = LoadedCommands()  # type: ignore[assignment]  # nobody adds to it

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, as the help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """A command, imported now; for the help of all of them its name and summary alone."""
        if name not in COMMANDS:
            return None
        if not self._helping:
            return self.commands[name]
        panel, _, help_text = COMMANDS[name]
        # Help and completion need only names: importing every command would take seconds.
        return TyperCommand(name, help=help_text, rich_help_panel=panel)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, which names all commands and imports none."""
        self._helping = True
        # click makes every command to list it; while this is set they have a name and a summary
        # alone.
        super().format_help(ctx, formatter)
        self._helping = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names of commands for the shell."""
        self._helping = True
        items = super().shell_complete(ctx, incomplete)
        self._helping = False
        return items

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word."""
        # Typer's own suggestions go by letters and also offer commands of the inner group.
        self.suggest_commands = False
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if not isinstance(error, _UsageError):
                raise
            from privsyn.section import nearest

            # A person who mistypes is not sent to a command for schedulers or repair.
            known = [name for name, (panel, *_) in COMMANDS.items() if panel != INNER]
            meant = _MEANT.get(args[0].casefold()) or nearest(args[0], known) if args else None
            if meant in COMMANDS:
                error.message = f"{error.message.rstrip('.')}. Did you mean {meant}?"
            raise


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
    if setting := _setting_meant(error):
        message = f"No such option: {error.option_name}. A setting is given by its name: {setting}."
    print(f"privsyn: {message}{hint}", file=sys.stderr)


def _setting_meant(error: Any) -> str:
    """How a setting is given that somebody took for an option; empty where it is none."""
    option, context = getattr(error, "option_name", None), error.ctx
    takes = context is not None and any("--set" in one.opts for one in context.command.params)
    if type(error).__name__ != "NoSuchOption" or not takes or option is None:
        return ""
    from privsyn.config import Config
    from privsyn.methods.registry import METHODS, settings_model
    from privsyn.section import settings_ending_in

    methods = {f"methods.{name}.": settings_model(name) for name in METHODS}
    setting = settings_ending_in(Config, option.lstrip("-").replace("-", "_"), methods)
    return f"-S NAME=VALUE, where NAME is {setting}" if setting else ""


def _without_kinds_of_flags(self: Any, ctx: Any) -> str | None:
    """What the help says that an option takes: nothing of a flag, which takes nothing."""
    return None if getattr(self, "is_flag", False) else _DISPLAY(self, ctx)


_DISPLAY = TyperOption.display_type_rich
TyperOption.display_type_rich = _without_kinds_of_flags  # type: ignore[method-assign]
