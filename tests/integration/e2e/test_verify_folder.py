"""Every file of a release folder is covered, named as not covered, or refused."""

import hashlib
import json
import math
import os
import shutil

import pytest

from privsyn.data.artifacts import sha256_file
from privsyn.dp.accountant import format_epsilon
from privsyn.errors import VerificationError
from privsyn.ledger.chain import VALIDATED
from privsyn.methods.base import Backends
from privsyn.release import certificate
from privsyn.release.facts import ReleaseFacts
from privsyn.report import verification
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve
from privsyn.stages.validate import validate, write_report
from tests.integration.e2e.small_project import (
    build_project,
    failures,
    finish,
    reseal,
    reserve_release,
    stand_in,
)

REPORTS = ("validation.json", "report.html", "report.json", "quality.json")
COVERED = ("synthetic.jsonl", "certificate.json", *REPORTS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    project = build_project(tmp_path_factory.mktemp("verify") / "project")
    ctx = project.context()
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends({"language": stand_in()}))
    return project, planned, validate(ctx, planned)


@pytest.fixture
def copy(made, tmp_path):
    target = tmp_path / made[2].name
    shutil.copytree(made[2], target)
    return target


def test_a_validated_release_is_covered_whole(made, copy):
    ledger = made[0].context().ledger
    checks = {check.name: check for check in verification.verify(copy, ledger)}
    assert all(check.passed for check in checks.values())
    for name in REPORTS:
        assert name in checks["validation reports"].detail
    assert verification.authentic(list(checks.values()))
    assert ledger.verify().entries == 1


def without_reports(folder):
    for name in REPORTS:
        (folder / name).unlink()
    return folder


def test_reports_that_the_ledger_noted_are_missed(made, copy):
    """One that failed its suite looks like one that nobody validated."""
    ledger = made[0].context().ledger
    checks = {check.name: check for check in verification.verify(without_reports(copy), ledger)}
    assert [name for name, check in checks.items() if check.passed is False] == [
        "validation reports"
    ]
    assert checks["validation reports"].detail == f"{len(REPORTS)} missing: {sorted(REPORTS)[0]}"
    assert not verification.covers_reports(copy, ledger)


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.parametrize("how", ["changed", "gone", "empty", "link", "fifo", "folder"])
def test_whatever_is_done_to_a_file_is_seen(made, copy, name, how):
    file = copy / name
    kept = copy.parent / "kept"
    shutil.copyfile(file, kept)
    if how == "changed":
        file.write_bytes(kept.read_bytes().replace(b"a", b"b", 1) + b" ")
    else:
        file.unlink()
        make = {"empty": file.touch, "fifo": lambda: os.mkfifo(file), "folder": file.mkdir,
                "link": lambda: file.symlink_to(kept), "gone": lambda: None}  # fmt: skip
        make[how]()
    for ledger in (made[0].context().ledger, None):
        try:
            found = failures(copy, ledger)
        except VerificationError:
            assert name == "certificate.json"
        else:
            plain = how in ("changed", "gone", "empty", "link")
            assert "report" in found if name in REPORTS and plain and not ledger else found
            assert ledger is None or name not in REPORTS or "validation reports" in found


def sealed_again(folder, **changes):
    """What validation said with ``changes``, and digests and seal to match, as a forger writes."""
    file = folder / "validation.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    certificate.seal_reports(folder)


@pytest.mark.parametrize("signer", ["", "a" * 64])
@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_page_that_says_another_thing_than_the_certificate_is_seen(copy, name, signer):
    """Its digest was put right: it is made again from certificate, records and checks."""
    sealed_again(copy, signer=signer)
    write_report(copy)
    assert failures(copy, None) == {}
    kept = (copy / name).read_text()
    (copy / name).write_text(kept.replace(" protection", " and perfect protection", 1))
    assert (copy / name).read_text() != kept
    sealed_again(copy)
    assert list(failures(copy, None)) == ["report"]


@pytest.mark.parametrize("changes", [{"success": False}, {"cautions": []}, {"deployment": {}}])
def test_a_page_and_its_checks_are_of_one_validation(copy, changes):
    sealed_again(copy, deployment={"curators": "City council"}, cautions=["a"], success=True)
    write_report(copy)
    assert failures(copy, None) == {}
    sealed_again(copy, **changes)
    assert list(failures(copy, None)) == ["report"]


