"""EndpointCost: which endpoints are heavy, by rule or by what their work has taken.

It refuses nobody. It says of an endpoint whether it belongs into the line for light work or into
the one for heavy work, so that what holds a place for long holds none that quick work needs.

    named by rule               as the rule says
    mean above `heavy_us`       heavy, until it is below half of that
    so many under way already   heavy for whoever comes next, as long as others are light too

The third is for the endpoint that becomes slow all at once: before any of its work has ended there
is nothing to learn from, and by then it would hold every place. So one endpoint fills at most
`light_share` of the light places. Others are those that were light within the last minute for what
matters as much or more: class comes first, and what is CRITICAL keeps no places free for BULK. It
does not hold for work that takes less than an eighth of `heavy_us` and still ends as it used to:
that gives its places back at once, and behind heavy work it would wait for nothing. Of a service
with one endpoint 50 times slower, 7% of the requests of the other were lost so, which came in small
crowds. At once is seen from what is quickest: if its work held all places, one would have to come
free within eight times what that takes, and within the delay that the queue still calls good
(`target_us`), or a crowd of quick ones is taken for a line that stands; but for twice what the
quickest takes nobody is held. Of four places 100 ms are too long beside 2 ms, of 32 they are not:
0.4% of the requests of the quick one were lost and 44% of its own served; held to half of the
places, none and 95% (virtual time, 100 a second, four places). By the eight times alone 0.24% were
lost beside 3 to 8 ms, which 2 ms are on a busy machine, and none of 12,000 is lost by both.

Light work is of one of four magnitudes, each an eighth of the one above, from `heavy_us` down. Each
has a line of its own (`magnitude`), and a place that is free goes to the line that was served
least, in time: an endpoint whose work is short waits behind none whose work is eight times as long,
and neither keeps a place from the other while that has nothing to do. What has not ended once is of
the greatest. To a greater one an endpoint comes after eight units whose mean was above its bound,
to a lesser one after 64 whose mean was below half of it: a mean of eight is off by a quarter, and
the line that it comes into has no verdict yet. At five times the capacity (work of 10 ms, bound
3.9) 3% of the refusals were told after 47 to 88 ms for half a dozen units in the other line (`lab
run queues`, seed 30000; 11 to 12 now). Two units of 90 ms among six (bound 31) made a line of 0.2 s
twice, there and back again, when one above the bound was enough (`lab run overload`, seed 52002).

What nobody has asked for in ten minutes is forgotten where there is no room for a new one: whoever
invents paths would otherwise have all that come after share one mean for ever, quick and slow.

Cost: a look-up; learning is an average in integers; without room, a look at all endpoints once a
second. Bounds: `endpoints_max`, the rest share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.policies.keyed_table import FORGET_US

MAGNITUDES: Final = ("", "eighth", "64th", "512th")  # of `heavy_us`, at most
OTHERS: Final = "(others)"
QUICK: Final = 8  # times as quick as heavy work, at least
AHEAD: Final = 8  # times what the quickest takes, a place comes free at the latest
STUCK: Final = 4  # times the mean without an end, and at least `STUCK_US_MIN`
STUCK_US_MIN: Final = 10_000
RECENT_US: Final = 60_000_000
LESSER_AFTER: Final = 64  # units in a row by whose mean it would be of a lesser magnitude
GREATER_AFTER: Final = 8  # and of a greater one
TARGET_US: Final = 10_000
_SWEEP_US: Final = 1_000_000
_SHIFT: Final = 3  # a unit of work weighs an eighth of the mean


@final
class _Endpoint:
    __slots__ = ("heavy", "light_under_way", "magnitude", "mean_us", "moved_us", "quick", "slow")

    def __init__(self) -> None:
        self.mean_us = 0
        self.magnitude = 0  # of MAGNITUDES
        self.quick = 0  # units in a row by which it would be of a lesser one
        self.slow = 0  # and of a greater one
        self.heavy = False
        self.light_under_way = 0
        self.moved_us = 0  # when it last began to work, or ended some


@final
class _Recent:
    """The last two endpoints that have done light work of one class, and the quickest."""

    __slots__ = ("_last", "_last_us", "_other", "_other_us", "_quickest", "_quickest_us")

    def __init__(self) -> None:
        self._last: _Endpoint | None = None
        self._other: _Endpoint | None = None
        self._quickest: _Endpoint | None = None
        self._last_us = self._other_us = self._quickest_us = 0

    def record(self, endpoint: _Endpoint, now_us: int) -> None:
        if endpoint is not self._last:
            self._other, self._other_us = self._last, self._last_us
            self._last = endpoint
        self._last_us = now_us
        quickest = self._quickest
        if (
            quickest is None
            or quickest.mean_us == 0
            or 0 < endpoint.mean_us <= quickest.mean_us
            or now_us - self._quickest_us >= RECENT_US
        ):
            self._quickest, self._quickest_us = endpoint, now_us

    def quickest_us(self, but: _Endpoint, now_us: int) -> int:
        """Return the mean of the quickest; 0 if there was none lately, or it is this one."""
        quickest = self._quickest
        if quickest is None or quickest is but or now_us - self._quickest_us >= RECENT_US:
            return 0
        return quickest.mean_us

    def has(self, but: _Endpoint | None, now_us: int) -> bool:
        """Whether one of them, but this, is light and was so lately."""
        last, other = self._last, self._other
        if last is not None and last is not but and not last.heavy:
            return now_us - self._last_us < RECENT_US
        if other is None or other is but or other.heavy:
            return False
        return now_us - self._other_us < RECENT_US


@final
class EndpointCost:
    """Learns by endpoint; `rules` name those that are heavy (True) or light (False) always."""

    __slots__ = (
        "_endpoints", "_endpoints_max", "_heavy_us", "_light_max", "_places", "_recent", "_rules",
        "_swept_us", "_target_us",
    )  # fmt: skip

    def __init__(
        self,
        *,
        heavy_us: int,
        places: int,
        light_max: int,
        endpoints_max: int,
        rules: Mapping[str, bool],
        target_us: int = TARGET_US,
    ) -> None:
        self._target_us = target_us
        self._heavy_us = heavy_us
        self._places = places
        self._light_max = light_max
        self._endpoints_max = endpoints_max
        self._rules = dict(rules)
        self._endpoints: dict[str, _Endpoint] = {}
        self._recent = [_Recent() for _ in Criticality]
        self._swept_us = 0

    def is_heavy(
        self, endpoint: str, now_us: int, criticality: Criticality = DEFAULT_CRITICALITY
    ) -> bool:
        """Whether the next request of this endpoint belongs into the line for heavy work."""
        rule = self._rules.get(endpoint)
        if rule is not None:
            return rule
        if len(self._endpoints) >= self._endpoints_max and endpoint not in self._endpoints:
            self._make_room(now_us)
        found = self._endpoint(endpoint)
        if found.heavy:
            return True
        if found.light_under_way < self._light_max or not self._others(found, criticality, now_us):
            return False
        if found.mean_us == 0 or found.mean_us * QUICK > self._heavy_us:
            return True
        quickest_us = self._quickest_us(found, criticality, now_us)
        soon_us = min(AHEAD * quickest_us, max(self._target_us, 2 * quickest_us))
        if found.mean_us > soon_us * self._places:
            return True
        return now_us - found.moved_us > max(STUCK * found.mean_us, STUCK_US_MIN)

    def is_needed(self, criticality: Criticality, now_us: int) -> bool:
        """Whether there is light work that matters as much, or more."""
        return self._others(None, criticality, now_us)

    def enter_light(
        self, endpoint: str, now_us: int, criticality: Criticality = DEFAULT_CRITICALITY
    ) -> None:
        """One of them waits for a light place, or has one."""
        found = self._endpoint(endpoint)
        self._recent[criticality].record(found, now_us)
        if found.light_under_way == 0:
            found.moved_us = now_us
        found.light_under_way += 1

    def leave_light(self, endpoint: str) -> None:
        """It has ended, or was refused."""
        self._endpoint(endpoint).light_under_way -= 1

    def learn(self, endpoint: str, service_us: int, now_us: int) -> None:
        """Work of this endpoint has taken so long."""
        found = self._endpoint(endpoint)
        found.moved_us = now_us
        if found.mean_us == 0:
            found.mean_us = service_us
            found.magnitude = self._magnitude_of(service_us)
        found.mean_us += (service_us - found.mean_us) >> _SHIFT
        self._learn_magnitude(found)
        if found.heavy:
            found.heavy = found.mean_us * 2 > self._heavy_us
        else:
            found.heavy = found.mean_us > self._heavy_us

    def magnitude(self, endpoint: str) -> str:
        """Return the name of the line for work as long as this endpoint's has been."""
        return MAGNITUDES[self._endpoint(endpoint).magnitude]

    def mean_us(self, endpoint: str) -> int:
        """Return what the work of this endpoint has taken; not known, as of the greatest."""
        return self._endpoint(endpoint).mean_us or self._heavy_us // 8

    def means_us(self) -> dict[str, int]:
        """The mean of each endpoint, as it is learned now."""
        return {name: one.mean_us for name, one in self._endpoints.items()}

    def _magnitude_of(self, mean_us: int) -> int:
        magnitude = len(MAGNITUDES) - 1
        while magnitude and mean_us << 3 * magnitude > self._heavy_us:
            magnitude -= 1
        return magnitude

    def _learn_magnitude(self, endpoint: _Endpoint) -> None:
        """A greater one soon; a lesser one when it has been quick for long."""
        mean_us, now = endpoint.mean_us, endpoint.magnitude
        if mean_us << 3 * now > self._heavy_us:
            endpoint.quick = 0
            endpoint.slow += 1
            if endpoint.slow == GREATER_AFTER:
                endpoint.magnitude = self._magnitude_of(mean_us)
                endpoint.slow = 0
            return
        endpoint.slow = 0
        if now + 1 == len(MAGNITUDES) or mean_us << 3 * now + 4 > self._heavy_us:
            endpoint.quick = 0
        else:
            endpoint.quick += 1
            if endpoint.quick == LESSER_AFTER:
                endpoint.magnitude += 1
                endpoint.quick = 0

    def _others(self, but: _Endpoint | None, criticality: Criticality, now_us: int) -> bool:
        """Whether others than this do light work that matters as much, or more."""
        return any(recent.has(but, now_us) for recent in self._recent[: criticality + 1])

    def _quickest_us(self, but: _Endpoint, criticality: Criticality, now_us: int) -> int:
        """Return the mean of the quickest other such work; if none is known, that of `but`."""
        quickest_us = but.mean_us
        for recent in self._recent[: criticality + 1]:
            mean_us = recent.quickest_us(but, now_us)
            if 0 < mean_us < quickest_us:
                quickest_us = mean_us
        return quickest_us

    def _make_room(self, now_us: int) -> None:
        """Forget what nobody asks for; not while others are at work that count where they began."""
        others = self._endpoints.get(OTHERS)
        if now_us - self._swept_us < _SWEEP_US or (others and others.light_under_way):
            return
        self._swept_us = now_us
        for name, one in list(self._endpoints.items()):
            if not one.light_under_way and now_us - one.moved_us >= FORGET_US:
                del self._endpoints[name]

    def _endpoint(self, name: str) -> _Endpoint:
        found = self._endpoints.get(name)
        if found is None:
            if len(self._endpoints) >= self._endpoints_max:
                name = OTHERS
                found = self._endpoints.get(OTHERS)
            if found is None:
                found = self._endpoints[name] = _Endpoint()
        return found
