"""Ledger: who did what and why, and what follows from it; a chain of commits beside the rules.

Whatever is decided about rules is one commit here: its files are the records (`records.py`), its
message is the sentence of the audit. A change is worked out from the state it was read in, and
moves the ref only if that is still the state; else it is worked out again. So of two people who
change the same thing at once, the second one decides on what the first has done, and nothing is
lost. Everything else (the live ref, editions, orders, announcements, notes) follows from here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.rulebook import CANARY, LIVE, Author, Commit, FileChange, Orders
from sluicegate.rules.publishing import records
from sluicegate.rules.publishing.records import Fleet, Proposal, Version
from sluicegate.rules.publishing.settings import LEDGER_REF, PublishingSettings
from sluicegate.rules.repository.repository import Repository

TRIES_MAX: Final = 200
WAIT_S_MAX: Final = 0.05  # between two tries
OUTBOX: Final = "outbox"  # the calls of nobody: what the publisher notes for itself
_FLEET: Final = "fleet.json"
_CALLS: Final = ("Call", "By", "At", "Proposal", "Version")
_NAME_CHARS_MAX: Final = 200
_PAGE: Final = 100  # commits of the audit that are read at once

_Key = TypeVar("_Key")
_Record = TypeVar("_Record")


class State(NamedTuple):
    """All records at one commit of the ledger. Nobody changes a state; a change makes another."""

    tip: str
    proposals: Mapping[str, Proposal]
    versions: Mapping[int, Version]
    orders: Mapping[int, Orders]
    fleet: Fleet

    @property
    def live(self) -> Version | None:
        """What is decided to be live; None before the first."""
        return self.versions.get(self.fleet.live)


class Change(NamedTuple):
    """Records to be kept in place of those before, and why, for the audit."""

    sentence: str
    call: str
    why: str = ""
    proposals: Sequence[Proposal] = ()
    versions: Sequence[Version] = ()
    orders: Sequence[Orders] = ()
    fleet: Fleet | None = None


class Entry(NamedTuple):
    """A change, as the audit tells it."""

    at_us: int
    by: str
    call: str
    sentence: str
    why: str
    proposal: str
    version: str
    commit: str


NOTHING: Final = State("", {}, {}, {}, Fleet())


@final
class Ledger:
    """The records, and the one way to change them; for any number of threads and processes."""

    __slots__ = ("_clock", "_lock", "_repository", "_settings", "_state", "_wait")

    def __init__(
        self, repository: Repository, *, settings: PublishingSettings, clock: Clock
    ) -> None:
        kept = settings.proposals_max + settings.editions_max + settings.orders_max
        if kept * 2 > repository.settings.files_max:
            remedy = f"give less, or raise the repository's files_max to {kept * 2:,}"
            raise BadValue("publishing", f"{kept:,} records", remedy)
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._state = NOTHING
        self._wait = threading.Event()  # never set: a wait is a pause

    def state(self) -> State:
        """The records as they are now."""
        with self._lock:
            return self._look()

    def change(self, by: str, make: Callable[[State], Change | None]) -> State:
        """Change what `make` says of the state it is given; the state after it.

        `make` is called again where somebody else was faster; None is nothing to change, and what
        it raises is raised.
        """
        for tried in range(TRIES_MAX):
            with self._lock:
                state = self._look()
                change = make(state)
                if change is None:
                    return state
                after = self._try(state, change, by)
                if after is not None:
                    self._state = after
                    return after
            self._wait.wait(min(0.001 * (tried + 1), WAIT_S_MAX))
        raise Conflict("the ledger", f"others were faster {TRIES_MAX} times; try again")

    def entries(self, count_max: int) -> list[Entry]:
        """The latest changes that somebody asked for, newest first."""
        with self._lock:
            tip = self._look().tip
        found: list[Entry] = []
        while tip and len(found) < count_max:
            commits = self._repository.log(tip, count_max=_PAGE)
            entries = [entry_of(commit) for commit in commits]
            found += [entry for entry in entries if entry.call != OUTBOX]
            tip = next(iter(commits[-1].parents), "")
        return found[:count_max]

    # Inside.

    def _look(self) -> State:
        tip = self._repository.tip(LEDGER_REF) or ""
        before = self._state
        if tip == before.tip:
            return before
        if before.tip and not (tip and self._repository.is_ancestor(before.tip, tip)):
            raise Unavailable(
                f"the ledger of the rules ({LEDGER_REF})",
                f"its history was rewritten: {tip[:12] or 'nothing'} is there and does not follow "
                f"on {before.tip[:12]}; put it back (git update-ref {LEDGER_REF} {before.tip})",
            )
        if before.tip:
            found = self._repository.changes(before.tip, tip)
        else:
            files = self._repository.files(tip, suffixes=(".json",))
            found = [FileChange(name, None, data) for name, data in files.items()]
        self._state = _followed(before, tip, found)
        return self._state

    def _try(self, state: State, change: Change, by: str) -> State | None:
        files: dict[str, bytes | None] = {}
        files.update({_proposal(one.id): records.proposal_bytes(one) for one in change.proposals})
        files.update({_version(one.number): records.version_bytes(one) for one in change.versions})
        files.update({_orders(one.number): records.orders_bytes(one) for one in change.orders})
        if change.fleet is not None:
            files[_FLEET] = records.fleet_bytes(change.fleet)
        after = State(
            "",
            {**state.proposals, **{one.id: one for one in change.proposals}},
            {**state.versions, **{one.number: one for one in change.versions}},
            {**state.orders, **{one.number: one for one in change.orders}},
            state.fleet if change.fleet is None else change.fleet,
        )
        after, gone = _pruned(after, self._settings)
        files.update(dict.fromkeys(gone))
        now_us = self._clock.now_us()
        commit = self._repository.write(
            files,
            parents=(state.tip,) if state.tip else (),
            author=author_of(by),
            message=_message(change, by, now_us),
            at_us=now_us,
        )
        try:
            self._repository.move(LEDGER_REF, commit.id, expected=state.tip or None)
        except Conflict:
            return None
        return after._replace(tip=commit.id)


def author_of(name: str) -> Author:
    """Who made a commit, by the name of an identity: it has no address."""
    plain = "".join(c if c.isprintable() and c not in "<>" else "_" for c in name)
    return Author(plain[:_NAME_CHARS_MAX].strip() or "nobody", "")


def plain_text(text: str) -> str:
    """A text that git can keep: what is neither printed nor a line's end is shown as a '?'."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def entry_of(commit: Commit) -> Entry:
    """What a commit of the ledger says; its last paragraph is ours, whatever people wrote."""
    head, _, last = commit.message.rstrip("\n").rpartition("\n\n")
    sentence, _, why = head.partition("\n\n")
    said = dict.fromkeys(_CALLS, "")
    for line in last.splitlines():
        name, _, value = line.partition(": ")
        if name in said:
            said[name] = value
    at_us = int(said["At"]) if said["At"].isdecimal() else commit.at_us
    return Entry(
        at_us,
        said["By"],
        said["Call"],
        sentence,
        why,
        said["Proposal"],
        said["Version"],
        commit.id,
    )


