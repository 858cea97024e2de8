"""The parts of one image service in this process, over real stores and a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sluicegate.apps.images.collect import Collector
from sluicegate.apps.images.contents import Contents, blob_name
from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.origin import Origin, OriginSettings
from sluicegate.apps.images.pipeline import Image, ImagePipeline, PipelineSettings
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.open_engine import open_engine
from sluicegate.system import SystemClock
from sluicegate.testing import HandClock
from tests.apps.images.pictures import PillowProcessor, sized

DAY_S = 86_400.0
# Ahead of the real time, by which the origin judges deadlines of this clock.
START_US = 4_000_000_000_000_000


class Parts:
    """What a story needs; `clock` is moved by hand but for the network's own bounds."""

    def __init__(
        self,
        folder: Path,
        *,
        engine: str = "",
        blobs: str = "",
        settings: PipelineSettings | None = None,
        recent_bytes: int = 0,
        **origin: Any,
    ) -> None:
        self.folder = folder
        self.clock = HandClock(START_US)
        self.engine = open_engine(engine or f"lmdb:{folder}/kv?sync=off")
        self.maps = ImageMaps(self.engine)
        self.contents = Contents(
            open_blobs(blobs or f"files:{folder}/blobs"), self.maps, self.clock, recent_bytes
        )
        values: dict[str, Any] = {"networks": ("127.0.0.1/32",), "idle_s": 0.5, "per_host": 64}
        self.origin = Origin(OriginSettings(**(values | origin)), SystemClock())
        self.processor = PillowProcessor()
        self.queue = Gate(GateSettings(slots=2))
        self.pipeline = ImagePipeline(
            self.origin,
            self.maps,
            self.contents,
            self.processor,
            self.queue,
            self.clock,
            settings or PipelineSettings(stale_s=0),  # so that a story sees each check
        )

    def collector(self, **settings: Any) -> Collector:
        more: dict[str, Any] = {"grace_s": 60.0, "keep_s": 90 * DAY_S, "marks_bytes_max": 1 << 16}
        more["engine"] = self.processor.engine
        more["fresh_s"] = self.pipeline.settings.fresh_s
        return Collector(self.maps, self.contents, self.clock, **(more | settings))

    async def image(self, url: str, width: int = 16, modified: str = "") -> Image:
        return await self.pipeline.image(url, sized(width), Request(url), modified)

    async def blob_of(self, digest: str) -> str:
        """The name of the blob that a content has now."""
        record = (await self.maps.content(digest)).record
        assert record is not None
        return blob_name(digest, record.generation)

    def advance(self, seconds: float) -> None:
        self.clock.advance(s=seconds)

    async def settle(self) -> None:
        """Wait for the checks behind answers."""
        while len(self.pipeline.behind):
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self.pipeline.close()
        await self.origin.close()
        await self.contents.close()
        await self.engine.close()


@asynccontextmanager
async def parts_of(folder: Path, **more: Any) -> AsyncIterator[Parts]:
    parts = Parts(folder, **more)
    try:
        yield parts
    finally:
        await parts.close()
