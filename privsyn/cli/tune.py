"""`privsyn tune`: settings tried on public records."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
import yaml

from privsyn.cli.options import PARAMS, Json, MethodName, Overrides, Params, context_of, err, out
from privsyn.display.progress import duration, show_progress, under_way
from privsyn.display.tables import Verbatim, facts, show, table
from privsyn.errors import ConfigError
from privsyn.stages.tune import Trial
from privsyn.stages.tune import tune as search


def tune(
    records: Annotated[
        str,
        typer.Argument(
            metavar="RECORDS",
            help="Public records to try on: a name under `files` in params.yaml, or a release.",
        ),
    ],
    method: MethodName = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try", metavar="SETTING=[A,B]", help="Values of a setting of the method, in YAML."
        ),
    ] = None,
    params: Params = PARAMS,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Try settings of a method on public records and show which give the better texts.

    Opens no private file and spends nothing. A release per trial, judged by what its texts teach
    about public records that were held out; one setting after the other. Can be
    interrupted and resumed.
    """

    def show_trial(trial: Trial) -> None:
        show(err, f"{_written(trial)}: {_said(trial)}")

    began = time.monotonic()
    with show_progress(err) as progress:
        with under_way(progress, "settings"):
            ctx = context_of(params, overrides, progress=progress)
        name = method or ctx.config.first_method
        trials = search(ctx, name, records, _parsed(tries), on_trial=show_trial)
    if as_json:
        print(json.dumps([trial.__dict__ for trial in trials], indent=2))
        return
    rows = [
        (
            _interval(trial.metrics, "accuracy"),
            _number(trial.metrics, "public"),
            _interval(trial.metrics, "gain", sign="+"),
            _number(trial.metrics, "real"),
            f"{trial.seconds:.0f}",
            _written(trial),
        )
        for trial in trials
        if trial.refused is None
    ]
    header = ("accuracy", "public alone", "gain", "real", "CPU s", "settings")
    table(out, header, rows, title=f"{name}, tried on {records}")
    best = trials[0]
    advice = (
        "above its own public prompt by more than the interval"
        if best.worth_its_epsilon
        else "NOT above its own public prompt by more than the interval"
    )
    commands: dict[str, str] = {"best": f"{_written(best)} ({advice})"}
    for setting, value in best.settings.items():
        commands[f"-S methods.{name}.{setting}"] = Verbatim(json.dumps(value))
    facts(out, commands)
    show(err, f"took {duration(time.monotonic() - began)}; nothing private was read")


def _parsed(tries: list[str] | None) -> dict[str, list[Any]] | None:
    if not tries:
        return None
    options = {}
    for item in tries:
        setting, equals, text = item.partition("=")
        try:
            # As -S reads values, so that what was tried can be copied from the result.
            values = yaml.safe_load(text)
        except yaml.YAMLError:
            values = None
        if not equals or not setting or not isinstance(values, list) or not values:
            raise ConfigError(
                f"--try {item!r} is not of the form SETTING=[A,B].",
                hint="Such as --try guidance=[1,3].",
            )
        options[setting] = values
    return options


def _written(trial: Trial) -> str:
    """The settings of a trial on one line; a prompt by its first words."""
    if not trial.settings:
        return "as in params.yaml"
    pairs = {name: json.dumps(value) for name, value in trial.settings.items()}
    return ", ".join(
        f"{name}={text if len(text) <= _WIDEST else text[:_WIDEST] + '...'}"
        for name, text in pairs.items()
    )


_WIDEST = 40


def _said(trial: Trial) -> str:
    return trial.refused or f"accuracy {_interval(trial.metrics, 'accuracy')}"


def _number(metrics: Any, name: str, sign: str = "") -> str:
    value = metrics.get(f"vectors.{name}")
    return "-" if value is None else f"{value:{sign}.3f}"


def _interval(metrics: Any, name: str, sign: str = "") -> str:
    ends = [_number(metrics, f"{name}_{end}", sign) for end in ("low", "high")]
    return f"{_number(metrics, name, sign)} [{', '.join(ends)}]"
