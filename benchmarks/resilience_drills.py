"""Server and client together, in real processes: retry storm, three hops, costly refusals, a slow
dependency.

    python -m benchmarks.resilience_drills               all of them, some eleven minutes
    python -m benchmarks.resilience_drills three-hops    one

Each service is a process of its own under uvicorn that can do `SLOTS` pieces of work at once; the
time of each is drawn. Callers ask in open loop from this process and wait for so long; whatever is
sent and answered goes over loopback. Work is sleep and rates are low, so that two cores are enough:
a line is marked doubtful if this process was busy or late.

    retry-storm     80% load, four attempts; 70% of the capacity is lost for ten seconds. How long
                    until nine in ten are answered again, and how much is sent for each call
    three-hops      three services in a row, twice what they can do: work for whom nobody waited
    costly-refusal  ten times the load, and each refusal takes 5% of a piece of work, in turn
                    with refusals that take nothing; clients as they come, and such that
                    send twice what is answered whatever they are told
    slow-dependency many requests need a dependency that becomes 50 times slower, in a service with
                    four places; behind `protect` as it comes; and where it becomes slow, but not
                    heavy: it takes 100 ms, of 1 s from which on work is heavy

The bars: recovery within 1 s with our client and 2 s with one that repeats whatever fails, at most
1.15 requests for each call; 1% of work wasted; goodput 0.95; 99.9% of the other endpoint's requests
answered. The controls, a line without an end before the same slots and callers that repeat, miss
theirs, or the drill shows nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple, final

import httpx

from benchmarks.rounds import Bars, build_of
from sluicegate.policies import stack as policy_module
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience
from sluicegate.system import thread_times

SLOTS: Final = 4
WORK_S: Final = 0.04
CAPACITY_PER_S: Final = SLOTS / WORK_S
HURT_S: Final = (3.0, 13.0)
SPEED_LEFT: Final = 0.3
PATIENCE_S: Final = 1.0
COARSE_WORK_S: Final = 0.16  # so that little is what this machine adds at each hop
COARSE_PATIENCE_S: Final = 50 * COARSE_WORK_S  # as in the lab
COSTLY_WORK_S: Final = 0.32  # so that ten times the load is 125 calls a second
COSTLY_PATIENCE_S: Final = 25 * COSTLY_WORK_S
COSTLY_S: Final = 30.0
COSTLY_ROUNDS: Final = 3  # one alone is 0.93 to 0.99 by chance: 300 pieces of work
COSTLY_WARM_S: Final = 5.0  # until the client has learned what is refused
WARM_S: Final = 6.0  # until hops have learned how long they take
LATE_S_MAX: Final = 0.25
REFUSAL_COST: Final = 0.05
SLOWER: Final = 50
BUSY_MAX: Final = 0.8
WINDOW_S: Final = 0.25


class Service(NamedTuple):
    """What a service's process is told."""

    kind: str  # protected, fifo, as-it-comes
    places: int = SLOTS
    next_port: int = 0
    hurt: bool = False
    refusal_cost: float = 0.0
    dependency: bool = False
    dependency_s: float = 0.005  # what it takes while all is well
    work_s: float = WORK_S


class Piece(NamedTuple):
    """What held a slot, from when on since the first request came, and for how long."""

    name: str
    began_s: float
    took_s: float

    def within(self, from_s: float, to_s: float) -> float:
        """How long, of that span."""
        return max(min(self.began_s + self.took_s, to_s) - max(self.began_s, from_s), 0.0)


