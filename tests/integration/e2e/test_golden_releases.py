"""What was released goes on to verify.

``golden/releases`` holds a release of every method and the ledger that vouches for them, as
tools/write_releases.py wrote them.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from privsyn.data.unit_key import ID_RULE
from privsyn.dp.events import Gaussian, dump
from privsyn.ledger.ledger import Ledger
from privsyn.release import certificate, verification
from privsyn.release.plan import SOLVED, Plan, release_id, then_accuracy

GOLDEN = Path(__file__).parents[2] / "golden" / "releases"
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
    assert [check for check in checks if not check.passed] == []
    assert verification.authentic(checks)


@pytest.mark.parametrize("name", RELEASES)
def test_an_edited_price_is_seen(ledger: Ledger, tmp_path: Path, name: str) -> None:
    """Its event is recomputed, not believed, even where the seal is made anew."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    file = folder / "certificate.json"
    body = json.loads(file.read_text())
    del body["seal"]
    body["plan"]["event"] = dump(Gaussian(1e9))
    body["seal"] = certificate.seal_of(body)
    file.write_bytes(certificate.canonical(body))
    failed = {check.name for check in verification.verify(folder, None) if check.passed is False}
    assert "event" in failed


def test_another_rule_for_ids_is_seen(tmp_path: Path) -> None:
    """Who is one unit is part of what a certificate says: a rule unknown here is not taken."""
    folder = tmp_path / RELEASES[0]
    shutil.copytree(GOLDEN / RELEASES[0], folder)
    file = folder / "certificate.json"
    body = json.loads(file.read_text())
    assert body["plan"]["unit_ids"] == ID_RULE
    for unit_ids in ("privsyn-ids/0", None):
        del body["seal"]
        body["plan"]["unit_ids"] = unit_ids
        if unit_ids is None:
            del body["plan"]["unit_ids"]
        else:
            body["plan"]["release_id"] = release_id(body["plan"])
        body["seal"] = certificate.seal_of(body)
        file.write_bytes(certificate.canonical(body))
        checks = verification.verify(folder, None)
        failed = {check.name for check in checks if check.passed is False}
        assert ("unit ids" if unit_ids else "certificate is complete") in failed
        assert "release id" not in failed


def test_the_account_goes_on_as_it_was_opened(ledger: Ledger) -> None:
    """What it was charged counts on."""
    ledger.verify()
    (account,) = ledger.accounts.all()
    before = ledger.accounts.balance(account.spec.name)
    assert before.spent == pytest.approx(sum(entry.loss for entry in ledger.releases.all()))
    preview = ledger.accounts.preview(account.spec, Gaussian(3.0))
    assert preview.exists
    assert preview.fits


@pytest.mark.parametrize("name", RELEASES)
def test_a_golden_release_is_priced_and_named_as_it_was(name: str) -> None:
    """Its plan, resolved anew, has the event and the name that it was released with."""
    said = json.loads((GOLDEN / name / "certificate.json").read_text())["plan"]
    plan = Plan.model_validate(said | {"warnings": (), "shards": 1})
    event, derived = plan.priced_again()
    charged = then_accuracy(plan.mechanism().event, plan.accuracy)
    assert dump(event) == dump(charged) == said["event"]
    # The last digit of an FFT is the processor's: see verification._cost.
    assert dict(derived) == pytest.approx(said["derived"], rel=1e-9)
    assert plan.is_its_name


@pytest.mark.parametrize("name", RELEASES)
def test_derived_numbers_are_recomputed(name: str) -> None:
    """What a draw is scaled by follows from the settings, whatever an edited plan says."""
    said = json.loads((GOLDEN / name / "certificate.json").read_text())["plan"]
    plan = Plan.model_validate(said | {"warnings": (), "shards": 1})
    honest = plan.mechanism().derived
    for key in set(honest) - set(SOLVED):
        edited = plan.model_copy(update={"derived": plan.derived | {key: honest[key] * 1e-6 + 1}})
        for derived in (edited.mechanism().derived, edited.priced_again()[1]):
            assert derived[key] == pytest.approx(honest[key], rel=1e-9), key
