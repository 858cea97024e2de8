"""Suppress: a node's side of holding an account to its limit across a cluster.

Source: Ably, "Building a distributed rate limiter that scales horizontally" (Woolf, 2022). Every
node counts what its account attempts and reports it; the account's master (`suppress_master.py`)
answers with the fraction to reject, and the node rejects that fraction by itself. No operation
waits for another node. Both sides are state machines: they take messages and instants, return
messages, and send nothing themselves. A message may be late, doubled or lost.

    node                                     master
      attempt ... attempt
      report(now)  -- report: counts -->       receive(report, now)
      receive(factors, now)  <-- factors --    (its reply; `broadcast` sends them unasked)

ATTEMPTED is counted, whether it was rejected or not: a factor taken from what was accepted depends
on itself, and rests at 3 limits for a demand of 10. A repeated operation (`retry_attribute`) is
rejected like any other but not counted, or rejecting would raise the demand that it answers.

A count carries its delta and its total since the node started. The master that has heard the node
before works with totals, so a lost report is made up by the next one and a doubled one is nothing;
a master that has just taken over works with the delta, and with the factor that the node last
heard.

Accounts may have different masters (`assign`): each is reported to its own, and whatever another
one says of it is void. A node that has no account of a master any more says so in its last report
to it, or it would be taken for cut off.

A message of factors carries a term (of the master), a generation, and how long it is valid; an
older one is void. The report names the latest that the node has heard from this master, so that one
that has restarted begins above it. A report is repeated until it is answered; so a node that
hears nothing for `doubt_us` after one is cut off (an idle account asks nothing, and is not in
silence). It admits no more a second, then, than it did when it last heard, and when its factor is
not valid any more goes over, in `decay_us`, to an equal share of the limit
(`kernels/suppression.py`, `silent_factor`), so that the parts of a divided cluster admit no more
than the limit together.

Rejection is by error diffusion, exact to one operation, or by a coin for each (`rejection`), as the
source has it. Behind it stands a fuse that acts at once: a node alone never admits more than
`fuse_ratio` times the limit, so a step is bounded before the first answer comes. The source's next
step is a ratio of 1; at 2 a Poisson stream at 99% of a small limit is not refused for its clusters.
A node that is told the limits (`limit_of`) has the fuse from an account's first operation on, and
goes over to an equal share if no master ever answers; else an account that it has never heard about
is let in, and counted as `unknown`. A node at which an account has attempted a whole burst since
the last report reports it early, though not within `early_us`.

A node may stand still: its process is stopped, or its machine is busy. It notices by its own clock,
when a report is more than twice as late as planned. What waited for it meanwhile then comes in a
moment, and would look like a burst of many times the account's rate; so what exceeds the rate that
the account had before counts as `late`, up to what that rate makes in a standstill, and the master
counts it in that time. Of an account that was over, a node admits late operations within its part
of the burst, so no second has more than L + B. A node that stood still was not in silence.

Cost: a look-up, three additions, a bucket; a division every `interval_us` an account. Bounds:
`accounts_max` (what comes above passes, `untracked`); `report_accounts_max` in a report, the others
stand first in the next one. An account that was idle for `idle_us` is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD, Admission
from sluicegate.contracts.reasons import SUPPRESSED
from sluicegate.contracts.request import Request
from sluicegate.contracts.suppression import (
    AccountCount,
    AccountFactor,
    FactorMessage,
    SuppressReport,
)
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.moving_rate import SECOND_US, TwoSpeedRate
from sluicegate.kernels.suppression import SPAN_US_MAX, Diffusion, flip, silent_factor
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.policies.keyed_table import KEYS_MAX
from sluicegate.policies.settings import check_ranges, one_of, within
from sluicegate.policies.suppression.suppress_master import LimitOf

RULE_ID: Final = "suppress"
ERROR_DIFFUSION: Final = "error-diffusion"
COIN: Final = "coin"
REJECTIONS: Final = (ERROR_DIFFUSION, COIN)
FUSE_RATIO_MAX: Final = 1_000
_DEBT_MAX: Final = 1 << 32  # an operation heavier than the burst passes, and is paid off
_LOOKS: Final = 4
NO_REPORT: Final = -1
RAISE_US: Final = 3_600_000_000  # the first step; too high a boot is no harm
RAISE_US_MAX: Final = 1 << 51  # a whole number of the wire is below 2^53
ONE_MASTER: Final = ""  # of all accounts, unless `assign` says otherwise
# Ten of them: a node that is cut off sees a surge within 300 ms, and not within a second.
RECENT_SLOT_US: Final = 30_000


def _one_master(_: str) -> str:
    return ONE_MASTER


@final
@dataclass(frozen=True, kw_only=True)
class SuppressSettings:
    """A node's side; the master's has its own."""

    rejection: str = ERROR_DIFFUSION
    interval_us: int = ranged(50_000, 1, SPAN_US_MAX)
    early_us: int = ranged(50_000, 1, SPAN_US_MAX)
    heartbeat_us: int = 250_000
    doubt_us: int = 500_000
    decay_us: int = ranged(3_000_000, 0, SPAN_US_MAX)
    fuse_ratio: int = ranged(2, 0, FUSE_RATIO_MAX)  # 0: none
    idle_us: int = 60_000_000
    accounts_max: int = ranged(10_000, 1, KEYS_MAX)
    report_accounts_max: int = ranged(1_000, 1, KEYS_MAX)
    retry_after_us: int = ranged(1_000_000, 0, SPAN_US_MAX)
    retry_attribute: str = "retry"

    def __post_init__(self) -> None:
        check_ranges("suppress", self)
        one_of("suppress.rejection", self.rejection, REJECTIONS)
        within("suppress.heartbeat_us", self.heartbeat_us, self.interval_us, SPAN_US_MAX)
        within("suppress.doubt_us", self.doubt_us, self.interval_us, SPAN_US_MAX)
        within("suppress.idle_us", self.idle_us, self.interval_us, SPAN_US_MAX)


class SuppressStats(NamedTuple):
    """Operations admitted and rejected, by factor and by fuse; accounts; what was not tracked."""

    admitted: int
    suppressed: int
    fused: int
    unknown: int
    untracked: int
    accounts: int
    suppressed_accounts: int
    void: int


class AccountView(NamedTuple):
    """One account as this node sees it; both counts in messages, since the node started."""

    account: str
    attempted: int
    admitted: int
    factor: float
    per_s: int  # its limit; 0 where nobody has said one
    master: str
    heard_us: int  # ago that its master was heard; -1 if it never was


@final
class _Link:
    """What a node keeps of one master."""

    __slots__ = ("accounts", "changed", "early", "heard", "reported_us")

    def __init__(self) -> None:
        self.accounts = 0
        self.early = False  # a rate has jumped: the next report need not wait for its time
        self.changed: dict[str, _Account] = {}  # to be reported, first come first
        self.reported_us = -SPAN_US_MAX
        self.heard = (0, 0)  # the latest term and generation


@final
class _Account:
    """What a node keeps of one account."""

    __slots__ = (
        "admitted",
        "applied",
        "diffusion",
        "factor",
        "fuse",
        "generation",
        "heard_us",
        "held_per_s",
        "late",
        "late_burst",
        "late_left",
        "limit_burst",
        "limit_per_s",
        "link",
        "live",
        "live_per_s",
        "live_us",
        "nodes",
        "rate",
        "reported",
        "term",
        "total",
        "unanswered_us",
        "updated_us",
        "used_us",
        "valid_us",
        "woke_us",
    )

    def __init__(self, phase: float, link: _Link, woke_us: int) -> None:
        self.link = link
        self.total = 0
        self.admitted = 0
        self.reported = 0
        self.heard_us = NO_REPORT
        self.rate = TwoSpeedRate(recent_slot_us=RECENT_SLOT_US)
        self.diffusion = Diffusion(phase)
        self.fuse: TokenBucket | None = None
        self.limit_per_s = 0  # 0: never heard of
        self.limit_burst = 0
        self.term = 0
        self.generation = 0
        self.nodes = 1
        self.factor = 0.0  # as heard
        self.applied = 0.0  # as judged from it
        self.held_per_s = 0.0  # what was admitted when it was heard
        self.valid_us = 0
        self.unanswered_us = NO_REPORT  # the first report that nobody has answered
        self.updated_us = -SPAN_US_MAX
        self.used_us = 0
        self.woke_us = woke_us  # the end of the last standstill that it has taken note of
        self.late = 0  # to be reported
        self.late_burst = 0.0  # how much of it may be admitted
        self.late_left = 0.0  # how much more may be of that standstill
        self.live_per_s = 0.0  # its rate before that
        self.live = 0.0  # what it may attempt now at that rate
        self.live_us = 0

    def catch_up(self, stood_us: int, woke_us: int) -> None:
        """Begin to tell what waited in a standstill from what comes now."""
        self.woke_us = self.live_us = woke_us
        self.live_per_s = self.rate.per_s(woke_us - stood_us)
        self.late_left = self.live_per_s * stood_us / SECOND_US
        self.live = 0.0
        part = (1.0 - self.factor) * self.live_per_s / max(self.limit_per_s, 1)
        self.late_burst = self.limit_burst * min(part, 1.0) if self.factor > 0.0 else inf

    def lets_late_in(self, cost: int) -> bool:
        """Whether a late operation is within the burst, for an account that was over.

        A node has the part of the burst that it had of the limit: if all nodes of a machine stand
        still, they admit one burst together.
        """
        if self.late_burst <= 0.0:
            return False
        self.late_burst -= cost
        return True

    def is_late(self, cost: int, stood_us: int, now_us: int) -> bool:
        """Whether an operation waited; who serves twice the rate has caught up in `stood_us`."""
        if now_us - self.woke_us > stood_us:
            self.late_left = 0.0
            return False
        self.live += self.live_per_s * max(now_us - self.live_us, 0) / SECOND_US
        self.live_us = now_us
        if self.live >= cost:
            self.live -= cost
            return False
        self.late_left -= cost
        return True


@final
class Suppress:
    """A node: rejects the fraction of an account's operations that the master sets."""

    __slots__ = (
        "_accounts",
        "_admitted",
        "_chance",
        "_coin",
        "_fused",
        "_interval_us",
        "_limit_of",
        "_links",
        "_nodes",
        "_owner_of",
        "_planned_us",
        "_raise_us",
        "_stood_in_all_us",
        "_stood_us",
        "_suppressed",
        "_ticked_us",
        "_unknown",
        "_untracked",
        "_void",
        "_woke_us",
        "boot",
        "node",
        "settings",
    )

    def __init__(
        self,
        node: str,
        boot: int,
        chance: Chance,
        settings: SuppressSettings | None = None,
        limit_of: LimitOf | None = None,
    ) -> None:
        if not node:
            raise BadValue("suppress.node", node, "give the node a name")
        self.settings = SuppressSettings() if settings is None else settings
        self.node = node
        self.boot = boot
        self._chance = chance
        self._coin = self.settings.rejection == COIN
        self._limit_of = limit_of
        self._nodes = 1
        self._interval_us = self.settings.interval_us
        self._accounts: dict[str, _Account] = {}
        self._owner_of: Callable[[str], str] = _one_master
        self._links = {ONE_MASTER: _Link()}
        self._admitted = self._suppressed = self._fused = self._unknown = self._untracked = 0
        self._void = 0
        self._raise_us = RAISE_US
        self._planned_us = min(self.settings.early_us, self._interval_us)
        self._ticked_us = NO_REPORT  # when reports were last asked for
        self._stood_in_all_us = 0
        self._stood_us = 0  # how long the last standstill was, and when it ended
        self._woke_us = NO_REPORT

    def admit(self, request: Request, now_us: int) -> Admission:
        """A permit, or a refusal in the account's name (`request.caller`, `request.cost`)."""
        account = self._account_of(request.caller, now_us)
        if account is None:
            self._untracked += 1
            return NOTHING_HELD
        cost = request.cost
        counted = not request.attributes or self.settings.retry_attribute not in request.attributes
        late = counted and self._count(request.caller, account, cost, now_us)
        account.used_us = now_us
        if now_us - account.updated_us >= self._interval_us:
            self._update(account, now_us)
        applied = account.applied
        if (applied > 0.0 and cost > 0 and not self._lets_in(account, applied, cost)) or (
            late and not account.lets_late_in(cost)
        ):
            self._suppressed += 1
            return self._refusal(self.settings.retry_after_us)
        fuse = account.fuse
        if fuse is not None:
            verdict = fuse.take(cost, now_us)
            if not verdict.allowed:
                self._fused += 1
                return self._refusal(verdict.retry_after_us)
        elif account.limit_per_s == 0:
            self._unknown += 1
        self._admitted += 1
        account.admitted += cost
        return SuppressPermit(self, account, cost if counted else 0)

    def note_standstill(self, now_us: int) -> int:
        """Notice a standstill that has just ended; return how long this node has stood in all."""
        late_us = now_us - self._ticked_us
        if late_us > 2 * self._planned_us and self._ticked_us != NO_REPORT:
            self._stood_us = late_us
            self._stood_in_all_us += late_us
            self._woke_us = self._ticked_us = now_us
        return self._stood_in_all_us

    def is_suppressed(self, name: str, now_us: int) -> bool:
        """Whether a share of an account's operations is rejected here and now."""
        account = self._accounts.get(name)
        if account is None:
            return False
        if now_us - account.updated_us >= self._interval_us:
            self._update(account, now_us)
        return account.applied > 0.0

    def watch(self, name: str, now_us: int) -> None:
        """Hear from its master of an account of which nothing is counted here yet."""
        account = self._account_of(name, now_us)
        if account is not None:
            account.used_us = now_us
            account.link.changed[name] = account

    def assign(self, owner_of: Callable[[str], str], nodes: int = 1) -> None:
        """Report each account to the master that `owner_of` names from now on.

        `nodes` is among how many an account is divided of which no master has said it.

        An account that changes hands is reported to its new master at once, whose first word counts
        whatever its term is. Until then it is held as if its master were silent.
        """
        self._owner_of = owner_of
        self._nodes = max(nodes, 1)
        for name, account in self._accounts.items():
            link = self._link_to(owner_of(name))
            if link is account.link:
                continue
            account.link.changed.pop(name, None)
            account.link.accounts -= 1
            link.changed[name] = account
            link.accounts += 1
            account.link = link
            account.term = account.generation = 0
        self.disconnect(ONE_MASTER)

    def raise_boot(self) -> None:
        """Speak as of a later start: a master takes this one for what was before the last.

        A machine whose clock was set back begins at an older time than the last time. By how much
        nobody says, so each step is twice the one before.
        """
        if self._raise_us < RAISE_US_MAX:
            self.boot += self._raise_us
            self._raise_us *= 2

    @property
    def masters(self) -> list[str]:
        """The masters of this node's accounts, and those that it has not taken leave of."""
        return list(self._links)

    def disconnect(self, master: str) -> None:
        """Forget a master that is gone; nothing if it still has accounts of this node."""
        link = self._links.get(master)
        if link is not None and link.accounts == 0:
            del self._links[master]

    def report(self, now_us: int, master: str = ONE_MASTER) -> SuppressReport | None:
        """Return what to report to a master, at most every `interval_us`; None if there is
        nothing.

        With nothing to report it sends an empty report every `heartbeat_us`, or it would be taken
        for cut off. An account whose last report was not answered, or that is suppressed, is
        reported even if it was idle, so that its master replies.
        """
        self.note_standstill(now_us)
        self._ticked_us = now_us
        link = self._links.get(master)
        if link is None:
            return None
        silence_us = now_us - link.reported_us
        settings = self.settings
        least_us = min(settings.early_us, settings.interval_us) if link.early else self._interval_us
        if 0 <= silence_us < least_us:
            return None
        changed = link.changed
        if not changed and 0 <= silence_us < self.settings.heartbeat_us:
            return None
        link.reported_us = now_us
        link.early = False
        self._forget_idle(now_us)
        if link.accounts == 0 and master != ONE_MASTER:
            del self._links[master]
            return SuppressReport(self.node, self.boot, (), *link.heard, leaving=True)
        counts: list[AccountCount] = []
        while changed and len(counts) < self.settings.report_accounts_max:
            name = next(iter(changed))
            account = changed.pop(name)
            delta = account.total - account.reported
            account.reported = account.total
            if account.unanswered_us == NO_REPORT:
                account.unanswered_us = now_us
            # As heard: what is applied in silence is no word on whether the account is over.
            delta = max(delta, 0)
            late, account.late = min(account.late, delta), 0
            counts.append(AccountCount(name, delta, account.total, account.factor, late))
        for count in counts:
            account = self._accounts[count.account]
            if account.limit_per_s > 0:  # whom no master has a word for is not asked about twice
                changed[count.account] = account
        report = SuppressReport(self.node, self.boot, tuple(counts), *link.heard)
        if not counts or self._woke_us == NO_REPORT or now_us - self._woke_us > self._stood_us:
            return report
        return report._replace(stood_us=self._stood_us, woke_us=max(now_us - self._woke_us, 0))

    def receive(self, message: FactorMessage, now_us: int, master: str = ONE_MASTER) -> int:
        """Take in a message of a master; return how many accounts it was new for."""
        link = self._links.get(master)
        if link is None:
            self._void += len(message.factors)
            return 0
        link.heard = max(link.heard, (message.term, message.generation))
        news = 0
        for factor in message.factors:
            account = self._accounts.get(factor.account)
            if account is None:
                continue
            if account.link is not link or (message.term, message.generation) <= (
                account.term,
                account.generation,
            ):
                self._void += 1
                continue
            news += 1
            rate = self._rate_of(account, now_us)
            account.term = message.term
            account.generation = message.generation
            account.factor = factor.factor
            account.valid_us = message.valid_us
            account.nodes = max(message.nodes, 1)
            account.unanswered_us = NO_REPORT
            account.heard_us = now_us
            if factor.factor == 0.0 and account.total == account.reported:
                link.changed.pop(factor.account, None)
            elif factor.factor > 0.0:
                link.changed.setdefault(factor.account, account)
            account.held_per_s = (1.0 - factor.factor) * rate
            if (factor.per_s, factor.burst) != (account.limit_per_s, account.limit_burst):
                self._limit(account, factor)
            self._update(account, now_us)
        return news

    def factor(self, name: str, now_us: int) -> float:
        """The fraction of an account's operations that is rejected here and now."""
        account = self._accounts.get(name)
        if account is None:
            return 0.0
        self._update(account, now_us)
        return account.applied

    def accounts(self, now_us: int) -> list[AccountView]:
        """What is known of each account."""
        masters = {link: name for name, link in self._links.items()}
        return [
            AccountView(
                name,
                account.total,
                account.admitted,
                self.factor(name, now_us),
                account.limit_per_s,
                masters.get(account.link, ONE_MASTER),
                -1 if account.heard_us == NO_REPORT else max(now_us - account.heard_us, 0),
            )
            for name, account in self._accounts.items()
        ]

    def stats(self) -> SuppressStats:
        """What was decided so far, and how things stand."""
        suppressed = sum([account.applied > 0.0 for account in self._accounts.values()])
        return SuppressStats(
            self._admitted,
            self._suppressed,
            self._fused,
            self._unknown,
            self._untracked,
            len(self._accounts),
            suppressed,
            self._void,
        )

    def _account_of(self, name: str, now_us: int) -> _Account | None:
        account = self._accounts.get(name)
        if account is not None:
            return account
        if len(self._accounts) >= self.settings.accounts_max:
            self._forget_idle(now_us)
            if len(self._accounts) >= self.settings.accounts_max:
                return None
        link = self._link_to(self._owner_of(name))
        link.accounts += 1
        account = _Account(self._chance.draw(), link, self._woke_us)
        self._accounts[name] = account
        limit = None if self._limit_of is None else self._limit_of(name)
        if limit is not None:
            burst = limit.per_s if limit.burst < 0 else limit.burst
            self._limit(account, AccountFactor(name, 0.0, limit.per_s, burst))
            account.nodes = self._nodes
            account.held_per_s = float(limit.per_s)
        return account

    def _count(self, name: str, account: _Account, cost: int, now_us: int) -> bool:
        """Count what was attempted; return whether that was while this node stood still."""
        account.total += cost
        self._take_note(account, now_us)
        late = account.late_left > 0.0 and account.is_late(cost, self._stood_us, now_us)
        if late:
            account.late += cost
        else:
            account.rate.add(cost, now_us)
        link = account.link
        link.changed[name] = account
        if account.total - account.reported > account.limit_burst > 0:
            link.early = True
        return late

    def _rate_of(self, account: _Account, now_us: int) -> float:
        self._take_note(account, now_us)
        return account.rate.per_s(now_us)

    def _take_note(self, account: _Account, now_us: int) -> None:
        """Take note of a standstill while the account's rate before it is still known."""
        self.note_standstill(now_us)
        if account.woke_us != self._woke_us:
            account.catch_up(self._stood_us, self._woke_us)

    def _link_to(self, master: str) -> _Link:
        link = self._links.get(master)
        if link is None:
            link = self._links[master] = _Link()
        return link

    def _forget_idle(self, now_us: int) -> None:
        """Look at a few of the oldest; who is not idle goes behind the others."""
        for _ in range(min(_LOOKS, len(self._accounts))):
            name = next(iter(self._accounts))
            account = self._accounts.pop(name)
            if now_us - account.used_us < self.settings.idle_us:
                self._accounts[name] = account
            else:
                account.link.changed.pop(name, None)
                account.link.accounts -= 1

    def _lets_in(self, account: _Account, factor: float, cost: int) -> bool:
        if self._coin:
            return flip(factor, self._chance.draw())
        return account.diffusion.admit(factor, cost)

    def _limit(self, account: _Account, factor: AccountFactor) -> None:
        account.limit_per_s = factor.per_s
        account.limit_burst = factor.burst
        account.fuse = None
        ratio = self.settings.fuse_ratio
        if ratio > 0:
            account.fuse = TokenBucket(
                ratio * factor.per_s, SECOND_US, ratio * max(factor.burst, 1), debt_max=_DEBT_MAX
            )

    def _update(self, account: _Account, now_us: int) -> None:
        """What to apply now of what was heard."""
        account.updated_us = now_us
        silence_us = now_us - max(account.unanswered_us, self._woke_us)
        if (
            account.limit_per_s == 0
            or account.unanswered_us == NO_REPORT
            or silence_us <= self.settings.doubt_us
        ):
            account.applied = account.factor
            return
        limit_per_s = float(account.limit_per_s)
        account.applied = silent_factor(
            min(account.held_per_s, limit_per_s),
            silence_us,
            self._rate_of(account, now_us),
            limit_per_s,
            account.nodes,
            hold_us=account.valid_us,
            decay_us=self.settings.decay_us,
        )

    def _refusal(self, retry_after_us: int) -> Decision:
        return Decision(False, 0, retry_after_us, retry_after_us, SUPPRESSED, RULE_ID)


@final
class SuppressPermit:
    """An operation that was let in. It only ends; what was never begun was not attempted."""

    __slots__ = ("_account", "_cost", "_ended", "_policy")

    def __init__(self, policy: Suppress, account: _Account, cost: int) -> None:
        self._policy = policy
        self._account = account
        self._cost = cost
        self._ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it; unwound, it is taken back from what is reported and from the fuse."""
        if self._ended:
            return False
        self._ended = True
        if not spent and self._cost > 0:
            account = self._account
            account.admitted -= self._cost
            # Never below what was reported already: a total only grows.
            account.total = max(account.total - self._cost, account.reported)
            if account.fuse is not None:
                account.fuse.settle(-self._cost, now_us)
        return True
