"""The drill of a station: callers here, the policy and its workers in a process of their own.

The same rig, the same seed and the same draws as in a world, so the same ledger; but the clock is
the machine's, the socket is one, and a refusal costs what it costs. As there, the unit that begins
next takes as long as the next draw says: with a draw for each that comes, a second seed's worth of
luck lay between the two, which is two points of 2,400 units. Work is a slot, taken for
as long (`WorkSlots`): a worker that computes would need as many cores as the rig has workers, and
one that sleeps wakes up a millisecond late, a tenth of its work. So what a drill adds to the
simulation is the event loop, the sockets and the scheduler, and what it takes away is the rig's
course of speeds, its retries and its `refusal_cost`, which it refuses or leaves out.

The server process speaks a line a message. A client sends `number class timeout_us cost`; the
answer is the number, whether it was served, and the work that it took. The server reads the draws
from the first line of its standard input, prints the port it listens at, and ends when its standard
input does, so that it never outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import cycle
from math import ceil
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.baselines.queues import FifoPool
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import quantile
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rig import Rig
from sluicegate.lab.speed_profile import STEADY
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.stores.engines.faulty.slots import WorkSlots
from sluicegate.system import SystemClock
from sluicegate.system import now_us as system_now_us

CONNECTIONS: Final = 4
RATE_PER_S_MAX: Final = 10_000
# What one Python process sends and another answers before the drill is about them.
READY_S_MAX: Final = 20.0
_AHEAD_US: Final = 2_000
WORK_STREAM: Final = "backend/service"  # the draws that the simulation's backend takes
_END_S: Final = 5.0


class _SentUnit(NamedTuple):
    """One unit that is under way."""

    kind: int
    caller: int
    at_us: int


class StationDrill(NamedTuple):
    """One run in real time; it measured itself if its callers were late to send."""

    ledger: RunLedger
    late_p99_us: int


def play(rig: Rig, policy: str, seed: int) -> StationDrill:
    """One run, in real time."""
    if rig.speed_profile != STEADY or rig.retries is not None:
        raise BadValue("rig", "speed_profile, retries", "give a drill a steady rig without retries")
    child = subprocess.Popen(
        [sys.executable, "-m", "sluicegate.lab.drills.station", policy, str(rig.workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        return asyncio.run(_drive(rig, seed, child))
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_S)
        if child.poll() is None:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


async def _drive(rig: Rig, seed: int, child: subprocess.Popen[str]) -> StationDrill:
    assert child.stdout is not None
    assert child.stdin is not None
    loop = asyncio.get_running_loop()
    with suppress(BrokenPipeError):  # it says itself why it has ended
        child.stdin.write(" ".join(map(str, works_us(rig, seed))) + "\n")
        child.stdin.flush()
    try:
        line = await asyncio.wait_for(
            loop.run_in_executor(None, child.stdout.readline), READY_S_MAX
        )
        port = int(line)
    except (TimeoutError, ValueError):
        raise Unavailable("the drill's server", "it did not print its port") from None
    return await _StationCallers(rig, seed).play(port)


def works_us(rig: Rig, seed: int) -> list[int]:
    """What work takes, in the order in which it begins, for twice as many as can be done."""
    draw_us = rig.service.sampler(RandomSource(seed).of(WORK_STREAM))
    return [
        draw_us() for _ in range(ceil(2 * rig.capacity_per_s * rig.span_us / 1e6) + rig.workers)
    ]


@final
class _StationCallers:
    """Open-loop callers of all kinds, over a few connections."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig = rig
        self._seed = seed
        self._ledger = RunLedger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)
        self._under_way: dict[int, _SentUnit] = {}
        self._writers: list[asyncio.StreamWriter] = []
        self._number = 0
        self._began_us = 0
        self._late_us = array("q")

    async def play(self, port: int) -> StationDrill:
        """Send the units of the seed, each at its instant, until the span is over."""
        listeners = []
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            self._writers.append(writer)
            listeners.append(asyncio.create_task(self._listen(reader)))
        self._began_us = system_now_us()
        try:
            async with asyncio.TaskGroup() as group:
                for kind in range(len(self._rig.kinds)):
                    group.create_task(self._send(kind))
        finally:
            for task in listeners:
                task.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)
            for writer in self._writers:
                writer.close()
        return StationDrill(self._ledger, int(quantile(sorted(self._late_us), 0.99)))

    async def _send(self, number: int) -> None:
        """The units of one kind: each at its instant, or as soon as this process gets to it."""
        rig, kind = self._rig, self._rig.kinds[number]
        random_source = RandomSource(self._seed)
        pick = random_source.of(f"callers/{kind.name}").draw
        for at_us in kind.arrivals.instants_us(random_source.of(f"arrivals/{kind.name}")):
            if at_us >= rig.span_us:
                break
            wait_us = at_us - self._elapsed_us()
            if wait_us > _AHEAD_US:  # those of the same two milliseconds go together
                await asyncio.sleep(wait_us / 1e6)
            caller = int(pick() * kind.callers)
            self._late_us.append(max(0, self._elapsed_us() - at_us))
            self._send_one(_SentUnit(number, caller, self._elapsed_us()))
        await asyncio.sleep(max(rig.span_us - self._elapsed_us(), 0) / 1e6)

    def _send_one(self, sent: _SentUnit) -> None:
        kind = self._rig.kinds[sent.kind]
        self._number += 1
        self._under_way[self._number] = sent
        self._ledger.record_offer(sent.kind, sent.at_us, False)
        waiting = len(self._under_way) - self._rig.workers
        self._ledger.queue_peak = max(self._ledger.queue_peak, waiting)
        words = (self._number, int(kind.criticality), kind.timeout_us, kind.cost)
        writer = self._writers[self._number % CONNECTIONS]
        writer.write(f"{' '.join(map(str, words))}\n".encode())

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            number, word, work_us = line.decode().split()
            self._record(self._under_way.pop(int(number)), word, int(work_us))

    def _record(self, sent: _SentUnit, word: str, work_us: int) -> None:
        now_us = self._elapsed_us()
        if now_us >= self._rig.span_us:
            return
        if word == SERVED:
            in_time = now_us - sent.at_us <= self._rig.kinds[sent.kind].timeout_us
            self._ledger.record_answer(sent.kind, sent.caller, sent.at_us, now_us, work_us, in_time)
        else:
            self._ledger.record_refusal(sent.kind, sent.at_us, now_us)

    def _elapsed_us(self) -> int:
        return system_now_us() - self._began_us


