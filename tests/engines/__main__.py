"""`python -m tests.engines fetch | doctor | measure [NAME]`: the engines without pytest.

It may only word what the other files do and know: to fetch is `maven.py`, to look is `need.py`, to
start is each engine's own file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.engines.catalogue import ENGINES, JARS
from tests.engines.child import EngineFailedError
from tests.engines.cluster import Cluster
from tests.engines.maven import FetchError
from tests.engines.need import Missing
from tests.redis.builds import BUILDS


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fetch() -> int:
    """Bring every server's jars into the cache."""
    try:
        for jars in JARS:
            jars.fetch(say)
    except FetchError as error:
        say(f"stopped: {error}")
        return 1
    return 0


def doctor() -> int:
    """Say of each engine what is here and what is missing; change nothing."""
    missing = 0
    for engine, needs in ENGINES.items():
        say(engine)
        for need in needs:
            state = need.present()
            missing += isinstance(state, Missing)
            say(f"  {'missing' if isinstance(state, Missing) else 'ok':8}{state}")
    return 1 if missing else 0


def measure(only: str = "") -> int:
    """Start each cluster once from empty, and say how long it took and what it holds."""
    for name, start in starters(only).items():
        began = time.monotonic()
        with start() as cluster:
            ready_s = time.monotonic() - began
            held_mb = [resident_mb(pid) for pid in cluster.pids]
            began = time.monotonic()
            cluster.kill(1)
            cluster.restart(1)
            again_s = time.monotonic() - began
            began = time.monotonic()
        say(
            f"{name}: ready in {ready_s:.1f} s, MB resident {held_mb}, "
            f"one killed and back in {again_s:.1f} s, ended in {time.monotonic() - began:.1f} s"
        )
    return 0


def starters(only: str) -> dict[str, Callable[[], Cluster]]:
    """The clusters whose names begin so; only the drivers of these must be there."""
    clusters: dict[str, Callable[[], Cluster]] = {}
    if "kafka".startswith(only):
        from tests.engines.kafka import KafkaCluster

        clusters["kafka, 1 broker"] = lambda: KafkaCluster(brokers=1)
        clusters["kafka, 3 brokers"] = lambda: KafkaCluster(brokers=3)
    if "cassandra".startswith(only):
        from tests.engines.cassandra import CassandraCluster

        clusters["cassandra, 3 nodes"] = CassandraCluster
    if "s3proxy".startswith(only):
        from tests.engines.s3proxy import S3Proxy

        clusters["s3proxy, 1 server"] = S3Proxy
    for build in BUILDS:
        if build.name.startswith(only) and build.path:
            from tests.engines.redis import RedisCluster, RedisSentinel, RedisServer

            clusters[f"{build.name}, 1 server"] = partial(RedisServer, build)
            clusters[f"{build.name}, 3 masters"] = partial(RedisCluster, 0, build)
            clusters[f"{build.name}, 3 masters, 3 replicas"] = partial(RedisCluster, 1, build)
            clusters[f"{build.name}, 2 and 3 sentinels"] = partial(RedisSentinel, build)
    return clusters


def resident_mb(pid: int) -> int:
    """VmRSS as Linux tells it."""
    status = Path(f"/proc/{pid}/status").read_text()
    kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kb) // 1000


def main() -> int:
    commands = {"fetch": fetch, "doctor": doctor, "measure": measure}
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=__doc__)
    parser.add_argument("command", choices=commands)
    parser.add_argument("name", nargs="?", default="", help="measure only these, such as redis")
    options = parser.parse_args()
    try:
        return (
            measure(options.name) if options.command == "measure" else commands[options.command]()
        )
    except EngineFailedError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
