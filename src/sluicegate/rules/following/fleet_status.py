"""Fleet: what all nodes report, read together: who runs what, who is late, who is failing.

Reports lie in the blob store, one a node. They are not signed: they tell how it stands, and nothing
is put in force because of them. A report that cannot be read is a node all the same, and is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.releases.documents import read_report
from sluicegate.rules.releases.store import ReleaseStore

STALE_US_DEFAULT: Final = 120_000_000
READERS: Final = 16  # reports that are read at once
LOOK_S: Final = 0.05  # between two looks of who waits, growing to
LOOK_S_MAX: Final = 1.0
TIMEOUT_S_MAX: Final = 3_600.0


class NodeStatus(NamedTuple):
    """A node, and what it said last: how long ago, and whether that is too long.

    `report` is None where it cannot be read, and `wrong` then says why.
    """

    node: str
    report: NodeReport | None
    age_us: int
    stale: bool
    wrong: str

    def runs(self, version: int, rollout: int = 0) -> bool:
        """Whether it runs this version, for all its callers or for some, or one that came later;
        and has taken the rollout of this number, or later ones.
        """
        report = self.report
        if report is None or report.rollout < rollout:
            return False
        return report.version >= version or report.canary == version


class FleetStatus(NamedTuple):
    """All nodes at an instant, by their names."""

    at_us: int
    nodes: tuple[NodeStatus, ...]

    def count_running(self, version: int, rollout: int = 0) -> int:
        """How many nodes that are not stale run this version, or one that came later."""
        return sum(node.runs(version, rollout) and not node.stale for node in self.nodes)

    def versions(self) -> dict[int, int]:
        """How many nodes that are not stale run which version."""
        counts: dict[int, int] = {}
        for node in self.nodes:
            if node.report is not None and not node.stale:
                counts[node.report.version] = counts.get(node.report.version, 0) + 1
        return counts

    @property
    def stale(self) -> tuple[NodeStatus, ...]:
        """Nodes that have said nothing for too long."""
        return tuple(node for node in self.nodes if node.stale)

    @property
    def failing(self) -> tuple[NodeStatus, ...]:
        """Nodes that say what is wrong, or cannot be read."""
        return tuple(node for node in self.nodes if node.wrong or _failure(node))


@final
class FleetReports:
    """Reads the reports of all nodes. One that is silent for `gone_us` is left out; 0 is never."""

    __slots__ = ("_clock", "_gone_us", "_stale_us", "_store")

    def __init__(
        self,
        store: ReleaseStore,
        clock: Clock,
        *,
        stale_us: int = STALE_US_DEFAULT,
        gone_us: int = 0,
    ) -> None:
        if stale_us < 1:
            raise BadValue("stale_us", stale_us, "give 1 or more")
        if gone_us and gone_us < stale_us:
            raise BadValue("gone_us", gone_us, f"give 0 for never, or {stale_us:,} or more")
        self._store = store
        self._clock = clock
        self._stale_us = stale_us
        self._gone_us = gone_us

    def look(self) -> FleetStatus:
        """All nodes, as they are told now."""
        return self._highest(self._read(self._store.nodes()))

    def wait_for(
        self, version: int, *, nodes: int, timeout_s: float, rollout: int = 0
    ) -> tuple[bool, FleetStatus]:
        """Wait until so many nodes run a version or a later one; whether they do, and all nodes.

        With `rollout` only nodes count that have taken these or later ones: a version may also be
        what a node still runs, for some or from before it was taken back. A node that has been seen
        to run it is not asked again until the end.
        """
        if nodes < 1:
            raise BadValue("nodes", nodes, "give 1 or more")
        if not 0 <= timeout_s <= TIMEOUT_S_MAX:
            raise BadValue("timeout_s", timeout_s, f"give 0 to {TIMEOUT_S_MAX:,.0f}")
        until_us = self._clock.now_us() + int(timeout_s * 1e6)
        never, pause_s = Event(), LOOK_S
        running: set[str] = set()
        while True:
            names = self._store.nodes()
            running &= set(names)
            status = self._highest(self._read([name for name in names if name not in running]))
            running |= {
                one.node for one in status.nodes if one.runs(version, rollout) and not one.stale
            }
            left_us = until_us - self._clock.now_us()
            if len(running) >= nodes or left_us <= 0:
                whole = self.look()
                return whole.count_running(version, rollout) >= nodes, whole
            never.wait(min(pause_s, left_us / 1e6))
            pause_s = min(LOOK_S_MAX, pause_s * 1.5)

    def forget(self, node: str) -> None:
        """Remove the report of a node that is gone; one that still reports would be back soon."""
        if node not in self._store.nodes():
            raise BadValue("node", node, "give a node that has reported, as `status` lists them")
        for status in self._highest(self._read([node])).nodes:
            if status.report is not None and not status.stale:
                age = f"{status.age_us / 1e6:,.0f} s ago"
                silent = f"{self._stale_us / 1e6:,.0f} s"
                remedy = f"it reported {age}; stop it first, and forget it when it was silent for"
                raise BadValue("node", node, f"{remedy} {silent}, or it is back")
        self._store.forget_node(node)

    def forget_gone(self) -> list[str]:
        """Remove the reports of all nodes that were silent for `gone_us`; their names."""
        if not self._gone_us:
            return []
        gone_at_us = self._clock.now_us() - self._gone_us
        gone = [
            name
            for name, report, _ in self._read(self._store.nodes())
            if report is not None and report.at_us < gone_at_us
        ]
        for name in gone:
            self._store.forget_node(name)
        return gone

    # Inside.

    def _read(self, names: Iterable[str]) -> list[tuple[str, NodeReport | None, str]]:
        with ThreadPoolExecutor(READERS, "read reports") as readers:
            return [one for one in readers.map(self._read_report, names) if one is not None]

    def _read_report(self, name: str) -> tuple[str, NodeReport | None, str] | None:
        try:
            blob = self._store.report_blob(name)
            if blob is None:
                return None  # it was forgotten meanwhile
            report = read_report(blob.data)
            if report.node != name:
                raise BadValue("report.node", report.node, f"it lies under the name {name}")
        except Unavailable:
            raise
        except SluicegateError as error:
            return name, None, str(error)
        return name, report, ""

    def _highest(self, read: Iterable[tuple[str, NodeReport | None, str]]) -> FleetStatus:
        now_us = self._clock.now_us()
        nodes = []
        for name, report, wrong in read:
            age_us = 0 if report is None else max(0, now_us - report.at_us)
            if 0 < self._gone_us < age_us:
                continue
            nodes.append(NodeStatus(name, report, age_us, age_us > self._stale_us, wrong))
        return FleetStatus(now_us, tuple(nodes))


def _failure(node: NodeStatus) -> str:
    return "" if node.report is None else node.report.failure
