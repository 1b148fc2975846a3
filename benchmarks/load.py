"""CPU seconds of a large ledger and of a DAG processor over many projects; many runs at once.

    PYTHONPATH=. python benchmarks/load.py ledger [--releases 5000] [--accounts 1]
        [--ledger postgresql://USER@HOST/EMPTY]
    PYTHONPATH=. python benchmarks/load.py dags [--projects 50]
    PYTHONPATH=. python benchmarks/load.py runs --ledger postgresql://USER@HOST/EMPTY [--runs 20]

Figures are CPU seconds of the process (``resource``), which a busy machine does not change much.
The ledger is SQLite unless an empty database is named. Its releases are Gaussian noise of fifty
sizes, written in one transaction. ``privsyn ...`` are processes as a user starts them.

``runs`` makes releases of three projects that share a ledger, each in a process of its own, all at
once and some of them twice, by the stages that Airflow's tasks run, without MLflow and DVC. What
may be retried is, as there. Then it compares what was charged with what was released.
"""

from __future__ import annotations

import argparse
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
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from privsyn.errors import PrivsynError
from privsyn.ledger.ledger import Ledger
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
    parser.add_argument("what", choices=("ledger", "dags", "runs"))
    parser.add_argument("--releases", type=int, default=5000)
    parser.add_argument("--accounts", type=int, default=1)
    parser.add_argument("--projects", type=int, default=50)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--ledger", help="an empty database, for ledger and runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "ledger":
            of_ledger(Path(folder), arguments.releases, arguments.accounts, arguments.ledger)
        elif arguments.what == "dags":
            of_dags(Path(folder), arguments.projects)
        elif arguments.ledger is None:
            parser.error("runs needs --ledger")
        else:
            of_runs(Path(folder), arguments.ledger, arguments.runs)


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
