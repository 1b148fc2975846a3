"""How many releases accounts hold; CPU seconds of plans, of a large ledger, of many projects.

    PYTHONPATH=. python benchmarks/load.py ledger [--releases 5000] [--accounts 1]
        [--ledger postgresql://USER@HOST/EMPTY]
    PYTHONPATH=. python benchmarks/load.py dags [--projects 50]
    PYTHONPATH=. python benchmarks/load.py runs --ledger postgresql://USER@HOST/EMPTY [--runs 20]
    PYTHONPATH=. python benchmarks/load.py fits     # rows of benchmarks/budget.jsonl
    PYTHONPATH=. python benchmarks/load.py plans    # rows of benchmarks/plan.jsonl

Figures are CPU seconds of the process (``resource``), which a busy machine does not change much.
The ledger is SQLite unless an empty database is named. Its releases are Gaussian noise of fifty
sizes, written in one transaction. ``privsyn ...`` are processes as a user starts them.

``runs`` makes releases of three projects that share a ledger, each in a process of its own, all at
once and some of them twice, by the stages that Airflow's tasks run, without MLflow and DVC. What
may be retried is, as there. Then it compares what was charged with what was released.

``fits`` counts the releases of epsilon 1 that an account admits: one that declares nothing, one
that declares rooms for as many as it can hold, and beside them the exact composition of as many as
the whole cap allows with hindsight. Kinds of a mix come in turn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from privsyn.dp.accountant import composed_epsilon, fixed_epsilon
from privsyn.dp.adjacency import Guarantee
from privsyn.dp.calibration import calibrate, calibrate_range
from privsyn.dp.event_tree import Part
from privsyn.dp.events import (
    BoundedRange,
    DiscreteGaussian,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    RandomAllocation,
    Rounds,
    SampledGaussian,
)
from privsyn.dp.filters import fixed_parts, gaussian_mu_squared
from privsyn.dp.rooms import NO_ROOMS
from privsyn.errors import ConfigError, PrivsynError
from privsyn.ledger.caps import Cap
from privsyn.ledger.ledger import Ledger
from privsyn.ledger.settings import BucketsRoomConfig, RoomsConfig
from privsyn.ledger.spec import Split, rooms_for
from privsyn.release.facts import ReleaseFacts
from privsyn.stages.base import open_context
from privsyn.stages.run import run
from privsyn.tracking import MlflowTracker
from tests import preloaded
from tests.integration.e2e.small_project import METHODS as METHODS_OF_TESTS
from tests.integration.e2e.small_project import build_project
from tests.system.dags.conftest import make_project

METHODS = (
    "invisible_ink",
    "private_prediction",
    "private_evolution",
    "keyphrase_seeding",
    "dp_lora",
)


def main() -> None:
    """Print what either takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("ledger", "dags", "runs", "fits", "plans"))
    parser.add_argument("--releases", type=int, default=5000)
    parser.add_argument("--accounts", type=int, default=1)
    parser.add_argument("--projects", type=int, default=50)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ledger", help="an empty database, for ledger and runs")
    arguments = parser.parse_args()
    if arguments.what == "fits":
        return of_fits()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "ledger":
            of_ledger(Path(folder), arguments.releases, arguments.accounts, arguments.ledger)
        elif arguments.what == "dags":
            of_dags(Path(folder), arguments.projects)
        elif arguments.what == "plans":
            of_plans(Path(folder))
        elif arguments.ledger is None:
            parser.error("runs needs --ledger")
        else:
            of_runs(Path(folder), arguments.ledger, arguments.runs)


def of_fits(delta: float = 1e-6) -> None:
    """Print the rows of the table ``fits``."""
    one, kinds = Guarantee(1.0, delta), _kinds(delta)
    for names in (*((name,) for name in kinds), *MIXES):
        mix = [kinds[name] for name in names]
        row = {"releases": ", ".join(names)}
        for cap in (10.0, 30.0):
            plain = Cap.of(cap, delta, Split.of(rooms=False, chances=True))
            row[f"cap {cap:g}"] = str(_most(partial(_admitted, plain, mix)))
            row[f"cap {cap:g}, with rooms"] = str(_with_rooms(mix, cap, one))
            row[f"cap {cap:g}, exact"] = str(_most(partial(_composes, mix, cap, delta)))
        print(json.dumps({"table": "fits", "row": row}), flush=True)


LORA, SECRET = "`dp_lora` (q = .1, 30 steps)", "`invisible_ink` (48 tokens, 20 secret buckets)"
PLAIN, EVOLUTION, PURE = "the same without a secret", "`private_evolution`", "pure"
MIXES = (
    (EVOLUTION, LORA),
    (EVOLUTION, SECRET),
    (LORA, SECRET),
    (EVOLUTION, PURE),
    (EVOLUTION, PURE, LORA, PLAIN),
    (EVOLUTION, PURE, LORA, SECRET),
)


