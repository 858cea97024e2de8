"""Vips: the image library, held to a list of formats and to bounds before it decodes.

libvips is lazy: opening reads the header alone, and pixels flow when a result is written. So all
that can be refused is refused in between. Where its ways are not those of a service:

- it has no bound on pixels, sides or pages: `_check_source`;
- it would load SVG and whatever else is compiled in: only the loaders of `formats` are let in, and
  those that its authors do not trust with strangers' bytes are blocked besides;
- `thumbnail_source(fail_on=...)` is ignored: the option is given to the loader, and the one of TIFF
  takes only a stricter word for it (`_fail_on`). A file that is cut short fails at first and is
  then shown as browsers show it (`_as_browsers`), if any of its rows can be decoded;
- its AVIF takes three times as long at its own default effort as at 3;
- it keeps metadata, position and camera included;
- its cache and its threads are for one program with a few large images: both are off.

This module is imported by a worker process, never by a service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from sluicegate.contracts.errors import MissingPackage
from sluicegate.contracts.image import (
    ImageErrorKind,
    ImageFailure,
    ImageInfo,
    ImageLimits,
    Processed,
)
from sluicegate.contracts.image_spec import ANIMATED, ATTENTION, Crop, ImageSpec
from sluicegate.kernels.image_fit import PERMILLE, ImageFit, cut_offset, fit_image
from sluicegate.kernels.perceptual_hash import COLUMNS, ROWS, difference_hash
from sluicegate.stores.images.cut_png import complete_png
from sluicegate.stores.images.formats import (
    ANIMATED_AVIF,
    HEAD_BYTES,
    MEDIA_TYPES,
    SOURCE_FORMATS,
    ImageFormat,
    frames_of_png,
    sniff_image,
)

try:
    import pyvips
except (ImportError, OSError) as error:
    raise MissingPackage("pyvips", "images") from error

T = TypeVar("T")
# Part of the engine's name: raise it when the same input makes other bytes than before.
REVISION: Final = 3
AVIF_EFFORT: Final = 3
GIF_EFFORT: Final = 1  # 7 takes seven times as long and saves a sixth of the bytes
SPARE: Final = 1.5
_JPEG_SHRINKS: Final = (2, 4, 8)
COLOURS_SIDE: Final = 4
_LOADERS: Final = ("Jpeg", "Png", "Webp", "Nsgif", "Tiff", "Heif")
_KEPT: Final = "exif:xmp:iptc"
_TURNED: Final = range(5, 9)  # orientations that swap width and height
_ANIMATED_SOURCES: Final = ("gif", "webp")
# Browsers show what these still have; a cut WebP or AVIF is not decoded at all by the library.
_SHOWN_DAMAGED: Final = ("jpeg", "gif")
_PAGES: Final = ("", ",n=-1")  # the first page, or all; only some loaders have the option
_DETAIL_CHARS_MAX: Final = 200
_NOT_WRITTEN: Final = "unable to write to memory"  # what the binding adds, whatever the cause


def engine_name() -> str:
    """Return the name and version by which variants are kept."""
    libvips = ".".join(str(pyvips.version(part)) for part in range(3))
    return f"vips-{libvips}-{REVISION}"


def set_up() -> None:
    """Switch off what a service must not have: untrusted loaders, the cache, threads."""
    pyvips.cache_set_max(0)
    pyvips.cache_set_max_mem(0)
    pyvips.block_untrusted_set(True)
    pyvips.operation_block_set("VipsForeignLoad", True)
    for name in _LOADERS:
        pyvips.operation_block_set(f"VipsForeignLoad{name}", False)


class _Source(NamedTuple):
    """An original whose header is read and found to be within the bounds."""

    data: bytes | memoryview
    format: ImageFormat
    width: int  # upright, as all that follows
    height: int
    pages: int
    transparent: bool
    profile: bool  # whether it says itself what its colours are
    upright: bool  # whether it need not be turned
    damaged: bool = False  # decoded as far as possible, whatever it lacks
    rows: int = 0  # that `data` still has, where it was cut; 0 is all


def process_image(data: bytes | memoryview, spec: ImageSpec, limits: ImageLimits) -> Processed:
    """Make what the specification says; an `ImageFailure` says why it cannot be."""
    try:
        source = _open(data, limits)
        fit = fit_image(
            source.width, source.height, spec.width, spec.height, spec.fit, spec.enlarge
        )
        _check_result(fit, limits)
        return _tolerantly(source, lambda seen: _make(seen, spec, fit, limits))
    except pyvips.Error as error:
        raise _failure(error) from None


def _make(source: _Source, spec: ImageSpec, fit: ImageFit, limits: ImageLimits) -> Processed:
    frames = _frames(source, spec, fit, limits)
    name = spec.format
    if frames > 1:
        picture = _animate(source, spec, fit, frames)
        name = "gif" if name == "auto" else name
    else:
        picture = _scale(source, fit.scaled_width, fit.scaled_height, to_be_seen=True)
        picture = _cut(picture, fit, spec, spec.crop)
        if name == "auto":
            name = "png" if picture.hasalpha() else "jpeg"
        picture = _colour(picture, fit, spec, name)
    return Processed(
        _write(picture, name, spec),
        MEDIA_TYPES[name],
        fit.width,
        fit.height,
        source.width * source.height * frames,
        frames,
        source.pages,
    )


def _frames(source: _Source, spec: ImageSpec, fit: ImageFit, limits: ImageLimits) -> int:
    """Return how many frames the result has: all, or the first alone."""
    animated = source.upright and source.format.name in _ANIMATED_SOURCES
    wanted = animated and spec.animate and spec.format in ANIMATED
    scaled = max(fit.width * fit.height, fit.scaled_width * fit.scaled_height)
    if wanted and scaled * source.pages <= limits.animation_pixels_max:
        return source.pages
    return 1


def _animate(source: _Source, spec: ImageSpec, fit: ImageFit, frames: int) -> Any:
    """Return all frames below one another, as libvips holds an animation."""
    roll = _scale(source, fit.scaled_width, fit.scaled_height, pages=-1).copy_memory()
    height = fit.scaled_height
    if (fit.scaled_width, height) == (fit.width, fit.height) and not spec.background:
        return roll
    crop = spec.crop
    if isinstance(crop, str):  # of the first frame alone: a window that moves would shake
        crop = _attention(roll.crop(0, 0, roll.width, height), fit)
    cut = []
    for at in range(frames):
        frame = roll.crop(0, at * height, roll.width, height)
        cut.append(_colour(_cut(frame, fit, spec, crop), fit, spec, "webp"))
    joined = pyvips.Image.arrayjoin(cut, across=1).copy()
    joined.set_type(pyvips.GValue.gint_type, "page-height", fit.height)
    return joined


def _attention(picture: Any, fit: ImageFit) -> tuple[int, int]:
    """Return the point in permille that attracts the eye."""
    _, found = picture.smartcrop(
        fit.width, fit.height, interesting=ATTENTION, attention_x=True, attention_y=True
    )
    x, y = found["attention_x"], found["attention_y"]
    return x * PERMILLE // picture.width, y * PERMILLE // picture.height


def _tolerantly(source: _Source, work: Callable[[_Source], T]) -> T:
    """Decode; a file that is cut short is decoded again, as far as browsers show it."""
    try:
        return work(source)
    except pyvips.Error as error:
        failure = _failure(error)
        damaged = _as_browsers(source) if failure.kind is ImageErrorKind.CORRUPT else None
        if damaged is None:
            raise failure from None
        return work(damaged)


def _as_browsers(source: _Source) -> _Source | None:
    """Return a source that is read past its faults; None if there is nothing to see.

    It depends on the bytes alone, not on the requested size.
    """
    if source.format.name == "png":
        cut = complete_png(source.data)
        return None if cut is None else source._replace(data=cut.data, damaged=True, rows=cut.rows)
    if source.format.name not in _SHOWN_DAMAGED:
        return None
    damaged = source._replace(damaged=True)
    if source.format.name == "jpeg" and not _has_rows(source):
        return None
    return damaged


def _has_rows(source: _Source) -> bool:
    """Whether a JPEG has a row before it ends; a progressive one has a scan."""
    picture = pyvips.Image.jpegload_source(
        _source_of(source.data), access="sequential", fail_on="truncated"
    )
    if picture.get_typeof("interlaced"):
        return True
    try:
        pyvips.Region.new(picture).fetch(0, 0, picture.width, 1)
    except pyvips.Error:
        return False
    return True


def describe_image(data: bytes | memoryview, limits: ImageLimits) -> ImageInfo:
    """Say what an original is, having decoded it whole."""
    try:
        source = _open(data, limits)
        seen = _tolerantly(source, lambda one: (_perceptual_hash(one), _colours(one)))
        return ImageInfo(
            source.format.name,
            source.format.media_type,
            source.width,
            source.height,
            source.pages,
            source.transparent,
            *seen,
        )
    except pyvips.Error as error:
        raise _failure(error) from None


def _open(data: bytes | memoryview, limits: ImageLimits) -> _Source:
    if len(data) > limits.source_bytes_max:
        raise _too_large(f"{len(data):,} bytes; source_bytes_max is {limits.source_bytes_max:,}")
    found = sniff_image(bytes(data[:HEAD_BYTES]))
    if found is None:
        names = ", ".join(one.name for one in SOURCE_FORMATS)
        raise ImageFailure(ImageErrorKind.WRONG_TYPE, f"its first bytes are none of {names}")
    try:
        image = pyvips.Image.new_from_source(_source_of(data), "", access="sequential")
    except pyvips.Error:
        if bytes(data[8:12]) != ANIMATED_AVIF:
            raise
        detail = "animated AVIF is not supported"
        raise ImageFailure(ImageErrorKind.WRONG_TYPE, detail) from None
    loader = image.get("vips-loader").removesuffix("_source")
    if loader != found.loader:
        raise ImageFailure(ImageErrorKind.WRONG_TYPE, f"begins as {found.name}, and is {loader}")
    pages = _number(image, "n-pages", 1)
    width, height = image.width, image.height
    orientation = _number(image, "orientation", 1)
    if orientation in _TURNED:
        width, height = height, width
    profile = bool(image.get_typeof("icc-profile-data"))
    source = _Source(data, found, width, height, pages, image.hasalpha(), profile, orientation == 1)
    _check_source(source, limits)
    # Of an animated PNG libvips reads the first frame alone, so only that counts for the bounds.
    return source._replace(pages=frames_of_png(data)) if found.name == "png" else source


def _source_of(data: bytes | memoryview) -> Any:
    """Return what is read where it is; each call with a buffer would make a copy of it."""
    return pyvips.Source.new_from_memory(data)


def _fail_on(source: _Source) -> str:
    """Return from which fault on a loader gives up; most files with lesser ones look right."""
    if source.damaged:
        return "none"
    return "error" if source.format.loader == "tiffload" else "truncated"


def _check_source(source: _Source, limits: ImageLimits) -> None:
    size = f"{source.width:,} x {source.height:,} pixels"
    if max(source.width, source.height) > limits.source_side_max:
        raise _too_large(f"{size}; source_side_max is {limits.source_side_max:,}")
    if source.pages > limits.source_pages_max:
        raise _too_large(f"{source.pages:,} pages; source_pages_max is {limits.source_pages_max:,}")
    if source.width * source.height * source.pages > limits.source_pixels_max:
        raise _too_large(
            f"{size} on {source.pages:,} pages; source_pixels_max is {limits.source_pixels_max:,}"
        )
    if min(source.width, source.height) < limits.source_side_min:
        raise ImageFailure(
            ImageErrorKind.TOO_SMALL, f"{size}; source_side_min is {limits.source_side_min:,}"
        )


def _check_result(fit: ImageFit, limits: ImageLimits) -> None:
    for width, height in ((fit.scaled_width, fit.scaled_height), (fit.width, fit.height)):
        size = f"a result of {width:,} x {height:,} pixels"
        if max(width, height) > limits.result_side_max:
            raise _too_large(f"{size}; result_side_max is {limits.result_side_max:,}")
        if width * height > limits.result_pixels_max:
            raise _too_large(f"{size}; result_pixels_max is {limits.result_pixels_max:,}")


def _scale(
    source: _Source, width: int, height: int, *, to_be_seen: bool = False, pages: int = 1
) -> Any:
    """Return the original upright, in sRGB, of exactly this size; not decoded yet."""
    # A profile takes as long to apply as all the rest, so only those that have one pay for it.
    colours = {"output_profile": "srgb"} if source.profile else {}
    shrink = _jpeg_shrink(source, width, height) if to_be_seen else 1  # a hash sees more
    if source.rows:
        loaded = pyvips.Image.pngload_source(_source_of(source.data))
        if source.rows < source.height:  # the missing rows are transparent
            loaded = loaded if loaded.hasalpha() else loaded.addalpha()
            loaded = loaded.embed(0, 0, source.width, source.height)
        scaled = loaded.thumbnail_image(width, height=height, size="force", **colours)
    elif shrink > 1:
        loaded = pyvips.Image.jpegload_source(
            _source_of(source.data),
            shrink=shrink,
            access="sequential",
            fail_on=_fail_on(source),
        )
        if _is_plain(loaded, source):  # what the other does too, and a dozen things besides
            return loaded.resize(width / loaded.width, vscale=height / loaded.height)
        scaled = loaded.thumbnail_image(width, height=height, size="force", **colours)
    else:
        scaled = pyvips.Image.thumbnail_source(
            _source_of(source.data),
            width,
            height=height,
            size="force",
            option_string=f"[fail_on={_fail_on(source)}{_PAGES[pages != 1]}]",
            **colours,
        )
    return scaled if scaled.interpretation == "srgb" else scaled.colourspace("srgb")


def _is_plain(loaded: Any, source: _Source) -> bool:
    """Whether an image only needs another size: it is upright, and its colours are ours."""
    upright = _number(loaded, "orientation", 1) == 1
    return upright and not source.profile and loaded.interpretation == "srgb"


def _jpeg_shrink(source: _Source, width: int, height: int) -> int:
    """By how much a JPEG is made smaller as it is decoded; 1 leaves it to the library.

    The library leaves twice the result to its own scaling. With `SPARE` times it a photo that is
    made 7.5 times smaller takes a fifth less time, and is 52 dB from what Pillow makes of all its
    pixels, instead of 54: nobody sees either.
    """
    if source.format.name != "jpeg":
        return 1
    least = min(source.width / width, source.height / height)
    return max((one for one in _JPEG_SHRINKS if least >= one * SPARE), default=1)


def _cut(picture: Any, fit: ImageFit, spec: ImageSpec, crop: Crop) -> Any:
    if spec.fit != "cover" or (picture.width, picture.height) == (fit.width, fit.height):
        return picture
    if isinstance(crop, str):
        # What is looked at before it is cut is decoded once: it is small.
        seen = picture.copy_memory()
        return seen.smartcrop(fit.width, fit.height, interesting=ATTENTION)
    x, y = crop
    left = cut_offset(picture.width, fit.width, x)
    top = cut_offset(picture.height, fit.height, y)
    return picture.crop(left, top, fit.width, fit.height)


def _colour(picture: Any, fit: ImageFit, spec: ImageSpec, name: str) -> Any:
    """Put the background behind and beside; none is white where a format needs one."""
    behind = list(bytes.fromhex(spec.background or "ffffff"))
    if picture.hasalpha() and (spec.background or name == "jpeg"):
        picture = picture.flatten(background=behind)
    if (picture.width, picture.height) == (fit.width, fit.height):
        return picture
    if name != "jpeg" and not spec.background and not picture.hasalpha():
        picture = picture.addalpha()
    beside = [*behind, 0] if picture.hasalpha() else behind
    return picture.gravity("centre", fit.width, fit.height, extend="background", background=beside)


def _write(picture: Any, name: str, spec: ImageSpec) -> bytes:
    keep = "none" if spec.strip else _KEPT
    if name == "jpeg":
        quality = spec.quality or ImageSpec(format="jpeg").quality
        written = picture.jpegsave_buffer(Q=quality, keep=keep, optimize_coding=True)
    elif name == "png":
        written = picture.pngsave_buffer(keep=keep)
    elif name == "gif":
        written = picture.gifsave_buffer(keep=keep, effort=GIF_EFFORT)
    elif name == "webp":
        written = picture.webpsave_buffer(Q=spec.quality, keep=keep)
    else:
        written = picture.heifsave_buffer(
            Q=spec.quality, keep=keep, compression="av1", effort=AVIF_EFFORT, bitdepth=8
        )
    return bytes(written)


def _perceptual_hash(source: _Source) -> int:
    grey = _scale(source, COLUMNS, ROWS)
    if grey.hasalpha():
        grey = grey.flatten(background=[255, 255, 255])
    return difference_hash(
        grey.colourspace("b-w").cast("uchar").write_to_memory()[: COLUMNS * ROWS]
    )


def _colours(source: _Source) -> bytes:
    small = _scale(source, COLOURS_SIDE, COLOURS_SIDE)
    if small.hasalpha():
        small = small.flatten(background=[255, 255, 255])
    return bytes(small.cast("uchar").write_to_memory()[: COLOURS_SIDE * COLOURS_SIDE * 3])


def _number(image: Any, name: str, default: int) -> int:
    return int(image.get(name)) if image.get_typeof(name) else default


def _too_large(detail: str) -> ImageFailure:
    return ImageFailure(ImageErrorKind.TOO_LARGE, detail)


def _failure(error: Exception) -> ImageFailure:
    """Say in one line what the library says in several, of which the last is the cause."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and line != _NOT_WRITTEN]
    detail = (lines[-1] if lines else "the library does not say why")[:_DETAIL_CHARS_MAX]
    if "memory" in detail:
        return ImageFailure(ImageErrorKind.NO_MEMORY, detail)
    if "too large" in detail:
        return _too_large(detail)
    return ImageFailure(ImageErrorKind.CORRUPT, detail)
