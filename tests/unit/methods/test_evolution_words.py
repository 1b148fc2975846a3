"""The table of tokens of private evolution, labels that are codes, and examples in prompts."""

import base64
import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn import layout
from privsyn.data.columns import Column
from privsyn.data.records import Bucket, Private
from privsyn.data.settings import TextExample
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.events import Composed, DiscreteGaussian
from privsyn.dp.histograms import LATTICE
from privsyn.methods.base import Backends, Exhibit, Finished, PricingFacts, Sample, Size
from privsyn.methods.private_evolution import method, votes
from privsyn.methods.private_evolution.adaptation import (
    MOST_ENTRIES,
    MOST_TOKENS,
    STRENGTH,
    Adaptation,
    TokenTable,
)
from privsyn.methods.private_evolution.method import PrivateEvolution
from privsyn.methods.private_evolution.settings import PrivateEvolutionConfig
from privsyn.methods.private_evolution.votes import Grid, labels_of
from privsyn.models.language.text_variation import (
    ExampleList,
    TextConfig,
    TextSettings,
    TextVariation,
)
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import Subject, SyntheticRows
from tests.fakes import WORDS, FakeTextModel, run_over
from tests.noise import NoNoise, SeededNoise

METHOD, TARGET = PrivateEvolution(), Guarantee(3, 1e-6)
TOKENS = st.frozensets(st.integers(0, 9), max_size=8).map(sorted)
"""The tokens of a record. The public texts below use 0 to 5 of them."""
PUBLIC = TokenTable.of([[[0, 1, 2], [0, 3], [0]], [[0, 4], [0, 1, 5]]])


def config(**settings):
    text = {"random_prompt": "Topic: {label}\nText:", "vary_prompt": "{text}"}
    defaults = {"modality": "text", "rounds": 1, "lookahead": 0, "population": 2, "expansion": 3}
    text |= settings.pop("text", {})
    return PrivateEvolutionConfig(**(defaults | settings), text=TextSettings(**text))


def plan(cfg, adjacency=Adjacency.ADD_REMOVE, records=1, target=TARGET):
    return METHOD.calibrate(
        cfg, target, PricingFacts(adjacency, PrivacyUnit(max_records=records), ("a", "b"))
    )


# --- sensitivity and price ------------------------------------------------------------------------


def sums(records, table=PUBLIC, units=None, most=1):
    """The exact table; without units every record is its own."""
    apart = [[f"{label} {place}" for place in range(len(of))] for label, of in enumerate(records)]
    return table.exact_sums(records, units or apart, most, LATTICE)


@given(st.lists(TOKENS, max_size=6), TOKENS)
def test_a_record_moves_the_table_by_a_norm_of_one_at_most(records, added):
    without = sums([records, []])
    moved = sums([[*records, added], []]) - without
    assert moved.min() >= 0  # so a replaced record moves sqrt 2 at most
    assert int(sum(int(step) ** 2 for step in moved)) <= LATTICE**2
    assert not moved[len(PUBLIC.tokens) :].any()  # a label's own row alone
    assert moved.any() == bool({*added} & {*range(6)})


@given(st.lists(st.frozensets(st.integers(0, 400), min_size=1, max_size=300), min_size=1))
def test_no_row_is_longer_than_one_whatever_its_weights(records):
    """Weights of real texts are no round numbers; rounding must not add up."""
    texts = [sorted(record) for record in records]
    table = TokenTable.of([texts])
    for text in texts:
        row = sums([[text]], table)
        norm = math.sqrt(sum(int(step) ** 2 for step in row)) / LATTICE
        assert 0.999 < norm <= 1 or not {*text} & {*table.tokens}


MINE = st.tuples(st.lists(TOKENS, max_size=4), st.lists(TOKENS, max_size=4))


@given(MINE, MINE, MINE, st.integers(1, 4))
def test_a_unit_moves_the_table_by_the_root_of_its_records_at_most(others, gone, come, most):
    """Also where it has records of both labels, or more than it may."""

    def table(*mine):
        texts = [[*rest, *own] for rest, own in zip(others, mine or ([], []), strict=True)]
        units = [
            [*(f"{label} {place}" for place in range(len(rest))), *["the unit"] * len(own)]
            for label, (rest, own) in enumerate(zip(others, mine or ([], []), strict=True))
        ]
        return sums(texts, units=units, most=most).astype(object)

    one, other = table(*gone) - table(), table(*come) - table()
    for moved in (one, other):
        assert min(moved) >= 0  # so that a replaced unit moves sqrt(2m) at most
        assert (moved**2).sum() <= most * LATTICE**2
    assert ((one - other) ** 2).sum() <= 2 * most * LATTICE**2


