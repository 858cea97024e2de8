"""Works of the rulebook's door: what each route asks of the desk. These wait; threads run them.

Each is a few lines: read, ask, write. An answer has a tag; a condition on it is looked at just
before the desk is asked, and the desk's own compare-and-swap decides who was first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, final
from urllib.parse import quote

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.rule_admin import LIVE_REVISION, Answer, RuleAdmin
from sluicegate.doors.http.etags import IF_MATCH, IF_NONE_MATCH, matches, tag_of, wanted_tags
from sluicegate.doors.http.message import JSON, TEXT, Headers, Reply, Request
from sluicegate.doors.http.rules import forms
from sluicegate.doors.http.rules.problems import changed, not_there
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.wire.json_objects import encode_json

# Writes a report's figures for people.
ReportWriter: TypeAlias = "Callable[[Mapping[str, object]], str]"
Places: TypeAlias = "Mapping[str, str]"

HTML: Final = b"text/html; charset=utf-8"
# What is left of an answer that is too long to be sent.
_SHORT: Final = ("id", "state", "version", "live", "orders", "canary")
PROPOSALS: Final = "/v1/rules/proposals"
# What a desk may call the thing that the path names.
_PROPOSAL: Final = ("id", "proposal")
_FILE: Final = ("name", "file")
# A report is a page of its own: it runs nothing, asks nobody, and is not of our origin.
_PAGE: Final[Headers] = (
    (
        b"content-security-policy",
        b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    ),
    (b"referrer-policy", b"no-referrer"),
)
_TYPES: Final = {"html": (HTML, _PAGE), "text": (TEXT, ())}


@final
class RuleWorks:
    """The desk in HTTP. `places` are what a request's path says."""

    def __init__(
        self,
        desk: RuleAdmin,
        settings: RulesHttpSettings,
        reports: Mapping[str, ReportWriter],
        places: Callable[[str], Places],
    ) -> None:
        for form in reports:
            if form not in _TYPES:
                raise BadValue("reports", form, f"there is {', '.join(_TYPES)}")
        self._desk = desk
        self._bounds = settings
        self._reports = dict(reports)
        self._places = places
        self.closed = False

    # Read.

    def rules(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules."""
        at = forms.at_of(request, self._bounds)
        return self._found(request, self._desk.rules(at, by=by))

    def file(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/files/NAME."""
        at = forms.at_of(request, self._bounds)
        name = self._place(request, "name")
        try:
            return self._found(request, self._desk.file(name, at, by=by))
        except BadValue as error:
            return _missing(error, _FILE)

    def diff(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/diff."""
        before, after = forms.span_of(request, self._bounds)
        return self._found(request, self._desk.diff(before, after, by=by))

    def proposals(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/proposals."""
        state, count = forms.listing_of(request, self._bounds)
        found = self._desk.proposals(state, count_max=count, by=by)
        return self._found(request, {"proposals": list(found)})

    def proposal(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/proposals/ID."""
        forms.no_query(request)
        try:
            return self._found(request, self._desk.proposal(self._id(request), by=by))
        except BadValue as error:
            return _missing(error, _PROPOSAL)

    def versions(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/versions."""
        count = forms.count_of(request, self._bounds)
        return self._found(request, {"versions": list(self._desk.versions(count_max=count, by=by))})

    def status(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/status."""
        forms.no_query(request)
        return self._found(request, self._desk.status(by=by))

    def audit(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/audit."""
        count = forms.count_of(request, self._bounds)
        return self._found(request, {"audit": list(self._desk.audit(count_max=count, by=by))})

    def wait(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/wait, a little at a time, so that it ends soon after the door does."""
        ask = forms.wait_of(request, self._bounds)
        looks = max(math.ceil(ask.timeout_s / self._bounds.wait_look_s), 1)
        answer: Answer = {}
        for _ in range(looks):
            answer = self._desk.wait(
                ask.version, nodes=ask.nodes, timeout_s=ask.timeout_s / looks, by=by
            )
            if answer.get("reached") or self.closed:
                break
        return self._found(request, answer)

    def report(self, request: Request, by: Identity, _body: bytes) -> Reply:
        """GET /v1/rules/report/ID."""
        form = forms.report_form_of(request, (forms.REPORT_JSON, *self._reports))
        proposal_id = self._id(request)
        try:
            verdict = self._desk.proposal(proposal_id, by=by).get("verdict")
        except BadValue as error:
            return _missing(error, _PROPOSAL)
        report = verdict.get("report") if isinstance(verdict, Mapping) else None
        if not isinstance(report, Mapping) or not report:
            # A gate that could not judge has a sentence and no figures.
            why = verdict.get("sentence") if isinstance(verdict, Mapping) else ""
            remedy = f"there is no report: {why or 'it has not been judged; POST .../judge first'}"
            return not_there(BadValue("proposal", proposal_id, remedy))
        if form == forms.REPORT_JSON:
            return self._found(request, report)
        kind, headers = _TYPES[form]
        page = self._reports[form](report).encode("utf-8", "replace")
        return Reply(200, self._bounded(page), kind, headers)

    # Change.

    def propose(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/proposals."""
        forms.no_query(request)
        ask = forms.propose_of(body, self._bounds)
        refused = self._not_live(request, by)
        if refused is not None:
            return refused
        made = self._desk.propose(
            ask.changes, base=ask.base, message=ask.message, reason=ask.reason, by=by
        )
        where = f"{PROPOSALS}/{quote(str(made.get('id', '')), safe='')}"
        return self._done(made)._replace(status=201, headers=((b"location", where.encode()),))

    def judge(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/proposals/ID/judge."""
        forms.nothing_of(body, self._bounds)
        return self._on_proposal(request, by, lambda one: self._desk.judge(one, by=by))

    def approve(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/proposals/ID/approve."""
        override = forms.override_of(body, self._bounds)
        return self._on_proposal(
            request, by, lambda one: self._desk.approve(one, override=override, by=by)
        )

    def reject(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/proposals/ID/reject."""
        reason = forms.reason_of(body, self._bounds)
        return self._on_proposal(
            request, by, lambda one: self._desk.reject(one, reason=reason, by=by)
        )

    def publish(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/proposals/ID/publish."""
        forms.nothing_of(body, self._bounds)
        return self._on_proposal(request, by, lambda one: self._desk.publish(one, by=by))

    def canary(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/proposals/ID/canary."""
        ask = forms.canary_of(body, self._bounds)
        return self._on_proposal(
            request,
            by,
            lambda one: self._desk.canary(one, share=ask.share, kind=ask.kind, by=by),
        )

    def roll_back(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/rollback."""
        forms.no_query(request)
        ask = forms.roll_back_of(body, self._bounds)
        refused = self._not_live(request, by)
        if refused is not None:
            return refused
        return self._done(self._desk.roll_back(ask.to, reason=ask.reason, by=by))

    def pin(self, request: Request, by: Identity, body: bytes) -> Reply:
        """POST /v1/rules/pins."""
        forms.no_query(request)
        if request.header(IF_MATCH):
            raise BadValue("if-match", "a condition", "a pin takes none; leave it out")
        ask = forms.pin_of(body, self._bounds)
        return self._done(self._desk.pin(ask.node, ask.version, reason=ask.reason, by=by))

    # Inside.

    def _place(self, request: Request, name: str) -> str:
        return forms.place_of(name, self._places(request.path)[name], self._bounds)

    def _id(self, request: Request) -> str:
        return self._place(request, "id")

    def _on_proposal(
        self, request: Request, by: Identity, change: Callable[[str], Answer]
    ) -> Reply:
        forms.no_query(request)
        proposal_id = self._id(request)

        def look() -> Answer:
            return self._desk.proposal(proposal_id, by=by)

        try:
            refused = self._unlike(request, f"the proposal {proposal_id}", look)
            return self._done(change(proposal_id)) if refused is None else refused
        except BadValue as error:
            if error.field not in _PROPOSAL:
                raise
            # It is not there, or what was asked cannot be done with it: only one of them is a 404.
            try:
                look()
            except BadValue:
                return not_there(error)
            except SluicegateError:
                pass  # who may not look is told what they may know
            raise

    def _not_live(self, request: Request, by: Identity) -> Reply | None:
        return self._unlike(request, "what is live", lambda: self._desk.rules(LIVE_REVISION, by=by))

    def _unlike(self, request: Request, what: str, look: Callable[[], Answer]) -> Reply | None:
        """The refusal of a change where something is not what the call says it is."""
        wanted = wanted_tags(request, IF_MATCH)
        if not wanted:
            return None
        answer = look()
        body = _json(answer)
        return None if matches(wanted, body, answer) else changed(what, tag_of(body))

    def _found(self, request: Request, answer: Answer) -> Reply:
        """An answer with its tag, or without a body where the tag is known already."""
        body = self._bounded(_json(answer))
        headers = ((b"etag", f'"{tag_of(body)}"'.encode()),)
        known = wanted_tags(request, IF_NONE_MATCH)
        if known and matches(known, body, {}):
            return Reply(304, b"", JSON, headers)
        return Reply(200, body, JSON, headers)

    def _done(self, answer: Answer) -> Reply:
        """The answer to a change. It has been made, so there is no refusing any more."""
        body = _json(answer)
        if len(body) > self._bounds.answer_bytes_max:
            body = _json({**{name: answer[name] for name in _SHORT if name in answer}, "cut": True})
        return Reply(200, body)

    def _bounded(self, body: bytes) -> bytes:
        most = self._bounds.answer_bytes_max
        if len(body) > most:
            allowed = f"an answer may have {most:,} (rules.answer_bytes_max)"
            raise BadValue("answer", f"{len(body):,} bytes", f"ask for less; {allowed}")
        return body


def _missing(error: BadValue, fields: tuple[str, ...]) -> Reply:
    """What the path names is not there; what else is wrong is raised on."""
    if error.field not in fields:
        raise error
    return not_there(error)


def _json(answer: Answer) -> bytes:
    return encode_json(answer) + b"\n"
