"""The library against Pillow, and each of its traps by itself."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image, ImageOps

from sluicegate.contracts.image import ImageErrorKind, ImageFailure, ImageLimits, Processed
from sluicegate.contracts.image_spec import PLACEHOLDER, parse_spec
from sluicegate.kernels.perceptual_hash import hash_distance
from sluicegate.stores.images.formats import sniff_image
from sluicegate.stores.images.vips import (
    AVIF_EFFORT,
    describe_image,
    engine_name,
    process_image,
    set_up,
)
from tests.stores.images import pictures
from tests.stores.images.pictures import decode, difference, encode, jpeg, picture

LIMITS = ImageLimits()
SMALL = parse_spec("w=60,format=png")


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    set_up()


def process(data: bytes, spec: str, **limits: int) -> Processed:
    return process_image(data, parse_spec(spec), LIMITS._replace(**limits))


def shown(data: bytes, spec: str) -> Image.Image:
    made = process(data, spec)
    found = decode(made.data)
    assert found.size == (made.width, made.height)
    assert found.get_format_mimetype() == made.media_type  # type: ignore[attr-defined]
    return found


def failure(data: bytes, spec: str = "w=60", **limits: int) -> ImageFailure:
    with pytest.raises(ImageFailure) as failed:
        process(data, spec, **limits)
    with pytest.raises(ImageFailure) as undescribed:
        describe_image(data, LIMITS._replace(**limits))
    if not failed.value.detail.startswith("a result"):
        assert undescribed.value.kind == failed.value.kind
    return failed.value


SOURCES = {
    "jpeg": jpeg(),
    "png": encode(picture(), "PNG"),
    "webp": encode(picture(), "WEBP", quality=95),
    "gif": encode(picture(), "GIF"),
    "tiff": encode(picture(), "TIFF", compression="tiff_lzw"),
    "avif": encode(picture(), "AVIF", quality=90),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("result", ["jpeg", "webp", "avif", "png"])
def test_a_result_has_the_size_and_the_colours_that_pillow_makes(source: str, result: str) -> None:
    found = shown(SOURCES[source], f"w=120,format={result}")
    oracle = decode(SOURCES[source]).convert("RGB").resize((120, 80), Image.Resampling.LANCZOS)
    assert difference(found, oracle) < (8 if source == "gif" else 4)


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ("w=60,h=60", (60, 40)),
        ("w=60,h=60,fit=cover", (60, 60)),
        ("w=60,h=60,fit=contain", (60, 60)),
        ("w=60,h=60,fit=fill", (60, 60)),
        ("w=480", (240, 160)),
        ("w=480,enlarge=yes", (480, 320)),
        ("h=40", (60, 40)),
        ("w=30,dpr=2", (60, 40)),
        ("format=auto", (240, 160)),
    ],
)
def test_the_size_is_the_one_that_was_specified(spec: str, size: tuple[int, int]) -> None:
    assert shown(jpeg(), spec).size == size


def test_a_focal_point_says_what_a_cut_keeps() -> None:
    left = shown(jpeg(), "w=40,h=160,fit=cover,crop=0:500,format=png")
    right = shown(jpeg(), "w=40,h=160,fit=cover,crop=1000:500,format=png")
    assert difference(left, picture().crop((0, 0, 40, 160))) < 4
    assert difference(right, picture().crop((200, 0, 240, 160))) < 4


def test_attention_keeps_what_stands_out() -> None:
    plain = Image.new("RGB", (300, 100), (120, 130, 140))
    plain.paste(picture(60, 60, "RGB").effect_spread(9), (230, 20))
    found = shown(encode(plain, "PNG"), "w=100,h=100,fit=cover,crop=attention,format=png")
    assert difference(found, Image.new("RGB", (100, 100), (120, 130, 140))) > 10


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_stands_upright_and_no_longer_says_that_it_lies(orientation: int) -> None:
    data = pictures.turned(orientation)
    upright = ImageOps.exif_transpose(decode(data))
    found = shown(data, "format=png,strip=no")
    assert difference(found, upright) < 4
    assert found.getexif().get(pictures.ORIENTATION, 1) == 1
    described = describe_image(data, LIMITS)
    assert (described.width, described.height) == upright.size
    cut = shown(data, "w=50,h=30,fit=cover,format=png")
    assert difference(cut, ImageOps.fit(upright, (50, 30), Image.Resampling.LANCZOS)) < 5


def test_metadata_is_gone_unless_it_is_kept() -> None:
    data = pictures.turned(6)
    assert not dict(shown(data, "format=jpeg").getexif())
    assert shown(data, "format=jpeg,strip=no").getexif()[0x010F] == "a camera"


def test_cmyk_becomes_rgb() -> None:
    data = encode(picture(mode="CMYK"), "JPEG", quality=95)
    found = shown(data, "w=120,format=png")
    assert found.mode == "RGB"
    # Pillow converts without a profile: alike, not the same.
    assert difference(found, decode(data).convert("RGB").resize((120, 80))) < 40


def test_a_profile_is_applied_and_then_left_out() -> None:
    data = encode(picture(), "PNG", icc_profile=pictures.swapped_profile())
    red, green, blue = picture().split()
    swapped = Image.merge("RGB", (green, red, blue))
    found = shown(data, "format=png")
    assert difference(found, swapped) < 4 < difference(found, picture())
    assert "icc_profile" not in found.info
    assert "icc_profile" not in shown(data, "format=png,strip=no").info


def test_grey_and_deep_pictures_become_ordinary_ones() -> None:
    assert shown(encode(picture(mode="L"), "PNG"), "w=60,format=jpeg").size == (60, 40)
    deep = picture(mode="L").convert("I").point(lambda level: level * 257).convert("I;16")
    found = shown(encode(deep, "PNG"), "format=png")
    assert difference(found, picture(mode="L")) < 3


def test_pages_of_animation_count_against_source_pixels() -> None:
    data = pictures.animation()
    assert describe_image(data, LIMITS).pages == 6
    assert difference(shown(data, "format=png"), decode(data)) < 2
    # Control: its pixels on one page are within the bound, on all of them not.
    assert process(pictures.animation(1), "format=png", source_pixels_max=60 * 40)
    assert failure(data, source_pixels_max=60 * 40).kind is ImageErrorKind.TOO_LARGE
    assert "6 pages; source_pages_max" in failure(data, source_pages_max=5).detail


def test_transparency_stays_where_it_can_and_has_a_background_where_not() -> None:
    data = encode(pictures.transparent(), "PNG")
    assert shown(data, "w=60,format=webp").convert("RGBA").getpixel((0, 0))[3] == 0  # type: ignore[index]
    assert shown(data, "w=60,format=auto").mode == "RGBA"
    assert shown(data, "w=60,format=jpeg").getpixel((0, 0)) == (255, 255, 255)
    red = shown(data, "w=60,format=png,bg=ff0000")
    assert (red.mode, red.getpixel((0, 0))) == ("RGB", (255, 0, 0))
    assert shown(jpeg(), "w=60,format=auto").format == "JPEG"


def test_beside_a_contained_picture_is_the_background() -> None:
    assert shown(jpeg(), "w=60,h=60,fit=contain,format=png,bg=00ff00").getpixel((0, 0)) == (
        0,
        255,
        0,
    )
    clear = shown(jpeg(), "w=60,h=60,fit=contain,format=png")
    assert clear.getpixel((0, 0))[3] == 0  # type: ignore[index]
    assert clear.getpixel((30, 30))[3] == 255  # type: ignore[index]
    (level, *_) = shown(jpeg(), "w=60,h=60,fit=contain,format=jpeg").getpixel((0, 0))  # type: ignore[misc]
    assert level > 250


@pytest.mark.parametrize("width", [20, 50, 120, 200, 239])
def test_the_placeholder_is_small_and_shows_the_same(width: int) -> None:
    made = process(process(jpeg(), f"w={width}").data, PLACEHOLDER)
    found = decode(made.data)
    assert found.format == "WEBP"
    assert max(found.size) == min(width, 32)
    assert len(made.data) < 400
    assert difference(found, picture().resize(found.size)) < 12


def test_the_same_picture_in_another_size_and_format_has_nearly_the_same_hash() -> None:
    noise = np.random.default_rng(5).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    photo = Image.fromarray(noise).resize((240, 160), Image.Resampling.BICUBIC)
    one = describe_image(encode(photo, "PNG"), LIMITS).perceptual_hash
    other = describe_image(encode(photo.resize((150, 100)), "JPEG", quality=60), LIMITS)
    mirrored = describe_image(encode(ImageOps.mirror(photo), "PNG"), LIMITS).perceptual_hash
    assert hash_distance(one, other.perceptual_hash) <= 4
    assert hash_distance(one, mirrored) > 10


# The traps.


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("name", ["webp", "tiff", "avif"])
def test_a_truncated_picture_is_refused(name: str, kept: float) -> None:
    data = SOURCES[name]
    assert process(data, "w=60")
    cut = failure(data[: int(len(data) * kept)])
    assert cut.kind is ImageErrorKind.CORRUPT
    assert cut.detail


def test_an_uncompressed_tiff_that_is_truncated_is_refused_too() -> None:
    data = encode(picture(), "TIFF")
    assert process(data, "w=60")
    assert failure(data[: len(data) // 2]).kind is ImageErrorKind.CORRUPT


def test_the_option_of_the_library_that_is_ignored_still_is() -> None:
    """When this fails, `fail_on` works for what is in memory: `_scale` may say it plainly."""
    half = pyvips.Source.new_from_memory(jpeg()[: len(jpeg()) // 2])
    taken: Any = pyvips.Image.thumbnail_source(half, 60, fail_on="truncated")
    assert taken.jpegsave_buffer()


@pytest.mark.parametrize(
    "data",
    [
        b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>',
        b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
        b"%PDF-1.4",
        b"",
        b"\xff",
        b"P6 1 1 255\n\0\0\0",
        encode(picture(), "BMP"),
        encode(picture(), "JPEG2000"),
        b"RIFF\0\0\0\0WAVEfmt ",
        b"\0\0\0\x1cftypheic\0\0\0\0",
    ],
)
def test_what_is_not_in_the_list_of_formats_is_not_opened(data: bytes) -> None:
    assert sniff_image(data) is None
    assert failure(data).kind is ImageErrorKind.WRONG_TYPE


def test_the_library_itself_refuses_svg_even_if_the_first_bytes_lie() -> None:
    for data in (b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', b"P6 1 1 255 "):
        with pytest.raises(pyvips.Error):
            pyvips.Image.new_from_buffer(data, "")


def test_fifty_thousand_pixels_a_side_are_refused_by_the_header_alone() -> None:
    large = failure(pictures.header_alone(50_000, 50_000))
    assert large.kind is ImageErrorKind.TOO_LARGE
    assert "50,000 x 50,000 pixels; source_side_max is 30,000" in large.detail
    area = failure(pictures.header_alone(20_000, 20_000))
    assert "source_pixels_max" in area.detail


def test_a_bomb_is_refused_and_a_large_picture_within_the_bounds_is_not() -> None:
    data = pictures.bomb(2_000)
    assert len(data) < 2_000
    assert failure(data, source_pixels_max=3_999_999).kind is ImageErrorKind.TOO_LARGE
    assert process(data, "w=20", source_pixels_max=4_000_000).width == 20


@pytest.mark.parametrize(
    ("spec", "limits", "kind", "said"),
    [
        ("w=60", {"source_bytes_max": 100}, "too_large", "source_bytes_max is 100"),
        ("w=60", {"source_side_min": 161}, "too_small", "source_side_min is 161"),
        ("w=9000,enlarge=yes", {}, "too_large", "result_side_max"),
        ("w=60,h=60,fit=contain", {"result_pixels_max": 3_599}, "too_large", "result_pixels_max"),
    ],
)
def test_a_bound_that_is_passed_is_named(
    spec: str, limits: dict[str, int], kind: str, said: str
) -> None:
    if "source" in said:
        refused = failure(jpeg(), spec, **limits)
    else:
        with pytest.raises(ImageFailure) as failed:
            process(jpeg(), spec, **limits)
        refused = failed.value
    assert refused.kind == kind
    assert said in refused.detail


def test_a_line_with_an_open_side_does_not_become_a_tower() -> None:
    with pytest.raises(ImageFailure, match="a result of 500 x 100,000 pixels"):
        process(encode(Image.new("RGB", (1, 200)), "PNG"), "w=500,enlarge=yes")


def test_avif_is_written_with_the_effort_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    write = pyvips.Image.heifsave_buffer

    def record(image: Any, **options: Any) -> Any:
        asked.append(options)
        return write(image, **options)

    monkeypatch.setattr(pyvips.Image, "heifsave_buffer", record, raising=False)
    process(jpeg(), "w=60,format=avif")
    assert [options["effort"] for options in asked] == [AVIF_EFFORT] == [3]


def test_the_same_input_makes_the_same_bytes_and_the_engine_says_its_version() -> None:
    assert process(jpeg(), "w=60,format=webp") == process(jpeg(), "w=60,format=webp")
    assert engine_name().startswith("vips-8.")


def test_a_progressive_jpeg_is_taken_like_another() -> None:
    into = io.BytesIO()
    picture().save(into, "JPEG", progressive=True, quality=92)
    assert difference(shown(into.getvalue(), "format=png"), picture()) < 4


@pytest.mark.parametrize("width", [300, 150, 75, 40])
def test_a_jpeg_that_is_made_small_as_it_is_decoded_looks_as_if_it_were_not(width: int) -> None:
    """By 4 to 30 times: what the decoder leaves out nobody sees (40 dB is a good JPEG)."""
    chance = np.random.default_rng(3)
    coarse = Image.fromarray(chance.integers(0, 256, (12, 18, 3), dtype=np.uint8))
    photo = coarse.resize((1_200, 800), Image.Resampling.BICUBIC)
    data = encode(photo, "JPEG", quality=90)
    found = decode(process(data, f"w={width},format=png").data).convert("RGB")
    exact = Image.open(io.BytesIO(data)).resize(found.size, Image.Resampling.LANCZOS)
    error = np.asarray(found, float) - np.asarray(exact, float)
    assert 10 * np.log10(255**2 / (error**2).mean()) > 40


@pytest.mark.parametrize(
    ("mode", "icc_profile"), [("RGB", pictures.swapped_profile()), ("CMYK", None), ("L", None)]
)
def test_a_jpeg_that_is_made_small_as_it_is_decoded_has_its_colours(
    mode: str, icc_profile: bytes | None
) -> None:
    """Those that it has where it is so small that all of it is decoded."""
    large = picture(1_200, 800, mode)
    options = {"quality": 95, "icc_profile": icc_profile}
    found = shown(encode(large, "JPEG", **options), "w=120,format=png")
    small = shown(encode(large.resize((120, 80)), "JPEG", **options), "format=png")
    assert found.mode == "RGB"
    assert difference(found, small) < 6
    assert small.mode == found.mode
