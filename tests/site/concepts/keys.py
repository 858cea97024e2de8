"""Pictures of keys and images: what caches, filters and fingerprints make of them."""

from __future__ import annotations

from collections import Counter
from math import sin
from random import Random
from typing import Final

from sluicegate.kernels.digest_filter import DigestFilter
from sluicegate.kernels.image_fit import fit_image
from sluicegate.kernels.lru_ttl import FRESH, REFRESH, LruTtl
from sluicegate.kernels.perceptual_hash import COLUMNS, ROWS, difference_hash, hash_distance
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

SECOND: Final = 1_000_000


def lru_ttl() -> Drawing:
    """When caches that were filled together fetch again."""
    caches, ttl, fetch = 100, 2 * SECOND, 50_000
    sheet = Sheet("LRU with TTL: when caches that were filled together fetch again", 110, 110)
    peaks: list[int] = []
    overdue: list[int] = []
    for beta, jitter, kind, name in (
        (0.0, 0.0, "b", "all entries live equally long"),
        (1.0, 0.1, "a", "the defaults: a jitter of a tenth, early refresh"),
    ):
        chance = Random(3)
        bins: Counter[int] = Counter()
        late = 0
        for _ in range(caches):
            cache: LruTtl[str] = LruTtl(10_000, ttl_us=ttl, stale_us=ttl, jitter=jitter, beta=beta)
            at, done = 0, 0
            cache.put("k", "v", 1, epoch=0, now_us=0, draw=chance.random(), fetch_us=fetch)
            while at < 7 * SECOND:
                at += int(chance.expovariate(20) * SECOND) + 1
                state, _ = cache.get("k", at, chance.random())
                if state != FRESH and at >= done:
                    done = at + fetch
                    late += state != REFRESH
                    bins[at * 10 // SECOND] += 1
                    cache.put(
                        "k", "v", 1, epoch=0, now_us=done, draw=chance.random(), fetch_us=fetch
                    )
        panel = sheet.panel(name, Axis(7, "seconds"), Axis(100, "fetches within 100 ms"))
        for number, count in bins.items():
            panel.bar(kind, number / 10 + 0.01, number / 10 + 0.09, count)
        peaks.append(max(count for number, count in bins.items() if number < 70))
        overdue.append(round(100 * late / bins.total()))
    return sheet.drawing(
        f"{caches} caches hold one key for 2 s, and each is asked for it 20 times a second. Where "
        f"all entries live equally long up to {peaks[0]} caches fetch within 100 ms; with the "
        f"defaults {peaks[1]}, and only {overdue[1]}% of the fetches begin when the entry is "
        "overdue."
    )


def digest_filter() -> Drawing:
    """How many digests that were never marked seem to be there, as the table fills."""
    chance = Random(2)
    table = DigestFilter(2_048, b"a run")
    absent = [chance.randbytes(32) for _ in range(1_000)]
    measured: list[Point] = []
    told: list[Point] = []
    bits = 2_048 * 8
    for number in range(1, 4_001):
        table.add(chance.randbytes(32))
        if number % 20 == 0:
            told.append((float(number), 100 * table.mistaken))
        if number % 200 == 0:
            found = sum(digest in table for digest in absent)
            measured.append((float(number), found / 10))
    sheet = Sheet("Digest filter: what seems to be marked and is not", 200)
    panel = sheet.panel(
        "mistaken, of 1,000 others", Axis(4_000, "digests marked"), Axis(25, "percent")
    )
    panel.line("a", told, "as told")
    panel.dots("b", measured, "as found")
    few = next(y for x, y in told if bits / x <= 27)
    ten = next(y for x, y in told if bits / x <= 10)
    return sheet.drawing(
        f"A table of 2,048 bytes: with 27 bits for each digest {few:.2f}% of others seem to be "
        f"marked, with 10 bits {ten:.1f}%, and {told[-1][1]:.0f}% with the 4 that "
        f"{told[-1][0]:,.0f} digests leave. What was marked is always found."
    )


def image_fit() -> Drawing:
    """One picture in one box, by four ways."""
    ways = ("cover", "contain", "fill", "inside")
    box, own_w, own_h, pitch = 400, 300, 200, 680
    sheet = Sheet("Image fit: a picture of 300 x 200 in a box of 400 x 400", 120)
    results = []
    middle = [pitch * at + pitch / 2 for at in range(len(ways))]
    fits = [fit_image(own_w, own_h, box, box, way, way != "inside") for way in ways]
    panel = sheet.panel(
        "blue: the picture, grey: what is cut off or filled up, dashed: the box",
        Axis(pitch * len(ways), "", 0, list(zip(middle, ways, strict=True))),
        Axis(480, "", -40, []),
    )
    for x, way, fit in zip(middle, ways, fits, strict=True):
        wide, tall = max(fit.scaled_width, fit.width), max(fit.scaled_height, fit.height)
        low = (box - tall) / 2
        panel.bar("stays", x - wide / 2, x + wide / 2, low + tall, low)
        wide, tall = min(fit.scaled_width, fit.width), min(fit.scaled_height, fit.height)
        low = (box - tall) / 2
        panel.bar("a", x - wide / 2, x + wide / 2, low + tall, low)
        panel.frame(x - box / 2, x + box / 2, box)
        results.append(f"{way} {fit.width} x {fit.height}")
    cut = round(100 - 100 * fits[0].width / fits[0].scaled_width)
    return sheet.drawing(
        f"The results are {', '.join(results)}: what covers the box loses {cut}% of its "
        f"width, what is contained is drawn {fits[1].scaled_width} x {fits[1].scaled_height} and "
        "filled up, "
        "what fills it is distorted, and what may only be inside is not enlarged."
    )


def perceptual_hash() -> Drawing:
    """How far apart the hashes of one picture saved again are, and of different pictures."""
    chance = Random(4)
    pictures = [_waves(chance) for _ in range(24)]
    hashes = [difference_hash(_shrunk(picture, 0, 1.0, chance)) for picture in pictures]
    again = [
        hash_distance(one, difference_hash(_shrunk(picture, noise, light, chance)))
        for one, picture in zip(hashes, pictures, strict=True)
        for noise in (2, 6, 12)
        for light in (0.7, 1.0, 1.2)
    ]
    others = [hash_distance(a, b) for at, a in enumerate(hashes) for b in hashes[:at]]
    sheet = Sheet("Perceptual hash: how many of 64 bits differ", 200)
    panel = sheet.panel("pairs of pictures", Axis(64, "bits that differ"), Axis(25, "percent"))
    panel.band("quiet", 0, 10)
    for kind, found, shift in (("a", again, 0.05), ("b", others, 0.5)):
        for distance, count in Counter(found).items():
            panel.bar(kind, distance + shift, distance + shift + 0.45, 100 * count / len(found))
    panel.note(11, 20, "the same picture, darker, lighter, with noise", "a")
    panel.note(24, 11, "two different pictures", "b")
    near = 100 * sum(distance <= 10 for distance in again) / len(again)
    return sheet.drawing(
        f"{len(pictures)} pictures of waves, each saved again in nine ways (darker, lighter, with "
        f"noise): {near:.1f}% of them are within 10 bits of the first, the median "
        f"{sorted(again)[len(again) // 2]}. Of {len(others)} pairs of different ones the nearest "
        f"are {min(others)} bits apart."
    )


Grey = list[list[float]]


def _waves(chance: Random) -> Grey:
    """Grey of 27 x 24 pixels."""
    waves = [
        (chance.uniform(-0.35, 0.35), chance.uniform(-0.35, 0.35), chance.uniform(0, 6.28))
        for _ in range(4)
    ]
    return [
        [128 + sum(28 * sin(a * x + b * y + c) for a, b, c in waves) for x in range(3 * COLUMNS)]
        for y in range(3 * ROWS)
    ]


def _shrunk(picture: Grey, noise: float, light: float, chance: Random) -> list[int]:
    """The means of 3 x 3 pixels, each pixel lighter and with noise."""
    return [
        round(
            sum(
                min(
                    max(picture[3 * y + down][3 * x + across] * light + chance.gauss(0, noise), 0),
                    255,
                )
                for down in range(3)
                for across in range(3)
            )
            / 9
        )
        for y in range(ROWS)
        for x in range(COLUMNS)
    ]
