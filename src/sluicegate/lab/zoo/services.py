"""Services: the shapes that are played through `protect(app)`."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.durations import Constant, Lognormal
from sluicegate.lab.zoo import draw as by
from sluicegate.lab.zoo.draw import Draw, slowed, with_traffic
from sluicegate.lab.zoo.shape import HANGUP, HIDDEN, SECOND_US, SERVICE, ZooShape

_MS = 1_000


def services(seed: int) -> list[ZooShape]:
    """Return the shapes of a seed."""
    draw = Draw(seed, SERVICE)
    return [*_ordinary(draw), *_carried(draw), *_overloaded(draw), *_commands(draw), *_limits(draw)]


def _ordinary(draw: Draw) -> Iterator[ZooShape]:
    def at(name: str, ms: float, per_s: float, **fields: object) -> ZooShape:
        work = Constant(round(draw.around(f"{name}/ms", ms) * _MS))
        return draw.plain(name, per_s=per_s, work=work, ordinary=True, **fields)

    def llm(name: str, seconds: float, per_s: float, **fields: object) -> ZooShape:
        work = Lognormal(draw.around(f"{name}/s", seconds) * SECOND_US, 0.5)
        return draw.plain(name, per_s=per_s, work=work, ordinary=True, **fields)

    yield at("io 500 ms", 500, 40)
    yield at("io 100 ms", 100, 450, until_us=7 * SECOND_US)
    yield at("io 500 ms, deadline", 500, 40, patience_us=5 * SECOND_US)
    yield at("io 500 ms, hang-up", 500, 40, patience_us=5 * SECOND_US, tells=HANGUP)
    yield at("io 200 ms, bursts", 200, 60, arrivals=by.bursts(60)(60))
    yield at("stream", 30, 12, stream_us=3 * SECOND_US)
    yield at("sse", 5, 6, stream_us=20 * SECOND_US, drain_us=22 * SECOND_US)
    yield at("background", 20, 20, background_us=2 * SECOND_US)
    yield at("long poll", 5_000, 8, drain_us=8 * SECOND_US)
    yield at("upload", 50, 12, upload_us=3 * SECOND_US)
    yield at("websocket", 1, 15, stream_us=4 * SECOND_US, socket=True)
    yield llm("llm 3 s", 3, 10, drain_us=60 * SECOND_US)
    yield llm("llm 30 s", 30, 4, drain_us=400 * SECOND_US, until_us=60 * SECOND_US)
    yield llm("llm 10 s, deadline", 10, 5, drain_us=200 * SECOND_US, patience_us=120 * SECOND_US)


def _carried(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    yield at("threads", slots=8, cores=1, gil=True, known=2, ms=15, load=0.6, patience=40)
    yield at("cpu in the loop", slots=1, in_loop=True, known=0, ms=10, load=0.55, patience=50)
    yield at("pool", load=0.7)
    yield at("pool, no deadline", load=0.8, patience=0)
    yield at("pool, hang-up", load=0.7, tells=HANGUP)
    yield at("pool of 1", slots=1, ms=12, load=0.5, patience=20)
    yield at("pool of 64", slots=64, ms=600, load=0.85, patience=4)
    yield at("lognormal", law=by.lognormal, load=0.6, patience=20)
    yield at("bimodal", law=by.bimodal, slots=16, load=0.5, patience=0, drain_us=20 * SECOND_US)
    yield at("correlated", law=by.correlated, load=0.6, patience=20)
    yield at("bursts of 20", arrivals=by.bursts(20), load=0.5, patience=15)
    yield at("bursts of 60", arrivals=by.bursts(60), load=0.4, patience=20)
    yield at("on/off", arrivals=by.on_off(300, 4_000), ms=20, load=0.25, patience=100)
    yield at("diurnal", arrivals=by.diurnal(0.6), load=0.5)
    yield at("rush", arrivals=by.steps((0, 0.4), (8, 1)), load=0.85, patience=20)
    yield at("short stall", load=0.5, incidents=slowed(10, 10.4, 0), patience=0)
    yield with_traffic(
        at("two endpoints", load=0.5, patience=0, ms=40),
        Criticality.BULK,
        name="report",
        work=Constant(400 * _MS),
        share=0.02,
    )


def _overloaded(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    yield at("2x, 500 ms", slots=16, ms=500, load=2, patience=4.5, until_us=40 * SECOND_US)
    yield at("1.3x", load=1.3, patience=20)
    yield at("2x", load=2)
    yield at("2x, one class", load=2, mix=by.ONE_CLASS)
    yield at("4x, little patience", load=4, ms=220, patience=3)
    yield at("2x, least patience", load=2, patience=2.3)
    yield at("2x, 1 slot", slots=1, ms=18, load=2, patience=12)
    yield at("2x, 64 slots", slots=64, ms=900, load=2, patience=5)
    yield at("2x, hang-up", load=2, tells=HANGUP, patience=8)
    yield at("1.5x, hang-up", slots=4, ms=60, load=1.5, tells=HANGUP, patience=15)
    yield at("2x, no deadline", load=2, patience=0, drain_us=0)
    yield at("2x, bursts of 60", arrivals=by.bursts(60), load=2)
    yield at("1.5x, on/off", arrivals=by.on_off(400, 400), load=1.5)
    yield at("2x, lognormal", law=by.lognormal, load=2, patience=20)
    yield at("2x, exponential", law=by.exponential, load=2, patience=15)
    yield at("1.5x, correlated", law=by.correlated, load=1.5, patience=15)
    yield at("onset", arrivals=by.steps((0, 0.3), (5, 1)), load=2, onset_us=5 * SECOND_US)
    yield at(
        "flash crowd",
        arrivals=by.steps((0, 0.2), (6, 1), (14, 0.2)),
        load=3,
        onset_us=6 * SECOND_US,
        incidents=slowed(6, 14, 1),
    )
    yield at("halved", load=0.8, overload=True, incidents=slowed(4, 20, 0.5), onset_us=4_000_000)
    yield at("stalls", load=0.6, overload=True, incidents=by.stalls(4, 18), onset_us=4_000_000)
    yield at("2x, llm", slots=32, ms=6_000, load=2, patience=4, until_us=60 * SECOND_US,
             drain_us=40 * SECOND_US)  # fmt: skip
    yield at("2x, threads", slots=8, cores=1, gil=True, known=2, ms=15, load=2, patience=40)
    yield at("1.5x, cpu in the loop", slots=1, in_loop=True, known=0, ms=15, load=1.5, patience=50)
    yield with_traffic(
        at("2x, two endpoints", load=1.2, ms=100, patience=30, overload=True),
        Criticality.BULK,
        name="report",
        work=Constant(400 * _MS),
    )


def _commands(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    every = {Criticality.CRITICAL: 1.0}
    yield at("8 workers, on/off", ms=10, load=0.25, arrivals=by.on_off(300, 4_000), patience=200,
             law=by.exponential, exact=True, command=True, mix=by.ONE_CLASS,
             overload=True)  # fmt: skip
    yield at("1 worker, all CRITICAL", slots=1, ms=3, load=2, patience=25 / 3, mix=every,
             law=by.exponential, exact=True, command=True, until_us=6 * SECOND_US)  # fmt: skip
    yield at("32 workers, 200 ms", slots=32, ms=200, load=2, patience=25, mix=by.ONE_CLASS,
             law=by.exponential, exact=True, command=True, until_us=15 * SECOND_US)  # fmt: skip


def _limits(draw: Draw) -> Iterator[ZooShape]:
    at = draw.station
    yield at("patience of 0.5 x", load=2, patience=0.5, limit="patience below 1.6 x the work")
    yield at("patience of 1.3 x", load=2, patience=1.3, limit="patience below 1.6 x the work")
    yield at("hidden patience", load=2, patience=6, tells=HIDDEN,
             limit="patience neither told nor visible")  # fmt: skip
    yield at("hidden sizes", slots=8, cores=1, known=2, ms=15, load=2, law=by.bimodal, patience=40,
             limit="hidden sizes on a shared core")  # fmt: skip
    yield at("one a second", slots=1, ms=1_000, load=2, patience=6, limit="one answer a second")
