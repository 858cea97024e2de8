"""Fields: everything that `sluicegate kv` can be told, in one table.

A row is a flag, a variable and a name in the settings file (see `sluicegate/service/settings.py`).
"""

from __future__ import annotations

from typing import Final

from sluicegate.service.common_settings import (
    AROUND,
    CONNECTIONS,
    RULEBOOK,
    WHO_MAY,
    address,
    share,
)
from sluicegate.service.settings import Field, one_of, text, whole, yes_or_no

LISTEN_DEFAULT: Final = "127.0.0.1:7080"
WORKERS_MAX: Final = 256
POLICIES: Final = ("layers", "generation-one", "none")
FORMS: Final = ("leases", "shares", "live")
_QUOTA_STATUS: Final = one_of("429", "419")


def _quota_status(said: str, where: str) -> int:
    return int(_QUOTA_STATUS(said, where))


FIELDS: Final = (
    Field(
        "listen",
        address,
        LISTEN_DEFAULT,
        "where to listen: gRPC, RESP and HTTP on one port",
        "HOST:PORT",
        several=True,
    ),
    Field(
        "engine",
        text,
        "lmdb:sluicegate-kv",
        "where values are kept: lmdb:DIR, rocksdb:DIR, cassandra://..., redis+cluster://...",
        "URL",
        secret=True,
    ),
    Field(
        "store",
        text,
        "",
        "a Redis that dispatchers share their quotas by: redis://..., redis+cluster://...",
        "URL",
        secret=True,
    ),
    Field(
        "workers",
        whole(1, WORKERS_MAX),
        "1",
        "processes that share the port; the engine must allow several",
        "N",
    ),
    *WHO_MAY,
    Field(
        "policy",
        one_of(*POLICIES),
        "layers",
        "all the layers; a counter a minute for each caller, as it once was; or a pool and no more",
        "layers|generation-one|none",
    ),
    # What callers may spend.
    Field(
        "quota_ru",
        whole(1, 1 << 40),
        "10000",
        "request units a second for each caller of whom the rules say nothing",
        "RU",
    ),
    Field(
        "quota_form",
        one_of(*FORMS),
        "leases",
        "how dispatchers share a quota: blocks out of the store, by demand told, or in equal parts",
        "leases|shares|live",
    ),
    Field("epoch_ms", whole(10, 600_000), "1000", "how often buckets are filled", "MS"),
    Field(
        "members",
        whole(0, 10_000),
        "0",
        "dispatchers in the fleet, if no heartbeat in the store counts them",
        "N",
    ),
    Field("groups", text, "", "resource groups: quotas that lend what they do not use", "FILE"),
    Field(
        "rules",
        text,
        "",
        "rules: a file or folder whose `callers` say quotas, classes and penalties",
        "PATH",
        several=True,
    ),
    *RULEBOOK,
    Field(
        "weights", text, "", "what operations cost, as `sluicegate kv calibrate` prints it", "FILE"
    ),
    Field(
        "learn",
        yes_or_no,
        "on",
        "learn what operations cost; off keeps to the weights",
        "on|off",
    ),
    Field(
        "settle",
        yes_or_no,
        "off",
        "debit or give back afterwards what a prediction missed",
        "on|off",
    ),
    Field(
        "chunk_ru",
        whole(1, 1 << 20),
        "10",
        "scans enter anew for every so many request units",
        "RU",
    ),
    Field(
        "quota_status",
        _quota_status,
        "429",
        "the HTTP status of a spent quota; 419 is the seed system's",
        "429|419",
    ),
    Field(
        "qps",
        whole(1, 1 << 40),
        "1000",
        "with --policy generation-one: requests a second for each caller, counted by the minute",
        "N",
    ),
    # How much at a time.
    Field("places", whole(1, 1 << 20), "64", "operations at work in the engine at a time", "N"),
    Field(
        "shard_places",
        whole(0, 1 << 20),
        "0",
        "of them in one shard of the engine; 0 is half of them, or all if it has one shard",
        "N",
    ),
    Field(
        "queue_ms",
        whole(1, 60_000),
        "12",
        "how long what is not CRITICAL waits for a place while nearly all have to wait",
        "MS",
    ),
    Field("queue_length", whole(1, 1 << 20), "10000", "operations that wait for a place", "N"),
    Field("queue_bytes", whole(4_096, 1 << 40), "67108864", "their bytes", "BYTES"),
    Field(
        "deadline_ms",
        whole(1, 3_600_000),
        "10000",
        "the time a caller has who names none",
        "MS",
    ),
    # Under stress.
    Field(
        "ratio",
        one_of("frozen", "p2"),
        "frozen",
        "the latency ratio: over a baseline frozen under stress, or the seed system's P2",
        "frozen|p2",
    ),
    Field(
        "ratio_enter",
        share,
        "0.6",
        "below it request units cost more, the lowest class first; the seed system's is 0.3",
        "SHARE",
    ),
    Field(
        "penalty_max",
        whole(1, 1_000),
        "4",
        "times what callers pay at most who keep on slowing the engine down; 1 is never",
        "TIMES",
    ),
    # Hot keys.
    Field("hot", yes_or_no, "on", "serve hot keys from memory, and read each once", "on|off"),
    Field("hot_ttl_ms", whole(1, 600_000), "3000", "how old such an answer may be", "MS"),
    Field(
        "hot_min", whole(1, 1 << 40), "24", "reads a second at the least that make a key hot", "N"
    ),
    Field(
        "hot_permille",
        whole(0, 1_000),
        "1",
        "and at least so many of a thousand of what this dispatcher is asked",
        "N",
    ),
    Field("cache_bytes", whole(4_096, 1 << 40), "33554432", "of answers kept for them", "BYTES"),
    # Bounds.
    Field("tables_max", whole(1, 1_000_000), "10000", "tables", "N"),
    Field("value_bytes_max", whole(1, (16 << 20) - 64), "1048576", "bytes of a value", "BYTES"),
    Field("usage", text, "", "keep what callers use in this folder, to tune quotas by", "DIR"),
    Field("usage_days", whole(1, 400), "35", "how long that is kept", "DAYS"),
    *CONNECTIONS,
    Field(
        "message_bytes_max",
        whole(4_096, 1 << 30),
        "8388608",
        "bytes of a gRPC message, an HTTP body, a RESP command",
        "BYTES",
    ),
    *AROUND,
)
