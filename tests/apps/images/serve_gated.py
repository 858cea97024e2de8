"""`sluicegate images` whose processor makes a counted number of images, then waits for a file.

Beside the blobs, `capacity` holds the number and `open` is the file. So a test decides how many
images are ready in time, whatever the speed of the machine.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sluicegate.apps.images import processors
from sluicegate.apps.images.settings import ImagesSettings
from sluicegate.cli import main
from sluicegate.contracts.image import Original, Processed
from sluicegate.contracts.image_spec import ImageSpec
from tests.apps.images.pictures import PillowProcessor


class GatedProcessor(PillowProcessor):
    """Makes `left` images at once and the others after the file is there."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._left = int((folder / "capacity").read_text())
        self._open = folder / "open"

    async def process(self, original: Original, spec: ImageSpec) -> Processed:
        self._left -= 1
        while self._left < 0 and not self._open.exists():
            await asyncio.sleep(0.02)
        return await super().process(original, spec)


def open_processor(settings: ImagesSettings) -> GatedProcessor:
    return GatedProcessor(Path(settings.blobs.removeprefix("files:")).parent)


if __name__ == "__main__":
    processors.open_processor = open_processor
    sys.exit(main(["images", *sys.argv[1:]]))
