"""Image fit: how large a picture is drawn, and what of it is kept, when it must fit a box.

The four ways are those of CSS `object-fit` and of every image server, whose names differ:

    cover     scaled until it covers the box, and what stands over is cut off
    contain   scaled until it fits into the box, which is then filled up beside it
    fill      each side scaled by itself: it is distorted
    inside    scaled until it fits into the box, and no larger than that

A box may leave a side open (0): then the scale is that of the other side, and nothing is cut. A
picture that is smaller than its box grows only if that is asked for; where it may not, `cover` cuts
what stands over in one direction and leaves the other as it is.

Sources differ by a pixel, since they scale by a double and round what comes out. Here the scale is
a fraction of whole numbers that are compared crosswise, and a side is rounded once, half up: the
side that decides is exactly that of the box, the other never passes it, and is never 0.

Bounds: the results are at most the box, or the original where a side is open and nothing may grow;
with an open side of an original that is a line, the caller must bound the other. The products stay
below 2^53 for sides below 2^26. Cost: a few multiplications.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PERMILLE: Final = 1_000


class ImageFit(NamedTuple):
    """The size it is scaled to, and the size of the result, which shows all or a part of that."""

    scaled_width: int
    scaled_height: int
    width: int
    height: int


def fit_image(
    original_width: int, original_height: int, width: int, height: int, fit: str, enlarge: bool
) -> ImageFit:
    """Return the sizes for a box of `width` x `height`; 0 leaves a side open."""
    own_w, own_h = original_width, original_height
    if width == 0 and height == 0:
        return ImageFit(own_w, own_h, own_w, own_h)
    if fit == "fill":
        scaled_w, scaled_h = width or own_w, height or own_h
        if not enlarge:
            scaled_w, scaled_h = min(scaled_w, own_w), min(scaled_h, own_h)
        return ImageFit(scaled_w, scaled_h, scaled_w, scaled_h)
    # The wider the picture is than the box, the more its height is the side with room to spare.
    by_width = height == 0 or (width != 0 and width * own_h <= height * own_w)
    if fit == "cover" and width != 0 and height != 0:
        by_width = not by_width
    grows = width > own_w if by_width else height > own_h
    if grows and not enlarge:
        scaled_w, scaled_h = own_w, own_h
    elif by_width:
        scaled_w, scaled_h = width, _scaled(own_h, width, own_w)
    else:
        scaled_w, scaled_h = _scaled(own_w, height, own_h), height
    if width == 0 or height == 0 or fit == "inside":
        return ImageFit(scaled_w, scaled_h, scaled_w, scaled_h)
    if fit == "cover":
        return ImageFit(scaled_w, scaled_h, min(width, scaled_w), min(height, scaled_h))
    return ImageFit(scaled_w, scaled_h, width, height)


def cut_offset(scaled: int, kept: int, permille: int) -> int:
    """Return where a cut begins, so that the point is in its middle, or as near as it can be."""
    middle = (scaled * permille * 2 + PERMILLE) // (PERMILLE * 2)
    return max(0, min(scaled - kept, middle - kept // 2))


def _scaled(side: int, times: int, over: int) -> int:
    return max(1, (2 * side * times + over) // (2 * over))
