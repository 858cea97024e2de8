"""Breaker: judges whether what a request needs is worth asking at all.

One breaker for each backend (`request.shard`) and class of work: a breaker for a whole service
turns one bad shard into a total outage, and scans that time out must not stop the reads. The kernel
is `kernels/breaker.py`: exact buckets of time, few probes, an open time that doubles and is drawn.

What counts is a failure: an error of the backend, a time-out, no connection. A refusal (overload,
a quota), a cancelled call and the caller's own fault say nothing about its health. The seed's form,
where a back-pressure error trips the breaker at once, is `on_pressure="trip"`; by default a refusal
is left to the client throttle, which holds back in proportion where a breaker holds back all.

    permit.end_with(answer, now_us)    how the call went, in the words of `policies/call_result.py`
    permit.end(outcome, now_us)        for who knows no more: DROPPED is a failure

Cost: a look-up, two comparisons and a permit. Bounds: `keys_max` breakers; one that is open, or was
used in the last `idle_us`, is never forgotten. What comes above that passes unjudged and is counted
as `untracked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD, Admission
from sluicegate.contracts.reasons import BREAKER_OPEN
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import WAIT_US_MAX
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
from sluicegate.policies.call_result import CallResult, ResultKind
from sluicegate.policies.keyed_table import KEYS_MAX, Key, KeyedTable, key_of
from sluicegate.policies.settings import within, wrong_setting

RULE_ID: Final = "breaker"
IGNORE_PRESSURE: Final = "ignore"
TRIP_ON_PRESSURE: Final = "trip"


@final
@dataclass(frozen=True, kw_only=True)
class BreakerSettings(CircuitSettings):
    """The settings of each circuit; which calls share one, and how many circuits there may be."""

    by_operation: bool = True
    by_criticality: bool = False
    on_pressure: str = IGNORE_PRESSURE
    keys_max: int = 10_000
    idle_us: int = 60_000_000

    def __post_init__(self) -> None:
        if self.on_pressure not in {IGNORE_PRESSURE, TRIP_ON_PRESSURE}:
            raise BadValue("breaker.on_pressure", self.on_pressure, "give 'ignore' or 'trip'")
        within("breaker.keys_max", self.keys_max, 1, KEYS_MAX)
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None
        # What happened longer ago than the window is forgotten by then in any case.
        within("breaker.idle_us", self.idle_us, self.window_us, WAIT_US_MAX)


class BreakerStats(NamedTuple):
    """Calls admitted, refused and under way; breakers kept, of which not closed; not judged."""

    admitted: int
    refused: int
    inflight: int
    opened: int
    keys: int
    not_closed: int
    untracked: int


@final
class _Kept:
    """One breaker and when it was last used."""

    __slots__ = ("circuit", "idle_us", "used_us")

    def __init__(self, circuit: Circuit, idle_us: int) -> None:
        self.circuit = circuit
        self.idle_us = idle_us
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
        "_inflight",
        "_kept",
        "_opened",
        "_refused",
        "settings",
    )

    def __init__(self, chance: Chance, settings: BreakerSettings | None = None) -> None:
        self.settings = BreakerSettings() if settings is None else settings
        self._by_operation = self.settings.by_operation
        self._by_criticality = self.settings.by_criticality
        self._chance = chance
        self._kept: KeyedTable[_Kept] = KeyedTable(self.settings.keys_max)
        self._admitted = 0
        self._refused = 0
        self._inflight = 0
        self._opened = 0

    def admit(self, request: Request, now_us: int) -> Admission:
        """A permit while the breaker is closed or wants a probe; else the time to come back."""
        kept = self._kept.entries.get(self._key(request))
        if kept is None:
            kept = self._enter(self._key(request), now_us)
            if kept is None:
                return NOTHING_HELD
        generation = kept.circuit.enter(now_us)
        if generation == REFUSED:
            self._refused += 1
            wait_us = kept.circuit.retry_after_us(now_us)
            return Decision(False, 0, wait_us, max(wait_us, 0), BREAKER_OPEN, RULE_ID)
        kept.used_us = now_us
        self._admitted += 1
        self._inflight += 1
        return BreakerPermit(self, kept, generation, now_us)

    def force(self, request: Request, state: str, now_us: int) -> bool:
        """Hold the breaker of this request "open" or "closed" by hand, or "release" it."""
        if state not in {"open", "closed", "release"}:
            raise BadValue("breaker.force", state, "give 'open', 'closed' or 'release'")
        kept = self._kept.entries.get(self._key(request)) or self._enter(self._key(request), now_us)
        if kept is None:
            return False
        kept.used_us = now_us
        if state == "open":
            kept.circuit.force_open()
        elif state == "closed":
            kept.circuit.force_closed()
        else:
            kept.circuit.release()
        return True

    def states(self) -> dict[Key, str]:
        """The state of every breaker that is kept, as of its last call."""
        return {key: STATES[kept.circuit.state] for key, kept in self._kept.entries.items()}

    def stats(self) -> BreakerStats:
        """What was decided so far, and how things stand."""
        not_closed = sum([kept.circuit.state != CLOSED for kept in self._kept.entries.values()])
        return BreakerStats(
            self._admitted,
            self._refused,
            self._inflight,
            self._opened,
            len(self._kept),
            not_closed,
            self._kept.untracked,
        )

    def _key(self, request: Request) -> Key:
        return key_of(request, by_operation=self._by_operation, by_criticality=self._by_criticality)

    def _enter(self, key: Key, now_us: int) -> _Kept | None:
        if not self._kept.has_room(now_us):
            return None
        kept = _Kept(Circuit(self.settings), self.settings.idle_us)
        self._kept.entries[key] = kept
        return kept

    def _left(self, kept: _Kept, generation: int, word: int, took_us: int, now_us: int) -> None:
        """A call ended, with one of the kernel's three words."""
        self._inflight -= 1
        before = kept.circuit.generation
        # Only what may open it draws; a draw a call would be felt.
        draw = 0.0 if word == IGNORED else self._chance.draw()
        kept.circuit.leave(generation, word, took_us, now_us, draw)
        self._note(kept, before)

    def _pressed(self, kept: _Kept, generation: int, hint_us: int, now_us: int) -> None:
        """A call ended with a back-pressure error, in the seed's form: open at once."""
        self._inflight -= 1
        before = kept.circuit.generation
        if generation == before:
            kept.circuit.trip(now_us, self._chance.draw(), hint_us)
        self._note(kept, before)

    def _note(self, kept: _Kept, generation_before: int) -> None:
        if kept.circuit.generation != generation_before and kept.circuit.state != CLOSED:
            self._opened += 1


