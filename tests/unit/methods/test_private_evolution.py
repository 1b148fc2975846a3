"""Private evolution over toy generators: plan, rounds, replay, splits, bad input, convergence."""

import base64
import io
import json
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.data.images import annotate, decode, encode, note_of, to_content
from privsyn.data.records import Bucket, Private
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.histograms import LATTICE
from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import ConfigError, ModelError
from privsyn.methods.base import Backends, Exhibit, Finished, PricingFacts, Sample, silent
from privsyn.methods.private_evolution import mechanism as mechanism_of_votes
from privsyn.methods.private_evolution import method as private_evolution
from privsyn.methods.private_evolution.method import CALL, PARTS, PrivateEvolution
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.methods.private_evolution.votes import REACH, Grid, Voters
from privsyn.modalities.images import ImageSamples
from privsyn.models.model_identity import ModelIdentity
from tests.fakes import journal_at, run_over
from tests.noise import Constant, NeverDraws, NoNoise, SeededNoise
from tests.unit.methods.toy_evolution import Coordinates, Plane, moons

METHOD = PrivateEvolution()
LABELS = ("x", "y")
AMPLE, RECORD = Guarantee(500, 1e-6), PrivacyUnit()


def config(**settings):
    defaults = {"rounds": 3, "lookahead": 2, "population": 12, "threshold": 1.0}
    return PrivateEvolutionConfig(**(defaults | settings))


def buckets(labels=LABELS, records=40):
    return [
        Bucket(cell, Private(moons(records, seed=cell.index)))
        for cell in METHOD.cells(config(), labels)
    ]


def plan(cfg, target=AMPLE, adjacency=Adjacency.REPLACE_NULL, unit=RECORD, labels=LABELS):
    return METHOD.calibrate(cfg, target, PricingFacts(adjacency, unit, tuple(labels)))


def run(tmp_path, cfg, data=None, noise=None, *, api=None, name="journal", target=AMPLE,
        models=None, progress=silent, reading=silent):  # fmt: skip
    data = buckets() if data is None else data
    labels = tuple(bucket.cell.label for bucket in data if bucket.cell.label is not None)
    made = [*run_over(
        tmp_path / name, METHOD, cfg, plan(cfg, target, labels=labels), data,
        models or {"image": api or Plane(), "image_embedder": Coordinates()},
        noise or SeededNoise(1), progress=progress, reading=reading,
    )]  # fmt: skip
    exhibits = {part.name: part.content for part in made if isinstance(part, Exhibit)}
    return [part for part in made if isinstance(part, Sample)], exhibits


def entries(tmp_path, name="journal"):
    with journal_at(tmp_path / name) as journal:
        return dict(journal._values)


def has_drawn(tmp_path):
    with journal_at(tmp_path / "journal") as journal:
        return journal.has_drawn


def points(samples):
    contents = [base64.b64encode(s.content).decode() for s in samples]
    return np.stack([decode(content)[0] for content in contents]).astype(float)


# --- the plan -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 1, 500])
@pytest.mark.parametrize("rounds", [1, 20, 1000])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_sigma_is_the_least_the_target_allows(epsilon, rounds, adjacency):
    cfg, target = config(rounds=rounds), Guarantee(epsilon, 1e-5)
    planned = plan(cfg, target, adjacency)
    assert guarantee(planned.event, 1e-5).epsilon <= epsilon
    less = cfg.model_copy(update={"noise_multiplier": planned.derived["noise_multiplier"] * 0.999})
    assert guarantee(plan(less, target, adjacency).event, 1e-5).epsilon > epsilon


