"""Texts that are none: prompts said again, assistants; and where a text begins and ends."""

import gzip
import json

import pytest

from privsyn.data.sample import SHIPPED
from privsyn.models.language.degenerate_text import (
    Ending,
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


VISIT = "The visit is at two. Please bring your card."


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f"{VISIT}\n\nTopic: billing", VISIT),
        (f"Here is the message you asked for:\n\n{VISIT}", VISIT),
        (f"Here's a message from a patient to a clinic:\n{VISIT}\n\nHere's one more", VISIT),
        ("Here is the patient's medical report:", "Here is the patient's medical report:"),
        (
            "The results of the test are as follows:\n\nsugar 90, iron low.\n\nAnother text",
            "The results of the test are as follows:\n\nsugar 90, iron low.",
        ),
        (
            "Of course I took tablets and these are the results:\nsugar 90, iron low",
            "Of course I took tablets and these are the results:\nsugar 90, iron low",
        ),
    ],
)
def test_an_announcement_is_no_text_and_a_colon_is_no_end(written, kept):
    assert Ending().cut(written) == kept


@pytest.mark.parametrize(
    "written",
    [
        f"Text: {VISIT}",
        f"**Option 1:** {VISIT}",
        f"```\n{VISIT}\n```",
        f'{{"text": "{VISIT}"}}',
        f'{{"topic": "Visit", "message": "{VISIT}", "urgent": true}}',
        f'Here is the message in JSON:\n```json\n{{"text": "Text: {VISIT}"}}\n```\nIt is short.',
        f"\u9009\u9879\u4e00\uff1a{VISIT}",
        f'{{"text": "{VISIT} And the',  # out of tokens
    ],
)
def test_what_wraps_one_text_is_no_part_of_it(written):
    assert Ending().cut(written) == VISIT


SEVERAL = [
    "Here are two options:",
    f"Here are two options:\n\n1. {VISIT}\n\n2. Please come at two.",
    f"Sure, here are a few other ways to say it:\n{VISIT}",
    f"Option 1: {VISIT}\n\nOption 2: Please come.",
    "以下是两个版本\uff1a\n1. 我的账单晚了。\n2. 我的膝盖疼。",
    f'{{"options": ["{VISIT}", "Please come at two and bring your card."]}}',
    f'["{VISIT}", "Please come at two and bring your card."]',
    f'{{"text": "{VISIT}"}}\n{{"text": "Please come at two."}}',
]


@pytest.mark.parametrize("written", SEVERAL)
def test_several_texts_are_none(written):
    assert Ending().cut(written) == ""


@pytest.mark.parametrize(
    "text",
    [
        "I have two questions:\n1. When do I come?\n2. Is my bill late?",
        "A. Smith sent me. B. Smith did not.",
        "Here is the bill. It has two options, and I want the first.",
        "[Name], my bill is late and I do not know why.",
    ],
)
def test_a_text_with_a_list_in_it_stays(text):
    assert Ending().cut(text) == text


