"""The table of the rulebook's routes. Whoever wants to know what it answers begins here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sluicegate.contracts.access import Grant
from sluicegate.contracts.rulebook import STATES
from sluicegate.doors.http.health import Vitals, health_routes
from sluicegate.doors.http.openapi import PROBLEM_TYPE, document_route
from sluicegate.doors.http.routes import Parameter, Route, Said, Work
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.schemas import TEXT, whole

if TYPE_CHECKING:
    from sluicegate.doors.http.rules.handler import RulesHttp
    from sluicegate.doors.http.rules.works import RuleWorks

RULES: Final = "/v1/rules"
WAIT: Final = f"{RULES}/wait"
DOCUMENT: Final = f"{RULES}/openapi.json"
_REVISION: Final = "live, the number of a version, or the id of a commit or a proposal."
_AT: Final = Parameter("at", _REVISION, {"type": "string", "default": "live"})
_SPAN: Final = (
    Parameter("from", f"Before: {_REVISION}", {"type": "string", "default": "live"}),
    Parameter("to", f"After: {_REVISION}", TEXT, required=True),
)
_COUNT: Final = Parameter("count", "At most how many.", whole(1))
_STATE: Final = Parameter("state", "Only these.", {"type": "string", "enum": list(STATES)})
_FORM: Final = Parameter("form", "json, or html or text where it can be had.", TEXT)
_KNOWN: Final = Parameter("If-None-Match", "The ETag of what is known already.", TEXT, "header")
_IF_LIVE: Final = Parameter(
    "If-Match",
    "Only if what is live has this ETag, or is this commit.",
    TEXT,
    "header",
)
_IF_PROPOSAL: Final = Parameter(
    "If-Match", "Only if the proposal has this ETag, or is this commit.", TEXT, "header"
)
_SAME: Final = Said("It is what If-None-Match names.", empty=True)
_NO_SUCH: Final = Said("There is no such thing.", "Problem", PROBLEM_TYPE)
_OTHER: Final = Said("Somebody else was faster; what is there now.", "Problem", PROBLEM_TYPE)
_CHANGED: Final = Said("If-Match names something else.", "Problem", PROBLEM_TYPE)
_BAD: Final = Said("The rules cannot be used, and why.", "BadRules", PROBLEM_TYPE)


def routes_of(
    to: RulesHttp, works: RuleWorks, vitals: Vitals, settings: RulesHttpSettings
) -> tuple[Route, ...]:
    """All rows."""
    return (
        *_reads(works),
        *_changes(works, settings),
        document_route(to.openapi, DOCUMENT),
        *health_routes(vitals, metrics_open=settings.metrics_open),
    )


def _reads(works: RuleWorks) -> tuple[Route, ...]:
    wait = (
        Parameter("version", "Which edition.", {"type": "integer"}, required=True),
        Parameter("nodes", "How many nodes must run it.", {"type": "integer", "default": 1}),
        Parameter("timeout_s", "How long to wait at most.", {"type": "number"}),
    )
    # What it tells, and whether it may name what is not there.
    rows: tuple[tuple[str, Work, str, str, bool, tuple[Parameter, ...]], ...] = (
        ("", works.rules, "The rules at a revision.", "Rules", False, (_AT,)),
        ("/files/{+name}", works.file, "One file, as text.", "File", True, (_AT,)),
        ("/diff", works.diff, "What changes between revisions.", "Diff", False, _SPAN),
        ("/proposals", works.proposals, "Proposals.", "Proposals", False, (_STATE, _COUNT)),
        ("/proposals/{id}", works.proposal, "One proposal.", "Proposal", True, ()),
        ("/report/{id}", works.report, "A verdict's report.", "Report", True, (_FORM,)),
        ("/versions", works.versions, "Editions.", "Versions", False, (_COUNT,)),
        ("/status", works.status, "What the fleet runs.", "Status", False, ()),
        ("/wait", works.wait, "Wait for nodes to run a version.", "Waited", False, wait),
        (
            "/audit",
            works.audit,
            "Who changed what, and who was refused.",
            "Audit",
            False,
            (_COUNT,),
        ),
    )
    return tuple(
        _read(path, work, summary, schema, named, parameters)
        for path, work, summary, schema, named, parameters in rows
    )


def _read(
    path: str, work: Work, summary: str, schema: str, named: bool, takes: tuple[Parameter, ...]
) -> Route:
    texts = ("text/html", "text/plain") if schema == "Report" else ()
    answers = {200: Said(summary, schema, texts=texts), 304: _SAME}
    if named:
        answers[404] = _NO_SUCH
    return Route(
        "GET",
        f"{RULES}{path}",
        work,
        summary,
        answers,
        grant=Grant.READ_RULES,
        parameters=(*takes, _KNOWN),
    )


def _changes(works: RuleWorks, settings: RulesHttpSettings) -> tuple[Route, ...]:
    key = Parameter(
        "Idempotency-Key",
        "Of this call alone. Sent again within "
        f"{settings.keys_kept_s:,} s, the call is answered as it was, and not done again.",
        TEXT,
        "header",
    )
    one, propose, approve = f"{RULES}/proposals/{{id}}", Grant.PROPOSE, Grant.APPROVE

    def change(
        path: str,
        work: Work,
        summary: str,
        asks: str,
        grant: Grant,
        answers: Mapping[int, Said],
        *conditions: Parameter,
    ) -> Route:
        return Route(
            "POST", path, work, summary, answers, asks, grant, parameters=(key, *conditions)
        )

    def step(name: str, work: Work, summary: str, asks: str, grant: Grant) -> Route:
        answers = {
            200: Said("What there is now.", "Done"),
            404: _NO_SUCH,
            409: _OTHER,
            412: _CHANGED,
        }
        return change(f"{one}/{name}", work, summary, asks, grant, answers, _IF_PROPOSAL)

    done = {200: Said("What there is now.", "Done"), 409: _OTHER}
    made = {201: Said("The proposal.", "Proposal"), 409: _OTHER, 412: _CHANGED, 422: _BAD}
    return (
        change(
            f"{RULES}/proposals",
            works.propose,
            "Propose other files.",
            "Propose",
            propose,
            made,
            _IF_LIVE,
        ),
        step("judge", works.judge, "Try it (again) on what has been captured.", "Nothing", propose),
        step("approve", works.approve, "Approve of it.", "Approve", approve),
        step("reject", works.reject, "Turn it down.", "Reject", approve),
        step("publish", works.publish, "Make it live for everybody.", "Nothing", approve),
        step("canary", works.canary, "Let it be in force for a share.", "Canary", approve),
        change(
            f"{RULES}/rollback",
            works.roll_back,
            "Make earlier rules live again, as a new version.",
            "RollBack",
            approve,
            {**done, 412: _CHANGED},
            _IF_LIVE,
        ),
        change(f"{RULES}/pins", works.pin, "Have a node run a version.", "Pin", approve, done),
    )
