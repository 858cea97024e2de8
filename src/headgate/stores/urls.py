"""URLs: what all stores read alike of theirs: settings in the query, and what may be shown.

A store says its settings in a table; which there are, and within which bounds, is its own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headgate.contracts.errors import BadValue

# By its name in a query: the setting, how its text is read, and what is wanted.
Query: TypeAlias = "Mapping[str, tuple[str, Callable[[str], object], str]]"


def read_query(pairs: Iterable[tuple[str, str]], query: Query, field: str) -> dict[str, object]:
    """The settings that a query says; `field` is the URL's name in an error."""
    said: dict[str, object] = {}
    for name, text in pairs:
        row = query.get(name)
        if row is None:
            raise BadValue(field, name, f"ask for one of {', '.join(query)}")
        setting, read, wanted = row
        try:
            said[setting] = read(text)
        except (ValueError, KeyError, OverflowError):
            raise BadValue(f"{field}?{name}", text, f"give {wanted}") from None
    return said


def as_ms(text: str) -> int:
    """Milliseconds as microseconds."""
    return round(float(text) * 1_000)


def as_seconds(text: str) -> int:
    """Seconds as microseconds."""
    return round(float(text) * 1_000_000)


def redacted(url: str) -> str:
    """The URL as it may be shown: without what stands before the last @, or in a query."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return "..."
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    rest, mark, _ = rest.partition("?")
    return f"{scheme}://{rest}{'?***' if mark else ''}"
