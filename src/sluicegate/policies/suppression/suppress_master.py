"""Suppress master: the account master's side of `suppress.py`.

It folds the nodes' reports into rates, and answers with the fraction that each account must be
rejected. An account has a pair: `per_s` (L) and `burst` (B, one second of L unless said). Two
questions are kept apart.

**Whether.** An account that conforms to (L, B) attempts at most L * t + B in any span t. It is over
when one of a ladder of windows shows more than can be explained otherwise:

    count > L * (span + delay) + B + sigmas * sqrt(L * span)

`delay` is how unevenly reports may arrive, and the last term what chance makes of a steady stream
(Poisson at 99% of L is not to be punished for its clusters; at 1,000 a second it is 1.5% of a
24 s window, at 10 a second 19%). A short window sees a great excess at once, a long one a small
excess in time. Until one of them does, the factor is 0, however close the account comes.

One more window has no fixed length: the *run*, since the account last was within its rate, as a
bucket knows it that drains at L. It begins with the excess, so nothing from before dilutes it, and
it is as long as the excess is old: at 1.2 L it shows after 6 s at 1,000 a second and after 10 s at
100, where windows of 8 s and 24 s show it after 7 s and 20 s; and 2 L passes 0.35 s of L beyond B,
not 0.65 s. It begins anew after 24 s, when a window is as good.

Whoever is over has spent its burst, so while it is, B explains nothing: at 1.2 L a window of 8 s
shows hardly more than B explains, and the factor would come and go.

**How much.** R is the rate of the longest window that no shorter one contradicts, where to
contradict is to differ by more than `sigmas` and `delay` explain. A window that a shorter one shows
to be too high is about the past, and no longer a reason. So R is as steady as 24 s when
nothing changes, and as quick as 300 ms when it does, upwards and downwards: a plain maximum of a
slow and a fast estimate goes on rejecting for 24 s after a burst has ended. Then 1 - L / R.

**Pulses** that are over before the news of them contradict every window, and each would pass. So
what was admitted beyond L is added up, as by a bucket that drains at L. Who was found over, and of
whom more than B was let in, is held between pulses by the higher of its means over 1 s and 3 s, and
a tenth below for each limit-second of excess, until the excess is made up or both means conform.
While an account is rejected the bucket drains a little faster (`FORGIVEN`), so a step that has
lasted is no debt when it ends. Of 5 L in pulses of 0.1 s, 4.7 L passed, and 0.98 L do.

A count goes where it was made. Attempts that waited at a node which stood still, counts of lost
reports, and reports that waited while this process stood still are spread evenly over that time.
A window that lacks counts shows no decrease: while an account is rejected, a node that is not
silent owes its count, and no window lets the account go for a shortfall of that length.

A node that is not heard for `silent_us` (two heartbeats) may be cut off, and will by itself go over
to L / N of each account. So what the others may have of an account that is over is L less those
parts; whether it is over is judged by the whole L, for a node that died has left its traffic to the
others. A master that has just taken over may not know such a node: who knows the members says which
of them are `absent`, and their parts are left out for as long as they are. If those are as many as
answer, or more, they may have a master of their own, which goes by the whole L: this one then
goes by its part alone.

The seed's form is `form="mean"`: 24 s in four sub-intervals, that in progress left out when it
would lower the mean, and the excess over L plus B / 24 s decides (`kernels/moving_rate.py`). It
needs some 20 s for what the ladder does in one, and as long to let go. Its first attempt is
`form="linear"`: the same mean, but of what was admitted, and nothing rejected at L, everything at
3 L. Under a deluge it swings from all to nothing; it is here to show that.

From 0.8 to 10 L on 20 nodes, one of them with a third of it, what was admitted above L until it
settled, in seconds of L, of which one is the burst (the test's simulation, 20 ms each way):

    a report every         50 ms      100 ms, delay 120 ms      100 ms, delay 200 ms
    above L                2.6              2.7                       3.1

A node that has just fallen silent may be cut off and go on with what it admitted. So an account
that is rejected, or was until the silence began, is judged by what the others may have, for
`DOUBTED_US`: then it is known what has become of the node.

A master that has just been given an account (`term` one higher where it began too), or has not
heard of it for `valid_us`, for another one may have had it, has no history of it: for `warm_us` it
answers with the factor that each node reports first, if that is more than its own; later reports
repeat this master's own factor. So it does when a node comes that has not heard it yet, from the
other side of a partition. A silence is measured in the time that this process ran (`skip`).

Cost: an addition to each of 5 rings and to the run, an account and report; a factor at most every
`decide_us`.
Bounds: `accounts_max` accounts (what comes above is not suppressed, and counted), `nodes_max` nodes
(likewise). Who was idle for `idle_us` is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple, final

from sluicegate.contracts.suppression import (
    AccountCount,
    AccountFactor,
    FactorMessage,
    SuppressReport,
)
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.moving_rate import SECOND_US, MovingRate, SlotRing
from sluicegate.kernels.suppression import (
    NODES_MAX,
    SPAN_US_MAX,
    WEIGHT_MAX,
    burst_allowance,
    exact_factor,
    linear_factor,
)
from sluicegate.policies.keyed_table import KEYS_MAX
from sluicegate.policies.settings import check_ranges, one_of, within

RULE_ID: Final = "suppress_master"
LADDER: Final = "ladder"
MEAN: Final = "mean"
LINEAR: Final = "linear"
FORMS: Final = (LADDER, MEAN, LINEAR)
SIGMAS_MAX: Final = 100.0

# Longest first. Ten slots each: a window spans from nine to ten of them.
WINDOWS_US: Final = (24_000_000, 8_000_000, 3_000_000, 1_000_000, 300_000)
SLOTS: Final = 10
PULSE_WINDOWS: Final = (2, 3)  # of these; who has an excess is held by the higher
EXCESS_MAX: Final = 12.0  # limit-seconds beyond the burst that are remembered
EXCESS_GAIN: Final = 0.1  # how far below the limit it is held, for each of them
DOUBTED_US: Final = 3_000_000  # after that it is known what has become of a silent node
FORGIVEN: Final = 0.05  # of the limit, by which an excess shrinks while the account is rejected
_LOOKS: Final = 4


class AccountLimit(NamedTuple):
    """Messages a second, and how many more at once; a second's worth if not said."""

    per_s: int
    burst: int = -1


