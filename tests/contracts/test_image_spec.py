from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.image import ImageErrorKind, ImageFailure
from sluicegate.contracts.image_spec import (
    CENTRE,
    FITS,
    FORMATS,
    SIDE_MAX,
    ImageSpec,
    check_presets,
    parse_spec,
)

sides = st.integers(0, 500)
points = st.tuples(st.integers(0, 1_000), st.integers(0, 1_000))
fields = st.fixed_dictionaries(
    {},
    optional={
        "width": sides,
        "height": sides,
        "fit": st.sampled_from(FITS),
        "crop": st.one_of(st.just("attention"), st.just(CENTRE), points),
        "enlarge": st.sampled_from([None, True, False]),
        "format": st.sampled_from(FORMATS),
        "quality": st.integers(0, 100),
        "background": st.sampled_from(["", "ffffff", "FFffFF", "102030"]),
        "strip": st.booleans(),
        "animate": st.booleans(),
        "device_pixel_ratio": st.sampled_from([0.1, 0.5, 1, 1.5, 2, 8]),
    },
)


def _spec_of(given: dict[str, Any]) -> ImageSpec:
    return ImageSpec(**given)


specs = fields.map(_spec_of)


@given(specs)
def test_the_text_of_a_specification_makes_it_again(spec: ImageSpec) -> None:
    again = parse_spec(spec.canonical())
    assert again == spec
    assert again.canonical() == spec.canonical()
    for name in ("width", "height", "fit", "crop", "enlarge", "format", "quality", "background"):
        assert getattr(again, name) == getattr(spec, name), name
    assert (again.strip, again.animate) == (spec.strip, spec.animate)


@given(specs, specs)
def test_equal_specifications_have_one_text_and_one_hash(one: ImageSpec, two: ImageSpec) -> None:
    assert (one == two) == (one.canonical() == two.canonical())
    if one == two:
        assert hash(one) == hash(two)


@given(specs, st.randoms(use_true_random=False))
def test_the_order_of_the_parts_makes_no_difference(spec: ImageSpec, order: object) -> None:
    parts = spec.canonical().split(",")
    order.shuffle(parts)  # type: ignore[attr-defined]
    assert parse_spec(",".join(parts)) == spec


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("w=200,h=100,dpr=2", "w=400,h=200"),
        ("w=400,fit=cover", "w=400,fit=contain"),
        ("w=400,fit=cover", "w=400,enlarge=yes"),
        ("w=400,fit=inside,crop=10:10", "w=400"),
        ("w=4,h=4,fit=contain,crop=attention", "w=4,h=4,fit=contain"),
        ("w=4,h=4,fit=cover,crop=500:500", "w=4,h=4,fit=cover"),
        ("format=png,q=12", "format=png"),
        ("format=jpeg,q=80", "format=jpeg"),
        ("format=jpeg,bg=FFFFFF", "format=jpeg"),
        ("format=webp,bg=FFaa00", "format=webp,bg=ffaa00"),
        ("fit=cover,crop=attention", "format=auto"),
        ("enlarge=yes,q=0", "format=auto"),
    ],
)
def test_what_makes_the_same_picture_is_the_same(written: str, same: str) -> None:
    assert parse_spec(written) == parse_spec(same)


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ("w=400,h=300", "w=400,h=300,fit=cover"),
        ("w=400,h=300,fit=cover", "w=400,h=300,fit=cover,enlarge=no"),
        ("w=4,h=4,fit=cover,crop=attention", "w=4,h=4,fit=cover"),
        ("format=auto,bg=ffffff", "format=auto"),
        ("format=webp,bg=ffffff", "format=webp"),
        ("format=webp,strip=no", "format=webp"),
        ("w=4,fit=fill", "w=4,fit=cover"),
        ("format=jpeg,q=81", "format=jpeg"),
    ],
)
def test_what_makes_another_picture_is_another(written: str, other: str) -> None:
    assert parse_spec(written) != parse_spec(other)


@pytest.mark.parametrize(
    ("written", "named", "remedy"),
    [
        ("w=40000", "spec.width", "16383"),
        ("w=9000,dpr=2", "spec.width", "at 2 pixels each, give at most 8192"),
        ("h=-1", "spec.h", "whole number"),
        ("h=\uff11", "spec.h", "whole number"),
        ("fit=stretch", "spec.fit", "cover, contain, fill, inside"),
        ("w=1,h=1,fit=cover,crop=left", "spec.crop", "attention"),
        ("crop=1001:0", "spec.crop", "1000:1000"),
        ("format=bmp", "spec.format", "auto, jpeg, webp, avif, png, gif"),
        ("q=101", "spec.quality", "1 to 100"),
        ("bg=red", "spec.background", "RRGGBB"),
        ("strip=1", "spec.strip", "yes or no"),
        ("animate=1", "spec.animate", "yes or no"),
        ("enlarge=", "spec.enlarge", "yes or no"),
        ("dpr=9", "spec.device_pixel_ratio", "0.1 to 8"),
        ("dpr=1e1", "spec.dpr", "0.1 to 8"),
        ("w=1,w=2", "spec", "give w once"),
        ("blur=3", "spec", "one of w, h, fit"),
        ("w", "spec", "name=value"),
        ("", "spec", "name=value"),
        ("w=1," * 200, "spec", "512 characters"),
        ("preset:none", "spec.preset", "card"),
    ],
)
def test_what_cannot_be_used_is_named_with_a_remedy(written: str, named: str, remedy: str) -> None:
    with pytest.raises(BadValue) as bad:
        parse_spec(written, {"card": "w=1"})
    assert bad.value.field == named
    assert remedy in bad.value.remedy


def wrong(value: object) -> Any:
    return value


def test_a_value_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(BadValue, match="width"):
        ImageSpec(width=wrong("4"))
    with pytest.raises(BadValue, match="crop"):
        ImageSpec(crop=wrong((1, 2, 3)))
    with pytest.raises(BadValue, match="device_pixel_ratio"):
        ImageSpec(device_pixel_ratio=float("nan"))
    with pytest.raises(BadValue, match="background"):
        ImageSpec(background=wrong(7))


def test_a_preset_stands_for_its_text_and_may_be_changed() -> None:
    presets = {"card": "w=400,h=300,fit=cover,format=webp"}
    check_presets(presets)
    assert parse_spec("preset:card", presets) == parse_spec(presets["card"])
    assert parse_spec("preset:card,format=png", presets).format == "png"
    assert parse_spec("preset:card,w=20", presets).width == 20


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [("card", "w=x", "presets.card.spec.w"), ("a/b", "w=1", "presets"), ("b", "preset:b", "spec")],
)
def test_a_preset_that_cannot_be_used_is_named(name: str, spec: str, field: str) -> None:
    with pytest.raises(BadValue) as bad:
        check_presets({name: spec})
    assert bad.value.field.endswith(field)


def test_another_format_brings_its_own_default_quality() -> None:
    spec = parse_spec("w=4,format=auto")
    assert spec.with_format("webp").canonical() == "w=4,format=webp"
    assert spec.with_format("avif").quality == 55
    assert parse_spec("w=4,q=70").with_format("webp").quality == 70
    assert ImageSpec(width=SIDE_MAX).with_format("png").width == SIDE_MAX


def test_a_failure_crosses_to_another_process() -> None:
    failure = ImageFailure(ImageErrorKind.CORRUPT, "cut short")
    again = pickle.loads(pickle.dumps(failure))
    assert (again.kind, again.detail, str(again)) == (failure.kind, "cut short", str(failure))
