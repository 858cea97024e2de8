"""Fields: everything that `sluicegate limiter` can be told, in one table.

A row is a flag, a variable and a name in the settings file (see `sluicegate/service/settings.py`).
"""

from __future__ import annotations

from typing import Final

from sluicegate.limits.rule import Failure
from sluicegate.service.common_settings import (
    AROUND,
    CONNECTIONS,
    RULEBOOK,
    WHO_MAY,
    address,
    share,
)
from sluicegate.service.settings import Field, one_of, text, whole, yes_or_no

LISTEN_DEFAULT: Final = "127.0.0.1:7070"
WORKERS_MAX: Final = 256


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
        "store",
        text,
        "memory:",
        "where counts are kept: memory:, redis://..., redis+cluster://...",
        "URL",
        secret=True,
    ),
    Field(
        "rules",
        text,
        "",
        "rules: a file, or a folder of files, in our format or Envoy's",
        "PATH",
        several=True,
    ),
    *RULEBOOK,
    Field(
        "capture",
        text,
        "",
        "keep what is asked, redacted, in this folder, so that changes can be tried on it",
        "DIR",
    ),
    Field(
        "capture_key",
        text,
        "",
        "the key of its redaction; else DIR.key, beside the folder, made if it is not there",
        "FILE",
    ),
    Field("capture_share", share, "1", "of the callers whose asks are kept, all or none", "SHARE"),
    Field(
        "capture_headers",
        text,
        "",
        "headers to keep besides those that say the name and the kind of client",
        "NAME",
        several=True,
    ),
    Field(
        "capture_mesh_keys",
        text,
        "",
        "keys of Envoy's descriptors that say whose request it is",
        "KEY",
        several=True,
    ),
    Field(
        "capture_clear",
        text,
        "",
        "values that need no redaction, as path segments that name no person",
        "TEXT",
        several=True,
    ),
    Field("capture_hours", whole(1, 24 * 366), "72", "how long captured asks are kept", "HOURS"),
    Field(
        "capture_bytes_max",
        whole(1 << 20, 1 << 50),
        "1073741824",
        "bytes of them that are kept",
        "BYTES",
    ),
    Field(
        "workers",
        whole(1, WORKERS_MAX),
        "1",
        "processes that share the port; above 1 the store must be shared too",
        "N",
    ),
    *WHO_MAY,
    Field(
        "rls_semantics",
        one_of("sluicegate", "envoy"),
        "sluicegate",
        "how Envoy's rules count: all or nothing in sliding windows, or as Envoy's own service",
        "sluicegate|envoy",
    ),
    Field(
        "rls_headers",
        yes_or_no,
        "off",
        "add RateLimit-Limit, -Remaining, -Reset to Envoy's answers",
        "on|off",
    ),
    Field("rls_metadata", yes_or_no, "off", "add dynamic metadata to Envoy's answers", "on|off"),
    Field(
        "rls_shadow",
        yes_or_no,
        "off",
        "answer Envoy OK whatever the rules say, and count",
        "on|off",
    ),
    Field(
        "rls_local_cache",
        whole(0, 10_000_000),
        "0",
        "with Envoy's semantics: counters over their limit that are remembered and not asked again",
        "N",
    ),
    Field(
        "rls_stop_when_over",
        yes_or_no,
        "off",
        "with Envoy's semantics: where one descriptor is over, do not count the others",
        "on|off",
    ),
    Field(
        "rls_merge_domains",
        yes_or_no,
        "off",
        "let several of Envoy's files stand for one domain",
        "on|off",
    ),
    Field(
        "rls_near_ratio",
        share,
        "0.8",
        "above this share of a limit, hits are counted as near it",
        "SHARE",
    ),
    Field(
        "failure",
        one_of(*(member.value for member in Failure)),
        "open",
        "what rules that do not say decide when the store is silent",
        "open|closed|local",
    ),
    Field(
        "dlq",
        text,
        "",
        "dead letters: where decisions made without the store are written, files:DIR or kafka://HOST/TOPIC",
        "URL",
    ),
    Field(
        "dlq_buffer",
        whole(1, 10_000_000),
        "10000",
        "letters kept in memory until they are written",
        "N",
    ),
    Field(
        "shed",
        yes_or_no,
        "on",
        "shed BULK, then BEST_EFFORT, then DEGRADED as the machine fills up",
        "on|off",
    ),
    Field("shed_from", share, "0.6", "utilization at which BULK begins to be shed", "SHARE"),
    Field(
        "shed_critical_from",
        share,
        "1",
        "utilization at which even CRITICAL is shed, 0.8 at the least; 1 is never",
        "SHARE",
    ),
    Field(
        "audit_refusals", whole(1, 10_000_000), "32768", "refusals kept for `sluicegate why`", "N"
    ),
    Field("audit_admissions", whole(1, 10_000_000), "8192", "admissions kept likewise", "N"),
    Field(
        "keys_max", whole(1, 1_000_000_000), "1000000", "keys tracked in memory for each limit", "N"
    ),
    *CONNECTIONS,
    Field(
        "message_bytes_max",
        whole(1, 1 << 30),
        "4194304",
        "bytes of a gRPC message, an HTTP body, a RESP command",
        "BYTES",
    ),
    *AROUND,
)
