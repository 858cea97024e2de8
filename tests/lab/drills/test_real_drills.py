"""Drills as they are, for a few seconds each: real dispatchers, real sockets, real time.

They run beside whatever else the machine does, so bars on times are looser here than where a drill
has it for itself, and a run that is void or misses a bar is played again: the machine can only make
a run worse. What counts requests keeps its bar.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.lab.drills import (
    byte_hog,
    game,
    hot_key,
    neighbour,
    overload,
    recovery,
    shard,
    shares,
)
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
from sluicegate.lab.drills.drill import (
    COSTS_UNLEARNED,
    GENERATION_ONE,
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
)
from sluicegate.wire.resp import command
from tests.engines.child import PATIENCE_S, until

pytestmark = [pytest.mark.engine, pytest.mark.alone]

TRIES = 3
LOOSER = 4.0  # times the bar, of times


def played(drill: Drill, seconds: float, policy: str = LAYERS) -> DrillOutcome:
    """The first run that is not void."""
    setting = DrillSetting(seconds=seconds, policy=policy)
    for _ in range(TRIES):
        outcome = drill.play(setting)
        if not outcome.void:
            return outcome
        setting = replace(setting, seed=setting.seed + 1)
    pytest.skip(f"the machine has no time for it: {'; '.join(outcome.void)}")


def missed(outcome: DrillOutcome) -> list[str]:
    """Bars that are missed, those of times by far."""
    return [
        f"{bar.claim}: {bar.value:g}, {bar.bound:g}"
        for bar in outcome.bars
        if not bar.as_expected
        and not (bar.unit == "ms" and bar.at_most and bar.value <= LOOSER * bar.at_most)
    ]


def met(
    drill: Drill, seconds: float, misses: Callable[[DrillOutcome], list[str]] = missed
) -> DrillOutcome:
    """The first run that misses nothing."""
    failures = []
    for _ in range(TRIES):
        outcome = played(drill, seconds)
        if not misses(outcome):
            return outcome
        failures.append(f"{misses(outcome)} of {outcome.figures}")
    pytest.fail("\n".join(failures))


def test_at_twice_the_capacity_what_can_be_done_is_done_and_critical_work_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overload, "TIMES", (2,))

    def misses(outcome: DrillOutcome) -> list[str]:
        goodput, critical, _, grown = (bar.value for bar in outcome.bars)
        well = goodput > 0.85 and critical > 0.99 and grown < 1.2
        return [] if well else [f"goodput {goodput}, CRITICAL {critical}, grown by {grown}"]

    assert len(met(overload.DRILL, 4, misses).panels) == 4


def test_readers_do_not_notice_scans_beside_them() -> None:
    assert met(neighbour.DRILL, 4).figures["scans: LIMITED"] > 0


def test_without_request_units_they_do() -> None:
    outcome = played(neighbour.DRILL, 4, GENERATION_ONE)
    assert outcome.bars[0].must_miss
    assert outcome.bars[0].value < 0.9
    assert outcome.passed


def test_a_slow_shard_is_not_felt_by_the_others_and_without_layers_it_is() -> None:
    def misses(outcome: DrillOutcome) -> list[str]:
        healthy = outcome.bars[0]  # the other, CRITICAL on the slow shard, is missed
        return [] if healthy.met else [str(healthy)]

    met(shard.DRILL, 4, misses)
    assert played(shard.DRILL, 4, NONE).passed


def test_after_a_stall_the_layers_are_well_again_sooner() -> None:
    met(recovery.DRILL, 12)


def test_a_quota_is_given_out_whole_by_three_dispatchers_and_by_two() -> None:
    met(shares.DRILL, 4)


def test_hot_keys_are_read_once_in_their_ttl() -> None:
    def misses(outcome: DrillOutcome) -> list[str]:
        forwarded, figures = outcome.bars[0], outcome.figures
        few = forwarded.met and figures["forwarded of received"] < 0.01
        return [] if few and figures["hot reads served in time"] > 0.99 else [str(forwarded)]

    met(hot_key.DRILL, 8, misses)


def test_what_nobody_knows_before_is_charged_by_the_formula_and_unlearned_it_is_not() -> None:
    met(byte_hog.DRILL, 4)
    assert played(byte_hog.DRILL, 4, COSTS_UNLEARNED).passed


def test_no_mixture_gets_more_than_its_quota_and_unlearned_they_do() -> None:
    met(game.DRILL, 12)
    assert played(game.DRILL, 12, COSTS_UNLEARNED).passed


def test_what_a_fleet_starts_has_ended_when_it_ends_however_it_ends() -> None:
    dispatchers = []

    def fails() -> None:
        with DrillFleet((DrillCaller("ann"),)) as fleet:
            dispatcher = fleet.dispatcher("memory:")
            dispatchers.append((dispatcher.process.pid, fleet.folder))
            assert dispatcher.process.memory_bytes() > 1 << 20
            assert dispatcher.process.cpu_s() > 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    [(pid, folder)] = dispatchers
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()


def test_one_that_does_not_start_is_told_with_the_end_of_its_log() -> None:
    with DrillFleet() as fleet, pytest.raises(Unavailable, match="nothing:"):
        fleet.dispatcher("nothing:")


def test_an_error_that_is_no_refusal_ends_a_preparation() -> None:
    with DrillFleet() as fleet:
        dispatcher = fleet.dispatcher("memory:")
        dispatcher.execute([command("SET", "t:k", "v")])
        with pytest.raises(Unavailable, match="ERR"):
            dispatcher.execute([command("NOTHING")])


def test_ctrl_c_ends_a_drill_and_all_that_it_started(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sluicegate.cli", "lab", "drill", "overload"]
    drill = subprocess.Popen(
        [*words, "--out", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        mine = until(lambda: _dispatchers(drill.pid), "a dispatcher")
        drill.send_signal(signal.SIGINT)
        assert drill.wait(PATIENCE_S) == 130
    finally:
        drill.kill()
        drill.wait()
    until(lambda: all(_parent_of(pid) is None for pid in mine), "the end of the dispatchers")


def _parent_of(pid: int) -> int | None:
    """The parent of a process, or None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[1])


def _dispatchers(drill: int) -> set[int]:
    """The dispatchers that a drill has started."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            of_drill = b"sluicegate-drill-" in line and b"\0kv\0" in line
            if of_drill and _parent_of(int(entry.name)) == drill:
                found.add(int(entry.name))
    return found
