"""deploy/: what the files for containers name is there, and says what docs/machines.md says."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from docker.utils.build import exclude_paths
from kubernetes.client import ApiClient, models

from privsyn import __version__
from privsyn.config import Task, parse_config
from privsyn.ledger.leases import LEASE_TTL
from privsyn.methods.registry import METHODS
from tools.local.cluster import ROUTES, WORKERS

SERVICE = {
    "build", "image", "restart", "depends_on", "environment", "volumes", "command",
    "ports", "healthcheck", "init", "mem_limit", "cpus", "stop_grace_period", "configs", "logging",
    "cap_drop", "cap_add", "security_opt",
}  # fmt: skip


def names_twice(node):
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value]
        yield from {name for name in names if names.count(name) > 1}
    if isinstance(node, yaml.CollectionNode):
        for one in node.value:
            for inner in one if isinstance(one, tuple) else (one,):
                yield from names_twice(inner)


ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def compose():
    loaded = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def values():
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())
    return loaded


def airflow(compose):
    return {
        name: service
        for name, service in compose["services"].items()
        if "PRIVSYN_OVERRIDES" in (service.get("environment") or {})
    }


def test_every_service_is_bounded_and_watched(compose):
    for name, service in compose["services"].items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert service["cpus"], name
        assert (service["cap_drop"], service["security_opt"]) == (
            ["ALL"],
            ["no-new-privileges:true"],
        ), name
        if service["restart"] == "no":  # it does its work once, and others wait for its end
            continue
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"].keys() >= {"test", "interval", "retries"}, name
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name
        if "worker" in name:  # long enough for a draw to be written down, and its lease to be kept
            assert int(service["stop_grace_period"].removesuffix("m")) * 60 > LEASE_TTL


def test_every_image_is_pinned(compose):
    images = [service["image"] for service in compose["services"].values()]
    images += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    images += [f"{one['repository']}:{one['tag']}" for one in values()["images"].values()]
    for pod in (DEPLOY / "kubernetes").glob("*-pod.yaml"):
        loaded = yaml.safe_load(pod.read_text())
        images += [one["image"] for one in loaded["spec"]["containers"]]
    for image in images:
        _, _, tag = image.rpartition(":")
        assert re.search(r"\d+\.\d+|\d{4}-\d\d-\d\d", tag), image
        if "privsyn" in image:
            assert tag == __version__, image


def test_each_password_is_where_it_is_used(compose):
    """The tasks' role adds to the ledger, and has no password of those that may rewrite it."""
    holders = {}
    for name, service in compose["services"].items():
        for secret in re.findall(r"\$\{(\w+):", str(service)):
            holders.setdefault(secret, set()).add(name)
    assert holders["POSTGRES_PASSWORD"] == {"postgres"}
    assert holders["LEDGER_OWNER_PASSWORD"] == {"postgres", "setup"}
    assert holders["PRIVSYN_VAULT_KEY"] == {"worker-1", "worker-2"}
    mlflow = compose["services"]["mlflow"]
    assert "--app-name basic-auth" in mlflow["command"][-1]
    for service in airflow(compose).values():
        theirs, ours = service["environment"], mlflow["environment"]
        assert theirs["MLFLOW_TRACKING_PASSWORD"] == ours["MLFLOW_AUTH_ADMIN_PASSWORD"]
        assert theirs["MLFLOW_TRACKING_USERNAME"] == ours["MLFLOW_AUTH_ADMIN_USERNAME"]
    asked = re.findall(r"\\getenv \w+ (\w+)", (DEPLOY / "databases.sql").read_text())
    assert set(asked) <= compose["services"]["postgres"]["environment"].keys()


