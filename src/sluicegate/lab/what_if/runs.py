"""What-if, played: a capture against every rulebook that was given, one after the other.

Each begins without history and without load, on the same arrivals and the same work, so what
differs between two of them is what their rules did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.what_if.fifo_run import Pool
from sluicegate.lab.what_if.outcomes import Tally
from sluicegate.lab.what_if.plan import Plan
from sluicegate.lab.what_if.policy_run import FRONTS, play_front
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.books import Rules
from sluicegate.shadow.captured import Captured
from sluicegate.shadow.single import Single

BOOKS_MAX: Final = 8
POOL: Final = "fifo"
FRONT_NAMES: Final = (POOL, *FRONTS)

# Is told how many requests have come, of how many, and which rulebook is at it.
Progress: TypeAlias = Callable[[int, int, str], object]


class Book(NamedTuple):
    """One of the rulebooks, and what it is called in the report."""

    name: str
    rules: Rules


class Tried(NamedTuple):
    """What a rulebook did; `reclassified` requests are of another class by it."""

    book: Book
    tally: Tally
    reclassified: int


def yardstick(books: Sequence[Book]) -> Book:
    """The rulebook by whose classes everything is counted: the first that has any rules."""
    return next((book for book in books if not book.rules.empty), books[0])


def classes_of(
    book: Book, captured: Captured, mesh: MeshSettings | None = None
) -> list[Criticality]:
    """The class of each ask, as this rulebook settles it."""
    single = Single(book.rules, captured.asks, mesh=mesh)
    return [single.priority(ask) for ask in range(len(captured.asks))]


def known_front(name: str) -> str:
    """The name of what stands before the backend, if it is one."""
    if name not in FRONT_NAMES:
        raise BadValue("--with", name, f"give one of {', '.join(FRONT_NAMES)}")
    return name


def play_all(
    plan: Plan,
    traffic: Traffic,
    books: Sequence[Book],
    *,
    front: str = POOL,
    mesh: MeshSettings | None = None,
    progress: Progress | None = None,
) -> list[Tried]:
    """All of them, in the order in which they were given."""
    if not 1 <= len(books) <= BOOKS_MAX:
        remedy = f"say it 1 to {BOOKS_MAX} times: rulebooks, or none"
        raise BadValue("--rules", f"{len(books)} times", remedy)
    known_front(front)
    tried: list[Tried] = []
    each, total = len(traffic), len(traffic) * len(books)
    for number, book in enumerate(books):
        done, name = number * each, book.name

        def heard(come: int, done: int = done, name: str = name) -> None:
            if progress is not None:
                progress(done + come, total, name)

        heard(0)
        tried.append(_play(plan, traffic, book, front, mesh, heard))
    if progress is not None:
        progress(total, total, "")
    return tried


def _play(
    plan: Plan,
    traffic: Traffic,
    book: Book,
    front: str,
    mesh: MeshSettings | None,
    heard: Callable[[int], None],
) -> Tried:
    single = Single(book.rules, traffic.captured.asks, mesh=mesh)
    common = [Criticality(of) for of in traffic.classes]
    seen = common
    if not book.rules.empty:
        seen = [single.priority(ask) for ask in range(len(common))]
    if front == POOL:
        tally = Pool(plan, traffic, single).play(heard)
    else:
        tally = play_front(plan, traffic, single, FRONTS[front], heard, classes=seen)
    other = [mine is not theirs for mine, theirs in zip(seen, common, strict=True)]
    return Tried(book, tally, sum(map(other.__getitem__, traffic.captured.which)))
