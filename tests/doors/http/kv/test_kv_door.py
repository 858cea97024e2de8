"""The door itself: who may, from where, how much, refusals, health, and the document."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.reasons import (
    COST_ABOVE_LIMIT,
    DEADLINE,
    QUOTA_SPENT,
    RATE_LIMITED,
    SHED,
    Reason,
)
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.wire.key_values_messages import KvBounds
from tests.doors.http.kv.serving import running_door
from tests.doors.listening import Caller, run
from tests.doors.memory_service import MemoryService, refused

JSON = {"content-type": "application/json"}


def test_nobody_is_asked_for_a_name_and_who_has_one_for_a_grant() -> None:
    async def story() -> None:
        async with running_door(everybody=False) as here:
            for method, path in (
                ("GET", "t/rows/a"),
                ("PUT", "t/rows/a"),
                ("GET", "/v1/state"),
                ("GET", "/metrics"),
            ):
                got = await here.ask(method, path, content=b"")
                assert (got.status_code, "www-authenticate" in got.headers) == (401, True)
            wrong = await here.ask("GET", "t/rows/a", headers={"authorization": "Bearer x"})
            assert wrong.status_code == 401
            mine: dict[str, Any] = {"headers": {"authorization": "Bearer reads"}}
            assert (await here.ask("GET", "t/rows/a", **mine)).status_code == 404
            assert (await here.ask("GET", "t/keys", **mine)).status_code == 200
            for method, path, grant in (
                ("GET", "other/rows/a", "read on other"),
                ("GET", "%6Fther/rows/a", "read on other"),
                ("PUT", "t/rows/a", "write on t"),
                ("DELETE", "t/rows/a/b", "write on t"),
                ("PUT", "t/uploads/u/parts/0", "bulk on t"),
                ("GET", "t/uploads", "bulk on t"),
                ("GET", "/v1/state", "audit"),
                ("GET", "/v1/hot", "audit"),
                ("GET", "/v1/audit?user=ann", "audit"),
                ("GET", "/metrics", "audit"),
            ):
                got = await here.ask(method, path, **mine)
                assert (got.status_code, got.json()["grant"]) == (403, grant)
            body = {"json": {"folder": "/b"}}
            got = await here.ask("POST", "/v1/backup", **mine, **body)
            assert (got.status_code, got.json()["grant"]) == (403, "operate")
            assert here.service.folders == []
            for action, grant in (("get", "read"), ("write", "write"), ("remove", "write")):
                got = await here.ask("POST", f"x/rows:{action}", json={}, **mine)
                assert got.json()["grant"] == f"{grant} on x"
            assert [call.identity.name for call in here.service.contexts] == ["reads", "reads"]

    run(story)


def test_another_site_s_page_neither_reads_nor_writes() -> None:
    async def story() -> None:
        async with running_door() as here:
            for headers in (
                {"sec-fetch-site": "cross-site"},
                {"sec-fetch-site": "same-site"},
                {"origin": "https://shop.example"},
            ):
                for method in ("GET", "PUT", "DELETE"):
                    got = await here.ask(method, "t/rows/a", headers=headers)
                    assert got.status_code == 403
                got = await here.ask("POST", "t/rows:get", json={"places": []}, headers=headers)
                assert got.status_code == 403
            assert here.service.contexts == []
            own = {"origin": f"http://127.0.0.1:{here.port}", "sec-fetch-site": "same-origin"}
            assert (await here.ask("PUT", "t/rows/a", headers=own)).status_code == 204
            got = await here.ask("OPTIONS", "t/rows/a/b")
            assert (got.status_code, got.headers["allow"]) == (
                204,
                "DELETE, GET, HEAD, OPTIONS, PUT",
            )
            assert not [name for name in got.headers if name.startswith("access-control")]
            assert (await here.ask("PATCH", "t/rows/a")).status_code == 405
            assert (await here.ask("GET", "t/nothing")).status_code == 404
        async with running_door(hosts=frozenset({"kv.example"})) as here:
            assert (await here.ask("GET", "t/rows/a")).status_code == 421
            assert (await here.ask("GET", "/healthz")).status_code == 200

    run(story)


def test_a_body_of_the_wrong_type_or_length_is_refused_by_its_head() -> None:
    async def story() -> None:
        bounds = KvBounds(value_bytes_max=100)
        async with running_door(bounds=bounds, part_bytes_max=2_000, json_bytes_max=1_024) as here:
            for path in ("t/rows:get", "t/rows:write", "/v1/backup", "t/uploads/u:commit"):
                got = await here.ask("POST", path, content=b"{}", headers={"content-type": "a/b"})
                assert got.status_code == 415
            got = await here.ask("PUT", "t/uploads/u", content=b"{}")
            assert got.status_code == 415
            for name, status in (("content-encoding", 415), ("content-range", 400)):
                value = {"content-encoding": "gzip", "content-range": "bytes 0-1/2"}[name]
                got = await here.ask("PUT", "t/rows/a", content=b"x", headers={name: value})
                assert got.status_code == status

            async def pieces(size: int) -> Any:
                for _ in range(size):
                    yield b"x"

            for method, path, most, bound in (
                ("PUT", "t/rows/a", 100, "value_bytes_max"),
                ("PUT", "t/rows/a/b", 100, "value_bytes_max"),
                ("POST", "t/rows:get", 1_024, "json_bytes_max"),
                ("PUT", "t/uploads/u/parts/0", 2_000, "part_bytes_max"),
            ):
                for content in (b"x" * (most + 1), pieces(most + 1)):
                    got = await here.ask(method, path, content=content, headers=JSON)
                    assert got.status_code == 413
                    # Of what says no length, the longest is stopped by the door's own bound.
                    assert bound in got.json()["detail"] or most == 2_000
                got = await here.ask(method, path, content=b"x" * most, headers=JSON)
                assert got.status_code in (204, 400)
            assert set(here.service.rows()) == {(b"a", b""), (b"a", b"b")}
        assert KvHttpSettings(part_bytes_max=9 << 20).body_bytes_max == 9 << 20
        assert KvHttpSettings(bounds=KvBounds(value_bytes_max=16 << 20)).body_bytes_max == 16 << 20
        for wrong in ({"quota_status": 418}, {"part_bytes_max": 1}, {"json_bytes_max": 1 << 40}):
            with pytest.raises(BadValue, match=f"^kv.{next(iter(wrong))}"):
                KvHttpSettings(**wrong)  # type: ignore[arg-type]

    run(story)


def test_who_has_no_leave_is_told_before_the_body_is_sent() -> None:
    async def story() -> None:
        async with running_door(bounds=KvBounds(value_bytes_max=100), everybody=False) as here:
            for token, size, status in (("all", 101, 413), ("reads", 100, 403), ("x", 100, 401)):
                reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
                caller = Caller(reader, writer)
                writer.write(
                    b"PUT /v1/tables/t/rows/a HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n"
                    b"authorization: Bearer %b\r\n\r\n" % (size, token.encode())
                )
                await caller.hears(b"HTTP/1.1 %d " % status)
                await caller.leave()
            assert here.service.contexts == []

    run(story)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(
    ("reason", "after_us", "status", "seconds", "after_ms", "retry"),
    [
        (QUOTA_SPENT, 1_234_500, 429, "2", 1_235, "later"),
        (QUOTA_SPENT, 1_000, 429, "1", 1, "later"),
        (RATE_LIMITED, 2_000_000, 429, "2", 2_000, "later"),
        (COST_ABOVE_LIMIT, -1, 429, None, None, "never"),
        (SHED, 0, 503, "1", 1_000, "elsewhere"),
        (DEADLINE, 0, 504, None, None, "never"),
        (None, 0, 503, "1", 1_000, "elsewhere"),
    ],
)
def test_a_refusal_says_why_and_exactly_when_to_come_back(
    far: bool,
    reason: Reason | None,
    after_us: int,
    status: int,
    seconds: str | None,
    after_ms: int | None,
    retry: str,
) -> None:
    async def story() -> None:
        async with running_door(service=MemoryService(far=far)) as here:
            for method, path, more in (
                ("GET", "t/rows/a", {}),
                ("PUT", "t/rows/a", {"content": b"x"}),
                ("GET", "t/range/a", {}),
                ("POST", "t/rows:get", {"json": {"places": []}}),
                ("GET", "t/uploads", {}),
            ):
                here.service.values.raise_next(refused(reason, after_us))
                got = await here.ask(method, path, **more)
                assert (got.status_code, got.headers.get("retry-after")) == (status, seconds)
                assert got.headers["content-type"] == "application/problem+json"
                problem = got.json()
                name = "store_unavailable" if reason is None else reason.name
                assert (problem["reason"], problem["status"], problem["retry"]) == (
                    name,
                    status,
                    retry,
                )
                assert problem.get("retry_after_ms") == after_ms
                assert problem["rule"] == "ann"

    run(story)


def test_spent_units_have_a_status_of_their_own_by_setting() -> None:
    async def story() -> None:
        async with running_door(quota_status=419) as here:
            here.service.values.raise_next(refused(QUOTA_SPENT, 1))
            got = await here.ask("GET", "t/rows/a")
            assert (got.status_code, got.json()["status"]) == (419, 419)
            assert got.headers["retry-after"] == "1"
            here.service.values.raise_next(refused(RATE_LIMITED, 1))
            assert (await here.ask("GET", "t/rows/a")).status_code == 429, "that one alone"

    run(story)


def test_an_engine_that_is_away_and_a_bug_of_ours_are_told_apart() -> None:
    async def story() -> None:
        async with running_door() as here:
            here.service.values.raise_next(Unavailable("the engine", "nothing for a second"))
            got = await here.ask("PUT", "t/rows/a", content=b"x")
            assert (got.status_code, got.headers["retry-after"]) == (503, "1")
            assert got.json()["what"] == "the engine"
            assert (await here.ask("GET", "t/rows/bug")).status_code == 500
            got = await here.ask("GET", "T/rows/a")
            assert (got.status_code, got.json()["field"]) == (400, "table")
            got = await here.ask("GET", f"t/rows/{'a' * 241}")
            assert (got.status_code, got.json()["field"]) == (400, "partition")
            got = await here.ask("GET", "%FF/rows/a")
            assert (got.status_code, got.json()["field"]) == (400, "table")

    run(story)


@pytest.mark.parametrize("far", [False, True])
def test_health_needs_no_name_and_the_rest_is_for_who_may(far: bool) -> None:
    async def story() -> None:
        async with running_door(
            service=MemoryService(far=far), everybody=False, metrics_open=True
        ) as here:
            assert (await here.ask("GET", "/healthz")).json() == {"status": "ok"}
            assert (await here.ask("GET", "/readyz")).status_code == 200
            here.service.ready = "draining"
            got = await here.ask("GET", "/readyz")
            assert (got.status_code, got.json()["reason"]) == (503, "draining")
            assert "up 1" in (await here.ask("GET", "/metrics")).text
            mine: dict[str, Any] = {"headers": {"authorization": "Bearer all"}}
            assert (await here.ask("GET", "/v1/state", **mine)).json() == {"asked": 0}
            assert (await here.ask("GET", "/v1/hot", **mine)).json() == {"keys": []}
            got = await here.ask("POST", "/v1/backup", json={"folder": "/b"}, **mine)
            assert (got.json(), here.service.folders) == ({"bytes": 4096}, ["/b"])
            for folder in ("", None, 1, "x" * 5_000):
                got = await here.ask("POST", "/v1/backup", json={"folder": folder}, **mine)
                assert (got.status_code, got.json()["field"]) == (400, "folder")
            got = await here.ask(
                "POST",
                "/v1/backup",
                content=rb'{"folder": "/b/\ud800"}',
                headers={**JSON, **mine["headers"]},
            )
            assert (got.status_code, got.json()["field"]) == (400, "folder")
            assert "send text that UTF-8 can hold" in got.json()["detail"]
            assert here.service.folders == ["/b"]

    run(story)


PLACE = {"partition": "ann"}
SHA = "0" * 64
CALLS: dict[tuple[str, str], Any] = {
    ("PUT", "/v1/tables/t/rows/ann/1"): b"x",
    ("GET", "/v1/tables/t/rows/ann/1"): None,
    ("DELETE", "/v1/tables/t/rows/ann/1"): None,
    ("PUT", "/v1/tables/t/rows/ann"): b"x",
    ("GET", "/v1/tables/t/rows/ann"): None,
    ("GET", "/v1/tables/t/rows/bob"): None,
    ("GET", "/v1/tables/t/range/ann"): None,
    ("POST", "/v1/tables/t/rows:get"): {"places": [PLACE, {"partition_base64": "/w=="}]},
    ("POST", "/v1/tables/t/rows:write"): {"writes": [{**PLACE, "value": "v", "ttl_ms": 5}]},
    ("POST", "/v1/tables/t/rows:expire"): {**PLACE, "ttl_ms": 5},
    ("GET", "/v1/tables/t/keys"): None,
    ("POST", "/v1/tables/t/rows:remove"): {"places": [PLACE]},
    ("DELETE", "/v1/tables/t/rows/ann"): None,
    ("PUT", "/v1/tables/t/uploads/u"): {"mode": "merge"},
    ("PUT", "/v1/tables/t/uploads/u/parts/0"): b'{"partition":"p","value":"v"}\n',
    ("GET", "/v1/tables/t/uploads/u"): None,
    ("GET", "/v1/tables/t/uploads"): None,
    ("POST", "/v1/tables/t/uploads/u:commit"): {"parts": 1, "rows": 1, "sha256": SHA},
    ("DELETE", "/v1/tables/t/uploads/u"): None,
    ("GET", "/v1/state"): None,
    ("GET", "/v1/hot"): None,
    ("GET", "/v1/audit?user=ann"): None,
    ("POST", "/v1/backup"): {"folder": "/b"},
    ("GET", "/openapi.json"): None,
    ("GET", "/metrics"): None,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
}
TEMPLATES = {
    "t": "{table}",
    "u": "{name}",
    "u:commit": "{name}:commit",
    "ann": "{partition}",
    "bob": "{partition}",
    "1": "{sort}",
    "0": "{number}",
}


def template(path: str) -> str:
    """The path as the document has it."""
    return "/".join(TEMPLATES.get(part, part) for part in path.partition("?")[0].split("/"))


def test_the_document_is_valid_and_every_answer_is_as_it_says() -> None:
    async def story() -> None:
        async with running_door() as here:
            document = (await here.ask("GET", "/openapi.json")).json()
            OpenAPIV31SpecValidator(document).validate()
            operations = {
                (method.upper(), path)
                for path, methods in document["paths"].items()
                for method in methods
            }
            assert operations == {(method, template(path)) for method, path in CALLS}
            for (method, path), body in CALLS.items():
                operation = document["paths"][template(path)][method.lower()]
                more: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {}
                if isinstance(body, dict):
                    schema = operation["requestBody"]["content"]["application/json"]["schema"]
                    _check(document, schema, body)
                    more = {"json": body}
                if "parts" in path:
                    digest = "sha-256=:IEXSrG97Bk7KxWMUr2nRVa/UMCvOTHm0AHuHA2+31QY=:"
                    kind = "application/x-ndjson"
                    more["headers"] = {"content-type": kind, "content-digest": digest}
                _check_documented(document, operation, await here.ask(method, path, **more))
            uploads = document["paths"][template("/v1/tables/t/uploads")]["get"]
            assert "`bulk` on the table" in uploads["description"]

    run(story)


def _check_documented(document: Any, operation: Any, got: httpx.Response) -> None:
    response = operation["responses"].get(str(got.status_code), operation["responses"]["default"])
    if not got.content:
        assert "content" not in response
        return
    kind = got.headers["content-type"].partition(";")[0]
    assert kind in response["content"], (operation["operationId"], got.text)
    if kind.endswith("json"):
        _check(document, response["content"][kind]["schema"], json.loads(got.content))


def _check(document: Any, schema: Any, value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)
