"""Making: publishing from its parts, in the one order in which they know each other."""

from __future__ import annotations

from typing import NamedTuple

from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.event_log import EventLog
from sluicegate.contracts.rulebook import Judge
from sluicegate.rules.editions.shelf import Shelf
from sluicegate.rules.editions.signing import Signer, Verifier
from sluicegate.rules.following.fleet import Fleet
from sluicegate.rules.publishing.contents import Compile, Contents
from sluicegate.rules.publishing.desk import Desk
from sluicegate.rules.publishing.drafts import Drafts
from sluicegate.rules.publishing.ledger import Ledger
from sluicegate.rules.publishing.mirror import Mirror
from sluicegate.rules.publishing.outbox import At, Outbox, go_on
from sluicegate.rules.publishing.publisher import Publisher
from sluicegate.rules.publishing.pushes import Pushes
from sluicegate.rules.publishing.refusals import Refusals
from sluicegate.rules.publishing.revisions import Revisions
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.publishing.showing import Showing
from sluicegate.rules.publishing.tidying import Tidying
from sluicegate.rules.publishing.watchman import Watchman
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.snapshot import compile_snapshot
from sluicegate.system import SystemClock


class Publishing(NamedTuple):
    """The parts that an app holds: the desk for whoever asks, the watchman for the rest."""

    desk: Desk
    watchman: Watchman
    publisher: Publisher
    ledger: Ledger
    shelf: Shelf
    refusals: Refusals

    def start(self) -> None:
        """Tell what is still to be told, and look after everything from now on, in a thread."""
        self.watchman.start()

    def close(self) -> None:
        """Stop looking. What was given (the stores, the logs) is its owner's to close."""
        self.watchman.close()
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
    at: At = go_on,
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
    shelf = Shelf(blobs, signer.verifier() if verifier is None else verifier)
    ledger = Ledger(repository, settings=settings, clock=clock)
    contents = Contents(repository, settings=settings, compiler=compiler)
    drafts = Drafts(repository, ledger, contents, judge, settings=settings, clock=clock)
    outbox = Outbox(
        repository, ledger, contents, shelf, events, signer, settings=settings, clock=clock, at=at
    )
    publisher = Publisher(
        repository, ledger, contents, drafts, outbox, settings=settings, clock=clock, at=at
    )
    pushes = Pushes(repository, ledger, drafts, settings=settings)
    fleet = Fleet(shelf, clock, stale_us=settings.report_age_us_max)
    tidying = Tidying(repository, ledger, shelf, settings=settings, clock=clock)
    mirror = Mirror(repository, settings=settings, clock=clock)
    watchman = Watchman(
        ledger, publisher, pushes, mirror, tidying, fleet, settings=settings, clock=clock
    )
    revisions = Revisions(repository, ledger)
    refusals = Refusals(audit, kept_max=settings.refusals_max)
    desk = Desk(
        ledger,
        drafts,
        publisher,
        watchman,
        fleet,
        revisions,
        Showing(repository, contents, revisions),
        refusals,
        settings=settings,
        clock=clock,
    )
    return Publishing(desk, watchman, publisher, ledger, shelf, refusals)
