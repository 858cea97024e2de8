"""Which Redis keeps the values, and how sure a write must be: a URL as frozen settings.

Servers and connections are said as everywhere (`stores/redis/url.py`), with times that suit values
and not decisions; the rows of the table below are an engine's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.redis.settings import FLEET, RedisSettings
from sluicegate.stores.redis.settings import parse_url as parse_redis_url
from sluicegate.stores.urls import Query, as_ms, check_numbers, pairs_in, parse_query, redacted

SCHEMES: Final = ("redis://", "rediss://", "redis+cluster://", "rediss+cluster://")
# A value of 16 MiB, and whatever else is under way.
DEFAULTS: Final[Mapping[str, object]] = {
    "timeout_us": 1_000_000,
    "silence_us_max": 1_500_000,  # half-open connections are given up within 2 s
    "unsent_bytes_max": 64 << 20,
    "reply_bytes_max": 128 << 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisEngineSettings:
    """The settings of the engine, validated."""

    redis: RedisSettings
    prefix: str = "sgkv"  # of every key
    wait: int = 0  # replicas that must have a write before it is acknowledged
    wait_us: int = 100_000  # and how long they may take
    load_max: int = 32  # calls that one load, walk or drop has under way
    batch_bytes_max: int = 256 << 10  # of a load's call
    walk_bytes_max: int = 16 << 20  # of what a walk tells at once

    def __post_init__(self) -> None:
        check_numbers(self, _BOUNDS, "redis")
        if not 1 <= len(self.prefix) <= 32 or not self.prefix.isascii() or "{" in self.prefix:
            raise BadValue("redis.prefix", self.prefix, "give up to 32 characters without a {")
        if self.redis.topology == FLEET:
            raise BadValue("engine", self.redis.kind, "name a Redis: a limiter keeps no values")
        if self.wait and self.redis.timeout_us_max <= self.wait_us:
            raise BadValue("redis.wait_ms", self.wait_us / 1e3, "give less than timeout_ms")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "wait": (0, 100),
    "wait_us": (1_000, 3_600_000_000),
    "load_max": (1, 4_096),
    "batch_bytes_max": (1, 16 << 20),
    "walk_bytes_max": (1, 1 << 30),
}

_QUERY: Final[Query] = {
    "prefix": ("prefix", str, "a few characters"),
    "wait": ("wait", int, "a number of replicas"),
    "wait_ms": ("wait_us", as_ms, "milliseconds"),
    "load_max": ("load_max", int, "a whole number"),
    "batch_bytes_max": ("batch_bytes_max", int, "a whole number"),
    "walk_bytes_max": ("walk_bytes_max", int, "a whole number"),
}


def parse_url(url: str) -> RedisEngineSettings:
    """Parse a URL; what it leaves out has its default."""
    base, _, query = url.partition("?")
    pairs = pairs_in(query, redacted(url), "engine", "redis://host:port?name=value")
    ours = [pair for pair in pairs if pair[0] in _QUERY]
    rest = [pair for pair in pairs if pair[0] not in _QUERY]
    redis = parse_redis_url(f"{base}?{urlencode(rest)}" if rest else base, defaults=DEFAULTS)
    return RedisEngineSettings(redis=redis, **parse_query(ours, _QUERY, "engine"))  # type: ignore[arg-type]
