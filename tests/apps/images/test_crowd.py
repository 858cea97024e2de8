"""A crowd: thousands of connections ask the whole process, as users start it, for one new image."""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.apps.images.signatures import path_of
from tests.apps.images.origin_server import Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import ImagesProcess, origin_in_thread
from tests.engines.child import PATIENCE_S
from tests.prove.seeds import first

SPEC = "w=32,format=webp"
OPENED_AT_ONCE = 200
SPARE_FILES = 200
TIMES = ("--timeout-s", "60", "--origin-timeout-s", "60", "--origin-idle-s", "60")
ROOM = ("--connections-max", "12000", "--connections-per-address-max", "12000")
FLAGS = (*TIMES, *ROOM)


class RealImages(ImagesProcess):
    """With the real library and its worker processes."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "sluicegate.cli", "images", "serve"]


@pytest.fixture
def files() -> Iterator[int]:
    """As many open files as this process may have; the service inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def crowd(
    server: ImagesProcess, target: str, count: int, gate: threading.Event
) -> set[bytes]:
    """Open all connections, ask on all of them, see all waiting at once, then let them go."""
    places = asyncio.Semaphore(OPENED_AT_ONCE)

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with places:
            return await asyncio.open_connection("127.0.0.1", server.port)

    streams = await asyncio.gather(*(connect() for _ in range(count)))
    request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    for _, writer in streams:
        writer.write(request)

    def waiting() -> int:
        state = server.ask("/v1/state")[1]
        return int(state["sharing"]["urls"]["waiting"])

    # Who leads waits for the origin; the state itself takes one place of the service's.
    while await asyncio.to_thread(waiting) < count:
        await asyncio.sleep(0.05)
    gate.set()

    async def answer(reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await reader.readexactly(length)

    bodies = await asyncio.gather(*(answer(reader) for reader, _ in streams))
    for _, writer in streams:
        writer.close()
    assert len(bodies) == count
    return set(bodies)


@pytest.mark.parametrize("count", first(1, [1_000, 10_000]))
def test_a_crowd_for_one_new_image_is_one_download_and_one_processing(
    tmp_path: Path, files: int, count: int
) -> None:
    if files < count + SPARE_FILES:
        pytest.skip(f"it takes {count + SPARE_FILES:,} open files, and {files:,} are allowed")
    gate = threading.Event()
    with (
        origin_in_thread() as origin,
        RealImages(tmp_path, *FLAGS) as server,
    ):
        origin.pages["/crowd.png"] = Page(picture(5), gate=gate)
        target = path_of(SPEC, origin.url("/crowd.png"))
        bodies = asyncio.run(asyncio.wait_for(crowd(server, target, count, gate), 4 * PATIENCE_S))
        assert len(bodies) == 1
        assert origin.asked["/crowd.png"] == 1
        assert server.metric("sluicegate_images_processed_total") == 1
        assert server.metric("sluicegate_images_downloads_total") == 1
