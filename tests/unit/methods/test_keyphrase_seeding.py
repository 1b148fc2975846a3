"""Keyphrase seeding on toy models: plan, prompts, replay, bad input."""

import hashlib
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from privsyn.data.records import Bucket, Private
from privsyn.data.settings import TextExample
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.dp.noise import OpenDPNoise
from privsyn.errors import ConfigError, ModelError
from privsyn.methods.base import PricingFacts, silent
from privsyn.methods.keyphrase_seeding import method as keyphrase_seeding
from privsyn.methods.keyphrase_seeding import settings as settings_module
from privsyn.methods.keyphrase_seeding.dp_kde import Structure
from privsyn.methods.keyphrase_seeding.method import KeyphraseSeeding, SeedPrompts
from privsyn.methods.keyphrase_seeding.settings import KeyphraseSeedingConfig
from privsyn.methods.keyphrase_seeding.vocabulary import _told_apart
from privsyn.methods.shared.baseline import write_fresh
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import ANYTHING, Subject
from tests.fakes import FakeTextModel, journal_at, run_over
from tests.noise import Constant, SeededNoise

METHOD = KeyphraseSeeding()
RECORD = PrivacyUnit()
LABELS = ("Billing", "Symptoms")
TERMS = ("bill", "refund", "payment due", "headache", "fever", "sore throat", "visit", "unseen")
TEXTS = {
    "Billing": ["My bill and the refund, CANARYONE", "payment due: bill; visit", "refund bill"],
    "Symptoms": ["headache, fever CANARYTWO", "sore throat and fever", "visit for a headache"],
}
CANARIES = ("canaryone", "canarytwo", "throat and")
CHAT = PromptTemplate("Like {reference}", "Like", chat=True)
OWN = PromptTemplate("<s>Text: {reference}</s>Text:", "<s>Text:")


class Words:
    """An embedder of words by hash: a pure function of the text."""

    revision, width = "words", 12

    def __init__(self, scale=1.0):
        self.scale = scale
        self.asked: list[str] = []

    def embed(self, samples, /):
        self.asked += samples
        seeds = [hashlib.blake2b(s.encode(), digest_size=8).digest() for s in samples]
        rows = [np.random.default_rng(int.from_bytes(s, "big")).normal(size=12) for s in seeds]
        return np.float32(self.scale) * np.array(rows, np.float32)


class Echo:
    """A TextModel that notes what it is asked and says a word of it."""

    revision = "echo"

    def __init__(self, fail_at=None):
        self.prompts: list[str] = []
        self.until: list[Sequence[str] | None] = []
        self.fail_at = fail_at

    def complete(self, prompts, *, max_tokens, temperature, top_p=1.0, until=None):
        if self.fail_at is not None and len(self.prompts) >= self.fail_at:
            raise ModelError("down")
        self.prompts += prompts
        self.until += [until] * len(prompts)
        return list(map(self.answer, prompts))

    def answer(self, prompt):
        return f" They wrote of {prompt.split()[-2]} once more today. "


constant = partial(Constant, laplace=np.flip, gaussian=partial(np.full_like, fill_value=2**24))
"""The mechanism replaced by a constant: the first terms come first, all estimates are alike."""


@pytest.fixture
def terms(tmp_path):
    file = tmp_path / "terms.txt"
    file.write_text("\n".join(TERMS))
    return file


def config(terms, own=CHAT, subject=ANYTHING, **settings):
    defaults = {
        "vocabulary": str(terms), "vocabulary_size": 6,
        "features": 64, "sequence_length": 3, "sequences_per_label": 5, "phrases_per_document": 2,
        "evidence": False,
    }  # fmt: skip
    cfg = KeyphraseSeedingConfig(**(defaults | settings))
    return METHOD.resolve(cfg, {"text": ModelIdentity("m", "r", own)}, subject)


