"""Settings of `sluicegate kv`: each a flag, a variable and a name in its settings file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.service.common_settings import LISTEN, RulesSettings
from sluicegate.service.settings import SHARE, Setting, SettingType, milliseconds, one_of, whole
from sluicegate.stores.redis.settings import schemes_text

LISTEN_DEFAULT: Final = "127.0.0.1:7080"
MEMBERS_MAX: Final = 1_000
BEATERS_MAX: Final = 10_000
STORE_SCHEMES: Final = ("redis", "rediss", "valkey", "unix")
RU_MAX: Final = 1 << 40
QUOTA_STATUSES: Final = (429, 419)
_BYTES_MAX: Final = 1 << 40
_log: Final = logging.getLogger("sluicegate.kv")
# Engines that one process has for itself.
_OF_ONE_PROCESS: Final = ("memory:", "rocksdb:", "faulty+")
QUOTA_RU: Final = 10_000  # a second
# A single caller takes no share of others, and the queue and its limit prevent overload.
NO_QUOTA_RU: Final = 1_000_000_000


def _parse_quota_status(text: str, where: str) -> int:
    if text not in map(str, QUOTA_STATUSES):
        raise BadValue(where, text, "give one of 429, 419")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class KvSettings(RulesSettings):
    """The dispatcher."""

    VARIABLES: ClassVar[str] = "SLUICEGATE_KV_"

    listen: Annotated[tuple[str, ...], LISTEN] = (LISTEN_DEFAULT,)
    engine: Annotated[
        str,
        Setting(
            "where values are kept: lmdb:DIR, rocksdb:DIR, cassandra://..., redis+cluster://...",
            metavar="URL",
            secret=True,
        ),
    ] = "lmdb:sluicegate-kv"
    backups: Annotated[
        str,
        Setting(
            "the folder below which copies of the engine are made; without, none", metavar="DIR"
        ),
    ] = ""
    store: Annotated[
        str,
        Setting(
            "a Redis through which dispatchers share quotas: redis://..., redis+cluster://...",
            metavar="URL",
            secret=True,
        ),
    ] = ""
    policy: Annotated[
        str,
        Setting(
            "all the layers; Mussel's prices and CoDel pool; a counter a minute for each caller; "
            "or a bare pool",
            one_of("layers", "mussel", "generation-one", "none"),
        ),
    ] = "layers"
    # What callers may spend.
    quota_ru: Annotated[
        int,
        Setting(
            f"request units a second for callers without a quota in the rules; 0: {QUOTA_RU:,}, "
            "but none while neither --access nor rules name callers",
            whole(0, RU_MAX, "RU"),
            live=True,
        ),
    ] = 0
    epoch_ms: Annotated[
        int, Setting("how often budgets are filled", milliseconds(10, 600_000), expert=True)
    ] = 1_000
    members: Annotated[
        int,
        Setting(
            "dispatchers in the fleet, if no heartbeat in the store counts them", whole(0, 10_000)
        ),
    ] = 0
    members_max: Annotated[
        int,
        Setting(
            "dispatchers that heartbeats count; one more is not ready",
            whole(1, BEATERS_MAX),
            expert=True,
        ),
    ] = 1_000
    groups: Annotated[
        str, Setting("resource groups: quotas that lend what they do not use", metavar="FILE")
    ] = ""
    weights: Annotated[
        str, Setting("what operations cost, as `sluicegate kv calibrate` prints it", metavar="FILE")
    ] = ""
    learn: Annotated[
        bool,
        Setting(
            "predict costs from past requests and settle the difference; off charges the claim",
            expert=True,
        ),
    ] = True
    chunk_ru: Annotated[
        int,
        Setting(
            "re-admit a scan every RU request units",
            whole(1, 1 << 20, "RU"),
            live=True,
            expert=True,
        ),
    ] = 10
    quota_status: Annotated[
        int,
        Setting(
            "the HTTP status of a spent quota",
            SettingType(_parse_quota_status, "429|419"),
            expert=True,
        ),
    ] = 429
    qps: Annotated[
        int,
        Setting(
            "with --policy generation-one: requests a second for each caller, counted by the "
            "minute",
            whole(1, RU_MAX),
            expert=True,
        ),
    ] = 1_000
    # How much at a time.
    slots: Annotated[
        int,
        Setting(
            "requests of all dispatchers in a shard of the engine at a time; 0 finds the number",
            whole(0, 1 << 20),
        ),
    ] = 0
    queue_length: Annotated[int, Setting("requests that wait for a slot", whole(1, 1 << 20))] = (
        10_000
    )
    queue_bytes: Annotated[
        int,
        Setting(
            "memory of requests that wait for a slot",
            whole(4_096, _BYTES_MAX, "BYTES"),
            expert=True,
        ),
    ] = 64 << 20
    # Under overload.
    deadline_ms: Annotated[
        int,
        Setting(
            "deadline of requests without one; 0: no deadline",
            milliseconds(0, 3_600_000),
            live=True,
        ),
    ] = 0
    # Hot keys.
    hot: Annotated[bool, Setting("serve hot keys from memory, and read each once")] = True
    hot_ttl_ms: Annotated[
        int, Setting("how old such an answer may be", milliseconds(1, 600_000), live=True)
    ] = 3_000
    cache_bytes: Annotated[
        int, Setting("bytes of answers kept for them", whole(4_096, _BYTES_MAX, "BYTES"), live=True)
    ] = 32 << 20
    # Bounds.
    value_bytes_max: Annotated[
        int, Setting("bytes of a value", whole(1, (16 << 20) - 64, "BYTES"))
    ] = 1 << 20
    message_bytes_max: Annotated[
        int,
        Setting(
            "bytes of a gRPC message, an HTTP body, a RESP command", whole(4_096, 1 << 30, "BYTES")
        ),
    ] = 8 << 20
    audit_refusals: Annotated[
        int,
        Setting("refusals kept for `sluicegate why`", whole(1, 10_000_000), live=True, expert=True),
    ] = 8_192
    usage: Annotated[
        str, Setting("keep what callers use in this folder, to tune quotas by", metavar="DIR")
    ] = ""
    capture: Annotated[
        str,
        Setting("keep what callers ask in this folder, so that quotas can be tried", metavar="DIR"),
    ] = ""
    capture_share: Annotated[
        float,
        Setting("the share of callers that are captured, all or none of each", SHARE, expert=True),
    ] = 1.0
    capture_bytes_max: Annotated[
        int,
        Setting("bytes of captures that are kept", whole(64 << 20, 1 << 50, "BYTES"), expert=True),
    ] = 1 << 30

    @property
    def others_ru(self) -> int:
        """The quota a second of each caller that the rules give none; `NO_QUOTA_RU` for none."""
        if self.quota_ru:
            return self.quota_ru
        names_callers = self.access or self.rules or self.rulebook
        return QUOTA_RU if names_callers else NO_QUOTA_RU

    @property
    def charges(self) -> bool:
        """Whether callers are charged request units."""
        return self.policy in ("layers", "mussel")

    def check(self) -> None:
        """Raise for settings that do not go together."""
        if self.workers > 1 and self.engine.startswith(_OF_ONE_PROCESS):
            remedy = "several workers cannot share it: take lmdb: or a cluster, or --workers 1"
            raise BadValue("--engine", self.engine.partition(":")[0], remedy)
        if self.workers > 1 and not self.store and self.charges:
            remedy = "workers share quotas by a store: give --store redis://..., or --workers 1"
            raise BadValue("--workers", self.workers, remedy)
        self._check_quotas()
        super().check()

    def _check_quotas(self) -> None:
        if self.store and not self.store.startswith(STORE_SCHEMES):
            scheme = self.store.partition(":")[0] + ":..."
            raise BadValue("--store", scheme, f"begin it with one of {schemes_text()}")
        if self.members > MEMBERS_MAX:
            raise BadValue("--members", self.members, f"give at most {MEMBERS_MAX:,}")
        if self.quota_ru * self.epoch_ms // 1_000 > RU_MAX:
            remedy = f"a quota of an epoch (--epoch-ms) is at most {RU_MAX:,}"
            raise BadValue("--quota-ru", self.quota_ru, remedy)
        if self.capture and (self.groups or not self.charges):
            remedy = "it takes --policy layers, and quotas that are not lent (no --groups)"
            raise BadValue("--capture", self.capture, remedy)
        if not self.groups:
            return
        if not self.charges:
            raise BadValue("--groups", self.groups, "it takes --policy layers")
        if self.rules or self.rulebook:
            # Quotas of the rules would have no effect, and nobody would notice.
            _log.warning("--groups: quotas of callers in the rules are not used; groups have them")
