"""For those who use a release: one line in a run of their own, so that lineage goes on past us.

with mlflow.start_run():
privsyn.track.log_release("releases/invisible_ink-596b7dc41f1c20e7")
model.fit(...)
"""

from __future__ import annotations

from pathlib import Path

from privsyn.errors import ConfigError
from privsyn.release import layout, verification
from privsyn.release.facts import ReleaseFacts
from privsyn.tracking.base import MAX_DIGEST

CONTEXT = "training"
"""What MLflow calls the use of a dataset that a run learns from."""


def log_release(folder: str | Path, *, context: str = CONTEXT, run_id: str | None = None) -> str:
    """Log a release as an input of an MLflow run, with what it costs and promises.

    The release is checked against its certificate first, without a ledger: files that were changed
    are logged by no one as private. Tags of the run say ``privsyn.release_id``, ``privsyn.class``,
    ``privsyn.epsilon``, ``privsyn.delta``, ``privsyn.unit``, ``privsyn.certificate_sha256``.

    Args:
        folder: The release, as it was handed out or lies in ``releases/``.
        context: Of the input, such as ``training`` or ``validation``.
        run_id: The run. None: the active one of this process.

    Returns:
        The id of the release.

    Raises:
        VerificationError: It is not what was certified, or the folder holds no release.
        ConfigError: No run is active and none is named.
    """
    import mlflow
    from mlflow.entities import Dataset, DatasetInput, InputTag

    folder = Path(folder)
    verification.raise_failed(folder, verification.verify(folder, None))
    facts = ReleaseFacts.read(folder)
    run = run_id or (active.info.run_id if (active := mlflow.active_run()) else None)
    if run is None:
        raise ConfigError(
            "no MLflow run is active.", hint="Call it inside `with mlflow.start_run():`."
        )
    client = mlflow.MlflowClient()
    dataset = Dataset(
        name=facts.name,
        digest=facts.sha256[:MAX_DIGEST],
        source_type="local",
        source=f'{{"uri": "{layout.ARTIFACT}"}}',
    )
    tags = [InputTag("mlflow.data.context", context)]
    client.log_inputs(run, [DatasetInput(dataset, tags)])
    for name, value in _tags(facts).items():
        client.set_tag(run, name, value)
    return facts.name


def _tags(facts: ReleaseFacts) -> dict[str, str]:
    """What a consumer's run says of a release: public, from its certificate."""
    plan = facts.plan
    return {
        "privsyn.release_id": facts.name,
        "privsyn.class": facts.kind,
        "privsyn.epsilon": repr(plan.epsilon),
        "privsyn.delta": repr(plan.delta),
        "privsyn.unit": plan.unit,
        "privsyn.certificate_sha256": facts.certificate_sha256,
    }
