"""The limiter's routes: what is answered, to whom, and in which words."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.binding import Address
from sluicegate.doors.http.audit import SINCE_US_MAX, since_us_of
from sluicegate.doors.http.site import hosts_of
from sluicegate.doors.tls import Tls, TlsFiles
from sluicegate.wire.rate_limiter_messages import CheckBounds
from sluicegate.wire.text import shorten
from tests.doors.http.serving import NOW_US, Counting, RunningDoor, answer, request, running_door
from tests.doors.listening import LOOPS, Caller, run

both = pytest.mark.parametrize("loop", sorted(LOOPS))
ADA = {"user_id": "ada", "resource_path": "/play"}


@both
@pytest.mark.parametrize("far", [False, True])
def test_a_decision_is_no_http_error_unless_it_is_asked_to_be(loop: str, far: bool) -> None:
    async def story() -> None:
        async with running_door(service=Counting(far=far)) as here:
            got = await here.ask("POST", "/v1/check", {**ADA, "weight": 4, "priority": "BULK"})
            assert got.status == 200
            assert got.headers["content-type"] == "application/json"
            assert got.json == {
                "allowed": True,
                "remaining_tokens": 1,
                "retry_after_ms": 0,
                "cluster_utilization_status": "",
                "node_utilization_status": "",
                "reset_after_ms": 60_000,
                "limit": 5,
                "rule_id": "r-1",
                "reason": "",
                "without_store": False,
                "priority": "BULK",
            }
            assert here.service.requests[-1].priority is Criticality.BULK
            got = await here.ask("POST", "/v1/check", {**ADA, "weight": 2})
            assert (got.status, got.json["allowed"], got.json["reason"]) == (
                200,
                False,
                "rate_limited",
            )
            assert "retry-after" not in got.headers
            got = await here.ask("POST", "/v1/check?status=http", {**ADA, "weight": 2})
            assert (got.status, got.json["allowed"]) == (429, False)
            assert got.headers["retry-after"] == "2"
            assert got.headers["ratelimit-policy"] == '"r-1";q=5'
            assert got.headers["ratelimit"] == '"r-1";r=1;t=2'
            got = await here.ask("POST", "/v1/check?status=auth", {**ADA, "weight": 2})
            assert (got.status, got.headers["retry-after"]) == (403, "2")
            got = await here.ask("POST", "/v1/check?status=auth", {"user_id": "bob"})
            assert (got.status, got.headers["ratelimit"]) == (200, '"r-1";r=4;t=60')
            got = await here.ask("POST", "/v1/check?status=http", {**ADA, "weight": 9})
            assert got.status == 429
            assert "retry-after" not in got.headers, "no waiting helps"
            got = await here.ask("POST", "/v1/check?status=http", {"user_id": "shed"})
            assert got.status == 503
            for status in ("http", "auth"):
                got = await here.ask("POST", f"/v1/check?status={status}", ADA)
                assert (got.status, got.json["allowed"]) == (
                    200 if status == "http" else 403,
                    status == "http",
                )

    run(story, loop)


def test_a_degraded_decision_is_marked_in_every_form_and_no_rule_has_no_fields() -> None:
    async def story() -> None:
        async with running_door() as here:
            for path in ("/v1/check", "/v1/check?status=http", "/v1/check?status=json"):
                got = await here.ask("POST", path, {"user_id": "dark"})
                assert got.headers["x-ratelimit-error"] == "store_unavailable"
                assert "ratelimit" not in got.headers
            got = await here.ask("POST", "/v1/check?status=http", {"user_id": "nobody"})
            assert got.status == 200
            assert "ratelimit-policy" not in got.headers

    run(story)


@both
def test_a_gateway_asks_with_headers_alone(loop: str) -> None:
    async def story() -> None:
        async with running_door(check_bounds=CheckBounds(text_bytes_max=100)) as here:
            got = await here.ask(
                "GET",
                "/v1/check?status=http",
                x_sluicegate_user="zoë",
                x_sluicegate_resource="/play",
                x_sluicegate_weight="5",
                x_sluicegate_priority="bulk",
                x_request_name="Play",
                x_long="a" * 101,
                cookie="secret=1",
                authorization="Bearer all",
                origin="https://shop.example",
                sec_fetch_site="cross-site",
            )
            assert got.status == 200
            ask = here.service.requests[-1]
            assert (ask.user_id, ask.resource_path, ask.cost) == ("zoë", "/play", 5)
            assert ask.priority is Criticality.BULK
            assert ask.headers["x-request-name"] == "Play"
            assert not {"cookie", "authorization", "x-sluicegate-user"} & set(ask.headers)
            assert ask.headers["x-long"] == shorten("a" * 101, 100)
            got = await here.ask("GET", "/v1/check?status=auth", x_sluicegate_user="zoë")
            assert got.status == 403
            for headers in (
                {},
                {"x_sluicegate_user": "a", "x_sluicegate_weight": "-1"},
                {"x_sluicegate_user": "a", "x_sluicegate_weight": "0"},
                {"x_sluicegate_user": "a", "x_sluicegate_priority": "odd"},
            ):
                assert (await here.ask("GET", "/v1/check", **headers)).status == 400

    run(story, loop)


def test_the_other_questions_are_answered() -> None:
    async def story() -> None:
        async with running_door() as here:
            got = await here.ask(
                "POST", "/v1/check/batch", {"requests": [ADA, ADA, {"user_id": "b"}]}
            )
            assert [one["remaining_tokens"] for one in got.json["responses"]] == [4, 3, 4]
            got = await here.ask("POST", "/v1/peek", ADA)
            assert got.json["remaining_tokens"] == 3
            assert here.service.spent["ada"] == 2
            got = await here.ask("POST", "/v1/reset", ADA)
            assert got.json == {"rules": 1}
            got = await here.ask("POST", "/v1/lease", {"request": ADA, "units": 7})
            assert (got.json["lease_id"], got.json["units"], got.json["valid_ms"]) == (
                "lease-2",
                7,
                900,
            )
            assert got.json["check"]["allowed"]
            got = await here.ask("POST", "/v1/give-back", {"lease_id": "lease-2", "units": 9})
            assert got.json == {"accepted": 7}
            assert (await here.ask("GET", "/v1/rulebook")).json["version"] == 3
            assert (await here.ask("GET", "/v1/state")).json["users"] == 1
            got = await here.ask("GET", "/metrics")
            assert got.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert got.body == b"# TYPE up gauge\nup 1\n"

    run(story)


def test_the_audit_is_asked_by_user_and_by_how_long_ago() -> None:
    async def story() -> None:
        async with running_door() as here:
            got = await here.ask("GET", "/v1/audit?user=ada&since=10m&count=7")
            assert got.json == {"user": "ada", "decisions": [{"rule": "r-1", "allowed": False}]}
            assert (await here.ask("GET", "/v1/audit?user=%C3%A9")).json["user"] == "é"
            assert here.service.audits == [("ada", NOW_US - 600_000_000, 7), ("é", None, 100)]
            for query in (
                "",
                "?user=",
                "?user=a&since=soon",
                "?user=a&since=10",
                "?user=a&count=0",
                "?user=a&count=x",
                "?user=a&user=b",
                "?who=a",
                "?user=a&since=999999999999d",
            ):
                assert (await here.ask("GET", f"/v1/audit{query}")).status == 400, query

    run(story)


@given(st.integers(0, 10**6), st.sampled_from([("us", 1), ("ms", 10**3), ("s", 10**6)]))
def test_how_long_ago_is_read_as_it_is_written(count: int, unit: tuple[str, int]) -> None:
    assert since_us_of(f"{count}{unit[0]}") == count * unit[1]


def test_nothing_is_older_than_a_year() -> None:
    assert since_us_of("366d") == SINCE_US_MAX
    with pytest.raises(BadValue, match="since"):
        since_us_of("367d")


def test_a_mesh_question_is_200_429_or_400_in_the_words_of_its_peer() -> None:
    async def story() -> None:
        async with running_door() as here:
            ask = {"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}
            got = await here.ask("POST", "/json", ask)
            assert (got.status, got.json["overallCode"]) == (200, "OK")
            got = await here.ask("POST", "/json", {**ask, "hitsAddend": 6})
            assert (got.status, got.json["overallCode"]) == (429, "OVER_LIMIT")
            assert got.json["statuses"][0]["code"] == "OVER_LIMIT"
            for wrong in (b"{", b"[]", json.dumps({**ask, "domain": ""}).encode()):
                assert (await here.ask("POST", "/json", wrong)).status == 400
            plain = {"content_type": "application/x-www-form-urlencoded"}
            assert (await here.ask("POST", "/json", ask, **plain)).status == 200
            got = await here.ask("POST", "/json", ask, **plain, origin="https://bad.example")
            assert got.status == 403

    run(story)


@both
def test_who_speaks_is_known_by_token_or_asked_for(loop: str) -> None:
    async def story() -> None:
        async with running_door(everybody=False) as here:
            got = await here.ask("POST", "/v1/check", ADA)
            assert got.status == 401
            assert got.headers["www-authenticate"] == 'Bearer realm="sluicegate"'
            got = await here.ask("POST", "/v1/check", ADA, authorization="Bearer wrong")
            assert got.status == 401
            assert 'error="invalid_token"' in got.headers["www-authenticate"]
            got = await here.ask("POST", "/v1/check", ADA, authorization="Basic YTpi")
            assert got.status == 401
            got = await here.ask("POST", "/v1/check", ADA, authorization="bearer checks")
            assert got.status == 200
            assert here.service.by == ["checks"]
            for method, path, body in (
                ("POST", "/v1/reset", ADA),
                ("POST", "/v1/lease", {"request": ADA, "units": 1}),
                ("POST", "/v1/give-back", {"lease_id": "a", "units": 1}),
                ("GET", "/v1/rulebook", None),
                ("GET", "/v1/state", None),
                ("GET", "/v1/audit?user=a", None),
                ("GET", "/metrics", None),
            ):
                got = await here.ask(method, path, body, authorization="Bearer checks")
                assert got.status == 403, path
                assert got.json["grant"] in ("reset", "lease", "audit")
                got = await here.ask(method, path, body, authorization="Bearer all")
                assert got.status == 200, path
            for path in ("/healthz", "/readyz", "/openapi.json"):
                assert (await here.ask("GET", path)).status == 200

    run(story, loop)


@pytest.mark.parametrize(
    ("authorization", "remedy"),
    [
        ({}, "send Authorization: Bearer and a token"),
        ({"authorization": "Bearer wrong"}, "send the token of a caller"),
        ({"authorization": "Basic YTpi"}, "send Authorization: Bearer, once"),
    ],
)
def test_remedy_of_problem_401_differs_from_its_detail(
    authorization: dict[str, str], remedy: str
) -> None:
    async def story() -> None:
        async with running_door(everybody=False) as here:
            told = (await here.ask("POST", "/v1/check", ADA, **authorization)).json
            assert told["remedy"].startswith(remedy)
            assert told["remedy"] not in told["detail"]

    run(story)


def test_a_wrong_token_is_refused_even_where_none_is_needed() -> None:
    async def story() -> None:
        async with running_door() as here:
            assert (await here.ask("POST", "/v1/check", ADA)).status == 200
            got = await here.ask("POST", "/v1/check", ADA, authorization="Bearer wrong")
            assert got.status == 401

    run(story)


def test_metrics_are_open_where_that_is_said() -> None:
    async def story() -> None:
        async with running_door(everybody=False, metrics_open=True) as here:
            assert (await here.ask("GET", "/metrics")).status == 200

    run(story)


def test_a_client_certificate_is_an_identity(tmp_path: Path) -> None:
    ca = trustme.CA()
    server = ca.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(str(tmp_path / "key"))
    server.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    ca.cert_pem.write_to_path(str(tmp_path / "ca"))
    files = TlsFiles(str(tmp_path / "cert"), str(tmp_path / "key"), str(tmp_path / "ca"))

    def context(name: str) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(tmp_path / "ca"))
        ca.issue_cert(f"{name}.example", common_name=name).configure_cert(made)
        return made

    async def story() -> None:
        async with running_door(everybody=False, tls=Tls(files)) as here:
            for name, status in (("gateway", 200), ("stranger", 401)):
                async with httpx.AsyncClient(verify=context(name)) as client:
                    got = await client.post(f"https://{here.host}/v1/check", json=ADA)
                    assert got.status_code == status
                    got = await client.get(f"https://{here.host}/healthz")
                    assert got.status_code == 200
            assert here.service.by == ["gateway"]

    run(story)


def test_health_is_answered_whatever_else_is_refused_and_readiness_says_why_not() -> None:
    async def story() -> None:
        async with running_door(everybody=False, hosts=frozenset({"other"})) as here:
            assert (await here.ask("GET", "/healthz")).json == {"status": "ok"}
            assert (await here.ask("HEAD", "/healthz")).status == 200
            assert (await here.ask("GET", "/readyz")).json == {"ready": True, "reason": ""}
            here.service.ready = "no rules are in force"
            got = await here.ask("GET", "/readyz")
            assert (got.status, got.json["reason"]) == (503, "no rules are in force")
            assert (await here.ask("GET", "/healthz")).status == 200

    run(story)


def test_beyond_the_most_connections_health_alone_is_answered() -> None:
    async def story() -> None:
        async with running_door(listener={"connections_max": 1}) as here:
            first = await here.call(request("GET", "/healthz", here.host))
            assert (await answer(first)).status == 200
            assert (await here.ask("GET", "/healthz")).status == 200
            assert (await here.ask("GET", "/readyz")).status == 200
            got = await here.ask("POST", "/v1/check", ADA)
            assert (got.status, got.headers["connection"]) == (503, "close")
            assert not here.service.requests
            await first.leave()

    run(story)


def test_a_page_of_another_site_gets_nothing_done() -> None:
    async def story() -> None:
        async with running_door() as probe:
            port = probe.port
        own = Address("127.0.0.1", port)
        async with running_door(address=str(own), hosts=hosts_of([own], secret=True)) as here:
            for name in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
                assert (await here.ask("POST", "/v1/check", ADA, host=name)).status == 200
            for name in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}0"):
                assert (await here.ask("POST", "/v1/check", ADA, host=name)).status == 421
                assert (await here.ask("GET", "/v1/state", host=name)).status == 421
            requests_before = len(here.service.requests)
            for headers in (
                {"origin": "https://evil.example"},
                {"origin": "null"},
                {"origin": f"https://127.0.0.1:{port}"},
                {"sec_fetch_site": "cross-site"},
                {"sec_fetch_site": "same-site"},
            ):
                assert (await here.ask("POST", "/v1/check", ADA, **headers)).status == 403
            for kind in (
                "text/plain",
                "application/x-www-form-urlencoded",
                "",
                "multipart/form-data",
            ):
                got = await here.ask("POST", "/v1/check", ADA, content_type=kind)
                assert got.status == 415
            assert len(here.service.requests) == requests_before
            own_page = {"origin": f"http://127.0.0.1:{port}", "sec_fetch_site": "same-origin"}
            assert (await here.ask("POST", "/v1/check", ADA, **own_page)).status == 200
            typed = "application/json; charset=utf-8"
            assert (await here.ask("POST", "/v1/check", ADA, content_type=typed)).status == 200
            got = await here.ask(
                "OPTIONS",
                "/v1/check",
                origin="https://evil.example",
                access_control_request_method="POST",
            )
            assert not any(name.startswith("access-control") for name in got.headers)

    run(story)


def test_a_listeners_own_hosts_are_known_and_a_public_one_is_called_by_any_name() -> None:
    local = Address("127.0.0.1", 80)
    assert hosts_of([local], secret=True) == frozenset(
        {
            "127.0.0.1:80",
            "localhost:80",
            "[::1]:80",
            "127.0.0.1",
            "localhost",
            "[::1]",
        }
    )
    assert hosts_of([Address("", 0, "/a")], secret=False) == frozenset({"localhost"})
    assert hosts_of([local, Address("0.0.0.0", 80)], secret=True) is None
    named = hosts_of([Address("0.0.0.0", 7070)], ["Limits.example"], secret=True)
    assert named is not None
    assert "limits.example" in named


def test_what_is_not_there_and_what_is_not_meant_is_told() -> None:
    async def story() -> None:
        async with running_door() as here:
            got = await here.ask("GET", "/nothing")
            assert (got.status, got.json["title"]) == (404, "Not Found")
            got = await here.ask("DELETE", "/v1/check")
            assert (got.status, got.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
            got = await here.ask("POST", "/healthz", {})
            assert (got.status, got.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
            got = await here.ask("OPTIONS", "/v1/lease")
            assert (got.status, got.headers["allow"]) == (204, "OPTIONS, POST")
            assert "content-length" not in got.headers
            assert (await here.ask("OPTIONS", "*")).status == 204
            got = await here.ask("POST", "/v1/check", b"{")
            assert (got.status, got.json["field"]) == (400, "body")
            assert got.json["remedy"].startswith("send JSON")
            got = await here.ask("POST", "/v1/check", {**ADA, "wait": 1})
            assert got.json["field"] == "wait"
            got = await here.ask("POST", "/v1/check?status=odd", ADA)
            assert got.json["field"] == "status"
            got = await here.ask("POST", "/v1/check?other=1", ADA)
            assert got.status == 400
            got = await here.ask("POST", "/v1/check", {"user_id": "silent"})
            assert (got.status, got.headers["retry-after"]) == (503, "1")
            got = await here.ask("POST", "/json", {"domain": "d", "descriptors": [], "x": 1})
            assert (got.status, got.headers["content-type"][:10]) == (400, "text/plain")

    run(story)


def test_httpx_is_served() -> None:
    async def story() -> None:
        async with (
            running_door() as here,
            httpx.AsyncClient(base_url=f"http://{here.host}") as client,
        ):
            for _ in range(5):
                assert (await client.post("/v1/check", json=ADA)).json()["allowed"]
            got = await client.post("/v1/check", params={"status": "http"}, json=ADA)
            assert got.status_code == 429

            async def chunks() -> Any:
                yield b'{"user_id": '
                yield b'"bob"}'

            typed = {"content-type": "application/json"}
            got = await client.post("/v1/check", content=chunks(), headers=typed)
            assert got.json()["remaining_tokens"] == 4

    run(story)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_is_served(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"

    async def curl(here: RunningDoor, *words: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, ["curl", "-s", "-m", "60", *words], capture_output=True, check=True
        )
        return done.stdout.decode()

    async def story() -> None:
        async with running_door() as here:
            url = f"http://{here.host}"
            typed_words = ("-H", "content-type: application/json")
            long = json.dumps({"user_id": "eve", "headers": {"h": "x" * 3_000}})
            output = await curl(here, *typed_words, "-d", long, f"{url}/v1/check")
            assert json.loads(output)["allowed"]
            expects = ("-H", "expect: 100-continue", "-w", "%{http_code}", "-o", "/dev/null")
            assert await curl(here, *typed_words, *expects, "-d", long, f"{url}/v1/check") == "200"
            assert (
                await curl(
                    here, "-w", "%{http_code}", "-o", "/dev/null", "--http2", f"{url}/healthz"
                )
                == "200"
            )
            assert await curl(here, "-0", f"{url}/healthz") == '{"status":"ok"}\n'
            assert "200 OK" in await curl(here, "-I", f"{url}/v1/state")
        async with running_door(
            address=f"unix:{path}", hosts=hosts_of([Address("", 0, str(path))], secret=True)
        ) as here:
            output = await curl(here, "--unix-socket", str(path), "http://localhost/v1/rulebook")
            assert json.loads(output)["version"] == 3

    run(story)


def test_users_of_different_connections_never_see_each_other() -> None:
    async def story() -> None:
        async with running_door(service=Counting(far=True)) as here:

            async def one(number: int) -> None:
                caller: Caller = await here.call()
                for left in (4, 3, 2):
                    ask = {"user_id": f"user-{number}"}
                    caller.writer.write(request("POST", "/v1/check", here.host, ask))
                    assert (await answer(caller)).json["remaining_tokens"] == left
                await caller.leave()

            await asyncio.gather(*(one(number) for number in range(50)))

    run(story)
