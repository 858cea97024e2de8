"""Pictures for tests, and a small honest processor that makes variants of them, with Pillow."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from sluicegate.contracts.image import ImageFailure, Processed


def picture(number: int, *, width: int = 48, height: int = 32, form: str = "PNG") -> bytes:
    """An image that no other number has."""
    image = Image.new("RGB", (width, height))
    image.putdata(
        [((x * 5 + number) % 256, (y * 7 + number // 256) % 256, number % 251)
         for y in range(height) for x in range(width)]
    )  # fmt: skip
    out = BytesIO()
    image.save(out, form)
    return out.getvalue()


class Width(NamedTuple):
    """A specification: so wide at most, as PNG."""

    width: int

    def canonical(self) -> str:
        return f"w={self.width}"


class PillowProcessor:
    """Scales in this process; counts what it did."""

    def __init__(self) -> None:
        self.engine = "pillow-of-the-tests/1"
        self.done: list[tuple[int, str]] = []
        self.gate: asyncio.Event | None = None

    async def process(self, original: bytes, spec: Width) -> Processed | ImageFailure:
        self.done.append((len(original), spec.canonical()))
        if self.gate is not None:
            await self.gate.wait()
        try:
            image = Image.open(BytesIO(original))
            image.thumbnail((spec.width, spec.width))
        except UnidentifiedImageError:
            return ImageFailure("wrong_type", "it is no image")
        except OSError as error:
            return ImageFailure("corrupt", str(error))
        out = BytesIO()
        image.save(out, "PNG")
        return Processed(out.getvalue(), "image/png", *image.size)
