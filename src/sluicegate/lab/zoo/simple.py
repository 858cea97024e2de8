"""Simple candidates: nothing, an in-flight limit, Gradient2, folly's CoDel and a bounded LIFO.

Each is a gate before one resource, one for each dispatcher and shard. Those that need a number have
the right one: the slots of the resource, divided by the dispatchers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sluicegate.kernels.codel import Codel
from sluicegate.lab.baselines.gradient2 import PublishedGradient2, SampleWindow
from sluicegate.lab.world import World, run
from sluicegate.lab.zoo.outcome import Record
from sluicegate.lab.zoo.player import LOOP_IO_US, burn, make_resources, starve
from sluicegate.lab.zoo.shape import DEADLINE, HANGUP, ZooRequest, ZooShape

IN_FLIGHT_TIMES: Final = 1.5  # a limit without a queue needs some for chance
LIFO_MAX: Final = 1_000
_SMOOTHING: Final = 0.05


class PlainGate:
    """Nothing: everything is sent to the resource at once."""

    def __init__(self, station: GatedStation, slots: float) -> None:
        self.station = station
        self.limit = slots
        self.inflight = 0

    def arrive(self, ask: ZooRequest) -> None:
        """Send a request, keep it, or refuse it."""
        self.send(ask)

    def send(self, ask: ZooRequest) -> None:
        """Send it to the resource."""
        self.inflight += 1
        self.station.send(ask, self)

    def end(self, ask: ZooRequest, took_us: int) -> None:
        """Note that a request has ended."""
        self.inflight -= 1


class InFlightGate(PlainGate):
    """A limit on the requests in flight; the others are refused."""

    def __init__(self, station: GatedStation, slots: float) -> None:
        super().__init__(station, slots * IN_FLIGHT_TIMES)

    def arrive(self, ask: ZooRequest) -> None:
        """Send a request, queue it, or refuse it."""
        if self.inflight < self.limit:
            self.send(ask)
        else:
            self.station.refuse(ask)


class Gradient2Gate(InFlightGate):
    """The same with a limit found by Gradient2."""

    def __init__(self, station: GatedStation, slots: float) -> None:
        super().__init__(station, slots)
        self._found = PublishedGradient2()
        self._window = SampleWindow()
        self.limit = self._found.limit

    def end(self, ask: ZooRequest, took_us: int) -> None:
        """Note that a request has ended."""
        sample = self._window.add(took_us, self.inflight, False, self.station.now_us)
        super().end(ask, took_us)
        if sample is not None:
            self.limit = self._found.update(sample.rtt_us, sample.inflight, sample.dropped, 0.5)


class CodelGate(PlainGate):
    """A first-in, first-out queue before the slots, shortened by folly's CoDel."""

    def __init__(self, station: GatedStation, slots: float) -> None:
        super().__init__(station, slots)
        self.queue: deque[ZooRequest] = deque()
        self._codel = Codel()

    def arrive(self, ask: ZooRequest) -> None:
        """Send a request, queue it, or refuse it."""
        self.queue.append(ask)
        self.pump()

    def end(self, ask: ZooRequest, took_us: int) -> None:
        """Note that a request has ended."""
        super().end(ask, took_us)
        self.pump()

    def pump(self) -> None:
        """Send what there are slots for."""
        while self.inflight < self.limit and (ask := self.take()) is not None:
            self.send(ask)

    def take(self) -> ZooRequest | None:
        """Return the oldest request that passes."""
        now_us = self.station.now_us
        while self.queue:
            ask = self.queue.popleft()
            if self.station.has_left(ask):
                continue
            if not self._codel.drop(now_us - ask.at_us, now_us):
                return ask
            self.station.refuse(ask)
        return None


