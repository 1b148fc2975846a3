"""A scratch that is incomplete, older, copied, moved, given up or left over is not drawn again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest

from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import (
    AccountMismatch,
    LeaseHeld,
    LedgerUnavailable,
    PrivsynError,
    ReleaseLost,
    VerificationError,
)
from privsyn.ledger.leases import Holder, Leases
from privsyn.ledger.releases import Releases
from privsyn.methods.base import Backends
from privsyn.stages.base import Context, find_workdir, open_plan
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate, session, train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish
from privsyn.stages.report import report
from privsyn.stages.reserve import leftovers, reserve, settle
from privsyn.stages.run import carry_out
from privsyn.stages.validate import validate
from privsyn.students.cleanup import sweep
from tests.integration.e2e.small_project import (
    METHODS,
    Project,
    begin_release,
    breaking,
    reserve_release,
    stand_ins,
)
from tests.noise import NeverDraws

Edit = Callable[[Context], object]


class Fails(NeverDraws):
    """A mechanism that must not be called, of the kind that the release was begun with."""

    kind = "opendp"


class Dies(OpenDPNoise):
    """The process is out of memory at the n-th call."""

    left = 0

    def noisy_max(self, *args):
        Dies.left -= 1
        if Dies.left == 0:
            raise MemoryError
        return super().noisy_max(*args)


def models():
    return Backends(stand_ins())


def begun(project, noise=OpenDPNoise, **changes):
    ctx = project.context()
    ctx.noise = noise
    (method,) = ctx.config.methods
    planned = begin_release(ctx, method)
    return ctx, planned


def drawn(project):
    """A release with all of its first part drawn: its model trained, or its first shard."""
    ctx, planned = begun(project)
    if planned.method == "dp_lora":
        train(ctx, planned, backends=models())
    else:
        generate(ctx, planned, 0, models())
    return ctx, planned


# Before models are loaded


def unloaded(monkeypatch):
    monkeypatch.setattr("privsyn.stages.run.load_models", lambda *_: pytest.fail("loaded"))


def test_a_release_that_another_process_draws_is_refused_before_models_are_loaded(
    make_project, monkeypatch
):
    unloaded(monkeypatch)
    ctx, planned = begun(make_project())
    other = replace(Holder.me(), machine="other", host="other-host", pid=7)
    with monkeypatch.context() as patch:
        patch.setattr(Holder, "me", lambda: other)
        lease = ctx.ledger.leases.acquire(planned.id, "shard-1", ttl=600)
    with pytest.raises(
        LeaseHeld, match=r"process 7 on other-host is drawing its shard-1"
    ) as caught:
        carry_out(ctx, planned, published=False)
    assert caught.value.exit_code == 7
    ctx.ledger.leases.renew(lease)  # it still holds what it held
    assert ctx.ledger.leases.parts(planned.id) == {"partition": 0, "shard-1": 0}
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"


@pytest.mark.parametrize(
    "stage",
    [
        partition,
        lambda ctx, planned: generate(ctx, planned, 0, models()),
        lambda ctx, planned: carry_out(ctx, planned, published=False),
    ],
    ids=["partition", "generate", "run"],
)
def test_a_release_whose_scratch_is_gone_is_lost_before_models_are_loaded(
    make_project, monkeypatch, stage
):
    unloaded(monkeypatch)
    ctx, planned = begun(make_project())
    shutil.rmtree(ctx.workspace.scratch(planned.id))
    with pytest.raises(ReleaseLost, match="its draws are gone"):
        stage(ctx, planned)
    assert ctx.ledger.releases.get(planned.id).state == "LOST"


# Parts of it are gone


@pytest.mark.parametrize("method", ["invisible_ink", "private_evolution", "dp_lora"])
def test_whatever_is_deleted_after_a_draw_it_is_not_drawn_again(make_project, method):
    """As an interrupted ``rm -rf`` leaves it: each subset of the scratch's entries."""
    shards = {"shards": 2 if method == "invisible_ink" else 1}
    project = make_project(methods={method: METHODS[method]}, performance=shards)
    ctx, planned = drawn(project)
    state = project.root / ".privsyn"
    entries = sorted(path.name for path in ctx.workspace.scratch(planned.id).iterdir())
    assert {"run.json", "buckets"} < set(entries)
    kept = shutil.copytree(state, project.root / "kept")
    ends = set()
    for count in range(1, len(entries) + 1):
        for deleted in combinations(entries, count):
            shutil.rmtree(state)
            shutil.copytree(kept, state)
            again = project.context()
            again.noise = Fails
            scratch = again.workspace.scratch(planned.id)
            for name in deleted:
                place = scratch / name
                shutil.rmtree(place) if place.is_dir() else place.unlink()
            try:
                partition(again, planned)
                if method == "dp_lora":
                    train(again, planned, backends=models())
                else:
                    generate(again, planned, 0, models())
                ends.add("replayed")
            except (ReleaseLost, VerificationError) as error:
                ends.add(type(error).__name__)
            except PrivsynError as error:
                pytest.fail(f"{deleted}: {error}")
    assert ends == {"replayed", "ReleaseLost", "VerificationError"}


