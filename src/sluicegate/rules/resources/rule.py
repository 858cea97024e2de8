"""Rule: a row of a rules file in memory, and the kind that many rows share.

A book may have a million rules that say few different things. What they say is a *kind*, of which
there are few; a rule is its name, where it applies, and its kind. Plain values, made once.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, final

from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.contracts.store import SharedKey
from sluicegate.kernels.native import mypyc_attr
from sluicegate.limits.lease import life_us

ANY_PRIORITY: Final = 4  # one past the four classes
EVERY_PATH: Final = ""


class Per(Enum):
    """Whose work is counted together."""

    USER = "user"
    RESOURCE = "resource"
    USER_AND_RESOURCE = "user+resource"


@final
@mypyc_attr(acyclic=True)
class LimitKind:
    """What rules say that say the same: a limit on its terms, and whose work it counts together.

    `shared_id` is the rule_id of the shared limit in the limiter. `units` is the most that is
    admitted at once, or in a window. A block of a lease lives for `life_us` at most, and costs
    `surcharge` beside its units; `leasable` is false for what counts each unit at its own instant.
    """

    __slots__ = (
        "leasable",
        "life_us",
        "limit",
        "of_user",
        "per",
        "shadow",
        "shared_id",
        "surcharge",
        "units",
    )

    def __init__(self, shared_id: str, limit: Limit, per: Per, *, shadow: bool) -> None:
        self.shared_id = shared_id
        self.limit = limit
        self.per = per
        self.of_user = per is Per.USER
        self.shadow = shadow
        self.units = limit.burst
        self.leasable = shadow or limit.algorithm is not Algorithm.SLIDING_LOG
        self.life_us = 0
        self.surcharge = 0
        if limit.algorithm in BURSTING:
            self.life_us = life_us(limit)
            self.surcharge = -(-self.life_us * limit.count // limit.period_us)

    def lives_us(self, reset_us: int) -> int:
        """How long what was just taken counts where it was taken, from how long until all is gone.

        What a window has taken counts there until its edge (that of a cell, if it has cells).
        """
        limit = self.limit
        if limit.algorithm in BURSTING:
            return self.life_us if reset_us > 0 else 0
        if limit.algorithm is Algorithm.SLIDING_WINDOW:
            return reset_us - limit.period_us
        return reset_us


# Holds nothing that could hold it; a million of them are none of the garbage collector's business.
@final
@mypyc_attr(acyclic=True)
class ResourceRule:
    """One rule. `path` is as the index spells it; an empty client type is any."""

    __slots__ = ("client_type", "kind", "path", "priority", "rule_id")

    def __init__(
        self, rule_id: str, kind: LimitKind, path: str, client_type: str, priority: int
    ) -> None:
        self.rule_id = rule_id
        self.kind = kind
        self.path = path
        self.client_type = client_type
        self.priority = priority

    def key(self, user_id: str, path: str) -> SharedKey:
        """The key under which this rule counts that user's work on that plain path."""
        kind = self.kind
        if kind.of_user:
            return SharedKey(user_id, self.rule_id)
        if kind.per is Per.RESOURCE:
            return SharedKey(path, self.rule_id)
        # A plain path has no two slashes in a row, so the last two say where the user ends.
        return SharedKey(f"{user_id}/{path}", self.rule_id)

    def __repr__(self) -> str:
        return f"<ResourceRule {self.rule_id!r} on {self.path or 'every path'}>"