class LifoGate(CodelGate):
    """The newest first; a request is dropped when it cannot be answered before its deadline."""

    def __init__(self, station: GatedStation, slots: float) -> None:
        super().__init__(station, slots)
        self._work_us = 0.0

    def end(self, ask: ZooRequest, took_us: int) -> None:
        """Note that a request has ended."""
        self._work_us += (took_us - self._work_us) * (_SMOOTHING if self._work_us else 1.0)
        super().end(ask, took_us)

    def arrive(self, ask: ZooRequest) -> None:
        """Send a request, queue it, or refuse it."""
        while self.queue and (len(self.queue) >= LIFO_MAX or self._in_vain(self.queue[0])):
            self.station.refuse(self.queue.popleft())
        super().arrive(ask)

    def take(self) -> ZooRequest | None:
        """Return the next request."""
        while self.queue:
            ask = self.queue.pop()
            if self.station.has_left(ask):
                continue
            if not self._in_vain(ask):
                return ask
            self.station.refuse(ask)
        return None

    def _in_vain(self, ask: ZooRequest) -> bool:
        kind = self.station.shape.traffic[ask.kind]
        told = kind.tells == DEADLINE and kind.patience_us > 0
        return told and self.station.now_us + self._work_us > ask.at_us + kind.patience_us


MakeGate: TypeAlias = "Callable[[GatedStation, float], PlainGate]"
SIMPLE: Final[dict[str, MakeGate]] = {
    "nothing": PlainGate,
    "in-flight": InFlightGate,
    "gradient2": Gradient2Gate,
    "codel": CodelGate,
    "lifo": LifoGate,
}


class GatedStation:
    """The resources of a shape, and a gate before each for each dispatcher."""

    def __init__(self, world: World, record: Record, make: MakeGate) -> None:
        self._world = world
        self._record = record
        self._make = make
        self._gates: dict[tuple[int, int], PlainGate] = {}
        self.shape = record.shape
        self._resources = make_resources(world, record.shape)

    @property
    def now_us(self) -> int:
        """Virtual time since the run began."""
        return self._world.elapsed_us

    def arrive(self, ask: ZooRequest) -> None:
        """Hand a request to its gate, and let its caller hang up if that is its way."""
        shape = self.shape
        key = (ask.dispatcher, shape.resource_of(ask.shard))
        gate = self._gates.get(key)
        if gate is None:
            slots: float = max(1, shape.known // shape.dispatchers) if shape.known else math.inf
            gate = self._gates[key] = self._make(self, slots)
        kind = shape.traffic[ask.kind]
        if kind.tells == HANGUP and kind.patience_us:
            self._world.call_at_us(ask.at_us + kind.patience_us, self._record.leave, ask)
        gate.arrive(ask)

    def has_left(self, ask: ZooRequest) -> bool:
        """Return whether the caller has hung up."""
        return self._record.has_left(ask)

    def refuse(self, ask: ZooRequest) -> None:
        """Refuse a request."""
        self._record.refuse(ask, self.now_us)

    def send(self, ask: ZooRequest, gate: PlainGate) -> None:
        """Serve a request: the upload, the work, the stream."""
        self._record.begun[ask.number] = True
        sent_us = self.now_us

        def ended() -> None:
            self._record.end(ask)
            gate.end(ask, self.now_us - sent_us)

        def worked() -> None:
            self._record.answer(ask, self.now_us)
            self._after(self.shape.traffic[ask.kind].stream_us, ended)

        self._after(self.shape.traffic[ask.kind].upload_us, lambda: self._work(ask, worked))

    def _after(self, us: int, act: Callable[[], None]) -> None:
        if us:
            self._world.call_at_us(self.now_us + us, act)
        else:
            act()

    def _work(self, ask: ZooRequest, worked: Callable[[], None]) -> None:
        if not self.shape.in_loop:
            resource = self._resources[self.shape.resource_of(ask.shard)]
            resource.submit(ask.work_us, worked)
            return
        half_us = ask.work_us // 2

        def second() -> None:
            burn(ask.work_us - half_us)
            worked()

        burn(half_us)
        self._after(LOOP_IO_US, second)


def play_simple(shape: ZooShape, load: Sequence[ZooRequest], make: MakeGate, seed: int) -> Record:
    """Play the load with one gate for each dispatcher and resource."""
    record = Record(shape, load)

    async def main(world: World) -> None:
        station = GatedStation(world, record, make)
        starve(world, shape)
        for ask in load:
            world.call_at_us(ask.at_us, station.arrive, ask)
        await world.until_us(shape.span_us)

    run(main, seed)
    return record
