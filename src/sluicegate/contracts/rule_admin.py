"""Rule desk: what people and machines may do with a rulebook, whichever way they come.

The command line, the HTTP door and the console use this one list. Each call says who asks, and is
noted with what came of it. The methods wait in the thread that asks, since they lead to a
repository and to files; what they answer JSON can hold. They raise `BadValue` for what cannot be
asked, `Forbidden` for what this identity may not ask, `Conflict` where somebody else was faster,
and `Unavailable` where something that is leaned on does not answer.

A revision is "live", the number of a version, the id of a commit or of a proposal. An id may be
shortened to `ID_CHARS_MIN` characters where that is unmistakable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from sluicegate.contracts.access import Identity

ID_CHARS_MIN: Final = 6
LIVE_REVISION: Final = "live"

Answer = Mapping[str, Any]


class RuleAdmin(Protocol):
    """All that can be asked of a rulebook."""

    # Read; these take the grant to read rules.

    def rules(self, at: str = LIVE_REVISION, *, by: Identity) -> Answer:
        """The commit, its version, and its files by name, format, rules and digest."""
        ...

    def file(self, name: str, at: str = LIVE_REVISION, *, by: Identity) -> Answer:
        """One file, as text."""
        ...

    def diff(self, before: str, after: str, *, by: Identity) -> Answer:
        """What changes from one revision to the other: files by lines, and rules by their names."""
        ...

    def proposals(self, state: str = "", *, count_max: int = 100, by: Identity) -> Sequence[Answer]:
        """The latest proposals, newest first."""
        ...

    def proposal(self, id: str, *, by: Identity) -> Answer:  # noqa: A002 - it is what it is called
        """One proposal: who, what, why, its state, its verdict, and everything that befell it."""
        ...

    def versions(self, *, count_max: int = 100, by: Identity) -> Sequence[Answer]:
        """The latest editions, newest first."""
        ...

    def status(self, *, by: Identity) -> Answer:
        """What the fleet is ordered to run, and what each node has reported."""
        ...

    def wait(self, version: int, *, nodes: int, timeout_s: float, by: Identity) -> Answer:
        """The status once that many nodes run the version; `reached` says whether they do."""
        ...

    def audit(self, *, count_max: int = 100, by: Identity) -> Sequence[Answer]:
        """The latest calls that changed something or were refused, newest first."""
        ...

    # Propose.

    def propose(
        self,
        changes: Mapping[str, str | None],
        *,
        base: str,
        message: str,
        reason: str = "",
        by: Identity,
    ) -> Answer:
        """Propose files with these texts (None takes a file out), in place of those at `base`.

        A `BadRules` says what is wrong with them, a `Conflict` that what they change has changed
        since. The proposal is tried at once where there is a capture to try it on.
        """
        ...

    def judge(self, id: str, *, by: Identity) -> Answer:  # noqa: A002 - likewise
        """Try a proposal (again), on what has been captured by now; the proposal."""
        ...

    # Approve. Whoever may approve may not approve what they proposed, unless that is set.

    def approve(self, id: str, *, override: str = "", by: Identity) -> Answer:  # noqa: A002
        """Approve; where the gate could not judge, only with an `override` that says why."""
        ...

    def reject(self, id: str, *, reason: str, by: Identity) -> Answer:  # noqa: A002
        """Turn down."""
        ...

    def publish(self, id: str, *, by: Identity) -> Answer:  # noqa: A002
        """Make an approved proposal live, for everybody at once."""
        ...

    def canary(self, id: str, *, share: int, kind: str, by: Identity) -> Answer:  # noqa: A002
        """Let it be in force for a share of callers or nodes (of 10,000), or for a larger one.

        A share of 10,000 makes it live, 0 takes it back.
        """
        ...

    def roll_back(self, to: str, *, reason: str, by: Identity) -> Answer:
        """Make the rules of an earlier revision live again, as a new version."""
        ...

    def pin(self, node: str, version: int, *, reason: str, by: Identity) -> Answer:
        """Have one node run that version whatever is live; 0 lets it go. The status."""
        ...
