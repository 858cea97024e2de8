"""Rows over HTTP: values as bodies, keys as bytes, conditions, times, and several at once."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.contracts.key_values import tag_of
from sluicegate.doors.http.kv.request_fields import after_text, place_after, token_bytes, token_text
from sluicegate.wire.key_values_messages import KvBounds
from tests.doors.http.kv.serving import running_door
from tests.doors.listening import LOOPS, WAIT_S, run
from tests.doors.memory_service import NOW_US, MemoryService

both = pytest.mark.parametrize("loop", sorted(LOOPS))
EVERY_BYTE = bytes(range(256))


@both
@pytest.mark.parametrize("far", [False, True])
def test_a_value_comes_back_as_it_was_sent_under_any_key(loop: str, far: bool) -> None:
    async def story() -> None:
        async with running_door(service=MemoryService(far=far)) as here:
            for partition, sort in (
                (b"ann", b"1"),
                (b"a/b c?d#e%f", b"/"),
                (b"\xff\x00", EVERY_BYTE[:240]),
                ("zoë".encode(), b"rows:get"),
            ):
                path = f"t/rows/{quote(partition, safe='')}/{quote(sort, safe='')}"
                put = await here.ask(
                    "PUT", path, content=EVERY_BYTE, headers={"content-type": "image/png"}
                )
                assert (put.status_code, put.content) == (204, b"")
                assert (partition, sort) in here.service.rows()
                got = await here.ask("GET", path)
                assert (got.status_code, got.content) == (200, EVERY_BYTE)
                assert got.headers["content-type"] == "application/octet-stream"
                assert got.headers["etag"] == f'"{tag_of(EVERY_BYTE).hex()}"'
                assert put.headers["etag"] == got.headers["etag"]
                assert "x-sluicegate-ttl-ms" not in got.headers
                head = await here.ask("HEAD", path)
                assert (head.status_code, head.content) == (200, b"")
                assert head.headers["content-length"] == "256"
                assert (await here.ask("DELETE", path)).status_code == 204
                missing = await here.ask("GET", path)
                assert missing.status_code == 404
                assert missing.headers["content-type"] == "application/problem+json"
                assert (await here.ask("DELETE", path)).status_code == 204, "it is gone either way"

    run(story, loop)


def test_a_path_without_a_sort_key_is_the_empty_one() -> None:
    async def story() -> None:
        async with running_door() as here:
            assert (await here.ask("PUT", "t/rows/ann", content=b"x")).status_code == 204
            assert list(here.service.rows()) == [(b"ann", b"")]
            assert (await here.ask("GET", "t/rows/ann")).content == b"x"
            assert (await here.ask("PUT", "t/rows/ann", content=b"")).status_code == 204
            assert (await here.ask("GET", "t/rows/ann")).content == b"", "a value may be empty"
            assert (await here.ask("DELETE", "t/rows/ann")).status_code == 204
            assert here.service.rows() == {}
            assert (await here.ask("GET", "t/rows/ann/1/2")).status_code == 404

    run(story)


async def ask_as_written(port: int, method: str, path: str) -> bytes:
    """The whole reply; a client of the usual kind would mend the path before it is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: 0\r\n\r\n".encode())
    data = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    return data


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("PUT", "rows/%zz", "path"),
        ("PUT", "rows/%", "path"),
        ("PUT", "rows/100%/1", "path"),
        ("PUT", "rows/ann/a%2", "path"),
        ("GET", "rows/ann/%2g", "path"),
        ("DELETE", "rows/ann/%g2", "path"),
        ("GET", "range/%zz", "path"),
        ("GET", "uploads/%zz", "path"),
        ("GET", "range/ann?begin=%zz", "query"),
        ("GET", "keys?after=%", "query"),
    ],
)
def test_a_percent_sign_that_begins_no_escape_is_refused(
    method: str, path: str, field: str
) -> None:
    async def story() -> None:
        async with running_door() as here:
            data = await ask_as_written(here.port, method, f"/v1/tables/t/{path}")
            assert data.startswith(b"HTTP/1.1 400 "), data
            problem = json.loads(data.partition(b"\r\n\r\n")[2])
            assert problem["field"] == field
            assert "write % as %25" in problem["detail"]
            assert here.service.rows() == {}
            table = await ask_as_written(here.port, "GET", "/v1/tables/%zz/rows/ann")
            assert table.startswith(b"HTTP/1.1 400 ")
            put = await ask_as_written(here.port, "PUT", "/v1/tables/t/rows/100%25/%fF%aB")
            assert put.startswith(b"HTTP/1.1 204 ")
            assert list(here.service.rows()) == [(b"100%", b"\xff\xab")]

    run(story)


