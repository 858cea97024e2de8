"""Settings of a service: one value for each part, and how all are read from one TOML file.

slots = 16
bypass = ["/healthz", "/readyz"]

[callers]
checkout = "critical"

[endpoints."/report"]
timeout_s = 2.0

[client]
timeout_us = 1_000_000

[dependencies.trends]
soft = true
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.admission.degradation import check_switches
from sluicegate.policies.admission.settings import (
    BYTES_MAX,
    LENGTH_MAX,
    SLOTS_MAX,
    WAITER_BYTES,
)
from sluicegate.policies.settings import check_ranges, check_type
from sluicegate.resilience.client.settings import ClientSettings, client_settings
from sluicegate.resilience.faults.settings import FaultSettings, fault_settings
from sluicegate.resilience.objectives import Objective
from sluicegate.resilience.plan_settings import (
    DEPENDENCIES_MAX,
    DependencySettings,
    PlanSettings,
)
from sluicegate.resilience.tables import build, table_of

ENDPOINTS_MAX: Final = 1_000
TIMEOUT_S_MAX: Final = 86_400.0
FORMS: Final = ("", "facebook")


@final
@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """One endpoint: the time it is given if the caller grants none or more; 0 is no limit."""

    timeout_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.timeout_s <= TIMEOUT_S_MAX:
            raise BadValue(
                "endpoint.timeout_s", self.timeout_s, f"give seconds from 0 to {TIMEOUT_S_MAX:,.0f}"
            )


@final
@dataclass(frozen=True, kw_only=True)
class FollowedRulebook:
    """The rulebook that is followed, and what this process is called there."""

    blobs: str = ""  # files:DIR or s3://...
    keys: tuple[str, ...] = ()  # public keys that sign its releases
    node: str = ""
    events: str = ""  # where changes are announced; without it they are looked for each second
    folder: str = ".sluicegate"  # the last good rules, to start from when all else is down

    def __post_init__(self) -> None:
        for name in ("blobs", "keys", "node", "folder"):
            value = getattr(self, name)
            if not value:
                raise BadValue(f"rulebook.{name}", value, "say it: a rulebook has no default")


@final
@dataclass(frozen=True, kw_only=True)
class Resilience:
    """The parts of a service: how it is protected, how it calls others, and its faults on purpose.

    `slots` is how many requests may be in flight; 0 finds it in an asyncio server. `bypass` are
    paths, or names of endpoints, that nothing judges. At most `queue_length` requests wait, with at
    most `queue_bytes` of memory. `form = "facebook"` replaces the queue by CoDel with adaptive LIFO
    and a watermark. `callers` names the highest class that each may claim. `degrade`
    names parts of answers, and the level of overload from which on each is left out; `rulebook` may
    overrule it, if `resilience/rulebook.py` follows it. With `hold_streams` a response that streams
    holds its slot until its last byte, and not only until its first. `retry` allows retries in the
    overload mark.
    """

    slots: int = ranged(0, 0, SLOTS_MAX)
    bypass: tuple[str, ...] = ("/healthz", "/readyz", "/health", "/ready", "/livez")
    endpoints: Mapping[str, EndpointSettings] = field(default_factory=dict)
    callers: Mapping[str, Criticality] = field(default_factory=dict)
    queue_length: int = ranged(10_000, 1, LENGTH_MAX)
    queue_bytes: int = ranged(64 << 20, WAITER_BYTES, BYTES_MAX)
    form: str = ""
    hold_streams: bool = False
    retry: bool = False
    degrade: Mapping[str, str] = field(default_factory=dict)
    rulebook: FollowedRulebook | None = None
    client: ClientSettings = field(default_factory=ClientSettings)
    dependencies: Mapping[str, DependencySettings] = field(default_factory=dict)
    faults: FaultSettings = field(default_factory=FaultSettings)
    plan: PlanSettings = field(default_factory=PlanSettings)
    objectives: tuple[Objective, ...] = ()

    def __post_init__(self) -> None:
        check_ranges("resilience", self)
        names = (tuple, list, set, frozenset)
        check_type("resilience.bypass", self.bypass, names, "give a tuple of paths")
        for path, one in self.endpoints.items():
            field = f'resilience.endpoints."{path}"'
            check_type(field, one, EndpointSettings, "give EndpointSettings(timeout_s=...)")
        for caller, highest in self.callers.items():
            remedy = "give a Criticality, as Criticality.CRITICAL"
            check_type(f"resilience.callers.{caller}", highest, Criticality, remedy)
        if self.form not in FORMS:
            raise BadValue("resilience.form", self.form, 'give "facebook", or "" for the queue')
        check_switches("resilience.degrade", self.degrade)
        if len(self.endpoints) > ENDPOINTS_MAX:
            raise BadValue(
                "resilience.endpoints", len(self.endpoints), f"name at most {ENDPOINTS_MAX:,}"
            )
        count = sum(one.count for one in self.dependencies.values())
        if count > DEPENDENCIES_MAX:
            raise BadValue("resilience.dependencies", count, f"name at most {DEPENDENCIES_MAX:,}")

    @staticmethod
    def load(path: str | Path) -> Resilience:
        """Return the settings of a TOML file: its table `[resilience]`, or all of it."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadValue(Path(path).name, str(path), f"give a file of TOML ({error})") from None
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadValue(Path(path).name, str(path), f"write it as TOML: {error}") from None
        return resilience_settings(table_of("resilience", tables.get("resilience", tables)))