def test_rows_of_a_unit_are_clipped_together_and_only_where_they_are_too_long():
    apart = [[[0], [1]], [[2]]]
    of_one = [["u", "u"], ["u"]]
    assert (sums(apart, units=of_one, most=3) == sums(apart)).all()
    alike = sums([[[0]] * 3, []], units=[["u"] * 3, []], most=3)
    assert max(alike) == math.isqrt(3 * LATTICE**2)
    # Rows of one and the same token, for the smaller noise: without the clip it would be 3 steps.
    assert max(sums([[[0]] * 3, []])) == 3 * LATTICE


def test_a_token_counts_once_however_often_a_record_names_it():
    assert (sums([[[0, 1, 0]], []]) == sums([[[0, 1]], []])).all()


def test_a_row_that_rounding_made_too_long_counts_as_none(monkeypatch):
    longer = lambda table, row: np.full(len(row), 1.000001 / math.sqrt(len(row)))  # noqa: E731
    monkeypatch.setattr(TokenTable, "_unit_vector", longer)
    assert not sums([[[0]], []]).any()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("records", [1, 4])
def test_the_table_and_the_votes_together_stay_within_the_target(share, rounds, adjacency, records):
    made = plan(config(word_share=share, rounds=rounds, degrees=[0.5]), adjacency, records)
    assert isinstance(made.event, Composed)
    assert 2.97 < guarantee(made.event, TARGET.delta).epsilon <= 3
    words, votes = made.event.events
    assert isinstance(words, DiscreteGaussian)
    assert isinstance(votes, DiscreteGaussian)
    assert votes.count == rounds
    # Noise and price are of one object, and the share is of zCDP, 1 / (2 z^2) a table.
    assert made.words is not None
    assert words == made.words.event
    moves = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    for part in (made.words, made.histogram):
        assert Fraction(part.sensitivity) ** 2 >= moves * records * LATTICE**2
    table, one = made.words.sigma**-2, made.histogram.sigma**-2
    assert table / (table + rounds * one) == pytest.approx(share, rel=1e-6)


def test_without_a_share_the_event_is_that_of_the_paper():
    made = plan(config())
    assert made.words is None
    assert "noise_words" not in made.derived
    assert isinstance(made.event, DiscreteGaussian)


def test_the_plan_makes_the_same_mechanism_again():
    cfg = config(word_share=0.5)
    made = plan(cfg)
    again = METHOD.rebuild(cfg, TARGET, made.facts, made.derived)
    assert again == made


def test_a_model_behind_a_server_pays_for_no_table():
    """It tells no logits: the whole budget is for votes."""
    models = {"text": ModelIdentity("m", "r", adapts=False), "embedder": ModelIdentity("e", "r")}
    assert METHOD.resolve(config(word_share=0.5), models).word_share == 0
    models["text"] = ModelIdentity("m", "r")
    assert METHOD.resolve(config(word_share=0.5), models).word_share == 0.5


# --- what the table says --------------------------------------------------------------------------


def drawn(rng, rates, texts):
    return [np.flatnonzero(rng.random(len(rates)) < rates).tolist() for _ in range(texts)]


def test_the_table_has_the_tokens_that_public_texts_use_most():
    table = TokenTable.of([[[9, 7], [7]], [[7, 5]]])
    assert table.tokens == (7, 5, 9)  # equally frequent ones in order of their numbers
    assert len(TokenTable.of([[range(2 * MOST_TOKENS)]]).tokens) == MOST_TOKENS
    many = TokenTable.of([[range(1000)]] * 500)
    assert many.public.size == MOST_ENTRIES
    assert np.allclose((TokenTable.of([[[1, 2], [3]]]).public ** 2).sum(), (1 + 0.5) / 4 + 0.125, 2)


