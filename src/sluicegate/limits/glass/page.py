"""Glass page: openings as they are written down, and the changes that may be made to them.

Everything here is a pure function of texts and values. A *page* is all openings as one JSON text
with a version; the *audit* is one JSON line a change. What is read is not trusted: a page that is
not wholly as one of ours must be opens nothing, and a line of the audit that is not is shown as
unreadable.

The natural end of an opening is nobody's act, so nobody writes it down: it follows from the line
that opened it, and `history` puts it in its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, cast

from sluicegate.contracts.errors import BadValue
from sluicegate.limits.glass.break_glass import (
    BY_CHARS_MAX,
    OPENINGS_MAX,
    RATES_MAX,
    WHY_CHARS_MAX,
    Opening,
    check_opening,
    check_words,
)
from sluicegate.wire.json_objects import parse_object

PAGE_BYTES_MAX: Final = 1 << 20
FORMAT: Final = "sluicegate-glass"
VERSION: Final = 1

BREAK: Final = "break"
MEND: Final = "mend"
END: Final = "end"  # by itself; never written
UNREADABLE: Final = "unreadable"


class AuditEntry(NamedTuple):
    """One line of the audit: what was done when, by whom and why, to which opening."""

    at_us: int
    what: str
    by: str
    why: str
    opening: Opening | None  # None: what was mended could not be understood


class UnreadableLine(NamedTuple):
    """A line that is none of ours, as far as it may be shown."""

    text: str
    what: str = UNREADABLE


class GlassPage(NamedTuple):
    """The content of a glass store, by its clock. `foreign` says why it cannot be a page."""

    now_us: int
    text: bytes
    foreign: str = ""


class GlassStore(Protocol):
    """Keeps one page and an audit. Instants are its own. `Unavailable` if it cannot be asked."""

    @property
    def what(self) -> str:
        """What and where it is, for people."""

    async def read(self) -> GlassPage:
        """Return the page; no text if there is none."""

    async def swap(
        self, page: GlassPage, text: bytes, lines: Sequence[bytes], until_us: int
    ) -> bool:
        """Put `text` in place of `page` and `lines` into the audit; False if it has changed.

        A foreign page is replaced whatever it is. After `until_us` the text need not be kept.
        """

    async def lines(self, last: int) -> list[bytes]:
        """Return the newest lines of the audit, the oldest first."""

    async def close(self) -> None:
        """Give back what is held."""


_NAMES: Final = ("id", "rule", "key", "by", "why")
_INSTANTS: Final = ("until_us", "opened_at_us")
_INSTANT_US_MAX: Final = 1 << 53
_SHOWN_CHARS_MAX: Final = 200


# Pages.


def write_page(openings: Sequence[Opening]) -> bytes:
    """Return the page that says these openings."""
    page = {"format": FORMAT, "version": VERSION, "openings": list(map(_row, openings))}
    return _encode(page)


def read_page(text: bytes, for_us_max: int) -> tuple[Opening, ...]:
    """Return what a page says; `BadValue` if it is not wholly ours. No text is an empty page."""
    if not text:
        return ()
    if len(text) > PAGE_BYTES_MAX:
        raise BadValue("glass", f"{len(text):,} bytes", f"at most {PAGE_BYTES_MAX:,} are read")
    page = _decode(text)
    if page.get("format") != FORMAT:
        raise BadValue("glass", text[:_SHOWN_CHARS_MAX], "it is none of ours")
    version = page.get("version")
    if version != VERSION or isinstance(version, bool):
        raise BadValue("glass.version", version, f"this Sluicegate reads version {VERSION}")
    rows = page.get("openings")
    if not isinstance(rows, list) or len(rows) > OPENINGS_MAX:
        raise BadValue("glass.openings", rows, f"give a list of at most {OPENINGS_MAX}")
    openings = tuple(check_opening(_opening(row), for_us_max) for row in rows)
    if len({one.id for one in openings}) < len(openings):
        raise BadValue("glass.openings", "an id", "give each opening an id of its own")
    return openings


def replaced_by(openings: Sequence[Opening], opening: Opening, now_us: int) -> tuple[Opening, ...]:
    """Return the earlier rates of the same rule and key; a key has one at a time."""
    if not opening.rate:
        return ()
    about = (opening.rule, opening.key)
    return tuple(
        one
        for one in openings
        if one.rate and (one.rule, one.key) == about and now_us < one.until_us
    )


def add_opening(openings: Sequence[Opening], opening: Opening, now_us: int) -> tuple[Opening, ...]:
    """Return the openings with one more, without those that have ended or that it replaces."""
    replaced = replaced_by(openings, opening, now_us)
    standing = tuple(one for one in openings if now_us < one.until_us and one not in replaced)
    if opening.rate:
        _check_rates([*(one for one in standing if one.rate), opening])
    if len(standing) >= OPENINGS_MAX:
        raise BadValue(
            "glass", len(standing), f"{OPENINGS_MAX} may be open at once; mend one first"
        )
    after = (*standing, opening)
    if len(write_page(after)) > PAGE_BYTES_MAX:
        raise BadValue("glass.key", opening.key, "the openings have no room for it; mend some")
    return after


def _check_rates(rates: Sequence[Opening]) -> None:
    """Refuse a rate that would leave too little room for an emergency."""
    if len(rates) > RATES_MAX:
        remedy = f"at most {RATES_MAX} overrides are in force at once; end one first"
        raise BadValue("glass", len(rates), remedy)
    if len(write_page(rates)) > PAGE_BYTES_MAX * RATES_MAX // OPENINGS_MAX:
        raise BadValue("glass.key", rates[-1].key, "the overrides have no room for it; end some")


def remove_openings(
    openings: Sequence[Opening], opening_id: str | None, now_us: int
) -> tuple[tuple[Opening, ...], tuple[Opening, ...]]:
    """What stays of what stood open, and what is mended: the one of that id, or all for None."""
    standing = [one for one in openings if now_us < one.until_us]
    if opening_id is None:
        return (), tuple(standing)
    removed = tuple(one for one in standing if one.id == opening_id)
    if not removed:
        readable = ", ".join(one.id for one in standing[:8]) or "nothing"
        raise BadValue("glass.id", opening_id, f"no opening has this id; open is {readable}")
    return tuple(one for one in standing if one.id != opening_id), removed


# The audit.


def write_line(entry: AuditEntry) -> bytes:
    """Return an entry as a line, without its end."""
    line = {
        "version": VERSION,
        "at_us": entry.at_us,
        "what": entry.what,
        "by": entry.by,
        "why": entry.why,
        "opening": None if entry.opening is None else _row(entry.opening),
    }
    return _encode(line)


def read_line(line: bytes) -> AuditEntry | UnreadableLine:
    """Return the entry that a line is."""
    try:
        row = _decode(line)
        at_us, what, by, why = (row.get(name) for name in ("at_us", "what", "by", "why"))
        opening = None if row.get("opening") is None else _opening(row["opening"])
        if (
            row.get("version") == VERSION
            and (opening is not None or what == MEND)
            and _instant(at_us)
            and what in {BREAK, MEND}
            and isinstance(by, str)
            and isinstance(why, str)
        ):
            check_words("by", by, BY_CHARS_MAX)
            if why:
                check_words("why", why, WHY_CHARS_MAX)
            if opening is not None:
                check_opening(opening, _INSTANT_US_MAX)
            return AuditEntry(cast("int", at_us), str(what), by, why, opening)
    except BadValue:
        pass
    return UnreadableLine(ascii(line[:_SHOWN_CHARS_MAX].decode(errors="replace")))


def history(
    entries: Sequence[AuditEntry | UnreadableLine], now_us: int
) -> list[AuditEntry | UnreadableLine]:
    """Return the entries, and the ends that came by themselves until now, in order."""
    readable = [one for one in entries if isinstance(one, AuditEntry)]
    mended = {one.opening.id for one in readable if one.what == MEND and one.opening}
    ends = [
        AuditEntry(one.opening.until_us, END, "", "its time was over", one.opening)
        for one in readable
        if one.what == BREAK
        and one.opening is not None
        and one.opening.until_us <= now_us
        and one.opening.id not in mended
    ]
    ends.sort(key=lambda one: one.at_us)
    merged: list[AuditEntry | UnreadableLine] = []
    for one in entries:
        while isinstance(one, AuditEntry) and ends and ends[0].at_us <= one.at_us:
            merged.append(ends.pop(0))
        merged.append(one)
    return merged + ends


# Inside.


def _encode(thing: object) -> bytes:
    text = json.dumps(thing, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadValue("glass", text, "give text that UTF-8 can hold") from None


def _decode(text: bytes) -> dict[str, object]:
    try:
        return parse_object(text)
    except BadValue:
        raise BadValue("glass", text[:_SHOWN_CHARS_MAX], "it is none of ours") from None


def _row(opening: Opening) -> dict[str, object]:
    row = opening._asdict()
    if not opening.rate:  # as a reader from before there were rates expects it
        del row["rate"]
    return row


def _opening(row: object) -> Opening:
    if not isinstance(row, dict) or row.keys() - {"rate"} != {*_NAMES, *_INSTANTS}:
        fields = ", ".join((*_NAMES, *_INSTANTS))
        raise BadValue("glass.openings", row, f"give each of {fields}, and nothing else")
    for name in (*_NAMES, "rate"):
        if not isinstance(row.get(name, ""), str):
            raise BadValue(f"glass.{name}", row[name], "give text")
    for name in _INSTANTS:
        if not _instant(row[name]):
            raise BadValue(f"glass.{name}", row[name], "give microseconds since the epoch")
    return Opening(**row)


def _instant(value: object) -> bool:
    return type(value) is int and 0 <= value < _INSTANT_US_MAX
