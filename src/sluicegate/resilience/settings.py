"""Settings of a service: one value for each part, and how all are read from one TOML file.

bypass = ["/healthz", "/readyz"]

[queue]
places = 64

[endpoints."/report"]
weight = "heavy"
timeout_us = 2_000_000

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
from sluicegate.policies.concurrency import AdaptiveSettings
from sluicegate.policies.deadline import DeadlineSettings
from sluicegate.policies.degradation import check_switches
from sluicegate.policies.partitions import PartitionSettings, check_partitions
from sluicegate.policies.queue.settings import BYTES_MAX, QueueSettings
from sluicegate.policies.settings import check_ranges, one_of, part_of
from sluicegate.policies.stress import StressSettings
from sluicegate.policies.watermark import WatermarkSettings
from sluicegate.resilience.client.settings import ClientSettings, client_settings
from sluicegate.resilience.faults.settings import FaultSettings, fault_settings
from sluicegate.resilience.objectives import Objective
from sluicegate.resilience.plan_settings import (
    DEPENDENCIES_MAX,
    DependencySettings,
    PlanSettings,
)
from sluicegate.resilience.tables import build, table_of

WEIGHTS: Final = ("learned", "light", "heavy")
ENDPOINTS_MAX: Final = 1_000
_SPAN_US_MAX: Final = 1 << 40
# The p99 is learned from callers who have time: by it four in five of those who have little were
# refused at half the load, who nearly all would have been served (docs/guides/resilience.md).
DEADLINE_QUANTILE: Final = 0.5


@final
@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """One endpoint: the time it is given if the caller grants none or more, and its line."""

    timeout_us: int = ranged(0, 0, _SPAN_US_MAX)  # 0: that of `deadline`
    weight: str = "learned"

    def __post_init__(self) -> None:
        check_ranges("endpoint", self)
        one_of("endpoint.weight", self.weight, WEIGHTS)


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

    `queue` and `heavy_queue` are the lines for light and for heavy work, each with places of its
    own; `concurrency`, if given, finds their number instead. `bypass` are paths, or names of
    endpoints, that nothing judges. `degrade` names parts of answers, and the stress from which on
    each is left out; `rulebook` may say otherwise, if `resilience/rulebook.py` follows it.
    `partitions` name who has a share of the places once all are taken.
    `callers` names the highest class that each may claim. `read_ahead_bytes` is what the server
    reads of a body before the application asks for it: a request that waits weighs no more, of the
    line's `bytes_max`. `jitter` lengthens the time in
    an overload mark by up to that part of it.
    """

    bypass: tuple[str, ...] = ("/healthz", "/readyz", "/health", "/ready", "/livez")
    deadline: DeadlineSettings = field(
        default_factory=lambda: DeadlineSettings(quantile=DEADLINE_QUANTILE)
    )
    watermark: WatermarkSettings = field(default_factory=WatermarkSettings)
    queue: QueueSettings = field(default_factory=lambda: QueueSettings(name="queue"))
    heavy_queue: QueueSettings = field(
        default_factory=lambda: QueueSettings(name="heavy_queue", places=8)
    )
    concurrency: AdaptiveSettings | None = None
    partitions: Mapping[str, PartitionSettings] = field(default_factory=dict)
    stress: StressSettings = field(default_factory=StressSettings)
    degrade: Mapping[str, str] = field(default_factory=dict)
    rulebook: FollowedRulebook | None = None
    endpoints: Mapping[str, EndpointSettings] = field(default_factory=dict)
    callers: Mapping[str, Criticality] = field(default_factory=dict)
    heavy_us: int = ranged(250_000, 1, _SPAN_US_MAX)
    light_share: float = 0.5
    endpoints_max: int = ranged(256, 2, ENDPOINTS_MAX)
    read_ahead_bytes: int = ranged(65_536, 0, BYTES_MAX)
    retry: bool = False  # what the overload mark says of retries
    jitter: float = 0.5
    client: ClientSettings = field(default_factory=ClientSettings)
    dependencies: Mapping[str, DependencySettings] = field(default_factory=dict)
    faults: FaultSettings = field(default_factory=FaultSettings)
    plan: PlanSettings = field(default_factory=PlanSettings)
    objectives: tuple[Objective, ...] = ()

    def __post_init__(self) -> None:
        check_ranges("resilience", self)
        part_of("resilience.light_share", self.light_share, 0.01, 1.0)
        part_of("resilience.jitter", self.jitter, 0.0, 10.0)
        check_switches("resilience.degrade", self.degrade)
        check_partitions("resilience.partitions", self.partitions)
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


_PARTS: Final[Mapping[str, Any]] = {
    "deadline": DeadlineSettings,
    "watermark": WatermarkSettings,
    "queue": QueueSettings,
    "heavy_queue": QueueSettings,
    "concurrency": AdaptiveSettings,
    "stress": StressSettings,
    "rulebook": FollowedRulebook,
}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "deadline": {"quantile": DEADLINE_QUANTILE},
    "queue": {"name": "queue"},
    "heavy_queue": {"name": "heavy_queue", "places": 8},
}


def resilience_settings(table: Mapping[str, Any]) -> Resilience:
    """Return the settings of a table of TOML, whose parts are tables of their own."""
    values = dict(table)
    for name, settings in _PARTS.items():
        if name in values:
            values[name] = build(
                f"resilience.{name}", settings, values[name], _DEFAULTS.get(name, {})
            )
    endpoints = table_of("resilience.endpoints", values.pop("endpoints", {}))
    values["endpoints"] = {
        path: build(f'resilience.endpoints."{path}"', EndpointSettings, found, {})
        for path, found in endpoints.items()
    }
    partitions = table_of("resilience.partitions", values.pop("partitions", {}))
    values["partitions"] = {
        name: build(f"resilience.partitions.{name}", PartitionSettings, found, {})
        for name, found in partitions.items()
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


def _objective(path: str, endpoint: str, table: object) -> Objective:
    values = table_of(path, table)
    if "share" not in values:
        raise BadValue(f"{path}.share", None, "give the share that is to go well, as 0.999")
    if "endpoint" in values:
        remedy = "leave it out: the table is named so"
        raise BadValue(f"{path}.endpoint", values["endpoint"], remedy)
    return build(path, Objective, {**values, "endpoint": endpoint}, {})
