"""Usage: what an account may use up in an hour and a month, and hold at a time, over a cluster.

The source of suppression ("Building a distributed rate limiter that scales horizontally") has two
more kinds of limit beside the rate: an hourly one, up to ten times the monthly one in proportion,
and the monthly one. Both are nominal: an account is warned from `WARN_PERCENT` of one on, and
restricted at `restrict_percent` of it. Restricted, its messages are refused until the period ends.
Accounts may also be limited in how many connections they have, and channels in use.

Only what was accepted is used up: a refused attempt counts for the rate and for nothing else.

Each node counts what was used there and keeps that itself: the meter here, of which the owner puts
`unsaved` on a disk. It reports what has changed to the account's master (`usage_master.py`), which
answers with the sum over the nodes; between two answers a node adds its own to the last one.

How exact: what was accepted within a report's interval elsewhere is not known here, so an account
is restricted that much late.

Bounds: `accounts_max`; of more nothing is counted (`untracked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import (
    CHANNELS_FULL,
    CONNECTIONS_FULL,
    HOURLY_LIMIT,
    MONTHLY_LIMIT,
    Reason,
)
from sluicegate.contracts.usage import (
    PeriodCount,
    UsageAnswer,
    UsageCount,
    UsageReport,
)
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.suppression import SPAN_US_MAX
from sluicegate.policies.keyed_table import KEYS_MAX
from sluicegate.policies.quota.periods import hour_end_us, hour_of, month_end_us, month_of
from sluicegate.policies.settings import check_ranges

RULE_ID: Final = "usage"
WARN_PERCENT: Final = 80
HOURS_A_MONTH: Final = 720
PERCENT_MAX: Final = 100_000
_RETRY_US: Final = 1_000_000


class UsagePlan(NamedTuple):
    """What an account may; 0 is no limit. Messages of an hour and of a month are nominal."""

    hour: int = 0
    month: int = 0
    connections: int = 0
    channels: int = 0


NO_PLAN: Final = UsagePlan()
PlanOf = Callable[[str], UsagePlan]


@final
@dataclass(frozen=True, kw_only=True)
class UsageSettings:
    """When an account is restricted, and how often what changed is reported."""

    restrict_percent: int = ranged(250, 1, PERCENT_MAX)
    interval_us: int = ranged(1_000_000, 1, SPAN_US_MAX)
    refresh_us: int = ranged(10_000_000, 1, SPAN_US_MAX)
    accounts_max: int = ranged(100_000, 1, KEYS_MAX)
    report_accounts_max: int = ranged(1_000, 1, KEYS_MAX)

    def __post_init__(self) -> None:
        check_ranges("usage", self)


class UsageWarning(NamedTuple):
    """One nominal limit that is nearly or more than used up."""

    limit: str  # hour or month
    used: int
    nominal: int
    restricted_at: int


class SavedUsage(NamedTuple):
    """What a node must not forget of an account."""

    account: str
    hour: PeriodCount
    month: PeriodCount


@final
class _Period:
    """An hour or a month of one account here."""

    __slots__ = ("end_us", "heard", "included", "number", "used")

    def __init__(self, number: int, end_us: int) -> None:
        self.number = number
        self.end_us = end_us
        self.used = self.included = self.heard = 0

    @property
    def everywhere(self) -> int:
        """What was used by all nodes, as far as it is known."""
        return max(self.heard + self.used - self.included, self.used)

    def count(self) -> PeriodCount:
        """As it is reported and kept."""
        return PeriodCount(self.number, self.used, self.included, self.heard)

    def load(self, saved: PeriodCount) -> None:
        """Go on with what was kept, if it is of this period."""
        if saved.period == self.number:
            self.used, self.included, self.heard = saved.used, saved.included, saved.heard

    def hear(self, period: int, used: int, own: int) -> None:
        """Take in a sum, of which `own` are this node's."""
        if period == self.number and (used, own) >= (self.heard, self.included):
            self.heard, self.included = used, own


@final
class _Meter:
    """One account here."""

    __slots__ = (
        "channels", "channels_elsewhere", "connections", "connections_elsewhere", "hour", "month",
    )  # fmt: skip

    def __init__(self, now_us: int) -> None:
        hour, month = hour_of(now_us), month_of(now_us)
        self.hour = _Period(hour, hour_end_us(hour))
        self.month = _Period(month, month_end_us(month))
        self.connections = self.channels = 0
        self.connections_elsewhere = self.channels_elsewhere = 0

    def turn(self, now_us: int) -> None:
        """Begin the next hour and month, if it is time. A clock that goes back changes nothing."""
        if now_us >= self.hour.end_us:
            number = hour_of(now_us)
            self.hour = _Period(number, hour_end_us(number))
            if now_us >= self.month.end_us:
                number = month_of(now_us)
                self.month = _Period(number, month_end_us(number))


