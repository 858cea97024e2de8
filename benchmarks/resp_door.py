"""Commands a second through the RESP door, against redis-server's own GET, by redis-benchmark.

Both servers have one and the same core, in turns, and redis-benchmark has another. CL.THROTTLE is
decided in memory, on one key and never limited, so the whole way is run: bytes, command, decision,
reply. What is compared is the median of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import uvloop

import sluicegate.doors.resp.protocol as resp_module
from benchmarks.rounds import ROUNDS, Bars, build_of
from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.contracts.checks import RateLimits, ThrottleRequest, ThrottleResponse
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.stores.memory.throttle import MemoryThrottle
from sluicegate.system import now_us
from tests.engines.child import free_port

AT_LEAST = {1: 0.40, 16: 0.25}  # of redis-server's GET, by commands sent at once
CLIENTS = 50
COUNTS = {1: 60_000, 16: 400_000}
SERVER_CORE, CLIENT_CORE = "0", "1"
ASK = ("CL.THROTTLE", "bench", "1000000000", "1000000000", "60")


class Everybody:
    """Access for whoever is on this machine."""

    anonymous = Identity("", EVERY_GRANT)

    def by_token(self, token: str) -> Identity | None:
        """Nobody has one."""
        return None

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        """Likewise."""
        return None


class Throttles:
    """The part of a service that CL.THROTTLE requests, as a service does it."""

    def __init__(self) -> None:
        self._throttle = MemoryThrottle(now_us)

    def throttle(self, request: ThrottleRequest, by: Identity) -> ThrottleResponse:
        """Decide here."""
        if not by.may_check:
            raise PermissionError
        return self._throttle.throttle(request)


async def serve() -> None:
    """A door on a free port, which it prints, until its input ends."""
    service: RateLimits = Throttles()  # type: ignore[assignment]
    door = RespDoor(service, Everybody())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(door.protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def pinned(core: str) -> tuple[str, ...]:
    """The beginning of a command that keeps to one core, where there are several."""
    return ("taskset", "-c", core) if (os.cpu_count() or 1) > 1 else ()


@contextmanager
def door() -> Iterator[int]:
    """Our server in a process of its own; its port."""
    words = (*pinned(SERVER_CORE), sys.executable, "-m", "benchmarks.resp_door", "--serve")
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def redis_server() -> Iterator[int]:
    """The peer, likewise."""
    port = free_port()
    flags = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    with subprocess.Popen(
        (*pinned(SERVER_CORE), "redis-server", *flags), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "Ready to accept connections" in line:
                    break
            yield port
        finally:
            process.terminate()


def pressed(port: int, pipeline: int, words: Sequence[str]) -> float:
    """Commands a second, as redis-benchmark counts them."""
    told = subprocess.run(
        (*pinned(CLIENT_CORE), "redis-benchmark", "-p", str(port), "-c", str(CLIENTS), "-P",
         str(pipeline), "-n", str(COUNTS[pipeline]), "--csv", *words),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = [row for row in csv.reader(io.StringIO(told)) if len(row) > 2 and row[0] != "test"]
    return float(rows[-1][1])


def compare(
    ours: int, peer: int, bars: Bars, rounds: int = ROUNDS, words: Sequence[str] = ASK
) -> None:
    """Press both in turns, and print the ratios and the bars; `ours` may be any RESP port."""
    for pipeline, bar in AT_LEAST.items():
        seen: dict[str, list[float]] = {"ours": [], "peer": []}
        requested = {"ours": (ours, words), "peer": (peer, ("GET", "bench"))}
        for port, say in requested.values():
            pressed(port, pipeline, say)  # warm
        for turn in range(rounds):
            for name in sorted(requested, reverse=turn % 2 == 1):
                port, say = requested[name]
                seen[name].append(pressed(port, pipeline, say))
        shares = [own / other for own, other in zip(seen["ours"], seen["peer"], strict=True)]
        share = statistics.median(shares)
        print(f"\n{CLIENTS} clients, {pipeline} at once")
        print(f"  sluicegate CL.THROTTLE  {statistics.median(seen['ours']):11,.0f}/s")
        print(f"  redis-server GET      {statistics.median(seen['peer']):11,.0f}/s")
        print(f"  share in each round   {', '.join(f'{one:.0%}' for one in shares)}")
        bars.check(
            share >= bar, f"RESP, {pipeline} at once: {share:.0%} of GET, at least {bar:.0%}"
        )


def main() -> None:
    """Print the tables and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.serve:
        uvloop.run(serve())
        return
    print(f"sluicegate is {build_of(resp_module.__file__)}")
    bars = Bars()
    with ExitStack() as stack:
        ours, peer = stack.enter_context(door()), stack.enter_context(redis_server())
        compare(ours, peer, bars, requested.rounds)
    bars.exit()


if __name__ == "__main__":
    main()
