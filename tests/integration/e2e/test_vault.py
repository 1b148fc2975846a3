"""Releases whose private intermediates lie in a vault: on machines with no folder in common."""

from __future__ import annotations

import base64
import io
import json
import re
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from privsyn.data import object_store
from privsyn.data.object_store import open_store
from privsyn.errors import (
    ConfigError,
    DataError,
    LeaseHeld,
    LedgerUnavailable,
    ReleaseLost,
    StorageError,
    VerificationError,
)
from privsyn.ledger.database import Database, _parse
from privsyn.ledger.draws import SealedDraws
from privsyn.ledger.releases import Releases
from privsyn.methods.base import Backends
from privsyn.release.release_store import ReleaseStore
from privsyn.release.workdir import GIVEN_UP, VaultWorkdir
from privsyn.report import verification
from privsyn.stages.base import find_workdir
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate, train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.publish import restore
from privsyn.stages.reserve import reserve, settle
from privsyn.stages.validate import validate
from privsyn.students.cleanup import sweep
from privsyn.vault import VARIABLE, ReleaseKey, ReleaseVault, entries
from tests import preloaded
from tests.fakes import FakeLogitModel
from tests.integration.e2e.small_project import (
    CANARY,
    METHODS,
    Project,
    begin_release,
    breaking,
    environment,
    finish,
    reserve_release,
    rows,
    stand_in,
    stand_ins,
)
from tests.integration.e2e.test_columns import DECLARED
from tests.integration.vault.s3_server import BUCKET, proxied, reached_at
from tests.noise import NeverDraws, SeededNoise

KEY = base64.b64encode(bytes(range(32))).decode()
SECRET = "told/to+nobody=4711"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(VARIABLE, KEY)


def models() -> Backends:
    return Backends(stand_ins())


@pytest.fixture
def machines(make_project, tmp_path):
    """Homes of a project that share a ledger and a vault, and nothing else."""

    def make(
        count: int,
        name: str = "home-0",
        *,
        vault: str | None = f"file://{tmp_path / 'vault'}",
        ledger: str | None = f"sqlite:///{tmp_path / 'shared' / 'ledger.db'}",
        **changes,
    ):
        services = {"ledger": ledger, "vault": vault}
        first = make_project(name, services=services, **changes)
        some = [row | {"text": f"{row['text']} {CANARY}"} for row in rows(48, 20)]
        beside = {"channel": CANARY, "visited": "2024-05-17"}
        first.write([row | beside | {"age": 2 * n} for n, row in enumerate(some)])
        homes = [first]
        for number in range(1, count):
            homes.append(Project(Path(shutil.copytree(first.root, tmp_path / f"home-{number}"))))
            homes[-1].data.unlink()  # only the first sees the records
        return homes

    return make


def reserved(project: Project):
    ctx = seeded(project)
    return ctx, reserve_release(ctx)


def seeded(project: Project, seed: int = 0):
    ctx = project.context()
    ctx.noise = lambda: SeededNoise(seed)
    return ctx


def released(homes) -> Path:
    """A release whose every task runs in the next home, with one public randomness and one seed."""
    with pytest.MonkeyPatch.context() as patch:
        make, own = np.random.default_rng, np.random.Generator(np.random.PCG64(1))
        patch.setattr(np.random, "default_rng", lambda seed=None: make(seed or own.integers(2**63)))
        patch.setattr(secrets, "randbits", lambda bits: int(own.integers(2**62)))
        token, seed = secrets.token_hex, "0" * 64
        patch.setattr(secrets, "token_hex", lambda n: seed if n == 32 else token(n))  # of a scratch
        patch.setattr(ReleaseKey, "seed", seed)  # of a vault
        return _released(homes)


def _released(homes) -> Path:
    turn = 0

    def next_home():
        nonlocal turn
        turn += 1
        return seeded(homes[turn % len(homes)])

    ctx = seeded(homes[0])
    (method,) = ctx.config.methods
    planned = reserve_release(ctx, method)
    shards = partition(ctx, planned)
    train(next_home(), planned, backends=models())
    for shard in range(shards):
        generate(next_home(), planned, shard, models())
    last = next_home()
    folder = certify(last, planned)
    assert settle(last, planned) == "COMMITTED"
    return folder