@given(
    epsilon=st.floats(0.01, 500),
    exponent=st.floats(-12, -1),
    rounds=st.integers(1, 1000),
    records=st.integers(1, 50),
    adjacency=st.sampled_from(list(Adjacency)),
)
def test_every_calibrated_plan_stays_within_its_target(
    epsilon, exponent, rounds, records, adjacency
):
    target = Guarantee(epsilon, 10**exponent)
    cfg = config(rounds=rounds)
    planned = plan(cfg, target, adjacency, PrivacyUnit("user", records))
    assert guarantee(planned.event, target.delta).epsilon <= epsilon
    assert planned.event.count == rounds


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("records", range(1, 41))
def test_the_sensitivity_is_never_below_the_root_it_stands_for(adjacency, records):
    """sqrt(2m) is no float: where the nearest one is below, the next one is taken."""
    facts = PricingFacts(adjacency, PrivacyUnit("user", records))
    sensitivity = mechanism_of_votes._histogram(1.0, facts).sensitivity
    exact = adjacency.moves * records * private_evolution.LATTICE**2
    assert exact <= Fraction(sensitivity) ** 2 <= exact * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize(
    ("adjacency", "records", "moved"),
    [
        (Adjacency.ADD_REMOVE, 1, 1.0),
        (Adjacency.REPLACE_NULL, 1, 1.0),
        (Adjacency.REPLACE_ONE, 1, math.sqrt(2)),
        (Adjacency.ADD_REMOVE, 4, 2.0),
        (Adjacency.REPLACE_ONE, 3, math.sqrt(6)),
    ],
)
def test_noise_grows_with_what_a_unit_can_move(adjacency, records, moved):
    unit = PrivacyUnit("user", records)
    planned = plan(config(noise_multiplier=2.0), adjacency=adjacency, unit=unit)
    assert planned.derived["noise_votes"] == pytest.approx(2 * moved, rel=1e-12)
    mechanism = mechanism_of_votes._histogram(2.0, PricingFacts(adjacency, unit))
    assert mechanism.sensitivity >= moved * LATTICE * (1 - 1e-15)
    assert mechanism.sigma == pytest.approx(2 * mechanism.sensitivity)
    assert planned.event.noise_multiplier == pytest.approx(2, rel=1e-12)
    assert planned.event.noise_multiplier <= 2


def test_noise_too_small_for_the_continuous_curve_is_priced_as_zcdp():
    fine = plan(config(noise_multiplier=0.0625))
    coarse = plan(config(noise_multiplier=0.0624))
    assert (type(fine.event).__name__, type(coarse.event).__name__) == ("DiscreteGaussian", "ZCDP")
    assert coarse.event.count == 3
    assert coarse.event.rho == pytest.approx(1 / (2 * 0.0624**2), rel=1e-9)


def test_the_plan_says_rows_threshold_and_noise():
    planned = plan(config(noise_multiplier=1.5, threshold=None))
    assert planned.rows == (24, 24)
    assert planned.derived["threshold"] == pytest.approx(3.0)
    assert planned.warnings == ()
    assert "below the noise" in plan(config(noise_multiplier=1.5)).warnings[0]
    assert plan(config(label_split={"x": 3, "y": 5})).rows == (8, 8)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 0}, "greater than or equal to 1"),
        ({"noise_multiplier": 0}, "greater than 0"),
        ({"noise_multiplier": float("nan")}, "finite"),
        ({"degrees": (float("nan"),)}, "finite number"),
        ({"degrees": (0.9, 0.8, 0.7, 0.6), "rounds": 3}, "4 entries for rounds=3"),
        ({"image_steps": (10, 10, 40), "rounds": 2}, "3 entries for rounds=2"),
        ({"image_steps": (10,), "modality": "text"}, "image_steps is for modality=image"),
    ],
)
def test_refuses_settings_out_of_bounds(settings, words):
    with pytest.raises(ValueError, match=words):
        config(**settings)


def test_refuses_a_split_of_other_labels():
    with pytest.raises(ConfigError, match=r"label_split does not agree with dataset\.labels: y, z"):
        plan(config(label_split={"x": 1, "z": 2}))
    with pytest.raises(ConfigError, match="no labels to split"):
        plan(config(label_split={"x": 1}), labels=())


def test_refuses_a_target_that_no_noise_reaches():
    with pytest.raises(
        ConfigError, match=r"no noise reaches privacy\.epsilon=1e-07 .* rounds=1000"
    ):
        plan(config(rounds=1000), Guarantee(1e-7, 1e-12))


def test_degrees_are_a_list_or_the_ends_of_a_line():
    assert [config(rounds=5, degrees=(0.9, 0.1)).degree(t) for t in range(1, 6)] == pytest.approx(
        [0.9, 0.7, 0.5, 0.3, 0.1]
    )
    assert [config(rounds=3, degrees=(0.9, 0.2, 0.3)).degree(t) for t in (1, 2, 3)] == [
        0.9, 0.2, 0.3,
    ]  # fmt: skip
    assert config(rounds=1, degrees=(0.9, 0.1)).degree(1) == 0.9
    assert config(rounds=4, degrees=(0.5,)).degree(4) == 0.5


