"""Candidates on the same requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.durations import Constant
from sluicegate.lab.zoo import draw as by
from sluicegate.lab.zoo.draw import with_traffic
from sluicegate.lab.zoo.engine import play_engine
from sluicegate.lab.zoo.engines import engines
from sluicegate.lab.zoo.oracle import play_oracle
from sluicegate.lab.zoo.outcome import LEFT, REFUSED, SERVED, total
from sluicegate.lab.zoo.play import CANDIDATES, ConstantChange, Play, choose, key_of, play
from sluicegate.lab.zoo.service import play_service
from sluicegate.lab.zoo.services import services
from sluicegate.lab.zoo.shape import ENGINE, HANGUP, SECOND_US, ZooShape, draw_load
from sluicegate.lab.zoo.simple import SIMPLE, PlainGate, play_simple
from tests.lab.zoo.shapes import SEED, outcomes, station

MS = 1_000
BARE = {
    "pool": station(0.8),
    "overload": station(2),
    "hang-up": station(2, tells=HANGUP, patience=3),
    "loop": station(0.7, slots=1, ms=10, in_loop=True),
    "cores": station(2, cores=1),
    "phases": with_traffic(
        station(0.5), Criticality.DEGRADED, upload_us=400 * MS, stream_us=800 * MS
    ),
    "stall": station(0.5, incidents=by.slowed(1, 2, 0)),
}


def test_shapes_are_many_and_their_names_differ() -> None:
    for family, at_least in ((services, 40), (engines, 60)):
        names = [shape.name for shape in family(SEED)]
        assert len(names) == len(set(names)) >= at_least


def test_shapes_of_another_seed_have_other_numbers() -> None:
    same, other = services(SEED), services(SEED + 1)
    assert same == services(SEED)
    jittered = [one for one in same if not one.command]
    assert not {one.name for one in jittered if one in other}


def test_load_repeats_with_same_seed() -> None:
    shape = station(1)
    assert draw_load(shape, 1) == draw_load(shape, 1) != draw_load(shape, 2)


def test_correlated_work_resembles_the_work_before() -> None:
    shape = station(20, law=by.correlated, mix=by.ONE_CLASS)
    works = [ask.work_us for ask in draw_load(shape, 3)]
    before, after = works[:-1], works[1:]
    mean = sum(works) / len(works)
    alike = sum((a - mean) * (b - mean) for a, b in zip(before, after, strict=True))
    assert alike / sum((one - mean) ** 2 for one in works) > 0.9


@pytest.mark.parametrize("name", BARE)
def test_bare_application_equals_nothing(name: str) -> None:
    shape = BARE[name]
    load = draw_load(shape, SEED)
    bare = play_service(shape, load, SEED, known=True, protected=False)
    nothing = play_simple(shape, load, PlainGate, SEED)
    assert bare.fate == nothing.fate
    assert bare.first_us == nothing.first_us


@pytest.mark.parametrize("shape", [station(0.6, ENGINE), station(2, ENGINE)], ids=["calm", "2x"])
def test_oracle_does_most_useful_work(shape: ZooShape) -> None:
    found = outcomes(shape, *CANDIDATES)
    useful = {name: total(one.useful_us) for name, one in found.items()}
    assert max(useful.values()) <= useful["oracle"] * 1.02


def test_oracle_serves_critical_first() -> None:
    found = outcomes(station(3), "oracle")["oracle"]
    assert found.share("CRITICAL") > 0.99
    assert found.share("BULK") < 0.05


def test_oracle_never_answers_late() -> None:
    shape = station(3, patience=2.5)
    record = play_oracle(shape, draw_load(shape, SEED))
    assert set(record.fate) == {SERVED, REFUSED}


def test_lifo_drops_late_requests_and_serves_others() -> None:
    shape = station(2)
    record = play_simple(shape, draw_load(shape, SEED), SIMPLE["lifo"], SEED)
    useful = total(record.outcome().useful_us)
    assert useful > 0.93 * shape.slots * shape.until_us
    assert record.fate.count(REFUSED) > 0


def test_callers_that_hang_up_leave_queue() -> None:
    shape = station(2, tells=HANGUP, patience=3)
    record = play_simple(shape, draw_load(shape, SEED), SIMPLE["lifo"], SEED)
    left = [at for at, fate in enumerate(record.fate) if fate == LEFT]
    assert left
    assert sum(record.begun[at] for at in left) < 0.1 * len(left)


def test_starved_process_delays_answers_and_no_work() -> None:
    calm = station(0.5, ENGINE)
    starved = replace(calm, starved=(100 * MS, 40 * MS))
    before, after = (outcomes(one, "nothing")["nothing"] for one in (calm, starved))
    assert total(after.useful_us) == total(before.useful_us)
    assert after.p99_us > before.p99_us


def test_quota_below_need_rejects_requests() -> None:
    shape = replace(station(0.5, ENGINE), quota=0.5)
    load = draw_load(shape, SEED)
    record = play_engine(shape, load, SEED, known=True)
    assert 0.3 < record.outcome().share() < 0.7


def test_changed_constant_holds_for_one_play() -> None:
    shape = station(0.5, slots=1, ms=10, in_loop=True, known=0)
    change = ConstantChange("sluicegate.lab.zoo.service", "LOOP_IO_US", 50 * MS)
    plain, changed, again = (
        play(Play(SEED, shape, ("found",), one))["found"] for one in (None, change, None)
    )
    assert changed.p99_us > plain.p99_us + 30 * MS
    assert again == plain


def test_stream_and_background_work_take_no_slot() -> None:
    shape = with_traffic(
        station(0.9, mix=by.ONE_CLASS), Criticality.DEGRADED, stream_us=SECOND_US,
        background_us=SECOND_US, work=Constant(30 * MS),
    )  # fmt: skip
    load = draw_load(shape, SEED)
    bare = play_service(shape, load, SEED, known=True, protected=False)
    assert bare.outcome().share() == 1


def test_choose_finds_shapes_by_part_of_name() -> None:
    found = choose(services(SEED), "service: stream; flash crowd")
    assert [key_of(one) for one in found] == ["service: stream", "service: flash crowd"]


def test_failure_of_candidate_names_shape_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(station: object, slots: float) -> PlainGate:
        raise ValueError("broken")

    monkeypatch.setitem(SIMPLE, "lifo", fail)
    with pytest.raises(ValueError, match="broken") as caught:
        outcomes(station(0.5), "lifo")
    assert f"in the shape 'service: small' of seed {SEED}, played by lifo" in caught.value.__notes__
