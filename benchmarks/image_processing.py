"""Images for a second of CPU: through a worker process, beside the library called directly.

    python -m benchmarks.image_processing [seconds of a round]

The same originals and the same specification for all. "workers" is one worker process and what
asks it, with bounds checked; "direct" is `thumbnail_buffer` and the writer
in this process, and nothing else; "pillow" is its fastest way, `draft` and `thumbnail`. What counts
is the CPU time of all processes and threads of a candidate, so that neighbours on the machine do
not; each line is the median of interleaved rounds, and the ratios are those of the same round.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyvips
from PIL import Image

from benchmarks.rounds import Bars
from sluicegate.contracts.image import Original
from sluicegate.contracts.image_spec import ImageSpec, parse_spec
from sluicegate.stores.images.settings import ImageWorkerSettings
from sluicegate.stores.images.vips import set_up
from sluicegate.stores.images.workers import ImageWorkers, open_image_workers

ROUNDS = 9
SECONDS = 1.0
BAR = 0.9
ORIGINALS = 4
_PROCESS_CLOCK = 2  # Linux: what the scheduler gave all threads of a process, those that ended too
SPECS = ("w=400,format=jpeg", "w=400,format=webp", "w=400,h=400,fit=cover,format=webp")

Candidate = Callable[[int], Awaitable[object]]


def originals() -> list[bytes]:
    """Photographs of a kind: 3000 x 2000, with noise, about a megabyte each."""
    made = []
    for seed in range(ORIGINALS):
        chance = np.random.default_rng(seed)
        coarse = chance.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((3_000, 2_000), Image.Resampling.BICUBIC)
        noise = chance.normal(0, 6, (2_000, 3_000, 1))
        pixels = np.clip(np.asarray(smooth) + noise, 0, 255).astype(np.uint8)
        into = io.BytesIO()
        Image.fromarray(pixels).save(into, "JPEG", quality=85)
        made.append(into.getvalue())
    return made


def direct(data: bytes, spec: ImageSpec) -> bytes:
    """The library as its documentation calls it."""
    crop: dict[str, Any] = {"crop": "centre"} if spec.fit == "cover" else {}
    picture: Any = pyvips.Image.thumbnail_buffer(
        data, spec.width, height=spec.height or 10_000, **crop
    )
    if spec.format == "webp":
        return bytes(picture.webpsave_buffer(Q=spec.quality, keep="none"))
    return bytes(picture.jpegsave_buffer(Q=spec.quality, keep="none", optimize_coding=True))


def pillow(data: bytes, spec: ImageSpec) -> bytes:
    """Pillow, as fast as it gets."""
    picture = Image.open(io.BytesIO(data))
    picture.draft("RGB", (spec.width, spec.width))
    picture.thumbnail((spec.width, spec.height or 10_000), reducing_gap=2.0)
    into = io.BytesIO()
    picture.save(into, spec.format, quality=spec.quality)
    return into.getvalue()


def cpu_s(pid: int) -> float:
    """What a process and all its threads have had of the CPU, exactly: no ticks are counted."""
    return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)


def all_cpu_s(workers: ImageWorkers) -> float:
    """What this process and all workers have had of the CPU, also those that were replaced."""
    ended = os.times()
    living = sum(map(cpu_s, [os.getpid(), *workers.pids]))
    return living + ended.children_user + ended.children_system


async def round_of(
    candidate: Candidate, seconds: float, together: int, workers: ImageWorkers
) -> float:
    """How many for a second of CPU of all processes, `together` at once."""
    used = all_cpu_s(workers)
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < seconds:
        await asyncio.gather(*(candidate(done + number) for number in range(together)))
        done += together
    return done / (all_cpu_s(workers) - used)


async def measure(workers: ImageWorkers, files: list[Path], text: str, seconds: float) -> float:
    """Print a table of one specification; return workers over direct, as the service has them."""
    spec = parse_spec(text)
    sources: list[bytes] = [path.read_bytes() for path in files]

    def through(given: list[Original]) -> Candidate:
        return lambda number: workers.process(given[number % len(given)], spec)

    def here(make: Callable[[bytes, ImageSpec], bytes]) -> Candidate:
        async def run(number: int) -> object:
            return make(sources[number % len(sources)], spec)

        return run

    # Two at once: while one is made, the next is on its way, as in a service.
    candidates: dict[str, tuple[Candidate, int]] = {
        "workers, from files": (through([*files]), 2),
        "workers, from memory": (through([*sources]), 2),
        "direct": (here(direct), 1),
        "pillow": (here(pillow), 1),
    }
    if spec.fit == "cover":
        del candidates["pillow"]  # it would take another call
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for candidate, together in candidates.values():
        await round_of(candidate, seconds / 2, together, workers)
    names = list(candidates)
    for turn in range(ROUNDS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            candidate, together = candidates[name]
            seen[name].append(await round_of(candidate, seconds, together, workers))
    print(f"\n{text}, from JPEGs of 3000 x 2000, {sum(map(len, sources)) // len(sources):,} bytes")
    for name, found in seen.items():
        ratio = median(one / base for one, base in zip(found, seen["direct"], strict=True))
        print(f"  {name:<22} {median(found):7.1f} images/CPU s   {ratio:5.2f} x direct")
    return median(
        one / base for one, base in zip(seen["workers, from memory"], seen["direct"], strict=True)
    )


async def main(seconds: float) -> None:
    """Measure each specification, and say whether the bar is met."""
    set_up()
    pyvips.concurrency_set(1)
    bars = Bars()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.jpg") for number in range(ORIGINALS)]
        for path, data in zip(files, originals(), strict=True):
            path.write_bytes(data)
        settings = ImageWorkerSettings(workers=1, read_paths=(folder,))
        workers = await open_image_workers(settings)
        try:
            print(f"engine {workers.engine}, {ROUNDS} rounds of {seconds:g} s")
            for text in SPECS:
                ratio = await measure(workers, files, text, seconds)
                bars.check(ratio >= BAR, f"{text}: workers at least {BAR} x direct ({ratio:.2f})")
        finally:
            await workers.close()
    bars.exit()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
