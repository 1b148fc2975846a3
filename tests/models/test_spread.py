"""Training over homes that each hold records of their own: what one machine gives, and sealed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from privsyn.data.journal import Journal
from privsyn.data.records import Bucket, Cell, Private
from privsyn.data.unit_shard import own_shards, unit_shard
from privsyn.dp.accountant import Guarantee
from privsyn.dp.adjacency import Adjacency, PrivacyUnit
from privsyn.dp.keyed_sample import keyed_sample, sample_key
from privsyn.dp.mechanisms import CLIP_STEPS
from privsyn.dp.noise import SeededNoise
from privsyn.errors import ConfigError, ModelError, TrainingInterrupted, VerificationError
from privsyn.methods.base import Backends, Draw, ReleaseFacts
from privsyn.methods.dp_lora.method import LABELS as COUNTS
from privsyn.methods.dp_lora.method import DPLora
from privsyn.methods.dp_lora.settings import DPLoraSettings
from privsyn.models.language.loading import load_trainable_model
from privsyn.models.protocols import PromptTemplate, SpreadTrainer, Training
from privsyn.models.settings import ModelsConfig, PerformanceConfig
from privsyn.models.testing.training import FakeTrainableModel
from privsyn.models.training.distributed import held_units
from privsyn.models.training.distributed.held_units import HeldUnits
from privsyn.models.training.distributed.rank import Rank
from privsyn.models.training.distributed.rank_group import Command, Group
from privsyn.models.training.distributed.ranks import RanksModel, pack
from privsyn.models.training.distributed.sealed import Channel, WrongKey
from privsyn.models.training.distributed.spread import SpreadModel

PERFORMANCE = PerformanceConfig(device="cpu", threads=1, checkpoint_steps=2)
LABELS = ("Billing", "Symptoms")
WORDS = "the visit was late and my bill is ready please help with an appointment".split()
KEY, SHARDS = bytes(range(32)), 3
SCRIPT = Path(__file__).with_name("spread_rank.py")
CFG = DPLoraSettings(
    sampling_rate=0.4,
    steps=4,
    expected_batch=8,
    rank=2,
    alpha=4,
    max_tokens=12,
    micro_batch=3,
    prompt="About {label}:",
    learning_rate=0.01,
    label_noise=2.0,
)


def everybody() -> dict[str, list[tuple[str, str]]]:
    """Units of one to three records under both labels."""
    rng = np.random.default_rng(0)
    return {
        hashlib.sha256(bytes([unit])).hexdigest()[:32]: [
            (str(rng.choice(LABELS)), " ".join(rng.choice(WORDS, 6)))
            for _ in range(rng.integers(1, 4))
        ]
        for unit in range(24)
    }


def of_shards(units, shards):
    return {unit: units[unit] for unit in units if unit_shard(unit, SHARDS) in shards}


@pytest.fixture(scope="module")
def models(folders):
    return ModelsConfig(language=folders("llama"))


@pytest.fixture
def homes(tmp_path):
    """A folder a rank, each with the shards of its rank alone."""
    units = everybody()
    for rank in range(2):
        (tmp_path / f"home-{rank}").mkdir()
        for shard in own_shards(rank, 2, SHARDS):
            content = json.dumps(of_shards(units, [shard]))
            (tmp_path / f"home-{rank}" / f"{shard}.json").write_text(content)
    assert len(list((tmp_path / "home-0").iterdir())) == 2
    assert len(list((tmp_path / "home-1").iterdir())) == 1
    return tmp_path


@contextmanager
def two_homes(homes: Path, key: bytes | None = KEY, other: bytes | None = KEY, said=None):
    """Rank 0's end of a group whose other rank runs in the second home."""
    rendezvous = homes / "rendezvous"
    arguments = [rendezvous, 1, 2, homes / "home-1", "none" if other is None else other.hex()]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        cwd=homes / "home-1",
        env=os.environ | {"PYTHONPATH": str(SCRIPT.parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        group = Group(Rank(0, 2, 0, 1), timedelta(seconds=120), rendezvous)
        try:
            if key is not None:
                group.seal(key)
            yield group
        finally:
            group.close()
            torch.set_num_threads(before)
            printed, _ = child.communicate(timeout=120)
            if said is not None:
                said.append(printed)


def buckets(units) -> list[Bucket]:
    found = []
    for index, label in enumerate(LABELS):
        rows = sorted((text, unit) for unit in units for own, text in units[unit] if own == label)
        texts, names = [text for text, _ in rows], [unit for _, unit in rows]
        found.append(Bucket(Cell(index, label, 0), Private(texts), Private(names)))
    return found


def train(base, units, noise, folder: Path):
    facts = ReleaseFacts(Adjacency.ADD_REMOVE, PrivacyUnit("person", 3), LABELS)
    plan = DPLora().rebuild(CFG, Guarantee(1, 1e-6), facts, {"noise_multiplier": 0.8})
    Journal.create(folder, {})
    torch.manual_seed(9)  # of the fresh adapter
    with Journal.open(folder, {}) as journal:
        draw = Draw(Backends({"base": base}), noise, journal, PERFORMANCE)
        return DPLora().train(CFG, plan, buckets(units), draw)


class OneMachine(SeededNoise):
    """What one machine that holds all units draws, of the key that several would be told."""

    def __init__(self, seed: int, names) -> None:
        super().__init__(seed)
        self._names, self.sampled = names, 0

    def sample(self, units, rate):
        if units != len(self._names):
            return super().sample(units, rate)
        mask = keyed_sample(self._names, rate, sample_key(self))
        self.sampled += int(mask.sum())
        return mask


def shuffled(units):
    """As a partition by unit gives them: by the order of their records' texts."""
    return {
        unit: sorted(records, key=lambda r: (LABELS.index(r[0]), r[1]))
        for unit, records in units.items()
    }


def test_two_homes_give_the_adapter_and_counts_of_one_machine(models, homes):
    units = shuffled(everybody())
    for shard in own_shards(1, 2, SHARDS):
        (homes / "home-1" / f"{shard}.json").write_text(json.dumps(of_shards(units, [shard])))
    own = of_shards(units, own_shards(0, 2, SHARDS))
    assert 0 < len(own) < len(units)
    with two_homes(homes) as group:
        base = load_trainable_model(models, PERFORMANCE)
        spread = SpreadModel(base, group, models, PERFORMANCE, {"shards": SHARDS})
        files = train(spread, own, SeededNoise(5), homes / "spread")
    noise = OneMachine(5, sorted(units))
    alone = train(load_trainable_model(models, PERFORMANCE), units, noise, homes / "alone")
    assert noise.sampled > 4
    assert files[COUNTS] == alone[COUNTS]
    assert files == alone
    lacking = train(load_trainable_model(models, PERFORMANCE), own, SeededNoise(5), homes / "own")
    assert files != lacking, "the other home's records count"


def test_a_unit_of_another_home_is_refused_before_a_draw(models, homes):
    (own,) = (homes / "home-1").iterdir()
    held = json.loads(own.read_text())
    stranger = next(iter(of_shards(everybody(), [0])))
    own.write_text(json.dumps(held | {stranger: [["Billing", "secret bill"]]}))
    with two_homes(homes) as group:
        base = load_trainable_model(models, PERFORMANCE)
        with pytest.raises(VerificationError, match=r"rank 1: .* count twice") as raised:
            SpreadModel(base, group, models, PERFORMANCE, {"shards": SHARDS})
        assert stranger not in str(raised.value) + raised.value.hint
        base.revision = "another"
        with pytest.raises(ModelError, match="not those of rank 0"):  # it still serves
            RanksModel(base, group, models, PERFORMANCE)


@pytest.mark.parametrize(("key", "other"), [(KEY, bytes(32)), (None, KEY), (KEY, None)])
def test_homes_with_other_keys_tell_each_other_nothing(models, homes, key, other):
    said = []

    def meet():
        with two_homes(homes, key, other, said) as group:
            RanksModel(base, group, models, PERFORMANCE)

    base = load_trainable_model(models, PERFORMANCE)
    with pytest.raises((ConfigError, TrainingInterrupted)) as raised:
        meet()
    both = str(raised.value) + "".join(said)
    assert "is not sealed by the key of this machine" in both
    assert key is None or key.hex() not in both


def test_what_crosses_the_network_is_sealed(models, homes, monkeypatch):
    """Rows and numbers that rank 0 sends are in clear without a key, and nowhere with one."""
    sent = []
    send = dist.send
    monkeypatch.setattr(
        dist,
        "send",
        lambda part, *x, **y: (sent.append(part.numpy().tobytes()), send(part, *x, **y)),
    )
    seen = {}
    for key in (None, KEY):
        sent.clear()
        with two_homes(homes, key, key) as group:
            assert group.sealed == (key is not None)
            base = load_trainable_model(models, PERFORMANCE)
            trainer = RanksModel(base, group, models, PERFORMANCE).trainer(training())
            units = [[trainer.encode("Billing", "the secret bill")]] * 2
            total = trainer.clipped_sum(units)
            seen[key] = (pack(units[1:]) in b"".join(sent), b'"models"' in b"".join(sent), total)
        (homes / "rendezvous").unlink()
    assert seen[None][:2] == (True, True)
    assert seen[KEY][:2] == (False, False)
    assert np.array_equal(seen[None][2], seen[KEY][2])


def test_a_message_changed_on_its_way_ends_the_training_which_goes_on_later(homes):
    with two_homes(homes) as group:
        group.ask(Command.LOAD, b"{}")
        group._channels[1]._received += 1  # as if one had been left out
        with pytest.raises(TrainingInterrupted, match="changed on its way") as raised:
            group.answers()
    assert raised.value.retryable


def test_a_home_does_not_do_what_it_is_asked_in_clear(homes):
    said = []
    with two_homes(homes, said=said) as group:
        group._channels = {}  # as somebody who has the network, and not the key
        group.ask(Command.LOAD, b"{}")
        with pytest.raises(TrainingInterrupted, match="is gone"):
            group.answers()
    assert "a message of rank 0 was changed on its way" in said[0]


def training() -> Training:
    template = PromptTemplate("{label}: {reference}", "{label}:")
    return Training(template, LABELS, 12, 1.0, 3, 4, 2, 4.0, None)


# --- one connection -------------------------------------------------------------------------------


def ends(secret=KEY, nonces=(b"a" * 32, b"b" * 32), pair=(1, 2)):
    return Channel(secret, pair, True, nonces), Channel(secret, pair, False, nonces)


def test_messages_arrive_in_order_both_ways():
    lead, follow = ends()
    for text in (b"", b"one", b"two" * 10**6):
        assert follow.open(lead.seal(text)) == text
        assert lead.open(follow.seal(text)) == text


def test_a_message_is_taken_once_at_its_place_from_its_side_unchanged():
    def refused(end, sealed):
        with pytest.raises(WrongKey):
            end.open(sealed)

    lead, follow = ends()
    first, second = lead.seal(b"first"), lead.seal(b"second")
    refused(ends()[1], second)  # left out
    assert follow.open(first) == b"first"
    refused(follow, first)  # again
    refused(ends()[0], first)  # sent back
    refused(ends()[1], first[:-1] + bytes([first[-1] ^ 1]))
    refused(ends()[1], b"")
    for other in (
        ends(secret=bytes(32)),
        ends(nonces=(b"a" * 32, b"c" * 32)),
        ends(nonces=(b"c" * 32, b"b" * 32)),
        ends(pair=(2, 3)),
    ):
        refused(other[1], first)


# --- the exact check, and what it catches ---------------------------------------------------------


def held(rank: int, units) -> HeldUnits:
    found = HeldUnits(Rank(rank, 2, 0, 1), lambda request, shards: units)
    found.read({"shards": SHARDS})
    return found


def noiseless(homes, key: bytes):
    """What noise is added to: the sum over homes of their clipped sums."""
    trainer = FakeTrainableModel().trainer(training())
    trainer.update(np.linspace(-1, 1, trainer.size), 0.1)
    request = {"rate": 0.5, "key": key.hex()}
    return sum(trainer.clipped_sum(home.sample(request, trainer)) for home in homes)


def worst(units, doubled=()) -> float:
    """Largest change of the sum over keys and units when one unit leaves, in clip norms."""

    def split(units):
        return [
            held(
                rank,
                of_shards(units, own_shards(rank, 2, SHARDS))
                | {u: units[u] for u in doubled if u in units},
            )
            for rank in range(2)
        ]

    keys = [sample_key(SeededNoise(seed)) for seed in range(6)]
    changes = [
        np.linalg.norm(
            (noiseless(split(units), key) - noiseless(split(without), key)).astype(float)
        )
        for unit in units
        for without in [{name: units[name] for name in units if name != unit}]
        for key in keys
    ]
    return max(changes) / CLIP_STEPS


def test_a_unit_changes_the_sum_of_all_homes_by_one_clip_norm_at_most():
    units = everybody()
    assert 0.5 < worst(units) <= 1


def test_a_unit_on_two_homes_is_caught_by_the_check(monkeypatch):
    units = everybody()
    twice = next(iter(of_shards(units, [0])))
    with pytest.raises(VerificationError, match="count twice"):
        worst(units, [twice])
    monkeypatch.setattr(held_units, "check_own", lambda *_: None)
    assert worst(units, [twice]) > 1


def test_a_home_says_of_its_units_what_one_machine_would():
    names, key = sorted(everybody()), sample_key(SeededNoise(1))
    whole = dict(zip(names, keyed_sample(names, 0.4, key), strict=True))
    for shard in range(SHARDS):
        part = [name for name in names if unit_shard(name, SHARDS) == shard]
        assert keyed_sample(part, 0.4, key).tolist() == [whole[name] for name in part]
    assert 0 < sum(whole.values()) < len(names)


def test_a_keyed_sample_has_its_rate_and_never_more():
    names = [f"{number:032x}" for number in range(2000)]
    keys = [sample_key(SeededNoise(seed)) for seed in range(20)]
    assert len(set(keys)) == 20
    assert {len(key) for key in keys} == {32}
    for rate in (0.05, 0.5):
        drawn = np.array([keyed_sample(names, rate, key) for key in keys])
        # Seeded: 40,000 coins within five standard deviations, and those of two keys unlike.
        assert abs(drawn.mean() - rate) < 5 * (rate * (1 - rate) / drawn.size) ** 0.5
        assert not np.array_equal(drawn[0], drawn[1])
    assert keyed_sample(names, 1.0, keys[0]).all()
    assert not keyed_sample(names, 2.0**-65, keys[0]).any()


def test_a_rank_without_a_project_says_that_it_can_read_nothing():
    with pytest.raises(ConfigError, match="without a project"):
        HeldUnits(Rank(1, 2, 0, 1), None).read({"shards": 2})


def test_only_a_spread_trainer_samples_elsewhere():
    assert not isinstance(FakeTrainableModel().trainer(training()), SpreadTrainer)
    assert Command.SAMPLE is not Command.SUM