def test_what_is_known_is_not_sent_again() -> None:
    async def story() -> None:
        async with running_door() as here:
            await here.ask("PUT", "t/rows/ann", content=b"x", params={"ttl_ms": "900"})
            tag = f'"{tag_of(b"x").hex()}"'
            for tags in (tag, f'"other", W/{tag}', "*"):
                got = await here.ask("GET", "t/rows/ann", headers={"if-none-match": tags})
                assert (got.status_code, got.content, got.headers["etag"]) == (304, b"", tag)
                assert got.headers["x-sluicegate-ttl-ms"] == "900"
            got = await here.ask("GET", "t/rows/ann", headers={"if-none-match": '"other"'})
            assert (got.status_code, got.content) == (200, b"x")
            for tags, status in ((tag, 200), ("*", 200), ('"other"', 412)):
                got = await here.ask("GET", "t/rows/ann", headers={"if-match": tags})
                assert (got.status_code, got.headers["etag"]) == (status, tag)
            for name in ("if-match", "if-none-match"):
                got = await here.ask("GET", "t/rows/ann", headers={name: "x"})
                assert (got.status_code, got.json()["field"]) == (400, name)
            none = await here.ask("GET", "t/rows/bob", headers={"if-none-match": "*"})
            assert none.status_code == 404

    run(story)


def test_a_write_under_a_condition_is_made_or_tells_what_is_there() -> None:
    async def story() -> None:
        async with running_door() as here:
            first, second = (f'"{tag_of(value).hex()}"' for value in (b"1", b"2"))
            put: Any = {"content": b"1", "headers": {"if-match": "*"}}
            got = await here.ask("PUT", "t/rows/ann", **put)
            assert got.status_code == 412
            assert "etag" not in got.headers, "nothing is there"
            got = await here.ask(
                "PUT",
                "t/rows/ann",
                content=b"1",
                headers={"if-none-match": "*"},
                params={"ttl_ms": "5"},
            )
            assert (got.status_code, got.headers["etag"]) == (204, first)
            assert here.service.rows()[b"ann", b""] == (b"1", NOW_US + 5_000)
            got = await here.ask("PUT", "t/rows/ann", content=b"2", headers={"if-none-match": "*"})
            assert (got.status_code, got.headers["etag"]) == (412, first)
            assert got.json()["status"] == 412
            got = await here.ask("PUT", "t/rows/ann", content=b"2", headers={"if-match": second})
            assert (got.status_code, got.headers["etag"]) == (412, first)
            got = await here.ask("PUT", "t/rows/ann", content=b"2", headers={"if-match": first})
            assert (got.status_code, got.headers["etag"]) == (204, second)
            assert (await here.ask("PUT", "t/rows/ann", **put)).status_code == 204
            got = await here.ask("DELETE", "t/rows/ann", headers={"if-match": second})
            assert (got.status_code, got.headers["etag"]) == (412, first)
            got = await here.ask("DELETE", "t/rows/ann", headers={"if-match": first})
            assert (got.status_code, "etag" in got.headers) == (204, False)
            assert here.service.rows() == {}
            here.service.values.raise_next(Conflict("the row", "another value"))
            got = await here.ask("PUT", "t/rows/raced", content=b"x", headers={"if-match": "*"})
            assert (got.status_code, got.json()["seen"]) == (409, "another value")

    run(story)


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"if-match": '"x"'}, "if-match"),
        ({"if-match": f'W/"{"0" * 32}"'}, "if-match"),
        ({"if-match": f'"{"0" * 32}", "{"1" * 32}"'}, "if-match"),
        ({"if-match": f'"{"A" * 32}"'}, "if-match"),
        ({"if-none-match": f'"{"0" * 32}"'}, "if-none-match"),
        ({"if-none-match": "*", "if-match": "*"}, "if-none-match"),
        ({"x-sluicegate-criticality": "vital"}, "x-sluicegate-criticality"),
        ({"x-sluicegate-deadline-ms": "-1"}, "x-sluicegate-deadline-ms"),
        ({"x-sluicegate-deadline-ms": "86400001"}, "x-sluicegate-deadline-ms"),
        ({"x-sluicegate-strong": "very"}, "x-sluicegate-strong"),
    ],
)
def test_a_header_that_cannot_be_understood_is_named(headers: dict[str, str], field: str) -> None:
    async def story() -> None:
        async with running_door() as here:
            got = await here.ask("PUT", "t/rows/ann", content=b"x", headers=headers)
            assert (got.status_code, got.json()["field"]) == (400, field)
            assert here.service.contexts == []

    run(story)


