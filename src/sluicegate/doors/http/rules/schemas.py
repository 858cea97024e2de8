"""Schemas: the responses of the rulebook, for its OpenAPI document.

An admin may return more than is named here; what is required, every admin returns. The schemas of
requests are derived from the table of operations (`forms.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.contracts.rulebook import (
    FAILED,
    NOT_JUDGED,
    PASSED,
    STATES,
)
from sluicegate.doors.http.schemas import (
    BOOL,
    EVERYWHERE,
    FREE,
    TEXT,
    fields,
    ref,
    several,
    text,
    whole,
)

_COMMIT: Final = text("The id of a commit.")
_VERSION: Final = {
    "type": ["integer", "null"],
    "description": "The number of a release; null where it has none.",
}
_NUMBER: Final = {"type": ["integer", "null"]}
_WORD: Final = {"type": ["string", "null"]}
_FILE: Final = fields(
    {"name": TEXT, "format": _WORD, "rules": _NUMBER, "digest": TEXT}, ["name", "digest"]
)
_PERSON: Final = fields({"name": TEXT, "email": TEXT}, ["name"])
_COMMIT_FIELDS: Final = {
    "commit": _COMMIT,
    "version": _VERSION,
    "parents": several(TEXT),
    "author": _PERSON,
    "at_us": whole(0, "Microseconds since 1970."),
    "message": TEXT,
    "reason": TEXT,
}
_LINES: Final = fields(
    {
        "name": TEXT,
        "change": {"type": "string", "enum": ["added", "removed", "changed"]},
        "lines": {"description": "What changes, by lines."},
    },
    ["name"],
)
_CLASS: Final = fields(
    {
        "class": TEXT,
        "requests": whole(0, "Captured requests of this class."),
        "newly_refused": whole(0, "Those that only the candidate refuses."),
        "share": {"type": ["number", "null"], "description": "Null without requests."},
    },
    ["class", "requests", "newly_refused", "share"],
)
_VERDICT: Final = fields(
    {
        "result": {"type": "string", "enum": [PASSED, FAILED, NOT_JUDGED]},
        "sentence": TEXT,
        "confidence": {"type": ["number", "null"]},
        "newly_refused": several(_CLASS),
        "report": FREE,
    },
    ["result", "sentence"],
    "What a gate found.",
)
_PROBLEM: Final = fields(
    {
        "file": TEXT,
        "line": whole(0, "0 where it is not known."),
        "field": TEXT,
        "value": {"description": "What is written there."},
        "remedy": text("What would be right."),
    },
    ["file", "line", "field", "value", "remedy"],
)

_STATUS: Final = {
    "live": {"type": ["object", "null"]},
    "orders": {"type": ["object", "null"]},
    "canary": {"type": ["object", "null"]},
    "nodes": several(fields({"node": TEXT, "version": _NUMBER}, ["node"])),
}

RULES_SCHEMAS: Final[Mapping[str, Mapping[str, object]]] = {
    "Rules": fields(
        {
            **_COMMIT_FIELDS,
            "files": several(_FILE),
            "problem": text("Why these cannot be used; empty if they can."),
        },
        ["commit", "version", "files"],
    ),
    "File": fields(
        {**_COMMIT_FIELDS, "name": TEXT, "digest": TEXT, "text": TEXT}, ["name", "commit", "text"]
    ),
    "Diff": fields(
        {
            "before": {},
            "after": {},
            "files": several(_LINES),
            "rules": {"description": "What changes in rules, by their names."},
        },
        ["files"],
    ),
    "Proposal": fields(
        {
            "id": TEXT,
            "commit": _COMMIT,
            "state": {"type": "string", "enum": list(STATES)},
            "base": _COMMIT,
            "proposer": TEXT,
            "message": TEXT,
            "reason": TEXT,
            "verdict": {"oneOf": [{"type": "null"}, _VERDICT]},
            "approvals": several(TEXT),
            "override": TEXT,
            "version": _VERSION,
            "history": several(FREE),
        },
        ["id", "commit", "state"],
    ),
    "Proposals": fields({"proposals": several(ref("Proposal"))}, ["proposals"]),
    "Done": {**FREE, "description": "What there is now."},
    "Versions": fields(
        {
            "versions": several(
                fields(
                    {"version": whole(1), "commit": _COMMIT, "by": TEXT, "why": TEXT},
                    ["version", "commit"],
                )
            )
        },
        ["versions"],
    ),
    "Status": fields(
        _STATUS, ["live", "orders", "nodes"], "What the fleet is to run, and what nodes report."
    ),
    "Waited": fields(
        {**_STATUS, "reached": {**BOOL, "description": "Whether so many nodes run it."}},
        ["reached"],
    ),
    "Audit": fields(
        {
            "audit": several(
                fields(
                    {"by": TEXT, "call": TEXT, "result": TEXT, "sentence": TEXT, "why": TEXT},
                    ["by", "call", "result"],
                )
            )
        },
        ["audit"],
    ),
    "Report": {**FREE, "description": "All figures behind a verdict."},
    "BadRules": fields(
        {
            "type": TEXT,
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
            "problems": several(_PROBLEM),
            "more": whole(0, "How many more there are than are listed."),
        },
        ["type", "title", "status", "detail"],
        "Problem details (RFC 9457), with everything that is wrong with the rules.",
    ),
    **EVERYWHERE,
}
