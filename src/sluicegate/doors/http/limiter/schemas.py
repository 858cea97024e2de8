"""Schemas: the shapes of the limiter's JSON, for its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.http.audit import AUDIT_SCHEMA
from sluicegate.doors.http.schemas import (
    BOOL,
    EVERYWHERE,
    FREE,
    TEXT,
    fields,
    ref,
    several,
    whole,
)

_PRIORITY: Final = {"type": "string", "enum": [one.name for one in Criticality]}

_ANSWER: Final[Mapping[str, object]] = {
    "allowed": BOOL,
    "remaining_tokens": whole(0),
    "retry_after_ms": whole(-1, "-1: waiting does not help."),
    "cluster_utilization_status": {
        "type": "string",
        "description": "DEGRADED_MODE while the worker that answers sheds what matters less, or "
        "any that shares its store was heard to in the last seconds; else empty.",
    },
    "reset_after_ms": whole(0),
    "limit": whole(0, "0 without a rule."),
    "rule_id": TEXT,
    "reason": {"type": "string", "description": "Why it is refused; empty if it is not."},
    "without_store": {"type": "boolean", "description": "A failure policy decided, not the count."},
    "priority": _PRIORITY,
    "node_utilization_status": {
        "type": "string",
        "description": "cluster_utilization_status, of the worker that answers alone.",
    },
}

SCHEMAS: Final[Mapping[str, Mapping[str, object]]] = {
    "Check": fields(
        {
            "user_id": TEXT,
            "resource_path": TEXT,
            "headers": {"type": "object", "additionalProperties": TEXT},
            "weight": {**whole(1), "default": 1},
            "priority": _PRIORITY,
        },
        sentence="May this user's unit of work on this resource enter?",
    ),
    "Decision": fields(_ANSWER, list(_ANSWER)),
    "Checks": fields({"requests": several(ref("Check"))}, ["requests"]),
    "Decisions": fields({"responses": several(ref("Decision"))}, ["responses"]),
    "LeaseRequest": fields({"request": ref("Check"), "units": whole(1)}, ["request", "units"]),
    "Lease": fields(
        {
            "lease_id": TEXT,
            "units": whole(0, "0: none can be had now; the check says when."),
            "valid_ms": whole(0, "Counted from before the request was sent."),
            "check": ref("Decision"),
        },
        ["lease_id", "units", "valid_ms", "check"],
    ),
    "GiveBack": fields({"lease_id": TEXT, "units": whole(1)}, ["lease_id", "units"]),
    "GivenBack": fields({"accepted": whole(0)}, ["accepted"]),
    "Reset": fields({"rules": whole(0, "How many rules have forgotten.")}, ["rules"]),
    "MeshRequest": fields(
        {
            "domain": TEXT,
            "descriptors": several(
                fields(
                    {
                        "entries": several(fields({"key": TEXT, "value": TEXT}, ["key"])),
                        "limit": FREE,
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
    "MeshResponse": fields(
        {
            "overallCode": {"type": "string", "enum": ["OK", "OVER_LIMIT"]},
            "statuses": several(FREE),
            "responseHeadersToAdd": several(FREE),
            "requestHeadersToAdd": several(FREE),
            "rawBody": TEXT,
            "dynamicMetadata": FREE,
        },
        ["overallCode"],
        "RateLimitResponse, likewise.",
    ),
    "Rulebook": {
        **FREE,
        "properties": {"version": {}, "files": {}, "last_load": {}},
        "description": "Which rules are in force, and how the last load went.",
    },
    "State": {**FREE, "description": "What the service is doing now."},
    "RuleList": {**FREE, "description": "Rules, how many there are, and `next`, a cursor."},
    "Audit": AUDIT_SCHEMA,
    **EVERYWHERE,
}
