"""Verbs: what `sluicegate images` does besides serving, on the stores themselves or on a service.

A verb that works on stores may do so beside running services: the stores decide between them.
Ctrl-C ends a verb in order: what is under way is given up, what was acknowledged stays.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from sluicegate.apps.images import processors
from sluicegate.apps.images.owners import check_owner
from sluicegate.apps.images.parts import ImageParts
from sluicegate.apps.images.pipeline import try_in_bulk
from sluicegate.apps.images.processors import read_spec
from sluicegate.apps.images.progress import CommandProgress
from sluicegate.apps.images.report import (
    HEAD,
    NearPairs,
    Report,
    make_pairs,
    make_report,
    owner_rows,
    report_page,
)
from sluicegate.apps.images.settings import SERVICE, ImagesSettings
from sluicegate.apps.images.takedown import KINDS, Removed, Takedown
from sluicegate.apps.images.takedown_routes import selection_of
from sluicegate.command_line.service_client import address_from, ask
from sluicegate.command_line.text import clip, counted, duration, size, table
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.request import Request
from sluicegate.doors.listener import new_loop
from sluicegate.service.settings import read_settings
from sluicegate.system import SystemClock

STATS_TIMEOUT_S: Final = 10.0
ERRORS_SHOWN: Final = 20
AT_ONCE_MAX: Final = 10_000
NO_IMAGE: Final = 1

T = TypeVar("T")


class Job(NamedTuple):
    """A line of a catalog."""

    url: str
    spec: str
    owner: str = ""


@asynccontextmanager
async def opened(arguments: Namespace) -> AsyncIterator[ImageParts]:
    """The parts that the flags say, closed at the end."""
    settings = read_settings(ImagesSettings, arguments).settings
    parts = ImageParts(settings, processors.open_processor(settings), SystemClock())
    try:
        yield parts
    finally:
        await parts.close()


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work())


def fetch(arguments: Namespace) -> int:
    """Make one image, and write it."""
    if not arguments.out and sys.stdout.isatty():
        raise BadValue("--out", "", "name a file, or send the output to one: it is an image")

    async def work() -> bytes:
        async with opened(arguments) as parts:
            spec, _ = read_spec(arguments.spec, parts.settings, "")
            await parts.processor.start()
            # Whatever bounds refused it before, these flags are what is asked for now.
            parts.pipeline.bounds_since_us = parts.clock.now_us()
            image = await parts.pipeline.image(arguments.url, spec, Request(arguments.url))
            return image.data

    data = _run(work)
    if arguments.out:
        try:
            Path(arguments.out).write_bytes(data)
        except OSError as error:
            raise BadValue("--out", arguments.out, f"it cannot be written: {error}") from None
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return 0


def stats(arguments: Namespace) -> int:
    """Print what a running service did and saved."""
    address = address_from(arguments.at, arguments, flag="--at", example=SERVICE)
    service = f"the image service at {arguments.at}"
    state = ask(address, service, "/v1/state", timeout_s=STATS_TIMEOUT_S, grant="audit")
    if arguments.json:
        sys.stdout.write(json.dumps(state, indent=2) + "\n")
        return 0
    counts, hot = state["pipeline"], state["hot"]
    in_memory = f"{size(hot['bytes'])} of {counted(hot['images'], 'image')}"
    rows = [
        ("requests", f"{counts['requests'] + hot['hits']:,}", "images asked for"),
        ("from memory", f"{hot['hits']:,}", in_memory),
        ("from the store", f"{counts['variant_hits']:,}", "variants that were there"),
        ("processed", f"{counts['processed']:,}", duration(counts["process_us"])),
        ("not processed again", "", duration(counts["saved_us"])),
        ("downloads", f"{counts['downloads']:,}", f"{counts['unchanged']:,} were unchanged"),
        ("duplicates", f"{counts['duplicates']:,}", f"{size(counts['saved_bytes'])} not stored"),
        ("failures", f"{counts['failures']:,}", f"{counts['failures_cached']:,} from memory"),
    ]
    sys.stdout.write("\n".join([*table((), rows, left=1), ""]))
    return 0


def report(arguments: Namespace) -> int:
    """Print stored images and savings, by owner."""

    async def work() -> tuple[Report, NearPairs | None]:
        with CommandProgress() as bar:
            async with opened(arguments) as parts:
                looks = parts.pipeline.looks
                found = await make_report(parts.maps, progress=bar.phase)
                near = None
                if arguments.alike:
                    if looks is None:
                        raise BadValue("--near", "off", "say report or share to have what is alike")
                    near = await make_pairs(looks, progress=bar.phase)
                return found, near

    found, near = _run(work)
    if arguments.html:
        try:
            Path(arguments.html).write_text(
                report_page(found, title="Images", near=near), encoding="utf-8"
            )
        except OSError as error:
            raise BadValue("--html", arguments.html, f"it cannot be written: {error}") from None
    lines = [*found.sentences(), ""]
    lines += table(HEAD, [(clip(row[0], 40), *row[1:]) for row in owner_rows(found)], left=1)
    if near is not None:
        rows = [(f"{one.distance}", one.url, one.other) for one in near.shown]
        lines += ["", near.sentence(), "", *table(("bits", "of", "and"), rows, left=3)]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def collect(arguments: Namespace) -> int:
    """Remove what nothing refers to, or check all that does."""

    async def work() -> Any:
        with CommandProgress() as bar:
            async with opened(arguments) as parts:
                if arguments.check:
                    return await parts.collector(bar.phase).check()
                await parts.processor.start()  # it says whose variants are of use
                return await parts.collector(bar.phase).collect()

    found = _run(work)
    if not arguments.check:
        sys.stdout.write(
            f"{counted(found.urls, 'URL')}, {counted(found.variants, 'variant')} and "
            f"{counted(found.contents, 'content')}; removed {counted(found.removed, 'content')} "
            f"({size(found.bytes_removed)}), {counted(found.urls_removed, 'URL')}, "
            f"{counted(found.variants_removed, 'variant')}, "
            f"{counted(found.orphans_removed, 'blob')} without a record; condemned "
            f"{counted(found.condemned, 'content')}\n"
        )
        return 0
    sys.stdout.write(
        f"{counted(found.urls, 'URL')} and {counted(found.variants, 'variant')} point to "
        f"{counted(found.contents, 'blob')}, {size(found.bytes)}: "
        f"{counted(found.failed, 'error')}\n"
    )
    for error in found.errors[:ERRORS_SHOWN]:
        sys.stderr.write(f"sluicegate: {clip(error, 300)}\n")
    return 1 if found.failed else 0


def load(arguments: Namespace) -> int:
    """Fetch and process the images of a catalogue."""
    if not 0 < arguments.at_once <= AT_ONCE_MAX:
        raise BadValue("--at-once", arguments.at_once, f"give 1 to {AT_ONCE_MAX:,}")

    async def work() -> tuple[int, list[tuple[str, str, str]]]:
        jobs = list(_jobs(arguments))
        failed: list[tuple[str, str, str]] = []
        async with opened(arguments) as parts:
            for spec in arguments.spec:
                read_spec(spec, parts.settings, "")
            await parts.processor.start()
            with CommandProgress(len(jobs)) as bar:
                await _load_all(jobs, parts, arguments.at_once, failed, bar)
                if parts.pipeline.looks is not None:
                    await parts.pipeline.looks.drain()
        return len(jobs), failed

    total, failed = _run(work)
    if arguments.failures:
        _write_failures(arguments.failures, failed)
    sys.stdout.write(f"{counted(total, 'image')}, {len(failed):,} failed\n")
    for url, spec, why in failed[:ERRORS_SHOWN]:
        sys.stderr.write(f"sluicegate: {clip(url)} {clip(spec)}: {clip(why)}\n")
    return NO_IMAGE if failed else 0


async def _load_all(
    jobs: list[Job],
    parts: ImageParts,
    at_once: int,
    failed: list[tuple[str, str, str]],
    bar: CommandProgress,
) -> None:
    left = iter(jobs)

    async def work() -> None:
        for url, text, owner in left:
            try:
                spec, _ = read_spec(text, parts.settings, "")
                request = Request(url, criticality=Criticality.BULK)
                await try_in_bulk(partial(parts.pipeline.image, url, spec, request, owner=owner))
            except SluicegateError as error:
                failed.append((url, text, str(error)))
            bar.advance(len(failed))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(jobs))):
            group.create_task(work())


def _jobs(arguments: Namespace) -> Iterator[Job]:
    specs = arguments.spec
    if not specs:
        raise BadValue("--spec", "", "give what is to be made of each image, as w=400")
    try:
        with Path(arguments.file).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            for flag in ("url_column", "owner_column"):
                name = getattr(arguments, flag)
                if name and name not in (rows.fieldnames or ()):
                    columns = ", ".join(rows.fieldnames or ()) or "nothing"
                    remedy = f"the first row of the file has {columns}"
                    raise BadValue(f"--{flag.replace('_', '-')}", name, remedy)
            for row in rows:
                url = (row[arguments.url_column] or "").strip()
                owner = (row.get(arguments.owner_column) or "").strip()
                if owner:
                    check_owner(f"{arguments.owner_column} of line {rows.line_num}", owner)
                if url:
                    yield from (Job(url, spec, owner) for spec in specs)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadValue("CSV", arguments.file, f"it cannot be read: {error}") from None


def _write_failures(path: str, failed: list[tuple[str, str, str]]) -> None:
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("url", "spec", "why"), *failed])
    except OSError as error:
        raise BadValue("--failures", path, f"it cannot be written: {error}") from None


def remove(arguments: Namespace) -> int:
    """Remove, purge, block or unblock images, on the stores."""
    by = f"command:{getuser()}"

    async def work() -> Removed | None:
        async with opened(arguments) as parts:
            takedown = Takedown(parts.maps, parts.clock, parts.pipeline.forget)
            named = {kind: getattr(arguments, kind) for kind in KINDS}
            selected = selection_of(named)
            if arguments.unblock:
                if not await takedown.unblock(selected, by=by):
                    raise BadValue("--unblock", selected.value, "it is not blocked")
                return None
            done = Removed()
            with CommandProgress() as bar:
                async for done in takedown.run(
                    selected,
                    by=by,
                    purge=arguments.purge,
                    block=arguments.block,
                    reason=arguments.reason,
                ):
                    bar.phase("URLs", done.walked)
            return done

    done = _run(work)
    if done is not None:
        what = f"{counted(done.urls, 'URL')} and {counted(done.variants, 'variant')}"
        words = "purged" if arguments.purge else "removed"
        blocked = ", and blocked" if done.blocked else ""
        sys.stdout.write(f"{words} {what}{blocked}\n")
    return 0


VERBS: Final[Mapping[str, Callable[[Namespace], int]]] = {
    "fetch": fetch,
    "stats": stats,
    "report": report,
    "gc": collect,
    "import": load,
    "remove": remove,
}
