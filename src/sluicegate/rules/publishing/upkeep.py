"""Upkeep: what happens by itself.

    pushes -> proposals     outbox -> delivered     canary -> wider, live, or taken back     cleanup

Each look does all of it; what fails does not stop the rest, is reported, and is tried again at the
next. Pushes have a thread of their own: they are judged there, which may take minutes, and a canary
must not be left alone so long. Several processes may look at once, and the ledger lets one win.

The cleanup removes refs of proposals and releases that have left the ledger's newest state; then
git may drop their commits, while the ledger's history still names them. It deletes the blobs of old
releases too; a release that is to run again is made again (`outbox.py`). And it removes the reports
of nodes that are gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.following.fleet_status import FleetReports
from sluicegate.rules.publishing import canary, rollouts
from sluicegate.rules.publishing.branch import Pushes, RemoteMirror
from sluicegate.rules.publishing.canary import CanaryTally, failing_nodes
from sluicegate.rules.publishing.ledger import RulebookLedger
from sluicegate.rules.publishing.publisher import Publisher
from sluicegate.rules.publishing.settings import PROPOSALS, VERSIONS, PublishingSettings
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.repository.repository import Repository

OURSELVES: Final = "sluicegate"
CLOSE_S_MAX: Final = 60.0
REMOTE: Final = "remote"
PUSHES: Final = "pushes"
OUTBOX: Final = "publishing"
CANARY: Final = "canary"
TIDYING: Final = "tidying"

_log: Final = logging.getLogger("sluicegate.rules")


Look = Callable[[], object]


@final
class Upkeep:
    """Looks now and then, in three threads."""

    def __init__(
        self,
        publisher: Publisher,
        pushes: Pushes,
        mirror: RemoteMirror,
        monitor: CanaryMonitor,
        cleanup: Cleanup,
        *,
        look_us: int,
    ) -> None:
        self._publisher = publisher
        self.cleanup: Final = cleanup
        self._look_us = look_us
        publishing = (
            (OUTBOX, publisher.reconcile),
            (CANARY, monitor.look),
            (TIDYING, cleanup.look),
        )
        # By the name of its thread, what is done in turn, and the lock while that is done.
        self._groups: dict[str, tuple[Sequence[tuple[str, Look]], threading.Lock]] = {
            "mirror rules": (((REMOTE, mirror.look),), threading.Lock()),
            "propose rules": (((PUSHES, pushes.look),), threading.Lock()),
            "publish rules": (publishing, threading.Lock()),
        }
        self._failures_lock = threading.Lock()  # over `_failures`
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> dict[str, str]:
        """What failed at the last look, by what it was; empty where all is well."""
        with self._failures_lock:
            failures = {what: why for what, why in self._failures.items() if what != OUTBOX}
        # Whoever publishes tries that too, and may have succeeded since.
        if self._publisher.failure:
            failures[OUTBOX] = self._publisher.failure
        return failures

    def look(self) -> None:
        """Do all there is to do."""
        for name in self._groups:
            self._look(name)

    def start(self) -> None:
        """Look in threads that do not keep the program alive; after a fork, not before."""
        if self._threads or self._closed.is_set():
            return
        for name in self._groups:
            thread = threading.Thread(target=self._run, args=(name,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop looking; a look that is under way goes on to its end, and is waited for a while."""
        self._closed.set()
        threads, self._threads = self._threads, []
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_S_MAX)

    # Inside.

    def _run(self, name: str) -> None:
        while not self._closed.is_set():
            self._look(name)
            self._closed.wait(self._look_us / 1e6)

    def _look(self, name: str) -> None:
        looks, lock = self._groups[name]
        with lock:
            for what, look in looks:
                self._try(what, look)

    def _try(self, what: str, look: Look) -> None:
        try:
            look()
        except Exception as error:
            why = str(error) or repr(error)
            if self._failures.get(what) != why:
                bug = None if isinstance(error, SluicegateError) else error
                _log.warning("%s: %s", what, why, exc_info=bug)
            with self._failures_lock:
                self._failures[what] = why
        else:
            with self._failures_lock:
                self._failures.pop(what, None)


@final
class CanaryMonitor:
    """Widens the canary under way, makes it live, or takes it back, by the nodes' reports."""

    def __init__(
        self,
        ledger: RulebookLedger,
        publisher: Publisher,
        fleet: FleetReports,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._fleet = fleet
        self._settings = settings
        self._clock = clock
        self._tally: CanaryTally | None = None

    def failing(self) -> tuple[str, ...]:
        """The nodes that report a failure now."""
        return failing_nodes(self._reports(), self._fresh_us())

    def look(self) -> None:
        """Judge the canary by what the nodes report, and act on it."""
        fleet = self._ledger.state().fleet
        run = fleet.canary
        if run is None:
            self._tally = None
            return
        if self._tally is None or self._tally.state != run.state:
            self._tally = CanaryTally(run.state, fleet.live, run.failing, before=self._tally)
        now_us = self._clock.now_us()
        counts = self._tally.figures(self._reports(), self._fresh_us())
        state, action = canary.step(run.state, counts, now_us, self._settings.canary)
        if action.kind == canary.HOLD:
            return
        make = partial(rollouts.widen_canary, share=state.share)
        if action.kind == canary.ROLL_BACK:
            make = partial(rollouts.end_canary)
        why = action.reason
        try:
            self._publisher.decide(
                OURSELVES, lambda now: make(now, run=run, why=why, at_us=now_us, by=OURSELVES)
            )
        except (BadValue, Conflict):
            # Somebody else has just decided on it; the next look sees what.
            if self._ledger.state().fleet.canary == run:
                raise
            return
        if action.kind == canary.ROLL_BACK:
            _log.error("version %d is taken back: %s", run.state.version, why)

    def _reports(self) -> list[NodeReport]:
        return [node.report for node in self._fleet.look().nodes if node.report is not None]

    def _fresh_us(self) -> int:
        return self._clock.now_us() - self._settings.report_age_us_max


@final
class Cleanup:
    """Removes what nobody needs, now and then; several at once do no harm."""

    __slots__ = ("_clock", "_due_us", "_fleet", "_ledger", "_repository", "_settings", "_store")

    def __init__(
        self,
        repository: Repository,
        ledger: RulebookLedger,
        store: ReleaseStore,
        fleet: FleetReports,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._store = store
        self._fleet = fleet
        self._settings = settings
        self._clock = clock
        self._due_us = clock.now_us() + settings.tidy_us

    def look(self) -> None:
        """Clean up if it is time to."""
        now_us = self._clock.now_us()
        if now_us < self._due_us:
            return
        self._due_us = now_us + self._settings.tidy_us
        self.refs(now_us)
        self._store.sweep(self._settings.keep_releases, now_us=now_us)
        if gone := self._fleet.forget_gone():
            _log.info("nodes that were silent for too long are removed: %s", ", ".join(gone))

    def refs(self, now_us: int) -> None:
        """Take refs away that no record needs; a young one may be of a call that is under way."""
        outdated = [
            *self._repository.refs(PROPOSALS).items(),
            *self._repository.refs(VERSIONS).items(),
        ]
        state = self._ledger.state()
        needed = {PROPOSALS + one for one in state.proposals}
        needed |= {f"{VERSIONS}{number}" for number in state.versions}
        for ref, commit in outdated:
            if ref in needed:
                continue
            if now_us - self._repository.info(commit).at_us < self._settings.tidy_us:
                continue
            try:
                self._repository.remove(ref, expected=commit)
            except Conflict:
                _log.info("%s was moved while it was to go; it stays", ref)