# What an account may; None is no limit.
LimitOf = Callable[[str], AccountLimit | None]


@final
@dataclass(frozen=True, kw_only=True)
class SuppressMasterSettings:
    """How it estimates, and how long its word holds."""

    form: str = LADDER
    delay_us: int = ranged(150_000, 0, SPAN_US_MAX)
    sigmas: float = ranged(3.0, 0.0, SIGMAS_MAX)
    decide_us: int = ranged(25_000, 0, SPAN_US_MAX)
    valid_us: int = ranged(2_000_000, 1, SPAN_US_MAX)
    silent_us: int = ranged(500_000, 1, SPAN_US_MAX)
    warm_us: int = ranged(3_000_000, 0, SPAN_US_MAX)
    idle_us: int = ranged(60_000_000, WINDOWS_US[0], SPAN_US_MAX)
    accounts_max: int = ranged(100_000, 1, KEYS_MAX)
    nodes_max: int = ranged(1_000, 1, NODES_MAX)

    def __post_init__(self) -> None:
        check_ranges("suppress_master", self)
        one_of("suppress_master.form", self.form, FORMS)


class SuppressMasterStats(NamedTuple):
    """Reports heard and void; accounts, of which suppressed; nodes; what there was no room for."""

    reports: int
    void: int
    accounts: int
    suppressed: int
    nodes: int
    untracked: int


@final
class _Node:
    """When a node was last heard, and of which start."""

    __slots__ = ("boot", "heard_us")

    def __init__(self, boot: int, now_us: int) -> None:
        self.boot = boot
        self.heard_us = now_us


@final
class _LastCount:
    """The total that a node last reported, and the factor that it had heard then.

    `excess_unused` and `run_unused` are the account's marks then, plus what past counts used since.
    """

    __slots__ = ("at_us", "boot", "excess_unused", "factor", "run_unused", "since_us", "total")

    def __init__(self) -> None:
        self.boot = self.total = 0
        self.at_us = self.since_us = 0  # when it was heard, and since when it may be out of date
        self.factor = self.excess_unused = self.run_unused = 0.0