# --- the rounds -----------------------------------------------------------------------------------


def test_yields_every_row_of_every_label_and_what_a_round_told(tmp_path):
    quiet = NoNoise()
    samples, exhibits = run(tmp_path, config(), noise=quiet)
    assert len(quiet.drawn) == plan(config()).event.count == 3  # as many as are charged
    assert [sample.cell.label for sample in samples] == ["x"] * 12 + ["y"] * 12
    assert all(sample.content.startswith(b"\x89PNG") for sample in samples)
    sheets = [f"population-000{t}.png" for t in range(4)]
    assert list(exhibits) == [*sheets, "rounds.json"]
    rounds = json.loads(exhibits["rounds.json"])
    assert [entry["round"] for entry in rounds] == [1, 2, 3]
    assert [entry["degree"] for entry in rounds] == pytest.approx([0.9, 0.6, 0.3])
    assert all(entry["bins"] == 24 for entry in rounds)


def fresh_and_their_votes(bucket):
    """The 30 points that a new Plane gives, and how many records are nearest to each."""
    fresh = np.stack(Plane().random(30, None)).reshape(30, 2) / 255
    private = np.stack([decode(content)[0] for content in bucket.contents.reveal()]) / 255
    distances = ((private[:, None] - fresh[None]) ** 2).sum(-1)
    return fresh, np.bincount(distances.argmin(1), minlength=30)


def test_parents_are_those_that_private_records_voted_for(tmp_path):
    """Without noise all offspring descend from candidates with more votes than the threshold."""
    cfg = config(rounds=1, lookahead=0, degrees=(0.0,), population=30)
    data = [Bucket(METHOD.cells(cfg, ())[0], Private(moons(200)))]
    samples, exhibits = run(tmp_path, cfg, data, NoNoise())
    fresh, votes = fresh_and_their_votes(data[0])
    allowed = {tuple(point) for point in np.rint(fresh[votes > 1] * 255)}
    assert {tuple(point) for point in points(samples)} <= allowed
    [entry] = json.loads(exhibits["rounds.json"])
    assert entry["votes_above_threshold"] == np.maximum(votes - 1, 0).sum()
    assert entry["bins_above_threshold"] == (votes > 1).sum()
    assert entry["unchanged_variations"] == 30


def test_of_many_candidates_those_with_most_votes_are_released(tmp_path):
    """Aug-PE: L candidates a released record; one vote ranks them, and none varies after it."""
    cfg = config(rounds=1, lookahead=0, population=6, expansion=5, threshold=0.0)
    data = [Bucket(METHOD.cells(cfg, ())[0], Private(moons(200)))]
    samples, exhibits = run(tmp_path, cfg, data, NoNoise())
    fresh, votes = fresh_and_their_votes(data[0])
    released = points(samples)
    assert len({tuple(point) for point in released}) == 6
    found = [votes[(np.rint(fresh * 255) == point).all(1)].sum() for point in released]
    assert found == sorted(votes, reverse=True)[:6]
    [entry] = json.loads(exhibits["rounds.json"])
    assert (entry["bins"], entry["distinct_parents"], entry["unchanged_variations"]) == (30, 6, 0)


def test_the_chosen_stay_and_variations_of_them_join_the_next_vote(tmp_path):
    cfg = config(rounds=3, lookahead=0, population=4, expansion=3, degrees=(0.5,))
    quiet = NoNoise()
    samples, exhibits = run(tmp_path, cfg, noise=quiet)
    assert [sample.cell.label for sample in samples] == ["x"] * 4 + ["y"] * 4
    assert plan(cfg).event.count == 3
    assert [len(one.values) for one in quiet.drawn] == [2 * 4 * 3] * 3
    rounds = json.loads(exhibits["rounds.json"])
    assert [entry["bins"] for entry in rounds] == [24] * 3
    assert [entry["distinct_parents"] for entry in rounds] == [8] * 3


