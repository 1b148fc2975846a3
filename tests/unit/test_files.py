"""Files that somebody else wrote: pipes, devices, and JSON that is nested without end."""

import os
from pathlib import Path

import pytest

from privsyn.files import parse_json, parse_yaml, read_file, read_json


def test_a_pipe_or_device_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            read_file(path)


def test_nested_json_is_a_value_error(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match="nested too deep"):
        read_json(file)
    assert parse_json(b'{"a": [1]}') == {"a": [1]}


def test_a_key_that_is_there_twice_is_named_with_its_line():
    with pytest.raises(ValueError, match=r"names 'epsilon' twice, again at line 3\."):
        parse_yaml(b"privacy:\n  epsilon: 2\n  epsilon: 9\n")
    with pytest.raises(ValueError, match="is not valid YAML at line 1"):
        parse_yaml(b"privacy: ]\n")
    with pytest.raises(ValueError, match="nested too deep"):
        parse_yaml(b"[" * 100_000)


def test_a_key_that_overrides_a_merged_one_is_there_once():
    merged = b"a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, y: 4}\n"
    assert parse_yaml(merged)["c"] == {"x": 3, "y": 4}
