from __future__ import annotations

import bz2
import gzip
import lzma
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import traces
from sluicegate.lab.traces import (
    BadTraceRow,
    Columns,
    TraceRow,
    open_trace,
    parse_time,
    spread,
)

SECOND = 1_000_000
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 23:59:59.9000000,4808,10\r
2023-11-17 00:00:00.4000001,3180,8\r
"""
TWITTER = "10,k1,2,300,7,get,0\n10,k2,2,100,8,get,0\n12,k1,2,300,7,set,60\n"


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def read(path: str, columns: Columns | None = None) -> list[TraceRow]:
    return list(open_trace(path, columns).rows())


# Tables.


def test_a_table_of_our_own_has_time_key_size_and_cost_in_any_order(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "key,cost,time,size\na,3,100.5,10\nb,1,101,20\n")
    assert read(path) == [TraceRow(0, "a", 10, 3), TraceRow(500_000, "b", 20, 1)]


def test_what_a_table_lacks_has_a_default_that_claims_nothing(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path, "a.csv", "time\n1\n2\n"))
    assert list(trace.rows()) == [TraceRow(0, "", 0, 1), TraceRow(SECOND, "", 0, 1)]
    with pytest.raises(BadValue, match="--time NAME"):
        open_trace(written(tmp_path, "b.csv", "key\na\nb\n"))


def test_columns_are_found_by_name_or_by_number_with_a_header_or_without(tmp_path: Path) -> None:
    columns = Columns(time="ts", key="path", size=None, cost=("in", "out"), unit="ms")
    path = written(tmp_path, "a.csv", "ts,path,in,out\n5,/a,1,2\n8,/b,3,4\n")
    assert read(path, columns) == [TraceRow(0, "/a", 0, 3), TraceRow(3_000, "/b", 0, 7)]
    numbered = Columns(time="0", key="1", size=None, cost=("2", "3"), unit="ms")
    assert read(path, numbered) == read(path, columns)
    bare = written(tmp_path, "b.csv", "5,/a,1,2\n8,/b,3,4\n")
    assert read(bare, numbered) == read(path, columns)


@pytest.mark.parametrize(
    ("text", "unit", "us"),
    [
        ("1.5", "s", 1_500_000),
        ("1500", "ms", 1_500_000),
        ("7", "us", 7),
        ("7000", "ns", 7),
        ("1970-01-02 00:00:00", "s", 86_400 * SECOND),
        ("2023-11-16T18:17:03.9799600Z", "s", 1_700_158_623_979_960),
        ("2023-11-16 18:17:03.5", "s", 1_700_158_623_500_000),
    ],
)
def test_time_is_a_number_in_its_unit_or_a_date(text: str, unit: str, us: int) -> None:
    assert parse_time(text, unit) == us


@pytest.mark.parametrize("text", ["2023-13-01 00:00:00", "yesterday", "", "nan"])
def test_what_is_no_time_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"date|float|NaN"):
        parse_time(text, "s")


@pytest.mark.parametrize("row", ["x,b,1,1", "2,b", "2,b,x,1", "-5,b,1,1", "2,b,-1,1", "2,b,inf,1"])
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: str) -> None:
    path = written(tmp_path, "a.csv", f"time,key,size,cost\n1,a,1,1\n{row}\n")
    with pytest.raises(BadTraceRow, match=r"a\.csv, line 3"):
        read(path)


def test_a_row_that_is_cut_off_has_too_few_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "time,key,size,cost\n1,a,1,1\n2,b")
    with pytest.raises(BadTraceRow, match=r"line 3: '2,b' .*\(it has too few columns\)"):
        read(path)


def test_so_many_bad_rows_may_be_passed_over_and_no_more(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "time,key\n1,a\nx,b\n\n2,c\ny,d\n")
    columns = Columns(bad_rows_max=2)
    assert [row.key for row in read(path, columns)] == ["a", "c"]
    with pytest.raises(BadTraceRow, match="line 6"):
        read(path, Columns(bad_rows_max=1))


def test_time_that_goes_back_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "time,key\n5,a\n7,b\n6,c\n")
    with pytest.raises(BadValue, match=r"a\.csv, row 3.*sort"):
        read(path)


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "ts,path\n1,a\n")
    with pytest.raises(BadValue, match=r"column of key.*or none: ts, path"):
        read(path, Columns(time="ts"))
    with pytest.raises(BadValue, match="--time NAME"):
        open_trace(path)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadValue, match="unit"):
        Columns(unit="h")
    with pytest.raises(BadValue, match="bad_rows_max"):
        Columns(bad_rows_max=-1)


def test_azure_costs_are_tokens_read_and_written(tmp_path: Path) -> None:
    path = written(tmp_path, "llm.csv", AZURE)
    tokens = ("ContextTokens", "GeneratedTokens")
    columns = Columns(time="TIMESTAMP", key=None, size=tokens[0], cost=tokens)
    assert read(path, columns) == [TraceRow(0, "", 4808, 4818), TraceRow(500_000, "", 3180, 3188)]


def test_twitter_rows_of_one_second_are_set_apart_within_it(tmp_path: Path) -> None:
    path = written(tmp_path, "cluster", TWITTER)
    columns = Columns(time="0", key="1", size="3", cost=())
    assert read(path, columns) == [
        TraceRow(0, "k1", 300, 1),
        TraceRow(500_000, "k2", 100, 1),
        TraceRow(2 * SECOND, "k1", 300, 1),
    ]


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(1, 10))
def test_spreading_keeps_order_loses_nobody_and_passes_no_next_instant(
    instants: list[int], unit: int
) -> None:
    rows = [TraceRow(at * 3, str(at)) for at in sorted(instants)]
    spread_rows = list(spread(rows, unit))
    assert [row.key for row in spread_rows] == [row.key for row in rows]
    assert all(early.at_us <= late.at_us for early, late in pairwise(spread_rows))
    assert all(
        0 <= new.at_us - old.at_us < unit for old, new in zip(rows, spread_rows, strict=True)
    )


def test_rows_of_one_second_come_before_the_next_instant_there_is() -> None:
    rows = [TraceRow(0, "a"), TraceRow(0, "b"), TraceRow(100_000, "c")]
    assert [row.at_us for row in spread(rows, SECOND)] == [0, 50_000, 100_000]


# Files.


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)],
)
def test_packed_files_are_read_as_they_are(tmp_path: Path, ending: str, pack: object) -> None:
    assert callable(pack)
    (tmp_path / f"a.csv{ending}").write_bytes(pack(b"\xef\xbb\xbftime,key\n1,a\n2,b\n"))
    assert read(str(tmp_path / f"a.csv{ending}")) == [TraceRow(0, "a"), TraceRow(SECOND, "b")]


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_broken_archive_and_a_missing_file_are_told_by_name(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, f"a.csv{ending}", "no archive")
    with pytest.raises(BadValue, match="cannot be read"):
        open_trace(path)
    with pytest.raises(BadValue, match="give the path of a file that is there"):
        open_trace(str(tmp_path / "nothing.csv"))


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.trace"])
@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_trace_of_nothing_is_told_as_that(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(BadValue, match="it has no rows"):
        open_trace(path)


def test_zstd_without_its_package_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "find_spec", lambda name: None)
    with pytest.raises(BadValue, match="pip install zstandard"):
        open_trace(written(tmp_path, "a.csv.zst", ""))


def test_a_trace_is_a_stream_of_which_nothing_is_kept(tmp_path: Path) -> None:
    path = written(
        tmp_path, "a.csv", "time,key\n" + "".join(f"{n},k\n" for n in range(10)) + "x,\n"
    )
    first = list(islice(open_trace(path).rows(), 3))  # the bad row at the end is not met
    assert [row.at_us for row in first] == [0, SECOND, 2 * SECOND]
