"""Uploads over HTTP: parts as streams and as lines of JSON, digests, and how they end."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.kv.uploads import LINES_A_TURN, stream_of_lines
from sluicegate.wire.key_values_messages import KvBounds
from sluicegate.wire.row_stream import ROWS_MEDIA_TYPE, StreamRow, rows_of, stream_of
from tests.doors.http.kv.serving import RunningDoor, running_door
from tests.doors.listening import run
from tests.doors.memory_service import NOW_US

LINES = "application/x-ndjson"
ROWS = [StreamRow(b"p", b"%d" % number, b"v%d" % number, number * 1_000) for number in range(4)]


def digest_of(body: bytes) -> str:
    """As RFC 9530 has it."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"


async def send(here: RunningDoor, number: int, body: bytes, kind: str, **headers: str) -> Any:
    """One part; what the answer says."""
    fields = {"content-type": kind, "content-digest": digest_of(body), **headers}
    got = await here.ask("PUT", f"t/uploads/u/parts/{number}", content=body, headers=fields)
    return {"status": got.status_code, **got.json()}


def lines_of(rows: list[StreamRow]) -> bytes:
    """The same rows as lines."""
    return b"".join(
        json.dumps(
            {
                "partition": row.partition.decode(),
                "sort": row.sort.decode(),
                "value_base64": b64encode(row.value).decode(),
                "ttl_ms": row.ttl_us // 1_000,
            }
        ).encode()
        + b"\n"
        for row in rows
    )


def test_an_upload_is_sent_in_parts_resumed_and_made_visible_at_once() -> None:
    async def story() -> None:
        async with running_door(token="all") as here:
            got = await here.ask("PUT", "t/uploads/u", json={"mode": "merge"})
            assert got.json() == {
                "table": "t",
                "name": "u",
                "mode": "merge",
                "state": "open",
                "parts": [],
                "rows": 0,
                "bytes": 0,
                "begun_ms": NOW_US // 1_000,
                "by": "all",
            }
            streams = [stream_of(ROWS[:2]), stream_of(ROWS[2:])]
            answer = await send(here, 1, streams[1], ROWS_MEDIA_TYPE)
            assert (answer["status"], answer["parts"], answer["rows"]) == (200, [1], 2)
            assert answer["sha256"] == sha256(streams[1]).hexdigest()
            assert (await here.ask("GET", "t/uploads/u")).json()["parts"] == [1]
            answer = await send(here, 0, lines_of(ROWS[:2]), f"{LINES}; charset=utf-8")
            assert (answer["parts"], answer["rows"]) == ([0, 1], 4)
            assert answer["sha256"] == sha256(streams[0]).hexdigest(), (
                "of the stream, not the lines"
            )
            assert (await here.ask("GET", "t/rows/p/0")).status_code == 404
            digest = sha256(b"".join(sha256(one).digest() for one in streams)).hexdigest()
            commit = {"parts": 2, "rows": 4, "sha256": digest}
            wrong = await here.ask("POST", "t/uploads/u:commit", json={**commit, "rows": 5})
            assert wrong.status_code == 409
            got = await here.ask("POST", "t/uploads/u:commit", json=commit)
            assert (got.status_code, got.json()["state"]) == (200, "done")
            got = await here.ask("GET", "t/rows/p/3")
            assert (got.content, got.headers["x-sluicegate-ttl-ms"]) == (b"v3", "3")
            assert (await here.ask("GET", "t/uploads")).json()["uploads"][0]["name"] == "u"
            assert [call.identity.name for call in here.service.contexts] == ["all"] * len(
                here.service.contexts
            )

    run(story)


def test_an_upload_is_abandoned() -> None:
    async def story() -> None:
        async with running_door() as here:
            await here.ask("PUT", "t/uploads/u", json={"mode": "replace"})
            got = await here.ask("DELETE", "t/uploads/u")
            assert (got.status_code, got.json()["state"]) == (200, "abandoned")

    run(story)


