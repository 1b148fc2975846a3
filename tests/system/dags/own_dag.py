"""A DAG of a user's own, which makes a release on its way and uses it."""

from datetime import UTC, datetime

from airflow.sdk import dag, task

from privsyn.airflow import release_task


@dag(schedule=None, start_date=datetime(2025, 1, 1, tzinfo=UTC), params={"mine": 1})
def own_dag():
    @release_task("invisible_ink")
    def count(release):
        """How many records there are of each label."""
        return {"rows": len(release.frame()), "release": release.name}

    @task
    def beside():
        return "not privsyn's"

    count()
    beside()


own_dag()
