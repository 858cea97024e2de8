"""Tidying: what nobody needs any more goes, so that nothing grows without a bound.

Refs of proposals and versions that have left the ledger's newest state go; then git may clean up
their commits, while the ledger's history still tells of them. Of the blob store, the parts of old
editions go; an edition that is ordered again is made again (`outbox.py`).
"""

from __future__ import annotations

import logging
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Conflict
from sluicegate.rules.editions.shelf import Shelf
from sluicegate.rules.publishing.ledger import Ledger
from sluicegate.rules.publishing.settings import PROPOSALS, VERSIONS, PublishingSettings
from sluicegate.rules.repository.repository import Repository

_log: Final = logging.getLogger("sluicegate.rules")


@final
class Tidying:
    """Tidies now and then; several at once do no harm."""

    __slots__ = ("_clock", "_due_us", "_ledger", "_repository", "_settings", "_shelf")

    def __init__(
        self,
        repository: Repository,
        ledger: Ledger,
        shelf: Shelf,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._shelf = shelf
        self._settings = settings
        self._clock = clock
        self._due_us = clock.now_us() + settings.tidy_us

    def look(self) -> None:
        """Tidy if it is time to."""
        now_us = self._clock.now_us()
        if now_us < self._due_us:
            return
        self._due_us = now_us + self._settings.tidy_us
        self.refs(now_us)
        self._shelf.sweep(self._settings.keep_editions, now_us=now_us)

    def refs(self, now_us: int) -> None:
        """Take refs away that no record needs; a young one may be of a call that is under way."""
        found = [
            *self._repository.refs(PROPOSALS).items(),
            *self._repository.refs(VERSIONS).items(),
        ]
        state = self._ledger.state()
        needed = {PROPOSALS + one for one in state.proposals}
        needed |= {f"{VERSIONS}{number}" for number in state.versions}
        for ref, commit in found:
            if ref in needed:
                continue
            if now_us - self._repository.info(commit).at_us < self._settings.tidy_us:
                continue
            try:
                self._repository.remove(ref, expected=commit)
            except Conflict:
                _log.info("%s was moved while it was to go; it stays", ref)
