"""Records of a release that registries, catalogs and reviewers read, from its certificate."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from privsyn.data.artifacts import ArtifactRef, sha256_file
from privsyn.errors import ConfigError, VerificationError
from privsyn.release import certificate
from privsyn.release.facts import WANTED, ReleaseFacts, one_line
from privsyn.release.metadata import checklist, croissant, deployment
from privsyn.release.plan import release_id
from privsyn.release.settings import Stated
from privsyn.stages.plan import plan
from privsyn.stages.publish import record
from tests.integration.e2e.small_project import build_project, reseal
from tests.integration.e2e.test_golden_releases import GOLDEN, RELEASES

SCHEMA = os.environ.get("PRIVSYN_TEST_REGISTRY_SCHEMA")
"""File of the registry's schema, deployments-schema.yaml, which is not ours to bring along."""

STATED: Stated = dict(
    name="Letters to a council",
    curators="Council",
    authors="Its archive",
    intended_use="To train classifiers.",
    region="Utopia",
    sector="Government",
    contact="archive@council.example",
    url="https://council.example/letters",
    license="CC-BY-4.0",
    published="2026-11-21",
    data_source="Static",
    domain="All letters one could write.",
    tuning="By an earlier, public set.",
    access="Two archivists.",
    biases="Those who write letters.",
    notes="The first of its kind.",
)

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "- a: !!python/object/apply:os.system [x]\n[evil](https://evil.example) | cell | $x$ {{7*7}}",
)


def of(name, stated=STATED):
    return ReleaseFacts(certificate.read(GOLDEN / name)[1], stated)


def hostile(folder):
    """A release whose certificate agrees with itself and says what it should not."""
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    sealed = certificate.read(folder)[1]
    plan = sealed["plan"]
    plan["dataset"]["labels"] = list(HOSTILE)
    plan["dataset"]["unit"] = HOSTILE[0]
    plan["unit"] = HOSTILE[1]
    sealed["method"]["title"] = HOSTILE[0]
    plan["release_id"] = release_id(plan)
    reseal(folder, sealed)
    return folder


@pytest.fixture
def cli(command, tmp_path):
    def run(*arguments):
        code, out, err = command(tmp_path, *arguments)
        return code, " ".join((out + err).split())

    return run


def test_a_release_is_recorded_from_its_folder_alone(cli, tmp_path):
    code, shown = cli("record", GOLDEN / RELEASES[0])
    assert code == 0
    folder = tmp_path / "records" / RELEASES[0]
    assert sorted(file.name for file in folder.iterdir()) == [
        "checklist.md",
        "croissant.json",
        "deployment.yaml",
    ]
    for name in WANTED:
        assert f"(deployment.{name})" in shown
    entry = yaml.safe_load((folder / "deployment.yaml").read_text())["deployment"]
    assert entry["basic"]["data_curators"] == ["Not stated."]
    # The registry takes no other.
    assert {*entry["privacy_loss"]["privacy_parameters"]} <= {"epsilon", "delta", "rho"}
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert cli("record", GOLDEN / RELEASES[0], "--out", tmp_path / "again")[0] == 0
    assert {f.name: f.read_bytes() for f in (tmp_path / "again").iterdir()} == first


@pytest.mark.skipif(SCHEMA is None, reason="PRIVSYN_TEST_REGISTRY_SCHEMA names no schema")
@pytest.mark.parametrize("stated", [STATED, {}], ids=["stated", "bare"])
@pytest.mark.parametrize("name", RELEASES)
def test_the_registry_s_own_schema_takes_the_entry(name, stated):
    from jsonschema import Draft202012Validator, FormatChecker

    schema = yaml.safe_load(Path(str(SCHEMA)).read_text())
    entry = yaml.safe_load(yaml.safe_dump(deployment(of(name, stated))))
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(entry)


MLCROISSANT = """
import json, sys
import mlcroissant as mlc
dataset = mlc.Dataset(jsonld=sys.argv[1])
issues = dataset.metadata.ctx.issues
assert not issues.errors, issues.report()
print(json.dumps([
    {key: value.decode() if isinstance(value, bytes) else str(value) for key, value in row.items()}
    for row in dataset.records("records")
]))
"""


