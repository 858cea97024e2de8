"""What the tests of what-if share: captures by hand, and how they are played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluicegate.lab.durations import Constant, Duration
from sluicegate.lab.retries import Retries
from sluicegate.lab.what_if.plan import QUEUE_MAX_DEFAULT, WHOLE_US, Plan, Served, served_by
from sluicegate.lab.what_if.report import report_of
from sluicegate.lab.what_if.runs import POOL, Book, Tried, classes_of, play_all, yardstick
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.shadow.books import Rules
from sluicegate.shadow.captured import Captured
from sluicegate.shadow.side import Ask
from tests.shadow.replay.captures import captured, check, limit, native

MS = 1_000
NONE = Book("none", Rules({}))
STEADY = Constant(WHOLE_US)
CAPACITY = 100.0  # a unit is 10 ms of the only worker


def book(name: str, *several: dict[str, Any], **top: Any) -> Book:
    """A rulebook of these rules."""
    return Book(name, Rules(native(*several, **top)))


def every(count: int, gap_ms: float, asks: Sequence[Ask] | None = None) -> Captured:
    """So many requests at an even pace, of these asks in turn."""
    several = [check("ann")] if asks is None else asks
    return captured((at * gap_ms / 1_000, several[at % len(several)]) for at in range(count))


def fixed(count: int, path: str = "/play", **more: Any) -> dict[str, Any]:
    """So many in each second of the clock."""
    return limit(f"at-most-{count}", count, 1, resource_path=path, **more)


def station(workers: int = 1, capacity: float = CAPACITY) -> Served:
    """So many workers for so many units a second."""
    return served_by(capacity=capacity, workers=workers, costs={}, offered_per_s=1.0)


def plan(
    served: Served | None = None,
    *,
    timeout_ms: float = 500,
    service: Duration = STEADY,
    speed: float = 1.0,
    retries: Retries | None = None,
    queue_max: int = QUEUE_MAX_DEFAULT,
    seed: int = 0,
) -> Plan:
    """A plan with constant service times, unless it says otherwise."""
    return Plan(
        served=station() if served is None else served,
        service=service,
        timeout_us=round(timeout_ms * MS),
        speed=speed,
        retries=retries,
        queue_max=queue_max,
        seed=seed,
    )


def traffic_of(given: Captured, books: Sequence[Book], speed: float = 1.0) -> Traffic:
    """The capture, in the classes of the first rulebook that has rules."""
    return Traffic(given, classes_of(yardstick(books), given), speed=speed)


def tried(given: Captured, books: Sequence[Book], how: Plan, front: str = POOL) -> list[Tried]:
    """What each of the rulebooks did."""
    return play_all(how, traffic_of(given, books, how.speed), books, front=front)


def report(
    given: Captured, books: Sequence[Book], how: Plan | None = None, front: str = POOL
) -> dict[str, Any]:
    """The report of it."""
    how = plan() if how is None else how
    return report_of(
        how,
        traffic_of(given, books, how.speed),
        tried(given, books, how, front),
        front=front,
        service="constant",
        retries="none",
        classes_by=yardstick(books).name,
    )
