"""Retries: what callers do when they are refused or time out.

Naive callers retry at once, as often as they are set to. Smart ones wait with full jitter, take
from a retry budget first, and stop when it is empty: the product's own kernels, `backoff` and
`retry_budget`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.backoff import Backoff, BackoffSettings
from sluicegate.kernels.retry_budget import RetryBudget, RetryShareSettings

ATTEMPTS_MAX: Final = 100
NO_MORE: Final = -1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How callers retry: `attempts` in all, a backoff that starts at `base_us`, and a budget.

    `budget_milli` is what a first attempt pays in for retries, in thousandths of one (100 allows
    one retry in ten calls); None is no budget. All callers of a kind share one, as the clients of
    one process do.
    """

    attempts: int = 4
    base_us: int | None = None  # None: at once
    wait_us_max: int = 20_000_000
    budget_milli: int | None = None
    reserve_milli_per_s: int = 1_000

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise BadValue("attempts", self.attempts, f"give 1 to {ATTEMPTS_MAX}")


NAIVE: Final = Retries(attempts=4)
SMART: Final = Retries(attempts=4, base_us=50_000, budget_milli=100)


@final
class Retrier:
    """Decides about the retries of one kind of callers."""

    __slots__ = ("_attempts", "_backoff", "_budget", "_chance")

    def __init__(self, retries: Retries, chance: Chance) -> None:
        self._attempts = retries.attempts
        self._chance = chance
        self._backoff: Backoff | None = None
        self._budget: RetryBudget | None = None
        if retries.base_us is not None:
            self._backoff = Backoff(
                BackoffSettings(
                    base_us=retries.base_us,
                    wait_us_max=max(retries.wait_us_max, retries.base_us),
                )
            )
        if retries.budget_milli is not None:
            self._budget = RetryBudget(
                RetryShareSettings(
                    deposit_milli=retries.budget_milli,
                    reserve_milli_per_s=retries.reserve_milli_per_s,
                )
            )

    def first(self, now_us: int) -> None:
        """Count a first attempt."""
        if self._budget is not None:
            self._budget.deposit(now_us)

    def wait_us(self, attempt: int, now_us: int, hint_us: int = 0) -> int:
        """How long to wait after `attempt` (the first is 0) failed; `NO_MORE` to give up."""
        if attempt + 1 >= self._attempts:
            return NO_MORE
        if self._budget is not None and not self._budget.withdraw(now_us):
            return NO_MORE
        if self._backoff is None:
            return 0
        return self._backoff.wait_us(attempt, self._chance.draw(), hint_us=hint_us)