COLUMNED = {"dataset": {"columns": DECLARED}, "columns": {"pairs": "auto"}}


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("invisible_ink", {}),
        ("private_evolution", {}),
        ("dp_lora", {}),
        ("invisible_ink", COLUMNED),
        ("dp_lora", COLUMNED),
    ],
)
def test_a_release_over_three_homes_is_that_of_one_machine(machines, tmp_path, method, changes):
    changes = {"methods": {method: METHODS[method]}} | changes
    homes = machines(3, **changes)
    plan(homes[0].context(), method, open_account=True)
    [alone] = machines(1, name="alone", vault=None, ledger=None, **changes)
    (alone.root / ".privsyn").mkdir()
    shutil.copy(tmp_path / "shared" / "ledger.db", alone.root / ".privsyn")
    folder, expected = released(homes), released([alone])
    assert folder.name == expected.name
    lines = [(where / "synthetic.jsonl").read_text() for where in (folder, expected)]
    assert lines[0] == lines[1]
    a, b = (json.loads((where / "certificate.json").read_text()) for where in (folder, expected))
    assert a["plan"] == b["plan"]


def test_a_journal_is_looked_through_by_pages(machines, monkeypatch):
    [home] = machines(1)
    ctx, planned = reserved(home)
    partition(ctx, planned)
    generate(ctx, planned, 0, models())
    vault = ctx.vault.find(ctx.ledger.draws, planned.id)
    drawn, read, rows = entries(ctx.ledger.draws, vault, "shard-0"), [], SealedDraws.rows

    def noted(self, *where):
        read.append(len(rows(self, *where)))
        return rows(self, *where)

    monkeypatch.setattr("privsyn.vault._PAGE", 3)
    monkeypatch.setattr(SealedDraws, "rows", noted)
    assert entries(ctx.ledger.draws, vault, "shard-0") == drawn > 6
    with find_workdir(ctx, ctx.ledger.releases.get(planned.id)) as work:
        assert work.is_finished(0)
    assert max(read) == 3
    with sa.create_engine(f"sqlite:///{home.root.parent}/shared/ledger.db").begin() as connection:
        connection.exec_driver_sql("delete from ledger_draw where part = 'shard-0' and number = 3")
    with pytest.raises(VerificationError, match="a draw is missing"):
        entries(ctx.ledger.draws, vault, "shard-0")


# On a real object store and a real PostgreSQL


@pytest.fixture
def cluster(s3_url, postgres_url, machines, monkeypatch):
    """Homes that share PostgreSQL and a bucket behind a proxy; and the proxy's faults."""
    with proxied(s3_url) as (address, faults):
        for name, value in reached_at(address, SECRET).items():
            monkeypatch.setenv(name, value)
        place = f"s3://{BUCKET}/{secrets.token_hex(4)}"

        def make(count: int, **changes):
            return machines(count, vault=place, ledger=postgres_url, **changes)

        yield make, place, faults


