"""Texts from a scripted model: prompts, kept parts, lengths, silence."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.errors import ModelError
from privsyn.models.language import prompts
from privsyn.models.language.text_variation import STYLES, TextConfig, TextSettings, TextVariation
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import Subject
from tests.fakes import FakeTextModel

BUILTIN = PromptTemplate("<|start|>Text: {reference}<|end|>Text:", "<|start|>Text:")


def api(script=None, own=BUILTIN, seed=0, least=1, roles=(), **settings):
    model = FakeTextModel(script=script)
    resolved = TextConfig(**settings).resolved(own, Subject(roles=roles))
    made = TextVariation(resolved, model, np.random.default_rng(seed))
    made._ending = replace(made._ending, least=least)
    return made, model


def test_a_fresh_text_is_asked_for_by_label_and_style():
    made, model = api(random_prompt="A text on {label}.\nStyle: {style}\nGo:")
    assert len(made.random(5, "Billing")) == 5
    assert set(model.prompts) <= {f"A text on Billing.\nStyle: {one}\nGo:" for one in STYLES}


def test_prompts_follow_the_kind_of_model():
    chat = TextConfig().resolved(prompts.CHAT)
    assert chat.rephrase
    assert "{text}" in chat.vary_prompt
    plain = TextConfig().resolved(prompts.PLAIN)
    assert not plain.rephrase
    assert plain.vary_prompt == "Label: {label}\nText: {text}\n\nLabel: {label}\nText:"
    assert plain.random_prompt == "Label: {label}\nText:"
    assert TextConfig(random_prompt="mine:").resolved(BUILTIN).random_prompt == "mine:"
    chat = TextConfig().resolved(prompts.CHAT, Subject("an abstract of an article"))
    assert chat.random_prompt.startswith("The following is an abstract of an article.\n")
    note = TextConfig().resolved(prompts.CHAT, Subject("a note"))
    assert note.random_prompt.startswith("The following is a note.\n")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"random_prompt": "On {topic}:"}, r"\{topic\} is not one of label, style, doc"),
        ({"vary_prompt": "Go on:"}, r"\{text\} exactly once"),
        ({"vary_prompt": "{text} {text}"}, r"\{text\} exactly once"),
        ({"vary_prompt": "{text} {words}"}, r"\{words\} is not one of"),
        ({"temperature": -1}, "greater than or equal to 0"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
    ],
)
def test_refuses_settings_that_cannot_work(settings, words):
    with pytest.raises(ValueError, match=words):
        TextConfig(**settings)


def test_a_continuing_model_keeps_the_first_part_and_writes_the_rest():
    made, model = api(script=lambda prompt, before: " NEW END")
    text = "one two  three\nfour five six seven eight nine ten"
    for varied in made.vary([text] * 200, None, 0.5):
        kept = varied.removesuffix(" NEW END").removesuffix("NEW END")
        assert varied.endswith("NEW END")
        assert text.startswith(kept)
        assert len(kept.split()) < 10
    lengths = [len(re.fullmatch(r"(?s).*Text:(.*)", prompt)[1].split()) for prompt in model.prompts]
    assert all(prompt.startswith(f"<|start|>Text: {text}<|end|>Text:") for prompt in model.prompts)
    assert 0 in lengths
    assert 9 in lengths
    assert np.mean(lengths) == pytest.approx(4.5, abs=0.6)


TOLD = (
    "This is {document}. Rewrite it so that it differs {change}.\nTopic: {label}\nStyle: {style}\n"
    "Length: about {length} words\nText: {text}\nAnswer with nothing else."
)


def test_a_chat_model_is_asked_for_the_text_in_other_words():
    made, model = api(script=lambda prompt, before: '"A new text."', own=prompts.CHAT)
    assert made.vary(["an old text, {label} and all"], "x", 0.5) == ["A new text."]
    assert model.prompts == ["Say this in other words: an old text, {label} and all"]


def test_a_prompt_may_say_how_far_to_go_how_long_and_in_what_style():
    made, model = api(
        script=lambda prompt, before: '"A new text."', own=prompts.CHAT, vary_prompt=TOLD,
    )  # fmt: skip
    for degree, change in ((0.1, "a little"), (0.5, "somewhat"), (0.9, "a lot")):
        assert made.vary(["an old text, {label} and all"], "x", degree) == ["A new text."]
        prompt = model.prompts[-1]
        assert f"differs {change}.\n" in prompt
        assert 1 <= int(re.search(r"about (\d+) words", prompt)[1]) <= 6 + 8
        assert "Topic: x\n" in prompt
        assert any(f"Style: {one}\n" in prompt for one in STYLES)
        assert "Text: an old text, {label} and all\n" in prompt


def test_degrees_at_the_ends():
    seen = []

    class Warm(FakeTextModel):
        def complete(self, prompts, *, max_tokens, temperature, top_p=1.0, until=None):
            seen.append((temperature, max_tokens))
            return super().complete(prompts, max_tokens=max_tokens, temperature=temperature)

    settings = TextConfig(temperature=0.7, max_tokens=9)
    made = TextVariation(
        settings.resolved(BUILTIN), Warm(script=lambda prompt, before: "It ends here.")
    )
    assert made.vary(["a b", "c"], None, 0.0) == ["a b", "c"]
    assert seen == []
    made.vary(["a b", "c"], None, 0.25)
    fresh = made.vary(["a b", "c"], None, 1.0)
    assert seen == [(0.7, 9), (0.7, 9)]
    assert len(fresh) == 2


def test_a_variation_that_does_not_come_leaves_the_text_as_it_is():
    made, _ = api(script=lambda prompt, before: "" if "old" in prompt else " fine")
    texts = ["some old text", "another text", ""]
    varied = made.vary(texts, None, 0.5)
    assert varied[0] == "some old text"
    assert varied[1].endswith("fine")
    assert len(varied) == 3


def test_a_model_silent_at_first_is_asked_again_and_one_silent_for_good_refused():
    made, model = api(script=lambda prompt, before: "" if before < 2 else f"text {before}")
    assert all(made.random(3, None))
    mute, model = api(script=lambda prompt, before: "  ")
    with pytest.raises(ModelError, match="gave no text for 12 prompts"):
        mute.random(3, "x")
    assert len(model.prompts) == 12
    half, _ = api(script=lambda prompt, before: "" if before % 2 else "only this")
    assert half.random(40, None) == ["only this"] * 40
    assert mute.random(0, None) == []


def test_a_text_that_is_too_short_is_asked_for_again_and_a_salutation_is_no_text():
    answers = ["Hello.", "Dear doctor,\n\nmy bill is wrong.\n\nYours", "Thank you so very much."]
    made, model = api(script=lambda prompt, before: answers[before % 3], least=5)
    texts = made.random(2, None)
    assert texts == ["Thank you so very much.", "Dear doctor,\n\nmy bill is wrong."]
    assert len(model.prompts) == 3
    made, model = api(script=lambda prompt, before: "Yes.", least=5)
    assert made.random(2, None) == ["Yes."] * 2  # in the end what there is
    assert len(model.prompts) == 2 * 4


def test_a_conversation_in_which_one_role_speaks_alone_is_asked_for_again():
    roles = ("user", "assistant")
    talk, alone = "User: my bill is wrong.\nAssistant: I am sorry.", "my bill is wrong again."
    made, model = api(script=lambda _, before: (alone, talk)[before % 2], roles=roles)
    assert made.random(1, None) == [talk]
    assert len(model.prompts) == 2
    made, model = api(script=lambda _, before: talk if before == 7 else alone, roles=roles)
    assert made.random(2, None) == [talk] * 2, "another takes its place"
    made, _ = api(script=lambda *_: alone, roles=roles, own=prompts.CHAT)
    assert made.random(2, None) == [alone] * 2, "in the end what there is"
    assert made.vary([talk], None, 0.5) == [talk]
    plain, _ = api(script=lambda *_: alone, own=prompts.CHAT)
    assert plain.vary([talk], None, 0.5) == [alone], "where no conversation is asked for"


def test_a_variation_that_speaks_of_the_task_is_taken_only_where_its_text_does_so_too():
    answer = "I'm sorry for any confusion, I am here to help."
    made, _ = api(script=lambda prompt, before: answer, own=prompts.CHAT)
    texts = ["my bill is wrong again", "As an AI, I have no bill to pay."]
    assert made.vary(texts, None, 0.5) == [texts[0], answer]
    made, _ = api(script=lambda prompt, before: texts[0], own=prompts.CHAT)
    assert made.vary([answer], None, 0.5) == [texts[0]]


def test_texts_end_before_a_stop_and_at_their_length():
    made, _ = api(script=lambda prompt, before: " First. Second one\n\nLabel: junk")
    assert made.random(1, None) == ["First. Second one"]
    long, _ = api(script=lambda prompt, before: " A b then. D e f g h i j")
    for varied in long.vary(["w"] * 30, None, 0.9):
        assert len(varied.split()) <= 9
        assert varied.endswith("then.")


def test_the_revision_names_model_and_settings():
    one, other = api()[0], api(max_tokens=9)[0]
    assert one.revision.startswith("fake-text-1+")
    assert one.revision != other.revision
    assert one.revision == api(seed=7)[0].revision
    with pytest.raises(ValueError, match="not resolved"):
        TextVariation(TextSettings(), FakeTextModel())


@given(
    st.lists(st.text(max_size=60), max_size=6),
    st.floats(0, 1),
    st.sampled_from([None, "x", "{text}", "a\nb"]),
    st.booleans(),
)
def test_any_text_has_a_variation(texts, degree, label, chat):
    made, _ = api(own=prompts.CHAT if chat else BUILTIN)
    varied = made.vary(texts, label, degree)
    assert len(varied) == len(texts)
    assert all(isinstance(text, str) for text in varied)


def test_no_refusal_and_no_thought_becomes_a_text():
    says = {0: "I'm sorry, but I can't help with that request.", 1: "My bill has not come yet."}
    made, _ = api(script=lambda prompt, before: says[min(before, 5) // 5 if before % 7 else 1])
    assert set(made.random(9, None)) == {says[1]}
    several = "Here are two options:\n\n1. My bill is late.\n\n2. I have not got my bill."
    for never in (says[0], "Okay, the user wants a message to a clinic.", several):
        made, _ = api(script=lambda prompt, before, never=never: never)
        for ask in (lambda made: made.random(2, None), lambda made: made.check([], 0.5)):
            with pytest.raises(ModelError, match="answers 8 prompts as an assistant"):
                ask(made)


def test_several_texts_are_asked_for_again_and_told(caplog):
    several = "Option 1: My bill is late.\n\nOption 2: I have not got my bill."
    one = "My bill has not come yet."
    made, _ = api(script=lambda prompt, before: one if before % 3 == 2 else several)
    assert made.random(4, None) == [one] * 4
    assert not caplog.messages
    assert made.check([], 0.5)
    assert "answers 1 of 2 prompts with no text, or with several" in caplog.text
    caplog.clear()
    made, _ = api(script=lambda prompt, before: several, own=prompts.CHAT)
    assert made.vary([one] * 3, None, 0.5) == [one] * 3
    made.vary([one] * 3, None, 0.5)
    assert [record.args for record in caplog.records] == [(3, 3)], "once"


@pytest.mark.parametrize(
    ("document", "writer"),
    [
        ("a message from a patient to a clinic", "the patient"),
        ("a review by a hotel guest", "the hotel guest"),
        ("a letter to a landlord from the tenant", "the tenant"),
        ("a bug report", None),
        ("an abstract of an article", None),
        ("a note from 2024", None),
        (None, None),
    ],
)
def test_a_chat_prompt_names_who_writes(document, writer):
    prompt = TextConfig().resolved(prompts.CHAT, Subject(document)).random_prompt
    lines = prompt.splitlines()
    assert (f"Written by {writer}, in the first person." in lines) == (writer is not None)
    assert lines[-1] == "Text:"
    assert len(lines) == 3 + (writer is not None)
