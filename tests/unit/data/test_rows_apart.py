"""One record never decides how others are read: by every reader, dialect and writer."""

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import privsyn.data.readers.streams
from privsyn.data.readers.formats import check_rows, read_records
from privsyn.data.readers.lines import RowsRunTogether, split_records
from privsyn.data.settings import DatasetConfig
from privsyn.errors import DataError

Row = list[str | None]
HEADER = ["unit", "text", "day"]


def by_csv(**options):
    def write(rows):
        out = io.StringIO(newline="")
        csv.writer(out, **options).writerows(rows)
        return out.getvalue().encode("utf-8", "surrogatepass")

    return write


def by_pandas(**options):
    def write(rows):
        frame = pd.DataFrame(rows[1:], columns=rows[0])
        return str(frame.to_csv(index=False, lineterminator="\n", **options)).encode()

    return write


def spark(rows):
    """As Spark writes: quotes around what needs some; a backslash elsewhere stays as it is."""

    def cell(value):
        text = value or ""
        if not text or not any(letter in text for letter in ',"\n\r'):
            return text or '""'
        runs = text.replace("\\", "\\\\") if text.endswith("\\") or '\\"' in text else text
        return '"' + runs.replace('"', '\\"') + '"'

    return "".join(",".join(map(cell, row)) + "\n" for row in rows).encode()


def mysql(rows):
    r"""INTO OUTFILE ... FIELDS TERMINATED BY ',' ENCLOSED BY '"': \N, \0, escaped line ends."""

    def cell(value):
        if value is None:
            return "\\N"
        for letter in '\\",\n':
            value = value.replace(letter, f"\\{letter}")
        return '"' + value.replace("\0", "\\0") + '"'

    head = ",".join(str(name) for name in rows[0]) + "\n"
    return (head + "".join(",".join(map(cell, row)) + "\n" for row in rows[1:])).encode()


def json_lines(rows):
    lines = [
        json.dumps(dict(zip(HEADER, row, strict=True)), ensure_ascii=False) for row in rows[1:]
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def as_parquet(rows):
    columns = zip(*rows[1:], strict=True)
    table = {
        name: pa.array(column, pa.string()) for name, column in zip(HEADER, columns, strict=True)
    }
    out = io.BytesIO()
    parquet.write_table(pa.table(table), out, row_group_size=2)
    return out.getvalue()


BACKSLASH: dict[str, Any] = {"doublequote": False, "escapechar": "\\"}
ESCAPING: dict[str, Callable[[list[Row]], bytes]] = {
    "csv": by_csv(lineterminator="\n", **BACKSLASH),
    "csv, all quoted": by_csv(quoting=csv.QUOTE_ALL, **BACKSLASH),
    "pandas": by_pandas(**BACKSLASH),
    "spark": spark,
    "mysql": mysql,
}
ENDS = {"LF": "\n", "CRLF": "\r\n"}
WRITERS: dict[str, tuple[str, Callable[[list[Row]], bytes]]] = {
    **{
        f"{suffix} by {mark!r}, {name}, {quoting}": (
            suffix,
            by_csv(delimiter=mark, lineterminator=end, quoting=how),
        )
        for name, end in ENDS.items()
        for quoting, how in (("minimal", csv.QUOTE_MINIMAL), ("all", csv.QUOTE_ALL))
        for suffix, mark in ((".csv", ","), (".csv", ";"), (".tsv", "\t"))
    },
    "pandas": (".csv", by_pandas()),
    "json lines": (".jsonl", json_lines),
    "parquet": (".parquet", as_parquet),
}
PIECES = ["late", '"', '""', "\\", '\\"', '27"', "\\\\", ",", ";", "\t", "\n", "\r\n", "\r", "\0",
          "\ufeff", "\u2028", "\x85", "\x0c", "ghost,forged,monday", "\\N", "'",
          '\n"ghost","forged","monday"\n', " " * 60, "e\u0301", "\U0001f600", "{}"]  # fmt: skip
OTHERS = [
    "visit number 0",
    'visit 1: a "quoted" word, and',
    "visit 2 \\ of \\n many",
    'visit 3: 27"',
]


def others(path, unit):
    cfg = DatasetConfig(name="d", path=path, unit=unit)
    found = (private.reveal() for private in read_records(cfg))
    return [(record.unit, record.content) for record in found if "visit" in record.content]


@pytest.mark.parametrize("unit", [None, "unit"])
@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=8), place=st.integers(0, 4))
def test_changing_one_record_changes_no_other(tmp_path, name, unit, pieces, place):
    """Its text, its length, its nulls; nor that of its unit or day. Places count as units do."""
    suffix, write = WRITERS[name]
    path = tmp_path / f"a{suffix}"
    odd = "".join(pieces)
    found = []
    victims = (["v", "late", "monday"], ["v", odd, "monday"], ["v", f"I {odd}", odd],
               [odd, "late", "monday"], ["v", None, None],
               ["v", "x" * 300 + odd, "monday"])  # fmt: skip
    for victim in victims:
        rows = [[f"u{n}", text, "monday"] for n, text in enumerate(OTHERS)]
        rows.insert(place, list(victim))
        path.write_bytes(write([list(HEADER), *rows]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(privsyn.data.readers.streams, "LONGEST_LINE", 100)
            found.append(others(path, unit))
            check_rows(DatasetConfig(name="d", path=path, unit=unit))
    assert [text for _, text in found[0]] == OTHERS
    assert all(one == found[0] for one in found), found


@pytest.mark.parametrize("quoted", ["plain", "quoted"])
@pytest.mark.parametrize("name", ESCAPING)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=6), place=st.integers(0, 3))
def test_a_csv_by_another_rule_is_refused_and_never_partly_read(
    tmp_path, name, quoted, pieces, place
):
    """Refused, or every other record is what it was."""
    texts = [f"visit {n}{', ' if quoted == 'quoted' else ''}" for n in range(4)]
    path, read = tmp_path / "a.csv", {}
    for text in ("I am late", "".join(["I ", *pieces])):
        rows = [[f"u{n}", text, "monday"] for n, text in enumerate(texts)]
        rows.insert(place, ["v", text, "monday"])
        path.write_bytes(ESCAPING[name]([list(HEADER), *rows]))
        for unit in (None, "unit"):
            try:
                found = others(path, unit)
            except DataError as error:
                refusal = str(error)
            else:
                refusal = "backslash"
                assert found == read.setdefault(unit, found)
                assert len(found) == 4
            assert "backslash" in refusal
            assert "visit" not in refusal


