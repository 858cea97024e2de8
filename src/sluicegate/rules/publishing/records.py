"""Records: what the ledger stores, as values and as JSON.

Each record is a file of its own, so that a change reads well in `git log -p`, and names its format.
The fields of the value are the fields of the file; `_STORED` lists those that are stored under
another name. A newer format is refused with what to do; unknown fields of this one are ignored, so
an older program can run beside a newer one. A missing field is empty: "", 0, False, none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import OPEN, Author, GateFinding
from sluicegate.rules.publishing.canary import CanaryState
from sluicegate.wire.json_objects import parse_object

FORMAT: Final = 1

# Why a release was made.
FIRST: Final = "first"
PUBLISHED: Final = "publish"
TRIAL: Final = "canary"
ROLLBACK: Final = "roll back"

BY_DESK: Final = "desk"
BY_PUSH: Final = "push"


class ProposalStep(NamedTuple):
    """One event in the history of a proposal."""

    at_us: int
    by: str
    what: str
    why: str = ""


class Proposal(NamedTuple):
    """A commit that is proposed to go live, with its history.

    `judged_on` is the commit that was live when the verdict was found, and `candidate` what would
    have been live: the proposal's commit, merged with that one.
    """

    id: str
    commit: str
    base: str
    author: Author
    proposer: str
    at_us: int
    title: str
    reason: str
    source: str = BY_DESK
    state: str = OPEN
    verdict: GateFinding | None = None
    judged_on: str = ""
    candidate: str = ""
    approvals: tuple[str, ...] = ()
    override: str = ""
    authors: tuple[str, ...] = ()  # of a push: the authors of all its commits
    version: int = 0
    steps: tuple[ProposalStep, ...] = ()


class ReleaseRecord(NamedTuple):
    """A release as it was decided on; its bytes follow from the commit. `number` is never reused.

    `before` is the commit that was live then.
    """

    number: int
    commit: str
    before: str
    proposal: str
    kind: str
    by: str
    why: str
    at_us: int


class CanaryRun(NamedTuple):
    """The canary that is under way. `failing` are the nodes that reported a failure before it."""

    proposal: str
    by: str
    salt: str
    state: CanaryState
    failing: tuple[str, ...] = ()


class Delivered(NamedTuple):
    """The last release and rollout that the outbox has delivered; what follows is pending."""

    versions: int = 0
    rollouts: int = 0


class CommitNote(NamedTuple):
    """A note for people that is still to be attached to a commit."""

    commit: str
    text: str


class FleetRecord(NamedTuple):
    """What is decided for all nodes: the last numbers used, what runs, and what is pending.

    `highest` is the newest release that was ever live, or a canary that has ended. `branch_tip` is
    the tip of the branch when it was last read, `refused_tip` one that could not be proposed.
    """

    live: int = 0
    versions: int = 0
    rollouts: int = 0
    highest: int = 0
    canary: CanaryRun | None = None
    pins: Mapping[str, int] = {}
    delivered: Delivered = Delivered()
    notes: tuple[CommitNote, ...] = ()
    branch_tip: str = ""
    refused_tip: str = ""


_STORED: Final[Mapping[type, Mapping[str, str]]] = {
    CanaryRun: {"failing": "troubled"},
    Delivered: {"rollouts": "orders"},
    FleetRecord: {
        "rollouts": "orders",
        "delivered": "told",
        "notes": "marks",
        "branch_tip": "seen",
        "refused_tip": "refused",
    },
}
_Record = TypeVar("_Record", bound=tuple[Any, ...])


def record_bytes(record: tuple[Any, ...]) -> bytes:
    """A record as its file in the ledger."""
    fields = {"format": FORMAT, **_fields_of(record)}
    text = json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def parse_record(kind: type[_Record], name: str, data: bytes) -> _Record:
    """The record in a file; `Unavailable` names what is wrong, since then the ledger is damaged."""
    try:
        fields = parse_object(data)
    except BadValue as error:
        raise _damaged(name, f"it is not a JSON object: {error.remedy}") from None
    if type(fields.get("format")) is not int:
        raise _damaged(name, "its format is missing")
    if fields["format"] > FORMAT:
        problem = f"it has format {fields['format']}, and this program reads {FORMAT}"
        raise _damaged(name, f"{problem}; upgrade this program")
    record: _Record = _record(kind, fields, name)
    return record


def _fields_of(record: tuple[Any, ...]) -> dict[str, Any]:
    stored = _STORED.get(type(record), {})
    names = [stored.get(name, name) for name in _kinds(type(record))]
    return dict(zip(names, map(_plain, record), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return _fields_of(value) if hasattr(value, "_fields") else [_plain(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value


@cache
def _kinds(record: type) -> dict[str, Any]:
    """The types of a record's fields."""
    return get_type_hints(record)


def _record(kind: Any, fields: Mapping[str, Any], name: str) -> Any:
    stored = _STORED.get(kind, {})
    names = {field: stored.get(field, field) for field in _kinds(kind)}
    return kind(*(_parse(_kinds(kind)[to], fields.get(at), at, name) for to, at in names.items()))


def _parse(kind: Any, value: Any, field: str, name: str) -> Any:
    """A field of a record as its type has it."""
    origin, inner = get_origin(kind), get_args(kind)
    if NoneType in inner:
        return None if value is None else _parse(inner[0], value, field, name)
    if kind is float:
        return float(value) if isinstance(value, int | float) else None
    if origin is tuple:
        items = _typed(list, value, field, name)
        return tuple(_parse(inner[0], one, field, name) for one in items)
    if hasattr(kind, "_fields"):
        return _record(kind, _typed(dict, value, field, name), name)
    if origin is None:
        return _typed(kind, value, field, name)
    parsed: Mapping[str, Any] = _typed(dict, value, field, name)
    if inner[1] is int and not all(type(one) is int for one in parsed.values()):
        raise _damaged(name, f"its {field!r} are not numbers")
    return parsed


def _typed(kind: type, value: Any, field: str, name: str) -> Any:
    if value is None:
        return kind()
    if type(value) is not kind:
        raise _damaged(name, f"its {field!r} is not of the type {kind.__name__}")
    return value


def _damaged(name: str, why: str) -> Unavailable:
    return Unavailable("the ledger of the rules", f"{name}: {why}")
