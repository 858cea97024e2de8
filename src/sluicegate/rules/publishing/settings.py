"""What publishing is told: frozen settings, checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges
from sluicegate.rules.publishing.canary import CanarySettings

LIVE_REF: Final = "refs/sluicegate/live"
LEDGER_REF: Final = "refs/sluicegate/ledger"
PROPOSALS: Final = "refs/sluicegate/proposals/"
VERSIONS: Final = "refs/sluicegate/versions/"  # of canaries, which are on no branch
ROLLOUT_LOOKS_MIN: Final = 4  # a rollout is valid for so many looks at least, to be renewed in time
REPORT_AGE_US_MAX: Final = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingSettings:
    """Who may do what, how much is kept, and how often is looked."""

    branch: str = "refs/heads/main"  # what people push to; empty if nobody does
    folder: str = ""  # where in the repository the rules are; all of it if empty
    remote: str = ""  # where the branch is kept as well, as a URL or a path; empty if nowhere
    remote_look_us: int = ranged(10_000_000, 10_000, 86_400_000_000)  # between looks at that
    remote_us_max: int = ranged(15_000_000, 100_000, 600_000_000)  # that it may take to answer
    own_approval: bool = False  # whether a proposer may approve what they proposed
    approvals_min: int = ranged(1, 1, 100)  # different people
    # Earlier releases that a delta leads on from; nodes go through those between.
    deltas: int = ranged(2, 0, 64)
    # Kept in the ledger's newest state; older ones in its history.
    proposals_max: int = ranged(1_000, 1, 100_000)
    releases_max: int = ranged(2_000, 2, 1_000_000)  # likewise
    rollouts_max: int = ranged(100, 2, 100_000)  # likewise
    # Of earlier rules held in memory, to make deltas from.
    recent_bytes_max: int = ranged(64 << 20, 0, 1 << 40)
    pins_max: int = ranged(1_000, 0, 1_000)
    refusals_max: int = ranged(1_000, 1, 1_000_000)  # refused calls that the audit can tell
    message_chars_max: int = ranged(10_000, 1, 1_000_000)
    report_bytes_max: int = ranged(256 << 10, 1_024, 16 << 20)  # of a verdict, as it is kept
    keep_releases: int = ranged(50, 1, 100_000)  # whose snapshots and deltas stay in the blob store
    # Between two times that what nobody needs is taken away.
    tidy_us: int = ranged(3_600_000_000, 60_000_000, 30 * 86_400_000_000)
    # Between looks at the branch, the outbox and the canary.
    look_us: int = ranged(1_000_000, 10_000, 3_600_000_000)
    # That an announcement may take to be acknowledged.
    event_us_max: int = ranged(5_000_000, 1_000, 600_000_000)
    # An older report says nothing about now.
    report_age_us_max: int = ranged(REPORT_AGE_US_MAX, 1_000_000, 86_400_000_000)
    # A node that was silent for so long is no longer listed, and its report is removed; 0 is never.
    node_gone_us: int = ranged(86_400_000_000, 0, 366 * 86_400_000_000)
    # After which nodes that hear nothing newer say so; 0 is never. Give it only to a publisher that
    # looks by itself: it renews the rollout when half of that has passed.
    rollout_valid_us: int = ranged(0, 0, 366 * 86_400_000_000)
    canary: CanarySettings = field(default_factory=CanarySettings)

    def __post_init__(self) -> None:
        if self.branch and not self.branch.startswith("refs/heads/"):
            raise BadValue("publishing.branch", self.branch, "write it as refs/heads/main")
        if self.folder != self.folder.strip("/"):
            raise BadValue("publishing.folder", self.folder, "write it as limits/web")
        check_ranges("publishing", self)
        valid_us_min = ROLLOUT_LOOKS_MIN * self.look_us
        if 0 < self.rollout_valid_us < valid_us_min:
            remedy = f"give 0 for never, or four looks ({valid_us_min:,}) or more"
            raise BadValue("publishing.rollout_valid_us", self.rollout_valid_us, remedy)
        if 0 < self.node_gone_us < self.report_age_us_max:
            remedy = f"give 0 for never, or {self.report_age_us_max:,} or more"
            raise BadValue("publishing.node_gone_us", self.node_gone_us, remedy)
