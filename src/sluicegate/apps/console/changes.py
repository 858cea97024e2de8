"""Changes: the routes by which a person changes rules, from an edited text to a roll back.

Each asks the rulebook in that person's name; what they may do is decided there, and written in its
audit. Who is not known there is sent to sign in. Every change needs a form's mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from html import escape
from typing import Final, final
from urllib.parse import quote

from sluicegate.apps.console.attempts import LoginAttempts
from sluicegate.apps.console.draft_check import check_draft
from sluicegate.apps.console.forms import FORM, FormGuard, button, fields_in, go_to, html, own_path
from sluicegate.apps.console.pages import changes as pages
from sluicegate.apps.console.pages.editor import Draft, editor, findings, problems_view
from sluicegate.apps.console.pages.frame import Render
from sluicegate.apps.console.rulebook import RulebookAccess
from sluicegate.command_line.text import printable
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import (
    BadValue,
    Conflict,
    Forbidden,
    SluicegateError,
    Unauthenticated,
)
from sluicegate.contracts.rule_admin import SHARE_MAX, VERSION_MAX, Answer, RuleAdmin
from sluicegate.contracts.rulebook import BY_CALLERS
from sluicegate.doors.http.audit import user_of
from sluicegate.doors.http.fields import query_of, raw_query_of, whole_of
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse, Work
from sluicegate.doors.http.schemas import TEXT
from sluicegate.rules.quota_edit import quotas_in, with_quotas
from sluicegate.shadow.report.page import page_of

LISTED_MAX: Final = 50
KINDS: Final = ("added", "removed", "changed")
COMPARED_MAX: Final = 20  # releases that a page of a rule's story holds against the one before
QUOTA_RU_MAX: Final = 1 << 40  # a budget holds no larger quota
SIGN_IN: Final = "/changes/sign-in"
_PAGE: Final = {200: RouteResponse("The page.", "", "text/html")}
_DONE: Final = {303: RouteResponse("To the page that shows it.", empty=True)}

AsyncWork = Callable[[HttpRequest, Identity, bytes], Awaitable[HttpReply]]


@final
class ChangeRoutes:
    """The routes below /changes. `read_only` shows everything and changes nothing."""

    def __init__(
        self,
        rulebook: RulebookAccess,
        guard: FormGuard,
        render: Render,
        clock: Clock,
        attempts: LoginAttempts,
        *,
        read_only: bool,
    ) -> None:
        self._attempts = attempts
        self._rulebook = rulebook
        self._guard = guard
        self._render = render
        self._clock = clock
        self._may_change = not read_only

    def routes(self) -> list[Route]:
        """The rows."""
        revision = Parameter("id", "The proposal.", TEXT, required=True)
        file = Parameter("file", "The rules file.", TEXT, required=True)
        rule = (
            Parameter("rule", "The name of the rule.", TEXT, required=True),
            Parameter("before", "Releases before this one; without it the latest.", TEXT),
        )
        quota = (
            Parameter("caller", "Whose quota.", TEXT, required=True),
            Parameter("ru", "Request units a second.", TEXT, required=True),
        )
        shown = [
            self._get("/changes", self._changes, "What is live, and what is proposed."),
            self._get("/changes/running", self._running, "What is live, as a part of a page."),
            self._get("/changes/proposal", self._proposal, "A proposal.", revision),
            self._get("/changes/report", self._report, "Its trial on captured traffic.", revision),
            self._get("/changes/history", self._history, "Releases, and who did what."),
            self._get("/changes/rule", self._rule, "The releases that changed a rule.", *rule),
            Route(
                "GET",
                SIGN_IN,
                self._sign_in_page,
                "Asks for a token of the rulebook.",
                _PAGE,
                grant=Grant.AUDIT,
                parameters=(Parameter("next", "Where to go on.", TEXT),),
            ),
            self._post(SIGN_IN, self._sign_in, "Begins a session at the rulebook.", guarded=False),
            self._post("/changes/sign-out", self._sign_out, "Ends it."),
        ]
        if not self._may_change:
            return shown
        return [
            *shown,
            self._get("/changes/edit", self._edit, "The editor.", file),
            self._get("/changes/quota", self._quota, "The editor, with a quota changed.", *quota),
            self._post("/changes/check", self._check, "Says what is wrong with a text."),
            self._post("/changes/propose", self._propose, "Proposes a text."),
            self._post("/changes/act", self._act, "Approves, turns down, publishes, widens."),
            self._post("/changes/rollback", self._roll_back, "Rolls back to a release."),
        ]

    # Read.

    async def _changes(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        status, proposals, rules = await self._rulebook.call(
            request, lambda it: (it.status(), it.proposals(count_max=LISTED_MAX), it.rules())
        )
        parts = pages.changes(status, proposals, rules["files"], may_change=self._may_change)
        return html(self._render("changes", self._head(request) | parts, by))

    async def _running(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return html(pages.running(await self._rulebook.call(request, lambda it: it.status())))

    async def _proposal(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        proposal = query_of(request, ("id",)).get("id", "")
        return await self._proposal_page(request, by, proposal)

    async def _proposal_page(
        self, request: HttpRequest, by: Identity, proposal: str, above: str = "", status: int = 200
    ) -> HttpReply:
        def ask(admin: RuleAdmin) -> tuple[Answer, Answer | str, Answer]:
            one = admin.proposal(proposal)
            try:
                diff: Answer | str = admin.diff(one["base"], one["commit"])
            except (BadValue, Conflict) as error:
                diff = str(error)
            return one, diff, admin.status()

        one, diff, fleet = await self._rulebook.call(request, ask)
        canary = fleet.get("canary") or {}
        if canary.get("proposal") == one["id"]:
            one = {**one, "share": canary["share"]}
        mark = self._guard.field(request)
        parts = pages.proposal(one, diff, fleet, mark, may_change=self._may_change)
        head = self._head(request) | {"mistake": above}
        return html(self._render("changes", head | parts, by, title="Proposal"), status)

    async def _report(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        proposal = query_of(request, ("id",)).get("id", "")
        report = await self._rulebook.call(request, lambda admin: admin.report(proposal))
        back = f'<a href="{pages.proposal_path(proposal)}">Back to the proposal</a>'
        return html(page_of(report, f"<nav>{back}</nav>"))

    async def _history(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        versions, audit = await self._rulebook.call(
            request,
            lambda it: (it.versions(count_max=LISTED_MAX), it.audit(count_max=2 * LISTED_MAX)),
        )
        mark = self._guard.field(request)
        now_us = self._clock.now_us()
        parts = pages.history(versions, audit, now_us, mark, may_change=self._may_change)
        return html(self._render("changes", self._head(request) | parts, by, title="History"))

    async def _rule(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        query = query_of(request, ("rule", "before"))
        name = query.get("rule", "")
        before = whole_of("before", query.get("before", "0"), 0, VERSION_MAX)

        story = await self._rulebook.call(request, lambda it: story_of(it, name, before))
        parts = pages.rule_history(story, self._clock.now_us())
        return html(self._render("changes", self._head(request) | parts, by, title="A rule"))

    # Sign in.

    def _sign_in_page(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        path = own_path(query_of(request, ("next",)).get("next", "/changes"))
        return self._sign_in_form(by, path, "", 200)

    def _sign_in_form(self, by: Identity, path: str, mistake: str, status: int) -> HttpReply:
        parts = pages.sign_in(path, mistake, self._rulebook.url)
        return html(self._render("changes", parts, by, title="Sign in to the rulebook"), status)

    async def _sign_in(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        fields = fields_in(body)
        path = own_path(fields.get("next", "/changes"))
        again_s = self._attempts.rejected(request)
        if again_s:
            mistake = f"Too many failed logins. Try again in {again_s} s."
            return self._sign_in_form(by, path, mistake, 429)
        try:
            cookie = await self._rulebook.sign_in(fields.get("token", ""))
        except SluicegateError as error:
            self._attempts.failed(request, "rulebook token", str(error))
            return self._sign_in_form(by, path, str(error), 403)
        if cookie is None:
            return self._sign_in_form(by, path, "Give a token.", 403)
        self._attempts.succeeded(request, "rulebook token", by.name)
        return go_to(path, cookie)

    async def _sign_out(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return go_to("/changes", self._rulebook.sessions.end(request.header(b"cookie")))

    # Change.

    async def _edit(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        name = query_of(request, ("file",)).get("file", "")
        file = await self._rulebook.call(request, lambda admin: admin.file(name))
        draft = Draft(name, str(file["text"]), str(file["commit"]))
        return self._editor(request, by, draft)

    async def _quota(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        query = raw_query_of(request, ("caller", "ru"))
        caller = user_of(query.get("caller", b""))
        quota_ru = whole_of("ru", query.get("ru", b"").decode("latin-1"), 1, QUOTA_RU_MAX)

        def find(admin: RuleAdmin) -> tuple[Answer, dict[str, int]]:
            names = [one["name"] for one in admin.rules()["files"] if one["format"]]
            others: list[tuple[Answer, dict[str, int]]] = []
            for name in names:
                file = admin.file(name)
                quotas = quotas_in(str(file["text"]), name)
                if caller in quotas:
                    return {**file, "name": name}, quotas
                others.append(({**file, "name": name}, quotas))
            # Who has none of its own yet gets one beside those of others.
            for found in others:
                if found[1] or len(others) == 1:
                    return found
            raise BadValue("caller", caller, "no rules file has quotas of callers: add `callers:`")

        file, quotas = await self._rulebook.call(request, find)
        name, before = str(file["name"]), quotas.get(caller)
        text = await asyncio.to_thread(with_quotas, str(file["text"]), {caller: quota_ru}, name)
        message = f"Set the quota of {printable(caller)} to {quota_ru:,} RU a second"
        reason = "" if before is None else f"It was {before:,}; asked for more in the last hour."
        return self._editor(request, by, Draft(name, text, str(file["commit"]), message, reason))

    def _editor(
        self,
        request: HttpRequest,
        by: Identity,
        draft: Draft,
        found: str = "",
        above: str = "",
        status: int = 200,
    ) -> HttpReply:
        parts = editor(draft, self._guard.field(request), found, above)
        return html(
            self._render("changes", self._head(request) | parts, by, title="Edit rules"), status
        )

    async def _check(self, request: HttpRequest, _by: Identity, body: bytes) -> HttpReply:
        draft = _draft_in(self._guard.read(request, body))
        file = await self._rulebook.call(request, lambda admin: admin.file(draft.file, draft.base))
        found = await asyncio.to_thread(check_draft, draft.file, str(file["text"]), draft.text)
        return html(findings(*found))

    async def _propose(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        draft = _draft_in(self._guard.read(request, body))
        try:
            one = await self._rulebook.call(
                request,
                lambda admin: admin.propose(
                    {draft.file: draft.text},
                    base=draft.base,
                    message=draft.message,
                    reason=draft.reason,
                    confirm=draft.confirm,
                ),
            )
        except Conflict as error:
            return await self._changed_meanwhile(request, by, draft, error)
        except BadValue as error:
            asked = error.remedy if error.field == "confirm" else ""
            found = "" if asked else problems_view(error)
            return self._editor(request, by, draft._replace(asked=asked), found, status=422)
        return go_to(pages.proposal_path(str(one["id"])))

    async def _changed_meanwhile(
        self, request: HttpRequest, by: Identity, draft: Draft, error: Conflict
    ) -> HttpReply:
        """Show what somebody else has changed, beside the text that is still there."""
        live, diff = await self._rulebook.call(
            request, lambda it: (it.rules(), it.diff(draft.base, "live"))
        )
        above = (
            pages.mistake(f"{error}. Your text is still here.")
            + "<h2>What has changed under you</h2>"
            + pages.diff_view(diff)
            + "<p>Put that into your text: if you propose it as it is, it takes that back. Below "
            "is what your text changes of what is live now.</p>"
        )
        return self._editor(
            request, by, draft._replace(base=str(live["commit"])), above=above, status=409
        )

    async def _act(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        fields = self._guard.read(request, body)
        proposal, what = fields.get("id", ""), fields.get("what", "")
        acts: dict[str, Callable[[RuleAdmin], Answer]] = {
            "approve": lambda it: it.approve(proposal, override=fields.get("override", "")),
            "reject": lambda it: it.reject(proposal, reason=fields.get("reason", "")),
            "judge": lambda it: it.judge(proposal),
            "publish": lambda it: it.publish(proposal),
            "canary": lambda it: it.canary(
                proposal,
                share=whole_of("share", fields.get("share", ""), 0, SHARE_MAX),
                kind=BY_CALLERS,
            ),
        }
        if what not in acts:
            raise BadValue("what", what, f"there are {', '.join(acts)}")
        try:
            await self._rulebook.call(request, acts[what])
        except (BadValue, Conflict, Forbidden) as error:
            above = pages.mistake(str(error))
            return await self._proposal_page(request, by, proposal, above, _status_of(error))
        return go_to(pages.proposal_path(proposal))

    async def _roll_back(self, request: HttpRequest, _by: Identity, body: bytes) -> HttpReply:
        fields = self._guard.read(request, body)
        to, reason = fields.get("to", ""), fields.get("reason", "")
        await self._rulebook.call(request, lambda admin: admin.roll_back(to, reason=reason))
        return go_to("/changes/history")

    # Inside.

    def _head(self, request: HttpRequest) -> dict[str, str]:
        links = '<a href="/changes">Changes</a> <a href="/changes/history">History</a>'
        person = self._rulebook.spoken_for(request)
        if person:
            leave = f"<span>as {escape(person)}</span>"
        elif self._rulebook.signed_in(request):
            mark = self._guard.field(request)
            leave = button("/changes/sign-out", "Sign out of the rulebook", mark)
        else:
            leave = f'<a href="{SIGN_IN}">Sign in to the rulebook</a>'
        return {"where": f'<div class="where">{links}{leave}</div>'}

    def _get(self, path: str, work: AsyncWork, summary: str, *parameters: Parameter) -> Route:
        return Route(
            "GET",
            path,
            self._asking(work),
            summary,
            _PAGE,
            grant=Grant.AUDIT,
            parameters=parameters,
            name=f"page{path.replace('/', '_')}",
        )

    def _post(self, path: str, work: AsyncWork, summary: str, *, guarded: bool = True) -> Route:
        return Route(
            "POST",
            path,
            self._asking(work, guarded=guarded),
            summary,
            _DONE,
            grant=Grant.AUDIT,
            content_types=(FORM,),
            name=f"do{path.replace('/', '_')}",
        )

    def _asking(self, work: AsyncWork, *, guarded: bool = False) -> Work:
        """Do the work; what the rulebook refuses becomes a page, or the way to sign in."""
        return partial(self._answer, work, guarded)

    async def _answer(
        self, work: AsyncWork, guarded: bool, request: HttpRequest, by: Identity, body: bytes
    ) -> HttpReply:
        try:
            if guarded:
                self._guard.read(request, body)
            return await work(request, by, body)
        except Unauthenticated:
            here = request.raw_path if request.method == "GET" else "/changes"
            query = request.query.decode("latin-1")
            path = f"{here}?{query}" if query and request.method == "GET" else here
            return go_to(f"{SIGN_IN}?next={quote(path, safe='')}")
        except SluicegateError as error:
            parts = self._head(request) | {"mistake": pages.mistake(str(error))}
            return html(self._render("changes", parts, by, title="Changes"), _status_of(error))


def story_of(admin: RuleAdmin, name: str, before: int) -> pages.RuleStory:
    """Return a page of a rule's story: of the releases before that one; before 0, of the latest."""
    # One more than is compared: whether there are older ones.
    listed = admin.versions(count_max=COMPARED_MAX + 1, before=before)
    compared = [int(one["version"]) for one in listed[:COMPARED_MAX]]
    found = []
    for one in listed[:COMPARED_MAX]:
        if one.get("before"):
            rules = admin.diff(str(one["before"]), str(one["commit"])).get("rules") or {}
            found += [(kind, one) for kind in KINDS if name in rules.get(kind, ())]
    return pages.RuleStory(
        name,
        found,
        compared,
        older=compared[-1] if len(listed) > COMPARED_MAX else 0,
        newer=compared[0] + COMPARED_MAX + 1 if compared and compared[0] == before - 1 else 0,
    )


def _draft_in(fields: Mapping[str, str]) -> Draft:
    # A form sends CRLF; files of rules have LF.
    text = fields.get("text", "").replace("\r\n", "\n")
    return Draft(
        fields.get("file", ""),
        text,
        base=fields.get("base", ""),
        message=fields.get("message", ""),
        reason=fields.get("reason", ""),
        confirm=fields.get("confirm") == "yes",
    )


def _status_of(error: SluicegateError) -> int:
    if isinstance(error, Forbidden):
        return 403
    if isinstance(error, Conflict):
        return 409
    return 400 if isinstance(error, BadValue) else 503
