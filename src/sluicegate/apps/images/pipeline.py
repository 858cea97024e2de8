"""Pipeline: URL and specification in, image out; each content stored once, each variant made once.

    URL seen, and checked lately      -> content
    else ask the origin               -> unchanged, or bytes: digest, store, remember
    variant seen                      -> its bytes, or the failure that was remembered
    else process                      -> store, remember
    or a failure                      -> remember, for as long as its kind says (`failures.py`)

Requests for a URL or a variant that is already being fetched or made wait for it
(`policies/cache/coalesce.py`). While an origin does not answer, its stored images are still served.
Damaged data is fetched or made again.

    check    when the lifetime that the origin gave is over (`recheck_s` to `fresh_max_s`; `fresh_s`
             if it gave none) the image is served for `stale_s` more, and one check runs behind the
             answer. A request waits for the check if the origin forbids stale answers, or its
             caller knows of a newer Last-Modified
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, Protocol, TypeVar, final

from sluicegate.apps.images.contents import Content, Contents
from sluicegate.apps.images.failures import (
    OF_BOUNDS,
    OF_ORIGINAL,
    FailureLifetimes,
    NoImageError,
    kind_of,
    lifetime_us,
)
from sluicegate.apps.images.looks import Looks
from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.origin import Download, Validators, check_url
from sluicegate.apps.images.owners import UPLOAD, owners_of, with_owner
from sluicegate.apps.images.records import UrlRecord, VariantRecord
from sluicegate.apps.images.units import PixelUnits, QuotaBudgets
from sluicegate.apps.images.work_behind import WorkBehind
from sluicegate.command_line.text import clip
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.image import (
    ImageErrorKind,
    ImageFailure,
    ImageInfo,
    ImageProcessor,
    Processed,
)
from sluicegate.contracts.image_spec import PLACEHOLDER, ImageSpec, parse_spec
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, CoalesceStats
from sluicegate.policies.images.cache_control import UNSAID, must_check
from sluicegate.stores.images.formats import HEAD_BYTES, SOURCE_FORMATS, sniff_image

_log: Final = logging.getLogger("sluicegate.images")
ACCEPTED: Final = ", ".join(one.name for one in SOURCE_FORMATS)
BULK_TRIES: Final = 8
BULK_WAIT_US: Final = 100_000  # before the second; then twice as long each time
BULK_WAIT_US_MAX: Final = 5_000_000
BEHIND_MAX: Final = 1_000  # checks behind answers; beyond that, the next request begins one
BEHIND_US: Final = 60_000_000  # for one of them, the wait for a slot included
CHANGE_SLOTS: Final = 4_096
DIGEST_CHARS: Final = 64
BLOCKED_US: Final = 60_000_000  # that others may keep the answer that an image is blocked
VERDICT: Final = "original"  # instead of a specification: what is wrong with the original itself
T = TypeVar("T")
_PLACEHOLDER_SPEC: Final = parse_spec(PLACEHOLDER)
_MENDED_MAX: Final = 2  # times that one request mends what was damaged


class Downloads(Protocol):
    """What brings images: `Origin`."""

    async def fetch(
        self, url: str, known: Validators | None = None, request: Request | None = None
    ) -> Download:
        """Download, or learn that nothing has changed."""
        ...

    def requeue(self, request: Request, now_us: int) -> None:
        """Move a waiting download to the class that its request has now."""
        ...


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """When origins are asked again, and what is remembered."""

    fresh_s: float = 3_600.0
    fresh_max_s: float = 86_400.0
    stale_s: float = 86_400.0
    recheck_s: float = 1.0
    waiters_max: int = 20_000
    near: str = "off"  # what is done with originals that look alike: "report", or "share" variants
    near_distance: int = 4
    lifetimes: FailureLifetimes = field(default_factory=FailureLifetimes)


class Image(NamedTuple):
    """A variant; its digest is its tag. It may be served until `fresh_us` without asking again."""

    data: bytes
    type: str
    digest: str
    width: int
    height: int
    last_modified: str
    fresh_us: int
    took_us: int  # to process it, once
    original: str
    spec: str
    frames: int = 1
    pages: int = 1  # frames or pages of the original
    made: bool = False  # just now
    owners: tuple[str, ...] = ()
    directives: str = ""  # of the origin's Cache-Control


class _Variant(NamedTuple):
    """What is known of a variant, and its bytes if they were made just now."""

    record: VariantRecord
    data: bytes | None = None


class ImageUpload(NamedTuple):
    """An upload: its id, and whether the same bytes were there before."""

    id: str
    size: int
    known: bool


def _no_failures() -> dict[str, int]:
    return {kind.value: 0 for kind in ImageErrorKind}


@dataclass
class PipelineCounts:
    """What was done, and what was saved."""

    requests: int = 0
    fresh: int = 0  # URLs that needed no check
    downloads: int = 0
    uploads: int = 0
    unchanged: int = 0
    changed: int = 0
    duplicates: int = 0  # downloads and uploads of bytes that were there
    variant_hits: int = 0
    processed: int = 0
    failures_cached: int = 0  # answers from a remembered failure
    failures: int = 0
    stale: int = 0  # served although due, or since the origin could not be asked
    mended: int = 0
    process_us: int = 0
    saved_us: int = 0  # of processing
    saved_bytes: int = 0  # not stored twice
    failed: dict[str, int] = field(default_factory=_no_failures)

    def add_failure(self, kind: str) -> None:
        """Count a failure that was found."""
        self.failures += 1
        self.failed[kind] += 1


async def try_in_bulk(make: Callable[[], Awaitable[T]]) -> T:
    """Make what nobody waits for: whoever has no room for it now is asked again, a few times."""
    wait_us = BULK_WAIT_US
    for _ in range(BULK_TRIES - 1):
        try:
            return await make()
        except Refused as refused:
            hint_us = refused.decision.retry_after_us
            await asyncio.sleep(min(max(wait_us, hint_us), BULK_WAIT_US_MAX) / 1e6)
            wait_us *= 2
    return await make()


@final
class ImagePipeline:
    """The flow. Made within the loop that uses it."""

    def __init__(
        self,
        downloads: Downloads,
        maps: ImageMaps,
        contents: Contents,
        processor: ImageProcessor,
        queue: Gate,
        clock: Clock,
        settings: PipelineSettings | None = None,
        units: PixelUnits | None = None,
    ) -> None:
        self.settings = settings or PipelineSettings()
        self.units = units or PixelUnits(QuotaBudgets(0, 1, {}))
        self.maps = maps
        self.contents = contents
        self.processor = processor
        self.queue = queue
        self.counts = PipelineCounts()
        self.refused: Counter[tuple[str, str]] = Counter()  # by the queue: class and reason
        # How often a URL of each slot was found to have other content than before: what is made of
        # a URL and kept in memory is good while this has not moved.
        self.changes = [0] * CHANGE_SLOTS
        self.bounds_since_us = 0  # what was refused before was refused by other bounds
        self._downloads = downloads
        self._clock = clock
        # Downloads and processing have deadlines of their own: no second flight beside a slow one.
        shared = CoalesceSettings(waiters_max=self.settings.waiters_max, overdue_us=0)
        self._urls: Coalesce[UrlRecord] = Coalesce(shared, downloads.requeue)
        self._variants: Coalesce[_Variant] = Coalesce(shared, queue.requeue)
        self._blobs: Coalesce[bytes | None] = Coalesce(shared)
        self._firsts: Coalesce[str] = Coalesce(shared, queue.requeue)
        self.behind = WorkBehind(BEHIND_MAX)
        near = self.settings.near
        self.looks: Looks | None = None
        if near != "off":
            distance = self.settings.near_distance
            self.looks = Looks(
                maps, contents, clock, self._describe, distance=distance, shares=near == "share"
            )

    async def image(
        self, url: str, spec: ImageSpec, request: Request, modified: str = "", owner: str = ""
    ) -> Image:
        """Return the variant of the image at this URL, or of an upload, stored for `owner`.

        `modified` is a Last-Modified that the caller knows of. Raise `NoImageError` where there is
        none, and `Refused` where there is no room to find out.
        """
        self.counts.requests += 1
        force = False
        for _ in range(_MENDED_MAX + 1):
            record = await self._resolve(url, request, modified, force, owner)
            try:
                return await self._variant(record, spec, request)
            except _DamagedError:
                self.counts.mended += 1
                force = True
        raise Unavailable("the blob store", "what is written to it comes back damaged")

    async def placeholder(self, image: Image, request: Request) -> str:
        """What shows a variant until it is there: a WebP of some hundred bytes, in base64.

        Made of the variant, when it is asked for first, and kept with it. Empty if there is none.
        """
        record = await self.maps.variant(image.original, self.processor.engine, image.spec)
        if record is not None and record.placeholder:
            return record.placeholder
        try:
            made = await self._at_work(
                image.digest, request, lambda data: self.processor.process(data, _PLACEHOLDER_SPEC)
            )
        except (ImageFailure, _DamagedError):
            return ""
        text = b64encode(made.data).decode()
        if record is not None and record.content == image.digest:
            kept = record._replace(placeholder=text)
            await self.maps.swap_variant(image.original, record, kept)
        return text

    async def close(self) -> None:
        """End checks behind answers, and looks."""
        await self.behind.close()
        if self.looks is not None:
            await self.looks.close()

    def sharing(self) -> dict[str, CoalesceStats]:
        """Who waits for a download or a variant that another one asked for."""
        return {"urls": self._urls.stats(), "variants": self._variants.stats()}

    async def upload(self, data: bytes, request: Request, owner: str = "") -> ImageUpload:
        """Keep an image that has no URL; durable when it returns. What is none is a `BadValue`."""
        if sniff_image(data[:HEAD_BYTES]) is None:
            raise BadValue("body", f"{len(data):,} bytes", f"send an image: {ACCEPTED}")
        self.counts.uploads += 1
        now_us = self._clock.now_us()

        async def put(content: Content) -> None:
            name = UPLOAD + content.digest
            if await self.maps.is_blocked(name, content.digest):
                raise self._blocked()
            before = await self.maps.url(name) or UrlRecord(name)
            record = UrlRecord(
                name, content.digest, checked_us=now_us, changed_us=now_us, owners=before.owners
            )
            await self.maps.put_url(with_owner(record, owner))

        content = await self.contents.refer(data, put)
        self.contents.keep(content.digest, data)
        if content.known and await self.contents.read(*content[:3]) is None:
            content = await self.contents.refer(data, put, again=True)
        if content.known:
            self.counts.duplicates += 1
            self.counts.saved_bytes += len(data)
        return ImageUpload(content.digest, content.size, content.known)

    # URLs.

    async def _resolve(
        self, url: str, request: Request, modified: str, force: bool, owner: str
    ) -> UrlRecord:
        """The record of a URL, checked lately enough, that has a content."""
        url = normal_url(url)
        record = await self.maps.url(url)
        now_us = self._clock.now_us()
        content = "" if record is None else record.content
        if url.startswith(UPLOAD):
            content = url.removeprefix(UPLOAD)
        if await self.maps.is_blocked(url, content):
            raise self._blocked()
        stale = False
        if record is not None and not force and self._is_fresh(record, now_us, modified):
            self.counts.fresh += 1
        elif record is not None and not force and self._may_show(record, now_us, modified):
            stale = True
            self._check_behind(url, request, now_us)
        else:
            if url.startswith(UPLOAD):
                if record is not None:
                    raise Unavailable("the blob store", "this upload is missing or damaged")
                raise NoImageError("not_found", "there is no such upload", now_us)
            # Who found it damaged does not join a check that would find it unchanged.
            key = f"again {url}" if force else url
            record = await self._urls.share(
                key, request, self._clock, lambda flight: self._check(url, flight.request, force)
            )
        named = with_owner(record, owner)
        if named is not record and not record.failure:
            record = named
            await self.maps.put_url(record)
        if not record.content:
            self.counts.failures_cached += 1
            raise NoImageError(record.failure, record.detail, record.until_us)
        self.counts.stale += stale or bool(record.failure)
        return record

    def _may_show(self, record: UrlRecord, now_us: int, modified: str) -> bool:
        """Whether what is due for a check is shown at once, and checked behind the answer."""
        if not record.content or record.url.startswith(UPLOAD):
            return False
        if modified and is_newer(modified, record):
            return False
        if record.failure:  # its origin did not answer the last time
            return True
        if must_check(record.directives):
            return False
        due_us = record.checked_us + self._lifetime_us(record)
        return now_us - due_us < self.settings.stale_s * 1e6

    def _check_behind(self, url: str, request: Request, now_us: int) -> None:
        """Ask the origin while the caller has its answer; one check for each URL."""
        if self._urls.leader(url) is not None:
            return
        by = Request(url, caller=request.caller, criticality=Criticality.BEST_EFFORT)
        by.deadline_us = now_us + BEHIND_US
        self.behind.start(
            self._urls.share(
                url, by, self._clock, lambda flight: self._check(url, flight.request, False)
            )
        )

    def _lifetime_us(self, record: UrlRecord) -> int:
        """For how long a check is good."""
        if record.lifetime_s == UNSAID:
            return int(self.settings.fresh_s * 1e6)
        return int(max(record.lifetime_s, self.settings.recheck_s) * 1e6)

    def _is_fresh(self, record: UrlRecord, now_us: int, modified: str) -> bool:
        if record.failure in OF_BOUNDS and record.checked_us < self.bounds_since_us:
            return False
        if record.failure:
            return now_us < record.until_us
        if record.url.startswith(UPLOAD):
            return True
        age_us = now_us - record.checked_us
        if modified and is_newer(modified, record) and age_us >= self.settings.recheck_s * 1e6:
            return False
        return age_us < self._lifetime_us(record)

    async def _check(self, url: str, request: Request, force: bool) -> UrlRecord:
        """Ask the origin, and remember what it says."""
        before = await self.maps.url(url)
        known = None
        if before is not None and before.content and not force:
            known = Validators(before.etag, before.last_modified)
            if known == Validators():
                known = None
        try:
            download = await self._downloads.fetch(url, known, request)
        except ImageFailure as error:
            record = self._failed(url, before, error)
        except Refused:
            if before is None or not before.content or force:
                raise
            return before._replace(failure="refused")  # served on, and not remembered
        else:
            try:
                record = await self._downloaded(url, before, download, force)
            finally:
                download.held.free()
        if before is not None:
            record = record._replace(owners=before.owners)
        if record.content and await self.maps.is_blocked(url, record.content):
            why = ImageFailure(ImageErrorKind.BLOCKED, "it was taken down")
            record = self._failed(url, None, why)
        await self.maps.put_url(record)
        if record.content and not await self.contents.take_up(record.content):
            # It was collected before this entry pointed to it.
            if not force:
                return await self._check(url, request, True)
            record = await self._without_content(record)
        if before is not None and before.content != record.content:
            self.changes[slot_of(url)] += 1
        return record

    async def _without_content(self, record: UrlRecord) -> UrlRecord:
        """Store and return the failure alone; raise if there is none."""
        if not record.failure:
            raise Unavailable("the blob store", "its blobs are collected as soon as written")
        record = record._replace(content="")
        await self.maps.put_url(record)
        return record

    async def _downloaded(
        self, url: str, before: UrlRecord | None, download: Download, force: bool
    ) -> UrlRecord:
        now_us = self._clock.now_us()
        validators, caching = download.validators, download.caching
        if caching is not None:
            most_s = int(self.settings.fresh_max_s)
            caching = caching._replace(lifetime_s=min(caching.lifetime_s, most_s))
        if download.body is None:
            assert before is not None
            self.counts.unchanged += 1
            record = before if caching is None else before._replace(**caching._asdict())
            return record._replace(
                **validators._asdict(), checked_us=now_us, failure="", detail="", until_us=0
            )
        self.counts.downloads += 1
        if sniff_image(download.body[:HEAD_BYTES]) is None:  # told before it is stored
            detail = f"it is none of {ACCEPTED}"
            return self._failed(url, None, ImageFailure(ImageErrorKind.WRONG_TYPE, detail))
        content = await self.contents.store(download.body, again=force)
        self.contents.keep(content.digest, download.body)
        changed_us = now_us
        if before is not None and before.content == content.digest:
            changed_us = before.changed_us
        elif before is not None and before.content:
            self.counts.changed += 1
        if content.known and not force:
            self.counts.duplicates += 1
            self.counts.saved_bytes += content.size
        record = UrlRecord(url, content.digest, *validators, now_us, changed_us)
        return record if caching is None else record._replace(**caching._asdict())

    def _blocked(self) -> NoImageError:
        until_us = self._clock.now_us() + BLOCKED_US
        return NoImageError(ImageErrorKind.BLOCKED, "it was taken down", until_us)

    def forget(self, url: str) -> None:
        """Drop what is kept in memory of this URL."""
        self.changes[slot_of(url)] += 1

    def forget_all(self) -> None:
        """Drop what is kept in memory of every URL."""
        self.changes = [one + 1 for one in self.changes]

    def _failed(self, url: str, before: UrlRecord | None, error: ImageFailure) -> UrlRecord:
        """A failure that passes leaves what there was; one that stays replaces it."""
        self.counts.add_failure(error.kind)
        now_us = self._clock.now_us()
        record = before or UrlRecord(url)
        if not kind_of(error.kind).passing:
            record = UrlRecord(url, checked_us=now_us, changed_us=record.changed_us)
        until = now_us + lifetime_us(error.kind, self.settings.lifetimes, of_origin=True)
        return record._replace(failure=error.kind, detail=error.detail, until_us=until)

    # Variants.

    async def _variant(self, url: UrlRecord, spec: ImageSpec, request: Request) -> Image:
        original, text = url.content, spec.canonical()
        if self.looks is not None and self.looks.shares:
            original = await self._shared(url, text, request)
        record = await self._look_up(original, text)
        data: bytes | None = None
        key = f"{original} {text}"
        made = record is None
        if record is None:
            if self.looks is not None and not self.looks.shares:
                self.looks.note(original, url.url)
            record, data = await self._variants.share(
                key, request, self._clock, lambda flight: self._make(original, spec, flight.request)
            )
        elif not record.failure:
            self.counts.variant_hits += 1
            self.counts.saved_us += record.took_us
        fresh_us = self._fresh_us(url)
        if record.failure:
            self.counts.failures_cached += 1
            # It is of what the URL has now; nobody is to keep it when that may be another thing.
            until_us = min(record.until_us, fresh_us)
            raise NoImageError(record.failure, record.detail, until_us)
        if data is None:
            found = record
            data = await self._blobs.share(
                found.content,
                request,
                self._clock,
                lambda _: self.contents.read(found.content, found.generation, found.size),
            )
        if data is None:
            record, _ = await self._variants.share(
                key,
                request,
                self._clock,
                lambda flight: self._make(original, spec, flight.request, again=True),
            )
            self.counts.mended += 1
            data = await self.contents.read(record.content, record.generation, record.size)
            if data is None or record.failure:
                raise Unavailable("the blob store", "what is written to it comes back damaged")
        return Image(
            data,
            record.type,
            record.content,
            record.width,
            record.height,
            url.last_modified,
            fresh_us,
            record.took_us,
            original,
            text,
            record.frames,
            record.pages,
            made,
            owners_of(url),
            url.directives,
        )

    def _fresh_us(self, url: UrlRecord) -> int:
        """Until when it is as it is without being asked again."""
        since_us = self._clock.now_us() if url.url.startswith(UPLOAD) else url.checked_us
        return max(since_us + self._lifetime_us(url), url.until_us)

    async def _look_up(self, original: str, text: str) -> VariantRecord | None:
        """The variant, or the failure of it or of its original that still holds; else None."""
        for spec in (text, VERDICT):
            record = await self.maps.variant(original, self.processor.engine, spec)
            if record is not None and self._holds(record):
                return record
        return None

    def _holds(self, record: VariantRecord) -> bool:
        """Whether it has a variant, or a failure that is not over yet."""
        if not record.failure:
            return True
        if record.failure in OF_BOUNDS and record.at_us < self.bounds_since_us:
            return False
        return self._clock.now_us() < record.until_us

    async def _shared(self, url: UrlRecord, text: str, request: Request) -> str:
        """The original whose variants are served: this URL's, or one that it looks like."""
        looks, own = self.looks, url.content
        assert looks is not None
        look = await looks.look_of(own)
        first = own if look is None else look.same_as or own
        if await self._look_up(first, text) is not None:
            looks.counts.shared += first != own
            return first
        if look is None:
            try:
                first = await self._firsts.share(
                    own,
                    request,
                    self._clock,
                    lambda flight: looks.first_of(own, url.url, flight.request),
                )
            except ImageFailure:  # the same is found by processing, which remembers it
                return own
        if first != own and not await looks.is_there(first):
            await looks.stand_alone(own)
            return own
        looks.counts.shared += first != own
        return first

    async def _describe(self, original: str, request: Request) -> ImageInfo:
        return await self._at_work(original, request, self.processor.describe)

    async def _make(
        self, original: str, spec: ImageSpec, request: Request, *, again: bool = False
    ) -> _Variant:
        """Process, and remember what came of it."""
        engine, text = self.processor.engine, spec.canonical()
        # Another request may have made it meanwhile.
        record = None if again else await self._look_up(original, text)
        if record is not None:
            return _Variant(record)
        data: bytes | None = None
        try:
            made, took_us = await self._process(original, spec, request)
        except ImageFailure as error:
            self.counts.add_failure(error.kind)
            if kind_of(error.kind).passing:  # it had a worker ended
                _log.warning("%s of %s: %s", text, clip(request.key), error)
            now_us = self._clock.now_us()
            until = now_us + lifetime_us(error.kind, self.settings.lifetimes, of_origin=False)
            judged = VERDICT if error.kind in OF_ORIGINAL else text
            record = VariantRecord(
                judged, engine, at_us=now_us, failure=error.kind, detail=error.detail,
                until_us=until,
            )  # fmt: skip
            await self.maps.put_variant(original, record)
        else:
            data = made.data
            plain = VariantRecord(
                text, engine, type=made.media_type, width=made.width, height=made.height,
                took_us=took_us, at_us=self._clock.now_us(),
                frames=made.frames, pages=made.pages,
            )  # fmt: skip

            def of(content: Content) -> VariantRecord:
                digest, generation, size, _ = content
                return plain._replace(content=digest, generation=generation, size=size)

            record = of(
                await self.contents.refer(
                    data, lambda content: self.maps.put_variant(original, of(content)), again=again
                )
            )
        return _Variant(record, data)

    async def _process(
        self, original: str, spec: ImageSpec, request: Request
    ) -> tuple[Processed, int]:
        """Process, within the caller's quota; also return how long that took."""
        stored = (await self.maps.content(original)).record
        size = 0 if stored is None else stored.size
        charged, units = self.units.admit(request, size, spec, self._clock.now_us())
        if isinstance(units, Decision):
            raise Refused(units)

        async def process(data: bytes) -> tuple[Processed, int]:
            begun_us = self._clock.now_us()
            try:
                made = await self.processor.process(data, spec)
            finally:
                took_us = self._clock.now_us() - begun_us
                self.counts.processed += 1
                self.counts.process_us += took_us
            self.units.measure(charged, made, took_us)
            return made, took_us

        spent, outcome = False, Outcome.IGNORE
        try:
            found = await self._at_work(original, request, process)
            spent, outcome = True, Outcome.SUCCESS
        except ImageFailure:
            spent, outcome = True, Outcome.DROPPED  # it cost what was expected, more or less
            raise
        finally:
            units.end(outcome, self._clock.now_us(), spent=spent)
        return found

    async def _at_work(
        self, original: str, request: Request, work: Callable[[bytes], Awaitable[T]]
    ) -> T:
        """Work on an original once the queue before the workers has a place.

        The original is read then and not before, so what waits costs no memory.
        """
        permit = await self.queue.admit(request, self._clock)
        if isinstance(permit, Decision):
            assert permit.reason is not None
            self.refused[request.criticality.name, permit.reason.name] += 1
            raise Refused(permit)
        outcome = Outcome.IGNORE
        try:
            data = await self.contents.original(original)
            if data is None:
                raise _DamagedError(original)
            made = await work(data)
            outcome = Outcome.SUCCESS
        except ImageFailure as error:
            outcome = Outcome.DROPPED if kind_of(error.kind).passing else Outcome.SUCCESS
            raise
        finally:
            permit.end(outcome, self._clock.now_us())
        return made


class _DamagedError(Exception):
    """An original that is not what was stored."""


def slot_of(url: str) -> int:
    """The slot of a URL; those that share one cost each other a look into the maps, no more."""
    return hash(normal_url(url)) % CHANGE_SLOTS


def normal_url(text: str) -> str:
    """A URL as it is a key; an upload's id becomes one."""
    name = text.removeprefix(UPLOAD)
    if len(name) == DIGEST_CHARS and all(one in "0123456789abcdef" for one in name):
        return UPLOAD + name
    if text.startswith(UPLOAD):
        raise BadValue("upload", name, f"give the id of an upload: {DIGEST_CHARS} of 0-9 a-f")
    return check_url(text)


def is_newer(modified: str, record: UrlRecord) -> bool:
    """Whether a caller's Last-Modified is later than all that is known."""
    wanted = _seconds(modified)
    if wanted is None:
        raise BadValue("last-modified", modified, "write it as an HTTP date")
    known = _seconds(record.last_modified)
    return wanted > (record.checked_us / 1e6 if known is None else known)


def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
