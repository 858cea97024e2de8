"""Operations: a route for each row of `contracts.rule_admin.OPERATIONS`.

The routes block; threads run them.

A call is read, passed to the admin, and its result written. A result has a tag; a condition on it
is checked just before the call, and the admin's own compare-and-swap decides who was first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, final
from urllib.parse import quote

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.rule_admin import (
    CHANGES,
    OF_LIVE,
    OF_PROPOSAL,
    OPERATIONS,
    PATH,
    Answer,
    Operation,
    RuleAdmin,
)
from sluicegate.doors.http.etags import IF_MATCH, IF_NONE_MATCH, matches, tag_of, wanted_tags
from sluicegate.doors.http.message import JSON, TEXT, Headers, HttpReply, HttpRequest
from sluicegate.doors.http.openapi import PROBLEM_TYPE
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.rules import forms
from sluicegate.doors.http.rules.problems import not_found, precondition_failed
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.schemas import TEXT as TEXT_SCHEMA
from sluicegate.wire.json_objects import encode_json

# Writes a report for people.
ReportWriter: TypeAlias = "Callable[[Mapping[str, object]], str]"
# The named parts of a path.
PathParts: TypeAlias = "Callable[[str], Mapping[str, str]]"

RULES: Final = "/v1/rules"
DOCUMENT: Final = f"{RULES}/openapi.json"
HTML: Final = b"text/html; charset=utf-8"
# What is left of a result that is too long to be sent.
_SHORT: Final = ("id", "state", "version", "live", "orders", "canary")
# The fields by which an admin may refuse the thing that the path names.
_FIELDS: Final = {"id": ("id", "proposal"), "name": ("name", "file")}
# A report is a page of its own: it runs nothing, loads nothing, and is not of our origin.
_PAGE: Final[Headers] = (
    (
        b"content-security-policy",
        b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    ),
    (b"referrer-policy", b"no-referrer"),
)
_TYPES: Final = {"html": (HTML, _PAGE), "text": (TEXT, ())}

_FORM: Final = Parameter(forms.FORM, "json; html or text where it is offered.", TEXT_SCHEMA)
_IF_NONE: Final = Parameter(
    "If-None-Match", "The ETag that the caller has already.", TEXT_SCHEMA, "header"
)
_CONDITIONS: Final = {
    condition: Parameter(
        "If-Match", f"Only if {what} has this ETag, or is this commit.", TEXT_SCHEMA, "header"
    )
    for condition, what in ((OF_LIVE, "what is live"), (OF_PROPOSAL, "the proposal"))
}
_SAME: Final = RouteResponse("It is what If-None-Match names.", empty=True)
_NOT_FOUND: Final = RouteResponse("There is no such thing.", "Problem", PROBLEM_TYPE)
_CONFLICT: Final = RouteResponse(
    "Somebody else was faster; what is there now.", "Problem", PROBLEM_TYPE
)
_CHANGED: Final = RouteResponse("If-Match names something else.", "Problem", PROBLEM_TYPE)
_BAD_RULES: Final = RouteResponse("The rules cannot be used, and why.", "BadRules", PROBLEM_TYPE)


@final
class RuleRoutes:
    """The operations of an admin in HTTP; `parts_of` names the parts of a request's path."""

    def __init__(
        self,
        admin: RuleAdmin,
        settings: RulesHttpSettings,
        reports: Mapping[str, ReportWriter],
        parts_of: PathParts,
    ) -> None:
        for form in reports:
            if form not in _TYPES:
                raise BadValue("reports", form, f"there is {', '.join(_TYPES)}")
        self._admin = admin
        self._bounds = settings
        self._reports = dict(reports)
        self._parts_of = parts_of
        self.closed = False

    def routes(self) -> list[Route]:
        """A route for each operation."""
        key = Parameter(
            "Idempotency-Key",
            "Of this call alone. Sent again within "
            f"{self._bounds.keys_kept_s:,} s, the call returns the first result, and is not "
            "repeated.",
            TEXT_SCHEMA,
            "header",
        )
        return [
            Route(
                operation.method,
                RULES + operation.path,
                partial(self._change if operation.changes else self._read, operation),
                operation.summary,
                _responses(operation),
                forms.request_schema(operation) if operation.changes else "",
                operation.grant,
                parameters=(*forms.parameters_of(operation), *_headers(operation, key)),
                name=operation.name,
            )
            for operation in OPERATIONS.values()
        ]

    # Read.

    def _read(
        self, operation: Operation, request: HttpRequest, by: Identity, body: bytes
    ) -> HttpReply:
        arguments = self._arguments(operation, request, body)
        is_report = operation.result == "Report"
        form = forms.REPORT_JSON
        if is_report:
            form = forms.report_form_of(request, (forms.REPORT_JSON, *self._reports))
        try:
            result = (self._wait if operation.waits else self._call)(operation, arguments, by)
        except BadValue as error:
            if error.field not in _thing_fields(operation):
                raise
            return not_found(error)
        if form != forms.REPORT_JSON:
            kind, headers = _TYPES[form]
            page = self._reports[form](result).encode("utf-8", "replace")
            return HttpReply(200, self._bounded(page), kind, headers)
        return self._tagged(request, {operation.items: result} if operation.items else result)

    def _wait(self, operation: Operation, arguments: dict[str, Any], by: Identity) -> Answer:
        """Wait in steps, so that it ends soon after the door does."""
        timeout_s = arguments["timeout_s"]
        steps = max(math.ceil(timeout_s / self._bounds.wait_look_s), 1)
        answer: Answer = {}
        for _ in range(steps):
            answer = self._call(operation, {**arguments, "timeout_s": timeout_s / steps}, by)
            if answer.get("reached") or self.closed:
                break
        return answer

    # Change.

    def _change(
        self, operation: Operation, request: HttpRequest, by: Identity, body: bytes
    ) -> HttpReply:
        arguments = self._arguments(operation, request, body)
        if not operation.condition and request.header(IF_MATCH):
            raise BadValue("if-match", "a condition", f"{operation.name} takes none; leave it out")
        if operation.condition != OF_PROPOSAL:
            refusal = self._precondition(operation, request, "what is live", self._live(by))
            return refusal or self._done(operation, self._call(operation, arguments, by))
        look = partial(self._call, OPERATIONS["proposal"], {"id": arguments["id"]}, by)
        try:
            refusal = self._precondition(
                operation, request, f"the proposal {arguments['id']}", look
            )
            return refusal or self._done(operation, self._call(operation, arguments, by))
        except BadValue as error:
            if error.field not in _thing_fields(operation):
                raise
            # It is not there, or this cannot be done with it: only one of them is a 404.
            try:
                look()
            except BadValue:
                return not_found(error)
            except SluicegateError:
                pass  # who may not look gets the first error
            raise

    # Inside.

    def _arguments(self, operation: Operation, request: HttpRequest, body: bytes) -> dict[str, Any]:
        path_parts = self._parts_of(request.path)
        return forms.arguments_of(operation, request, path_parts, body, self._bounds)

    def _call(self, operation: Operation, arguments: Mapping[str, Any], by: Identity) -> Any:
        return self._admin.call(operation, arguments, by=by)

    def _live(self, by: Identity) -> Callable[[], Answer]:
        return partial(self._admin.rules, by=by)

    def _precondition(
        self, operation: Operation, request: HttpRequest, what: str, look: Callable[[], Answer]
    ) -> HttpReply | None:
        """The refusal of a change where something is not what `If-Match` says."""
        tags = wanted_tags(request, IF_MATCH) if operation.condition else ()
        if not tags:
            return None
        answer = look()
        body = _json(answer)
        return None if matches(tags, body, answer) else precondition_failed(what, tag_of(body))

    def _tagged(self, request: HttpRequest, answer: Answer) -> HttpReply:
        """A result with its tag, or without a body where the caller has it already."""
        body = self._bounded(_json(answer))
        headers = ((b"etag", f'"{tag_of(body)}"'.encode()),)
        tags = wanted_tags(request, IF_NONE_MATCH)
        if tags and matches(tags, body, {}):
            return HttpReply(304, b"", JSON, headers)
        return HttpReply(200, body, JSON, headers)

    def _done(self, operation: Operation, answer: Answer) -> HttpReply:
        """The result of a change. It has been made, so it is cut rather than refused."""
        body = _json(answer)
        if len(body) > self._bounds.answer_bytes_max:
            body = _json({**{name: answer[name] for name in _SHORT if name in answer}, "cut": True})
        if not operation.creates:
            return HttpReply(200, body)
        where = f"{RULES}{operation.path}/{quote(str(answer.get('id', '')), safe='')}"
        return HttpReply(201, body, headers=((b"location", where.encode()),))

    def _bounded(self, body: bytes) -> bytes:
        most = self._bounds.answer_bytes_max
        if len(body) > most:
            allowed = f"a response may have {most:,} (rules.answer_bytes_max)"
            raise BadValue("answer", f"{len(body):,} bytes", f"request less; {allowed}")
        return body


def _headers(operation: Operation, key: Parameter) -> tuple[Parameter, ...]:
    if operation.changes:
        return (key, *([_CONDITIONS[operation.condition]] if operation.condition else ()))
    return (_FORM, _IF_NONE) if operation.result == "Report" else (_IF_NONE,)


def _responses(operation: Operation) -> dict[int, RouteResponse]:
    texts = ("text/html", "text/plain") if operation.result == "Report" else ()
    sentence = "What there is now." if operation.result == "Done" else operation.summary
    responses = {
        201 if operation.creates else 200: RouteResponse(sentence, operation.result, texts=texts),
    }
    if not operation.changes:
        responses[304] = _SAME
    if operation.in_place(PATH):
        responses[404] = _NOT_FOUND
    if operation.changes:
        responses[409] = _CONFLICT
    if operation.condition:
        responses[412] = _CHANGED
    if any(argument.kind == CHANGES for argument in operation.arguments):
        responses[422] = _BAD_RULES
    return responses


def _thing_fields(operation: Operation) -> tuple[str, ...]:
    return tuple(field for argument in operation.in_place(PATH) for field in _FIELDS[argument.name])


def _json(answer: Answer) -> bytes:
    return encode_json(answer) + b"\n"
