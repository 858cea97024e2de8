"""`python -m tests.engines fetch | doctor | measure`: the engines without pytest.

It may only word what the other files do and know: to fetch is `maven.py`, to look is `need.py`, to
start is each engine's own file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.engines.catalogue import ENGINES, JARS
from tests.engines.child import EngineFailedError
from tests.engines.cluster import Cluster
from tests.engines.maven import FetchError
from tests.engines.need import Missing


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
            found = need.present()
            missing += isinstance(found, Missing)
            say(f"  {'missing' if isinstance(found, Missing) else 'ok':8}{found}")
    return 1 if missing else 0


def measure() -> int:
    """Start each cluster once from empty, and say how long it took and what it holds."""
    from tests.engines.cassandra import CassandraCluster
    from tests.engines.kafka import KafkaCluster

    clusters: dict[str, Callable[[], Cluster]] = {
        "kafka, 1 broker": lambda: KafkaCluster(brokers=1),
        "kafka, 3 brokers": lambda: KafkaCluster(brokers=3),
        "cassandra, 3 nodes": CassandraCluster,
    }
    for name, start in clusters.items():
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


def resident_mb(pid: int) -> int:
    """VmRSS as Linux tells it."""
    status = Path(f"/proc/{pid}/status").read_text()
    kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kb) // 1000


def main() -> int:
    commands = {"fetch": fetch, "doctor": doctor, "measure": measure}
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=__doc__)
    parser.add_argument("command", choices=commands)
    try:
        return commands[parser.parse_args().command]()
    except EngineFailedError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
