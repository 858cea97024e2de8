"""Mirror: the branch as it is kept elsewhere, where people push and pull.

What is pushed there is brought here and treated as if it had been pushed here; what goes live here
is sent there, never by force. Where both have moved they are merged. What cannot be, as a history
that was rewritten, is brought here as it is, and refused as any such push. A place that does not
answer is asked again later; until then nothing but it stands still.
"""

from __future__ import annotations

from typing import final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.repository.repository import Repository


@final
class Mirror:
    """Looks at the remote now and then; nothing where there is none."""

    __slots__ = ("_clock", "_next_us", "_repository", "_settings", "_told")

    def __init__(
        self, repository: Repository, *, settings: PublishingSettings, clock: Clock
    ) -> None:
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._next_us = 0
        self._told = ""  # what the branch here was when both were the same

    def look(self) -> None:
        """Bring what was pushed there, and send what is live; when it is time, or sent is due."""
        settings = self._settings
        if not settings.remote or not settings.branch:
            return
        tip = self._repository.tip(settings.branch)
        now_us = self._clock.now_us()
        if now_us < self._next_us and tip == self._told:
            return
        self._next_us = now_us + settings.remote_look_us
        there = self._fetch()
        tip = self._repository.tip(settings.branch)
        if there != tip:
            tip = self._together(tip, there)
        self._told = tip or ""

    def _fetch(self) -> str | None:
        """What the branch is there; None where there is none yet."""
        settings = self._settings
        try:
            return self._repository.fetch(
                settings.remote, settings.branch, timeout_us=settings.remote_us_max
            )
        except BadValue as error:
            if error.field != "ref":
                raise
            return None

    def _together(self, tip: str | None, there: str | None) -> str | None:
        """Make both the same, whichever has to move; what the branch is here then."""
        settings, repository = self._settings, self._repository
        if there is None or (tip is not None and repository.is_ancestor(there, tip)):
            repository.push(settings.remote, settings.branch, timeout_us=settings.remote_us_max)
            return tip
        to = there
        if tip is not None and not repository.is_ancestor(tip, there):
            to = self._merged(tip, there)
        try:
            repository.move(settings.branch, to, expected=tip)
        except Conflict:
            return None  # somebody pushes here just now; the next look sees both
        return to

    def _merged(self, tip: str, there: str) -> str:
        """A commit that goes on from both; `there` itself where that cannot be, to be refused.

        Who pushed there could not know what has gone live here meanwhile.
        """
        repository = self._repository
        try:
            files = repository.rebased(there, tip).id
        except (BadValue, Conflict):
            return there
        pushed = repository.info(there)
        return repository.write(
            {},
            parents=(tip, there),
            tree_of=files,
            author=pushed.author,
            message=pushed.message,
            at_us=self._clock.now_us(),
        ).id
