"""Several worker processes on one port, with their counts in a real Redis."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.apps.up.running import has_ended
from tests.engines.child import PATIENCE_S, until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

PLAYBACK = "/api/v1/playback"
WORKERS = 2
CONNECT_MS = 4_000


@pytest.fixture
def limiter(tmp_path: Path, redis_server: RedisServer) -> Iterator[LimiterProcess]:
    with LimiterProcess(
        tmp_path,
        "--rules", rules_file(tmp_path, NATIVE),
        "--store", redis_server.patient_url,
        "--workers", str(WORKERS),
        "--shed", "off",
    ) as process:  # fmt: skip
        yield process


def workers_of(limiter: LimiterProcess) -> set[int]:
    """The process ids of the workers: children of the one that was started."""
    children = Path(f"/proc/{limiter.child.pid}/task/{limiter.child.pid}/children").read_text()
    return {int(pid) for pid in children.split()}


def answering_workers(limiter: LimiterProcess, times: int) -> set[int]:
    """Which workers answer, by asking on new connections."""
    return {limiter.ask("/v1/state")[1]["worker"] for _ in range(times)}


def test_they_share_the_port_and_the_counts(limiter: LimiterProcess) -> None:
    assert f"{WORKERS} workers" in limiter.ready_line
    until(lambda: len(answering_workers(limiter, 20)) == WORKERS, "both workers asked")
    allowed = [limiter.check("ann", PLAYBACK)["allowed"] for _ in range(20)]
    assert allowed.count(True) == 6


def test_metrics_and_the_audit_are_those_of_all(limiter: LimiterProcess) -> None:
    for _ in range(20):
        limiter.check("bob", PLAYBACK)
    for _ in range(5):
        assert limiter.metric("sluicegate_limiter_decisions_total") == 20
        assert limiter.metric("sluicegate_limiter_decisions_total", outcome="allowed") == 6
        entries = limiter.ask("/v1/audit?user=bob")[1]["decisions"]
        assert sum(entry["times"] for entry in entries) == 20
    _, page = limiter.ask("/metrics")
    assert page.count("# TYPE sluicegate_limiter_decisions_total counter") == 1
    assert 'worker="0"' in page
    assert 'worker="1"' in page


def test_one_that_dies_is_replaced(limiter: LimiterProcess) -> None:
    before = workers_of(limiter)
    assert len(before) == WORKERS
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(
        lambda: len(workers_of(limiter) - before) == 1 and victim not in workers_of(limiter),
        "a new worker",
    )

    def both_answer() -> bool:
        return len(answering_workers(limiter, 10)) == WORKERS

    until(both_answer, "the new worker answering")
    assert "has ended by itself" in limiter.log.read_text()


def test_told_to_end_all_end(limiter: LimiterProcess) -> None:
    workers = workers_of(limiter)
    assert limiter.end() == 0
    for pid in workers:
        assert not Path(f"/proc/{pid}").exists()
    assert "Traceback" not in limiter.log.read_text()


def test_a_start_that_fails_ends_all(tmp_path: Path) -> None:
    limiter = LimiterProcess(
        tmp_path,
        "--rules", rules_file(tmp_path, "version: 2\n"),
        "--store", "redis://127.0.0.1:1",
        "--workers", "2",
        wait=False,
    )  # fmt: skip
    assert limiter.child.wait(PATIENCE_S) == 1
    assert "version" in limiter.log.read_text()
    assert "Traceback" not in limiter.log.read_text()


def test_who_asks_one_that_began_beside_a_silent_store_does_not_wait(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    redis_server.pause()
    try:
        with LimiterProcess(
            tmp_path,
            "--rules", rules_file(tmp_path, NATIVE),
            "--store", f"redis://127.0.0.1:{redis_server.port}?connect_timeout_ms={CONNECT_MS}",
            "--shed", "off",
        ) as limiter:  # fmt: skip
            assert "is unavailable" in limiter.log.read_text()
            attempt = time.perf_counter()
            assert limiter.check("ann", PLAYBACK)["without_store"]
            assert time.perf_counter() - attempt < CONNECT_MS / 2e3
            redis_server.resume()
            until(
                lambda: not limiter.check("ann", PLAYBACK)["without_store"],
                "the store",
            )
    finally:
        redis_server.resume()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_workers_end_with_their_parent_however_it_went(limiter: LimiterProcess) -> None:
    workers = workers_of(limiter)
    assert len(workers) == WORKERS
    os.kill(limiter.child.pid, signal.SIGKILL)
    until(
        lambda: all(has_ended(pid) for pid in workers),
        "the workers' end",
    )