def test_nothing_above_the_threshold_is_drawn_uniformly_and_said(tmp_path):
    cfg = config(threshold=1000.0, rounds=2)
    samples, exhibits = run(tmp_path, cfg, noise=NoNoise())
    assert len(samples) == 24
    assert [entry["labels_drawn_uniformly"] for entry in json.loads(exhibits["rounds.json"])] == [
        2, 2,
    ]  # fmt: skip
    assert sum(sample.counts.get("uniform_rounds", 0) for sample in samples) == 4
    voted, _ = run(tmp_path, config(), noise=NoNoise(), name="voted")
    assert not any(sample.counts for sample in voted)


@pytest.mark.parametrize(
    ("settings", "records", "rows"),
    [
        ({}, {None: 30}, {None: 12}),
        ({}, {"x": 0, "y": 50}, {"x": 12, "y": 12}),  # a label without records runs on noise
        ({}, {"x": 0, "y": 0}, {"x": 12, "y": 12}),
        ({"label_split": {"y": 3, "x": 7}}, {"x": 40, "y": 40}, {"x": 7, "y": 3}),
    ],
)
def test_rows_of_a_label_are_public_whatever_its_records(tmp_path, settings, records, rows):
    cells = METHOD.cells(config(), tuple(label for label in records if label))
    data = [Bucket(cell, Private(moons(records[cell.label]))) for cell in cells]
    samples, _ = run(tmp_path, config(**settings), data)
    assert [sample.cell.label for sample in samples] == [
        label for label, count in rows.items() for _ in range(count)
    ]


def test_a_damaged_image_has_no_vote_and_moves_none(tmp_path):
    whole = moons(40)
    broken = [*whole[:20], "not base64!", base64.b64encode(b"\x89PNG junk").decode(), *whole[20:]]
    cells = METHOD.cells(config(), ())
    one = run(tmp_path, config(), [Bucket(cells[0], Private(whole))], NoNoise(), name="one")
    two = run(tmp_path, config(), [Bucket(cells[0], Private(broken))], NoNoise(), name="two")
    votes = {k: v for k, v in entries(tmp_path, "one").items() if k == "votes/1"}
    assert votes == {k: v for k, v in entries(tmp_path, "two").items() if k == "votes/1"}
    assert len(one[0]) == len(two[0])


@pytest.mark.parametrize(
    ("fault", "said"), [("random", "gave 11 "), ("vary", "gave 11 "), ("mixed", "one shape")]
)
def test_a_generator_that_gives_too_few_or_mixed_is_refused(tmp_path, fault, said):
    class Faulty(Plane):
        def random(self, count, label):
            made = super().random(count - (fault != "vary"), label)
            return [*made, np.zeros((3, 3), np.uint8)] if fault == "mixed" else made

        def vary(self, samples, label, degree):
            return super().vary(samples, label, degree)[: -1 if fault == "vary" else None]

    with pytest.raises(ModelError, match=said):
        run(tmp_path, config(), api=Faulty())


def test_an_embedder_that_fails_on_private_records_does_so_before_anything_is_drawn(tmp_path):
    class Broken(Coordinates):
        def embed(self, samples):
            raise RuntimeError

    models = {"image": Plane(), "image_embedder": Broken()}
    with pytest.raises(RuntimeError):
        run(tmp_path, config(), models=models)
    assert not has_drawn(tmp_path)


@pytest.mark.parametrize("records", [True, False])
def test_shapes_of_an_embedder_are_probed_before_the_records_whatever_they_are(tmp_path, records):
    """Else a record's length decides whether there is a release."""

    class Mixing(Coordinates):
        def probe(self):
            raise ModelError("mixes rows of some length.")

        def embed(self, samples):
            raise AssertionError("a record was read before the probe")

    data = buckets() if records else [Bucket(one.cell, Private([])) for one in buckets()]
    models = {"image": Plane(), "image_embedder": Mixing()}
    with pytest.raises(ModelError, match="mixes rows"):
        run(tmp_path, config(), data, models=models)
    assert not has_drawn(tmp_path)


def test_progress_is_asked_before_every_draw(tmp_path):
    seen, events = [], []

    class Told(NoNoise):
        def gaussian(self, values, sigma):
            events.append("draw")
            return values

    def told(done, total):
        events.append("progress")
        seen.append((done, total))

    run(tmp_path, config(), noise=Told(), progress=told)
    before = [events[i - 1] for i, event in enumerate(events) if event == "draw"]
    assert before == ["progress"] * 3
    assert_goes_on(seen)


