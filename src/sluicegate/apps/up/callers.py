"""Callers: who asks in the demo, for what and when. Pure: the instant and chance are arguments.

A profile is a way to behave; each has some callers, whose number follows from the load and from
how hard one of them presses on its limit. Asks come open-loop, in a Poisson process a profile: a
slow answer does not slow the callers down, as it would not in the world. The rate of a process
rises and falls with a tide of its own, by thinning (Lewis and Shedler, "Simulation of
nonhomogeneous Poisson processes by thinning", 1979), so that the picture moves.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, count
from typing import Final, NamedTuple, final

from sluicegate.apps.up.settings import NamedRule
from sluicegate.contracts.chance import Chance

SECOND_US: Final = 1_000_000
CALLERS_MAX: Final = 10_000
BURST_ASKS_MAX: Final = 100
BURST_GAP_US: Final = 8_000
COST_MAX: Final = 1 << 40


class Profile(NamedTuple):
    """A way to behave. `pressure` is what one caller asks for, in multiples of its limit."""

    name: str
    rule: str
    share: float  # of all requests
    pressure: float
    tide_s: float = 60.0
    tide: float = 0.0  # 0 is steady; 1 goes from nothing to twice the mean
    bursts: bool = False  # asks for two bursts' worth at once, then rests
    zipf: bool = False  # the first of many small users asks most
    batch: bool = False  # asks for more than 1, and now and then for more than there can be


PROFILES: Final = (
    Profile("app", "api", 0.20, 0.6, tide_s=120, tide=0.3),
    Profile("crawler", "api", 0.25, 10.0, tide_s=47, tide=0.9),
    Profile("dashboard", "search", 0.15, 0.5, bursts=True),
    Profile("user", "pages", 0.28, 0.056, tide_s=75, tide=0.5, zipf=True),
    Profile("nightly", "export", 0.06, 1.4, tide_s=40, tide=0.8, batch=True),
    Profile("guesser", "login", 0.04, 100.0, tide_s=90, tide=0.7),
    Profile("person", "login", 0.02, 0.3),
)


class DemoRequest(NamedTuple):
    """One request: when, by which rule, for whom, how much."""

    at_us: int
    rule: str
    key: str
    cost: int


@final
class ProfileProcess:
    """The asks of one profile under one rule."""

    def __init__(
        self, profile: Profile, rule: NamedRule, load_per_s: float, chance: Chance
    ) -> None:
        limit = rule.limit
        self._profile = profile
        self._rule = rule
        self._draw = chance.draw
        self._size = min(2 * limit.burst, BURST_ASKS_MAX) if profile.bursts else 1
        # Costs are spread evenly over magnitudes, from 1 to a tenth of the burst.
        self._cost_top = max(limit.burst / 10, 1.0) if profile.batch else 1.0
        per_s = load_per_s * profile.share
        each_per_s = profile.pressure * limit.count * SECOND_US / limit.period_us
        mean_cost = (self._cost_top - 1) / math.log(self._cost_top) if self._cost_top > 1 else 1.0
        callers = min(max(round(per_s * mean_cost / each_per_s), 1), CALLERS_MAX)
        weights = [1 / rank if profile.zipf else 1.0 for rank in range(1, callers + 1)]
        self._sums = list(accumulate(weights))
        # The process runs at its high tide; the rest is thinned out.
        self._gap_us = SECOND_US * self._size / (per_s * (1 + profile.tide))

    def bursts(self, now_us: int) -> Iterator[list[DemoRequest]]:
        """Burst after burst from `now_us` on, by their beginnings in order, without end."""
        at_us = float(now_us)
        while True:
            at_us -= self._gap_us * math.log(1 - self._draw())
            if self._draw() * (1 + self._profile.tide) > self._height(at_us):
                continue
            key = f"{self._profile.name}-{1 + bisect(self._sums, self._draw() * self._sums[-1])}"
            yield [
                DemoRequest(int(at_us) + i * BURST_GAP_US, self._rule.name, key, self._cost())
                for i in range(self._size)
            ]

    def _height(self, at_us: float) -> float:
        phase = at_us / (self._profile.tide_s * SECOND_US)
        return 1 + self._profile.tide * math.sin(2 * math.pi * phase)

    def _cost(self) -> int:
        if not self._profile.batch:
            return 1
        draw = self._draw()
        if draw < 0.01:
            return min(self._rule.limit.burst + 1, COST_MAX)
        return min(int(self._cost_top ** self._draw()), COST_MAX)


def demo_requests(
    rules: Sequence[NamedRule], load_per_s: float, chance: Chance, now_us: int
) -> Iterator[DemoRequest]:
    """All asks of all profiles in order. Where the demo's rules are not, others stand in."""
    by_name = {rule.name: rule for rule in rules}
    # What comes next, and after it the rest of its burst and the rest of its stream.
    waiting: list[
        tuple[DemoRequest, int, list[DemoRequest], Iterator[list[DemoRequest]] | None]
    ] = []
    pushed = count()
    for place, profile in enumerate(PROFILES):
        rule = by_name.get(profile.rule, rules[place % len(rules)])
        stream = ProfileProcess(profile, rule, load_per_s, chance).bursts(now_us)
        first, *rest = next(stream)
        heappush(waiting, (first, next(pushed), rest, stream))
    while True:
        ask, _, rest, stream_or_none = heappop(waiting)
        yield ask
        if rest:
            heappush(waiting, (rest[0], next(pushed), rest[1:], None))
        if stream_or_none is not None:
            first, *rest = next(stream_or_none)
            heappush(waiting, (first, next(pushed), rest, stream_or_none))
