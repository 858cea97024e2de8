"""Draws: the setup of a seed. Small numbers are drawn as often as large ones, and edges most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Final, TypeVar

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.hunt.setup import HuntFault, HuntLoad, Setup
from sluicegate.lab.random_source import RandomSource
from sluicegate.testing import SeededChance

T = TypeVar("T")

CLASS_NAMES: Final = tuple(member.name for member in Criticality)


class SetupDraws:
    """Draws of one stream, in the forms that are needed."""

    def __init__(self, chance: SeededChance) -> None:
        self._draw = chance.draw

    def chance(self, share: float) -> bool:
        """Return true for that share."""
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

    def maybe(self, share: float, name: str, draw: Callable[[], int]) -> dict[str, int]:
        """Return a knob for that share, and none for the rest."""
        return {name: draw()} if self.chance(share) else {}

    def even(self, least: int, most: int) -> int:
        """Each number equally likely."""
        return least + int(self._draw() * (most - least + 1))


def draw_setup(seed: int) -> Setup:
    """Return the setup of a seed."""
    draws = SetupDraws(RandomSource(seed).of("setup"))
    return STAGES[draws.one_of(_ORDER)](seed, draws)


def _server(seed: int, draws: SetupDraws) -> Setup:
    if draws.chance(0.02):
        return _sick(seed, draws)
    long = draws.chance(0.1)
    span_ms = draws.even(14_000, 20_000) if long else draws.number(300, 3_000)
    workers = draws.one_of((1, 2, 4, 8, 16) if not long else (4, 8, 16))
    service_us = draws.one_of((2_000, 5_000, 10_000, 20_000, 50_000))
    capacity = max(workers * 1_000_000 // service_us, 10)
    times = draws.one_of((0.5, 0.9, 1.2, 2.0, 5.0)) * (0.6 if long else 1.0)
    loads = []
    count = draws.even(1, 4)
    for number in range(count):
        allowed = draws.one_of(CLASS_NAMES)
        burst = draws.chance(0.3) and not long
        rows = draws.one_of((1, 1, 1, 5, 20))
        loads.append(
            HuntLoad(
                name=f"load{number}",
                criticality=allowed,
                claims=draws.one_of(("", "", "", *CLASS_NAMES)),
                per_s=min(max(int(capacity * times / count / rows), 1), 800 if long else 1_500),
                on_ms=draws.number(20, 500) if burst else 0,
                off_ms=draws.number(20, 500) if burst else 0,
                timeout_ms=draws.one_of((0, 20, 50, 100, 500, 500, 2_000)),
                callers=draws.number(1, 300),
                rows=rows,
                rows_said=draws.one_of((0, 0, 0, 1)),
                cancelled_permille=draws.one_of((0, 0, 20, 200, 900)),
            )
        )
    shards = draws.one_of((1, 1, 2, 5))
    knobs = {"workers": workers, "service_us": service_us, "shards": shards}
    knobs |= _server_knobs(draws, workers)
    amounts = {
        "slow": (20, 100, 300),
        "pause": (0,),
        "fail": (100, 500, 1_000),
        "jump": (10, 1_000, 3_600_000),
    }
    places = ("", *(f"s{number}" for number in range(shards)))
    faults = _faults(draws, span_ms if not long else 3_000, amounts, places)
    return _setup("server", seed, span_ms, loads, faults, knobs)


def _server_knobs(draws: SetupDraws, workers: int) -> dict[str, int]:
    knobs: dict[str, int] = {}
    knobs |= draws.maybe(0.6, "slots", lambda: draws.number(1, 3 * workers))
    knobs |= draws.maybe(0.3, "length_max", lambda: draws.number(1, 200))
    knobs |= draws.maybe(0.2, "bytes_max", lambda: draws.number(4_000, 200_000))
    knobs |= draws.maybe(0.4, "rate_ru", lambda: draws.number(5, 2_000))
    knobs |= draws.maybe(0.3, "epoch_ms", lambda: draws.one_of((100, 1_000)))
    knobs |= draws.maybe(0.4, "priced", lambda: 1)
    return knobs


def _sick(seed: int, draws: SetupDraws) -> Setup:
    """Little to do, and then everything is slow for minutes."""
    workers = draws.one_of((8, 16))
    load = HuntLoad(name="load0", per_s=draws.number(50, 80), timeout_ms=2_000, callers=20)
    from_ms, much = 60_000, draws.one_of((100, 200))
    span_ms = draws.even(200_000, 300_000)
    return Setup(
        stage="server",
        seed=seed,
        span_ms=span_ms,
        loads=(load,),
        faults=(HuntFault(what="slow", from_ms=from_ms, until_ms=span_ms, much=much),),
        knobs={"workers": workers, "service_us": 5_000, "priced": 1},
    )


def _setup(
    stage: str,
    seed: int,
    span_ms: int,
    loads: Sequence[HuntLoad],
    faults: tuple[HuntFault, ...],
    knobs: Mapping[str, int],
) -> Setup:
    return Setup(
        stage=stage, seed=seed, span_ms=span_ms, loads=tuple(loads), faults=faults, knobs=knobs
    )


def _faults(
    draws: SetupDraws,
    span_ms: int,
    amounts: Mapping[str, Sequence[int]],
    places: Sequence[str],
    most: int = 3,
) -> tuple[HuntFault, ...]:
    faults = []
    for _ in range(draws.even(0, most)):
        what = draws.one_of(tuple(amounts))
        from_ms = draws.even(0, span_ms * 3 // 4)
        until_ms = min(from_ms + draws.number(5, span_ms), span_ms)
        where, much = draws.one_of(places), draws.one_of(amounts[what])
        faults.append(
            HuntFault(what=what, from_ms=from_ms, until_ms=until_ms, where=where, much=much)
        )
    return tuple(faults)


def _reads(seed: int, draws: SetupDraws) -> Setup:
    span_ms = draws.number(100, 3_000)
    loads = [
        HuntLoad(
            name=f"load{number}",
            criticality=draws.one_of(CLASS_NAMES),
            per_s=draws.number(20, 1_500),
            timeout_ms=draws.one_of((0, 2, 10, 50, 500)),
            keys=draws.number(1, 50),
            cancelled_permille=draws.one_of((0, 20, 200, 900)),
            writes_permille=draws.one_of((0, 10, 100, 500)),
        )
        for number in range(draws.even(1, 3))
    ]
    knobs = {
        "fetch_us": draws.number(10, 20_000),
        "ttl_ms": draws.number(1, 1_000),
        "reads_min": draws.one_of((0, 1, 4, 49)),
    }
    knobs |= draws.maybe(0.3, "counters", lambda: draws.number(1, 100))
    knobs |= draws.maybe(0.3, "cache_bytes", lambda: draws.number(200, 5_000))
    knobs |= draws.maybe(0.3, "waiters_max", lambda: draws.number(1, 20))
    knobs |= draws.maybe(0.3, "places", lambda: draws.number(1, 10))
    knobs |= draws.maybe(0.2, "flights_max", lambda: draws.number(1, 5))
    knobs |= draws.maybe(0.3, "stale_ms", lambda: draws.one_of((0, 100, 30_000)))
    amounts = {"slow": (20, 100), "pause": (0,), "fail": (100, 500, 1_000)}
    faults = _faults(draws, span_ms, amounts, ("", "k0", "k1"))
    return _setup("reads", seed, span_ms, loads, faults, knobs)


def _client(seed: int, draws: SetupDraws) -> Setup:
    span_ms = draws.number(300, 6_000)
    hosts = draws.one_of((1, 2, 5, 10))
    loads = [
        HuntLoad(
            name=f"load{number}",
            criticality=draws.one_of(CLASS_NAMES),
            per_s=draws.number(2, 300),
            timeout_ms=draws.one_of((0, 20, 100, 1_000, 5_000)),
            keys=draws.number(1, 50),
            cancelled_permille=draws.one_of((0, 20, 200, 900)),
            idempotent=draws.chance(0.7),
        )
        for number in range(draws.even(1, 3))
    ]
    knobs = {"hosts": hosts, "service_us": draws.number(500, 50_000)}
    knobs |= draws.maybe(0.5, "hedge_from", lambda: draws.number(5, 100))
    knobs |= draws.maybe(0.4, "fallback", lambda: 1)
    knobs |= draws.maybe(0.3, "timeout_us", lambda: draws.number(1_000, 1_000_000))
    knobs |= draws.maybe(0.3, "base_us", lambda: draws.number(100, 500_000))
    shares = (100, 500, 1_000)
    amounts = {
        "slow": (20, 100),
        "pause": (0,),
        "fail": shares,
        "refuse": shares,
        "limit": shares,
        "unreached": shares,
        "lose": shares,
    }
    faults = _faults(draws, span_ms, amounts, ("", *(f"h{n}" for n in range(hosts))), most=4)
    return _setup("client", seed, span_ms, loads, faults, knobs)


def _cluster(seed: int, draws: SetupDraws) -> Setup:
    long = draws.chance(0.4)
    span_ms = draws.even(18_000, 25_000) if long else draws.number(500, 8_000)
    nodes = draws.one_of((1, 2, 4, 10))
    limit = draws.one_of((20, 50, 200, 500))
    loads = []
    for number in range(draws.even(1, 2)):
        burst = draws.chance(0.3)
        loads.append(
            HuntLoad(
                name=f"account{number}",
                per_s=max(int(limit * draws.one_of((0.1, 0.5, 0.9, 1.5, 3.0))), 1),
                on_ms=draws.number(50, 2_000) if burst else 0,
                off_ms=draws.number(50, 2_000) if burst else 0,
            )
        )
    knobs = {"nodes": nodes, "limit_per_s": limit}
    knobs |= draws.maybe(0.3, "burst", lambda: draws.one_of((0, limit // 2, 2 * limit)))
    knobs |= draws.maybe(0.4, "skew", lambda: draws.number(2, 20))
    knobs |= draws.maybe(0.5, "delay_us", lambda: draws.number(100, 30_000))
    for name in ("loss", "reorder", "duplicate"):
        knobs |= draws.maybe(0.3, name, lambda: draws.one_of((10, 100, 500)))
    amounts = {
        "cut": (0,),
        "gone": (0,),
        "takeover": (0,),
        "surge": (2_000, 10_000),
    }
    faults = _faults(
        draws, 6_000 if long else span_ms, amounts, tuple(f"n{n}" for n in range(nodes))
    )
    faults = tuple(replace(one, where="") if one.what == "surge" else one for one in faults)
    return _setup("cluster", seed, span_ms, loads, faults, knobs)


def _dispatcher(seed: int, draws: SetupDraws) -> Setup:
    """Far too much to do for seconds, or room to spare and something slow, after a minute."""
    if draws.chance(0.6):
        return _crowded_dispatcher(seed, draws)
    work_us = draws.one_of((2_000, 5_000, 10_000, 20_000))
    shards = draws.one_of((2, 3, 5))
    knobs = {"shards": shards, "slots": draws.one_of((8, 16, 64)), "service_us": work_us}
    per_s = draws.even(10 * shards, 20 * shards)
    count = draws.even(1, 4)
    loads = [
        HuntLoad(
            name=f"load{number}",
            criticality=draws.one_of(CLASS_NAMES),
            per_s=max(per_s // count, 1),
            timeout_ms=draws.one_of((0, 200, 500, 2_000)),
        )
        for number in range(count)
    ]
    # What is usual is known after a minute.
    known_ms = 62_000
    where = f"s{draws.even(0, shards - 1)}"
    until_ms = known_ms + draws.even(5_000, 15_000)
    amounts = {"slow": (2, 5, 20, 100, 300)}
    [fault] = _faults(draws, 1_000, amounts, (where,), most=1) or (HuntFault(what="pause"),)
    fault = replace(fault, from_ms=known_ms, until_ms=until_ms)
    if fault.what == "pause":
        fault = replace(fault, until_ms=known_ms + draws.number(100, 3_000))
    return _setup("dispatcher", seed, until_ms + 3_000, loads, (fault,), knobs)


def _crowded_dispatcher(seed: int, draws: SetupDraws) -> Setup:
    slots, work_us = draws.one_of((4, 8)), draws.one_of((20_000, 50_000, 100_000))
    capacity = slots * 1_000_000 // work_us
    times = draws.one_of((0.5, 0.9, 1.5, 3.0, 5.0))
    count = draws.even(1, 4)
    loads = [
        HuntLoad(
            name=f"load{number}",
            criticality=draws.one_of(CLASS_NAMES),
            per_s=max(int(capacity * times / count), 1),
            timeout_ms=draws.one_of((0, 200, 500, 2_000)),
        )
        for number in range(count)
    ]
    knobs = {"slots": slots, "service_us": work_us, "memoryless": 1}
    span_ms = draws.one_of((2_000, 14_000))
    return _setup("dispatcher", seed, span_ms, loads, (), knobs)


STAGES: Final[Mapping[str, Callable[[int, SetupDraws], Setup]]] = {
    "server": _server,
    "reads": _reads,
    "client": _client,
    "cluster": _cluster,
    "dispatcher": _dispatcher,
}
_ORDER: Final = tuple(STAGES)
