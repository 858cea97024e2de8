"""Breaker: decides whether the backend that a request needs is worth calling at all.

One breaker for each backend (`request.shard`) and class of work: a breaker for a whole service
turns one bad shard into a total outage, and scans that time out must not stop the reads. The kernel
is `kernels/breaker.py`: exact buckets of time, few probes, an open time that is drawn and a part of
what the outage has lasted.

What counts is a failure: an error of the backend, a time-out, no connection. A refusal (overload,
a quota), a cancelled call and the caller's own fault say nothing about its health. The seed's form,
where a back-pressure error trips the breaker at once, for the time it asks for, is
`on_pressure="trip"`; by default a refusal is left to the client throttle, which holds back in
proportion where a breaker holds back all. So it is in any case where the backend says that it still
admits `pressure_permille` of what comes: at three times what a service can do, breakers that trip
left a fifth of it unused (`benchmarks/resilience_peers.py`), the throttle next to nothing.

An `unproven` refusal is a failure like others: what said it may be one of many behind a name, and
the rest must not be stopped with it.

    permit.end_with(result, now_us)    how the call went, in the terms of `call_result.py`
    permit.end(outcome, now_us)        if no more is known: DROPPED is a failure

Only an opening uses chance, but what opens is known only when a call has ended, and a draw for each
success would be felt. So one draw is kept ready, and another is drawn once an opening has used it.
Nobody sees it before, so open times are spread as if each were drawn when its breaker opens.

Cost: a look-up, two comparisons and a permit. Bounds: `keys_max` breakers; one that is open, or was
used in the last `idle_us`, is never forgotten. What comes above that passes unjudged and is counted
as `untracked`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD, Admission
from sluicegate.contracts.reasons import BREAKER_OPEN
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.breaker import (
    CLOSED,
    FAILURE,
    FORCED_CLOSED,
    IGNORED,
    REFUSED,
    STATES,
    SUCCESS,
    Circuit,
    CircuitSettings,
)
from sluicegate.kernels.native import mypyc_attr
from sluicegate.policies.client.call_result import OK, CallResult, ResultKind
from sluicegate.policies.keyed_table import KEYS_MAX, Key, KeyedTable, key_of
from sluicegate.policies.settings import check_ranges, one_of, within, wrong_setting

RULE_ID: Final = "breaker"
IGNORE_PRESSURE: Final = "ignore"
TRIP_ON_PRESSURE: Final = "trip"
# The cause of a refusal by a breaker that a back-pressure error opened.
PRESSURE: Final = "the backend said that it has too much"


@final
@dataclass(frozen=True, kw_only=True)
class BreakerSettings(CircuitSettings):
    """The settings of each circuit; which calls share one, and how many circuits there may be."""

    by_operation: bool = True
    by_criticality: bool = False
    on_pressure: str = IGNORE_PRESSURE
    pressure_permille: int = ranged(100, 1, 1_001)  # trips below; 1,001: whatever it says
    keys_max: int = ranged(10_000, 1, KEYS_MAX)
    idle_us: int = 60_000_000

    def __post_init__(self) -> None:
        check_ranges("breaker", self)
        one_of("breaker.on_pressure", self.on_pressure, (IGNORE_PRESSURE, TRIP_ON_PRESSURE))
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None
        # What happened longer ago than the window is forgotten by then in any case.
        within("breaker.idle_us", self.idle_us, self.window_us, WAIT_US_MAX)


class BreakerStats(NamedTuple):
    """Calls admitted, refused and under way; breakers entry, of which not closed; not judged."""

    admitted: int
    refused: int
    inflight: int
    opened: int
    keys: int
    not_closed: int
    untracked: int


class BreakerChange(NamedTuple):
    """A breaker went from one state to another, as the kernel names them."""

    key: Key
    before: str
    after: str
    at_us: int


# May not raise, and must be quick: it is called where a call enters or ends.
BreakerListener: TypeAlias = Callable[[BreakerChange], None]


@final
class _Entry:
    """One circuit, when it was last used, and whether it was a refusal that opened it."""

    __slots__ = ("circuit", "idle_us", "key", "pressed", "state", "used_us")

    def __init__(self, key: Key, circuit: Circuit, idle_us: int) -> None:
        self.key = key
        self.circuit = circuit
        self.state = circuit.state  # that listeners know of
        self.idle_us = idle_us
        self.pressed = False
        self.used_us = 0

    def at_rest(self, now_us: int) -> bool:
        """Whether it would let everything in and has not been used for long."""
        if now_us - self.used_us < self.idle_us or self.circuit.state == FORCED_CLOSED:
            return False
        return self.circuit.retry_after_us(now_us) == 0


@final
class Breaker:
    """Refuses what needs a backend that has been failing."""

    __slots__ = (
        "_admitted",
        "_by_criticality",
        "_by_operation",
        "_chance",
        "_circuits",
        "_draw",
        "_inflight",
        "_listeners",
        "_opened",
        "_refused",
        "settings",
    )

    def __init__(self, chance: Chance, settings: BreakerSettings | None = None) -> None:
        self.settings = BreakerSettings() if settings is None else settings
        self._by_operation = self.settings.by_operation
        self._by_criticality = self.settings.by_criticality
        self._chance = chance
        self._draw = chance.draw()  # of the next opening
        self._circuits: KeyedTable[_Entry] = KeyedTable(self.settings.keys_max)
        self._listeners: list[BreakerListener] = []
        self._admitted = self._refused = self._inflight = self._opened = 0

    def subscribe(self, listener: BreakerListener) -> None:
        """Call it with every change of state from now on."""
        self._listeners.append(listener)

    def admit(self, request: Request, now_us: int) -> Admission:
        """A permit while the breaker is closed or wants a probe; else the time to come back."""
        entry = self._circuits.entries.get(self._key(request))
        if entry is None:
            entry = self._enter(self._key(request), now_us)
            if entry is None:
                return NOTHING_HELD
        generation = entry.circuit.enter(now_us)
        if generation == REFUSED:
            self._refused += 1
            wait_us = entry.circuit.retry_after_us(now_us)
            cause = PRESSURE if entry.pressed else ""
            return Decision(False, 0, wait_us, max(wait_us, 0), BREAKER_OPEN, RULE_ID, cause=cause)
        entry.used_us = now_us
        if entry.circuit.state != entry.state:
            self._announce(entry, now_us)
        self._admitted += 1
        self._inflight += 1
        return BreakerPermit(self, entry, generation, now_us)

    def force(self, request: Request, state: str, now_us: int) -> bool:
        """Hold the breaker of this request "open" or "closed" by hand, or "release" it."""
        if state not in {"open", "closed", "release"}:
            raise BadValue("breaker.force", state, "give 'open', 'closed' or 'release'")
        key = self._key(request)
        entry = self._circuits.entries.get(key) or self._enter(key, now_us)
        if entry is None:
            return False
        entry.used_us = now_us
        if state == "open":
            entry.circuit.force_open()
        elif state == "closed":
            entry.circuit.force_closed()
        else:
            entry.circuit.release()
        self._announce(entry, now_us)
        return True

    def states(self) -> dict[Key, str]:
        """The state of every breaker that is entry, as of its last call."""
        entries = list(self._circuits.entries.items())
        return {key: STATES[entry.circuit.state] for key, entry in entries}

    def stats(self) -> BreakerStats:
        """What was decided so far, and how things stand."""
        entries = list(self._circuits.entries.values())  # a copy: another thread may read this
        not_closed = sum([entry.circuit.state != CLOSED for entry in entries])
        return BreakerStats(
            self._admitted,
            self._refused,
            self._inflight,
            self._opened,
            len(self._circuits),
            not_closed,
            self._circuits.untracked,
        )

    def _key(self, request: Request) -> Key:
        return key_of(request, by_operation=self._by_operation, by_criticality=self._by_criticality)

    def _enter(self, key: Key, now_us: int) -> _Entry | None:
        if not self._circuits.has_room(now_us):
            return None
        entry = _Entry(key, Circuit(self.settings), self.settings.idle_us)
        self._circuits.entries[key] = entry
        return entry

    def _record_end(
        self, entry: _Entry, generation: int, outcome: int, took_us: int, now_us: int
    ) -> None:
        """A call ended, with one of the kernel's three words."""
        self._inflight -= 1
        before = entry.circuit.generation
        entry.circuit.leave(generation, outcome, took_us, now_us, self._draw)
        if entry.circuit.generation != before:
            entry.pressed = False
        self._count_opening(entry, before, now_us)

    def _record_pressure(self, entry: _Entry, generation: int, hint_us: int, now_us: int) -> None:
        """A call ended with a back-pressure error, in the seed's form: open at once."""
        self._inflight -= 1
        before = entry.circuit.generation
        if generation == before:
            entry.circuit.trip(now_us, self._draw, hint_us)
            entry.pressed = True
        self._count_opening(entry, before, now_us)

    def _count_opening(self, entry: _Entry, generation_before: int, now_us: int) -> None:
        if entry.circuit.generation == generation_before:
            return
        if entry.circuit.state != CLOSED:
            self._opened += 1
            self._draw = self._chance.draw()
        self._announce(entry, now_us)

    def _announce(self, entry: _Entry, now_us: int) -> None:
        """Report the state of a circuit to the listeners, if it is another than before."""
        before, after = entry.state, entry.circuit.state
        if before == after:
            return
        entry.state = after
        for listener in self._listeners:
            listener(BreakerChange(entry.key, STATES[before], STATES[after], now_us))


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class BreakerPermit:
    """The right to one call, to be ended with its result."""

    __slots__ = ("_began_us", "_ended", "_entry", "_generation", "_policy")

    def __init__(self, policy: Breaker, entry: _Entry, generation: int, now_us: int) -> None:
        self._policy = policy
        self._entry = entry
        self._generation = generation
        self._began_us = now_us
        self._ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it; DROPPED counts as a failure, IGNORE and what was never begun as nothing."""
        ending = IGNORED
        if spent and outcome is not Outcome.IGNORE:
            ending = SUCCESS if outcome is Outcome.SUCCESS else FAILURE
        return self._end(ending, now_us)

    def end_with(self, result: CallResult[object], now_us: int) -> bool:
        """End it with the result of the call."""
        kind = result.kind
        if kind is OK or kind is ResultKind.REJECTED:
            return self._end(SUCCESS, now_us)
        if result.is_failure or (result.unproven and kind is ResultKind.OVERLOADED):
            return self._end(FAILURE, now_us)
        settings = self._policy.settings
        if (
            kind is ResultKind.OVERLOADED
            and settings.on_pressure == TRIP_ON_PRESSURE
            and result.admitted_permille < settings.pressure_permille
        ):
            if self._ended:
                return False
            self._ended = True
            self._policy._record_pressure(
                self._entry, self._generation, result.retry_after_us, now_us
            )
            return True
        return self._end(IGNORED, now_us)

    def _end(self, ending: int, now_us: int) -> bool:
        if self._ended:
            return False
        self._ended = True
        took_us = now_us - self._began_us
        self._policy._record_end(
            self._entry, self._generation, ending, took_us if took_us > 0 else 0, now_us
        )
        return True
