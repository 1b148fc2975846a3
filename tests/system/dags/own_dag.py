"""A DAG of a user's own, which makes a release on its way and uses it."""

from datetime import UTC, datetime

from airflow.sdk import dag, task

from privsyn import Project
from privsyn.airflow import release_group
from privsyn.airflow.project import params_file


@dag(schedule=None, start_date=datetime(2025, 1, 1, tzinfo=UTC), params={"mine": 1})
def own_dag():
    @task
    def count(made):
        """How many records there are."""
        release = Project.open(params_file().parent).open_release(made["release_id"])
        return {"rows": len(release.frame()), "release": release.name}

    @task
    def beside():
        return "not privsyn's"

    count(release_group("invisible_ink"))
    beside()


own_dag()
