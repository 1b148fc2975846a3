"""Vocabularies: what a file may hold, what is found in a text, the shipped one and its tool."""

import gzip
import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.data.words import VOCABULARY
from privsyn.errors import ConfigError
from privsyn.methods.keyphrase_seeding.vocabulary import Vocabulary, words

TOOL = Path(__file__).parents[3] / "tools" / "vocabulary.py"


def found(terms, text):
    vocabulary = Vocabulary(terms)
    return [vocabulary.terms[number] for number in vocabulary.find(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Heart failure", ["heart failure"]),
        ("HEART-FAILURE!", ["heart failure"]),
        ("heart\n  failure", ["heart failure"]),
        ("heart failures", ["heart"]),
        ("sweetheart failure", []),
        ("heart heart failure heart", ["heart", "heart failure", "heart"]),
        ("the artist", ["artist"]),
        ("acute heart failure", ["acute heart"]),
        ("\uff28eart", ["heart"]),
        ("\ud800 heart \x00", ["heart"]),
        ("", []),
        ("...", []),
        ("星期一起我的血压药已经用完了", ["血压药"]),
        ("我的Heart failure药", ["heart failure"]),
        ("膝が痛いです", ["膝"]),
        ("ฉันปวดเข่ามาก", ["เข่า"]),
        ("ฉันปวดเข้ามาก", []),
        ("ខ្ញុំឈឺក្បាល", ["ក្បាល"]),
        ("ស្ត្រី", []),
    ],
)
def test_finds_whole_words_leftmost_longest(text, expected):
    terms = ["heart", "heart failure", "the art", "artist", "acute heart", "art"]
    terms += ["血压药", "血压", "膝", "เข่า", "เข", "ក្បាល", "ត្រី"]
    assert found(terms, text) == expected


def by_hand(terms, text):
    out, place = [], 0
    while place < len(text):
        fitting = [term for term in terms if tuple(text[place : place + len(term)]) == term]
        longest = max(fitting, key=len, default=None)
        if longest:
            out.append(longest)
        place += len(longest) if longest else 1
    return out


WORD = st.sampled_from(["a", "b", "ab", "ba", "aab"])


@given(
    terms=st.lists(st.lists(WORD, min_size=1, max_size=3).map(tuple), min_size=1, max_size=8),
    text=st.lists(WORD, max_size=20),
)
def test_agrees_with_a_search_by_hand(terms, text):
    expected = [" ".join(term) for term in by_hand(terms, text)]
    assert found([" ".join(term) for term in terms], " ".join(text)) == expected


def test_blank_lines_duplicates_and_wordless_terms_are_left_out():
    text = "\ufeffOil\n\n  oil \r\nRed   Sox\n--\nOIL\nred-sox\nbank\n"
    vocabulary = Vocabulary.parse(text.encode(), "v.txt")
    assert list(vocabulary.terms) == ["Oil", "Red Sox", "bank"]
    packed = Vocabulary.parse(gzip.compress(text.encode()), "v.txt.gz")
    assert packed.terms == vocabulary.terms


def test_first_counts_distinct_terms_in_order():
    vocabulary = Vocabulary(["a", "b", "c"])
    assert vocabulary.first("c a c b a", 2) == [2, 0]
    assert vocabulary.first("nothing", 2) == []


@pytest.mark.parametrize("data", [b"", b"\n\n--\n", b"\xff\xfe\xff", b"\x1f\x8bbroken"])
def test_refuses_a_file_without_terms(data):
    with pytest.raises(ConfigError, match="vocabulary=mine"):
        Vocabulary.parse(data, "mine")


def test_the_shipped_vocabulary():
    assert VOCABULARY.stat().st_size <= 2_000_000
    vocabulary = Vocabulary.parse(VOCABULARY.read_bytes(), "builtin")
    assert len(vocabulary) >= 50_000
    sizes = Counter(len(term.split()) for term in vocabulary.terms)
    assert set(sizes) == {1, 2, 3}
    assert not {"the", "of the", "and"} & set(vocabulary.terms)
    spaced = [term for term in vocabulary.terms if term[0] < "\u0e00"]
    assert len(spaced) >= len(vocabulary) - 1
    assert all(" ".join(words(term)) == term for term in spaced)


def test_the_tool_keeps_phrases_that_belong_together():
    spec = importlib.util.spec_from_file_location("vocabulary_tool", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    counts = Counter(
        {
            ("heart",): 300, ("failure",): 200, ("big",): 900, ("house",): 900, ("the",): 5000,
            ("rare",): 2, ("1999",): 500, ("heart", "failure"): 150, ("big", "house"): 90,
            ("the", "house"): 800,
        }
    )  # fmt: skip
    chosen = tool.choose(counts, 10_000)
    assert chosen == ["big", "house", "heart", "failure", "heart failure"]
