"""Checks: the requests and responses of a rate-limit service, as plain values.

A door parses its protocol into a request and passes it to the service with the caller's identity.
What is decided in this process is returned at once; what waits for a store is an awaitable. A door
handles both, because a coroutine costs more than most decisions.

The service raises `BadValue` for an invalid request, `Forbidden` for what this identity may not do,
and `Unavailable` where no failure policy covers a silent store; any other exception is a bug of
ours. A refusal is a response, never an error.
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
# A result that is here, or will be.
MaybeAwaitable: TypeAlias = "T | Awaitable[T]"

STATUS_NORMAL: Final = ""
STATUS_DEGRADED: Final = "DEGRADED_MODE"  # less critical work is being shed
RESET_UNKNOWN: Final = -1
COST_UNSET: Final = -1


@final
class CheckRequest:
    """May work of `cost` enter, for this user on this resource?

    Header names are lower-case. `priority` is what the caller claims; None is no claim.
    """

    __slots__ = ("cost", "headers", "priority", "resource_path", "user_id")

    def __init__(
        self,
        user_id: str,
        resource_path: str,
        *,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
        cost: int = 1,
        priority: Criticality | None = None,
    ) -> None:
        self.user_id = user_id
        self.resource_path = resource_path
        self.headers = headers
        self.cost = cost
        self.priority = priority


@final
class CheckResponse:
    """The decision that binds, its limit, the fleet's status and the worker's own.

    Without a rule, `decision.rule_id` is empty and `limit` is -1. `decision.degraded` marks what a
    failure policy decided. `decision.reason` says why work was refused.
    """

    __slots__ = ("decision", "limit", "node_status", "priority", "status")

    def __init__(
        self,
        decision: Decision,
        limit: int,
        priority: Criticality,
        status: str = STATUS_NORMAL,
        node_status: str = STATUS_NORMAL,
    ) -> None:
        self.decision = decision
        self.limit = limit
        self.priority = priority  # the one that counts: the claim, clamped to what is allowed
        self.status = status
        self.node_status = node_status


@final
class LeaseResponse:
    """Units taken in advance: spend them within `valid_us` of the request, give back the rest.

    With no units the decision says when to ask again. A lease that has ended is void: a late return
    is ignored, so a lease never admits more than the limit.
    """

    __slots__ = ("check", "lease_id", "units", "valid_us")

    def __init__(self, lease_id: str, units: int, valid_us: int, check: CheckResponse) -> None:
        self.lease_id = lease_id
        self.units = units
        self.valid_us = valid_us
        self.check = check


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class ThrottleRequest:
    """A GCRA whose rate travels with each request, as in CL.THROTTLE."""

    __slots__ = ("cost", "count", "key", "max_burst", "period_s")

    def __init__(self, key: str, max_burst: int, count: int, period_s: int, cost: int = 1) -> None:
        self.key = key
        self.max_burst = max_burst
        self.count = count
        self.period_s = period_s
        self.cost = cost


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class ThrottleResponse:
    """The five numbers of CL.THROTTLE; seconds as it rounds them, -1 for none."""

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
    """A limit that a descriptor brings along: so many in one of Envoy's units (1 to 7)."""

    __slots__ = ("requests_per_unit", "unit")

    def __init__(self, requests_per_unit: int, unit: int) -> None:
        self.requests_per_unit = requests_per_unit
        self.unit = unit


@final
class Descriptor:
    """Key-value pairs that describe a request; `cost` is `COST_UNSET` where the request's holds."""

    __slots__ = ("cost", "entries", "override")

    def __init__(
        self,
        entries: Sequence[tuple[str, str]],
        *,
        override: Override | None = None,
        cost: int = COST_UNSET,
    ) -> None:
        self.entries = entries
        self.override = override
        self.cost = cost