def test_a_release_whose_journals_nobody_held_may_be_partitioned_again(make_project):
    """A partition that was killed before it finished has drawn nothing."""
    ctx, planned = begun(make_project())
    scratch = ctx.workspace.scratch(planned.id)
    for place in scratch.iterdir():
        if place.name != "run.json":
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert partition(ctx, planned) == 2
    generate(ctx, planned, 0, models())


# An older copy


def test_an_older_copy_of_the_scratch_is_refused_and_the_newest_goes_on(make_project):
    Dies.left = 7
    project = make_project()
    ctx, planned = begun(project, Dies)
    scratch = ctx.workspace.scratch(planned.id)
    empty = shutil.copytree(scratch, project.root / "empty")
    with pytest.raises(MemoryError):
        generate(ctx, planned, 0, models())
    early = shutil.copytree(scratch, project.root / "early")
    Dies.left = 5
    with pytest.raises(MemoryError):
        generate(ctx, planned, 0, models())
    newest = shutil.copytree(scratch, project.root / "newest")
    counted = ctx.ledger.leases.parts(planned.id)["shard-0"]
    assert counted > (early / "journal-00000").read_bytes().count(b"\n") - 1 > 0
    for older in (empty, early):
        shutil.rmtree(scratch)
        shutil.copytree(older, scratch)
        again = project.context()
        again.noise = Fails
        with pytest.raises(
            VerificationError, match=rf"counted {counted} draws and .* is an older copy"
        ):
            generate(again, planned, 0, models())
        assert (
            ctx.ledger.releases.get(planned.id).state == "BEGUN"
        )  # paid, and the newest may be found
    shutil.rmtree(scratch)
    shutil.copytree(newest, scratch)
    generate(project.context(), planned, 0, models())
    assert ctx.ledger.leases.parts(planned.id)["shard-0"] > counted


def test_a_copy_that_lacks_one_draw_is_an_older_one(make_project):
    ctx, planned = begun(make_project())
    scratch, copy = ctx.workspace.scratch(planned.id), ctx.workspace.root / "copy"

    def draw(name):
        work = find_workdir(ctx, ctx.ledger.releases.get(planned.id))
        with work, session(open_plan(ctx, planned), 0, work) as part:
            part.journal.draw_all([(name, lambda: 1)])

    draw("first")
    shutil.copytree(scratch, copy)
    draw("second")
    shutil.rmtree(scratch)
    copy.rename(scratch)
    with pytest.raises(VerificationError, match=r"counted 2 draws and .* holds 1: .* older copy"):
        draw("second")


