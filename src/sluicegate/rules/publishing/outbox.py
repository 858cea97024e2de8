"""Outbox: brings to the world what the ledger says was decided, as often as it takes.

    ledger ─ live ref ─ snapshot ─ deltas ─ release ─ rollout ─ announcement ─ notes ─ branch

It derives what is missing and makes it, in this order. Each step can be repeated, and each is
whole or not there; so a crash at any point heals with the next run, two publishers who run it at
once end in the same, and nobody ever sees half a version: a rollout is put when all it names is
there. What has been told is noted in the ledger last, and until then it is told again.

The live ref is moved here and nowhere else. It is found where this has left it, or somebody else
has moved it: then everything stops, with what was expected, what is there, and how to repair it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotInTime
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    HasWriter,
    SluicegateError,
    Unavailable,
)
from sluicegate.contracts.event_log import EventLog
from sluicegate.contracts.rulebook import RULES_CHANGED, BlobPart, Release, Rollout
from sluicegate.rules.publishing.ledger import (
    OUTBOX,
    LedgerChange,
    LedgerState,
    RulebookLedger,
    author_of,
)
from sluicegate.rules.publishing.records import TRIAL, Delivered, ReleaseRecord
from sluicegate.rules.publishing.revisions import RuleFiles
from sluicegate.rules.publishing.settings import LIVE_REF, VERSIONS, PublishingSettings
from sluicegate.rules.releases.documents import SNAPSHOTS
from sluicegate.rules.releases.signatures import Signer, sign_release, sign_rollout
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.codec import pack
from sluicegate.rules.snapshot.delta import apply_delta, make_delta
from sluicegate.rules.snapshot.snapshot import RulesSnapshot

# Where a publisher may die; a test kills it at each. What is decided at DECIDED goes through.
MERGED: Final = "merged"
DECIDED: Final = "decided"
LIVE_MOVED: Final = "live moved"
SNAPSHOT_PUT: Final = "snapshot put"
DELTA_PUT: Final = "delta put"
RELEASE_PUT: Final = "edition put"
ROLLOUT_PUT: Final = "orders put"
ANNOUNCED: Final = "announced"
NOTED: Final = "noted"
BRANCH_MOVED: Final = "branch moved"
DELIVERED: Final = "told"
CRASH_POINTS: Final = (
    MERGED,
    DECIDED,
    LIVE_MOVED,
    SNAPSHOT_PUT,
    DELTA_PUT,
    RELEASE_PUT,
    ROLLOUT_PUT,
    ANNOUNCED,
    NOTED,
    BRANCH_MOVED,
    DELIVERED,
)

At = Callable[[str], None]

_TRIES_MAX: Final = 20
# How often it is looked whether another publisher has told, in as long as it looks three times.
_LOOKS: Final = 30
_LOOKS_PER_LOOK: Final = 3

_log: Final = logging.getLogger("sluicegate.rules")


def proceed(point: str) -> None:
    """What happens at a crash point, except in tests: nothing."""


@final
class ReleaseOutbox:
    """The way from the ledger into the world. Threads take turns; processes need none."""

    def __init__(
        self,
        repository: Repository,
        ledger: RulebookLedger,
        rule_files: RuleFiles,
        store: ReleaseStore,
        events: EventLog | None,
        signer: Signer,
        *,
        settings: PublishingSettings,
        clock: Clock,
        at: At = proceed,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._rule_files = rule_files
        self._store = store
        self._events = events
        self._signer = signer
        self._settings = settings
        self._clock = clock
        self._at = at
        self._lock = threading.Lock()
        self._pause = threading.Event()  # never set: it is waited for
        self._recent: dict[str, tuple[int, RulesSnapshot]] = {}  # by content, the latest used last
        self._stuck_branch = ("", "")  # a branch that cannot be moved forward to that commit

    def check_new(self) -> None:
        """`Unavailable` where the blob store is another rulebook's: its fleet would be confused."""
        self._locate_live()
        stored = self._store.rollout()
        if stored is not None and not self._ledger.state().fleet.versions:
            raise Unavailable(
                "the blob store",
                f"it has rollout {stored.rollout.number} of another rulebook, or of one whose "
                "ledger is lost; give an empty one, or put the repository back as it was",
            )

    def check(self) -> LedgerState:
        """The state; `Unavailable` where somebody else has moved what is live."""
        return self._locate_live()[0]

    def reconcile(self) -> LedgerState:
        """Tell the world what it lacks; the state when it lacks nothing."""
        with self._lock:
            state = self._move_live()
            live, fleet = state.live, state.fleet
            if live is None:
                return state
            delivered = Delivered(fleet.versions, fleet.rollouts)
            if fleet.delivered == delivered and not fleet.notes:
                return self._follow_branch(state, live.commit)
            for number in range(fleet.delivered.versions + 1, fleet.versions + 1):
                if number in state.versions:
                    self._release(state, state.versions[number])
            self._rollouts(state)
            self._notes(state)
            moved = self._branch(live.commit)
            self._at(BRANCH_MOVED)
            tip = live.commit if moved else ""
            state = self._ledger.change(OUTBOX, lambda now: _record_delivered(now, state, tip))
            self._at(DELIVERED)
            return state

    # The live ref.

    def _locate_live(self) -> tuple[LedgerState, str | None]:
        """The ledger, and where the live ref is beside it: behind it at most, and nowhere else."""
        for _ in range(_TRIES_MAX):
            tip = self._repository.tip(LIVE_REF)
            state = self._ledger.state()
            if tip in _may_be_live(state):
                return state, tip
            if tip == self._repository.tip(LIVE_REF):
                break  # it was so all the while the ledger said otherwise
        expected = None if state.live is None else state.live.commit
        remedy = f"git update-ref {LIVE_REF} {expected}" if expected else "take the ref away"
        raise Unavailable(
            f"publishing ({LIVE_REF})",
            f"somebody else has moved what is live: {tip or 'nothing'} is there, and "
            f"{expected or 'nothing'} was published. Nothing is published until that is there "
            f"again: {remedy}. What was put there instead can be pushed to the branch",
        )

    def _move_live(self) -> LedgerState:
        """The ledger, with the live ref where it belongs."""
        for _ in range(_TRIES_MAX):
            state, tip = self._locate_live()
            if state.live is None or tip == state.live.commit:
                return state
            try:
                self._repository.move(LIVE_REF, state.live.commit, expected=tip)
            except Conflict:
                continue  # another publisher is at it as well; look again
            self._at(LIVE_MOVED)
            return state
        raise Conflict(LIVE_REF, "others move it all the time")

    # The blob store.

    def _release(self, state: LedgerState, version: ReleaseRecord) -> None:
        if version.kind == TRIAL:
            # It is on no branch while it is tried, and must outlive a clean-up.
            ref = f"{VERSIONS}{version.number}"
            if self._repository.tip(ref) is None:
                self._repository.move(ref, version.commit, expected=None)
        if self._is_stored(version):
            return
        snapshot = self._rule_files.compile(version.commit)
        data = pack(snapshot)
        part = self._store.put_snapshot(data)
        self._at(SNAPSHOT_PUT)
        deltas = self._deltas(state, version, snapshot, part)
        release = Release(
            version=version.number,
            commit=version.commit,
            content=snapshot.content,
            snapshot=part,
            bytes_unpacked=_bytes_of(snapshot),
            rules=snapshot.rules,
            made_us=version.at_us,
            deltas=deltas,
        )
        try:
            self._store.put_release(sign_release(release, self._signer).signed)
        except Conflict:
            if not self._is_stored(version):
                raise
        self._remember(snapshot)
        self._at(RELEASE_PUT)

    def _is_stored(self, version: ReleaseRecord) -> bool:
        stored = self._store.release(version.number)
        if stored is None:
            return False
        if stored.release.commit != version.commit:
            raise Unavailable(
                "the blob store",
                f"version {version.number} there is of commit {stored.release.commit}, and here of "
                f"{version.commit}: it belongs to another rulebook, or the ledger has lost its end",
            )
        return True

    def _deltas(
        self, state: LedgerState, version: ReleaseRecord, snapshot: RulesSnapshot, whole: BlobPart
    ) -> dict[str, BlobPart]:
        """Deltas from the last releases, each tried before it is given away."""
        deltas: dict[str, BlobPart] = {}
        earlier = [number for number in state.versions if number < version.number]
        for number in sorted(earlier, reverse=True)[: self._settings.deltas]:
            previous = self._store.release(number)
            content = "" if previous is None else previous.release.content
            if previous is None or content == snapshot.content or content in deltas:
                continue
            try:
                before = self._snapshot(previous.release)
                data = make_delta(before, snapshot)
                most = self._store.bounds.unpacked_bytes_max
                good = apply_delta(before, data, bytes_max=most).content == snapshot.content
            except (Unavailable, OSError):
                raise
            except SluicegateError as error:
                _log.warning("no delta from version %d to %d: %s", number, version.number, error)
                continue
            if not good:
                _log.error("the delta from version %d to %d is wrong", number, version.number)
            elif len(data) < whole.bytes:
                deltas[content] = self._store.put_delta(data)
                self._at(DELTA_PUT)
        return deltas

    def _snapshot(self, release: Release) -> RulesSnapshot:
        recent = self._recent.get(release.content)
        snapshot = self._store.snapshot(release).snapshot if recent is None else recent[1]
        self._remember(snapshot)
        return snapshot

    def _remember(self, snapshot: RulesSnapshot) -> None:
        entry = self._recent.pop(snapshot.content, None) or (_bytes_of(snapshot), snapshot)
        self._recent[snapshot.content] = entry
        while sum(size for size, _ in self._recent.values()) > self._settings.recent_bytes_max:
            del self._recent[next(iter(self._recent))]

    def _rollouts(self, state: LedgerState) -> None:
        fleet = state.fleet
        signed = b""
        for number in range(fleet.delivered.rollouts + 1, fleet.rollouts + 1):
            rollouts = state.rollouts.get(number)
            if rollouts is None:
                continue
            if number == fleet.rollouts:
                self._ensure_stored(state, rollouts)  # nobody follows those before
            signed = sign_rollout(rollouts, self._signer).signed
            try:
                self._store.put_rollout(signed)
            except Conflict as error:
                self._explain_conflict(state, number, error)
        self._at(ROLLOUT_PUT)
        if not signed or self._events is None:
            return
        promise = self._events.append(RULES_CHANGED, signed, self._clock.now_us())
        try:
            promise.result(self._settings.event_us_max / 1e6)
        except NotInTime:
            problem = f"no word within {self._settings.event_us_max / 1e6:g} s; it is sent again"
            raise Unavailable("the event log", problem) from None
        except HasWriter:
            # A publisher that runs beside us has it open, and looks at the ledger as we do.
            if not self._delivered_by_other(fleet.rollouts):
                raise
        self._at(ANNOUNCED)

    def _delivered_by_other(self, rollouts: int) -> bool:
        for _ in range(_LOOKS):
            if self._ledger.state().fleet.delivered.rollouts >= rollouts:
                return True
            self._pause.wait(_LOOKS_PER_LOOK * self._settings.look_us / 1e6 / _LOOKS)
        return False

    def _ensure_stored(self, state: LedgerState, rollouts: Rollout) -> None:
        """What is to run may be so old that its snapshot was swept away; it is made again."""
        for number in sorted({rollouts.live, *rollouts.pins.values()}):
            version, stored = state.versions.get(number), self._store.release(number)
            if version is None or stored is None:
                continue
            part = stored.release.snapshot
            if self._store.blobs.names(SNAPSHOTS + part.digest):
                continue
            again = self._store.put_snapshot(pack(self._rule_files.compile(version.commit)))
            if again != part:
                raise Unavailable(
                    f"the snapshot of version {number}",
                    "it was swept away, and this program packs it otherwise than it was; let the "
                    "pin go, or roll back to it, which makes a new version",
                )

    def _explain_conflict(self, state: LedgerState, number: int, error: SluicegateError) -> None:
        now = self._ledger.state()
        if now.fleet.delivered.rollouts > state.fleet.delivered.rollouts:
            return  # another publisher was faster, and has told it all
        stored = self._store.rollout()
        ours = stored is not None and stored.rollout == now.rollouts.get(stored.rollout.number)
        if stored is not None and ours and stored.rollout.number >= number:
            return  # it is about to
        raise Unavailable(
            "the blob store",
            f"it has a rollout that this ledger does not know ({error}): it belongs to another "
            "rulebook, or the ledger has lost its end",
        ) from None

    # What people see.

    def _notes(self, state: LedgerState) -> None:
        for commit, text in state.fleet.notes:
            if text in self._repository.notes(commit):
                continue
            try:
                now_us = self._clock.now_us()
                self._repository.note(commit, text, author=author_of("sluicegate"), at_us=now_us)
            except BadValue as error:
                _log.warning("no note on commit %s: %s", commit, error)
        self._at(NOTED)

    def _branch(self, live: str) -> bool:
        """Move it forward to what is live where it can be; where not, people have pushed."""
        branch = self._settings.branch
        tip = self._repository.tip(branch) if branch else live
        if tip == live or (tip or "", live) == self._stuck_branch:
            return False
        if tip is not None and not self._repository.is_ancestor(tip, live):
            self._stuck_branch = (tip, live)
            return False
        try:
            self._repository.move(branch, live, expected=tip)
        except Conflict:
            return False  # somebody pushes just now; it is looked at again
        return True

    def _follow_branch(self, state: LedgerState, live: str) -> LedgerState:
        """The branch moved forward, where there was nothing else to do."""
        if not self._branch(live):
            return state
        return self._ledger.change(OUTBOX, lambda now: _record_branch(now, live))


