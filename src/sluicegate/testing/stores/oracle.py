"""Oracle: what a store should answer, by the kernels, one dict and no cleverness.

It is told the instant at which the store decided and keeps every state whole. Nothing is packed,
shared or forgotten, so there is nothing here that could be wrong but the kernels, and those have
tests of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge
from sluicegate.kernels import fixed_window, gcra, sliding_window, token_bucket
from sluicegate.kernels.pace import Pace, in_us
from sluicegate.kernels.verdict import NEVER

# The new state; allowed, remaining, retry_after_us, reset_after_us.
Stepped = tuple[Any, bool, int, int, int]


class Counter(ABC):
    """One limit and its kernel; a state is whatever the kernel keeps."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit

    @abstractmethod
    def rested(self) -> Any:
        """Return the state of a key that was never seen."""

    @abstractmethod
    def step(self, state: Any, now_us: int, cost: int) -> Stepped:
        """Decide."""

    @abstractmethod
    def settle(self, state: Any, now_us: int, correction: int, taken_us: int) -> Any:
        """Return the state after a correction."""


class Paced(Counter):
    """GCRA, and what all three that keep one instant in ticks have in common."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self.pace = Pace(limit.count, limit.period_us)
        self.tolerance = limit.burst * self.pace.interval

    def rested(self) -> int:
        """Nothing is owed."""
        return 0

    def step(self, state: int, now_us: int, cost: int) -> Stepped:
        """In ticks, and back."""
        stepped, allowed, remaining, retry, reset = self.decide(
            state, self.pace.ticks(now_us), cost
        )
        per_us = self.pace.ticks_per_us
        return stepped, allowed, remaining, in_us(retry, per_us), in_us(reset, per_us)

    def decide(self, state: int, now: int, cost: int) -> Stepped:
        """Return the kernel's step."""
        return gcra.step(state, now, cost, self.pace.interval, self.tolerance)

    def settle(self, state: int, now_us: int, correction: int, taken_us: int) -> int:
        """As a bucket that goes into debt by one burst at most."""
        ticks = correction * self.pace.interval
        if correction < 0 and taken_us < now_us:
            # What was taken flows back by itself; after a whole burst nothing of it is left.
            owed = max(self.tolerance - self.pace.ticks(now_us - taken_us), 0)
            ticks = max(ticks, -owed)
        now = self.pace.ticks(now_us)
        return token_bucket.settle(state, now, ticks, self.tolerance, self.tolerance)


class Tokens(Paced):
    """The token bucket, without debt."""

    def decide(self, state: int, now: int, cost: int) -> Stepped:
        """Return the kernel's step."""
        interval = self.pace.interval
        full_at, allowed, level, retry, reset = token_bucket.step(
            state, now, cost * interval, self.tolerance, 0
        )
        return full_at, allowed, max(level, 0) // interval, retry, reset


class Fixed(Counter):
    """A window's number and what is used of it."""

    def rested(self) -> tuple[int, int]:
        """Long ago."""
        return 0, 0

    def step(self, state: tuple[int, int], now_us: int, cost: int) -> Stepped:
        """Return the kernel's step."""
        period_us, limit = self.limit.period_us, self.limit.count
        window, used, allowed, retry_us = fixed_window.step(*state, now_us, cost, period_us, limit)
        reset_us = (window + 1) * period_us - now_us if used else 0
        return (window, used), allowed, limit - used, retry_us, reset_us

    def settle(
        self, state: tuple[int, int], now_us: int, correction: int, taken_us: int
    ) -> tuple[int, int]:
        """Return the kernel's."""
        limit = self.limit
        return fixed_window.settle(
            *state, now_us, correction, taken_us, limit.period_us, limit.count
        )


class Cells(Counter):
    """The sliding window by cells; one cell is the pair of counters."""

    def rested(self) -> tuple[int, ...]:
        """No cells."""
        return ()

    def step(self, state: tuple[int, ...], now_us: int, cost: int) -> Stepped:
        """Return the kernel's step."""
        limit = self.limit
        return sliding_window.cells_step(
            state, now_us, cost, limit.period_us // limit.cells, limit.cells, limit.count
        )

    def settle(
        self, state: tuple[int, ...], now_us: int, correction: int, taken_us: int
    ) -> tuple[int, ...]:
        """Return the kernel's."""
        limit = self.limit
        cell_us = limit.period_us // limit.cells
        return sliding_window.cells_settle(
            state, now_us, correction, taken_us, cell_us, limit.cells, limit.count
        )


