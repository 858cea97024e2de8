"""Animations: every frame, its delay and the loop, against Pillow."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageSequence

from sluicegate.contracts.image import ImageLimits, Processed
from sluicegate.contracts.image_spec import PLACEHOLDER, parse_spec
from sluicegate.stores.images.vips import process_image, set_up
from tests.stores.images.pictures import difference, picture

LIMITS = ImageLimits()
DELAYS = [40, 70, 100, 130, 160]


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    set_up()


def frames() -> list[Image.Image]:
    base = picture(120, 80)
    return [base.rotate(36 * at) for at in range(len(DELAYS))]


def animation(name: str, *, loop: int = 3, **options: object) -> bytes:
    first, *rest = frames()
    into = io.BytesIO()
    options = {"duration": DELAYS, "loop": loop, "append_images": rest, **options}
    first.save(into, name, save_all=True, **options)
    return into.getvalue()


SOURCES = {"gif": animation("GIF"), "webp": animation("WEBP", lossless=True)}


def process(data: bytes, spec: str, **limits: int) -> Processed:
    return process_image(data, parse_spec(spec), LIMITS._replace(**limits))


def opened(made: Processed) -> Image.Image:
    found = Image.open(io.BytesIO(made.data))
    assert found.size == (made.width, made.height)
    return found


def delays(data: bytes) -> list[int]:
    found = Image.open(io.BytesIO(data))
    times = []
    for frame in ImageSequence.Iterator(found):
        frame.load()
        times.append(frame.info["duration"])
    return times


@pytest.mark.parametrize("result", ["gif", "webp"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ("w=60", (60, 40)),
        ("w=40,h=40,fit=cover", (40, 40)),
        ("w=40,h=40,fit=cover,crop=attention", (40, 40)),
        ("w=60,h=60,fit=contain,bg=ff0000", (60, 60)),
        ("strip=no", (120, 80)),
    ],
)
def test_animation_keeps_frames_delays_and_loop(
    source: str, result: str, spec: str, size: tuple[int, int]
) -> None:
    made = process(SOURCES[source], f"{spec},format={result}")
    assert (made.media_type, made.frames, made.pages) == (f"image/{result}", 5, 5)
    assert (made.width, made.height) == size
    found = opened(made)
    assert found.n_frames == 5  # type: ignore[attr-defined]
    assert delays(made.data) == DELAYS
    # The same loop as the library's own copy of the original: formats count repeats differently.
    plain = opened(process(SOURCES[source], f"format={source}"))
    assert found.info["loop"] - (result == "webp") == plain.info["loop"] - (source == "webp")


@pytest.mark.parametrize("source", SOURCES)
def test_frames_of_animation_are_each_resized(source: str) -> None:
    found = opened(process(SOURCES[source], "w=60,format=webp,q=95"))
    for at, frame in enumerate(frames()):
        found.seek(at)
        wanted = frame.resize((60, 40), Image.Resampling.LANCZOS)
        assert difference(found.convert("RGB"), wanted) < 10, at


def test_endless_animation_stays_endless() -> None:
    assert opened(process(animation("GIF", loop=0), "w=60,format=webp")).info["loop"] == 0
    assert opened(process(animation("GIF", loop=0), "w=60,format=gif")).info["loop"] == 0


def test_auto_format_of_animation_is_gif() -> None:
    assert process(SOURCES["webp"], "w=60").media_type == "image/gif"


@pytest.mark.parametrize("result", ["jpeg", "png", "avif"])
def test_format_without_animation_gives_first_frame(result: str) -> None:
    made = process(SOURCES["gif"], f"w=60,format={result}")
    assert (made.frames, made.pages) == (1, 5)
    wanted = frames()[0].resize((60, 40), Image.Resampling.LANCZOS)
    assert difference(opened(made).convert("RGB"), wanted) < 12


def test_animate_no_gives_first_frame() -> None:
    made = process(SOURCES["gif"], "w=60,format=webp,animate=no")
    assert (made.frames, made.pages) == (1, 5)
    assert process(SOURCES["gif"], PLACEHOLDER).frames == 1


def test_animation_over_its_pixels_gives_first_frame() -> None:
    made = process(SOURCES["gif"], "w=60,format=webp", animation_pixels_max=5 * 60 * 40)
    assert made.frames == 5
    made = process(SOURCES["gif"], "w=60,format=webp", animation_pixels_max=5 * 60 * 40 - 1)
    assert (made.frames, made.pages) == (1, 5)


def test_cut_animation_shows_frames_it_has() -> None:
    data = SOURCES["gif"]
    made = process(data[: len(data) * 2 // 3], "w=60,format=webp")
    assert 1 < made.frames <= 5
    assert opened(made).n_frames == made.frames  # type: ignore[attr-defined]


def test_still_gif_is_written_as_one_frame() -> None:
    into = io.BytesIO()
    picture().save(into, "PNG")
    made = process(into.getvalue(), "w=60,format=gif")
    assert (made.media_type, made.frames, made.pages) == ("image/gif", 1, 1)
