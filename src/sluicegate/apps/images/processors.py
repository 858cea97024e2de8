"""Processors: what makes pictures in this service, and how it reads what is asked of it."""

from __future__ import annotations

from typing import Protocol

from sluicegate.apps.images.settings import FRAMES_MAX, ImagesSettings
from sluicegate.contracts.image import ImageLimits, ImageProcessor
from sluicegate.contracts.image_spec import ImageSpec, parse_spec
from sluicegate.policies.images.negotiation import AUTO, negotiate
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.stores.images.workers import ImageWorkers, ImageWorkersStats


class StartableProcessor(ImageProcessor, Protocol):
    """A processor whose engine is known from its start on."""

    async def start(self) -> None:
        """Start what it needs."""
        ...

    def stats(self) -> ImageWorkersStats:
        """Return what there is to see of its processes."""
        ...


def open_processor(settings: ImagesSettings) -> StartableProcessor:
    """The engine that is installed, in worker processes that may be killed."""
    return ImageWorkers(
        ImageWorkerSettings(
            workers=settings.processes,
            # The queue that judges stands before; here wait successors of those who left.
            queue_max=settings.processes,
            job_us=int(settings.process_s * 1e6),
            memory_bytes_max=settings.process_bytes_max,
            limits=limits_of(settings),
        )
    )


def limits_of(settings: ImagesSettings) -> ImageLimits:
    """What is refused before it is decoded or made."""
    return ImageLimits(
        source_bytes_max=max(settings.origin_bytes_max, settings.message_bytes_max),
        source_pixels_max=settings.pixels_max,
        source_pages_max=FRAMES_MAX,
        result_side_max=settings.result_side_max,
    )


def read_spec(text: str, settings: ImagesSettings, accept: str) -> tuple[ImageSpec, bool]:
    """The specification, and whether it depends on what the client accepts."""
    spec = parse_spec(text, settings.presets())
    return negotiate(spec, accept, avif=settings.avif), spec.format == AUTO
