"""Image specification: what a picture shall be made into, as a value with one text form.

    w=400,h=300,fit=cover,crop=attention,format=webp,q=75

Whatever makes no difference is not in the value: a device pixel ratio is multiplied into width and
height, a crop that cuts nothing and a quality of a lossless format are dropped, a default is not
written. So two specifications that make the same picture have the same text, are equal, and share
one entry of a cache.

| name | value | default |
|---|---|---|
| `w`, `h` | pixels, 1 to `SIDE_MAX` | that of the original, or by the other side's scale |
| `fit` | `cover`, `contain`, `fill`, `inside` | `inside` |
| `crop` | `X:Y`, the point in permille to keep in sight, or `attention` | `500:500` |
| `enlarge` | `yes`, `no` | `no` for `inside`, else `yes` |
| `format` | `auto`, `jpeg`, `webp`, `avif`, `png`, `gif` | `auto` |
| `q` | quality, 1 to 100 | `QUALITY_DEFAULTS` of the format |
| `bg` | `RRGGBB`, behind what is transparent and beside what is `contain`ed | none |
| `strip` | `yes`, `no`: whether metadata is left out | `yes` |
| `animate` | `yes`, `no`: keep all frames, where the format can be animated | `yes` |
| `dpr` | 0.1 to 8: pixels of the picture for each of `w` and `h` | `1` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias, final

from sluicegate.contracts.edge import Given, flag, text, whole
from sluicegate.contracts.errors import BadValue

# A point in permille of width and height, or where the eye goes first.
Crop: TypeAlias = "tuple[int, int] | str"

PLACEHOLDER: Final = (
    "w=32,h=32,format=webp,q=30,animate=no"  # some hundred bytes, to be shown at first
)
FITS: Final = ("cover", "contain", "fill", "inside")
FORMATS: Final = ("auto", "jpeg", "webp", "avif", "png", "gif")
ANIMATED: Final = ("auto", "webp", "gif")  # the formats that can hold several frames
ATTENTION: Final = "attention"
CENTRE: Final = (500, 500)
SIDE_MAX: Final = 16_383  # the longest that WebP can have
RATIO_MIN, RATIO_MAX = 0.1, 8.0
TEXT_CHARS_MAX: Final = 512
# Look the same at about these. PNG and GIF have none; `auto` takes that of the format it becomes.
QUALITY_DEFAULTS: Final = {"auto": 0, "jpeg": 80, "webp": 80, "avif": 55, "png": 0, "gif": 0}

_PRESET: Final = "preset:"
_COLOUR: Final = re.compile(r"[0-9a-f]{6}")
_POINT: Final = re.compile(r"([0-9]{1,4}):([0-9]{1,4})")
_RATIO: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,4})?")
_NAMES: Final = ("w", "h", "fit", "crop", "enlarge", "format", "q", "bg", "strip", "animate", "dpr")
_WORDS: Final = {"yes": True, "no": False}


@final
class ImageSpec:
    """What to make of an original. Immutable; equal if the picture is the same.

    0 stands for "not given" in `width`, `height` and `quality`, "" in `background`. A side that is
    not given follows the scale of the other; without both the picture keeps its size. With one
    alone, `cover` and `contain` are the same: the picture is scaled to that side.
    """

    __slots__ = (
        "_text",
        "animate",
        "background",
        "crop",
        "enlarge",
        "fit",
        "format",
        "height",
        "quality",
        "strip",
        "width",
    )

    def __init__(
        self,
        *,
        width: Given[int] = 0,
        height: Given[int] = 0,
        fit: Given[str] = "inside",
        crop: Given[Crop] = CENTRE,
        enlarge: Given[bool | None] = None,
        format: Given[str] = "auto",  # noqa: A002 - the word of everybody
        quality: Given[int] = 0,
        background: Given[str] = "",
        strip: Given[bool] = True,
        animate: Given[bool] = True,
        device_pixel_ratio: Given[float] = 1,
    ) -> None:
        ratio = _ratio(device_pixel_ratio)
        self.width: Final = _side("width", width, ratio)
        self.height: Final = _side("height", height, ratio)
        _one_of("fit", fit, FITS)
        _one_of("format", format, FORMATS)
        self.format: Final = format
        both = self.width > 0 and self.height > 0
        grows = fit != "inside" if enlarge is None else flag("enlarge", enlarge)
        if self.width == self.height == 0:
            fit, grows = "inside", False
        elif not both:
            fit = "fill" if fit == "fill" else "inside"
        self.fit: Final = fit
        self.enlarge: Final = grows
        crop = _crop(crop)
        self.crop: Final[Crop] = crop if fit == "cover" else CENTRE
        self.quality: Final = _quality(format, quality)
        colour = _colour(background)
        # JPEG shows nothing through: without a colour, it is white.
        shown = "" if format == "jpeg" and colour == "ffffff" else colour
        self.background: Final = shown
        self.strip: Final = flag("strip", strip)
        self.animate: Final = flag("animate", animate) or format not in ANIMATED
        self._text: Final = self._canonical()

    def canonical(self) -> str:
        """Return the one text of this specification; `parse_spec` makes it again."""
        return self._text

    def with_format(self, format: Given[str]) -> ImageSpec:  # noqa: A002 - likewise
        """Return the same specification in another format."""
        return ImageSpec(
            width=self.width,
            height=self.height,
            fit=self.fit,
            crop=self.crop,
            enlarge=self.enlarge,
            format=format,
            quality=self.quality,
            background=self.background,
            strip=self.strip,
            animate=self.animate,
        )

    def _canonical(self) -> str:
        parts = []
        if self.width:
            parts.append(f"w={self.width}")
        if self.height:
            parts.append(f"h={self.height}")
        if self.fit != "inside":
            parts.append(f"fit={self.fit}")
        if self.crop != CENTRE:
            parts.append(f"crop={_crop_text(self.crop)}")
        if self.enlarge != (self.fit != "inside"):
            parts.append(f"enlarge={'yes' if self.enlarge else 'no'}")
        parts.append(f"format={self.format}")
        if self.quality != QUALITY_DEFAULTS[self.format]:
            parts.append(f"q={self.quality}")
        if self.background:
            parts.append(f"bg={self.background}")
        if not self.strip:
            parts.append("strip=no")
        if not self.animate:
            parts.append("animate=no")
        return ",".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ImageSpec) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"ImageSpec({self._text!r})"


def parse_spec(spec: Given[str], presets: Mapping[str, str] | None = None) -> ImageSpec:
    """Return the specification of a text: `w=400,format=webp`, or `preset:card`.

    A preset may be changed: `preset:card,format=png`. Presets hold no presets.
    """
    text("spec", spec, "give a text such as w=400,format=webp")
    if len(spec) > TEXT_CHARS_MAX:
        raise BadValue("spec", spec, f"give at most {TEXT_CHARS_MAX} characters")
    first, _, rest = spec.partition(",")
    values: dict[str, str] = {}
    if first.startswith(_PRESET):
        name = first.removeprefix(_PRESET)
        known = {} if presets is None else presets
        if name not in known:
            listed = ", ".join(sorted(known)) or "none is set"
            raise BadValue("spec.preset", name, f"name one of the presets: {listed}")
        values = _pairs(known[name])
        if not rest:
            return _spec_of(values)
        spec = rest
    return _spec_of(values | _pairs(spec))


def check_presets(presets: Mapping[str, str]) -> None:
    """Raise for a preset that cannot be used, naming it."""
    for name, spec in presets.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise BadValue("presets", name, "name it by 1 to 64 letters, digits, - _ and .")
        try:
            _spec_of(_pairs(spec))
        except BadValue as bad:
            raise BadValue(f"presets.{name}.{bad.field}", bad.value, bad.remedy) from None


def _pairs(spec: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in spec.split(","):
        name, equals, value = pair.partition("=")
        if name not in _NAMES or not equals:
            raise BadValue("spec", pair, f"write name=value, the name one of {', '.join(_NAMES)}")
        if name in values:
            raise BadValue("spec", pair, f"give {name} once")
        values[name] = value
    return values


def _spec_of(values: Mapping[str, str]) -> ImageSpec:
    grows = values.get("enlarge")
    return ImageSpec(
        width=_whole("w", values.get("w", "0")),
        height=_whole("h", values.get("h", "0")),
        fit=values.get("fit", "inside"),
        crop=_parse_crop(values.get("crop", "500:500")),
        enlarge=None if grows is None else _truth("enlarge", grows),
        format=values.get("format", "auto"),
        quality=_whole("q", values.get("q", "0")),
        background=values.get("bg", ""),
        strip=_truth("strip", values.get("strip", "yes")),
        animate=_truth("animate", values.get("animate", "yes")),
        device_pixel_ratio=_parse_ratio(values.get("dpr", "1")),
    )


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise BadValue(f"spec.{name}", value, "give a whole number")
    return int(value)


def _truth(name: str, value: str) -> bool:
    if value not in _WORDS:
        raise BadValue(f"spec.{name}", value, "give yes or no")
    return _WORDS[value]


def _parse_crop(value: str) -> Crop:
    point = _POINT.fullmatch(value)
    return (int(point[1]), int(point[2])) if point else value


def _parse_ratio(value: str) -> float:
    if not _RATIO.fullmatch(value):
        raise BadValue("spec.dpr", value, f"give a number from {RATIO_MIN} to {RATIO_MAX:g}")
    return float(value)


def _crop_text(crop: Crop) -> str:
    return crop if isinstance(crop, str) else f"{crop[0]}:{crop[1]}"


def _ratio(value: object) -> float:
    if not isinstance(value, int | float) or not RATIO_MIN <= value <= RATIO_MAX:
        remedy = f"give a number from {RATIO_MIN} to {RATIO_MAX:g}"
        raise BadValue("spec.device_pixel_ratio", value, remedy)
    return float(value)


def _side(name: str, value: object, ratio: float) -> int:
    remedy = f"give pixels from 1 to {SIDE_MAX}, or 0 for none"
    given = whole(f"spec.{name}", value, 0, SIDE_MAX, remedy)
    scaled = int(given * ratio + 0.5)
    if scaled > SIDE_MAX:
        raise BadValue(
            f"spec.{name}", given, f"at {ratio:g} pixels each, give at most {SIDE_MAX / ratio:.0f}"
        )
    return max(scaled, 1) if given else 0


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadValue(f"spec.{name}", value, f"give one of {', '.join(known)}")


def _crop(value: object) -> Crop:
    remedy = "give attention, or a point in permille from 0:0 to 1000:1000"
    if value == ATTENTION:
        return ATTENTION
    if not isinstance(value, tuple) or len(value) != 2:
        raise BadValue("spec.crop", value, remedy)
    x, y = value
    return whole("spec.crop", x, 0, 1_000, remedy), whole("spec.crop", y, 0, 1_000, remedy)


def _quality(format: str, value: object) -> int:  # noqa: A002 - likewise
    remedy = "give a number from 1 to 100, or 0 for the default of the format"
    given = whole("spec.quality", value, 0, 100, remedy)
    return 0 if format in {"png", "gif"} else given or QUALITY_DEFAULTS[format]


def _colour(value: object) -> str:
    given = text("spec.background", value, "give a colour as RRGGBB").lower()
    if given and not _COLOUR.fullmatch(given):
        raise BadValue("spec.background", value, "give a colour as RRGGBB, such as ffffff")
    return given
