"""From commit to enforcement: fifty nodes follow one rulebook, and rules change twenty times.

    python -m benchmarks.rule_fleet [--nodes 50] [--commits 20] [--kafka]

Each node is a process of its own with the follower of the product. A change is proposed, approved
and published; the clock starts when `publish` is called and stops for each node when the new rules
are in force there, by the same machine's clock. Announcements go by an event log in files, and with
`--kafka` by a real broker as well. Changes come one after the other, each once all nodes have it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.rounds import Bars, build_of
from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.publishing.parts import Publishing, open_publishing
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.releases.signatures import Signer, Verifier, new_key
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.resources import service
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.event_logs import open_log
from sluicegate.system import now_us

NODES = 50
COMMITS = 20
FILES = 10
RULES_A_FILE = 100
P99_S_MAX = 1.0
PATIENCE_S = 60.0
LOOKS_S = 30.0  # so that it is the announcement that is measured


def text_of(file: int, limit: int) -> str:
    """A file of rules."""
    rules = "\n".join(
        f"  - {{rule_id: rule-{file}-{n}, resource_path: /service-{file}/{n},"
        f" limit: {limit}, window: 1m}}"
        for n in range(RULES_A_FILE)
    )
    return f"version: 1\nrules:\n{rules}\n"


def node(name: str, folder: Path, events: str, told: Connection) -> None:
    """One node: tells when which version was put in force, until it is told to end."""

    def put_in_force(books: FleetBooks) -> None:
        told.send((books.live_version, now_us()))

    log = open_log(events)
    store = ReleaseStore(
        open_blobs(f"files:{folder}/blobs"), Verifier.read([folder / "signing.pub.pem"])
    )
    follower = Follower(
        store,
        put_in_force,
        node=name,
        folder=folder / "nodes" / name,
        announcements=log,
        every_s=LOOKS_S,
        report_every_s=LOOKS_S,
    )
    follower.start()
    told.recv()
    follower.close()
    log.close(0)


@contextmanager
def fleet(count: int, folder: Path, events: str) -> Iterator[list[Connection]]:
    """So many nodes, each of which has its first rules in force."""
    fork = multiprocessing.get_context("fork")
    ends: list[Connection] = []
    nodes = []
    for number in range(count):
        ours, theirs = fork.Pipe()
        one = fork.Process(target=node, args=(f"node-{number}", folder, events, theirs))
        one.start()
        theirs.close()
        ends.append(ours)
        nodes.append(one)
    try:
        announced(ends, 1)
        time.sleep(2)  # so that all of them listen
        yield ends
    finally:
        for end in ends:
            end.send("end")
        for one in nodes:
            one.join(PATIENCE_S)


def announced(ends: list[Connection], version: int) -> list[int]:
    """When each node had put that version in force."""
    at_us: dict[Any, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(at_us) < len(ends):
        left = [end for end in ends if end not in at_us]
        for end in wait(left, max(deadline - time.monotonic(), 0)):
            assert isinstance(end, Connection)
            found, put_us = end.recv()
            if found >= version:
                at_us[end] = put_us
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} nodes have not taken version {version}")
    return [*at_us.values()]


def measure(publishing: Publishing, ends: list[Connection], commits: int) -> list[float]:
    """Seconds from `publish` to enforcement, for each node and each change."""
    admin, by = publishing.admin, Identity("bench", EVERY_GRANT)
    took: list[float] = []
    for number in range(commits):
        file = number % FILES
        change = {f"rules-{file}.yaml": text_of(file, 1_000 + number)}
        made = admin.propose(change, base="live", message=f"Change {number}", confirm=True, by=by)
        admin.approve(made["id"], override="measured, not judged", by=by)
        began_us = now_us()
        version = admin.publish(made["id"], by=by)["version"]
        took += [(at_us - began_us) / 1e6 for at_us in announced(ends, version)]
    return took


def run(name: str, events: str, folder: Path, nodes: int, commits: int, bars: Bars) -> None:
    """One fleet on one kind of event log."""
    files = {f"rules-{file}.yaml": text_of(file, 999).encode() for file in range(FILES)}
    key = new_key(folder)
    repository = Repository.create(folder / "rules.git", files=files)
    log = open_log(events)
    publishing = open_publishing(
        repository,
        open_blobs(f"files:{folder}/blobs"),
        Signer.read(key.private),
        events=log,
        settings=PublishingSettings(own_approval=True),
    )
    publishing.admin.begin(None, message="Begin", by=Identity("bench", EVERY_GRANT))
    with fleet(nodes, folder, events) as ends:
        took = sorted(measure(publishing, ends, commits))
    publishing.close()
    log.close(0)
    p99 = took[min(int(len(took) * 0.99), len(took) - 1)]
    print(
        f"\n{name}: {nodes} nodes, {commits} changes of {FILES * RULES_A_FILE:,} rules"
        f"\n  median {statistics.median(took) * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms,"
        f" slowest {took[-1] * 1e3:.0f} ms"
    )
    bars.check(p99 < P99_S_MAX, f"p99 under {P99_S_MAX:g} s with {name}: {p99:.3f} s")


def main() -> None:
    """Files, and Kafka if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--commits", type=int, default=COMMITS)
    parser.add_argument("--kafka", action="store_true", help="a real broker too")
    arguments = parser.parse_args()
    print(f"rule_fleet, {build_of(service.__file__)}")
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="sluicegate-fleet-") as text:
        folder = Path(text, "files")
        folder.mkdir()
        run("files", f"files:{folder}/events", folder, arguments.nodes, arguments.commits, bars)
        if arguments.kafka:
            from tests.engines.kafka import KafkaCluster

            with KafkaCluster(brokers=1) as cluster:
                other = Path(text, "kafka")
                other.mkdir()
                url = f"kafka://{cluster.bootstrap}/{cluster.create_topic('rules')}"
                run("Kafka", url, other, arguments.nodes, arguments.commits, bars)
    bars.exit()


if __name__ == "__main__":
    main()
