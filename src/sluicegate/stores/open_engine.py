"""Open engine: which storage engine a URL means. A driver is imported only when it is asked for.

memory:                      in this process, gone with it
lmdb:DIR                     embedded, shared by the processes of a machine
rocksdb:DIR                  embedded, one process, for tables that are mostly written
cassandra://HOST,HOST/SPACE  a Cassandra cluster
redis://, rediss://          one Redis; redis+cluster:// and rediss+cluster:// a cluster
faulty+URL                   any of them, slow or failing by a plan: for drills
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluicegate.contracts.engine import Engine
from sluicegate.contracts.errors import BadValue, MissingPackage

FAULTY_PREFIX: Final = "faulty+"


def open_engine(url: str) -> Engine:
    """The engine that the URL means; `MissingPackage` says what would have to be installed.

    Embedded engines are opened at once, and say so if they cannot be; what is connected to is
    connected to when it is first asked.
    """
    scheme = url.partition(":")[0]
    if scheme.startswith(FAULTY_PREFIX):
        return _open_faulty(url)
    opener = OPENERS.get(scheme)
    if opener is None:
        schemes = ", ".join(f"{name}:..." for name in OPENERS)
        raise BadValue("engine", f"{scheme}:...", f"give one of {schemes}, or faulty+ before it")
    return opener(url)


def _open_memory(url: str) -> Engine:
    from sluicegate.stores.engines.memory import open_memory  # noqa: PLC0415 - only if asked for

    return open_memory(url)


def _open_lmdb(url: str) -> Engine:
    from sluicegate.stores.engines.lmdb.url import parse_url  # noqa: PLC0415 - likewise

    settings = parse_url(url)  # a wrong URL is told before a missing package
    try:
        from sluicegate.stores.engines.lmdb.engine import LmdbEngine  # noqa: PLC0415 - likewise
    except ImportError:
        raise MissingPackage("lmdb", "kv") from None
    return LmdbEngine(settings)


def _open_rocksdb(url: str) -> Engine:
    from sluicegate.stores.engines.rocksdb.url import parse_url  # noqa: PLC0415 - likewise

    settings = parse_url(url)
    try:
        from sluicegate.stores.engines.rocksdb.engine import RocksEngine  # noqa: PLC0415 - likewise
    except ImportError:
        raise MissingPackage("rocksdict", "kv") from None
    return RocksEngine(settings)


def _open_cassandra(url: str) -> Engine:
    from sluicegate.stores.engines.cassandra.engine import open_cassandra  # noqa: PLC0415 - likewise

    return open_cassandra(url)


def _open_redis(url: str) -> Engine:
    from sluicegate.stores.engines.redis.engine import open_redis  # noqa: PLC0415 - likewise

    return open_redis(url)


def _open_faulty(url: str) -> Engine:
    from sluicegate.stores.engines.faulty.engine import FaultyEngine  # noqa: PLC0415 - likewise
    from sluicegate.stores.engines.faulty.url import open_inner, parse_url  # noqa: PLC0415 - likewise

    inner, plan, settings = parse_url(url)
    return FaultyEngine(open_inner(open_engine, inner), plan, settings)


# By the scheme of their URLs.
OPENERS: Final[dict[str, Callable[[str], Engine]]] = {
    "memory": _open_memory,
    "lmdb": _open_lmdb,
    "rocksdb": _open_rocksdb,
    "cassandra": _open_cassandra,
    "redis": _open_redis,
    "rediss": _open_redis,
    "redis+cluster": _open_redis,
    "rediss+cluster": _open_redis,
}
