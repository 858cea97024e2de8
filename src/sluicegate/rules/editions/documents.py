"""Documents: editions, orders and reports as bytes, and back.

Each is JSON with a format. A newer format is refused with what to do about it; a field that is not
known is ignored, so nodes of one version read what a newer publisher has written. Whatever has the
wrong type or is out of bounds is named, when it is written as when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import (
    BY_CALLERS,
    BY_NODES,
    Canary,
    Edition,
    NodeReport,
    Orders,
    Part,
)
from sluicegate.rules.editions.plain_json import (
    Object,
    check_format,
    flag,
    inner,
    like,
    text,
    whole,
    write_object,
)
from sluicegate.wire.json_objects import parse_object

FORMAT: Final = 1
SHARE_MAX: Final = 10_000
DELTAS_MAX: Final = 64
PINS_MAX: Final = 1_000
NODE_CHARS_MAX: Final = 128
SALT_CHARS_MAX: Final = 64
REASON_CHARS_MAX: Final = 4_000
TROUBLE_CHARS_MAX: Final = 1_000
COUNTS_MAX: Final = 1_000
COUNT_NUMBERS_MAX: Final = 64
REPORT_BYTES_MAX: Final = 1 << 20
NODE_REMEDY: Final = f"give at most {NODE_CHARS_MAX} of A-Z a-z 0-9 _ . = -, no dot at the start"
NODE: Final = re.compile(rf"[A-Za-z0-9_=-][A-Za-z0-9_.=-]{{0,{NODE_CHARS_MAX - 1}}}")

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST_REMEDY: Final = "give a SHA-256 as 64 hexadecimal digits"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def check_node(name: str) -> str:
    """The name of a node, if it can be one."""
    if NODE.fullmatch(name) is None:
        raise BadValue("node", name, NODE_REMEDY)
    return name


def edition_bytes(edition: Edition) -> bytes:
    """An edition as the body of a signed document."""
    data = write_object(
        {
            "format": FORMAT,
            "version": edition.version,
            "commit": edition.commit,
            "content": edition.content,
            "snapshot": edition.snapshot._asdict(),
            "bytes_unpacked": edition.bytes_unpacked,
            "rules": edition.rules,
            "made_us": edition.made_us,
            "deltas": {content: part._asdict() for content, part in edition.deltas.items()},
        }
    )
    read_edition(data)
    return data


def read_edition(data: bytes) -> Edition:
    """The edition that these bytes say."""
    what = "edition"
    fields = parse_object(data, what)
    check_format(fields, what, FORMAT)
    deltas = inner(fields, "deltas", what, fields_max=DELTAS_MAX)
    for content in deltas:
        if _DIGEST.fullmatch(content) is None:
            raise BadValue("edition.deltas", content, _DIGEST_REMEDY)
    return Edition(
        version=whole(fields, "version", what, least=1),
        commit=like(fields, "commit", what, _COMMIT, "give the id of a commit"),
        content=like(fields, "content", what, _DIGEST, _DIGEST_REMEDY),
        snapshot=_part(fields, "snapshot", what),
        bytes_unpacked=whole(fields, "bytes_unpacked", what),
        rules=whole(fields, "rules", what),
        made_us=whole(fields, "made_us", what),
        deltas={content: _part(deltas, content, "edition.deltas") for content in deltas},
    )


def orders_bytes(orders: Orders) -> bytes:
    """Orders as the body of a signed document."""
    canary = orders.canary
    data = write_object(
        {
            "format": FORMAT,
            "number": orders.number,
            "live": orders.live,
            "canary": None if canary is None else canary._asdict(),
            "pins": dict(orders.pins),
            "back": orders.back,
            "reason": orders.reason,
            "at_us": orders.at_us,
        }
    )
    read_orders(data)
    return data


def read_orders(data: bytes) -> Orders:
    """The orders that these bytes say."""
    what = "orders"
    fields = parse_object(data, what)
    check_format(fields, what, FORMAT)
    pins = inner(fields, "pins", what, fields_max=PINS_MAX)
    for node in pins:
        if NODE.fullmatch(node) is None:
            raise BadValue("orders.pins", node, NODE_REMEDY)
    return Orders(
        number=whole(fields, "number", what, least=1),
        live=whole(fields, "live", what, least=1),
        canary=_canary(fields, what),
        pins={node: whole(pins, node, "orders.pins", least=1) for node in pins},
        back=flag(fields, "back", what),
        reason=text(fields, "reason", what, chars_max=REASON_CHARS_MAX),
        at_us=whole(fields, "at_us", what),
    )


def report_bytes(report: NodeReport) -> bytes:
    """A node's report; what it says of its trouble is cut to what a report may hold."""
    told = report._replace(trouble=report.trouble[:TROUBLE_CHARS_MAX])
    counts = {name: list(numbers) for name, numbers in report.counts.items()}
    data = write_object({"format": FORMAT, **told._asdict(), "counts": counts})
    read_report(data)
    return data


def read_report(data: bytes) -> NodeReport:
    """The report that these bytes say."""
    what = "report"
    fields = parse_object(data, what)
    check_format(fields, what, FORMAT)
    counts = inner(fields, "counts", what, fields_max=COUNTS_MAX)
    return NodeReport(
        node=like(fields, "node", what, NODE, NODE_REMEDY),
        orders=whole(fields, "orders", what),
        version=whole(fields, "version", what),
        canary=whole(fields, "canary", what),
        at_us=whole(fields, "at_us", what),
        since_us=whole(fields, "since_us", what),
        took_us=whole(fields, "took_us", what),
        trouble=text(fields, "trouble", what, chars_max=TROUBLE_CHARS_MAX),
        counts=_counts(counts),
    )


# Inside.


def _part(fields: Object, name: str, what: str) -> Part:
    value = inner(fields, name, what, fields_max=64)
    where = f"{what}.{name}"
    return Part(
        like(value, "digest", where, _DIGEST, _DIGEST_REMEDY), whole(value, "bytes", where, least=1)
    )


def _canary(fields: Object, what: str) -> Canary | None:
    if fields.get("canary") is None:
        return None
    value = inner(fields, "canary", what, fields_max=64)
    where = f"{what}.canary"
    by = text(value, "by", where, chars_max=64)
    if by not in {BY_CALLERS, BY_NODES}:
        raise BadValue(f"{where}.by", by, f"give {BY_CALLERS} or {BY_NODES}; a newer one: upgrade")
    return Canary(
        version=whole(value, "version", where, least=1),
        by=by,
        share=whole(value, "share", where, most=SHARE_MAX),
        salt=text(value, "salt", where, chars_max=SALT_CHARS_MAX),
    )


def _counts(fields: Mapping[str, object]) -> dict[str, Sequence[int]]:
    counts: dict[str, Sequence[int]] = {}
    for name, numbers in fields.items():
        if (
            not isinstance(numbers, list)
            or len(numbers) > COUNT_NUMBERS_MAX
            or not all(type(one) is int and one >= 0 for one in numbers)
        ):
            remedy = f"give a list of at most {COUNT_NUMBERS_MAX} whole numbers"
            raise BadValue(f"report.counts.{name[:64]}", numbers, remedy)
        counts[name] = numbers
    return counts