def attempt(project: Project, counter: Path, kill_at: int) -> subprocess.CompletedProcess[str]:
    """A release from plan to settle in a process that may kill itself in a draw."""
    dying = [preloaded.python(), "-m", "tests.integration.e2e.dying_run"]
    return subprocess.run(
        [*dying, str(project.root), str(counter), str(kill_at)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(project),
    )


def everything_in(url: str, place: str) -> list[bytes]:
    """Every byte of the object store, and every row of the ledger's database."""
    store = open_store(place, "services.vault")
    found = []
    for name in store.names():
        content = io.BytesIO()
        store.get(name, content)
        found += [name.encode(), content.getvalue()]
    engine = sa.create_engine(_parse(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        for table in sa.inspect(connection).get_table_names():
            for row in connection.exec_driver_sql(f"SELECT * FROM {table}"):  # noqa: S608
                found += [v if isinstance(v, bytes) else str(v).encode() for v in row]
    return found


@pytest.mark.parametrize(
    ("kill_at", "part", "columned"), [(9, "shard-0", {}), (3, "shard-columns", COLUMNED)]
)
def test_a_part_of_a_killed_worker_is_taken_over_from_another_home(
    cluster, postgres_url, tmp_path, kill_at, part, columned
):
    make, place, _ = cluster
    first, second = make(2, methods={"invisible_ink": METHODS["invisible_ink"]}, **columned)
    counter = tmp_path / "calls"
    killed = attempt(first, counter, kill_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    ctx = second.context()
    [entry] = ctx.ledger.releases.all()
    assert (entry.state, entry.scratch.startswith(f"{place}/")) == ("BEGUN", True)
    stored = everything_in(postgres_url, place)
    assert len(stored) > 40
    assert not any(CANARY.encode() in value for value in stored)
    spent = ctx.ledger.accounts.balance("letters").spent
    place_of = ctx.vault.find(ctx.ledger.draws, entry.release_id)
    before = ctx.ledger.draws.rows(entry.release_id, part)
    drawn = entries(ctx.ledger.draws, place_of, part)
    assert 0 < drawn <= kill_at

    going_on = attempt(second, counter, 0)
    assert going_on.returncode == 0, going_on.stderr[-2000:]
    for output in (killed, going_on):
        assert CANARY not in output.stdout + output.stderr
        assert SECRET not in output.stdout + output.stderr
    written = [file for home in (first, second) for file in home.root.rglob("*") if file.is_file()]
    held = [*stored, *everything_in(postgres_url, place), *(f.read_bytes() for f in written)]
    assert len(written) > 20
    assert not any(SECRET.encode() in value for value in held)
    assert ctx.ledger.releases.get(entry.release_id).state == "COMMITTED"
    assert ctx.ledger.accounts.balance("letters").spent == spent
    # Twice drawn is at most what the killed process had drawn in one call, unseen.
    per_call = METHODS["invisible_ink"]["texts_per_label"] * 2
    of_columns = 4 if columned else 0  # tables, two pairs, their tables
    of_texts = 6 * METHODS["invisible_ink"]["max_tokens"]
    assert counter.stat().st_size <= of_columns + of_texts + per_call
    assert before
    folder = second.root / "releases" / entry.release_id
    rows_ = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows_) == 6
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))

    # No private object and no key is left; what the killed worker had in its cache goes with the
    # next sweep of its machine.
    assert open_store(place, "services.vault").names() == []
    assert ctx.ledger.draws.find_pin(entry.release_id) is None
    assert ctx.ledger.draws.rows(entry.release_id, part) == []
    left = [f for f in (first.root / ".privsyn" / "scratch").rglob("*") if f.is_file()]
    assert any(CANARY in file.read_text(errors="ignore") for file in left)
    assert sweep(first.context()) == [entry.release_id]
    assert not (first.root / ".privsyn" / "scratch" / entry.release_id).exists()
    assert not (second.root / ".privsyn" / "scratch" / entry.release_id).exists()


def test_a_store_that_is_down_ends_a_stage_and_not_the_release(cluster, monkeypatch):
    make, place, faults = cluster
    [home] = make(1)
    monkeypatch.setattr(object_store, "RETRIES", {"max_retries": 0})
    monkeypatch.setattr(object_store, "AGAIN_SECONDS", ())
    ctx, planned = reserved(home)
    faults.fail = 1000
    with pytest.raises(StorageError) as refused:
        partition(ctx, planned)
    assert refused.value.retryable
    faults.fail = 0
    assert partition(seeded(home), planned) == 2

    class Down(SeededNoise):
        """The store goes down once everything is drawn, before it is handed on."""

        def noisy_max(self, *args):
            faults.fail = 1000
            return super().noisy_max(*args)

    class Replays(NeverDraws):
        kind = SeededNoise.kind

    ctx = home.context()
    ctx.noise = lambda: Down(0)
    with pytest.raises(StorageError):
        generate(ctx, planned, 0, models())
    faults.fail = 0
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"
    ctx = home.context()
    ctx.noise = Replays
    generate(ctx, planned, 0, models())
    generate(seeded(home), planned, 1, models())
    assert certify(seeded(home), planned).is_dir()
    assert open_store(place, "services.vault").names() == []


# What may not be drawn


def test_a_machine_with_another_key_or_vault_draws_nothing(machines, monkeypatch, tmp_path):
    first, second = machines(2)
    ctx, planned = reserved(first)
    partition(ctx, planned)
    other = second.context()
    other.noise = NeverDraws
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, "B" * 43 + "=")
        with pytest.raises(ConfigError, match="holds key"):
            generate(other, planned, 0, models())
        patch.delenv(VARIABLE)
        with pytest.raises(ConfigError, match="privsyn keys new --vault"):
            generate(second.context(), planned, 0, models())
    for setting in ("null", f"file://{tmp_path}/elsewhere"):
        with pytest.raises(
            ConfigError, match=r"services\.vault is .*, and release .* lies in file"
        ):
            generate(second.context(f"services.vault={setting}"), planned, 0, models())
    assert ctx.ledger.leases.parts(planned.id) == {"partition": 0}


