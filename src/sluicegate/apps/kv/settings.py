"""Settings of `sluicegate kv`: the checked values of `fields.py`, alone and together.

Nothing is started here and nothing heavy is imported, so that a wrong flag is told before anything
else happens.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluicegate.apps.kv.fields import FIELDS
from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import (
    check_certificates,
    check_rulebook,
    check_shared_ports,
)
from sluicegate.service.settings import Effective, gather

VARIABLES_PREFIX: Final = "SLUICEGATE_KV_"
MEMBERS_MAX: Final = 1_000
STORE_SCHEMES: Final = ("redis", "rediss", "valkey", "unix")
RU_MAX: Final = 1 << 40
_log: Final = logging.getLogger("sluicegate.kv")
# Engines that one process has for itself.
_ALONE: Final = ("memory:", "rocksdb:", "faulty+")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that `sluicegate kv` is told, as `FIELDS` has it."""

    listen: tuple[str, ...]
    engine: str
    store: str
    workers: int
    tls_cert: str
    tls_key: str
    tls_client_ca: str
    tls_client_optional: bool
    access: str
    token: str
    insecure: bool
    policy: str
    quota_ru: int
    quota_form: str
    epoch_ms: int
    members: int
    groups: str
    rules: tuple[str, ...]
    rulebook: str
    rulebook_keys: tuple[str, ...]
    rulebook_events: str
    rulebook_folder: str
    rulebook_every_s: float
    rulebook_report_s: float
    node: str
    weights: str
    learn: bool
    settle: bool
    chunk_ru: int
    quota_status: int
    qps: int
    places: int
    shard_places: int
    queue_ms: int
    queue_length: int
    queue_bytes: int
    deadline_ms: int
    ratio: str
    ratio_enter: float
    penalty_max: int
    hot: bool
    hot_ttl_ms: int
    hot_min: int
    hot_permille: int
    cache_bytes: int
    tables_max: int
    value_bytes_max: int
    usage: str
    usage_days: int
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
    engine = settings.engine.partition(":")[0]
    if settings.workers > 1 and settings.engine.startswith(_ALONE):
        remedy = "several workers cannot share it: take lmdb: or a cluster, or --workers 1"
        raise BadValue("--engine", engine, remedy)
    if settings.workers > 1 and not settings.store and settings.policy == "layers":
        remedy = "workers share quotas by a store: give --store redis://..., or --workers 1"
        raise BadValue("--workers", settings.workers, remedy)
    if settings.shard_places > settings.places:
        remedy = f"a shard has at most what all have, {settings.places} (--places)"
        raise BadValue("--shard-places", settings.shard_places, remedy)
    if not settings.ratio_enter:
        raise BadValue("--ratio-enter", settings.ratio_enter, "give a share above 0")
    _check_quotas(settings)
    check_rulebook(settings)
    check_certificates(settings)
    check_shared_ports(settings.listen, settings.workers)


def _check_quotas(settings: Settings) -> None:
    if settings.store and not settings.store.startswith(STORE_SCHEMES):
        shown = settings.store.partition(":")[0] + ":..."
        raise BadValue("--store", shown, "give redis://... or redis+cluster://...")
    if settings.members > MEMBERS_MAX:
        raise BadValue("--members", settings.members, f"give at most {MEMBERS_MAX:,}")
    if settings.quota_ru * settings.epoch_ms // 1_000 > RU_MAX:
        remedy = f"a quota of an epoch (--epoch-ms) is at most {RU_MAX:,}"
        raise BadValue("--quota-ru", settings.quota_ru, remedy)
    if settings.quota_status not in (419, 429):
        raise BadValue("--quota-status", settings.quota_status, "give 429 or 419")
    if settings.groups and settings.policy != "layers":
        raise BadValue("--groups", settings.groups, "it takes --policy layers")
    if settings.groups and settings.store and settings.quota_form != "live":
        remedy = "groups are shared out in equal parts: give --quota-form live with --groups"
        raise BadValue("--quota-form", settings.quota_form, remedy)
    if settings.groups and (settings.rules or settings.rulebook):
        # Quotas of the rules would have no effect, and nobody would notice.
        _log.warning("--groups: quotas of callers in the rules are not used; groups have them")
