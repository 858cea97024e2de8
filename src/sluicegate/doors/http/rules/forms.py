"""Forms of the rulebook's door: what its routes read of a query and of a body. Pure.

What is checked here is shape and size. Whether it can be done is for the desk to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule_admin import LIVE_REVISION
from sluicegate.contracts.rulebook import BY_CALLERS, BY_NODES, STATES
from sluicegate.doors.http.forms import query_of, whole_of
from sluicegate.doors.http.message import Request
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.wire import json_objects

COUNT_DEFAULT: Final = 100
VERSION_MAX: Final = 2**53 - 1  # what any reader of JSON can hold
NODES_MAX: Final = 1_000_000
SHARE_MAX: Final = 10_000
REPORT_JSON: Final = "json"

_SECONDS: Final = re.compile(r"[0-9]{1,8}(\.[0-9]{1,6})?", re.ASCII)
_KINDS: Final = (BY_CALLERS, BY_NODES)


class ProposeAsk(NamedTuple):
    """Files to be put in place of those at `base`; None takes a file out."""

    changes: Mapping[str, str | None]
    base: str
    message: str
    reason: str


class CanaryAsk(NamedTuple):
    """For what share of what."""

    share: int
    kind: str


class RollBackAsk(NamedTuple):
    """To which revision, and why."""

    to: str
    reason: str


class PinAsk(NamedTuple):
    """Which node runs which version, and why."""

    node: str
    version: int
    reason: str


class WaitAsk(NamedTuple):
    """For how many nodes to run a version, and how long to wait at most."""

    version: int
    nodes: int
    timeout_s: float


# Queries.


def at_of(request: Request, bounds: RulesHttpSettings) -> str:
    """`?at=`: a revision."""
    return _revision("at", query_of(request, ("at",)).get("at", LIVE_REVISION), bounds)


def span_of(request: Request, bounds: RulesHttpSettings) -> tuple[str, str]:
    """`?from=&to=`: two revisions; from what is live, if nothing is said."""
    fields = query_of(request, ("from", "to"))
    if "to" not in fields:
        raise BadValue("to", "", "say which revision: /v1/rules/diff?to=...")
    before = _revision("from", fields.get("from", LIVE_REVISION), bounds)
    return before, _revision("to", fields["to"], bounds)


def count_of(request: Request, bounds: RulesHttpSettings) -> int:
    """`?count=`: at most how many."""
    return _count(query_of(request, ("count",)), bounds)


def listing_of(request: Request, bounds: RulesHttpSettings) -> tuple[str, int]:
    """`?state=&count=`: proposals in which state, at most how many."""
    fields = query_of(request, ("state", "count"))
    state = fields.get("state", "")
    if state and state not in STATES:
        raise BadValue("state", state, f"give one of {', '.join(STATES)}, or leave it out")
    return state, _count(fields, bounds)


def wait_of(request: Request, bounds: RulesHttpSettings) -> WaitAsk:
    """`?version=&nodes=&timeout_s=`: a longer time than an answer may take is cut to that."""
    fields = query_of(request, ("version", "nodes", "timeout_s"))
    version = whole_of("version", fields.get("version", ""), 1, VERSION_MAX)
    nodes = whole_of("nodes", fields.get("nodes", "1"), 1, NODES_MAX)
    said = fields.get("timeout_s")
    if said is not None and not _SECONDS.fullmatch(said):
        raise BadValue("timeout_s", said, "give seconds, as 5 or 0.5")
    wanted_s = bounds.wait_s_max if said is None else float(said)
    return WaitAsk(version, nodes, min(wanted_s, bounds.wait_s_max))


def report_form_of(request: Request, forms: tuple[str, ...]) -> str:
    """`?form=`: how the report is to be written."""
    form = query_of(request, ("form",)).get("form", REPORT_JSON)
    if form not in forms:
        raise BadValue("form", form, f"there is {', '.join(forms)}")
    return form


def no_query(request: Request) -> None:
    """A route that takes none."""
    query_of(request, ())


def place_of(name: str, value: str, bounds: RulesHttpSettings) -> str:
    """What a path says in one of its places."""
    if name == "id":
        return _revision(name, value, bounds)
    return _text(value, name, bounds.name_bytes_max, "name_bytes_max")


# Bodies.


def propose_of(body: bytes, bounds: RulesHttpSettings) -> ProposeAsk:
    """What is proposed."""
    found = _fields(body, "base", "changes", "message", "reason")
    return ProposeAsk(
        _changes(found.get("changes"), bounds),
        _revision("base", found.get("base"), bounds),
        _text(found.get("message", ""), "message", bounds.message_bytes_max, "message_bytes_max"),
        _reason(found, bounds),
    )


def override_of(body: bytes, bounds: RulesHttpSettings) -> str:
    """What an approval says where the gate could not judge; a body may be left out."""
    found = _fields(body, "override")
    most = bounds.reason_bytes_max
    return _text(found.get("override", ""), "override", most, "reason_bytes_max")


def reason_of(body: bytes, bounds: RulesHttpSettings) -> str:
    """Why."""
    return _reason(_fields(body, "reason"), bounds)


def nothing_of(body: bytes, _bounds: RulesHttpSettings) -> None:
    """An empty object, or nothing at all."""
    _fields(body)


def canary_of(body: bytes, bounds: RulesHttpSettings) -> CanaryAsk:
    """For whom."""
    found = _fields(body, "share", "kind")
    share = json_objects.whole_of(found.get("share"), "share", 0, SHARE_MAX)
    kind = found.get("kind", BY_CALLERS)
    if kind not in _KINDS:
        raise BadValue("kind", kind, f"send one of {', '.join(_KINDS)}")
    return CanaryAsk(share, str(kind))


def roll_back_of(body: bytes, bounds: RulesHttpSettings) -> RollBackAsk:
    """Where to, and why."""
    found = _fields(body, "to", "reason")
    return RollBackAsk(_revision("to", found.get("to"), bounds), _reason(found, bounds))


def pin_of(body: bytes, bounds: RulesHttpSettings) -> PinAsk:
    """Which node, which version, and why."""
    found = _fields(body, "node", "version", "reason")
    return PinAsk(
        _text(found.get("node"), "node", bounds.name_bytes_max, "name_bytes_max"),
        json_objects.whole_of(found.get("version"), "version", 0, VERSION_MAX),
        _reason(found, bounds),
    )


# Parts of them.


def _fields(body: bytes, *names: str) -> dict[str, object]:
    value = json_objects.parse_json(body) if body.strip() else {}
    if not names and value not in ({}, None):
        raise BadValue("body", value, "send an empty object: {}")
    return json_objects.fields_of(
        {} if value is None else value, "", {name: name for name in names}
    )


def _changes(value: object, bounds: RulesHttpSettings) -> dict[str, str | None]:
    if not isinstance(value, dict) or not value:
        raise BadValue("changes", value, "send an object of names and texts; null takes a file out")
    if len(value) > bounds.changes_max:
        remedy = f"send at most {bounds.changes_max:,} at once (rules.changes_max)"
        raise BadValue("changes", f"{len(value):,} files", remedy)
    found: dict[str, str | None] = {}
    for name, text in value.items():
        if not name:
            raise BadValue("changes", name, "give each file a name")
        _text(name, "changes", bounds.name_bytes_max, "name_bytes_max")
        place, most = f"changes[{name}]", bounds.text_bytes_max
        found[name] = None if text is None else _text(text, place, most, "text_bytes_max")
    return found


def _reason(found: Mapping[str, object], bounds: RulesHttpSettings) -> str:
    return _text(found.get("reason", ""), "reason", bounds.reason_bytes_max, "reason_bytes_max")


def _text(value: object, place: str, most: int, bound: str) -> str:
    return json_objects.text_of(value, place, most, f"rules.{bound}")


def _revision(field: str, value: object, bounds: RulesHttpSettings) -> str:
    if not isinstance(value, str) or not value:
        raise BadValue(field, value, "give live, a version, or the id of a commit or a proposal")
    if len(value) > bounds.revision_chars_max or not value.isprintable():
        most = f"{bounds.revision_chars_max:,} characters (rules.revision_chars_max)"
        raise BadValue(field, value, f"give at most {most}, all of them printable")
    return value


def _count(fields: Mapping[str, str], bounds: RulesHttpSettings) -> int:
    default = str(min(COUNT_DEFAULT, bounds.count_max))
    return whole_of("count", fields.get("count", default), 1, bounds.count_max)
