"""Parts: what publishing consists of, made in the one order in which the parts know each other."""

from __future__ import annotations

from typing import NamedTuple

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.event_log import EventLog
from sluicegate.contracts.rulebook import Judge
from sluicegate.rules.following.fleet_status import FleetReports
from sluicegate.rules.publishing.admin import RulebookAdmin
from sluicegate.rules.publishing.branch import Pushes, RemoteMirror
from sluicegate.rules.publishing.ledger import RulebookLedger
from sluicegate.rules.publishing.outbox import At, ReleaseOutbox, proceed
from sluicegate.rules.publishing.proposals import Proposals
from sluicegate.rules.publishing.publisher import Publisher
from sluicegate.rules.publishing.refusal_log import RefusalLog
from sluicegate.rules.publishing.revisions import Compile, Revisions, RuleFiles
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.publishing.upkeep import CanaryMonitor, Cleanup, Upkeep
from sluicegate.rules.releases.signatures import Signer, Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from sluicegate.system import SystemClock


class Publishing(NamedTuple):
    """The parts that an app uses: the admin for callers, the upkeep for the rest."""

    admin: RulebookAdmin
    upkeep: Upkeep
    publisher: Publisher
    ledger: RulebookLedger
    store: ReleaseStore
    refusals: RefusalLog

    def start(self) -> None:
        """Tell what is still to be told, and look after everything from now on, in a thread."""
        self.upkeep.start()

    def close(self) -> None:
        """Stop looking. What was given (the stores, the logs) is its owner's to close."""
        self.upkeep.close()
        self.refusals.close()


def open_publishing(
    repository: Repository,
    blobs: BlobStore,
    signer: Signer,
    *,
    verifier: Verifier | None = None,
    events: EventLog | None = None,
    audit: EventLog | None = None,
    judge: Judge | None = None,
    settings: PublishingSettings | None = None,
    compiler: Compile = compile_snapshot,
    clock: Clock | None = None,
    at: At = proceed,
) -> Publishing:
    """Publishing over a repository, a blob store, and an event log for announcements.

    `verifier` trusts more keys than the signer's own, so that what an earlier key has signed is
    still read. `audit` keeps refused calls; `judge` is None where there is no gate. `compiler` is
    `compile_snapshot` with the settings that the nodes' service has. `at` is for tests.
    """
    if verifier is not None and signer.id not in verifier.ids:
        remedy = "add the public key that belongs to the signing key, beside those of earlier ones"
        raise BadValue("trusted_keys", list(verifier.ids), remedy)
    settings = PublishingSettings() if settings is None else settings
    clock = SystemClock() if clock is None else clock
    store = ReleaseStore(blobs, signer.verifier() if verifier is None else verifier)
    ledger = RulebookLedger(repository, settings=settings, clock=clock)
    rule_files = RuleFiles(repository, settings=settings, compiler=compiler)
    drafts = Proposals(repository, ledger, rule_files, judge, settings=settings, clock=clock)
    outbox = ReleaseOutbox(
        repository, ledger, rule_files, store, events, signer, settings=settings, clock=clock, at=at
    )
    publisher = Publisher(
        repository, ledger, rule_files, drafts, outbox, settings=settings, clock=clock, at=at
    )
    pushes = Pushes(repository, ledger, drafts, settings=settings)
    fleet = FleetReports(
        store, clock, stale_us=settings.report_age_us_max, gone_us=settings.node_gone_us
    )
    cleanup = Cleanup(repository, ledger, store, fleet, settings=settings, clock=clock)
    mirror = RemoteMirror(repository, settings=settings, clock=clock)
    monitor = CanaryMonitor(ledger, publisher, fleet, settings=settings, clock=clock)
    upkeep = Upkeep(publisher, pushes, mirror, monitor, cleanup, look_us=settings.look_us)
    revisions = Revisions(repository, ledger, rule_files)
    refusals = RefusalLog(audit, kept_max=settings.refusals_max)
    admin = RulebookAdmin(
        ledger,
        drafts,
        publisher,
        monitor,
        upkeep,
        fleet,
        revisions,
        refusals,
        settings=settings,
        clock=clock,
    )
    return Publishing(admin, upkeep, publisher, ledger, store, refusals)
