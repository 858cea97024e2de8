"""Report: what is stored, for whom, and what was saved by storing and processing it once.

An image counts for its first owner (`owners.py`), by default the host of its URL. All of it is
counted from the maps, in one walk, so it is right after any restart. Content that several owners
have is stored once and counted for each of them; the sum over owners is what would be stored
without sharing.
Likewise with variants: they are made once for a content, and were it not shared they would be made
for each of its URLs, which are so many calls and so much time that are saved.

Which content is whose is found by sorting rows of digests in a temporary file (`sorted_rows.py`),
so memory does not grow with the store: 48 bytes of the disk for each URL, content and variant,
20 MB of memory, and the first `OWNERS_MAX` owners; the others are counted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from sluicegate.apps.images.collect import YIELD_EVERY, Progress, no_progress
from sluicegate.apps.images.looks import Looks
from sluicegate.apps.images.maps import CONTENTS, URLS, VARIANTS, ImageMaps
from sluicegate.apps.images.owners import owners_of
from sluicegate.apps.images.records import (
    GONE,
    ContentRecord,
    UrlRecord,
    VariantRecord,
    decode,
)
from sluicegate.apps.images.sorted_rows import ROWS_AT_ONCE, SortedRows
from sluicegate.command_line.charts import BarSegment, bar_chart
from sluicegate.command_line.page import (
    cell,
    color_key,
    escape_name,
    escape_words,
    number,
    quiet,
    render_page,
    row,
    section,
    table,
)
from sluicegate.command_line.text import counted, duration, percent, size

OTHERS: Final = "other owners"
OWNERS_MAX: Final = 10_000
OWNERS_SHOWN: Final = 20
PAIRS_SHOWN: Final = 20
VARIANTS_SHOWN: Final = 12  # of an original
_DIGEST: Final = 32
# A row is a digest, what it says of it, and a number: the size of a content, how long a variant
# took to make, or the number of an owner.
_STORED, _MADE, _HAD = b"\0", b"\1", b"\2"
_WIDTH: Final = _DIGEST + 1 + 8
STYLE: Final = """
:root { --kept: #1d5fa8; --saved: #1f7a4d; }
@media (prefers-color-scheme: dark) { :root { --kept: #7db7f5; --saved: #58c58f; } }
.bars svg { overflow: visible; }
@media (max-width: 600px) { .bars svg text { font-size: 17px; } }
.fill.kept { fill: var(--kept); } .fill.saved { fill: var(--saved); }
.tiles { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(148px, 1fr));
  list-style: none; padding: 0; }
.tiles li { background: var(--soft); border-radius: 8px; overflow: hidden; padding: 8px; }
.tiles .none { align-items: center; color: var(--muted); display: flex; height: 120px;
  justify-content: center; }
.tiles img { display: block; height: 120px; object-fit: contain; width: 100%; }
.pairs { display: grid; gap: 20px; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); }
.tiles.pair { grid-template-columns: 1fr 1fr; margin: 0; }
@media (max-width: 400px) { .pairs { grid-template-columns: 1fr; } }
.tiles span, .tiles details { display: block; font-size: 12.5px; overflow-wrap: anywhere; }
.tiles ul { list-style: none; margin: 4px 0 0; padding: 0; }
.tiles li li { border-radius: 0; padding: 2px 0; }
"""


@dataclass
class OwnerCounts:
    """Totals of one owner."""

    urls: int = 0
    failed: int = 0
    contents: int = 0
    bytes_asked: int = 0  # of all its URLs
    bytes_stored: int = 0  # of its distinct contents
    spared: int = 0  # variants that were there when another of its URLs had the same content
    spared_us: int = 0  # to make these


class StoredVariant(NamedTuple):
    """A variant to show."""

    spec: str
    bytes: int
    type: str


class StoredSample(NamedTuple):
    """An original to show."""

    name: str
    content: str
    variants: int
    failure: str  # the kind, if variants failed and none was made
    shown: Sequence[StoredVariant]  # the first of them


@dataclass
class Report:
    """All of it."""

    owners: dict[str, OwnerCounts] = field(default_factory=dict)
    originals: int = 0
    bytes_asked: int = 0
    bytes_originals: int = 0
    bytes_variants: int = 0
    variants: int = 0
    variants_failed: int = 0
    process_us: int = 0  # to make each variant once
    spared: int = 0  # variants of other URLs with the same content, which were not made again
    spared_us: int = 0
    samples: list[StoredSample] = field(default_factory=list)

    @property
    def urls(self) -> int:
        """URLs and uploads with a content."""
        return sum(one.urls - one.failed for one in self.owners.values())

    @property
    def bytes_saved(self) -> int:
        """What would be stored besides, were each URL's bytes stored by themselves."""
        return self.bytes_asked - self.bytes_originals

    def sentences(self) -> list[str]:
        """It in words."""
        share = percent(self.bytes_saved / self.bytes_asked if self.bytes_asked else None)
        originals = counted(self.originals, "distinct original")
        stored = (
            f"{counted(self.urls, 'URL')} have {originals}: {size(self.bytes_originals)} are "
            f"stored instead of {size(self.bytes_asked)}, {share} saved."
        )
        made = (
            f"{counted(self.variants, 'variant')} of them, {size(self.bytes_variants)}, took "
            f"{duration(self.process_us)} to make, once; {self.variants_failed:,} cannot be made, "
            "which is remembered."
        )
        spared = (
            f"Made for each URL by itself they would be {self.spared:,} more, and "
            f"{duration(self.spared_us)} more to make them."
        )
        return [stored, made, spared]


class NearPair(NamedTuple):
    """Two originals that look alike, by how many of 64 bits apart."""

    url: str
    other: str
    distance: int
    shared: bool


@dataclass
class NearPairs:
    """Pairs: all are counted, the first are shown."""

    distance: int
    pairs: int = 0
    whole: bool = True
    shown: list[NearPair] = field(default_factory=list)

    def sentence(self) -> str:
        """It in words."""
        among = "" if self.whole else " so far"
        return (
            f"{counted(self.pairs, 'pair')} of originals look alike{among}: at most "
            f"{self.distance} of 64 bits apart, with the same colours and shape."
        )


async def make_pairs(
    looks: Looks, *, looks_max: int | None = None, progress: Progress = no_progress
) -> NearPairs:
    """Find what looks alike, each pair once; of so many originals, None is all."""
    found = NearPairs(looks.distance)
    number = 0
    async for digest, look in looks.walk():
        if number == looks_max:
            found.whole = False
            break
        number = await _step(progress, "looks", number)
        for near in await looks.near(digest, look, looks.distance):
            if near.digest < digest:
                continue
            found.pairs += 1
            if len(found.shown) < PAIRS_SHOWN:
                shared = bool(look.same_as or near.look.same_as)
                found.shown.append(NearPair(look.url, near.look.url, near.distance, shared))
    return found


async def make_report(
    maps: ImageMaps,
    *,
    samples: int = 0,
    progress: Progress = no_progress,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Report:
    """Count everything."""
    report = Report()
    shown: dict[str, str] = {}
    with SortedRows(_WIDTH, rows_at_once) as rows:
        at = 0
        async for digest, _, raw in maps.walk(CONTENTS):
            content = decode(ContentRecord, raw)
            if content.state != GONE:
                rows.add(_row(digest, _STORED, content.size))
            at = await _step(progress, "contents", at)
        numbers: dict[str, int] = {}
        async for _, _, raw in maps.walk(URLS):
            record = decode(UrlRecord, raw)
            name = _count_url(report, record)
            if record.content:
                number = numbers.setdefault(name, len(numbers))
                rows.add(_row(bytes.fromhex(record.content), _HAD, number))
                if len(shown) < samples:
                    shown.setdefault(record.content, record.url)
            at = await _step(progress, "URLs", at)
        counts: dict[str, int] = {}
        failures: dict[str, str] = {}
        made: dict[str, list[StoredVariant]] = {one: [] for one in shown}
        async for digest, _, raw in maps.walk(VARIANTS):
            variant = decode(VariantRecord, raw)
            report.variants += not variant.failure
            report.variants_failed += bool(variant.failure)
            report.bytes_variants += variant.size
            report.process_us += variant.took_us
            original = digest.hex()
            if not variant.failure:
                rows.add(_row(digest, _MADE, variant.took_us))
                if original in shown:
                    counts[original] = counts.get(original, 0) + 1
                    if len(made[original]) < VARIANTS_SHOWN:
                        made[original].append(
                            StoredVariant(variant.spec, variant.size, variant.type)
                        )
            elif original in shown:
                failures[original] = variant.failure
            at = await _step(progress, "variants", at)
        names = list(numbers)
        for _, of_digest in groupby(rows, lambda one: one[:_DIGEST]):
            _count_content(report, names, of_digest)
            at = await _step(progress, "originals", at)
    for one, name in shown.items():
        count = counts.get(one, 0)
        failure = "" if count else failures.get(one, "")
        report.samples.append(StoredSample(name, one, count, failure, sorted(made[one])))
    return report


async def _step(progress: Progress, phase: str, at: int) -> int:
    if at % YIELD_EVERY == 0:
        progress(phase, at)
        await asyncio.sleep(0)
    return at + 1


def _row(digest: bytes, what: bytes, number: int) -> bytes:
    return digest + what + number.to_bytes(8, "big")


def _count_url(report: Report, record: UrlRecord) -> str:
    """Count a URL for its first owner, and return the name."""
    name = owners_of(record)[0]
    if name not in report.owners and len(report.owners) >= OWNERS_MAX:
        name = OTHERS
    owner = report.owners.setdefault(name, OwnerCounts())
    owner.urls += 1
    owner.failed += not record.content
    return name


def _count_content(report: Report, names: Sequence[str], rows: Iterator[bytes]) -> None:
    """Count a content for those who have it: what is stored and made of it comes before them."""
    size = made = made_us = urls = 0
    for one, same in groupby(rows):
        number, count = int.from_bytes(one[_DIGEST + 1 :], "big"), sum(1 for _ in same)
        what = one[_DIGEST : _DIGEST + 1]
        if what == _STORED:
            size = number
        elif what == _MADE:
            made += count
            made_us += count * number
        else:
            urls += count
            owner = report.owners[names[number]]
            owner.contents += 1
            owner.bytes_asked += size * count
            owner.bytes_stored += size
            owner.spared += made * (count - 1)
            owner.spared_us += made_us * (count - 1)
    if urls:
        report.originals += 1
        report.bytes_originals += size
        report.bytes_asked += size * urls
        report.spared += made * (urls - 1)
        report.spared_us += made_us * (urls - 1)


def owner_rows(report: Report) -> list[tuple[str, ...]]:
    """A row for each owner, the largest first."""
    return [
        (
            name,
            f"{one.urls:,}",
            f"{one.failed:,}",
            f"{one.contents:,}",
            size(one.bytes_asked),
            size(one.bytes_stored),
            percent(1 - one.bytes_stored / one.bytes_asked if one.bytes_asked else None),
            f"{one.spared:,}",
            duration(one.spared_us),
        )
        for name, one in _largest_first(report)
    ]


def _largest_first(report: Report) -> list[tuple[str, OwnerCounts]]:
    return sorted(report.owners.items(), key=lambda one: (-one[1].bytes_asked, one[0]))


HEAD: Final = (
    "owner",
    "URLs",
    "failed",
    "contents",
    "asked for",
    "stored",
    "saved",
    "calls saved",
    "time saved",
)


def report_page(
    report: Report,
    *,
    title: str,
    tiles: Sequence[str] = (),
    words: Sequence[str] = (),
    near: NearPairs | None = None,
    tile: Callable[[str, str], str] | None = None,
) -> str:
    """The report as a page; `tiles` are pictures of originals, as HTML."""
    rows = owner_rows(report)
    drawn = [
        (
            name,
            (
                BarSegment("stored", "kept", one.bytes_stored),
                BarSegment("saved", "saved", one.bytes_asked - one.bytes_stored),
            ),
        )
        for name, one in _largest_first(report)[:OWNERS_SHOWN]
    ]
    body = [
        f"<h1>{escape_name(title)}</h1>",
        *(f"<p>{escape_words(sentence)}</p>" for sentence in (*report.sentences(), *words)),
        section(
            "By owner",
            quiet(
                "Bytes of all its URLs: those that are stored, and those of copies. Calls and "
                "time: to make the variants of each copy."
            ),
            f'<div class="bars">{bar_chart("Bytes by owner", drawn, size)}</div>',
            color_key((("kept", "stored"), ("saved", "saved"))),
            table(
                HEAD[:1],
                HEAD[1:],
                [
                    row(cell(escape_name(name), "name"), *map(number, rest))
                    for name, *rest in rows[:OWNERS_SHOWN]
                ],
            ),
        ),
    ]
    if near is not None:
        body.append(_near_section(near, tile))
    if tiles:
        body.append(section("Originals", f'<ul class="tiles">{"".join(tiles)}</ul>'))
    return render_page(title, body, STYLE, served=True, images=bool(tiles))


def _near_section(near: NearPairs, tile: Callable[[str, str], str] | None) -> str:
    """Pairs that look alike, as pictures beside each other where those can be served."""
    parts = [f"<p>{escape_words(near.sentence())}</p>"]
    if tile is not None and near.shown:
        pairs = "".join(
            f'<ul class="tiles pair">{tile(one.url, _bits(one))}{tile(one.other, _bits(one))}</ul>'
            for one in near.shown
        )
        parts.append(f'<div class="pairs">{pairs}</div>')
    elif near.shown:
        rows = [
            row(
                cell(escape_name(one.url), "name"), cell(escape_name(one.other)), number(_bits(one))
            )
            for one in near.shown
        ]
        parts.append(table(("of", "and"), ("apart",), rows))
    return section("Nearly alike", *parts)


def _bits(pair: NearPair) -> str:
    return counted(pair.distance, "bit") + (", shared" if pair.shared else "")
