"""Answers: a store that counts nothing and gives the answers that were set.

For tests of what a program does when it is refused, or admitted, whatever its limits are. It keeps
what it was asked, so that a test may look at keys and costs. One such store may serve any number of
event loops and threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import RATE_LIMITED, Reason
from sluicegate.contracts.store import Charge, PartialTake, Ruling
from sluicegate.testing.clock import HandClock

ASKED_MAX_DEFAULT: Final = 10_000  # charges that are kept; the oldest go first
QUEUE_MAX: Final = 10_000  # answers that wait for their ask

_Responder = Callable[[Charge], Decision]


@final
class AnswerStore:
    """A `contracts.store.Store` that answers as told: admitted, until it hears otherwise.

    With `times`, an answer is for so many requests, behind those that were told before; without,
    for all requests from then on. A request of several charges is one request.
    """

    __slots__ = ("_clock", "_lock", "_queue", "_standing", "asked")

    def __init__(self, clock: Clock | None = None, *, asked_max: int = ASKED_MAX_DEFAULT) -> None:
        if asked_max < 1:
            raise BadValue("asked_max", asked_max, "give the number of charges to keep, at least 1")
        self._clock: Clock = HandClock() if clock is None else clock
        self._lock = Lock()
        self._queue: deque[_Responder] = deque()
        self._standing: _Responder = _admit_one
        self.asked: deque[Charge] = deque(maxlen=asked_max)

    def admit(self, times: int | None = None) -> None:
        """Admit the next `times` asks, or all."""
        self._set(_admit_one, times)

    def refuse(
        self,
        times: int | None = None,
        *,
        retry_after_s: float = 1.0,
        reason: Reason = RATE_LIMITED,
    ) -> None:
        """Refuse the next `times` asks, or all; a negative `retry_after_s` says never."""
        retry_us = max(round(retry_after_s * 1_000_000), -1)

        def refuse_one(charge: Charge) -> Decision:
            return Decision(False, 0, retry_us, max(retry_us, 0), reason, charge.rule_id)

        self._set(refuse_one, times)

    # As a store.

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Say what was told; a look takes no answer out of the queue."""
        with self._lock:
            answer = self._queue[0] if self._queue else self._standing
            if keep:
                self.asked += charges
                if self._queue:
                    self._queue.popleft()
        return Ruling(self._clock.now_us(), [answer(charge) for charge in charges])

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> PartialTake:
        """Return the first rung if it is admitted, or nothing."""
        units = ladder[0]
        ruling = await self.take([charge._replace(cost=units)])
        return PartialTake(ruling.at_us, units if ruling.allowed else 0, ruling.decisions[0])

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Nothing was taken."""

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Nothing is remembered."""

    async def close(self) -> None:
        """It goes on answering: others may share it."""

    def _set(self, answer: _Responder, times: int | None) -> None:
        with self._lock:
            if times is None:
                self._queue.clear()
                self._standing = answer
                return
            if not 0 <= times <= QUEUE_MAX - len(self._queue):
                raise BadValue("times", times, f"at most {QUEUE_MAX:,} answers may wait")
            self._queue += [answer] * times


def _admit_one(charge: Charge) -> Decision:
    return Decision(True, max(charge.limit.burst - charge.cost, 0), 0, 0, None, charge.rule_id)
