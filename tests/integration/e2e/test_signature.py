"""A release is signed whole, and whatever is done to it afterwards is refused."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from privsyn.errors import ConfigError
from privsyn.methods.base import Backends
from privsyn.release import signature
from privsyn.release.settings import KEY_VARIABLE, PASSPHRASE_VARIABLE
from privsyn.release.signature import load, new
from privsyn.report import verification
from privsyn.stages.folder import sign
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish, restore
from privsyn.stages.reserve import reserve
from privsyn.stages.validate import validate
from tests import preloaded
from tests.integration.e2e.small_project import (
    build_project,
    finish,
    reserve_release,
    stand_in,
    times,
)

SIGNATURE = "signature.dsse.json"


@pytest.fixture(autouse=True)
def no_key_of_ours(monkeypatch):
    for name in (KEY_VARIABLE, PASSPHRASE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("signed")
    public, _ = new(root / "keys" / "signing.pem")
    project = build_project(root / "project", signing={"key": str(root / "keys" / "signing.pem")})
    ctx = project.context()
    planned = reserve_release(ctx)
    finish(ctx, planned, Backends({"language": stand_in()}))
    return project, planned, validate(ctx, planned), public


@pytest.fixture
def copy(made, tmp_path):
    target = tmp_path / "handed-out" / made[2].name
    shutil.copytree(made[2], target)
    return target


@pytest.fixture
def verify(made, command, tmp_path):
    """Verify as a stranger does: the folder and the public key, and nothing of the project."""

    def run(folder, *arguments, key=made[3]):
        asked = [] if key is None else ["--key", key]
        code, out, err = command(tmp_path, "verify", folder, *asked, *arguments)
        assert len(err.splitlines()) <= 1
        return code, " ".join((out + err).split())

    return run


def envelope(folder):
    return json.loads((folder / SIGNATURE).read_text())


def write(folder, content):
    (folder / SIGNATURE).write_text(
        json.dumps(content, indent=2, sort_keys=True, ensure_ascii=True) + "\n"
    )


def payload(folder):
    return json.loads(base64.b64decode(envelope(folder)["payload"]))


def test_a_stranger_with_the_public_key_learns_who_signed(made, copy, verify):
    name = signature.public_key(made[3]).keyid
    code, shown = verify(copy)
    assert code == 0
    assert f"signed by {name}: all 6 files" in shown
    assert "Authentic: confirmed by the signature" in shown
    code, shown = verify(copy, key=None)
    assert code == 0
    assert "files; the key is not checked: privsyn verify " in shown
    assert "Consistent, but not authenticated" in shown
    code, shown = verify(copy, "--require-ledger")
    assert code == 6  # that is asked for besides


def test_the_statement_names_every_file_and_the_certificate(made):
    said = payload(made[2])
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert [subject["name"] for subject in said["subject"]] == sorted(
        path.name for path in made[2].iterdir() if path.name != SIGNATURE
    )
    predicate = said["predicate"]
    assert predicate["release"] == made[1].id
    assert predicate["guarantee"]["epsilon"] == made[1].epsilon
    named = {subject["name"]: subject["digest"]["sha256"] for subject in said["subject"]}
    assert predicate["certificate"]["sha256"] == named["certificate.json"]


FILES = ("synthetic.jsonl", "certificate.json", "validation.json", "report.html", SIGNATURE)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_and_a_missing_file_are_refused(copy, verify, name):
    content = bytearray((copy / name).read_bytes())
    for place in (1, len(content) // 2, len(content) - 2):
        changed = bytearray(content)
        changed[place] ^= 1
        (copy / name).write_bytes(changed)
        code, _ = verify(copy)
        assert code in ((4, 6) if name == SIGNATURE else (4,))
    (copy / name).write_bytes(content + b"\n")
    assert verify(copy)[0] == 4
    if name not in (SIGNATURE, "certificate.json"):
        (copy / name).unlink()
        code, shown = verify(copy)
        assert code == 4
        assert f"1 missing: {name}" in shown


@pytest.mark.parametrize("name", ["extra.txt", "images/1.png", "exhibits/note.txt", "model/x"])
def test_a_file_that_came_later_is_refused(copy, verify, name):
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text("x")
    code, shown = verify(copy)
    assert code == 4
    assert f"1 not signed: {name}" in shown
    (copy / name).unlink()
    (copy / name).symlink_to(copy / "quality.json")
    assert verify(copy)[0] == 4


def test_a_forged_release_with_digests_to_match_is_refused(copy, verify):
    """What a release without a signature cannot tell, away from its ledger; one with it can."""
    from tests.integration.e2e.test_verify_folder import forge

    forge(copy)
    for report in ("validation.json", "report.html", "report.json", "quality.json"):
        (copy / report).unlink()
    assert verify(copy)[0] == verify(copy, key=None)[0] == 4
    said = payload(copy)
    for subject in said["subject"]:
        if (copy / subject["name"]).exists():
            subject["digest"]["sha256"] = signature.files(copy)[subject["name"]]
    write(copy, envelope(copy) | {"payload": base64.b64encode(json.dumps(said).encode()).decode()})
    code, shown = verify(copy)
    assert code == 4
    assert "the signature does not hold" in shown


def test_a_stripped_signature_is_refused_where_a_key_is_named(made, copy, verify):
    (copy / SIGNATURE).unlink()
    code, shown = verify(copy)
    assert code == 6
    assert f"is not authenticated by {made[3]}: not signed." in shown
    code, shown = verify(copy, key=None)
    assert code == 0
    assert "not signed, and the report names the key" in shown


def test_another_key_is_refused_under_its_own_name_and_under_ours(made, copy, verify, tmp_path):
    public, other = new(tmp_path / "other.pem")
    code, shown = verify(copy, key=public)
    assert code == 6
    assert f"not by {other}" in shown
    ours = signature.public_key(made[3]).keyid
    signature.sign(copy, load(tmp_path / "other.pem"))
    assert verify(copy)[0] == 6
    assert verify(copy, key=public)[0] == 0
    content = envelope(copy)
    content["signatures"][0]["keyid"] = ours
    write(copy, content)
    code, shown = verify(copy)
    assert code == 4
    assert "another key's under this id" in shown


def test_several_signatures_or_none_are_refused(made, copy, verify, tmp_path):
    one = envelope(copy)
    new(tmp_path / "other.pem")
    signature.sign(copy, load(tmp_path / "other.pem"))
    both = envelope(copy)
    both["signatures"] = one["signatures"] + both["signatures"]
    write(copy, both)
    for key in (made[3], None):
        code, shown = verify(copy, key=key)
        assert code == 4
        assert "holds 2 signatures, and a release has one" in shown
    write(copy, one | {"signatures": one["signatures"] * 2})
    assert verify(copy)[0] == 4
    write(copy, one | {"signatures": []})
    assert verify(copy)[0] == 4
    noted = [one["signatures"][0] | {"note": "of somebody else"}]
    write(copy, one | {"signatures": noted})
    assert "no envelope of a release" in verify(copy)[1]


def test_the_envelope_of_another_release_is_refused(made, copy, verify, tmp_path):
    """Signed by the right key, of other files."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(copy, elsewhere)
    (elsewhere / "report.html").write_text("another page")
    signature.sign(elsewhere, load(made[3].with_name("signing.pem")))
    shutil.copyfile(elsewhere / SIGNATURE, copy / SIGNATURE)
    code, shown = verify(copy)
    assert code == 4
    assert "1 changed: report.html" in shown
    said = signature.statement(copy, json.loads((copy / "certificate.json").read_text()))
    resign(copy, made[3].with_name("signing.pem"), said)
    assert verify(copy)[0] == 0
    twice = said | {"subject": [*said["subject"], said["subject"][0]]}
    resign(copy, made[3].with_name("signing.pem"), twice)
    assert "no statement on a release" in verify(copy)[1]
    said["predicate"]["guarantee"]["epsilon"] = 0.1
    resign(copy, made[3].with_name("signing.pem"), said)
    code, shown = verify(copy)
    assert code == 4
    assert "of another certificate" in shown


