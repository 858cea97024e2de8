"""Account limits: what each account may, from a TOML file; the others go by the flags.

    [accounts.shop]
    rate = 5000         # messages a second; 0 is no limit
    burst = 20000       # of them at once; those of a second, if it is left out

The file is read at the start and again on SIGHUP. One that cannot be used changes nothing, and is
logged. In a cluster an account's master goes by its own file, and tells the nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.suppress_master import AccountLimit
from sluicegate.service.toml_file import read_toml

FILE_BYTES_MAX: Final = 10_000_000
ACCOUNTS_MAX: Final = 100_000
RATE_MAX: Final = 1_000_000_000
_FIELDS: Final = ("rate", "burst")
_log: Final = logging.getLogger("sluicegate.pubsub")


@final
class AccountLimits:
    """The limit of every account. None is no limit."""

    def __init__(self, path: str, rate: int, burst: int) -> None:
        self._path = path
        self._others = _limit_of(rate, burst)
        self._named = read_limits(path) if path else {}

    def limit_of(self, account: str) -> AccountLimit | None:
        """What an account may."""
        return self._named.get(account, self._others)

    def reload(self) -> None:
        """Read the file again."""
        if not self._path:
            return
        try:
            self._named = read_limits(self._path)
        except BadValue as error:
            _log.warning("the limits stay as they are: %s", error)


def read_limits(path: str) -> Mapping[str, AccountLimit | None]:
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


def _read_limit(one: Any, where: str) -> AccountLimit | None:
    if not isinstance(one, dict):
        raise BadValue(where, one, "write rate = N, and burst = N")
    for name in one:
        if name not in _FIELDS:
            raise BadValue(f"{where}.{name}", one[name], f"there are {', '.join(_FIELDS)}")
    numbers = [one.get("rate"), one.get("burst", 0)]
    for name, number in zip(_FIELDS, numbers, strict=True):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= RATE_MAX:
            raise BadValue(f"{where}.{name}", number, f"give a number from 0 to {RATE_MAX:,}")
    return _limit_of(*numbers)


def _limit_of(rate: int, burst: int) -> AccountLimit | None:
    return AccountLimit(rate, burst or rate) if rate else None