def _kinds(delta: float) -> dict[str, Event]:
    """A release of epsilon 1 of each kind."""
    one = Guarantee(1.0, delta)

    def drawn(tokens: int, places: int) -> Event:
        def event(width: float) -> Event:
            draws = Disjoint((BoundedRange(width, tokens),), places)
            return RandomAllocation(draws, places) if places > 1 else draws

        return event(calibrate_range(event, one, tokens))

    def noisy(event: Callable[[float], Event]) -> Event:
        return event(calibrate(event, one, 1e-2, 1e4, increasing=False))

    return {
        SECRET: drawn(48, 20),
        "the same with 50 buckets": drawn(48, 50),
        "the same with 2 buckets and 480 tokens": drawn(480, 2),
        PLAIN: drawn(48, 1),
        EVOLUTION: noisy(lambda noise: DiscreteGaussian(noise, 4)),
        "`keyphrase_seeding`": noisy(Gaussian),
        LORA: noisy(lambda noise: SampledGaussian(0.1, noise, 30)),
        "`dp_lora` (q = .01, 1,000 steps)": noisy(lambda noise: SampledGaussian(0.01, noise, 1000)),
        "`dp_lora` (q = .001, 3,000 steps)": noisy(
            lambda noise: SampledGaussian(0.001, noise, 3000)
        ),
        PURE: Pure(1.0),
    }


def _most(holds: Callable[[int], bool]) -> int:
    """The largest number that holds, if all below it do."""
    fits, beyond = 0, 1
    while holds(beyond):
        fits, beyond = beyond, 2 * beyond
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        fits, beyond = (middle, beyond) if holds(middle) else (fits, middle)
    return fits


def _admitted(cap: Cap, mix: list[Event], count: int) -> bool:
    charges = [cap.charge(event) for event in mix]
    asked = [charges[number % len(mix)] for number in range(count)]
    return cap.fits(asked[:-1], asked[-1])


def _with_rooms(mix: list[Event], epsilon: float, one: Guarantee) -> int:
    """How many fit an account that declared rooms for as many of each kind as it can hold."""

    def opened(count: int) -> Cap:
        rooms = NO_ROOMS
        for event in mix:
            match event:
                case SampledGaussian(rate, noise, steps):
                    rooms = replace(rooms, rate=rate, noise_multiplier=noise, steps=steps * count)
                case Pure(loss):
                    rooms = replace(rooms, loss=loss, responses=count)
                case RandomAllocation(_, places):
                    amplified = BucketsRoomConfig(buckets=places, epsilon=one.epsilon, times=count)
                    room = rooms_for(RoomsConfig(amplified=amplified), one.delta)
                    rooms = replace(rooms, mu=room.mu, places=places, allocations=count)
        return Cap.of(epsilon, one.delta, Split.of(rooms=True, chances=True), rooms)

    def holds(count: int) -> bool:
        try:
            return _admitted(opened(count), mix, len(mix) * count)
        except ConfigError:  # the rooms leave nothing
            return False

    cap = opened(max(_most(holds), 1))
    return _most(partial(_admitted, cap, mix))


def _composes(mix: list[Event], epsilon: float, delta: float, count: int) -> bool:
    """Whether so many releases, in turn, compose to the cap by their fixed pairs or draws."""
    numbers = [(count + len(mix) - 1 - at) // len(mix) for at in range(len(mix))]
    events = [(event, number) for event, number in zip(mix, numbers, strict=True) if number]
    if len(mix) == 1 and isinstance(mix[0], Disjoint):
        draws = Rounds(mix[0].events, count)
        if composed_epsilon(draws, delta) <= epsilon:  # of very many on a coarse grid
            return True
    parts: list[Part] = []
    for event, number in events:
        # Draws have no fixed pair: Gaussian noise that covers them stands for them.
        squared = gaussian_mu_squared(event) if isinstance(event, Disjoint) else None
        fixed = event if squared is None else Gaussian(squared**-0.5)
        parts += fixed_parts(fixed, number)
    return fixed_epsilon(tuple(parts), delta) <= epsilon


def of_plans(folder: Path, runs: int = 5) -> None:
    """Print the rows of the table ``plan``: medians, of whole processes in an empty project."""
    shutil.copy(Path(__file__).parents[1] / "params.yaml", folder)
    for name in (*METHODS, "all"):
        five = ["--all", "-S", f"pipeline=[{', '.join(METHODS)}]"]
        chosen = five if name == "all" else ["-m", name]
        process, taken = [sys.executable, "-m", "privsyn", "plan", *chosen], []
        for _ in range(runs):
            began = _cpu_seconds()
            _quiet(process, folder)
            taken.append(_cpu_seconds() - began)
        row = {"method": name, "CPU s": f"{sorted(taken)[runs // 2]:.2f}"}
        print(json.dumps({"table": "plan", "row": row}), flush=True)


def timed(name: str, call: Callable[[], Any]) -> Any:
    """The result of a call, whose CPU seconds, children's included, are printed."""
    began, wall = _cpu_seconds(), time.monotonic()
    result = call()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took, wall = _cpu_seconds() - began, time.monotonic() - wall
    print(f"{name:44} {took:7.2f} CPU s, {wall:7.2f} s, at most {memory:.0f} MB", flush=True)
    return result


def _cpu_seconds() -> float:
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in usage)


