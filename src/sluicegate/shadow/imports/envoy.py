"""Import Envoy: requests from an access log that Envoy writes as a JSON object a line.

`EnvoyFields` says which field is what; the defaults are the names of this format:

    json_format:
      start_time: "%START_TIME%"
      method: "%REQ(:METHOD)%"
      path: "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"
      authority: "%REQ(:AUTHORITY)%"
      user: "%REQ(X-USER-ID)%"
      client_type: "%REQ(X-CLIENT-TYPE)%"
      request_name: "%REQ(X-NETFLIX.REQUEST-NAME)%"
      response_code: "%RESPONSE_CODE%"
      response_flags: "%RESPONSE_FLAGS%"

Envoy does not log its descriptors. They are put together from fields as its rate-limit actions put
them together from requests: a key, and the field that has its value or `=` and the value itself. A
descriptor one of whose fields is missing is left out, as Envoy leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.resources.priorities import CLIENT_TYPE_HEADER_DEFAULT, NAME_HEADER_DEFAULT
from sluicegate.shadow.imports.rows import ImportRow, Rows, check_row, mesh_row, text_of
from sluicegate.shadow.imports.tables import json_rows
from sluicegate.shadow.query_keys import Pairs
from sluicegate.shadow.redaction import check_names
from sluicegate.shadow.secret_names import is_secret
from sluicegate.shadow.traffic import ADMITTED, REFUSED, UNKNOWN
from sluicegate.wire.timestamps import UNITS_NS, parse_instant

CONSTANT: Final = "="
# The fields of `EnvoyFields` that one word says.
NAMES: Final = (
    "time",
    "unit",
    "user",
    "path",
    "status",
    "flags",
    "weight",
    "priority",
    "anonymous",
)
LIMITED_FLAG: Final = "RL"  # Envoy's rate-limit filter has refused it


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyFields:
    """Names of fields; an empty one is not in the log. `a.b` is `b` within `a`.

    With a `domain` a row is the request of a mesh, of `descriptors`: each a list of pairs of a key
    and a field. Without, it is a check of `user` on `path`; who has no user is `anonymous`, and a
    bad row if that is empty.
    """

    time: str = "start_time"
    unit: str = "s"  # of a time that is a number
    user: str = "user"
    path: str = "path"
    status: str = "response_code"
    flags: str = "response_flags"
    weight: str = ""
    priority: str = ""
    headers: tuple[tuple[str, str], ...] = (
        (CLIENT_TYPE_HEADER_DEFAULT, "client_type"),
        (NAME_HEADER_DEFAULT, "request_name"),
    )
    refused_statuses: tuple[int, ...] = (429,)
    anonymous: str = ""
    domain: str = ""
    descriptors: tuple[Pairs, ...] = ()

    def __post_init__(self) -> None:
        if self.unit not in UNITS_NS:
            raise BadValue("unit", self.unit, f"give one of {', '.join(UNITS_NS)}")
        if not self.time:
            raise BadValue("time", self.time, "name the field that says when it came")
        if bool(self.domain) != bool(self.descriptors):
            raise BadValue(
                "descriptors", self.descriptors, "give a domain and descriptors, or none"
            )
        check_names("headers", [name for name, _ in self.headers])
        for pairs in self.descriptors:
            for key, _ in pairs:
                if is_secret(key):
                    remedy = "leave it out: what carries a secret is never kept"
                    raise BadValue("descriptors", key, remedy)


def parse_fields(row: Sequence[str], where: str) -> dict[str, str]:
    """Parse which fields of a log say what, as `user=x-user-id`; for `EnvoyFields`."""
    fields: dict[str, str] = {}
    for one in row:
        name, mark, field = one.partition("=")
        if not mark or name not in NAMES:
            raise BadValue(where, one, f"write NAME=FIELD, where NAME is {', '.join(NAMES)}")
        fields[name] = field
    return fields


def import_envoy(
    path: str,
    fields: EnvoyFields | None = None,
    *,
    bad_rows_max: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Rows:
    """The requests of an access log."""
    names = EnvoyFields() if fields is None else fields
    return Rows(
        path,
        lambda: json_rows(path, progress),
        lambda row: _row(row, names),
        bad_rows_max=bad_rows_max,
    )


def _row(row: Mapping[str, object], fields: EnvoyFields) -> ImportRow:
    time = _text(row, fields.time)
    if not time:
        raise ValueError(f"it has no time in {fields.time!r}")
    at_us = parse_instant(time, fields.unit)
    outcome = _outcome(row, fields)
    if fields.domain:
        made = [_pairs(row, pairs) for pairs in fields.descriptors]
        return ImportRow(
            mesh_row(fields.domain, made, hits=_text(row, fields.weight)), at_us, outcome
        )
    headers: dict[str, str] = {}
    for name, field in fields.headers:
        text = _text(row, field)
        if text:
            headers[name] = text
    query = check_row(
        _text(row, fields.user) or fields.anonymous,
        _text(row, fields.path),
        weight=_text(row, fields.weight),
        priority=_text(row, fields.priority),
        headers=headers,
    )
    return ImportRow(query, at_us, outcome)


def _outcome(row: Mapping[str, object], fields: EnvoyFields) -> int:
    if LIMITED_FLAG in _text(row, fields.flags).split(","):
        return REFUSED
    status = _text(row, fields.status)
    if not status:
        return UNKNOWN
    return REFUSED if int(status) in fields.refused_statuses else ADMITTED


def _pairs(row: Mapping[str, object], pairs: Pairs) -> Pairs:
    made: list[tuple[str, str]] = []
    for key, field in pairs:
        text = field[len(CONSTANT) :] if field.startswith(CONSTANT) else _text(row, field)
        if not text:
            return ()
        made.append((key, text))
    return tuple(made)


def _text(row: Mapping[str, object], field: str) -> str:
    """The field's text; empty if there is none."""
    if not field:
        return ""
    if field in row:
        return text_of(row[field])
    value: object = row
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            return ""
        value = value[name]
    return text_of(value)