def ratios(real, noise=0.0, public=0.3, labels=2, texts=60, records=400):
    """Log ratios over the strength; ``real`` are rates of tokens by label, else those in public."""
    rng = np.random.default_rng(5)
    rates = np.full((labels, 80), public)
    table = TokenTable.of([drawn(rng, row, texts) for row in rates])
    for (label, token), rate in real.items():
        rates[label, token] = rate
    sizes = np.broadcast_to(records, labels).tolist()
    exact = sums([drawn(rng, *pair) for pair in zip(rates, sizes, strict=True)], table)
    noisy = exact + rng.normal(0, noise * LATTICE, len(exact)).astype(np.int64)
    found = table.log_ratios(noisy, max(noise, 1e-6) * LATTICE, LATTICE) / STRENGTH
    return found[:, [table.places[token] for token in range(80)]]


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_a_token_of_all_labels_is_scaled_to_its_rate_in_the_records(noise):
    """One that stands in three of four texts is hardly there in records, another twice as often."""
    found = ratios({(0, 3): 0.02, (1, 3): 0.02, (0, 4): 0.6, (1, 4): 0.6}, noise)
    assert (found[:, 3] < -1.2).all()
    assert found[:, 4] == pytest.approx(math.log(2), abs=0.3)
    others = np.delete(found, [3, 4], axis=1)
    assert np.abs(others).mean() < 0.2  # what few public texts and noise explain is shrunk


def test_a_token_of_one_label_is_scaled_there():
    found = ratios({(0, 3): 0.9}, noise=1.0, texts=200)
    assert found[0, 3] == pytest.approx(math.log(3), abs=0.35)
    assert abs(found[1, 3]) < 0.2


def test_a_large_label_lends_its_words_to_no_small_one():
    """Its records use ten tokens more than the public texts do, those of the others do not."""
    real = {(0, token): 0.75 for token in range(10)}
    found = ratios(real, 2.0, labels=4, texts=40, records=[2000, 150, 150, 150])[:, :10]
    assert found[0].mean() > 0.7
    assert found[1:].mean() < 0.2  # .55 where labels count for their records


def test_noise_alone_changes_hardly_a_token():
    """A hundred records of a label, in each of which a token weighs a fifth of a vote."""
    found = ratios({}, noise=3.0, records=100, labels=4)
    assert np.abs(found).mean() < 0.1
    assert np.abs(found).max() <= 2.5


@pytest.mark.parametrize("noisy", [0, -(2**40), 2**40])
def test_log_ratios_are_finite_whatever_the_noise(noisy):
    found = PUBLIC.log_ratios(np.full(2 * 6, noisy), 2.0 * LATTICE, LATTICE)
    assert np.isfinite(found).all()
    one = TokenTable.of([[[0, 1]]])
    assert np.isfinite(one.log_ratios(np.full(2, noisy), 2.0 * LATTICE, LATTICE)).all()


# --- a run ----------------------------------------------------------------------------------------


class Letters:
    """Vectors that count some letters."""

    revision, width = "letters", 4

    def embed(self, texts, /):
        return np.array([[t.count(c) for c in "abxy"] for t in texts], np.float32)


