"""What every cluster does, shown with members that only sleep.

How real servers behave when killed belongs to their own tests.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.engines.child import EngineFailedError, until
from tests.engines.cluster import Cluster


class Sleepers(Cluster):
    engine = "sleepers"
    member = "bed"
    script = "echo asleep; exec sleep 600"

    def _prepare(self) -> None:
        for number in self.numbers:
            self._data(number).mkdir()

    def _command(self, number: int) -> list[str]:
        return ["sh", "-c", self.script.format(number=number)]

    def _answers(self, number: int) -> bool:
        return "asleep" in (self.folder / f"bed-{number}.log").read_text()


class Insomniacs(Sleepers):
    script = "echo asleep; test {number} != 2 && exec sleep 600; echo no pillow"

    def _answers(self, number: int) -> bool:
        return number == 1


def test_all_members_run_inside_the_block_and_nothing_is_left_after_it() -> None:
    with Sleepers(3) as cluster:
        folder, pids = cluster.folder, cluster.pids
        assert cluster.alive == (1, 2, 3)
    assert not folder.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_killed_member_is_not_a_crash_and_heal_brings_it_back() -> None:
    with Sleepers(3) as cluster:
        cluster.kill(2)
        cluster.stop(3)
        assert not {2, 3}.intersection(cluster.alive)
        assert cluster.crashes() == []
        cluster.heal()
        assert cluster.alive == (1, 2, 3)


def test_a_member_that_ends_by_itself_is_a_crash() -> None:
    with Sleepers(2) as cluster:
        os.kill(cluster.pids[1], signal.SIGKILL)
        until(lambda: cluster.alive == (1,), "waiting for bed 2 to end", 10)
        (crash,) = cluster.crashes()
        assert crash.startswith("--- bed-2 ended with code -9")
        cluster.keep_logs = False


def test_a_cluster_that_cannot_start_says_why_and_keeps_only_its_logs() -> None:
    cluster = Insomniacs(3)
    with pytest.raises(EngineFailedError) as failure, cluster:
        pytest.fail("it must not start")
    assert "waiting for sleepers bed 2: bed-2 ended" in str(failure.value)
    assert "no pillow" in str(failure.value)
    assert cluster.alive == ()
    assert sorted(path.name for path in cluster.folder.iterdir()) == [
        f"bed-{number}.log" for number in (1, 2, 3)
    ]
    cluster.keep_logs = False
    cluster.close()
    assert not cluster.folder.exists()


def test_a_cluster_outside_its_block_says_how_to_use_it() -> None:
    with pytest.raises(RuntimeError, match="use it in a `with` block"):
        _ = Sleepers(1).folder
