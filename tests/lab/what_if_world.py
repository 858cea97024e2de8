"""What the tests of what-if share: captures by hand, and how they are played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluicegate.lab.durations import Constant, Duration
from sluicegate.lab.retries import Retries
from sluicegate.lab.what_if.plan import (
    QUEUE_MAX_DEFAULT,
    WHOLE_US,
    BackendSpec,
    WhatIfPlan,
    derive_backend,
)
from sluicegate.lab.what_if.report import build_report
from sluicegate.lab.what_if.runs import (
    FIFO,
    NamedRules,
    RulebookResult,
    class_rules,
    classes_of,
    run_rulebooks,
)
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.side import Query
from sluicegate.shadow.traffic import CapturedTraffic
from tests.shadow.replay.captures import captured, check, limit, native

MS = 1_000
NONE = NamedRules("none", ReplayRules({}))
STEADY = Constant(WHOLE_US)
CAPACITY = 100.0  # a unit is 10 ms of the only worker


def book(name: str, *several: dict[str, Any], **top: Any) -> NamedRules:
    """A rulebook of these rules."""
    return NamedRules(name, ReplayRules(native(*several, **top)))


def every(count: int, gap_ms: float, asks: Sequence[Query] | None = None) -> CapturedTraffic:
    """So many requests at an even pace, of these asks in turn."""
    several = [check("ann")] if asks is None else asks
    return captured((at * gap_ms / 1_000, several[at % len(several)]) for at in range(count))


def fixed(count: int, path: str = "/play", **more: Any) -> dict[str, Any]:
    """So many in each second of the clock."""
    return limit(f"at-most-{count}", count, 1, resource_path=path, **more)


def station(workers: int = 1, capacity: float = CAPACITY) -> BackendSpec:
    """So many workers for so many units a second."""
    return derive_backend(capacity=capacity, workers=workers, costs={}, offered_per_s=1.0)


def plan(
    backend: BackendSpec | None = None,
    *,
    timeout_ms: float = 500,
    service: Duration = STEADY,
    speed: float = 1.0,
    retries: Retries | None = None,
    queue_max: int = QUEUE_MAX_DEFAULT,
    seed: int = 0,
) -> WhatIfPlan:
    """A plan with constant service times, unless it says otherwise."""
    return WhatIfPlan(
        backend=station() if backend is None else backend,
        service=service,
        timeout_us=round(timeout_ms * MS),
        speed=speed,
        retries=retries,
        queue_max=queue_max,
        seed=seed,
    )


def traffic_of(
    capture: CapturedTraffic, books: Sequence[NamedRules], speed: float = 1.0
) -> Traffic:
    """The capture, in the classes of the first rulebook that has rules."""
    return Traffic(capture, classes_of(class_rules(books), capture), speed=speed)


def results(
    capture: CapturedTraffic, books: Sequence[NamedRules], how: WhatIfPlan, front: str = FIFO
) -> list[RulebookResult]:
    """What each of the rulebooks did."""
    return run_rulebooks(how, traffic_of(capture, books, how.speed), books, front=front)


def report(
    capture: CapturedTraffic,
    books: Sequence[NamedRules],
    how: WhatIfPlan | None = None,
    front: str = FIFO,
) -> dict[str, Any]:
    """The report of it."""
    how = plan() if how is None else how
    return build_report(
        how,
        traffic_of(capture, books, how.speed),
        results(capture, books, how, front),
        front=front,
        service="constant",
        retries="none",
        classes_by=class_rules(books).name,
    )
