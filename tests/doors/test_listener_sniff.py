"""The first bytes: what they say, however they were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.listener import Listener
from sluicegate.doors.sniff import (
    PREFACE,
    SNIFF_BYTES_MAX,
    Language,
    alpn_of,
    answer_in,
    kind_of_alpn,
    sniff,
)

BEGINNINGS = [
    (PREFACE, Language.HTTP2),
    (b"*1\r\n$4\r\nPING\r\n", Language.RESP),
    (b"\r\n*1\r\n$4\r\nPING\r\n", Language.RESP),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Language.HTTP1),
    (b"\r\nGET / HTTP/1.1\r\n\r\n", Language.HTTP1),
    (b"POST /v1/check HTTP/1.1\r\n", Language.HTTP1),
    (b"PUT / HTTP/1.1\r\n", Language.HTTP1),
    (b"PATCH / HTTP/1.1\r\n", Language.HTTP1),
    (b"HEAD / HTTP/1.0\r\n", Language.HTTP1),
    (b"OPTIONS * HTTP/1.1\r\n", Language.HTTP1),
    (b"CONNECT a:1 HTTP/1.1\r\n", Language.HTTP1),
    (b"PROPFIND / HTTP/1.1\r\n", Language.HTTP1),
    (b"PRI * HTTP/1.1\r\n", Language.HTTP1),
    (b"get / HTTP/1.1\r\n", Language.HTTP1),
    (b"PING\r\n", Language.RESP),
    (b"HTTP/1.1\r\n", Language.RESP),
    (b"PING\n", Language.RESP),
    (b"QUIT\r\n", Language.RESP),
    (b"GETRANGE a 0 1\r\n", Language.RESP),
    (b"get key\r\n", Language.RESP),
    (b"Get key\r\n", Language.RESP),
    (b"INFO server\r\n", Language.RESP),
    (b"CL.THROTTLE user 15 30 60 1\r\n", Language.RESP),
    (b"HELLO 3 HTTP/\r\n", Language.HTTP1),
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET / HTTP/1.1\r\n", Language.PROXY),
    (b"PROXY UNKNOWN\r\n", Language.PROXY),
    (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", Language.PROXY),
    (b"\r\n\r\n\x00\r\nQUIT\r\n", Language.UNKNOWN),
    (b"\x16\x03\x01\x02\x00\x01", Language.TLS),
    (b"\x16\x04", Language.UNKNOWN),
    (b"\x00", Language.UNKNOWN),
    (b"$4\r\nPING\r\n", Language.UNKNOWN),
    (b"{}", Language.UNKNOWN),
    (b"\xff\xfe", Language.UNKNOWN),
]


@pytest.mark.parametrize(("data", "kind"), BEGINNINGS)
def test_a_beginning_is_told_and_every_cut_of_it_is_told_the_same_or_not_yet(
    data: bytes, kind: Language
) -> None:
    assert sniff(data) is kind
    answers = [sniff(data[:length]) for length in range(len(data) + 1)]
    verdicts = [answer for answer in answers if answer is not None]
    assert set(verdicts) == {kind}
    assert answers[0] is None


@given(st.binary(max_size=200))
def test_once_told_more_bytes_never_change_it(data: bytes) -> None:
    first = None
    for length in range(len(data) + 1):
        now = sniff(data[:length])
        if first is not None:
            assert now is first
        first = now


@given(st.sampled_from([b"A", b"\r\n", b"PING ", b"FOO bar"]))
def test_a_line_without_end_is_unknown_once_it_is_too_long(part: bytes) -> None:
    line = (part * SNIFF_BYTES_MAX)[:SNIFF_BYTES_MAX]
    assert sniff(line[:-1]) is None
    assert sniff(line) is Language.UNKNOWN


def test_the_names_of_tls_are_those_of_the_kinds() -> None:
    assert kind_of_alpn("h2") is Language.HTTP2
    assert kind_of_alpn("http/1.1") is Language.HTTP1
    assert kind_of_alpn("") is None
    assert kind_of_alpn(None) is None
    assert alpn_of(Language.HTTP2) == "h2"
    assert alpn_of(Language.RESP) is None


def test_a_refusal_is_said_in_the_language_of_the_refused() -> None:
    assert answer_in(Language.RESP, "no") == b"-ERR no\r\n"
    assert answer_in(Language.HTTP1, "no").startswith(b"HTTP/1.1 503 ")
    assert answer_in(Language.HTTP1, "no").endswith(b"\r\n\r\nno\n")
    assert answer_in(Language.UNKNOWN, "no").startswith(b"HTTP/1.1 400 ")
    assert answer_in(Language.TLS, "no")[0] == 0x15


def test_h2_itself_understands_how_http2_is_refused() -> None:
    from h2.connection import H2Connection
    from h2.events import ConnectionTerminated

    client = H2Connection()
    client.initiate_connection()
    events = client.receive_data(answer_in(Language.HTTP2, "not here"))
    goaway = next(event for event in events if isinstance(event, ConnectionTerminated))
    assert goaway.error_code == 0xD
    assert goaway.last_stream_id == 0
    assert goaway.additional_data == b"not here"


def test_no_protocol_can_be_given_for_what_is_no_language() -> None:
    with pytest.raises(BadValue, match="protocols"):
        Listener(["127.0.0.1:0"], {Language.TLS: lambda _: None})  # type: ignore[dict-item,return-value]
