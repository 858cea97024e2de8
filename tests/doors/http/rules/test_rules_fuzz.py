"""Whatever is sent, it is answered, and never with a fault of ours. And curl is served."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doors.http.rules.serving import RunningRulesDoor, rules_of, running_rules_door, token_of
from tests.doors.http.serving import answer, request
from tests.doors.listening import run

WORDS = (
    "{id}",
    "live",
    "1",
    "p00000000001",
    "shop.yaml",
    "",
    "..",
    "%00",
    "a/b",
    "\ud7ff",
    "é",
    "0" * 200,
)
NAMES = (
    "base",
    "changes",
    "message",
    "reason",
    "override",
    "share",
    "kind",
    "to",
    "node",
    "version",
)
TEXT = st.one_of(st.sampled_from(WORDS), st.text(max_size=20))
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        TEXT,
        st.just("rules:\n  - limit: 1\n"),
        st.sampled_from(("rules: [\n", "\ud800", "\0")),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(NAMES), TEXT), inner, max_size=5),
    ),
    max_leaves=12,
)
ASK = st.fixed_dictionaries(
    {"base": st.sampled_from(("live", "1", "x")), "message": TEXT},
    optional={"changes": st.dictionaries(TEXT, st.one_of(st.none(), TEXT)), "reason": JSON},
)
BODY = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    ASK.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
)
POSTS = (
    "proposals",
    "proposals/p00000000001/judge",
    "proposals/p00000000001/approve",
    "proposals/p00000000001/reject",
    "proposals/p00000000001/publish",
    "proposals/p00000000001/canary",
    "proposals/{}/approve",
    "rollback",
    "pins",
)
GETS = (
    "",
    "/files/{}",
    "/diff",
    "/proposals",
    "/proposals/{}",
    "/versions",
    "/status",
    "/audit",
    "/report/{}",
    "/wait",
)
FIELDS = ("at", "from", "to", "state", "count", "version", "nodes", "timeout_s", "form", "x")
HEADERS = st.dictionaries(
    st.sampled_from(("if_match", "if_none_match", "idempotency_key", "origin", "content_type")),
    st.sampled_from(("*", '"a"', 'W/"a"', "k", "x y", ",", "application/json", '"' * 9)),
    max_size=2,
)
SENT = st.one_of(
    st.tuples(st.just("POST"), st.sampled_from(POSTS), TEXT, st.just(""), BODY, HEADERS),
    st.tuples(
        st.just("GET"),
        st.sampled_from(GETS),
        TEXT,
        st.lists(st.tuples(st.sampled_from(FIELDS), TEXT), max_size=3).map(
            lambda pairs: "&".join(f"{name}={quote(value)}" for name, value in pairs)
        ),
        st.just(b""),
        HEADERS,
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SENT, min_size=8, max_size=24))
def test_no_request_is_a_fault_of_ours(sent: list[Any]) -> None:
    async def story() -> None:
        async with running_rules_door(wait_s_max=0.01) as here:
            await here.propose(rules_of(1))
            caller = await here.call()
            for method, path, word, query, body, headers in sent:
                place = path.replace("{}", quote(word, safe=""))
                root = "/v1/rules" if method == "GET" else "/v1/rules/"
                target = f"{root}{place}{'?' if query else ''}{query}"
                fields = {"authorization": f"Bearer {token_of('bob')}", **headers}
                caller.writer.write(
                    request(method, target, here.host, body if method == "POST" else None, **fields)
                )
                got = await answer(caller, head=False)
                assert got.status < 500, (method, target, body, got.body)
                if got.status >= 400:
                    assert got.json["status"] == got.status
                    assert got.json["detail"]
                if got.headers.get("connection") == "close":
                    await caller.leave()
                    caller = await here.call()
            await caller.leave()
            assert here.door.faults == 0

    run(story)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_is_served_as_the_guide_says() -> None:
    async def curl(here: RunningRulesDoor, path: str, *words: str) -> Any:
        done = await asyncio.to_thread(
            subprocess.run,
            [
                *("curl", "-s", "-m", "60", "-H", f"authorization: Bearer {token_of('bob')}"),
                *words,
                f"http://{here.host}/v1/rules{path}",
            ],
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout)

    async def story() -> None:
        async with running_rules_door() as here:
            live = await curl(here, "")
            ask = {"base": live["commit"], "changes": {"a.yaml": rules_of(5)}, "message": "m"}
            post = ("-H", "content-type: application/json", "-H", "idempotency-key: k", "-d")
            made = await curl(here, "/proposals", *post, json.dumps(ask))
            assert made == await curl(here, "/proposals", *post, json.dumps(ask))
            assert (await curl(here, f"/proposals/{made['id']}"))["state"] == "open"
            refused = await curl(here, "/proposals", "-d", json.dumps(ask))
            assert refused["status"] == 415

    run(story)
