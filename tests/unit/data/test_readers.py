"""Reading the private file: every format alike, and no record can upset a run."""

import bz2
import csv
import gzip
import io
import json
import lzma
import stat
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

import privsyn.data.readers.streams
from privsyn.data.readers.formats import RowCounts, check_source, read_records
from privsyn.data.row_counts import of_another_language
from privsyn.data.settings import DatasetConfig
from privsyn.errors import DataError

LABELS = ("billing", "7")
ROWS = [
    {"id": 12, "text": 'plain, "quoted"', "label": "billing"},
    {"id": 13, "text": "two\nlines\r\nand a \u2028 separator", "label": 7},
    {"id": 14, "text": "naïve \U0001f600 \x00 NUL", "label": "billing"},
    {"id": 12, "text": "the same id again", "label": "7"},
]
WANTED = [(str(row["id"]), str(row["label"]), row["text"]) for row in ROWS]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def config(path, **settings):
    return DatasetConfig(name="d", path=path, **settings)


def labeled(path):
    return config(path, unit="id", label="label", labels=LABELS)


def records(cfg, row_counts=None):
    found = (private.reveal() for private in read_records(cfg, row_counts=row_counts))
    return [(record.unit, record.label, record.content) for record in found]


def texts(path, **settings):
    return [text for _, _, text in records(config(path, **settings))]


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_parquet(table, **options):
    out = io.BytesIO()
    parquet.write_table(table, out, **options)
    return out.getvalue()


def columns(rows):
    table = {name: [row[name] for row in rows] for name in rows[0]}
    table["label"] = [str(value) for value in table["label"]]
    return pa.table(table)


CONTENT = {
    ".jsonl": as_jsonl(ROWS),
    ".ndjson": as_jsonl(ROWS),
    ".csv": as_csv(ROWS),
    ".parquet": as_parquet(columns(ROWS)),
}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("suffix", CONTENT)
def test_every_format_and_compression_gives_the_same_records(tmp_path, suffix, packing):
    path = tmp_path / f"my.data.2026{suffix.upper()}{packing}"
    path.write_bytes(PACK[packing](CONTENT[suffix]))
    row_counts = RowCounts()
    assert records(labeled(path), row_counts) == WANTED
    assert (row_counts.rows, row_counts.used) == (4, 4)
    if packing and suffix == ".jsonl":  # several members are read to the end
        path.write_bytes(path.read_bytes() * 2)
        assert records(labeled(path)) == WANTED * 2


@pytest.mark.parametrize("packing", [p for p in PACK if p])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_cut_off_or_mislabeled_file_is_an_error_not_a_short_file(tmp_path, suffix, packing):
    path = tmp_path / f"a{suffix}{packing}"
    path.write_bytes(PACK[packing](CONTENT[suffix] * 50)[:-9])
    with pytest.raises(DataError, match="cut off"):
        records(labeled(path))
    path.write_bytes(b'{"text": "secret words"}\n' * 50)
    with pytest.raises(DataError) as caught:
        records(labeled(path))
    assert caught.value.__cause__ is None  # gzip's own message quotes the file
    assert "secret" not in shown(caught)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_byte_order_mark_line_ends_and_missing_last_newline(tmp_path, suffix, newline):
    lines = ['{"text": "a b"}', '{"text": "c"}'] if suffix == ".jsonl" else ["text", "a b", "c"]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"\xef\xbb\xbf" + newline.join(lines).encode())
    assert texts(path) == ["a b", "c"]


FORM = 'Phrase: "{answer}"\nText: "{text}" ({answer})'


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_text_of_several_columns(tmp_path, suffix):
    rows = [
        {"text": "who made {answer}", "id": "a", "answer": "josh"},
        {"text": "", "id": "b", "answer": "nobody"},
        {"text": "fine", "id": "c", "answer": None},
        {"text": "last", "id": "d", "answer": "ann"},
    ]
    path = tmp_path / f"films.{suffix}"
    if suffix == "parquet":
        path.write_bytes(as_parquet(pa.Table.from_pylist(rows)))
    else:
        path.write_bytes({"jsonl": as_jsonl, "csv": as_csv}[suffix](rows))
    cfg = config(path, text=FORM, unit="id")
    assert records(cfg) == [
        ("a", None, 'Phrase: "josh"\nText: "who made {answer}" (josh)'),
        ("d", None, 'Phrase: "ann"\nText: "last" (ann)'),
    ]
    with pytest.raises(DataError, match=r"'answers' \(dataset.text\) is not in"):
        check_source(config(path, text="{answers} {text}"))
    with pytest.raises(DataError, match=r"'texts' \(dataset.text \(2\)\) is not in"):
        check_source(config(path, text="{answer} {texts}"))


