"""The PROXY protocol: headers as its specification writes them, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.wire.proxy_protocol import (
    V1_BYTES_MAX,
    V2_BYTES_MAX,
    V2_SIGNATURE,
    ProxyFault,
    ProxyHeader,
    read_proxy_header,
)

V4 = bytes([192, 0, 2, 1, 192, 0, 2, 2]) + (56_324).to_bytes(2) + (443).to_bytes(2)
V6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + (1).to_bytes(2) + (2).to_bytes(2)
MAPPED = bytes(10) + b"\xff\xff\xc0\x00\x02\x01" + bytes(16) + (1).to_bytes(2) + (2).to_bytes(2)
LONGEST = b"ffff:" * 7 + b"ffff"


def v2(command: int, family: int, rest: bytes) -> bytes:
    return V2_SIGNATURE + bytes((command, family)) + len(rest).to_bytes(2) + rest


HEADERS = [
    (b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", "192.0.2.1", 56_324),
    (b"PROXY TCP6 2001:DB8:0:0:0:0:0:1 ::2 1 65535\r\n", "2001:db8::1", 1),
    (b"PROXY TCP6 ::ffff:192.0.2.1 ::2 0 1\r\n", "192.0.2.1", 0),
    (
        b"PROXY TCP6 %b %b 65535 65535\r\n" % (LONGEST, LONGEST),
        LONGEST.decode(),
        65_535,
    ),
    (b"PROXY UNKNOWN\r\n", "", 0),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", 0),
    (v2(0x21, 0x11, V4), "192.0.2.1", 56_324),
    (v2(0x21, 0x11, V4 + b"\x04\x00\x05other"), "192.0.2.1", 56_324),
    (v2(0x21, 0x21, V6), "::1", 1),
    (v2(0x21, 0x21, MAPPED), "192.0.2.1", 1),
    (v2(0x20, 0x00, b""), "", 0),
    (v2(0x20, 0x11, V4), "", 0),
    (v2(0x21, 0x00, b"\x04\x00\x05other"), "", 0),
    (v2(0x21, 0x31, bytes(216)), "", 0),
    (v2(0x21, 0x11, V4 + bytes(V2_BYTES_MAX - 28)), "192.0.2.1", 56_324),
]


@pytest.mark.parametrize(("header", "host", "port"), HEADERS)
def test_a_header_is_read_to_its_last_byte_and_not_before(
    header: bytes, host: str, port: int
) -> None:
    wanted = ProxyHeader(len(header), host, port)
    assert read_proxy_header(header) == wanted
    assert read_proxy_header(header + b"GET / HTTP/1.1\r\n") == wanted
    for size in range(len(header)):
        assert read_proxy_header(header[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01",
        b"\r\nGET",
        b"PROXY\tTCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        b"PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 ::1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 ::2 1 2\r\n",
        b"PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 0192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 ::2 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n" + b" " * V1_BYTES_MAX,
        b"PROXY UNKNOWN " + b"x" * V1_BYTES_MAX,
        v2(0x11, 0x11, V4),
        v2(0x22, 0x11, V4),
        v2(0x21, 0x41, V4),
        v2(0x21, 0x11, V4[:-1]),
        v2(0x21, 0x21, V4),
        v2(0x21, 0x11, V4 + bytes(V2_BYTES_MAX)),
    ],
)
def test_what_is_no_header_is_a_fault_and_nothing_is_guessed(data: bytes) -> None:
    with pytest.raises(ProxyFault):
        read_proxy_header(data)


@given(st.sampled_from(HEADERS), st.binary(max_size=40), st.integers(0, 60))
def test_bent_bytes_are_a_header_a_part_of_one_or_a_fault(
    header: tuple[bytes, str, int], bend: bytes, at: int
) -> None:
    data = header[0][:at] + bend + header[0][at + len(bend) :]
    try:
        found = read_proxy_header(data)
    except ProxyFault:
        return
    if found is None:
        assert len(data) < V2_BYTES_MAX
    else:
        assert 15 <= found.size <= len(data)