_NO_NEED: Final = "delete it; the queue needs no setting for it"
# Settings of earlier versions, and their remedies.
_REMOVED: Final[Mapping[str, str]] = {
    "queue": "give slots, queue_length and queue_bytes instead of the table [queue]",
    "heavy_queue": "delete it; callers share one queue by the time that their work takes",
    "heavy_us": "delete it; callers share one queue by the time that their work takes",
    "light_share": "delete it; callers share one queue by the time that their work takes",
    "concurrency": "delete it; without slots the limit is found",
    "deadline": "give each endpoint a timeout_s; without one requests have no deadline",
    "watermark": _NO_NEED,
    "stress": _NO_NEED,
    "partitions": "delete it; name in callers who matters most",
    "endpoints_max": _NO_NEED,
    "read_ahead_bytes": _NO_NEED,
    "jitter": _NO_NEED,
}
_REMOVED_OF_ENDPOINT: Final[Mapping[str, str]] = {
    "timeout_us": "give timeout_s, in seconds",
    "weight": "delete it; callers share one queue by the time that their work takes",
}


def resilience_settings(table: Mapping[str, Any]) -> Resilience:
    """Return the settings of a table of TOML, whose parts are tables of their own."""
    values = dict(table)
    _check_removed("resilience", values, _REMOVED)
    if "rulebook" in values:
        values["rulebook"] = build("resilience.rulebook", FollowedRulebook, values["rulebook"], {})
    endpoints = table_of("resilience.endpoints", values.pop("endpoints", {}))
    values["endpoints"] = {
        path: _endpoint(f'resilience.endpoints."{path}"', found)
        for path, found in endpoints.items()
    }
    callers = table_of("resilience.callers", values.pop("callers", {}))
    values["callers"] = {
        caller: parse_criticality(str(name), field=f"resilience.callers.{caller}")
        for caller, name in callers.items()
    }
    dependencies = table_of("resilience.dependencies", values.pop("dependencies", {}))
    values["dependencies"] = {
        name: build(f"resilience.dependencies.{name}", DependencySettings, found, {})
        for name, found in dependencies.items()
    }
    values["client"] = client_settings(table_of("resilience.client", values.pop("client", {})))
    values["faults"] = fault_settings(table_of("resilience.faults", values.pop("faults", {})))
    objectives = table_of("resilience.objectives", values.pop("objectives", {}))
    values["objectives"] = tuple(
        _objective(f'resilience.objectives."{endpoint}"', endpoint, found)
        for endpoint, found in objectives.items()
    )
    values["plan"] = build("resilience.plan", PlanSettings, values.pop("plan", {}), {})
    values["degrade"] = table_of("resilience.degrade", values.get("degrade", {}))
    return build("resilience", Resilience, values, {})


def _check_removed(path: str, values: Mapping[str, Any], removed: Mapping[str, str]) -> None:
    for name in values:
        if name in removed:
            raise BadValue(f"{path}.{name}", values[name], removed[name])


def _endpoint(path: str, table: object) -> EndpointSettings:
    _check_removed(path, table_of(path, table), _REMOVED_OF_ENDPOINT)
    return build(path, EndpointSettings, table, {})


def _objective(path: str, endpoint: str, table: object) -> Objective:
    values = table_of(path, table)
    if "share" not in values:
        raise BadValue(f"{path}.share", None, "give the share that is to go well, as 0.999")
    if "endpoint" in values:
        remedy = "leave it out: the table is named so"
        raise BadValue(f"{path}.endpoint", values["endpoint"], remedy)
    return build(path, Objective, {**values, "endpoint": endpoint}, {})
