"""Trial: a made-up request through a rules file, by the real guard and limiter on virtual time.

Nothing waits and no store is asked: a clock moved by hand stands in for the time between requests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, final

from sluicegate.apps.limits.rule_text import EXEMPT, line_of
from sluicegate.command_line.text import counted, table
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.rates import parse_rate
from sluicegate.rules.plain_values import read_bytes
from sluicegate.rules.web.guard import RulesGuard
from sluicegate.rules.web.rule_set import MatchedRule, WebRuleSet
from sluicegate.testing import START_US, HandClock
from sluicegate.wire.json_objects import parse_object

TIMES_MAX: Final = 100_000
EVERY_US_MAX: Final = 366 * 86_400 * 1_000_000
REQUEST_BYTES_MAX: Final = 1 << 20
ROWS_MAX: Final = 20

_TEXTS: Final = {"path": "/", "method": "GET", "address": "127.0.0.1", "user": ""}
_FIELDS: Final = (*_TEXTS, "headers")


@final
class _SampleRequest:
    """A `contracts.arrival.Arrival` from a mapping."""

    __slots__ = ("_address", "_headers", "_user", "method", "path")

    def __init__(self, fields: Mapping[str, object]) -> None:
        for name in fields:
            if name not in _FIELDS:
                close = get_close_matches(name, _FIELDS, 1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                remedy = f"there is no such field; {hint}there are {', '.join(_FIELDS)}"
                raise BadValue(f"request.{name}", fields[name], remedy)
        self.path = _text(fields, "path").partition("?")[0]
        self.method = _text(fields, "method").upper()
        self._address = _text(fields, "address")
        self._user = _text(fields, "user")
        headers = fields.get("headers") or {}
        if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
            remedy = 'give names with texts, as {"x-plan": "free"}'
            raise BadValue("request.headers", headers, remedy)
        self._headers: dict[str, str] = {name.lower(): headers[name] for name in headers}

    def address(self) -> str:
        """Return the caller's address."""
        return self._address

    def header(self, name: str) -> str:
        """Return a header's value."""
        return self._headers.get(name, "")

    def user(self) -> str:
        """Who is authenticated."""
        return self._user


class _TrialStep(NamedTuple):
    """One of the requests: when, from the first, and what was decided."""

    after_us: int
    judgement: Judgement


def try_out(file: str, request: str, *, times: str, every: str, as_json: bool) -> int:
    """Print which rules match and what they decide."""
    arrival = _SampleRequest(_request(request))
    count, every_us = _times(times), _every_us(every)
    book = WebRuleSet.load(file)
    matched = book.matches(arrival)
    clock = HandClock()
    guard = RulesGuard(book, Limiter(clock=clock), clock=clock)
    steps: list[_TrialStep] = []
    for _ in range(count):
        judgement = guard.judge(arrival)
        if judgement is None:
            break
        steps.append(_TrialStep(clock.now_us() - START_US, judgement))
        clock.advance(us=every_us)
    if as_json:
        sys.stdout.write(json.dumps(_json(book, matched, steps), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(arrival, matched, steps)) + "\n")
    return 0


def _lines(
    arrival: _SampleRequest, matched: Sequence[MatchedRule], steps: Sequence[_TrialStep]
) -> list[str]:
    lines = [f"{arrival.method} {arrival.path}", ""]
    if not matched:
        return [*lines, "No rule matches: it is not limited."]
    first = line_of(matched[0].entry)
    if first.limits == EXEMPT:
        return [*lines, f"Exempt by {first.name!r}: it is not limited."]
    rows = [
        (line.name, _key(one), str(one.cost), line.limits, line.terms)
        for one in matched
        for line in (line_of(one.entry),)
    ]
    lines += table(("rule", "key", "cost", "limits", "terms"), rows)
    if not steps:
        return [*lines, "", "No rule applies: it is not limited."]
    places = range(len(steps)) if len(steps) <= ROWS_MAX else _changes(steps)
    width = len(f"{len(steps):,}")
    lines.append("")
    for place in places:
        lines += _step_lines(place + 1, steps[place], width)
    return [*lines, "", _summary(steps, len(places))]