def test_a_list_is_a_text_where_the_public_examples_are_lists():
    for text in ("1. Mix it.\n2. Bake it for an hour.", '{"note": "Come.", "from": "Ann B."}'):
        assert Ending.of(64, examples=(VISIT, text)).cut(text) == text
        assert Ending.of(64, examples=(VISIT,)).cut(text) != text


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("Please send my bill to this address.", False),
        ("Please send it.", True),
        ("Topic: Billing Words to build on: bill, late", True),
        ("TOPIC: Billing\n\nwords to build on.", True),  # as words, whatever is between them
        ("It is about billing, to build on what I said.", False),
        ("so late, so late, so late, so late, so late", True),
        ("x " * 40, True),
        (" ".join(f"I came on day {day} to see the doctor, and on" for day in range(9)), True),
    ],
)
def test_a_text_that_says_its_prompt_again_or_goes_in_a_circle_has_failed(text, failed):
    prompt = "The following is a message.\nTopic: Billing\nWords to build on: bill, late\nText:"
    assert Ending().is_unusable(text, prompt) == failed


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (f"{VISIT} And the", VISIT),
        ("I have a rash and I cannot stand it. What can", "I have a rash and I cannot stand it."),
        ('She said "please come and see me." Then it', 'She said "please come and see me."'),
        ("We came here and saw Dr. Smith about", "We came here and saw Dr. Smith about"),
        ("Thank you. I was at the clinic to", "Thank you. I was at the clinic to"),  # too short
        ('{"note": "Please come at two. It', '{"note": "Please come at two. It'),
        (f"[{VISIT}] And the", f"[{VISIT}]"),
        (f"{VISIT}", VISIT),
        ("我的血压药昨天已经吃完了。下周二能不能", "我的血压药昨天已经吃完了。"),
        ("医生说“可以来看膝盖了\uff01”我不知道要", "医生说“可以来看膝盖了\uff01”"),
        ("膝が三日前から痛いです\uff61明日行っても", "膝が三日前から痛いです\uff61"),
        ("我吃完了。下周二能不能开新的药呢", "我吃完了。下周二能不能开新的药呢"),  # too short
        ("", ""),
    ],
)  # fmt: skip
def test_a_full_stop_ends_a_sentence_where_it_is_no_abbreviation(text, whole):
    assert Ending().whole(text) == whole


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{VISIT} And the", VISIT),
        ("Ich habe dort liegende solche wenige sol", "Ich habe dort liegende solche wenige"),
        ("Please call me back about my bill,", "Please call me back about my bill,"),
        ("Please send it to clin", "Please send it to clin"),  # too few are left
        ("a " + "\u4f60" * 41, "a " + "\u4f60" * 41),  # no spaces between words
        ('{"note": "Please come at two', '{"note": "Please come at two'),
        ("", ""),
    ],
)
def test_a_text_that_ran_out_of_tokens_ends_with_a_whole_word_at_least(text, kept):
    assert Ending().trim_unfinished(text) == kept


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f'"{VISIT}', VISIT),
        (f'"{VISIT}"', VISIT),
        (f'**"{VISIT}"**', VISIT),
        ('"Come at two," she said, "please."', '"Come at two," she said, "please."'),
        (f"Subject: my visit\n\n{VISIT}", VISIT),
        (f"**Subject:** About my visit to you this week\n\n{VISIT}\n\nTopic: b", VISIT),
        (f"Here is the message you asked for:\n\nSubject: x\n\n{VISIT}", VISIT),
    ],
)
def test_a_header_and_quotation_marks_are_no_part_of_a_text(written, kept):
    assert Ending().cut(written) == kept
    assert not Ending.of(64).is_unusable(kept, "Text:")


@pytest.mark.parametrize(
    "text",
    [
        "Subject: [Medication] / Patient: 123456 / Date: May 2022",
        "I have a rash on my arm and I would like to know about the",
        "I need to see a doctor, but",
        "I came to you last week with a rash that nobody could say anything of and the nurse who "
        "wrote it down on a sheet of paper that I took home said I might call again once it had "
        "come back to my arm",
        "血压药吃完",
        "我" + "的膝盖从上个星期六开始一直很疼下楼梯的时候更厉害" * 3,
        "药药药药药药药药药药药药药药药药药药药药。",
    ],
)
def test_a_text_without_its_end_or_its_body_is_asked_for_again(text):
    assert Ending.of(64).is_unusable(Ending.of(64).cut(text), "The following is a note.\nText:")


@pytest.mark.parametrize(
    "text",
    [
        "please call me back about my bill",
        "Could you move my visit to any late afternoon? Thanks, Ann",
        "Ich habe seit Tagen Fieber und w\u00fcrde gern kommen",
        "I am fine \U0001f600 and so is my mother",
        "血压药吃完了能不能再开一点",
        "ขอเลื่อนนัดเป็นวันศุกร์ได้ไหมคะ ยาความดันของฉันหมดแล้ว อยากให้หมอสั่งยาใหม่ให้",  # no full stops
    ],
)
def test_a_text_without_a_full_stop_may_be_whole(text):
    assert not Ending.of(64).is_unusable(text, "The following is a note.\nText:")
