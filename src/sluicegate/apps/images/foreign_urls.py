"""Foreign URLs: those of imgproxy and thumbor, under a prefix each, where a setting says so.

Whoever moves has a proxy put the prefix before the paths that pages have. Where the keys of the
other server are given, its signatures are checked, and are what lets in; without them the
grant `fetch` is, as for our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sluicegate.apps.images.settings import ImagesSettings
from sluicegate.policies.images.foreign import ForeignRequest
from sluicegate.policies.images.imgproxy import is_imgproxy_signature, parse_imgproxy
from sluicegate.policies.images.thumbor import is_thumbor_signature, parse_thumbor

IMGPROXY: Final = "imgproxy"
THUMBOR: Final = "thumbor"


class ForeignForm(NamedTuple):
    """A form of URLs: how a path is read, and whether what it says is signed."""

    name: str
    parse: Callable[[str], ForeignRequest]
    is_signed: Callable[[ForeignRequest], bool]
    signed: bool

    @property
    def prefix(self) -> str:
        """What stands before the paths that the other server had."""
        return f"/{self.name}"


def foreign_forms(settings: ImagesSettings) -> list[ForeignForm]:
    """The forms that are understood."""
    presets = settings.presets()
    key, salt = (bytes.fromhex(one) for one in (settings.imgproxy_key, settings.imgproxy_salt))
    thumbor = settings.thumbor_key.encode()
    forms = (
        ForeignForm(
            IMGPROXY,
            lambda path: parse_imgproxy(path, presets),
            lambda found: not key or is_imgproxy_signature(found, key, salt),
            bool(key),
        ),
        ForeignForm(
            THUMBOR,
            parse_thumbor,
            lambda found: not thumbor or is_thumbor_signature(found, thumbor),
            bool(thumbor),
        ),
    )
    return [form for form in forms if form.name in settings.foreign_urls]