@dataclass(frozen=True)
class Reader(FakeTextModel):
    """A text model that tells how likely it finds texts: by their letters e, or by the others."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    sign: int = 1

    def read(self, pairs):
        self.pairs.extend(pairs)
        return self.sign * np.array([text.count("e") - len(text) / 100 for _, text in pairs])


def run(
    tmp_path, cfg, data, noise=None, script=None, name="journal", on_public=None, model=None, **more
):
    """Samples and the text model; a second run of a name goes on with what is there."""
    model = model or FakeTextModel(script=script)
    buckets = [
        Bucket(cell, Private(tuple(data[cell.label]))) for cell in METHOD.cells(cfg, tuple(data))
    ]
    parts = [*run_over(
        tmp_path / name, METHOD, cfg, plan(cfg), buckets, {"text": model, "embedder": Letters()},
        noise or NoNoise(), on_public=on_public, **more,
    )]  # fmt: skip
    (tmp_path / layout.EXHIBITS).mkdir(exist_ok=True)
    for part in parts:
        if isinstance(part, Exhibit):
            (tmp_path / layout.EXHIBITS / part.name).write_bytes(part.content)
    return [part for part in parts if isinstance(part, Sample)], model


def stored(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def is_in(files, exact):
    """Whether an array lies there, as it is, in Base64 or in JSON."""
    raw, text = exact.tobytes(), json.dumps(exact.tolist()).encode()
    return any(form in files for form in (raw, base64.b64encode(raw), text))


DATA = {"a": ["the visit was late"] * 60, "b": ["my bill is ready"] * 60}


def test_half_of_the_candidates_are_written_with_the_log_ratios_of_their_label(tmp_path):
    """Tokens that the records of a label use become likelier there, the others less likely."""
    _, model = run(tmp_path, config(word_share=0.5, expansion=4), DATA)
    assert len(model.prompts) >= 2 * 8
    by_label = model.log_ratios
    assert len(by_label) >= 2
    for label, ratios_ in zip("ab", (by_label[0], by_label[-1]), strict=True):
        used = {WORDS.index(word) for word in DATA[label][0].split()}
        other = {WORDS.index(word) for words in DATA.values() for word in words[0].split()} - used
        assert min(ratios_[token] for token in used) > 0 > max(ratios_[token] for token in other)


def test_log_ratios_are_shrunk_by_the_noise_that_was_drawn(tmp_path):
    """Sixty records a label under noise of hundreds: the model writes as before."""
    cfg = config(word_share=0.5, expansion=4, noise_multiplier=1000.0)
    _, model = run(tmp_path, cfg, DATA)
    assert max(abs(ratio) for ratios_ in model.log_ratios for ratio in ratios_.values()) < 0.05


@pytest.mark.parametrize(("share", "most"), [(0.0, 8), (0.5, 4)])
def test_adapted_candidates_are_no_texts_of_the_public_model(tmp_path, share, most):
    """They would stand in the report as what costs nothing."""
    heard = []
    run(tmp_path, config(word_share=share, expansion=4), DATA, on_public=heard.append)
    [public] = heard
    assert [label for label, _ in public] == ["a"] * most + ["b"] * most


def test_a_resumed_run_draws_no_second_table(tmp_path, monkeypatch):
    class Dies(Exception):
        pass

    cfg = config(word_share=0.5)
    first, second = NoNoise(), NoNoise()
    with monkeypatch.context() as patch:
        patch.setattr(TokenTable, "log_ratios", lambda *given: (_ for _ in ()).throw(Dies))
        with pytest.raises(Dies):
            run(tmp_path, cfg, DATA, first)
    samples, model = run(tmp_path, cfg, DATA, second)
    assert len(first.drawn) == len(second.drawn) == 1  # the table, then the votes
    assert len(samples) == 4
    assert model.log_ratios


@pytest.mark.parametrize(("noise", "there"), [(SeededNoise(3), False), (NoNoise(), True)])
def test_no_exact_table_and_no_word_that_is_not_public_is_written(tmp_path, noise, there):
    """The canary is no public word. Without noise the journal holds the exact table."""
    data = {label: [f"{text} quuxcanary" for text in texts] for label, texts in DATA.items()}
    heard = []
    cfg = config(word_share=0.5, expansion=4)
    _, model = run(tmp_path, cfg, data, noise, on_public=heard.append)
    assert b"quuxcanary" not in stored(tmp_path)
    assert not any("quuxcanary" in prompt for prompt in model.prompts)
    [public] = heard
    table = TokenTable.of([[model.tokens(t) for of, t in public if of == label] for label in data])
    exact = sums([[model.tokens(text) for text in texts] for texts in data.values()], table)
    assert exact.any()
    assert is_in(stored(tmp_path), exact) is there


# --- texts beyond the votes -----------------------------------------------------------------------

ROW = {"random_prompt": "Of {columns.kind}\nText:"}
FURTHER = {"word_share": 0.5, "mean_share": 0.25, "expansion": 4}


def test_votes_choose_the_first_texts_and_the_table_writes_the_others_at_no_cost(tmp_path):
    cfg = config(**FURTHER, population=7, voted=2)
    noise = NoNoise()
    samples, model = run(tmp_path, cfg, DATA, noise)
    assert [sample.cell.label for sample in samples] == ["a"] * 7 + ["b"] * 7
    assert [sample.counts for sample in samples[::7]] == [{"voted": 2}] * 2
    assert len(noise.drawn) == 3  # table, means, votes
    assert len(noise.drawn[-1].values) == 2 * 2 * 4  # a bin a candidate of those that votes choose
    assert plan(cfg).event == plan(config(**FURTHER, population=2)).event
    assert plan(cfg).rows == (14, 14)
    assert "votes choose 4 of 14 texts" in plan(cfg).warnings[0]
    assert METHOD.requests(cfg, ["a", "b"]) == 2 * (2 * 4 + 5)
    adapted = [request["prompts"] for request in model.heard if request["log_ratios"]]
    assert sum(map(len, adapted)) >= 2 * (4 + 5)  # half of the candidates, and all further texts


def test_of_two_further_texts_the_one_that_the_public_model_finds_likelier_is_kept(tmp_path):
    """It reads what it wrote, and no record; votes and cost are those without it."""
    cfg, noise, model = config(**FURTHER, population=7, voted=2), NoNoise(), Reader()
    samples, _ = run(tmp_path, cfg, DATA, noise, model=model)
    assert len(noise.drawn[-1].values) == 2 * 8
    assert {prompt for prompt, _ in model.pairs} == {"Topic: a\nText:", "Topic: b\nText:"}
    assert not {text.strip() for _, text in model.pairs} & {of[0] for of in DATA.values()}
    first, second = (
        [pair for start in (0, 10) for pair in model.pairs[start + at : start + at + 5]]
        for at in (0, 5)
    )
    pairs = zip(first, second, Reader().read(first) >= Reader().read(second), strict=True)
    kept = [one if likelier else two for one, two, likelier in pairs]
    assert 0 < len({*kept} & {*first}) < 10
    assert Counter(sample.content for sample in samples[2:7] + samples[9:]) == Counter(
        text.strip() for _, text in kept
    )
    again, other = run(tmp_path, cfg, DATA, model=Reader(sign=-1))
    # another machine may read other last digits: what was kept is in the journal
    assert ([one.content for one in again], other.pairs) == ([one.content for one in samples], [])


def test_both_texts_of_two_are_written_for_the_same_row(tmp_path):
    rows = SyntheticRows(
        {"kind": Column(values=("x", "y"))}, {label: [(0,), (1,), (1,), (0,)] for label in DATA}
    )
    cfg = config(word_share=0.5, expansion=2, population=4, voted=2, text=ROW)
    samples, reader = run(tmp_path, cfg, DATA, model=Reader(), rows=rows)
    assert [sample.row for sample in samples] == [(0,), (1,), (1,), (0,)] * 2
    assert [prompt[:4] for prompt, _ in reader.pairs] == ["Of y", "Of x"] * 4


@pytest.mark.parametrize("settings", [{"voted": 9}, {"voted": 2, "word_share": 0.0}, {}])
def test_votes_choose_all_where_there_are_no_more_or_no_table(settings):
    made = plan(config(**(FURTHER | {"population": 7} | settings)))
    assert made.warnings == ()
    assert (
        made.sized_for
        == plan(config(**(FURTHER | settings | {"population": 7, "voted": None}))).sized_for
    )


def test_more_texts_are_written_by_the_released_table(tmp_path):
    """By what lies in the release alone, each at the label whose noisy mean is nearest."""
    cfg = config(**FURTHER)
    _, model = run(tmp_path, cfg, DATA)
    again = FakeTextModel(
        script=lambda prompt, before: ("aaaa of a visit", "bbbb of my bill")[
            (before + ("Topic: a" in prompt)) % 2
        ]
    )
    models = Backends({"text": again, "embedder": Letters()})
    records = [("a", "x")] * 4 + [("b", "y")] * 2
    made = list(METHOD.more(cfg, models, Finished(records, tmp_path), 9))
    assert Counter(label for label, _ in made) == {"a": 6, "b": 3}
    assert {json.dumps(sorted(of.items())) for of in again.log_ratios} == {
        json.dumps(sorted(of.items())) for of in model.log_ratios if of
    }


def test_an_adaptation_is_read_as_it_was_written(tmp_path):
    run(tmp_path, config(**FURTHER), DATA)
    written = (tmp_path / layout.EXHIBITS / method.ADAPTATION).read_bytes()
    assert Adaptation.of_json(written).to_json() == written
    assert Adaptation.of_json(written).means is not None


def test_votes_choose_half_or_as_many_as_the_records_can_decide():
    size = Size(1000, ("a", "b"), records=800)
    assert METHOD.for_texts(config(**FURTHER, voted=20), size)["voted"] == 100
    for many in (replace(size, records=None), replace(size, records=8000)):
        assert METHOD.for_texts(config(**FURTHER, voted=20), many)["voted"] == 250
    assert METHOD.for_texts(config(expansion=4), size)["expansion"] == 2


# --- mean vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "there"), [(SeededNoise(3), False), (NoNoise(), True)])
def test_no_exact_sum_of_vectors_is_written(tmp_path, monkeypatch, noise, there):
    """Without noise the journal holds the exact sums: so they would be seen."""
    seen = []

    def watched(*given):
        seen.append(votes.exact_sums(*given))
        return seen[0]

    monkeypatch.setattr(method, "exact_sums", watched)
    data = {"a": ["aab"] * 60, "b": ["bbx", "yyx"] * 20}
    run(tmp_path, config(mean_share=0.25), data, noise)
    [sums] = seen
    assert sums.any()
    assert is_in(stored(tmp_path), sums) is there


def test_a_resumed_run_draws_no_second_mean(tmp_path, monkeypatch):
    data = {"a": ["aab"] * 60, "b": ["bbx"] * 60}
    cfg, first, second = config(mean_share=0.25, expansion=2), NoNoise(), NoNoise()

    def dies(*_):
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(method._Private, "votes", dies)
        with pytest.raises(RuntimeError):
            run(tmp_path, cfg, data, first)
    samples, _ = run(tmp_path, cfg, data, second)
    assert len(first.drawn) == len(second.drawn) == 1  # the sums, then the votes
    assert len(samples) == 4


# --- labels that are codes ------------------------------------------------------------------------


def test_where_prompts_name_no_label_the_mean_vectors_say_whose_a_text_is(tmp_path):
    """The model writes of anything; only the records know which of it is of which code."""
    kinds = ("aaaa bill visit pay late", "bbbb bill visit pay late")
    turns = Counter()

    def either(prompt, before):
        turns[""] += 1
        return kinds[turns[""] % 2]

    data = {"q7": [kinds[0]] * 40, "q9": [kinds[1]] * 40}
    codes = {"text": {"name_labels": False}, "mean_share": 0.25}
    cfg, noise = config(**codes, population=1), NoNoise()
    samples, model = run(tmp_path, cfg, data, noise, script=either)
    assert {sample.cell.label: sample.content[:1] for sample in samples} == {"q7": "a", "q9": "b"}
    assert not any("q7" in prompt or "q9" in prompt for prompt in model.prompts)


def test_labels_that_no_prompt_names_need_mean_vectors():
    with pytest.raises(ValueError, match="name_labels=false needs mean_share"):
        config(text={"name_labels": False})
    with pytest.raises(ValueError, match=r"word_share=0\.6 and mean_share=0\.4 leave nothing"):
        config(word_share=0.6, mean_share=0.4)


def test_every_label_keeps_as_many_candidates_as_it_releases():
    """All candidates are like the first label's mean; the others get those that lose least."""
    grid = Grid.around(np.array([[0.0, 0.0], [1.0, 1.0]], np.float32))
    vectors = np.array([[9.0, 1.0 + 0.1 * i] for i in range(6)], np.float32)
    noisy = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) * LATTICE
    labels = labels_of(noisy.astype(np.int64).ravel(), vectors, grid, (2, 2, 1))
    assert np.bincount(labels).tolist() == [3, 2, 1]
    assert labels.tolist()[-2:] == [1, 1]


