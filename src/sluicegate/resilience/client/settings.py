"""Settings of a client: one value for each part, and how they are read from a table of TOML.

What differs from the policies' own defaults: the throttle looks at two seconds, since with ten it
held callers back for three after a loss of 70% was over; back-pressure trips the breaker, and is
repeated only
after the time it asks for, so that an overloaded backend is spared; and five failures in a row open
nothing, since a backend that refuses a third of its calls at random shows five in a row every few
hundred. A breaker looks again within a second, for an outage may be as short, and at least once a
minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar, final

from sluicegate.contracts.criticality import parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.breaker import TRIP_ON_PRESSURE, BreakerSettings
from sluicegate.policies.client_throttle import ClientThrottleSettings
from sluicegate.policies.hedge import HedgeSettings
from sluicegate.policies.retry import WHEN_TOLD, RetrySettings
from sluicegate.policies.retry_budget import RetryBudgetSettings
from sluicegate.policies.settings import check_ranges

T = TypeVar("T")

_BREAKER: Final[dict[str, Any]] = {
    "failures_in_row": 20,
    "on_pressure": TRIP_ON_PRESSURE,
    "open_us": 1_000_000,
    "open_us_max": 60_000_000,
}
_THROTTLE: Final[dict[str, Any]] = {"history_us": 2_000_000}
_RETRY: Final[dict[str, Any]] = {"on_overload": WHEN_TOLD}


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
    parts: dict[str, Any] = {
        "retry": _part("retry", RetrySettings, _RETRY, values),
        "retry_budget": _part("retry_budget", RetryBudgetSettings, {}, values),
        "breaker": _part("breaker", BreakerSettings, _BREAKER, values),
        "throttle": _part("throttle", ClientThrottleSettings, _THROTTLE, values),
    }
    if "hedge" in values:
        parts["hedge"] = _part("hedge", HedgeSettings, {}, values)
    return _build("client", ClientSettings, values | parts)


def _part(name: str, settings: type[T], defaults: Mapping[str, Any], values: dict[str, Any]) -> T:
    table = values.pop(name, {})
    if not isinstance(table, dict):
        raise BadValue(f"client.{name}", table, f"write it as a table, [client.{name}]")
    if isinstance(table.get("attempts"), list):
        table = table | {"attempts": tuple(table["attempts"])}
    if isinstance(table.get("least_class"), str):
        path = f"client.{name}.least_class"
        table = table | {"least_class": parse_criticality(table["least_class"], field=path)}
    return _build(f"client.{name}", settings, {**defaults, **table})


def _build(path: str, settings: type[T], values: Mapping[str, Any]) -> T:
    names = {one.name: one.default for one in fields(settings)}  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in names:
            raise BadValue(f"{path}.{name}", value, f"give one of {', '.join(names)}")
        if isinstance(names[name], int) and (
            not isinstance(value, int) or isinstance(value, bool) != isinstance(names[name], bool)
        ):
            kind = "true or false" if isinstance(names[name], bool) else "a whole number"
            raise BadValue(f"{path}.{name}", value, f"give {kind}")
    return settings(**values)
