"""Which outcomes meet the bars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.zoo import draw as by
from sluicegate.lab.zoo.bars import BarFinding, judge, judge_all
from sluicegate.lab.zoo.outcome import Record
from sluicegate.lab.zoo.play import Outcomes
from sluicegate.lab.zoo.shape import SECOND_US, ZooRequest, ZooShape, draw_load
from sluicegate.lab.zoo.simple import GatedStation, InFlightGate, PlainGate, play_simple
from tests.lab.zoo.shapes import SEED, as_product, outcomes, station

MS = 1_000
ALL = ("nothing", "lifo", "oracle")


class One(InFlightGate):
    """A limit of one."""

    def __init__(self, station: GatedStation, slots: float) -> None:
        super().__init__(station, slots)
        self.limit = 1


class SlowCodel(PlainGate):
    """A queue that refuses after 200 ms, whatever the deadline."""

    WAIT_US = 200 * MS

    def __init__(self, station: GatedStation, slots: float) -> None:
        super().__init__(station, slots)
        self.queue: list[ZooRequest] = []

    def arrive(self, ask: ZooRequest) -> None:
        self.queue.append(ask)
        self.pump()

    def end(self, ask: ZooRequest, took_us: int) -> None:
        super().end(ask, took_us)
        self.pump()

    def pump(self) -> None:
        while self.queue and self.inflight < self.limit:
            ask = self.queue.pop(0)
            if self.station.now_us - ask.at_us > self.WAIT_US:
                self.station.refuse(ask)
            else:
                self.send(ask)


def missed(shape: ZooShape, found: Outcomes) -> set[str]:
    (judged,) = judge(shape, found)
    return {one.bar for one in judged.missed()}


def played(shape: ZooShape, gate: type[PlainGate]) -> Outcomes:
    load = draw_load(shape, SEED)
    found = outcomes(shape, *ALL)
    # The seed of the requests is that of the zoo's own players.
    return {**found, "known": play_simple(shape, load, gate, SEED).outcome()}


def test_nothing_equals_itself() -> None:
    for shape in (station(0.7), station(0.5, incidents=by.slowed(1, 1.5, 0))):
        assert not missed(shape, as_product(outcomes(shape, *ALL), "nothing"))


def test_limit_of_one_fails_a_load_that_can_be_carried() -> None:
    assert "of nothing" in missed(station(0.7), played(station(0.7), One))


def test_limit_of_one_fails_an_overload() -> None:
    assert {"of best simple", "CRITICAL of oracle"} <= missed(station(2), played(station(2), One))


def test_codel_of_200_ms_fails_a_stall() -> None:
    shape = station(0.6, patience=40, incidents=by.slowed(1, 2, 0))
    assert "of nothing" in missed(shape, played(shape, SlowCodel))


def test_codel_of_200_ms_fails_an_overload() -> None:
    shape = station(2, patience=3)
    assert {"of best simple", "CRITICAL of oracle"} <= missed(shape, played(shape, SlowCodel))


def test_oracle_meets_the_bars_of_an_overload() -> None:
    shape = station(2)
    assert not missed(shape, as_product(outcomes(shape, *ALL), "oracle"))


def test_nothing_fails_an_overload() -> None:
    shape = station(2)
    assert "of best simple" in missed(shape, as_product(outcomes(shape, *ALL), "nothing"))


def test_shape_outside_the_bounds_has_no_bars() -> None:
    shape = replace(station(2, patience=1.3), limit="patience below 1.6 x the work")
    assert not missed(shape, as_product(outcomes(shape, *ALL), "nothing"))


def test_patience_of_hardly_the_work_has_no_bar_of_useful_work() -> None:
    shape = station(2, patience=1.5, exact=True)
    assert "of best simple" not in missed(shape, as_product(outcomes(shape, *ALL), "nothing"))


def test_refusal_after_the_inevitable_instant_is_late() -> None:
    shape = station(2, patience=10, ms=100, exact=True)
    load = draw_load(shape, SEED)
    for after_ms, late_ms in ((800, 0), (960, 60)):
        record = Record(shape, load)
        for ask in load:
            record.refuse(ask, ask.at_us + after_ms * MS)
        assert record.outcome().refusal_late_us == late_ms * MS


def test_recovery_ends_with_last_second_that_serves_too_little() -> None:
    shape = station(0.5, until_us=10 * SECOND_US, incidents=by.slowed(2, 3, 1))
    load = draw_load(shape, SEED)
    record = Record(shape, load)
    for ask in load:
        if not 3 * SECOND_US <= ask.at_us < 5 * SECOND_US:
            record.answer(ask, ask.at_us + 1)
            record.end(ask)
    found = {**outcomes(shape, "nothing", "oracle"), "known": record.outcome()}
    (judged,) = judge(shape, found)
    (recovery,) = [one for one in judged.findings if one.bar == "recovery, s"]
    assert 1.7 <= recovery.value <= 2.1
    assert not recovery.met


def test_health_later_than_100_ms_fails() -> None:
    shape = station(0.5)
    found = as_product(outcomes(shape, *ALL), "nothing")
    assert "health, ms" not in missed(shape, found)
    late = replace(found["known"], health_us=101 * MS)
    assert "health, ms" in missed(shape, {**found, "known": late})


def test_slow_shard_of_fleet_has_separate_bars() -> None:
    shape = station(0.75, shards=4, slots=2, ms=20, patience=50, slow_shard=0, overload=True,
                    incidents=by.slowed(0, 100, 0.125, shard=0))  # fmt: skip
    found = outcomes(shape, *ALL)
    assert not missed(shape, as_product(found, "oracle"))
    assert {"of slow shard", "CRITICAL of slow shard"} <= missed(
        shape, as_product(found, "nothing")
    )


def test_command_must_not_be_below_its_best_column() -> None:
    shape = station(2, command=True)
    found = outcomes(shape, *ALL)
    assert "of best column" not in missed(shape, as_product(found, "lifo"))
    assert "of best column" in missed(shape, as_product(found, "nothing"))


@pytest.mark.parametrize(("name", "met"), [("oracle", 1), ("nothing", 0)])
def test_median_over_all_shapes_is_judged(name: str, met: int) -> None:
    shape = station(2)
    bars = judge_all(judge(shape, as_product(outcomes(shape, *ALL), name)))
    found = {one.name: one.met for one in bars if one.name.startswith("of oracle")}
    assert found == {"of oracle, median": met, "of oracle, 5th percentile": met}


def test_bar_over_all_shapes_names_the_worst() -> None:
    good, bad = station(0.7), replace(station(0.7), name="other")
    rows = judge(good, as_product(outcomes(good, *ALL), "nothing"))
    rows += judge(bad, played(bad, One))
    (bar,) = [one for one in judge_all(rows) if one.name == "of nothing"]
    assert (bar.where, bar.met, bar.shapes) == ("service: other", 1, 2)


def test_finding_may_be_bounded_from_above() -> None:
    assert BarFinding("a", 1, 1).met
    assert not BarFinding("a", 0.9, 1).met
    assert not BarFinding("a", 1.1, 1, at_least=False).met
