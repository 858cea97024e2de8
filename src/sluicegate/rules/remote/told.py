"""Told: what a server refuses, as the errors it was made from, in the server's words. Pure.

A problem that names a field is a `BadValue`, one with a list of problems `BadRules`, one that says
what was seen a `Conflict` or `Unavailable`. What no rulebook's door says is `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    Forbidden,
    SluicegateError,
    Unauthenticated,
    Unavailable,
)
from sluicegate.rules.problems import PROBLEMS_MAX, BadRules, Problem
from sluicegate.rules.remote.exchange import Answered
from sluicegate.wire.json_objects import parse_object

WORDS_CHARS_MAX: Final = 2_000

# Where the call itself is wrong, and no field of it alone.
_TOO_MUCH: Final = (408, 411, 413, 414, 415, 417, 421, 431)


def answer_of(answered: Answered, what: str) -> Mapping[str, Any]:
    """The object that was answered; otherwise it raises what was refused."""
    if 200 <= answered.status < 300:
        found = _object_in(answered.body)
        if found is None:
            raise Unavailable(what, "what answers there is no rulebook's door: it is not JSON")
        return found
    raise error_of(answered, what)


def error_of(answered: Answered, what: str) -> SluicegateError:
    """What was refused."""
    status = answered.status
    said = _object_in(answered.body) or {}
    words = _text(said, "detail") or _text(said, "title") or f"it answers {status}"
    if status == 401:
        return Unauthenticated(_text(said, "remedy") or words)
    if status == 403 and "grant" in said:
        return Forbidden(_text(said, "who"), _text(said, "grant"))
    if status in (409, 412) and "what" in said:
        return Conflict(_text(said, "what"), _text(said, "seen"))
    if status == 409:
        return SluicegateError(words)
    problems = said.get("problems")
    if status == 422 and isinstance(problems, list) and problems:
        return _bad_rules(said, problems)
    if status in (400, 404, 422) and "field" in said:
        return BadValue(_text(said, "field"), _text(said, "value"), _text(said, "remedy"))
    if status in _TOO_MUCH:
        return BadValue("call", _text(said, "title") or str(status), words)
    if status == 503 and "what" in said:
        return Unavailable(_text(said, "what"), _text(said, "seen"))
    if 300 <= status < 400:
        where = answered.headers.get("location", "")[:WORDS_CHARS_MAX]
        return Unavailable(what, f"it sends us to {where!r}; if that is right, give it as the url")
    return Unavailable(what, f"{status}: {words}")


def _bad_rules(said: Mapping[str, Any], problems: list[Any]) -> BadRules:
    found = [
        Problem(
            _text(one, "field"), one.get("value"), _text(one, "remedy"), _whole(one.get("line"))
        )
        for one in problems[:PROBLEMS_MAX]
        if isinstance(one, dict)
    ] or [Problem("", "", _text(said, "detail"))]
    return BadRules(_text(said, "file"), found, _whole(said.get("more")))


def _object_in(body: bytes) -> dict[str, Any] | None:
    try:
        return parse_object(body)
    except BadValue:
        return None


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return value[:WORDS_CHARS_MAX] if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