def followed(tmp_path, cfg, *args, **kwargs):
    seen: list[tuple[int, int]] = []
    told = lambda done, total: seen.append((done, total))  # noqa: E731
    run(tmp_path, cfg, *args, progress=told, **kwargs)
    return seen


def assert_goes_on(seen, first=0):
    """One total; from the first on always more, up to the last part, which is below the total."""
    done, (total,) = [one for one, _ in seen], {of for _, of in seen}
    assert done[0] == first
    assert done == sorted(set(done))
    assert total - CALL <= done[-1] < total


def test_progress_does_not_tell_how_many_records_there_are(tmp_path):
    told = []
    for name, records in (("none", 0), ("one", 1), ("many", 200)):
        cfg = config()
        noise = Constant(gaussian=partial(np.full_like, fill_value=2**24))
        read = []
        steps = followed(
            tmp_path, cfg, buckets(records=records), noise, name=name,
            reading=lambda *counts, read=read: read.append(counts),
        )  # fmt: skip
        told.append((read, steps))
    assert told[0] == told[1] == told[2]
    read, steps = told[0]
    assert_goes_on(steps)
    parts = PARTS * len(LABELS)
    assert read == [(done, parts, "the records") for done in range(parts)]


class DiesAsked(NoNoise):
    """Noise that dies of its n-th histogram, once it is drawn."""

    def __init__(self, death):
        super().__init__()
        self._death = death

    def gaussian(self, values, sigma):
        noisy = super().gaussian(values, sigma)
        if len(self.drawn) == self._death:
            raise MemoryError
        return noisy


# --- a generator with classes of its own ----------------------------------------------------------

CLASSES = ("honeycomb", "velvet", "zażółć")


