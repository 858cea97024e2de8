"""Rulebook: the life of a service's rules as plain values, from a proposal to the nodes.

    files ── commit ── proposal ── verdict ── approval ── release ── rollout ── nodes

A *commit* is the files of a rulebook at a moment, with who and why. A *proposal* is a commit that
wants to go live. A *release* is a commit compiled, numbered and signed; its number is never used
twice, and going back to older rules makes a new release of them. A *rollout* says which releases a
fleet runs; each has a number, and nodes follow the highest they have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

# The kinds of events that are announced.
RULES_CHANGED: Final = "rules.changed"

# What a proposal may be.
OPEN: Final = "open"
REJECTED: Final = "rejected"  # by the gate or by a person
APPROVED: Final = "approved"
CANARY: Final = "canary"
LIVE: Final = "live"
REPLACED: Final = "replaced"  # it was live
ROLLED_BACK: Final = "rolled back"  # it was live or a canary, and was taken back
STATES: Final = (OPEN, REJECTED, APPROVED, CANARY, LIVE, REPLACED, ROLLED_BACK)

# What a gate may find.
PASSED: Final = "passed"
FAILED: Final = "failed"
NOT_JUDGED: Final = "not judged"

BY_CALLERS: Final = "callers"
BY_NODES: Final = "nodes"

Files = Mapping[str, bytes]


class Author(NamedTuple):
    """Who made a commit."""

    name: str
    email: str


class Commit(NamedTuple):
    """One commit, without its files. The message is the subject, a blank line, and the reason."""

    id: str
    parents: tuple[str, ...]
    author: Author
    at_us: int
    message: str


class FileChange(NamedTuple):
    """What happened to a file between two commits; None where there is no file."""

    name: str
    before: bytes | None
    after: bytes | None


class GateFinding(NamedTuple):
    """What a gate found. `report` is what JSON can hold, with all figures behind the sentence."""

    result: str
    sentence: str
    confidence: float | None
    report: Mapping[str, object]


class Judge(Protocol):
    """Tries rules before they go live."""

    def judge(self, current: Files, candidate: Files) -> GateFinding:
        """Try the candidate beside what is live now."""
        ...


class BlobPart(NamedTuple):
    """Bytes in a blob store, known by their digest (SHA-256, in hex)."""

    digest: str
    bytes: int


class Release(NamedTuple):
    """One version of the rules, compiled.

    `content` is the digest of what the rules say, however that was packed; `deltas` lead here from
    the contents of earlier releases.
    """

    version: int
    commit: str
    content: str
    snapshot: BlobPart
    bytes_unpacked: int
    rules: int
    made_us: int
    deltas: Mapping[str, BlobPart]


class Canary(NamedTuple):
    """A release for a part of the callers, or of the nodes: `share` of 10,000 of them."""

    version: int
    by: str
    share: int
    salt: str  # who belongs to the share follows from this and from their names


class Rollout(NamedTuple):
    """What a fleet runs. `back` allows nodes to return to a release older than the one they run.

    `pins` are nodes that run a release of their own, whatever is live. From `expires_us` on, a node
    that has heard of no later rollout says so; 0 is never.
    """

    number: int
    live: int
    canary: Canary | None
    pins: Mapping[str, int]
    back: bool
    reason: str
    at_us: int
    expires_us: int = 0


class NodeReport(NamedTuple):
    """What a node says of itself.

    `canary` is the version it runs for a share of its callers, 0 for none. `counts` are decisions
    since it took up what it runs: for each version and class, how many and how many refused.
    """

    node: str
    rollout: int
    version: int
    canary: int
    at_us: int
    since_us: int
    took_us: int  # from the announcement to the swap
    failure: str
    counts: Mapping[str, Sequence[int]]
