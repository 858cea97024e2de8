"""RESP, the asking side: hiredis packs and parses as the oracle."""

from __future__ import annotations

import pickle
from typing import cast

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.wire import resp
from sluicegate.wire.resp import ErrorReply, Part, arguments, command, error_reply, head

PARTS = st.lists(st.binary(max_size=300) | st.text(max_size=100) | st.integers(), min_size=1)


@given(PARTS)
def test_a_command_is_packed_as_the_kept_library_packs_it(parts: list[Part]) -> None:
    assert command(*parts) == hiredis.pack_command(cast("tuple[str]", tuple(parts)))


@given(PARTS, PARTS)
def test_a_head_and_the_rest_make_the_same_bytes(first: list[Part], rest: list[Part]) -> None:
    whole = command(*first, *rest)
    assert head(len(first) + len(rest), *first) + arguments(rest) == whole


@given(PARTS)
def test_a_command_that_arrives_in_single_bytes_is_read_back(parts: list[Part]) -> None:
    reader = hiredis.Reader(notEnoughData=...)
    packed = command(*parts)
    for place in range(len(packed) - 1):
        reader.feed(packed[place : place + 1])
        assert reader.gets() is ...
    reader.feed(packed[-1:])
    sent = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    assert reader.gets() == sent


@pytest.mark.parametrize("part", [1.5, None, True, ["a"], "\ud800"])
def test_what_has_no_one_spelling_is_refused_with_a_remedy(part: object) -> None:
    with pytest.raises(BadValue, match=r"command: .* give"):
        command("SET", "key", cast("str", part))


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("NOSCRIPT No matching script. Please use EVAL.", "NOSCRIPT", resp.NO_SCRIPT),
        ("LOADING Redis is loading the dataset in memory", "LOADING", resp.NOT_NOW),
        ("BUSY Redis is busy running a script.", "BUSY", resp.NOT_NOW),
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM", resp.NO_WRITES),
        ("READONLY You can't write against a read only replica.", "READONLY", resp.NOT_MASTER),
        ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN", resp.NOT_HERE),
        ("NOAUTH Authentication required.", "NOAUTH", resp.DENIED),
        ("WRONGPASS invalid username-password pair", "WRONGPASS", resp.DENIED),
        ("WRONGTYPE Operation against a key", "WRONGTYPE", resp.OWN),
        ("ERR unknown command", "ERR", resp.OWN),
        ("", "", resp.OWN),
        (
            (
                "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): "
                "@user_script:1: @user_script: 1: -OOM command not allowed when used memory > "
                "'maxmemory'."
            ),
            "OOM",
            resp.NO_WRITES,
        ),
        (
            "ERR Error running script (call to f_6b): @user_script:1: attempt to index a nil",
            "ERR",
            resp.OWN,
        ),
    ],
)
def test_every_code_says_what_can_be_done(text: str, code: str, kind: str) -> None:
    error = error_reply(text)
    assert (error.code, error.kind, error.text) == (code, kind, text)


def test_the_script_in_which_it_was_answered_is_left_out() -> None:
    said = "OOM command not allowed when used memory > 'maxmemory'."
    assert error_reply(f"{said} script: 8083356fa2, on @user_script:8.").text == said


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("MOVED 3999 127.0.0.1:6381", (resp.MOVED, 3999, "127.0.0.1", 6381)),
        ("ASK 3999 redis-2.internal:6381", (resp.ASK, 3999, "redis-2.internal", 6381)),
        ("MOVED 1 2001:db8::1:6379", (resp.MOVED, 1, "2001:db8::1", 6379)),
        ("MOVED 1 :6379", (resp.MOVED, 1, "", 6379)),
        ("MOVED", (resp.OWN, -1, "", 0)),
        ("MOVED x 127.0.0.1:6381", (resp.OWN, -1, "", 0)),
        ("ASK 1 nowhere", (resp.OWN, -1, "", 0)),
    ],
)
def test_a_redirection_names_slot_and_server(text: str, place: tuple[str, int, str, int]) -> None:
    error = error_reply(text)
    assert (error.kind, error.slot, error.host, error.port) == place


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    assert error_reply(text).text == text


def test_an_error_reply_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(error_reply("MOVED 1 h:2")))
    assert isinstance(error, ErrorReply)
    assert (error.kind, error.slot, error.host, error.port) == (resp.MOVED, 1, "h", 2)