def run(tmp_path, cfg, *, texts=None, noise=None, model=None, embedder=None, name="journal",
        progress=silent, labels=LABELS):  # fmt: skip
    texts = TEXTS if texts is None else texts
    plan = METHOD.calibrate(
        cfg, Guarantee(50, 1e-6), PricingFacts(Adjacency.REPLACE_NULL, RECORD, tuple(labels))
    )
    buckets = [
        Bucket(cell, Private(list(texts.get(cell.label, [])))) for cell in METHOD.cells(cfg, labels)
    ]
    models = {"embedder": embedder or Words()}
    if cfg.use_llm:
        models["text"] = model or Echo()
    return [*run_over(
        tmp_path / name, METHOD, cfg, plan, buckets, models, noise or SeededNoise(1),
        progress=progress,
    )]  # fmt: skip


# --- the plan -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(
    epsilon=st.floats(0.05, 200),
    exponent=st.floats(-10, -2),
    share=st.floats(0.01, 0.95),
    noise=st.sampled_from(["laplace", "gaussian"]),
    ensemble=st.sampled_from(["independent", "linear", "logarithmic"]),
    length=st.integers(1, 20),
    adjacency=st.sampled_from(list(Adjacency)),
    most=st.integers(1, 20),
)
def test_reported_epsilon_never_exceeds_the_target(
    epsilon, exponent, share, noise, ensemble, length, adjacency, most
):
    cfg = METHOD.resolve(
        KeyphraseSeedingConfig(
            use_llm=False, vocabulary_share=share, noise=noise, ensemble=ensemble,
            sequence_length=length,
        ),
        {},
    )  # fmt: skip
    target = Guarantee(epsilon, 10**exponent)
    plan = METHOD.calibrate(
        cfg, target, PricingFacts(adjacency, PrivacyUnit("user", most), tuple(LABELS))
    )
    assert guarantee(plan.event, target.delta).epsilon <= epsilon
    assert plan.rows == (2000, 2000)


# --- prompts --------------------------------------------------------------------------------------


def test_prompts_hold_privatised_phrases_and_public_text_alone(tmp_path, terms):
    """Every prompt is the public frame around chosen terms: nothing else of a record gets in."""
    cfg, model, embedder = config(terms, name_labels=False), Echo(), Words()
    samples = run(tmp_path, cfg, model=model, embedder=embedder)
    before, after = cfg.prompt.split("{phrases}")
    asked = list(dict.fromkeys(model.prompts))
    assert asked[0] == "The following is a text.\nText:"  # whether the model answers at all
    assert len(model.prompts) == 1 + 10 * cfg.candidates
    for prompt in asked[1:]:
        assert prompt.startswith(before)
        assert prompt.endswith(after)
        inside = prompt[len(before) : len(prompt) - len(after)]
        assert set(inside.split(", ")) <= set(TERMS)
    said = " ".join([*model.prompts, *embedder.asked, *(s.content for s in samples)]).casefold()
    assert not any(canary in said for canary in CANARIES)
    assert not any(label.casefold() in said for label in LABELS)
    # Terms, lists of terms, and what the model wrote.
    written = {sample.content for sample in samples}
    assert {a for a in embedder.asked if not set(a.split(", ")) <= set(TERMS)} == written


def test_labels_are_named_only_where_they_are_public(tmp_path, terms):
    with pytest.raises(ValueError, match="name_labels=false forbids"):
        config(terms, prompt="A {label}: {phrases}", name_labels=False)
    cfg, model = config(terms, candidates=1), Echo()
    run(tmp_path, cfg, model=model)
    named = [label for prompt in model.prompts[1:] for label in LABELS if label in prompt]
    assert named == ["Billing"] * 5 + ["Symptoms"] * 5
    with pytest.raises(ValueError, match="exactly once"):
        config(terms, prompt="nothing")