def of_ledger(folder: Path, count: int, accounts: int, ledger: str | None) -> None:
    """Plan, reserve, show, page, metrics and verify over a ledger of so many releases."""
    from privsyn.display.accounts import BudgetPage, crons_of, exposition, gauges
    from privsyn.stages.plan import plan, preview
    from privsyn.stages.reserve import reserve

    changes: dict[str, Any] = {
        "account": {"epsilon": 1000.0, "delta": 1e-6},
        "services": {"ledger": ledger} if ledger else {},
        "evaluate": {"by": "nothing"},
    }
    project = build_project(folder / "project", **changes)
    made = run(project.context(), "invisible_ink", published=False)
    ctx = project.context("privacy.draw=1")
    ctx.clock = lambda: datetime.now(UTC)
    planned = plan(ctx, "invisible_ink", open_account=True)
    timed(f"fill with {count:,} releases", lambda: _fill(ctx, planned, count, accounts))
    # The first of each pays for imports and caches, as each process does.
    seen = timed("plan", lambda: preview(ctx, plan(ctx, "invisible_ink")))
    print(f"  fits: {seen.fits}, share {seen.balance.share:.4f}")
    timed("plan once more", lambda: preview(ctx, plan(ctx, "invisible_ink")))
    timed("reserve", lambda: reserve(ctx, planned))
    timed("begin", lambda: ctx.ledger.releases.begin(planned.id, "/s", "nonce"))
    timed("show", lambda: len(ctx.ledger.accounts.statements()))
    page, crons = BudgetPage(ctx.clock()), crons_of(ctx)

    def draw_page() -> None:
        for account in ctx.ledger.accounts.all():  # as of so many projects of an Airflow
            only = {account.name}
            page.add(ctx, runs=None, reports=lambda _: None, crons=crons, only=only)
        page.html()

    timed("budget page", draw_page)
    timed("metrics", lambda: exposition(gauges(ctx)))
    timed("verify", ctx.ledger.verify)
    for command in (
        ("plan", "-S", "privacy.draw=2"),
        ("ledger", "show"),
        ("ledger", "page", "budget.html"),
        ("verify", made.release_id),
        ("ledger", "verify"),
    ):
        name = " ".join(("privsyn", *command))
        process = [sys.executable, "-m", "privsyn", *command]
        timed(name, lambda process=process: _quiet(process, project.root))


def _quiet(process: list[str], root: Path) -> None:
    subprocess.run(process, cwd=root, check=True, stdout=subprocess.DEVNULL)


def _fill(ctx: Any, planned: Any, count: int, accounts: int) -> None:
    from privsyn.dp.accountant import guarantee
    from privsyn.dp.events import Gaussian, dump
    from privsyn.ledger.caps import limits_of
    from privsyn.ledger.entries import State
    from privsyn.ledger.spec import account_row, spec_of

    database = ctx.ledger.database
    with database.read() as connection:
        own = account_row(connection, planned.account)
    names = [planned.account, *(f"other-{number}" for number in range(1, accounts))]
    for name in names[1:]:
        ctx.ledger.accounts.open(replace(spec_of(own), name=name, dataset=name))
    events = [Gaussian(20.0 + number) for number in range(50)]
    charges = [limits_of(own)[0].cap.charge(event) for event in events]
    costs = [guarantee(event, planned.delta) for event in events]
    with database.write() as connection:
        for number in range(count):
            charge, cost = charges[number % 50], costs[number % 50]
            body = {
                "method": "keyphrase_seeding",
                "event": dump(events[number % 50]),
                "loss": charge.loss,
                "mu_squared": charge.mu_squared,
                "epsilon": cost.epsilon,
                "delta": cost.delta,
            }
            name, begun = f"r-{number}", {"scratch": "/s", "host": "h", "nonce": f"{number}"}
            digests = {"artifact_sha256": "a" * 64, "certificate_sha256": "b" * 64}
            for state, content in (
                (State.RESERVED, body | {"settings_digest": f"{number:064x}"}),
                (State.BEGUN, begun),
                (State.COMMITTED, digests),
            ):
                database.append(connection, names[number % accounts], name, state, content)


