"""What users of the FAB auth manager may do with privsyn's DAGs and pages, asked of Airflow itself.

    pip install apache-airflow-providers-fab
    export AIRFLOW__CORE__AUTH_MANAGER=airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager
    airflow db migrate && airflow fab-db migrate && airflow dags reserialize
    python roles_of_fab.py privsyn_invisible_ink invisible_ink-0123456789abcdef

Makes a user of each role with a password of its own, logs in, tries, and prints a table. Nothing is
run: what would start a run or clear a task is asked for with a body that Airflow checks and then
refuses or only rehearses. The DAG it names is unpaused at the end if a role may do that.
"""

from __future__ import annotations

import secrets
import sys
from typing import Any

from airflow.api_fastapi.app import create_app
from airflow.providers.fab.www.app import create_app as flask_app
from airflow.providers.fab.www.extensions.init_appbuilder import AirflowAppBuilder
from fastapi.testclient import TestClient

ROLES = ("Viewer", "User", "Op", "Admin")


def tried(dag_id: str, release_id: str) -> dict[str, tuple[str, str, Any]]:
    """What is tried: method, address, body."""
    api = f"/api/v2/dags/{dag_id}"
    return {
        "see the budget page": ("GET", "/privsyn/budget", None),
        "see a report": ("GET", f"/privsyn/{dag_id}/reports/{release_id}", None),
        "see runs": ("GET", f"{api}/dagRuns", None),
        "answer an approval": (
            "PATCH",
            f"{api}/dagRuns/none/taskInstances/approve_spend/-1/hitlDetails",
            {"chosen_options": ["Approve"], "params_input": {}},
        ),
        "spend: trigger a run": ("POST", f"{api}/dagRuns", {"logical_date": "no date"}),
        "spend: clear tasks": ("POST", f"{api}/clearTaskInstances", {"dry_run": True}),
        "spend: unpause a schedule": ("PATCH", api, {"is_paused": False}),
        "see variables": ("GET", "/api/v2/variables", None),
        "see connections": ("GET", "/api/v2/connections", None),
        "change pools": ("PATCH", "/api/v2/pools/default_pool?update_mask=slots", {"slots": 128}),
    }


def main(dag_id: str, release_id: str) -> None:
    """Print the table."""
    users = {role: secrets.token_urlsafe(12) for role in ROLES}
    app = flask_app(enable_plugins=False)
    with app.app_context():
        builder: AirflowAppBuilder = app.appbuilder
        for role, password in users.items():
            name = f"try-{role.lower()}"
            if (old := builder.sm.find_user(username=name)) is not None:
                builder.sm.del_register_user(old) if False else builder.session.delete(old)
                builder.session.commit()
            made = builder.sm.add_user(
                name, role, "Tried", f"{name}@example.org", builder.sm.find_role(role), password
            )
            assert made, role
    client = TestClient(create_app("core"))
    headers = {}
    for role, password in users.items():
        body = {"username": f"try-{role.lower()}", "password": password}
        token = client.post("/auth/token", json=body)
        headers[role] = {"Authorization": f"Bearer {token.json()['access_token']}"}
    print(f"| may | {' | '.join(ROLES)} |\n|---|{'---|' * len(ROLES)}")
    for what, (method, url, body) in tried(dag_id, release_id).items():
        codes = [
            client.request(method, url, json=body, headers=headers[role]).status_code
            for role in ROLES
        ]
        print(f"| {what} | {' | '.join(f'{c != 403} ({c})' for c in codes)} |")
    print(
        "without a login:",
        [
            client.get(url).status_code
            for method, url, _ in tried(dag_id, release_id).values()
            if method == "GET"
        ],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
