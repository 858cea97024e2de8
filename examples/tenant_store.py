"""Two tenants of one key-value store: one asks for far too much, and the other does not notice.

    sluicegate kv --engine memory: --listen 127.0.0.1:7080 \\
        --access examples/tenant_store.toml --rules examples/tenant_store.yaml
    python examples/tenant_store.py

Any Redis client will do. A scan of many rows costs what many reads cost, so a quota in request
units holds for both alike.
"""

from __future__ import annotations

import sys
from collections import Counter

import redis


def connect(tenant: str, port: int) -> redis.Redis:
    """A client that is known by its token."""
    return redis.Redis(port=port, password=f"the token of {tenant}", socket_timeout=10)


def fill(store: redis.Redis, rows: int) -> None:
    """Write rows, a hundred in a pipeline."""
    for first in range(0, rows, 100):
        pipeline = store.pipeline(transaction=False)
        for row in range(first, min(first + 100, rows)):
            pipeline.set(f"listings:{row}", "a house by the lake")
        pipeline.execute()


def read(store: redis.Redis, times: int) -> Counter[str]:
    """Read one row after the other; count what became of it."""
    counts: Counter[str] = Counter()
    for row in range(times):
        try:
            counts["served" if store.get(f"listings:{row % 200}") else "missing"] += 1
        except redis.ResponseError as error:
            counts[str(error).partition(" ")[0]] += 1
    return counts


def scan(store: redis.Redis, times: int) -> Counter[str]:
    """Scan the table again and again."""
    counts: Counter[str] = Counter()
    for _ in range(times):
        try:
            store.scan(0, match="listings:*", count=200)
            counts["served"] += 1
        except redis.ResponseError as error:
            counts[str(error).partition(" ")[0]] += 1
    return counts


def main(port: int) -> None:
    """Show it."""
    shop, nightly = connect("shop", port), connect("nightly", port)
    fill(shop, 200)
    for name, counts in (("nightly", scan(nightly, 100)), ("shop", read(shop, 200))):
        sys.stdout.write(f"{name}: {dict(counts)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7080)
