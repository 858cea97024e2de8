"""Rulebook: what a service obeys of one while it serves, by the table of its settings.

    with follow_rulebook(resilience, app.protection, guard):
        serve(app)

Its switches take the levels of the release that is live, and a guard judges by its quotas and
rules. A change is obeyed a second after it was published, or as soon as it is announced; what is
not heard of anew stays. It is begun after a process has forked, and takes `sluicegate[rulebook]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.following.guard import RulebookGuard
from sluicegate.rules.releases.signatures import Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.event_logs import open_log

CLOSE_US: Final = 1_000_000
T = TypeVar("T")


@contextmanager
def follow_rulebook(
    settings: Resilience, protection: Protection, guard: RulebookGuard | None = None
) -> Iterator[Follower]:
    """Obey the rulebook of these settings within a block; raise what keeps it from beginning.

    Without a table `[rulebook]`, or with nothing kept and nobody to ask, it does not begin.
    """
    book = settings.rulebook
    if book is None:
        raise BadValue("resilience.rulebook", None, "say which: [rulebook], with blobs and keys")

    def put_in_force(books: FleetBooks) -> None:
        if guard is not None:
            guard.put_in_force(books)
        protection.degradation.overrule(books.live.resources.degrade)

    blobs = _open("blobs", open_blobs, book.blobs)
    log = _open("events", open_log, book.events) if book.events else None
    try:
        follower = Follower(
            ReleaseStore(blobs, Verifier.read(book.keys)),
            put_in_force,
            node=book.node,
            folder=os.path.join(book.folder, book.node),
            announcements=log,
            counts=dict if guard is None else guard.counts,
        )
        with follower:
            yield follower
    finally:
        if log is not None:
            log.close(CLOSE_US)


def _open(name: str, opening: Callable[[str], T], url: str) -> T:
    """What a URL opens; what is wrong with it is told of the setting."""
    try:
        return opening(url)
    except BadValue as error:
        raise BadValue(f"resilience.rulebook.{name}", error.value, error.remedy) from None
