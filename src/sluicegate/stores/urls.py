"""URLs: what all stores read alike of theirs: their parts, settings, and what may be shown.

A store says its settings in a table; which there are, and within which bounds, is its own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from sluicegate.contracts.errors import BadValue

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# By its name in a query: the setting, how its text is read, and what is wanted.
Query: TypeAlias = "Mapping[str, tuple[str, Callable[[str], object], str]]"

Pairs: TypeAlias = "list[tuple[str, str]]"
_TRUTHS: Final = {"1": True, "true": True, "yes": True, "on": True} | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


def split_url(url: str, field: str, example: str) -> tuple[SplitResult, Pairs]:
    """Return its parts, and what its query says; `example` is how one is written."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadValue(field, redacted(url), f"write {example}") from None
    return parts, pairs_in(parts.query, redacted(url), field, example)


def pairs_in(query: str, shown: str, field: str, example: str) -> Pairs:
    """Return what a query says; `shown` is the URL as an error may show it."""
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BadValue(field, shown, f"write {example}") from None


def split_folder_url(url: str, scheme: str, field: str) -> tuple[str, Pairs]:
    """Return the folder of `scheme:DIR?name=value`, and what its query says."""
    if not url.startswith(scheme):
        raise BadValue(field, url, f"begin it with {scheme}")
    path, _, query = url.removeprefix(scheme).partition("?")
    pairs = pairs_in(query, url, field, f"{scheme}DIR?name=value&name=value")
    # files:///var/x is the same folder as files:/var/x.
    return unquote("/" + path.lstrip("/") if path.startswith("//") else path), pairs


def check_written_plainly(parts: SplitResult, field: str, shown: str) -> None:
    """Raise for a sign that would cut a name or a password short, and so show the rest of it."""
    if "@" in parts.path + parts.query + parts.fragment or parts.fragment:
        raise BadValue(
            field, shown, "write /, ?, # and @ in names and passwords as %2F, %3F, %23, %40"
        )


def bounded(default: int, least: int, most: int) -> int:
    """Return the field of a frozen settings class: a number, with its default and its bounds."""
    value: int = field(default=default, metadata={"bounds": (least, most)})
    return value


def check_bounds(settings: DataclassInstance, store: str) -> None:
    """Raise for a `bounded` field that is not within its bounds."""
    for one in fields(settings):
        bounds = one.metadata.get("bounds")
        if bounds is not None and getattr(settings, one.name) is not None:
            check_numbers(settings, {one.name: bounds}, store)


def query_of(settings: type[DataclassInstance], *left_out: str) -> Query:
    """Return what a query may say of a settings class: each field, and microseconds in ms."""
    rows: dict[str, tuple[str, Callable[[str], object], str]] = {}
    for one in fields(settings):
        kind = str(one.type)
        if one.name in left_out:
            continue
        if one.name.endswith(("_us", "_us_max", "_us_min")):
            rows[one.name.replace("_us", "_ms")] = (one.name, as_ms, "milliseconds")
        elif kind == "bool":
            rows[one.name] = (one.name, as_truth, "true or false")
        elif kind == "int":
            rows[one.name] = (one.name, int, "a whole number")
        else:
            rows[one.name] = (one.name, str, "text")
    return rows


def check_numbers(settings: object, bounds: Mapping[str, tuple[float, float]], store: str) -> None:
    """Raise for a setting of a store that is not within its bounds."""
    for name, (least, most) in bounds.items():
        value = getattr(settings, name)
        if not least <= value <= most:
            raise BadValue(f"{store}.{name}", value, f"give a number from {least} to {most}")


def parse_query(pairs: Iterable[tuple[str, str]], query: Query, field: str) -> dict[str, object]:
    """Return the settings that a query says; `field` is the URL's name in an error."""
    values: dict[str, object] = {}
    for name, text in pairs:
        row = query.get(name)
        if row is None:
            raise BadValue(field, name, f"ask for one of {', '.join(query)}")
        setting, read, wanted = row
        try:
            values[setting] = read(text)
        except (ValueError, KeyError, OverflowError):
            raise BadValue(f"{field}?{name}", text, f"give {wanted}") from None
    return values


def as_truth(text: str) -> bool:
    """Yes or no, in any of the usual words."""
    return _TRUTHS[text.lower()]


def as_ms(text: str) -> int:
    """Milliseconds as microseconds."""
    return round(float(text) * 1_000)


def as_seconds(text: str) -> int:
    """Seconds as microseconds."""
    return round(float(text) * 1_000_000)


def redacted(url: str) -> str:
    """Return the URL as it may be shown: without what stands before the last @, or in a query."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return "..."
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    rest, mark, _ = rest.partition("?")
    return f"{scheme}://{rest}{'?***' if mark else ''}"
