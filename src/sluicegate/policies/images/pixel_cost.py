"""Pixel cost: what making a variant costs, in pixels of the cheapest kind.

Time of processing goes by pixels: those that are decoded, and those that are encoded, of which a
format takes more time than another. A decoded pixel of a JPEG that is made smaller is the unit.

              decode JPEG    encode JPEG    PNG    WebP    GIF    AVIF (effort 3)
    ms/Mpx              6             14     62     112    450     451    libvips 8.18, one core
    cost                1              2     10      16     65      70

Pure. Before the work only the bytes of an original are known: a photo has about four pixels a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PIXELS_A_BYTE: Final = 4
ENCODE: Final[Mapping[str, int]] = {"jpeg": 2, "png": 10, "webp": 16, "gif": 65, "avif": 70}
_ENCODE_OTHER: Final = 16


def pixel_cost(decoded: int, encoded: int, form: str) -> int:
    """How many decoded pixels it is worth."""
    return decoded + encoded * ENCODE.get(form, _ENCODE_OTHER)


def expected_pixel_cost(size_bytes: int, width: int, height: int, form: str) -> int:
    """The same before the work, by the original's bytes; a side of 0 is one that is not given."""
    decoded = size_bytes * PIXELS_A_BYTE
    if not width and not height:
        return pixel_cost(decoded, decoded, form)
    return pixel_cost(decoded, (width or height) * (height or width), form)
