"""Credits: a server hands out how many requests may be under way, and callers without one wait.

*Breakwater* (OSDI 2020) keeps a pool of credits and changes it once a round trip, by the delay `d`
of the request that has waited longest at the server, against a target `t`:

    d < t    credits += max(0.001 * clients, 1)
    else     credits *= max(1 - 0.02 * (d - t) / t, 0.5)

The pool never has less than a credit a worker. A request without a credit waits at its client, and
fails there after a round trip; one that meets more than twice the target at the server is refused
there. Written from Cho et al., "Overload Control for us-scale RPCs with Breakwater", with the
numbers of its artifact: the target is 8 service times, as 80 us are for 10 us.

It is at its best here: a round trip is as long as a unit of work (as in its own rigs), news of
credits takes no time, and any caller may use any credit, so nothing is lost by handing them to
callers who have nothing to send. It knows one class, and no deadline.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit

ADD_PER_CLIENT: Final = 0.001
SHRINK: Final = 0.02
SHRINK_LEAST: Final = 0.5
TARGET_SERVICES: Final = 8
REFUSE_TARGETS: Final = 2
WINDOW_MAX: Final = 64  # credits of one client


@final
class CreditPool:
    """How many may be under way."""

    __slots__ = ("_clients", "_target_us", "credits", "workers")

    def __init__(self, workers: int, clients: int, target_us: int) -> None:
        self.workers = workers
        self._clients = clients
        self._target_us = target_us
        self.credits = float(workers)

    def tick(self, delay_us: int) -> None:
        """Change the pool by the delay of a round trip."""
        target_us = self._target_us
        if delay_us < target_us:
            most = float(WINDOW_MAX * max(self._clients, self.workers))
            self.credits = min(self.credits + max(ADD_PER_CLIENT * self._clients, 1.0), most)
            return
        kept = max(1 - SHRINK * (delay_us - target_us) / target_us, SHRINK_LEAST)
        self.credits = max(self.credits * kept, float(self.workers))


@final
class Breakwater:
    """Two queues: of requests with a credit at the server, of those without at their clients."""

    __slots__ = ("_clients", "_hungry", "_pool", "_server", "_target_us", "_tick_us", "_trip_us")

    def __init__(self, workers: int, clients: int, service_us: int) -> None:
        self._target_us = TARGET_SERVICES * service_us
        self._pool = CreditPool(workers, clients, self._target_us)
        self._trip_us = service_us
        self._tick_us = service_us
        self._server: deque[tuple[int, WorkUnit]] = deque()
        self._clients: deque[tuple[int, WorkUnit]] = deque()
        self._hungry = True  # a worker has found nothing

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Let it in if there is a credit; else it waits at its client."""
        self._tick(now_us, lost)
        if self._room():
            self._enter(unit, now_us, lost)
        else:
            self._clients.append((now_us, unit))

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest at the server; its worker's last credit is free again."""
        self._tick(now_us, lost)
        if not self._server:
            self._refill(now_us, lost, 1)
        if not self._server:
            self._hungry = True
            return None
        self._hungry = False
        _, unit = self._server.popleft()
        self._refill(now_us, lost, 0)
        return unit

    def waiting(self) -> int:
        """Return how many are held, at the clients too."""
        return len(self._server) + len(self._clients)

    def _room(self) -> bool:
        """Whether a credit is free: all workers hold one unless one of them asks for work."""
        if self._hungry and not self._server:
            return True
        return len(self._server) < int(self._pool.credits) - self._pool.workers

    def _enter(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        if self._delay_us(now_us) > REFUSE_TARGETS * self._target_us:
            lost.append(unit)
        else:
            self._server.append((now_us, unit))

    def _refill(self, now_us: int, lost: list[WorkUnit], least: int) -> None:
        """Let in who has waited longest at a client, as far as there are credits."""
        self._expire(now_us, lost)
        while self._clients and (len(self._server) < least or self._room()):
            self._enter(self._clients.popleft()[1], now_us, lost)

    def _expire(self, now_us: int, lost: list[WorkUnit]) -> None:
        while self._clients and now_us - self._clients[0][0] > self._trip_us:
            lost.append(self._clients.popleft()[1])

    def _delay_us(self, now_us: int) -> int:
        return now_us - self._server[0][0] if self._server else 0

    def _tick(self, now_us: int, lost: list[WorkUnit]) -> None:
        if now_us >= self._tick_us:
            self._pool.tick(self._delay_us(now_us))
            self._tick_us = now_us + self._trip_us
            self._expire(now_us, lost)


def breakwater(rig: Rig) -> Breakwater:
    """Return credits for the rig's workers and callers."""
    clients = sum(kind.callers for kind in rig.kinds)
    return Breakwater(rig.workers, clients, max(round(rig.service.mean_us), 1))
