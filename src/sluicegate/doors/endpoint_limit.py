"""Endpoint limit: one limit around one endpoint, for doors with a decorator or a dependency.

A door knows no limiter, only its shape. A claim has a key of its own for each endpoint, so that two
endpoints with the same rate do not spend each other's; one scope shares a limit among several.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, SupportsIndex, final

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Judgement, check_limiter
from sluicegate.contracts.rule import Limit
from sluicegate.doors.headers import unavailable

# Longer keys are replaced by a digest: a header of ten kilobytes is no reason for an error.
KEY_CHARS_MAX: Final = 256


class _EndpointClaim(NamedTuple):
    """What is asked of a limiter, in the order in which it takes its claims."""

    key: str
    rule: Any
    cost: SupportsIndex


class EndpointLimiter(Protocol):
    """What a door needs of a limiter; `sluicegate.Limiter` has it."""

    def judge(self, *claims: Any) -> Judgement:
        """Take every claim or none, from a thread that may wait."""
        ...

    def ajudge(self, *claims: Any) -> Awaitable[Judgement]:
        """The same from an event loop."""
        ...

    def limits_of(self, rule: Any = ...) -> Sequence[Limit]:
        """The limits of a rule; an error if it is none."""
        ...


def judge_claim(
    limiter: EndpointLimiter, scope: str, key: str, rule: Any, cost: SupportsIndex
) -> Judgement:
    """One claim judged; a limiter without an answer refuses as unavailable."""
    try:
        return limiter.judge(_EndpointClaim(scoped_key(scope, key), rule, cost))
    except Unavailable:
        return unavailable()


async def ajudge_claim(
    limiter: EndpointLimiter, scope: str, key: str, rule: Any, cost: SupportsIndex
) -> Judgement:
    """The same from an event loop."""
    try:
        return await limiter.ajudge(_EndpointClaim(scoped_key(scope, key), rule, cost))
    except Unavailable:
        return unavailable()


def check_rule(limiter: EndpointLimiter, rule: Any) -> None:
    """Refuse a bad rule when an endpoint is declared; what a function will say is not known yet."""
    if not callable(rule):
        limiter.limits_of(rule)


@final
class LimiterGuard:
    """A guard that takes from one limiter, by functions of the arrival: limits by plan.

        guard = LimiterGuard(limiter, rule=lambda arrival: plan_of(arrival.user()),
                             key=lambda arrival: arrival.user())
        app.add_middleware(LimitMiddleware, guard=guard)

    `rule`, `key` and `cost` are values or functions of the arrival. Without a key, each client's
    address counts by itself. A rule of None lets the arrival pass and counts nothing.
    """

    __slots__ = ("_cost", "_key", "_limiter", "_rule", "_scope")

    def __init__(
        self,
        limiter: EndpointLimiter,
        *,
        rule: Any,
        key: str | Callable[[Arrival], str] | None = None,
        cost: SupportsIndex | Callable[[Arrival], SupportsIndex] = 1,
        scope: str = "",
    ) -> None:
        check_limiter(limiter)
        check_rule(limiter, rule)
        self._limiter = limiter
        self._rule = rule
        self._key = key
        self._cost = cost
        self._scope = scope

    def judge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now, from a thread that may wait."""
        claim = self._claim(arrival)
        return None if claim is None else judge_claim(self._limiter, self._scope, *claim)

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now, from an event loop."""
        claim = self._claim(arrival)
        return None if claim is None else await ajudge_claim(self._limiter, self._scope, *claim)

    def _claim(self, arrival: Arrival) -> tuple[str, Any, SupportsIndex] | None:
        rule = self._rule(arrival) if callable(self._rule) else self._rule
        if rule is None:
            return None
        key = self._key(arrival) if callable(self._key) else self._key
        cost = self._cost(arrival) if callable(self._cost) else self._cost
        return (arrival.address() if key is None else key), rule, cost


def scoped_key(scope: str, key: str) -> str:
    """The key under which a scope counts this one."""
    whole = f"{scope}:{key}" if scope else key
    if len(whole) <= KEY_CHARS_MAX:
        return whole
    return "sha256:" + hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def name_of(function: object) -> str:
    """What an endpoint is called, the same in every process."""
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}.{name}"
