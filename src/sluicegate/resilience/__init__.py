"""Protect a service, and the calls that it makes.

    from sluicegate.resilience import Client, gather, protect, resilient, soft

    app = protect(app)                       # ASGI or WSGI
    client = Client(timeout_s=2.0)           # for httpx, requests, aiohttp, gRPC and functions
    @resilient(attempts=3, idempotent=True)  # one function
    @soft(default=list, timeout_s=0.3)       # a part that the answer can do without
    await gather(price(), reviews(), timeout_s=0.5)

The package composes policies that exist; a new decision belongs in `policies/`. Each name is
imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sluicegate.resilience.app_kinds import protect
    from sluicegate.resilience.client.client import Client
    from sluicegate.resilience.client.resilient import resilient
    from sluicegate.resilience.client.settings import client_settings
    from sluicegate.resilience.context import degraded, require_time
    from sluicegate.resilience.dependencies.gather import gather, gather_now
    from sluicegate.resilience.dependencies.soft import soft
    from sluicegate.resilience.hosts.group import HostGroup
    from sluicegate.resilience.hosts.sources import dns_source, file_source, list_source
    from sluicegate.resilience.objectives import Objective, Objectives, measure
    from sluicegate.resilience.settings import Resilience, resilience_settings

__all__ = [
    "Client",
    "HostGroup",
    "Objective",
    "Objectives",
    "Resilience",
    "client_settings",
    "degraded",
    "dns_source",
    "file_source",
    "gather",
    "gather_now",
    "list_source",
    "measure",
    "protect",
    "require_time",
    "resilience_settings",
    "resilient",
    "soft",
]

_MODULES: Final = {
    "Client": "client.client",
    "HostGroup": "hosts.group",
    "Objective": "objectives",
    "Objectives": "objectives",
    "Resilience": "settings",
    "client_settings": "client.settings",
    "degraded": "context",
    "dns_source": "hosts.sources",
    "file_source": "hosts.sources",
    "gather": "dependencies.gather",
    "gather_now": "dependencies.gather",
    "list_source": "hosts.sources",
    "measure": "objectives",
    "protect": "app_kinds",
    "require_time": "context",
    "resilience_settings": "settings",
    "resilient": "client.resilient",
    "soft": "dependencies.soft",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sluicegate.resilience' has no attribute {name!r}")
    module = import_module(f"sluicegate.resilience.{_MODULES[name]}")
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
