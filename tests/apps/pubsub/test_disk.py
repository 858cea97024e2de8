"""A full disk and a slow one under `sluicegate pubsub`: what is accepted is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import Talk, talk
from tests.apps.pubsub.test_whole import UNLIMITED
from tests.attacks.prober import http_health, measure

SYNC_S = 0.1
SLOW_DISK = """\
import os, sys, time
sync = os.fdatasync
def slow(handle):
    time.sleep(%s)
    while os.path.exists(%r):
        time.sleep(0.01)
    sync(handle)
os.fdatasync = slow
from sluicegate.cli import main
sys.exit(main())
"""


class SlowDiskProcess(PubSubProcess):
    """A node whose disk takes long for each sync, and for ever while `held` is there."""

    @property
    def held(self) -> Path:
        """A file."""
        return self.log.with_suffix(".held")

    def command(self) -> list[str]:
        return [sys.executable, "-c", SLOW_DISK % (SYNC_S, str(self.held)), self.app]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode:
        pytest.skip(f"needs a mount of its own; run it as root: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_refuses_and_loses_nothing_that_was_accepted(
    tmp_path: Path, disk: Path
) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    text = "x" * 40_000
    accepted: dict[int, int] = {}
    flags = (*UNLIMITED, "--history", str(disk / "history"))

    def publish(client: Talk, numbers: range) -> list[dict[str, object]]:
        refused = []
        for n in numbers:
            reply = client.ask("publish", channel="news", data=[n, text])
            if reply["type"] == "accepted":
                accepted[reply["position"]] = n
            else:
                refused.append(reply["problem"])
        return refused

    with PubSubProcess(tmp_path, *flags) as server, talk(server) as client:
        with Subscriber(server, "news") as reader:
            refused = publish(client, range(60))
            assert 10 < len(accepted) < 40
            assert {one["status"] for one in refused} == {503}
            assert "No space left" in str(refused[0]["detail"])
            assert server.metric("sluicegate_pubsub_failed_total") == len(refused)
            ballast.unlink()
            assert publish(client, range(60, 65)) == []  # there is room again
            # What was refused was shown to nobody.
            assert [one[0] for one in reader.take(len(accepted))] == list(accepted.values())
        server.signal(signal.SIGKILL)
        server.child.wait(60)
    with PubSubProcess(tmp_path, *flags) as server:
        kept = {one["position"]: one["data"][0] for one in server.history("news")["messages"]}
        assert kept == accepted


def test_a_slow_disk_delays_what_is_published_and_nothing_else(tmp_path: Path) -> None:
    count, text = 200, "x" * 10_000
    with (
        SlowDiskProcess(tmp_path, *UNLIMITED, "--received-bytes", "1_000_000_000") as server,
        talk(server) as client,
        talk(server) as reader,
    ):
        reader.ask("subscribe", channel="news")
        positions = []

        def publish() -> int:
            ids = [client.send("publish", channel="news", data=[n, text]) for n in range(count)]
            for request_id in ids:
                told = client.next()
                assert (told["type"], told["id"]) == ("accepted", request_id)
                positions.append(told["position"])
            return count * len(text)

        with http_health(server.port) as probe:
            report = measure(server, publish, probe)
        # Those that came during a sync shared the next one, and nobody waited for the disk.
        assert report.latency_s(0.5) < SYNC_S / 2
        assert report.peak_bytes < 10 * count * len(text)
        assert [one[0] for one in reader.take(count)] == list(range(count))
        server.signal(signal.SIGKILL)
        server.child.wait(60)
    with PubSubProcess(tmp_path, *UNLIMITED) as again:
        assert [one["position"] for one in again.history("news")["messages"]] == positions


def test_what_a_slow_disk_has_not_synced_is_shown_to_nobody(tmp_path: Path) -> None:
    with (
        SlowDiskProcess(tmp_path, *UNLIMITED) as server,
        talk(server) as client,
        talk(server) as reader,
    ):
        reader.ask("subscribe", channel="news")
        client.ask("unsubscribe", channel="news")  # its welcome is read
        server.held.touch()
        client.send("publish", channel="news", data="unsynced")
        for each in (reader, client):
            with pytest.raises(TimeoutError):
                each.connection.recv(timeout=2 * SYNC_S)
        server.held.unlink()
        assert reader.take(1) == ["unsynced"]
        assert client.next()["type"] == "accepted"
