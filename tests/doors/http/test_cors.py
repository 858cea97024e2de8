"""CORS: pages of other origins that may call, and the headers of replies to them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.cors import Cors
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Route
from sluicegate.policies.access import KnownCallers, OpenAccess

APP, OTHER = "https://app.example.com", "https://other.example.com"


def request(method: str = "POST", path: str = "/", **headers: str) -> HttpRequest:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    sent += [(b"host", b"api.example.com"), (b"content-type", b"application/json")]
    peer = PeerInfo("1.2.3.4", 1, Address("127.0.0.1", 7090), names=("page.test",))
    return HttpRequest(method, path, b"", sent, peer)


def handler(*origins: str, access: KnownCallers | OpenAccess | None = None) -> HttpHandler:
    found = HttpHandler(access or OpenAccess(), None)

    def work(_request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        return HttpReply(200, by.name.encode())

    found.serve(
        [Route("POST", "/", work, "", {}), Route("GET", "/", work, "", {})],
        {}, title="", summary="", version="",
    )  # fmt: skip
    found.cors = Cors(origins) if origins else None
    return found


def status(of: HttpHandler, asked: HttpRequest) -> int:
    reply = of.handle(asked)
    if not isinstance(reply, HttpReply):
        finished = reply(b"")
        assert isinstance(finished, HttpReply)
        reply = finished
    return reply.status


@pytest.mark.parametrize(
    ("origins", "origin", "expected"),
    [
        ((), APP, 403),
        ((APP,), APP, 200),
        ((APP,), OTHER, 403),
        ((APP,), "https://app.example.com:8443", 403),
        ((APP,), "http://app.example.com", 403),
        ((APP,), "https://app.example.com.evil.test", 403),
        ((APP,), "null", 403),
        ((APP, OTHER), OTHER, 200),
        (("*",), OTHER, 200),
        ((APP,), "http://api.example.com", 200),
        ((), "http://api.example.com", 200),
    ],
)
def test_page_may_send_if_its_origin_is_listed(
    origins: Sequence[str], origin: str, expected: int
) -> None:
    site = "same-origin" if "api" in origin else "cross-site"
    assert status(handler(*origins), request(origin=origin, sec_fetch_site=site)) == expected


def test_preflight_is_answered_for_listed_origins_alone() -> None:
    asks = {"access_control_request_method": "POST"}
    for origins, origin, found in (((APP,), APP, 204), ((APP,), OTHER, 404), ((), APP, 404)):
        of = handler(*origins)
        asked = request("OPTIONS", "/nowhere", origin=origin, **asks)
        reply = of.handle(asked)
        assert isinstance(reply, HttpReply)
        assert reply.status == found
        allows = (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE")
        assert (allows in reply.headers) is (found == 204)


def test_reply_is_shown_to_listed_origins_alone() -> None:
    cors, reply = Cors([APP]), HttpReply(200, b"x", headers=((b"etag", b"1"),), head=b"made before")
    shown = dict(cors.dress(request(origin=APP), reply).headers)
    assert shown[b"access-control-allow-origin"] == APP.encode()
    assert b"retry-after" in shown[b"access-control-expose-headers"]
    assert (shown[b"vary"], shown[b"etag"]) == (b"Origin", b"1")
    assert cors.dress(request(origin=APP), reply).head == b""
    for hidden in (request(origin=OTHER), request()):
        told = dict(cors.dress(hidden, reply).headers)
        assert b"access-control-allow-origin" not in told
        assert told[b"vary"] == b"Origin"
    assert b"access-control-allow-credentials" not in shown


def test_star_allows_any_origin_without_vary() -> None:
    headers = dict(Cors(["*"]).dress(request(origin=OTHER), HttpReply(200)).headers)
    assert headers[b"access-control-allow-origin"] == b"*"
    assert b"vary" not in headers


def test_star_ignores_cookies_and_certificates() -> None:
    class Certified:
        """Accepts any certificate."""

        anonymous: Identity | None = None

        def by_token(self, _token: str) -> Identity | None:
            return None

        def by_certificate(self, names: Sequence[str]) -> Identity | None:
            return Identity("page", EVERY_GRANT) if names else None

    of = handler("*", APP)
    of.access = Certified()
    for origin, expected in ((OTHER, 401), (APP, 200), ("http://api.example.com", 200)):
        asked = request(origin=origin, cookie="a=b")
        assert status(of, asked) == expected
        assert bool(asked.header(b"cookie")) is (expected == 200)
