"""Queue settings: how many work, how many wait, for how long, and in which order.

The order. In line until it has stood for `standing_us`, and from then on the newest first, is
adaptive LIFO (Maurer's, with 100,000). In line always is the default: with folly's rule nobody
waits long enough for the order to matter to him, and at every load up to the capacity it answers
more and tells the refused sooner. `queue` in 32 places of 10 ms, three seeds:

    load                              0.95    1.0     1.1     1.4     2       5
    answered of all   in line         0.999   0.973   0.892   0.707   0.496   0.200
                      newest first    0.994   0.965   0.891   0.708   0.488   0.200
    p99, ms           in line         52      55      61      57      56      56
                      newest first    56      63      57      53      47      47
    refusal told,     in line         9       27      33      23      12      12
    p99, ms           newest first    156     159     190     136     107     12

Newest first has the better tail beyond the capacity, and its unlucky ones sit out an interval
before they hear of it: while the newest are served, a short delay is seen now and then, and folly's
rule takes the queue for one that does not stand. `headgate lab compare queues --with queue-lifo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.contracts.criticality import Criticality
from headgate.contracts.errors import BadValue
from headgate.kernels.codel import SPAN_US_MAX
from headgate.kernels.weighted_queue import SHARE_MAX, QueueClass
from headgate.policies.queue_rules import (
    FORMS,
    FacebookRule,
    FollyRule,
    NoRule,
    PacketRule,
    QueueRule,
)

WAITER_BYTES: Final = 2_048  # a task that waits, its future and its place, roughly
WEIGHTS_MAX: Final = 15
PLACES_MAX: Final = 1 << 20
LENGTH_MAX: Final = 1 << 20
BYTES_MAX: Final = 1 << 40
NO_WEIGHTS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How many work, how many wait, for how long, and in which order."""

    name: str = "queue"
    places: int = 32
    length_max: int = 1_000
    bytes_max: int = 16 << 20
    wait_us_max: int = 500_000
    form: str = "folly"
    target_us: int = 5_000
    interval_us: int = 100_000
    target_us_max: int = 1_000_000
    adaptive_target: bool = True
    normal_us: int = 100_000  # of the facebook form
    aggressive_us: int = 5_000
    standing_us: int | None = None  # None: first in, first out, always
    weights: Mapping[str, int] = field(default_factory=lambda: NO_WEIGHTS)
    floor_permille: int = 10  # what BULK is served of while nothing critical stands
    slack_quantile: float = 0.99  # 0: the deadline itself
    sweep_us: int = 5_000

    def __post_init__(self) -> None:
        within("queue.places", self.places, 1, PLACES_MAX)
        within("queue.length_max", self.length_max, 1, LENGTH_MAX)
        within("queue.bytes_max", self.bytes_max, WAITER_BYTES, BYTES_MAX)
        within("queue.wait_us_max", self.wait_us_max, 1, SPAN_US_MAX)
        if self.form not in FORMS:
            raise BadValue("queue.form", self.form, f"give one of {', '.join(FORMS)}")
        within("queue.interval_us", self.interval_us, 2, SPAN_US_MAX)
        within("queue.target_us", self.target_us, 1, self.interval_us - 1)
        within("queue.target_us_max", self.target_us_max, self.target_us, SPAN_US_MAX)
        within("queue.normal_us", self.normal_us, 1, SPAN_US_MAX)
        within("queue.aggressive_us", self.aggressive_us, 1, self.normal_us)
        if self.standing_us is not None:
            within("queue.standing_us", self.standing_us, 0, SPAN_US_MAX)
        if len(self.weights) > WEIGHTS_MAX:
            raise BadValue("queue.weights", len(self.weights), f"name at most {WEIGHTS_MAX}")
        for operation, weight in self.weights.items():
            within(f"queue.weights.{operation}", weight, 1, SHARE_MAX)
        within("queue.floor_permille", self.floor_permille, 0, 500)
        if not 0.0 <= self.slack_quantile < 1.0:
            raise BadValue(
                "queue.slack_quantile", self.slack_quantile, "give a part from 0 to below 1"
            )
        within("queue.sweep_us", self.sweep_us, 100, SPAN_US_MAX)


def queue_classes(settings: QueueSettings) -> list[QueueClass]:
    """Criticality is the rank, the operation's weight the share within it."""
    shares = [1, *settings.weights.values()]
    classes = []
    for member in Criticality:
        floor = settings.floor_permille if member is Criticality.BULK else 0
        classes += [
            QueueClass(member, share, floor * share // sum(shares), settings.standing_us)
            for share in shares
        ]
    return classes


def rule_for(settings: QueueSettings) -> QueueRule:
    """The rule of one class."""
    wait_us_max = settings.wait_us_max
    if settings.form == "folly":
        return FollyRule(
            target_us=settings.target_us,
            interval_us=settings.interval_us,
            target_us_max=settings.target_us_max,
            wait_us_max=wait_us_max,
        )
    if settings.form == "facebook":
        return FacebookRule(
            normal_us=settings.normal_us,
            aggressive_us=settings.aggressive_us,
            wait_us_max=wait_us_max,
        )
    if settings.form == "rfc8289":
        return PacketRule(
            target_us=settings.target_us,
            interval_us=settings.interval_us,
            wait_us_max=wait_us_max,
        )
    return NoRule(wait_us_max=wait_us_max)


def within(name: str, value: int, least: int, most: int) -> None:
    """Refuse a value that is not from `least` to `most`."""
    if not least <= value <= most:
        raise BadValue(name, value, f"give a number from {least:,} to {most:,}")
