"""Settings of a client: one value for each part, and how they are read from a table of TOML.

What differs from the policies' own defaults: the throttle looks at two seconds, since with ten it
held callers back for three after a loss of 70% was over; back-pressure trips the breaker, and is
repeated only
after the time it asks for, so that an overloaded backend is spared; and five failures in a row open
nothing, since a backend that refuses a third of its calls at random shows five in a row every few
hundred. A breaker looks again after a twentieth of the time that the outage has lasted, with one
call, and closes if that is answered: it then costs hardly an answer after the outage has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from sluicegate.contracts.criticality import parse_criticality
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.client.breaker import TRIP_ON_PRESSURE, BreakerSettings
from sluicegate.policies.client.client_throttle import ClientThrottleSettings
from sluicegate.policies.client.hedge import HedgeSettings
from sluicegate.policies.client.retry import WHEN_TOLD, RetrySettings
from sluicegate.policies.client.retry_budget import RetryBudgetSettings
from sluicegate.policies.settings import check_ranges
from sluicegate.resilience.tables import build, table_of

_BREAKER: Final[dict[str, Any]] = {
    "failures_in_row": 20,
    "on_pressure": TRIP_ON_PRESSURE,
    "open_us": 5_000,
    "open_percent": 5,
    "open_us_max": 60_000_000,
    "probes": 1,
    "probe_successes": 1,
}
_THROTTLE: Final[dict[str, Any]] = {"history_us": 2_000_000}
_RETRY: Final[dict[str, Any]] = {"on_overload": WHEN_TOLD}
_PARTS: Final[Mapping[str, tuple[type[Any], Mapping[str, Any]]]] = {
    "retry": (RetrySettings, _RETRY),
    "retry_budget": (RetryBudgetSettings, {}),
    "breaker": (BreakerSettings, _BREAKER),
    "throttle": (ClientThrottleSettings, _THROTTLE),
}


def _breaker() -> BreakerSettings:
    return BreakerSettings(**_BREAKER)


def _retry() -> RetrySettings:
    return RetrySettings(**_RETRY)


def _throttle() -> ClientThrottleSettings:
    return ClientThrottleSettings(**_THROTTLE)


@final
@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """How long a call and an attempt may take, and the settings of each part."""

    timeout_us: int = ranged(10_000_000, 1, WAIT_US_MAX)
    attempt_us: int = ranged(5_000_000, 1, WAIT_US_MAX)
    margin_us: int = ranged(5_000, 0, WAIT_US_MAX)
    claims: bool = True  # requests say what is left and how much they matter
    retry: RetrySettings = field(default_factory=_retry)
    retry_budget: RetryBudgetSettings = field(default_factory=RetryBudgetSettings)
    breaker: BreakerSettings = field(default_factory=_breaker)
    throttle: ClientThrottleSettings = field(default_factory=_throttle)
    hedge: HedgeSettings | None = None  # no hedges; a table, even an empty one, asks for them

    def __post_init__(self) -> None:
        check_ranges("client", self)


def client_settings(table: Mapping[str, Any]) -> ClientSettings:
    """Return the settings of a `[client]` table, whose parts are tables of their own."""
    values = dict(table)
    for name, (settings, defaults) in _PARTS.items():
        if name in values:
            values[name] = build(f"client.{name}", settings, values[name], defaults)
    if "hedge" in values:
        hedge = dict(table_of("client.hedge", values["hedge"]))
        if "least_class" in hedge:
            path = "client.hedge.least_class"
            hedge["least_class"] = parse_criticality(str(hedge["least_class"]), field=path)
        values["hedge"] = build("client.hedge", HedgeSettings, hedge, {})
    return build("client", ClientSettings, values, {})
