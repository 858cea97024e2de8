"""Guard of a web application: judges arrivals by a rules file, and follows it.

    guard = RulesGuard("rules.yaml", limiter)
    judgement = guard.judge(arrival)    # None: no rule is about it

The rule set says what is claimed, the limiter decides it, all or nothing. A changed file is read
again; a good one replaces the old one in one step, and rules whose limits stay keep their counts. A
bad one changes nothing, and `status` says why.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple, Protocol, final
from weakref import WeakValueDictionary, finalize, ref

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.guard import Judgement, check_limiter
from sluicegate.limits.claims import Claim
from sluicegate.limits.rule import RuleLike
from sluicegate.rules.arrivals import named
from sluicegate.rules.file_watch import EVERY_S_DEFAULT, FileWatch
from sluicegate.rules.web.rule_set import WebRuleSet
from sluicegate.system import SystemClock

_log: Final = logging.getLogger("sluicegate.rules")


class GuardLimiter(Protocol):
    """What a guard needs of its limiter."""

    def judge(self, *claims: Claim) -> Judgement:
        """Take every claim or none."""
        ...

    async def ajudge(self, *claims: Claim) -> Judgement:
        """Likewise, for asyncio."""
        ...

    def replace_rules(self, rules: Mapping[str, RuleLike]) -> None:
        """Have these named rules instead of the ones there are."""
        ...


class GuardStatus(NamedTuple):
    """How a guard stands to its rules."""

    source: str
    version: str
    rules: int
    loaded_us: int
    error: str  # why the file as it is now is not in force; empty if it is
    failed_us: int  # when that was found; 0 if never
    keyless: Mapping[str, int]  # by rule, how often it did not apply for want of a key


@final
class RulesGuard:
    """A `contracts.guard.Guard` over a rule set and a limiter.

    `rules` is a rule set, the path of a file, or Python's own values as for `WebRuleSet.of`. A file
    is polled every `watch_every_s` seconds from a thread; None leaves that to calls of `reload`.
    The guard gives its rules to the limiter by their names, in place of all that it had named
    before: a limiter serves one guard at a time. What is wrong with a file at the start is raised.
    """

    def __init__(
        self,
        rules: WebRuleSet | str | os.PathLike[str] | Mapping[str, object] | Sequence[object],
        limiter: GuardLimiter,
        *,
        watch_every_s: float | None = EVERY_S_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        check_limiter(limiter, ("judge", "ajudge", "replace_rules"))
        self._limits = limiter
        self._local = bool(getattr(limiter, "local", False))
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = Lock()
        self._path: str | None = None
        self._watch: FileWatch | None = None
        self._error = ""
        self._failed_us = 0
        self._keyless: dict[str, int] = {}
        if isinstance(rules, str | os.PathLike):
            self._path = os.fspath(rules)
            if watch_every_s is not None:
                # It notes how the file is before the file is read: no change falls between.
                path = self._path
                self._watch = FileWatch(
                    lambda: (path,),
                    _reload_of(ref(self)),
                    every_s=watch_every_s,
                    survives_fork=True,
                )
            book = WebRuleSet.load(self._path)
        else:
            if not isinstance(rules, WebRuleSet | Mapping | Sequence):
                raise BadValue("rules", rules, "give the path of a file, or rules as values")
            book = rules if isinstance(rules, WebRuleSet) else WebRuleSet.of(rules)
        _attach(limiter, self)
        limiter.replace_rules(book.rules)
        self._book = book
        self._loaded_us = self._clock.now_us()
        if self._watch is not None:
            finalize(self, self._watch.close)
            self._watch.start()

    @property
    def book(self) -> WebRuleSet:
        """The rules in force."""
        return self._book

    def judge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now; None if no rule is about it."""
        book = self._book
        claims = book.claims(arrival, self._note_keyless)
        if not claims:
            return None
        judgement = self._limits.judge(*claims)
        return judgement if book.rows is None else named(judgement, claims)

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        """`judge`, for asyncio."""
        book = self._book
        claims = book.claims(arrival, self._note_keyless)
        if not claims:
            return None
        # A limiter in this process has nothing to await, and a coroutine has its price.
        limits = self._limits
        judgement = limits.judge(*claims) if self._local else await limits.ajudge(*claims)
        return judgement if book.rows is None else named(judgement, claims)

    def reload(self) -> bool:
        """Read the file again; whether what it says is in force now. It never raises for a file."""
        if self._path is None:
            return True
        with self._lock:
            try:
                book = WebRuleSet.load(self._path)
                if book.version != self._book.version:
                    self._put_in_force(book)
            except SluicegateError as error:
                self._error, self._failed_us = str(error), self._clock.now_us()
                _log.warning("the rules stay as they are (version %s): %s", self.version, error)
                return False
            self._error = ""
            return True

    def replace(self, book: WebRuleSet) -> None:
        """Put another rule set in force, for rules that come from elsewhere than a file."""
        with self._lock:
            self._put_in_force(book)
            self._error = ""

    @property
    def version(self) -> str:
        """The version of the rules in force."""
        return self._book.version

    def status(self) -> GuardStatus:
        """Which rules are in force since when, and why not those in the file."""
        book = self._book
        return GuardStatus(
            book.source,
            book.version,
            len(book),
            self._loaded_us,
            self._error,
            self._failed_us,
            dict(self._keyless),
        )

    def close(self) -> None:
        """Stop watching; judging goes on with the rules there are.

        Then another guard may have the limiter.
        """
        if _guarded.get(id(self._limits)) is self:
            del _guarded[id(self._limits)]
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> RulesGuard:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def _put_in_force(self, book: WebRuleSet) -> None:
        # A judgement under way may still name a rule of the old set, so for one generation the
        # limiter knows both; what is in both goes by the new.
        old = self._book
        self._limits.replace_rules({**old.rules, **book.rules})
        self._book = book
        self._loaded_us = self._clock.now_us()
        self._keyless = {}
        _log.info("rules from %s: version %s replaces %s", book.source, book.version, old.version)

    def _note_keyless(self, name: str) -> None:
        keyless = self._keyless
        if name not in keyless:
            _log.warning("rule %r did not apply to a request: it has none of its keys", name)
        keyless[name] = keyless.get(name, 0) + 1


# By a limiter's id, the guard that names its rules; a compiled limiter knows no weak references.
_guarded: Final[WeakValueDictionary[int, RulesGuard]] = WeakValueDictionary()


def _source_of(guard: RulesGuard | None) -> str | None:
    # Apart, so that the traceback of the error does not keep the other guard alive.
    return None if guard is None else guard.book.source


def _attach(limiter: GuardLimiter, guard: RulesGuard) -> None:
    source = _source_of(_guarded.get(id(limiter)))
    if source is not None:
        raise BadValue(
            "limiter",
            limiter,
            f"it serves the guard of {source} already, whose rules these would replace: give each "
            "guard a limiter of its own, or close the other guard first",
        )
    _guarded[id(limiter)] = guard


def _reload_of(guard: ref[RulesGuard]) -> Callable[[], None]:
    """What a watch calls; it does not keep the guard alive."""

    def reload() -> None:
        owner = guard()
        if owner is not None:
            owner.reload()

    return reload