def test_default_prompts_follow_the_model(terms):
    assert config(terms, subject=Subject("a medical record")).prompt == (
        "The following is a medical record.\nTopic: {label}\nWords to build on: {phrases}\nText:"
    )
    assert config(terms, name_labels=False, subject=Subject("a letter")).prompt == (
        "The following is a letter.\nWords to build on: {phrases}\nText:"
    )
    described = Subject("a letter", (("Billing", "bills"),))
    assert config(terms, subject=described).label_descriptions == {"Billing": "bills"}
    assert config(terms, OWN).prompt == "<s>Text: {phrases}</s>Text:"
    plain = PromptTemplate("Label: {label}\nText: {reference}\n\nLabel: {label}\nText:", "x")
    assert config(terms, plain, name_labels=False).prompt == "Text: {phrases}\n\nText:"
    assert "Label: {label}\n" in config(terms, plain).prompt


def test_examples_of_the_dataset_are_a_list_that_the_model_continues(tmp_path, terms):
    shown = (
        TextExample(label="Billing", text="I was charged twice for one visit."),
        TextExample(text="Hello there, doctor."),
    )
    cfg = config(terms, subject=Subject("a letter", examples=shown), candidates=1)
    assert cfg.prompt == (
        "Each text below is a letter.\n\n{examples}Topic: {label}\nWords: {phrases}\nText:"
    )
    assert cfg.examples == shown
    model = Echo()
    run(tmp_path, cfg, model=model)
    (_, *prompts), (_, *until) = model.prompts, model.until
    assert set(until) == {("\nTopic", "\nWords", "\nText")}
    first = prompts[0]
    assert first.startswith("Each text below is a letter.\n\nTopic: Billing\nWords: charged")
    assert first.count("Topic:") == 2  # an example without a label names none
    assert "Text: I was charged twice for one visit.\n\nWords: " in first
    assert first.endswith("\nText:")
    unlabeled = config(terms, subject=Subject("a letter", examples=shown), name_labels=False)
    assert "{label}" not in unlabeled.prompt
    own = config(terms, subject=Subject("a letter", examples=shown), prompt="Terms: {phrases}")
    assert own.examples == ()
    planned = METHOD.Settings.model_validate(cfg.model_dump(mode="json"))
    assert planned.model_dump() == cfg.model_dump()


# --- the run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ensemble", ["independent", "linear", "logarithmic"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_phrases_alone_are_records(tmp_path, terms, ensemble, noise):
    cfg = config(terms, use_llm=False, ensemble=ensemble, noise=noise)
    assert METHOD.roles(cfg) == ("embedder",)
    samples = run(tmp_path, cfg, noise=OpenDPNoise())
    assert [s.cell.label for s in samples] == ["Billing"] * 5 + ["Symptoms"] * 5
    for sample in samples:
        phrases = sample.content.split(", ")
        assert len(phrases) == sample.counts["phrases"] == 3
        assert set(phrases) <= set(TERMS)
        if ensemble != "independent":
            assert len(set(phrases)) == 3


def test_phrases_follow_their_label(tmp_path, terms):
    cfg = config(terms, use_llm=False, features=4000, sequences_per_label=200, evidence=True)
    texts = {label: own * 300 for label, own in TEXTS.items()}
    samples = run(tmp_path, cfg, texts=texts)
    own = {"Billing": {"bill", "refund", "payment due", "visit"},
           "Symptoms": {"headache", "fever", "sore throat", "visit"}}  # fmt: skip
    hits = [p in own[s.cell.label] for s in samples for p in s.content.split(", ")]
    assert np.mean(hits) > 0.95