def of_dags(folder: Path, count: int) -> None:
    """Parse the shipped DAG files over a folder of so many projects."""
    project = build_project(folder / "one", methods={})
    settings = yaml.safe_load(project.params.read_text())
    projects = folder / "projects"
    for number in range(count):
        place = projects / f"p{number:03}"
        place.mkdir(parents=True)
        shutil.copy(project.data, place)
        settings["dataset"]["name"] = settings["account"]["name"] = place.name
        (place / "params.yaml").write_text(yaml.safe_dump(settings))
    os.environ |= {
        "PRIVSYN_PARAMS": str(projects),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
    }
    from privsyn.airflow.factory import method_dags
    from privsyn.airflow.ledger import ledger_report_dags

    dags: dict[str, Any] = {}
    for method in METHODS:
        dags |= timed(f"{method} of {count} projects", lambda m=method: method_dags(m))
    dags |= timed(f"privsyn_ledger of {count} projects", ledger_report_dags)
    broken = [name for name, dag in dags.items() if "broken" in dag.tags]
    print(f"{len(dags)} DAGs, broken: {len(broken)}; Python {sys.version.split()[0]}")


def of_runs(folder: Path, ledger: str, count: int) -> None:
    """Make so many releases of three projects at once, and audit what was charged."""
    names, methods = ("clinic", "forum", "shop"), ("invisible_ink", "keyphrase_seeding")
    for name in names:
        (folder / name).mkdir()
        params = make_project(folder / name).root / "params.yaml"
        settings = yaml.safe_load(params.read_text())
        settings["dataset"]["name"] = settings["account"]["name"] = name
        settings["methods"]["keyphrase_seeding"] = METHODS_OF_TESTS["keyphrase_seeding"]
        settings["privacy"]["epsilon"], settings["evaluate"] = 1.0, {"by": "nothing"}
        settings["services"] = {"ledger": ledger}
        params.write_text(yaml.safe_dump(settings))
        # The same file under two accounts is refused.
        private = params.with_name("private.jsonl")
        private.write_text(private.read_text().replace("note", f"{name} note"))
    places = [(folder / name / "params.yaml", method) for name in names for method in methods]
    for module in preloaded.MODULES:  # once, and not in each fork
        import_module(module)
    forks = multiprocessing.get_context("fork")
    ended, processes = forks.Queue(), []
    began = time.monotonic()
    for number in range(count):
        params, method = places[number % len(places)]
        arguments = (params, method, number // len(places) % 3, ended)
        processes.append(forks.Process(target=_make, args=arguments))
        processes[-1].start()
    runs = [ended.get() for _ in processes]
    print(f"{count} runs of {len(places)} kinds in {time.monotonic() - began:.0f} s")
    for process in processes:
        process.join()
    _audit(ledger, folder, runs)


def _make(params: Path, method: str, number: int, ended: Any) -> None:
    """One run, tried again as Airflow would."""
    began, tries = time.monotonic(), Counter[str]()
    while not tries["ended"]:
        try:
            ctx = open_context(params, [f"privacy.draw={number}"], origin={"driver": "load"})
            ctx.tracker = MlflowTracker("")
            run(ctx, method, published=False)
            tries["ended"] += 1
        except PrivsynError as error:
            if tries[type(error).__name__] == 0:
                print(f"process {os.getpid()}, {type(error).__name__}: {error}", flush=True)
            tries[type(error).__name__] += 1
            tries["ended"] += not error.retryable
            time.sleep(1.0)
    ended.put((time.monotonic() - began, time.process_time(), tries))


def _audit(ledger: str, folder: Path, runs: list[tuple[float, float, Counter[str]]]) -> None:
    """Print how the runs ended, how long they took, and whether charges and releases agree."""
    for name, taken in (("seconds", [one[0] for one in runs]), ("CPU s", [one[1] for one in runs])):
        taken.sort()
        print(f"{name} each: {taken[0]:.1f}, median {taken[len(taken) // 2]:.1f}, {taken[-1]:.1f}")
    print(f"ends and retries: {dict(sum((one[2] for one in runs), Counter()))}")
    book = Ledger(ledger)
    book.verify()
    charged = {(e.release_id, e.epsilon, str(e.state)) for e in book.releases.all()}
    facts = [ReleaseFacts.read(place) for place in folder.glob("*/releases/*/")]
    made = {(release.release_id, release.plan.epsilon, "COMMITTED") for release in facts}
    print(f"charged {len(charged)}, released {len(made)}, the same: {charged == made}")
    print(f"refusals: {len(book.releases.refusals())}; the chain holds, {len(book.history())} rows")


if __name__ == "__main__":
    main()
