"""Tasks that draw: partition, train and generate (each a process of its own), certify."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from operators.base import StageOperator, translated
from privsyn import errors
from privsyn.config import OVERRIDES

if TYPE_CHECKING:
    from privsyn.stages.base import Context as StageContext

log = logging.getLogger(__name__)


class PartitionOperator(StageOperator):
    """Begins the release in the ledger and sorts the records into their buckets.

    Returns the shards to generate; none where the release exists, so that generate is skipped.
    """

    stage: ClassVar[str] = "partition"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn.stages.partition import partition

        planned = self.planned()
        shards = partition(ctx, planned)
        said = f"{shards} shard(s) to draw" if shards else f"{planned.id} exists: nothing to draw"
        return list(range(shards)), said


class ChildOperator(StageOperator):
    """Runs a command of privsyn in a process of its own, which ends with the task.

    A process of its own, because a forked worker cannot use CUDA once its parent has, and because
    its end gives all memory back. Kill it at any point: the next try resumes and spends nothing
    more.
    """

    ui_color: ClassVar[str] = "#e2f0e4"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._child: subprocess.Popen[str] | None = None

    def run_child(
        self,
        ctx: StageContext,
        context: Mapping[str, Any],
        *command: str,
        extra: Sequence[str] = (),
    ) -> None:
        """Run ``privsyn COMMAND`` with the settings of this run, ``extra`` ones on top."""
        from operators.project import params_file

        arguments = ["-m", "privsyn", *command, "--params", str(self.params_path or params_file())]
        environment = {
            "PRIVSYN_ORIGIN": json.dumps(dict(ctx.origin)),
            # Not as arguments: a password is not seen by ps.
            OVERRIDES: json.dumps([*self.settings(context), *extra]),
        }
        self._run(arguments, environment)

    def plan_file(self, ctx: StageContext) -> str:
        """The release's plan as a file for the child."""
        from privsyn.data.artifacts import write_json_atomic

        planned = self.planned()
        file = ctx.workspace.state / "plans" / f"{planned.id}.json"
        write_json_atomic(file, planned.model_dump(mode="json"))
        return str(file)

    def on_kill(self) -> None:
        """End the child and whatever it started. Safe at any point: every draw is journalled."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _run(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        """Run ``python ARGUMENTS``, its lines in the task log, its error mapped to ours."""
        inherited = {key: value for key, value in os.environ.items() if key != "PRIVSYN_DEBUG"}
        reported: dict[str, str] | None = None
        with subprocess.Popen(
            [sys.executable, "-m", "operators.child", str(os.getpid()), *arguments],
            env=inherited | {"PYTHONUNBUFFERED": "1"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as child:
            self._child = child
            try:
                for line in child.stdout or ():
                    found = _reported(line)
                    reported = found or reported
                    if not found and line.strip():
                        said = {"event": "progress", "stage": self.stage}
                        log.info("%s", line.rstrip(), extra=said)
                code = child.wait()
            finally:
                self.on_kill()
                self._child = None
        if code:
            raise _failure(code, reported)


class TrainOperator(ChildOperator):
    """Trains the model of a release on the records; a killed try resumes from its checkpoint."""

    stage: ClassVar[str] = "train"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        self.run_child(ctx, context, "stage", "train", "--plan", self.plan_file(ctx))
        return None, "the model is trained"


class GenerateShardOperator(ChildOperator):
    """Draws one shard; a killed try resumes from its journal.

    Args:
        shard: Which part, 0-based.
    """

    template_fields: Sequence[str] = ("plan", "shard")
    stage: ClassVar[str] = "generate"

    def __init__(self, *, shard: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shard = shard

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        file, shard = self.plan_file(ctx), str(int(self.shard))
        self.run_child(ctx, context, "stage", "generate", "--plan", file, "--shard", shard)
        return None, f"shard {self.shard} is drawn"


class CertifyOperator(StageOperator):
    """Merges the shards, writes the certificate and commits both digests to the ledger."""

    stage: ClassVar[str] = "certify"

    def run_stage(self, ctx: StageContext, context: Mapping[str, Any]) -> tuple[Any, str]:
        """See StageOperator."""
        from privsyn import certificate
        from privsyn.stages.certify import certify

        folder = certify(ctx, self.planned())
        _, sealed = certificate.read(folder)
        answer = {
            "folder": str(folder),
            "rows": sealed["artifact"]["rows"],
            "artifact_sha256": sealed["artifact"]["sha256"],
            "certificate_sha256": certificate.digest(sealed),
        }
        return answer, f"{answer['rows']} texts in {folder}"


def _reported(line: str) -> dict[str, str] | None:
    """The error a child reports as its last line, if this is one."""
    if not line.startswith('{"error"'):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _failure(code: int, reported: Mapping[str, str] | None) -> AirflowException:
    """The exception for a child that ended badly."""
    if reported is not None:
        kind = getattr(errors, reported["error"], errors.PrivsynError)
        return translated(kind, f"{reported['message']} {reported['hint']}".strip())
    if code < 0:
        return AirflowException(
            f"generate was ended by {signal.Signals(-code).name}; it resumes at no further cost."
        )
    # Without a report the exit code still tells a user's mistake (2 to 5) from a defect.
    kind = AirflowFailException if 2 <= code <= 5 else AirflowException
    return kind(f"generate ended with exit code {code}; the lines above say why.")
