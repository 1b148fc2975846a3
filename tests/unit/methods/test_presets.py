"""The papers' configurations: what their plans cost, beside what the papers print."""

import math
from typing import Any

import pytest

from privsyn.config import parse_config
from privsyn.dp.accountant import guarantee
from privsyn.dp.adjacency import Adjacency, Guarantee, PrivacyUnit
from privsyn.errors import ConfigError
from privsyn.methods.base import PricingFacts
from privsyn.methods.registry import METHODS, load_method
from privsyn.models.language.prompts import CHAT, PLAIN
from privsyn.models.model_identity import ModelIdentity
from privsyn.models.rows import Subject
from privsyn.section import PAPER, SMALL

RAW: dict[str, Any] = {
    "dataset": {"name": "d", "path": "d.jsonl", "unit": "id"},
    "account": {"name": "d", "adjacency": "add_remove", "epsilon": 100, "delta": 0.1},
    "privacy": {"epsilon": 1, "delta": 1e-6},
}
IMAGES = RAW | {"dataset": RAW["dataset"] | {"images": {"size": 64, "mode": "RGB"}}}
CHAT_MODEL = ModelIdentity("chat-8b", "r", CHAT, chat=True, parameters=8 * 10**9, steps=100)


def settings(name, **changed):
    """Resolved settings of a method's paper, with changes on top."""
    raw = IMAGES if name == "private_evolution" else RAW
    overrides = [f"methods.{name}=paper"]
    overrides += [f"methods.{name}.{key}={value}" for key, value in changed.items()]
    cfg = parse_config(raw, overrides).method(name)
    method = load_method(name)
    models = dict.fromkeys(method.roles(cfg), CHAT_MODEL)
    return method.resolve(cfg, models, Subject("a news text"))


def mechanism(name, target, *labels, **changed):
    facts = PricingFacts(Adjacency.ADD_REMOVE, PrivacyUnit("person", 1), labels)
    return load_method(name).calibrate(settings(name, **changed), target, facts)


def cost(name, target, *labels, **changed):
    return guarantee(mechanism(name, target, *labels, **changed).event, target.delta).epsilon


@pytest.mark.parametrize(
    ("changed", "epsilon"),
    [
        # The paper's theorem says .8811 and 2.0963; exact composition needs less ([B15]).
        ({"svt_threshold": "null"}, 0.8165),
        ({}, 1.9310),
    ],
)
def test_private_prediction_at_100_tokens(changed, epsilon):
    target = Guarantee(10, 1e-6)
    found = cost("private_prediction", target, private_tokens=100, **changed)
    assert found == pytest.approx(epsilon, abs=2e-4)


@pytest.mark.parametrize(("epsilon", "clip"), [(1, 0.0815), (3, 0.2230), (5, 0.3513), (10, 0.6366)])
def test_invisible_ink_costs_its_target_at_a_wider_clip_than_zcdp_allows(epsilon, clip):
    made = mechanism("invisible_ink", Guarantee(epsilon, 1e-6))
    assert made.clip_bound == pytest.approx(clip, abs=1e-4)
    assert guarantee(made.event, 1e-6).epsilon == pytest.approx(epsilon, abs=1e-3)
    assert not made.warnings  # the paper's sizes are no mistake


@pytest.mark.parametrize("ensemble", ["independent", "linear", "logarithmic"])
@pytest.mark.parametrize("shares", [None, (5, 5), (1, 10), (5, 10)])
def test_keyphrases_cost_the_budgets_of_table_2(shares, ensemble):
    changed: dict[str, Any] = {"ensemble": ensemble}
    if shares is not None:
        changed["vocabulary_share"] = shares[0] / sum(shares)
    total = sum(shares or (1, 5))
    found = cost("keyphrase_seeding", Guarantee(total, 1e-6), "A", "B", **changed)
    assert found == pytest.approx(total, abs=2e-4)


@pytest.mark.parametrize(
    ("changed", "delta", "epsilon"),
    [
        # .67, which the paper prints for five rounds, is the cost of seven (guarantee.md).
        ({"rounds": 7}, 1e-5, 0.6745),
        ({"rounds": 5}, 1e-5, 0.5613),
        # Cats 6.62 at 1e-3, Camelyon17 10.00 at 3e-6, as printed.
        ({"rounds": 13, "noise_multiplier": 2, "threshold": 2}, 1e-3, 6.62),
        ({"rounds": 7, "noise_multiplier": 1.381, "threshold": 4}, 3e-6, 10.00),
    ],
)
def test_private_evolution_costs_what_the_paper_prints(changed, delta, epsilon):
    assert cost("private_evolution", Guarantee(20, delta), **changed) == pytest.approx(
        epsilon, abs=5e-3
    )