def test_reports_of_another_certificate_are_seen(copy):
    _, sealed = certificate.read(copy)
    sealed["software"]["privsyn"] = "0.0.1"
    reseal(copy, sealed)
    (check,) = [one for one in verification.verify(copy, None) if one.passed is False]
    assert (check.name, check.detail) == ("report", "of another certificate")


def test_a_page_in_other_words_is_covered_by_its_digest_and_not_made_again(copy, monkeypatch):
    """A release still verifies where the templates of its page changed."""
    monkeypatch.setattr(verification, "wording", lambda: "0.1.0+other")
    checks = {check.name: check for check in verification.verify(copy, None)}
    assert checks["report"].passed is True
    assert checks["page"].passed is None
    assert "this privsyn has 0.1.0+other" in checks["page"].detail
    (copy / "report.html").write_bytes((copy / "report.html").read_bytes() + b" ")
    assert list(failures(copy, None)) == ["report"]


@pytest.mark.parametrize(
    "name", ["evil.sh", ".hidden", "images", "exhibits", "model", "x\ny", "synthetic.jsonl.bak"]
)
@pytest.mark.parametrize("how", ["file", "folder", "link", "fifo"])
def test_what_is_not_of_the_release_is_refused(made, copy, name, how):
    extra = copy / name
    if how == "file":
        extra.write_text("x")
    elif how == "folder":
        extra.mkdir()
    elif how == "link":
        extra.symlink_to(copy.parent)
    else:
        os.mkfifo(extra)
    for ledger in (None, made[0].context().ledger):
        assert failures(copy, ledger)
        for check in verification.verify(copy, ledger):
            assert "\n" not in check.detail


def test_derived_numbers_of_another_mechanism_are_seen(copy):
    """They are recomputed; the last digit of one is the processor's."""
    for change, seen in ((lambda value: math.nextafter(value, math.inf), False),
                         (lambda value: value * 2, True)):  # fmt: skip
        _, sealed = certificate.read(copy)
        derived = sealed["plan"]["derived"]
        derived |= {name: change(value) for name, value in derived.items()}
        reseal(copy, sealed)
        assert ("event" in failures(copy, None)) is seen


def test_validating_again_notes_only_what_changed(made):
    project, planned, folder = made
    ctx = project.context()
    notes = [row for row in ctx.ledger.history(planned.id) if row.change == VALIDATED]
    spent = ctx.ledger.accounts.balance("letters").spent
    (folder / ".validation.json.0123.tmp").write_text("half")  # of a validation that was killed
    assert validate(ctx, planned) == folder
    assert [row for row in ctx.ledger.history(planned.id) if row.change == VALIDATED] == notes
    assert len(notes) == 1
    assert all(check.passed for check in verification.verify(folder, ctx.ledger))
    assert ctx.ledger.accounts.balance("letters").spent == spent


def test_without_a_note_reports_are_named_as_not_covered(made, copy, monkeypatch):
    """The folder agrees with itself; that this validation was noted, no ledger says."""
    ledger = made[0].context().ledger
    rows = ledger.history(made[1].id)
    monkeypatch.setattr(
        type(ledger), "history", lambda self, release: [r for r in rows if r.change != VALIDATED]
    )
    checks = {check.name: check for check in verification.verify(copy, ledger)}
    assert [name for name, check in checks.items() if not check.passed] == ["validation reports"]
    assert checks["validation reports"].passed is None
    for name in REPORTS:
        assert name in checks["validation reports"].detail
    assert verification.authentic(list(checks.values()))
    without_reports(copy)
    for book in (None, ledger):
        checks = {check.name: check for check in verification.verify(copy, book)}
        assert checks["report"].passed is None
        assert "not checked" in checks["report"].detail
        assert failures(copy, book) == {}


def forge(folder):
    """Another text, with digests and seal to match: what a hash alone cannot tell."""
    rows = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
    rows[0]["text"] = "forged"
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "synthetic.jsonl").write_bytes(data)
    _, sealed = certificate.read(folder)
    sealed["artifact"]["sha256"] = hashlib.sha256(data).hexdigest()
    reseal(folder, sealed)
    write_report(folder)


@pytest.fixture
def cli(command, tmp_path):
    def run(*arguments):
        code, out, err = command(tmp_path, *arguments)
        return code, " ".join((out + err).split())

    return run