BAD_LINES = [
    b'{"text": "caf\xe9", "id": 1}',  # not UTF-8
    b'{"text": "\\ud800", "id": 1}',  # half of a surrogate pair
    b'{"text": "cut, "id": 1}',
    b"[" * 100_000,  # deeper than the parser goes
    b'{"text": ' + b"9" * 5000 + b', "id": 1}',  # beyond the digits Python converts
    b'["text"]',
    b"null",
    b"",
    b"\x00\xff\x00",
    b'{"text": "raw \x00 NUL", "id": 1}',
    b'{"id": 1}',
    b'{"text": null, "id": 1}',
    b'{"text": "", "id": 1}',
    b'{"text": " \\n\\t", "id": 1}',
    b'{"text": 5, "id": 1}',
    b'{"text": ["a"], "id": 1}',
    b'{"text": {"text": "a"}, "id": 1}',
    b'{"text": "no id"}',
    b'{"text": "null id", "id": null}',
    b'{"text": "empty id", "id": ""}',
    b'{"text": "nested id", "id": [1]}',
    b'{"text": "fraction", "id": 1.5}',
    b'{"text": "not a number", "id": NaN}',
]


REASONS = {
    b"{": "row: cannot be parsed",
    b'{"text": "caf\xe9", "id": 3}': "row: not in UTF-8",
    b"[1]": "row: not a JSON object",
    b'{"text": null, "id": 3}': "text: missing or empty",
    b'{"text": " ", "id": 3}': "text: missing or empty",
    b'{"text": 7, "id": 3}': "text: of another type (a number)",
    b'{"text": "\\ud800", "id": 3}': "text: not in UTF-8",
    b'{"text": "a", "id": [3]}': "unit: of another type (a list)",
    b'{"text": "a"}': "unit: missing or empty",
}


@pytest.mark.parametrize("bad", REASONS)
def test_a_dropped_row_is_counted_with_its_reason(tmp_path, bad):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "first", "id": 1}\n' + bad + b"\n")
    row_counts = RowCounts()
    assert len(records(config(path, unit="id"), row_counts)) == 1
    assert dict(row_counts.dropped) == {REASONS[bad]: 1}


def test_labels_are_told_by_their_declared_names_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    held = ["ENTY", "enty", " Enty ", "secret", None, 7.5, "HUM", "ENTY", " ENTY"]
    path.write_bytes(as_jsonl([{"text": f"t{i % 7}", "kind": k} for i, k in enumerate(held)]))
    row_counts = RowCounts()
    cfg = config(path, label="kind", labels=("ENTY", "HUM", "LOC"))
    assert len(records(cfg, row_counts)) == 4
    report = row_counts.report(cfg.labels, 1)
    assert report["labels"] == {"ENTY": 3, "HUM": 1, "LOC": 0}
    assert report["reasons"] == {
        "label: differs from 'ENTY' by capitals, spaces or punctuation alone": 2,
        "label: not declared": 1,
        "label: missing or empty": 1,
        "label: of another type (a number)": 1,
    }
    assert (report["rows"], report["kept"], report["dropped"]) == (9, 4, 5)
    assert "secret" not in repr(row_counts) + json.dumps(report)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Guten Tag, ich brauche in dieser Woche noch einen Termin bei Ihnen.", True),
        ("Bonjour, je voudrais prendre un rendez-vous pour la semaine prochaine.", True),
        ("Hola, quisiera pedir una cita para la semana que viene, gracias.", True),
        ("Dzień dobry, proszę o termin wizyty w przyszłym tygodniu u lekarza.", True),
        ("Hello, I would like to see Dr. Lee again some time next week.", False),
        ("Termin bitte", False),  # too short to tell
        ("血压药用完了", True),
        ("ปวดเข่า", True),
        ("Болит колено", True),
    ],
)
def test_records_in_another_language_are_told_by_its_common_words(tmp_path, text, other):
    path = tmp_path / "a.jsonl"
    english = ["I have a question about the bill that came today."] * 4
    path.write_bytes(as_jsonl([{"text": one} for one in [text] * 5 + english]))
    row_counts = RowCounts()
    records(config(path), row_counts)
    counts = row_counts.report((), 1)
    assert of_another_language(counts) is other
    assert counts["long"] == 4 + 5 * (text != "Termin bitte")
    assert not of_another_language({})  # counted before there was such a count


