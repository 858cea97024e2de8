"""Budgets: what callers have left to spend, in thousandths of a request unit (`mru`).

The part of `request_units` that keeps accounts and judges nothing else. `TokenBudgets` is a
continuous bucket a caller (`kernels/token_bucket.py`); `leased_budget.LeasedBudget` is another
`Budget`, filled each epoch.

Callers beyond `callers_max` share one bucket; one that is full again is forgotten first, since a
new one would be the same. Cost: a look-up and a bucket's step. Bound: `callers_max`.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from sluicegate.contracts.request import Request
from sluicegate.kernels.cost_model import MILLI
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.kernels.verdict import Verdict

LOOKS: Final = 4
SECOND_US: Final = 1_000_000
CHARGED: Final = Verdict(True, 0, 0, 0)  # where what remains is not computed


class Budget(Protocol):
    """What callers have left, in milli-RU."""

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Take an amount, or refuse with what remains and when there will be enough."""

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Debit an amount after the fact, or refund it if negative.

        Return the part that was not debited, because the debt is at its bound.
        """

    def payable_mru(self, caller: str, now_us: int) -> int:
        """The most that one charge can be: a full budget, and the debt that it may leave."""


class Pricing(Protocol):
    """The price of a request unit for one request."""

    def price_milli(self, request: Request, now_us: int) -> int:
        """In thousandths."""


@final
class TokenBudgets:
    """A continuous bucket a caller."""

    __slots__ = ("_buckets", "_burst_mru", "_debt_mru", "_rate_mru", "_shared", "callers_max")

    def __init__(self, rate_ru: int, burst_ru: int, debt_ru: int, *, callers_max: int) -> None:
        self._rate_mru = rate_ru * MILLI
        self._burst_mru = burst_ru * MILLI
        self._debt_mru = debt_ru * MILLI
        self.callers_max = callers_max
        self._buckets: dict[str, TokenBucket] = {}
        self._shared = self._full_bucket()

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Take from this caller's bucket."""
        return (self._buckets.get(caller) or self._open(caller, now_us)).take(mru, now_us)

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Correct this caller's bucket."""
        return (self._buckets.get(caller) or self._open(caller, now_us)).settle(mru, now_us)

    def payable_mru(self, caller: str, now_us: int) -> int:
        """The same for every caller."""
        return self._burst_mru + self._debt_mru

    def __len__(self) -> int:
        return len(self._buckets)

    def _full_bucket(self) -> TokenBucket:
        return TokenBucket(self._rate_mru, SECOND_US, self._burst_mru, debt_max=self._debt_mru)

    def _open(self, caller: str, now_us: int) -> TokenBucket:
        """A bucket for a caller that has none; the one of all others if there is no room."""
        if len(self._buckets) >= self.callers_max and not self._make_room(now_us):
            return self._shared
        bucket = self._buckets[caller] = self._full_bucket()
        return bucket

    def _make_room(self, now_us: int) -> bool:
        """Forget a full bucket."""
        buckets = self._buckets
        for _ in range(min(LOOKS, len(buckets))):
            caller = next(iter(buckets))
            bucket = buckets.pop(caller)
            if bucket.take(0, now_us).reset_after_us == 0:
                return True
            buckets[caller] = bucket  # behind the others: the next search looks elsewhere
        return False
