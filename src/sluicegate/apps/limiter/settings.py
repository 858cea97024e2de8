"""Settings of `sluicegate limiter`: the checked values of `fields.py`, alone and together.

Nothing is started here and nothing heavy is imported, so that a wrong flag is told before anything
else happens.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluicegate.apps.limiter.fields import FIELDS
from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import (
    check_certificates,
    check_rulebook,
    check_shared_ports,
)
from sluicegate.service.settings import Effective, gather

VARIABLES_PREFIX: Final = "SLUICEGATE_LIMITER_"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that `sluicegate limiter` is told, as `FIELDS` has it."""

    listen: tuple[str, ...]
    store: str
    rules: tuple[str, ...]
    rulebook: str
    rulebook_keys: tuple[str, ...]
    rulebook_events: str
    rulebook_folder: str
    rulebook_every_s: float
    rulebook_report_s: float
    node: str
    capture: str
    capture_key: str
    capture_share: float
    capture_headers: tuple[str, ...]
    capture_mesh_keys: tuple[str, ...]
    capture_clear: tuple[str, ...]
    capture_hours: int
    capture_bytes_max: int
    workers: int
    tls_cert: str
    tls_key: str
    tls_client_ca: str
    tls_client_optional: bool
    access: str
    token: str
    insecure: bool
    rls_semantics: str
    rls_headers: bool
    rls_metadata: bool
    rls_shadow: bool
    rls_local_cache: int
    rls_stop_when_over: bool
    rls_merge_domains: bool
    rls_near_ratio: float
    failure: str
    dlq: str
    dlq_buffer: int
    shed: bool
    shed_from: float
    shed_critical_from: float
    audit_refusals: int
    audit_admissions: int
    keys_max: int
    connections_max: int
    connections_per_address_max: int
    streams_max: int
    message_bytes_max: int
    idle_s: float
    head_s: float
    grace_s: float
    metrics_open: bool
    hosts: tuple[str, ...]
    log: str

    @property
    def shared(self) -> bool:
        """Whether the store is one that several processes share."""
        return self.store != "memory:"


def read_settings(
    arguments: Namespace, environment: Mapping[str, str] | None = None
) -> tuple[Settings, Effective]:
    """The settings in effect, checked alone and together."""
    effective = gather(FIELDS, arguments, VARIABLES_PREFIX, environment)
    values: dict[str, Any] = dict(effective.values)
    settings = Settings(**values)
    _check(settings)
    return settings, effective


def _check(settings: Settings) -> None:
    if settings.workers > 1 and not settings.shared:
        raise BadValue(
            "--workers",
            settings.workers,
            "processes cannot share memory: say --store redis://..., or --workers 1",
        )
    check_certificates(settings)
    if not settings.rls_near_ratio:
        raise BadValue("--rls-near-ratio", settings.rls_near_ratio, "give a share above 0")
    if settings.shed_critical_from < 0.8:
        raise BadValue("--shed-critical-from", settings.shed_critical_from, "give 0.8 or more")
    if settings.shed_from > 0.7:
        raise BadValue("--shed-from", settings.shed_from, "give at most 0.7; 0.6 is the default")
    check_rulebook(settings)
    check_shared_ports(settings.listen, settings.workers)
