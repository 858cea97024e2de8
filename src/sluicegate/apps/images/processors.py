"""Processors: what makes pictures in this service, and how it reads what is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, TypeVar, final

from sluicegate.apps.images.settings import ImagesSettings
from sluicegate.contracts.image import (
    ImageInfo,
    ImageLimits,
    ImageProcessor,
    Original,
    Processed,
)
from sluicegate.contracts.image_spec import ImageSpec, parse_spec
from sluicegate.stores.images import vips

AUTO: Final = "auto"
T = TypeVar("T")


def open_processor(settings: ImagesSettings) -> ImageProcessor:
    """The engine that is installed, in worker processes."""
    return PooledVips(settings.processes)


@final
class PooledVips:
    """libvips in a pool of worker processes."""

    def __init__(self, processes: int) -> None:
        self._pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=vips.set_up)
        self.engine = vips.engine_name()

    async def process(self, original: Original, spec: ImageSpec) -> Processed:
        """Make a picture."""
        return await self._run(vips.process_image, _bytes_of(original), spec, ImageLimits())

    async def describe(self, original: Original) -> ImageInfo:
        """Say what an original is."""
        return await self._run(vips.describe_image, _bytes_of(original), ImageLimits())

    async def close(self) -> None:
        """End the workers."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)


def _bytes_of(original: Original) -> bytes:
    return original if isinstance(original, bytes) else original.read_bytes()


def read_spec(text: str, presets: Mapping[str, str], accept: str) -> tuple[ImageSpec, bool]:
    """The specification, and whether it depends on what the client accepts."""
    spec = parse_spec(text, presets)
    if spec.format != AUTO:
        return spec, False
    # AVIF is smaller, and takes several times as long to make: who wants it says so.
    return (spec.with_format("webp") if "image/webp" in accept else spec), True