def one_line(text: str) -> str:
    """A text without line breaks, for a sentence or a trailer."""
    return " ".join(text.split())


def _message(change: Change, by: str, at_us: int) -> str:
    proposal = change.proposals[0].id if change.proposals else ""
    version = str(change.versions[0].number) if change.versions else ""
    values = (change.call, one_line(by), str(at_us), proposal, version)
    said = [f"{name}: {value}" for name, value in zip(_CALLS, values, strict=True) if value]
    parts = (one_line(change.sentence), change.why.strip(), "\n".join(said))
    return plain_text("\n\n".join(part for part in parts if part))


def _followed(before: State, tip: str, changes: Iterable[FileChange]) -> State:
    proposals, versions = dict(before.proposals), dict(before.versions)
    orders, fleet = dict(before.orders), before.fleet
    for name, _, data in changes:
        folder, _, rest = name.rpartition("/")
        key = rest.removesuffix(".json")
        if name == _FLEET:
            fleet = Fleet() if data is None else records.fleet_from(name, data)
        elif folder == "proposals":
            _keep(proposals, key, None if data is None else records.proposal_from(name, data))
        elif folder == "editions" and key.isdecimal():
            _keep(versions, int(key), None if data is None else records.version_from(name, data))
        elif folder == "orders" and key.isdecimal():
            _keep(orders, int(key), None if data is None else records.orders_from(name, data))
    return State(tip, proposals, versions, orders, fleet)


def _keep(kept: dict[_Key, _Record], key: _Key, record: _Record | None) -> None:
    if record is None:
        kept.pop(key, None)
    else:
        kept[key] = record


def _pruned(state: State, settings: PublishingSettings) -> tuple[State, list[str]]:
    """The state within its bounds, and the files that go; the chain still has them all."""
    fleet = state.fleet
    gone: list[str] = []
    proposals, versions, orders = dict(state.proposals), dict(state.versions), dict(state.orders)
    if len(proposals) > settings.proposals_max:
        settled = [one for one in proposals.values() if one.state not in (LIVE, CANARY)]
        settled.sort(key=lambda one: one.at_us)
        for one in settled[: len(proposals) - settings.proposals_max]:
            gone.append(_proposal(one.id))
            del proposals[one.id]
    needed = {
        fleet.live,
        *fleet.pins.values(),
        *([fleet.canary.state.version] if fleet.canary else []),
    }
    for number in sorted(versions)[: max(0, len(versions) - settings.editions_max)]:
        if number not in needed and number <= fleet.told.versions:
            gone.append(_version(number))
            del versions[number]
    for number in sorted(orders)[: max(0, len(orders) - settings.orders_max)]:
        if number < fleet.told.orders:  # the last that was told says what may still be live
            gone.append(_orders(number))
            del orders[number]
    return State(state.tip, proposals, versions, orders, fleet), gone


def _proposal(id: str) -> str:  # noqa: A002 - it is what it is called
    return f"proposals/{id}.json"


def _version(number: int) -> str:
    return f"editions/{number:010}.json"


def _orders(number: int) -> str:
    return f"orders/{number:010}.json"
