"""Account schemes: four ways to hold an account to a limit across nodes, or not to.

*No suppression* admits everything on every node. It is what an account-wide limit replaces.

*Fixed shares* gives every node its equal part of the limit, L / N, with its part of the burst. It
is what one does without a channel between the nodes: exact, and never above the limit. It
cannot use what the others leave: an account whose users come to a few nodes gets those nodes'
parts.

*Demand shares* gives every node the part of the limit that its part of the demand is. A node
reports its attempts of the last second, and hears its share; its bucket fills at that share of the
limit and holds that part of the burst. While it hears nothing it keeps its last share. It is exact,
quick, and cannot overshoot by more than its buckets hold. It is not harmless: a conforming account
whose traffic moves to another node meets a bucket made for what was before.

*Two speeds* takes the greater of a 24 s mean and the last second, with the product's own node: the
quick cure for a 24 s mean, which notices a step in a second. At its best each of the two is allowed
the burst that its window may show. It is slow to let go: the mean remembers for 24 s what is over.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.suppression import AccountFactor, FactorMessage, SuppressReport
from sluicegate.kernels.moving_rate import MovingRate, SlotRing
from sluicegate.kernels.suppression import burst_allowance, exact_factor
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.rigs.accounts import (
    ACCOUNT,
    SECOND_US,
    AccountRig,
    AccountScheme,
    SuppressingNode,
)
from sluicegate.lab.world import World
from sluicegate.policies.suppression.suppress import SuppressSettings

SLOTS: Final = 10
TWO_SPEED_NODE: Final = SuppressSettings(fuse_ratio=0)
TWO_SPEED_VALID_US: Final = 2_000_000


@final
class _SilentMaster:
    """Reads no report and sends none."""

    def receive(self, source: str, message: object, now_us: int) -> None:
        return None


@final
class _OpenNode:
    """Admits everything."""

    def admit(self, now_us: int, cost: int = 1) -> bool:
        return True

    def report(self, now_us: int) -> None:
        return None

    def receive(self, message: object, now_us: int) -> None:
        return None


@final
class _FixedShareNode:
    """A bucket that sends and hears nothing."""

    def __init__(self, per_s: int, nodes: int) -> None:
        self._bucket = TokenBucket(per_s, nodes * SECOND_US, max(per_s // nodes, 1))

    def admit(self, now_us: int, cost: int = 1) -> bool:
        return self._bucket.take(cost, now_us).allowed

    def report(self, now_us: int) -> None:
        return None

    def receive(self, message: object, now_us: int) -> None:
        return None


class _Demand(NamedTuple):
    attempts: int  # of the last second, at one node
    sent_us: int


class _DemandShare(NamedTuple):
    share: float  # of the limit, for one node
    sent_us: int


@final
class _DemandShareNode:
    """A bucket whose rate the master sets."""

    def __init__(self, per_s: int, nodes: int) -> None:
        self._per_s = per_s
        self._attempts = SlotRing(SLOTS, SECOND_US // SLOTS)
        self._share = 1.0 / nodes
        self._share_sent_us = 0
        self._tokens = per_s * self._share
        self._at_us = 0

    def admit(self, now_us: int, cost: int = 1) -> bool:
        self._attempts.add(cost, now_us)  # refused or not
        self._fill(now_us)
        if self._tokens < cost:
            return False
        self._tokens -= cost
        return True

    def report(self, now_us: int) -> _Demand:
        self._attempts.advance(now_us)
        return _Demand(self._attempts.total, now_us)

    def receive(self, message: object, now_us: int) -> None:
        """Take a new share; a late message is void."""
        assert isinstance(message, _DemandShare)
        if message.sent_us <= self._share_sent_us:
            return
        self._fill(now_us)
        # What the bucket held grows and shrinks with it: a new share is no new burst.
        if self._share > 0.0:
            self._tokens = min(self._tokens, self._per_s * message.share)
        self._share = message.share
        self._share_sent_us = message.sent_us

    def _fill(self, now_us: int) -> None:
        rate = self._per_s * self._share
        passed_us = max(now_us - self._at_us, 0)
        self._tokens = min(self._tokens + rate * passed_us / SECOND_US, max(rate, 1.0))
        self._at_us = now_us


@final
class _DemandShareMaster:
    """Adds up the demand, and sends each node its part."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._demand: dict[str, _Demand] = {}

    def receive(self, source: str, message: object, now_us: int) -> _DemandShare:
        """Return the part of the node that reports; without any demand all parts are equal."""
        assert isinstance(message, _Demand)
        last = self._demand.get(source)
        if last is None or last.sent_us < message.sent_us:
            self._demand[source] = message
        demand = sum(node.attempts for node in self._demand.values())
        share = self._demand[source].attempts / demand if demand else 1.0 / self._nodes
        return _DemandShare(share, now_us)


@final
class _TwoSpeedMaster:
    """Adds up the nodes' totals and answers with the greater of two factors."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._mean = MovingRate()
        self._recent = SlotRing(SLOTS, SECOND_US // SLOTS)
        self._totals: dict[str, int] = {}
        self._generation = 0

    def receive(self, source: str, message: object, now_us: int) -> FactorMessage | None:
        assert isinstance(message, SuppressReport)
        for count in message.counts:
            gained = max(count.total - self._totals.get(source, 0), 0)
            self._totals[source] = self._totals.get(source, 0) + gained
            self._mean.add(gained, now_us)
            self._recent.add(gained, now_us)
        if not message.counts:
            return None
        self._generation += 1
        factor = AccountFactor(ACCOUNT, self._factor(now_us), self._per_s, self._per_s)
        nodes = max(len(self._totals), 1)
        return FactorMessage("master", 1, self._generation, TWO_SPEED_VALID_US, nodes, (factor,))

    def _factor(self, now_us: int) -> float:
        limit, burst = float(self._per_s), self._per_s
        count, span_us = self._mean.mean(now_us)
        slow = exact_factor(count * SECOND_US / span_us, limit, burst_allowance(burst, span_us))
        recent = self._recent
        recent.advance(now_us)
        span_us = (recent.slots - 1) * recent.slot_us + now_us % recent.slot_us + 1
        fast = exact_factor(
            recent.total * SECOND_US / span_us, limit, burst_allowance(burst, span_us)
        )
        return max(slow, fast)


def _two_speed_node(rig: AccountRig, number: int, world: World) -> SuppressingNode:
    return SuppressingNode(f"node-{number}", world.chance(f"suppress/{number}"), TWO_SPEED_NODE)


no_suppression: Final = AccountScheme(
    lambda rig, number, world: _OpenNode(), lambda rig, world: _SilentMaster()
)
fixed_shares: Final = AccountScheme(
    lambda rig, number, world: _FixedShareNode(rig.per_s, rig.nodes),
    lambda rig, world: _SilentMaster(),
)
demand_shares: Final = AccountScheme(
    lambda rig, number, world: _DemandShareNode(rig.per_s, rig.nodes),
    lambda rig, world: _DemandShareMaster(rig.nodes),
)
two_speed: Final = AccountScheme(
    _two_speed_node, lambda rig, world: _TwoSpeedMaster(rig.per_s), TWO_SPEED_NODE.interval_us
)
