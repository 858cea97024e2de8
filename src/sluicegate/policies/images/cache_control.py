"""Cache control: how long an origin lets a shared cache keep an image. Pure.

Source: RFC 9111, 5.2.2. `s-maxage` precedes `max-age`, and `Age` is taken off either. A qualified
`no-cache="field"` or `private="field"` counts as the whole directive, as the RFC permits. An
unreadable value is ignored. The caller holds the lifetime to its own bounds.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NO_STORE: Final = "no-store"
NO_CACHE: Final = "no-cache"
PRIVATE: Final = "private"
MUST_REVALIDATE: Final = "must-revalidate"
UNSAID: Final = -1
CHARS_MAX: Final = 1_024  # of the header; what stands behind is not read
_SECONDS_MAX: Final = 1 << 31  # RFC 9111, 1.2.2: larger is infinite
_SAME: Final = {"proxy-revalidate": MUST_REVALIDATE}
_KNOWN: Final = (NO_STORE, NO_CACHE, PRIVATE, MUST_REVALIDATE)
_PART: Final = re.compile(r'\s*([a-z-]+)\s*(?:=\s*("[^"]*"|[^\s,"]*))?\s*(?:,|$)')


class OriginCaching(NamedTuple):
    """The lifetime in seconds, -1 if the origin says none, and its directives, with spaces."""

    lifetime_s: int = UNSAID
    directives: str = ""


def read_caching(cache_control: str, age: str = "") -> OriginCaching:
    """Return the caching that these headers permit a shared cache."""
    found = {
        name: (value or "").strip('"')
        for name, value in _PART.findall(cache_control[:CHARS_MAX].lower())
    }
    said = {_SAME.get(name, name) for name in found}
    directives = " ".join(name for name in _KNOWN if name in said)
    if said & {NO_STORE, NO_CACHE}:
        return OriginCaching(0, directives)
    lifetime_s = _seconds(found.get("s-maxage", ""))
    if lifetime_s == UNSAID:
        lifetime_s = _seconds(found.get("max-age", ""))
    if lifetime_s != UNSAID:
        lifetime_s = max(0, lifetime_s - max(0, _seconds(age.strip())))
    return OriginCaching(lifetime_s, directives)


def must_check(directives: str) -> bool:
    """Whether an image must be checked before it is shown."""
    return not {NO_STORE, NO_CACHE, MUST_REVALIDATE}.isdisjoint(directives.split())


def cache_control(directives: str, fresh_s: int, stale_s: int, left_s: int | None = None) -> bytes:
    """Return the `Cache-Control` of an answer that is fresh, then stale, for these times.

    `left_s` bounds all of it, where the URL itself ends.
    """
    said = directives.split()
    if NO_STORE in said:
        return b"no-store"
    parts = [PRIVATE] if PRIVATE in said else []
    if NO_CACHE in said:
        return ", ".join([*parts, NO_CACHE]).encode()
    if left_s is not None:
        fresh_s = max(0, min(fresh_s, left_s))
        stale_s = min(stale_s, left_s - fresh_s)
    parts.append(f"max-age={fresh_s}")
    if MUST_REVALIDATE in said:
        parts.append(MUST_REVALIDATE)
    elif stale_s > 0:
        parts += [f"stale-while-revalidate={stale_s}", f"stale-if-error={stale_s}"]
    return ", ".join(parts).encode()


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        return UNSAID
    return min(int(text[:12]), _SECONDS_MAX)