def test_the_shares_of_the_cost_are_those_of_the_settings():
    """In zCDP: words .3, mean vectors .2, two histograms of votes the rest."""
    cfg = config(word_share=0.3, mean_share=0.2, rounds=2, degrees=(0.5,))
    facts = PricingFacts(Adjacency.REPLACE_ONE, PrivacyUnit("user", 3), ("a", "b"))
    mechanism = METHOD.calibrate(cfg, TARGET, facts)
    costs = [event.count / event.noise_multiplier**2 for event in mechanism.event.events]
    assert np.array(costs) / sum(costs) == pytest.approx([0.3, 0.2, 0.5])
    assert mechanism.means.sensitivity == pytest.approx(2 * math.sqrt(3) * LATTICE)
    assert Fraction(mechanism.means.sensitivity) ** 2 >= 4 * 3 * LATTICE**2
    alone = METHOD.calibrate(cfg, TARGET, PricingFacts(Adjacency.ADD_REMOVE, PrivacyUnit(), ()))
    assert alone.means is None and len(alone.event.events) == 2  # noqa: PT018


# --- examples in prompts --------------------------------------------------------------------------

EXAMPLES = (
    TextExample(label="Billing", text="Hi, I got a bill for the scan in May, was it not covered?"),
    TextExample(label="Symptoms", text="my knee hurts when i climb stairs, should i come in"),
)
CHAT = PromptTemplate("Like {reference}", "Like", chat=True)