def test_the_paper_of_private_evolution_is_that_of_the_records():
    """Texts: Xie et al.; images: Lin et al.; either by one word."""
    texts = parse_config(RAW, ["methods.private_evolution=paper"]).method("private_evolution")
    assert (texts.modality, texts.expansion, texts.image_steps) == ("text", 7, None)
    assert texts.word_share == texts.mean_share == 0
    one = ["methods.private_evolution=paper", "methods.private_evolution.text.max_tokens=9"]
    shorter = parse_config(RAW, one).method("private_evolution").text
    assert (shorter.max_tokens, shorter.temperature) == (9, 1.4)  # the other lines stay
    pictures = settings("private_evolution")
    assert (pictures.modality, pictures.expansion) == ("image", 1)
    by_line = ["methods.private_evolution=small", "methods.private_evolution.modality=image"]
    assert parse_config(RAW, by_line).method("private_evolution").rounds == 3
    made = mechanism("private_evolution", Guarantee(3, 1e-6), "A", modality="text")
    assert made.histograms == 10
    assert not made.warnings


def test_degrees_fall_by_two_hundredths_a_round():
    cfg = settings("private_evolution")
    degrees = [round(100 * cfg.degree(round_), 6) for round_ in range(1, 21)]
    assert degrees == list(range(98, 58, -2))
    assert len(degrees) == cfg.rounds
    assert cfg.threshold / cfg.noise_multiplier == pytest.approx(math.sqrt(2))


def test_dp_lora_costs_the_two_tables():
    # MediaSum: the paper prints 2 at 1e-7 (Table 1) and at 1e-6 (Appendix A), where it holds.
    assert cost("dp_lora", Guarantee(5, 1e-7)) == pytest.approx(2.1206, abs=2e-3)
    assert cost("dp_lora", Guarantee(5, 1e-6)) == pytest.approx(1.8800, abs=2e-3)
    pubmed = {"sampling_rate": 2048 / 75329, "steps": 184, "noise_multiplier": 0.9738}
    assert cost("dp_lora", Guarantee(5, 1e-5), **pubmed) == pytest.approx(2.597, abs=2e-3)


@pytest.mark.parametrize("name", [name for name in METHODS if load_method(name).Config.presets])
@pytest.mark.parametrize("preset", [PAPER, SMALL])
def test_a_preset_stands_for_values_and_further_lines_are_in_place_of_its_own(name, preset):
    model = load_method(name).Config
    written = model.model_validate(model.presets[preset])
    assert parse_config(RAW, [f"methods.{name}={preset}"]).method(name) == written
    section = {"methods": {name: {"settings": preset}}}
    assert parse_config(RAW | section).method(name) == written
    key, value = {
        "private_prediction": ("clip_bound", 7.5),
        "invisible_ink": ("top_k", 50),
        "private_evolution": ("population", 33),
        "keyphrase_seeding": ("features", 222),
        "dp_lora": ("rank", 2),
    }[name]
    changed = parse_config(RAW | section, [f"methods.{name}.{key}={value}"]).method(name)
    assert changed == written.model_copy(update={key: value})


def test_the_whole_section_gives_way_to_a_preset_of_the_command_line():
    raw = RAW | {"methods": {"invisible_ink": {"guidance": 3, "top_k": 7}}}
    made = parse_config(raw, ["methods.invisible_ink=paper", "methods.invisible_ink.top_k=null"])
    assert made.method("invisible_ink").guidance == 1
    assert made.method("invisible_ink").top_k is None


def test_a_preset_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"methods\.dp_lora\.settings=papers is no set of values"):
        parse_config(RAW, ["methods.dp_lora=papers"])
    with pytest.raises(ConfigError, match=r"methods\.distill has none"):
        parse_config(RAW, ["methods.distill=paper"])


@pytest.mark.parametrize("name", ["invisible_ink", "private_prediction"])
def test_the_papers_prompts_are_refused_without_a_chat_template(name):
    cfg = parse_config(RAW, [f"methods.{name}=paper"]).method(name)
    base = ModelIdentity("base-1b", "r", PLAIN, chat=False)
    with pytest.raises(ConfigError, match="base-1b has no chat template"):
        load_method(name).resolve(cfg, {"language": base})


def test_the_papers_prompts_begin_the_answer_and_name_no_class_of_phrases():
    prompt = settings("private_prediction").prompt
    assert prompt.chat
    assert prompt.public.endswith("[assistant]\nText:")
    assert "another one." in prompt.private
    phrases = settings("keyphrase_seeding").prompt
    assert phrases == "Write a news text that contains the following terms: {phrases}"
    assert settings("dp_lora").prompt == ""
