"""Channel scope: the rights of a signed token, by patterns of channel names.

A pattern is a channel name in which `*` may be a whole segment between colons, or the last
character. A segment `*` matches one segment; a `*` at the end matches the rest of the name, colons
included, and an empty rest. There are no other special characters, and no regular expressions, so
a match costs one comparison for each segment.

Bound: `PATTERNS_MAX` patterns of `PATTERN_CHARS_MAX` characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, final

from sluicegate.contracts.errors import BadValue

PATTERNS_MAX: Final = 100
PATTERN_CHARS_MAX: Final = 256
ANY: Final = "*"
_BETWEEN: Final = ":"


class ChannelRight(Enum):
    """A right of a token in a channel."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    PRESENCE = "presence"
    HISTORY = "history"

    __hash__ = object.__hash__


@final
class ChannelScope:
    """Rights by pattern; a channel has those of every pattern that matches it."""

    __slots__ = ("_rows",)

    def __init__(self, rights: Mapping[str, Iterable[ChannelRight]]) -> None:
        if len(rights) > PATTERNS_MAX:
            raise BadValue("channels", len(rights), f"give at most {PATTERNS_MAX} patterns")
        self._rows = [(_segments(one), frozenset(each)) for one, each in rights.items()]

    def allows(self, channel: str, right: ChannelRight) -> bool:
        """Whether a pattern that matches the channel has this right."""
        name = channel.split(_BETWEEN)
        return any(right in rights and _matches(pattern, name) for pattern, rights in self._rows)


def _segments(pattern: str) -> list[str]:
    if not 0 < len(pattern) <= PATTERN_CHARS_MAX:
        remedy = f"give a pattern of 1 to {PATTERN_CHARS_MAX} characters"
        raise BadValue("channels", pattern[:PATTERN_CHARS_MAX], remedy)
    segments = pattern.split(_BETWEEN)
    inner, last = segments[:-1], segments[-1]
    if ANY in last[:-1] or any(ANY in one and one != ANY for one in inner):
        remedy = "write * as a whole segment, or at the end"
        raise BadValue("channels", pattern, remedy)
    return segments


def _matches(pattern: list[str], name: list[str]) -> bool:
    at = len(pattern) - 1
    last = pattern[at]
    if last.endswith(ANY):
        if len(name) <= at or not name[at].startswith(last[:-1]):
            return False
    elif len(name) != at + 1 or name[at] != last:
        return False
    return all(one in (ANY, other) for one, other in zip(pattern[:at], name, strict=False))
