"""App: the image service, its parts in the order in which they need one another.

Nothing here decides or speaks a protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from html import escape
from typing import ClassVar, Final, final

from sluicegate.apps.images import processors
from sluicegate.apps.images.collect import Collected
from sluicegate.apps.images.durations import RequestDurations
from sluicegate.apps.images.handler import SCHEMAS, ImagesHandler
from sluicegate.apps.images.looks import LookCounts
from sluicegate.apps.images.owners import UPLOAD
from sluicegate.apps.images.parts import ImageParts
from sluicegate.apps.images.report import (
    NearPairs,
    Report,
    StoredVariant,
    make_pairs,
    make_report,
    report_page,
)
from sluicegate.apps.images.settings import GALLERY_EVERY_US, WAITERS_MAX, ImagesSettings
from sluicegate.apps.images.signatures import path_of, signed_path
from sluicegate.apps.images.takedown import Takedown
from sluicegate.command_line.page import escape_name
from sluicegate.command_line.text import counted, duration, size
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.policies.images.negotiation import AUTO
from sluicegate.service.app import App, Site
from sluicegate.service.engine_health import EngineHealthWatch
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part
from sluicegate.telemetry.prometheus import (
    MetricFamily,
    MetricSample,
    counter,
    counters,
    gauge,
    histograms,
)

SAMPLES: Final = 60
LOOKS_SEEN: Final = 10_000  # originals that the gallery compares; `report --alike` does all
EPOCH_EVERY_S: Final = 1.0  # between two looks at whether something was taken down
GALLERY_WAIT_S: Final = 5.0  # for the first count
TILE_SPEC: Final = "w=240,h=240,fit=inside"
_US: Final = 1_000_000
_log: Final = logging.getLogger("sluicegate.images")
_MEANINGS: Final = {
    "downloads": "Originals downloaded.",
    "uploads": "Originals sent.",
    "unchanged": "Checks that found an original unchanged.",
    "changed": "Checks that found another original.",
    "duplicates": "Downloads and uploads of bytes that were there.",
    "variant_hits": "Requests whose variant was there.",
    "processed": "Images processed.",
    "failures_cached": "Requests answered by a remembered failure.",
    "stale": "Requests served an original that was due for a check, or not to be checked.",
    "mended": "Damaged blobs that were made again.",
}


@final
class ImagesApp(App[ImagesSettings]):
    """Images: stored once, processed once, failures remembered."""

    name: ClassVar[str] = "images"

    def __init__(self, settings: ImagesSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self.parts = ImageParts(settings, processors.open_processor(settings), self.clock)
        self.maps_health = EngineHealthWatch(self.parts.engine, self.clock)
        self.collected: Collected | None = None
        self.durations = RequestDurations()
        pipeline = self.parts.pipeline
        self.takedown = Takedown(self.parts.maps, self.clock, pipeline.forget)
        self._handlers: list[ImagesHandler] = []
        self._report: Report | None = None
        self._near: NearPairs | None = None
        self._report_us = 0
        self._counting: asyncio.Task[None] | None = None

    # Life.

    async def start(self) -> None:
        """Start the workers, and collection."""
        await self.parts.processor.start()
        settings = self.settings
        origins = settings.origin_networks, settings.origin_hosts, settings.origin_ports
        bounds = " ".join(map(str, (*processors.limits_of(settings), *origins)))
        self.parts.pipeline.bounds_since_us = await self.parts.maps.bounds_since_us(
            bounds, self.clock.now_us()
        )
        self.background.start("takedowns", self._watch_takedowns)
        if self.settings.collect_every_s:
            self.background.start("collection", self._collect)

    async def close(self) -> None:
        """Close the parts."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)
        for handler in self._handlers:
            await handler.close()
        await self.parts.close()

    # Doors.

    def http(self, site: Site) -> HttpHandler:
        """Images, uploads, prefetch, the gallery."""
        handler = ImagesHandler(
            self.parts.pipeline,
            self.settings,
            self.clock,
            site.access,
            site.hosts,
            self._gallery,
            self.durations,
            self.takedown,
        )
        self._handlers.append(handler)
        return self.handler_of(site, handler.routes(), SCHEMAS, handler)

    def http_settings(self) -> HttpSettings:
        """Uploads are large, and many may wait for one image."""
        return replace(
            super().http_settings(),
            requests_max=WAITERS_MAX,
            bodies_bytes_max=self.settings.uploads_bytes_max,
            answer_timeout_s=self.settings.timeout_s + 5,
            body_timeout_s=self.settings.timeout_s,
        )

    # What there is to see.

    def summary(self) -> str:
        """Where it keeps what it has, and what processes."""
        settings = self.settings
        return f"{settings.kv}, {settings.blobs}; {self.parts.processor.engine}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        return {
            "pipeline": lambda: self.parts.pipeline.counts,
            "sharing": self.parts.pipeline.sharing,
            "queue": self._queue,
            "origins": self.parts.origin.states,
            "hot": self._hot,
            "downloads": self._downloads,
            "looks": self._looks,
            "request_units": self._units,
            "workers": self.parts.processor.stats,
            "storage": self._storage,
            "collection": lambda: self.collected,
        }

    def not_ready(self) -> str:
        """Why it should get no traffic: it is draining, or its maps cannot be used."""
        return super().not_ready() or self.maps_health.not_ready()

    def not_alive(self) -> str:
        """Why only a restart can help: its maps have not recovered by themselves."""
        return self.maps_health.not_alive()

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        health = self.maps_health.look()
        yield gauge("sluicegate_images_maps_usable", "0: not now.", int(not health.unusable))
        yield counter("sluicegate_images_maps_damaged", "Reads that met damage.", health.damaged)
        counts = asdict(self.parts.pipeline.counts)
        for name, meaning in _MEANINGS.items():
            yield counter(f"sluicegate_images_{name}", meaning, counts[name])
        yield counters(
            "sluicegate_images_failures",
            "Failures found, by kind.",
            [
                MetricSample("_total", (("kind", kind),), count)
                for kind, count in self.parts.pipeline.counts.failed.items()
            ],
        )
        for name, meaning in (
            ("process", "Time of processing."),
            ("saved", "Time of processing that was not needed again."),
        ):
            seconds = counts[f"{name}_us"] / _US
            sample = [MetricSample("_total", (), seconds)]
            yield MetricFamily(
                f"sluicegate_images_{name}_seconds", "counter", "seconds", meaning, sample
            )
        yield counter(
            "sluicegate_images_saved_bytes", "Bytes not stored twice.", counts["saved_bytes"]
        )
        yield counter(
            "sluicegate_images_origin_bytes", "Bytes downloaded.", self.parts.origin.bytes
        )
        yield counters(
            "sluicegate_images_origin_failures",
            "Downloads that failed, by kind.",
            [
                MetricSample("_total", (("kind", kind),), count)
                for kind, count in self.parts.origin.failed.items()
            ],
        )
        yield histograms(
            "sluicegate_images_request_seconds",
            "How long requests for images took, by outcome.",
            self.durations.snapshot(),
            _US,
            "seconds",
        )
        looks = self._looks()
        if looks is not None:
            yield counters(
                "sluicegate_images_looks",
                "Comparisons of originals by appearance, by result.",
                [
                    MetricSample("_total", (("result", result),), count)
                    for result, count in asdict(looks).items()
                ],
            )
        room = self.parts.origin.room
        yield gauge("sluicegate_images_held_bytes", "Bytes that downloads hold.", room.used)
        yield counter(
            "sluicegate_images_room_refused", "Downloads refused for want of room.", room.refused
        )
        hot = self._hot()
        yield counter("sluicegate_images_hot", "Requests served from memory.", hot["hits"])
        yield counter(
            "sluicegate_images_fallbacks",
            "Requests of pages served another image, since theirs was not ready.",
            sum(handler.fallbacks for handler in self._handlers),
        )
        yield gauge("sluicegate_images_hot_bytes", "Bytes of variants in memory.", hot["bytes"])
        units = self.parts.pipeline.units
        stats = units.units.stats()
        yield counter(
            "sluicegate_images_pixels", "Pixels made, in decoded ones of a JPEG.", units.pixels
        )
        yield counter(
            "sluicegate_images_quota_refused", "Variants refused: a quota is spent.", stats.refused
        )
        workers = self.parts.processor.stats()
        yield gauge("sluicegate_images_workers", "Worker processes that live.", workers.alive)
        yield counter("sluicegate_images_replaced", "Worker processes replaced.", workers.replaced)
        yield counter(
            "sluicegate_images_workers_ended",
            "Worker processes that died of an image, or were ended for what it took.",
            workers.ended,
        )
        queue = self.parts.queue.stats()
        yield gauge("sluicegate_images_queued", "Images that wait for a worker.", queue.queued)
        yield counters(
            "sluicegate_images_refused",
            "Images refused by the queue before the workers, by class and reason.",
            [
                MetricSample("_total", (("priority", name), ("reason", reason)), count)
                for (name, reason), count in self.parts.pipeline.refused.items()
            ],
        )
        yield counter(
            "sluicegate_images_blobs_damaged",
            "Blobs found missing or damaged.",
            self.parts.contents.damaged,
        )

    # Inside.

    def _queue(self) -> dict[str, int]:
        """What the queue before the workers shows in `/v1/state`."""
        stats = self.parts.queue.stats()
        return {
            "places": self.settings.processes,
            "inflight": stats.inflight,
            "queued": stats.queued,
            "queued_bytes": stats.queued_bytes,
            "refused": stats.refused_full + stats.refused_timeout + stats.refused_deadline,
        }

    def _hot(self) -> dict[str, int]:
        return {
            "hits": sum(handler.hot_hits for handler in self._handlers),
            "images": sum(len(handler.hot) for handler in self._handlers),
            "bytes": sum(handler.hot.bytes_used for handler in self._handlers),
            "unsigned": sum(handler.unsigned for handler in self._handlers),
        }

    def _units(self) -> dict[str, object]:
        units = self.parts.pipeline.units
        stats = units.units.stats()
        return {"refused": stats.refused, "usage_ru": units.usage_ru()}

    def _looks(self) -> LookCounts | None:
        looks = self.parts.pipeline.looks
        return None if looks is None else looks.counts

    def _downloads(self) -> dict[str, int]:
        room = self.parts.origin.room
        return {
            "held_bytes": room.used,
            "held_bytes_most": room.used_max,
            "held_bytes_max": room.bytes_max,
            "wait_for_room": room.waiting,
            "wait_for_slot": self.parts.origin.slots.waiting,
            "refused": room.refused,
        }

    def _storage(self) -> dict[str, int]:
        contents = self.parts.contents
        return {
            "downloaded_bytes": self.parts.origin.bytes,
            "written": contents.written,
            "written_bytes": contents.bytes_written,
            "damaged": contents.damaged,
        }

    async def _gallery(self) -> str:
        """Return the page; its counts are at most `GALLERY_EVERY_US` old, or still being made."""
        counting = self._counting
        now_us = self.clock.now_us()
        old = self._report is None or now_us - self._report_us >= GALLERY_EVERY_US
        if counting is None and old:
            counting = self._counting = asyncio.create_task(self._count())
        if counting is not None and self._report is None:
            await asyncio.wait([counting], timeout=GALLERY_WAIT_S)
        report = self._report or Report()
        counts = self.parts.pipeline.counts
        done = (
            f"Since the start: {counted(self._hot()['hits'], 'request')} from memory, "
            f"{counted(counts.variant_hits, 'variant')} from the store, "
            f"{counted(counts.processed, 'image')} processed; "
            f"{duration(counts.saved_us)} of processing were not needed."
        )
        words = [done]
        if self._report is None:
            words.append("What is stored is being counted; look again in a while.")
        elif counting is not None and not counting.done():
            ago = duration(self.clock.now_us() - self._report_us)
            words.append(f"What is stored was counted {ago} ago, and is being counted again.")
        tiles = [
            self._tile(
                sample.name, counted(sample.variants, "variant"), sample.failure, sample.shown
            )
            for sample in report.samples
        ]
        return report_page(
            report, title="Images", tiles=tiles, words=words, near=self._near, tile=self._tile
        )

    async def _count(self) -> None:
        """Walk over all maps: one walk at a time, however many look."""
        try:
            looks = self.parts.pipeline.looks
            report = await make_report(self.parts.maps, samples=SAMPLES)
            if looks is not None:
                self._near = await make_pairs(looks, looks_max=LOOKS_SEEN)
            self._report = report
            self._report_us = self.clock.now_us()
        finally:
            self._counting = None

    def _tile(
        self, name: str, words: str, failure: str = "", variants: Sequence[StoredVariant] = ()
    ) -> str:
        source = name.removeprefix(UPLOAD)
        picture = f'<img src="{self._path(TILE_SPEC, source)}" alt="" loading="lazy">'
        if failure:
            picture = f'<span class="none">{escape(failure.replace("_", " "))}</span>'
        below = f"<span>{words}</span>"
        if variants:
            rows = "".join(
                f'<li><a href="{self._path(_as_made(one), source)}">{escape(one.spec)}</a> '
                f"{size(one.bytes)}</li>"
                for one in variants
            )
            below = f"<details><summary>{words}</summary><ul>{rows}</ul></details>"
        return f"<li>{picture}<span>{escape_name(source)}</span>{below}</li>"

    def _path(self, spec: str, source: str) -> str:
        keys = self.settings.sign_key
        return escape(signed_path(keys[0], spec, source) if keys else path_of(spec, source))

    async def _watch_takedowns(self) -> None:
        """Drop what is in memory when any process has removed something."""
        epoch = await self.parts.maps.epoch()
        while True:
            await asyncio.sleep(EPOCH_EVERY_S)
            with suppress(SluicegateError):  # the store is unreachable: read it the next time
                now = await self.parts.maps.epoch()
                if now != epoch:
                    epoch = now
                    self.parts.pipeline.forget_all()

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self.settings.collect_every_s)
            try:
                self.collected = await self.parts.collector().collect()
            except Unavailable as error:  # another process collects, or a store is away
                _log.warning("%s", error)


def _as_made(variant: StoredVariant) -> str:
    """The specification by which every browser gets what this one is."""
    spec = parse_spec(variant.spec)
    if spec.format == AUTO:
        spec = spec.with_format(variant.type.removeprefix("image/"))
    return spec.canonical()
