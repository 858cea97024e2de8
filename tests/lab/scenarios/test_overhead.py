"""What the whole chain costs: that it is measured, and what it leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, FunctionType

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenarios import overhead
from sluicegate.lab.scenarios.overhead import (
    ROUND,
    SCENARIO,
    Handle,
    Overhead,
    measure,
    plain_window,
    play,
    server_chain,
)
from sluicegate.policies.stack import Stack
from sluicegate.testing import SeededChance
from tests.prove.seeds import whole

TICK_US = 5
CALLS_MAX = 185  # of Python and C functions, a request


class TickingClock:
    """A clock that is moved by being read: a request takes as long as it asks often."""

    def __init__(self) -> None:
        self._now_us = 10**15

    def now_us(self) -> int:
        """Return the next instant."""
        self._now_us += TICK_US
        return self._now_us


@pytest.fixture(autouse=True)
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "CLOCK", TickingClock())


@pytest.mark.prove
@pytest.mark.parametrize("make", [server_chain, plain_window])
def test_the_time_around_each_request_is_what_its_clock_says(
    make: Callable[[SeededChance], Handle],
) -> None:
    rig = Overhead(requests=3 * ROUND)
    run = play(rig, make, 1)
    assert len(run.p50_us) == len(run.p99_us) == 3
    figures = measure(rig, run)
    assert TICK_US <= figures["p50_us"] <= figures["p99_us"] < 100 * TICK_US


@pytest.mark.prove
def test_nothing_is_left_behind_however_many_have_passed() -> None:
    rig = Overhead(requests=10 * ROUND)
    assert play(rig, server_chain, 1).objects < 200


@pytest.mark.prove
def test_ten_million_requests_leave_nothing_behind() -> None:
    rig = Overhead(requests=10_000_000 if whole() else 200_000)
    assert measure(rig, play(rig, server_chain, 1))["objects_per_million"] < 1_000


def test_fewer_than_a_round_are_refused() -> None:
    with pytest.raises(BadValue, match="requests"):
        Overhead(requests=ROUND - 1)


def test_it_is_the_claim_of_the_compiled_build() -> None:
    assert {goal.figure for goal in SCENARIO.goals} == {"p50_us", "p99_us", "objects_per_million"}


@pytest.mark.skipif(not isinstance(Stack.admit, FunctionType), reason="compiled calls are not seen")
def test_a_request_through_the_chain_makes_few_calls() -> None:
    """Interpreted, calls are what a request costs; they do not depend on the machine."""
    handle = server_chain(SeededChance(1))
    overhead._round(handle, 0)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        overhead._round(handle, ROUND)
    finally:
        sys.setprofile(None)
    assert calls <= CALLS_MAX * ROUND
