"""Texts that say their prompt again or speak as an assistant, and texts that only look so."""

from __future__ import annotations

import gzip
import json

import pytest

from privsyn.data.sample import SHIPPED
from privsyn.models.language.degenerate_text import (
    says_its_prompt,
    speaks_as_assistant,
    thinks_aloud,
)

PROMPT = "The following is a message to a clinic.\nTopic: flip coin\nWords to build on: b, c\nText:"


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("The visit is tomorrow.\n\nTopic: flip coin", True),
        ("**Text:** Patients have a right to care.", True),
        ("Anne wrote.\nWords to build on: \nclinic, money", True),
        ("Flip coin: heads or tails, I ask you.", True),
        ("The following is what I would like to say.", True),
        ("the FOLLOWING, is as said", True),
        ("This is a message about a coin.", True),
        ("Message to a clinic\n\nI cannot come.", True),
        ('"Flip coin"\nSo I did.', True),
        ('I\'m sorry, but "Topic: Flip coin" is a term.', True),
        ("c, b, coin", True),  # the words to build on, and no other
        ("c, b, coins", False),
        ("Subject: my bill\n\nPlease send it again.", False),
        ("Dear clinic,\n\nI would like to flip a coin.", False),
        ("The following day I was ill.", False),
        ("Question: What is a comet?\nAnswer: A ball of ice.", False),
        ("My topic: I cannot come.", False),
        ("I send this text: it is short.", False),
        ("", False),
    ],
)
def test_a_text_repeats_its_prompt_by_its_first_words_a_slot_or_a_line(text, repeats):
    assert says_its_prompt(text, PROMPT) == repeats


def test_a_slot_behind_a_special_token_is_one_of_the_prompt():
    prompt = "<|start|>Text: fever, cough<|end|>Text:"
    assert says_its_prompt("Text: In 1984 it was cold.", prompt)
    assert not says_its_prompt("In 1984 it was cold, and no text.", prompt)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("主题\uff1a血压药\n我的药吃完了", True),
        ("以下是一位病人写给诊所的信。", True),
        ("有一位病人写给诊所的消息\uff0c我的药没有了", True),
        ("血压药\uff0c消息", True),  # no other letters than the prompt
        ("以前我每天都吃血压药\uff0c现在没有了", False),
        ("我的血压药吃完了\uff0c请给我开新的", False),
    ],
)
def test_a_prompt_without_spaces_is_repeated_by_its_letters(text, repeats):
    prompt = "以下是一位病人写给诊所的消息。\n主题\uff1a血压药\n正文\uff1a"
    assert says_its_prompt(text, prompt) == repeats


@pytest.mark.parametrize("prompt", ["", "Text:", "<|start|>Text:", "Go on:"])
def test_a_prompt_of_few_words_is_not_repeated_by_a_text_of_few(prompt):
    assert not says_its_prompt("fine", prompt)
    assert not says_its_prompt("", prompt)


@pytest.mark.parametrize(
    ("text", "speaks"),
    [
        ("I'm sorry for any confusion. I am here.", True),
        ("\u201cI\u2019m sorry for the misunderstanding.", True),
        ("I'm sorry, but I'm unable to assist with that.", True),
        ("As an AI language model, I have no bills.", True),
        ("SmolLM: Translate this sentence.", True),
        ("I'm here to help you with your bills.", True),
        ("How can I assist you today?", True),
        ('The original sentence was: "The world is round."', True),
        ("Here is a sample of a user's text: my card is lost", True),
        ("I am a helpful AI named Ann, and I answer.", True),
        ("The [verb] will [verb] the [noun].", True),
        ("I\u2019m sorry, but I can\u2019t fulfill this request.", True),
        ("I apologize, but I cannot create a realistic message.", True),
        ("I can't write that for you.", True),
        ("I must respectfully decline.", True),
        ("Je suis d\u00e9sol\u00e9, mais je ne peux pas vous aider.", True),
        ("Es tut mir leid, aber ich kann Ihnen dabei nicht helfen.", True),
        ("Lo siento, pero no puedo ayudar con eso.", True),
        ("Error: rate limit exceeded. Please try again in 20s.", True),
        ("<!DOCTYPE html><html><body>502 Bad Gateway</body></html>", True),
        ("I'm sorry, but I can't provide a urine sample before Tuesday.", False),
        ("I can't do this anymore, the pain is too much.", False),
        ("I'm sorry, but I can't come on Monday.", False),
        ("I'm an aide, and this is about an AI.", False),
        ("As an aide to a doctor, I write to you.", False),
        ("The text message came at two.", False),
        ("Here are the results of my test: sugar 90", False),
        ("[NAME], you are right, says [RELIGION].", False),
        ("Dear [Name], I paid in May.", False),
        ("We met [laughter]. " + "I said so to them all. " * 12 + "[applause]", False),
    ],
)
def test_an_assistant_that_answers_is_known_by_how_it_begins(text, speaks):
    assert speaks_as_assistant(text) == speaks


@pytest.mark.parametrize(
    ("text", "thinks"),
    [
        ("Okay, the user wants a message to a clinic.", True),
        ("We need to produce a short message.", True),
        ("**Thinking process:** 1. Read the task", True),
        ("Okay, I will come on Monday.", False),
        ("I need to see a doctor.", False),
        ("We need to write to the clinic about my bill.", False),
        ("Let me know when I can come.", False),
    ],
)
def test_a_model_that_thinks_aloud_is_known_by_how_it_begins(text, thinks):
    assert thinks_aloud(text) == thinks


def test_no_invented_message_is_taken_for_a_scrap():
    prompt = "The following is a message from a patient to a clinic.\nTopic: {}\nText:"
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as lines:
        for message in map(json.loads, lines):
            assert not says_its_prompt(message["text"], prompt.format(message["label"]))
            assert not speaks_as_assistant(message["text"])
            assert not thinks_aloud(message["text"])
