"""The commands that a refusal of a list offers, as a shell runs them."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.unit.data.test_readers import PACK, refusal


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.xz"])
def test_the_way_to_convert_a_list_leaves_the_list_as_it_is(tmp_path: Path, suffix: str) -> None:
    pack = PACK["." + suffix.split(".")[-1] if suffix.count(".") > 1 else ""]
    path = tmp_path / f"my list-lines{suffix}"
    message = refusal(path, pack(json.dumps([{"text": "a"}, {"text": "b"}]).encode()))
    command = message.partition("for example: ")[2]
    before = path.read_bytes()
    words = shlex.split(command)
    assert words[-2] == ">"
    assert words[-1] != path.name
    assert path.name in words
    # What the shell itself does, whatever jq is: it opens the target first.
    quoted = command.rpartition("> ")[2]
    subprocess.run(["sh", "-c", f": > {quoted}"], cwd=tmp_path, check=True)
    assert path.read_bytes() == before
    unpacked = {".json.gz": ["gzip", "-dc"], ".jsonl.xz": ["xz", "-dc"]}.get(suffix, ["jq", "-c"])
    assert words[:2] == unpacked