def _step_lines(number: int, one: _TrialStep, width: int) -> list[str]:
    """Return what was decided of one request, and what trials thought of it."""
    binding, counted_limits = one.judgement
    start = f"  {number:>{width},}  {one.after_us / 1e6:>10,.6g} s  "
    lines = [start + binding.explain()]
    for counted_one in counted_limits:
        decision = counted_one.decision
        if decision.shadow and decision is not binding:
            lines.append(" " * len(start) + decision.explain())
    return lines


def _changes(steps: Sequence[_TrialStep]) -> Sequence[int]:
    """Of many, the places where the answer turns, and the first and the last."""
    allowed = [one.judgement.decision.allowed for one in steps]
    turns = [place for place in range(1, len(steps)) if allowed[place] != allowed[place - 1]]
    last = len(steps) - 1
    return sorted({0, *turns[: ROWS_MAX - 2], last})


def _summary(steps: Sequence[_TrialStep], rows: int) -> str:
    admitted = sum(one.judgement.decision.allowed for one in steps)
    words = f"{admitted:,} of {counted(len(steps), 'request')} admitted"
    if rows < len(steps):
        words += "; shown are those where the answer turns"
    return words + "."


def _json(
    book: WebRuleSet, matched: Sequence[MatchedRule], steps: Sequence[_TrialStep]
) -> dict[str, object]:
    return {
        "version": book.version,
        "matched": [
            {
                "rule": line.name,
                "exempt": line.limits == EXEMPT,
                "key": one.key or None,
                "cost": one.cost,
            }
            for one in matched
            for line in (line_of(one.entry),)
        ],
        "limited": bool(steps),
        "admitted": sum(one.judgement.decision.allowed for one in steps),
        "requests": [_step_json(one) for one in steps],
    }


def _step_json(one: _TrialStep) -> dict[str, object]:
    decision = one.judgement.decision
    return {
        "after_s": one.after_us / 1e6,
        "allowed": decision.allowed,
        "rule": decision.rule_id,
        "reason": None if decision.reason is None else decision.reason.name,
        "remaining": decision.remaining,
        "retry_after_s": decision.retry_after_s,
        "explained": decision.explain(),
    }


def _key(one: MatchedRule) -> str:
    return one.key or f"none: {EXEMPT} by this rule"


def _request(text: str) -> Mapping[str, object]:
    """Return the request's fields, from the flag, a file, or standard input."""
    if text == "-":
        text = sys.stdin.read(REQUEST_BYTES_MAX)
    elif text.startswith("@"):
        text = read_bytes(text[1:], REQUEST_BYTES_MAX).decode("utf-8", "replace")
    remedy = 'give it as JSON: {"path": "/login", "method": "POST"}'
    try:
        return parse_object(text)
    except BadValue as error:
        raise BadValue("request", error.value, f"{error.remedy}; {remedy}") from None


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return _TEXTS[name]
    if not isinstance(value, str):
        raise BadValue(f"request.{name}", value, "give a text")
    return value


def _times(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= TIMES_MAX and len(text) < 9:
        return int(text)
    raise BadValue("--times", text, f"give a whole number from 1 to {TIMES_MAX:,}")


def _every_us(text: str) -> int:
    """Return a length of time, spelled as in rates."""
    if text == "0":
        return 0
    remedy = "give a time, as 100ms, 1s or 2 minutes"
    try:
        period_us = parse_rate(f"1/{text}").period_us
    except BadValue:
        raise BadValue("--every", text, remedy) from None
    if period_us > EVERY_US_MAX or "burst" in text:
        raise BadValue("--every", text, f"{remedy}, up to 366 days")
    return period_us
