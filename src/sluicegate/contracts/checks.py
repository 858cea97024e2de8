"""Checks: what a rate-limit service is asked, and what it answers, as plain values.

A door makes an ask from its protocol and hands it to the service with the identity of who speaks.
What is decided in this process is answered at once; what waits for a store is answered by an
awaitable. A door must be ready for both, for a coroutine costs more than most answers.

The service raises `BadValue` for what cannot be asked, `Forbidden` for what may not be asked by
this identity, and `Unavailable` where no failure policy covers a silent store; everything else that
comes is a bug of ours. A refusal is an answer, never an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.request import NO_ATTRIBUTES
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Store
from sluicegate.kernels.native import mypyc_attr

T = TypeVar("T")
# Answered at once, or later.
Soon: TypeAlias = "T | Awaitable[T]"

STATUS_CALM: Final = ""
STATUS_DEGRADED: Final = "DEGRADED_MODE"  # what matters less is being shed
RESET_UNKNOWN: Final = -1
HITS_UNSAID: Final = -1


@final
class CheckAsk:
    """May `weight` units of work enter, for this user on this resource?

    Header names are lower-case. `priority` is what the caller claims; None is no claim.
    """

    __slots__ = ("headers", "priority", "resource_path", "user_id", "weight")

    def __init__(
        self,
        user_id: str,
        resource_path: str,
        *,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
        weight: int = 1,
        priority: Criticality | None = None,
    ) -> None:
        self.user_id = user_id
        self.resource_path = resource_path
        self.headers = headers
        self.weight = weight
        self.priority = priority


@final
class CheckAnswer:
    """The decision that binds, `limit` units of which it was, and how the service itself fares.

    Without a rule, `decision.rule_id` is empty and `limit` is -1. `decision.degraded` marks what a
    failure policy decided. `decision.reason` says why not.
    """

    __slots__ = ("decision", "limit", "priority", "status")

    def __init__(
        self, decision: Decision, limit: int, priority: Criticality, status: str = STATUS_CALM
    ) -> None:
        self.decision = decision
        self.limit = limit
        self.priority = priority  # as settled: what was claimed, as far as it was believed
        self.status = status


@final
class LeaseAnswer:
    """Units taken in advance: spend them within `valid_us` of asking, give back what is left.

    With no units the decision says when to ask again. A lease that has ended is void: what comes
    back late is forgotten, so a lease never lets in more than the limit.
    """

    __slots__ = ("check", "lease_id", "units", "valid_us")

    def __init__(self, lease_id: str, units: int, valid_us: int, check: CheckAnswer) -> None:
        self.lease_id = lease_id
        self.units = units
        self.valid_us = valid_us
        self.check = check


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class ThrottleAsk:
    """A GCRA whose rate travels with each ask, as in CL.THROTTLE."""

    __slots__ = ("count", "key", "max_burst", "period_s", "quantity")

    def __init__(
        self, key: str, max_burst: int, count: int, period_s: int, quantity: int = 1
    ) -> None:
        self.key = key
        self.max_burst = max_burst
        self.count = count
        self.period_s = period_s
        self.quantity = quantity


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class ThrottleAnswer:
    """The five numbers; seconds as that command rounds them, -1 where there is nothing to say."""

    __slots__ = ("degraded", "limit", "limited", "remaining", "reset_after_s", "retry_after_s")

    def __init__(
        self,
        limited: bool,
        limit: int,
        remaining: int,
        retry_after_s: int,
        reset_after_s: int,
        degraded: bool = False,
    ) -> None:
        self.limited = limited
        self.limit = limit
        self.remaining = remaining
        self.retry_after_s = retry_after_s
        self.reset_after_s = reset_after_s
        self.degraded = degraded


@final
class Override:
    """A limit that a descriptor brings along: so many in one of the protocol's units (1 to 7)."""

    __slots__ = ("requests_per_unit", "unit")

    def __init__(self, requests_per_unit: int, unit: int) -> None:
        self.requests_per_unit = requests_per_unit
        self.unit = unit


@final
class Descriptor:
    """What a mesh says of a request: pairs in order; `hits` is -1 where it says none itself."""

    __slots__ = ("entries", "hits", "override")

    def __init__(
        self,
        entries: Sequence[tuple[str, str]],
        *,
        override: Override | None = None,
        hits: int = HITS_UNSAID,
    ) -> None:
        self.entries = entries
        self.override = override
        self.hits = hits


@final
class MeshAsk:
    """Envoy's RateLimitRequest; `hits` is 0 where it says none."""

    __slots__ = ("descriptors", "domain", "hits")

    def __init__(self, domain: str, descriptors: Sequence[Descriptor], hits: int = 0) -> None:
        self.domain = domain
        self.descriptors = descriptors
        self.hits = hits


