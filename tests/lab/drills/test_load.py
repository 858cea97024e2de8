from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Even, Poisson, Steps
from sluicegate.lab.drills import load as load_module
from sluicegate.lab.drills.load import DrillLoad, LoadStream, schedule

STREAM = LoadStream(
    name="a", ports=(1,), commands=(b"x", b"y", b"z"), arrivals=Even(100), timeout_us=1_000
)
LOAD = DrillLoad(streams=(STREAM,), span_us=1_000_000)


def test_requests_are_due_at_the_instants_of_their_arrivals_and_none_after_the_span() -> None:
    plan = schedule(LOAD)
    assert list(plan.due_us) == [10_000 * number for number in range(1, 100)]


def test_streams_are_one_row_in_the_order_of_their_instants() -> None:
    other = replace(STREAM, name="b", arrivals=Poisson(1_000), commands=(b"w",))
    plan = schedule(replace(LOAD, streams=(STREAM, other)))
    assert all(early <= late for early, late in pairwise(plan.due_us))
    assert plan.streams.count(0) == 99
    assert 850 < plan.streams.count(1) < 1_150
    assert {plan.commands[at] for at, number in enumerate(plan.streams) if number == 1} == {0}


def test_each_command_is_as_likely_as_the_next() -> None:
    plan = schedule(replace(LOAD, streams=(replace(STREAM, arrivals=Even(9_000)),)))
    for command in range(3):
        assert 2_800 < plan.commands.count(command) < 3_200


def test_the_same_seed_gives_the_same_schedule_and_another_gives_another() -> None:
    drawn = replace(LOAD, streams=(replace(STREAM, arrivals=Poisson(500)),))
    assert schedule(drawn) == schedule(drawn)
    assert schedule(drawn).due_us != schedule(replace(drawn, seed=1)).due_us


def test_a_stream_more_leaves_the_draws_of_the_others_as_they_were() -> None:
    drawn = replace(STREAM, arrivals=Poisson(500))
    alone = schedule(replace(LOAD, streams=(drawn,)))
    beside = schedule(replace(LOAD, streams=(replace(drawn, name="b"), drawn)))
    mine = [at for at, number in enumerate(beside.streams) if number == 1]
    assert [beside.due_us[at] for at in mine] == list(alone.due_us)
    assert [beside.commands[at] for at in mine] == list(alone.commands)


def test_a_rate_that_steps_down_to_nothing_sends_nothing_more() -> None:
    stops = replace(STREAM, arrivals=Steps(((0, 1_000.0), (400_000, 0.0))))
    plan = schedule(replace(LOAD, streams=(stops,)))
    assert 330 < len(plan.due_us) < 470
    assert max(plan.due_us) < 400_000


def test_what_cannot_be_sent_is_refused_by_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadValue, match="connections"):
        replace(STREAM, connections=0)
    with pytest.raises(BadValue, match="depth"):
        replace(STREAM, depth=0)
    with pytest.raises(BadValue, match="timeout_us"):
        replace(STREAM, timeout_us=0)
    with pytest.raises(BadValue, match="a port and a command"):
        replace(STREAM, ports=())
    with pytest.raises(BadValue, match="a port and a command"):
        replace(STREAM, commands=())
    with pytest.raises(BadValue, match="name of its own"):
        replace(LOAD, streams=(STREAM, STREAM))
    many = replace(STREAM, connections=3_000)
    with pytest.raises(BadValue, match="connections"):
        replace(LOAD, streams=(many, replace(many, name="b")))
    with pytest.raises(BadValue, match="one at least"):
        replace(LOAD, streams=())
    with pytest.raises(BadValue, match="span_us"):
        replace(LOAD, span_us=0)
    monkeypatch.setattr(load_module, "REQUESTS_MAX", 98)
    with pytest.raises(BadValue, match="more than 98 requests"):
        schedule(LOAD)
