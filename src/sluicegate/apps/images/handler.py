"""Handler: images in HTTP. Each route is a few lines: read, ask, write.

GET  /img/{spec}/{url or upload id}    a variant; hot ones from memory, without a task
POST /v1/images                        upload: the id is the digest of the bytes
POST /v1/prefetch                      have many made; progress as JSON lines
GET  /v1/near                          what looks like an image
GET  /gallery                          what is stored, to look at
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

from sluicegate.apps.images.answers import CONDITIONS, failure_reply, image_reply
from sluicegate.apps.images.durations import ERROR, FALLBACK, HIT, PROCESSED, RequestDurations
from sluicegate.apps.images.failures import NoImageError
from sluicegate.apps.images.fallbacks import (
    fallback_reply,
    find_fallback,
    is_for_page,
    is_not_ready,
)
from sluicegate.apps.images.foreign_urls import ForeignForm, foreign_forms
from sluicegate.apps.images.origin import URL_CHARS_MAX
from sluicegate.apps.images.owners import check_owner
from sluicegate.apps.images.pipeline import (
    Image,
    ImagePipeline,
    normal_url,
    slot_of,
    try_in_bulk,
)
from sluicegate.apps.images.processors import read_spec
from sluicegate.apps.images.settings import (
    CLOSED,
    PREFETCH_AT_ONCE,
    PREFETCH_MAX,
    WAITERS_MAX,
    ImagesSettings,
)
from sluicegate.apps.images.signatures import PREFIX, refuse_signature
from sluicegate.apps.images.takedown import Takedown
from sluicegate.apps.images.takedown_routes import SCHEMAS as TAKEDOWN_SCHEMAS
from sluicegate.apps.images.takedown_routes import TakedownRoutes
from sluicegate.apps.images.work_behind import WorkBehind
from sluicegate.contracts.access import Access, Grant, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.errors import BadValue, Forbidden, SluicegateError
from sluicegate.contracts.request import Request
from sluicegate.doors.claims import CRITICALITY, criticality_of
from sluicegate.doors.http.fields import query_of, whole_of
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.identity import NOBODY
from sluicegate.doors.http.message import HttpReply, HttpRequest, json_bytes, json_reply, problem
from sluicegate.doors.http.replies import prepared
from sluicegate.doors.http.routes import Parameter, Route, RouteResponse
from sluicegate.doors.http.schemas import BOOL, TEXT, fields, several, text, whole
from sluicegate.kernels.lru_ttl import FRESH, LruTtl
from sluicegate.policies.images.cache_control import cache_control
from sluicegate.policies.images.negotiation import animated_instead, best_format
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.wire.json_objects import at, fields_of, list_of, parse_json, text_of

_log: Final = logging.getLogger("sluicegate.images")
ACCEPT: Final = b"accept"
OWNER: Final = b"x-image-owner"
LAST_MODIFIED: Final = b"last-modified"
SECONDS_MAX: Final = 10**12
_HOT_TTL_US: Final = 3_600_000_000  # an entry is also bound to the freshness of its URL
_REPLY_BYTES: Final = 1_000  # of what is kept beside the image
_SECOND_US: Final = 1_000_000
_LINES: Final = b"application/x-ndjson"
_HTML: Final = b"text/html; charset=utf-8"
_UPLOADS: Final = ("image/*", "application/octet-stream")

SCHEMAS: Final = {
    **TAKEDOWN_SCHEMAS,
    "Uploaded": fields(
        {
            "id": text("What stands for it in /img/{spec}/{id}: the SHA-256 of its bytes."),
            "bytes": whole(0),
            "known": {**BOOL, "description": "Whether the same bytes were there before."},
        },
        ("id", "bytes", "known"),
    ),
    "Near": fields(
        {
            "id": text("The SHA-256 of its bytes."),
            "shares_with": text("The id of the one whose variants it is served; empty is none."),
            "near": several(
                fields({"id": TEXT, "url": TEXT, "bits": whole(0)}, ("id", "url", "bits"))
            ),
        },
        ("id", "shares_with", "near"),
    ),
    "Prefetch": fields({"images": several(fields({"url": TEXT, "spec": TEXT}, ("url", "spec")))}),
}


class _Wanted(NamedTuple):
    """One image, as a request names it."""

    spec: str
    url: str
    accept: str = ""
    modified: str = ""
    owner: str = ""
    ends_us: int = 0  # when the signature of its URL ends; 0 is never


@final
class _Found:
    """An image, whether another client would get another one, and the reply that it is."""

    __slots__ = ("change", "image", "negotiated", "reply", "reply_until_us", "slot")

    def __init__(self, image: Image, negotiated: bool, slot: int, change: int) -> None:
        self.image = image
        self.negotiated = negotiated
        self.slot = slot  # of its URL
        self.change = change  # how often URLs there had changed when it was asked for
        self.reply: HttpReply | None = None  # without conditions, good for a second
        self.reply_until_us = 0


@final
class ImagesHandler(HttpHandler):
    """The routes of the service."""

    def __init__(
        self,
        pipeline: ImagePipeline,
        settings: ImagesSettings,
        clock: Clock,
        access: Access,
        hosts: frozenset[str] | None,
        gallery: Callable[[], Awaitable[str]],
        durations: RequestDurations,
        takedown: Takedown,
    ) -> None:
        super().__init__(access, hosts)
        self.settings = settings
        self.hot: LruTtl[_Found] = LruTtl(settings.cache_bytes, ttl_us=_HOT_TTL_US, beta=0.0)
        self.hot_hits = 0
        self.unsigned = 0
        self._durations = durations
        self._takedown = TakedownRoutes(takedown, self._is_named)
        self._closed = settings.closed_to_anonymous
        self.fallbacks = 0
        self._behind = WorkBehind(WAITERS_MAX)
        self._pipeline = pipeline
        self._clock = clock
        self._gallery = gallery

    def routes(self) -> tuple[Route, ...]:
        """The rows."""
        settings = self.settings
        signed = bool(settings.sign_key)
        image_bytes_max = max(
            ImageWorkerSettings().answer_bytes_max,
            settings.origin_bytes_max,
            settings.message_bytes_max,
        )
        foreign = (
            Route(
                "GET",
                form.prefix + "/{+path}",
                partial(self._foreign_image, form),
                f"An image, by a URL of {form.name}.",
                {200: RouteResponse("The image.", "", "image/*")},
                grant=None if form.signed else Grant.FETCH,
                open=form.signed,
                name=f"{form.name}_image",
                reply_bytes_max=image_bytes_max,
            )
            for form in foreign_forms(self.settings)
        )
        return (
            *foreign,
            *self._takedown.routes(),
            Route(
                "GET",
                PREFIX + "{spec}/{+source}",
                self._image,
                "An image: the variant that the specification says of what is at the URL.",
                {
                    200: RouteResponse("The image.", "", "image/*"),
                    206: RouteResponse("A part of it.", "", "image/*"),
                    304: RouteResponse("It has not changed.", empty=True),
                    422: RouteResponse("There is none; `kind` says why.", "Problem"),
                },
                # Where URLs are signed, the signature is what lets in.
                grant=None if signed else Grant.FETCH,
                open=signed,
                parameters=(
                    Parameter("sig", "The signature, if the service asks for one.", TEXT),
                    Parameter("expires", "When it ends, seconds since the epoch.", whole(0)),
                    Parameter("Last-Modified", "Of a version you know of.", TEXT, "header"),
                    Parameter("X-Image-Owner", "On whose behalf it is stored.", TEXT, "header"),
                ),
                name="image",
                reply_bytes_max=image_bytes_max,
            ),
            Route(
                "POST",
                "/v1/images",
                self._upload,
                "Upload an image; the same bytes are stored once.",
                {200: RouteResponse("It is stored, durably.", "Uploaded")},
                grant=Grant.UPLOAD,
                content_types=_UPLOADS,
                parameters=(
                    Parameter("X-Image-Owner", "On whose behalf it is stored.", TEXT, "header"),
                ),
                name="upload",
            ),
            Route(
                "POST",
                "/v1/prefetch",
                self._prefetch,
                "Have many images made; the reply is their progress.",
                {200: RouteResponse("A line of JSON for each, as it ends.", "", _LINES.decode())},
                request_schema="Prefetch",
                grant=Grant.FETCH,
                name="prefetch",
            ),
            Route(
                "GET",
                "/v1/near",
                self._show_near,
                "Originals that look like this one, the nearest first.",
                {
                    200: RouteResponse("Those that look alike.", "Near"),
                    404: RouteResponse("It is not known, or was not compared yet.", "Problem"),
                },
                grant=Grant.AUDIT,
                parameters=(Parameter("url", "Its URL, or the id of an upload.", TEXT),),
                name="near",
            ),
            Route(
                "GET",
                "/gallery",
                self._show_gallery,
                "A page of what is stored, and what was saved.",
                {200: RouteResponse("HTML.", "", "text/html")},
                grant=Grant.AUDIT,
                name="gallery",
            ),
        )

    def authorize(self, route: Route, request: HttpRequest, identity: Identity) -> HttpReply | None:
        """Signatures protect images alone: without callers, all else is denied."""
        if self._closed and route.grant is not None:
            return problem(403, "Forbidden", CLOSED)
        return super().authorize(route, request, identity)

    def error_reply(self, route: Route, error: SluicegateError) -> HttpReply:
        """A failure of an image has a reply of its own."""
        if isinstance(error, NoImageError):
            return failure_reply(error, self._clock.now_us(), int(self.settings.max_age_s))
        return super().error_reply(route, error)

    def _image(self, request: HttpRequest, by: Identity, _body: bytes) -> MaybeAwaitable[HttpReply]:
        spec, _, url = request.path[len(PREFIX) :].partition("/")
        refusal, ends_us = self._check_signature(request, spec, url)
        return refusal or self._serve(_Wanted(spec, url, ends_us=ends_us), request, by)

    def _foreign_image(
        self, form: ForeignForm, request: HttpRequest, by: Identity, _body: bytes
    ) -> MaybeAwaitable[HttpReply]:
        query_of(request, ())
        found = form.parse(request.raw_path[len(form.prefix) :])
        if not form.is_signed(found):
            return self._refuse("the signature is missing or wrong")
        if not found.source:
            raise BadValue("path", request.raw_path, "end it with the URL of an image")
        return self._serve(_Wanted(found.spec.canonical(), found.source), request, by)

    def _serve(
        self, wanted: _Wanted, request: HttpRequest, by: Identity
    ) -> MaybeAwaitable[HttpReply]:
        begun_us = self._clock.now_us()
        accept = request.header(ACCEPT).decode("latin-1")
        modified = request.header(LAST_MODIFIED)
        if not modified and OWNER not in request.first:
            key = self._hot_key(accept, wanted.spec, wanted.url)
            state, found = self.hot.get(key, begun_us, 0.0)
            if state == FRESH and found is not None and self._is_good(found, begun_us):
                self.hot_hits += 1
                if not wanted.ends_us and CONDITIONS.isdisjoint(request.first):
                    reply = self._hot_reply(found, request, begun_us)
                else:
                    reply = self._reply(found, request, begun_us, wanted.ends_us)
                self._durations.add(HIT, self._clock.now_us() - begun_us)
                return reply
        wanted = wanted._replace(
            accept=accept, modified=modified.decode("latin-1"), owner=self._owner(request, by)
        )
        return self._load(wanted, request, by, begun_us)

    async def _load(
        self, wanted: _Wanted, request: HttpRequest, by: Identity, begun_us: int
    ) -> HttpReply:
        outcome = ERROR
        try:
            reply, outcome = await self._reply_in_time(wanted, request, by)
        finally:
            self._durations.add(outcome, self._clock.now_us() - begun_us)
        return reply

    async def _reply_in_time(
        self, wanted: _Wanted, request: HttpRequest, by: Identity
    ) -> tuple[HttpReply, str]:
        """Return the image and its outcome; for a page a fallback, if it is not ready in time."""
        work = self._ask(wanted, self._request(request, by, wanted.url))
        found: _Found | None = None
        for_page = is_for_page(request)
        try:
            if for_page:
                found = await self._behind.result(work, self.settings.fallback_s)
            else:
                found = await work
        except SluicegateError as error:
            if not (for_page and is_not_ready(error)):
                if isinstance(error, NoImageError):
                    now_us = self._clock.now_us()
                    age_s = self._age_s(wanted.ends_us, now_us)
                    return failure_reply(error, now_us, age_s), ERROR
                raise
        now_us = self._clock.now_us()
        if found is not None:
            outcome = PROCESSED if found.image.made else HIT
            return self._reply(found, request, now_us, wanted.ends_us), outcome
        self.fallbacks += 1
        maps, contents = self._pipeline.maps, self._pipeline.contents
        spec, _ = read_spec(wanted.spec, self.settings, wanted.accept)
        shown = await find_fallback(maps, contents, normal_url(wanted.url), spec, wanted.accept)
        return fallback_reply(shown, self._age_s(wanted.ends_us, now_us)), FALLBACK

    def _age_s(self, ends_us: int, now_us: int) -> int:
        """For how long others may keep an answer to a URL that ends."""
        age_s = int(self.settings.max_age_s)
        return max(0, min(age_s, (ends_us - now_us) // _SECOND_US)) if ends_us else age_s

    async def close(self) -> None:
        """End what continues behind answers."""
        await self._behind.close()

    async def _ask(self, wanted: _Wanted, request: Request) -> _Found:
        spec, negotiated = read_spec(wanted.spec, self.settings, wanted.accept)
        key = self._hot_key(wanted.accept, wanted.spec, wanted.url)
        epoch = self.hot.begin(key)
        slot = slot_of(wanted.url)
        change = self._pipeline.changes[slot]
        image = await self._pipeline.image(wanted.url, spec, request, wanted.modified, wanted.owner)
        other = animated_instead(spec.format, wanted.accept)
        if negotiated and image.frames < image.pages and other:
            moving = await self._pipeline.image(wanted.url, spec.with_format(other), request)
            if moving.frames > 1:  # else it has too many pixels, or a format that is not animated
                image = moving
        found = _Found(image, negotiated, slot, change)
        size = len(image.data) + len(key) + _REPLY_BYTES
        now_us = self._clock.now_us()
        self.hot.put(key, found, size, epoch=epoch, now_us=now_us, draw=0.0)
        return found

    def _reply(
        self, found: _Found, request: HttpRequest, now_us: int, ends_us: int = 0
    ) -> HttpReply:
        image, settings = found.image, self.settings
        fresh_s = max(0, min(int(settings.max_age_s), (image.fresh_us - now_us) // _SECOND_US))
        left_s = max(0, (ends_us - now_us) // _SECOND_US) if ends_us else None
        caching = cache_control(image.directives, fresh_s, int(settings.stale_s), left_s)
        return image_reply(image, request, caching, negotiated=found.negotiated)

    def _hot_key(self, accept: str, spec: str, url: str) -> str:
        """The same for all who get the same bytes: browsers say the same in many ways."""
        return f"{best_format(accept, avif=self.settings.avif)}\n{spec}\n{url}"

    def _hot_reply(self, found: _Found, request: HttpRequest, now_us: int) -> HttpReply:
        """The whole image, with a head that is made once a second."""
        if found.reply is None or not 0 < found.reply_until_us - now_us <= _SECOND_US:
            found.reply_until_us = now_us + _SECOND_US
            # Of its age at the end of that second: nobody is told to keep it too long.
            found.reply = prepared(self._reply(found, request, found.reply_until_us))
        return found.reply

    def _is_good(self, found: _Found, now_us: int) -> bool:
        """Whether its URL need not be asked, and was not found changed since."""
        return now_us < found.image.fresh_us and self._pipeline.changes[found.slot] == found.change

    def _check_signature(
        self, request: HttpRequest, spec: str, url: str
    ) -> tuple[HttpReply | None, int]:
        """The refusal of a URL that is not signed, and when a signed one ends."""
        keys = self.settings.sign_key
        if not keys and not request.query:
            return None, 0
        query = query_of(request, ("sig", "expires"))
        if not keys:
            return None, 0
        expires = whole_of("expires", query.get("expires", "0"), 0, SECONDS_MAX)
        now_us = self._clock.now_us()
        why = refuse_signature(keys, spec, url, expires, query.get("sig", ""), now_us)
        return (self._refuse(why) if why else None), expires * _SECOND_US

    def _refuse(self, why: str) -> HttpReply:
        self.unsigned += 1
        return problem(403, "Forbidden", why)

    async def _upload(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        if not body:
            raise BadValue("body", "nothing", "send the bytes of an image")
        owner = self._owner(request, by)
        upload = await self._pipeline.upload(body, self._request(request, by, "upload"), owner)
        return json_reply({"id": upload.id, "bytes": upload.size, "known": upload.known})

    def _prefetch(self, request: HttpRequest, by: Identity, body: bytes) -> HttpReply:
        sent = fields_of(parse_json(body), "", {"images": "images"})
        listed = sent.get("images", [])
        images = list_of(listed, "images", PREFETCH_MAX, "the bound of a prefetch")
        if not images:
            raise BadValue("images", images, "give one at least")
        accept = request.header(ACCEPT).decode("latin-1")
        owner = self._owner(request, by)
        wanted: list[_Wanted] = []
        for number, one in enumerate(images):
            where = f"images[{number}]"
            found = fields_of(one, where, {"url": "url", "spec": "spec"})
            url = text_of(found.get("url"), at(where, "url"), URL_CHARS_MAX)
            spec = text_of(found.get("spec"), at(where, "spec"), URL_CHARS_MAX)
            read_spec(spec, self.settings, accept)
            wanted.append(_Wanted(spec, url, accept, "", owner))
        return HttpReply(200, b"", _LINES, pieces=self._make_all(wanted, by))

    async def _make_all(
        self, wanted: Sequence[_Wanted], by: Identity
    ) -> AsyncGenerator[bytes, None]:
        """A line for each image, in the order in which they end; who leaves ends them all."""
        ended: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        left = iter(wanted)

        async def work() -> None:
            for one in left:
                await ended.put(await self._make(one, by))

        count = min(len(wanted), PREFETCH_AT_ONCE)
        tasks = [asyncio.create_task(work()) for _ in range(count)]
        try:
            for done in range(1, len(wanted) + 1):
                line = await ended.get()
                yield json_bytes({"done": done, "of": len(wanted), **line})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, one: _Wanted, by: Identity) -> dict[str, object]:
        line: dict[str, object] = {"url": one.url, "spec": one.spec}

        async def make() -> tuple[Image, str]:
            request = Request(one.url, caller=by.name, criticality=Criticality.BULK)
            request.deadline_us = self._clock.now_us() + int(self.settings.timeout_s * 1e6)
            image = (await self._ask(one, request)).image
            return image, await self._pipeline.placeholder(image, request)

        try:
            image, placeholder = await try_in_bulk(make)
        except NoImageError as error:
            return {**line, "failed": error.kind, "detail": error.detail}
        except SluicegateError as error:
            return {**line, "failed": "refused", "detail": str(error)}
        except Exception:
            _log.exception("prefetch of %s", one.url)
            return {**line, "failed": "error", "detail": "the service failed; its log says why"}
        made: dict[str, object] = {"bytes": len(image.data), "type": image.type}
        if placeholder:
            made["placeholder"] = f"data:image/webp;base64,{placeholder}"
        return {**line, **made}

    async def _show_near(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        url = query_of(request, ("url",)).get("url", "")
        if not url:
            raise BadValue("url", url, "give the URL of an image, or the id of an upload")
        looks = self._pipeline.looks
        record = await self._pipeline.maps.url(normal_url(url))
        look = None
        if looks is not None and record is not None and record.content:
            look = await looks.look_of(record.content)
        if looks is None or record is None or look is None:
            return problem(404, "Not Found", "it is not known, or was not compared yet (--near)")
        near = await looks.near(record.content, look, looks.distance)
        return json_reply(
            {
                "id": record.content,
                "shares_with": look.same_as,
                "near": [
                    {"id": one.digest, "url": one.look.url, "bits": one.distance} for one in near
                ],
            }
        )

    async def _show_gallery(self, request: HttpRequest, _by: Identity, _body: bytes) -> HttpReply:
        return HttpReply(200, (await self._gallery()).encode(), _HTML)

    def _is_named(self, by: Identity) -> bool:
        """Whether a caller has authenticated, or need not."""
        return self.settings.insecure or by not in (NOBODY, self.access.anonymous)

    def _owner(self, request: HttpRequest, by: Identity) -> str:
        """The owner that a caller names: itself, or anyone for an operator."""
        named = request.header(OWNER).decode("latin-1")
        if not named:
            return ""
        if not self._is_named(by):
            raise Forbidden(by.name, "x-image-owner, which needs an authenticated caller")
        # An image stays while one of its owners is left: callers must not add other owners to it.
        if named != by.name and not self.settings.insecure and not by.may(Grant.OPERATE):
            raise Forbidden(by.name, Grant.OPERATE.value)
        return check_owner("x-image-owner", named)

    def _request(self, request: HttpRequest, by: Identity, key: str) -> Request:
        """What the policies judge by: a class no higher than the caller may claim."""
        claims = [value for name, value in request.headers if name == CRITICALITY]
        claimed = criticality_of(claims)
        if claimed is None:
            claimed = DEFAULT_CRITICALITY if by.criticality is None else by.criticality
        highest = DEFAULT_CRITICALITY if by.highest is None else by.highest
        now_us = self._clock.now_us()
        return Request(
            key,
            caller=by.name,
            criticality=Criticality(max(claimed, highest)),
            arrived_us=now_us,
            deadline_us=now_us + int(self.settings.timeout_s * 1e6),
        )