class OfClasses(Plane):
    """A Plane whose points say of which class they are (by x mod 3), and by how many steps."""

    steps = 7

    def classes(self, count, label):
        return [CLASSES[i] for i in self.rng.integers(0, 3, count)]

    def random(self, count, label):
        raise AssertionError("asked for a label where the classes are none")

    def vary(self, samples, label, degree):
        raise AssertionError("varied without a class")

    def random_of(self, classes, label):
        return self._marked(Plane.random(self, len(classes), label), classes)

    def vary_of(self, samples, classes, label, degree):
        assert [CLASSES[point[0, 0] % 3] for point in samples] == list(classes)
        self.log.append(self.steps)
        return self._marked(Plane.vary(self, samples, label, degree), classes)

    def with_steps(self, steps):
        other = OfClasses()
        other.rng, other.log, other.steps = self.rng, self.log, steps
        return other

    def _marked(self, points, classes):
        for point, name in zip(points, classes, strict=True):
            point[0, 0] = min(point[0, 0] // 3, 83) * 3 + CLASSES.index(name)
        return points

    def __init__(self, seed=0):
        super().__init__(seed)
        self.log: list[int] = []


def of_class(png):
    return note_of(png, "Class")


def classes_of(samples):
    return [of_class(sample.content) for sample in samples]


def classes_of_points(samples):
    return [CLASSES[int(point[0]) % 3] for point in points(samples)]


def test_a_sample_keeps_the_class_it_was_drawn_of(tmp_path):
    """Through journal, rounds, lookahead, the released file, and further samples."""
    for name, settings in (("drawn", {}), ("ranked", {"expansion": 3}), ("new", {"degrees": (1,)})):
        samples, exhibits = run(tmp_path, config(**settings), api=OfClasses(), name=name)
        classes = classes_of(samples)
        assert classes == classes_of_points(samples)
        assert len(set(classes)) > 1
        assert exhibits["population-0003.png"]
    models = Backends({"image": OfClasses(5), "image_embedder": Coordinates()})
    released = [(sample.cell.label, sample.content) for sample in samples]
    further = [
        of_class(png) for _, png in METHOD.more(config(), models, Finished(released, tmp_path), 48)
    ]
    assert further == classes * 2


def test_a_class_in_a_private_file_is_not_read():
    """Records come in canonical form, but the door to the votes does not rely on it."""
    named = annotate(encode(np.zeros((1, 2), np.uint8)), {"Class": "velvet"})
    read = ImageSamples(OfClasses(), Coordinates()).read(base64.b64encode(named).decode())
    assert read.of is None


def test_steps_are_those_of_the_round(tmp_path):
    api = OfClasses()
    cfg = config(rounds=4, lookahead=1, population=2, image_steps=(10, 10, 10, 40))
    run(tmp_path, cfg, api=api)
    # Two labels: their look ahead, then their offspring, in each round.
    assert api.log == [10] * 12 + [40] * 4
    models = Backends({"image": api, "image_embedder": Coordinates()})
    api.log.clear()
    png = annotate(encode(np.full((1, 2), 3, np.uint8)), {"Class": "honeycomb"})
    list(METHOD.more(cfg, models, Finished([("x", png)], tmp_path), 1))
    assert api.log == [40]


def test_steps_are_refused_where_the_generator_takes_none(tmp_path):
    cfg = config(image_steps=(3,))
    without = {"image": ModelIdentity("fonts", "1"), "image_embedder": ModelIdentity("e", "1")}
    with pytest.raises(ConfigError, match=r"models\.image=fonts takes no denoising steps"):
        METHOD.resolve(cfg, without)
    unet = {"image": ModelIdentity("unet", "1", steps=50)}
    assert METHOD.resolve(cfg, unet).image_steps == (3,)
    with pytest.raises(ModelError, match="has no steps"):
        run(tmp_path, cfg)
    assert not has_drawn(tmp_path)


# --- kills and replays ----------------------------------------------------------------------------


def test_a_finished_journal_replays_without_a_draw_or_a_model_call(tmp_path):
    first = run(tmp_path, config())

    class Unread(Plane):
        def random(self, count, label):
            raise AssertionError("generated again")

        vary = random

    class Closed(Private):
        def reveal(self):
            raise AssertionError("opened the records again")

    closed = [Bucket(bucket.cell, Closed([])) for bucket in buckets()]
    cfg = config()
    again = run(tmp_path, cfg, closed, NeverDraws(), api=Unread())
    assert [(s.cell, s.content) for s in again[0]] == [(s.cell, s.content) for s in first[0]]
    assert again[1] == first[1]


def population(tmp_path, name="journal"):
    folder = tmp_path / f"{name}.kept"
    return {file.name: file.read_bytes() for file in folder.iterdir()} if folder.exists() else {}


@pytest.mark.parametrize("death", range(1, 19))
def test_killed_in_the_generator_it_goes_on_with_the_same_draws(tmp_path, death):
    quiet, dies = NoNoise(), Plane(seed=death)

    def refuses(asked):
        def ask(*arguments):
            if dies.calls + 1 == death:
                raise MemoryError
            return asked(*arguments)

        return ask

    dies.random, dies.vary = refuses(dies.random), refuses(dies.vary)
    with pytest.raises(MemoryError):
        run(tmp_path, config(), noise=quiet, api=dies)
    drawn, kept = entries(tmp_path), population(tmp_path)
    samples, _ = run(tmp_path, config(), noise=quiet, api=Plane(seed=99))
    after, left = entries(tmp_path), population(tmp_path)
    assert len(quiet.drawn) == 3
    assert {key: after[key] for key in drawn} == drawn
    assert {key: left[key] for key in kept} == kept
    assert len(samples) == 24


@pytest.mark.parametrize("generator", [Plane, OfClasses])
@pytest.mark.parametrize("death", [1, 2, 3])
def test_killed_in_a_draw_it_draws_that_one_again_on_the_same_population(
    tmp_path, death, generator
):
    """OfClasses itself compares the class of each sample with what its pixels say."""
    dies, quiet = DiesAsked(death), NoNoise()
    with pytest.raises(MemoryError):
        run(tmp_path, config(), noise=dies, api=generator())
    kept = population(tmp_path)
    samples, _ = run(tmp_path, config(), noise=quiet, api=generator(seed=99))
    left = population(tmp_path)
    assert {key: left[key] for key in kept} == kept
    assert len(dies.drawn) + len(quiet.drawn) == 3 + 1
    # The same votes, cast again.
    np.testing.assert_array_equal(dies.drawn[-1].values, quiet.drawn[0].values)
    if generator is OfClasses:
        assert classes_of(samples) == classes_of_points(samples)


# --- what is on disk ------------------------------------------------------------------------------


def leaks(tmp_path, data, clean):
    """Where a clean histogram, a private vector or a record lies in a file, in any likely form."""
    vectors = [Coordinates().embed([decode(text)])[0] for b in data for text in b.contents.reveal()]
    forms = {content.encode() for bucket in data for content in bucket.contents.reveal()}
    for votes in clean:
        for counts in (votes, votes // LATTICE):
            for kind in ("<i8", "<i4", "<f8", "<f4"):
                forms.add(counts.astype(kind).tobytes())
            forms.add(json.dumps(counts.tolist()).encode())
    forms |= {np.stack(vectors[i : i + 2]).tobytes() for i in range(len(vectors) - 1)}
    forms |= {base64.b64encode(form) for form in forms}
    found = []
    for file in tmp_path.rglob("*"):
        if file.is_file():
            data_ = file.read_bytes()
            found += [f"{file.name}" for form in forms if form in data_]
    return found


def test_no_clean_histogram_and_no_private_vector_is_written(tmp_path, monkeypatch):
    clean, data, votes = [], buckets(records=12), private_evolution._Private.votes

    def watched(self, vectors):
        clean.append(votes(self, vectors))
        return clean[-1]

    monkeypatch.setattr(private_evolution._Private, "votes", watched)
    _, exhibits = run(tmp_path, config(noise_multiplier=1.0), data, OpenDPNoise())
    for name, content in exhibits.items():
        (tmp_path / name).write_bytes(content)
    assert len(clean) == 3
    assert leaks(tmp_path, data, clean) == []
    for file in population(tmp_path).values():
        np.load(io.BytesIO(file), allow_pickle=False)


# --- votes ----------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=20).map(
        lambda rows: np.array(rows, np.float32)
    )
)
def test_a_row_is_rounded_alone_and_stays_within_reach(rows):
    grid = Grid.around(np.eye(3, dtype=np.float32))
    steps = grid.round(rows)
    assert ((steps.astype(np.float64) ** 2).sum(1) <= REACH**2).all()
    np.testing.assert_array_equal(steps, np.rint(steps))
    for row, alone in zip(rows, steps, strict=True):
        np.testing.assert_array_equal(grid.round(row[None])[0], alone)


