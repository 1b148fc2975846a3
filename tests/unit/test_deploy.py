"""deploy/: what the files for containers name is there, and says what docs/machines.md says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from privsyn.config import TASKS, parse_config
from tools.local.cluster import ROUTES, WORKERS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVICE = {
    "build", "image", "restart", "depends_on", "environment", "volumes", "command", "entrypoint",
    "ports", "healthcheck",
}  # fmt: skip
"""What of the compose specification the services may use."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def airflow(compose: dict[str, Any]) -> dict[str, Any]:
    return {
        name: service
        for name, service in compose["services"].items()
        if "PRIVSYN_OVERRIDES" in (service.get("environment") or {})
    }


def test_services_are_what_compose_knows(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert service.keys() <= SERVICE, name
        assert service.keys() & {"image", "build"}, name
        for other in service.get("depends_on") or ():
            assert other in services, (name, other)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if not source.startswith((".", "$")):
                assert source in compose["volumes"], (name, volume)
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), volume
    assert (ROOT / services["api-server"]["build"]["dockerfile"]).is_file()


def test_every_server_of_airflow_is_there(compose: dict[str, Any]) -> None:
    commands = {" ".join(service.get("command", ())[:2]) for service in airflow(compose).values()}
    wanted = {"api-server", "scheduler", "dag-processor", "triggerer", "celery worker"}
    assert wanted <= commands


def test_its_overrides_are_settings(compose: dict[str, Any]) -> None:
    """A misspelt one would keep the whole deployment from starting."""
    for name, service in airflow(compose).items():
        said = json.loads(
            service["environment"]["PRIVSYN_OVERRIDES"].replace("${POSTGRES_PASSWORD:?}", "x")
        )
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        config = parse_config(params, said)
        assert config.services.vault, name
        assert config.services.releases, name


def test_secrets_come_from_the_environment(compose: dict[str, Any]) -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    named = set(re.findall(r"\$\{(\w+)", text))
    example = dict(
        line.split("=", 1)
        for line in (DEPLOY / "example.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert named == example.keys()
    assert all(not value for key, value in example.items() if key not in ("PROJECT", "S3_USER"))
    assert "PRIVSYN_VAULT_KEY" not in str(airflow(compose)["scheduler"]["environment"])


def test_one_worker_sees_the_records(compose: dict[str, Any]) -> None:
    """The other mounts params.yaml and the DAGs of the project alone."""
    mounts = {
        name: [v for v in service["volumes"] if v.startswith("${PROJECT")]
        for name, service in airflow(compose).items()
    }
    whole = [name for name, found in mounts.items() if any("}:/" in mount for mount in found)]
    assert sorted(whole) == ["setup", "worker-1"]
    queues = {
        name: service["command"][service["command"].index("--queues") + 1].split(",")
        for name, service in airflow(compose).items()
        if "celery" in service["command"]
    }
    assert queues == {name: found.split(",") for name, found in WORKERS.items()}


def test_routes_name_tasks() -> None:
    assert set(ROUTES) <= set(TASKS)
    assert {q for found in WORKERS.values() for q in found.split(",")} >= set(ROUTES.values())


@pytest.mark.parametrize("file", ["gpu-pod.yaml", "private-pod.yaml"])
def test_pod_templates_are_pods_of_one_task(file: str) -> None:
    pod = yaml.safe_load((DEPLOY / "kubernetes" / file).read_text())
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Never"
    container = spec["containers"][0]
    assert container["name"] == "base"  # Airflow's executor puts the task into this one
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert "args" not in container
    assert "command" not in container
    gpu = "nvidia.com/gpu" in container["resources"]["limits"]
    assert gpu == (file == "gpu-pod.yaml")
    holds_records = any("persistentVolumeClaim" in volume for volume in spec["volumes"])
    assert holds_records == (file == "private-pod.yaml")


def test_values_put_no_secret_into_the_chart() -> None:
    values = yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())
    assert values["data"].keys() == {"metadataSecretName", "brokerUrlSecretName"}
    assert values["workers"]["persistence"] == {"enabled": False}
    (key,) = values["workers"]["env"]
    assert "secretKeyRef" in key["valueFrom"]
    assert yaml.safe_load(values["extraEnvFrom"]) == [{"secretRef": {"name": "privsyn-services"}}]
