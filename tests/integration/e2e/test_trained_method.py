"""A second method that trains, unlike dp_lora in everything: the stages know neither by name."""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from privsyn import stages
from privsyn.data.public_files import ReadsFiles
from privsyn.data.records import Cell
from privsyn.dp.mechanisms import Laplace
from privsyn.errors import ModelError
from privsyn.files import OnDisk
from privsyn.methods import base, registry
from privsyn.methods.base import Backends, Mechanism, Method, Sample
from privsyn.stages.draw import train
from privsyn.stages.partition import partition
from privsyn.stages.plan import plan
from privsyn.stages.preflight import preflight
from privsyn.stages.reserve import reserve
from tests.integration.e2e.small_project import finish, reserve_release

NAME = "toy_trainer"
WORDS = b"a word\n"
STAGES = Path(stages.__file__).parent


class ToyConfig(ReadsFiles):
    words: Annotated[str, OnDisk("file")]


@dataclass(frozen=True, kw_only=True)
class ToyMechanism(Mechanism):
    derived: ClassVar[dict[str, float]] = {}

    @property
    def event(self):
        return Laplace(1, 1.0).event


class ToyTrainer(Method[ToyConfig]):
    """Its model is a public file. What it is handed by the stages is noted in ``seen``."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "Toy"
    paper: ClassVar[str] = "none"
    Config: ClassVar[type[ToyConfig]] = ToyConfig
    Settings: ClassVar[type[ToyConfig]] = ToyConfig
    makes_students: ClassVar[bool] = False
    counts: ClassVar[str] = "texts"
    tuning_hint: ClassVar[str] = "nothing"
    seen: ClassVar[list[str]] = []
    fits: ClassVar[bool] = True

    def roles(self, cfg):
        return ()

    def calibrate(self, cfg, target, facts):
        count = len(facts.labels)
        return ToyMechanism(facts=facts, rows=(count, count))

    def rebuild(self, cfg, target, facts, derived):
        return self.calibrate(cfg, target, facts)

    def resolve(self, cfg, models, subject=base.ANYTHING):
        return cfg.resolved(
            ToyConfig, {"words": f"sha256:{hashlib.sha256(cfg.read('words')).hexdigest()}"}
        )

    def cells(self, cfg, labels):
        return Cell.grid(labels, 1)

    def prompt(self, cfg):
        return None

    def check_models(self, cfg, models):
        self._note("reserve", cfg)
        if not self.fits:
            raise ModelError("toy: the model has no layers.")

    def preflight(self, cfg, unit, labels, models):
        self._note("preflight", cfg)

    def train(self, cfg, *arguments):
        self._note("train", cfg)
        return {"model.txt": cfg.read("words")}

    def write(self, cfg, unit, labels, models, trained, shard, progress, rows):
        self._note("generate", cfg)
        number, of = shard
        for cell in self.cells(cfg, labels)[number::of]:
            yield Sample(cell, (trained / "model.txt").read_text().strip())

    def _note(self, stage, cfg):
        self.seen.append(f"{stage} {'guarded' if cfg._door else 'unguarded'}")


@pytest.fixture
def project(make_project, monkeypatch):
    monkeypatch.setitem(registry.METHODS, NAME, f"{__name__}:ToyTrainer")
    monkeypatch.setattr(ToyTrainer, "seen", [])
    made = make_project(methods={NAME: {"words": "words.txt"}})
    (made.root / "words.txt").write_bytes(WORDS)
    return made


def test_it_goes_through_all_stages_and_reads_files_through_the_door_alone(project, monkeypatch):
    monkeypatch.chdir(project.root)
    ctx = project.context()
    planned = reserve_release(ctx, NAME)
    preflight(ctx, planned, Backends({}))
    partition(ctx, planned)
    train(ctx, planned, backends=Backends({}))
    folder = finish(ctx, planned, Backends({}))

    lines = (folder / "synthetic.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["a word", "a word"]
    assert (folder / "model" / "model.txt").read_bytes() == WORDS
    assert {seen.split()[0] for seen in ToyTrainer.seen} == {
        "reserve", "preflight", "train", "generate",
    }  # fmt: skip
    assert all(seen.endswith(" guarded") for seen in ToyTrainer.seen), ToyTrainer.seen


def test_a_model_it_cannot_train_is_refused_before_the_cost_is_reserved(project, monkeypatch):
    monkeypatch.setattr(ToyTrainer, "fits", False)
    ctx = project.context()
    planned = plan(ctx, NAME, open_account=True)
    with pytest.raises(ModelError, match="has no layers"):
        reserve(ctx, planned)
    assert ctx.ledger.releases.find(planned.id) is None


def test_stages_take_a_plans_settings_from_the_context():
    """Settings that come straight from the plan would read files past the door."""
    asked = {
        file.name
        for file in STAGES.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("load_method", "settings_of")
    }
    assert asked == {"base.py"}
