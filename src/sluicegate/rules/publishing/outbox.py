"""Outbox: brings to the world what the ledger says was decided, as often as it takes.

    ledger ── live ref ── snapshot ── deltas ── edition ── orders ── announcement ── notes ── branch

It derives what is missing and makes it, in this order. Each step can be repeated, and each is
whole or not there; so a crash at any point heals with the next run, two publishers who run it at
once end in the same, and nobody ever sees half a version: orders are given when all they name is
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
from sluicegate.contracts.rulebook import RULES_CHANGED, Edition, Orders, Part
from sluicegate.rules.editions.layout import SNAPSHOTS
from sluicegate.rules.editions.shelf import Shelf
from sluicegate.rules.editions.signed import sign_edition, sign_orders
from sluicegate.rules.editions.signing import Signer
from sluicegate.rules.publishing.contents import Contents
from sluicegate.rules.publishing.ledger import OUTBOX, Change, Ledger, State, author_of
from sluicegate.rules.publishing.records import TRIED, Told, Version
from sluicegate.rules.publishing.settings import LIVE_REF, VERSIONS, PublishingSettings
from sluicegate.rules.repository.repository import Repository
from sluicegate.rules.snapshot.delta import apply_delta, make_delta
from sluicegate.rules.snapshot.packing import pack
from sluicegate.rules.snapshot.snapshot import Snapshot

# Where a publisher may die; a test kills it at each. What is decided at DECIDED goes through.
MERGED: Final = "merged"
DECIDED: Final = "decided"
LIVE_MOVED: Final = "live moved"
SNAPSHOT_PUT: Final = "snapshot put"
DELTA_PUT: Final = "delta put"
EDITION_PUT: Final = "edition put"
ORDERS_PUT: Final = "orders put"
ANNOUNCED: Final = "announced"
NOTED: Final = "noted"
BRANCH_MOVED: Final = "branch moved"
TOLD: Final = "told"
CRASH_POINTS: Final = (
    MERGED,
    DECIDED,
    LIVE_MOVED,
    SNAPSHOT_PUT,
    DELTA_PUT,
    EDITION_PUT,
    ORDERS_PUT,
    ANNOUNCED,
    NOTED,
    BRANCH_MOVED,
    TOLD,
)

At = Callable[[str], None]

_TRIES_MAX: Final = 20
# How often it is looked whether another publisher has told, in as long as it looks three times.
_LOOKS: Final = 30
_LOOKS_PER_LOOK: Final = 3

_log: Final = logging.getLogger("sluicegate.rules")


def go_on(point: str) -> None:
    """What happens at a crash point, except in tests: nothing."""


@final
class Outbox:
    """The way from the ledger into the world. Threads take turns; processes need none."""

    __slots__ = (
        "_at",
        "_clock",
        "_contents",
        "_events",
        "_ledger",
        "_pause",
        "_recent",
        "_repository",
        "_settings",
        "_shelf",
        "_signer",
        "_tried",
        "_turn",
    )

    def __init__(
        self,
        repository: Repository,
        ledger: Ledger,
        contents: Contents,
        shelf: Shelf,
        events: EventLog | None,
        signer: Signer,
        *,
        settings: PublishingSettings,
        clock: Clock,
        at: At = go_on,
    ) -> None:
        self._repository = repository
        self._ledger = ledger
        self._contents = contents
        self._shelf = shelf
        self._events = events
        self._signer = signer
        self._settings = settings
        self._clock = clock
        self._at = at
        self._turn = threading.Lock()
        self._pause = threading.Event()  # never set: it is waited for
        self._recent: dict[str, tuple[int, Snapshot]] = {}  # by content, the latest used last
        self._tried = ("", "")  # a branch that cannot be moved forward to that commit

    def check_new(self) -> None:
        """`Unavailable` where the blob store is another rulebook's: its fleet would be confused."""
        self._place()
        there = self._shelf.orders()
        if there is not None and not self._ledger.state().fleet.versions:
            raise Unavailable(
                "the blob store",
                f"it has orders {there.orders.number} of another rulebook, or of one whose ledger "
                "is lost; give an empty one, or put the repository back as it was",
            )

    def check(self) -> State:
        """The state; `Unavailable` where somebody else has moved what is live."""
        return self._place()[0]

    def reconcile(self) -> State:
        """Tell the world what it lacks; the state when it lacks nothing."""
        with self._turn:
            state = self._moved()
            live, fleet = state.live, state.fleet
            if live is None:
                return state
            told = Told(fleet.versions, fleet.orders)
            if fleet.told == told and not fleet.marks:
                return self._followed(state, live.commit)
            for number in range(fleet.told.versions + 1, fleet.versions + 1):
                if number in state.versions:
                    self._edition(state, state.versions[number])
            self._orders(state)
            self._notes(state)
            moved = self._branch(live.commit)
            self._at(BRANCH_MOVED)
            seen = live.commit if moved else ""
            state = self._ledger.change(OUTBOX, lambda now: _has_told(now, state, seen))
            self._at(TOLD)
            return state

    # The live ref.

    def _place(self) -> tuple[State, str | None]:
        """The ledger, and where the live ref is beside it: behind it at most, and nowhere else."""
        for _ in range(_TRIES_MAX):
            there = self._repository.tip(LIVE_REF)
            state = self._ledger.state()
            if there in _may_be_live(state):
                return state, there
            if there == self._repository.tip(LIVE_REF):
                break  # it was so all the while the ledger said otherwise
        expected = None if state.live is None else state.live.commit
        remedy = f"git update-ref {LIVE_REF} {expected}" if expected else "take the ref away"
        raise Unavailable(
            f"publishing ({LIVE_REF})",
            f"somebody else has moved what is live: {there or 'nothing'} is there, and "
            f"{expected or 'nothing'} was published. Nothing is published until that is there "
            f"again: {remedy}. What was put there instead can be pushed to the branch",
        )

    def _moved(self) -> State:
        """The ledger, with the live ref where it belongs."""
        for _ in range(_TRIES_MAX):
            state, there = self._place()
            if state.live is None or there == state.live.commit:
                return state
            try:
                self._repository.move(LIVE_REF, state.live.commit, expected=there)
            except Conflict:
                continue  # another publisher is at it as well; look again
            self._at(LIVE_MOVED)
            return state
        raise Conflict(LIVE_REF, "others move it all the time")

    # The blob store.

    def _edition(self, state: State, version: Version) -> None:
        if version.kind == TRIED:
            # It is on no branch while it is tried, and must outlive a clean-up.
            ref = f"{VERSIONS}{version.number}"
            if self._repository.tip(ref) is None:
                self._repository.move(ref, version.commit, expected=None)
        if self._is_on_shelf(version):
            return
        snapshot = self._contents.compiled(version.commit)
        data = pack(snapshot)
        part = self._shelf.put_snapshot(data)
        self._at(SNAPSHOT_PUT)
        deltas = self._deltas(state, version, snapshot, part)
        edition = Edition(
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
            self._shelf.put_edition(sign_edition(edition, self._signer).signed)
        except Conflict:
            if not self._is_on_shelf(version):
                raise
        self._remember(snapshot)
        self._at(EDITION_PUT)

    def _is_on_shelf(self, version: Version) -> bool:
        there = self._shelf.edition(version.number)
        if there is None:
            return False
        if there.edition.commit != version.commit:
            raise Unavailable(
                "the blob store",
                f"version {version.number} there is of commit {there.edition.commit}, and here of "
                f"{version.commit}: it belongs to another rulebook, or the ledger has lost its end",
            )
        return True

    def _deltas(
        self, state: State, version: Version, snapshot: Snapshot, whole: Part
    ) -> dict[str, Part]:
        """Deltas from the last editions, each tried before it is given away."""
        deltas: dict[str, Part] = {}
        earlier = [number for number in state.versions if number < version.number]
        for number in sorted(earlier, reverse=True)[: self._settings.deltas]:
            there = self._shelf.edition(number)
            content = "" if there is None else there.edition.content
            if there is None or content == snapshot.content or content in deltas:
                continue
            try:
                before = self._snapshot(there.edition)
                data = make_delta(before, snapshot)
                most = self._shelf.bounds.unpacked_bytes_max
                good = apply_delta(before, data, bytes_max=most).content == snapshot.content
            except (Unavailable, OSError):
                raise
            except SluicegateError as error:
                _log.warning("no delta from version %d to %d: %s", number, version.number, error)
                continue
            if not good:
                _log.error("the delta from version %d to %d is wrong", number, version.number)
            elif len(data) < whole.bytes:
                deltas[content] = self._shelf.put_delta(data)
                self._at(DELTA_PUT)
        return deltas

    def _snapshot(self, edition: Edition) -> Snapshot:
        known = self._recent.get(edition.content)
        snapshot = self._shelf.snapshot(edition).snapshot if known is None else known[1]
        self._remember(snapshot)
        return snapshot

    def _remember(self, snapshot: Snapshot) -> None:
        known = self._recent.pop(snapshot.content, None) or (_bytes_of(snapshot), snapshot)
        self._recent[snapshot.content] = known
        while sum(size for size, _ in self._recent.values()) > self._settings.recent_bytes_max:
            del self._recent[next(iter(self._recent))]

    def _orders(self, state: State) -> None:
        fleet = state.fleet
        signed = b""
        for number in range(fleet.told.orders + 1, fleet.orders + 1):
            orders = state.orders.get(number)
            if orders is None:
                continue
            if number == fleet.orders:
                self._all_there(state, orders)  # nobody follows those before
            signed = sign_orders(orders, self._signer).signed
            try:
                self._shelf.put_orders(signed)
            except Conflict as error:
                self._not_ours(state, number, error)
        self._at(ORDERS_PUT)
        if not signed or self._events is None:
            return
        promise = self._events.append(RULES_CHANGED, signed, self._clock.now_us())
        try:
            promise.result(self._settings.event_us_max / 1e6)
        except NotInTime:
            seen = f"no word within {self._settings.event_us_max / 1e6:g} s; it is sent again"
            raise Unavailable("the event log", seen) from None
        except HasWriter:
            # A publisher that runs beside us has it open, and looks at the ledger as we do.
            if not self._told_by_another(fleet.orders):
                raise
        self._at(ANNOUNCED)

    def _told_by_another(self, orders: int) -> bool:
        for _ in range(_LOOKS):
            if self._ledger.state().fleet.told.orders >= orders:
                return True
            self._pause.wait(_LOOKS_PER_LOOK * self._settings.look_us / 1e6 / _LOOKS)
        return False

    def _all_there(self, state: State, orders: Orders) -> None:
        """What is ordered may be so old that its snapshot was swept away; it is made again."""
        for number in sorted({orders.live, *orders.pins.values()}):
            version, there = state.versions.get(number), self._shelf.edition(number)
            if version is None or there is None:
                continue
            part = there.edition.snapshot
            if self._shelf.blobs.names(SNAPSHOTS + part.digest):
                continue
            again = self._shelf.put_snapshot(pack(self._contents.compiled(version.commit)))
            if again != part:
                raise Unavailable(
                    f"the snapshot of version {number}",
                    "it was swept away, and this program packs it otherwise than it was; let the "
                    "pin go, or roll back to it, which makes a new version",
                )

    def _not_ours(self, state: State, number: int, error: SluicegateError) -> None:
        now = self._ledger.state()
        if now.fleet.told.orders > state.fleet.told.orders:
            return  # another publisher was faster, and has told it all
        there = self._shelf.orders()
        known = there is not None and there.orders == now.orders.get(there.orders.number)
        if there is not None and known and there.orders.number >= number:
            return  # it is about to
        raise Unavailable(
            "the blob store",
            f"it has orders that this ledger does not know ({error}): it belongs to another "
            "rulebook, or the ledger has lost its end",
        ) from None

    # What people see.

    def _notes(self, state: State) -> None:
        for commit, text in state.fleet.marks:
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
        if tip == live or (tip or "", live) == self._tried:
            return False
        if tip is not None and not self._repository.is_ancestor(tip, live):
            self._tried = (tip, live)
            return False
        try:
            self._repository.move(branch, live, expected=tip)
        except Conflict:
            return False  # somebody pushes just now; it is looked at again
        return True

    def _followed(self, state: State, live: str) -> State:
        """The branch moved forward, where there was nothing else to do."""
        if not self._branch(live):
            return state
        return self._ledger.change(OUTBOX, lambda now: _has_seen(now, live))


def _bytes_of(snapshot: Snapshot) -> int:
    """What a snapshot comes to when it is unpacked."""
    parts = (snapshot.pages, snapshot.heads, snapshot.kinds.values(), (snapshot.outline(),))
    return sum(len(data) for part in parts for data in part)


def _may_be_live(state: State) -> set[str | None]:
    """Where the live ref may be: where the ledger says, or where it said before it was told."""
    if state.live is None:
        return {None}
    told = state.fleet.told.orders
    ordered = {one.live for number, one in state.orders.items() if number >= max(told, 1)}
    lagging = {state.versions[number].commit for number in ordered if number in state.versions}
    return {state.live.commit, *lagging, *(() if told else (None,))}


def _has_seen(now: State, live: str) -> Change | None:
    if now.fleet.seen == live:
        return None
    return Change("moved the branch forward", OUTBOX, fleet=now.fleet._replace(seen=live))


def _has_told(now: State, state: State, seen: str) -> Change | None:
    """What was told when `state` was; others may have told more, or decided more, since."""
    told = Told(
        max(now.fleet.told.versions, state.fleet.versions),
        max(now.fleet.told.orders, state.fleet.orders),
    )
    done = {*state.fleet.marks}
    marks = tuple(mark for mark in now.fleet.marks if mark not in done)
    fleet = now.fleet._replace(told=told, marks=marks, seen=seen or now.fleet.seen)
    if fleet == now.fleet:
        return None
    return Change(f"told orders {told.orders}", OUTBOX, fleet=fleet)
