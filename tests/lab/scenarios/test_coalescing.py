"""Coalescing faults: one fetch for many is not one failure for many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.caches import SingleFlight
from sluicegate.lab.scenarios.coalescing import (
    CANCEL,
    ERROR,
    PATIENT,
    TIMEOUT,
    CoalescedFetch,
    Fetch,
    FetchFaults,
    MakeSharing,
    UnsharedFetch,
    curves,
    measure,
    play,
)

FEW = {
    fault: FetchFaults(fault=fault, episodes=4, readers=50) for fault in (ERROR, CANCEL, TIMEOUT)
}


def single(clock: Clock, fetch: Fetch) -> SingleFlight:
    return SingleFlight(fetch)


def shielded(clock: Clock, fetch: Fetch) -> SingleFlight:
    return SingleFlight(fetch, shielded=True)


def patient(clock: Clock, fetch: Fetch) -> CoalescedFetch:
    return CoalescedFetch(clock, fetch, PATIENT)


def figures(fault: str, make_sharing: MakeSharing) -> dict[str, float]:
    return measure(FEW[fault], play(FEW[fault], make_sharing, 3))


@pytest.mark.parametrize("fault", FEW)
def test_nothing_is_left_nobody_is_lost_and_the_store_is_asked_twice_at_most(fault: str) -> None:
    numbers = figures(fault, CoalescedFetch)
    assert (numbers["leaked"], numbers["lost"]) == (0, 0)
    assert numbers["calls_max"] == (1 if fault == CANCEL else 2)
    assert numbers["answered"] >= (0.8 if fault == TIMEOUT else 1.0)


@pytest.mark.prove
def test_ten_thousand_wait_for_one_answer_that_fails() -> None:
    rig = FetchFaults(fault=ERROR, episodes=1, readers=10_000)
    numbers = measure(rig, play(rig, CoalescedFetch, 1))
    assert (numbers["leaked"], numbers["lost"], numbers["calls_max"], numbers["answered"]) == (
        0,
        0,
        2,
        1,
    )


@pytest.mark.parametrize("fault", [CANCEL, TIMEOUT])
def test_in_a_plain_single_flight_one_end_is_the_end_of_all(fault: str) -> None:
    assert figures(fault, single)["lost"] > 100


def test_the_first_reader_of_each_episode_is_cancelled() -> None:
    alone = FetchFaults(fault=CANCEL, episodes=3, readers=1)
    after = play(alone, CoalescedFetch, 1)
    assert (after.cancelled, after.answered, after.leaked) == (3, 0, 0)


def test_behind_a_shield_what_hangs_is_left_in_memory() -> None:
    numbers = figures(TIMEOUT, shielded)
    assert numbers["leaked"] >= 4
    assert figures(CANCEL, shielded)["leaked"] == 0


def test_alone_each_asks_the_store() -> None:
    assert figures(ERROR, UnsharedFetch)["calls_max"] == 51


def test_without_relief_a_fetch_that_hangs_holds_those_who_try_again() -> None:
    numbers = figures(TIMEOUT, patient)
    assert (numbers["answered"], numbers["calls_max"]) == (0, 1)


class Forgetful:
    """A sharing that drops a future of its own on the floor for each read, and keeps it."""

    def __init__(self, clock: Clock, fetch: Fetch) -> None:
        self.futures: list[asyncio.Future[int]] = []
        self._fetch = fetch

    def share(self, request: Request) -> Awaitable[int]:
        self.futures.append(asyncio.get_running_loop().create_future())
        return self._fetch(request.key)


def test_a_future_without_an_end_is_found() -> None:
    rig = FetchFaults(fault=CANCEL, episodes=2, readers=10)
    # The first of each episode is cancelled after it has asked.
    assert play(rig, Forgetful, 1).leaked == 20


def test_a_run_is_a_function_of_its_seed_and_its_waits_are_drawn() -> None:
    rig = FEW[ERROR]
    first = play(rig, CoalescedFetch, 1)
    assert first == play(rig, CoalescedFetch, 1) != play(rig, CoalescedFetch, 2)
    drawn = curves(rig, first)["answered"]
    assert drawn == sorted(drawn)
    assert 20 <= drawn[-1][0] <= 60, "milliseconds, of two fetches"
