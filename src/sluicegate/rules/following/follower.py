"""Follower: a node runs what its fleet's rollout says, and nothing else.

    store = ReleaseStore(open_blobs("s3://..."), Verifier.read(["trusted.pem"]))
    rules = Follower(store, put_in_force, node="limiter-7", folder="/var/lib/sluicegate/rules")
    rules.start()
    ...
    rules.close()

A rollout comes by an announcement, if there is a log of them, and from the store, which is polled.
It is followed only if a trusted key has signed it and its number is above all that were seen. What
it names is fetched, verified and built in the follower's own thread, beside the rules
in force; then all of it is handed over in one step. Whatever fails, the rules in force stay: the
failure is told by `status` and in the node's reports, and it is tried again, less and less often.

Rollouts expire, and are renewed by their publisher. A node whose newest one has expired says so
and runs on: somebody may be keeping newer ones from it. It never takes an older one.

What runs is kept in `folder`, so that a node starts with everything else down. With nothing there
and nobody to ask, `start` raises `Unavailable`. `put_in_force` is called by `start` in its thread,
and later in the thread of `loop`, if there is one. It must be started after a process has forked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread, current_thread
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.event_log import EventLog
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.kernels.backoff import reconnect_backoff
from sluicegate.rules.following.announcements import AnnouncementReader
from sluicegate.rules.following.failures import (
    ANNOUNCEMENTS,
    DISK,
    EXPIRED,
    EXPIRY,
    OLDER,
    REPLAYED,
    ROLLOUT,
    RULES,
    FailureRecord,
    kind_of,
)
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.held_releases import DELTA, WHOLE
from sluicegate.rules.following.in_force import InForce, PutInForce, RulesInForce, Swap
from sluicegate.rules.following.last_good import LastGood
from sluicegate.rules.following.reporter import Reporter
from sluicegate.rules.following.status import (
    Counts,
    FollowAttempt,
    FollowerMetrics,
    report_of,
    status_of,
)
from sluicegate.rules.releases.documents import check_node
from sluicegate.rules.releases.signatures import SignedRollout, Untrusted, open_rollout
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.system import SystemChance, SystemClock
from sluicegate.wire.timestamps import rfc3339

EVERY_S_ALONE: Final = 1.0  # where nobody announces anything
EVERY_S_ANNOUNCED: Final = 30.0
EVERY_S_MIN: Final = 0.01
EVERY_S_MAX: Final = 86_400.0
REPORT_EVERY_S_DEFAULT: Final = 30.0
RETRY_US_MIN: Final = 200_000
RETRY_US_MAX: Final = 30_000_000
JITTER: Final = 0.1  # of the time between looks, so that a fleet does not ask as one
CLOSE_S_MAX: Final = 10.0

_log: Final = logging.getLogger("sluicegate.rules")

BACK: Final = (
    "they lead to older rules and do not say that they mean it; "
    "give rollouts that say `back`, or publish the old rules as a new release"
)


class _ReplayedRollout(Untrusted):
    """A rollout older than the latest one seen."""


class _ExpiredRollout(Untrusted):
    """A rollout that nobody has renewed."""


class _Wanted(NamedTuple):
    """A rollout that is to be followed, and when it was announced."""

    signed: SignedRollout
    announced_us: int

    @property
    def number(self) -> int:
        return self.signed.rollout.number


@final
class Follower:
    """The rules of a node, following its fleet's rollout; used as `ServiceRules` is."""

    def __init__(
        self,
        store: ReleaseStore,
        put_in_force: PutInForce,
        *,
        node: str,
        folder: str | os.PathLike[str] | None = None,
        announcements: EventLog | None = None,
        every_s: float | None = None,
        report_every_s: float = REPORT_EVERY_S_DEFAULT,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        counts: Callable[[], Counts] = dict,
    ) -> None:
        if every_s is None:
            every_s = EVERY_S_ALONE if announcements is None else EVERY_S_ANNOUNCED
        for name, value in (("every_s", every_s), ("report_every_s", report_every_s)):
            if not EVERY_S_MIN <= value <= EVERY_S_MAX:
                remedy = f"give {EVERY_S_MIN} to {EVERY_S_MAX:,.0f} seconds"
                raise BadValue(name, value, remedy)
        self._node = check_node(node)
        self._store = store
        self._every_us = int(every_s * 1e6)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._chance: Chance = SystemChance() if chance is None else chance
        self._counts = counts
        self._closed = Event()
        self._wake = Event()
        self.record: Final = FailureRecord()
        self._swap = Swap(put_in_force, loop, self._closed)
        bytes_max = max(store.bounds.snapshot_bytes_max, store.bounds.delta_bytes_max)
        last_good = None if folder is None else LastGood(folder, part_bytes_max=bytes_max)
        self._running = RulesInForce(
            store, self._swap, self.record, self._clock, node=node, last_good=last_good
        )
        self._listener = (
            None
            if announcements is None
            else AnnouncementReader(announcements, self.notify, self.record, self._chance)
        )
        self._reporter = Reporter(
            self.report,
            store.put_report,
            self.record,
            self._chance,
            every_us=int(report_every_s * 1e6),
        )
        self._retry = reconnect_backoff(RETRY_US_MIN, RETRY_US_MAX)
        self._thread: Thread | None = None
        self._lock = Lock()  # over what was heard
        self._announced: _Wanted | None = None
        self._pending: _Wanted | None = None
        self._last = FollowAttempt(self._clock.now_us(), "")
        self._accepted = self._refused = self._attempt = 0
        self._highest = 0  # the highest number of rollouts
        self._expires_us = 0  # of that rollout
        self._poll_now = False
        self._started_us = self._checked_us = self._next_us = self._retry_us = 0

    # Start and stop.

    def start(self) -> Follower:
        """Put in force what there is, and follow from threads of its own."""
        if self._thread is not None or self._closed.is_set():
            return self
        if self._running.now is None:
            self.begin()
        self._swap.started = True
        self._thread = Thread(target=self._run, name="follow rules", daemon=True)
        self._thread.start()
        self._reporter.start()
        if self._listener is not None:
            self._listener.start()
        return self

    def begin(self) -> None:
        """Put in force what is kept, or if nothing is, what the store has; without a thread."""
        self._started_us = self._clock.now_us()
        self._highest = self._running.restore()
        pending = self._running.pending()
        if pending is None or pending.rollout.number <= self._highest:
            pending = self._running.pending_rollout
        if pending is not None:
            self._highest, self._expires_us = pending.rollout.number, pending.rollout.expires_us
            self._pending = _Wanted(pending, pending.rollout.at_us)
        if self._running.now is not None:
            self._expires_us = self._expires_us or self._running.now.rollout.expires_us
            # Whether there are newer ones was not asked yet; these were the newest when made.
            self._checked_us = self._running.now.rollout.at_us
            self._record_success()
            return
        missing = self.record.failures.get(DISK, "nothing is kept on the disk")
        try:
            signed = self._fetch_rollout()
            if signed.rollout.number < self._highest:
                raise self._refuse_replay(signed)
            self._running.run(signed, announced_us=self._announced_us(signed.rollout.at_us))
        except Unavailable as error:
            raise Unavailable("every rule", f"{missing}; {error}") from None
        self._highest, self._pending = signed.rollout.number, None
        self._expires_us = signed.rollout.expires_us
        self._checked_us = self._clock.now_us()
        self._record_success()

    def close(self) -> None:
        """Stop following; what is in force stays."""
        self._closed.set()
        self._wake.set()
        if self._listener is not None:
            self._listener.close(CLOSE_S_MAX)
        self._reporter.close(CLOSE_S_MAX)
        thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():
            thread.join(CLOSE_S_MAX)
        self._running.close()

    def __enter__(self) -> Follower:
        return self.start()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    # What there is to see.

    @property
    def books(self) -> FleetBooks:
        """The rules in force."""
        return self._in_force().books

    @property
    def book(self) -> ServiceRuleSet:
        """The live rules in force."""
        return self.books.live

    @property
    def counts(self) -> tuple[int, int]:
        """Rollouts since the start: followed, and refused or failed."""
        return self._accepted, self._refused

    def status(self) -> Mapping[str, object]:
        """Which rules are in force, why, and what is wrong; what JSON can hold."""
        return status_of(
            self._in_force(),
            self._last,
            self.record.failures,
            node=self._node,
            highest=self._highest,
            expires_us=self._expires_us,
            checked_us=self._checked_us,
        )

    def metrics(self) -> FollowerMetrics:
        """What there is to measure."""
        now = self._running.now
        ways = self._running.ways
        return FollowerMetrics(
            version=0 if now is None else now.books.live_version,
            canary=0 if now is None else now.books.canary_version,
            rollout=0 if now is None else now.rollout.number,
            made_us=0 if now is None else now.made_us,
            since_us=0 if now is None else now.since_us,
            took_us=0 if now is None else now.took_us,
            checked_us=self._checked_us,
            expires_us=self._expires_us,
            accepted=self._accepted,
            refused=self._refused,
            whole=ways[WHOLE],
            deltas=ways[DELTA],
            reports=self._reporter.sent,
            failure_counts=self.record.failure_counts,
        )

    def report(self) -> NodeReport:
        """What this node says of itself."""
        return report_of(
            self._running.now,
            self.record.failures,
            self._counts(),
            node=self._node,
            at_us=self._clock.now_us(),
        )

    # What makes it look.

    def reload(self) -> None:
        """Ask the store now; in the thread, if there is one."""
        self._poll_now = True
        if self._thread is None:
            self.look()
        else:
            self._wake.set()

    def notify(self, body: bytes, at_us: int) -> None:
        """Take note of an announcement; never waits for anything."""
        try:
            signed = open_rollout(body, self._store.verifier)
        except SluicegateError as error:
            # Anybody may write to a log. What matters, the store says too.
            if self.record.count(ANNOUNCEMENTS, kind_of(error)):
                _log.warning("an announcement of rules is passed over: %s", error)
            return
        announced = _Wanted(signed, at_us)
        with self._lock:
            newest = self._highest if self._announced is None else self._announced.number
            if announced.number <= newest:
                return
            self._announced = announced
        self._wake.set()

    def look(self) -> bool:
        """Do what is due now; whether another rollout is followed after it."""
        with self._lock:
            announced, self._announced = self._announced, None
        changed = announced is not None and self._adopt(announced)
        now_us = self._clock.now_us()
        if self._poll_now:
            self._poll_now, self._next_us, self._retry_us = False, 0, 0
        if now_us >= self._next_us:
            spread = 1 - JITTER + 2 * JITTER * self._chance.draw()
            self._next_us = now_us + int(self._every_us * spread)
            changed = self.poll() or changed
            self._check_expiry(now_us)
        if self._pending is not None and now_us >= self._retry_us:
            changed = self._try_pending() or changed
        return changed

    def poll(self) -> bool:
        """Ask the store for its rollout, and follow a newer one; whether that changed it."""
        self._running.save()
        try:
            signed = self._fetch_rollout()
            if signed.rollout.number < self._highest:
                raise self._refuse_replay(signed)
        except SluicegateError as error:
            if self.record.add(ROLLOUT, error, self._kind_of(error)):
                _log.warning("the rollout is not followed: %s", error)
            return False
        if self.record.clear(ROLLOUT):
            _log.info("the rollout is followed again")
            self._reporter.wake()  # what could not be reported meanwhile can be now
        self._checked_us = self._clock.now_us()
        return self._adopt(_Wanted(signed, signed.rollout.at_us))

    # Inside: one thread.

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            try:
                self.look()
            except Exception as error:
                _log.exception("following the rules failed; it goes on")
                self.record.add(RULES, error)
            self._wake.wait(self._rest_s())

    def _rest_s(self) -> float:
        until_us = self._next_us
        if self._pending is not None:
            until_us = min(until_us, self._retry_us)
        return max(EVERY_S_MIN, (until_us - self._clock.now_us()) / 1e6)

    def _fetch_rollout(self) -> SignedRollout:
        signed = self._store.rollout()
        if signed is None:
            raise Unavailable("the rollout", "there is none yet; publish a release first")
        return signed

    def _adopt(self, pending: _Wanted) -> bool:
        """Follow this rollout if it is newer than all before."""
        if pending.number <= self._highest:
            return False
        self._highest, self._pending, self._attempt = pending.number, pending, 0
        self._expires_us = pending.signed.rollout.expires_us
        self._check_expiry(self._clock.now_us())
        return self._try_pending()

    def _try_pending(self) -> bool:
        """Try to follow the pending rollout; what runs stays if that fails."""
        pending = self._pending
        if pending is None:
            return False
        rollout = pending.signed.rollout
        try:
            if self._running.goes_back(rollout):
                self._pending = None  # no trying again makes them better
                self._record_failure(pending, Untrusted(f"rollout {rollout.number}", BACK), OLDER)
                return False
            announced_us = self._announced_us(pending.announced_us)
            self._running.run(pending.signed, announced_us=announced_us)
        except Exception as error:
            self._record_failure(pending, error)
            return False
        self._pending = None
        self._record_success()
        return True

    def _check_expiry(self, now_us: int) -> None:
        """Whoever can write to the store and has no key could keep newer rollouts from a node.

        It runs on with what it has, and says that it may not be the newest.
        """
        if not 0 < self._expires_us <= now_us:
            if self.record.clear(EXPIRY):
                _log.info("rollout %d has not expired: all is heard again", self._highest)
                self._reporter.wake()
            return
        error = _ExpiredRollout(
            f"that rollout {self._highest} is the newest",
            f"it expired at {rfc3339(self._expires_us)}, and no later one was heard of; the rules "
            "in force stay",
        )
        if self.record.add(EXPIRY, error, EXPIRED):
            _log.warning("%s", error)
            self._reporter.wake()

    def _record_success(self) -> None:
        self.record.clear(RULES)
        self._accepted += 1
        self._last = FollowAttempt(self._clock.now_us(), "")
        self._reporter.wake()

    def _record_failure(self, pending: _Wanted, error: Exception, kind: str = "") -> None:
        now_us = self._clock.now_us()
        self._retry_us = now_us + self._retry.wait_us(self._attempt, self._chance.draw())
        self._refused += 1
        self._last = FollowAttempt(now_us, str(error) or repr(error))
        if self.record.add(RULES, error, kind):
            _log.warning("the rules stay as they are: %s", error)
            self._reporter.wake()
        if self._attempt == 0:
            self._running.save_pending(pending.signed.signed)
        self._attempt += 1

    def _announced_us(self, at_us: int) -> int:
        # A node that was down has not kept anybody waiting before it came.
        return max(at_us, self._started_us)

    def _refuse_replay(self, signed: SignedRollout) -> Untrusted:
        return _ReplayedRollout(
            f"rollout {signed.rollout.number}",
            f"number {self._highest} has been seen here already; if these are meant all the same, "
            "remove what this node has kept",
        )

    def _kind_of(self, error: SluicegateError) -> str:
        return REPLAYED if isinstance(error, _ReplayedRollout) else kind_of(error)

    def _in_force(self) -> InForce:
        now = self._running.now
        if now is None:
            raise Unavailable("every rule", "start() has not put any in force yet")
        return now