def test_records_are_counted_by_unit(tmp_path):
    path = tmp_path / "a.jsonl"
    units = [1, 1, 1, "1", 2, 3, 3]
    path.write_bytes(as_jsonl([{"text": str(i), "id": unit} for i, unit in enumerate(units)]))
    row_counts = RowCounts()
    records(config(path, unit="id"), row_counts)
    report = row_counts.report((), 3)
    assert (report["units"], report["records_per_unit_at_most"]) == (3, 4)
    assert (report["units_above_the_bound"], report["records_above_the_bound"]) == (1, 1)
    assert RowCounts().report((), 1)["units"] == 0


def test_the_header_says_what_separates_columns(tmp_path):
    for suffix in (".csv", ".tsv"):
        path = tmp_path / f"a{suffix}"
        for mark in ",;\t|":
            rows = f'id{mark}text\n1{mark}"a{mark} b"\n2{mark}c. d\n'
            path.write_bytes(rows.encode())
            assert records(config(path, unit="id")) == [
                ("1", None, f"a{mark} b"),
                ("2", None, "c. d"),
            ]
    path.write_bytes(b"text\na,b\n")
    assert texts(path) == ["a,b"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_is_told_and_how_to_convert_it(tmp_path, name, indent):
    rows = [{"text": f"secret {i}"} for i in range(20)]
    path = tmp_path / name
    message = refusal(path, json.dumps(rows, indent=indent).encode())
    assert "no JSON object per line" in message
    assert "jq -c '.[]'" in message
    assert "secret" not in message
    one_a_line = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"  # its last row would parse
    assert "no JSON object per line" in refusal(path, one_a_line.encode())
    path.write_bytes(b"[1]\n" + as_jsonl(rows))  # a first row that is none decides nothing
    assert len(texts(path)) == 20


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unusable_json_line_is_dropped_alone(tmp_path, bad, place):
    lines = [b'{"text": "first", "id": 1}', b'{"text": "last", "id": 2}']
    lines.insert(place, bad)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    row_counts = RowCounts()
    assert records(config(path, unit="id"), row_counts) == [
        ("1", None, "first"),
        ("2", None, "last"),
    ]
    assert (row_counts.rows, row_counts.used) == (3, 2)


BAD_ROWS = [
    b"1,caf\xe9", b"1", b"1,too,many", b"", b"1,", b"1,  ", b",no id", b"\xff\xfe,id",
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_ROWS, ids=range(len(BAD_ROWS)))
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unusable_csv_row_is_dropped_alone(tmp_path, bad, place):
    lines = [b"1,first", b'2,"last, ""of"" all\nlines"']
    lines.insert(place, bad)
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join([b"id,text", *lines]) + b"\n")
    row_counts = RowCounts()
    wanted = [("1", None, "first"), ("2", None, 'last, "of" all\nlines')]
    assert records(config(path, unit="id"), row_counts) == wanted
    assert (row_counts.rows, row_counts.used) == (3, 2)


