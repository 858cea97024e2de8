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
from sluicegate.policies.client.fallback import Fallback, FallbackSettings
from sluicegate.resilience.client.calls import CallObserver, ResilientClient
from sluicegate.resilience.dependencies.dependency import Dependency
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.settings import Resilience


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
    settings: Resilience, *, clock: Clock | None = None
) -> dict[str, Dependency[Any]]:
    """Return each dependency by its name."""
    return {
        name: Dependency(
            name,
            Fallback(FallbackSettings(timeout_us=one.timeout_us, stale_us_max=one.stale_us_max))
            if one.soft
            else None,
            slots=one.cap,
            clock=clock,
        )
        for name, one in settings.dependencies.items()
    }