def test_between_releases_the_key_may_be_replaced(machines, monkeypatch):
    homes = machines(2)
    first = _released(homes)
    monkeypatch.setenv(VARIABLE, "B" * 43 + "=")
    planned = reserve_release(seeded(homes[0]))  # as a run that is cleared
    assert (planned.id, partition(seeded(homes[0]), planned)) == (first.name, 0)
    ctx = homes[0].context("privacy.draw=1", "privacy.epsilon=4")
    planned = reserve_release(ctx)
    for shard in range(partition(ctx, planned)):
        elsewhere = homes[1].context("privacy.draw=1", "privacy.epsilon=4")
        generate(elsewhere, planned, shard, models())
    certify(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"
    assert ctx.vault.releases() == []


def test_a_machine_without_the_records_is_told_of_queues(machines):
    first, second = machines(2)
    ctx, planned = reserved(first)
    for stage, other in ((reserve, "draw=1"), (partition, "draw=0")):
        elsewhere = second.context(f"privacy.{other}")
        asked = planned if stage is partition else plan(elsewhere, "invisible_ink")
        with pytest.raises(
            DataError, match=r"not exist on this machine.*a queue .*schedule\.tasks"
        ):
            stage(elsewhere, asked)
    assert [entry.state for entry in ctx.ledger.releases.all()] == ["RESERVED"]


def test_a_release_that_began_without_a_vault_goes_on_without_one(machines, tmp_path):
    [home] = machines(1)
    ctx = home.context("services.vault=null")
    planned = begin_release(ctx)
    finish(home.context(), planned, models())
    assert not (tmp_path / "vault").exists()


def test_a_published_folder_is_no_vault(machines):
    [home] = machines(1)
    ctx = home.context(f"services.vault=file://{home.root}/releases")
    with pytest.raises(ConfigError, match=r"services\.vault: .* whose content is published"):
        ctx.vault  # noqa: B018


def test_a_failure_after_a_draw_loses_the_release_and_leaves_nothing(machines, monkeypatch):
    first, second = machines(2)
    ctx, planned = reserved(first)
    partition(ctx, planned)

    def away(*_):
        raise LedgerUnavailable("the ledger is away.")

    with monkeypatch.context() as patch:
        patch.setattr(Releases, "lose", away)
        with pytest.raises(ReleaseLost, match="could not be told") as refused:
            generate(seeded(first), planned, 0, breaking(RuntimeError(f"the text was: {CANARY}")))
    assert CANARY not in str(refused.value)
    other = second.context()
    other.noise = NeverDraws
    assert other.ledger.releases.get(planned.id).state == "BEGUN"
    with pytest.raises(ReleaseLost, match="given up after a draw"):  # wherever it comes next
        generate(other, planned, 1, models())
    assert other.ledger.releases.get(planned.id).state == "LOST"
    assert other.ledger.draws.find_pin(planned.id) is None
    assert other.vault.releases() == [planned.id]  # unreadable, and of no use
    assert settle(other, planned) == "LOST"
    assert other.vault.releases() == []


@pytest.mark.parametrize("down", ["ledger", "ledger and vault", "all"])
def test_a_failure_after_a_draw_is_marked_without_the_ledger(machines, monkeypatch, down):
    """The whole ledger is away from the failure on, and comes back before anybody goes on."""

    def away(*_, **__):
        raise LedgerUnavailable("the ledger is away.")

    def full(*_, **__):
        raise StorageError("the disk is full.")

    class Breaks(FakeLogitModel):
        def decode(self, tokens):
            patch.setattr(Database, "read", away)
            patch.setattr(Database, "write", away)
            if down != "ledger":
                patch.setattr(ReleaseVault, "put_bytes", full)
            if down == "all":
                patch.setattr("privsyn.release.workdir.write_json_atomic", full)
            raise RuntimeError("of ours")

    first, second = machines(2)
    ctx, planned = reserved(first)
    partition(ctx, planned)
    with monkeypatch.context() as patch, pytest.raises(ReleaseLost) as lost:
        generate(seeded(first), planned, 0, Backends({"language": stand_in(Breaks)}))
    said = {
        "ledger": r"is told by the next run\. ",
        "ledger and vault": "is told by the next run on this machine",
        "all": f"before anything else runs, privsyn ledger lose {planned.id}",
    }
    assert re.search(said[down], str(lost.value))
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"
    if down != "all":
        other = (second if down == "ledger" else first).context()
        other.noise = NeverDraws
        with pytest.raises(ReleaseLost, match="given up after a draw"):
            generate(other, planned, 1, models())
        assert other.ledger.releases.get(planned.id).state == "LOST"
    assert (ctx.workspace.scratch(planned.id) / GIVEN_UP).exists() is (down != "all")


def test_a_sweep_takes_what_a_kill_left_of_ended_releases_and_nothing_else(machines):
    first, second = machines(2)
    ctx, planned = reserved(first)
    partition(ctx, planned)
    assert sweep(second.context()) == []
    assert ctx.vault.releases() == [planned.id]
    (first.root.parent / "vault" / "of-another-ledger").mkdir()
    ctx.ledger.releases.lose(planned.id, "why")
    assert sweep(second.context()) == [planned.id]
    assert ctx.vault.releases() == ["of-another-ledger"]
    assert sweep(second.context()) == []


@pytest.fixture
def any_file(monkeypatch):
    """Partitions of other files than the one noted, so that it is seen whose was handed on."""
    monkeypatch.setattr("privsyn.stages.partition.source_changed", lambda *_: False)


@pytest.mark.usefixtures("any_file")
@pytest.mark.parametrize("at", ["before it hands on", "while it hands on"])
def test_a_partition_that_was_overtaken_changes_nothing(machines, monkeypatch, at):
    """It stood still until another process had finished, once just after a look at its lease."""
    first, second = machines(2)
    ctx, planned = reserved(first)
    hand_on, put, leases, overtaken = VaultWorkdir.hand_on, ReleaseVault.put, [], []

    def overtake():
        if not overtaken:
            overtaken.append(True)
            ctx.ledger.leases.release(leases[0])  # as one that ran out
            second.write([row | {"text": "another"} for row in rows(48, 20)])
            partition(seeded(second), planned)

    def watched(work, part, lease, names, **more):
        leases.append(lease)
        if at == "before it hands on":
            overtake()
        return hand_on(work, part, lease, names, **more)

    def late(vault, name, file):
        overtake()
        return put(vault, name, file)

    monkeypatch.setattr(VaultWorkdir, "hand_on", watched)
    if at == "while it hands on":
        monkeypatch.setattr(ReleaseVault, "put", late)
    with pytest.raises(LeaseHeld):
        partition(ctx, planned)
    assert overtaken
    with find_workdir(ctx, ctx.ledger.releases.get(planned.id)) as work:
        work.bring("partition")
        text = (work.folder / "buckets" / "shard-00000.jsonl").read_text()
    assert "another" in text
    assert CANARY not in text


def test_nothing_private_is_left_on_a_machine_once_its_stage_has_ended(machines):
    first, second = machines(2)
    ctx, planned = reserved(first)
    partition(ctx, planned)
    generate(seeded(second), planned, 0, models())
    scratch = second.root / ".privsyn" / "scratch"
    assert [file for file in scratch.rglob("*") if file.is_file()] == []
    files = [file for file in second.root.rglob("*") if file.is_file()]
    assert not any(CANARY.encode() in file.read_bytes() for file in files)


def test_vault_key_command_makes_a_key_that_opens(machines, monkeypatch, tmp_path):
    [home] = machines(1)
    monkeypatch.delenv(VARIABLE)
    file = tmp_path / "keys" / "vault.key"
    said = home.cli("keys", "new", "--vault", str(file)).stdout
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() not in said
    ctx = home.context(f"services.vault_key={file}")
    assert ctx.vault.key.id in said
    assert file.read_text().strip() not in repr(ctx.vault.key)
    ctx.vault.check()
    assert ctx.vault.releases() == []
    again = home.cli("keys", "new", "--vault", str(file), check=False)
    assert again.returncode == 2
    assert "never overwritten" in again.stderr
    file.write_text("too short")
    with pytest.raises(ConfigError, match="not 32 bytes in base64"):
        home.context(f"services.vault_key={file}").vault.key  # noqa: B018


@pytest.mark.slow
def test_a_store_that_slows_down_delays_a_release_and_no_more(cluster):
    """Vault and releases in one bucket, which answers each fourth request with 503 SlowDown."""
    make, place, faults = cluster
    [home] = make(1)
    stored = f"services.releases={place}-releases"
    faults.busy = 4
    ctx = home.context(stored)
    planned = reserve_release(ctx)
    finish(ctx, planned, models())
    validate(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"
    shutil.rmtree(home.root / "releases")
    folder = restore(home.context(stored), planned.id)
    assert all(check.passed for check in verification.verify(folder, ctx.ledger))
    faults.busy = 0
    assert open_store(place, "services.vault").names() == []
    assert len(faults.seen) > 50


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reserve", "certify", "commit", "validate"])
def test_a_store_of_releases_that_goes_away_is_no_half_release(cluster, monkeypatch, stage):
    """It is away from one moment on, and back for the next try."""
    make, place, faults = cluster
    [home] = make(1, evaluate={"by": "nothing"})
    monkeypatch.setattr(object_store, "RETRIES", {"max_retries": 0})
    monkeypatch.setattr(object_store, "AGAIN_SECONDS", ())
    ctx = home.context(f"services.releases={place}-releases")
    commit = Releases.commit

    def committed(*arguments, **more):
        if stage == "certify":
            raise AssertionError("committed what only this disk holds")
        entry = commit(*arguments, **more)
        faults.fail = 1000 if stage == "commit" else 0
        return entry

    planned = plan(ctx, "invisible_ink", open_account=True)
    if stage != "reserve":
        reserve(ctx, planned)
        for shard in range(partition(ctx, planned)):
            generate(ctx, planned, shard, models())
    late = {"reserve": reserve, "certify": certify, "commit": certify, "validate": validate}[stage]
    if stage == "validate":
        certify(ctx, planned)
    faults.fail = 0 if stage == "commit" else 1000
    with monkeypatch.context() as patch:
        patch.setattr(Releases, "commit", committed)
        with pytest.raises(StorageError, match=r"cannot \w+ .* in s3://") as refused:
            late(ctx, planned)
    assert refused.value.retryable
    faults.fail = 0
    store = ReleaseStore(f"{place}-releases")
    assert not (stage == "validate" and store._locate(planned.id)[0] == "releases")

    ctx = home.context(f"services.releases={place}-releases")
    reserve(ctx, planned)
    finish(ctx, planned, models())
    folder = validate(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"
    assert all(check.passed for check in verification.verify(folder, ctx.ledger))
    place_of, manifest = store._locate(planned.id)
    assert (place_of, "validation.json" in manifest.files) == ("releases", True)
    assert open_store(place, "services.vault").names() == []
    assert [row.change for row in ctx.ledger.history()].count("RESERVED") == 1
