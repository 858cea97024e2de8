"""A child that is killed in the middle of everything: it serves, collects and uploads, for ever.

    crashes.py FOLDER SEED [ENGINE BLOBS]

Several may work on the same stores, each with a separate clock. Each prints a line for every
acknowledgement before it continues.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sluicegate.apps.images.collect import PREFIXES
from sluicegate.apps.images.contents import Contents
from sluicegate.contracts.blob_store import BlobStore
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.request import Request
from sluicegate.stores.blob_stores import open_blobs
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.service_parts import parts_of


class SlowBlobs:
    """A blob store whose writes take time, so that a kill comes before, during and after them."""

    def __init__(self, inner: BlobStore, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance

    def put(self, name: str, data: bytes, **conditions: Any) -> str:
        time.sleep(self._chance.random() * 0.02)
        try:
            return self._inner.put(name, data, **conditions)
        finally:
            time.sleep(self._chance.random() * 0.02)

    def delete(self, name: str) -> None:
        time.sleep(self._chance.random() * 0.02)
        self._inner.delete(name)
        time.sleep(self._chance.random() * 0.02)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def main(folder: Path, seed: int, engine: str = "", blobs: str = "") -> None:
    chance = random.Random(seed)
    engine = engine or f"lmdb:{folder}/kv"
    async with OriginServer() as server, parts_of(folder, engine=engine) as parts:
        parts.clock.advance(s=seed)
        slow: Any = SlowBlobs(open_blobs(blobs or f"files:{folder}/blobs"), chance)
        parts.contents = parts.pipeline.contents = Contents(slow, parts.maps, parts.clock)

        async def one() -> None:
            number = chance.randrange(12)
            body = picture(chance.randrange(300), width=24, height=16)
            server.pages[f"/{number}"] = Page(body)
            if chance.random() < 0.3:
                upload = await parts.pipeline.upload(body, Request("upload"))
                say(f"upload {upload.id}")
            else:
                image = await parts.image(server.url(f"/{number}"), chance.choice((8, 12)))
                say(f"served {image.digest}")

        async def collect() -> None:
            collector = parts.collector(grace_s=60.0)
            collector.prefixes = chance.sample(PREFIXES, 8)
            with suppress(Unavailable):  # another process collects
                found = await collector.collect()
                say(f"collected {found.removed + found.orphans_removed}")

        while True:
            # Time passes between the batches, so no write takes longer than the grace period.
            parts.clock.advance(s=chance.choice((0, 40, 4_000)))
            work = [one() for _ in range(4)]
            if chance.random() < 0.5:
                work.append(collect())
            await asyncio.gather(*work)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