def test_without_a_ledger_a_release_is_consistent_and_no_more(made, copy, cli):
    page = (copy / "report.html").read_bytes()
    (copy / "report.html").write_bytes(page.replace(b"10", b"1", 1))
    code, shown = cli("verify", str(copy), "--params", "none.yaml")
    assert (code, "report.html" in shown) == (4, True)
    forge(copy)
    code, shown = cli("verify", str(copy), "--params", "none.yaml")
    assert code == 0
    assert "Consistent, but not authenticated" in shown
    arguments = ("verify", str(copy), "--params", "none.yaml", "--require-ledger")
    code, shown = cli(*arguments)
    assert code == 6
    assert "no ledger here confirms who made it" in shown
    assert cli(*arguments, "--json")[0] == 6


def test_with_its_ledger_it_is_authentic_and_a_forged_one_is_not(made, copy, cli):
    project, _, folder = made
    params = ("--params", str(project.params), "--require-ledger")
    code, shown = cli("verify", str(folder), *params)
    assert code == 0
    assert "Authentic: confirmed by the ledger" in shown
    forge(copy)
    code, shown = cli("verify", str(copy), *params)
    assert code == 4


# Secret buckets


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    project = build_project(tmp_path_factory.mktemp("secret") / "project", privacy=SMALL)
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    assert planned.amplified
    reserve(ctx, planned)
    folder = finish(ctx, planned, Backends({"language": stand_in()}))
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    said = ReleaseFacts(certificate.read(folder)[1]).odds[-1]
    assert "counts on a secret" in said
    assert (
        f"for them epsilon is {format_epsilon(planned.epsilon_without_secret, digits=4)}." in said
    )
    return folder


SMALL = {"epsilon": 1.0, "delta": 1e-6}
WITHOUT = "risk_without_secret"


def told(sealed):
    sealed["plan"] |= {"amplified": False, "epsilon_without_secret": None}
    del sealed[WITHOUT]


def swapped(sealed):
    sealed["plan"]["adjacency"] = "replace_one"


def unsaid(sealed):
    del sealed["risk"], sealed[WITHOUT]


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (told, {"release id", "event"}),
        (swapped, {"privsyn reads it"}),
        (unsaid, {"privsyn reads it"}),
        (lambda sealed: sealed.pop(WITHOUT), {"privsyn reads it"}),
        (lambda sealed: sealed[WITHOUT].clear(), {"risk"}),
        (lambda sealed: sealed.update({WITHOUT: sealed["risk"]}), {"risk"}),
        (lambda sealed: sealed.update({WITHOUT: 7}), {"privsyn reads it"}),
        (lambda sealed: sealed["plan"].update(amplified=False), {"derived facts"}),
        (lambda sealed: sealed["plan"].update(epsilon_without_secret=None), {"without the secret"}),
        (lambda sealed: sealed["plan"].update(epsilon_without_secret=1.0), {"without the secret"}),
        (lambda sealed: sealed["plan"].update(epsilon_without_secret="?"), {"privsyn reads it"}),
        (lambda sealed: sealed["plan"].update(event=sealed["plan"]["event"]["event"]), {"event"}),
    ],
)
def test_what_a_release_says_of_its_secret_buckets_is_checked(counted, tmp_path, edit, check):
    folder = tmp_path / counted.name
    shutil.copytree(counted, folder)
    _, sealed = certificate.read(folder)
    edit(sealed)
    reseal(folder, sealed)
    assert check <= set(failures(folder, None))


def test_a_link_among_the_named_files_is_no_file_of_a_release(tmp_path):
    """It holds the same bytes, and may hold others tomorrow."""
    folder = tmp_path / "exhibits"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"a")
    named = [("exhibits/a.png", sha256_file(folder / "a.png"))]
    assert verification._files("exhibits", folder, named).passed
    (folder / "a.png").rename(tmp_path / "elsewhere.png")
    (folder / "a.png").symlink_to(tmp_path / "elsewhere.png")
    assert not verification._files("exhibits", folder, named).passed


def test_a_page_of_another_release_or_time_is_seen(made, copy):
    project, _, folder = made
    (copy / "report.html").write_bytes((folder / "report.html").read_bytes() + b"<!-- -->")
    assert list(failures(copy, project.context().ledger)) == ["report", "validation reports"]
    with pytest.raises(VerificationError, match=r"changed since validation: report\.html"):
        verification.raise_on_failure(copy, verification.verify(copy, project.context().ledger))
