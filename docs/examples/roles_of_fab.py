"""What users of the FAB auth manager may do with privsyn's DAGs and pages, asked of Airflow itself.

In an Airflow whose core.auth_manager is FAB's, with the DAG and a release of it:

    python roles_of_fab.py privsyn_invisible_ink invisible_ink-0123456789abcdef

Makes a user of each role, logs in as each, tries, and prints a table. Nothing is started: a run is
asked for with a date that is none, clearing is rehearsed, an approval is answered that nobody asks
for. Whether a role may is whether Airflow says 403. The DAG is unpaused afterwards, and the pool
default_pool has its 128 slots.
"""

from __future__ import annotations

import secrets
import sys
from typing import Any

from airflow.api_fastapi.app import create_app
from airflow.providers.fab.www.app import create_app as flask_app
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
        users_of = app.appbuilder.sm
        for role, password in users.items():
            name = f"try-{role.lower()}"
            if (earlier := users_of.find_user(username=name)) is not None:
                users_of.reset_password(earlier.id, password)
                continue
            address = f"{name}@example.org"
            users_of.add_user(name, role, "Tried", address, users_of.find_role(role), password)
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
