"""Limit fields: what stands under `rate_limit`, read into a counting.

The unit and the number are Envoy's. The others are ours: a window of any length instead of a unit,
the way to count, a burst, and what happens when the store is silent or a key is leased.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.checks import MeshLimit
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.kernels.sliding_window import LOG_ENTRIES_MAX
from sluicegate.limits.lease import block_max
from sluicegate.limits.rule import Failure, Mode, Rule
from sluicegate.rules.mesh.rule import (
    COUNT_MAX,
    UNIT_NAMES,
    UNIT_US,
    Counting,
    Semantics,
    default_algorithm,
)
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.shared_limits import SharedLimits

RATE_LIMIT: Final = (
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "window",
    "algorithm",
    "burst",
    "failure",
    "lease",
    "count_refused",
)
SPAN_US_MAX: Final = 1 << 50  # what every store can count: 35 years

_UNITS: Final = {name: number for number, name in enumerate(UNIT_NAMES) if number}
_UNIT_BY_US: Final = {UNIT_US[number]: number for number in range(1, len(UNIT_US))}
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,17})\s*(ms|s|m|h|d|w)", re.ASCII)
_WINDOW_US: Final = {
    "ms": 1_000,
    "s": UNIT_US[1],
    "m": UNIT_US[2],
    "h": UNIT_US[3],
    "d": UNIT_US[4],
    "w": UNIT_US[7],
}
_UNIT_REMEDY: Final = "give one of second, minute, hour, day, week, month, year"
_WINDOW_REMEDY: Final = 'write it as "90s", "15m", "12h" or "500ms"; at most a year'


class ParsedLimit(NamedTuple):
    """A `rate_limit`: its counting, none if it is unlimited, and what it is called and replaces."""

    counting: Counting | None
    name: str
    replaces: tuple[str, ...]


@final
class LimitFields:
    """Reads limits and makes each counting once."""

    __slots__ = ("_countings", "_problems", "_semantics", "_shared_limits")

    def __init__(
        self, problems: Problems, shared_limits: SharedLimits, semantics: Semantics
    ) -> None:
        self._problems = problems
        self._shared_limits = shared_limits
        self._semantics = semantics
        self._countings: dict[tuple[object, ...], Counting] = {}

    def read(self, at: FieldPath, fields: Mapping[str, object], mode: Mode) -> ParsedLimit | None:
        """What a `rate_limit` says; None if it cannot be used."""
        before = len(self._problems)
        self.refuse_unknown(at, fields, RATE_LIMIT)
        name = self.text((*at, "name"), fields.get("name"))
        replaces = self._replaces((*at, "replaces"), fields.get("replaces"), name)
        unlimited = self.flag((*at, "unlimited"), fields.get("unlimited"))
        counting = None
        if unlimited is True:
            for field in ("unit", "window"):
                if fields.get(field) not in (None, ""):
                    self.refuse((*at, field), fields[field], "leave it out: it is unlimited")
        else:
            counting = self._counting(at, fields, name, mode)
        return None if len(self._problems) > before else ParsedLimit(counting, name, replaces)

    def _counting(
        self, at: FieldPath, fields: Mapping[str, object], name: str, mode: Mode
    ) -> Counting | None:
        unit, period_us = self._period(at, fields)
        count = fields.get("requests_per_unit")
        if count is None:
            count = 0  # the format's default: nothing is let through
        if type(count) is not int or not 0 <= count <= COUNT_MAX:
            self.refuse(
                (*at, "requests_per_unit"), count, f"give a whole number from 0 to {COUNT_MAX:,}"
            )
            return None
        algorithm = self._algorithm(at, fields)
        burst = self._burst(at, fields, algorithm)
        failure = self._failure(at, fields)
        lease = fields.get("lease")
        count_refused = fields.get("count_refused")
        if count_refused is not None and type(count_refused) is not bool:
            self.refuse((*at, "count_refused"), count_refused, "give true or false")
            return None
        if count_refused is None:
            envoy = self._semantics is Semantics.ENVOY
            count_refused = envoy and algorithm is Algorithm.FIXED_WINDOW
        if lease is not None and (isinstance(lease, bool) or not isinstance(lease, str | int)):
            self.refuse((*at, "lease"), lease, 'give "auto", a share like "10%", or a number')
            return None
        if not period_us:
            return None
        key = (count, unit, period_us, algorithm, burst, failure, lease, count_refused, mode, name)
        found = self._countings.get(key)
        if found is None:
            found = self._build(
                at,
                MeshLimit(count, unit, name),
                period_us,
                algorithm,
                burst,
                failure,
                lease,
                count_refused is True,
                mode,
            )
            if found is not None:
                self._countings[key] = found
        return found

    def _build(
        self,
        at: FieldPath,
        wire_limit: MeshLimit,
        period_us: int,
        algorithm: Algorithm,
        burst: int | None,
        failure: Failure | None,
        lease: str | int | None,
        count_refused: bool,
        mode: Mode,
    ) -> Counting | None:
        count = wire_limit.requests_per_unit
        above = counts_above(self._semantics, algorithm, count_refused=count_refused)
        if algorithm is Algorithm.SLIDING_LOG and count > LOG_ENTRIES_MAX:
            self.refuse(
                (*at, "requests_per_unit"),
                count,
                f"an exact log holds at most {LOG_ENTRIES_MAX:,} entries a key; use sliding_window",
            )
            return None
        suffix = f"#{period_us // 1_000}ms"
        if count == 0 and not above:
            return Counting("", None, wire_limit, above=False, suffix=suffix)
        limit = Limit(
            count + 1 if above else count, period_us=period_us, burst=burst, algorithm=algorithm
        )
        if burst is not None and burst * period_us // count > SPAN_US_MAX:
            self.refuse((*at, "burst"), burst, "give less: it would take over 35 years to refill")
            return None
        if not self._lease_fits(at, limit, lease, count_refused):
            return None
        rule = Rule(
            limit,
            failure=failure,
            lease=lease,
            mode=mode if self._semantics is Semantics.SLUICEGATE else Mode.ENFORCE,
            count_refused=count_refused,
        )
        try:
            shared_id = self._shared_limits.name(rule)
        except BadValue as error:
            self.refuse(at, error.value, error.remedy)
            return None
        return Counting(shared_id, limit, wire_limit, above=above, suffix=suffix)

    def _lease_fits(
        self, at: FieldPath, limit: Limit, lease: str | int | None, count_refused: bool
    ) -> bool:
        if lease is None:
            return True
        if count_refused:
            remedy = "leave it out: what counts refused hits asks the store each time"
            self.refuse((*at, "lease"), lease, remedy)
            return False
        try:
            block_max(limit, lease)
        except BadValue as error:
            self.refuse((*at, "lease"), lease, error.remedy)
            return False
        return True

    # Fields.

    def _period(self, at: FieldPath, fields: Mapping[str, object]) -> tuple[int, int]:
        """The unit's number and the window; 0 of both if they cannot be used."""
        unit, window = fields.get("unit"), fields.get("window")
        if window is None:
            number = _UNITS.get(unit.upper(), 0) if isinstance(unit, str) else 0
            if not number:
                self.refuse((*at, "unit"), unit, f"{_UNIT_REMEDY}, or a window of any length")
            return number, UNIT_US[number]
        if unit is not None:
            self.refuse((*at, "window"), window, "leave it out, or the unit: one of them says it")
            return 0, 0
        found = _WINDOW.fullmatch(window.strip().lower()) if isinstance(window, str) else None
        period_us = int(found[1]) * _WINDOW_US[found[2]] if found else 0
        if not 0 < period_us <= UNIT_US[6]:
            self.refuse((*at, "window"), window, _WINDOW_REMEDY)
            return 0, 0
        return _UNIT_BY_US.get(period_us, 0), period_us

    def _algorithm(self, at: FieldPath, fields: Mapping[str, object]) -> Algorithm:
        value = fields.get("algorithm")
        if value is not None:
            for algorithm in Algorithm:
                if value == algorithm.value:
                    return algorithm
            names = ", ".join(algorithm.value for algorithm in Algorithm)
            self.refuse((*at, "algorithm"), value, f"give one of {names}")
        return default_algorithm(self._semantics)

    def _burst(
        self, at: FieldPath, fields: Mapping[str, object], algorithm: Algorithm
    ) -> int | None:
        burst = fields.get("burst")
        if burst is None:
            return None
        if type(burst) is not int or not 1 <= burst <= COUNT_MAX:
            self.refuse((*at, "burst"), burst, f"give a whole number from 1 to {COUNT_MAX:,}")
            return None
        if algorithm not in BURSTING:
            remedy = f"leave it out, or count by gcra: {algorithm.value} has no burst of its own"
            self.refuse((*at, "burst"), burst, remedy)
            return None
        return burst

    def _failure(self, at: FieldPath, fields: Mapping[str, object]) -> Failure | None:
        value = fields.get("failure")
        if value is not None:
            for failure in Failure:
                if value == failure.value:
                    return failure
            self.refuse((*at, "failure"), value, "give one of open, closed, local")
        return None

    def _replaces(self, at: FieldPath, value: object, own: str) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(at, value, "give a list of names: [{name: other}]")
            return ()
        names: list[str] = []
        for place, item in enumerate(value):
            here = (*at, place)
            if not isinstance(item, dict):
                self.refuse(here, item, "name the rule to replace: {name: other}")
                continue
            self.refuse_unknown(here, item, ("name",))
            name = self.text((*here, "name"), item.get("name"))
            if not name:
                self.refuse((*here, "name"), item.get("name"), "name the rule to replace")
            elif name == own:
                self.refuse((*here, "name"), name, "a rule cannot replace itself; name another")
            names.append(name)
        return tuple(names)

    # For the parser too.

    def text(self, at: FieldPath, value: object) -> str:
        """Return a text; a number is one."""
        if value is None:
            return ""
        if type(value) is int:
            return str(value)
        if not isinstance(value, str):
            self.refuse(at, value, "give a text, in quotes")
            return ""
        return value

    def flag(self, at: FieldPath, value: object) -> bool | None:
        """Return true, false or nothing."""
        if value is None or isinstance(value, bool):
            return value
        self.refuse(at, value, "give true or false")
        return None

    def refuse_unknown(
        self, at: FieldPath, fields: Mapping[str, object], known: tuple[str, ...]
    ) -> None:
        """Note each field that there is not."""
        for name in fields:
            if name not in known:
                self._problems.add_unknown((*at, name), fields[name], known)

    def refuse(self, at: FieldPath, value: object, remedy: str) -> None:
        """Note a problem, and go on."""
        self._problems.add(at, value, remedy)


def counts_above(semantics: Semantics, algorithm: Algorithm, *, count_refused: bool) -> bool:
    """Whether a counter has to know that its limit was passed, not only that it was reached."""
    return semantics is Semantics.ENVOY and count_refused and algorithm is Algorithm.FIXED_WINDOW
