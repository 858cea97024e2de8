"""Health under a load of ten times what is served: answered ahead of what waits.

How long a probe waits is told in requests that the door answers meanwhile, so that neither the
machine nor its other work counts. The load comes from a process of its own, for as long as the
probes take and no longer. A service that waits for each decision, and one that works for it on the
loop itself, are both tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import CheckRequest, CheckResponse, MaybeAwaitable
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.system import SystemClock
from tests.doors.http.serving import Counting, RunningDoor, running_door
from tests.doors.listening import run

CONNECTIONS = 200
LOAD_MIN = 2 * CONNECTIONS  # requests that are served before the first probe
PROBES = 20
SLOW_S = 0.05
WORK_ROUNDS = 2_000  # some 100 us of the loop's time

# Asks as fast as it is answered, on many connections, until its input is closed.
LOAD = """
import asyncio, sys

async def ask(port, said):
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                writer.write(said)
                head = await reader.readuntil(b"\\r\\n\\r\\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0])
                await reader.readexactly(size)
        except (OSError, EOFError):
            await asyncio.sleep(0.01)
        finally:
            writer.close()

async def main(port, connections):
    body = b'{"user_id": "load"}'
    said = (
        b"POST /v1/check HTTP/1.1\\r\\nhost: a\\r\\ncontent-type: application/json\\r\\n"
        b"content-length: %d\\r\\n\\r\\n%b" % (len(body), body)
    )
    tasks = [asyncio.ensure_future(ask(port, said)) for _ in range(connections)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""


class Waiting(Counting):
    """Each decision takes a while, as with a store that has trouble."""

    def check(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        return self._slowly(ask, by)

    async def _slowly(self, ask: CheckRequest, by: Identity) -> CheckResponse:
        await asyncio.sleep(SLOW_S)
        self.requests.clear()
        return self._decide(ask, by, count=True)


class Working(Counting):
    """Each decision takes the loop's own time, so that a core is full."""

    def check(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        sum(range(WORK_ROUNDS))
        self.requests.clear()
        return self._decide(ask, by, count=True)


@contextlib.asynccontextmanager
async def load(port: int, connections: int) -> AsyncIterator[None]:
    """So many connections that ask without a pause."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOAD, str(port), str(connections), stdin=pipe, stdout=pipe
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"ready\n"
        yield
    finally:
        child.stdin.close()
        await child.wait()


async def answered_before_health(here: RunningDoor, path: bytes) -> int:
    """How many requests the door answers between a probe's first byte and its own answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    try:
        before = here.door.requests
        writer.write(b"GET " + path + b" HTTP/1.1\r\nhost: a\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        return here.door.requests - before
    finally:
        writer.close()


# A refusal is answered as it is read, so a probe may see a few of each connection; of what is
# worked for, it sees less than one.
@pytest.mark.parametrize(
    ("service", "requests_max", "ahead_max"),
    [(Waiting(), 20, 4 * CONNECTIONS), (Working(), 1_000, CONNECTIONS)],
)
def test_health_is_answered_ahead_of_what_waits_at_ten_times_the_load(
    service: Counting, requests_max: int, ahead_max: int
) -> None:
    waits: list[int] = []

    async def story() -> None:
        # The waiting service does 20 at once, and is asked by 200 without a pause.
        http = HttpSettings(requests_max=requests_max)
        async with running_door(service=service, http=http, clock=SystemClock()) as here:
            async with load(here.port, CONNECTIONS):
                while here.door.requests < LOAD_MIN:
                    await asyncio.sleep(0.01)
                for number in range(PROBES):
                    path = (b"/healthz", b"/readyz")[number % 2]
                    waits.append(await answered_before_health(here, path))
                served = here.door.requests
            if requests_max == 20:
                refused = here.door.overloaded / served
                assert refused > 0.5, f"{refused:.0%} were more than could be served"

    run(story)
    assert max(waits) < ahead_max, sorted(waits)
