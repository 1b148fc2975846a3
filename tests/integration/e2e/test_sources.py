"""The private file from one run to the next: changed, the same again, by date."""

import shutil
from dataclasses import replace
from datetime import date

import pytest

from privsyn.errors import DataError
from privsyn.stages.base import find_workdir, open_plan
from privsyn.stages.partition import partition, source_changed
from privsyn.stages.reserve import reserve, settle
from tests.integration.e2e.small_project import finish, reserve_release, rows


def test_a_file_that_changed_under_its_version_fails_in_reserve(make_project, fake):
    project = make_project()
    ctx = project.context()
    planned = reserve_release(ctx)
    finish(ctx, planned, fake)
    assert reserve_release(project.context()).id == planned.id  # found again, at no cost
    spent = ctx.ledger.accounts.balance("letters").spent
    project.data.unlink()
    assert reserve_release(project.context()).id == planned.id  # finished: it needs no file
    project.write(rows(50, 20))
    for change in ("privacy.draw=0", "privacy.draw=1"):
        with pytest.raises(DataError, match=r"dataset\.version=v1: .*made from under this") as told:
            reserve_release(project.context(change))
        assert told.value.exit_code == 2
    assert ctx.ledger.accounts.balance("letters").spent == spent
    assert [refusal.error for refusal in ctx.ledger.releases.refusals()] == ["DataError"] * 2
    reserve_release(project.context("dataset.version=v2", "privacy.epsilon=1"))


def test_a_begun_release_is_resumed_whatever_became_of_its_file(make_project, fake):
    project = make_project()
    ctx = project.context()
    planned = reserve_release(ctx)
    partition(ctx, planned)
    project.write(rows(50, 20))
    again = project.context()
    assert reserve(again, planned).state == "BEGUN"
    assert source_changed(again, planned)
    assert finish(again, planned, fake).is_dir()


def test_the_same_file_under_a_new_version_is_not_paid_for_twice(make_project):
    project = make_project()
    reserve_release(project.context("privacy.epsilon=1"))
    copy = shutil.copy(project.data, project.root / "export-2.jsonl")
    new = ("dataset.version=v2", f"dataset.path={copy}", "privacy.epsilon=1")
    with pytest.raises(DataError, match=r"same content as version v1.*higher privacy\.draw"):
        reserve_release(project.context(*new))
    assert project.context().ledger.accounts.balance("letters").entries == 1
    reserve_release(project.context("privacy.epsilon=1", "privacy.draw=1"))
    assert project.context().ledger.accounts.balance("letters").entries == 2


def test_a_file_that_changes_between_reserve_and_partition_is_not_opened(make_project):
    project = make_project()
    ctx = project.context()
    planned = reserve_release(ctx)
    project.write(rows(50, 20))
    with pytest.raises(DataError, match=r"changed since release .* was reserved"):
        partition(project.context(), planned)
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
    assert settle(ctx, planned) == "VOID"
    partition(project.context(), reserve_release(project.context()))


def test_a_file_that_changes_after_a_release_began_is_no_part_of_it(make_project, fake):
    project = make_project()
    ctx = project.context()
    planned = reserve_release(ctx)
    work = find_workdir(ctx, ctx.ledger.releases.get(planned.id))
    work.begin(planned.shards)  # and killed before it read a record
    kept = project.data.read_bytes()
    project.write(rows(50, 20))
    with pytest.raises(DataError, match=r"changed since release .* was reserved.*ledger lose"):
        partition(project.context(), planned)
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"
    project.data.write_bytes(kept)
    finish(project.context(), planned, fake)
    assert ctx.ledger.releases.get(planned.id).state == "COMMITTED"


def test_the_date_of_a_run_chooses_its_file(make_project):
    project = make_project()
    dated = ("dataset.version='{date:%Y-%m}'", "dataset.path='in/{date:%Y}/{date:%m}{x}.jsonl'")
    for month, count in ((9, 40), (10, 60)):
        file = project.root / "in" / "2026" / f"{month:02d}{{x}}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        project.write(rows(count, 20))
        project.data.rename(file)
    found = []
    for month in (9, 10):
        ctx = replace(project.context(*dated, "privacy.epsilon=1"), day=date(2026, month, 15))
        ctx.__dict__["tracker"] = project.context().tracker
        planned = reserve_release(ctx)
        partition(ctx, planned)
        assert planned.dataset.version == f"2026-{month:02d}"
        assert not source_changed(ctx, planned)
        found.append((planned.id, open_plan(ctx, planned).source.path.name))
        private = {path.name for _, path in ctx.files._private}  # of every month
        assert {"09{x}.jsonl", "10{x}.jsonl"} <= private
        # another process, on another day, with the plan of this one
        later = replace(project.context(*dated), day=date(2027, 1, 1))
        again = type(planned).model_validate_json(planned.model_dump_json())
        assert open_plan(later, again).source.path == open_plan(ctx, planned).source.path
    assert [name for _, name in found] == ["09{x}.jsonl", "10{x}.jsonl"]
    assert found[0][0] != found[1][0]
    late = replace(project.context(*dated), day=date(2026, 11, 15))
    late.__dict__["tracker"] = project.context().tracker
    with pytest.raises(DataError, match=r"in/2026/11\{x\}\.jsonl does not exist"):
        reserve_release(late)  # an export that is late spends nothing on the last one
