"""Fleet books: the rules a node runs, in one value, so that they change in one step.

Usually there is one book. While a canary is tried on callers there are two, and who asks decides by
which of them: each caller has a place from 0 to 9,999, worked out of the canary's salt and the
caller's name, and those below the share are in. So whoever is in at 1% is in at 5%, all nodes
agree, and another canary picks others.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, final

from sluicegate.limits.rule import Rule
from sluicegate.rules.service_rule_set import ServiceRuleSet

PLACES: Final = 10_000
_DIGEST_BYTES: Final = 8


@final
class FleetBooks:
    """The live rules, and those that some callers try; immutable."""

    __slots__ = ("_salted", "canary", "canary_version", "live", "live_version", "salt", "share")

    def __init__(
        self,
        live: ServiceRuleSet,
        live_version: int,
        canary: ServiceRuleSet | None = None,
        canary_version: int = 0,
        share: int = 0,
        salt: str = "",
    ) -> None:
        self.live: Final = live
        self.live_version: Final = live_version
        self.canary: Final = canary
        self.canary_version: Final = canary_version if canary is not None else 0
        self.share: Final = share if canary is not None else 0
        self.salt: Final = salt
        self._salted = _salted(salt)

    def runs_canary(self, caller: str) -> bool:
        """Whether this caller is among those who try the canary."""
        if self.canary is None:
            return False
        digest = self._salted.copy()
        digest.update(caller.encode("utf-8", "surrogatepass"))
        return int.from_bytes(digest.digest(), "big") % PLACES < self.share

    def book_for(self, caller: str) -> ServiceRuleSet:
        """The rules that this caller goes by."""
        if self.canary is not None and self.runs_canary(caller):
            return self.canary
        return self.live

    def rules_beside(self, before: FleetBooks | None) -> dict[str, Rule]:
        """The limits of all books here and of those before, for decisions that are under way."""
        rules: dict[str, Rule] = {}
        for books in (before, self):
            if books is not None:
                rules.update(books.live.rules)
                rules.update(books.canary.rules if books.canary is not None else {})
        return rules

    def same_as(self, other: FleetBooks | None) -> bool:
        """Whether it would make no difference to put these in force in place of the others."""
        return (
            other is not None
            and (self.live, self.live_version) == (other.live, other.live_version)
            and (self.canary, self.canary_version) == (other.canary, other.canary_version)
            and (self.canary is None or (self.share, self.salt) == (other.share, other.salt))
        )

    def __repr__(self) -> str:
        canary = f", {self.canary_version} for {self.share} of {PLACES}" if self.canary else ""
        return f"<FleetBooks {self.live_version}{canary}>"


def in_share(name: str, *, share: int, salt: str) -> bool:
    """Whether a node or a caller of this name is in the share."""
    digest = _salted(salt)
    digest.update(name.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big") % PLACES < share


def _salted(salt: str) -> blake2b:
    return blake2b(salt.encode("utf-8", "surrogatepass") + b"\0", digest_size=_DIGEST_BYTES)