def context(root):
    patterns = [
        line
        for line in (root / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    found = exclude_paths(root.as_posix(), patterns, "deploy/Dockerfile")
    sent = {".dockerignore", "deploy/Dockerfile"}  # to the builder, not into an image
    return {name for name in found if (root / name).is_file()} - sent


def test_the_build_sees_no_secret_no_record_and_no_state(tmp_path):
    private = (
        "deploy/.env", ".env", "deploy/example.env", ".privsyn/ledger.db", ".privsyn/records.jsonl",
        ".airflow/passwords.json", ".airflow/jwt_secret", ".cluster/control/params.yaml",
        ".git/config", ".git/objects/ab/cd", ".venv/lib/site.py", ".dvc/config", "records.jsonl",
        "records.csv", "releases/a/synthetic.jsonl", "mlflow.db", "dags/records.csv", "dags/.env",
        "dags/__pycache__/a.pyc", "privsyn/__pycache__/a.pyc", "privsyn/dp/__pycache__/a.pyc",
        "operators/own.py", "tests/test_a.py", "vault.key",
    )  # fmt: skip
    wanted = {
        "pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE", "requirements.lock",
        "params.yaml", "dvc.yaml", ".gitignore", "dags/.airflowignore", "dags/own.py",
        "privsyn/py.typed", "privsyn/dp/a.py", "deploy/entrypoint.sh",
    }  # fmt: skip
    for name in (*private, *wanted):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    assert context(tmp_path) == wanted


def test_its_overrides_are_settings(compose):
    """A misspelled one would keep the whole deployment from starting."""
    for name, service in airflow(compose).items():
        said = json.loads(re.sub(r"\$\{\w+:\?\}", "x", service["environment"]["PRIVSYN_OVERRIDES"]))
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        config = parse_config(params, said)
        assert config.services.vault, name
        assert config.services.releases, name
        assert "//privsyn_app:" in str(config.services.ledger), name
        for method in METHODS:  # what is not routed may land where no private file is
            tasks = config.schedule[method].tasks.items()
            assert {task: routed["queue"] for task, routed in tasks} == ROUTES, (name, method)


def test_secrets_come_from_the_environment(compose):
    text = (DEPLOY / "compose.yaml").read_text()
    named = set(re.findall(r"\$\{(\w+)", text))
    example = dict(
        line.split("=", 1)
        for line in (DEPLOY / "example.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert named == example.keys()
    assert all(
        not value
        for key, value in example.items()
        if key not in ("PROJECT", "AIRFLOW_USERS", "S3_USER", "WORKER_CPUS")
    )
    assert "PRIVSYN_VAULT_KEY" not in str(airflow(compose)["scheduler"]["environment"])


def test_one_worker_sees_the_records(compose):
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


@pytest.mark.parametrize("file", ["gpu-pod.yaml", "private-pod.yaml", "network.yaml"])
def test_kubernetes_knows_every_field(file):
    """Read as the executor of Airflow reads a pod template: what it does not know is left out."""
    client = ApiClient()
    for found in yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text()):
        read = client._ApiClient__deserialize_model(found, getattr(models, f"V1{found['kind']}"))
        assert client.sanitize_for_serialization(read) == found


def test_private_pods_alone_reach_what_serves_the_records():
    text = (DEPLOY / "kubernetes" / "network.yaml").read_text()
    policies = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(text)}
    labels = {
        yaml.safe_load(file.read_text())["metadata"]["labels"]["component"]
        for file in (DEPLOY / "kubernetes").glob("*-pod.yaml")
    }
    private = {"podSelector": {"matchLabels": {"component": "privsyn-private"}}}
    assert policies["records"]["ingress"] == [{"from": [private]}]
    (chosen,) = policies["privsyn-tasks"]["podSelector"]["matchExpressions"]
    assert set(chosen["values"]) == labels
    assert policies["privsyn-tasks"]["ingress"] == []


@pytest.mark.parametrize("file", ["gpu-pod.yaml", "private-pod.yaml"])
def test_pod_templates_are_pods_of_one_task(file):
    pod = yaml.safe_load((DEPLOY / "kubernetes" / file).read_text())
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Never"
    container = spec["containers"][0]
    assert container["name"] == "base"  # Airflow's executor puts the task into this one
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == values()["securityContexts"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert "args" not in container
    assert "command" not in container
    gpu = "nvidia.com/gpu" in container["resources"]["limits"]
    assert gpu == (file == "gpu-pod.yaml")
    holds_records = any("persistentVolumeClaim" in volume for volume in spec["volumes"])
    assert holds_records == (file == "private-pod.yaml")


def test_values_put_no_secret_into_the_chart():
    assert values()["data"].keys() == {"metadataSecretName", "brokerUrlSecretName"}
    assert values()["workers"]["persistence"] == {"enabled": False}
    given = {one["name"]: one for one in values()["workers"]["env"]}
    assert given.keys() == {"PRIVSYN_VAULT_KEY"}  # a name of `env` again would be there twice
    assert "secretKeyRef" in given["PRIVSYN_VAULT_KEY"]["valueFrom"]
    assert yaml.safe_load(values()["extraEnvFrom"]) == [{"secretRef": {"name": "privsyn-services"}}]


def test_every_server_of_airflow_is_there(compose):
    commands = {" ".join(service.get("command", ())[:2]) for service in airflow(compose).values()}
    wanted = {"api-server", "scheduler", "dag-processor", "triggerer", "celery worker"}
    assert wanted <= commands


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("*.yaml")), ids=lambda file: file.name)
def test_no_file_names_a_key_twice(file):
    """A parser takes the last."""
    assert [name for node in yaml.compose_all(file.read_text()) for name in names_twice(node)] == []


def test_routes_name_tasks():
    assert set(ROUTES) <= set(get_args(Task))
    assert {q for found in WORKERS.values() for q in found.split(",")} >= set(ROUTES.values())


def test_services_are_what_compose_knows(compose):
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


def test_the_logs_of_tasks_are_deleted_some_day(compose):
    """Those of Airflow lie in its home, in volumes that the groomer mounts, too."""
    groomed = {one.split(":")[0] for one in compose["services"]["log-groomer"]["volumes"]}
    homes = {
        name: {one.split(":")[0] for one in service["volumes"] if one.endswith("/logs")}
        for name, service in airflow(compose).items()
        if name not in ("setup", "api-server")  # they run no task
    }
    assert all(homes.values())
    assert set().union(*homes.values()) == groomed
