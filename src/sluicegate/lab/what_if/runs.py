"""The runs of a what-if: the same capture against every rulebook, one after the other.

Each begins without history and without load, with the same arrivals and the same work, so runs
differ only by what the rules did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.what_if.outcomes import OutcomeCounts
from sluicegate.lab.what_if.plan import WhatIfPlan
from sluicegate.lab.what_if.policy_run import POLICIES, run_policies
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.replay import SingleReplay
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.traffic import CapturedTraffic

BOOKS_MAX: Final = 8
FIFO: Final = "fifo"

# Called with how many requests have come, of how many, and the rulebook of the run.
Progress: TypeAlias = Callable[[int, int, str], object]


class NamedRules(NamedTuple):
    """A rulebook, and its name in the report."""

    name: str
    rules: ReplayRules


class RulebookResult(NamedTuple):
    """The outcomes under a rulebook; it puts `reclassified` requests into another class."""

    book: NamedRules
    counts: OutcomeCounts
    reclassified: int


def class_rules(books: Sequence[NamedRules]) -> NamedRules:
    """The rulebook by whose classes all requests are counted: the first that has any rules."""
    return next((book for book in books if not book.rules.empty), books[0])


def classes_of(
    book: NamedRules, captured: CapturedTraffic, mesh: MeshSettings | None = None
) -> list[Criticality]:
    """The class of each request, as this rulebook settles it."""
    single = SingleReplay(book.rules, captured.queries, mesh=mesh)
    return [single.priority(request) for request in range(len(captured.queries))]


def check_front(name: str) -> None:
    """Refuse a name that `--with` does not know."""
    if name not in POLICIES:
        raise BadValue("--with", name, f"give one of {', '.join(POLICIES)}")


def run_rulebooks(
    plan: WhatIfPlan,
    traffic: Traffic,
    books: Sequence[NamedRules],
    *,
    front: str = FIFO,
    mesh: MeshSettings | None = None,
    progress: Progress | None = None,
) -> list[RulebookResult]:
    """Run all of them, in the order in which they were given."""
    if not 1 <= len(books) <= BOOKS_MAX:
        remedy = f"give it 1 to {BOOKS_MAX} times: rulebooks, or none"
        raise BadValue("--rules", f"{len(books)} times", remedy)
    check_front(front)
    results: list[RulebookResult] = []
    each, total = len(traffic), len(traffic) * len(books)
    for number, book in enumerate(books):
        done, name = number * each, book.name

        def on_count(come: int, done: int = done, name: str = name) -> None:
            if progress is not None:
                progress(done + come, total, name)

        on_count(0)
        results.append(_run(plan, traffic, book, front, mesh, on_count))
    if progress is not None:
        progress(total, total, "")
    return results


def _run(
    plan: WhatIfPlan,
    traffic: Traffic,
    book: NamedRules,
    front: str,
    mesh: MeshSettings | None,
    on_count: Callable[[int], None],
) -> RulebookResult:
    single = SingleReplay(book.rules, traffic.captured.queries, mesh=mesh)
    common = [Criticality(of) for of in traffic.classes]
    classes = common
    if not book.rules.empty:
        classes = [single.priority(request) for request in range(len(common))]
    counts = run_policies(plan, traffic, single, POLICIES[front], on_count, classes=classes)
    other = [mine is not theirs for mine, theirs in zip(classes, common, strict=True)]
    return RulebookResult(book, counts, sum(map(other.__getitem__, traffic.captured.which)))