@final
class BreakerPermit:
    """The right to one call; tell it how the call went."""

    __slots__ = ("_began_us", "_ended", "_generation", "_kept", "_policy")

    def __init__(self, policy: Breaker, kept: _Kept, generation: int, now_us: int) -> None:
        self._policy = policy
        self._kept = kept
        self._generation = generation
        self._began_us = now_us
        self._ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it; DROPPED counts as a failure, IGNORE and what was never begun as nothing."""
        word = IGNORED
        if spent and outcome is not Outcome.IGNORE:
            word = SUCCESS if outcome is Outcome.SUCCESS else FAILURE
        return self._end(word, now_us)

    def end_with(self, answer: CallResult[object], now_us: int) -> bool:
        """End it by what the backend answered."""
        kind = answer.kind
        if kind is ResultKind.OK or kind is ResultKind.REJECTED:
            return self._end(SUCCESS, now_us)
        if answer.failed:
            return self._end(FAILURE, now_us)
        if kind is ResultKind.OVERLOADED and self._policy.settings.on_pressure == TRIP_ON_PRESSURE:
            if self._ended:
                return False
            self._ended = True
            self._policy._pressed(self._kept, self._generation, answer.retry_after_us, now_us)
            return True
        return self._end(IGNORED, now_us)

    def _end(self, word: int, now_us: int) -> bool:
        if self._ended:
            return False
        self._ended = True
        took_us = now_us - self._began_us
        self._policy._left(
            self._kept, self._generation, word, took_us if took_us > 0 else 0, now_us
        )
        return True
