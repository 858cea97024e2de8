"""Queue settings: how many work, how many wait, for how long, and in which order.

The order. In line until it has stood for `standing_us`, and from then on the newest first, is
adaptive LIFO (Maurer's, with 100,000). In line always is the default: under the default rule nobody
waits long enough for the order to matter to him, and up to the capacity it answers more, and tells
the refused sooner. `queue` before 32 workers of 10 ms, two seeds:

    load                              0.95    1.0     1.1     1.4     2       5
    answered of all   in line         0.998   0.967   0.888   0.705   0.496   0.201
                      newest first    0.994   0.960   0.886   0.706   0.496   0.201
    p99, ms           in line         52      53      56      56      56      56
                      newest first    58      61      54      52      47      46
    refusal told,     in line         8       18      23      11      12      11
    p99, ms           newest first    162     176     117     65      12      11

Newest first has the better tail beyond the capacity; near it, its unlucky ones wait longest before
they hear of it. `sluicegate lab compare queues --with queue-lifo` shows it.

Bursts. The form `codel` lets units wait for longer where a long line would be served in the pauses
of what comes, up to `burst_us_max` (`kernels/burst_allowance.py`). They are served in line as long
as nearly all are in time so; when more than a fifth would not be, the newest go first, once a line
has stood for four targets: behind a long line only that keeps most answers quick. The same workers,
means of three seeds:

    bursts, at a mean load of      50 in 100 ms, 2  100 in 200, 1  20 in 80, 1
    burst_us_max                   0     400,000    0     400,000  0     400,000
    answered, of the capacity      0.77  0.97       0.64  0.93     0.62  0.85
    p50, ms                        29    18         31    263      40    133
    refusal told, p99, ms          149   456        109   454      151   303

At the capacity nearly all that comes is answered, in line and so with long waits. Steady arrivals
are served the same with and without, at 0.95 to 2 times the capacity of 4 to 32 workers.

Slow work. All spans are for work of up to 10 ms. Of slower work the target is half of what it takes
unloaded, up to `target_us_max`, and what `wait_us_max`, `burst_us_max` and the spans of the burst
allowance say is as many times as long: a line of 500 ms is none before work of 2.5 s. Nobody waits
beyond its deadline for it; who has none waits for `wait_us_max` at most, and who has one for
`slow_wait_us_max`. Slow work (ten times, 100 ms) for which callers wait no longer than 32 of it is
done in line always, and the first of it that would be refused is taken for a burst. So 8,819
requests of 2.5 s for a language model, in bursts of up to 6 times the capacity, whose callers wait
for 50 s (tests/lab/replay/test_bursts.py says where they are from; the last four are parts of an
earlier form of it, which answered 0.816):

    answered in time                        0.805
    without what is taken for a burst       0.781
    without what work takes by its cost     0.714
    newest first, as where work is quick    0.668
    with an allowance as for 10 ms          0.545
    with the longest wait of 10 ms, too     0.379

The price: half of the answers take 28 s and not 2, and who is refused hears so after 45 s and not
0.5. What work takes by its cost, at the 99th of 100, is what the deadline has to leave, if it is
less than `slack_quantile` says of all; the trace says of each what it cost, as if that were known.

A short line. CoDel judges by what has stood for its interval, so with four classes those in the
middle hear late. With `line_us` the line is cut as soon as nearly all who come have to wait. Eight
places of 10 ms and four classes, of which CRITICAL asks for half of the capacity; `calm` is one
class at 80% of it (tests/policies/test_queue_line.py):

    load                                     2      5      10     calm
    refusal told, p99, ms   codel alone      191    63     69
                            fixed 11 ms      11.9   9.8    9.7
                            line_us 12,000   13.1   12.3   12.1
    the same, p50, ms       fixed 11 ms      9.3    9.1    9.0
                            line_us 12,000   2.6    0.0    0.0
    served of all           codel alone                           1.000
                            fixed 11 ms                           0.994
                            line_us 12,000                        0.999
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.codel import SPAN_US_MAX, CodelSettings
from sluicegate.kernels.weighted_queue import SHARE_MAX, QueueClass
from sluicegate.policies.queue.rules import (
    FORMS,
    CodelRule,
    FacebookRule,
    PacketRule,
    QueueRule,
)
from sluicegate.policies.settings import check_ranges, one_of, within, wrong_setting

WAITER_BYTES: Final = 2_048  # a task that waits, its future and its place, roughly
WEIGHTS_MAX: Final = 15
PLACES_MAX: Final = 1 << 20
FLOOR_US: Final = 4_000_000  # after which a class is owed one more, however dear its last one was
CROWDED_FLOOR_US: Final = 10_000_000  # and while CRITICAL stands, between two of a class
LENGTH_MAX: Final = 1 << 20
BYTES_MAX: Final = 1 << 40
NO_WEIGHTS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, kw_only=True)
class QueueSettings(CodelSettings):
    """How many work, how many wait, for how long, and in which order."""

    name: str = "queue"
    places: int = ranged(32, 1, PLACES_MAX)
    length_max: int = ranged(2_000, 1, LENGTH_MAX)
    bytes_max: int = ranged(16 << 20, WAITER_BYTES, BYTES_MAX)
    wait_us_max: int = ranged(500_000, 1, SPAN_US_MAX)
    slow_wait_us_max: int = ranged(SPAN_US_MAX, 1, SPAN_US_MAX)  # of slow work, with a deadline
    line_us: int | None = None  # how long a line may be while all have to wait; None: no matter
    form: str = "codel"
    burst_us_max: int = ranged(400_000, 0, SPAN_US_MAX)  # what bursts may add to a wait; 0: nothing
    adaptive_target: bool = True
    standing_us: int | None = None  # None: first in, first out, always
    weights: Mapping[str, int] = field(default_factory=lambda: NO_WEIGHTS)
    floor_permille: int = ranged(10, 0, 333)  # what each class below CRITICAL is served of
    slack_quantile: float = 0.99  # 0: the deadline itself
    sweep_us: int = ranged(5_000, 100, SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges("queue", self)
        if self.line_us is not None:
            within("queue.line_us", self.line_us, 1, SPAN_US_MAX)
        one_of("queue.form", self.form, FORMS)
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting("queue", error) from None
        if self.standing_us is not None:
            within("queue.standing_us", self.standing_us, 0, SPAN_US_MAX)
        within("queue.weights", len(self.weights), 0, WEIGHTS_MAX)
        for operation, weight in self.weights.items():
            within(f"queue.weights.{operation}", weight, 1, SHARE_MAX)
        if not 0.0 <= self.slack_quantile < 1.0:
            raise BadValue(
                "queue.slack_quantile", self.slack_quantile, "give a part from 0 to below 1"
            )


def queue_classes(settings: QueueSettings) -> list[QueueClass]:
    """Criticality is the rank, the operation's weight the share within it."""
    shares = [1, *settings.weights.values()]
    return [
        QueueClass(member, share, settings.standing_us)
        for member in Criticality
        for share in shares
    ]


def queue_floors(settings: QueueSettings) -> dict[int, int]:
    """What each class but CRITICAL is served of, whatever comes."""
    return {member: settings.floor_permille for member in Criticality if member}


def rule_for(settings: QueueSettings) -> QueueRule:
    """The rule of one class."""
    form = settings.form
    if form in {"codel", "folly"}:
        return CodelRule(settings, until_empty=form == "codel")
    if form == "facebook":
        return FacebookRule(settings)
    if form == "rfc8289":
        return PacketRule(settings)
    return QueueRule()
