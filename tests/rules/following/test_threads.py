"""Followers as they are used: with threads, on a log and a store in files, in processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.event_log import EventLog
from sluicegate.contracts.rulebook import RULES_CHANGED
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.fleet_status import FleetReports
from sluicegate.rules.following.follower import CLOSE_S_MAX, Follower
from sluicegate.rules.releases.signatures import SignedRollout
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.stores.blobs.files import FileBlobs
from sluicegate.stores.blobs.files_url import FileBlobSettings
from sluicegate.stores.event_logs import open_log
from sluicegate.system import SystemClock, now_us
from tests.rules.following.node import Line
from tests.rules.releases.press import Press

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 30.0


def announce(log: EventLog, rollout: SignedRollout) -> None:
    log.append(RULES_CHANGED, rollout.signed, now_us()).result(LONG_S)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    log = open_log(f"files:{tmp_path}/log?poll_ms=5")
    yield log
    log.close(round(LONG_S * 1e6))


@pytest.fixture
def press(tmp_path: Path) -> Press:
    press = Press(FileBlobs(FileBlobSettings(folder=str(tmp_path / "blobs"))))
    press.release(1, a=1)
    press.release(2, 1, a=2)
    press.release(3, 2, a=3)
    press.order(1, 1, at_us=now_us())
    return press


def test_a_thread_follows_announcements_and_reports(
    press: Press, log: EventLog, tmp_path: Path
) -> None:
    handed: Queue[FleetBooks] = Queue()
    reader = open_log(f"files:{tmp_path}/log?poll_ms=5")
    follower = Follower(
        press.store, handed.put, node="n1", folder=tmp_path / "rules", announcements=reader
    )
    with follower:
        assert handed.get(timeout=LONG_S).live_version == 1
        log.append("something.else", b"not for us", now_us()).result(LONG_S)
        log.append(RULES_CHANGED, b"forged", now_us()).result(LONG_S)
        announce(log, press.order(2, 2, at_us=now_us()))
        assert handed.get(timeout=LONG_S).live_version == 2
        there, reports = FleetReports(press.store, SystemClock()).wait_for(
            2, nodes=1, timeout_s=LONG_S
        )
        assert there, reports
        report = reports.nodes[0].report
        assert report is not None
        assert (report.node, report.version, report.failure) == ("n1", 2, "")
        assert 0 < report.took_us < 30_000_000
        assert follower.start() is follower
    assert follower.metrics().failure_counts["announcements", "untrusted"] == 1
    announce(log, press.order(3, 3, at_us=now_us()))
    assert handed.empty()
    reader.close()


def test_a_thread_without_a_log_asks_by_itself_and_at_once_when_it_is_told(press: Press) -> None:
    handed: Queue[FleetBooks] = Queue()
    with Follower(press.store, handed.put, node="n1", every_s=0.02):
        assert handed.get(timeout=LONG_S).live_version == 1
        press.order(2, 2, at_us=now_us())
        assert handed.get(timeout=LONG_S).live_version == 2
    with Follower(press.store, handed.put, node="n1", every_s=3_600) as follower:
        assert handed.get(timeout=LONG_S).live_version == 2
        press.order(3, 3, at_us=now_us())
        follower.reload()
        assert handed.get(timeout=LONG_S).live_version == 3


def test_what_cannot_be_reached_is_tried_again_by_the_threads(
    press: Press, log: EventLog, tmp_path: Path
) -> None:
    handed: Queue[FleetBooks] = Queue()
    line = Line(press.blobs)
    store = ReleaseStore(line, press.signer.verifier())
    (tmp_path / "log2").write_text("a file, and no log")
    broken = open_log(f"files:{tmp_path}/log2")
    with Follower(
        store,
        handed.put,
        node="n1",
        announcements=broken,
        every_s=0.02,
        report_every_s=0.05,
    ) as follower:
        handed.get(timeout=LONG_S)
        wait(lambda: "announcements" in follower.record.failures)
        line.cut = ""
        wait(lambda: "orders" in follower.record.failures)
        press.order(2, 2, at_us=now_us())
        line.cut = "editions/"
        wait(lambda: "rules" in follower.record.failures)
        line.cut = "nodes/"
        assert handed.get(timeout=LONG_S).live_version == 2
        wait(lambda: "reports" in follower.record.failures)
        line.cut = None
        wait(lambda: "reports" not in follower.record.failures)
        (tmp_path / "log2").unlink()
        wait(lambda: "announcements" not in follower.record.failures)
    broken.close()


def wait(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(int(LONG_S / 0.005)):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError("it was waited for in vain")


def test_a_loop_is_given_its_books_in_its_own_thread(press: Press) -> None:
    async def serve() -> None:
        threads: list[int] = []
        second = asyncio.Event()

        def put(books: FleetBooks) -> None:
            threads.append(threading.get_ident())
            if books.live_version == 2:
                second.set()

        loop = asyncio.get_running_loop()
        follower = Follower(press.store, put, node="n1", every_s=0.02, loop=loop).start()
        try:
            press.order(2, 2, at_us=now_us())
            await asyncio.wait_for(second.wait(), LONG_S)
        finally:
            await asyncio.to_thread(follower.close)
        assert set(threads) == {threading.get_ident()}

    asyncio.run(serve())


def test_what_a_loop_says_of_books_is_told_and_they_are_not_in_force(press: Press) -> None:
    async def serve() -> None:
        def put(books: FleetBooks) -> None:
            if books.live_version == 2:
                raise Unavailable("this node", "it has no room")

        loop = asyncio.get_running_loop()
        follower = Follower(press.store, put, node="n1", every_s=0.02, loop=loop).start()
        press.order(2, 2, at_us=now_us())
        await asyncio.to_thread(wait, lambda: "rules" in follower.record.failures)
        assert "no room" in follower.record.failures["rules"]
        assert follower.books.live_version == 1
        await asyncio.to_thread(follower.close)

    asyncio.run(serve())


def test_a_loop_that_closes_the_follower_does_not_wait_for_itself(press: Press) -> None:
    async def serve() -> None:
        handed: list[FleetBooks] = []
        loop = asyncio.get_running_loop()
        follower = Follower(press.store, handed.append, node="n1", every_s=0.02, loop=loop).start()
        press.order(2, 2, at_us=now_us())
        # The loop is busy from here on, and the thread waits for it sooner or later.
        wait(lambda: follower._highest == 2)
        began_us = now_us()
        follower.close()
        assert now_us() - began_us < CLOSE_S_MAX / 2 * 1e6
        assert len(handed) == 1

    asyncio.run(serve())


NODE = """
import json, sys
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.releases.signatures import Verifier
from sluicegate.rules.following.follower import Follower
from sluicegate.stores.blobs.files import FileBlobs
from sluicegate.stores.blobs.files_url import FileBlobSettings
from sluicegate.stores.event_logs import open_log

