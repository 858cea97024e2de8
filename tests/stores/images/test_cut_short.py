"""Originals that are cut short: one verdict for each, the one of a browser."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sluicegate.contracts.image import ImageErrorKind, ImageFailure, ImageLimits
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images.cut_png import complete_png
from sluicegate.stores.images.vips import describe_image, process_image, set_up
from tests.stores.images import pictures
from tests.stores.images.pictures import decode, difference, encode, jpeg, picture

LIMITS = ImageLimits()
WIDTHS = (8, 30, 60, 100, 160, 240, 500)
SHARES = (0.35, 0.5, 0.75, 0.95)
LARGE = picture(700, 480)


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    set_up()


def shown(data: bytes, spec: str) -> Image.Image:
    return decode(process_image(data, parse_spec(spec), LIMITS).data)


def verdicts(data: bytes) -> set[str]:
    """How the original ends in every size, and described."""
    found = set()
    for width in WIDTHS:
        try:
            process_image(data, parse_spec(f"w={width},format=png"), LIMITS)
            found.add("shown")
        except ImageFailure as failure:
            found.add(failure.kind.value)
    try:
        describe_image(data, LIMITS)
        found.add("shown")
    except ImageFailure as failure:
        found.add(failure.kind.value)
    return found


def noisy() -> Image.Image:
    noise = np.random.default_rng(7).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    return Image.fromarray(noise)


ORIGINALS = {
    "jpeg": encode(LARGE, "JPEG", quality=90),
    "progressive jpeg": encode(LARGE, "JPEG", quality=90, progressive=True),
    "cmyk jpeg": encode(LARGE.convert("CMYK"), "JPEG"),
    "noisy jpeg": encode(noisy(), "JPEG"),
    "png": encode(picture(), "PNG"),
    "large png": encode(noisy(), "PNG"),
    "palette png": encode(picture().quantize(), "PNG"),
    "grey png": encode(picture(mode="L"), "PNG"),
    "gif": encode(picture(), "GIF"),
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", ORIGINALS)
def test_cut_original_is_shown_in_every_size(name: str, share: float) -> None:
    data = ORIGINALS[name]
    assert verdicts(data[: int(len(data) * share)]) == {"shown"}


@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "noisy jpeg"])
def test_jpeg_without_end_marker_looks_complete(name: str) -> None:
    data = ORIGINALS[name]
    assert data.endswith(b"\xff\xd9")
    for width in (60, 300):
        spec = f"w={width},format=png"
        assert difference(shown(data[:-2], spec), shown(data, spec)) < 2


def test_cut_jpeg_shows_its_rows() -> None:
    data = ORIGINALS["jpeg"]
    found = shown(data[: len(data) // 2], "w=300,format=png")
    whole = shown(data, "w=300,format=png")
    top = (0, 0, 300, 40)
    assert difference(found.crop(top), whole.crop(top)) < 2
    assert difference(found, whole) > 10  # the rest is gray


@pytest.mark.parametrize("name", ["png", "large png", "palette png", "grey png"])
def test_cut_png_shows_its_rows_and_is_transparent_below(name: str) -> None:
    data = ORIGINALS[name]
    found = shown(data[: len(data) // 2], "format=png").convert("RGBA")
    whole = shown(data, "format=png")
    assert found.size == whole.size
    alpha = np.asarray(found)[:, 0, 3]
    rows = int((alpha == 255).sum())
    assert rows > 10
    assert alpha[:rows].min() == 255
    assert alpha[rows:].max() == 0
    top = (0, 0, found.width, rows)
    assert difference(found.crop(top), whole.crop(top)) < 1


def test_cut_png_has_background_in_jpeg() -> None:
    data = ORIGINALS["large png"]
    found = shown(data[: len(data) // 2], "format=jpeg,bg=00ff00")
    red, green, blue = found.getpixel((5, found.height - 5))  # type: ignore[misc]
    assert red < 20
    assert green > 235
    assert blue < 20


def test_interlaced_png_that_is_cut_is_shown() -> None:
    # An interlaced file of one pixel a pass is written by hand: Pillow writes none.
    whole = pictures.interlaced(64, 48)
    assert difference(decode(whole), shown(whole, "format=png")) == 0
    assert verdicts(whole[: len(whole) // 2]) == {"shown"}


def first_scan(data: bytes) -> int:
    """The end of the header of the first scan."""
    at = data.find(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


@pytest.mark.parametrize(
    "data",
    [
        jpeg()[: first_scan(jpeg())],
        jpeg()[:200],
        encode(picture(), "PNG")[:33],
        encode(picture(), "PNG")[:60],
        encode(picture(), "GIF")[:10],
        pictures.header_alone(30, 20)[:41],
    ],
    ids=["jpeg header", "jpeg tables", "png header", "png of no row", "gif header", "png"],
)
def test_original_without_one_row_is_corrupt_in_every_size(data: bytes) -> None:
    assert verdicts(data) == {ImageErrorKind.CORRUPT.value}


def test_completed_png_is_bounded_by_its_header() -> None:
    data = encode(Image.new("L", (100, 10)), "PNG")
    # The header says one row, and the data would be ten.
    assert complete_png(data[:16] + b"\0\0\0\x64\0\0\0\x01" + data[24:]) is not None
    assert complete_png(b"\x89PNG\r\n\x1a\n") is None
    assert complete_png(data[:30]) is None
