"""Foreign URLs: what those of imgproxy and of thumbor have in common when they are read.

The subset is what `ImageSpec` can say. What it cannot is refused by name, since a picture that
silently lacks a watermark or a blur is worse than none.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.image_spec import ImageSpec

PATH_CHARS_MAX: Final = 8_192
UNSIGNED: Final = ""


class ForeignRequest(NamedTuple):
    """What a foreign URL asks for; `signed` is the part of the path that its signature covers.

    `source` is a URL, or whatever name the other server knew the original by; None if there is
    none. `signature` is "" where the URL says that it has none.
    """

    spec: ImageSpec
    source: str | None
    signature: str
    signed: str


def check_path(field: str, path: str) -> None:
    """Raise for a path that is too long to be read."""
    if len(path) > PATH_CHARS_MAX or not path.startswith("/"):
        remedy = f"give a path from / on, of at most {PATH_CHARS_MAX:,} characters"
        raise BadValue(field, path, remedy)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BadValue(field, path, "give text that is UTF-8") from None


def unknown(field: str, option: str, known: Mapping[str, object]) -> BadValue:
    """Return the error for an option that is not understood."""
    return BadValue(field, option, f"leave it out; understood are {', '.join(sorted(known))}")


def number(field: str, value: str, least: float, most: float) -> float:
    """Return a plain decimal number within these bounds."""
    plain = value.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit() and len(value) <= 12):
        raise BadValue(field, value, f"give a number from {least:g} to {most:g}")
    if not least <= float(value) <= most:
        raise BadValue(field, value, f"give a number from {least:g} to {most:g}")
    return float(value)


def whole_number(field: str, value: str, most: int) -> int:
    """Return a whole number up to this; an empty text is 0."""
    if not value:
        return 0
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) <= most):
        raise BadValue(field, value, f"give a whole number up to {most:,}")
    return int(value)


def is_signed_by(signature: str, digest: bytes) -> bool:
    """Whether a signature is this digest in URL-safe Base64, padded or not."""
    expected = urlsafe_b64encode(digest).rstrip(b"=")
    return hmac.compare_digest(signature.rstrip("=").encode(), expected)