folder, name = sys.argv[1:]
blobs = FileBlobs(FileBlobSettings(folder=f"{folder}/shared"))
store = ReleaseStore(blobs, Verifier.read([f"{folder}/k.pem"]))


def put(books):
    print(json.dumps([books.live_version, books.canary_version]), flush=True)


log = open_log(f"files:{folder}/log?poll_ms=5")
with Follower(store, put, node=name, folder=f"{folder}/{name}", announcements=log, every_s=0.5):
    sys.stdin.read()
"""


def point(link: Path, target: Path) -> None:
    """Turn the link elsewhere, in one step."""
    beside = link.with_suffix(".new")
    beside.symlink_to(target)
    beside.replace(link)


class Child:
    def __init__(self, folder: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, str(folder), name],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def next(self) -> object:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else "it has ended"

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate(timeout=LONG_S)


def test_nodes_in_processes_follow_one_log_and_outlive_a_kill(
    press: Press, log: EventLog, tmp_path: Path
) -> None:
    (tmp_path / "k.pem").write_bytes(press.signer.public_pem())
    shared = tmp_path / "shared"
    point(shared, tmp_path / "blobs")
    children = {name: Child(tmp_path, name) for name in ("n1", "n2")}
    try:
        assert [child.next() for child in children.values()] == [[1, 0], [1, 0]]
        announce(log, press.order(2, 2, pins={"n2": 3}, at_us=now_us()))
        assert [child.next() for child in children.values()] == [[2, 0], [3, 0]]
        fleet = FleetReports(press.store, SystemClock())
        assert fleet.wait_for(2, nodes=2, timeout_s=LONG_S)[0]
        assert fleet.look().versions() == {2: 1, 3: 1}
        children["n1"].end(kill=True)
        # A folder that is away would be made anew by the first report; a file is in its place.
        point(shared, tmp_path / "k.pem")
        (tmp_path / "log").rename(tmp_path / "log-away")
        children["n1"] = Child(tmp_path, "n1")
        assert children["n1"].next() == [2, 0]
        point(shared, tmp_path / "blobs")
        press.order(3, 3, at_us=now_us())
        assert children["n1"].next() == [3, 0]  # by asking, for nobody announced it
    finally:
        for child in children.values():
            child.end()
    assert [child.process.returncode for child in children.values()] == [0, 0]
