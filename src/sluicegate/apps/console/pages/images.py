"""Images: what is found in each of the three maps, work under way, failures, what is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from sluicegate.apps.console.image_readings import ImageReading
from sluicegate.apps.console.pages.overview import span
from sluicegate.apps.console.picture import FleetPicture
from sluicegate.command_line.page import (
    cell,
    escape_name,
    notes,
    number,
    quiet,
    row,
    section,
    table,
)
from sluicegate.command_line.text import duration, per_second, percent, size

ROWS_MAX: Final = 200
_NOTES: Final = (
    "URL: what is found was checked with its origin lately, and nothing is asked.",
    "Content: what is found are bytes that another URL had, and nothing is stored.",
    "Variant: what is found was made before, and nothing is processed.",
)


def images(picture: FleetPicture) -> dict[str, str]:
    """Return the parts of the page."""
    found = picture.images[:ROWS_MAX]
    if not found:
        return {"images": quiet("None of these services is an image service.")}
    return {
        "maps": section("Found in the maps", _maps(found)),
        "work": section("Work", _work(found)),
        "failures": section("Failures, by kind", _failures(found)),
        "stored": section("Stored", _stored(found)),
    }


def _table_of(
    found: Sequence[ImageReading], heads: Sequence[str], cells: Callable[[ImageReading], list[str]]
) -> str:
    rows = [row(cell(escape_name(one.node), "name"), *cells(one)) for one in found]
    return table(("service",), heads, rows)


def _maps(found: Sequence[ImageReading]) -> str:
    rows = [
        row(
            cell(escape_name(one.node), "name"),
            cell(escape(each.name)),
            number(per_second(each.asked)),
            number(percent(each.ratio)),
            number(percent(each.ratio_ever)),
        )
        for one in found
        for each in one.maps
    ]
    heads = ("looked for", "found now", "since the start")
    memory = _table_of(
        found,
        ("served from memory", "all others", "memory"),
        lambda one: [
            number(per_second(one.from_memory)),
            number(per_second(one.requests)),
            number(size(one.memory_bytes)),
        ],
    )
    return table(("service", "map"), heads, rows) + notes(_NOTES) + memory


def _work(found: Sequence[ImageReading]) -> str:
    heads = ("workers", "busy", "replaced", "waiting", "refused", "mean time")
    shown = _table_of(
        found,
        heads,
        lambda one: [
            number(f"{one.alive} of {one.workers}", bad=one.alive < one.workers),
            number(f"{one.busy} of {one.places}"),
            number(f"{one.replaced:,}"),
            number(f"{one.queued:,}"),
            number(per_second(one.refused), bad=one.refused > 0),
            number(span(one.process_us)),
        ],
    )
    unwell = [
        row(cell(escape_name(host), "name"), cell(escape_name(state), "bad"))
        for one in found
        for host, state in one.unwell[:ROWS_MAX]
    ]
    if not unwell:
        return shown + quiet("Every origin that was asked answers.")
    words = "What these origins had is served as it was; they are asked again by and by."
    return shown + table(("origin", "its breaker is"), (), unwell) + quiet(words)


def _failures(found: Sequence[ImageReading]) -> str:
    rows = [
        row(
            cell(escape_name(one.node), "name"),
            cell(escape_name(each.kind.replace("_", " "))),
            number(per_second(each.rate), bad=each.rate > 0),
            number(f"{each.ever:,}"),
        )
        for one in found
        for each in one.failures[:ROWS_MAX]
    ]
    if not rows:
        return quiet("None since the start.")
    words = "A failure is remembered: who asks again is answered at once, and it is counted once."
    return table(("service", "kind"), ("found now", "since the start"), rows) + quiet(words)


def _stored(found: Sequence[ImageReading]) -> str:
    heads = ("downloaded", "written", "not stored twice", "processing saved", "damaged")
    words = (
        "Since the start of each service; sluicegate images report counts all that is stored. What "
        "is found damaged is fetched or made again."
    )
    return _table_of(
        found,
        heads,
        lambda one: [
            number(size(one.downloaded_bytes)),
            number(size(one.written_bytes)),
            number(size(one.saved_bytes)),
            number(duration(one.saved_us)),
            number(f"{one.damaged:,}", bad=one.damaged > 0),
        ],
    ) + quiet(words)