def test_every_draw_is_counted_before_its_text_is_handed_on(make_project, monkeypatch):
    ctx, planned = begun(make_project())
    told = []
    renew = Leases.renew

    def watched(self, lease):
        told.append((lease.part, lease.steps, sorted(scratch.glob("samples/*"))))
        return renew(self, lease)

    scratch = ctx.workspace.scratch(planned.id)
    monkeypatch.setattr(Leases, "renew", watched)
    generate(ctx, planned, 0, models())
    part, steps, samples = told[-1]
    assert (part, samples) == ("shard-0", [])
    lines = (scratch / "journal-00000").read_bytes().count(b"\n") - 1
    assert steps == lines == ctx.ledger.leases.parts(planned.id)["shard-0"]


# The seed of the buckets


def allocation(project, *, name, seed_of=None):
    """Seed and texts with their buckets, of the release of a draw; with the run file of another."""
    ctx = project.context(f"privacy.draw={name}", "privacy.epsilon=1", "performance.shards=1")
    planned = reserve_release(ctx)
    scratch = ctx.workspace.scratch(planned.id)
    if seed_of is not None:
        scratch.mkdir(parents=True)
        shutil.copy(seed_of, scratch)
    partition(ctx, planned)
    seed = json.loads((scratch / "run.json").read_text())["seed"]
    lines = (scratch / "buckets" / "shard-00000.jsonl").read_text().splitlines()
    return seed, {(row["text"], row["unit"], row["cell"]) for row in map(json.loads, lines)}


def test_two_releases_share_no_buckets_not_even_with_one_seed(make_project):
    project = make_project(methods={"invisible_ink": {"texts_per_label": 64, "max_tokens": 2}})
    (seed, first), (another, other) = (allocation(project, name=name) for name in "12")
    assert seed != another
    assert len(seed) == len(another) == 64
    run = next((project.root / ".privsyn" / "scratch").glob("*/run.json"))
    again, copied = allocation(project, name="3", seed_of=run)
    assert again in (seed, another)
    for one, two in combinations((first, other, copied), 2):
        assert {row[:2] for row in one} == {row[:2] for row in two}
        assert len({row[1] for row in one & two}) <= 5  # of 15 units or so, each alike 1 time in 64


def test_the_secret_of_the_buckets_is_on_no_page(make_project):
    """Neither the seed nor the key of the lineage: who knows both knows each unit's place."""
    project = make_project()
    ctx, planned = begun(project)
    state = project.root / ".privsyn"
    seed = json.loads((ctx.workspace.scratch(planned.id) / "run.json").read_text())["seed"]
    key = ctx.open_account().partition_key.reveal()
    for shard in range(2):
        generate(ctx, planned, shard, models())
    certify(ctx, planned)
    validate(ctx, planned)
    report(ctx, planned)
    pages = [path for path in project.root.rglob("*") if path.is_file()]
    pages = [path for path in pages if not path.is_relative_to(state)]
    assert {"certificate.json", "report.html"} <= {path.name for path in pages}
    secrets = [seed.encode(), bytes.fromhex(seed), key.hex().encode(), key]
    told = [path.name for path in pages for secret in secrets if secret in path.read_bytes()]
    assert told == []


# Elsewhere


def test_workers_of_several_names_on_one_folder_share_a_release(make_project, monkeypatch):
    """Two workers, a renamed machine, a container that was made anew."""
    project = make_project()
    _, planned = begun(project)
    for shard, host in enumerate(("worker-2", "worker-3")):
        monkeypatch.setattr("platform.node", lambda host=host: host)
        generate(project.context(), planned, shard, models())
    monkeypatch.setattr("platform.node", lambda: "worker-4")
    assert certify(project.context(), planned).is_dir()


def test_a_moved_project_goes_on_and_a_copied_one_does_not(make_project, tmp_path):
    shared = f"services.ledger=sqlite:///{tmp_path / 'shared.db'}"
    project = make_project()
    ctx = project.context(shared)
    planned = begin_release(ctx)
    copy = project.copy(tmp_path / "copy").context(shared)
    copy.noise = Fails
    for stage in (lambda: generate(copy, planned, 0, models()), lambda: partition(copy, planned)):
        with pytest.raises(LeaseHeld, match=r"is a copy of .* where it was begun"):
            stage()
    project.root.rename(tmp_path / "moved")
    moved = Project(tmp_path / "moved").context(shared)
    for shard in range(2):
        generate(moved, planned, shard, models())
    assert certify(moved, planned).is_dir()


