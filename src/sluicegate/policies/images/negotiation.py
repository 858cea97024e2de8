"""Negotiation: which format a caller gets that leaves the choice to us.

AVIF holds no animation here: a caller that would get AVIF gets an animated original as WebP or GIF.
Only what a caller names counts: every browser sends `*/*`, also those that cannot show WebP. Who
names neither gets `auto` made as it is: a JPEG, or a PNG of an original that is transparent.
AVIF is smaller and takes several times as long to make, so it is chosen only if a setting says so.
An answer that was chosen so varies by `Accept`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sluicegate.contracts.image_spec import ANIMATED, ImageSpec

AUTO: Final = "auto"
ACCEPT_CHARS_MAX: Final = 2_048  # of the header; what stands behind is not read
ACCEPTS_MAX: Final = 256  # remembered: browsers have few


def negotiate(spec: ImageSpec, accept: str, *, avif: bool = False) -> ImageSpec:
    """Return the specification with the best format that `Accept` names, if it leaves it open."""
    if spec.format != AUTO:
        return spec
    best = best_format(accept, avif=avif)
    return spec if best == AUTO else spec.with_format(best)


def best_format(accept: str, *, avif: bool) -> str:
    """Return the format of who sends this, where it is left open."""
    return _best(accept[:ACCEPT_CHARS_MAX], avif)


def animated_instead(format: str, accept: str) -> str:  # noqa: A002 - the word of everybody
    """Return the format for an animation where `format` was chosen and holds none; "" for none."""
    if format in ANIMATED:
        return ""
    return best_format(accept, avif=False)


@lru_cache(ACCEPTS_MAX)
def _best(accept: str, avif: bool) -> str:
    named = _named(accept)
    if avif and "image/avif" in named:
        return "avif"
    return "webp" if "image/webp" in named else AUTO


def _named(accept: str) -> set[str]:
    """The media types that are named and not declined by `q=0`."""
    found = set()
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        if not any(_declines(parameter) for parameter in parameters):
            found.add(media_type)
    return found


def _declines(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip().rstrip("0") in {"0.", ""}
