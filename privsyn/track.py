"""For users of a release: log it as an input of an MLflow run, so that lineage continues.

with mlflow.start_run():
privsyn.track.log_release("releases/invisible_ink-596b7dc41f1c20e7")
model.fit(...)
"""

from __future__ import annotations

from pathlib import Path

from privsyn.errors import ConfigError
from privsyn.release.facts import ReleaseFacts
from privsyn.report import verification
from privsyn.tracking import MAX_DIGEST, MlflowTracker

CONTEXT = "training"
"""MLflow's context for a dataset that a run learns from."""


def log_release(folder: str | Path, *, context: str = CONTEXT, run_id: str | None = None) -> str:
    """Log a release as an input of an MLflow run, with its cost and guarantee.

    The release is first checked against its certificate, without a ledger, so that changed files
    are never logged as private. The run gets the tags ``privsyn.release_id``, ``privsyn.class``,
    ``privsyn.epsilon``, ``privsyn.delta``, ``privsyn.unit``, ``privsyn.certificate_sha256``.

    Args:
        folder: The folder of the release, in ``releases/`` or a copy of it.
        context: MLflow's context of the input, such as ``training`` or ``validation``.
        run_id: The run. None: the active run of this process.

    Returns:
        The id of the release.

    Raises:
        VerificationError: It differs from its certificate, or the folder is not a release.
        ConfigError: No run is active and ``run_id`` is None.
        TrackingUnavailable: MLflow cannot be reached.
    """
    import mlflow

    folder = Path(folder)
    # privacy: the run's tags will say that these bytes have the guarantee, so they are checked.
    verification.raise_on_failure(folder, verification.verify(folder, None))
    facts = ReleaseFacts.read(folder)
    run = run_id or (active.info.run_id if (active := mlflow.active_run()) else None)
    if run is None:
        raise ConfigError(
            "no MLflow run is active.", hint="Call it inside `with mlflow.start_run():`."
        )
    tracker = MlflowTracker(mlflow.get_tracking_uri())
    tracker.log_dataset(run, facts.name, facts.sha256[:MAX_DIGEST], context)
    tags = {
        "release_id": facts.name,
        "class": facts.kind,
        "epsilon": facts.plan.epsilon,
        "delta": facts.plan.delta,
        "unit": facts.plan.unit,
        "certificate_sha256": facts.certificate_sha256,
    }
    tracker.set_tags(run, {f"privsyn.{name}": value for name, value in tags.items()})
    return facts.name