@pytest.mark.parametrize("ensemble", ["independent", "logarithmic"])
def test_a_phrase_of_every_label_is_drawn_less_than_by_its_count(
    tmp_path, terms, ensemble, monkeypatch
):
    """The paper's draw knows its own label alone, and common phrases win it."""
    monkeypatch.setattr(settings_module, "ENSEMBLE_POWER", 1.0)
    texts = {
        "Billing": ["visit bill"] * 400 + ["visit refund"] * 200,
        "Symptoms": ["visit fever"] * 400 + ["visit headache"] * 200,
    }

    def share(contrast):
        monkeypatch.setattr(settings_module, "LABEL_CONTRAST", contrast)
        cfg = config(
            terms, use_llm=False, ensemble=ensemble, features=4000, sequences_per_label=2000,
            sequence_length=1, evidence=True,
        )  # fmt: skip
        drawn = [s.content for s in run(tmp_path, cfg, texts=texts, name=f"{contrast}")]
        return drawn.count("visit") / len(drawn)

    assert share(1000.0) < 0.05  # too small a share to any power is nothing, the largest is not
    assert share(0.0) > 0.25  # half of all phrases, before the kernel spreads them
    assert share(2.0) < 0.85 * share(0.0)  # standard error of 4,000 draws: 0.03


@pytest.mark.parametrize("ensemble", ["independent", "logarithmic"])
def test_one_label_has_nothing_to_be_told_from(tmp_path, terms, ensemble, monkeypatch):
    drawn = []
    for contrast in (0.0, 2.0):
        monkeypatch.setattr(settings_module, "LABEL_CONTRAST", contrast)
        cfg = config(terms, use_llm=False, ensemble=ensemble, evidence=True)
        made = run(tmp_path, cfg, texts={None: TEXTS["Billing"]}, labels=(), name=f"{contrast}")
        drawn.append([sample.content for sample in made])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("ensemble", ["independent", "linear"])
def test_prompts_hold_the_phrases_that_are_their_labels_alone(
    tmp_path, terms, ensemble, monkeypatch
):
    """What all labels say alike, and what noise alone lifts, is left out of them."""
    monkeypatch.setattr(settings_module, "LABEL_EVIDENCE", 4.0)
    texts = {"Billing": ["visit bill"] * 400, "Symptoms": ["visit fever"] * 400}
    model = Echo()
    cfg = config(terms, ensemble=ensemble, features=4000, evidence=True, candidates=1)
    samples = run(tmp_path, cfg, texts=texts, model=model, noise=SeededNoise(3))
    asked = {
        label: [prompt for prompt in model.prompts[1:] if f"Topic: {label}" in prompt]
        for label in LABELS
    }
    for label, own in (("Billing", "bill"), ("Symptoms", "fever")):
        assert len(asked[label]) == 5
        assert all(f"Words to build on: {own}\n" in prompt for prompt in asked[label])
    assert {sample.counts["phrases"] for sample in samples} == {1}
    assert {sample.counts["uniform_phrases"] for sample in samples} == {0}


def test_where_noise_explains_all_a_prompt_is_the_public_models_own(tmp_path, terms, monkeypatch):
    monkeypatch.setattr(settings_module, "LABEL_EVIDENCE", 6.0)
    cfg = config(terms, evidence=True, candidates=2)
    model = Echo()
    samples = run(tmp_path, cfg, texts={}, model=model, noise=SeededNoise(1))
    alone = FakeTextModel()
    write_fresh(METHOD.fresh(cfg), alone, LABELS, default_rng(1))
    assert set(model.prompts[1:]) == set(alone.prompts)
    assert {sample.counts["phrases"] for sample in samples} == {0}


def test_phrases_that_are_released_themselves_need_no_evidence(terms):
    assert config(terms, evidence=True).label_evidence == 2
    assert config(terms, evidence=True, use_llm=False).label_evidence == 0


