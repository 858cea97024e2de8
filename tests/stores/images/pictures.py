"""Pictures for tests, made by Pillow, which knows nothing of the library under test."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageCms

ORIENTATION = 0x0112


def picture(width: int = 240, height: int = 160, mode: str = "RGB") -> Image.Image:
    """A smooth picture whose four corners have different colours."""
    x = np.linspace(0, 255, width)[None, :].repeat(height, 0)
    y = np.linspace(0, 255, height)[:, None].repeat(width, 1)
    colours = np.dstack([x, y, 255 - (x + y) / 2]).astype("uint8")
    return Image.fromarray(colours).convert(mode)


def transparent(width: int = 240, height: int = 160) -> Image.Image:
    """The same, of which the left half is not there."""
    made = picture(width, height, "RGBA")
    made.paste((0, 0, 0, 0), (0, 0, width // 2, height))
    return made


def encode(image: Image.Image, name: str, **options: Any) -> bytes:
    """Its bytes in a format."""
    into = io.BytesIO()
    image.save(into, name, **options)
    return into.getvalue()


def decode(data: bytes) -> Image.Image:
    """What the oracle sees in the bytes."""
    found = Image.open(io.BytesIO(data))
    found.load()
    return found


def jpeg(width: int = 240, height: int = 160, **options: Any) -> bytes:
    """A JPEG of the picture."""
    return encode(picture(width, height), "JPEG", quality=92, **options)


def turned(orientation: int) -> bytes:
    """A JPEG that says that it lies on its side, or is mirrored."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    exif[0x010F] = "a camera"
    return jpeg(exif=exif)


def animation(frames: int = 6) -> bytes:
    """A GIF, of which only the first frame is the picture."""
    first = picture(60, 40).quantize()
    rest = [Image.new("RGB", (60, 40), (n * 9 % 256, 0, 0)).quantize() for n in range(1, frames)]
    return encode(first, "GIF", save_all=True, append_images=rest, duration=50)


def header_alone(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and has hardly a byte."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 9)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def bomb(side: int) -> bytes:
    """A PNG of one colour: whole, and tiny for its pixels."""
    return encode(Image.new("1", (side, side)), "PNG", compress_level=9)


def swapped_profile() -> bytes:
    """An ICC profile in which red and green stand for each other, so that all see it applied."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    at = 132
    places = {}
    for entry in range(struct.unpack_from(">I", profile, 128)[0]):
        places[bytes(profile[at + entry * 12 : at + entry * 12 + 4])] = at + entry * 12
    red, green = places[b"rXYZ"], places[b"gXYZ"]
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    profile[24:36] = bytes(12)  # when it was made: the same bytes at any time
    return bytes(profile)


def difference(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures of one size, in levels of 255."""
    assert one.size == other.size
    left = np.asarray(one.convert("RGB"), dtype=float)
    return float(np.abs(left - np.asarray(other.convert("RGB"), dtype=float)).mean())


def interlaced(width: int, height: int) -> bytes:
    """An interlaced gray PNG, in the seven passes of its specification."""
    grey = np.asarray(picture(width, height, "L"))
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
    passes.append((0, 1, 1, 2))
    raw = b"".join(
        b"\0" + row.tobytes() for x, y, dx, dy in passes for row in grey[y::dy, x::dx] if row.size
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 1)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