class Log(Counter):
    """Every admitted instant."""

    def rested(self) -> tuple[int, ...]:
        """None."""
        return ()

    def step(self, state: tuple[int, ...], now_us: int, cost: int) -> Stepped:
        """Return the kernel's step."""
        return sliding_window.log_step(state, now_us, cost, self.limit.period_us, self.limit.count)

    def settle(
        self, state: tuple[int, ...], now_us: int, correction: int, taken_us: int
    ) -> tuple[int, ...]:
        """Return the kernel's."""
        limit = self.limit
        return sliding_window.log_settle(
            state, now_us, correction, taken_us, limit.period_us, limit.count
        )


COUNTERS: Final[dict[Algorithm, Callable[[Limit], Counter]]] = {
    Algorithm.GCRA: Paced,
    Algorithm.TOKEN_BUCKET: Tokens,
    Algorithm.FIXED_WINDOW: Fixed,
    Algorithm.SLIDING_WINDOW: Cells,
    Algorithm.SLIDING_LOG: Log,
}


@final
class Oracle:
    """A store that is told the time and never wrong."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], Any] = {}

    def take(
        self,
        charges: Sequence[Charge],
        at_us: int,
        *,
        keep: bool = True,
        count_refused: bool = False,
    ) -> list[Decision]:
        """Every charge or none, decided at `at_us`."""
        whole: dict[tuple[str, str], int] = {}
        for charge in charges:
            whole[_place(charge)] = whole.get(_place(charge), 0) + charge.cost
        stepped = {
            _place(charge): self._step(charge, at_us, whole[_place(charge)]) for charge in charges
        }
        decisions = [_decision(charge.rule_id, stepped[_place(charge)]) for charge in charges]
        if keep and all(decisions):
            self._states |= {place: step[0] for place, step in stepped.items()}
        elif keep and count_refused:
            self.settle(charges, at_us, at_us)
        return decisions

    def take_some(self, charge: Charge, ladder: Sequence[int], at_us: int) -> tuple[int, Decision]:
        """Return the first of `ladder` that fits, or 0 and the decision of the last."""
        for units in ladder:
            (decision,) = self.take([charge._replace(cost=units)], at_us)
            if decision:
                return units, decision
        return 0, decision

    def settle(self, charges: Sequence[Charge], at_us: int, taken_us: int | None = None) -> None:
        """Correct what was taken at `taken_us`; None is `at_us`."""
        taken_us = at_us if taken_us is None else taken_us
        for charge in charges:
            counter = _counter(charge)
            state = self._states.get(_place(charge), counter.rested())
            self._states[_place(charge)] = counter.settle(state, at_us, charge.cost, taken_us)

    def reset(self, charges: Sequence[Charge]) -> None:
        """Forget."""
        for charge in charges:
            self._states.pop(_place(charge), None)

    def state(self, charge: Charge, at_us: int) -> Any:
        """Return what is known of the charge's key, as it is at that instant."""
        return self._step(charge, at_us, 0)[0]

    def copy(self) -> Oracle:
        """Another that has seen the same."""
        other = Oracle()
        other._states = dict(self._states)
        return other

    def _step(self, charge: Charge, at_us: int, cost: int) -> Stepped:
        counter = _counter(charge)
        return counter.step(self._states.get(_place(charge), counter.rested()), at_us, cost)


def _counter(charge: Charge) -> Counter:
    return COUNTERS[charge.limit.algorithm](charge.limit)


def _place(charge: Charge) -> tuple[str, str]:
    return charge.rule_id, str(charge.key)


def _decision(rule_id: str, stepped: Stepped) -> Decision:
    _, allowed, remaining, retry_us, reset_us = stepped
    if allowed:
        return Decision(True, remaining, 0, reset_us, None, rule_id)
    reason = COST_ABOVE_LIMIT if retry_us == NEVER else RATE_LIMITED
    return Decision(False, remaining, retry_us, reset_us, reason, rule_id)
