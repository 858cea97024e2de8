"""Commands out of bytes: cut at every place, held against a kept library, and bounded."""

from __future__ import annotations

from contextlib import suppress

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.resp import (
    CommandReader,
    OversizedCommand,
    SimpleString,
    WireError,
    command,
    encode_reply,
    error_line,
    split_line,
    whole_number,
)

COMMANDS = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=6), max_size=6)


def reader(
    parts: int = 64, bulk: int = 1_024, whole: int = 4_096, inline: int = 256
) -> CommandReader:
    return CommandReader(parts, bulk, whole, inline)


def read(data: bytes, *cuts: int) -> list[list[bytes]]:
    """All commands of these bytes, fed in pieces."""
    ours, got = reader(), []
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        ours.feed(data[start:end])
        while (parts := ours.gets()) is not None:
            got.append(parts)
    return got


@given(COMMANDS, st.data())
def test_commands_are_read_back_however_they_are_cut(
    commands: list[list[bytes]], data: st.DataObject
) -> None:
    sent = b"".join(command(*parts) for parts in commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    assert read(sent, *cuts) == commands
    library = hiredis.Reader(notEnoughData=...)
    library.feed(sent)
    assert [library.gets() for _ in commands] == commands


def test_every_single_cut_gives_the_same() -> None:
    sent = (
        command("CL.THROTTLE", "k", 15, 30, 60) + b"PING\r\n\r\n" + command("ECHO", b"\r\n$1\r\n")
    )
    expected = [[b"CL.THROTTLE", b"k", b"15", b"30", b"60"], [b"PING"], [b"ECHO", b"\r\n$1\r\n"]]
    assert read(sent) == expected
    for cut in range(len(sent)):
        assert read(sent, cut) == expected
    assert read(sent, *range(1, len(sent))) == expected


@given(st.binary(max_size=200))
def test_garbage_is_commands_or_an_error_and_never_anything_else(data: bytes) -> None:
    for garbage in (data, b"*2\r\n$1\r\n" + data, b"*" + data, b'"' + data + b"\n"):
        with suppress(WireError):
            for parts in read(garbage):
                assert parts


def test_empty_commands_are_passed_over_and_no_number_of_them_is_too_many() -> None:
    assert read(b"*0\r\n*-1\r\n\r\n  \r\n" * 5_000 + b"PING\n") == [[b"PING"]]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"*65\r\n", "invalid multibulk length; 64"),
        (b"*99999999999", "invalid multibulk length"),
        (b"*2147483647\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", r"expected '\$', got ':'"),
        (b"*1\r\n\x01", r"expected '\$', got byte 1"),
        (b"*1\r\n$1025\r\n", "invalid bulk length; 1024"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$2\r\nabc\r\n", "longer than its length"),
        (b"*1\r\n$0\r\n\rx", "longer than its length"),
        (b"*5\r\n" + b"$1024\r\n" * 1, ""),
        (b"*5\r\n" + (b"$1024\r\n" + b"x" * 1_024 + b"\r\n") * 4 + b"$1\r\n", "4096 bytes at most"),
        (b"x" * 257, "too big inline request"),
        (b"x" * 257 + b"\n", "too big inline request"),
        (b"x " * 65 + b"\n", "64 parts"),
        (b'"x\n', "unbalanced quotes"),
        (b"'x\n", "unbalanced quotes"),
        (b'"x"y\n', "unbalanced quotes"),
    ],
)
def test_what_is_too_much_or_not_resp_is_refused_as_soon_as_it_shows(data: bytes, why: str) -> None:
    if not why:
        assert read(data) == []
        return
    with pytest.raises(WireError, match=why):
        read(data)


def test_the_bounds_themselves_are_taken() -> None:
    parts = [b"x" * 1_024] * 4 + [b""] * 60
    assert read(command(*parts)) == [parts]
    assert read(b"x" * 256 + b"\n") == [[b"x" * 256]]


def test_it_tells_what_is_left_to_be_read() -> None:
    ours = reader()
    assert (ours.partial, ours.unread) == (False, 0)
    ours.feed(b"*1\r\n$4\r\nPI")
    assert ours.gets() is None
    assert (ours.partial, ours.unread) == (True, 2)
    ours.feed(b"NG\r\n")
    assert ours.unread == 6
    assert ours.gets() == [b"PING"]
    assert (ours.partial, ours.unread) == (False, 0)


