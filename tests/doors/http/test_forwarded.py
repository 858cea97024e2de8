"""Forwarding headers count from trusted proxies, and from no other peer."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.forwarded import TrustedProxies
from sluicegate.doors.http.message import HttpRequest
from sluicegate.doors.http.site import other_site

PROXIES = TrustedProxies([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])
PROXY = "10.0.0.2"


def told(*headers: tuple[str, str], peer: str = PROXY) -> tuple[str, bool, str] | int:
    """Client, TLS and host of a request; the status, if it is refused."""
    sent = [(name.lower().encode(), value.encode()) for name, value in headers]
    sent.insert(0, (b"host", b"inner:7090"))
    request = HttpRequest("GET", "/", b"", sent, PeerInfo(peer, 1, Address("127.0.0.1", 7090)))
    refusal = PROXIES.introduce(request)
    if refusal is not None:
        return refusal.status
    return request.peer.host, request.peer.tls, request.header(b"host").decode()


FOR, PROTO, HOST = "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"
INNER = "inner:7090"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], (PROXY, False, INNER)),
        ([(FOR, "1.2.3.4")], ("1.2.3.4", False, INNER)),
        ([(PROTO, "https")], (PROXY, True, INNER)),
        ([(PROTO, "HTTPS"), (HOST, "App.example.com:8443")], (PROXY, True, "app.example.com:8443")),
        ([(FOR, "6.6.6.6, 1.2.3.4"), (PROTO, "https")], ("1.2.3.4", True, INNER)),
        ([(FOR, "6.6.6.6, 1.2.3.4, 10.9.9.9")], ("1.2.3.4", False, INNER)),
        ([(FOR, "6.6.6.6"), (FOR, "1.2.3.4, 10.9.9.9")], ("1.2.3.4", False, INNER)),
        ([(FOR, "10.1.1.1, 10.9.9.9")], ("10.1.1.1", False, INNER)),
        ([(FOR, "unknown, 10.9.9.9")], ("10.9.9.9", False, INNER)),
        ([(FOR, "[2001:db8::1]:80")], ("2001:db8::1", False, INNER)),
        ([(PROTO, "https, http")], (PROXY, False, INNER)),
        ([(PROTO, "wss")], (PROXY, True, INNER)),
        ([("Forwarded", "for=1.2.3.4;proto=https;host=a.example")], ("1.2.3.4", True, "a.example")),
        ([("Forwarded", 'for=6.6.6.6, for="[2001:db8::1]:9";proto=https')],
         ("2001:db8::1", True, INNER)),
        ([("Forwarded", "for=1.2.3.4;proto=https"), (FOR, "1.2.3.4"), (PROTO, "https")],
         ("1.2.3.4", True, INNER)),
        # A client that adds the family which its proxy does not write chooses nothing.
        ([("Forwarded", "for=1.2.3.4;proto=https;host=evil"), (FOR, "1.2.3.4")], 400),
        ([("Forwarded", "for=6.6.6.6"), (FOR, "1.2.3.4")], 400),
        ([("Forwarded", "for=1.2.3.4"), (FOR, "1.2.3.4"), (PROTO, "https")], 400),
        ([(PROTO, "gopher")], 400),
        ([(HOST, "a/b")], 400),
        ([(HOST, "a@b")], 400),
    ],
)  # fmt: skip
def test_headers_of_trusted_proxy_count(
    headers: list[tuple[str, str]], expected: tuple[str, bool, str] | int
) -> None:
    assert told(*headers) == expected


@pytest.mark.parametrize("peer", ["11.0.0.1", "", "::1"])
def test_headers_of_others_count_for_nothing(peer: str) -> None:
    headers = [(FOR, "1.2.3.4"), (PROTO, "https"), (HOST, "evil"), ("Forwarded", "proto=https")]
    assert told(*headers, peer=peer) == (peer, False, INNER)


def test_ipv4_proxy_as_ipv6_is_trusted() -> None:
    assert told((FOR, "1.2.3.4"), peer="::ffff:10.0.0.2") == ("1.2.3.4", False, INNER)
    assert told((FOR, "1.2.3.4"), peer="fd00::1") == ("1.2.3.4", False, INNER)


def test_long_list_of_proxies_is_read_to_a_bound() -> None:
    assert told((FOR, "1.2.3.4" + ", 10.0.0.1" * 100)) == ("10.0.0.1", False, INNER)


def test_own_page_behind_tls_proxy_is_own_site() -> None:
    headers = [(b"host", b"a.example"), (b"origin", b"https://a.example")]
    peer = PeerInfo(PROXY, 1, Address("127.0.0.1", 7090))
    request = HttpRequest("POST", "/", b"", headers, peer)
    assert other_site(request) is not None
    secure = HttpRequest("POST", "/", b"", [*headers, (b"x-forwarded-proto", b"https")], peer)
    assert PROXIES.introduce(secure) is None
    assert other_site(secure) is None