@final
class Slots:
    """The capacity: so many at once, first come, first served; and what was worked on."""

    def __init__(self, service: Service) -> None:
        self._slots = asyncio.Semaphore(SLOTS)
        self._draw = random.Random(16).expovariate
        self._service = service
        self._began_s = 0.0
        self.received = 0
        self.worked: list[Piece] = []
        self.refused: list[Piece] = []

    async def work(self, name: str) -> None:
        """Hold a slot for a piece of work."""
        async with self._slots:
            began_s = time.monotonic()
            try:
                await asyncio.sleep(self._draw(1 / self._service.work_s) / self._speed())
            finally:
                self.worked.append(self._piece(name, began_s))

    async def refuse(self) -> None:
        """Hold one for a refusal."""
        async with self._slots:
            began_s = time.monotonic()
            await asyncio.sleep(self._service.work_s * self._service.refusal_cost)
            self.refused.append(self._piece("", began_s))

    def arrive(self) -> None:
        """One more request has come."""
        self._began_s = self._began_s or time.monotonic()
        self.received += 1

    def passed_s(self) -> float:
        """Since the first came."""
        return time.monotonic() - self._began_s

    def _piece(self, name: str, began_s: float) -> Piece:
        return Piece(name, began_s - self._began_s, time.monotonic() - began_s)

    def _speed(self) -> float:
        hurt = self._service.hurt and HURT_S[0] <= self.passed_s() < HURT_S[1]
        return SPEED_LEFT if hurt else 1.0