@final
class _Account:
    """The windows of one account, and what was last decided."""

    __slots__ = (
        "burst",
        "decided_us",
        "excess",
        "excess_unused",
        "excess_us",
        "factor",
        "held",
        "inherited",
        "inherited_until_us",
        "last_counts",
        "mean",
        "over_us",
        "per_s",
        "run",
        "run_since_us",
        "run_unused",
        "run_us",
        "used_us",
        "warm_until_us",
        "windows",
    )

    def __init__(self, form: str) -> None:
        ladder = form == LADDER
        self.windows = (
            [SlotRing(SLOTS, span_us // SLOTS) for span_us in WINDOWS_US] if ladder else []
        )
        self.mean = None if ladder else MovingRate()
        self.last_counts: dict[str, _LastCount] = {}
        self.per_s = 0
        self.burst = 0
        self.factor = 0.0
        self.decided_us = -SPAN_US_MAX
        self.excess = 0.0  # what was admitted beyond the rate, in messages
        self.excess_us = 0
        self.excess_unused = 0.0  # what drained of nothing so far
        self.held = False  # found over, and its excess is neither made up nor past
        self.over_us = -SPAN_US_MAX  # when it last was
        self.run = 0.0  # what was attempted beyond the rate since it last was within it
        self.run_us = 0
        self.run_unused = 0.0
        self.run_since_us = 0
        self.inherited = 0.0
        self.inherited_until_us = 0
        self.warm_until_us = 0  # until when every node's word is inherited
        self.used_us = 0

    def add_admitted(self, count: float, now_us: int) -> None:
        """Count what was let in, as far as it is more than the rate."""
        per_s = float(self.per_s)
        drained = per_s * max(now_us - self.excess_us, 0) / SECOND_US
        if self.factor > 0.0:
            drained *= 1.0 + FORGIVEN
        self.excess_us = max(now_us, self.excess_us)
        self.excess_unused += max(drained - self.excess, 0.0)
        most = self.burst + EXCESS_MAX * per_s
        self.excess = min(max(self.excess - drained, 0.0) + count, most)

    def add(self, count: int, now_us: int) -> None:
        """Count what was attempted."""
        self._drain_run(now_us)
        if self.run == 0.0 or now_us - self.run_since_us > WINDOWS_US[0]:
            self.run, self.run_since_us = 0.0, now_us
        self.run += count
        for window in self.windows:
            window.add(count, now_us)
        if self.mean is not None:
            self.mean.add(count, now_us)

    def _drain_run(self, now_us: int) -> None:
        drained = self.per_s * max(now_us - self.run_us, 0) / SECOND_US
        self.run_unused += max(drained - self.run, 0.0)
        self.run = max(self.run - drained, 0.0)
        self.run_us = max(now_us, self.run_us)

    def add_past(
        self, count: int, let_in: float, span_us: tuple[int, int], last: _LastCount, now_us: int
    ) -> None:
        """Count what was attempted in a past span, and how much of it was let in, evenly over it.

        It had what the others left of the limit since the node's last count before that.
        """
        self.add_admitted(0.0, now_us)
        used = min(let_in, self.excess_unused - last.excess_unused)
        last.excess_unused += used
        self.add_admitted(let_in - used, now_us)
        self._drain_run(now_us)
        used = min(count, self.run_unused - last.run_unused)
        last.run_unused += used
        beyond = count - used
        if self.run == 0.0 or span_us[0] < self.run_since_us:
            self.run_since_us = span_us[0]
        self.run += beyond
        for window in self.windows:
            window.add_over(count, *span_us, now_us)
        if self.mean is not None:
            self.mean.add_over(count, *span_us, now_us)

    def run_at(self, now_us: int) -> tuple[float, float]:
        """What was attempted since the run began, and the seconds since then; 0 if it is over."""
        beyond = self.run - self.per_s * max(now_us - self.run_us, 0) / SECOND_US
        if beyond <= 0.0:
            return 0.0, 0.0
        span_s = max(now_us - self.run_since_us, 0) / SECOND_US
        return beyond + self.per_s * span_s, span_s


@final
class SuppressMaster:
    """Decides how much of each account is rejected."""

    __slots__ = (
        "_absent",
        "_accounts",
        "_doubted_share",
        "_limit_of",
        "_live",
        "_live_share",
        "_members",
        "_minority",
        "_nodes",
        "_reports",
        "_shared_us",
        "_stood_us",
        "_untracked",
        "_void",
        "_woke_us",
        "generation",
        "name",
        "settings",
        "term",
    )

    def __init__(
        self,
        name: str,
        term: int,
        limit_of: LimitOf,
        now_us: int,
        settings: SuppressMasterSettings | None = None,
    ) -> None:
        self.settings = SuppressMasterSettings() if settings is None else settings
        self.name = name
        self.term = term
        self._limit_of = limit_of
        self.generation = 0
        self._accounts: dict[str, _Account] = {}
        self._nodes: dict[str, _Node] = {}
        self._reports = self._void = self._untracked = 0
        self._live_share = 1.0  # of all nodes, those that are not cut off
        self._doubted_share = 1.0  # of all nodes, those that have not just fallen silent
        self._absent: frozenset[str] = frozenset()
        self._members = 1
        self._live = 1  # members that answer this one, itself included
        self._minority = False
        self._shared_us = now_us
        self._stood_us = 0  # how long this process last stood still, until when
        self._woke_us = now_us

    def receive(self, report: SuppressReport, now_us: int) -> FactorMessage | None:
        """Fold a report in and return the reply; None for a node that has restarted since."""
        if not self._register(report, now_us):
            self._void += 1
            return None
        if (report.term, report.generation) > (self.term, self.generation):
            self.term = report.term + 1  # it has heard us before our last start
        self._reports += 1
        if now_us - self._shared_us >= self.settings.silent_us // 4:
            self._update_live_share(now_us)
        factors: list[AccountFactor] = []
        for count in report.counts:
            account = self._account_of(count.account, now_us)
            if account is None:
                continue
            self._fold(account, report, count, now_us)
            factors.append(self._factor(count.account, account, now_us))
        return self._message(factors)

    def broadcast(self, now_us: int) -> FactorMessage:
        """Return what every node should know unasked: the accounts that are suppressed."""
        self._forget_idle(now_us)
        factors = [
            self._factor(name, account, now_us)
            for name, account in self._accounts.items()
            if account.factor > 0.0
        ]
        return self._message(factors)

    def divide(self, absent: Collection[str], live: int, members: int, now_us: int) -> None:
        """Leave their parts of so many to members that may be cut off and serving; `live` answer.

        One that does not answer but reports is not cut off: only what is said to it is lost.
        """
        self._absent = frozenset(absent)
        self._live = live
        self._members = max(members, len(self._absent) + 1)
        self._update_live_share(now_us)

    def skip(self, stood_us: int, now_us: int) -> None:
        """Note that this process stood still until now: the nodes were not silent meanwhile."""
        self._stood_us, self._woke_us = stood_us, now_us
        for node in self._nodes.values():
            node.heard_us += stood_us

    def forget_node(self, name: str) -> None:
        """Forget a node that is gone for good; its part of each account is the others'."""
        if self._nodes.pop(name, None) is not None:
            for account in self._accounts.values():
                account.last_counts.pop(name, None)

    def factor(self, name: str, now_us: int) -> float:
        """The fraction of an account to reject, as of at most `decide_us` ago."""
        account = self._accounts.get(name)
        return 0.0 if account is None else self._factor(name, account, now_us).factor

    def silent_nodes(self, now_us: int) -> list[str]:
        """The nodes that have owed a report for so long that they may be cut off."""
        silent_us = self.settings.silent_us
        return [name for name, node in self._nodes.items() if now_us - node.heard_us >= silent_us]

    def stats(self) -> SuppressMasterStats:
        """What was heard so far, and how things stand."""
        return SuppressMasterStats(
            self._reports,
            self._void,
            len(self._accounts),
            sum([account.factor > 0.0 for account in self._accounts.values()]),
            len(self._nodes),
            self._untracked,
        )

    def _register(self, report: SuppressReport, now_us: int) -> bool:
        """Record that the node is alive; False for a report from before its last start."""
        node = self._nodes.get(report.node)
        if node is None:
            if report.leaving:
                return True
            if len(self._nodes) >= self.settings.nodes_max:
                self._forget_nodes(now_us)
                if len(self._nodes) >= self.settings.nodes_max:
                    self._untracked += 1
                    return False
            self._nodes[report.node] = _Node(report.boot, now_us)
            return True
        if report.boot < node.boot:
            return False
        if report.leaving:
            self.forget_node(report.node)
            return True
        node.boot = report.boot
        node.heard_us = max(node.heard_us, now_us)
        return True

    def _update_live_share(self, now_us: int) -> None:
        """Update which part of the nodes has reported lately; at least one has, just now."""
        self._shared_us = now_us
        silent_us = self.settings.silent_us
        heard = [name for name, node in self._nodes.items() if now_us - node.heard_us < silent_us]
        absent = self._absent.difference(heard)
        minority = len(absent) >= self._live + len(self._absent) - len(absent)
        if self._minority and not minority:
            for account in self._accounts.values():  # what it said for its side alone is past
                account.warm_until_us = account.inherited_until_us = 0
        self._minority = minority
        known = [node for name, node in self._nodes.items() if name not in absent]
        live = sum([now_us - node.heard_us < silent_us for node in known])
        self._live_share = max(live, 1) / max(len(known), 1)
        doubted = sum([silent_us <= now_us - node.heard_us < DOUBTED_US for node in known])
        self._doubted_share = max(len(known) - doubted, 1) / max(len(known), 1)
        if absent:
            self._live_share *= (self._members - len(absent)) / self._members

    def _fold(
        self, account: _Account, report: SuppressReport, count: AccountCount, now_us: int
    ) -> None:
        """Add what is new in a count; totals make lost and doubled ones good."""
        account.used_us = now_us
        last = account.last_counts.get(report.node)
        self._inherit(account, report, count, last, now_us)
        gained, before = count.delta, count.factor
        if last is not None:
            before = last.factor
            if last.boot == report.boot:
                gained = count.total - last.total
                if gained < 0:  # a late word: what it tells was in a later one
                    return
        fresh, late = min(count.delta, gained), 0
        waited = (  # here, while this process stood still; `_owed_us` sees to a shorter one
            self._stood_us >= self.settings.silent_us
            and 0 <= now_us - self._woke_us < self.settings.decide_us
        )
        # The answer to its last report came meanwhile: some was let in by the factor before.
        let_in = 1.0 - (count.factor if self.settings.form == LINEAR else min(before, count.factor))
        if last is None:
            last = account.last_counts[report.node] = _LastCount()
        else:
            late, node = min(count.late, fresh), report.node
            if waited:
                fresh = late
            woke_us = now_us - report.woke_us
            stood_us = (woke_us - report.stood_us, woke_us)
            missed, missed_us = gained - fresh, (last.since_us, now_us)
            self._add_past(account, node, missed, missed * let_in, missed_us, now_us)
            # Of an account that is over, the node lets no more in than is within the burst.
            late_in = late * let_in if self.settings.form == LINEAR else 0.0
            self._add_past(account, node, late, late_in, stood_us, now_us)
        self._add(account, fresh - late, let_in, now_us)
        last.since_us = self._woke_us - self._stood_us if waited else now_us
        last.boot, last.total, last.factor = report.boot, count.total, count.factor
        last.at_us = now_us
        if report.stood_us == 0 and not waited:  # or more of that standstill may come
            last.excess_unused, last.run_unused = account.excess_unused, account.run_unused

    def _inherit(
        self,
        account: _Account,
        report: SuppressReport,
        count: AccountCount,
        last: _LastCount | None,
        now_us: int,
    ) -> None:
        """Take over the factor of another master; later counts of a node repeat this one's."""
        began_us = account.warm_until_us - self.settings.warm_us
        if report.generation == 0 and count.factor > account.factor:
            # The node has not heard this master yet: another one has decided meanwhile.
            before = account.inherited if now_us < account.inherited_until_us else 0.0
            account.inherited = max(before, count.factor)
            account.inherited_until_us = now_us + self.settings.warm_us
        elif now_us < account.warm_until_us and (last is None or last.at_us < began_us):
            account.inherited = max(account.inherited, count.factor)

    def _add(self, account: _Account, count: int, let_in: float, now_us: int) -> None:
        """Count what was attempted just now."""
        if self.settings.form == LINEAR:  # of what was admitted
            count = round(count * let_in)
        else:
            account.add_admitted(count * let_in, now_us)
        account.add(count, now_us)

    def _add_past(
        self,
        account: _Account,
        node: str,
        count: int,
        let_in: float,
        span_us: tuple[int, int],
        now_us: int,
    ) -> None:
        """Count what was attempted in a span before; its report was lost, or its node stood."""
        if count == 0:
            return
        if self.settings.form == LINEAR:
            count = round(let_in)
        account.add_past(count, let_in, span_us, account.last_counts[node], now_us)

    def _account_of(self, name: str, now_us: int) -> _Account | None:
        account = self._accounts.get(name)
        if account is None:
            if self._limit_of(name) is None:
                return None
            if len(self._accounts) >= self.settings.accounts_max:
                self._forget_idle(now_us)
                if len(self._accounts) >= self.settings.accounts_max:
                    self._untracked += 1
                    return None
            account = _Account(self.settings.form)
            account.used_us = -SPAN_US_MAX
            self._accounts[name] = account
        if now_us - account.used_us > self.settings.valid_us:  # another one may have had it
            account.inherited = 0.0
            account.inherited_until_us = now_us + self.settings.warm_us
            account.warm_until_us = account.inherited_until_us
        return account

    def _factor(self, name: str, account: _Account, now_us: int) -> AccountFactor:
        if now_us - account.decided_us >= self.settings.decide_us:
            account.decided_us = now_us
            limit = self._limit_of(name)
            if limit is None:
                account.per_s = WEIGHT_MAX
                account.factor = 0.0
            else:
                self._check(name, limit)
                account.per_s = limit.per_s
                account.burst = limit.per_s if limit.burst < 0 else limit.burst
                account.factor = self._decide(account, now_us)
                if now_us < account.inherited_until_us:
                    account.factor = max(account.factor, account.inherited)
        return AccountFactor(name, account.factor, account.per_s, account.burst)

    def _check(self, name: str, limit: AccountLimit) -> None:
        within(f"suppress_master.limit of {name[:40]}", limit.per_s, 1, WEIGHT_MAX)
        within(f"suppress_master.burst of {name[:40]}", limit.burst, -1, WEIGHT_MAX)

    def _decide(self, account: _Account, now_us: int) -> float:
        per_s, burst, share = float(account.per_s), account.burst, self._live_share
        doubted = self._doubted_share < 1.0 and not self._minority
        spent = account.factor > 0.0
        if doubted and now_us - account.over_us < 2 * self.settings.silent_us:
            spent = True  # a silence is noticed late: what is heard since is not all there was
        if spent and doubted:
            # Until it is known whether they are cut off: they may go on with their part.
            per_s, share = per_s * self._doubted_share, share / self._doubted_share
        if self._minority:
            per_s, burst, share = per_s * share, round(burst * share), 1.0
        if account.mean is not None:
            count, span_us = account.mean.mean(now_us)
            if self.settings.form == LINEAR:
                return linear_factor(count * SECOND_US / span_us, per_s)
            allowance = burst_allowance(burst, span_us)
            return exact_factor(count * SECOND_US / span_us, per_s, allowance)
        over, rate = estimate(
            account.windows,
            account.run_at(now_us),
            per_s,
            0 if spent else burst,  # whoever is over has spent it
            now_us,
            delay_us=self.settings.delay_us,
            owed_us=self._owed_us(account, now_us) if spent else 0,
            sigmas=self.settings.sigmas,
        )
        account.add_admitted(0.0, now_us)
        if account.excess <= burst + per_s * self.settings.delay_us / SECOND_US:
            account.held = False
        elif over:
            account.held = True
        if account.held:
            over, rate = self._hold(account, over, rate, (per_s, burst), now_us)
        if over:
            account.over_us = now_us
            return exact_factor(rate, per_s * share)
        return 0.0

    def _owed_us(self, account: _Account, now_us: int) -> int:
        """For how long a node that is not silent owes a count of an account that is rejected."""
        owed_us = 0
        for last in account.last_counts.values():
            since_us = now_us - last.at_us
            stood_us = self._stood_us if last.at_us < self._woke_us else 0
            if since_us - stood_us < self.settings.silent_us:
                owed_us = max(owed_us, since_us)
        return owed_us

    def _hold(
        self,
        account: _Account,
        over: bool,
        rate: float,
        limit: tuple[float, int],
        now_us: int,
    ) -> tuple[bool, float]:
        """The estimate of an account that is held between pulses, which may end with it."""
        per_s, burst = limit
        mean = self._mean_beyond(account, per_s, now_us)
        if over:
            return True, max(rate, mean)
        if mean > 0.0:
            return True, mean * (1.0 + EXCESS_GAIN * (account.excess - burst) / per_s)
        account.held = False
        return False, rate

    def _mean_beyond(self, account: _Account, per_s: float, now_us: int) -> float:
        """The higher mean of those beyond the limit and chance; 0 where none is."""
        highest = 0.0
        for number in PULSE_WINDOWS:
            window = account.windows[number]
            span_s = _span_us(window, now_us) / SECOND_US
            if window.total > per_s * span_s + self.settings.sigmas * sqrt(per_s * span_s):
                highest = max(highest, window.total / span_s)
        return highest

    def _message(self, factors: list[AccountFactor]) -> FactorMessage:
        self.generation += 1
        return FactorMessage(
            self.name,
            self.term,
            self.generation,
            self.settings.valid_us,
            max(len(self._nodes), self._members if self._absent else 1),
            tuple(factors),
        )

    def _forget_idle(self, now_us: int) -> None:
        """Look at a few of the oldest; who is not idle goes behind the others."""
        self._forget_nodes(now_us)
        for _ in range(min(_LOOKS, len(self._accounts))):
            name = next(iter(self._accounts))
            account = self._accounts.pop(name)
            if now_us - account.used_us < self.settings.idle_us:
                self._accounts[name] = account

    def _forget_nodes(self, now_us: int) -> None:
        silent = [
            name
            for name, node in self._nodes.items()
            if now_us - node.heard_us >= self.settings.idle_us
        ]
        for name in silent:
            self.forget_node(name)


def _span_us(window: SlotRing, now_us: int) -> int:
    """Its slots begin at whole multiples, so it spans nine and what the tenth has had."""
    return (window.slots - 1) * window.slot_us + now_us % window.slot_us + 1


def estimate(
    windows: list[SlotRing],
    run: tuple[float, float],
    per_s: float,
    burst: int,
    now_us: int,
    *,
    delay_us: int,
    sigmas: float,
    owed_us: int = 0,
) -> tuple[bool, float]:
    """Whether any window shows more than (L, B) explains, and the rate that is to be believed.

    `run` is one more window, a count and its seconds, that stands where its length puts it.
    Counts of the last `owed_us` may not be there yet, so a window may show too little.
    """
    counts: list[tuple[float, float]] = []
    waiting = True
    for window in windows:
        window.advance(now_us)
        span_s = _span_us(window, now_us) / SECOND_US
        if waiting and span_s < run[1]:
            counts.append(run)
            waiting = False
        counts.append((float(window.total), span_s))
    over = False
    rate = -1.0
    delay_s = delay_us / SECOND_US
    owed_s = max(owed_us, delay_us) / SECOND_US
    for count, span_s in counts:
        explained = per_s * (span_s + delay_s) + burst + sigmas * sqrt(per_s * span_s)
        if rate < 0.0:
            rate = count / span_s
        else:
            expected = rate * span_s
            chance = sigmas * sqrt(max(expected, 1.0))
            if count > expected + rate * delay_s + chance:
                rate = count / span_s
            elif count < expected - rate * owed_s - chance:
                rate = count / span_s
                over = False
        if count > explained:
            over = True
    return over, rate