@final
class MeshRequest:
    """Envoy's RateLimitRequest; `cost` is its `hits_addend`, 0 where it has none."""

    __slots__ = ("cost", "descriptors", "domain")

    def __init__(self, domain: str, descriptors: Sequence[Descriptor], cost: int = 0) -> None:
        self.domain = domain
        self.descriptors = descriptors
        self.cost = cost


@final
class MeshLimit:
    """The limit that a descriptor fell under, as its status reports it."""

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
class MeshResponse:
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
        self.response_headers = response_headers  # to the caller
        self.request_headers = request_headers  # to the upstream
        self.metadata = metadata
        self.body = body


def is_unmatched_check(response: CheckResponse) -> bool:
    """Return whether no rule matched, so the request was admitted without being counted."""
    return not response.decision.rule_id and response.decision.allowed


def is_unmatched_mesh(response: MeshResponse) -> bool:
    """Return whether no descriptor has a rule; one decided without the store has a mark."""
    for status in response.statuses:
        if status.limit is not None or status.over or status.remaining:
            return False
    return not response.over and not response.request_headers


class RateLimits(Protocol):
    """A rate-limit service, as the doors call it. `by` is the caller's identity."""

    def check(self, request: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        """Decide and count. Needs CHECK."""
        ...

    def check_each(
        self, requests: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        """Decide several, each by itself, in order. Needs CHECK."""
        ...

    def peek(self, request: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        """Return what `check` would, and count nothing. Needs CHECK."""
        ...

    async def reset(self, request: CheckRequest, by: Identity) -> int:
        """Forget what the rules for this request have counted; how many rules. Needs RESET."""
        ...

    async def lease(self, request: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        """Take up to so many units in advance. Needs LEASE."""
        ...

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        """Give back unspent units; how many were accepted, 0 if the lease is void. Needs LEASE."""
        ...

    def should_rate_limit(self, request: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        """Decide Envoy's request. Needs CHECK."""
        ...

    def throttle(self, request: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        """Decide a CL.THROTTLE. Needs CHECK."""
        ...

    def store(self, by: Identity) -> Store:
        """Return the store itself, for remote limiters that keep their counts here. Needs LEASE."""
        ...

    def serving(self) -> bool:
        """Whether rules are in force and the service is not draining."""
        ...


class ServiceStatus(Protocol):
    """The read-only view of a service for people and machines, in values that JSON can hold.

    Where several workers share a service, each asks the others for their part.
    """

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        """Return which rules are in force, and how the last load went. Needs AUDIT."""
        ...

    def state(self, by: Identity) -> Mapping[str, object]:
        """Return what the service is doing now. Needs AUDIT."""
        ...

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> MaybeAwaitable[Sequence[Mapping[str, object]]]:
        """Return recent decisions about a user, newest first. Needs AUDIT."""
        ...

    def metrics(self) -> MaybeAwaitable[str]:
        """Render all metrics as Prometheus text."""
        ...

    def not_ready(self) -> str:
        """Say why this instance should get no traffic; empty if it should."""
        ...

    def not_alive(self) -> str:
        """Say why only a restart can help this process; empty if it works."""
        ...


class CheckGate(Protocol):
    """Sheds less critical work while the service is under stress, before anything is counted."""

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        """Return the refusal of work that is shed; None for what may be counted."""
        ...

    def status(self) -> str:
        """Return one of the STATUS words, of the fleet: the worst of those that were heard of."""
        ...

    def node_status(self) -> str:
        """Return one of the STATUS words, of this worker alone."""
        ...


class Ledger(Protocol):
    """Records every decision: for the audit, the metrics and the dead letters.

    Called on the way of each response: it must be quick, must not wait and must not raise.
    """

    def record_decision(
        self,
        entity: str,
        rule_id: str,
        cost: int,
        priority: Criticality,
        decision: Decision,
        began_us: int,
        limit: Limit | None = None,
    ) -> None:
        """Record a decision on `cost` for `entity`; `rule_id` is empty where no rule applied.

        `limit` is the rule's, for whoever must judge the decision later without its file.
        """
        ...