def served_app(service: Service, driver: httpx.AsyncClient) -> Any:
    """Return the application: its part of the work, then the next service's."""
    slots = Slots(service)
    backend = f"http://127.0.0.1:{service.next_port}/work"

    async def work(scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"]).get(b"x-request", b"").decode()
        status = 200
        if scope["path"] == "/needs":
            slower = SLOWER if slots.passed_s() > HURT_S[0] else 1
            await asyncio.sleep(service.dependency_s * slower)
        elif scope["path"] == "/beside":
            await asyncio.sleep(service.dependency_s)
        else:
            await slots.work(name)
            if service.next_port:
                try:
                    status = (await driver.get(backend, headers={"x-request": name})).status_code
                except Exception:
                    status = 502
        await answer(send, status, b"done")

    places = asyncio.Semaphore(service.places)

    async def pool(scope: Any, receive: Any, send: Any) -> None:
        async with places:
            await work(scope, receive, send)

    unprotected = pool if service.dependency else work
    app: Any = unprotected
    if service.kind != "fifo":
        app = protect(
            work, Resilience(slots=service.places) if service.kind == "protected" else None
        )

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/stats":
            stats = {
                "received": slots.received,
                "worked": slots.worked,
                "refused": slots.refused,
            }
            await answer(send, 200, json.dumps(stats).encode())
            return
        slots.arrive()

        async def costly(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 503:
                await slots.refuse()
            await send(message)

        await app(scope, receive, costly if service.refusal_cost else send)

    return outer


async def answer(send: Any, status: int, body: bytes) -> None:
    """Send a response."""
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": length})
    await send({"type": "http.response.body", "body": body})


def client(**table: Any) -> ResilientClient:
    """One for all calls of a process."""
    return ResilientClient(client_settings(table))


def driver_of(
    found: ResilientClient | None, patience_s: float, below: httpx.AsyncBaseTransport | None = None
) -> httpx.AsyncClient:
    """Return httpx as it is, or through a client of ours, over `below` if not its own pool."""
    if below is None:
        limits = httpx.Limits(max_connections=2_000, max_keepalive_connections=2_000)
        below = httpx.AsyncHTTPTransport(verify=False, limits=limits)
    transport = below if found is None else AsyncResilientTransport(found, below)
    return httpx.AsyncClient(transport=transport, timeout=patience_s)


def serve(service: Service) -> None:
    """Serve until the parent ends this process; the port is the first line."""
    import uvicorn

    found = client() if service.kind == "protected" else None
    with socket.create_server(("127.0.0.1", 0), backlog=2_048) as listening:
        print(listening.getsockname()[1], flush=True)
        app = served_app(service, driver_of(found, COARSE_PATIENCE_S))
        config = uvicorn.Config(
            app, log_level="error", access_log=False, lifespan="off", timeout_keep_alive=60
        )
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


@contextmanager
def running(service: Service) -> Iterator[int]:
    """A service for a block; its port."""
    command = [sys.executable, "-m", "benchmarks.resilience_drills", "--serve", json.dumps(service)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@final
class Connections(httpx.AsyncBaseTransport):
    """Those of a caller without a pool that could stand still: one is closed if it is given up.

    Callers that give up 300 requests a second keep httpx's own pool from answering anybody for
    seconds after the service has recovered, and 500 requests under way can keep it busy until the
    end of a drill. What is measured here are the service and the client.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return a whole answer."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        kept = False
        try:
            lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
            lines += [b"%b: %b" % field for field in request.headers.raw]
            writer.write(b"\r\n".join([*lines, b"", b""]))
            first, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            pairs = [field.partition(": ") for field in fields]
            headers = httpx.Headers([(name, value) for name, _, value in pairs])
            body = await reader.readexactly(int(headers["content-length"]))
            kept = True
            return httpx.Response(int(first.split(" ", 2)[1]), headers=headers, content=body)
        except (OSError, EOFError) as error:
            raise httpx.NetworkError(str(error)) from error
        finally:
            if kept:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def aclose(self) -> None:
        """Close what is kept."""
        for _, writer in self._idle:
            writer.close()


class Sent(NamedTuple):
    """One call of a caller."""

    name: str
    due_s: float
    why: str  # it failed

    @property
    def ok(self) -> bool:
        """Whether it was answered in time."""
        return not self.why


Ask = Callable[[str], Awaitable[str]]  # with the name of the call: why it failed


class Load(NamedTuple):
    """What came of all calls, and how busy this side was with them."""

    calls: list[Sent]
    busy: float
    late_s: float  # at most

    @property
    def doubtful(self) -> str:
        """A remark, if this side was the slow one."""
        if self.busy <= BUSY_MAX and self.late_s <= LATE_S_MAX:
            return ""
        return f" (doubtful: this side {self.busy:.0%} busy and {self.late_s:.2f} s late)"

    @property
    def goodput(self) -> float:
        """Answered in time, of all calls."""
        return sum(one.ok for one in self.calls) / len(self.calls)

    @property
    def failures(self) -> str:
        """How many failed, by why."""
        found = Counter(one.why for one in self.calls if one.why)
        return ", ".join(f"{why} {count}" for why, count in found.most_common()) or "no failures"

    def recovery_s(self, from_s: float) -> float:
        """How long until nine in ten of what is due within any second are answered again."""
        end_s = max(one.due_s for one in self.calls)
        from_now_s = from_s
        while from_now_s + 1.0 < end_s:
            second = [one.ok for one in self.calls if from_now_s <= one.due_s < from_now_s + 1.0]
            if sum(second) >= 0.9 * len(second):
                return from_now_s - from_s
            from_now_s += WINDOW_S
        return float("inf")


async def send_at(ask: Ask, rate: float, span_s: float, patience_s: float = PATIENCE_S) -> Load:
    """Call at random instants, as many as the rate says, whatever becomes of the calls before."""
    draw = random.Random(3).expovariate
    calls: list[Sent] = []
    tasks: set[asyncio.Task[None]] = set()
    began_s, ran_us = time.monotonic(), thread_times().ran_us

    async def one(name: str, due_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                why = await ask(name)
        except Exception as error:
            why = type(error).__name__
        calls.append(Sent(name, due_s, why))

    due_s, number, late_s = draw(rate), 0, 0.0
    while due_s < span_s:
        await asyncio.sleep(max(began_s + due_s - time.monotonic(), 0))
        late_s = max(late_s, time.monotonic() - began_s - due_s)
        task = asyncio.create_task(one(str(number), due_s))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due_s, number = due_s + draw(rate), number + 1
    await asyncio.gather(*tasks)
    passed_s = time.monotonic() - began_s
    return Load(calls, (thread_times().ran_us - ran_us) / 1e6 / passed_s, late_s)


@asynccontextmanager
async def asking(
    port: int,
    path: str,
    found: ResilientClient | None,
    naive: bool = False,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Ask]:
    """Ask a service, with a client of ours or without; `naive` repeats whatever fails, at once."""
    async with driver_of(found, patience_s, Connections(port)) as driver:
        for _ in range(100):
            try:
                await driver.get(f"http://127.0.0.1:{port}/stats")
                break
            except httpx.HTTPError:
                await asyncio.sleep(0.05)

        async def once(name: str, left_s: float = patience_s) -> str:
            left = {"x-request": name, "x-sluicegate-deadline-ms": str(int(left_s * 1e3))}
            response = await driver.get(f"http://127.0.0.1:{port}{path}", headers=left)
            return "" if response.status_code == httpx.codes.OK else str(response.status_code)

        async def four_times(name: str) -> str:
            why = ""
            for _ in range(4):
                try:
                    async with asyncio.timeout(patience_s / 4):
                        why = await once(name, patience_s / 4)
                except (TimeoutError, httpx.TransportError) as error:
                    why = type(error).__name__
                if not why:
                    break
            return why

        yield four_times if naive else once


async def stats_of(port: int) -> dict[str, Any]:
    """Return what the service counted."""
    async with driver_of(None, 10.0) as driver:
        found = await driver.get(f"http://127.0.0.1:{port}/stats")
        return dict(found.json())


async def retry_storm(bars: Bars) -> None:
    """80% load; what is left after ten bad seconds."""
    for kind, naive in (("protected", False), ("protected", True), ("fifo", True)):
        with running(Service(kind, hurt=True)) as port:
            ours = None if naive else client(retry={"attempts": [4, 4, 4, 4]})
            async with asking(port, "/work", ours, naive) as ask:
                load = await send_at(ask, 0.8 * CAPACITY_PER_S, HURT_S[1] + 6.0)
            received = (await stats_of(port))["received"] / len(load.calls)
        recovery_s = load.recovery_s(HURT_S[1])
        who = f"{kind}, {'clients that repeat whatever fails' if naive else 'our client'}"
        text = f"{who}: recovered after {recovery_s:.2f} s, {received:.2f} requests for each call"
        text += f", goodput {load.goodput:.3f}; {load.failures}{load.doubtful}"
        if kind == "fifo":
            bars.check(recovery_s > 2.0, f"control, {text}")
        elif naive:
            bars.check(recovery_s <= 2.0, text)
        else:
            bars.check(recovery_s <= 1.0 and received <= 1.15, text)


async def three_hops(bars: Bars) -> None:
    """Twice the capacity of three services in a row."""
    for kind in ("protected", "fifo"):
        each = partial(Service, kind, work_s=COARSE_WORK_S)
        with (
            running(each(places=SLOTS)) as last,
            running(each(places=2 * SLOTS, next_port=last)) as middle,
            running(each(places=3 * SLOTS, next_port=middle)) as first,
        ):
            async with asking(first, "/work", None, patience_s=COARSE_PATIENCE_S) as ask:
                load = await send_at(ask, 2 * SLOTS / COARSE_WORK_S, 40.0, COARSE_PATIENCE_S)
            worked = [await stats_of(port) for port in (first, middle, last)]
        good = {one.name for one in load.calls if one.ok}
        warm = {one.name for one in load.calls if one.due_s >= WARM_S}
        pieces = [Piece(*piece) for one in worked for piece in one["worked"] if piece[0] in warm]
        all_s = sum(piece.took_s for piece in pieces)
        wasted = sum(piece.took_s for piece in pieces if piece.name not in good) / all_s
        text = f"{kind}: {wasted:.2%} of the work was for nobody, goodput {2 * load.goodput:.2f}"
        text += load.doubtful
        met = wasted <= 0.01 if kind == "protected" else wasted > 0.05
        bars.check(met, text if kind == "protected" else f"control, {text}")


class CostlyRun(NamedTuple):
    """What the slots did while all asked, in parts of what they can do."""

    goodput: float
    text: str


async def run_costly(cost: float, ours: ResilientClient | None) -> CostlyRun:
    """Ten times the load, where each refusal costs that part of a piece of work."""
    service = Service("protected", refusal_cost=cost, work_s=COSTLY_WORK_S)
    with running(service) as port:
        async with asking(port, "/work", ours, patience_s=COSTLY_PATIENCE_S) as ask:
            load = await send_at(ask, 10 * SLOTS / COSTLY_WORK_S, COSTLY_S, COSTLY_PATIENCE_S)
        stats = await stats_of(port)
    good = {one.name for one in load.calls if one.ok}
    span_s, slots_s = (COSTLY_WARM_S, COSTLY_S), SLOTS * (COSTLY_S - COSTLY_WARM_S)
    worked = [Piece(*piece) for piece in stats["worked"] if piece[0] in good]
    goodput = sum(piece.within(*span_s) for piece in worked) / slots_s
    refused = sum(Piece(*piece).within(*span_s) for piece in stats["refused"]) / slots_s
    text = f"goodput {goodput:.3f}; {refused:.1%} of the capacity went into refusals, "
    text += f"{stats['received'] / len(load.calls):.0%} of calls were sent{load.doubtful}"
    return CostlyRun(goodput, text)


async def costly_refusal(bars: Bars) -> None:
    """Ten times the load, and a refusal is not for nothing."""
    once = {"retry": {"attempts": [1, 1, 1, 1]}}
    free_runs: list[float] = []
    ratios: list[float] = []
    for _ in range(COSTLY_ROUNDS):
        free = await run_costly(0.0, client(**once))
        costly = await run_costly(REFUSAL_COST, client(**once))
        free_runs.append(free.goodput)
        ratios.append(costly.goodput / free.goodput)
        print(f"  free refusals: {free.text}")
        print(f"  cooperating clients: {costly.text}")
    free_goodput, ratio = median(free_runs), median(ratios)
    text = f"{ratio:.3f} of the goodput with free refusals, {min(ratios):.3f} to {max(ratios):.3f}"
    bars.check(ratio >= 0.95, f"cooperating clients, median of {COSTLY_ROUNDS} rounds: {text}")
    deaf = await run_costly(REFUSAL_COST, client(**once, throttle={"multiplier_told": 2.0}))
    share = f"{deaf.goodput / free_goodput:.3f} of that with free refusals"
    print(f"  clients that do not hear what the service says: {share}; {deaf.text}")
    plain = await run_costly(REFUSAL_COST, None)
    share = f"{plain.goodput / free_goodput:.3f} of that with free refusals"
    text = f"control, clients that do not cooperate: {share}; {plain.text}"
    bars.check(plain.goodput < 0.9 * free_goodput, text)


async def slow_dependency(bars: Bars) -> None:
    """Many of the requests need what becomes 50 times slower."""
    for kind, dependency_s, rate, beside_rate, span_s in (
        ("protected", 0.005, 100.0, 100.0, 10.0),
        ("as-it-comes", 0.005, 250.0, 100.0, 10.0),
        ("protected", 0.002, 100.0, 25.0, 40.0),
        ("fifo", 0.005, 100.0, 100.0, 10.0),
        ("fifo", 0.002, 100.0, 25.0, 40.0),
    ):
        service = Service(kind, dependency=True, dependency_s=dependency_s)
        with running(service) as port:
            async with AsyncExitStack() as stack:
                needs = await stack.enter_async_context(asking(port, "/needs", None))
                beside = await stack.enter_async_context(asking(port, "/beside", None))
                _, load = await asyncio.gather(
                    send_at(needs, rate, span_s), send_at(beside, beside_rate, span_s)
                )
        text = f"{kind}, {1e3 * SLOWER * dependency_s:.0f} ms: {load.goodput:.2%} of the others "
        text += f"answered; {load.failures}{load.doubtful}"
        if kind == "fifo":
            bars.check(load.goodput < 0.9, f"control, {text}")
        else:
            bars.check(load.goodput >= 0.999, text)


DRILLS: Final = {
    "retry-storm": retry_storm,
    "three-hops": three_hops,
    "costly-refusal": costly_refusal,
    "slow-dependency": slow_dependency,
}


def main() -> None:
    """Measure and print, or serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("drill", nargs="*", choices=[*DRILLS, []], default=[])
    parser.add_argument("--serve")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(Service(*json.loads(arguments.serve)))
        return
    bars = Bars()
    print(f"{build_of(policy_module.__file__)}, {CAPACITY_PER_S:.0f} requests a second")
    for name in arguments.drill or DRILLS:
        print(f"\n{name}")
        asyncio.run(DRILLS[name](bars))
    bars.exit()


if __name__ == "__main__":
    main()
