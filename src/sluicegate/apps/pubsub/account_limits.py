"""Account limits: what each account may, from a TOML file; the others go by the flags.

    [accounts.shop]
    rate = 5000         # messages a second; 0 is no limit
    burst = 20000       # of them at once; those of a second, if it is left out beside a rate
    month = 100000000   # nominal messages a month; 0 is no limit
    hour = 1000000      # and an hour; so many times the month in proportion, if it is left out
    connections = 1000
    channels = 500      # in use

What an account leaves out goes by the flags. The file is read at the start and again on SIGHUP. One
that cannot be used changes nothing, and is logged. In a cluster an account's master goes by its own
file, and tells the nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.quota.usage import NO_PLAN, UsagePlan, hour_of_month
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.service.toml_file import read_toml

FILE_BYTES_MAX: Final = 10_000_000
ACCOUNTS_MAX: Final = 100_000
RATE_MAX: Final = 1_000_000_000
WHOLE_MAX: Final = 1 << 53
_FIELDS: Final = ("rate", "burst")
_PLAN: Final = ("hour", "month", "connections", "channels")
_log: Final = logging.getLogger("sluicegate.pubsub")


class AccountEntry(NamedTuple):
    """What the file says of one account; None is what the flags say."""

    rate: int | None
    burst: int | None
    hour: int | None
    month: int | None
    connections: int | None
    channels: int | None


@final
class AccountLimits:
    """The limits of every account. `others` is the plan of those that the file does not name."""

    def __init__(
        self, path: str, rate: int, burst: int, others: UsagePlan = NO_PLAN, hour_ratio: int = 0
    ) -> None:
        self._path = path
        self._others_rate, self._others_burst = rate, burst
        self._others = _limit_of(rate, burst)
        self._others_plan = hour_of_month(others, hour_ratio)
        self._hour_ratio = hour_ratio
        self._named: Mapping[str, AccountLimit | None] = {}
        self._plans: Mapping[str, UsagePlan] = {}
        if path:
            self._take(read_limits(path))

    def limit_of(self, account: str) -> AccountLimit | None:
        """What an account may a second; None is no limit."""
        return self._named.get(account, self._others)

    def plan_of(self, account: str) -> UsagePlan:
        """What it may in an hour and a month, and at a time."""
        return self._plans.get(account, self._others_plan)

    def reload(self) -> None:
        """Read the file again."""
        if not self._path:
            return
        try:
            self._take(read_limits(self._path))
        except BadValue as error:
            _log.warning("the limits stay as they are: %s", error)

    def _take(self, named: Mapping[str, AccountEntry]) -> None:
        others = self._others_plan
        self._named = {name: self._limit_of_entry(one) for name, one in named.items()}
        self._plans = {
            name: hour_of_month(_plan_of(one, others), self._hour_ratio)
            for name, one in named.items()
        }

    def _limit_of_entry(self, one: AccountEntry) -> AccountLimit | None:
        """A burst that is left out goes by the flags, if the rate does."""
        if one.rate is not None:
            return _limit_of(one.rate, one.burst or 0)
        return _limit_of(self._others_rate, self._others_burst if one.burst is None else one.burst)


def _plan_of(one: AccountEntry, others: UsagePlan) -> UsagePlan:
    """An hour goes by the account's own month, if only that is said."""
    hour = one.hour
    if hour is None:
        hour = others.hour if one.month is None else 0
    return UsagePlan(
        hour,
        others.month if one.month is None else one.month,
        others.connections if one.connections is None else one.connections,
        others.channels if one.channels is None else one.channels,
    )


def read_limits(path: str) -> Mapping[str, AccountEntry]:
    """The accounts that a file names."""
    top = read_toml("--limits", path, FILE_BYTES_MAX)
    for name in top:
        if name != "accounts":
            raise BadValue(f"{path}: {name}", top[name], "there is accounts")
    accounts = top.get("accounts", {})
    if not isinstance(accounts, dict):
        raise BadValue(f"{path}: accounts", accounts, "write each as [accounts.NAME]")
    if len(accounts) > ACCOUNTS_MAX:
        raise BadValue(f"{path}: accounts", len(accounts), f"name at most {ACCOUNTS_MAX:,}")
    return {name: _read_limit(one, f"{path}: accounts.{name}") for name, one in accounts.items()}


def _read_limit(one: Any, where: str) -> AccountEntry:
    if not isinstance(one, dict):
        raise BadValue(where, one, "write rate = N, and burst = N")
    for name in one:
        if name not in (*_FIELDS, *_PLAN):
            known = ", ".join((*_FIELDS, *_PLAN))
            raise BadValue(f"{where}.{name}", one[name], f"there are {known}")
    for name, number in one.items():
        _check(f"{where}.{name}", number, RATE_MAX if name in _FIELDS else WHOLE_MAX)
    return AccountEntry(*(one.get(name) for name in (*_FIELDS, *_PLAN)))


def _check(where: str, number: object, most: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise BadValue(where, number, f"give a number from 0 to {most:,}")


def _limit_of(rate: int, burst: int) -> AccountLimit | None:
    return AccountLimit(rate, burst or rate) if rate else None
