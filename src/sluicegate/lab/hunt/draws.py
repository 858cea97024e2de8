"""Draws: the setup of a seed. Small numbers are drawn as often as large ones, and edges most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Final, TypeVar

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.dice import Dice
from sluicegate.lab.hunt.setup import Fault, Load, Setup
from sluicegate.testing import SeededChance

T = TypeVar("T")

CLASS_NAMES: Final = tuple(member.name for member in Criticality)


class Drawn:
    """Draws of one stream, in the forms that are needed."""

    def __init__(self, chance: SeededChance) -> None:
        self._draw = chance.draw

    def chance(self, share: float) -> bool:
        """True for that share."""
        return self._draw() < share

    def one_of(self, values: Sequence[T]) -> T:
        """Each equally likely."""
        return values[int(self._draw() * len(values))]

    def number(self, least: int, most: int) -> int:
        """Each magnitude equally likely."""
        if least >= most:
            return least
        low, high = log(least), log(most + 1)
        return min(int(exp(low + (high - low) * self._draw())), most)

    def even(self, least: int, most: int) -> int:
        """Each number equally likely."""
        return least + int(self._draw() * (most - least + 1))


def draw_setup(seed: int) -> Setup:
    """What is played for this seed."""
    drawn = Drawn(Dice(seed).of("setup"))
    return STAGES[drawn.one_of(_ORDER)](seed, drawn)


def _server(seed: int, drawn: Drawn) -> Setup:
    if drawn.chance(0.02):
        return _sick(seed, drawn)
    long = drawn.chance(0.1)
    span_ms = drawn.even(14_000, 20_000) if long else drawn.number(300, 3_000)
    workers = drawn.one_of((1, 2, 4, 8, 16) if not long else (4, 8, 16))
    service_us = drawn.one_of((2_000, 5_000, 10_000, 20_000, 50_000))
    capacity = max(workers * 1_000_000 // service_us, 10)
    times = drawn.one_of((0.5, 0.9, 1.2, 2.0, 5.0)) * (0.6 if long else 1.0)
    loads = []
    count = drawn.even(1, 4)
    for number in range(count):
        allowed = drawn.one_of(CLASS_NAMES)
        burst = drawn.chance(0.3) and not long
        rows = drawn.one_of((1, 1, 1, 5, 20))
        loads.append(
            Load(
                name=f"load{number}",
                criticality=allowed,
                claims=drawn.one_of(("", "", "", *CLASS_NAMES)),
                per_s=min(max(int(capacity * times / count / rows), 1), 800 if long else 1_500),
                on_ms=drawn.number(20, 500) if burst else 0,
                off_ms=drawn.number(20, 500) if burst else 0,
                timeout_ms=drawn.one_of((0, 20, 50, 100, 500, 500, 2_000)),
                callers=drawn.number(1, 300),
                rows=rows,
                rows_said=drawn.one_of((0, 0, 0, 1)),
                cancelled_permille=drawn.one_of((0, 0, 20, 200, 900)),
            )
        )
    shards = drawn.one_of((1, 1, 2, 5))
    knobs = {"workers": workers, "service_us": service_us, "shards": shards}
    knobs |= _server_knobs(drawn, workers)
    words = {
        "slow": (20, 100, 300),
        "pause": (0,),
        "fail": (100, 500, 1_000),
        "reshard": (1, 3, 20),
        "jump": (10, 1_000, 3_600_000),
    }
    places = ("", *(f"s{number}" for number in range(shards)))
    faults = _faults(drawn, span_ms if not long else 3_000, words, places)
    return Setup(
        stage="server",
        seed=seed,
        span_ms=span_ms,
        loads=tuple(loads),
        faults=faults,
        knobs=knobs,
    )


def _server_knobs(drawn: Drawn, workers: int) -> dict[str, int]:
    knobs = {}
    if drawn.chance(0.3):
        knobs["places"] = drawn.number(1, 3 * workers)
    if drawn.chance(0.3):
        knobs["length_max"] = drawn.number(1, 200)
    if drawn.chance(0.2):
        knobs["bytes_max"] = drawn.number(4_000, 200_000)
    if drawn.chance(0.5):
        knobs["cap"] = drawn.number(1, 2 * workers)
    if drawn.chance(0.3):
        knobs["pool"] = drawn.number(1, 3 * workers)
    if drawn.chance(0.4):
        knobs["rate_ru"] = drawn.number(5, 2_000)
    if drawn.chance(0.3):
        knobs["epoch_ms"] = drawn.one_of((100, 1_000))
    if drawn.chance(0.4):
        knobs["priced"] = 1
    if drawn.chance(0.25):
        knobs["adaptive"] = 1
    if drawn.chance(0.2):
        knobs["algorithm"] = drawn.even(1, 4)
    for name in ("gated", "parts_adapt"):
        if drawn.chance(0.15):
            knobs[name] = 1
    return knobs


def _sick(seed: int, drawn: Drawn) -> Setup:
    """Little to do, and then everything is slow for minutes."""
    workers = drawn.one_of((8, 16))
    load = Load(name="load0", per_s=drawn.number(50, 80), timeout_ms=2_000, callers=20)
    from_ms, much = 60_000, drawn.one_of((100, 200))
    span_ms = drawn.even(200_000, 300_000)
    return Setup(
        stage="server",
        seed=seed,
        span_ms=span_ms,
        loads=(load,),
        faults=(Fault(what="slow", from_ms=from_ms, until_ms=span_ms, much=much),),
        knobs={"workers": workers, "service_us": 5_000, "priced": 1},
    )


def _faults(
    drawn: Drawn,
    span_ms: int,
    words: Mapping[str, Sequence[int]],
    places: Sequence[str],
    most: int = 3,
) -> tuple[Fault, ...]:
    faults = []
    for _ in range(drawn.even(0, most)):
        what = drawn.one_of(tuple(words))
        from_ms = drawn.even(0, span_ms * 3 // 4)
        until_ms = min(from_ms + drawn.number(5, span_ms), span_ms)
        where, much = drawn.one_of(places), drawn.one_of(words[what])
        faults.append(Fault(what=what, from_ms=from_ms, until_ms=until_ms, where=where, much=much))
    return tuple(faults)


def _reads(seed: int, drawn: Drawn) -> Setup:
    span_ms = drawn.number(100, 3_000)
    loads = [
        Load(
            name=f"load{number}",
            criticality=drawn.one_of(CLASS_NAMES),
            per_s=drawn.number(20, 1_500),
            timeout_ms=drawn.one_of((0, 2, 10, 50, 500)),
            keys=drawn.number(1, 50),
            cancelled_permille=drawn.one_of((0, 20, 200, 900)),
            writes_permille=drawn.one_of((0, 10, 100, 500)),
        )
        for number in range(drawn.even(1, 3))
    ]
    knobs = {
        "fetch_us": drawn.number(10, 20_000),
        "ttl_ms": drawn.number(1, 1_000),
        "hot_min": drawn.one_of((1, 2, 5, 50)),
    }
    if drawn.chance(0.3):
        knobs["counters"] = drawn.number(1, 100)
    if drawn.chance(0.3):
        knobs["cache_bytes"] = drawn.number(200, 5_000)
    if drawn.chance(0.3):
        knobs["waiters_max"] = drawn.number(1, 20)
    if drawn.chance(0.3):
        knobs["places"] = drawn.number(1, 10)
    if drawn.chance(0.2):
        knobs["flights_max"] = drawn.number(1, 5)
    if drawn.chance(0.3):
        knobs["stale_ms"] = drawn.one_of((0, 100, 30_000))
    words = {"slow": (20, 100), "pause": (0,), "fail": (100, 500, 1_000)}
    faults = _faults(drawn, span_ms, words, ("", "k0", "k1"))
    return Setup(
        stage="reads", seed=seed, span_ms=span_ms, loads=tuple(loads), faults=faults, knobs=knobs
    )


def _client(seed: int, drawn: Drawn) -> Setup:
    span_ms = drawn.number(300, 6_000)
    hosts = drawn.one_of((1, 2, 5, 10))
    loads = [
        Load(
            name=f"load{number}",
            criticality=drawn.one_of(CLASS_NAMES),
            per_s=drawn.number(2, 300),
            timeout_ms=drawn.one_of((0, 20, 100, 1_000, 5_000)),
            keys=drawn.number(1, 50),
            cancelled_permille=drawn.one_of((0, 20, 200, 900)),
            idempotent=drawn.chance(0.7),
        )
        for number in range(drawn.even(1, 3))
    ]
    knobs = {"hosts": hosts, "service_us": drawn.number(500, 50_000)}
    if drawn.chance(0.5):
        knobs["hedge_from"] = drawn.number(5, 100)
    if drawn.chance(0.4):
        knobs["fallback"] = 1
    if drawn.chance(0.3):
        knobs["timeout_us"] = drawn.number(1_000, 1_000_000)
    if drawn.chance(0.3):
        knobs["base_us"] = drawn.number(100, 500_000)
    shares = (100, 500, 1_000)
    words = {
        "slow": (20, 100),
        "pause": (0,),
        "fail": shares,
        "refuse": shares,
        "limit": shares,
        "unreached": shares,
        "lose": shares,
    }
    faults = _faults(drawn, span_ms, words, ("", *(f"h{n}" for n in range(hosts))), most=4)
    return Setup(
        stage="client", seed=seed, span_ms=span_ms, loads=tuple(loads), faults=faults, knobs=knobs
    )


def _cluster(seed: int, drawn: Drawn) -> Setup:
    long = drawn.chance(0.4)
    span_ms = drawn.even(18_000, 25_000) if long else drawn.number(500, 8_000)
    nodes = drawn.one_of((1, 2, 4, 10))
    limit = drawn.one_of((20, 50, 200, 500))
    loads = []
    for number in range(drawn.even(1, 2)):
        burst = drawn.chance(0.3)
        loads.append(
            Load(
                name=f"account{number}",
                per_s=max(int(limit * drawn.one_of((0.1, 0.5, 0.9, 1.5, 3.0))), 1),
                on_ms=drawn.number(50, 2_000) if burst else 0,
                off_ms=drawn.number(50, 2_000) if burst else 0,
            )
        )
    knobs = {"nodes": nodes, "limit_per_s": limit}
    if drawn.chance(0.3):
        knobs["burst"] = drawn.one_of((0, limit // 2, 2 * limit))
    if drawn.chance(0.4):
        knobs["skew"] = drawn.number(2, 20)
    if drawn.chance(0.5):
        knobs["delay_us"] = drawn.number(100, 30_000)
    for name in ("loss", "reorder", "duplicate"):
        if drawn.chance(0.3):
            knobs[name] = drawn.one_of((10, 100, 500))
    words = {
        "cut": (0,),
        "gone": (0,),
        "takeover": (0,),
        "surge": (2_000, 10_000),
    }
    faults = _faults(drawn, 6_000 if long else span_ms, words, tuple(f"n{n}" for n in range(nodes)))
    faults = tuple(replace(one, where="") if one.what == "surge" else one for one in faults)
    return Setup(
        stage="cluster", seed=seed, span_ms=span_ms, loads=tuple(loads), faults=faults, knobs=knobs
    )


STAGES: Final[Mapping[str, Callable[[int, Drawn], Setup]]] = {
    "server": _server,
    "reads": _reads,
    "client": _client,
    "cluster": _cluster,
}
_ORDER: Final = tuple(STAGES)
