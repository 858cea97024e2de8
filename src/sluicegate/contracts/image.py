"""Image: what a processor is asked, what it answers, and why it cannot.

An `ImageFailure` is about the image, so that it is remembered with it: the same bytes and the same
specification fail again. What says nothing about the image (all places taken, a service that stops)
is `Unavailable`, and nobody's to remember.

This file is not compiled: users may write a processor of their own, and an exception is here.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.image_spec import ImageSpec

# The bytes, or the file that holds them, which spares a copy on the way to another process. Workers
# read only files below `ImageWorkerSettings.read_paths`.
Original: TypeAlias = bytes | Path


class ImageErrorKind(StrEnum):
    """Why there is no picture. The first five are the image's; the others pass."""

    CORRUPT = "corrupt"  # of a format that is known, but broken or cut short
    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"  # bytes, pixels, frames; of the original or of the result
    WRONG_TYPE = "wrong_type"  # not of a format that is accepted
    NOT_FOUND = "not_found"  # the origin says so
    FORBIDDEN = "forbidden"  # an address that may not be asked
    BLOCKED = "blocked"  # taken down
    ORIGIN_DOWN = "origin_down"
    TIMEOUT = "timeout"
    NO_MEMORY = "no_memory"  # a worker may not have what it takes, or there is no more


class ImageFailure(SluicegateError):  # noqa: N818 - it names the thing, as in `errors`
    """No picture can be made of this: why, and what was found."""

    def __init__(self, kind: ImageErrorKind, detail: str) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail

    def __reduce__(self) -> tuple[type[ImageFailure], tuple[ImageErrorKind, str]]:
        return ImageFailure, (self.kind, self.detail)


class Processed(NamedTuple):
    """A picture as a specification wants it."""

    data: bytes
    media_type: str
    width: int
    height: int
    source_pixels: int = 0  # of the original, as far as it was decoded
    frames: int = 1  # in `data`
    pages: int = 1  # frames or pages of the original


class ImageInfo(NamedTuple):
    """What an original is, upright: `width` and `height` are after its orientation is applied."""

    format: str  # jpeg, png, webp, gif, tiff, avif
    media_type: str
    width: int
    height: int
    pages: int
    transparent: bool  # whether it has an alpha channel
    perceptual_hash: int  # 64 bits of brightness; alike for pictures that look alike
    colours: bytes  # of 4 x 4 parts of it, 3 bytes each: what the hash does not see


class ImageLimits(NamedTuple):
    """What is refused before it is decoded or made. All may be set."""

    source_bytes_max: int = 64 << 20
    source_side_max: int = 30_000
    source_pixels_max: int = 100_000_000  # of all pages together
    source_pages_max: int = 1_000
    source_side_min: int = 1
    result_side_max: int = 8_192
    result_pixels_max: int = 40_000_000
    # Of all frames of a result; above it the first is shown. This many take a core 2 s as WebP and
    # 8 s as GIF, which is half of what a service gives one image.
    animation_pixels_max: int = 16_000_000


class ImageProcessor(Protocol):
    """Makes pictures. Its calls may be made at once, and wait for nothing but their own work."""

    @property
    def engine(self) -> str:
        """Name and version: the same engine makes the same bytes. A part of every variant's key."""
        ...

    async def process(self, original: Original, spec: ImageSpec) -> Processed:
        """Make what the specification says; an `ImageFailure` if there can be none.

        `auto` as the format makes a JPEG, a PNG where the original has an alpha channel, or a GIF
        where the original is animated.
        """
        ...

    async def describe(self, original: Original) -> ImageInfo:
        """Say what an original is, having decoded it once; an `ImageFailure` if it is none."""
        ...

    async def close(self) -> None:
        """End what runs, and leave no process behind."""
        ...
