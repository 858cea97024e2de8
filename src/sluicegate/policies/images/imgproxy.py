"""Imgproxy: its URLs, as far as an `ImageSpec` can say what they say.

    /SIGNATURE/rs:fill:300:400/g:sm/q:75/plain/https://example.com/a.jpg@webp
    /SIGNATURE/w:300/aHR0cHM6Ly9leGFtcGxlLmNvbS9hLmpwZw.webp

Its options take arguments after colons, and an argument that is left out keeps its default. A
format that is not given is `auto` here, where imgproxy keeps that of the original.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.image_spec import (
    ATTENTION,
    RATIO_MAX,
    RATIO_MIN,
    SIDE_MAX,
    ImageSpec,
    parse_spec,
)
from sluicegate.policies.images.foreign import (
    UNSIGNED,
    ForeignRequest,
    check_path,
    is_signed_by,
    number,
    unknown,
    whole_number,
)

Fields: TypeAlias = "dict[str, Any]"

_PATH: Final = "imgproxy path"
# What stands for "not signed", by its documentation and by habit.
_NO_SIGNATURES: Final = frozenset({"insecure", "unsafe", "_", "-"})
_FORMATS: Final = {
    "jpg": "jpeg",
    "jpeg": "jpeg",
    "png": "png",
    "webp": "webp",
    "avif": "avif",
    "gif": "gif",
}
_TRUTHS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_GRAVITIES: Final = {
    "ce": (500, 500),
    "no": (500, 0),
    "so": (500, 1_000),
    "ea": (1_000, 500),
    "we": (0, 500),
    "noea": (1_000, 0),
    "nowe": (0, 0),
    "soea": (1_000, 1_000),
    "sowe": (0, 1_000),
    "sm": ATTENTION,
}
# Its word for a way of fitting, and ours; whether it grows is another option.
_FITS: Final = {"fit": "inside", "fill": "cover", "force": "fill"}
_SHORT: Final = {
    "rs": "resize",
    "s": "size",
    "rt": "resizing_type",
    "w": "width",
    "h": "height",
    "el": "enlarge",
    "ex": "extend",
    "g": "gravity",
    "q": "quality",
    "f": "format",
    "ext": "format",
    "bg": "background",
    "sm": "strip_metadata",
    "ar": "auto_rotate",
    "scp": "strip_color_profile",
    "pr": "preset",
}
_COLOUR: Final = re.compile(r"[0-9a-fA-F]{6}")


def parse_imgproxy(path: str, presets: Mapping[str, str] | None = None) -> ForeignRequest:
    """Return what a path asks for; a `BadValue` names the option that is not understood.

    `presets` are ours (text of specifications), for URLs that say `pr:NAME`.
    """
    check_path(_PATH, path)
    signature, slash, rest = path[1:].partition("/")
    if not slash:
        raise BadValue(_PATH, path, "write /SIGNATURE/OPTIONS/SOURCE")
    fields: Fields = {"fit": "inside", "enlarge": False}
    segments = rest.split("/")
    at = 0
    while at < len(segments) and ":" in segments[at]:
        name, *arguments = segments[at].split(":")
        _apply(fields, name, arguments, presets)
        at += 1
    source, extension = _source(segments[at:])
    if extension:
        _format(fields, [extension])
    return ForeignRequest(
        _spec(fields),
        source,
        UNSIGNED if signature in _NO_SIGNATURES else signature,
        f"/{rest}",
    )


def is_imgproxy_signature(request: ForeignRequest, key: bytes, salt: bytes) -> bool:
    """Whether the signature is that of this key and salt, both as bytes, not in hex."""
    digest = hmac.digest(key, salt + request.signed.encode(), "sha256")
    return is_signed_by(request.signature, digest)


def _spec(fields: Fields) -> ImageSpec:
    if fields.pop("extend", False):
        if fields["fit"] != "inside":
            raise BadValue("imgproxy extend", "1", "use it with the resizing type fit")
        fields["fit"] = "contain"
    return ImageSpec(**fields)


def _source(segments: list[str]) -> tuple[str | None, str]:
    """The URL, plain or in Base64, and the extension behind it."""
    if segments and segments[0] == "plain":
        plain, _, extension = "/".join(segments[1:]).rpartition("@")
        if not plain:
            plain, extension = extension, ""
        return unquote(plain) or None, extension
    encoded, _, extension = "".join(segments).partition(".")
    if not encoded:
        return None, extension
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        return urlsafe_b64decode(padded).decode(), extension
    except ValueError:  # no Base64, or no text
        remedy = "give the source in URL-safe Base64, or as plain/URL"
        raise BadValue("imgproxy source", encoded, remedy) from None


def _apply(
    fields: Fields, name: str, arguments: list[str], presets: Mapping[str, str] | None
) -> None:
    name = _SHORT.get(name, name)
    if name == "preset":
        _preset(fields, arguments, presets)
        return
    option = _OPTIONS.get(name)
    if option is None:
        raise unknown("imgproxy option", name, _OPTIONS | {"preset": None})
    option(fields, arguments)


def _preset(fields: Fields, arguments: list[str], presets: Mapping[str, str] | None) -> None:
    for name in arguments:
        spec = parse_spec(f"preset:{name}", presets)
        for field in ("width", "height", "fit", "enlarge", "crop", "quality", "background"):
            fields[field] = getattr(spec, field)
        fields |= {"format": spec.format, "strip": spec.strip, "animate": spec.animate}


def _resize(fields: Fields, arguments: list[str]) -> None:
    if arguments[0]:
        _resizing_type(fields, arguments[:1])
    _size(fields, arguments[1:])


def _size(fields: Fields, arguments: list[str]) -> None:
    named = zip(("width", "height", "enlarge", "extend"), arguments, strict=False)
    if len(arguments) > 4:
        raise BadValue("imgproxy size", ":".join(arguments), "give width:height:enlarge:extend")
    for name, argument in named:
        if argument:
            _OPTIONS[name](fields, [argument])


def _resizing_type(fields: Fields, arguments: list[str]) -> None:
    fields["fit"] = _one_of("resizing_type", arguments, _FITS)


def _side(name: str) -> Callable[[Fields, list[str]], None]:
    def apply(fields: Fields, arguments: list[str]) -> None:
        fields[name] = whole_number(f"imgproxy {name}", _single(name, arguments), SIDE_MAX)

    return apply


def _flag(name: str) -> Callable[[Fields, list[str]], None]:
    def apply(fields: Fields, arguments: list[str]) -> None:
        fields[name] = _one_of(name, arguments, _TRUTHS)

    return apply


def _always(name: str) -> Callable[[Fields, list[str]], None]:
    """Take an option that says what we do anyway; what says the contrary is refused."""

    def apply(fields: Fields, arguments: list[str]) -> None:
        if not _one_of(name, arguments, _TRUTHS):
            raise BadValue(f"imgproxy {name}", arguments[0], "leave it out; it is always done")

    return apply


def _gravity(fields: Fields, arguments: list[str]) -> None:
    if arguments[0] == "fp":
        if len(arguments) != 3:
            raise BadValue("imgproxy gravity", ":".join(arguments), "give fp:X:Y")
        x, y = (number("imgproxy gravity", one, 0, 1) for one in arguments[1:])
        fields["crop"] = (round(x * 1_000), round(y * 1_000))
        return
    if any(one not in {"", "0"} for one in arguments[1:]):
        raise BadValue("imgproxy gravity", ":".join(arguments), "leave out its offsets")
    fields["crop"] = _one_of("gravity", arguments[:1], _GRAVITIES)


def _quality(fields: Fields, arguments: list[str]) -> None:
    fields["quality"] = whole_number("imgproxy quality", _single("quality", arguments), 100)


def _format(fields: Fields, arguments: list[str]) -> None:
    fields["format"] = _one_of("format", arguments, _FORMATS)


def _background(fields: Fields, arguments: list[str]) -> None:
    if len(arguments) == 3:
        levels = [whole_number("imgproxy background", one, 255) for one in arguments]
        fields["background"] = bytes(levels).hex()
        return
    colour = _single("background", arguments)
    if colour and not _COLOUR.fullmatch(colour):
        raise BadValue("imgproxy background", colour, "give R:G:B or RRGGBB")
    fields["background"] = colour


def _ratio(fields: Fields, arguments: list[str]) -> None:
    ratio = number("imgproxy dpr", _single("dpr", arguments), RATIO_MIN, RATIO_MAX)
    fields["device_pixel_ratio"] = ratio


def _single(name: str, arguments: list[str]) -> str:
    if len(arguments) != 1:
        raise BadValue(f"imgproxy {name}", ":".join(arguments), "give one argument")
    return arguments[0]


def _one_of(name: str, arguments: list[str], known: Mapping[str, Any]) -> Any:
    word = _single(name, arguments)
    if word not in known:
        raise BadValue(f"imgproxy {name}", word, f"give one of {', '.join(known)}")
    return known[word]


_OPTIONS: Final[dict[str, Callable[[Fields, list[str]], None]]] = {
    "resize": _resize,
    "size": _size,
    "resizing_type": _resizing_type,
    "width": _side("width"),
    "height": _side("height"),
    "enlarge": _flag("enlarge"),
    "extend": _flag("extend"),
    "gravity": _gravity,
    "quality": _quality,
    "format": _format,
    "background": _background,
    "dpr": _ratio,
    "strip_metadata": _flag("strip"),
    "strip_color_profile": _always("strip_color_profile"),
    "auto_rotate": _always("auto_rotate"),
}
