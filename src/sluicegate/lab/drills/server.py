"""The server of a station's drill: one process, a policy, and work that takes its time.

It speaks a line a message. A client sends `number class timeout_us work_us`; the answer is the
number and whether it was served. It prints the port it listens at, and ends when its standard input
does, so that it never outlives who started it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.baselines.fifo_pool import FifoPool
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.system import SystemClock

SERVED: Final = "served"
REFUSED: Final = "refused"
POLICIES: Final[Mapping[str, Callable[[int], WaitingPolicy]]] = {
    "queue": lambda workers: Queue(QueueSettings(places=workers)),
    "fifo-pool": FifoPool,
}

_CLOCK: Final = SystemClock()


def policy_of(name: str, workers: int) -> WaitingPolicy:
    """The policy of that name, for so many workers."""
    make = POLICIES.get(name)
    if make is None:
        raise BadValue("policy", name, f"give one of {', '.join(POLICIES)}")
    return make(workers)


async def serve(policy: WaitingPolicy) -> None:
    """Listen, say where, and answer until standard input ends."""
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            task = loop.create_task(_answer(policy, line, writer))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


async def _answer(policy: WaitingPolicy, line: bytes, writer: asyncio.StreamWriter) -> None:
    number, criticality, timeout_us, work_us = line.split()
    now_us = _CLOCK.now_us()
    request = Request(
        number.decode(),
        criticality=Criticality(int(criticality)),
        arrived_us=now_us,
        deadline_us=now_us + int(timeout_us),
    )
    admission = await policy.admit(request, _CLOCK)
    if isinstance(admission, Decision):
        word = REFUSED
    else:
        begun_us = _CLOCK.now_us()
        await asyncio.sleep(int(work_us) / 1e6)
        now_us = _CLOCK.now_us()
        request.measured = Measured(service_us=now_us - begun_us)
        admission.end(Outcome.SUCCESS, now_us)
        word = SERVED
    if not writer.is_closing():
        writer.write(f"{number.decode()} {word}\n".encode())


if __name__ == "__main__":
    asyncio.run(serve(policy_of(sys.argv[1], int(sys.argv[2]))))