def test_a_part_that_is_not_what_it_says_is_not_kept() -> None:
    async def story() -> None:
        async with running_door() as here:
            await here.ask("PUT", "t/uploads/u", json={"mode": "merge"})
            stream, lines = stream_of(ROWS), lines_of(ROWS)
            other = digest_of(b"other")
            for kind, body in ((ROWS_MEDIA_TYPE, stream), (LINES, lines)):
                answer = await send(here, 0, body, kind, **{"content-digest": other})
                assert answer["status"] == 400
                assert answer["field"] in ("sha256", "content-digest")
                for wrong in ("", "sha-256=:x:", "md5=:x:", f"{other}, {other}"):
                    answer = await send(here, 0, body, kind, **{"content-digest": wrong})
                    assert (answer["status"], answer["field"]) == (400, "content-digest")
            refusal = await send(here, 0, stream, "text/csv")
            assert (refusal["status"], refusal["field"]) == (400, "content-type")
            refusal = await send(here, 0, stream[:-1], ROWS_MEDIA_TYPE)
            assert refusal["status"] == 400
            for number in ("x", "-1", "4294967296"):
                got = await here.ask("PUT", f"t/uploads/u/parts/{number}", content=b"")
                assert (got.status_code, got.json()["field"]) == (400, "number")
            assert (await here.ask("GET", "t/uploads/u")).json()["parts"] == []
            for upload_body in ({}, {"mode": 1}, {"name": "x"}):
                assert (await here.ask("PUT", "t/uploads/u", json=upload_body)).status_code == 400
            for more in ({"sha256": "0"}, {"sha256": "zz" * 32}, {"parts": -1}, {"rows": "1"}):
                commit = {"parts": 0, "rows": 0, "sha256": "0" * 64, **more}
                got = await here.ask("POST", "t/uploads/u:commit", json=commit)
                assert (got.status_code, got.json()["field"]) == (400, next(iter(more)))
            both = {"content-digest": f"md5=:x:, {digest_of(stream)}"}
            assert (await send(here, 0, stream, ROWS_MEDIA_TYPE, **both))["status"] == 200

    run(story)


@given(
    st.lists(
        st.builds(
            StreamRow,
            st.text(min_size=1, max_size=20).map(str.encode),
            st.text(max_size=20).map(str.encode),
            st.binary(max_size=20),
            st.integers(0, 1_000).map(lambda ms: ms * 1_000),
        ),
        max_size=5,
    )
)
def test_lines_become_the_stream_of_the_same_rows(rows: list[StreamRow]) -> None:
    assert asyncio.run(stream_of_lines(lines_of(rows), KvBounds())) == stream_of(rows)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"{", "line 3"),
        (b"\xff", "line 3"),
        (b"{}", "line 3.partition"),
        (b'{"partition":""}', "line 3.value"),
        (b'{"partition":"","value":""}', "line 3.partition"),
        (b'{"partition":"p","value":"12345"}', "line 3.value"),
        (b'{"partition":"p","value":"v","delete":true}', "line 3.delete"),
    ],
)
def test_a_line_that_is_no_row_is_named_by_its_number(line: bytes, field: str) -> None:
    body = b'{"partition":"p","value":"v"}\n\r\n' + line
    with pytest.raises(BadValue) as caught:
        asyncio.run(stream_of_lines(body, KvBounds(value_bytes_max=4)))
    assert caught.value.field == field


def test_others_have_their_turn_while_many_lines_are_read() -> None:
    async def story() -> None:
        turns = 0
        done = False

        async def other() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        body = b'{"partition":"p","value":"v"}\n' * (LINES_A_TURN * 4)
        assert len(rows_of(await stream_of_lines(body, KvBounds()))) == LINES_A_TURN * 4
        done = True
        await beside
        assert turns >= 4

    asyncio.run(story())
