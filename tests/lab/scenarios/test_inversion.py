"""What CRITICAL shares with BULK, and how long it waits for it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.lab.scenarios.inversion import (
    LOCK,
    READ,
    SCENARIO,
    Inversion,
    InversionRun,
    SharedReads,
    chain,
    measure,
    naive,
    play,
    stripe,
    without_chunks,
)
from sluicegate.lab.world import World, run
from tests.lab.scenarios.trials import met

MS = 1_000
SECOND = 1_000_000
SMALL = {
    case: replace(rig, span_us=2_000 * MS, warm_us=400 * MS) for case, rig in SCENARIO.rigs.items()
}


@pytest.mark.prove
def test_critical_is_hardly_slower_beside_bulk_than_alone() -> None:
    assert met(SCENARIO, "chain", SMALL)


@pytest.mark.prove
def test_what_is_written_in_six_lines_lets_critical_wait_like_bulk() -> None:
    assert not met(SCENARIO, "naive", {"shared read": SMALL["shared read"]})


def test_whoever_is_not_raised_waits_for_those_who_want_the_same_of_few_locks() -> None:
    assert not met(SCENARIO, "without-raise", {"few locks": SMALL["few locks"]})


@pytest.mark.prove
def test_a_job_that_keeps_its_lock_keeps_critical_waiting() -> None:
    lock = SMALL["lock"]
    assert not met(SCENARIO, "without-chunks", {"lock": lock})
    whole, cut = (measure(lock, play(lock, site, 1)) for site in (without_chunks, chain))
    assert cut["p99_ms"] < whole["p99_ms"]
    # Under overload a job between two chunks waits behind newer ones, so fewer jobs are done.
    assert cut["bulk_per_s"] > 0.1 * whole["bulk_per_s"]


def shared(critical_joins: bool, *, raises: bool) -> list[tuple[str, int]]:
    """One worker: three of BULK wait for different keys, then one more read of the last key."""
    rig = Inversion(shared=READ, names=10, workers=1)

    async def main(world: World) -> list[tuple[str, int]]:
        site = SharedReads(rig, world, raises=raises)
        done: list[tuple[str, int]] = []

        async def ask(name: str, criticality: Criticality) -> None:
            await site.work(Request("k", caller=name, criticality=criticality))
            done.append((name, world.elapsed_us))

        for number in range(4):
            world.spawn(ask(f"bulk-{number}", Criticality.BULK), str(number))
        await world.sleep_us(1)
        last = Criticality.CRITICAL if critical_joins else Criticality.BULK
        world.spawn(ask("late-3", last), "late")
        await world.sleep_us(SECOND)
        return done

    return run(main, 11).value


def test_a_fetch_is_moved_to_the_class_of_whoever_joins_it() -> None:
    names = [name for name, _ in shared(True, raises=True)]
    assert names == ["bulk-0", "bulk-3", "late-3", "bulk-1", "bulk-2"]
    names = [name for name, _ in shared(False, raises=True)]
    assert names == ["bulk-0", "bulk-1", "bulk-2", "bulk-3", "late-3"]
    assert [name for name, _ in shared(True, raises=False)] == names


def test_a_caller_shares_by_the_number_of_its_name() -> None:
    assert stripe(Request("k", caller="bulk-12")) == "12"
    assert stripe(Request("k", caller="critical-12")) == "12"


def test_whoever_was_refused_has_waited_for_ever() -> None:
    rig = Inversion(shared=READ, names=1)
    figures = measure(rig, InversionRun([10.0] * 100, [10.0] * 98 + [inf] * 2, 0))
    assert figures["p99_ratio"] == figures["p99_ms"] == inf
    assert figures["success"] == 0.98
    assert measure(rig, InversionRun([10.0] * 100, [20.0] * 100, 9))["p99_ratio"] == 2.0
    assert measure(rig, InversionRun([], [], 0))["p99_ratio"] == inf


def test_a_run_is_a_function_of_its_seed_and_bulk_is_served_too() -> None:
    rig = Inversion(shared=LOCK, names=8, workers=4, span_us=3 * SECOND, warm_us=100 * MS)
    once = play(rig, chain, 3)
    assert once == play(rig, chain, 3)
    assert once.bulk_done > 0
    assert play(rig, naive, 3) != once


def test_wrong_rigs_are_refused() -> None:
    with pytest.raises(BadValue, match="shared"):
        Inversion(shared="printer", names=1)
    with pytest.raises(BadValue, match="names"):
        Inversion(shared=READ, names=0)