def test_a_time_to_live_is_told_and_counted_down() -> None:
    async def story() -> None:
        async with running_door() as here:
            await here.ask("PUT", "t/rows/ann", content=b"x", params={"ttl_ms": "1500"})
            here.service.clock.advance(s=0.9999)
            got = await here.ask("GET", "t/rows/ann")
            assert got.headers["x-sluicegate-ttl-ms"] == "500"
            here.service.clock.advance(s=0.5)
            got = await here.ask("GET", "t/rows/ann")
            assert got.headers["x-sluicegate-ttl-ms"] == "1", "0 would be for ever"
            here.service.clock.advance(s=0.01)
            assert (await here.ask("GET", "t/rows/ann")).status_code == 404
            for text in ("-1", "x", "", "315619200000000"):
                got = await here.ask("PUT", "t/rows/ann", content=b"x", params={"ttl_ms": text})
                assert (got.status_code, got.json()["field"]) == (400, "ttl_ms")
            got = await here.ask("PUT", "t/rows/ann", content=b"x", params={"ttl": "1"})
            assert (got.status_code, got.json()["field"]) == (400, "query")

    run(story)


def test_what_a_request_claims_reaches_the_service() -> None:
    async def story() -> None:
        async with running_door(token="all") as here:
            await here.ask("GET", "t/rows/ann")
            plain = here.service.contexts[-1]
            assert (plain.identity.name, plain.criticality, plain.deadline_us) == (
                "all",
                None,
                None,
            )
            assert (plain.strong, plain.arrived_us) == (False, NOW_US)
            claims = {
                "x-sluicegate-criticality": "best-effort",
                "x-sluicegate-deadline-ms": "250",
                "x-sluicegate-strong": "true",
            }
            for method, path, more in (
                ("GET", "t/rows/ann", {}),
                ("PUT", "t/rows/ann", {"content": b"x"}),
                ("DELETE", "t/rows/ann/1", {}),
                ("GET", "t/range/ann", {}),
                ("GET", "t/keys", {}),
                ("POST", "t/rows:get", {"json": {"places": []}}),
                ("POST", "t/rows:write", {"json": {"writes": []}}),
                ("POST", "t/rows:remove", {"json": {"places": []}}),
                ("POST", "t/rows:expire", {"json": {"partition": "ann", "ttl_ms": 1}}),
                ("GET", "t/uploads", {}),
            ):
                before = len(here.service.contexts)
                assert (await here.ask(method, path, headers=claims, **more)).status_code < 500
                assert len(here.service.contexts) == before + 1
                call = here.service.contexts[-1]
                assert (call.criticality, call.strong) == (Criticality.BEST_EFFORT, True)
                assert call.deadline_us == NOW_US + 250_000

    run(story)


