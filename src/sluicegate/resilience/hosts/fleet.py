"""Fleet view: what other clients have found of the hosts of a group, for who has not found it yet.

A client that asks rarely needs a while to notice a bad host, and pays for it; others know by then.

    group = HostGroup(dns_source("search.internal", 8080))
    view = FleetView(group, directory_exchange("/var/run/search-hosts", str(os.getpid())))
    watching = asyncio.create_task(view.follow())  # or view.refresh() now and then

Each client reports the hosts that it has ejected itself, and never what it was told, so that no
report lives on by itself. What `quorum` of the others report, and at least two of them, is out here
too: one client whose own network is broken ejects nothing for others. The group's own bounds hold,
`ejected_percent_max` first of all, and a host comes back once nobody has said so for `HELD_TIMES`
looks. A view that fails changes nothing; `failure` says what was wrong with the last look, and so
does a warning of the logger `sluicegate.resilience` when that begins.

Bounds: `REPORTS_MAX` reports, `REPORT_BYTES_MAX` of each.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.policies.settings import part_of, within
from sluicegate.resilience.hosts.group import REFRESH_US_MAX, HostGroup
from sluicegate.system import SystemClock

# Is given what this client has ejected, and returns what others lately reported, one by one.
Exchange: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[str]]]

_log: Final = logging.getLogger("sluicegate.resilience")
AGREEING_MIN: Final = 2
HELD_TIMES: Final = 3
REPORTS_MAX: Final = 1_000
REPORT_BYTES_MAX: Final = 65_536
FRESH_MS: Final = 5_000
_FORGOTTEN_MS: Final = 60_000


@final
class FleetView:
    """Tells a group what most other clients have ejected."""

    __slots__ = ("_clock", "_every_us", "_exchange", "_group", "_quorum", "failure")

    def __init__(
        self,
        group: HostGroup,
        exchange: Exchange,
        *,
        quorum: float = 0.5,
        every_us: int = 1_000_000,
        clock: Clock | None = None,
    ) -> None:
        part_of("fleet.quorum", quorum, 0.01, 1.0)
        within("fleet.every_us", every_us, 1, REFRESH_US_MAX)
        self._group = group
        self._exchange = exchange
        self._quorum = quorum
        self._every_us = every_us
        self._clock = SystemClock() if clock is None else clock
        self.failure = ""

    def refresh(self) -> bool:
        """Report and look now, which may block; False if it failed, and `failure` says how."""
        group, outlier = self._group, self._group.balance.outlier
        with group.lock:
            own = outlier.found_bad()
        try:
            reports = [set(report) for report in self._exchange(own)][:REPORTS_MAX]
        except Exception as error:  # whatever keeps others from being heard must break no call
            failure = str(error) or type(error).__name__
            if failure != self.failure:
                _log.warning("what other clients know is not known here: %s", failure)
            self.failure = failure
            return False
        counts = Counter(host for report in reports for host in report)
        least = max(AGREEING_MIN, ceil(self._quorum * len(reports)))
        agreed = [host for host, count in counts.items() if count >= least]
        agreed.sort(key=lambda host: (-counts[host], host))  # all clients in the same order
        with group.lock:
            now_us = self._clock.now_us()
            outlier.leave_out(agreed, now_us + HELD_TIMES * self._every_us, now_us)
        group.notify()
        self.failure = ""
        return True

    async def follow(self) -> None:
        """Do so every `every_us`, in a thread, until cancelled."""
        while True:
            await asyncio.to_thread(self.refresh)
            await asyncio.sleep(self._every_us / 1_000_000)


def directory_exchange(directory: str | Path, name: str) -> Exchange:
    """Exchange by files of one directory, for the processes of a machine or a pod.

    `name` is this process's own. Ages are those of the file system's clock.
    """
    path = Path(directory)
    own = path / f"{name}.json"

    def exchange(bad: Sequence[str]) -> list[list[str]]:
        path.mkdir(parents=True, exist_ok=True)
        new = path / f"{name}.new"
        new.write_text(json.dumps(bad), encoding="utf-8")
        new.replace(own)
        now_ns = own.stat().st_mtime_ns
        reports = []
        for file in path.glob("*.json"):
            try:
                age_ms = abs(now_ns - file.stat().st_mtime_ns) // 1_000_000
                if age_ms > _FORGOTTEN_MS:
                    file.unlink()
                elif file != own and age_ms <= FRESH_MS:
                    with file.open("rb") as opened:
                        reports.append(_names(opened.read(REPORT_BYTES_MAX + 1)))
            except FileNotFoundError:  # another has removed it
                continue
        return reports

    return exchange


def redis_exchange(client: Any, key: str, name: str) -> Exchange:
    """Exchange by a hash in Redis; `client` is one of redis-py. Ages are those of its clock."""

    def exchange(bad: Sequence[str]) -> list[list[str]]:
        seconds, us = client.time()
        now_ms = seconds * 1_000 + us // 1_000
        asked = client.pipeline(transaction=False)
        asked.hset(key, name, f"{now_ms} {json.dumps(bad)}")
        asked.pexpire(key, _FORGOTTEN_MS)
        asked.hgetall(key)
        reports, forgotten = [], []
        for field, value in asked.execute()[-1].items():
            at_ms, _, names = _bytes(value).partition(b" ")
            age_ms = abs(now_ms - int(at_ms)) if at_ms.isdigit() else _FORGOTTEN_MS + 1
            if age_ms > _FORGOTTEN_MS:
                forgotten.append(field)
            elif _bytes(field) != name.encode() and age_ms <= FRESH_MS:
                reports.append(_names(names))
        if forgotten:
            client.hdel(key, *forgotten)
        return reports

    return exchange


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _names(text: bytes) -> list[str]:
    """The hosts of a report; of one that is none, nothing: it must not silence the others."""
    if len(text) > REPORT_BYTES_MAX:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []
