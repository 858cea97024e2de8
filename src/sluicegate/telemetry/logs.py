"""Logs: refusals, degraded decisions and the store's failures as records of stdlib `logging`.

Refusals come by the thousand, so each kind of line (a rule, an outcome, a reason) has an allowance
by the instants of the limiter's clock, and a line says how many like it were not written before it.
Which handler writes them, and where to, is the user's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from threading import RLock
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.gcra import step
from sluicegate.kernels.pace import COUNT_MAX, Pace
from sluicegate.telemetry.keys import key_hasher, plain_key
from sluicegate.telemetry.labels import (
    ALLOWED,
    RULES_MAX_DEFAULT,
    RuleLabels,
    outcome_of,
    reason_of,
)

LINES_PER_S_DEFAULT: Final = 1
BURST_DEFAULT: Final = 5
FAILURE_CHARS_MAX: Final = 200
STORE_FAILED: Final = "store_failed"
STORE_ANSWERED: Final = "store_answered"
_SECOND_US: Final = 1_000_000
_MICROSECONDS: Final = 1e6

# (rule, outcome, reason); what concerns the store has no rule.
Kind = tuple[str, str, str]


@final
class _Allowance:
    __slots__ = ("suppressed", "tat")

    def __init__(self) -> None:
        self.tat = 0
        self.suppressed = 0


@final
class Logs:
    """An Observer that writes what did not go as usual to `logger`.

    Of each rule, outcome and reason at most `burst` lines at once and `lines_per_s` a second from
    then on; beyond `rules_max` rules they share the allowance of `other`. `show_key` is none, plain
    or hashed; hashed needs a `secret`. None is the default: a key is often a person, and a hash
    without a secret can be undone.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        level: int = logging.WARNING,
        lines_per_s: int = LINES_PER_S_DEFAULT,
        burst: int = BURST_DEFAULT,
        rules_max: int = RULES_MAX_DEFAULT,
        show_key: str = "none",
        secret: bytes | None = None,
    ) -> None:
        for name, value in (("lines_per_s", lines_per_s), ("burst", burst)):
            if not 1 <= value <= COUNT_MAX:
                raise BadValue(name, value, "give a number of lines, at least 1")
        self._logger = logging.getLogger("sluicegate") if logger is None else logger
        self._level = level
        self._pace = Pace(lines_per_s, _SECOND_US)
        self._tolerance = burst * self._pace.interval
        self._labels = RuleLabels(rules_max)
        self._format_key = _key_formatter(show_key, secret)
        self._allowances: dict[Kind, _Allowance] = {}
        self._failed_us: int | None = None
        self._lock = RLock()

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """Write a refusal, one of a rule only tried out, or a degraded decision."""
        if decision.allowed and not decision.degraded and not decision.shadow:
            return
        outcome = outcome_of(decision)
        if outcome == ALLOWED or not self._logger.isEnabledFor(self._level):
            return
        reason = reason_of(decision)
        kind = (self._labels.label(decision.rule_id), outcome, reason)
        suppressed = self._take_allowance(kind, ended_us)
        if suppressed is None:
            return
        fields: dict[str, object] = {
            "sluicegate.rule": decision.rule_id,
            "sluicegate.outcome": outcome,
            "sluicegate.reason": reason,
            "sluicegate.remaining": decision.remaining,
            "sluicegate.retry_after_us": decision.retry_after_us,
        }
        if self._format_key is not None:
            fields["sluicegate.key"] = self._format_key(key)
        self._write(decision.explain(), fields, suppressed)

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """Write that the store fails, and that it answers again."""
        if not failure:
            if self._failed_us is not None:
                self._write_recovery(ended_us)
            return
        with self._lock:
            if self._failed_us is None:
                self._failed_us = ended_us
        if not self._logger.isEnabledFor(self._level):
            return
        suppressed = self._take_allowance(("", STORE_FAILED, ""), ended_us)
        if suppressed is None:
            return
        failure = plain_key(failure[:FAILURE_CHARS_MAX])
        fields: dict[str, object] = {
            "sluicegate.outcome": STORE_FAILED,
            "sluicegate.failure": failure,
            "sluicegate.decisions": decisions,
            "sluicegate.took_us": ended_us - began_us,
        }
        self._write(f"The store did not answer: {failure}", fields, suppressed)

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Nothing: leases go as usual."""

    def flush(self) -> None:
        """Write how many lines of each kind were suppressed; call it at the end of a program."""
        with self._lock:
            unwritten = [
                (kind, allowance.suppressed)
                for kind, allowance in self._allowances.items()
                if allowance.suppressed
            ]
            for kind, _ in unwritten:
                self._allowances[kind].suppressed = 0
        for (rule, outcome, reason), suppressed in unwritten:
            fields: dict[str, object] = {"sluicegate.outcome": outcome}
            if rule:
                fields |= {"sluicegate.rule": rule, "sluicegate.reason": reason}
            self._write(f"At the end, of {outcome} by rule {rule!r}:", fields, suppressed)

    def _write_recovery(self, at_us: int) -> None:
        with self._lock:
            failed_us, self._failed_us = self._failed_us, None
        if failed_us is None or not self._logger.isEnabledFor(self._level):
            return
        suppressed = self._take_allowance(("", STORE_ANSWERED, ""), at_us)
        if suppressed is None:
            return
        lasted_us = max(at_us - failed_us, 0)
        fields: dict[str, object] = {
            "sluicegate.outcome": STORE_ANSWERED,
            "sluicegate.degraded_us": lasted_us,
        }
        self._write(
            f"The store answers again, after {lasted_us / _MICROSECONDS:,.6g} s.",
            fields,
            suppressed,
        )

    def _take_allowance(self, kind: Kind, now_us: int) -> int | None:
        """Return None if this line may not be written, else how many before it were not."""
        pace = self._pace
        with self._lock:
            allowance = self._allowances.get(kind)
            if allowance is None:
                allowance = self._allowances[kind] = _Allowance()
            allowance.tat, allowed, _, _, _ = step(
                allowance.tat, pace.ticks(now_us), 1, pace.interval, self._tolerance
            )
            if not allowed:
                allowance.suppressed += 1
                return None
            suppressed, allowance.suppressed = allowance.suppressed, 0
            return suppressed

    def _write(self, sentence: str, fields: dict[str, object], suppressed: int) -> None:
        fields["sluicegate.suppressed"] = suppressed
        if suppressed:
            sentence += f" {suppressed:,} more like it were not written."
        self._logger.log(self._level, sentence, extra=fields)


@final
class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and every `extra` field by its name."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": self._time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD_FIELDS:
                line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):
            # Somebody's field is no JSON: not a number, a strange key, a circle. It is shown.
            return json.dumps({name: str(value) for name, value in line.items()})

    def _time(self, record: logging.LogRecord) -> str:
        """As RFC 3339 has it, with the machine's own offset."""
        offset = self.formatTime(record, "%z")
        seconds = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        return f"{seconds}.{int(record.msecs):03d}{offset[:3]}:{offset[3:]}"


_STANDARD_FIELDS: Final = frozenset(
    {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
)


def _key_formatter(show_key: str, secret: bytes | None) -> Callable[[str], str] | None:
    if show_key == "hashed":
        return key_hasher(secret or b"")
    if secret is not None:
        raise BadValue("secret", "...", 'leave it out, or say show_key="hashed"')
    if show_key == "plain":
        return plain_key
    if show_key != "none":
        raise BadValue("show_key", show_key, "give one of none, plain, hashed")
    return None
