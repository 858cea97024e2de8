"""Ledger: who did what and why, and what follows from it; a chain of commits beside the rules.

Whatever is decided about rules is one commit here: its files are the records (`records.py`), its
message is the sentence of the audit. A change is worked out from the state it was read in, and
moves the ref only if that is still the state; else it is worked out again. So of two people who
change the same thing at once, the second one decides on what the first has done, and nothing is
lost. Everything else (the live ref, releases, rollouts, announcements, notes) follows from here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.rulebook import CANARY, LIVE, Author, Commit, FileChange, Rollout
from sluicegate.rules.publishing.records import (
    FleetRecord,
    Proposal,
    ReleaseRecord,
    parse_record,
    record_bytes,
)
from sluicegate.rules.publishing.settings import LEDGER_REF, PublishingSettings
from sluicegate.rules.repository.repository import Repository

TRIES_MAX: Final = 200
WAIT_S_MAX: Final = 0.05  # between two tries
OUTBOX: Final = "outbox"  # the calls of nobody: what the publisher notes for itself
# As the files are stored.
_FLEET: Final = "fleet.json"
_PROPOSALS: Final = "proposals"
_RELEASES: Final = "editions"
_ROLLOUTS: Final = "orders"
_TRAILERS: Final = ("Call", "By", "At", "Proposal", "Version")
_NAME_CHARS_MAX: Final = 200
_PAGE: Final = 100  # commits of the audit that are read at once

_Key = TypeVar("_Key")
_Record = TypeVar("_Record", bound=tuple[Any, ...])


class LedgerState(NamedTuple):
    """All records at one commit of the ledger. Nobody changes a state; a change makes another."""

    tip: str
    proposals: Mapping[str, Proposal]
    versions: Mapping[int, ReleaseRecord]
    rollouts: Mapping[int, Rollout]
    fleet: FleetRecord

    @property
    def live(self) -> ReleaseRecord | None:
        """What is decided to be live; None before the first."""
        return self.versions.get(self.fleet.live)


class LedgerChange(NamedTuple):
    """Records to be kept in place of those before, and why, for the audit."""

    sentence: str
    call: str
    why: str = ""
    proposals: Sequence[Proposal] = ()
    versions: Sequence[ReleaseRecord] = ()
    rollouts: Sequence[Rollout] = ()
    fleet: FleetRecord | None = None


class LedgerEntry(NamedTuple):
    """A change, as the audit tells it."""

    at_us: int
    by: str
    call: str
    sentence: str
    why: str
    proposal: str
    version: str
    commit: str


NOTHING: Final = LedgerState("", {}, {}, {}, FleetRecord())


@final
class RulebookLedger:
    """The records, and the one way to change them; for any number of threads and processes."""

    __slots__ = ("_clock", "_lock", "_repository", "_settings", "_state", "_wait")

    def __init__(
        self, repository: Repository, *, settings: PublishingSettings, clock: Clock
    ) -> None:
        records_max = settings.proposals_max + settings.releases_max + settings.rollouts_max
        if records_max * 2 > repository.settings.files_max:
            remedy = f"give less, or raise the repository's files_max to {records_max * 2:,}"
            raise BadValue("publishing", f"{records_max:,} records", remedy)
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._state = NOTHING
        self._wait = threading.Event()  # never set: a wait is a pause

    def state(self) -> LedgerState:
        """The records as they are now."""
        with self._lock:
            return self._look()

    def change(self, by: str, make: Callable[[LedgerState], LedgerChange | None]) -> LedgerState:
        """Change what `make` says of the state it is given; the state after it.

        `make` is called again where somebody else was faster; None is nothing to change, and what
        it raises is raised.
        """
        for attempt in range(TRIES_MAX):
            with self._lock:
                state = self._look()
                change = make(state)
                if change is None:
                    return state
                after = self._try(state, change, by)
                if after is not None:
                    self._state = after
                    return after
            self._wait.wait(min(0.001 * (attempt + 1), WAIT_S_MAX))
        raise Conflict("the ledger", f"others were faster {TRIES_MAX} times; try again")

    def entries(self, count_max: int) -> list[LedgerEntry]:
        """The latest changes that somebody asked for, newest first."""
        with self._lock:
            tip = self._look().tip
        collected: list[LedgerEntry] = []
        while tip and len(collected) < count_max:
            commits = self._repository.log(tip, count_max=_PAGE)
            entries = [entry_of(commit) for commit in commits]
            collected += [entry for entry in entries if entry.call != OUTBOX]
            tip = next(iter(commits[-1].parents), "")
        return collected[:count_max]

    # Inside.

    def _look(self) -> LedgerState:
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
            changes = self._repository.changes(before.tip, tip)
        else:
            files = self._repository.files(tip, suffixes=(".json",))
            changes = [FileChange(name, None, data) for name, data in files.items()]
        self._state = _read(before, tip, changes)
        return self._state

    def _try(self, state: LedgerState, change: LedgerChange, by: str) -> LedgerState | None:
        after = _apply(state, change)
        after, pruned = _prune(after, self._settings)
        files: dict[str, bytes | None] = {
            _file_name(record): record_bytes(record)
            for records in (change.proposals, change.versions, change.rollouts)
            for record in records
        }
        if change.fleet is not None:
            files[_FLEET] = record_bytes(change.fleet)
        files.update(dict.fromkeys(pruned))
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


def entry_of(commit: Commit) -> LedgerEntry:
    """What a commit of the ledger says; its last paragraph is ours, whatever people wrote."""
    head, _, last = commit.message.rstrip("\n").rpartition("\n\n")
    sentence, _, why = head.partition("\n\n")
    trailers = dict.fromkeys(_TRAILERS, "")
    for line in last.splitlines():
        name, _, value = line.partition(": ")
        if name in trailers:
            trailers[name] = value
    at_us = int(trailers["At"]) if trailers["At"].isdecimal() else commit.at_us
    return LedgerEntry(
        at_us,
        trailers["By"],
        trailers["Call"],
        sentence,
        why,
        trailers["Proposal"],
        trailers["Version"],
        commit.id,
    )


def one_line(text: str) -> str:
    """A text without line breaks, for a sentence or a trailer."""
    return " ".join(text.split())


def _message(change: LedgerChange, by: str, at_us: int) -> str:
    proposal = change.proposals[0].id if change.proposals else ""
    version = str(change.versions[0].number) if change.versions else ""
    values = (change.call, one_line(by), str(at_us), proposal, version)
    trailers = [f"{name}: {value}" for name, value in zip(_TRAILERS, values, strict=True) if value]
    parts = (one_line(change.sentence), change.why.strip(), "\n".join(trailers))
    return plain_text("\n\n".join(part for part in parts if part))


def _file_name(record: Proposal | ReleaseRecord | Rollout) -> str:
    if isinstance(record, Proposal):
        return f"{_PROPOSALS}/{record.id}.json"
    folder = _RELEASES if isinstance(record, ReleaseRecord) else _ROLLOUTS
    return f"{folder}/{record.number:010}.json"


def _apply(state: LedgerState, change: LedgerChange) -> LedgerState:
    return LedgerState(
        "",
        {**state.proposals, **{one.id: one for one in change.proposals}},
        {**state.versions, **{one.number: one for one in change.versions}},
        {**state.rollouts, **{one.number: one for one in change.rollouts}},
        state.fleet if change.fleet is None else change.fleet,
    )


def _read(before: LedgerState, tip: str, changes: Iterable[FileChange]) -> LedgerState:
    """The state after files of the ledger have changed."""
    proposals, versions = dict(before.proposals), dict(before.versions)
    rollouts, fleet = dict(before.rollouts), before.fleet
    for name, _, data in changes:
        folder, _, rest = name.rpartition("/")
        key = rest.removesuffix(".json")
        if name == _FLEET:
            fleet = FleetRecord() if data is None else parse_record(FleetRecord, name, data)
        elif folder == _PROPOSALS:
            _replace(proposals, key, Proposal, name, data)
        elif folder == _RELEASES and key.isdecimal():
            _replace(versions, int(key), ReleaseRecord, name, data)
        elif folder == _ROLLOUTS and key.isdecimal():
            _replace(rollouts, int(key), Rollout, name, data)
    return LedgerState(tip, proposals, versions, rollouts, fleet)


def _replace(
    records: dict[_Key, _Record], key: _Key, kind: type[_Record], name: str, data: bytes | None
) -> None:
    if data is None:
        records.pop(key, None)
    else:
        records[key] = parse_record(kind, name, data)


def _prune(state: LedgerState, settings: PublishingSettings) -> tuple[LedgerState, list[str]]:
    """The state within its bounds, and the files to delete; the history still has them all."""
    fleet = state.fleet
    proposals, versions, rollouts = (
        dict(state.proposals),
        dict(state.versions),
        dict(state.rollouts),
    )
    settled = sorted(
        (one for one in proposals.values() if one.state not in (LIVE, CANARY)),
        key=lambda one: one.at_us,
    )
    pruned = [
        _file_name(proposals.pop(one.id))
        for one in settled[: max(0, len(proposals) - settings.proposals_max)]
    ]
    needed = {fleet.live, *fleet.pins.values()}
    if fleet.canary:
        needed.add(fleet.canary.state.version)
    pruned += [
        _file_name(versions.pop(number))
        for number in sorted(versions)[: max(0, len(versions) - settings.releases_max)]
        if number not in needed and number <= fleet.delivered.versions
    ]
    pruned += [
        _file_name(rollouts.pop(number))
        for number in sorted(rollouts)[: max(0, len(rollouts) - settings.rollouts_max)]
        if number < fleet.delivered.rollouts  # the last that was delivered names what may be live
    ]
    return LedgerState(state.tip, proposals, versions, rollouts, fleet), pruned