def read_by_others(folder):
    """The rows of a release as mlcroissant reads them by the description that lies beside them."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MLCROISSANT, str(folder / "croissant.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_mlcroissant_reads_the_records_by_the_description(tmp_path):
    folder = tmp_path / "handed-out"
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    _, written = record(GOLDEN / RELEASES[0], tmp_path / "records", STATED, None)
    for file in written:
        shutil.copy(file, folder)
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    read = read_by_others(folder)
    assert [row["records/text"] for row in read] == [row["text"] for row in rows]
    assert [row["records/label"] for row in read] == [row["label"] for row in rows]


def test_hostile_words_are_escaped_wherever_they_go(tmp_path, cli):
    folder = hostile(tmp_path / "hostile")
    code, shown = cli("record", folder, "--out", tmp_path / "out")
    assert code == 0, shown
    sealed = certificate.read(folder)[1]
    entry = yaml.safe_load((tmp_path / "out" / "deployment.yaml").read_text())
    assert "!!python" not in (tmp_path / "out" / "deployment.yaml").read_text().replace("\\!", "")
    for text in strings(entry):
        assert not re.search(r"(?<!\\)[<>\[|$]|://", text), text
    page = (tmp_path / "out" / "checklist.md").read_text()
    for line in page.splitlines()[6:]:
        assert line.count("|") - line.count("\\|") == 4, line  # it stays in its cell
        assert not re.search(r"(?<!\\)[<\[]|://", line)
    described = (tmp_path / "out" / "croissant.json").read_text()
    assert "<" not in described
    assert HOSTILE[0] in json.loads(described)["rai:dataCollection"]
    rows = checklist(ReleaseFacts(sealed, {}, one_line))
    assert any(HOSTILE[0] in row.answer for row in rows)  # as it is, for a page that escapes it


def strings(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def test_a_name_that_leads_elsewhere_is_refused(tmp_path, cli):
    folder = tmp_path / "derived"
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    parent = certificate.read(folder)[1]
    file = folder / "synthetic.jsonl"
    artifact = ArtifactRef(file, sha256_file(file), "application/jsonl", parent["artifact"]["rows"])
    for name in ("../../evil", "/evil", "a\nb", "", "x" * 300):
        derived = certificate.derive(parent, artifact, name=name, how={"more": 1}, root=tmp_path)
        reseal(folder, derived)
        shutil.rmtree(folder / "exhibits", ignore_errors=True)
        shutil.rmtree(folder / "model", ignore_errors=True)
        code, shown = cli("record", folder)
        assert code == 4, shown
        assert "names a release" in shown
    assert not (tmp_path / "records").exists()


def test_what_may_not_be_published_is_not_recorded(tmp_path):
    folder = tmp_path / "release"
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="nothing else may lie"):
        record(folder, folder, STATED, None)
    (folder / "validation.json").write_text('{"success": false}')
    with pytest.raises(VerificationError, match="report"):
        record(folder, out, STATED, None)
    (folder / "validation.json").unlink()
    sealed = certificate.read(folder)[1]
    reseal(folder, sealed | {"noise": "seeded", "class": "not-private"})
    with pytest.raises(VerificationError, match="predictable noise, so it has no guarantee"):
        record(folder, out, STATED, None)
    with (folder / "synthetic.jsonl").open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(VerificationError, match="artifact is unchanged"):
        record(folder, out, STATED, None)
    assert not out.exists()


def test_what_is_said_of_a_deployment_is_no_part_of_a_release_s_name(tmp_path):
    """Nor is the key that signs it."""
    plain = build_project(tmp_path / "plain")
    said = build_project(
        tmp_path / "said",
        deployment={"curators": "Council", "region": "Utopia"},
        signing={"key": str(tmp_path / "none.pem")},
    )
    one, other = (plan(p.context(), "invisible_ink", open_account=True) for p in (plain, said))
    assert other.model_dump(exclude={"release_id", "partition_key"}) == one.model_dump(
        exclude={"release_id", "partition_key"}
    )


@pytest.mark.parametrize("name", RELEASES)
def test_a_description_names_files_by_digest_and_says_what_is_not_known(name):
    facts = of(name, {})
    described = croissant(facts)
    files = {file["@id"]: file["sha256"] for file in described["distribution"]}
    assert files == {
        file: sha256_file(GOLDEN / name / file) for file in ("synthetic.jsonl", "certificate.json")
    }
    assert described["conformsTo"][0] == "http://mlcommons.org/croissant/1.1"
    assert facts.numbers in described["rai:personalSensitiveInformation"][0]
    assert described["license"] == "Not stated."
    for field in ("dataCollection", "dataLimitations", "dataUseCases", "dataBiases"):
        assert described[f"rai:{field}"]
