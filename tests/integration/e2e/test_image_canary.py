"""Private images, their names and what is written in them: nowhere but in the scratch of a run."""

from __future__ import annotations

import base64
import io
import logging

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from privsyn.data.images import encode
from privsyn.methods.base import Backends
from privsyn.stages.base import open_context, open_plan
from privsyn.stages.certify import certify
from privsyn.stages.draw import generate
from privsyn.stages.evaluate import evaluate
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.publish import publish
from privsyn.stages.reserve import settle
from privsyn.stages.validate import validate
from tests.integration.e2e.small_project import measured_by, reserve_release
from tests.integration.e2e.tiny_images import LABELS, SIZE, image_project, private_image, register

CANARY = "vermilion-ocelot-90210"
COUNT = 90


class Thumbnails:
    """An embedder: the pixels themselves."""

    revision, width = "pixels", SIZE * SIZE

    def embed(self, samples):
        return np.stack([one.ravel() for one in samples]).astype(np.float32)


def forms(number):
    pixels = private_image(number)
    found = [encode(pixels), pixels.tobytes(), pixels.astype(np.float32).tobytes()]
    found.append(str(pixels.ravel().tolist()[:12])[1:-1].encode())
    # The middle of the file: its head is that of every image of this size.
    text = base64.b64encode(encode(pixels))
    return [*found, text, text[80:-40], repr(pixels.tobytes())[2:-1].encode()]


def leaks(root):
    """Files that hold something private, and what; the private folder itself is left out."""
    wanted = {form: f"image {number}" for number in range(COUNT) for form in forms(number)}
    wanted |= {CANARY.encode(): "canary", CANARY.encode("utf-16-le"): "canary"}
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and root / "private" not in path.parents:
            content = path.read_bytes()
            name = path.relative_to(root).as_posix()
            assert CANARY not in name
            found.update((name, what) for form, what in wanted.items() if form in content)
    return found


@pytest.fixture
def project(tmp_path, monkeypatch):
    register(monkeypatch)
    project = image_project(tmp_path / "project", dataset={"holdout": 0.5})
    for path in list((project.root / "private").rglob("*.png")):
        path.unlink()
    for number in range(COUNT):
        note = PngInfo()
        note.add_text("Comment", CANARY)
        note.add_text("Class", CANARY)  # a released file may say the generator's class here
        path = project.root / "private" / LABELS[number % 2] / f"{CANARY}-{number}.png"
        Image.fromarray(private_image(number)).save(path, pnginfo=note)
    return project


@pytest.mark.slow
def test_nothing_private_is_left_after_a_release_of_images(project, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    ctx = open_context(project.params, ["methods.tiny_images.images_per_label=15"])
    planned = reserve_release(ctx, "tiny_images")
    for shard in range(partition(ctx, planned)):
        generate(ctx, planned, shard)
    scratch = ctx.workspace.scratch(planned.id).relative_to(project.root).as_posix()
    during = leaks(project.root)
    assert during, "the search is blind: the partition holds every private image"
    assert all(name.startswith(f"{scratch}/buckets/") for name in during), during

    certify(ctx, planned)
    validate(ctx, planned)
    with measured_by(Backends({"image_embedder": Thumbnails()})):
        internal = evaluate(ctx, planned)
    publish(ctx, planned)
    assert settle(ctx, planned) == "COMMITTED"
    assert '"fid"' in (internal / "evaluation.json").read_text(), "the embedder was not reached"
    assert leaks(project.root) == {}
    assert list((project.root / ".dvc" / "cache").rglob("*")), "DVC was not searched"
    assert list((project.root / ".privsyn").rglob("mlflow.db")), "MLflow was not searched"
    printed = "".join(capfd.readouterr()) + caplog.text
    assert CANARY not in printed
    assert not any(form.decode("latin-1") in printed for n in range(COUNT) for form in forms(n))


def test_the_reader_raises_nothing_with_a_name_in_it(project):
    """Paths of private files are private: they may be names of people."""
    from privsyn.data.readers.formats import read_records

    for path in (project.root / "private").rglob("*.png"):
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + io.BytesIO(b"broken").getvalue())
        break
    ctx = open_context(project.params)
    planned = plan(ctx, "tiny_images", open_account=True)
    assert len(list(read_records(open_plan(ctx, planned).source))) == COUNT - 1


@pytest.mark.parametrize("form", range(7))
def test_the_search_finds_every_form(project, form):
    (project.root / "leak.db").write_bytes(b"x" * 5 + forms(7)[form] + b"y")
    assert leaks(project.root) == {"leak.db": "image 7"}
