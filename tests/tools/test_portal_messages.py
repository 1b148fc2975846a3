"""The messages of the sample: what stands in them, and that they are fit to try methods on."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from privsyn.data.sample import LABELS, SHIPPED, write_sample
from privsyn.errors import ConfigError, StorageError
from tools.portal.__main__ import main
from tools.portal.messages import (
    DEFAULT_CANARIES,
    MAX_ROWS,
    Written,
    shingles,
    ship,
    write_messages,
)

Row = dict[str, str]
RECORD = re.compile(r"\bMRN-(\d{6})\b")
PHONE = re.compile(r"\(?(\d{3})\)?[-. ](\d{3})[-.](\d{4})\b")
MAIL = re.compile(r"\b[\w.-]+@([\w.-]+\w)")


@dataclass(frozen=True)
class Sample:
    """A written sample and its rows."""

    summary: Written
    rows: list[Row]

    def by_patient(self) -> dict[str, list[Row]]:
        groups = defaultdict(list)
        for row in self.rows:
            groups[row["patient_id"]].append(row)
        return groups


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    summary = write_messages(tmp_path_factory.mktemp("sample") / "new" / "messages.jsonl")
    return Sample(summary, read(summary.path))


def test_the_shipped_file_is_what_the_generator_makes(sample: Sample, tmp_path: Path) -> None:
    made = sample.summary.path.read_bytes()
    assert gzip.decompress(SHIPPED.read_bytes()) == made
    assert write_sample(tmp_path / "s.jsonl").path.read_bytes() == made


def test_it_is_shipped_for_all_to_read_and_without_a_date(sample: Sample, tmp_path: Path) -> None:
    path = ship(tmp_path / "a.jsonl.gz").path
    data = path.read_bytes()
    assert gzip.decompress(data) == sample.summary.path.read_bytes()
    assert data[3:8] == SHIPPED.read_bytes()[3:8] == bytes(5)  # neither a name nor a time in it
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl.gz"]


def test_another_sample_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.jsonl"
    assert main([str(path), "--rows", "40", "--seed", "3"]) == 0
    assert "40 messages of 15 patients" in capsys.readouterr().out
    other = write_messages(tmp_path / "o.jsonl", rows=40, seed=3)
    assert path.read_bytes() == other.path.read_bytes()
    assert main([str(path), "--rows", "3"]) == ConfigError.exit_code
    assert "rows=3 must lie between 14" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--seed", "3"])


def test_size_columns_and_summary(sample: Sample) -> None:
    assert len(sample.rows) == sample.summary.rows == 4000
    assert all(list(row) == ["id", "patient_id", "label", "text"] for row in sample.rows)
    assert len({row["id"] for row in sample.rows}) == 4000
    assert len(sample.by_patient()) == sample.summary.patients == 1500
    assert sample.summary.labels == dict(Counter(row["label"] for row in sample.rows))
    assert sample.summary.canaries == DEFAULT_CANARIES
    assert sample.summary.path.stat().st_mode & 0o777 == 0o600


def test_every_label_has_its_share(sample: Sample) -> None:
    assert set(sample.summary.labels) == set(LABELS)
    assert min(sample.summary.labels.values()) > 500


def test_messages_are_15_to_60_words_on_one_printable_line(sample: Sample) -> None:
    lengths = sorted(len(row["text"].split()) for row in sample.rows)
    assert lengths[0] >= 15
    assert lengths[-1] <= 60
    assert lengths[3600] - lengths[400] > 20
    for row in sample.rows:
        assert row["text"].isascii()
        assert row["text"].isprintable()
        assert "  " not in row["text"]


def test_no_two_messages_are_alike(sample: Sample) -> None:
    plain = {re.sub(r"\W+", " ", row["text"].lower()) for row in sample.rows}
    assert len(plain) == 4000


def test_few_messages_share_eight_words_in_a_row_with_another_patient(sample: Sample) -> None:
    owners: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in sample.rows:
        for run in shingles(row["text"]):
            owners[run].add(row["patient_id"])
    shared = sum(any(len(owners[run]) > 1 for run in shingles(row["text"])) for row in sample.rows)
    assert shared / 4000 < 0.05


def test_no_turn_of_phrase_dominates(sample: Sample) -> None:
    openings = Counter(" ".join(row["text"].lower().split()[:4]) for row in sample.rows)
    endings = Counter(" ".join(row["text"].lower().split()[-4:]) for row in sample.rows)
    assert openings.most_common(1)[0][1] < 100
    assert endings.most_common(1)[0][1] < 40


def test_a_few_patients_write_often(sample: Sample) -> None:
    counts = sorted((len(rows) for rows in sample.by_patient().values()), reverse=True)
    assert counts[0] >= 12
    assert counts[-1] == 1
    assert sum(count > 1 for count in counts) > 700
    assert sum(counts[:150]) > 0.25 * 4000


def test_identifiers_stand_in_many_messages_and_belong_to_one_patient(sample: Sample) -> None:
    planted = set(RECORD.findall(" ".join(DEFAULT_CANARIES)))
    for pattern, least in ((RECORD, 400), (PHONE, 400), (MAIL, 60)):
        owners = defaultdict(set)
        holding = 0
        for row in sample.rows:
            found = [match.group() for match in pattern.finditer(row["text"])]
            holding += bool(found)
            for value in found:
                owners[value].add(row["patient_id"])
        assert holding > least
        if pattern is not MAIL:  # two people of one name may share a mailbox's name
            assert all(len(patients) == 1 for value, patients in owners.items())
        assert not planted & owners.keys()


def test_phones_and_mail_domains_are_reserved_ones(sample: Sample) -> None:
    text = "\n".join(row["text"] for row in sample.rows)
    phones = PHONE.findall(text)
    assert phones
    assert all(middle == "555" and last.startswith("01") for _, middle, last in phones)
    assert set(MAIL.findall(text)) <= {"example.com", "example.org", "mail.example.net"}


def test_a_patient_has_one_record_number_and_one_phone(sample: Sample) -> None:
    planted = set(RECORD.findall(" ".join(DEFAULT_CANARIES)))
    for rows in sample.by_patient().values():
        text = " ".join(row["text"] for row in rows)
        assert len(set(RECORD.findall(text)) - planted) <= 1
        assert len(set(PHONE.findall(text))) <= 1


def test_canaries_stand_verbatim_with_one_patient_each(sample: Sample) -> None:
    hosts = []
    for canary in DEFAULT_CANARIES:
        holding = [row["patient_id"] for row in sample.rows if canary in row["text"]]
        assert len(holding) == 3
        assert len(set(holding)) == 1
        hosts.append(holding[0])
    assert len(set(hosts)) == len(DEFAULT_CANARIES)


def test_labels_can_be_learned_but_not_without_error(sample: Sample) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def is_test(row: Row) -> bool:
        return int(row["patient_id"][1:]) % 4 == 0

    train = [row for row in sample.rows if not is_test(row)]
    test = [row for row in sample.rows if is_test(row)]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2)
    model = LogisticRegression(C=5, max_iter=400)
    model.fit(
        vectorizer.fit_transform([row["text"] for row in train]), [row["label"] for row in train]
    )
    accuracy = model.score(
        vectorizer.transform([row["text"] for row in test]), [row["label"] for row in test]
    )
    assert 0.9 < accuracy < 0.99


def test_no_single_word_gives_a_label_away(sample: Sample) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in sample.rows:
        for word in set(re.findall(r"[a-z]+", row["text"].lower())):
            counts[word][row["label"]] += 1
    for word, by_label in counts.items():
        for label, count in by_label.items():
            recall, precision = count / sample.summary.labels[label], count / by_label.total()
            assert recall < 0.5 or precision < 0.9, f"{word} stands for {label}"


def test_patients_follow_up_on_what_they_wrote(sample: Sample) -> None:
    opening = re.compile(
        r"following up|my message|about the note|me again|circling back|update on", re.I
    )
    following = [row for row in sample.rows if opening.search(row["text"])]
    assert len(following) > 300
    once = {patient for patient, rows in sample.by_patient().items() if len(rows) == 1}
    assert not [row for row in following if row["patient_id"] in once and "wrote" in row["text"]][
        5:
    ]


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    first = write_messages(tmp_path / "a.jsonl", rows=120, seed=3)
    again = write_messages(tmp_path / "b.jsonl", rows=120, seed=3)
    other = write_messages(tmp_path / "c.jsonl", rows=120, seed=4)
    assert first.path.read_bytes() == again.path.read_bytes()
    assert not {row["text"] for row in read(first.path)} & {row["text"] for row in read(other.path)}


def test_randomness_of_the_process_is_neither_used_nor_changed(tmp_path: Path) -> None:
    random.seed(11)
    before = random.getstate()
    first = write_messages(tmp_path / "a.jsonl", rows=40).path.read_bytes()
    assert random.getstate() == before
    random.seed(12)
    assert write_messages(tmp_path / "b.jsonl", rows=40).path.read_bytes() == first


def test_own_canaries_or_none(tmp_path: Path) -> None:
    own = write_messages(tmp_path / "own.jsonl", rows=30, canaries=["blue gate at noon, 7 steps"])
    assert any("blue gate at noon, 7 steps" in row["text"] for row in read(own.path))
    none = write_messages(tmp_path / "none.jsonl", rows=30, canaries=())
    assert not any(canary in none.path.read_text() for canary in DEFAULT_CANARIES)


@pytest.mark.parametrize("rows", [1, 2, 14])
def test_small_samples(tmp_path: Path, rows: int) -> None:
    canaries = DEFAULT_CANARIES if rows >= 14 else ()
    summary = write_messages(tmp_path / "s.jsonl", rows=rows, canaries=canaries)
    assert len(read(summary.path)) == rows
    assert all(canary in summary.path.read_text() for canary in canaries)


@pytest.mark.parametrize("rows", [0, -1, 13, MAX_ROWS + 1])
def test_rows_out_of_bounds_are_refused(tmp_path: Path, rows: int) -> None:
    with pytest.raises(ConfigError, match=rf"rows={rows} must lie between 14"):
        write_messages(tmp_path / "s.jsonl", rows=rows)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("canary", ["", "two\nlines", "word " * 13])
def test_a_canary_that_does_not_fit_is_refused_without_repeating_it(
    tmp_path: Path, canary: str
) -> None:
    with pytest.raises(ConfigError, match="canary of"):
        write_messages(tmp_path / "s.jsonl", rows=40, canaries=[canary])
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("old")
    with full_disk(2000), pytest.raises(StorageError, match="cannot write"):
        write_messages(path, rows=40)
    assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]
    assert path.read_text() == "old"
