"""Settings tried on public records: nothing private is opened, nothing is spent."""

from __future__ import annotations

import hashlib
import json

import pytest

from privsyn import cli
from privsyn.dp.noise import SeededNoise
from privsyn.errors import ConfigError, DataError, ValidationFailed, VerificationError
from privsyn.methods.base import Backends
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.tune import _Project, _refuse_unsettable, tune
from privsyn.stages.validate import validate
from tests.integration.e2e.small_project import (
    CANARY,
    EMBEDDED,
    METHODS,
    build_project,
    finish,
    rows,
    stand_ins,
)

INK = {"invisible_ink": METHODS["invisible_ink"] | EMBEDDED["invisible_ink"]}


def project_with_public_records(root, records=None, **changes):
    """A project whose private file cannot be read, beside a declared public one."""
    project = build_project(root, methods=INK, **changes)
    project.data.unlink()
    public = project.root / "reviews.jsonl"
    lines = [json.dumps(row) for row in records or rows(90, 90)]
    public.write_text("\n".join(lines) + "\n")
    digest = hashlib.sha256(public.read_bytes()).hexdigest()
    return project, f'files.reviews={{"path": "reviews.jsonl", "digest": "{digest}"}}'


def test_settings_are_tried_on_public_records_and_the_account_is_untouched(
    tmp_path, monkeypatch, capsys
):
    project, declared = project_with_public_records(
        tmp_path / "project",
        account={"adjacency": "replace_one"},
        dataset={"max_records_per_unit": 1, "unit": None},
    )
    ctx = project.context(declared)
    heard = []
    trials = tune(ctx, "invisible_ink", "reviews", {"guidance": [3.0]}, on_trial=heard.append)
    assert [dict(trial.settings) for trial in heard] == [{}, {"guidance": 3.0}]
    assert trials[0].score == max(trial.score for trial in heard) > 0
    assert all("vectors.gain" in trial.metrics for trial in trials)
    assert not ctx.ledger.exists()
    assert not (project.root / "releases").exists()

    monkeypatch.chdir(project.root)  # the same search again, by command: all of it is on file
    monkeypatch.setattr("privsyn.stages.tune.draw", lambda *_: pytest.fail("drawn again"))
    words = ["privsyn", "tune", "reviews", "-S", declared, "--try", "guidance=[3.0]"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    assert f"{trials[0].metrics['vectors.accuracy']:.3f}" in printed.out
    assert "nothing private was read" in printed.err
    assert "tune: 1 of 2 trials" in printed.err


def test_a_setting_that_the_plan_refuses_is_said_and_the_search_goes_on(tmp_path):
    project, declared = project_with_public_records(
        tmp_path / "project", dataset={"max_records_per_unit": 1, "unit": None},
        account={"adjacency": "replace_null"},
    )  # fmt: skip
    ctx = project.context(declared)
    trials = tune(ctx, "invisible_ink", "reviews", {"max_reference_tokens": [900]})
    assert trials[0].refused is None
    assert "context" in (trials[-1].refused or "")


@pytest.mark.parametrize(
    ("tried", "message"),
    [
        ("guidence=[1,3]", "guidence is not a known setting"),
        ("guidance=[-1]", "methods.invisible_ink.guidance=-1"),
        ("guidance=[1.0,high]", "methods.invisible_ink.guidance='high'"),
        ("privacy.epsilon=[1,2]", "privacy.epsilon is not a known setting"),
        ("batch_size=[0]", "batch_size"),
    ],
)
def test_what_no_trial_could_be_made_with_is_an_error_before_the_first(
    tmp_path, monkeypatch, capsys, tried, message
):
    project, declared = project_with_public_records(tmp_path / "project")
    monkeypatch.setattr("privsyn.stages.tune.draw", lambda *_: pytest.fail("drawn"))
    monkeypatch.chdir(project.root)
    words = ["privsyn", "tune", "reviews", "-S", declared, "--try", "temperature=[0.8]"]
    monkeypatch.setattr("sys.argv", [*words, "--try", tried])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert message in said
    assert f"Correct --try {tried.partition('=')[0]}" in said
    assert not (project.root / ".privsyn" / "tune").exists()


def test_values_that_do_not_go_together_are_left_to_their_trial():
    """The table sampler needs a sampling rate below 1, which another setting of a trial may set."""
    _refuse_unsettable("dp_lora", {"sampling_rate": [1.0, 0.5], "sampler": ["table"]})
    with pytest.raises(ConfigError, match="sampler"):
        _refuse_unsettable("dp_lora", {"rank": [4, 16], "sampler": ["tabel"]})


def test_a_declared_file_that_is_missing_is_named(tmp_path):
    project, declared = project_with_public_records(tmp_path / "project")
    (project.root / "reviews.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"files\.reviews\.path=reviews\.jsonl: .*No such file"):
        tune(project.context(declared), "invisible_ink", "reviews", {"guidance": [1.0]})


def test_what_is_no_public_record_is_refused(tmp_path):
    project, declared = project_with_public_records(tmp_path / "project")
    project.write([row | {"text": CANARY} for row in rows(90, 90)])
    ctx = project.context(declared)
    with pytest.raises(DataError, match="neither a name under files"):
        tune(ctx, "invisible_ink", "private.jsonl", {"guidance": [1.0]})
    digest = hashlib.sha256(project.data.read_bytes()).hexdigest()
    private = project.context(f'files.own={{"path": "private.jsonl", "digest": "{digest}"}}')
    with pytest.raises(ConfigError, match="private"):
        tune(private, "invisible_ink", "own", {"guidance": [1.0]})
    with pytest.raises(ConfigError, match="nothing is tried"):
        tune(ctx, "invisible_ink", "reviews", {})
    one = project.context(declared, "dataset.labels=['Billing']")
    with pytest.raises(ConfigError, match=r"two dataset\.labels or more"):
        tune(one, "invisible_ink", "reviews", {"guidance": [1.0]})
    assert not (ctx.workspace.state / "tune").exists()


def test_a_finished_release_serves_as_public_records(tmp_path):
    project = build_project(tmp_path / "project", methods=INK)
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    finish(ctx, planned, Backends(stand_ins()))
    with pytest.raises(ValidationFailed, match="has not passed its suite"):
        tune(ctx, "invisible_ink", planned.id, {"guidance": [1.0]})
    assert not (ctx.workspace.state / "tune").exists()
    folder = validate(ctx, planned)
    project.data.unlink()
    with pytest.raises(DataError, match="too few"):  # 22 texts
        tune(ctx, "invisible_ink", planned.id, {"guidance": [1.0]})
    [tried] = (ctx.workspace.state / "tune").glob("*/records.jsonl")
    written = [json.loads(line) for line in tried.read_text().splitlines()]
    released = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert [row["text"] for row in written] == [row["text"] for row in released]
    assert [row["unit"] for row in written[:4]] == ["0", "0", "1", "1"]  # m = 2
    (folder / "synthetic.jsonl").write_text("{}\n")
    with pytest.raises(VerificationError):
        tune(ctx, "invisible_ink", planned.id, {"guidance": [1.0]})


def test_a_release_of_predictable_noise_is_no_public_record(tmp_path):
    project = build_project(tmp_path / "project", methods=INK)
    ctx = project.context()
    ctx.noise = lambda: SeededNoise(0)
    planned = plan(ctx, "invisible_ink", open_account=True)
    reserve(ctx, planned)
    finish(ctx, planned, Backends(stand_ins()))
    with pytest.raises(VerificationError, match="not-private: it was drawn with predictable"):
        tune(ctx, "invisible_ink", planned.id, {"guidance": [1.0]})
    assert not (ctx.workspace.state / "tune").exists()


def test_too_few_public_records_are_said_to_be_so_before_a_text_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("privsyn.stages.tune.draw", lambda *_: pytest.fail("drawn"))
    project, declared = project_with_public_records(
        tmp_path / "project", rows(24, 24), dataset={"max_records_per_unit": 1, "unit": None},
        account={"adjacency": "replace_null"},
    )  # fmt: skip
    with pytest.raises(DataError, match="too few"):
        tune(project.context(declared), "invisible_ink", "reviews", {"guidance": [1.0]})


def test_no_setting_of_a_trial_reads_the_private_file_as_a_public_one(tmp_path):
    """Nor the state folder: a trial has places of its own, and knows those of its project."""
    project, declared = project_with_public_records(
        tmp_path / "project", dataset={"max_records_per_unit": 1, "unit": None},
        account={"adjacency": "replace_null"},
    )  # fmt: skip
    project.write([row | {"text": CANARY} for row in rows(90, 90)])
    state = project.root / ".privsyn"
    state.mkdir(exist_ok=True)
    (state / "scratch.txt").write_text(CANARY)
    (project.root / "linked.txt").hardlink_to(project.data)
    digest = hashlib.sha256(project.data.read_bytes()).hexdigest()
    files = (
        str(project.data), "../../../private.jsonl", str(project.root / "linked.txt"),
        str(state / "scratch.txt"), "own",
    )  # fmt: skip
    ctx = project.context(
        declared,
        f'files.own={{"path": "private.jsonl", "digest": "{digest}"}}',
        f'methods.keyphrase_seeding={{"vocabulary_digest": "{digest}"}}',
    )
    trials = tune(
        ctx, "keyphrase_seeding", "reviews", {"vocabulary": files}, on_trial=lambda _: None
    )
    refused = [trial.refused or "" for trial in trials if "vocabulary" in trial.settings]
    assert len(refused) == len(files)
    for said in refused:
        assert "the private file" in said or "the state folder" in said, said


def test_a_trial_s_door_to_public_files_is_shut_to_the_project_s_private_ones(tmp_path):
    """Whatever setting names them: the trial's own private file is a public one."""
    project, declared = project_with_public_records(tmp_path / "project")
    ctx = project.context(declared)
    trial = _Project.of(ctx, "invisible_ink", "reviews").ctx
    for file, said in (
        (project.data, "the private file"),
        (project.root / ".privsyn" / "ledger.db", "the state folder"),
    ):
        file.touch()
        with pytest.raises(ConfigError, match=said):
            trial.files.read("methods.keyphrase_seeding.vocabulary", str(file))
