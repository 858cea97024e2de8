"""Thumbor: its URLs, as far as an `ImageSpec` can say what they say.

    /unsafe/fit-in/300x400/filters:quality(75):format(webp)/https://example.com/a.jpg
    /SIGNATURE/300x0/left/top/smart/a.jpg

The parts have a fixed order, each may be missing, and the rest is the source. A source without
a scheme is `http`, as with thumbor's default loader. A format that is not given is `auto` here,
where thumbor keeps that of the original.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.image_spec import ATTENTION, SIDE_MAX, ImageSpec
from sluicegate.policies.images.foreign import (
    UNSIGNED,
    ForeignRequest,
    check_path,
    is_signed_by,
    unknown,
    whole_number,
)

Fields: TypeAlias = "dict[str, Any]"

_PATH: Final = "thumbor path"
_SIZE: Final = re.compile(r"([0-9]{0,5})x([0-9]{0,5})")
_OTHER_SIZE: Final = re.compile(r"(-?[0-9]*|orig)x(-?[0-9]*|orig)")
_TRIM: Final = re.compile(r"trim(:.*)?")
_CUT: Final = re.compile(r"[0-9.]+x[0-9.]+:[0-9.]+x[0-9.]+")
_FILTER: Final = re.compile(r"([a-z_]+)\(([^()]*)\)")
_ACROSS: Final = {"left": 0, "center": 500, "right": 1_000}
_DOWN: Final = {"top": 0, "middle": 500, "bottom": 1_000}
_FORMATS: Final = {
    "jpeg": "jpeg",
    "jpg": "jpeg",
    "png": "png",
    "webp": "webp",
    "avif": "avif",
    "gif": "gif",
}
_COLOURS: Final = {"white": "ffffff", "black": "000000", "transparent": ""}
_HEX: Final = re.compile(r"[0-9a-fA-F]{6}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILTERS_START: Final = "filters:"


def parse_thumbor(path: str) -> ForeignRequest:
    """Return what a path asks for; a `BadValue` names the part that is not understood."""
    check_path(_PATH, path)
    signature, slash, rest = path[1:].partition("/")
    if not slash:
        raise BadValue(_PATH, path, "write /SIGNATURE/PARTS/SOURCE, or /unsafe/PARTS/SOURCE")
    segments = rest.split("/")
    fields: Fields = {"fit": "cover"}
    _refuse_first(segments[0])
    if segments[0] == "fit-in":
        fields |= {"fit": "inside", "enlarge": False}
        segments.pop(0)
    _take_size(fields, segments)
    _take_alignment(fields, segments)
    if segments and segments[0].startswith(_FILTERS_START):
        _take_filters(fields, segments)
    source = unquote("/".join(segments)) or None
    if source is not None and not _SCHEME.match(source):
        source = f"http://{source}"
    unsigned = signature == "unsafe"
    return ForeignRequest(ImageSpec(**fields), source, UNSIGNED if unsigned else signature, rest)


def is_thumbor_signature(request: ForeignRequest, key: bytes) -> bool:
    """Whether the signature is that of this key."""
    return is_signed_by(request.signature, hmac.digest(key, request.signed.encode(), "sha1"))


def _refuse_first(segment: str) -> None:
    """Raise for what may stand first and is not understood."""
    if (
        segment in {"meta", "debug", "adaptive-fit-in", "full-fit-in", "adaptive-full-fit-in"}
        or _TRIM.fullmatch(segment)
        or _CUT.fullmatch(segment)
    ):
        raise BadValue("thumbor part", segment, "leave it out; understood is fit-in")


def _take_size(fields: Fields, segments: list[str]) -> None:
    if not segments or not _OTHER_SIZE.fullmatch(segments[0]):
        return
    size = _SIZE.fullmatch(segments[0])
    if size is None:
        remedy = "give WIDTHxHEIGHT of plain numbers; mirrored and orig are not understood"
        raise BadValue("thumbor size", segments[0], remedy)
    fields["width"] = whole_number("thumbor size", size[1], SIDE_MAX)
    fields["height"] = whole_number("thumbor size", size[2], SIDE_MAX)
    segments.pop(0)


def _take_alignment(fields: Fields, segments: list[str]) -> None:
    x, y = 500, 500
    if segments and segments[0] in _ACROSS:
        x = _ACROSS[segments.pop(0)]
    if segments and segments[0] in _DOWN:
        y = _DOWN[segments.pop(0)]
    fields["crop"] = (x, y)
    if segments and segments[0] == "smart":
        fields["crop"] = ATTENTION
        segments.pop(0)


def _take_filters(fields: Fields, segments: list[str]) -> None:
    text = segments.pop(0).removeprefix(_FILTERS_START)
    while text.count("(") > text.count(")") and segments:
        text = f"{text}/{segments.pop(0)}"  # an argument may be a URL
    end = 0
    for found in _FILTER.finditer(text):
        if text[end : found.start()] not in {"", ":"}:
            break
        name, argument = found[1], found[2].strip()
        apply = _FILTERS.get(name)
        if apply is None:
            raise unknown("thumbor filter", name, _FILTERS)
        apply(fields, argument)
        end = found.end()
    if end != len(text) or not text:
        raise BadValue("thumbor filters", text, "write filters:NAME(ARGUMENT):NAME(ARGUMENT)")


def _quality(fields: Fields, argument: str) -> None:
    fields["quality"] = whole_number("thumbor filter quality", argument, 100)


def _format(fields: Fields, argument: str) -> None:
    if argument not in _FORMATS:
        remedy = f"give one of {', '.join(_FORMATS)}"
        raise BadValue("thumbor filter format", argument, remedy)
    fields["format"] = _FORMATS[argument]


def _background(fields: Fields, argument: str) -> None:
    colour = _COLOURS.get(argument, argument.removeprefix("#"))
    if colour and not _HEX.fullmatch(colour):
        remedy = f"give RRGGBB, or one of {', '.join(_COLOURS)}"
        raise BadValue("thumbor filter colour", argument, remedy)
    fields["background"] = colour


def _fill(fields: Fields, argument: str) -> None:
    if fields["fit"] == "cover":
        raise BadValue("thumbor filter", "fill", "use it with fit-in")
    _background(fields, argument.partition(",")[0])
    fields["fit"] = "contain"


def _upscale(fields: Fields, _: str) -> None:
    fields["enlarge"] = True


def _no_upscale(fields: Fields, _: str) -> None:
    fields["enlarge"] = False


def _nothing(fields: Fields, _: str) -> None:
    """Take a filter that says what is done anyway."""


_FILTERS: Final[dict[str, Callable[[Fields, str], None]]] = {
    "quality": _quality,
    "format": _format,
    "background_color": _background,
    "fill": _fill,
    "upscale": _upscale,
    "no_upscale": _no_upscale,
    "strip_exif": _nothing,
    "strip_icc": _nothing,
}
