"""What users of the FAB auth manager may do with privsyn's DAGs and pages, asked of Airflow itself.

In an Airflow whose core.auth_manager is FAB's, with the DAG and a release of it:

    python roles_of_fab.py privsyn_invisible_ink invisible_ink-0123456789abcdef

Where a second DAG is named, of another project, a role is made that may trigger and see the first
one's project alone, and what it may do with either is a table of its own:

    python roles_of_fab.py privsyn_clinic_invisible_ink invisible_ink-0123456789abcdef \
        privsyn_lab_invisible_ink

Makes a user of each role, logs in as each, tries, and prints a table. Nothing is started: a run is
asked for with a date that is none, clearing is rehearsed, an approval is answered that nobody asks
for. Whether a role may is whether Airflow says 403. The DAG is unpaused afterwards, and the pool
default_pool has its 128 slots.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.api_fastapi.app import create_app
from airflow.providers.fab.www.app import create_app as flask_app
from fastapi.testclient import TestClient

ROLES = ("Viewer", "User", "Op", "Admin")
NARROW = "privsyn {dag_id}"
"""Name of the role that is narrowed to a DAG."""
ANY_DAG, ASSETS = "DAGs", "Assets"
"""Airflow's permissions on all DAGs at once, and on all assets: with either a role reaches the DAGs
of every project, as an event of its asset starts a DAG."""


def narrowed(users_of: Any, dag_ids: Sequence[str]) -> str:
    """A role that may do with single DAGs what a User may do with all. Its name.

    It is User's, less what it says of all DAGs and the writing of assets.
    """
    name = NARROW.format(dag_id=dag_ids[0])
    kept = [
        (permission.action.name, permission.resource.name)
        for permission in users_of.find_role("User").permissions
        if permission.resource.name != ANY_DAG
        and not (permission.resource.name == ASSETS and permission.action.name != "can_read")
    ]
    own = [(can, f"DAG:{dag_id}") for dag_id in dag_ids for can in ("can_read", "can_edit")]
    role = users_of.add_role(name)
    for permission in list(role.permissions):  # of an earlier try
        users_of.remove_permission_from_role(role, permission)
    for action, resource in [*kept, *own]:
        users_of.add_permission_to_role(role, users_of.create_permission(action, resource))
    return name


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
        "spend: backfill": (
            "POST",
            "/api/v2/backfills",
            {"dag_id": dag_id, "from_date": "no date"},
        ),
        "spend: update an asset": ("POST", "/api/v2/assets/events", {"asset_id": 0}),
        "change pools": ("PATCH", "/api/v2/pools/default_pool?update_mask=slots", {"slots": 128}),
    }


def main(dag_id: str, release_id: str, other: str | None = None) -> None:
    """Print the table, and with another DAG that of the role that is narrowed to the first."""
    app = flask_app(enable_plugins=False)
    with app.app_context():
        users_of = app.appbuilder.sm
        roles = [*ROLES, *([narrowed(users_of, [dag_id, ledger_of(dag_id)])] if other else [])]
        users = {role: (f"try-{role.lower()}", secrets.token_urlsafe(12)) for role in roles}
        for role, (name, password) in users.items():
            if (earlier := users_of.find_user(username=name)) is not None:
                users_of.reset_password(earlier.id, password)
                continue
            address = f"{name.replace(' ', '-')}@example.org"
            users_of.add_user(name, role, "Tried", address, users_of.find_role(role), password)
    client = TestClient(create_app("core"))
    headers = {}
    for role, (name, password) in users.items():
        token = client.post("/auth/token", json={"username": name, "password": password})
        headers[role] = {"Authorization": f"Bearer {token.json()['access_token']}"}
    asked = tried(dag_id, release_id)

    def told(role: str, what: str, of: Mapping[str, Any]) -> str:
        method, url, body = of[what]
        code = client.request(method, url, json=body, headers=headers[role]).status_code
        return f"{code != 403} ({code})"

    print(f"| may | {' | '.join(ROLES)} |\n|---|{'---|' * len(ROLES)}")
    for what in asked:
        print(f"| {what} | {' | '.join(told(role, what, asked) for role in ROLES)} |")
    ways = [url for method, url, _ in asked.values() if method == "GET"]
    print("without a login:", [client.get(url).status_code for url in ways])
    if other is not None:
        theirs = tried(other, release_id)
        print(f"\n{roles[-1]} may | of its own | of {other} |\n|---|---|---|")
        for what in asked:
            print(f"| {what} | {told(roles[-1], what, asked)} | {told(roles[-1], what, theirs)} |")
        listed = client.get("/api/v2/dags", headers=headers[roles[-1]]).json()["dags"]
        print("DAGs it sees:", sorted(dag["dag_id"] for dag in listed))


def ledger_of(dag_id: str) -> str:
    """The DAG whose readers see the budget of a DAG's project."""
    from privsyn.airflow.project import project_of

    project = project_of(dag_id)
    if project is None:
        raise SystemExit(f"{dag_id} is of no project here: see PRIVSYN_PARAMS.")
    return project.dag_id("ledger")


if __name__ == "__main__":
    main(*sys.argv[1:])
