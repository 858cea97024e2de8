"""Schemas: the shapes of the limiter's JSON, for its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.contracts.criticality import Criticality

_TEXT: Final = {"type": "string"}
_BOOL: Final = {"type": "boolean"}
_FREE: Final = {"type": "object", "additionalProperties": True}
_PRIORITY: Final = {"type": "string", "enum": [one.name for one in Criticality]}


def _whole(least: int, sentence: str = "") -> dict[str, object]:
    found: dict[str, object] = {"type": "integer", "minimum": least}
    return {**found, "description": sentence} if sentence else found


def _object(
    properties: Mapping[str, object], required: Sequence[str] = (), sentence: str = ""
) -> dict[str, object]:
    found: dict[str, object] = {"type": "object", "properties": dict(properties)}
    if required:
        found["required"] = list(required)
    if sentence:
        found["description"] = sentence
    return found


def _list(of: Mapping[str, object]) -> dict[str, object]:
    return {"type": "array", "items": dict(of)}


def _ref(name: str) -> dict[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}


_ANSWER: Final[Mapping[str, object]] = {
    "allowed": _BOOL,
    "remaining_tokens": _whole(0),
    "retry_after_ms": _whole(-1, "-1: waiting does not help."),
    "cluster_utilization_status": {
        "type": "string",
        "description": "DEGRADED_MODE while what matters less is shed; else empty.",
    },
    "reset_after_ms": _whole(0),
    "limit": _whole(0, "0 without a rule."),
    "rule_id": _TEXT,
    "reason": {"type": "string", "description": "Why it is refused; empty if it is not."},
    "degraded": {"type": "boolean", "description": "A failure policy decided, not the count."},
    "priority": _PRIORITY,
}

SCHEMAS: Final[Mapping[str, Mapping[str, object]]] = {
    "Check": _object(
        {
            "user_id": _TEXT,
            "resource_path": _TEXT,
            "headers": {"type": "object", "additionalProperties": _TEXT},
            "weight": {**_whole(1), "default": 1},
            "priority": _PRIORITY,
        },
        sentence="May this user's unit of work on this resource enter?",
    ),
    "Decision": _object(_ANSWER, list(_ANSWER)),
    "Checks": _object({"requests": _list(_ref("Check"))}, ["requests"]),
    "Decisions": _object({"responses": _list(_ref("Decision"))}, ["responses"]),
    "LeaseAsk": _object({"request": _ref("Check"), "units": _whole(1)}, ["request", "units"]),
    "Lease": _object(
        {
            "lease_id": _TEXT,
            "units": _whole(0, "0: none can be had now; the check says when."),
            "valid_ms": _whole(0, "Counted from before the request was sent."),
            "check": _ref("Decision"),
        },
        ["lease_id", "units", "valid_ms", "check"],
    ),
    "GiveBack": _object({"lease_id": _TEXT, "units": _whole(1)}, ["lease_id", "units"]),
    "GivenBack": _object({"accepted": _whole(0)}, ["accepted"]),
    "Reset": _object({"rules": _whole(0, "How many rules have forgotten.")}, ["rules"]),
    "MeshAsk": _object(
        {
            "domain": _TEXT,
            "descriptors": _list(
                _object(
                    {
                        "entries": _list(_object({"key": _TEXT, "value": _TEXT}, ["key"])),
                        "limit": _FREE,
                        "hitsAddend": {"type": ["integer", "string"]},
                    },
                    ["entries"],
                )
            ),
            "hitsAddend": {"type": ["integer", "string"]},
        },
        ["domain", "descriptors"],
        "RateLimitRequest of Envoy's rate-limit service, as protobuf's JSON.",
    ),
    "MeshAnswer": _object(
        {
            "overallCode": {"type": "string", "enum": ["OK", "OVER_LIMIT"]},
            "statuses": _list(_FREE),
            "responseHeadersToAdd": _list(_FREE),
            "requestHeadersToAdd": _list(_FREE),
            "rawBody": _TEXT,
            "dynamicMetadata": _FREE,
        },
        ["overallCode"],
        "RateLimitResponse, likewise.",
    ),
    "Rulebook": {
        **_FREE,
        "properties": {"version": {}, "files": {}, "last_load": {}},
        "description": "Which rules are in force, and how the last load went.",
    },
    "State": {**_FREE, "description": "What the service is doing now."},
    "Audit": _object({"user": _TEXT, "decisions": _list(_FREE)}, ["user", "decisions"]),
    "Health": _object({"status": _TEXT}, ["status"]),
    "Ready": _object({"ready": _BOOL, "reason": _TEXT}, ["ready", "reason"]),
    "Document": {**_FREE, "description": "This document."},
}
