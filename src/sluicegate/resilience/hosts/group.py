"""Host group: the hosts of one service, chosen between by how they do, and kept up to date.

The choice is `policies/balance.py` (two drawn, the less loaded taken, a failure priced as seconds),
the ejection `policies/outlier.py`. Here they are given their hosts:

    group = HostGroup(dns_source("search.internal", 8080))
    client = ResilientClient(settings, hosts=group)
    following = asyncio.create_task(group.follow())  # or group.refresh() now and then

A source that fails, or names no host, changes nothing: stale hosts are better than none. `failure`
says what was wrong with the last look. Who stays keeps its standing and its load.

Bounds: `hosts_max` of the outlier's settings; a source that names more is a failure like others.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.balance import Balance, BalanceSettings
from sluicegate.policies.outlier import Outlier, OutlierSettings
from sluicegate.policies.settings import within
from sluicegate.resilience.hosts.sources import HostSource, check_host
from sluicegate.system import SystemChance, SystemClock

REFRESH_US: Final = 5_000_000
REFRESH_US_MAX: Final = 86_400_000_000


@final
class HostGroup:
    """The hosts of one service as a client knows them; opened by a first look at its source."""

    __slots__ = ("_clock", "_refresh_us", "_source", "balance", "failure")

    def __init__(
        self,
        source: HostSource,
        balance: BalanceSettings | None = None,
        outlier: OutlierSettings | None = None,
        *,
        refresh_us: int = REFRESH_US,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        within("hosts.refresh_us", refresh_us, 1, REFRESH_US_MAX)
        chance = SystemChance() if chance is None else chance
        self._source = source
        self._refresh_us = refresh_us
        self._clock = SystemClock() if clock is None else clock
        self.balance = Balance((), chance, balance, Outlier((), chance, outlier))
        self.failure = ""
        self.refresh()

    def refresh(self) -> bool:
        """Look at the source now, which may block; False if it failed, and `failure` says how."""
        try:
            return self._replace(list(self._source()))
        except (OSError, ValueError, Unavailable) as error:
            self.failure = str(error)
            return False

    async def follow(self) -> None:
        """Look at the source every `refresh_us`, in a thread, until cancelled."""
        while True:
            await asyncio.sleep(self._refresh_us / 1_000_000)
            try:
                # A list to take over here: policies are not shared by threads.
                self._replace(list(await asyncio.to_thread(self._source)))
            except (OSError, ValueError, Unavailable) as error:
                self.failure = str(error)

    def _replace(self, hosts: list[str]) -> bool:
        if not hosts:
            self.failure = "the source names no host"
            return False
        self.balance.set_hosts([check_host(host) for host in hosts], self._clock.now_us())
        self.failure = ""
        return True