def test_a_range_is_told_in_pages_from_either_side() -> None:
    async def story() -> None:
        async with running_door() as here:
            rows = {(b"ann", b"%d" % number): (b"v%d" % number, 0) for number in range(5)}
            rows[b"ann", b"\xff"] = (b"\x80", 2_000_000)
            here.service.fill("t", rows)
            got = (await here.ask("GET", "t/range/ann")).json()
            assert got["rows"][0] == {"sort": "0", "value": "v0"}
            assert got["rows"][-1] == {
                "sort_base64": b64encode(b"\xff").decode(),
                "value_base64": b64encode(b"\x80").decode(),
                "ttl_ms": 2_000,
            }
            assert got["token"] == ""
            assert here.service.spans[-1] == KeyRange()
            for reverse, expected in (("false", ["1", "2", "3"]), ("true", ["3", "2", "1"])):
                sorts: list[str] = []
                token = ""
                for _ in range(3):
                    params = {
                        "begin": "1",
                        "end": "4",
                        "rows_max": "1",
                        "reverse": reverse,
                        **({"token": token} if token else {}),
                    }
                    page = (await here.ask("GET", "t/range/ann", params=params)).json()
                    sorts += [row["sort"] for row in page["rows"]]
                    token = page["token"]
                assert (sorts, token) == (expected, "")
            await here.ask("GET", "t/range/ann?begin=%ff%2F&end=&bytes_max=9&rows_max=7")
            assert here.service.spans[-1] == KeyRange(b"\xff/", None, False, 7, 9)

    run(story)


@pytest.mark.parametrize(
    "query", ["rows_max=0", "rows_max=11", "bytes_max=4097", "reverse=x", "token=%3D", "x=1"]
)
def test_a_range_that_cannot_be_asked_names_the_field(query: str) -> None:
    async def story() -> None:
        bounds = KvBounds(rows_max=10, answer_bytes_max=4_096)
        async with running_door(bounds=bounds) as here:
            got = await here.ask("GET", f"t/range/ann?{query}")
            name = query.partition("=")[0]
            assert (got.status_code, got.json()["field"]) == (400, "query" if name == "x" else name)
            assert here.service.contexts == []
            assert (await here.ask("GET", "t/range/ann")).status_code == 200
            assert here.service.spans[-1] == KeyRange(rows_max=10, bytes_max=4_096)

    run(story)


@pytest.mark.parametrize("far", [False, True])
def test_several_rows_are_read_written_and_removed_at_once(far: bool) -> None:
    async def story() -> None:
        async with running_door(service=MemoryService(far=far)) as here:
            writes = [
                {"partition": "ann", "sort": "1", "value": "tea", "ttl_ms": 60_000},
                {"partition_base64": "/w==", "value_base64": "gICA"},
                {"partition": "ann", "sort": "2", "value": "", "delete": False},
            ]
            got = await here.ask("POST", "t/rows:write", json={"writes": writes})
            assert (got.status_code, got.json()) == (200, {"written": 3})
            assert here.service.rows() == {
                (b"ann", b"1"): (b"tea", NOW_US + 60_000_000),
                (b"\xff", b""): (b"\x80\x80\x80", 0),
                (b"ann", b"2"): (b"", 0),
            }
            places = [
                {"partition": "ann", "sort": "1"},
                {"partition": "ann"},
                {"partition_base64": "/w==", "sort_base64": ""},
            ]
            got = await here.ask("POST", "t/rows:get", json={"places": places})
            assert got.json() == {
                "rows": [
                    {"sort": "1", "value": "tea", "ttl_ms": 60_000},
                    None,
                    {"sort": "", "value_base64": "gICA"},
                ]
            }
            expiry = {"partition": "ann", "sort": "1", "ttl_ms": 7}
            got = await here.ask("POST", "t/rows:expire", json=expiry)
            assert got.json() == {"there": True}
            assert here.service.rows()[b"ann", b"1"] == (b"tea", NOW_US + 7_000)
            got = await here.ask("POST", "t/rows:expire", json={**expiry, "sort": "9"})
            assert got.json() == {"there": False}
            got = await here.ask("POST", "t/rows:remove", json={"places": places})
            assert got.json() == {"removed": 2}
            delete = {"partition": "ann", "sort": "2", "delete": True}
            await here.ask("POST", "t/rows:write", json={"writes": [delete]})
            assert here.service.rows() == {}

    run(story)


