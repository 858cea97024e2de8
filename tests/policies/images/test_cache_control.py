"""Cache control: what `Cache-Control` says, and what an answer says in turn."""

from __future__ import annotations

import pytest

from sluicegate.policies.images.cache_control import (
    OriginCaching,
    cache_control,
    must_check,
    read_caching,
)


@pytest.mark.parametrize(
    ("header", "age", "lifetime_s", "directives"),
    [
        ("", "", -1, ""),
        ("public", "", -1, ""),
        ("max-age=60", "", 60, ""),
        ("Max-Age = 60, PUBLIC", "", 60, ""),
        ('max-age="60"', "", 60, ""),
        ("max-age=60", "20", 40, ""),
        ("max-age=60", "90", 0, ""),
        ("max-age=60", "soon", 60, ""),
        ("max-age=60, s-maxage=7", "", 7, ""),
        ("s-maxage=0,max-age=60", "", 0, ""),
        ("max-age=-5", "", -1, ""),
        ("max-age=9999999999999999", "", 1 << 31, ""),
        ("no-store, max-age=60", "", 0, "no-store"),
        ("private, no-cache", "", 0, "no-cache private"),
        ('private="set-cookie, x", max-age=5', "", 5, "private"),
        ("max-age=5, proxy-revalidate", "", 5, "must-revalidate"),
        ("max-age=5, must-revalidate", "", 5, "must-revalidate"),
        ('unknown="no-store", max-age=5', "", 5, ""),
        (",,;;", "", -1, ""),
    ],
)
def test_origin_header_is_read(header: str, age: str, lifetime_s: int, directives: str) -> None:
    assert read_caching(header, age) == OriginCaching(lifetime_s, directives)


def test_header_beyond_its_bound_is_not_read() -> None:
    assert read_caching("x," * 1_000 + "max-age=5") == OriginCaching()


@pytest.mark.parametrize("directives", ["no-store", "no-cache private", "must-revalidate"])
def test_stale_is_forbidden_by_directive(directives: str) -> None:
    assert must_check(directives)
    assert "stale" not in cache_control(directives, 5, 60).decode()


@pytest.mark.parametrize(
    ("directives", "left_s", "expected"),
    [
        ("", None, "max-age=9, stale-while-revalidate=60, stale-if-error=60"),
        ("", 1_000, "max-age=9, stale-while-revalidate=60, stale-if-error=60"),
        ("", 20, "max-age=9, stale-while-revalidate=11, stale-if-error=11"),
        ("", 9, "max-age=9"),
        ("", 4, "max-age=4"),
        ("", 0, "max-age=0"),
        ("private", None, "private, max-age=9, stale-while-revalidate=60, stale-if-error=60"),
        ("no-cache private", None, "private, no-cache"),
        ("no-store private", None, "no-store"),
        ("must-revalidate", 4, "max-age=4, must-revalidate"),
    ],
)
def test_answer_says_what_others_may_keep(
    directives: str, left_s: int | None, expected: str
) -> None:
    assert cache_control(directives, 9, 60, left_s) == expected.encode()
