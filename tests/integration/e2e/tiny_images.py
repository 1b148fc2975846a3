"""A method that draws tiny images, and a project whose private records are images.

Every cell pays for one noisy sum of brightness; its image is a ramp from black to what came out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privsyn.data.images import contact_sheet, decode, encode
from privsyn.data.records import Cell
from privsyn.dp.events import Disjoint
from privsyn.dp.mechanisms import Laplace
from privsyn.methods.base import Exhibit, Mechanism, Method, Sample
from privsyn.methods.registry import METHODS
from privsyn.section import Section
from tests.integration.e2e.small_project import build_project

LABELS = ("0", "1")
SIZE = 28
"""That of the generator, which the plan compares with the dataset's."""
PER_LABEL = 12


class TinyConfig(Section):
    images_per_label: int = 3
    side: int = SIZE


@dataclass(frozen=True, kw_only=True)
class TinyMechanism(Mechanism):
    image: Laplace
    cells: int

    @property
    def event(self):
        return Disjoint((self.image.event,), self.cells)

    @property
    def derived(self):
        return {"scale": self.image.scale}


class TinyImages(Method[TinyConfig]):
    """A Laplace draw per image."""

    name: ClassVar[str] = "tiny_images"
    title: ClassVar[str] = "Tiny images"
    paper: ClassVar[str] = "none"
    Config: ClassVar[type] = TinyConfig
    Settings: ClassVar[type] = TinyConfig
    counts: ClassVar[str] = "steps"
    tuning_hint: ClassVar[str] = "nothing"

    def roles(self, cfg):
        return ("image",)

    def resolve(self, cfg, models, subject):
        return cfg

    def cells(self, cfg, labels):
        return Cell.grid(labels, cfg.images_per_label)

    def prompt(self, cfg):
        return None

    def calibrate(self, cfg, target, facts):
        sensitivity = 255 * facts.changed_records
        scale = sensitivity / (0.99 * target.epsilon)
        return self.rebuild(cfg, target, facts, {"scale": scale})

    def rebuild(self, cfg, target, facts, derived):
        cells = len(self.cells(cfg, facts.labels))
        return TinyMechanism(
            facts=facts, image=Laplace(255 * facts.changed_records, derived["scale"]), cells=cells
        )

    def run(self, cfg, mechanism, buckets, draw):
        image, noise = mechanism.image, draw.noise
        pictures = []
        for number, bucket in enumerate(buckets):
            draw.progress(number, len(buckets))
            tops = [int(decode(text).max()) for text in bucket.contents.reveal()]
            total = np.array([sum(tops)], np.int64)
            key = f"{bucket.cell.index}"
            (drawn,) = draw.journal.draw_all([(key, lambda t=total: int(image.draw(t, noise)[0]))])
            top = int(np.clip(drawn, 40, 255))
            ramp = np.linspace(bucket.cell.index, top, cfg.side**2).reshape(cfg.side, cfg.side)
            pictures.append(ramp.astype(np.uint8))
            yield Sample(bucket.cell, encode(pictures[-1]), {"drawn": 1})
        yield Exhibit("round-00.png", contact_sheet(pictures, 3))
        yield Exhibit("rounds.csv", b"round,images\n0,6\n")


def register(patch):
    patch.setitem(METHODS, TinyImages.name, f"{__name__}:TinyImages")


def private_image(number):
    return np.random.default_rng(900 + number).integers(0, 200, (SIZE, SIZE), np.uint8)


def image_project(root, **changes):
    dataset = {
        "name": "scans", "path": "private", "images": {"size": SIZE, "mode": "L"}, "label": "label",
        "labels": list(LABELS), "unit": "file", "max_records_per_unit": 1, "holdout": 0.3,
    }  # fmt: skip
    project = build_project(
        root,
        dataset=dataset | dict(changes.pop("dataset", {})),
        methods={TinyImages.name: {}},
        validation={"min_share": 0.5},
        **changes,
    )
    project.data.unlink()
    for number in range(2 * PER_LABEL):
        path = root / "private" / LABELS[number % 2] / f"scan{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(private_image(number)))
    return project
