"""Parts: stores, maps and pipeline of one process, in their order; for the service and commands."""

from __future__ import annotations

import os
import socket
from typing import final

from sluicegate.apps.images.collect import Collector, Progress, no_progress
from sluicegate.apps.images.contents import Contents
from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.origin import Origin, OriginSettings
from sluicegate.apps.images.pipeline import ImagePipeline, PipelineSettings
from sluicegate.apps.images.processors import StartableProcessor
from sluicegate.apps.images.room import STEP_BYTES
from sluicegate.apps.images.settings import (
    HELD_BYTES_MAX,
    MARKS_BYTES_MAX,
    QUEUE_MAX,
    QUOTA_BURST_S,
    ImagesSettings,
)
from sluicegate.apps.images.units import PixelUnits, QuotaBudgets
from sluicegate.contracts.clock import Clock
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.open_engine import open_engine


@final
class ImageParts:
    """Everything but the doors. Made within the loop that uses it."""

    def __init__(
        self, settings: ImagesSettings, processor: StartableProcessor, clock: Clock
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.processor = processor
        self.engine = open_engine(settings.kv)
        self.maps = ImageMaps(self.engine)
        self.contents = Contents(
            open_blobs(settings.blobs), self.maps, clock, settings.recent_bytes
        )
        self.origin = Origin(_origin_settings(settings), clock)
        self.queue = Gate(
            GateSettings(name="images", slots=settings.processes, length_max=QUEUE_MAX),
            resource_of=lambda request: "",
        )
        self.pipeline = ImagePipeline(
            self.origin,
            self.maps,
            self.contents,
            processor,
            self.queue,
            clock,
            PipelineSettings(
                fresh_s=settings.fresh_s,
                fresh_max_s=settings.fresh_max_s,
                stale_s=settings.stale_s,
                recheck_s=settings.recheck_s,
                near=settings.near,
            ),
            PixelUnits(QuotaBudgets(settings.quota_ru, QUOTA_BURST_S, settings.quotas())),
        )

    def collector(self, progress: Progress = no_progress) -> Collector:
        """Mark and sweep over what is stored."""
        return Collector(
            self.maps,
            self.contents,
            self.clock,
            engine=self.processor.engine,
            fresh_s=self.settings.fresh_s,
            grace_s=self.settings.collect_grace_s,
            keep_s=self.settings.keep_s,
            marks_bytes_max=MARKS_BYTES_MAX,
            progress=progress,
            holder=f"{socket.gethostname()}:{os.getpid()}",
        )

    async def close(self) -> None:
        """Close them, the last that was made first."""
        await self.pipeline.close()
        await self.processor.close()
        await self.origin.close()
        await self.contents.close()
        await self.engine.close()


def _origin_settings(settings: ImagesSettings) -> OriginSettings:
    return OriginSettings(
        networks=settings.origin_networks,
        hosts=settings.origin_hosts,
        ports=tuple(map(int, settings.origin_ports)),
        bytes_max=settings.origin_bytes_max,
        timeout_s=settings.origin_timeout_s,
        idle_s=settings.origin_idle_s,
        per_host=settings.origin_per_host,
        held_bytes_max=max(HELD_BYTES_MAX, settings.origin_bytes_max + STEP_BYTES),
    )
