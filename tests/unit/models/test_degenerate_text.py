"""Texts that say their prompt again or speak as an assistant, and texts that only look so."""

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
        ("Flip coin: heads or tails, I ask you.", True),
        ("The following is what I would like to say.", True),
        ("Message to a clinic\n\nI cannot come.", True),
        ('I\'m sorry, but "Topic: Flip coin" is a term.', True),
        ("c, b, coin", True),  # the words to build on, and no other
        ("Subject: my bill\n\nPlease send it again.", False),
        ("Dear clinic,\n\nI would like to flip a coin.", False),
        ("The following day I was ill.", False),
        ("I send this text: it is short.", False),
        ("", False),
    ],
)
def test_a_text_repeats_its_prompt_by_its_first_words_a_slot_or_a_line(text, repeats):
    assert says_its_prompt(text, PROMPT) == repeats


@pytest.mark.parametrize(
    ("text", "speaks"),
    [
        ("I'm sorry for any confusion. I am here.", True),
        ("I'm sorry, but I'm unable to assist with that.", True),
        ("As an AI language model, I have no bills.", True),
        ('The original sentence was: "The world is round."', True),
        ("Here is a sample of a user's text: my card is lost", True),
        ("The [verb] will [verb] the [noun].", True),
        ("I apologize, but I cannot create a realistic message.", True),
        ("Je suis d\u00e9sol\u00e9, mais je ne peux pas vous aider.", True),
        ("Error: rate limit exceeded. Please try again in 20s.", True),
        ("<!DOCTYPE html><html><body>502 Bad Gateway</body></html>", True),
        ("I'm sorry, but I can't provide a urine sample before Tuesday.", False),
        ("I'm an aide, and this is about an AI.", False),
        ("Here are the results of my test: sugar 90", False),
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
        ("**Thinking process:** 1. Read the task", True),
        ("Okay, I will come on Monday.", False),
        ("We need to write to the clinic about my bill.", False),
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
