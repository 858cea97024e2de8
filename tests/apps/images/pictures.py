"""Pictures for tests, and a small honest processor that makes variants of them, with Pillow."""

from __future__ import annotations

import asyncio
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from sluicegate.contracts.image import (
    ImageErrorKind,
    ImageFailure,
    ImageInfo,
    Original,
    Processed,
)
from sluicegate.contracts.image_spec import ImageSpec
from sluicegate.kernels.perceptual_hash import COLUMNS, ROWS, difference_hash
from sluicegate.stores.images.workers import ImageWorkersStats


def picture(number: int, *, width: int = 48, height: int = 32, form: str = "PNG") -> bytes:
    """An image that no other number has."""
    columns = bytes((x * 5 + number) % 256 for x in range(width))
    rows = b"".join(bytes([(y * 7 + number // 256) % 256]) * width for y in range(height))
    pixels = [columns * height, rows, bytes([number % 251]) * (width * height)]
    bands = [Image.frombytes("L", (width, height), one) for one in pixels]
    out = BytesIO()
    Image.merge("RGB", bands).save(out, form)
    return out.getvalue()


def sized(width: int) -> ImageSpec:
    """A specification: so wide at most, as PNG."""
    return ImageSpec(width=width, format="png")


class PillowProcessor:
    """Scales in this process; counts what it did."""

    def __init__(self) -> None:
        self.engine = "pillow-of-the-tests/1"
        self.done: list[tuple[int, str]] = []
        self.described = 0
        self.gate: asyncio.Event | None = None

    async def process(self, original: Original, spec: ImageSpec) -> Processed:
        assert isinstance(original, bytes)
        self.done.append((len(original), spec.canonical()))
        if self.gate is not None:
            await self.gate.wait()
        try:
            image = Image.open(BytesIO(original))
            pixels = image.width * image.height
            image.thumbnail((spec.width, spec.width))
        except UnidentifiedImageError:
            raise ImageFailure(ImageErrorKind.WRONG_TYPE, "it is no image") from None
        except OSError as error:
            raise ImageFailure(ImageErrorKind.CORRUPT, str(error)) from None
        out = BytesIO()
        image.save(out, "PNG")
        return Processed(out.getvalue(), "image/png", *image.size, pixels)

    async def describe(self, original: Original) -> ImageInfo:
        assert isinstance(original, bytes)
        self.described += 1
        try:
            image = Image.open(BytesIO(original)).convert("RGB")
        except OSError as error:
            raise ImageFailure(ImageErrorKind.CORRUPT, str(error)) from None
        grey = image.convert("L").resize((COLUMNS, ROWS), Image.Resampling.BOX)
        small = image.resize((4, 4), Image.Resampling.BOX)
        return ImageInfo(
            "png",
            "image/png",
            *image.size,
            pages=1,
            transparent=False,
            perceptual_hash=difference_hash(grey.tobytes()),
            colours=small.tobytes(),
        )

    def stats(self) -> ImageWorkersStats:
        return ImageWorkersStats(1, 1, 0, 0, 0, self.engine)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass
