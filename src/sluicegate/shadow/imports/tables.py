"""Import tables: requests as CSV or as a JSON object a line, by columns of these names.

    time        a number (`unit`) or a date                       wanted
    user path   a check; both are wanted for one
    weight      units of work, 1 where it is missing
    priority    CRITICAL, DEGRADED, BEST_EFFORT or BULK, as claimed
    client_type the kind of client, as its header would say it
    header.*    a header by its name
    domain      makes it the request of a mesh
    descriptor.*  one pair of its descriptor, in the order of the columns; empty is none
    descriptors   JSON lines only: several, each a list of pairs or an object
    hits        of a mesh's request
    refused     true or false: the decision

Other columns are passed over.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.resources.priorities import CLIENT_TYPE_HEADER_DEFAULT
from sluicegate.shadow.imports.rows import ImportRow, Raw, Rows, check_row, lines, mesh_row, text_of
from sluicegate.shadow.query_keys import Pairs
from sluicegate.shadow.secret_names import is_secret
from sluicegate.shadow.traffic import ADMITTED, REFUSED, UNKNOWN
from sluicegate.wire.timestamps import UNITS_NS, parse_instant

HEADER: Final = "header."
DESCRIPTOR: Final = "descriptor."
_OUTCOMES: Final = {
    "": UNKNOWN,
    "true": REFUSED,
    "1": REFUSED,
    "yes": REFUSED,
    "refused": REFUSED,
    "false": ADMITTED,
    "0": ADMITTED,
    "no": ADMITTED,
    "admitted": ADMITTED,
}


def import_csv(
    path: str,
    *,
    unit: str = "s",
    bad_rows_max: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Rows:
    """The requests of a CSV file, whose first line names its columns."""
    return _import(path, lambda: _csv_rows(path, progress), unit, bad_rows_max)


def import_jsonl(
    path: str,
    *,
    unit: str = "s",
    bad_rows_max: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Rows:
    """The requests of a file of JSON objects, one a line."""
    return _import(path, lambda: json_rows(path, progress), unit, bad_rows_max)


def json_rows(path: str, progress: Callable[[int, int], None] | None) -> Iterator[Raw]:
    """The objects of a file, one a line; empty lines are none."""
    for number, line in enumerate(lines(path, progress), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, line, ValueError(f"it is no JSON: {error}")
            continue
        if isinstance(value, dict):
            yield number, line, value
        else:
            yield number, line, ValueError("it is no JSON object")


def _csv_rows(path: str, progress: Callable[[int, int], None] | None) -> Iterator[Raw]:
    reader = csv.reader(lines(path, progress), strict=True)
    names: list[str] = []
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield reader.line_num, "", ValueError(str(error))
            continue
        if fields is None:
            return
        if not fields:
            continue
        if not names:
            names = [field.strip() for field in fields]
            _check_names(path, names)
        elif len(fields) != len(names):
            wrong = ValueError(f"it has {len(fields)} fields, and the first line {len(names)}")
            yield reader.line_num, ",".join(fields), wrong
        else:
            yield reader.line_num, ",".join(fields), dict(zip(names, fields, strict=True))


def _check_names(path: str, names: list[str]) -> None:
    if "time" not in names:
        raise BadValue(f"{path}, line 1", ",".join(names), "name the columns there; one is `time`")
    seen: set[str] = set()
    for name in filter(None, names):
        if name in seen:
            raise BadValue(f"{path}, line 1", name, "this column stands twice; keep one")
        seen.add(name)


def _row(fields: Mapping[str, object], unit: str) -> ImportRow:
    time = text_of(fields.get("time"))
    if not time:
        raise ValueError("it has no time")
    at_us = parse_instant(time, unit)
    outcome = _OUTCOMES.get(text_of(fields.get("refused")).lower())
    if outcome is None:
        raise ValueError("`refused` is neither true nor false")
    domain = text_of(fields.get("domain"))
    if domain:
        hits = text_of(fields.get("hits"))
        return ImportRow(mesh_row(domain, _descriptors(fields), hits=hits), at_us, outcome)
    query = check_row(
        text_of(fields.get("user")),
        text_of(fields.get("path")),
        weight=text_of(fields.get("weight")),
        priority=text_of(fields.get("priority")),
        headers=_headers(fields),
    )
    return ImportRow(query, at_us, outcome)


def _headers(fields: Mapping[str, object]) -> dict[str, str]:
    headers: dict[str, str] = {}
    client_type = text_of(fields.get("client_type"))
    if client_type:
        headers[CLIENT_TYPE_HEADER_DEFAULT] = client_type
    for name, value in fields.items():
        if name.startswith(HEADER):
            header, text = name[len(HEADER) :].lower(), text_of(value)
            if text and not is_secret(header):
                headers[header] = text
    return headers


def _descriptors(fields: Mapping[str, object]) -> list[Pairs]:
    several = fields.get("descriptors")
    if several is not None:
        if not isinstance(several, list):
            raise ValueError("`descriptors` is no list")
        return [_pairs(one) for one in several]
    pairs: list[tuple[str, str]] = []
    for name, value in fields.items():
        if name.startswith(DESCRIPTOR):
            text = text_of(value)
            if text:
                pairs.append((name[len(DESCRIPTOR) :], text))
    return [tuple(pairs)]


def _pairs(value: object) -> Pairs:
    if isinstance(value, dict):
        return tuple([(str(key), text_of(one)) for key, one in value.items()])
    if not isinstance(value, list):
        raise ValueError("a descriptor is a list of pairs, or an object")  # noqa: TRY004 - a row's
    pairs: list[tuple[str, str]] = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("a pair of a descriptor is a key and a value")
        pairs.append((text_of(pair[0]), text_of(pair[1])))
    return tuple(pairs)


def _import(path: str, read: Callable[[], Iterator[Raw]], unit: str, bad_rows_max: int) -> Rows:
    if unit not in UNITS_NS:
        raise BadValue("unit", unit, f"give one of {', '.join(UNITS_NS)}")
    return Rows(path, read, lambda fields: _row(fields, unit), bad_rows_max=bad_rows_max)
