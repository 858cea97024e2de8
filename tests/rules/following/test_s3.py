"""A fleet whose store is a bucket of a real S3 server."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.contracts.errors import Conflict
from sluicegate.rules.following.fleet_status import FleetReports
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.blobs import s3 as s3_module
from sluicegate.testing import START_US
from tests.prove.seeds import first
from tests.rules.following.node import Node
from tests.rules.releases.press import Press
from tests.stores.blobs.s3_server import SECRETS, S3Server
from tests.stores.blobs.tap import Tap

HOUR_US = 3_600_000_000


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    server = S3Server(tmp_path)
    yield server
    server.stop()


def test_a_fleet_follows_a_bucket_and_outlives_it(
    server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "sluicegate.rules")
    url = server.url(settings="&timeout_ms=2000")
    press = Press(open_blobs(url))
    press.release(1, a=1)
    press.release(2, 1, a=2)
    press.order(1, 1)
    node = Node(press, tmp_path / "rules").begin()
    press.order(2, 2)
    press.order(2, 2)
    with pytest.raises(Conflict):
        press.order(2, 2, back=True)
    assert node.poll()
    assert node.follower.metrics().deltas == 1
    press.store.put_report(node.follower.report())
    assert FleetReports(press.store, node.clock).look().versions() == {2: 1}
    press.store.sweep(1, now_us=START_US)
    swept = press.store.sweep(1, now_us=START_US + HOUR_US)
    assert len(swept.deleted) == 1  # the snapshot of 1; the delta from it is a release's still
    fresh = ReleaseStore(open_blobs(url), press.signer.verifier())
    second = fresh.release(2)
    assert second is not None
    assert fresh.snapshot(second.release).snapshot.content == second.release.content
    node.close()
    server.stop()
    again = Node(press, tmp_path / "rules").begin()
    assert again.runs == (2, 0)
    assert not again.poll()
    assert "orders" in again.failure


@pytest.mark.parametrize("retries", first(1, [8, 0]))
def test_fleet_catches_up_under_slow_down(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setattr(s3_module, "_GAP_US_MIN", 100)
    monkeypatch.setattr(s3_module, "_GAP_US_MAX", 1_000)
    tap = Tap(server.port)
    try:
        steady = Press(open_blobs(server.url()))
        steady.release(1, a=1)
        steady.order(1, 1)
        prefix = steady.blobs.settings.prefix  # type: ignore[attr-defined]
        url = server.url(port=tap.port, settings=f"&retries={retries}")
        query = url.partition("?")[2]
        press = Press(open_blobs(f"s3://{server.bucket}/{prefix}?{query}"))
        press.printed = steady.printed
        node = Node(press, tmp_path / "rules").begin()
        tap.slow_down = random.Random(retries)
        for version in range(2, 8):
            if retries:  # the publisher is spared every failure
                press.release(version, version - 1, a=version)
                press.order(version, version)
            else:  # only the node meets them, and nothing repeats its requests but itself
                steady.release(version, version - 1, a=version)
                steady.order(version, version)
            for _ in range(100):
                if node.runs == (version, 0):
                    break
                node.clock.advance(s=40)  # above the longest pause between two tries
                node.follower.look()
            assert node.runs == (version, 0)
        assert sum(tap.slowed) >= 3
        node.close()
    finally:
        tap.close()
