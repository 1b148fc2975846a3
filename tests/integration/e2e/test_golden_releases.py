"""What was released goes on to verify.

``golden/releases`` holds a release of every method and the ledger that vouches for them, and
``golden/project`` their project with a release that is half drawn, as tools/write_releases.py wrote
them.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from privsyn.data.unit_key import ID_RULE
from privsyn.dp.events import Gaussian, dump
from privsyn.errors import PaidBefore, VerificationError
from privsyn.ledger.ledger import Ledger
from privsyn.methods.invisible_ink import method
from privsyn.methods.shared.prompts import Prompt
from privsyn.release import certificate
from privsyn.release.facts import ReleaseFacts
from privsyn.release.plan import Plan, release_id
from privsyn.report import verification
from privsyn.stages.base import Context, open_context
from privsyn.stages.plan import plan, preview, report
from privsyn.stages.reserve import reserve, unfinished_releases
from privsyn.stages.run import draw
from privsyn.tracking import MlflowTracker
from tests.integration.e2e.small_project import reseal
from tools.write_releases import BEGUN, METHODS

GOLDEN = Path(__file__).parents[2] / "golden" / "releases"
SOLVED = ("clip_bound", "private_tokens", "noise_multiplier")
"""Derived numbers that plans solve for; all others follow from them and the settings."""
RELEASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """The ledger of these releases, brought up to date where it is opened."""
    with sqlite3.connect(tmp_path / "ledger.db") as database:
        database.executescript((GOLDEN / "ledger.sql").read_text())
    database.close()
    return Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


def test_there_is_one_of_every_method() -> None:
    assert len({name.rpartition("-")[0] for name in RELEASES}) == len(RELEASES) == 5


@pytest.mark.parametrize("name", RELEASES)
def test_a_golden_release_verifies(ledger: Ledger, name: str) -> None:
    checks = verification.verify(GOLDEN / name, ledger)
    not_passed = {check.name: check.passed for check in checks if not check.passed}
    assert not_passed == {verification.REPORT: None}  # it was never validated
    assert verification.authentic(checks)


@pytest.mark.parametrize("name", RELEASES)
def test_an_edited_price_is_seen(ledger: Ledger, tmp_path: Path, name: str) -> None:
    """Its event is recomputed, not believed, even where the seal is made anew."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    _, sealed = certificate.read(folder)
    sealed["plan"]["event"] = dump(Gaussian(1e9))
    reseal(folder, sealed)
    failed = {check.name for check in verification.verify(folder, None) if check.passed is False}
    assert "event" in failed
    with pytest.raises(VerificationError, match=f"If this one did: .* privsyn restore {name}"):
        verification.raise_on_failure(folder, verification.verify(folder, None))


def test_another_rule_for_ids_is_seen(tmp_path: Path) -> None:
    """Who is one unit is part of what a certificate says: a rule unknown here is not taken."""
    folder = tmp_path / RELEASES[0]
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    _, sealed = certificate.read(folder)
    assert sealed["plan"]["unit_ids"] == ID_RULE
    for unit_ids in ("privsyn-ids/0", None):
        sealed["plan"]["unit_ids"] = unit_ids
        if unit_ids is None:
            del sealed["plan"]["unit_ids"]
        else:
            sealed["plan"]["release_id"] = release_id(sealed["plan"])
        reseal(folder, sealed)
        checks = verification.verify(folder, None)
        failed = {check.name for check in checks if check.passed is False}
        assert ("unit ids" if unit_ids else verification.OTHER) in failed
        assert "release id" not in failed


def test_a_release_of_another_build_is_not_called_changed(ledger: Ledger, tmp_path: Path) -> None:
    """Its certificate names things as that build did, and its seal holds."""
    folder = tmp_path / RELEASES[0]
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    _, body = certificate.read(folder)
    body["plan"]["examples"] = body["plan"].pop("settings")
    reseal(folder, body)
    checks = verification.verify(folder, ledger)
    with pytest.raises(VerificationError) as caught:
        verification.raise_on_failure(folder, checks)
    assert "another version or build made it" in str(caught.value)
    assert str(caught.value).endswith("Verify it with the privsyn that made it.")
    with pytest.raises(VerificationError, match="use that one"):
        _ = ReleaseFacts.read(folder).plan
    (folder / body["artifact"]["file"]).write_text("changed")
    checks = verification.verify(folder, ledger)
    with pytest.raises(VerificationError, match=r"artifact is unchanged.*\)\. .* privsyn restore "):
        verification.raise_on_failure(folder, checks)


