"""Malformed images: good ones with damage, from a seed; and what must hold of each."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sluicegate.contracts.image import ImageFailure, ImageLimits
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.stores.images.workers import ImageWorkers, open_image_workers
from tests.stores.images import pictures
from tests.stores.images.pictures import encode, picture

MEMORY_BYTES_MAX = 512 << 20
LIMITS = ImageLimits(source_pixels_max=4_000_000, source_side_max=4_000, source_pages_max=100)
SPECS = [
    parse_spec("w=60,format=jpeg"),
    parse_spec("w=30,h=30,fit=cover,crop=attention,format=png"),
    parse_spec("w=50,h=20,fit=contain,format=webp,strip=no"),
]
# Numbers that lengths and sizes are broken by.
_EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def good_images() -> list[bytes]:
    """Small images of every format and of most of their kinds."""
    small = picture(96, 64)
    return [
        encode(small, "JPEG"),
        encode(small, "JPEG", progressive=True),
        encode(small.convert("CMYK"), "JPEG"),
        pictures.turned(6),
        encode(small, "PNG", icc_profile=pictures.swapped_profile()),
        encode(pictures.transparent(96, 64), "PNG"),
        encode(small.quantize(), "PNG"),
        encode(small, "WEBP"),
        encode(pictures.transparent(96, 64), "WEBP", lossless=True),
        pictures.animation(3),
        encode(small, "TIFF"),
        encode(small, "TIFF", compression="tiff_lzw"),
        encode(small, "TIFF", compression="tiff_deflate"),
        encode(small, "AVIF"),
    ]


def damaged(seed: int, good: Sequence[bytes]) -> bytes:
    """One good image with one to eight faults, most of them near its head."""
    chance = random.Random(seed)
    data = bytearray(chance.choice(good))
    for _ in range(chance.randint(1, 8)):
        end = len(data) if chance.random() < 0.5 else min(len(data), 200)
        at = chance.randrange(4, max(end, 5))
        match chance.randrange(7):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                data[at : at + 1] = bytes([data[at % len(data)] ^ 1 << chance.randrange(8)])
            case 2:
                width = chance.choice([2, 4])
                edge = chance.choice(_EDGES) & (1 << 8 * width) - 1
                data[at : at + width] = edge.to_bytes(width, chance.choice(["big", "little"]))
            case 3:
                del data[at : at + chance.randrange(1, 64)]
            case 4:
                data[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 5:
                source = chance.choice(good)
                start = chance.randrange(len(source))
                data[at:at] = source[start : start + chance.randrange(1, 256)]
            case _:
                if chance.random() < 0.2:
                    del data[at:]
        if len(data) < 8:
            break
    return bytes(data)


async def endure(seeds: Sequence[int]) -> Counter[str]:
    """Put the images of these seeds through workers; count how each ended.

    Each ends as a picture or as an `ImageFailure`, no worker is larger than its bound, and a good
    image is made right at the end, as it was at the start.
    """
    good = good_images()
    settings = ImageWorkerSettings(
        workers=2,
        queue_max=64,
        job_us=10_000_000,
        starved_us_max=600_000_000,  # likewise
        start_us=300_000_000,  # beside others, at the lowest priority, it takes long
        memory_bytes_max=MEMORY_BYTES_MAX,
        limits=LIMITS,
    )
    workers = await open_image_workers(settings)
    ends: Counter[str] = Counter()
    waiting: Iterator[int] = iter(seeds)

    async def feed() -> None:
        for seed in waiting:
            ends[await _try(workers, seed, damaged(seed, good))] += 1

    try:
        before = [await workers.process(data, SPECS[0]) for data in good]
        await asyncio.gather(*(feed() for _ in range(8)))
        assert [await workers.process(data, SPECS[0]) for data in good] == before
        for pid in workers.pids:
            assert _size_max(pid) <= MEMORY_BYTES_MAX
    finally:
        await workers.close()
    ends["replaced"] = workers.replaced
    return ends


async def _try(workers: ImageWorkers, seed: int, data: bytes) -> str:
    try:
        if seed % 4 == 3:
            info = await workers.describe(data)
            assert 1 <= info.width <= LIMITS.source_side_max, seed
            return "described"
        spec = SPECS[seed % 4]
        made = await workers.process(data, spec)
    except ImageFailure as failure:
        # One that is damaged is not one that kills: what does is a fault to be looked at.
        return f"died: {failure.detail}" if "died" in failure.detail else failure.kind.value
    assert pictures.decode(made.data).size == (made.width, made.height), seed
    assert made.width <= spec.width, seed
    return "made"


def _size_max(pid: int) -> int:
    """The largest address space that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmPeak"))
    return int(line.split()[1]) * 1_024