def _bytes_of(snapshot: RulesSnapshot) -> int:
    """What a snapshot comes to when it is unpacked."""
    parts = (snapshot.pages, snapshot.heads, snapshot.kinds.values(), (snapshot.outline(),))
    return sum(len(data) for part in parts for data in part)


def _may_be_live(state: LedgerState) -> set[str | None]:
    """Where the live ref may be: where the ledger says, or where it said before it was told."""
    if state.live is None:
        return {None}
    delivered = state.fleet.delivered.rollouts
    ordered = {one.live for number, one in state.rollouts.items() if number >= max(delivered, 1)}
    lagging = {state.versions[number].commit for number in ordered if number in state.versions}
    return {state.live.commit, *lagging, *(() if delivered else (None,))}


def _record_branch(now: LedgerState, live: str) -> LedgerChange | None:
    if now.fleet.branch_tip == live:
        return None
    return LedgerChange(
        "moved the branch forward", OUTBOX, fleet=now.fleet._replace(branch_tip=live)
    )


def _record_delivered(now: LedgerState, state: LedgerState, branch_tip: str) -> LedgerChange | None:
    """What was told when `state` was; others may have told more, or decided more, since."""
    delivered = Delivered(
        max(now.fleet.delivered.versions, state.fleet.versions),
        max(now.fleet.delivered.rollouts, state.fleet.rollouts),
    )
    done = {*state.fleet.notes}
    notes = tuple(note for note in now.fleet.notes if note not in done)
    fleet = now.fleet._replace(
        delivered=delivered, notes=notes, branch_tip=branch_tip or now.fleet.branch_tip
    )
    if fleet == now.fleet:
        return None
    return LedgerChange(f"told rollout {delivered.rollouts}", OUTBOX, fleet=fleet)
