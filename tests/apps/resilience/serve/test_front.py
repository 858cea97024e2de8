"""The queue in front of a real worker process with one thread, asked as a server asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.resilience.serve import request_stream
from sluicegate.apps.resilience.serve.front import Front, request_head, with_slots
from sluicegate.apps.resilience.serve.response_buffer import (
    BYTES_AHEAD_MAX,
    HeldBytes,
    ResponseBuffer,
)
from sluicegate.apps.resilience.serve.workers import Workers
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Unavailable
from sluicegate.doors.asgi import Message
from sluicegate.doors.http.forwarded import TrustedProxies
from sluicegate.resilience.settings import Resilience
from tests.apps.resilience.serve.service import ROOT, SHOP, begun

PATIENCE_S = 60.0
SETTINGS = Resilience(callers={"checkout": Criticality.CRITICAL})


class Asked:
    """One request; `leave` disconnects its client, and `read` lets the client read."""

    def __init__(self, front: Front, path: str, *, reads: str = "at once", **headers: str) -> None:
        fields = {"host": "shop", **{name.replace("_", "-"): one for name, one in headers.items()}}
        scope = {
            "type": "http", "method": "GET", "scheme": "http", "path": path, "query_string": b"",
            "raw_path": path.encode(), "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), one.encode()) for name, one in fields.items()],
        }  # fmt: skip
        self.status = 0
        self.body = b""
        self.leave = asyncio.Event()
        self.read = asyncio.Event()
        if reads == "at once":
            self.read.set()
        self._asked = False
        self.task = asyncio.create_task(front(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.read.wait()
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def fronting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    monkeypatch.setenv("SHOP_FOLDER", str(folder))
    monkeypatch.chdir(ROOT)
    workers = Workers(SHOP, 1, 1, folder)
    try:
        await workers.start()
        proxies = TrustedProxies([])
        proxies.trusts = lambda host: True  # type: ignore[assignment]
        yield Front(workers, with_slots(SETTINGS, 1), proxies, b"x-caller")
    finally:
        (folder / "open").touch()
        await workers.stop()


Play = Callable[[Front, Path], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], None]:
    def run(one: Play) -> None:
        async def played() -> None:
            async with fronting(tmp_path, monkeypatch) as front:
                await one(front, tmp_path)

        asyncio.run(played())

    return run


def queued(front: Front) -> int:
    return front.protected.protection.gate.queued


def inflight(front: Front) -> int:
    return front.protected.protection.gate.inflight


async def hold(front: Front, folder: Path) -> Asked:
    """Occupy the only thread."""
    asked = Asked(front, "/page/first")
    await until(lambda: begun(folder) == ["first"])
    return asked


def test_stream_holds_its_thread_to_last_byte(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        asked = Asked(front, "/endless")
        await until(lambda: b"more" in asked.body)
        waiting = Asked(front, "/page/next")
        await until(lambda: queued(front) == 1)
        assert inflight(front) == 1
        asked.leave.set()
        (folder / "open").touch()
        await waiting.task
        assert waiting.status == 200
        await asked.task
        assert inflight(front) == 0

    play(one)


def test_queued_requests_are_served_critical_first(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        first = await hold(front, folder)
        asked = [first]
        for name in ("bulk", "best-effort", "degraded", "critical"):
            headers = {"x_caller": "checkout", "x_sluicegate_criticality": name}
            asked.append(Asked(front, f"/page/{name}", **headers))
            await until(lambda: queued(front) + inflight(front) == len(asked))
        (folder / "open").touch()
        await asyncio.gather(*(one.task for one in asked))
        assert begun(folder) == ["first", "critical", "degraded", "best-effort", "bulk"]
        assert [one.status for one in asked] == [200] * 5

    play(one)


def test_disconnect_removes_queued_request(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        first = await hold(front, folder)
        left, stays = Asked(front, "/page/left"), Asked(front, "/page/stays")
        await until(lambda: queued(front) == 2)
        left.leave.set()
        await left.task
        assert (queued(front), left.status) == (1, 0)
        (folder / "open").touch()
        await asyncio.gather(first.task, stays.task)
        assert begun(folder) == ["first", "stays"]

    play(one)


def test_disconnect_in_flight_keeps_slot_until_thread_ends(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        first = await hold(front, folder)
        first.leave.set()
        waiting = Asked(front, "/page/waiting")
        await until(lambda: queued(front) == 1)
        assert (await asked_health(front), inflight(front)) == (200, 1)
        assert begun(folder) == ["first"]
        (folder / "open").touch()
        await asyncio.gather(first.task, waiting.task)
        assert (first.status, waiting.status) == (0, 200)

    play(one)


async def asked_health(front: Front) -> int:
    health = Asked(front, "/healthz")
    await health.task
    return health.status


def test_client_that_does_not_read_holds_no_slot(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        slow = Asked(front, "/pieces/3", reads="late")
        await until(lambda: begun(folder) == ["pieces"])
        await until(lambda: inflight(front) == 0)
        next_one = Asked(front, "/pid")
        await next_one.task
        assert (next_one.status, slow.status) == (200, 0)
        slow.read.set()
        await slow.task
        assert len(slow.body) == 3 * 65_536

    play(one)


def test_deadline_in_queue_is_answered_with_504(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        first = await hold(front, folder)
        late = Asked(front, "/page/late", x_sluicegate_deadline_ms="0")
        await late.task
        (folder / "open").touch()
        await first.task
        assert late.status == 504
        assert begun(folder) == ["first"]

    play(one)


def test_body_that_arrives_slowly_holds_no_slot(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        rest = asyncio.Event()

        class Uploaded(Asked):
            async def _receive(self) -> Message:
                await rest.wait()
                return await super()._receive()

        slow = Uploaded(front, "/healthz", content_length="0")
        fast = Asked(front, "/pid")
        await fast.task
        assert (fast.status, inflight(front), slow.status) == (200, 0, 0)
        rest.set()
        await slow.task

    play(one)


class Halfway(Asked):
    """An upload of 200 kB whose second half arrives when `rest` is set."""

    def __init__(self, front: Front, path: str, **headers: str) -> None:
        self.rest = asyncio.Event()
        self._parts = 0
        super().__init__(front, path, content_length="200000", **headers)

    async def _receive(self) -> Message:
        self._parts += 1
        if self._parts == 1:
            return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}
        if self._parts == 2:
            await self.rest.wait()
            return {"type": "http.request", "body": b"x" * 100_000, "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}


def test_upload_that_pauses_beyond_what_is_read_ahead_holds_no_slot(
    play: Callable[[Play], None],
) -> None:
    async def one(front: Front, folder: Path) -> None:
        slow = Halfway(front, "/pid")
        fast = Asked(front, "/pid")
        await fast.task
        assert (fast.status, inflight(front), slow.status) == (200, 0, 0)
        slow.rest.set()
        await slow.task
        assert slow.status == 200

    play(one)


def test_upload_that_stops_is_answered_with_408(
    play: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_stream, "BODY_STALL_S_MAX", 0.1)

    async def one(front: Front, folder: Path) -> None:
        stopped = Halfway(front, "/pid")
        await stopped.task
        assert (stopped.status, inflight(front), queued(front)) == (408, 0, 0)

    play(one)


def test_body_that_is_expected_is_read_in_its_slot(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        expects = Halfway(front, "/pid", expect="100-continue")
        await until(lambda: inflight(front) == 1)
        expects.rest.set()
        await expects.task
        assert expects.status == 200

    play(one)


def test_failed_worker_is_started_again(play: Callable[[Play], None]) -> None:
    async def one(front: Front, folder: Path) -> None:
        failed, then = Asked(front, "/die"), Asked(front, "/pid")
        await asyncio.gather(failed.task, then.task)
        assert (failed.status, then.status) == (502, 200)
        assert inflight(front) == 0

    play(one)


def test_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    async def start() -> None:
        workers = Workers("no_such_module:app", 1, 1, tmp_path)
        try:
            await workers.start()
        finally:
            await workers.stop()

    with pytest.raises(Unavailable, match="worker 0 is unavailable: it ended with exit code 2"):
        asyncio.run(start())


def test_request_head_drops_hop_by_hop_and_forwarding_fields() -> None:
    scope = {
        "method": "GET", "raw_path": b"/a%2Fb", "query_string": b"c=d", "scheme": "https",
        "client": ("2001:db8::1", 5),
        "headers": [
            (b"host", b"shop"), (b"connection", b"close, X-Own"), (b"x-own", b"1"),
            (b"x-forwarded-for", b"9.9.9.9"), (b"te", b"trailers"), (b"cookie", b"a"),
        ],
    }  # fmt: skip
    assert request_head(scope) == (
        b"GET /a%2Fb?c=d HTTP/1.1\r\nhost: shop\r\ncookie: a\r\nx-forwarded-proto: https\r\n"
        b"x-forwarded-for: 2001:db8::1\r\nx-forwarded-host: shop\r\n\r\n"
    )


def test_outgoing_waits_beyond_its_bound() -> None:
    async def one() -> None:
        reads = asyncio.Event()
        sent: list[object] = []

        async def send(message: Any) -> None:
            await reads.wait()
            sent.append(message)

        held = HeldBytes()
        outgoing = ResponseBuffer(send, held)
        await outgoing.send({"type": "http.response.body", "body": bytes(BYTES_AHEAD_MAX)})
        over = asyncio.create_task(outgoing.send({"type": "http.response.body", "body": b"x"}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not over.done()
        assert held.count == BYTES_AHEAD_MAX + 1
        reads.set()
        await over
        await outgoing.finish()
        outgoing.close()
        assert (len(sent), held.count) == (2, 0)

    asyncio.run(one())


def test_outgoing_raises_what_the_server_raised() -> None:
    async def one() -> None:
        async def send(message: Any) -> None:
            raise RuntimeError("too long")

        outgoing = ResponseBuffer(send, HeldBytes())
        await outgoing.send({"type": "http.response.body", "body": b""})
        with pytest.raises(RuntimeError, match="too long"):
            await outgoing.finish()

    asyncio.run(one())