SERVED: Final = "served"
REFUSED: Final = "refused"
POLICIES: Final[Mapping[str, Callable[[int], WaitingPolicy]]] = {
    "queue": lambda workers: Gate(GateSettings(slots=workers)),
    "fifo-pool": FifoPool,
}

_CLOCK: Final = SystemClock()


def policy_of(name: str, workers: int) -> WaitingPolicy:
    """The policy of that name, for so many workers."""
    make = POLICIES.get(name)
    if make is None:
        raise BadValue("policy", name, f"give one of {', '.join(POLICIES)}")
    return make(workers)


@final
class _Workers:
    """Slots, what work in them takes, and a timer for what ends next."""

    def __init__(self, count: int, works_us: Iterable[int]) -> None:
        self._slots = WorkSlots(count)
        self._works_us = cycle(works_us)
        self._timer: asyncio.TimerHandle | None = None

    async def serve(self, cost: int) -> int:
        """Return how long the next work took when it is done."""
        work_us = next(self._works_us) * cost
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots.enter(work_us, done, _CLOCK.now_us())
        self._wake()
        await done
        return work_us

    def _advance(self) -> None:
        self._slots.advance(_CLOCK.now_us())
        self._wake()

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        next_us = self._slots.next_us()
        if next_us is not None:
            wait_s = max(0, next_us - _CLOCK.now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._advance)


async def serve(policy: WaitingPolicy, workers: int) -> None:
    """Listen, say where, and answer until standard input ends."""
    loop = asyncio.get_running_loop()
    slots = _Workers(workers, map(int, sys.stdin.readline().split()))
    under_way: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            task = loop.create_task(_answer(policy, slots, line, writer))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


async def _answer(
    policy: WaitingPolicy, slots: _Workers, line: bytes, writer: asyncio.StreamWriter
) -> None:
    number, criticality, timeout_us, cost = line.split()
    work_us = 0
    now_us = _CLOCK.now_us()
    deadline_us = now_us + int(timeout_us)
    request = Request(
        number.decode(),
        criticality=Criticality(int(criticality)),
        arrived_us=now_us,
        deadline_us=deadline_us,
    )
    admission = await policy.admit(request, _CLOCK)
    if isinstance(admission, Decision):
        word = REFUSED
    else:
        begun_us = _CLOCK.now_us()
        work_us = await slots.serve(int(cost))
        now_us = _CLOCK.now_us()
        request.measured = Measured(service_us=now_us - begun_us)
        in_time = now_us <= deadline_us
        admission.end(Outcome.SUCCESS if in_time else Outcome.DROPPED, now_us)
        word = SERVED
    if not writer.is_closing():
        writer.write(f"{number.decode()} {word} {work_us}\n".encode())


if __name__ == "__main__":
    asyncio.run(serve(policy_of(sys.argv[1], int(sys.argv[2])), int(sys.argv[2])))