def resign(folder, key, said, kind="application/vnd.in-toto+json"):
    from securesystemslib.dsse import Envelope

    signed = Envelope(json.dumps(said).encode(), kind, {})
    signed.sign(load(key))
    write(folder, signed.to_dict())


def test_what_is_no_statement_and_no_envelope_is_refused(made, copy, verify):
    for said in ([], {}, {"subject": 1}, {"subject": [{"name": "x"}]}, None, {"subject": [None]}):
        resign(copy, made[3].with_name("signing.pem"), said)  # though the key signed it
        code, shown = verify(copy)
        assert code == 4
        assert "no statement on a release" in shown
    odd = '{"payload": 1, "payloadType": 2, "signatures": 3}'
    for content in ("", "{}", "[]", "null", "[" * 100_000, odd):
        (copy / SIGNATURE).write_text(content)
        for code, shown in (verify(copy), verify(copy, key=None)):
            assert code == 4
            assert "no envelope of a release" in shown
    (copy / SIGNATURE).unlink()
    os.mkfifo(copy / SIGNATURE)
    assert verify(copy)[0] == 4


VERIFIER = """
import base64, json, sys
from pathlib import Path
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
key = SSlibKey.from_crypto(load_pem_public_key(Path(sys.argv[2]).read_bytes()))
envelope = Envelope.from_dict(json.loads(Path(sys.argv[1]).read_text()))
envelope.verify([key], 1)
assert not any(name.startswith("privsyn") for name in sys.modules)
Path(sys.argv[3]).write_bytes(envelope.pae())
(signature,) = envelope.signatures.values()
Path(sys.argv[4]).write_bytes(bytes.fromhex(signature.signature))
"""