# Given up while the ledger is away


def broken(ctx, planned):
    generate(ctx, planned, 0, breaking(RuntimeError("the text was: CANARY")))


@pytest.mark.parametrize("next_step", ["generate", "partition", "certify", "settle", "sweep"])
def test_a_release_the_ledger_could_not_be_told_of_is_lost_by_whoever_comes_next(
    make_project, monkeypatch, next_step
):
    project = make_project()
    ctx, planned = begun(project)

    def away(*_):
        raise LedgerUnavailable("the ledger is away.")

    with monkeypatch.context() as patch:
        patch.setattr(Releases, "lose", away)
        with pytest.raises(ReleaseLost, match="could not be told") as refused:
            broken(ctx, planned)
        assert "CANARY" not in str(refused.value)
        again = project.context()
        again.noise = Fails
        assert again.ledger.releases.get(planned.id).state == "BEGUN"
        with pytest.raises(LedgerUnavailable):  # still away: nothing is drawn
            generate(again, planned, 0, models())
    again = project.context()
    again.noise = Fails
    steps: dict[str, Edit] = {
        "generate": lambda ctx: generate(ctx, planned, 1, models()),
        "partition": lambda ctx: partition(ctx, planned),
        "certify": lambda ctx: certify(ctx, planned),
        "settle": lambda ctx: settle(ctx, planned),
        "sweep": sweep,
    }
    if next_step in ("settle", "sweep"):
        assert steps[next_step](again) in ("LOST", [planned.id])
        assert not again.workspace.scratch(planned.id).exists()
    else:
        with pytest.raises(ReleaseLost, match="given up after a draw"):
            steps[next_step](again)
    assert again.ledger.releases.get(planned.id).state == "LOST"


def test_an_error_after_a_draw_that_may_be_tried_again_loses_no_release(make_project):
    ctx, planned = begun(make_project())
    with pytest.raises(LedgerUnavailable):
        generate(ctx, planned, 0, breaking(LedgerUnavailable("why.")))
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"


@pytest.mark.parametrize("ledger", [True, False])
def test_of_scratch_and_ledger_one_is_enough_to_lose_a_release(make_project, monkeypatch, ledger):
    """Where neither can be written the error says what to do."""
    ctx, planned = begun(make_project())

    def full(*_):
        raise OSError(28, "No space left on device")

    def away(*_):
        raise LedgerUnavailable("the ledger is away.")

    told = f"before anything .* privsyn ledger lose {planned.id}"
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        if not ledger:
            patch.setattr(Releases, "lose", away)
        with pytest.raises(ReleaseLost, match=None if ledger else told):
            broken(ctx, planned)
    assert ctx.ledger.releases.get(planned.id).state == ("LOST" if ledger else "BEGUN")


# Left behind


class Recorder:
    """A tracker that keeps how runs ended."""

    def __init__(self):
        from privsyn.tracking import MlflowTracker

        self._nothing = MlflowTracker("")
        self.ended: dict[str, str] = {}

    def release_run(self, release_id):
        return release_id

    def finish(self, run_id, status="FINISHED"):
        self.ended[run_id] = status

    def __getattr__(self, name):
        return getattr(self._nothing, name)


def committed(project):
    ctx, planned = begun(project)
    for shard in range(2):
        generate(ctx, planned, shard, models())
    return ctx, planned, certify(ctx, planned)


def test_whoever_commits_wipes(make_project):
    """Where only the failed tasks of a run are cleared, settle does not run again."""
    ctx, planned, _ = committed(make_project())
    scratch = ctx.workspace.scratch(planned.id)
    assert not scratch.exists()
    (scratch / "buckets").mkdir(parents=True)  # killed between commit and wipe
    (scratch / "buckets" / "shard-00000.jsonl").write_text("private")
    certify(ctx, planned)
    assert not scratch.exists()