def test_the_public_model_alone_is_asked_as_around_phrases(terms):
    asked = []

    class Asked(FakeTextModel):
        def complete(self, prompts, **sampling):
            asked.append(sampling)
            return super().complete(prompts, **sampling)

    cfg, model, rng = config(terms, max_tokens=33), Asked(), default_rng(1)
    texts = write_fresh(METHOD.fresh(cfg), model, ["Symptoms", "Billing", "Symptoms"], rng)
    assert len(texts) == 3
    assert set(model.prompts) == {
        f"The following is a text.\nTopic: {label}\nText:" for label in LABELS
    }
    assert {tuple(sampling.items()) for sampling in asked} == {
        (("max_tokens", 33), ("temperature", 0.8), ("top_p", 0.9), ("until", None))
    }
    assert METHOD.fresh(config(terms, use_llm=False)) is None
    assert METHOD.fresh(config(terms, prompt="{phrases}")) is None


def test_terms_that_noise_alone_explains_are_left_out(tmp_path, monkeypatch):
    """Of 5,000 public terms five occur; the noise lifts hundreds of others above zero."""
    monkeypatch.setattr(keyphrase_seeding, "LEAST_TERMS", 1)
    monkeypatch.setattr(KeyphraseSeedingConfig, "score_power", 0.01)
    file = tmp_path / "terms.txt"
    file.write_text("\n".join([*TERMS[:5], *(f"term{i}" for i in range(5000))]))
    texts = {"Billing": ["bill refund"] * 60, "Symptoms": ["headache fever"] * 60}

    def phrases(**settings):
        cfg = config(
            file, use_llm=False, vocabulary_share=0.3, vocabulary_size=200, phrases_per_document=4,
            sequences_per_label=50, **settings,
        )  # fmt: skip
        name = str(len(list(tmp_path.iterdir())))
        found = run(tmp_path, cfg, texts=texts, noise=SeededNoise(2), name=name)
        return {p for s in found for p in s.content.split(", ")}

    believed = phrases(evidence=True)
    assert believed >= {"bill", "refund", "headache", "fever"}
    assert sum(p.startswith("term") for p in believed) <= 3
    assert sum(p.startswith("term") for p in phrases()) > 20


def test_of_several_texts_the_one_nearest_its_phrases_is_kept(tmp_path, terms):
    class Drifting(Echo):
        """Every fifth answer is about the phrases; nearer ones are scraps, echoes and loops."""

        def complete(self, prompts, **settings):
            lists = [p.partition("build on: ")[2].partition("\n")[0] for p in prompts]
            return [
                (
                    "Nothing of the kind at all.",
                    f"My letter is about {phrases}! And then some mo",
                    phrases,
                    prompt.partition("\n")[2],
                    f"{phrases} {phrases} {phrases}!",
                )[i % 5]
                for i, (prompt, phrases) in enumerate(zip(prompts, lists, strict=True))
            ]

    class Counted(Words):
        """Nearness is shared words."""

        def embed(self, samples, /):
            return np.array(
                [[sample.count(term) for term in TERMS] for sample in samples], np.float32
            )

    cfg = config(terms, candidates=5, sequence_length=2)
    for sample in run(tmp_path, cfg, model=Drifting(), embedder=Counted()):
        before, _, phrases = sample.content.partition("about ")
        assert before == "My letter is "
        assert phrases.endswith("!")  # without the sentence that the tokens cut off
        assert set(phrases.rstrip("!").replace(", ", " ").split()) <= set(" ".join(TERMS).split())


class Slow(Echo):
    """Answers as an assistant does until it was asked so many times, but for one text."""

    def __init__(self, times):
        super().__init__()
        self.times, self.calls = times, 0

    def complete(self, prompts, **settings):
        answers = super().complete(prompts, **settings)
        self.calls += settings["max_tokens"] > 1  # not the trial
        scraps = [f"I'm here to help you with {self.calls} of them." for _ in prompts]
        if self.calls >= self.times:
            return answers
        return scraps[1:] + answers[:1] if self.calls == 1 else scraps


