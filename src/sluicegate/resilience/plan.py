"""Plan: what the settings of a service cost in the worst case and bring on average, in numbers.

`plan_of` is pure arithmetic over `kernels/call_plan.py`; nothing is called and nothing is measured.
Without and with are the same dependencies: without, each is asked once and all are needed; with,
they are repeated within the budget, and the soft ones are not needed. What an assumption is, is a
setting of a dependency (`availability`, `lasting`), and never found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.kernels.backoff import DECORRELATED, ceiling_us
from sluicegate.kernels.call_plan import (
    ATTEMPTS_MAX,
    all_of,
    call_odds,
    worst_attempts,
    worst_time_us,
)
from sluicegate.policies.client.retry import RetrySettings
from sluicegate.resilience.client.settings import ClientSettings
from sluicegate.resilience.plan_settings import DependencySettings
from sluicegate.resilience.settings import Resilience

HOURS_A_MONTH: Final = 730.5
_MILLI: Final = 1_000


class DependencyPlan(NamedTuple):
    """What one dependency costs and brings; of `settings.count` alike ones, one."""

    name: str
    settings: DependencySettings
    attempts: int  # of this client, at worst, each with its hedges
    time_us: int  # of a call, at worst
    calls: int  # that reach it at worst, all layers together
    load: float  # attempts for each call on average
    storm: float  # and while all of them fail, for as long as the budget's window and more
    once: float  # availability of one attempt
    repeated: float  # and of a call


class ServicePlan(NamedTuple):
    """What all of them cost and leave."""

    dependencies: tuple[DependencyPlan, ...]
    time_us: int  # of all that a request waits for, at worst
    calls: int  # of all dependencies for one request, at worst
    without: float  # availability: each asked once, and all needed
    answered: float  # with retries and soft dependencies
    complete: float  # of answers in which nothing is replaced
    warnings: tuple[str, ...]


def plan_of(settings: Resilience) -> ServicePlan:
    """Return the plan of these settings."""
    plans = tuple(
        _dependency_plan(name, one, settings) for name, one in settings.dependencies.items()
    )
    times = [(plan.time_us, plan.settings.count) for plan in plans]
    if settings.plan.together:
        time_us = max((time_us for time_us, _ in times), default=0)
    else:
        time_us = sum(time_us * count for time_us, count in times)
    hard = [plan for plan in plans if not plan.settings.soft]
    return ServicePlan(
        plans,
        time_us,
        sum(plan.calls * plan.settings.count for plan in plans),
        all_of(plan.once**plan.settings.count for plan in plans),
        all_of(plan.repeated**plan.settings.count for plan in hard),
        all_of(plan.repeated**plan.settings.count for plan in plans),
        tuple(_warnings(settings, plans, time_us)),
    )


def _dependency_plan(name: str, one: DependencySettings, settings: Resilience) -> DependencyPlan:
    client = settings.client
    budget = client.retry_budget.deposit_milli / _MILLI
    asked = one.attempts or client.retry.attempts[DEFAULT_CRITICALITY]
    attempts = asked if one.idempotent else 1
    total_us = min(client.timeout_us, one.timeout_us) if one.soft else client.timeout_us
    if settings.plan.deadline_us:
        total_us = min(total_us, settings.plan.deadline_us)
    attempt_us = min(one.attempt_us or client.attempt_us, total_us)
    hedges = _hedges(one, client)
    # A hedge that may be sent mends what one more attempt would, out of the same budget.
    tries = min(attempts + (hedges > 0), ATTEMPTS_MAX)
    most = attempts * (1 + hedges)
    odds = call_odds(1.0 - one.availability, tries, lasting=one.lasting, budget=budget)
    return DependencyPlan(
        name,
        one,
        most,
        worst_time_us(attempt_us, _waits_us(client.retry, attempts), total_us),
        most * worst_attempts(settings.plan.layers),
        odds.attempts,
        call_odds(1.0, tries, lasting=1.0, budget=budget).attempts,
        one.availability,
        1.0 - odds.failure,
    )


def _hedges(one: DependencySettings, client: ClientSettings) -> int:
    """Return how many may run beside each attempt."""
    if not one.idempotent:
        return 0
    return int(one.hedge) if client.hedge is None else client.hedge.hedges_max


def _waits_us(retry: RetrySettings, attempts: int) -> list[int]:
    """Return the longest wait after each attempt but the last."""
    waits_us, longest_us = [], retry.base_us
    for attempt in range(attempts - 1):
        if retry.jitter == DECORRELATED:
            longest_us = min(3 * longest_us, retry.wait_us_max)
            waits_us.append(longest_us)
        else:
            waits_us.append(ceiling_us(attempt, retry.base_us, retry.wait_us_max))
    return waits_us


def _warnings(
    settings: Resilience, plans: tuple[DependencyPlan, ...], time_us: int
) -> Iterator[str]:
    client, deadline_us = settings.client, settings.plan.deadline_us
    if not deadline_us:
        yield (
            "plan.deadline_us is 0: no caller's deadline ends a call before "
            f"client.timeout_us ({_s(client.timeout_us)}); give it if you know it"
        )
    elif client.timeout_us > deadline_us:
        yield (
            f"client.timeout_us ({_s(client.timeout_us)}) is longer than the callers wait "
            f"(plan.deadline_us, {_s(deadline_us)}): work would go on for nobody where they do not "
            "pass their deadline on; lower it"
        )
    for name, endpoint in settings.endpoints.items():
        if deadline_us and endpoint.timeout_s * 1e6 > deadline_us:
            yield (
                f"endpoints.{name}.timeout_s ({endpoint.timeout_s:g} s) is longer than the "
                f"callers wait ({_s(deadline_us)}); lower it"
            )
    if deadline_us and not settings.plan.together and time_us > deadline_us:
        yield (
            f"one after another the dependencies take up to {_s(time_us)}, and callers wait "
            f"{_s(deadline_us)}; fetch them together, or give each less time"
        )
    for plan in plans:
        yield from _dependency_warnings(plan, settings)
    layers = settings.plan.layers
    repeating = [attempts for attempts in layers if attempts > 1]
    most = max((plan.attempts for plan in plans), default=1)
    if repeating and most > 1:
        factors = " x ".join(str(attempts) for attempts in (most, *layers))
        yield (
            f"{len(repeating) + 1} layers repeat the same work: {factors} = "
            f"{most * worst_attempts(layers)} calls of the lowest for one at the top; let one "
            "layer repeat, and the others pass `retry=0` on"
        )


def _dependency_warnings(plan: DependencyPlan, settings: Resilience) -> Iterator[str]:
    one, client = plan.settings, settings.client
    path = f"dependencies.{plan.name}"
    asked = one.attempts or client.retry.attempts[DEFAULT_CRITICALITY]
    if not one.idempotent and one.attempts > 1:
        yield (
            f"{path}.attempts is {one.attempts} and it is not idempotent: what may have run is not "
            "repeated; give it an idempotency key, or take 1"
        )
    if not one.idempotent and one.hedge:
        yield f"{path}.hedge is on and it is not idempotent: work would be done twice; take it off"
    elif one.hedge and client.hedge is None:
        yield f"{path}.hedge is on and there is no [client.hedge]: none is sent; give that table"
    total_us = min(client.timeout_us, one.timeout_us) if one.soft else client.timeout_us
    if settings.plan.deadline_us:
        total_us = min(total_us, settings.plan.deadline_us)
    attempt_us = one.attempt_us or client.attempt_us
    if one.idempotent and asked > 1 and attempt_us >= total_us:
        yield (
            f"{path}: an attempt may take {_s(attempt_us)} and the whole call has "
            f"{_s(total_us)}, so one that hangs is never repeated; lower attempt_us"
        )


def _s(span_us: int) -> str:
    return f"{span_us / 1e6:g} s"
