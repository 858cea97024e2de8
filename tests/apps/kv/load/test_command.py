"""What `sluicegate kv load` reads, how it cuts it, and what it says."""

from __future__ import annotations

import asyncio
import io
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.load import command as load
from sluicegate.apps.kv.load.client import UploadClient
from sluicegate.apps.kv.load.files import LoadPart, cut_parts, name_of
from sluicegate.apps.kv.load.formats import form_of, parse_rows
from sluicegate.apps.kv.load.progress import UploadProgress
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.system import now_us
from sluicegate.testing import HandClock
from sluicegate.wire.row_stream import StreamRow, row_bytes, rows_of, stream_of
from tests.apps.kv.tables.dispatchers import ANYBODY, Node, memory
from tests.doors.http.kv.serving import running_door

SIMPLE = [StreamRow(b"p", b"1", b"tea", 1_500_000), StreamRow("ä".encode(), b"", b"", 0)]


def read(data: bytes, form: str, *, base64: bool = False) -> list[StreamRow]:
    rows = parse_rows(io.BytesIO(data), "in", form, base64=base64)
    return rows_of(stream_of([]) + b"".join(rows))


def arguments(*argv: str) -> Namespace:
    parser = ArgumentParser()
    load.add_arguments(parser)
    return parser.parse_args(argv)


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
        ("rows", b"SGR\x01\x00", "in: rows at byte 4"),
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
    parts = list(cut_parts(map(row_bytes, rows), rows_max=rows_max, bytes_max=bytes_max))
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [row for part in parts for row in rows_of(part.data)] == rows
    for part in parts:
        assert part.rows == len(rows_of(part.data)) <= rows_max
        assert len(part.data) <= bytes_max
    assert parts == list(cut_parts(map(row_bytes, rows), rows_max=rows_max, bytes_max=bytes_max))


def test_a_row_that_fits_no_part_is_told() -> None:
    with pytest.raises(BadValue, match="allow more"):
        list(cut_parts([row_bytes(StreamRow(b"p", b"", b"v" * 99))], rows_max=1, bytes_max=64))


def test_the_same_input_has_the_same_name_and_another_has_another(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("partition\np\n")
    name = name_of(arguments("t", str(file)))
    assert name == name_of(arguments("t", str(file)))
    others = [
        name_of(arguments("u", str(file))),
        name_of(arguments("t", str(file), "--mode", "replace")),
        name_of(arguments("t", str(file), "--part-rows", "5")),
    ]
    file.write_text("partition\nq\n")  # as many bytes
    others.append(name_of(arguments("t", str(file))))
    assert len({name, *others}) == 5
    with pytest.raises(BadValue, match="--name"):
        name_of(arguments("t", "-"))


@pytest.mark.parametrize(
    "argv",
    [
        ("t", "missing.csv"),
        ("t", "what.is"),
        ("t", "-"),
        ("t", "-", "-", "--format", "csv", "--name", "n"),
        ("t", "-", "--format", "csv", "--name", "n", "--at-once", "0"),
        ("t", "-", "--format", "csv", "--name", "n", "--part-bytes", "1"),
        ("t", "-", "--format", "csv", "--name", "n", "--patience-s", "-1"),
        ("t", "-", "--format", "csv", "--name", "n", "--at", "ftp://x"),
        ("t", "--name", "n"),
        ("t", "--abandon"),
    ],
)
def test_what_is_asked_wrongly_is_told_before_anything_happens(argv: tuple[str, ...]) -> None:
    with pytest.raises(BadValue):
        load.run(arguments(*argv))


def test_a_file_s_form_is_by_its_name() -> None:
    assert [form_of(f"x.{end}", "auto") for end in ("CSV", "tsv", "ndjson", "rows")] == [
        "csv",
        "tsv",
        "jsonl",
        "rows",
    ]
    assert form_of("x", "tsv") == "tsv"


def test_progress_tells_how_far_it_is() -> None:
    progress = UploadProgress(io.StringIO(), 200, quiet=False)
    progress.read_bytes = 100
    progress.count_stored(1_500)
    progress.count_wait()
    line = progress.line(now_us() + 10_000_000)
    assert line.startswith("[############............] 50%  1,500 rows")
    assert "10s left" in line
    assert line.endswith("asked to wait 1 times")


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the story in a loop of its own."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


class There:
    """A dispatcher to load into: real tables by a hand clock, behind the real HTTP door."""

    def __init__(self, node: Node, port: int) -> None:
        self.node = node
        self.port = port

    async def load(self, *argv: str) -> None:
        """As the command does it, beside the loop."""
        at = ("--at", f"http://127.0.0.1:{self.port}", "--patience-s", "0")
        await asyncio.to_thread(load.run, arguments("t", *argv, *at))

    async def value(self, partition: bytes) -> bytes | None:
        """What can be read."""
        await self.node.catalogue.refresh()
        answer = self.node.tables.read_one("t", partition, b"", self.node.clock.now_us())
        row = await cast("Any", answer) if not isinstance(answer, tuple | None) else answer
        return None if row is None else bytes(row.value)


@asynccontextmanager
async def there(**settings: Any) -> AsyncIterator[There]:
    node = Node(memory(), HandClock())
    service = SimpleNamespace(uploads=node.uploads, clock=node.clock)
    async with running_door(service=cast("Any", service), **settings) as here:
        yield There(node, here.port)


def csv_of(value: str, rows: int = 6) -> str:
    return "partition,value\n" + "".join(f"k{at},{value}{at}\n" for at in range(rows))


@in_a_loop
async def test_a_file_that_changed_and_kept_its_name_and_size_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    async with there() as one:
        for value in ("a", "b"):
            file.write_text(csv_of(value))
            await one.load(str(file))
            assert await one.value(b"k0") == value.encode() + b"0"
            await one.node.until_normal("t")


@in_a_loop
async def test_a_file_that_was_loaded_is_not_said_to_be_loaded_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(csv_of("a"))
    async with there() as one:
        await one.load(str(file))
        assert "6 rows in 1 parts are in t (6 of this run" in capsys.readouterr().err
        await one.load(str(file))
        output = capsys.readouterr().err
        assert output.startswith("nothing to do: load-")
        assert "was loaded before, begun 20" in output
        assert "this run loaded none" in output
        assert "are in t" not in output


async def half_loaded(one: There, file: Path, name: str) -> None:
    """The first of several parts is kept, and then the run was killed."""
    await one.node.uploads.begin("t", name, "merge", ANYBODY)
    rows = parse_rows(io.BytesIO(file.read_bytes()), "in", "csv", base64=False)
    part = next(iter(cut_parts(rows, rows_max=2, bytes_max=1 << 20)))
    await one.node.uploads.part("t", name, 0, part.data, part.sha256, ANYBODY)


@in_a_loop
async def test_a_half_loaded_file_that_changed_is_told_at_once_and_can_be_abandoned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(csv_of("a"))
    argv = (str(file), "--name", "monday", "--part-rows", "2")
    async with there() as one:
        await half_loaded(one, file, "monday")
        file.write_text(csv_of("b"))
        with pytest.raises(SluicegateError, match=r"the input has changed .*monday --abandon --at"):
            await one.load(*argv)
        assert "run the same command again" not in capsys.readouterr().err
        stands = await one.node.uploads.show("t", "monday", ANYBODY)
        assert list(stands.parts) == [0]  # nothing more was sent in vain
        await one.load("--name", "monday", "--abandon")
        assert "monday into t is abandoned" in capsys.readouterr().err
        await one.load(*argv)
        assert await one.value(b"k5") == b"b5"


@in_a_loop
async def test_what_changed_behind_the_first_part_is_told_at_the_commit(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(csv_of("a"))
    async with there() as one:
        await half_loaded(one, file, "monday")
        file.write_text(csv_of("a", 2))
        await one.node.uploads.part("t", "monday", 1, *other_part(), ANYBODY)
        with pytest.raises(SluicegateError, match="the input has changed"):
            await one.load(str(file), "--name", "monday", "--part-rows", "2")


def other_part() -> tuple[bytes, bytes]:
    (part,) = cut_parts([row_bytes(StreamRow(b"z", b"", b"z"))], rows_max=2, bytes_max=1 << 20)
    return part.data, part.sha256


@in_a_loop
async def test_the_same_half_loaded_file_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(csv_of("a"))
    async with there() as one:
        await half_loaded(one, file, "monday")
        await one.load(str(file), "--name", "monday", "--part-rows", "2")
        assert [await one.value(b"k%d" % at) for at in (0, 5)] == [b"a0", b"a5"]


@in_a_loop
async def test_another_upload_that_is_open_is_named_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(csv_of("a"))
    async with there() as one:
        await half_loaded(one, file, "monday")
        with pytest.raises(
            SluicegateError, match=r"is open: monday, begun .* 2 rows .*--name monday --abandon"
        ):
            await one.load(str(file))


@in_a_loop
async def test_a_file_that_is_written_while_it_is_read_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(csv_of("a"))

    def named(options: Namespace) -> str:
        name = name_of(options)
        file.write_text(csv_of("b", 7))
        return name

    monkeypatch.setattr(load, "name_of", named)
    async with there() as one:
        with pytest.raises(SluicegateError, match="was written while it was read"):
            await one.load(str(file))
        assert await one.value(b"k0") is None


EMPTY = [("in.csv", "partition,value\n"), ("in.jsonl", ""), ("in.jsonl", "\n\n")]


@pytest.mark.parametrize(("name", "text"), EMPTY)
@in_a_loop
async def test_no_row_at_all_does_not_empty_a_table_unless_it_is_meant(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, full = tmp_path / name, tmp_path / "full.csv"
    file.write_text(text)
    full.write_text(csv_of("a"))
    argv = (str(file), "--name", "x", "--mode", "replace")
    async with there() as one:
        await one.load(str(full))
        await one.node.until_normal("t")
        with pytest.raises(BadValue, match=r"no row in it, and t would be empty.*--allow-empty"):
            await one.load(*argv)
        assert await one.value(b"k0") == b"a0"
        uploads = await one.node.uploads.all("t", ANYBODY)
        assert [upload.name for upload in uploads] == [name_of(arguments("t", str(full)))]
        await one.load(*argv, "--allow-empty")
        assert "0 rows in 0 parts are in t" in capsys.readouterr().err
        assert await one.value(b"k0") is None


@in_a_loop
async def test_no_row_to_merge_begins_nothing_and_leaves_the_name_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.csv"
    file.write_text("partition,value\n")
    argv = (str(file), "--name", "x")
    async with there() as one:
        await one.load(*argv)
        assert (
            "there is no row to load, and no upload was begun; t stays" in capsys.readouterr().err
        )
        assert await one.node.uploads.all("t", ANYBODY) == []
        file.write_text(csv_of("a"))
        await one.load(*argv)
        assert await one.value(b"k5") == b"a5"
        file.write_text("partition,value\n")
        with pytest.raises(SluicegateError, match=r"no row in it now.* has ended"):
            await one.load(*argv)
        await one.node.until_normal("t")
        file.write_text(csv_of("b"))
        await half_loaded(one, file, "y")
        file.write_text("partition,value\n")
        with pytest.raises(SluicegateError, match=r"no row in it now.*y --abandon"):
            await one.load(str(file), "--name", "y")
        await one.load("--name", "y", "--abandon")
        await one.load(str(file), "--name", "y")
        assert "there is no row to load" in capsys.readouterr().err


@in_a_loop
async def test_a_bad_first_part_begins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with there() as one:
        for text in ("", "partition,value\nk0\n", csv_of("a") + "k6\n"):
            file = tmp_path / "in.csv"
            file.write_text(text)
            with pytest.raises(BadValue, match=r"in\.csv line"):
                await one.load(str(file))
            assert capsys.readouterr().err == ""
            assert await one.node.uploads.all("t", ANYBODY) == []
        file.write_text(csv_of("a"))
        await one.load(str(file))
        assert await one.value(b"k5") == b"a5"


@in_a_loop
async def test_a_bad_line_further_behind_tells_both_ways_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.csv"
    cut = ("--part-rows", "2")
    async with there() as one:
        file.write_text(csv_of("a"))
        await half_loaded(one, file, "monday")
        file.write_text(csv_of("a") + "k6\n")
        with pytest.raises(BadValue, match=r"in\.csv line 8"):
            await one.load(str(file), "--name", "monday", *cut)
        output = capsys.readouterr().err
        assert "when that is mended go on with --name monday, or forget it: sluicegate kv" in output
        assert "--name monday --abandon" in output
        file.write_text(csv_of("a", 7))
        await one.load(str(file), "--name", "monday", *cut)
        assert await one.value(b"k6") == b"a6"


@in_a_loop
async def test_an_upload_of_which_nothing_is_kept_is_abandoned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No part of it is taken: its one value is longer than this dispatcher lets in."""
    file = tmp_path / "in.csv"
    file.write_text("partition,value\nk0," + "v" * 200_000 + "\n")
    async with there(part_bytes_max=1 << 16) as one:
        with pytest.raises(SluicegateError, match="part_bytes_max"):
            await one.load(str(file))
        assert "nothing was kept, so upload load-" in capsys.readouterr().err
        (left,) = await one.node.uploads.all("t", ANYBODY)
        assert left.state == "abandoned"
        file.write_text(csv_of("a"))
        await one.load(str(file))
        assert await one.value(b"k0") == b"a0"


@in_a_loop
async def test_an_upload_of_which_something_is_kept_is_not_abandoned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.csv"
    file.write_text(csv_of("a", 2) + "k2," + "v" * 200_000 + "\n")
    async with there(part_bytes_max=1 << 16) as one:
        with pytest.raises(SluicegateError, match="part_bytes_max"):
            await one.load(str(file), "--name", "x", "--part-rows", "2", "--at-once", "1")
        assert "2 rows are kept, and none can be seen yet" in capsys.readouterr().err
        (left,) = await one.node.uploads.all("t", ANYBODY)
        assert (left.state, list(left.parts)) == ("open", [0])


@in_a_loop
async def test_an_upload_that_nobody_answers_stays_open_for_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.csv"
    file.write_text(csv_of("a"))

    def unanswered(link: UploadClient, part: LoadPart) -> None:
        raise Unavailable("the dispatcher", "timed out")

    async with there() as one:
        with monkeypatch.context() as patched:
            patched.setattr(UploadClient, "send", unanswered)
            with pytest.raises(Unavailable):
                await one.load(str(file))
        output = capsys.readouterr().err
        assert output.startswith("0 rows are kept, and none can be seen yet; run the same command")
        (left,) = await one.node.uploads.all("t", ANYBODY)
        assert left.state == "open"
        await one.load(str(file))
        assert await one.value(b"k5") == b"a5"


def test_what_can_be_read_once_only_wants_a_name() -> None:
    with pytest.raises(BadValue, match="--name"):
        name_of(arguments("t", "/dev/null", "--format", "csv"))
