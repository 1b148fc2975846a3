"""Addresses and numbers in synthetic texts: masked so that the suite finds none."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn.data.sample import SHIPPED
from privsyn.validation.settings import PATTERNS, ValidationConfig
from privsyn.validation.suite import mask_rows, masked

CFG = ValidationConfig(min_share=0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Mail me: ann.o'neil+x@mail.example.co.uk.", "Mail me: [email]."),
        ("'ann@x.org', <x!y#z$@a.org>, mailto:a/b@x.org", "'[email]', <[email]>, mailto:[email]"),
        ("Call 555-1234 or (415) 555-2671 x2", "Call [phone] or [phone] x2"),
        ("+44 20 7946 0958, 020 7946 0958 or 4155552671", "[phone], [phone] or [phone]"),
        ("My number is MRN-123456, of ward B-12", "My number is [record number], of ward B-12"),
        ("See you at 10:30 on 2025-01-01, 3 pills of 500 mg, bill 120.50", None),
        (
            "电话020-7946-0958请回\uff0c编号MRN-123456是我的",
            "电话[phone]请回\uff0c编号[record number]是我的",
        ),
        ("โทร555-123-4567นะ", "โทร[phone]นะ"),
        ("ann@example.org,bob@example.org", "[email],[email]"),
        ('{"text": "call 555-1234", "n": 3}', '{"text": "call [phone]", "n": 3}'),
        ('[{"a": ["x@y.org", null]}]', '[{"a": ["[email]", null]}]'),
        ('{"half": "x@y.org', '{"half": "[email]'),
        ("", None),
    ],
)
def test_what_a_model_made_up_is_masked(text, said):
    assert masked(text, CFG) == (text if said is None else said)
    assert masked(masked(text, CFG), CFG) == masked(text, CFG)


def test_only_what_is_forbidden_is_masked():
    text = "x@y.org 555-1234 AB-12345"
    assert masked(text, CFG.model_copy(update={"forbid": ()})) == text
    assert masked(text, CFG.model_copy(update={"forbid": ("phone",)})) == "x@y.org [phone] AB-12345"
    own = ValidationConfig(forbid=(r"\bP\d{3}\b",))
    assert masked("P123 and AB-12345", own) == "[record number] and AB-12345"


def test_each_pattern_has_its_own_flags_and_groups():
    """Joined to one, the second would be refused, and its group would be the first one's."""
    own = ValidationConfig(forbid=(r"(Q)\d", r"(?i)\bmrn-\d+", r"\b(P)AT-(9)\2"))
    assert masked("mrn-12 and PAT-99", own) == "[record number] and [record number]"
    assert masked("q1 and pat-99", own) == "q1 and pat-99"


PARTS = st.sampled_from(
    ["@", ".", "-", " ", "(", ")", "+", "0", "12", "555", "1234", "a", "mail", "org", "MRN-", "\n"]
)


@given(st.lists(PARTS, max_size=30).map("".join))
def test_a_masked_text_passes_the_suite_that_forbids(text):
    import re

    from privsyn.validation.suite import _shipped_patterns

    said = masked(text, CFG)
    patterns = [*_shipped_patterns().values(), *CFG.record_numbers]
    found = [pattern for pattern in patterns if re.search(str(pattern), said)]
    assert len(patterns) >= len(PATTERNS)
    assert not found, (text, said)


def test_rows_are_masked_by_their_texts():
    rows = [{"id": "1", "text": "555-1234"}, {"id": "2", "file": "a.png"}]
    done = mask_rows(rows, CFG)
    assert done == [{"id": "1", "text": "[phone]"}, {"id": "2", "file": "a.png"}]


def test_hardly_any_invented_message_is_changed_but_by_its_numbers():
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    changed = [text for text in texts if masked(text, CFG) != text]
    assert all(any(c.isdigit() or c == "@" for c in text) for text in changed)