def test_others_check_the_envelope_without_privsyn(made, tmp_path):
    """The library's own verification, in a process that does not know privsyn; and OpenSSL."""
    signed, raw = tmp_path / "signed", tmp_path / "raw"
    arguments = [made[2] / SIGNATURE, made[3], signed, raw]
    subprocess.run(
        [sys.executable, "-I", "-c", VERIFIER, *map(str, arguments)], cwd=tmp_path, check=True
    )
    if shutil.which("openssl") is None:
        return

    named = ["-inkey", made[3], "-in", signed, "-sigfile", raw]

    def openssl():
        return subprocess.run(
            ["openssl", "pkeyutl", "-verify", "-pubin", "-rawin", *named],
            capture_output=True,
            text=True,
            check=False,
        )

    assert "Verified Successfully" in openssl().stdout
    signed.write_bytes(signed.read_bytes() + b" ")
    assert openssl().returncode != 0


# --- the stages -----------------------------------------------------------------------------------


def test_a_key_that_cannot_be_used_is_refused_before_anything_is_spent(tmp_path):
    key = tmp_path / "signing.pem"
    project = build_project(tmp_path / "project", signing={"key": str(key)})
    ctx = project.context()
    planned = plan(ctx, "invisible_ink", open_account=True)
    key.write_text("no key")
    key.chmod(0o600)
    with pytest.raises(ConfigError, match="no private key in PEM"):
        reserve(ctx, planned)
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="read or written by others"):
        reserve(ctx, planned)
    inside = build_project(tmp_path / "inside", signing={"key": "releases/signing.pem"}).context()
    with pytest.raises(ConfigError, match="whose content is published"):
        reserve(inside, plan(inside, "invisible_ink", open_account=True))
    assert ctx.ledger.releases.find(planned.id) is None


def test_the_machine_that_has_the_key_signs_when_it_publishes(made, tmp_path, caplog, monkeypatch):
    project = made[0].copy(tmp_path / "copy")
    folder = project.root / "releases" / made[1].id
    (folder / SIGNATURE).unlink()
    ctx = project.context(f"signing.key={tmp_path / 'elsewhere.pem'}")
    validate(ctx, made[1])
    assert not (folder / SIGNATURE).exists()
    assert "is not signed" in caplog.text
    with pytest.raises(ConfigError, match="nothing is published without it"):
        publish(ctx, made[1])
    monkeypatch.setenv(KEY_VARIABLE, str(made[3].with_name("signing.pem")))
    config = ["-m", "dvc", "config", "--local", "core.no_scm", "true"]
    subprocess.run([preloaded.python(), *config], cwd=project.root, check=True)
    publish(project.context(), made[1])
    assert signature.fits(folder)
    pointer = (project.root / "releases" / f"{made[1].id}.dvc").read_text()
    assert "nfiles: 7" in pointer  # the signature goes with the release
    signed = times(folder)
    assert len(signed) == 1
    shutil.rmtree(folder)
    assert times(restore(project.context(), made[1].id)) == signed
    public, _ = new(tmp_path / "new.pem")  # the key is replaced: who publishes again signs anew
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "new.pem"))
    publish(project.context(), made[1])
    shutil.rmtree(folder)
    restore(project.context(), made[1].id)
    checks = verification.verify(folder, project.context().ledger, signature.public_key(public))
    assert [check.name for check in checks if check.passed is False] == []