def tally(voters, candidates):
    return np.bincount(voters.nearest(candidates), minlength=len(candidates))


def test_the_nearest_candidate_gets_the_vote():
    rng = np.random.default_rng(0)
    rows, candidates = rng.normal(size=(500, 20)), rng.normal(size=(40, 20))
    distances = ((rows[:, None] - candidates) ** 2).sum(-1)
    votes = tally(Voters(rows.astype(np.float32)), candidates.astype(np.float32))
    exact = np.bincount(distances.argmin(1), minlength=40)
    assert votes.sum() == 500
    assert np.abs(votes - exact).sum() <= 4  # two rows at most are nearly as near to another


def test_a_tie_goes_to_the_lowest_index():
    candidates = np.array([[1, 0], [0, 1], [1, 0], [-1, 0], [0, 1]], np.float32)
    rows = np.array([[1, 0]] * 30 + [[0, 1]] * 20 + [[0, 0]] * 7, np.float32)
    assert tally(Voters(rows), candidates).tolist() == [37, 20, 0, 0, 0]


def test_a_grid_follows_the_candidates_and_never_the_private_rows():
    far = np.array([[1e6, 0.0], [0.0, -1e30], [np.nan, np.inf]], np.float32)
    near = np.array([[0.2, 0.1], [-0.2, 0.3]], np.float32)
    candidates = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)
    alone = tally(Voters(near), candidates)
    together = tally(Voters(np.concatenate([far, near])), candidates)
    assert together.sum() == 5
    assert (together >= alone).all()
    close = tally(Voters(near / 1000), candidates / 1000)  # a finer grid for closer candidates
    assert close.tolist() == alone.tolist()


# --- more samples ---------------------------------------------------------------------------------