def test_the_account_goes_on_as_it_was_opened(ledger: Ledger) -> None:
    """What it was charged counts on."""
    ledger.verify()
    (account,) = ledger.accounts.all()
    before = ledger.accounts.balance(account.spec.name)
    assert before.spent == pytest.approx(sum(entry.loss for entry in ledger.releases.all()))
    preview = ledger.accounts.preview(account.spec, Gaussian(3.0))
    assert preview.key_id
    assert preview.fits


@pytest.mark.parametrize("name", RELEASES)
def test_a_golden_release_is_priced_and_named_as_it_was(name: str) -> None:
    """Its plan, resolved anew, has the event and the name that it was released with."""
    said = json.loads((GOLDEN / name / "certificate.json").read_text())["plan"]
    plan = Plan.model_validate(said | {"warnings": (), "shards": 1})
    event, derived = plan.priced_again()
    charged = plan.mechanism().whole
    assert dump(event) == dump(charged) == said["event"]
    # The last digit of an FFT is the processor's: see verification._cost.
    assert dict(derived) == pytest.approx(said["derived"], rel=1e-9)
    assert plan.is_its_name


@pytest.fixture
def project(ledger: Ledger, tmp_path: Path) -> Path:
    """The released version's project, as an upgrade finds it: moved to another folder."""
    root = tmp_path / "project"
    shutil.copytree(GOLDEN.parent / "project", root)
    state = root / ".privsyn"
    state.mkdir(mode=0o700)
    (root / "scratch").rename(state / "scratch")
    (tmp_path / "ledger.db").rename(state / "ledger.db")
    for name in RELEASES:
        shutil.copytree(GOLDEN / name, root / "releases" / name)
    return root


def context(project: Path, *changes: str) -> Context:
    ctx = open_context(project / "params.yaml", changes)
    ctx.__dict__["tracker"] = MlflowTracker("")
    return ctx


def test_a_golden_project_finds_its_releases_at_no_cost(project: Path) -> None:
    ctx = context(project)
    ctx.check_releases()
    before = len(ctx.ledger.history())
    planned = [plan(ctx, name) for name in METHODS]
    assert sorted(one.id for one in planned) == RELEASES
    for one in planned:
        assert reserve(ctx, one).state == "COMMITTED"
    assert len(ctx.ledger.history()) == before


def test_a_golden_release_that_was_half_drawn_is_finished(project: Path) -> None:
    ctx = context(project, *BEGUN)
    planned = plan(ctx, "invisible_ink")
    assert [entry.release_id for entry in unfinished_releases(ctx)] == [planned.id]
    spent = ctx.ledger.accounts.balance(planned.account).spent
    draw(ctx, planned)
    assert ctx.ledger.accounts.balance(planned.account).spent == spent
    checks = verification.verify(ctx.workspace.release(planned.id), ctx.ledger)
    assert [check for check in checks if check.passed is False] == []
    assert unfinished_releases(ctx) == []


def test_a_release_of_an_older_version_is_not_charged_again_in_silence(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version with another prompt: new ids for old settings."""
    old, half = (plan(context(project, *changes), "invisible_ink") for changes in ((), BEGUN))
    prompt = Prompt(private="A {label}, in other words: {reference}", public="A {label}:")
    monkeypatch.setattr(method, "resolved_prompt", lambda *_: prompt)
    for changes, earlier, way in (
        ((), old, "privsyn restore"),
        (BEGUN, half, "privsyn ledger lose"),
    ):
        ctx = context(project, *changes)
        new, before = plan(ctx, "invisible_ink"), len(ctx.ledger.history())
        assert new.id != earlier.id
        assert new.settings_digest == earlier.settings_digest
        seen = preview(ctx, new)
        assert not seen.fits
        assert report(new, seen)["account"]["earlier"] == earlier.id
        with pytest.raises(PaidBefore, match=f"{way} {earlier.id}.*raise privacy.draw by one"):
            reserve(ctx, new)
        assert len(ctx.ledger.history()) == before
    ctx = context(project, f"privacy.draw={old.draw + 1}")
    new = plan(ctx, "invisible_ink")
    assert preview(ctx, new).fits
    assert reserve(ctx, new).state == "RESERVED"


@pytest.mark.parametrize(
    "change",
    [
        "privacy.draw=7",
        "privacy.epsilon=2.0",
        "dataset.version=v9",
        "methods.invisible_ink.texts_per_label=5",
        "account.amplification=false",
    ],
)
def test_other_settings_are_another_release(project: Path, change: str) -> None:
    """Nobody is asked twice about what they have chosen themselves."""
    before = plan(context(project), "invisible_ink")
    ctx = context(project, change)
    planned = plan(ctx, "invisible_ink")
    assert planned.settings_digest != before.settings_digest
    assert preview(ctx, planned).earlier is None
