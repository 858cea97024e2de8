"""Engines: the shapes that are played through the dispatcher's chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.durations import Constant
from sluicegate.lab.zoo import draw as by
from sluicegate.lab.zoo.draw import Draw, slowed, with_traffic
from sluicegate.lab.zoo.shape import ENGINE, HANGUP, HIDDEN, SECOND_US, Cold, ZooShape

_MS = 1_000
_SLOTS = ((1, 18), (2, 35), (4, 70), (8, 130), (16, 250), (32, 450), (64, 800))


def engines(seed: int) -> list[ZooShape]:
    """Return the shapes of a seed."""
    draw = Draw(seed, ENGINE)
    return [
        *_sizes(draw),
        *_patience(draw),
        *_arrivals(draw),
        *_laws(draw),
        *_incidents(draw),
        *_fleets(draw),
        *_costs(draw),
        *_commands(draw),
        *_limits(draw),
    ]


def _sizes(draw: Draw) -> Iterator[ZooShape]:
    for slots, ms in _SLOTS:
        load = 0.5 if slots == 1 else 0.8
        yield draw.station(f"{slots} slots", slots=slots, ms=ms, load=load, patience=15)
        yield draw.station(f"2x, {slots} slots", slots=slots, ms=ms, load=2)


def _patience(draw: Draw) -> Iterator[ZooShape]:
    for times in (2.3, 3, 5, 20):
        yield draw.station(f"2x, patience of {times} x", load=2, patience=times)
    yield draw.station("2x, patience of 6 x, 32 slots", slots=32, ms=450, load=2, patience=6)
    yield draw.station("2x, hang-up after 5 x", load=2, patience=5, tells=HANGUP)
    yield draw.station("2x, hang-up after 12 x", load=2, patience=12, tells=HANGUP)
    yield draw.station("2x, no deadline", load=2, patience=0, drain_us=0)
    yield draw.station("no deadline", load=0.8, patience=0)
    yield draw.station("hang-up", load=0.7, patience=12, tells=HANGUP)


def _arrivals(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    yield at("bursts of 20", arrivals=by.bursts(20), load=0.5, patience=15)
    yield at("bursts of 60", arrivals=by.bursts(60), load=0.4, patience=20)
    yield at("on/off", arrivals=by.on_off(300, 4_000), ms=20, load=0.25, patience=100)
    yield at("diurnal", arrivals=by.diurnal(0.6), load=0.5)
    yield at("rush", arrivals=by.steps((0, 0.4), (8, 1)), load=0.85, patience=20)
    yield at("1.5x, bursts of 20", arrivals=by.bursts(20), load=1.5)
    yield at("2x, bursts of 60", arrivals=by.bursts(60), load=2)
    yield at("1.5x, on/off", arrivals=by.on_off(400, 400), load=1.5)
    yield at("1.3x, diurnal", arrivals=by.diurnal(0.5), load=1.3)
    yield at("onset", arrivals=by.steps((0, 0.3), (5, 1)), load=2, onset_us=5 * SECOND_US)
    yield at(
        "flash crowd",
        arrivals=by.steps((0, 0.2), (6, 1), (14, 0.2)),
        load=3,
        onset_us=6 * SECOND_US,
        incidents=slowed(6, 14, 1),
    )


def _laws(draw: Draw) -> Iterator[ZooShape]:
    for name, law in (("exponential", by.exponential), ("lognormal", by.lognormal)):
        yield draw.station(name, law=law, load=0.6, patience=20)
        yield draw.station(f"2x, {name}", law=law, load=2, patience=20)
    yield draw.station("correlated", law=by.correlated, load=0.6, patience=20)
    yield draw.station("1.5x, correlated", law=by.correlated, load=1.5, patience=15)
    yield draw.station("bimodal", law=by.bimodal, slots=16, load=0.5, patience=0,
                       drain_us=20 * SECOND_US)  # fmt: skip


def _incidents(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    late: dict[str, Any] = {"overload": True, "onset_us": 4 * SECOND_US}
    yield at("stalls", load=0.6, incidents=by.stalls(4, 18), **late)
    yield at("stalls, 2 s", load=0.6, patience=20, incidents=by.stalls(4, 18), **late)
    yield at("one stall", load=0.5, patience=5, incidents=slowed(10, 12, 0), overload=True,
             onset_us=10 * SECOND_US)  # fmt: skip
    yield at("half as fast", load=0.8, incidents=slowed(4, 20, 0.5), **late)
    yield at("half as fast, quotas", ms=10, load=0.8, patience=20, quota=1.5, callers=1,
             until_us=40 * SECOND_US,
             incidents=slowed(4, 34, 0.5), **late)  # fmt: skip
    yield at("halved slots", load=0.7, patience=20, incidents=slowed(4, 100, 0.5), **late)
    yield at("a stalled shard", shards=4, slots=2, ms=60, load=0.5,
             incidents=slowed(5, 8, 0, shard=1), **late)  # fmt: skip
    cold = (Cold(5 * SECOND_US, 15 * SECOND_US, 20.0),)
    yield with_traffic(
        at("cold table", shards=10, slots=2, ms=60, load=0.4, patience=40, overload=True,
           onset_us=5 * SECOND_US),
        Criticality.BULK,
        name="cold",
        cold=cold,
    )  # fmt: skip
    yield with_traffic(
        at("BULK's shard is slow, shared slots", shards=2, shared=True, load=0.5, patience=20,
           overload=True),
        Criticality.BULK,
        name="slow",
        shard=1,
        work=Constant(2_000 * _MS),
        patience_us=10 * SECOND_US,
        share=0.05,
    )  # fmt: skip
    starved: dict[str, Any] = {"starved": (100 * _MS, 40 * _MS)}
    yield at("starved", load=0.5, patience=15, **starved)
    yield at("starved, quotas", ms=10, load=0.5, patience=200, quota=1.5, callers=1,
             onset_us=4 * SECOND_US, **starved)  # fmt: skip
    yield at("2x, starved", load=2, patience=15, **starved)


def _fleets(draw: Draw) -> Iterator[ZooShape]:
    for fleet in (1, 4, 16, 64):
        yield draw.station(
            f"slow shard, {fleet} dispatchers",
            shards=4,
            slots=2,
            ms=20,
            load=0.75,
            patience=50,
            dispatchers=fleet,
            slow_shard=0,
            incidents=slowed(0, 100, 0.125, shard=0),
            until_us=20 * SECOND_US,
            overload=True,
        )
    for fleet in (4, 16, 64):
        yield draw.station(f"{fleet} dispatchers", slots=16, ms=250, load=0.75, patience=15,
                           dispatchers=fleet)  # fmt: skip
        yield draw.station(f"2x, {fleet} dispatchers", slots=16, ms=250, load=2, dispatchers=fleet)


def _costs(draw: Draw) -> Iterator[ZooShape]:
    for name, of in (("BULK", Criticality.BULK), ("CRITICAL", Criticality.CRITICAL)):
        for load in (0.6, 1.6):
            shape = draw.station(f"{load}x, {name} expensive", ms=90, load=load, patience=40)
            work = Constant(round(draw.around(f"{name}/dear", 600)) * _MS)
            shape = with_traffic(shape, of, name="multi", rows=20, work=work, share=0.06)
            yield replace(shape, overload=load > 1)


def _commands(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    yield at("16 workers, 500 ms", slots=16, ms=500, load=2, patience=4, law=by.exponential,
             mix=by.ONE_CLASS, exact=True, command=True, until_us=60 * SECOND_US)  # fmt: skip
    yield at("8 workers, 30 ms", slots=8, ms=10, load=1.5, patience=3, law=by.exponential,
             mix=by.ONE_CLASS, exact=True, command=True, until_us=5 * SECOND_US)  # fmt: skip


def _limits(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    yield at("patience of 0.5 x", load=2, patience=0.5, limit="patience below 1.6 x the work")
    yield at("patience of 1.3 x", load=2, patience=1.3, limit="patience below 1.6 x the work")
    yield at("hidden patience", load=2, patience=6, tells=HIDDEN,
             limit="patience neither told nor visible")  # fmt: skip
    yield at("2x, bimodal", law=by.bimodal, slots=16, load=2, patience=20,
             limit="hidden sizes, the long ones longer than their patience")  # fmt: skip
    yield at("one a second", slots=1, ms=1_000, load=2, patience=6, limit="one answer a second")
