"""Problems of the rulebook's door: an error as problem details.

Rules that cannot be used come with every reason at once, each with its file, line, field, value and
remedy. What the path names and the admin does not know is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.doors.http.identity import printable, reply_to
from sluicegate.doors.http.message import HttpReply, problem

FULL: Final = problem(
    503,
    "Capacity is reduced for the moment",
    "as many calls wait as may",
    headers=((b"retry-after", b"1"),),
    more={"what": "the rulebook's door", "seen": "as many calls wait as may"},
)
OTHER_CALL: Final = problem(
    422,
    "Unprocessable Content",
    "this Idempotency-Key was used for another call; give each call a key of its own",
    more={
        "field": "idempotency-key",
        "value": "used before",
        "remedy": "give each call a key of its own",
    },
)


class _Line(Protocol):
    """One thing that is wrong with a file."""

    field: str
    value: object
    remedy: str
    line: int


class _Rules(Protocol):
    """Rules that cannot be used, as the rulebook's reader says it."""

    source: str
    problems: Sequence[_Line]
    more: int


def rules_reply(error: SluicegateError) -> HttpReply:
    """An error that was raised on purpose."""
    return _bad_rules(error, str(error)) if _is_rules(error) else reply_to(error)


def not_found(error: BadValue) -> HttpReply:
    """The reply where the path names what there is not."""
    more = {"field": error.field, "value": printable(error.value), "remedy": error.remedy}
    return problem(404, "Not Found", str(error), more=more)


def precondition_failed(what: str, tag: str) -> HttpReply:
    """The reply where a condition of the call does not hold."""
    state = f'its ETag is "{tag}"'
    return problem(
        412,
        "Precondition Failed",
        f"{what} is not what If-Match names: {state}",
        headers=((b"etag", f'"{tag}"'.encode()),),
        more={"what": what, "seen": state},
    )


def _is_rules(error: SluicegateError) -> TypeGuard[_Rules]:
    """Whether it is a `BadRules`; that class belongs to a layer above this one."""
    return isinstance(error, BadValue) and hasattr(error, "problems")


def _bad_rules(error: _Rules, detail: str) -> HttpReply:
    problems = [
        {
            "file": error.source,
            "line": one.line,
            "field": one.field,
            "value": _value(one.value),
            "remedy": one.remedy,
        }
        for one in error.problems
    ]
    return problem(
        422,
        "These rules cannot be used",
        detail,
        more={"file": error.source, "problems": problems, "more": error.more},
    )


def _value(value: object) -> object:
    """As it is, where JSON can say it in a word."""
    return value if value is None or isinstance(value, bool | int) else printable(value)
