"""The master of accounts' usage: what all nodes together have used and hold.

It keeps nothing on a disk: a count is a total, so a lost, late or doubled report changes nothing;
and each node says what sum it last heard, and how much of that was its own, so that a new master
goes on with that sum, and takes out of it what it then hears from its owner.

    sum = what each node says, of those heard + what was in a sum and has not been heard from a node

A master that dies while an answer is lost may count that node's last interval twice.

Bounds: `accounts_max`; of more nothing is counted (`untracked`). An hour that is not this one, the
last or the next by the master's clock is not counted, nor a month.
"""

from __future__ import annotations

from typing import NamedTuple, final

from sluicegate.contracts.usage import PeriodCount, UsageAnswer, UsageReport, UsageTotal
from sluicegate.policies.quota.periods import hour_of, month_of
from sluicegate.policies.quota.usage import UsageSettings


@final
class _Sum:
    """One period of one account over all nodes."""

    __slots__ = ("number", "others", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.used: dict[str, int] = {}  # of each node, as it said
        self.others = 0  # in a sum that a node has heard, and of a node that has not said so

    @property
    def total(self) -> int:
        return sum(self.used.values()) + self.others

    def fold(self, node: str, count: PeriodCount, *, restarted: bool) -> None:
        """Take in what one node says."""
        before = self.used.get(node)
        if before is None:
            self.others = max(self.others - count.included, 0)
            self.used[node] = count.used
        elif count.used >= before:
            self.used[node] = count.used
        elif restarted:  # it has lost some, or all, of what it had said
            self.others += max(before - count.included, 0)
            self.used[node] = count.used
        # What the node heard of the others, less what is known of them.
        elsewhere = count.heard - count.included
        self.others += max(elsewhere - (self.total - self.used[node]), 0)


class _Held(NamedTuple):
    """What an account holds at one node."""

    at_us: int
    connections: int
    channels: int


@final
class _AccountSums:
    """One account over all nodes."""

    __slots__ = ("held", "hours", "months", "used_us")

    def __init__(self) -> None:
        self.hours: dict[int, _Sum] = {}
        self.months: dict[int, _Sum] = {}
        self.held: dict[str, _Held] = {}
        self.used_us = 0


@final
class UsageMaster:
    """A master's side: the sums over all nodes of the accounts that are reported to it."""

    def __init__(self, name: str, settings: UsageSettings | None = None) -> None:
        self.name = name
        self.settings = UsageSettings() if settings is None else settings
        self.untracked = 0
        self._accounts: dict[str, _AccountSums] = {}
        self._boots: dict[str, int] = {}

    def receive(self, report: UsageReport, now_us: int) -> UsageAnswer:
        """Add what a node says, and answer with the sums."""
        boot = self._boots.get(report.node, report.boot)
        if report.boot < boot:
            return UsageAnswer(self.name, ())
        self._boots[report.node] = report.boot
        totals: list[UsageTotal] = []
        for count in report.counts:
            sums = self._sums(count.account, now_us)
            if sums is None:
                self.untracked += 1
                continue
            restarted = report.boot > boot
            hour = _fold(sums.hours, report.node, count.hour, hour_of(now_us), restarted=restarted)
            month = _fold(
                sums.months, report.node, count.month, month_of(now_us), restarted=restarted
            )
            sums.held[report.node] = _Held(now_us, count.connections, count.channels)
            connections, channels = self._elsewhere(sums, report.node, now_us)
            totals.append(
                UsageTotal(
                    count.account,
                    count.hour.period,
                    *hour,
                    count.month.period,
                    *month,
                    connections,
                    channels,
                )
            )
        return UsageAnswer(self.name, tuple(totals))

    def forget_node(self, node: str) -> None:
        """A node is dead: it holds nothing any more. What was used there was used."""
        for sums in self._accounts.values():
            sums.held.pop(node, None)

    def _sums(self, account: str, now_us: int) -> _AccountSums | None:
        sums = self._accounts.get(account)
        if sums is None:
            if len(self._accounts) >= self.settings.accounts_max:
                self._forget_idle(now_us)
                if len(self._accounts) >= self.settings.accounts_max:
                    return None
            sums = self._accounts[account] = _AccountSums()
        sums.used_us = now_us
        return sums

    def _forget_idle(self, now_us: int) -> None:
        """What they have used their nodes say again."""
        idle_us = 3 * self.settings.refresh_us
        self._accounts = {
            name: sums for name, sums in self._accounts.items() if now_us - sums.used_us < idle_us
        }

    def _elsewhere(self, sums: _AccountSums, node: str, now_us: int) -> tuple[int, int]:
        """What the account holds at the other nodes, of those that were heard lately."""
        silent_us = 3 * self.settings.refresh_us
        connections = channels = 0
        for name, held in list(sums.held.items()):
            if now_us - held.at_us >= silent_us:
                del sums.held[name]
            elif name != node:
                connections += held.connections
                channels += held.channels
        return connections, channels


def _fold(
    sums: dict[int, _Sum], node: str, count: PeriodCount, now: int, *, restarted: bool
) -> tuple[int, int]:
    """What all have used in a period, and this node of it; nothing of one that is far off."""
    for number in [number for number in sums if abs(number - now) > 1]:
        del sums[number]
    if abs(count.period - now) > 1:
        return 0, 0
    found = sums.get(count.period)
    if found is None:
        found = sums[count.period] = _Sum(count.period)
    found.fold(node, count, restarted=restarted)
    return found.total, found.used[node]