@pytest.mark.parametrize("size", [65_535, 65_536, 200_001])
def test_a_long_word_is_the_same_however_it_is_cut(size: int) -> None:
    parts = [b"SET", b"k", b"\r\n" * (size // 2) + b"x" * (size % 2), b"tail"]
    sent = command(*parts) + command("PING")
    for piece in (1_000, 65_536, size, size + 40):
        ours = reader(bulk=1 << 20, whole=1 << 20)
        got, fed = [], 0
        for start in range(0, len(sent), piece):
            ours.feed(sent[start : start + piece])
            fed += len(sent[start : start + piece])
            while (word := ours.gets()) is not None:
                got.append(word)
            if not got:
                assert ours.partial
                assert fed - 100 < ours.unread < fed or fed > size
        assert got == [parts, [b"PING"]]
        assert (ours.partial, ours.unread) == (False, 0)


def test_a_long_word_that_does_not_end_is_refused_when_it_has_come() -> None:
    ours = reader(bulk=1 << 20, whole=1 << 20)
    ours.feed(b"*1\r\n$70000\r\n" + b"x" * 60_000)
    assert ours.gets() is None
    ours.feed(b"x" * 10_002)
    with pytest.raises(WireError, match="longer than its length"):
        ours.gets()


def test_a_long_word_is_not_copied_with_each_piece_of_it() -> None:
    ours = reader(bulk=1 << 24, whole=1 << 24)
    ours.feed(b"*1\r\n$%d\r\n" % (1 << 23))
    assert ours.gets() is None
    copied = 0
    for _ in range(1 << 10):
        ours.feed(b"x" * (1 << 13))
        assert ours.gets() is None
        copied += len(getattr(ours, "_data", b""))  # what is made anew with each piece
    assert copied < 1 << 17
    ours.feed(b"\r\n")
    assert ours.gets() == [b"x" * (1 << 23)]


def test_words_of_a_line_may_be_quoted() -> None:
    lines = {
        b"a  b\tc": [b"a", b"b", b"c"],
        b'say "a b" c': [b"say", b"a b", b"c"],
        b'"\\x41\\n\\r\\t\\b\\a\\"\\\\\\q\\x4g"': [b'A\n\r\t\b\a"\\qx4g'],
        b"'a\\'b\\n'": [b"a'b\\n"],
        b'""': [b""],
        b'a"b"': [b"ab"],
        b"": [],
    }
    assert {line: split_line(line) for line in lines} == lines


def test_replies_are_those_of_each_protocol() -> None:
    value = [1, "ü", b"\xff", None, {"a": [2]}, SimpleString("OK"), -(2**63)]
    two, three = hiredis.Reader(), hiredis.Reader()
    two.feed(encode_reply(value))
    three.feed(encode_reply(value, 3))
    assert two.gets() == [1, "ü".encode(), b"\xff", None, [b"a", [2]], b"OK", -(2**63)]
    assert three.gets() == [1, "ü".encode(), b"\xff", None, {b"a": [2]}, b"OK", -(2**63)]
    assert encode_reply(None) == b"$-1\r\n"
    assert encode_reply(None, 3) == b"_\r\n"
    assert error_line("ERR a\r\nb\ud800") == b"-ERR a  b\\ud800\r\n"
    with pytest.raises(BadValue, match="what RESP can say"):
        encode_reply(1.5)


@given(st.integers(-(2**65), 2**65))
@example(2**63 - 1)
@example(2**63)
@example(-(2**63))
@example(-(2**63) - 1)
def test_whole_numbers_of_64_bits_are_read(number: int) -> None:
    text = b"%d" % number
    if -(2**63) <= number < 2**63:
        assert whole_number(text) == number
    else:
        with pytest.raises(ValueError, match="64 bits"):
            whole_number(text)


def test_a_number_is_digits_and_a_sign_at_most() -> None:
    assert [whole_number(text) for text in (b"+5", b"-0", b"007")] == [5, 0, 7]
    wrong = [b"", b"+", b"-", b"1_0", b" 1", b"1 ", b"1.0", b"--1", b"+-1", b"x", b"\xd9\xa1"]
    for text in [*wrong, b"9" * 19 + b"x", b"9" * 18 + b"x", b"1" * 17 + b"\xb2\xb2"]:
        with pytest.raises(ValueError, match="64 bits"):
            whole_number(text)


LONG_PARTS = command("MSET", *["x"] * 100)  # 101 of 64
LONG_WORD = command("SET", "k", b"\r\n*1\r\n" * 400)  # 2,400 bytes of 1,024
LONG_COMMAND = command("MSET", *["x" * 1_000] * 5, "y")  # 5,005 bytes of 4,096


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (LONG_PARTS, "64 parts at most"),
        (LONG_WORD, "a part of a command is 1024 bytes at most"),
        (LONG_COMMAND, "a command is 4096 bytes at most"),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1_000, 1 << 20])
def test_oversized_command_is_skipped_and_next_is_read(sent: bytes, why: str, piece: int) -> None:
    ours = reader()
    ours.skips = True
    got: list[object] = []
    stream = command("PING") + sent + command("ECHO", "a") + sent + command("PING")
    kept = 0
    for start in range(0, len(stream), piece):
        ours.feed(stream[start : start + piece])
        while True:
            try:
                parts = ours.gets()
            except OversizedCommand as error:
                got.append(str(error))
                continue
            if parts is None:
                break
            got.append(parts)
        kept = max(kept, ours.held_bytes)
    assert [one for one in got if not isinstance(one, str)] == [
        [b"PING"],
        [b"ECHO", b"a"],
        [b"PING"],
    ]
    assert [type(one) for one in got] == [list, str, list, str, list]
    assert all(why in one for one in got if isinstance(one, str))
    assert not ours.partial
    if piece < 10:
        assert kept <= 4_096 + 100


def test_unending_oversized_command_holds_nothing() -> None:
    ours = reader()
    ours.skips = True
    ours.feed(b"*3\r\n$3\r\nSET\r\n$500000000\r\n")
    for _ in range(100):
        ours.feed(b"x" * 1_000)
        assert ours.gets() is None
        assert (ours.held_bytes, ours.partial) == (0, True)
    for beyond in (b"*1048577\r\n", b"*1\r\n$536870913\r\n"):
        ours = reader()
        ours.skips = True
        ours.feed(beyond)
        with pytest.raises(WireError) as caught:
            ours.gets()
        assert not isinstance(caught.value, OversizedCommand)
