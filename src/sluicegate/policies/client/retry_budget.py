"""Retry budget: how many more calls a client may make than it was asked for, by backend and class.

`retry` and `hedge` spend from one `RetryBudgets`, for to a backend that has too much to do a hedge
is a retry that came early. The kernel is `kernels/retry_budget.py`. There is one budget for each
backend and class, or the retries of bulk work would spend what critical work needs.

The reserve is per budget: a minimum of ten a second in each of a thousand small clients is a storm.
It is 1 a second here, and 0 is a setting.

Cost: a look-up, a division and some additions. Bounds: `keys_max` budgets; one that nothing was
paid into or taken out of for `window_us` is the same as a new one and may be forgotten. What comes
above that may not be repeated at all (`untracked`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.retry_budget import RetryBudget, RetryShareSettings
from sluicegate.policies.keyed_table import KEYS_MAX, KeyedTable, key_of
from sluicegate.policies.settings import check_ranges, wrong_setting

RULE_ID: Final = "retry_budget"


@final
@dataclass(frozen=True, kw_only=True)
class RetryBudgetSettings(RetryShareSettings):
    """The settings of each budget (one retry in ten calls by default), and how many there are."""

    keys_max: int = ranged(1_000, 1, KEYS_MAX)

    def __post_init__(self) -> None:
        check_ranges("retry_budget", self)
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None


class RetryBudgetStats(NamedTuple):
    """First calls paid for; repeats granted and refused; budgets entry; calls without one."""

    deposits: int
    granted: int
    refused: int
    keys: int
    untracked: int


@final
class _Entry:
    __slots__ = ("budget", "used_us", "window_us")

    def __init__(self, budget: RetryBudget, window_us: int) -> None:
        self.budget = budget
        self.window_us = window_us
        self.used_us = 0

    def at_rest(self, now_us: int) -> bool:
        """Whether the window has forgotten all that it knew."""
        return now_us - self.used_us >= self.window_us


@final
class RetryBudgets:
    """The budgets of a client: first calls pay in, retries and hedges take out."""

    __slots__ = ("_deposits", "_entries", "_granted", "_refused", "settings")

    def __init__(self, settings: RetryBudgetSettings | None = None) -> None:
        self.settings = RetryBudgetSettings() if settings is None else settings
        self._entries: KeyedTable[_Entry] = KeyedTable(self.settings.keys_max)
        self._deposits = self._granted = self._refused = 0

    def deposit(self, request: Request, now_us: int) -> None:
        """Pay in for a first call."""
        entry = self._entry_of(request, now_us)
        if entry is not None:
            self._deposits += 1
            entry.used_us = now_us
            entry.budget.deposit(now_us)

    def withdraw(self, request: Request, now_us: int) -> bool:
        """Take out one repeat of this request's backend and class, if there is one."""
        entry = self._entry_of(request, now_us)
        if entry is None or not entry.budget.withdraw(now_us):
            self._refused += 1
            return False
        entry.used_us = now_us
        self._granted += 1
        return True

    def balance(self, request: Request, now_us: int) -> int:
        """How many repeats would be granted at once."""
        entry = self._entry_of(request, now_us)
        return 0 if entry is None else entry.budget.balance(now_us)

    def stats(self) -> RetryBudgetStats:
        """What was decided so far."""
        return RetryBudgetStats(
            self._deposits,
            self._granted,
            self._refused,
            len(self._entries),
            self._entries.untracked,
        )

    def _entry_of(self, request: Request, now_us: int) -> _Entry | None:
        key = key_of(request, by_operation=False, by_criticality=True)
        entry = self._entries.entries.get(key)
        if entry is None and self._entries.has_room(now_us):
            entry = _Entry(RetryBudget(self.settings), self.settings.window_us)
            entry.used_us = now_us
            self._entries.entries[key] = entry
        return entry
