"""An example for your own dags folder: train a classifier whenever a release is published.

It runs when privsyn announces a release of its dataset (the asset), reads the release, which is
differentially private and needs no further care, trains a scikit-learn model on it, and logs both
to MLflow: the release is the run's dataset, with its epsilon, unit and certificate. privsyn itself
never reads this file. Set PRIVSYN_PARAMS to the project's params.yaml and MLFLOW_TRACKING_URI to
your server.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, Param, dag, task

RELEASES = Asset("privsyn://patient-portal/invisible_ink")


@dag(
    schedule=[RELEASES],
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    params={"release": Param(None, type=["string", "null"], description="Id, for a run by hand.")},
    tags=["privsyn", "example"],
)
def train_on_release() -> None:
    """Train a classifier on the newest release."""

    @task
    def train(**context: Any) -> str:
        """Fit, log, and return the id of the MLflow run."""
        import mlflow
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        import privsyn
        from privsyn.track import log_release

        events = context["triggering_asset_events"].get(RELEASES, ())
        name = context["params"]["release"] or events[-1].extra["release_id"]
        project = Path(os.environ["PRIVSYN_PARAMS"]).parent
        release = privsyn.Release.open(project / "releases" / name)
        release.verify()
        frame = release.frame()
        model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
        with mlflow.start_run(run_name=f"classifier on {name}") as run:
            log_release(release.folder)
            model.fit(frame["text"], frame["label"])
            mlflow.log_metric("accuracy_on_synthetic", model.score(frame["text"], frame["label"]))
            mlflow.sklearn.log_model(model, name="classifier")
        return str(run.info.run_id)

    train()


train_on_release()
