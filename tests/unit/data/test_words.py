"""Words of texts: between spaces as ever, by letters with their marks where there are none."""

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import privsyn.data
from privsyn.data.words import TOKEN, is_latin, names, runs, word_count, word_ends, words, worth

SPACED = st.text("ab\u00e9\u0416\ud55c9_ .,'-\n\u00a0\u3000\u2019\u2026\U0001d400", max_size=60)


@given(SPACED)
def test_a_text_with_spaces_has_the_words_it_always_had(text):
    found = re.findall(r"\w+", text)
    assert words(text) == found
    assert worth(found) == len(found)
    assert re.findall(TOKEN, text) == re.findall(r"\b\w\w+\b", text)
    assert word_ends(text) == [match.end() for match in re.finditer(r"\S+", text)]
    assert word_count(text) == len(text.split())
    for count in (1, 3):
        assert runs(found, count) == [*zip(*(found[i:] for i in range(count)), strict=False)]


def test_the_invented_messages_have_the_words_they_always_had():
    file = Path(privsyn.data.__file__).with_name("messages.jsonl.gz")
    texts = [json.loads(line)["text"] for line in gzip.open(file, "rt")]
    assert all(words(text) == re.findall(r"\w+", text) for text in texts)
    assert all(word_count(text) == len(text.split()) for text in texts)


@pytest.mark.parametrize(
    ("text", "letters", "count"),
    [
        ("我的血压药用完了。", "我 的 血 压 药 用 完 了", 4),
        ("我的iPhone 15坏了\uff01", "我 的 iPhone 15 坏 了", 4),
        ("膝が、ﾊﾞｽで", "膝 が ﾊ ﾞ ｽ で", 3),
        ("ปวดเข่า ๕๐ บาท", "ป ว ด เ ข่ า ๕๐ บ า ท", 6),
        ("ខ្ញុំឈឺ។", "ខ្ញុំ ឈឺ", 1),
        ("ကျွန်တော်", "ကျွ န် တော်", 2),
        ("हिन्दी में", "हिन्दी में", 2),
        ("내 무릎이", "내 무릎이", 2),
    ],
    ids=["zh", "mixed", "ja", "th", "km", "my", "hi", "ko"],
)
def test_a_letter_with_its_marks_is_half_a_word_where_words_have_no_spaces(text, letters, count):
    assert words(text) == letters.split()
    assert word_count(text) == len(word_ends(text)) == count
    assert word_ends(text)[-1] == len(text)
    assert not is_latin(text) or "iPhone" in text


@given(st.text("ab 我的ก่ၵ,。", max_size=40))
def test_a_run_is_worth_what_was_asked_for_and_no_letter_more(text):
    found = words(text)
    for run in runs(found, 3):
        assert worth(run) >= 3 > worth(run[:-1])
    assert len(runs(found, 3)) == sum(worth(found[i:]) >= 3 for i in range(len(found)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dear Dr. Reyes, my knee is worse since Tuesday. Regards, Tom", "Reyes Tom"),
        ("My name is Sven, and I moved here from Japan", "Sven"),
        ("my visit with Mr. O\u2019Brien or \u201cMcAllister\u201d", "Brien McAllister"),
        ("Guten Tag, Herr Brinkmann hat am Dienstag die Rechnung geschickt", "Brinkmann"),
        ("Hello, I got the MRI and the X-ray. Thanks", ""),
        ("\u6211\u53eb\u738b\u5c0f\u660e", ""),
    ],
)
def test_names_are_told_by_capitals_titles_and_places(text, expected):
    assert sorted(names(text)) == expected.split()
