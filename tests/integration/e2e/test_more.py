"""privsyn more: records beyond a release's own, charged nothing, provably of their parent."""

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import privsyn.students.more as stage
from privsyn import layout
from privsyn.data.artifacts import sha256_file
from privsyn.errors import ConfigError, ValidationFailed, VerificationError
from privsyn.methods.private_evolution.method import ADAPTATION, PrivateEvolution
from privsyn.modalities.registry import modality_of
from privsyn.release import certificate, signature
from privsyn.report import verification
from privsyn.stages.folder import seal
from privsyn.stages.run import run
from privsyn.students.more import more
from tests.integration.e2e.small_project import METHODS, build_project, reseal

NAME = "private_evolution"


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A published release of texts and two lots of further ones, one by the command line."""
    root = tmp_path_factory.mktemp("more")
    tables = {"word_share": 0.5, "mean_share": 0.25, "voted": 6}
    project = build_project(root / "project", methods={NAME: METHODS[NAME] | tables})
    ctx = project.context()
    parent = project.root / "releases" / run(ctx, NAME).id
    spent = ctx.ledger.accounts.balance("letters").spent
    printed = project.cli("more", parent.name, "-n", "30").stdout
    assert more(ctx, parent.name, 7).name == f"{parent.name}.more-2"
    return project, parent, spent, printed


def test_more_costs_nothing_and_is_of_its_parent(grown):
    project, parent, spent, printed = grown
    folders = [parent.with_name(f"{parent.name}.more-{n}") for n in (1, 2)]
    ctx = project.context()
    assert ctx.ledger.accounts.balance("letters").spent == spent
    assert "30 records in" in printed
    for folder, count in zip(folders, (30, 7), strict=True):
        lines = [json.loads(line) for line in (folder / "synthetic.jsonl").read_text().splitlines()]
        assert len(lines) == count
        assert len({line["id"] for line in lines}) == count
        assert {line["label"] for line in lines} <= {"Billing", "Symptoms"}
        _, sealed = certificate.read(folder)
        assert sealed["parents"] == [certificate.read(parent)[1]]
        assert sealed["derived"] == {"more": count}
        assert sealed["class"] == "dp-release"
        assert (folder / "report.html").is_file()
        checks = verification.verify(folder, ctx.ledger)
        assert all(check.passed is not False for check in checks)
        assert "ledger offspring" in {check.name for check in checks}
        assert folder.with_name(f"{folder.name}.dvc").is_file()
    assert ctx.ledger.verify().rows
    assert "per person" in project.cli("verify", str(folders[0])).stdout
    assert ctx.open_account().spec.name == "letters"  # the offspring are no forgotten releases


def test_the_table_by_which_texts_are_written_is_sealed_with_the_release(grown):
    project, parent, *_ = grown
    table = parent / layout.EXHIBITS / ADAPTATION
    _, sealed = certificate.read(parent)
    assert sealed["exhibits"][ADAPTATION] == sha256_file(table)
    assert sealed["drawn"]["voted"] == 12
    whole = table.read_bytes()
    table.write_bytes(whole.replace(b'"tokens": [', b'"tokens": [3, ', 1))
    with pytest.raises(VerificationError):
        more(project.context(), parent.name, 3)
    table.write_bytes(whole)


def test_two_at_once_take_two_names(grown):
    """The second begins and ends while the first is at work."""
    project, parent, *_ = grown
    ctx, inner = project.context(), []

    def meanwhile(stage, done, total, things=""):
        if not inner:
            inner.append(more(project.context(), parent.name, 3, published=False))

    ctx.progress = meanwhile
    outer = more(ctx, parent.name, 5, published=False)
    assert outer != inner[0]
    for folder, count in ((outer, 5), (inner[0], 3)):
        assert len((folder / "synthetic.jsonl").read_text().splitlines()) == count
        assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))


def test_killed_at_the_ledger_it_leaves_no_folder_and_no_name_taken(grown, monkeypatch):
    project, parent, *_ = grown
    ctx = project.context()
    before = set((project.root / "releases").iterdir())

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(ctx.ledger.releases), "derive", killed)
        with pytest.raises(KeyboardInterrupt):
            more(ctx, parent.name, 3, published=False)
    left = {file for file in (project.root / "releases").iterdir() if file not in before}
    assert all(file.name.startswith(".") for file in left)  # half-built, and no release
    folder = more(ctx, parent.name, 3, published=False)
    assert folder not in before
    assert all(check.passed is not False for check in verification.verify(folder, ctx.ledger))
    assert not any(file.exists() for file in left)


def test_no_invented_address_is_in_a_further_record(grown, monkeypatch):
    project, parent, *_ = grown
    written = [("Billing", f"Note {n}: write to ann@example.org.") for n in range(3)]
    monkeypatch.setattr(PrivateEvolution, "more", lambda *_: iter(written))
    folder = more(project.context(), parent.name, 3, published=False)
    lines = (folder / "synthetic.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert texts == [f"Note {n}: write to [email]." for n in range(3)]


def test_records_that_the_ledger_never_noted_do_not_pass(grown, tmp_path):
    """A forger who holds the parent can make a consistent certificate, but no ledger row."""
    project, parent, *_ = grown
    ctx = project.context()
    forged = tmp_path / "forged"
    rows = [{"id": "x-0", "label": "Billing", "text": "the private text itself"}]
    (tmp_path / "building").mkdir()
    artifact = modality_of(ctx.config.dataset).write(tmp_path / "building", rows)
    sealed = certificate.derive(
        certificate.read(parent)[1], artifact, name="x", how={"more": 1}, root=project.root
    )
    seal(tmp_path / "building", sealed, forged)
    checks = verification.verify(forged, ctx.ledger)
    assert [check.name for check in checks if check.passed is False] == ["ledger offspring"]
    unknown = [check for check in verification.verify(forged, None) if check.passed is None]
    assert [check.name for check in unknown] == ["report", "ledger row"]


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed["parents"][0]["plan"].update(epsilon=0.1),
        lambda sealed: sealed["parents"][0].update(reserved_on="2020-01-01"),
        lambda sealed: sealed.update(parents=[]),
        lambda sealed: sealed.update(parents=sealed["parents"] * 2),
        lambda sealed: sealed.update({"class": "public"}),
    ],
)
def test_an_edited_parent_is_found(grown, tmp_path, change):
    _, parent, *_ = grown
    folder = parent.with_name(f"{parent.name}.more-2")
    _, sealed = certificate.read(folder)
    change(sealed)
    (tmp_path / "synthetic.jsonl").write_bytes((folder / "synthetic.jsonl").read_bytes())
    reseal(tmp_path, sealed)
    with pytest.raises(VerificationError):
        verification.raise_on_failure(tmp_path, verification.verify(tmp_path, None))


def test_what_is_signed_of_further_records_names_them(grown):
    _, parent, *_ = grown
    folder = parent.with_name(f"{parent.name}.more-2")
    signed = signature.statement(folder, certificate.read(folder)[1])
    assert signed["predicate"]["release"] == folder.name


def test_a_method_that_reads_the_data_makes_no_more(make_project):
    project = make_project()
    planned = run(project.context(), "invisible_ink", published=False)
    with pytest.raises(ConfigError, match="cannot make more without the data") as refused:
        more(project.context(), planned.id, 3)
    assert "private_evolution" in refused.value.hint


def test_further_records_that_fail_their_suite_are_not_released(monkeypatch, tmp_path):
    ctx, asked = MagicMock(), []
    failed = SimpleNamespace(success=False, failures=())
    monkeypatch.setattr(stage, "examine", lambda *_: failed)
    monkeypatch.setattr(stage, "place", lambda *_, released: asked.append(released) or tmp_path)
    with pytest.raises(ValidationFailed):
        stage.check_more(ctx, MagicMock(), tmp_path / "r.more-1", 1)
    assert asked == [False]
