"""What `headgate kv load` reads, how it cuts it, and what it says."""

from __future__ import annotations

import io
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.apps.kv import load
from headgate.apps.kv.load_parts import parts_of
from headgate.apps.kv.load_progress import Progress
from headgate.apps.kv.load_rows import form_of, rows_in
from headgate.contracts.errors import BadValue
from headgate.system import now_us
from headgate.wire.row_stream import StreamRow, row_bytes, rows_of, stream_of

SIMPLE = [StreamRow(b"p", b"1", b"tea", 1_500_000), StreamRow("ä".encode(), b"", b"", 0)]


def read(data: bytes, form: str, *, base64: bool = False) -> list[StreamRow]:
    rows = rows_in(io.BytesIO(data), "in", form, base64=base64)
    return rows_of(stream_of([]) + b"".join(rows))


def arguments(*said: str) -> Namespace:
    parser = ArgumentParser()
    load.add_arguments(parser)
    return parser.parse_args(said)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", 'partition,sort,value,ttl\np,1,"tea",1.5\n\nä,,,\n'),
        ("csv", "\ufeffttl,Value,sort,partition\r\n1.5,tea,1,p\r\n,,,ä\r\n"),
        ("tsv", "partition\tsort\tvalue\tttl\np\t1\ttea\t1.5\nä\t\t\t\n"),
        ("jsonl", '{"partition":"p","sort":"1","value":"tea","ttl":1.5}\n\n{"partition":"ä"}\n'),
    ],
)
def test_every_form_tells_the_same_rows(form: str, text: str) -> None:
    assert read(text.encode(), form) == SIMPLE


def test_bytes_come_as_base64_or_as_rows() -> None:
    row = StreamRow(b"\xff\x00", b"\n", b'\x00,"')
    cells = ",".join(b64encode(cell).decode() for cell in row[:3])
    assert read(f"partition,sort,value\n{cells}\n".encode(), "csv", base64=True) == [row]
    assert read(stream_of([row]), "rows") == [row]


@pytest.mark.parametrize(
    ("form", "data", "place"),
    [
        ("csv", b"", "in line 1"),
        ("csv", b"sort,value\n", "in line 1"),
        ("csv", b"partition,other\n", "in line 1"),
        ("csv", b"partition,partition\n", "in line 1"),
        ("csv", b"partition,value\np,1\np\n", "in line 3"),
        ("csv", b'partition,value\np,"1"x\n', "in line 2"),
        ("csv", b"partition,ttl\np,soon\n", "in line 2: ttl"),
        ("csv", b"partition,ttl\np,-1\n", "in line 2: ttl"),
        ("csv", b"partition,ttl\np,nan\n", "in line 2: ttl"),
        ("csv", b"partition,ttl\np,inf\n", "in line 2: ttl"),
        ("csv", b"partition\n,\n", "in line 2"),
        ("csv", b"partition,sort\n,x\n", "in line 2: partition"),
        ("csv", b"partition\n\xff\n", "in behind line"),
        ("jsonl", b"[]\n", "in line 1"),
        ("jsonl", b"{\n", "in line 1"),
        ("jsonl", b'{"partition":1}\n', "in line 1: partition"),
        ("jsonl", b'{"partition":"p","more":1}\n', "in line 1"),
        ("jsonl", b'{"partition":"p","ttl":true}\n', "in line 1: ttl"),
        ("rows", b"HGR\x01\x00", "in: rows at byte 4"),
        ("rows", stream_of(SIMPLE)[:-1], "in: rows at byte"),
    ],
)
def test_what_is_wrong_names_its_line(form: str, data: bytes, place: str) -> None:
    with pytest.raises(BadValue) as raised:
        read(data, form)
    assert raised.value.field.startswith(place)


def test_what_is_not_base64_is_told() -> None:
    with pytest.raises(BadValue, match="base64"):
        read(b"partition\n*\n", "csv", base64=True)


@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(1, 5), st.integers(60, 200))
def test_parts_are_whole_rows_in_order_within_their_bounds(
    values: list[bytes], rows_max: int, bytes_max: int
) -> None:
    rows = [StreamRow(b"p", b"", value) for value in values]
    parts = list(parts_of(map(row_bytes, rows), rows_max=rows_max, bytes_max=bytes_max))
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [row for part in parts for row in rows_of(part.data)] == rows
    for part in parts:
        assert part.rows == len(rows_of(part.data)) <= rows_max
        assert len(part.data) <= bytes_max
    assert parts == list(parts_of(map(row_bytes, rows), rows_max=rows_max, bytes_max=bytes_max))


def test_a_row_that_fits_no_part_is_told() -> None:
    with pytest.raises(BadValue, match="allow more"):
        list(parts_of([row_bytes(StreamRow(b"p", b"", b"v" * 99))], rows_max=1, bytes_max=64))


def test_the_same_input_has_the_same_name_and_another_has_another(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("partition\np\n")
    name = load.name_of(arguments("t", str(file)))
    assert name == load.name_of(arguments("t", str(file)))
    others = [
        load.name_of(arguments("u", str(file))),
        load.name_of(arguments("t", str(file), "--mode", "replace")),
        load.name_of(arguments("t", str(file), "--part-rows", "5")),
    ]
    file.write_text("partition\np\nq\n")
    others.append(load.name_of(arguments("t", str(file))))
    assert len({name, *others}) == 5
    with pytest.raises(BadValue, match="--name"):
        load.name_of(arguments("t", "-"))


@pytest.mark.parametrize(
    "said",
    [
        ("t", "missing.csv"),
        ("t", "what.is"),
        ("t", "-"),
        ("t", "-", "-", "--format", "csv", "--name", "n"),
        ("t", "-", "--format", "csv", "--name", "n", "--at-once", "0"),
        ("t", "-", "--format", "csv", "--name", "n", "--part-bytes", "1"),
        ("t", "-", "--format", "csv", "--name", "n", "--patience-s", "-1"),
        ("t", "-", "--format", "csv", "--name", "n", "--at", "ftp://x"),
    ],
)
def test_what_is_asked_wrongly_is_told_before_anything_happens(said: tuple[str, ...]) -> None:
    with pytest.raises(BadValue):
        load.run(arguments(*said))


def test_a_file_s_form_is_by_its_name() -> None:
    assert [form_of(f"x.{end}", "auto") for end in ("CSV", "tsv", "ndjson", "rows")] == [
        "csv",
        "tsv",
        "jsonl",
        "rows",
    ]
    assert form_of("x", "tsv") == "tsv"


def test_progress_tells_how_far_it_is() -> None:
    progress = Progress(io.StringIO(), 200, quiet=False)
    progress.read_bytes = 100
    progress.kept(1_500)
    progress.waited()
    line = progress.line(now_us() + 10_000_000)
    assert line.startswith("[############............] 50%  1,500 rows")
    assert "10s left" in line
    assert line.endswith("asked to wait 1 times")