@final
class UsageMeter:
    """A node's side: what was used here, and whether more may be."""

    def __init__(
        self, node: str, boot: int, plan_of: PlanOf, settings: UsageSettings | None = None
    ) -> None:
        self.node = node
        self.boot = boot
        self.settings = UsageSettings() if settings is None else settings
        self.untracked = 0
        self._plan_of = plan_of
        self._meters: dict[str, _Meter] = {}
        self._changed: dict[str, None] = {}  # to be reported, the first first
        self._unsaved: dict[str, None] = {}
        self._refreshed_us = -SPAN_US_MAX

    def load(self, saved: Iterable[SavedUsage], now_us: int) -> None:
        """Go on with what was kept."""
        for one in saved:
            meter = self._meter(one.account, now_us)
            if meter is not None:
                meter.hour.load(one.hour)
                meter.month.load(one.month)
                self._changed[one.account] = None

    def unsaved(self) -> list[SavedUsage]:
        """What has changed since the last call, to be kept."""
        found: list[SavedUsage] = []
        for account in self._unsaved:
            meter = self._meters[account]
            found.append(SavedUsage(account, meter.hour.count(), meter.month.count()))
        self._unsaved.clear()
        return found

    def keep_unsaved(self, saved: Iterable[SavedUsage]) -> None:
        """What was to be kept was not."""
        self._unsaved.update((one.account, None) for one in saved if one.account in self._meters)

    def spend(self, account: str, cost: int, at_us: int, now_us: int) -> None:
        """Count what was accepted; what was accepted before this hour counts for the month."""
        meter = self._meter(account, now_us)
        if meter is None:
            self.untracked += 1
            return
        meter.turn(now_us)
        if hour_of(at_us) == meter.hour.number:
            meter.hour.used += cost
        if month_of(at_us) == meter.month.number:
            meter.month.used += cost
        self._changed[account] = self._unsaved[account] = None

    def refusal(self, account: str, now_us: int) -> Decision | None:
        """Why no message may be accepted; None if one may."""
        plan = self._plan_of(account)
        if plan.hour == plan.month == 0:
            return None
        meter = self._meters.get(account)
        if meter is None:
            return None
        meter.turn(now_us)
        for nominal, period, reason in (
            (plan.month, meter.month, MONTHLY_LIMIT),
            (plan.hour, meter.hour, HOURLY_LIMIT),
        ):
            if nominal and period.everywhere >= self._restricted_at(nominal):
                return _refusal(reason, max(period.end_us - now_us, _RETRY_US))
        return None

    def warnings(self, account: str, now_us: int) -> list[UsageWarning]:
        """The nominal limits that are nearly or more than used up."""
        plan = self._plan_of(account)
        meter = self._meters.get(account)
        if meter is None:
            return []
        meter.turn(now_us)
        return [
            UsageWarning(name, period.everywhere, nominal, self._restricted_at(nominal))
            for name, nominal, period in (
                ("hour", plan.hour, meter.hour),
                ("month", plan.month, meter.month),
            )
            if nominal and period.everywhere * 100 >= nominal * WARN_PERCENT
        ]

    def view(self, account: str, now_us: int) -> Mapping[str, object]:
        """What one account has used and may."""
        meter = self._meter(account, now_us) or _Meter(now_us)
        meter.turn(now_us)
        plan = self._plan_of(account)
        return {
            "hour": self._period_view(meter.hour, plan.hour),
            "month": self._period_view(meter.month, plan.month),
            "connections": {
                "now": meter.connections + meter.connections_elsewhere,
                "limit": plan.connections,
            },
            "channels": {"now": meter.channels + meter.channels_elsewhere, "limit": plan.channels},
        }

    # What is held now.

    def connect_refusal(self, account: str, now_us: int) -> Decision | None:
        """Why there may be no connection more; None if there may be one."""
        meter = self._meter(account, now_us)
        if meter is None:
            return None
        limit = self._plan_of(account).connections
        if limit and meter.connections + meter.connections_elsewhere >= limit:
            self._changed[account] = None  # ask again: one may have ended elsewhere
            return _refusal(CONNECTIONS_FULL, _RETRY_US)
        return None

    def connect(self, account: str, now_us: int) -> None:
        """Count one more connection."""
        meter = self._meter(account, now_us)
        if meter is not None:
            meter.connections += 1
            self._changed[account] = None

    def disconnect(self, account: str) -> None:
        """Count one less."""
        meter = self._meters.get(account)
        if meter is not None and meter.connections > 0:
            meter.connections -= 1
            self._changed[account] = None

    def open_refusal(self, account: str) -> Decision | None:
        """Why no channel more may be used; None if one may."""
        meter = self._meters.get(account)
        limit = self._plan_of(account).channels
        if meter is None or not limit or meter.channels + meter.channels_elsewhere < limit:
            return None
        self._changed[account] = None
        return _refusal(CHANNELS_FULL, _RETRY_US)

    def count_channels(self, account: str, change: int, now_us: int) -> None:
        """So many more, or fewer, are in use here."""
        meter = self._meter(account, now_us)
        if meter is not None:
            meter.channels = max(meter.channels + change, 0)
            self._changed[account] = None

    # With the masters.

    def refresh(self) -> None:
        """Report everything again: who is master of what has changed."""
        self._changed.update(dict.fromkeys(self._meters))

    def watch(self, account: str, now_us: int) -> None:
        """Have an account reported, and so hear what it has used elsewhere."""
        if self._meter(account, now_us) is not None:
            self._changed[account] = None

    def report_of(self, account: str, now_us: int) -> UsageReport:
        """What to report of one account now, changed or not."""
        meter = self._meter(account, now_us)
        counts = () if meter is None else (self._count(account, meter, now_us),)
        return UsageReport(self.node, self.boot, counts)

    def report(self, now_us: int, master_of: Callable[[str], str]) -> dict[str, UsageReport]:
        """What to report to which master: what has changed, and from time to time what is held."""
        if not 0 <= now_us - self._refreshed_us < self.settings.refresh_us:
            self._refreshed_us = now_us
            self._forget_idle(now_us)
        counts: dict[str, list[UsageCount]] = {}
        for account in list(self._changed):
            found = counts.setdefault(master_of(account), [])
            if len(found) >= self.settings.report_accounts_max:
                continue
            del self._changed[account]
            found.append(self._count(account, self._meters[account], now_us))
        return {
            master: UsageReport(self.node, self.boot, tuple(found))
            for master, found in counts.items()
        }

    def receive(self, answer: UsageAnswer) -> None:
        """Take in what all have used together."""
        for total in answer.totals:
            meter = self._meters.get(total.account)
            if meter is None:
                continue
            meter.hour.hear(total.hour, total.hour_used, total.hour_own)
            meter.month.hear(total.month, total.month_used, total.month_own)
            meter.connections_elsewhere = total.connections
            meter.channels_elsewhere = total.channels
            self._unsaved[total.account] = None

    def fail(self, report: UsageReport) -> None:
        """Report again what was not answered."""
        for count in report.counts:
            if count.account in self._meters:
                self._changed[count.account] = None

    # Inside.

    def _count(self, account: str, meter: _Meter, now_us: int) -> UsageCount:
        meter.turn(now_us)
        hour, month = meter.hour.count(), meter.month.count()
        return UsageCount(account, hour, month, meter.connections, meter.channels)

    def _forget_idle(self, now_us: int) -> None:
        """Have what is held reported, or a master would think that this node is gone."""
        for account, meter in list(self._meters.items()):
            meter.turn(now_us)
            if meter.connections or meter.channels:
                self._changed[account] = None
            elif not (meter.month.used or account in self._changed or account in self._unsaved):
                del self._meters[account]

    def _meter(self, account: str, now_us: int) -> _Meter | None:
        meter = self._meters.get(account)
        if meter is None and len(self._meters) < self.settings.accounts_max:
            meter = self._meters[account] = _Meter(now_us)
        return meter

    def _restricted_at(self, nominal: int) -> int:
        return -(-nominal * self.settings.restrict_percent // 100)

    def _period_view(self, period: _Period, nominal: int) -> Mapping[str, int]:
        restricted_at = self._restricted_at(nominal) if nominal else 0
        return {"used": period.everywhere, "nominal": nominal, "restricted_at": restricted_at}


def hour_of_month(plan: UsagePlan, ratio: int) -> UsagePlan:
    """The plan with an hour of `ratio` times the month in proportion, if it names none."""
    if plan.hour or not plan.month or not ratio:
        return plan
    return plan._replace(hour=-(-plan.month * ratio // HOURS_A_MONTH))


def _refusal(reason: Reason, retry_us: int) -> Decision:
    return Decision(False, 0, retry_us, retry_us, reason, RULE_ID)