def listed(**settings):
    return TextConfig(**settings).resolved(CHAT, Subject("a message", examples=EXAMPLES))


def test_examples_stand_before_the_request_and_the_model_continues():
    class Remembers(FakeTextModel):
        def complete(self, prompts, **options):
            assert options["until"] == ("\nTopic", "\nText")
            return super().complete(prompts, **options)

    model = Remembers(
        script=lambda prompt, before: " I need a letter for school by Monday.\n\nTopic"
    )
    assert TextVariation(listed(), model).random(1, "Billing") == [
        "I need a letter for school by Monday."
    ]
    assert model.prompts[0] == (
        "Each text below is a message.\n\n"
        f"Topic: Billing\nText: {EXAMPLES[0].text}\n\n"
        f"Topic: Symptoms\nText: {EXAMPLES[1].text}\n\n"
        "Topic: Billing\nText:"
    )


@pytest.mark.parametrize(
    ("labels", "shown"), [("abcdefgh" * 2, 6), ("abc" * 5, 3), ([None] * 9, 6), ("a", 1)]
)
def test_a_prompt_shows_few_examples_one_of_a_label_the_asked_one_among_them(labels, shown):
    of = {f"text {place}": label for place, label in enumerate(labels)}
    examples = [TextExample(text=text, label=label) for text, label in of.items()]
    given = ExampleList("{examples}Text:", examples, str)
    draws = [
        [one.text for one in given.draw("a", np.random.default_rng(seed))] for seed in range(9)
    ]
    for texts in draws:
        assert len(texts) == shown
        assert len({of[text] or text for text in texts}) == shown
        assert labels[0] in [of[text] for text in texts]
        assert texts == sorted(texts, key=lambda text: int(text[5:]))  # as they were written
    assert shown == 1 or len({*map(tuple, draws)}) > 1  # drawn anew