def test_who_publishes_ends_the_run(make_project, monkeypatch):
    project = make_project()
    ctx, planned, _ = committed(project)
    recorder = Recorder()
    ctx = project.context(tracker=recorder)
    validate(ctx, planned)
    assert planned.id not in recorder.ended
    revision = type("Revision", (), {"md5": "m", "pointer": "p"})()
    monkeypatch.setattr(
        "privsyn.stages.publish.DvcPublisher",
        lambda *_, **__: type("P", (), {"publish": lambda *_, **__: revision})(),
    )
    publish(ctx, planned)
    assert recorder.ended[planned.id] == "FINISHED"


@pytest.mark.parametrize("state", ["COMMITTED", "LOST", "VOID", "BEGUN", "RESERVED", "unknown"])
def test_a_sweep_wipes_what_ended_and_nothing_else(make_project, state):
    project = make_project()
    recorder = Recorder()
    ctx = project.context(tracker=recorder)
    if state == "COMMITTED":
        _, planned, _ = committed(project)
    else:
        planned = plan(ctx, "invisible_ink", open_account=True)
        if state != "unknown":
            reserve(ctx, planned)
        if state == "VOID":
            ctx.ledger.releases.void(planned.id, "why")
        if state in ("BEGUN", "LOST"):
            partition(ctx, planned)
        if state == "LOST":
            ctx.ledger.releases.lose(planned.id, "why")
    buckets = ctx.workspace.scratch(planned.id) / "buckets"
    buckets.mkdir(parents=True, exist_ok=True)
    (buckets / "more").write_text("private")
    over = state in ("COMMITTED", "LOST", "VOID")
    assert leftovers(ctx) == ([planned.id] if over else [])
    assert sweep(ctx) == ([planned.id] if over else [])
    assert buckets.exists() is not over
    assert leftovers(ctx) == sweep(ctx) == []
    status = {"COMMITTED": {planned.id: "FINISHED"}, "LOST": {planned.id: "FAILED"}}
    recorder.ended.pop("", None)  # nested runs of stages
    assert recorder.ended == status.get(state, {})


def test_whoever_asks_what_is_left_hears_of_a_lost_ledger(make_project):
    """As `run` does: with it the charges are gone, and nothing is spent would be false."""
    ctx, planned, _ = committed(make_project())
    for file in ctx.workspace.state.glob("ledger.db*"):
        file.unlink()
    del ctx.__dict__["ledger"]
    with pytest.raises(AccountMismatch, match=f"does not know release {planned.id}"):
        plan(ctx, "private_prediction")
    with pytest.raises(VerificationError, match="lost or replaced"):
        sweep(ctx)
    assert not (ctx.workspace.state / "ledger.db").exists()


def test_a_sweep_takes_what_a_killed_student_left_but_not_one_at_work(make_project):
    from privsyn.students.release import lock_student

    ctx, planned, _ = committed(make_project())
    name = f"{planned.id}.student-00000000"
    stranger = "of-another-ledger.student-00000000"
    mine = ctx.workspace.scratch("readme.txt")
    for left in (name, stranger):
        (ctx.workspace.scratch(left) / "model").mkdir(parents=True)
    mine.write_text("mine")
    with lock_student(ctx, name):
        assert sweep(ctx) == []
    assert sweep(ctx) == [name]
    assert sorted(path.name for path in mine.parent.iterdir()) == [stranger, "readme.txt"]


def test_a_void_release_that_another_run_takes_up_is_not_swept_from_under_it(make_project):
    ctx = make_project().context()
    planned = reserve_release(ctx)
    ctx.ledger.releases.void(planned.id, "another run ended")
    reserve(ctx, planned)
    partition(ctx, planned)
    assert sweep(ctx) == []
    assert settle(ctx, planned) == "BEGUN"  # nor by the run that had given it up
    generate(ctx, planned, 0, models())
