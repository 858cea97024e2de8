"""Limit gate: the plainest gate there is around a number that finds itself, for the baselines."""

from __future__ import annotations

from typing import Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.contracts.request import Request
from sluicegate.kernels.concurrency_limit import SampleWindow

_FULL = Decision(False, 0, 1_000, 1_000, OVERLOADED, "limit_gate")


class Number(Protocol):
    """How many may be at work, by what was measured."""

    @property
    def limit(self) -> int:
        """As it is now."""
        ...

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in a sample, or a window of them."""
        ...


@final
class LimitGate:
    """Admits up to the number; with a window it learns from means of a second, else from each."""

    __slots__ = ("_chance", "_inflight", "_number", "_window")

    def __init__(self, number: Number, chance: Chance, window: SampleWindow | None) -> None:
        self._number = number
        self._chance = chance
        self._window = window
        self._inflight = 0

    @property
    def limit(self) -> int:
        """How many may be at work."""
        return self._number.limit

    def admit(self, request: Request, now_us: int) -> LimitPermit | Decision:
        """If there is a place."""
        if self._inflight >= self._number.limit:
            return _FULL
        self._inflight += 1
        return LimitPermit(self, now_us)

    def ended(self, rtt_us: int, now_us: int) -> None:
        """A call was answered."""
        inflight = self._inflight
        self._inflight -= 1
        if self._window is None:
            self._number.update(rtt_us, inflight, False, self._chance.draw())
            return
        sample = self._window.add(rtt_us, inflight, False, now_us)
        if sample is not None:
            draw = self._chance.draw()
            self._number.update(sample.rtt_us, sample.inflight, sample.dropped, draw)


@final
class LimitPermit:
    """One place."""

    __slots__ = ("_begun_us", "_gate")

    def __init__(self, gate: LimitGate, begun_us: int) -> None:
        self._gate = gate
        self._begun_us = begun_us

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give it back; in these rigs it ends once, and well."""
        self._gate.ended(now_us - self._begun_us, now_us)
        return True