@pytest.mark.parametrize("name", ESCAPING)
def test_an_inch_mark_at_the_end_takes_no_row_with_it(tmp_path, name):
    """The text of the public reports: Spark's, MySQL's and pandas' backslash."""
    rows = [[f"u{n}", f"I need a table, number {n}", "monday"] for n in range(20)]
    rows[7][1] = 'I need a new screen, 27"'
    path = tmp_path / "a.csv"
    path.write_bytes(ESCAPING[name]([list(HEADER), *rows]))
    with pytest.raises(DataError, match="would decide how others are read") as caught:
        check_rows(DatasetConfig(name="d", path=path, unit="unit"))
    assert "export JSON Lines" in str(caught.value)


REFUSED = {
    "behind a closed field": b'a,b\n1,"quote"in the middle"\n',
    "never closed": b'a,b\n1,x\n2,"never closed\n',
    "in a field without quotes": b'a,b\n1,5" screen\n',
    "a field begun behind a space": b'a,b\n1, "text, more"\n',
    "a line end with a backslash": b"a,b\n1,first \\\nline\n3,third\n",
    "a delimiter with a backslash": b"a,b\n1,first\\, second\n2,third\n",
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_what_no_writer_of_the_rule_writes_is_refused(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    cfg = DatasetConfig(name="d", path=path, text="b", unit="a")
    with pytest.raises(DataError, match="cannot be separated"):
        check_rows(cfg)
    with pytest.raises(DataError, match="cannot be separated"):
        list(read_records(cfg))


def test_a_mark_of_the_byte_order_is_forgiven_in_every_line(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [b'{"unit": "u%d", "text": "t"}' % n for n in range(4)]
    for marked in ([1], [0, 2], [0, 1, 2, 3], []):
        content = [b"\xef\xbb\xbf" * (n in marked) + line for n, line in enumerate(lines)]
        for dropped in (None, 0, 1):
            path.write_bytes(b"\n".join(line for n, line in enumerate(content) if n != dropped))
            units = [private.reveal().unit for private in
                     read_records(DatasetConfig(name="d", path=path, unit="unit"))]  # fmt: skip
            assert units == [f"u{n}" for n in range(4) if n != dropped]


# -- the records of a CSV, against a reader that looks at every character by itself ----------------


def by_character(content, delimiter):
    """Records, None for one that is too long; or that the rows run together."""
    records: list[str | None] = []
    record, state, skip = "", "begin", False
    for place, letter in enumerate(content):
        record += letter
        rest = content[place:]
        if skip:
            skip = False
            continue
        if state in ("begin", "plain"):
            if state == "begin" and letter == '"':
                state = "quoted"
                continue
            state = "begin" if letter == delimiter else "plain"
            if letter == '"':
                return "refused"
        elif state == "quoted":
            if letter == '"':
                skip = rest[1:2] == '"'
                state = "quoted" if skip else "closed"
        elif letter == delimiter:
            state = "begin"
        elif not (letter == "\n" or rest[:2] == "\r\n" or rest == "\r"):
            return "refused"
        if letter == "\n" and state != "quoted":
            records.append(record)
            record, state = "", "begin"
    if state == "quoted":
        return "refused"
    records += [record] if record else []
    return [
        one if len(one or "") <= privsyn.data.readers.streams.LONGEST_LINE else None
        for one in records
    ]


def test_records_are_those_of_a_reader_by_character(monkeypatch):
    """However a record is cut into parts: small random files and small parts, by a fixed seed."""
    draw = random.Random(7)
    refused = long = 0
    for number in range(40_000):
        monkeypatch.setattr(privsyn.data.readers.streams, "LONGEST_LINE", draw.randint(1, 9))
        content = "".join(draw.choices('"",,\n\n\rab\\', k=draw.randint(0, 14)))
        wanted = by_character(content, ",")
        found: Sequence[str | None] | str
        try:
            text = io.TextIOWrapper(io.BytesIO(content.encode()), newline="\n")
            found = list(split_records(text, ","))
        except RowsRunTogether:
            found = "refused"
        long += None in wanted if isinstance(wanted, list) else 0
        assert found == wanted, (number, content)
        refused += found == "refused"
    assert refused < 36_000
    assert long > 1000