@final
class MeshLimit:
    """The limit that a descriptor fell under, as its status tells it."""

    __slots__ = ("name", "requests_per_unit", "unit")

    def __init__(self, requests_per_unit: int, unit: int, name: str = "") -> None:
        self.requests_per_unit = requests_per_unit
        self.unit = unit
        self.name = name


@final
class MeshStatus:
    """One descriptor's status. Without a limit nothing was counted."""

    __slots__ = ("limit", "over", "remaining", "reset_us")

    def __init__(
        self,
        over: bool,
        limit: MeshLimit | None = None,
        remaining: int = 0,
        reset_us: int = RESET_UNKNOWN,
    ) -> None:
        self.over = over
        self.limit = limit
        self.remaining = remaining
        self.reset_us = reset_us


@final
class MeshAnswer:
    """Envoy's RateLimitResponse. `metadata` is what JSON can hold; None is none."""

    __slots__ = ("body", "metadata", "over", "request_headers", "response_headers", "statuses")

    def __init__(
        self,
        over: bool,
        statuses: Sequence[MeshStatus],
        *,
        response_headers: Sequence[tuple[str, str]] = (),
        request_headers: Sequence[tuple[str, str]] = (),
        metadata: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> None:
        self.over = over
        self.statuses = statuses
        self.response_headers = response_headers  # towards who asked
        self.request_headers = request_headers  # towards what is asked
        self.metadata = metadata
        self.body = body


class RateLimits(Protocol):
    """A rate-limit service, as the doors ask it. `by` is who speaks."""

    def check(self, ask: CheckAsk, by: Identity) -> Soon[CheckAnswer]:
        """Decide and count. Needs CHECK."""
        ...

    def check_each(self, asks: Sequence[CheckAsk], by: Identity) -> Soon[Sequence[CheckAnswer]]:
        """Decide several, each by itself, in order. Needs CHECK."""
        ...

    def peek(self, ask: CheckAsk, by: Identity) -> Soon[CheckAnswer]:
        """What `check` would answer; nothing is counted. Needs CHECK."""
        ...

    async def reset(self, ask: CheckAsk, by: Identity) -> int:
        """Forget what the rules for this ask have counted; how many rules. Needs RESET."""
        ...

    async def lease(self, ask: CheckAsk, units: int, by: Identity) -> LeaseAnswer:
        """Take up to so many units in advance. Needs LEASE."""
        ...

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        """Give back what was not spent; how much was accepted, 0 if the lease is void. LEASE."""
        ...

    def should_rate_limit(self, ask: MeshAsk, by: Identity) -> Soon[MeshAnswer]:
        """Envoy's question. Needs CHECK."""
        ...

    def throttle(self, ask: ThrottleAsk, by: Identity) -> Soon[ThrottleAnswer]:
        """CL.THROTTLE's question. Needs CHECK."""
        ...

    def store(self, by: Identity) -> Store:
        """The store itself, for limiters elsewhere that keep their counts here. Needs LEASE."""
        ...

    def serving(self) -> bool:
        """Whether new work is welcome: rules are in force, and nobody has asked us to end."""
        ...


class Desk(Protocol):
    """What people and machines may see of a service. Everything is what JSON can hold.

    Where several workers share a service, each asks the others for what only they have seen.
    """

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        """Which rules are in force, and how the last load went. Needs AUDIT."""
        ...

    def state(self, by: Identity) -> Mapping[str, object]:
        """What the service is doing now. Needs AUDIT."""
        ...

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> Soon[Sequence[Mapping[str, object]]]:
        """Recent decisions about a user, newest first. Needs AUDIT."""
        ...

    def metrics(self) -> Soon[str]:
        """All metrics as Prometheus text."""
        ...

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        ...


class Gate(Protocol):
    """Sheds what matters less while the service is under stress; asked before anything counts."""

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        """The refusal of work that is shed; None for what may be counted."""
        ...

    def status(self) -> str:
        """One of the STATUS words."""
        ...


class Ledger(Protocol):
    """Is told of every decision: for the audit, the metrics, and the dead letters.

    Called on the way of each answer: it must be quick, must not wait and must not raise.
    """

    def decided(
        self,
        entity: str,
        rule_id: str,
        weight: int,
        priority: Criticality,
        decision: Decision,
        began_us: int,
        limit: Limit | None = None,
    ) -> None:
        """`weight` units for `entity` under a rule; an empty rule is none that applied.

        `limit` is the rule's, for whoever must judge the decision later without its file.
        """
        ...
