"""Watchers: the product's stress policy as `latencies` asks it, and kernels in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

from sluicegate.kernels.latency_ratio import LatencyRatio, P2Ratio, RatioSettings, is_stressed
from sluicegate.lab.rigs.latencies import MakeWatcher, Reading
from sluicegate.policies.stress import Stress, StressSettings

USUAL: Final = RatioSettings()
# Never stressed, and so never frozen: the median of what sub-windows of late have measured.
NEVER_FROZEN: Final = RatioSettings(enter=0.0)
EVER_US: Final = 1 << 53


class Ratio(Protocol):
    """A latency ratio of one class."""

    def add(self, latency_us: float, now_us: int) -> None:
        """Take in a latency."""
        ...

    def ratio(self, now_us: int) -> float:
        """From 1 towards 0."""
        ...


@final
class StressWatcher:
    """`policies.stress`, of which the ratio alone is fed."""

    __slots__ = ("_policy", "worked")

    def __init__(self, settings: StressSettings | None = None) -> None:
        self._policy = Stress(settings)
        self.worked = self._policy.worked

    def reading(self, now_us: int) -> Reading:
        """The picture's ratio."""
        picture = self._policy.read(now_us)
        return Reading(picture.ratio, picture.slow)


@final
class RatioWatcher:
    """A ratio for each class, or one for all, and the policy's hysteresis over the worst."""

    __slots__ = ("_by_class", "_enter", "_make", "_ratios", "_stressed")

    def __init__(self, make: Callable[[], Ratio], *, by_class: bool, enter: float) -> None:
        self._make = make
        self._by_class = by_class
        self._enter = enter
        self._ratios: dict[str, Ratio] = {}
        self._stressed = False

    def worked(self, operation: str, service_us: int, now_us: int) -> None:
        """Into the ratio of its class."""
        name = operation if self._by_class else ""
        ratio = self._ratios.get(name)
        if ratio is None:
            ratio = self._ratios[name] = self._make()
        ratio.add(service_us, now_us)

    def reading(self, now_us: int) -> Reading:
        """The worst of them."""
        worst = min([ratio.ratio(now_us) for ratio in self._ratios.values()], default=1.0)
        self._stressed = is_stressed(self._stressed, worst, self._enter, USUAL.leave)
        return Reading(worst, self._stressed)


def by_class(make: Callable[[], Ratio], enter: float = USUAL.enter) -> MakeWatcher:
    """A ratio for each class of work."""
    return lambda: RatioWatcher(make, by_class=True, enter=enter)


def never_frozen() -> LatencyRatio:
    """The product's kernel without what is its point."""
    return LatencyRatio(NEVER_FROZEN)


def unwindowed_p2() -> P2Ratio:
    """The long estimate is one P2 from the first value to the last."""
    return P2Ratio(long_us=EVER_US)


def one_for_all() -> RatioWatcher:
    """The product's kernel, for all classes together."""
    return RatioWatcher(LatencyRatio, by_class=False, enter=USUAL.enter)