ROW = {"partition": "p", "value": "v"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("rows:get", {"places": [{}]}, "places[0].partition"),
        ("rows:get", {"places": [{"partition": 1}]}, "places[0].partition"),
        ("rows:get", {"places": [{"partition": "p", "sort": "a", "sort_base64": "YQ=="}]}, None),
        ("rows:get", {"places": [{"partition_base64": "YQ"}]}, "places[0].partition_base64"),
        ("rows:get", {"places": [{"partition_base64": 1}]}, "places[0].partition_base64"),
        ("rows:get", {"places": [{"partition": "p", "value": "v"}]}, "places[0].value"),
        ("rows:get", {"places": [{"partition": "p"}] * 4}, "places"),
        ("rows:get", {}, "places"),
        ("rows:get", [], "body"),
        ("rows:write", {"writes": [ROW] * 3}, "writes"),
        ("rows:write", {"writes": [{"partition": "p"}]}, "writes[0].value"),
        ("rows:write", {"writes": [{**ROW, "delete": True}]}, "writes[0].value"),
        ("rows:write", {"writes": [{**ROW, "delete": 1}]}, "writes[0].delete"),
        ("rows:write", {"writes": [{**ROW, "ttl_ms": -1}]}, "writes[0].ttl_ms"),
        ("rows:write", {"writes": [{**ROW, "ttl_ms": True}]}, "writes[0].ttl_ms"),
        ("rows:write", {"writes": [{**ROW, "value": "12345"}]}, "writes[0].value"),
        ("rows:write", {"writes": [{"partition": "p", "ttl_ms": 1, "delete": True}]}, None),
        ("rows:expire", {"partition": "p"}, "ttl_ms"),
        ("rows:remove", {"places": [{"partition": "\ud800"}]}, "places[0].partition"),
    ],
)
def test_json_that_cannot_be_asked_names_the_field(path: str, body: Any, field: str | None) -> None:
    async def story() -> None:
        bounds = KvBounds(places_max=3, writes_max=2, value_bytes_max=4)
        async with running_door(bounds=bounds) as here:
            kind = {"content-type": "application/json"}
            sent = json.dumps(body).encode()
            got = await here.ask("POST", f"t/{path}", content=sent, headers=kind)
            assert got.status_code == 400
            assert field in (None, got.json()["field"])
            assert here.service.contexts == []

    run(story)


def test_a_walk_goes_on_behind_any_place() -> None:
    async def story() -> None:
        async with running_door() as here:
            here.service.fill("t", {(b"\xfe%d" % n, b"/"): (b"", 0) for n in range(5)})
            places: list[Any] = []
            after = ""
            for _ in range(3):
                params = {"rows_max": "2", "after": after}
                got = (await here.ask("GET", "t/keys", params=params)).json()
                places += got["places"]
                after = got["after"]
            assert after == ""
            assert places == [
                {"partition_base64": b64encode(b"\xfe%d" % number).decode(), "sort": "/"}
                for number in range(5)
            ]
            for position in ("AgFh", "AQ", "AQRh", "!"):
                got = await here.ask("GET", "t/keys", params={"after": position})
                assert (got.status_code, got.json()["field"]) == (400, "after")

    run(story)


@given(st.none() | st.tuples(st.binary(min_size=1, max_size=240), st.binary(max_size=240)))
def test_a_place_is_the_same_when_it_comes_back(place: tuple[bytes, bytes] | None) -> None:
    assert place_after(after_text(place).encode()) == place


@given(st.binary(max_size=50))
def test_a_token_is_the_same_when_it_comes_back_and_another_is_refused(token: bytes) -> None:
    text = token_text(token).encode()
    assert token_bytes(text, "token") == token
    if text:
        with pytest.raises(BadValue):
            token_bytes(text + b"=", "token")