def test_a_signature_that_no_longer_fits_is_taken_away(made, tmp_path):
    project = made[0].copy(tmp_path / "copy")
    folder = project.root / "releases" / made[1].id
    assert sign(project.context("signing.key=null"), folder) is None
    assert (folder / SIGNATURE).exists()
    (folder / "report.html").write_text("a newer page")
    sign(project.context("signing.key=null"), folder)
    assert not (folder / SIGNATURE).exists()


def test_the_private_key_is_in_nothing_that_a_project_keeps(made):
    project, *_, public = made
    private = public.with_name("signing.pem").read_bytes()
    secret = b"".join(private.splitlines()[1:-1])
    raw = base64.b64decode(secret)[-32:]
    needles = [private, secret, secret[-32:], raw, raw.hex().encode(), b"PRIVATE KEY"]
    for file in project.root.rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            assert not [needle for needle in needles if needle in content], file


# --- keys -----------------------------------------------------------------------------------------


@pytest.fixture
def keys(command, tmp_path):
    def run(*arguments, where=tmp_path):
        code, out, err = command(where, "keys", *arguments)
        return code, " ".join((out + err).split())

    return run


def test_a_new_key_is_its_owners_alone_and_never_overwrites(keys, tmp_path):
    old = os.umask(0)
    try:
        code, shown = keys("new", "keys/signing.pem")
    finally:
        os.umask(old)
    assert code == 0
    private, public = tmp_path / "keys/signing.pem", tmp_path / "keys/signing.pub.pem"
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.parent.stat().st_mode & 0o777 == 0o700
    name = signature.public_key(public).keyid
    assert name in shown
    assert "signing.pub.pem" in shown
    assert "PRIVATE" not in shown
    assert keys("show", public) == (0, name)
    before = private.read_bytes()
    for gone in (None, public):
        if gone is not None:
            gone.unlink()
        code, shown = keys("new", "keys/signing.pem")
        assert code == 2
        assert "is there already, and a key is never overwritten" in shown
        assert private.read_bytes() == before
    assert sorted(file.name for file in private.parent.iterdir()) == ["signing.pem"]


def test_a_key_is_kept_out_of_what_is_published_or_committed(keys, tmp_path):
    project = build_project(tmp_path / "project")
    (project.root / ".git").mkdir()
    code, shown = keys("new", "signing.pem", where=project.root)
    assert code == 2
    assert "could be committed" in shown
    code, shown = keys("new", "releases/signing.pem", where=project.root)
    assert code == 2
    assert "whose content is published" in shown
    assert not list(project.root.rglob("*.pem"))
    params = project.params.read_text() + "\nsigning: {key: .privsyn/signing.pem}\n"
    project.params.write_text(params)
    code, _ = keys("new", where=project.root)
    assert code == 0
    assert (project.root / ".privsyn/signing.pem").is_file()


def test_an_encrypted_key_wants_its_passphrase(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "a long one")
    file = tmp_path / "signing.pem"
    new(file)
    assert b"ENCRYPTED" in file.read_bytes()
    load(file)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "another")
    with pytest.raises(ConfigError, match="with this passphrase") as wrong:
        load(file)
    assert "another" not in str(wrong.value)
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    with pytest.raises(ConfigError, match="is encrypted"):
        load(file)
    assert Path(file).stat().st_mode & 0o777 == 0o600


def test_settings_cannot_name_the_key_as_a_public_file(made):
    key = str(made[3].with_name("signing.pem"))
    with pytest.raises(ConfigError, match="the signing key"):
        made[0].context().files.check("methods.keyphrase_seeding.vocabulary", key)
