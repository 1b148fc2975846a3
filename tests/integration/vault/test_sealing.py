"""Sealed objects and entries open whole, in their place, by their key, or not at all."""

from __future__ import annotations

import hashlib
import io
import pickle
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsyn import vault
from privsyn.errors import ConfigError, VerificationError
from privsyn.vault import ReleaseKey, WrongKey, key_id

KEY = ReleaseKey.new("r1")


def sealed(value, name="x", key=KEY):
    out = io.BytesIO()
    key.seal(name, io.BytesIO(value), out)
    return out.getvalue()


def opened(value, name="x", key=KEY):
    out = io.BytesIO()
    key.open(name, io.BytesIO(value), out)
    return out.getvalue()


@given(st.integers(0, 70), st.integers(1, 16))
def test_a_stream_of_any_length_comes_back(length, segment):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vault, "SEGMENT_BYTES", segment)
        value = bytes(range(length))
        assert opened(sealed(value)) == value


@given(st.data())
def test_a_changed_cut_longer_or_reordered_object_does_not_open(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vault, "SEGMENT_BYTES", 8)
        whole = sealed(bytes(40))
        head, segments = whole[:43], [whole[i : i + 24] for i in range(43, len(whole), 24)]
        kind = data.draw(st.sampled_from(["bit", "cut", "longer", "swap", "drop", "twice"]))
        at = data.draw(st.integers(0, len(segments) - 2))
        if kind == "bit":
            place = data.draw(st.integers(0, len(whole) - 1))
            changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        elif kind == "cut":
            changed = whole[: data.draw(st.integers(0, len(whole) - 1))]
        elif kind == "longer":
            changed = whole + data.draw(st.binary(min_size=1, max_size=40))
        elif kind == "swap":
            segments[at], segments[at + 1] = segments[at + 1], segments[at]
            changed = head + b"".join(segments)
        elif kind == "drop":
            changed = head + b"".join(segments[:at] + segments[at + 1 :])
        else:
            changed = head + b"".join(segments[: at + 1] + segments[at:])
        with pytest.raises(VerificationError, match="differs from what was stored"):
            opened(changed)


def test_an_object_opens_under_its_own_name_release_and_key_alone():
    same_bytes = ReleaseKey("r2", KEY._key)
    for key, name in ((KEY, "y"), (same_bytes, "x"), (ReleaseKey.new("r1"), "x")):
        with pytest.raises(VerificationError):
            opened(sealed(b"text"), name, key)
    assert sealed(b"text") != sealed(b"text")
    assert b"text" not in sealed(b"text")


def test_an_entry_opens_in_its_own_place_alone_and_is_as_long_as_its_text():
    body = KEY.seal_entry("shard-0", 3, b"text")
    assert len(body) == len(b"text") + 28
    assert KEY.open_entry("shard-0", 3, body) == b"text"
    for part, number, given_body in (
        ("shard-1", 3, body),
        ("shard-0", 4, body),
        ("shard-0", 3, body[:-1]),
        ("shard-0", 3, b""),
    ):
        with pytest.raises(VerificationError):
            KEY.open_entry(part, number, given_body)


def test_a_key_is_unwrapped_for_its_release_by_its_own_deployment_alone():
    ours, theirs = bytes(32), bytes([1]) * 32
    wrapped = KEY.wrapped(ours)
    assert opened(sealed(b"text"), key=ReleaseKey.unwrapped("r1", wrapped, ours)) == b"text"
    changed = bytes([wrapped[0] ^ 1]) + wrapped[1:]
    for release, value, by in (
        ("r1", wrapped, theirs),
        ("r2", wrapped, ours),
        ("r1", changed, ours),
    ):
        with pytest.raises(WrongKey):
            ReleaseKey.unwrapped(release, value, by)
    assert key_id(ours) != key_id(theirs)


def test_a_key_is_neither_shown_nor_pickled():
    assert KEY._key.hex() not in repr(KEY)
    assert repr(KEY) == "ReleaseKey(release_id='r1')"
    with pytest.raises(TypeError):
        pickle.dumps(KEY)


def test_two_entries_of_one_place_share_no_nonce_and_two_parts_no_key():
    one, other = (KEY.seal_entry("p", 3, b"text") for _ in range(2))
    assert one[:12] != other[:12]  # GCM: of two texts under one nonce the difference is readable
    assert KEY._part_key("p") != KEY._part_key("q")


def test_a_digest_in_a_name_cannot_be_guessed_without_the_key():
    assert KEY.digest(b"7") == KEY.digest(b"7")
    assert KEY.digest(b"7") != ReleaseKey.new("r1").digest(b"7")
    assert KEY.digest(b"7") != hashlib.blake2b(b"7", digest_size=15).hexdigest()


def test_buckets_are_filled_by_a_seed_that_is_gone_with_the_key():
    again = ReleaseKey.unwrapped("r1", KEY.wrapped(bytes(32)), bytes(32))
    assert again.seed == KEY.seed  # of two machines
    assert KEY.seed != ReleaseKey.new("r1").seed
    assert len(KEY.seed) == 64
    assert KEY.seed not in repr(KEY)


def test_what_a_key_is_called_is_no_part_of_it():
    key = secrets.token_bytes(32)
    assert not any(key[i : i + 4].hex() in key_id(key) for i in range(29))


def test_the_vault_s_key_is_kept_out_of_a_repository_and_of_what_is_published(tmp_path):
    (tmp_path / ".git").mkdir()
    file = tmp_path / "vault.key"
    with pytest.raises(ConfigError):
        vault.new_key(file)
    with pytest.raises(ConfigError):
        vault.new_key(file, refused=[tmp_path], anywhere=True)
    assert not file.exists()
    vault.new_key(file, anywhere=True)


def test_an_object_cut_at_the_end_of_any_segment_does_not_open():
    """There every byte is as it was sealed: only the mark of the last segment is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vault, "SEGMENT_BYTES", 8)
        whole = sealed(bytes(40))
        ends = range(43 + 24, len(whole), 24)
        assert len(ends) == 4
        for end in ends:
            with pytest.raises(VerificationError, match="differs from what was stored"):
                opened(whole[:end])
