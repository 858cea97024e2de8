"""Kit: what a service needs for its calls, built from its one `Resilience`.

resilience = Resilience.load("resilience.toml")
app = protect(app, resilience)
client = build_client(resilience)
dependencies = build_dependencies(resilience)
"""

from __future__ import annotations

from typing import Any

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.policies.bulkhead import CAP_MAX, Bulkhead, BulkheadSettings
from sluicegate.policies.fallback import Fallback, FallbackSettings
from sluicegate.resilience.client.calls import CallObserver, ResilientClient
from sluicegate.resilience.dependencies.dependency import Dependency
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.settings import Resilience
from sluicegate.system import SystemChance


def build_client(
    settings: Resilience,
    hosts: HostGroup | None = None,
    *,
    clock: Clock | None = None,
    chance: Chance | None = None,
    observer: CallObserver | None = None,
) -> ResilientClient:
    """Return a client of these settings, for the transports of `resilience.client`."""
    return ResilientClient(settings.client, hosts, clock=clock, chance=chance, observer=observer)


def build_dependencies(
    settings: Resilience, *, clock: Clock | None = None, chance: Chance | None = None
) -> dict[str, Dependency[Any]]:
    """Return each dependency by its name; all share one bulkhead, in which each has its cap."""
    found = settings.dependencies
    caps = {name: one.cap for name, one in found.items()}
    pool = min(max(sum(caps.values()), 1), CAP_MAX)
    bulkhead = Bulkhead(
        BulkheadSettings(cap=min(40, pool), caps=caps, pool=pool),
        SystemChance() if chance is None else chance,
    )
    return {
        name: Dependency(
            name,
            bulkhead,
            Fallback(FallbackSettings(timeout_us=one.timeout_us, stale_us_max=one.stale_us_max))
            if one.soft
            else None,
            clock=clock,
        )
        for name, one in found.items()
    }
