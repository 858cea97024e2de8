from __future__ import annotations

import pytest

from sluicegate.contracts.image_spec import parse_spec
from sluicegate.policies.images.negotiation import animated_instead, negotiate

CHROME = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
OLD_SAFARI = "image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5"


@pytest.mark.parametrize(
    ("accept", "avif", "chosen"),
    [
        (CHROME, False, "webp"),
        (CHROME, True, "avif"),
        (OLD_SAFARI, True, "auto"),
        ("*/*", True, "auto"),
        ("", True, "auto"),
        ("IMAGE/WEBP ; q=0.3", False, "webp"),
        ("image/webp;q=0", False, "auto"),
        ("image/webp; q = 0.000, */*", False, "auto"),
        ("image/webp;q=0.01", False, "webp"),
        ("image/avif;q=0,image/webp", True, "webp"),
        ("image/webpx", False, "auto"),
        (";;,,=,q=", False, "auto"),
        ("a/b," * 2_000 + "image/webp", False, "auto"),
    ],
)
def test_a_caller_gets_the_best_format_that_it_names(accept: str, avif: bool, chosen: str) -> None:
    assert negotiate(parse_spec("w=9"), accept, avif=avif).format == chosen


def test_a_format_that_is_given_is_not_changed() -> None:
    assert negotiate(parse_spec("format=png"), CHROME, avif=True).format == "png"


def test_all_else_stays_and_the_quality_becomes_that_of_the_format() -> None:
    spec = parse_spec("w=9,h=7,fit=cover,crop=attention,bg=102030")
    chosen = negotiate(spec, CHROME)
    assert chosen == parse_spec("w=9,h=7,fit=cover,crop=attention,bg=102030,format=webp")
    assert chosen.quality == 80


@pytest.mark.parametrize(
    ("chosen", "accept", "instead"),
    [
        ("avif", "image/avif,image/webp", "webp"),
        ("avif", "image/avif", "auto"),
        ("webp", "image/webp", ""),
        ("auto", "*/*", ""),
    ],
)
def test_animation_is_not_sent_as_avif(chosen: str, accept: str, instead: str) -> None:
    assert animated_instead(chosen, accept) == instead
