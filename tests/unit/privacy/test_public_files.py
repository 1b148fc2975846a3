"""What a release reads beside the records is public: no setting brings a private file into one."""

import ast
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, FilePath

from privsyn.config import Config
from privsyn.data.public_files import PublicFiles, ReadsFiles, pieces, shares_text
from privsyn.errors import ConfigError, PrivsynError
from privsyn.files import OnDisk, marks, values
from privsyn.methods.base import PricingFacts
from privsyn.methods.registry import METHODS, load_method, settings_model
from privsyn.methods.shared.distill import STUDENTS
from privsyn.models.model_identity import ModelIdentity
from privsyn.section import Section
from privsyn.stages.base import open_context
from privsyn.stages.plan import plan
from privsyn.stages.reserve import reserve, settle
from privsyn.tracking import MlflowTracker

ROOT = Path(__file__).parents[3]
SECRET = "vermilion-ocelot-90210"
KPS = "keyphrase_seeding"


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    (root / ".privsyn" / "scratch").mkdir(parents=True)
    (tmp_path / "airflow").mkdir()
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    records = [
        {"unit": f"u{i}", "label": "a", "text": f"Text {i} of a patient called {SECRET}"}
        for i in range(20)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    for place in private_places(root):
        place.write_text(lines)
    (root / "public.txt").write_text("heart\nheart failure\npatient\n")
    (root / "params.yaml").write_text(
        json.dumps(
            {
                "dataset": {
                    "name": "d", "path": "private.jsonl", "test_path": "held_out.jsonl",
                    "label": "label", "labels": ["a"], "unit": "unit",
                },
                "account": {"name": "d", "adjacency": "add_remove", "epsilon": 30, "delta": 1e-6},
                "privacy": {"epsilon": 5, "delta": 1e-6},
                "methods": {KPS: {"use_llm": False, "vocabulary_size": 3, "features": 16,
                                  "sequence_length": 2, "sequences_per_label": 2}},
                "evaluate": {"by": "nothing"},
            }
        )
    )  # fmt: skip
    return root


def private_places(root):
    return [
        root / "private.jsonl",
        root / "held_out.jsonl",
        root / ".privsyn" / "scratch" / "buckets",
        root.parent / "airflow" / "jwt_secret",
    ]


def context(root, *overrides):
    ctx = open_context(root / "params.yaml", overrides)
    ctx.__dict__["tracker"] = MlflowTracker("")
    return ctx


def sha(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def names(root, place):
    yield str(place)
    yield os.path.relpath(place, root)
    yield str(root / "nothing" / ".." / os.path.relpath(place, root))
    (root / "symbolic").symlink_to(place)
    yield "symbolic"
    (root / "folder").symlink_to(place.parent)
    yield f"folder/{place.name}"
    (root / "hard.txt").hardlink_to(place)
    yield "hard.txt"
    (root / "twice").symlink_to(root / "hard.txt")
    yield "twice"


NAMED = [
    (f"methods.{KPS}.vocabulary", KPS),
    ("validation.suite", KPS),
]


@pytest.mark.parametrize(("setting", "method"), NAMED)
@pytest.mark.parametrize("place", range(4))
def test_no_setting_names_a_private_file_whatever_it_is_called(project, setting, method, place):
    target = private_places(project)[place]
    for name in names(project, target):
        with pytest.raises(ConfigError, match="must name a public file") as caught:
            plan(context(project, f"{setting}={name}"), method)
        assert sha(target) not in str(caught.value)
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("setting", ["language", "embedder", "image", "image_embedder"])
@pytest.mark.parametrize("kind", ["inside", "link", "linked folder", "by a link", "around", "file"])
def test_no_model_folder_reaches_a_private_place(project, setting, kind):
    folder = project / ".privsyn" / "scratch"
    if kind == "link":
        folder = project / "model"
        folder.mkdir()
        (folder / "tokenizer.json").symlink_to(private_places(project)[2])
    elif kind == "linked folder":
        (project / "model").mkdir()
        (project / "model" / "unet").symlink_to(folder)
        folder = project / "model"
    elif kind == "by a link":
        (project / "model").mkdir()
        (project / "further").mkdir()
        (project / "further" / "back").symlink_to(project / "model")
        (project / "further" / "text").symlink_to(folder)
        (project / "model" / "unet").symlink_to(project / "further")
        folder = project / "model"
    elif kind == "around":
        folder = project
    elif kind == "file":
        folder = private_places(project)[0]
    with pytest.raises(ConfigError, match=f"models.{setting}=.* must name a public file"):
        plan(context(project, f"models.{setting}={folder}"), KPS)


def test_a_student_does_not_start_in_a_private_place(project):
    from privsyn.students.train import start_folder

    ctx = context(project, "methods.distill.init=.privsyn/scratch")
    with pytest.raises(ConfigError, match="must name a public file"):
        start_folder(ctx.settings("distill"))
    (project / "model").mkdir()
    ctx = context(project, "methods.distill.init=model")
    assert start_folder(ctx.settings("distill")) == project / "model"


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_regular_file_is_refused_without_waiting(project, kind):
    odd = project / "odd"
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "folder":
        odd.mkdir()
    else:
        odd.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"is not a regular file|cannot be read"):
        plan(context(project, f"methods.{KPS}.vocabulary=odd"), KPS)


# --- shared text ----------------------------------------------------------------------------------

COPIES = {
    "the file": lambda lines: "\n".join(lines),
    "its texts": lambda lines: "\n".join(json.loads(line)["text"] for line in lines),
    "one of its texts": lambda lines: "heart\n" + json.loads(lines[7])["text"].upper() + " !",
    "as CSV": lambda lines: "\n".join(f'x,"{json.loads(line)["text"]}",1' for line in lines),
    "as examples": lambda lines: json.dumps(
        {"phrases": ["a"], "text": json.loads(lines[3])["text"]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", list(COPIES))
@pytest.mark.parametrize("source", ["private.jsonl", "held_out.jsonl"])
def test_a_copy_of_private_text_is_refused_before_anything_is_spent(project, which, source):
    from privsyn.stages.partition import partition

    if source == "held_out.jsonl":  # its records are others than those that train
        (project / source).write_text(
            (project / source).read_text().replace("patient", "visitor, who waited for long,")
        )
    lines = (project / source).read_text().splitlines()
    copied = project / "copy.txt"
    copied.write_text(COPIES[which](lines))
    key = f"methods.{KPS}.vocabulary"
    ctx = context(project, f"{key}=copy.txt")
    planned = plan(ctx, KPS, open_account=True)
    reserve(ctx, planned)
    with pytest.raises(ConfigError, match="shares text with the private file") as caught:
        partition(ctx, planned)
    told = str(caught.value).lower()
    for line in lines:
        for word in set(json.loads(line)["text"].lower().split()) - {"a", "of", "text"}:
            assert word not in told
    assert ctx.ledger.releases.get(planned.id).state == "RESERVED"
    assert settle(ctx, planned) == "VOID"
    assert ctx.ledger.accounts.balance("d").spent == 0


@pytest.mark.parametrize(
    ("invented", "refused"),
    [(f"TEXT 7 of a patient, called {SECRET}!", True), ("My knee hurts since Monday.", False)],
)
def test_an_example_that_is_a_record_is_refused_before_anything_is_spent(
    project, invented, refused
):
    from privsyn.stages.partition import partition

    ctx = context(project, f"dataset.examples={json.dumps([{'text': invented}])}")
    planned = plan(ctx, KPS, open_account=True)
    reserve(ctx, planned)
    if not refused:
        assert partition(ctx, planned)
        return
    with pytest.raises(ConfigError, match=r"dataset\.examples, .*shares text") as caught:
        partition(ctx, planned)
    assert SECRET not in str(caught.value)
    assert settle(ctx, planned) == "VOID"
    assert ctx.ledger.accounts.balance("d").spent == 0


def test_public_terms_that_records_use_are_no_shared_text(project):
    from privsyn.stages.partition import partition

    key = f"methods.{KPS}.vocabulary"
    ctx = context(project, f"{key}=public.txt")
    planned = plan(ctx, KPS, open_account=True)
    reserve(ctx, planned)
    assert partition(ctx, planned) == 1
    assert ctx.ledger.releases.get(planned.id).state == "BEGUN"


def test_labels_are_public_and_short_pieces_agree_by_chance():
    label = "Neurology and neurosurgery"
    private = [[f'{{"text": "yes", "label": "{label}"}}', "yes", label]]
    assert not shares_text([f"{label}\nyes\n".encode()], private, [label])
    assert shares_text([f"{label}\nyes\n".encode()], private)
    assert not shares_text([b"\x1f\x8bbroken"], private)
    assert not shares_text([], private)
    number = [list(pieces(["call 555 0101 2222"]))]
    assert shares_text([b"call 555-0101-2222"], number)


# --- the marks ------------------------------------------------------------------------------------


def sections():
    return [Config, *(settings_model(name) for name in (*METHODS, STUDENTS))]


def test_every_path_is_marked():
    for section in sections():
        for name, mark in marks(section):
            assert mark.kind != "unmarked", f"{section.__name__}.{name}"
    for name in (*METHODS, STUDENTS):
        if list(marks(settings_model(name))):
            assert issubclass(settings_model(name), ReadsFiles), name


def test_a_path_is_found_however_it_is_nested():
    class Inner(Section):
        deep: Path | None = None

    class Odd(Section):
        one: FilePath
        two: dict[str, list[Inner]]
        three: tuple[Annotated[str, OnDisk("file")], ...]
        four: os.PathLike[str]
        five: str

    assert [name for name, _ in marks(Odd)] == ["one", "two.deep", "three", "four"]
    odd = Odd(
        one=__file__, two={"a": [Inner(deep=Path("x"))]}, three=("y",), four=Path("z"), five=""
    )
    assert [value for _, value, _ in values(odd)] == [__file__, "x", "y", "z"]


OPENED: set[str] = set()
LISTENING = False


def listen(event, arguments):
    if LISTENING and event in ("open", "os.listdir", "os.scandir") and arguments[0]:
        OPENED.add(os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else "")


@pytest.fixture(scope="module")
def opened():
    sys.addaudithook(listen)  # cannot be taken away again, so it listens only when told
    return OPENED


def read_by(method, settings, found):
    """Files that a method opens while it resolves settings, plans and makes its prompt."""
    global LISTENING
    from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit

    identity = ModelIdentity("m", "r")
    roles = ("language", "text", "embedder", "image", "image_embedder", "base")
    found.clear()
    LISTENING = True
    try:
        cfg = method.Config(**settings)
        cfg = method.resolve(cfg, dict.fromkeys(roles, identity))
        method.calibrate(
            cfg, Guarantee(5, 1e-6), PricingFacts(Adjacency.ADD_REMOVE, PrivacyUnit(), tuple(["a"]))
        )
        method.cells(cfg, ["a"])
        method.prompt(cfg)
    except (PrivsynError, ValueError):
        pass  # refused: what was opened before is what counts
    finally:
        LISTENING = False
    return set(found)


def texts(model, prefix=()):
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from texts(kind, (*prefix, name))
            elif kind is str or (isinstance(kind, type) and issubclass(kind, Path)):
                yield (*prefix, name)
            elif "str" in str(kind) and "Literal" not in str(kind) and kind is not type(None):
                yield (*prefix, name)


def unmarked(method, file, found):
    """Settings of a method that are opened as a file, and no mark says so."""
    marked = {name for name, _ in marks(method.Config)}
    wrong = set()
    for place in set(texts(method.Config)) | {tuple(name.split(".")) for name in marked}:
        for value in (str(file), [str(file)], {"a": str(file)}):
            settings: Any = value
            for part in reversed(place):
                settings = {part: settings}
            if str(file) in read_by(method, settings, found) and ".".join(place) not in marked:
                wrong.add(".".join(place))
    return wrong


@pytest.mark.parametrize("name", list(METHODS))
def test_no_setting_is_opened_as_a_file_unless_it_is_marked(name, tmp_path, opened):
    file = tmp_path / "mine.txt"
    file.write_text("one\ntwo\n")
    assert not unmarked(load_method(name), file, opened)


OPENERS = {"open", "read_text", "read_bytes", "expanduser", "fdopen", "glob", "rglob", "iterdir"}
ALLOWED = {
    "keyphrase_seeding/method.py": {"read_bytes"},  # the vocabulary that is shipped
    "dp_lora/method.py": {"read_bytes"},  # the release's own trained model
    "private_evolution/method.py": {"read_bytes"},  # the release's own table of tokens
}


def test_methods_open_files_by_the_door_alone():
    methods = ROOT / "privsyn" / "methods"
    opened = {}
    for file in methods.rglob("*.py"):
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
        }
        if called & OPENERS:
            opened[file.relative_to(methods).as_posix()] = called & OPENERS
    assert opened == ALLOWED


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_name_that_leads_elsewhere_once_it_was_checked_is_refused(tmp_path, monkeypatch, link):
    private, public = tmp_path / "private.txt", tmp_path / "public.txt"
    private.write_text(SECRET)
    public.write_text("terms")
    door = PublicFiles(tmp_path, private=[("the private file", private)])

    def swap(*_):
        public.unlink()
        link(public, private)

    monkeypatch.setattr(door, "check", swap)
    with pytest.raises(ConfigError, match="holds the private file, but must name a public file"):
        door.read("setting", "public.txt")
