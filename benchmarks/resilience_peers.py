"""The resilient client beside stamina and pybreaker: what succeeds, and what the server is asked.

    python -m benchmarks.resilience_peers              some two minutes
    python -m benchmarks.resilience_peers --seconds 2  quickly

Each client is shared by threads that call at a fixed rate, whatever comes back; each scenario has a
server of its own, in a process of its own, under uvicorn:

    5% fail      a plain server that answers 503 at random
    30% fail     the same
    outage       a plain server that answers 503 in the second quarter of the time
    overload     a service behind `protect`, asked for three times what it can do

Success is the share of calls that were answered 200; of the overload, the share of what the service
can do. Load is requests that reached the server for each call. stamina is outermost, as its page
has it, with a breaker of pybreaker's inside, both with their defaults; a 503 is an error to both.

The bars: success no less than the peers', but for two calls in a thousand, and a load of at most
1.15; in the outage, whatever the peers do, at least that of httpx alone less a hundredth.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.rounds import Bars
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import ResilientTransport
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience

THREADS: Final = 24
CALLS_PER_S: Final = 6.0  # of each thread
WORK_S: Final = 0.04
PLACES: Final = 2
CAPACITY_PER_S: Final = PLACES / WORK_S  # a third of what the threads ask for
PATIENCE_S: Final = 1.0
LOAD_BAR: Final = 1.15
CHANCE: Final = 0.002
LOST_IN_OUTAGE: Final = 0.01
SCENARIOS: Final = ("5% fail", "30% fail", "outage", "overload")
CLIENTS: Final = ("httpx alone", "stamina + pybreaker", "sluicegate")

Get = Callable[[str], bool]


class Row(NamedTuple):
    """What one client brought in one scenario."""

    success: float
    load: float


def served_app(scenario: str, seconds: float) -> Any:
    """Return the application of a scenario; /count says how many requests came before it."""
    draw = random.Random(16).random
    count = 0
    began_s = 0.0

    def fails() -> bool:
        if scenario == "outage":
            return 0.25 * seconds <= time.monotonic() - began_s < 0.5 * seconds
        return scenario != "overload" and draw() < float(scenario.partition("%")[0]) / 100

    async def work(scope: Any, receive: Any, send: Any) -> None:
        if scenario == "overload":
            await asyncio.sleep(WORK_S)
        head = {"status": 503 if fails() else 200, "headers": [(b"content-length", b"0")]}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": b""})

    app = protect(work, Resilience(slots=PLACES)) if scenario == "overload" else work

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        nonlocal count, began_s
        if scope["path"] == "/count":
            text = str(count).encode()
            length = [(b"content-length", str(len(text)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": length})
            await send({"type": "http.response.body", "body": text})
            return
        if count == 0:
            began_s = time.monotonic()
        count += 1
        await app(scope, receive, send)

    return counted


def serve(scenario: str, seconds: float) -> None:
    """Serve until the parent ends this process; the port is the first line."""
    import socket

    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(
            served_app(scenario, seconds), log_level="error", access_log=False, lifespan="off"
        )
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


@contextmanager
def server(scenario: str, seconds: float) -> Iterator[str]:
    """A server of that scenario for a block; its URL."""
    command = [sys.executable, "-m", "benchmarks.resilience_peers", "--serve", scenario]
    command += ["--seconds", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextmanager
def client_of(name: str) -> Iterator[Get]:
    """One client for all threads."""
    transport: httpx.BaseTransport | None = None
    if name == "sluicegate":
        transport = ResilientTransport(ResilientClient())
    with httpx.Client(transport=transport, timeout=PATIENCE_S) as driver:
        if name != "stamina + pybreaker":
            yield lambda url: driver.get(url).status_code == 200
            return
        stamina, pybreaker = import_module("stamina"), import_module("pybreaker")
        stamina.instrumentation.set_on_retry_hooks([])
        breaker = pybreaker.CircuitBreaker()

        @stamina.retry(on=httpx.HTTPError)  # type: ignore[untyped-decorator, unused-ignore]
        @breaker  # type: ignore[untyped-decorator, unused-ignore]
        def get(url: str) -> bool:
            driver.get(url).raise_for_status()
            return True

        yield get


def measure(scenario: str, name: str, seconds: float) -> Row:
    """Call at the fixed rate for so long; what came of it."""
    good: list[int] = []
    sent: list[int] = []

    def call(number: int, get: Get, url: str, began_s: float) -> None:
        for turn in range(int(seconds * CALLS_PER_S)):
            due_s = began_s + (turn + number / THREADS) / CALLS_PER_S
            time.sleep(max(due_s - time.monotonic(), 0.0))
            if time.monotonic() - began_s > seconds:
                return
            sent.append(1)
            try:
                good.append(get(url))
            except Exception:
                good.append(0)

    with server(scenario, seconds) as url, client_of(name) as get:
        while True:
            try:
                httpx.get(f"{url}/count")
                break
            except httpx.ConnectError:
                time.sleep(0.01)
        began_s = time.monotonic()
        threads = [
            threading.Thread(target=call, args=(number, get, f"{url}/", began_s))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        received = int(httpx.get(f"{url}/count").text)
    could = CAPACITY_PER_S * seconds if scenario == "overload" else len(sent)
    return Row(min(sum(good) / could, 1.0), received / len(sent))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Success and load beside stamina and pybreaker.")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--serve", choices=SCENARIOS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve, arguments.seconds)
        return
    rows: dict[tuple[str, str], Row] = {}
    print(f"{THREADS} threads, {THREADS * CALLS_PER_S:.0f} calls/s, {arguments.seconds:g} s a run")
    for scenario in SCENARIOS:
        print(f"\n{scenario:24}{'success':>10}{'load':>8}")
        for name in CLIENTS:
            row = rows[scenario, name] = measure(scenario, name, arguments.seconds)
            print(f"  {name:22}{row.success:10.3f}{row.load:8.2f}", flush=True)
    bars = Bars()
    for scenario in SCENARIOS:
        peer, ours = rows[scenario, CLIENTS[1]], rows[scenario, CLIENTS[2]]
        least = peer.success - CHANCE
        bars.check(ours.success >= least, f"{scenario}: success at least the peer's")
        bars.check(ours.load <= LOAD_BAR, f"{scenario}: load at most {LOAD_BAR} a call")
    least = rows["outage", CLIENTS[0]].success - LOST_IN_OUTAGE
    bars.check(rows["outage", CLIENTS[2]].success >= least, "outage: no answer lost by the breaker")
    bars.exit()


if __name__ == "__main__":
    main()
