"""Host group: the hosts of one service, chosen between by how they do, and kept up to date.

The choice is `policies/client/balance.py` (two drawn, the less loaded taken, a failure priced as
seconds), the ejection `policies/client/outlier.py`. Here they are given their hosts:

    group = HostGroup(dns_source("search.internal", 8080))
    client = ResilientClient(settings, hosts=group)
    following = asyncio.create_task(group.follow())  # or group.refresh() now and then

A source that fails, or names no host, changes nothing: stale hosts are better than none. `failure`
says what was wrong with the last look, and so do a warning of the logger `sluicegate.resilience`
when that begins and the `cause` of a refusal for want of hosts. Who stays keeps its standing and
its load.

Threads and loops may share a group, and any of them may refresh it: the source is asked outside of
`lock`, and what an older look found never replaces what a newer one did.

Bounds: `hosts_max` of the outlier's settings; a source that names more is a failure like others.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from threading import Lock
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.kernels.outlier import HostVerdict
from sluicegate.policies.client.balance import Balance, BalanceSettings
from sluicegate.policies.client.outlier import Outlier, OutlierListener, OutlierSettings
from sluicegate.policies.settings import within
from sluicegate.resilience.hosts.sources import HostSource, check_hosts
from sluicegate.resilience.subscribers import Subscribers
from sluicegate.system import SystemChance, SystemClock

_log: Final = logging.getLogger("sluicegate.resilience")
REFRESH_US: Final = 5_000_000
REFRESH_US_MAX: Final = 86_400_000_000


@final
class HostGroup:
    """The hosts of one service as a client knows them; opened by a first look at its source."""

    __slots__ = (
        "_clock",
        "_looks",
        "_newest",
        "_refresh_us",
        "_source",
        "_verdicts",
        "balance",
        "failure",
        "lock",
    )

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
        self.lock = Lock()  # of the balance, and of the clients that choose by it
        self._looks = count(1)
        self._newest = 0  # of the looks that were taken over
        self._verdicts: Subscribers[tuple[HostVerdict, int]] = Subscribers()
        self.balance.outlier.subscribe(
            lambda verdict, at_us: self._verdicts.record((verdict, at_us))
        )
        self.refresh()

    def subscribe(self, listener: OutlierListener) -> None:
        """Call it with every ejection and return from now on, outside of the lock."""
        self._verdicts.subscribe(lambda event: listener(*event))

    def notify(self) -> None:
        """Hand verdicts over to the listeners; called by whoever has let go of the lock."""
        self._verdicts.notify()

    def refresh(self) -> bool:
        """Look at the source now, which may block; False if it failed, and `failure` says how."""
        look = next(self._looks)
        try:
            hosts = check_hosts(self._source())
            if not hosts:
                return self._fail("the source names no host")
            self._replace(hosts, look)
        except Exception as error:  # of anybody's function; the hosts there are must stay known
            return self._fail(str(error) or type(error).__name__)
        return True

    async def follow(self) -> None:
        """Look at the source every `refresh_us`, in a thread, until cancelled."""
        while True:
            await asyncio.sleep(self._refresh_us / 1_000_000)
            await asyncio.to_thread(self.refresh)

    def _replace(self, hosts: list[str], look: int) -> None:
        with self.lock:
            if look > self._newest:
                self.balance.set_hosts(hosts, self._clock.now_us())
                self._newest = look
                self.failure = ""

    def _fail(self, failure: str) -> bool:
        if failure != self.failure:
            known = self.balance.stats().hosts
            _log.warning("the source of hosts fails, and %d stay known: %s", known, failure)
        self.failure = failure
        return False
