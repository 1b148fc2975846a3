"""Tasks that draw: partition, train and generate (each a process of its own), certify."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from privsyn import __version__, errors
from privsyn.airflow.base import StageFunction, StageOperator
from privsyn.airflow.failures import StageFailed
from privsyn.airflow.project import params_file
from privsyn.airflow.versions import AirflowSensorTimeout, end_of, task_store
from privsyn.data.artifacts import write_json_atomic
from privsyn.models.gpus import card_locks, lease, visible_cards
from privsyn.section import OVERRIDES

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

log = logging.getLogger(__name__)

LOOK = 300
"""Seconds between two looks for a file that is waited for."""
PYTHON = "PRIVSYN_PYTHON"
"""Environment variable: the interpreter of children, so that Airflow's own needs no torch."""
COMMAND_LINE = "from privsyn.cli import main; main()"
"""What a child runs: the command line."""
_SAME = f"""\
import sys, privsyn
if privsyn.__version__ != {__version__!r}:
    print({PYTHON!r}, "has privsyn", privsyn.__version__, "and Airflow has", {__version__!r})
    sys.exit(2)
"""


class WaitOperator(StageOperator, BaseSensorOperator):  # type: ignore[misc]
    """Waits until the file is there, or the query or table has a row, in a try every few minutes.

    It holds no slot between tries. They run where the task's queue says, and not in the triggerer,
    which need not see private data.

    Args:
        hours: How long, before it fails.
    """

    stage = "wait"

    def __init__(self, *, hours: float, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", timeout=hours * 3600, poke_interval=LOOK, **kwargs)
        self.hours = hours

    def execute(self, context: Mapping[str, Any], stage: StageFunction | None = None) -> None:
        """Look, and end or come back later."""
        try:
            BaseSensorOperator.execute(self, context)
            return
        except AirflowSensorTimeout:
            late = StageFailed(
                f"no record has come in {self.hours:g} hours.",
                advice="Clear this task when they are there. Nothing is spent.",
                final=True,
            )
        raise end_of(late)

    def poke(self, context: Mapping[str, Any]) -> bool:
        """Whether it is there."""
        return bool(StageOperator.execute(self, context))

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.data.readers.formats import has_come
        from privsyn.stages.base import open_plan

        dataset = open_plan(ctx, self.read_plan()).source
        is_there = has_come(dataset)
        return is_there, f"{dataset.source} is {'' if is_there else 'not '}there"


class ChildOperator(StageOperator):
    """Runs a command of privsyn in a process of its own, which ends with the task.

    A process of its own, because a forked worker cannot use CUDA once its parent has, and because
    its end gives all memory back. Kill it at any point: the next try resumes and spends nothing
    more.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._child: subprocess.Popen[str] | None = None

    def apart(self, ctx: StageContext, context: Mapping[str, Any], *command: str) -> None:
        """Run ``privsyn COMMAND`` with the settings of this task. See ``run_child``."""
        ledger = ctx.config.services.ledger  # as a connection may have named it
        settings = [f"services.ledger={json.dumps(ledger)}"] if ledger else []
        environment = {
            "PRIVSYN_ORIGIN": json.dumps(dict(ctx.origin)),
            # Not as arguments: a password is not seen by ps.
            OVERRIDES: json.dumps([*self.settings(context), *settings]),
        }
        with self._cards() as cards:
            self.run_child(environment | cards, *command)

    @contextmanager
    def _cards(self) -> Iterator[dict[str, str]]:
        """The GPU of the child, which is its own while it runs; as its environment.

        A pool has a slot a card, but Airflow does not say which slot a task has got.
        """
        cards = visible_cards()
        if not cards:
            yield {}
            return

        def waiting() -> None:
            log.info("%s: waiting for a GPU; all %d are in use", self.stage, len(cards))

        with lease(cards, card_locks(), waiting) as card:
            log.info("%s: uses GPU %s", self.stage, card)
            yield {"CUDA_VISIBLE_DEVICES": card}

    def is_drawn(self, ctx: StageContext) -> bool:
        """Whether the release is committed, so that no process need start to find that out."""
        # The ledger decides and not the folder: a folder may be a copy that was never committed.
        entry = ctx.ledger.releases.find(self.read_plan().id)
        return entry is not None and entry.state == "COMMITTED"

    def plan_file(self, ctx: StageContext) -> str:
        """The release's plan as a file for the child."""
        planned = self.read_plan()
        file = ctx.workspace.state / "plans" / f"{planned.id}.json"
        write_json_atomic(file, planned.model_dump(mode="json"))
        return str(file)

    def on_kill(self) -> None:
        """End the child and whatever it started. Safe at any point: every draw is journalled."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                # The group: the child's own children hold the GPU, and would live on.
                os.killpg(self._child.pid, signal.SIGKILL)

    def run_child(self, environment: Mapping[str, str], *command: str) -> None:
        """Run ``privsyn COMMAND``, its lines in the task log, its error mapped to ours.

        Raises:
            StageFailed: It failed, or was killed.
        """
        params = str(self.params_path or params_file())
        # privacy: a traceback with private text must not reach Airflow's log.
        inherited = {key: value for key, value in os.environ.items() if key != "PRIVSYN_DEBUG"}
        reported: dict[str, str] | None = None
        with subprocess.Popen(
            [
                *(os.environ.get(PYTHON) or sys.executable, "-c", _SAME + COMMAND_LINE),
                *(*command, "--params", params),
            ],
            # The child ends with this process, also where that is killed (cli/commands.py:main).
            env=inherited | {"PYTHONUNBUFFERED": "1", errors.TASK: str(os.getpid()), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # One stream: two pipes read one by one could block each other.
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A session of its own, so that the group that is killed does not hold this task.
            start_new_session=True,
        ) as child:
            self._child = child
            try:
                # Line by line until the end of output: a full pipe would block the child.
                for line in child.stdout or ():
                    error = _error_of(line)
                    reported = error or reported
                    if not error and line.strip():
                        event = {"event": "progress", "stage": self.stage}
                        log.info("%s", line.rstrip(), extra=event)
                code = child.wait()
            finally:
                self.on_kill()
                self._child = None
        if code:
            raise _failure(self.stage, code, reported)


class PartitionOperator(ChildOperator):
    """Begins the release in the ledger and sorts the records into their buckets.

    Returns the shards to generate; none where the release exists, so that generate is skipped. The
    run that made it is given its shards again when it is cleared, and keeps their logs: Airflow
    takes away the mapped tasks that a run has no longer. Where a model answers columns, a process
    of its own does all that, and this one finds it done.
    """

    stage = "partition"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.partition import partition

        planned = self.read_plan()
        if planned.answers is not None and not self.is_drawn(ctx):
            self.apart(ctx, context, "stage", "partition", "--plan", self.plan_file(ctx))
        shards = partition(ctx, planned)
        store = task_store(context)
        if shards:
            # A cleared task finds the release finished, and later tasks must still map to as many
            # shards.
            if store is not None:
                store.set(planned.id, shards)
            return list(range(shards)), f"{shards} part{'s' * (shards > 1)} to draw"
        drawn = 0 if store is None else int(store.get(planned.id, 0))
        return list(range(drawn)), f"{planned.id} exists: nothing to draw"


class PreflightOperator(ChildOperator):
    """Tries models, grammar and folders on public inputs, before the budget is spent."""

    stage = "preflight"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.preflight import due

        planned = self.read_plan()
        if not due(ctx, planned):
            return None, f"{planned.id} has started or is finished: nothing to check"
        self.apart(ctx, context, "stage", "preflight", "--plan", self.plan_file(ctx))
        return None, "models, settings and folders passed"


class TrainOperator(ChildOperator):
    """Trains the model of a release on the records; a killed try resumes from its checkpoint."""

    stage = "train"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        if self.is_drawn(ctx):
            return None, "the release exists: nothing to train"
        self.apart(ctx, context, "stage", "train", "--plan", self.plan_file(ctx))
        return None, "the model is trained"


class GenerateShardOperator(ChildOperator):
    """Draws one shard; a killed try resumes from its journal.

    Args:
        shard: Which part, 0-based.
    """

    template_fields: Sequence[str] = ("plan", "shard")
    stage = "generate"

    def __init__(self, *, shard: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shard = shard

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        if self.is_drawn(ctx):
            return None, "the release exists: nothing to draw"
        file, shard = self.plan_file(ctx), str(int(self.shard))
        self.apart(ctx, context, "stage", "generate", "--plan", file, "--shard", shard)
        return None, f"shard {self.shard} is drawn"


class CertifyOperator(StageOperator):
    """Merges the shards, writes the certificate and commits both digests to the ledger."""

    stage = "certify"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.release.facts import ReleaseFacts
        from privsyn.stages.certify import certify

        planned = self.read_plan()
        folder = certify(ctx, planned)
        facts = ReleaseFacts.read(folder)
        answer = {
            "folder": str(folder),
            "rows": facts.rows,
            "artifact_sha256": facts.sha256,
            "certificate_sha256": facts.certificate_sha256,
        }
        return answer, f"{answer['rows']} {planned.things} in {folder}"


def _error_of(line: str) -> dict[str, str] | None:
    """The error a child reports as its last line, if this is one."""
    # What the command line prints where PRIVSYN_ORIGIN is set: one JSON object as its last line.
    if not line.startswith('{"error"'):
        return None
    try:
        error = json.loads(line)
    except ValueError:
        return None
    return error if isinstance(error, dict) else None


def _failure(stage: str, code: int, reported: Mapping[str, str] | None) -> StageFailed:
    """The end of a task whose child ended badly."""
    if reported is not None:
        # By name, so that the retry policy sees the same class as in one process.
        kind = getattr(errors, reported["error"], errors.PrivsynError)
        return StageFailed(reported["message"], kind=kind, advice=reported["hint"])
    if code < 0:
        return StageFailed(
            f"{stage} was killed by {signal.Signals(-code).name}; it resumes at no further cost.",
            # The two by which a platform ends a process. Others, such as SIGSEGV, are failures.
            killed=-code in (signal.SIGKILL, signal.SIGTERM),
        )
    # Without a report the exit code still tells a user's mistake (2 to 5) from a defect.
    return StageFailed(
        f"{stage} failed with exit code {code}; see the lines above.",
        code=code,
        final=2 <= code <= 5,
    )
