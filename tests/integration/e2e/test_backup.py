"""The drill of docs/backup.md: an older ledger is put back, and nothing spent is forgotten."""

from __future__ import annotations

import sqlite3

import pytest

from privsyn.errors import AccountMismatch, VerificationError
from privsyn.ledger.entries import State
from privsyn.stages.draw import generate
from privsyn.stages.partition import partition
from privsyn.stages.reserve import settle
from tests.integration.e2e.small_project import finish, reserve_release


@pytest.fixture
def project(make_project):
    return make_project()


def back_up(project, to):
    """What `sqlite3 ledger.db ".backup FILE"` does."""
    with sqlite3.connect(project.root / ".privsyn" / "ledger.db") as source:
        with sqlite3.connect(to) as target:
            source.backup(target)
        target.close()
    source.close()
    return to


def put_back(project, backup):
    (project.root / ".privsyn" / "ledger.db").write_bytes(backup.read_bytes())


def reserved(project, draw):
    ctx = project.context(f"privacy.draw={draw}")
    planned = reserve_release(ctx)
    return planned


@pytest.mark.parametrize("left", ["folder", "pointer"])
def test_a_ledger_from_before_a_finished_release_is_refused(project, fake, tmp_path, left):
    finish(project.context(), reserved(project, 0), fake)
    older = back_up(project, tmp_path / "older.db")
    second = reserved(project, 1)
    folder = finish(project.context("privacy.draw=1"), second, fake)
    newer = back_up(project, tmp_path / "newer.db")
    if left == "pointer":  # published, and the folder cleaned up since
        folder.rename(tmp_path / folder.name)
        folder.with_name(f"{folder.name}.dvc").write_text("meta: {account: letters}\n")
    put_back(project, older)
    before = project.context().ledger.history()
    with pytest.raises(VerificationError, match=f"does not know 1 .*{second.id}"):
        project.context().check_releases()
    for draw in (0, 1, 2):
        with pytest.raises(AccountMismatch, match=f"does not know release {second.id}"):
            reserved(project, draw)
    assert project.context().ledger.history() == before
    put_back(project, newer)
    assert reserved(project, 1) == second
    project.context().check_releases()
    assert len(project.context().ledger.releases.all()) == 2


@pytest.mark.parametrize("state", ["unknown", "RESERVED", "BEGUN"])
def test_a_release_that_is_being_drawn_goes_on_and_is_charged_once(project, fake, tmp_path, state):
    """Its draws lie in the scratch, of which the ledger's backup knows less or nothing."""
    finish(project.context(), reserved(project, 0), fake)
    backup = back_up(project, tmp_path / "ledger.db")
    ctx, planned = project.context("privacy.draw=1"), reserved(project, 1)
    if state == "RESERVED":
        backup = back_up(project, tmp_path / "ledger.db")
    shards = partition(ctx, planned)
    if state == "BEGUN":
        backup = back_up(project, tmp_path / "ledger.db")
    samples = [generate(ctx, planned, shard, fake) for shard in range(shards)]
    drawn = [file.read_bytes() for file in samples]
    put_back(project, backup)
    ctx = project.context("privacy.draw=1")
    assert reserved(project, 1) == planned
    assert partition(ctx, planned) == shards
    again = [generate(ctx, planned, shard, fake) for shard in range(shards)]
    assert [file.read_bytes() for file in again] == drawn
    finish(ctx, planned, fake)
    assert settle(ctx, planned) == State.COMMITTED
    assert [entry.state for entry in ctx.ledger.releases.all()] == [State.COMMITTED] * 2
    ctx.ledger.verify()