@pytest.mark.parametrize("candidates", [1, 3])
def test_where_all_completions_of_a_sequence_failed_it_is_asked_for_again(
    tmp_path, terms, candidates
):
    cfg = config(terms, candidates=candidates, sequences_per_label=2)
    ready, late, never = (Slow(times) for times in (1, 3, 99))
    texts = {}
    for model in (ready, late, never):
        made = run(tmp_path, cfg, texts={"Billing": TEXTS["Billing"]}, labels=("Billing",),
                   model=model, noise=constant(), name=str(model.times))  # fmt: skip
        texts[model] = [sample.content for sample in made]
    assert ready.calls == 1
    assert late.calls == 3  # and of a sequence that has its text no more
    assert len(late.prompts) == 1 + (2 + 1 + 1) * candidates
    assert all(text.startswith("They wrote") for text in texts[ready] + texts[late])
    assert never.calls == 4
    assert not any(text.startswith("I'm here") for text in texts[never])  # another's in its place


def test_a_resumed_run_draws_nothing_again_and_asks_no_prompt_twice(tmp_path, terms):
    cfg = config(terms, sequences_per_label=70, candidates=1)
    whole = run(tmp_path, cfg, noise=SeededNoise(5), name="whole")
    model = Echo(fail_at=1 + 64)
    with pytest.raises(ModelError, match="down"):
        run(tmp_path, cfg, noise=SeededNoise(5), model=model)
    again = Echo()
    resumed = run(tmp_path, cfg, noise=SeededNoise(77), model=again)
    assert [s.content for s in resumed] == [s.content for s in whole]
    assert len(again.prompts) == 140 - 64
    quiet = Echo(fail_at=0)
    assert run(tmp_path, cfg, noise=SeededNoise(9), model=quiet) == resumed
    assert not quiet.prompts


def test_a_model_that_does_not_answer_is_found_before_the_first_draw(tmp_path, terms):
    with pytest.raises(ModelError, match="down"):
        run(tmp_path, config(terms), model=Echo(fail_at=0))
    with journal_at(tmp_path / "journal") as journal:
        assert not journal.has_drawn


def test_an_overtaken_run_stops_before_its_next_draw(tmp_path, terms):
    class Overtaken(Exception):
        pass

    draws, texts = 1 + 2, 5 * config(terms).candidates  # of a label
    steps = [*range(draws), draws, draws + texts]
    for stop, last in enumerate(steps):
        seen = []

        def progress(done, total, last=last, seen=seen):
            seen.append((done, total))
            if done == last:
                raise Overtaken

        with pytest.raises(Overtaken):
            run(tmp_path, config(terms), progress=progress, name=f"j{stop}")
        assert seen == [(done, draws + 2 * texts) for done in steps[: stop + 1]]
        with journal_at(tmp_path / f"j{stop}") as journal:
            drawn = [key for key in journal._values if key != "kept public vocabulary"]
        assert len(drawn) == stop


def test_progress_counts_the_texts_that_are_asked_for_and_nothing_of_the_records(tmp_path, terms):
    cfg = config(terms, sequences_per_label=50, candidates=3)
    told = []
    for name, texts in (("some", TEXTS), ("none", {}), ("many", {"Billing": ["my bill"] * 300})):
        seen, model = [], Echo()
        run(
            tmp_path, cfg, texts=texts, noise=constant(), model=model, name=name,
            progress=lambda done, total, seen=seen: seen.append((done, total)),
        )  # fmt: skip
        told.append(seen)
        done, total = [one for one, _ in seen], seen[0][1]
        assert done == sorted(set(done))
        assert total == 1 + len(LABELS) + len(model.prompts) - 1  # one was the first trial
        assert done[-1] < total
    assert told[0] == told[1] == told[2]


