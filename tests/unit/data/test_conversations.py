"""Conversations: turns become one text, and every text becomes alternating turns again."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from privsyn.data.conversations import (
    add_messages,
    instruction,
    is_monologue,
    messages_of,
    text_of,
)
from privsyn.data.readers.formats import lines_and_values, read_records
from privsyn.data.row_counts import RowCounts
from privsyn.data.settings import DatasetConfig
from privsyn.models.language.degenerate_text import Ending
from privsyn.models.language.text_variation import TextConfig
from privsyn.models.protocols import PromptTemplate
from privsyn.models.rows import Subject

ROLES = ("user", "assistant")


def said(role, content):
    return {"role": role, "content": content}


def nested():
    inner: list[Any] = []
    for _ in range(5000):
        inner = [inner]
    return inner


ASKED = [said("user", "my bill\n\nUser: is wrong"), said("assistant", "I am sorry.")]


@pytest.mark.parametrize(
    ("turns", "text", "left_out"),
    [
        (ASKED, "User: my bill\n\n User: is wrong\nAssistant: I am sorry.", 0),
        (json.dumps(ASKED[1:]), "Assistant: I am sorry.", 0),
        ([said("User ", "a"), said("user", "b")], "User: a\nb", 0),
        ([said("system", "be kind"), said("user", "a"), said("tool", "{}")], "User: a", 2),
        (
            [{"role": "assistant", "content": None, "tool_calls": []}, ASKED[1]],
            "Assistant: I am",
            1,
        ),
        ([said("user", [{"type": "text", "text": "a"}, {"type": "image"}])], "User: a", 0),
        ([said("user", "\ud800"), "x", None, said("user", 7), {}], None, 5),
        ([], None, 0),
        ("[" * 100_000, None, 0),
        ("not json", None, 0),
        (7, None, 0),
        ([said("user", [{"text": nested()}, {"text": "a"}])], "User: a", 0),
    ],
)
def test_turns_become_a_text(turns, text, left_out):
    made, count = text_of(turns, ROLES)
    assert count == left_out
    assert made == text or (made and text and made.startswith(text))


def test_a_round_trip_keeps_turns_and_any_text_alternates():
    assert messages_of(text_of(ASKED, ROLES)[0] or "", ROLES)[1] == ASKED[1]
    rng = random.Random(0)
    pieces = ["User:", "Assistant:", "\n", " ", "hi", "User", ":", "user:", "\r\n", "{}"]
    for _ in range(500):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 20)))
        turns = messages_of(text, ROLES)
        assert all(one["content"] == one["content"].strip() != "" for one in turns)
        spoken = [one["role"] for one in turns]
        assert all(one != other for one, other in pairwise(spoken))
        assert turns or not text.replace("User:", "").replace("Assistant:", "").strip()
        again, lost = text_of(turns, ROLES)
        assert lost == 0
        assert [one["role"] for one in messages_of(again or "", ROLES)] == spoken
    assert add_messages([{"text": "a"}], ()) == [{"text": "a"}]
    assert "with User: or Assistant:" in instruction(None, ROLES)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_format_reads_turns_and_counts_those_left_out(tmp_path, suffix):
    rows = [ASKED, [said("tool", "x")], [said("system", "s"), *ASKED]]
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        parquet.write_table(pa.table({"messages": rows}), path)
    elif suffix == ".csv":
        cells = ['"' + json.dumps(row).replace('"', '""') + '"' for row in rows]
        path.write_text("\n".join(["messages", *cells]) + "\n")
    else:
        path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    cfg = DatasetConfig(name="d", path=path, text="messages", roles=ROLES)
    counts = RowCounts()
    texts = [one.reveal().content for one in read_records(cfg, row_counts=counts)]
    assert texts == [text_of(ASKED, ROLES)[0]] * 2
    report = counts.report((), 1)
    assert report["turns_left_out"] == 2
    assert (report["of_one_turn"], report["turns_at_most"]) == (0, 2)
    assert report["reasons"] == {"text: no turn of one of the roles": 1}


def test_a_public_file_is_compared_with_the_words_of_turns(tmp_path):
    parquet.write_table(pa.table({"messages": [ASKED]}), tmp_path / "a.parquet")
    cfg = DatasetConfig(name="d", path=tmp_path / "a.parquet", text="messages", roles=ROLES)
    [row] = lines_and_values(cfg)
    assert {"my bill", "User: my bill", "I am sorry."} <= set(row.reveal())


def test_bytes_that_are_no_text_within_a_turn_drop_their_own_row(tmp_path):
    words = pa.array([b"hello", b"\xff"]).view(pa.string())
    turns = pa.StructArray.from_arrays([pa.array(["user", "user"]), words], ["role", "content"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), turns)
    parquet.write_table(pa.table({"messages": lists}), tmp_path / "a.parquet")
    cfg = DatasetConfig(name="d", path=tmp_path / "a.parquet", text="messages", roles=ROLES)
    assert [one.reveal().content for one in read_records(cfg)] == ["User: hello"]


@pytest.mark.parametrize("changes", [{"roles": ["user"]}, {"roles": ["a", "a"]}, {"text": "{m}"}])
def test_roles_are_two_or_more_of_one_column(changes):
    with pytest.raises(ValidationError, match="roles"):
        DatasetConfig(**({"name": "d", "path": Path("a"), "roles": ROLES} | changes))


def test_two_roles_must_speak():
    assert not is_monologue("User: my bill\nAssistant: I see.", ROLES)
    for text in ("my bill", "User: my bill\nUser: and", "my bill\nAssistant: I see.", "I, User: x"):
        assert is_monologue(text, ROLES)
        assert not is_monologue(text, ())


@pytest.mark.parametrize("prompt", [None, "Write a chat about {label}.", "in turns with User:"])
def test_a_text_is_a_conversation_by_the_roles_and_not_by_its_prompt(prompt):
    own = PromptTemplate("{reference}", "Text:")
    for roles in ((), ROLES):
        settings = TextConfig(random_prompt=prompt).resolved(own, Subject("a chat", roles=roles))
        ending = Ending.of(settings.max_tokens, roles=settings.roles)
        assert ending.is_monologue("User: my bill") == bool(roles)