def test_a_text_that_copies_an_example_is_asked_for_again():
    texts = [EXAMPLES[0].text + " Thanks.", "I will pay the copay on Friday, if that is fine."]
    model = FakeTextModel(script=lambda prompt, before: texts[min(before, 1)])
    assert TextVariation(listed(), model).random(1, "Billing") == [texts[1]]


@pytest.mark.parametrize(
    "answer",
    [
        "I would like to see Dr. Reyes in May.",
        "Is Okafor in on Friday, or you?",
        "Thanks a lot, Tom, and bye",
    ],
)
def test_a_text_that_holds_a_name_of_an_example_is_asked_for_again(answer):
    other = "I will pay the Billing copay by Tuesday, if that will do."
    shown = (
        TextExample(label="Billing", text="Dear Dr. Reyes, my Billing is off since Tuesday. Tom"),
        TextExample(label="Symptoms", text="i saw nurse Okafor and my knee hurts"),
    )
    settings = TextConfig().resolved(CHAT, Subject("a message", examples=shown))
    model = FakeTextModel(script=lambda prompt, before: (answer, other)[min(before, 1)])
    assert TextVariation(settings, model).random(1, "Billing") == [other]
    plain = TextConfig(random_prompt="Write:").resolved(CHAT, Subject(examples=shown))
    model = FakeTextModel(script=lambda prompt, before: answer)
    assert TextVariation(plain, model).random(1, None) == [answer]  # its prompt shows no example


def test_an_example_without_spaces_is_known_when_it_is_copied():
    shown = (TextExample(text="我的血压药昨天已经吃完了能不能请医生再给我开一个月的"),)
    settings = TextConfig().resolved(CHAT, Subject(examples=shown))
    answers = ["我的血压药昨天已经吃完了能不能请医生再给我开一点", "请问我的化验结果什么时候能出来"]
    model = FakeTextModel(script=lambda prompt, before: answers[before])
    assert TextVariation(settings, model).random(1, None) == [answers[1]]
    assert len(model.prompts) == 2


def test_where_labels_are_codes_examples_name_none_either():
    model = FakeTextModel(script=lambda prompt, before: "I will pay the copay on Friday then.")
    TextVariation(listed(name_labels=False), model).random(1, "Billing")
    assert "Topic" not in model.prompts[0]
