"""Callers who hold back what would be refused, and callers who do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.scenarios.cooperation import (
    RIG,
    SCENARIO,
    client_throttle,
    marked,
    measure,
    play,
)
from sluicegate.lab.station_candidates import queue
from tests.lab.scenarios.trials import met

MS = 1_000
SMALL = {
    "10x": replace(
        RIG,
        kinds=(replace(RIG.kinds[0], callers=8),),
        span_us=2_500 * MS,
        warm_us=1_000 * MS,
    )
}


@pytest.mark.prove
def test_callers_that_hold_back_leave_the_server_its_work() -> None:
    """Without the mark callers send three times the answers, and 0.90 is served; with it, 0.93."""
    untold, told = (
        measure(SMALL["10x"], play(SMALL["10x"], server, client_throttle, 0))
        for server in (queue, marked)
    )
    assert 0.88 < untold["goodput"] < told["goodput"] - 0.02
    assert told["rejects_per_accept"] < 1.6 < untold["rejects_per_accept"] <= 2.4


@pytest.mark.prove
@pytest.mark.parametrize("name", SCENARIO.must_fail)
def test_whoever_sends_everything_fails(name: str) -> None:
    short = {"10x": replace(SMALL["10x"], span_us=1_000 * MS, warm_us=400 * MS)}
    assert not met(SCENARIO, name, short)


@pytest.mark.prove
def test_every_call_is_held_back_or_sent_and_of_what_is_sent_every_end_is_told() -> None:
    rig = replace(SMALL["10x"], span_us=600 * MS, warm_us=1)
    ended = play(rig, queue, client_throttle, 3)
    row = ended.ledger.by_kind[0]
    assert ended.called == ended.held_back + row.offered
    waiting = row.offered - row.good - row.late - row.refused
    assert 0 <= waiting <= row.offered * 500 // 600  # the others came before the last 500 ms
    figures = measure(rig, ended)
    assert figures["rejects_per_accept"] == row.refused / row.good
    assert figures["held_back"] == ended.held_back / ended.called
    assert play(rig, queue, client_throttle, 3).held_back == ended.held_back