def test_more_varies_the_released_samples_in_turn(tmp_path):
    class Still(Plane):
        def vary(self, samples, label, degree):
            assert degree == 0.3  # that of the last round
            return list(samples)

    released = [(label, encode(np.full((1, 2), n, np.uint8))) for n, label in enumerate("xxy")]
    models = Backends({"image": Still(), "image_embedder": Coordinates()})
    made = list(METHOD.more(config(), models, Finished(released, tmp_path), 8))
    assert made == [*released, *released, *released[:2]]
    assert list(METHOD.more(config(), models, Finished(released, tmp_path), 2)) == released[:2]
    many = [(label, released[0][1]) for label in "abcde" for _ in range(10)]
    few = [label for label, _ in METHOD.more(config(), models, Finished(many, tmp_path), 15)]
    assert few == [label for label in "abcde" for _ in range(3)]  # labels keep their shares


# --- convergence ----------------------------------------------------------------------------------


def gap(synthetic, private):
    distances = np.sqrt(((synthetic[:, None] - private[None]) ** 2).sum(-1))
    return float(distances.min(0).mean() + distances.min(1).mean())


@pytest.mark.parametrize(("epsilon", "least"), [(1e4, 0.25), (5, 0.45)])
def test_the_population_moves_onto_two_moons(tmp_path, epsilon, least):
    cfg = config(
        rounds=6, population=150, lookahead=4, degrees=(0.4, 0.05), threshold=None,
        noise_multiplier=None,
    )  # fmt: skip
    data = [Bucket(METHOD.cells(cfg, ())[0], Private(moons(3000)))]
    private = np.stack([decode(content)[0] for content in data[0].contents.reveal()]).astype(float)
    samples, _ = run(tmp_path, cfg, data, target=Guarantee(epsilon, 1e-5))
    gaps = [gap(np.stack(Plane().random(150, None)).reshape(-1, 2).astype(float), private)]
    for t in range(2, 8):
        with journal_at(tmp_path / "journal") as journal:
            kept = journal.public_file(f"population/{t}/0", lambda: b"")
        points_kept = np.load(io.BytesIO(kept))["pixels"].reshape(-1, 2)
        gaps.append(gap(points_kept.astype(float), private))
    assert gaps[-1] == gap(points(samples), private)
    assert gaps[-1] < least * gaps[0], gaps
    assert gaps[3] < gaps[0]
    assert gaps[-1] < gaps[3], gaps


def test_the_public_model_alone_writes_the_first_population():
    text = config(modality="text", text={"max_tokens": 20})
    assert METHOD.fresh(text) == text.text
    assert METHOD.fresh(config(modality="image")) is None


def test_a_vote_keeps_the_best_candidate_of_each_row():
    """Two candidates for each of three rows, in the order of the rows."""
    rng = np.random.default_rng(1)
    weights = np.array([5, 0, 2, 4, 9, 3])
    assert private_evolution._best_of_each_row(weights, 3, rng).tolist() == [0, 4, 5]
    ties = {private_evolution._best_of_each_row(np.zeros(2), 1, rng)[0] for _ in range(50)}
    assert ties == {0, 1}


def test_what_is_on_file_counts_as_done(tmp_path):
    class Dies(Plane):
        def vary(self, samples, label, degree):
            if degree < config().degree(2):
                raise MemoryError
            return super().vary(samples, label, degree)

    with pytest.raises(MemoryError):
        run(tmp_path, config(), api=Dies())
    seen = followed(tmp_path, config())
    released, rest = 12 * len(LABELS), len(LABELS)  # vectors of each label
    made = released * config().expansion * (1 + config().lookahead)
    assert_goes_on(seen, first=made + rest)


def test_images_of_a_mixed_size_in_the_private_data_do_not_end_a_run(tmp_path):
    class Any(Coordinates):
        def embed(self, samples):
            return np.array([[s.mean() / 255, s.std() / 255] for s in samples], np.float32)

    cells = METHOD.cells(config(), ())
    odd = [to_content(np.zeros(shape, np.uint8)) for shape in ((1, 2), (7, 3), (4, 4, 3))]
    models = {"image": Plane(), "image_embedder": Any()}
    samples, _ = run(tmp_path, config(), [Bucket(cells[0], Private(odd))], models=models)
    assert len(samples) == 12


def test_without_classes_nothing_is_written_of_them(tmp_path):
    samples, _ = run(tmp_path, config(rounds=1))
    assert not any(b"Class" in sample.content for sample in samples)
