"""Watchman: sees to it that what should happen by itself does.

    pushes -> proposals     outbox -> told     canary -> wider, live, or taken back     tidying

Each look does all of it; what fails in one does not keep the others, is told as trouble, and is
tried again at the next. `start` has threads look, and pushes have one of their own: they are judged
there, which may take minutes, and a canary must not be left alone so long. Several processes may
look at once, and the ledger lets one of them win.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.rules.following.fleet import Fleet
from sluicegate.rules.publishing import canary, decisions
from sluicegate.rules.publishing.ledger import Ledger
from sluicegate.rules.publishing.mirror import Mirror
from sluicegate.rules.publishing.publisher import Publisher
from sluicegate.rules.publishing.pushes import Pushes
from sluicegate.rules.publishing.settings import PublishingSettings
from sluicegate.rules.publishing.tally import Tally, in_trouble
from sluicegate.rules.publishing.tidying import Tidying

OURSELVES: Final = "sluicegate"
CLOSE_S_MAX: Final = 60.0
REMOTE: Final = "remote"
PUSHES: Final = "pushes"
OUTBOX: Final = "publishing"
CANARY: Final = "canary"
TIDYING: Final = "tidying"

_log: Final = logging.getLogger("sluicegate.rules")


@final
class Watchman:
    """Looks now and then. `fleet` is what the nodes say of themselves."""

    __slots__ = (
        "_clock",
        "_closed",
        "_fleet",
        "_ledger",
        "_mirror",
        "_mirroring",
        "_proposing",
        "_publisher",
        "_publishing",
        "_pushes",
        "_settings",
        "_tally",
        "_telling",
        "_threads",
        "_troubles",
        "tidying",
    )

    def __init__(
        self,
        ledger: Ledger,
        publisher: Publisher,
        pushes: Pushes,
        mirror: Mirror,
        tidying: Tidying,
        fleet: Fleet,
        *,
        settings: PublishingSettings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._pushes = pushes
        self._mirror = mirror
        self.tidying: Final = tidying
        self._fleet = fleet
        self._settings = settings
        self._clock = clock
        self._mirroring = threading.Lock()
        self._proposing = threading.Lock()
        self._publishing = threading.Lock()
        self._telling = threading.Lock()  # over the troubles
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tally: Tally | None = None
        self._troubles: dict[str, str] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """What went wrong at the last look, by what it was; nothing, where all is well."""
        with self._telling:
            troubles = {what: told for what, told in self._troubles.items() if what != OUTBOX}
        # Whoever publishes tries that too, and may have had more luck since.
        if self._publisher.trouble:
            troubles[OUTBOX] = self._publisher.trouble
        return troubles

    def look(self) -> None:
        """Do all there is to do."""
        self._reflect()
        self._propose()
        self._publish()

    def troubled(self) -> tuple[str, ...]:
        """The nodes that have trouble now."""
        return in_trouble(self._reports(), self._fresh_us())

    def start(self) -> None:
        """Look in threads that do not keep the program alive; after a fork, not before."""
        if self._threads or self._closed.is_set():
            return
        for name, look in (
            ("mirror rules", self._reflect),
            ("propose rules", self._propose),
            ("publish rules", self._publish),
        ):
            thread = threading.Thread(target=self._run, args=(look,), name=name, daemon=True)
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

    def _reflect(self) -> None:
        with self._mirroring:
            self._try(REMOTE, self._mirror.look)

    def _propose(self) -> None:
        with self._proposing:
            self._try(PUSHES, self._look_at_pushes)

    def _publish(self) -> None:
        with self._publishing:
            self._try(OUTBOX, self._look_at_outbox)
            self._try(CANARY, self._look_at_canary)
            self._try(TIDYING, self.tidying.look)

    def _run(self, look: Callable[[], None]) -> None:
        while not self._closed.is_set():
            look()
            self._closed.wait(self._settings.look_us / 1e6)

    def _try(self, what: str, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception as error:
            told = str(error) or repr(error)
            if self._troubles.get(what) != told:
                bug = None if isinstance(error, SluicegateError) else error
                _log.warning("%s: %s", what, told, exc_info=bug)
            with self._telling:
                self._troubles[what] = told
        else:
            with self._telling:
                self._troubles.pop(what, None)

    def _look_at_pushes(self) -> None:
        self._pushes.look()

    def _look_at_outbox(self) -> None:
        self._publisher.reconcile()

    def _look_at_canary(self) -> None:
        fleet = self._ledger.state().fleet
        run = fleet.canary
        if run is None:
            self._tally = None
            return
        if self._tally is None or self._tally.state != run.state:
            self._tally = Tally(run.state, fleet.live, run.troubled, before=self._tally)
        now_us = self._clock.now_us()
        figures = self._tally.figures(self._reports(), self._fresh_us())
        state, action = canary.step(run.state, figures, now_us, self._settings.canary)
        why = action.reason
        if action.kind == canary.HOLD:
            return
        try:
            if action.kind == canary.ROLL_BACK:
                self._publisher.decide(
                    OURSELVES,
                    lambda now: decisions.canary_ended(
                        now, run, why=why, at_us=now_us, by=OURSELVES
                    ),
                )
                _log.error("version %d is taken back: %s", run.state.version, why)
            else:
                self._publisher.decide(
                    OURSELVES,
                    lambda now: decisions.canary_wider(
                        now, run, state.share, why=why, at_us=now_us, by=OURSELVES
                    ),
                )
        except (BadValue, Conflict):
            # Somebody else has just decided on it; the next look sees what.
            if self._ledger.state().fleet.canary == run:
                raise

    def _reports(self) -> list[NodeReport]:
        return [node.report for node in self._fleet.look().nodes if node.report is not None]

    def _fresh_us(self) -> int:
        return self._clock.now_us() - self._settings.report_age_us_max
