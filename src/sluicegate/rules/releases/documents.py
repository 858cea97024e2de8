"""Documents: releases, rollouts and reports as bytes, and back.

Each is JSON with a format. A newer format is refused with what to do about it; a field that is not
known is ignored, so nodes of one version read what a newer publisher has written. Whatever has the
wrong type or is out of bounds is named, when it is written as when it is read.

Layout: what is called how in the blob store of a fleet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rulebook import (
    BY_CALLERS,
    BY_NODES,
    BlobPart,
    Canary,
    NodeReport,
    Release,
    Rollout,
)
from sluicegate.rules.releases.json_fields import (
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
FAILURE_CHARS_MAX: Final = 1_000
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


def release_bytes(release: Release) -> bytes:
    """A release as the body of a signed document."""
    data = write_object(
        {
            "format": FORMAT,
            "version": release.version,
            "commit": release.commit,
            "content": release.content,
            "snapshot": release.snapshot._asdict(),
            "bytes_unpacked": release.bytes_unpacked,
            "rules": release.rules,
            "made_us": release.made_us,
            "deltas": {content: part._asdict() for content, part in release.deltas.items()},
        }
    )
    read_release(data)
    return data


def read_release(data: bytes) -> Release:
    """The release that these bytes say."""
    what = "edition"
    fields = parse_object(data, what)
    check_format(fields, what, FORMAT)
    deltas = inner(fields, "deltas", what, fields_max=DELTAS_MAX)
    for content in deltas:
        if _DIGEST.fullmatch(content) is None:
            raise BadValue("edition.deltas", content, _DIGEST_REMEDY)
    return Release(
        version=whole(fields, "version", what, least=1),
        commit=like(fields, "commit", what, _COMMIT, "give the id of a commit"),
        content=like(fields, "content", what, _DIGEST, _DIGEST_REMEDY),
        snapshot=_part(fields, "snapshot", what),
        bytes_unpacked=whole(fields, "bytes_unpacked", what),
        rules=whole(fields, "rules", what),
        made_us=whole(fields, "made_us", what),
        deltas={content: _part(deltas, content, "edition.deltas") for content in deltas},
    )


def rollout_bytes(rollout: Rollout) -> bytes:
    """A rollout as the body of a signed document."""
    canary = rollout.canary
    data = write_object(
        {
            "format": FORMAT,
            "number": rollout.number,
            "live": rollout.live,
            "canary": None if canary is None else canary._asdict(),
            "pins": dict(rollout.pins),
            "back": rollout.back,
            "reason": rollout.reason,
            "at_us": rollout.at_us,
            **({"expires_us": rollout.expires_us} if rollout.expires_us else {}),
        }
    )
    read_rollout(data)
    return data


def read_rollout(data: bytes) -> Rollout:
    """The rollout that these bytes say."""
    what = "orders"
    fields = parse_object(data, what)
    check_format(fields, what, FORMAT)
    pins = inner(fields, "pins", what, fields_max=PINS_MAX)
    for node in pins:
        if NODE.fullmatch(node) is None:
            raise BadValue("orders.pins", node, NODE_REMEDY)
    return Rollout(
        number=whole(fields, "number", what, least=1),
        live=whole(fields, "live", what, least=1),
        canary=_canary(fields, what),
        pins={node: whole(pins, node, "orders.pins", least=1) for node in pins},
        back=flag(fields, "back", what),
        reason=text(fields, "reason", what, chars_max=REASON_CHARS_MAX),
        at_us=whole(fields, "at_us", what),
        expires_us=whole(fields, "expires_us", what) if "expires_us" in fields else 0,
    )


def report_bytes(report: NodeReport) -> bytes:
    """A node's report; its failure is cut to what a report may hold."""
    data = write_object(
        {
            "format": FORMAT,
            "node": report.node,
            "orders": report.rollout,
            "version": report.version,
            "canary": report.canary,
            "at_us": report.at_us,
            "since_us": report.since_us,
            "took_us": report.took_us,
            "trouble": report.failure[:FAILURE_CHARS_MAX],
            "counts": {name: list(numbers) for name, numbers in report.counts.items()},
        }
    )
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
        rollout=whole(fields, "orders", what),
        version=whole(fields, "version", what),
        canary=whole(fields, "canary", what),
        at_us=whole(fields, "at_us", what),
        since_us=whole(fields, "since_us", what),
        took_us=whole(fields, "took_us", what),
        failure=text(fields, "trouble", what, chars_max=FAILURE_CHARS_MAX),
        counts=_counts(counts),
    )


# Inside.


def _part(fields: Object, name: str, what: str) -> BlobPart:
    value = inner(fields, name, what, fields_max=64)
    where = f"{what}.{name}"
    return BlobPart(
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


SNAPSHOTS: Final = "snapshots/"
DELTAS: Final = "deltas/"
RELEASES: Final = "editions/"
ROLLOUT: Final = "orders/"
NODES: Final = "nodes/"
CURRENT: Final = "orders/current.json"
SWEEP: Final = "sweep.json"

_JSON: Final = ".json"


def release_name(version: int) -> str:
    """Where a release lies."""
    return f"{RELEASES}{version}{_JSON}"


def rollout_name(number: int) -> str:
    """Where rollouts lie for good."""
    return f"{ROLLOUT}{number}{_JSON}"


def node_name(node: str) -> str:
    """Where a node reports."""
    return f"{NODES}{check_node(node)}{_JSON}"


def within(names: Iterable[str], prefix: str) -> list[str]:
    """What the names below a prefix are for: digests, numbers, nodes."""
    return [name.removeprefix(prefix).removesuffix(_JSON) for name in names]


def numbers(names: Iterable[str], prefix: str) -> list[int]:
    """The numbers among the names below a prefix, in order."""
    return sorted(int(one) for one in within(names, prefix) if one.isascii() and one.isdecimal())
