"""What publishing is told: frozen settings, checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.publishing.canary import CanarySettings

LIVE_REF: Final = "refs/sluicegate/live"
LEDGER_REF: Final = "refs/sluicegate/ledger"
PROPOSALS: Final = "refs/sluicegate/proposals/"
VERSIONS: Final = "refs/sluicegate/versions/"  # of canaries, which are on no branch


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingSettings:
    """Who may do what, how much is kept, and how often is looked."""

    branch: str = "refs/heads/main"  # what people push to; empty if nobody does
    folder: str = ""  # where in the repository the rules are; all of it if empty
    remote: str = ""  # where the branch is kept as well, as a URL or a path; empty if nowhere
    remote_look_us: int = 10_000_000  # between looks at that
    remote_us_max: int = 15_000_000  # that it may take to answer
    own_approval: bool = False  # whether a proposer may approve what they proposed
    approvals_min: int = 1  # different people
    deltas: int = 2  # earlier releases that a delta leads on from; nodes go through those between
    proposals_max: int = 1_000  # kept in the ledger's newest state; older ones in its history
    releases_max: int = 2_000  # likewise
    rollouts_max: int = 100  # likewise
    recent_bytes_max: int = 64 << 20  # of earlier rules held in memory, to make deltas from
    pins_max: int = 1_000
    refusals_max: int = 1_000  # refused calls that the audit can tell
    message_chars_max: int = 10_000
    report_bytes_max: int = 256 << 10  # of a verdict, as it is kept
    keep_releases: int = 50  # whose snapshots and deltas stay in the blob store
    tidy_us: int = 3_600_000_000  # between two times that what nobody needs is taken away
    look_us: int = 1_000_000  # between looks at the branch, the outbox and the canary
    event_us_max: int = 5_000_000  # that an announcement may take to be acknowledged
    report_age_us_max: int = 60_000_000  # an older report says nothing about now
    canary: CanarySettings = field(default_factory=CanarySettings)

    def __post_init__(self) -> None:
        if self.branch and not self.branch.startswith("refs/heads/"):
            raise BadValue("publishing.branch", self.branch, "write it as refs/heads/main")
        if self.folder != self.folder.strip("/"):
            raise BadValue("publishing.folder", self.folder, "write it as limits/web")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise BadValue(f"publishing.{name}", value, f"give {least:,} to {most:,}")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "remote_look_us": (10_000, 86_400_000_000),
    "remote_us_max": (100_000, 600_000_000),
    "approvals_min": (1, 100),
    "deltas": (0, 64),
    "proposals_max": (1, 100_000),
    "releases_max": (2, 1_000_000),
    "rollouts_max": (2, 100_000),
    "recent_bytes_max": (0, 1 << 40),
    "pins_max": (0, 1_000),
    "refusals_max": (1, 1_000_000),
    "message_chars_max": (1, 1_000_000),
    "report_bytes_max": (1_024, 16 << 20),
    "keep_releases": (1, 100_000),
    "tidy_us": (60_000_000, 30 * 86_400_000_000),
    "look_us": (10_000, 3_600_000_000),
    "event_us_max": (1_000, 600_000_000),
    "report_age_us_max": (1_000_000, 86_400_000_000),
}
