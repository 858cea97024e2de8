"""Dead letter: one decision that was taken without the store, as it is written and read again.

A letter holds what is needed to judge the decision later: whom it was about, its cost, when, and
the limit itself, so that no rules file must be found that was in force then. It has a place: the
process that wrote it, and its number there. Numbers follow each other without a gap, also over
letters that were dropped, so what is missing can be found; `before`, the cost of all earlier
letters, shows how much is missing, and whether a cost was changed.

The body is one compact JSON object with a version. Unknown fields are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.wire.json_objects import parse_object

VERSION: Final = 1
DEAD_LETTER: Final = "dead_letter"
BEGUN: Final = "dead_letters.begun"
CLOSED: Final = "dead_letters.closed"


@dataclass(slots=True, eq=False)
class DeadLetter:
    """A decision, and its place; the place is given when it is offered.

    `why` is the failure that was seen. `harsh`: the rule charges what it refuses.
    """

    user: str
    rule_id: str
    cost: int
    at_us: int
    _: KW_ONLY
    allowed: bool
    limit: Limit | None
    priority: Criticality = Criticality.CRITICAL
    degraded: bool = True
    shadow: bool = False
    harsh: bool = False
    reason: str = ""
    why: str = ""
    process: str = ""
    number: int = 0
    before: int = 0

    @property
    def id(self) -> str:
        """The same for every copy of a letter, and for no other."""
        return f"{self.process}:{self.number}"

    def __repr__(self) -> str:
        word = "admitted" if self.allowed else "refused"
        return f"<DeadLetter {self.id}: {self.user!r} {word} by {self.rule_id!r}, {self.cost}>"


class ProcessMark(NamedTuple):
    """A process began to write letters, or ended: `number` is the next one's, `before` its."""

    kind: str
    process: str
    number: int
    before: int
    at_us: int


def pack(letter: DeadLetter) -> bytes:
    """Return the letter as the body of an event."""
    fields: dict[str, object] = {
        "v": VERSION,
        "process": letter.process,
        "n": letter.number,
        "before": letter.before,
        "at_us": letter.at_us,
        "user": letter.user,
        "rule": letter.rule_id,
        "weight": letter.cost,
        "priority": letter.priority.name,
        "allowed": letter.allowed,
    }
    if letter.limit is not None:
        fields["limit"] = limit_words(letter.limit)
    usual = (
        ("degraded", letter.degraded, True),
        ("shadow", letter.shadow, False),
        ("harsh", letter.harsh, False),
        ("reason", letter.reason, ""),
        ("why", letter.why, ""),
    )
    fields.update({name: word for name, word, default in usual if word != default})
    return json.dumps(fields, separators=(",", ":")).encode()


def unpack(body: bytes) -> DeadLetter | str:
    """Return the letter that a body is, or why it is none."""
    fields = _object(body)
    if isinstance(fields, str):
        return fields
    try:
        limit = fields.get("limit")
        return DeadLetter(
            _text(fields["user"]),
            _text(fields["rule"]),
            _whole(fields["weight"]),
            _whole(fields["at_us"]),
            allowed=bool(fields["allowed"]),
            limit=None if limit is None else read_limit(limit),
            priority=Criticality[fields["priority"]],
            degraded=bool(fields.get("degraded", True)),
            shadow=bool(fields.get("shadow", False)),
            harsh=bool(fields.get("harsh", False)),
            reason=_text(fields.get("reason", "")),
            why=_text(fields.get("why", "")),
            process=_text(fields["process"]),
            number=_whole(fields["n"]),
            before=_whole(fields["before"]),
        )
    except (KeyError, TypeError, BadValue) as error:
        return f"the letter cannot be understood: {error}"


def pack_mark(mark: ProcessMark) -> bytes:
    """Return the mark as the body of an event; its kind is the event's."""
    fields = {"v": VERSION, "process": mark.process, "n": mark.number, "before": mark.before}
    return json.dumps(fields, separators=(",", ":")).encode()


def unpack_mark(kind: str, body: bytes, at_us: int) -> ProcessMark | str:
    """Return the mark that a body is, or why it is none."""
    fields = _object(body)
    if isinstance(fields, str):
        return fields
    try:
        process, number, before = (
            _text(fields["process"]),
            _whole(fields["n"]),
            _whole(fields["before"]),
        )
    except (KeyError, TypeError) as error:
        return f"the mark cannot be understood: {error}"
    return ProcessMark(kind, process, number, before, at_us)


def limit_words(limit: Limit) -> dict[str, object]:
    """Return a limit as JSON holds it."""
    fields: dict[str, object] = {
        "count": limit.count,
        "period_us": limit.period_us,
        "algorithm": limit.algorithm.value,
    }
    if limit.algorithm in BURSTING:
        fields["burst"] = limit.burst
    if limit.algorithm is Algorithm.SLIDING_WINDOW:
        fields["cells"] = limit.cells
    return fields


def read_limit(fields: object) -> Limit:
    """Return the limit that these words say; `BadValue` if they say none."""
    if not isinstance(fields, dict):
        raise BadValue("limit", fields, "give count, period_us and algorithm")
    try:
        return Limit(
            _whole(fields["count"]),
            period_us=_whole(fields["period_us"]),
            burst=None if "burst" not in fields else _whole(fields["burst"]),
            cells=None if "cells" not in fields else _whole(fields["cells"]),
            algorithm=Algorithm(fields["algorithm"]),
        )
    except (KeyError, TypeError, ValueError):
        raise BadValue("limit", fields, "give count, period_us and algorithm") from None


def _object(body: bytes) -> Mapping[str, Any] | str:
    try:
        fields = parse_object(body)
    except BadValue:
        return "it is not a JSON object"
    version = fields.get("v")
    if version != VERSION:
        return f"its version is {version!r}, and this program reads {VERSION}"
    return fields


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
