"""Takedown routes: remove, purge, block and their audit over HTTP, for callers that are named.

DELETE /v1/images?url=|id=|owner=      remove; block=yes refuses the URL or hash from then on
POST   /v1/purge?url=|id=|owner=       make variants again; originals stay
GET    /v1/blocks, DELETE /v1/blocks   what is refused; let it in again
GET    /v1/audit                       who removed what, when and why
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict
from functools import partial
from typing import Final, final

from sluicegate.apps.images.pipeline import DIGEST_CHARS, normal_url
from sluicegate.apps.images.takedown import ID, KINDS, OWNER, URL, Selection, Takedown, check
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_bytes, json_reply, problem
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import TEXT, fields, several, text, whole

SHOWN_MAX: Final = 1_000
UNNAMED: Final = (
    "removing images needs an authenticated caller; add --access FILE or --token TOKEN, "
    "or --insecure to let every caller remove them"
)
_WORDS: Final = {"yes": True, "no": False}
_LINES: Final = b"application/x-ndjson"
_WHAT: Final = (
    Parameter(URL, "The URL of an image, or `upload:` and an id.", TEXT),
    Parameter(ID, "The SHA-256 of an original.", TEXT),
)
_WHOSE: Final = (
    *_WHAT,
    Parameter(OWNER, "The owner of images.", TEXT),
    Parameter("reason", "Why, for the audit.", TEXT),
)
_COUNT: Final = (Parameter("count", "At most this many.", {**whole(1), "maximum": SHOWN_MAX}),)
_ENTRY: Final = {"kind": TEXT, "value": TEXT, "by": TEXT, "at_us": whole(0), "reason": TEXT}
SCHEMAS: Final = {
    "Blocks": fields({"blocks": several(fields(_ENTRY))}, ("blocks",)),
    "Takedowns": fields(
        {
            "takedowns": several(
                fields({**_ENTRY, "action": text("remove, purge or unblock."), "urls": whole(0)})
            )
        },
        ("takedowns",),
    ),
}


@final
class TakedownRoutes:
    """The rows. `is_named` returns whether a caller has authenticated."""

    def __init__(self, takedown: Takedown, is_named: Callable[[Identity], bool]) -> None:
        self._takedown = takedown
        self._is_named = is_named

    def routes(self) -> tuple[Route, ...]:
        """The rows, all but the lists for callers that run the store."""
        lines = {200: RouteResponse("Progress, then the result, as lines.", "", _LINES.decode())}
        block = Parameter("block", "Whether to refuse it from now on: yes or no.", TEXT)
        return (
            Route(
                "DELETE",
                "/v1/images",
                partial(self._run, purge=False),
                "Remove images by URL, by hash or by owner.",
                lines,
                grant=Grant.OPERATE,
                any_type=True,
                parameters=(*_WHOSE, block),
                name="remove_images",
            ),
            Route(
                "POST",
                "/v1/purge",
                partial(self._run, purge=True),
                "Remove variants and remembered failures; originals stay.",
                lines,
                grant=Grant.OPERATE,
                any_type=True,
                parameters=_WHOSE,
                name="purge",
            ),
            Route(
                "GET",
                "/v1/blocks",
                self._show_blocks,
                "URLs and hashes that are refused.",
                {200: RouteResponse("The first of them.", "Blocks")},
                grant=Grant.AUDIT,
                parameters=_COUNT,
                name="blocks",
            ),
            Route(
                "DELETE",
                "/v1/blocks",
                self._unblock,
                "Let a URL or a hash in again.",
                {
                    200: RouteResponse("It is no longer refused.", empty=True),
                    404: RouteResponse("It was not refused.", "Problem"),
                },
                grant=Grant.OPERATE,
                any_type=True,
                parameters=_WHAT,
                name="unblock",
            ),
            Route(
                "GET",
                "/v1/audit",
                self._show_audit,
                "Removals with caller, time and reason, the newest first.",
                {200: RouteResponse("The last calls.", "Takedowns")},
                grant=Grant.AUDIT,
                parameters=_COUNT,
                name="takedowns",
            ),
        )

    def _run(self, request: HttpRequest, by: Identity, _body: bytes, *, purge: bool) -> HttpReply:
        refusal = self._refuse(by)
        if refusal is not None:
            return refusal
        names = (*KINDS, "reason") if purge else (*KINDS, "reason", "block")
        query = query_of(request, names)
        word, reason = query.get("block", "no"), query.get("reason", "")
        if word not in _WORDS:
            raise BadValue("block", word, "give yes or no")
        selected = selection_of(query)
        check(selected, block=_WORDS[word], reason=reason)
        pieces = self._lines(selected, by.name, purge, _WORDS[word], reason)
        return HttpReply(200, b"", _LINES, pieces=pieces)

    async def _lines(
        self, selected: Selection, by: str, purge: bool, block: bool, reason: str
    ) -> AsyncGenerator[bytes, None]:
        # Lines are written during the walk, so a large store causes no time-out.
        run = self._takedown.run(selected, by=by, purge=purge, block=block, reason=reason)
        async for done in run:
            yield json_bytes(asdict(done))

    async def _unblock(self, request: HttpRequest, by: Identity, _body: bytes) -> HttpReply:
        refusal = self._refuse(by)
        if refusal is not None:
            return refusal
        selected = selection_of(query_of(request, (URL, ID)))
        if not await self._takedown.unblock(selected, by=by.name):
            return problem(404, "Not Found", f"{selected.value} is not blocked")
        return HttpReply(200)

    async def _show_blocks(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        found = await self._takedown.blocks(_count(request))
        return json_reply({"blocks": [one._asdict() for one in found]})

    async def _show_audit(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        found = await self._takedown.audit(_count(request))
        return json_reply({"takedowns": [one._asdict() for one in found]})

    def _refuse(self, by: Identity) -> HttpReply | None:
        if self._is_named(by):
            return None
        return problem(403, "Forbidden", UNNAMED)


def selection_of(query: dict[str, str]) -> Selection:
    """Return what is to be removed; a `BadValue` unless exactly one thing is named."""
    named = [kind for kind in KINDS if query.get(kind)]
    if len(named) != 1:
        raise BadValue("query", ", ".join(named), f"give one of {', '.join(KINDS)}")
    kind = named[0]
    value = query[kind]
    if kind == URL:
        value = normal_url(value)
    if kind == ID and not (len(value) == DIGEST_CHARS and not value.strip("0123456789abcdef")):
        raise BadValue(ID, value, f"give {DIGEST_CHARS} of 0-9 a-f")
    return Selection(kind, value)


def _count(request: HttpRequest) -> int:
    given = query_of(request, ("count",)).get("count", "100")
    return whole_of("count", given, 1, SHOWN_MAX)