def test_a_constant_mechanism_gives_the_same_release_on_neighbors(tmp_path, terms):
    cfg = config(terms)
    neighbors = [
        TEXTS,
        {"Billing": TEXTS["Billing"][1:], "Symptoms": TEXTS["Symptoms"]},
        {"Billing": [*TEXTS["Billing"], " ".join(TERMS) * 50], "Symptoms": []},
        {},
    ]
    found = [
        run(tmp_path, cfg, texts=texts, noise=constant(), name=f"j{i}")
        for i, texts in enumerate(neighbors)
    ]
    assert all(samples == found[0] for samples in found[1:])


def test_vectors_are_normalized(tmp_path, terms):
    cfg = config(terms, use_llm=False)
    plain = run(tmp_path, cfg, name="a")
    assert run(tmp_path, cfg, embedder=Words(scale=1000.0), name="b") == plain
    for scale in (0.0, float("nan"), float("inf")):
        assert len(run(tmp_path, cfg, embedder=Words(scale), name=str(scale))) == 10


def test_scores_that_are_all_negative_fall_back_to_uniform(tmp_path, terms):
    samples = run(tmp_path, config(terms, use_llm=False), noise=constant(gaussian=np.zeros_like))
    assert {s.counts["uniform_phrases"] for s in samples} == {3}
    assert len({p for s in samples for p in s.content.split(", ")}) > 3


def test_a_vocabulary_smaller_than_asked_is_used_whole(tmp_path, terms):
    cfg = config(terms, vocabulary_size=100_000, use_llm=False)
    assert cfg.vocabulary_size == len(TERMS)
    assert len(run(tmp_path, cfg)) == 10


def test_a_vocabulary_that_changed_is_refused_before_the_first_draw(tmp_path, terms):
    cfg = config(terms, use_llm=False)
    terms.write_text("other\nterms\n")
    with pytest.raises(ConfigError, match="has the digest"):
        run(tmp_path, cfg)
    terms.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config(terms)


def test_a_begun_run_needs_the_vocabulary_file_no_more(tmp_path, terms):
    cfg = config(terms, use_llm=False)
    first = run(tmp_path, cfg)
    terms.unlink()
    assert run(tmp_path, cfg) == first


def test_a_missing_label_takes_no_phrases_along(terms):
    cfg = config(terms, prompt="Topic: {label}\nLabel: {label}; terms: {phrases}\nText:")
    prompts = SeedPrompts(cfg)
    assert prompts.fill("Billing", ["a", "b"]) == (
        2 * ("Topic: Billing\nLabel: Billing; terms: a, b\nText:",)
    )
    assert prompts.fill(None, ["a", "b"])[0] == "Label: ; terms: a, b\nText:"


def test_evidence_is_that_of_a_phrase_over_the_mean_of_the_other_labels():
    scores = np.array([[9.0, 3, 0], [3, 3, 3], [0, 3, 9]], np.float32)
    exact, rough = Structure(0, 1, 1.0, 10**9), Structure(0, 1, 1.0, 81)
    assert _told_apart(scores, 0, 1, exact).all()
    assert _told_apart(scores[:1], 9, 1, exact).all()  # nothing to be told from
    only = [[True, False, False], [False] * 3, [False, False, True]]
    # 7.5 above the mean of two others, whose variance is half of one's
    for factor, found in ((7.4, only), (7.6, [[False] * 3] * 3)):
        noise = _told_apart(scores, factor, 1 / math.sqrt(1.5), exact)
        assert noise.tolist() == found
    # features alone: 9 / sqrt(81) of two labels, 3 / sqrt(81) of one
    for factor, found in ((7.4, only), (7.6, [[False] * 3] * 3)):
        own = factor / math.sqrt(1 + (1 + 1 / 9) / 4)
        assert _told_apart(scores, own, 0, rough).tolist() == found
        padded = Structure(0, 2, 1.0, 81)  # scores are less by e^-1
        assert _told_apart(scores, own / math.e, 0, padded).tolist() == found


def test_features_come_in_pairs():
    with pytest.raises(ValueError, match="a multiple of 2"):
        KeyphraseSeedingConfig(features=7)
