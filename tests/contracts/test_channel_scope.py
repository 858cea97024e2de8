from __future__ import annotations

import pytest

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.channel_scope import (
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    ChannelRight,
    ChannelScope,
)
from sluicegate.contracts.errors import BadValue, Forbidden

READ = [ChannelRight.SUBSCRIBE]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("news", ["news"], ["new", "newss", "news:1", "", "News"]),
        ("*", ["", "news", "a:b:c"], []),
        ("orders:*", ["orders:1", "orders:", "orders:1:eu"], ["orders", "orders2:1"]),
        ("news*", ["news", "news-eu", "news:1:2"], ["new", "old:news"]),
        (
            "tenant:*:orders",
            ["tenant:7:orders", "tenant::orders"],
            ["tenant:7", "tenant:7:8:orders"],
        ),
        ("*:news", ["eu:news"], ["news", "a:b:news", "eu:news:1"]),
        ("*:*", ["a:b", "a:b:c"], ["a"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_pattern_matches_its_channels(pattern: str, matching: list[str], others: list[str]) -> None:
    scope = ChannelScope({pattern: READ})
    assert [one for one in matching if not scope.allows(one, ChannelRight.SUBSCRIBE)] == []
    assert [one for one in others if scope.allows(one, ChannelRight.SUBSCRIBE)] == []
    assert not scope.allows(matching[0], ChannelRight.PUBLISH)


def test_channel_has_rights_of_every_matching_pattern() -> None:
    scope = ChannelScope({"a:*": READ, "a:b": [ChannelRight.PUBLISH]})
    assert scope.allows("a:b", ChannelRight.SUBSCRIBE)
    assert scope.allows("a:b", ChannelRight.PUBLISH)
    assert not scope.allows("a:c", ChannelRight.PUBLISH)


@pytest.mark.parametrize(
    "pattern", ["a*b", "**", "a*:b", "*a:b", "", "x" * PATTERN_CHARS_MAX + "y"]
)
def test_star_elsewhere_is_invalid(pattern: str) -> None:
    with pytest.raises(BadValue, match="channels"):
        ChannelScope({pattern: READ})


def test_too_many_patterns_are_invalid() -> None:
    ChannelScope({str(n): READ for n in range(PATTERNS_MAX)})
    with pytest.raises(BadValue, match="at most"):
        ChannelScope({str(n): READ for n in range(PATTERNS_MAX + 1)})


def test_identity_needs_grant_and_right() -> None:
    scope = ChannelScope({"a": READ})
    mia = Identity("ann", [Grant.SUBSCRIBE], client="mia", channels=scope)
    mia.require_in("a", Grant.SUBSCRIBE, ChannelRight.SUBSCRIBE)
    with pytest.raises(Forbidden, match="mia may not do this; it takes the grant 'history in a'"):
        mia.require_in("a", Grant.SUBSCRIBE, ChannelRight.HISTORY)
    with pytest.raises(Forbidden, match="'publish'"):
        mia.require_in("a", Grant.PUBLISH, ChannelRight.SUBSCRIBE)
    Identity("ann", [Grant.PUBLISH]).require_in("b", Grant.PUBLISH, ChannelRight.PUBLISH)