def test_an_unusable_parquet_value_is_dropped_alone(tmp_path):
    broken = pa.array([b"first", b"caf\xe9", None, b"", b"last"], pa.binary()).view(pa.string())
    path = tmp_path / "a.parquet"
    path.write_bytes(as_parquet(pa.table({"text": broken})))
    assert texts(path) == ["first", "last"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_parquet_string_types(tmp_path, kind):
    path = tmp_path / "a.parquet"
    path.write_bytes(as_parquet(pa.table({"text": pa.array(["a", None, "é"], kind)})))
    assert texts(path) == ["a", "é"]


@pytest.mark.parametrize("values", [["x", "y", None, "x"], [1, 2, None, 1]])
def test_parquet_dictionary_columns_read_as_their_values(tmp_path, values):
    table = pa.table({"text": list("abcd"), "u": pa.array(values).dictionary_encode()})
    path = tmp_path / "a.parquet"
    path.write_bytes(as_parquet(table, row_group_size=2))
    first, second = ("x", "y") if values[0] == "x" else ("1", "2")
    wanted = [(first, None, "a"), (second, None, "b"), (first, None, "d")]
    assert records(config(path, unit="u")) == wanted


def test_labels_outside_the_set_are_dropped_and_numbers_and_booleans_match_text(tmp_path):
    values = ["7", 7, 7.0, True, "true", "Billing", "billing ", None, ["7"], 8, False]
    rows = [{"text": str(n), "label": value} for n, value in enumerate(values)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(as_jsonl([*rows, {"text": "without"}]))
    cfg = config(path, label="label", labels=("7", "true", "billing"))
    assert records(cfg) == [
        ("0", "7", "0"), ("1", "7", "1"), ("2", "7", "2"), ("3", "true", "3"), ("4", "true", "4"),
        ("6", "billing", "6"),
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_text_of_a_million_characters(tmp_path, suffix):
    long = "naïve, \U0001f600 " * 100_000
    path = tmp_path / f"a{suffix}"
    rows = [{"text": "a"}, {"text": long}, {"text": "b"}]
    if suffix == ".parquet":
        path.write_bytes(as_parquet(pa.table({"text": [row["text"] for row in rows]})))
    else:
        path.write_bytes(as_jsonl(rows) if suffix == ".jsonl" else as_csv(rows))
    assert texts(path) == ["a", long, "b"]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_line_beyond_the_bound_is_dropped_without_being_held(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(privsyn.data.readers.streams, "LONGEST_LINE", 100)
    path = tmp_path / f"a{suffix}"
    for length in (98, 99, 100, 101, 250, 1000):
        rows = [{"text": "a"}, {"text": "x" * length}, {"text": "b"}]
        path.write_bytes(as_jsonl(rows) if suffix == ".jsonl" else as_csv(rows))
        found = texts(path)
        assert found == (
            ["a", "x" * length, "b"] if length == 98 and suffix == ".csv" else ["a", "b"]
        ), length


def test_a_csv_record_beyond_the_bound_is_one_row_wherever_its_quotes_are(tmp_path, monkeypatch):
    """One long line that closes its field, and many lines, some that look like records."""
    monkeypatch.setattr(privsyn.data.readers.streams, "LONGEST_LINE", 100)
    ghosts = "".join(f"ghost{n},forged\n" for n in range(50))
    for text in ("first line\n" + "x" * 300, "\n".join(["y" * 10] * 40) + "\n" + ghosts + "end",
                 'a "quoted" word\n' * 20, '"' * 301):  # fmt: skip
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
            rows = [["unit", "text"], ["u1", "a"], ["victim", text], ["u2", "b"], ["u3", "c"]]
            out = io.StringIO(newline="")
            csv.writer(out, quoting=quoting).writerows(rows)
            path = tmp_path / "a.csv"
            path.write_bytes(out.getvalue().encode())
            row_counts = RowCounts()
            wanted = [("u1", None, "a"), ("u2", None, "b"), ("u3", None, "c")]
            assert records(config(path, unit="unit"), row_counts) == wanted
            assert (row_counts.rows, dict(row_counts.dropped)) == (
                4,
                {"row: a line is too long": 1},
            )
            numbers = [unit for unit, _, _ in records(config(path))]
            assert numbers == ["0", "2", "3"]


def test_without_a_unit_column_the_row_number_is_the_unit_and_nothing_renumbers(tmp_path):
    for suffix, rows in {
        ".jsonl": [b'{"text": "a"}', b"broken", b"", b'{"text": null}', b'{"text": "b"}'],
        ".csv": [b"text,x", b"a,", b"only one", b"", b",", b'"b",""'],
    }.items():
        path = tmp_path / f"a{suffix}"
        path.write_bytes(b"\n".join(rows))
        assert records(config(path)) == [("0", None, "a"), ("4", None, "b")]


# -- the file as a whole -----------------------------------------------------------------------


def refusal(path, content=None, **settings):
    if content is not None:
        path.write_bytes(content)
    cfg = config(path, **settings)
    with pytest.raises(DataError) as caught:
        check_source(cfg)
    with pytest.raises(DataError) as again:
        read_records(cfg)  # at once, not at the first record
    assert str(caught.value) == str(again.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv.gz", "a.parquet", "a.txt"])
def test_missing_files_and_folders(tmp_path, name):
    path = tmp_path / name
    assert f"{path} does not exist" in refusal(path)
    path.mkdir()
    assert f"{path} holds no file" in refusal(path)
    assert "not a regular file" in refusal(Path("/dev/null"))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.gz", "a.xlsx", "jsonl"])
def test_unknown_formats_name_the_known_ones(tmp_path, name):
    assert ".jsonl, .ndjson, .json, .csv, .tsv, .parquet" in refusal(
        tmp_path / name, b'{"text": "a"}\n'
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b""),
        ("a.jsonl", b"\n\n"),
        ("a.jsonl", b"secret words\nsecret words\n"),
        ("a.jsonl", '{"text": "secret"}\n'.encode("utf-16")),
        ("a.jsonl", b'["secret"]\n'),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0)),
        ("a.jsonl.zst", b""),
        ("a.csv", b""),
        ("a.csv", b"\n\n"),
        ("a.csv", b"id,text\n"),
        ("a.csv", b"id,text\nsecret\nsecret\n"),
        ("a.csv", b'"id,text\nsecret\n'),
        ("a.csv", "text\nsecret\n".encode("utf-16")),
        ("a.parquet", b""),
        ("a.parquet", b"secret" * 100),
        ("a.parquet", as_parquet(pa.table({"text": pa.array([], pa.string())}))),
    ],
)
def test_files_without_a_single_usable_line(tmp_path, name, content):
    message = refusal(tmp_path / name, content)
    assert str(tmp_path / name) in message
    assert "secret" not in message


def test_a_missing_column_is_named_with_the_columns_there_are(tmp_path):
    rows = [{"id": 1, "body": "secret words", "Class label": "x"}]
    table = pa.table({name: [str(value)] for name, value in rows[0].items()})
    for name, content in {
        "a.jsonl": as_jsonl(rows),
        "a.csv": as_csv(rows),
        "a.parquet": as_parquet(table),
    }.items():
        message = refusal(tmp_path / name, content, text="bodi", unit="id")
        assert "'bodi' (dataset.text)" in message
        assert "'id', 'body', 'Class label'" in message
        assert "Did you mean 'body'?" in message
        assert "dataset.unit" in refusal(tmp_path / name, text="body", unit="user")
        labels = {"label": "topic", "labels": ("x",)}
        assert "dataset.label" in refusal(tmp_path / name, text="body", **labels)
        assert "secret" not in message
        wanted = {"text": "bodi", "unit": "user"}
        message = refusal(tmp_path / name, **wanted)
        assert "'bodi' (dataset.text)" in message
        assert ("'body'" in message) is (name != "a.csv")  # there it may be a record


def test_a_record_of_single_words_is_not_taken_for_names(tmp_path):
    record = b"Smith,diabetes,texts\n"
    wanted = {"unit": "user", "label": "label", "labels": ("x",)}
    message = refusal(tmp_path / "a.csv", record * 3, **wanted)
    assert not any(word in message for word in ("Smith", "diabetes", "texts"))
    assert "header line" in message


def test_no_single_json_record_decides_whether_a_column_is_there(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(as_jsonl([{"other": 1}] * 999 + [{"text": "a"}]))
    check_source(config(path))
    assert "dataset.text" in refusal(path, as_jsonl([{"other": 1}] * 1000 + [{"text": "a"}]))


def test_rare_json_keys_are_content_and_are_not_shown(tmp_path):
    rows = [{"body": "x"}] * 5 + [{"body": "x", "secret": 1}] * 2
    message = refusal(tmp_path / "a.jsonl", as_jsonl(rows))
    assert "columns: 'body'." in message


@pytest.mark.parametrize(
    "first",
    [
        "1,Dear doctor secret words in a long line",
        "secret@example.org,x",
        "x,secret words",
        "world;secret;words",
        "x," + "secret" * 10,
    ],
)
def test_the_first_line_of_a_csv_without_header_is_not_shown(tmp_path, first):
    message = refusal(tmp_path / "a.csv", f"{first}\n{first}\n".encode())
    assert "secret" not in message
    assert "header line" in message


def test_doubled_columns_are_refused_only_where_they_are_used(tmp_path):
    path = tmp_path / "a.csv"
    assert "'text' (dataset.text) occurs twice" in refusal(path, b"text,text\na,b\n")
    path.write_bytes(b"x,x,text\n1,2,a\n")
    assert texts(path) == ["a"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, 2]), "int64"),
        (pa.array([["a"], ["b"]]), "list"),
        (pa.array([{"secret": "b"}, None]), "struct"),
    ],
)
def test_parquet_columns_that_hold_no_text_are_refused_by_type(tmp_path, values, kind):
    message = refusal(tmp_path / "a.parquet", as_parquet(pa.table({"text": values})))
    assert f"of type {kind}, not text" in message


def test_files_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(CONTENT[".jsonl"])
    path.chmod(0)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read anything
    assert "may not be read" in refusal(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0


def test_what_is_read_does_not_show(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(CONTENT[".jsonl"])
    shown = repr(list(read_records(config(path)))) + str(next(read_records(config(path))))
    assert "plain" not in shown


def shown(caught):
    return "".join(traceback.format_exception(caught.value))


def test_a_parquet_file_that_breaks_midway_is_not_quoted(tmp_path, monkeypatch):
    def breaks(*_, **__):
        raise pa.ArrowInvalid("Zq is ill")
        yield

    path = tmp_path / "a.parquet"
    path.write_bytes(CONTENT[".parquet"])
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", breaks)
    with pytest.raises(DataError, match="damaged") as caught:
        records(labeled(path))
    assert "Zq" not in shown(caught)
