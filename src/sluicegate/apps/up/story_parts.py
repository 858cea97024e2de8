"""Story parts: who asks the services of the demo for what, scene by scene. Tables, and pure.

The scenes come one after the other, again and again. Each changes one thing, so that the console's
sentence names it: a key that everybody reads, a caller beyond its quota, a shard that is slow.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

from sluicegate.contracts.chance import Chance

ROWS: Final = 400
USERS: Final = 40
PICTURES: Final = 240
CONTENTS: Final = 150  # of them are different
SPECS: Final = ("w=96,format=webp", "w=48,h=48,fit=cover,format=webp")
LIMITER_RULES: Final = """\
version: 1
priorities:
  header: x-request-name
  names: {checkout: CRITICAL, search: DEGRADED, export: BULK}
rules:
  - {rule_id: checkout, resource_path: /checkout, priority_bucket: CRITICAL, limit: 600, window: 1m}
  - {rule_id: search, resource_path: /search, priority_bucket: DEGRADED, limit: 60, window: 1m}
  - {rule_id: export, resource_path: /export/*, priority_bucket: BULK, limit: 60, window: 1m}
"""
# Request units a second.
QUOTAS: Final = """\
version: 1
callers:
  quotas: {shop: 4000/s, search: 2000/s, feed: 1000/s, nightly: 120/s}
"""


class Scene(NamedTuple):
    """For how long, and what is different in it."""

    words: str
    seconds: float
    hot_share: float = 0.0  # of the reads go to one key
    noise: float = 1.0  # times as much as usual from the nightly job
    slow_times: float = 1.0  # a shard is as slow


SCENES: Final = (
    Scene("all is calm", 20),
    Scene("one key is read by everybody", 15, hot_share=0.8),
    Scene("the nightly job asks for more than its quota", 15, noise=10),
    Scene("a shard of the backend is slow", 20, slow_times=40),
    Scene("it has recovered", 15),
)
SLOW_SHARD: Final = 3


def scene_at(at_s: float) -> Scene:
    """The scene so long after the beginning."""
    at_s %= sum(scene.seconds for scene in SCENES)
    for scene in SCENES:
        if at_s < scene.seconds:
            return scene
        at_s -= scene.seconds
    return SCENES[-1]


class StoryCaller(NamedTuple):
    """A caller of the dispatcher."""

    per_s: float
    criticality: str
    writes: float  # the share of its requests


CALLERS: Final[dict[str, StoryCaller]] = {
    "shop": StoryCaller(60, "critical", 0.1),
    "search": StoryCaller(50, "degraded", 0.0),
    "feed": StoryCaller(30, "best-effort", 0.0),
    "nightly": StoryCaller(15, "bulk", 0.5),
}


class Ask(NamedTuple):
    """One request: of which service, over whose connections, and its bytes but for the Host."""

    service: str
    line: str
    method: str
    path: str
    headers: str = ""
    body: str = ""


class Stream(NamedTuple):
    """Requests of one kind: how many a second in a scene, and the next of them."""

    service: str
    rate_of: Callable[[Scene], float]
    make: Callable[[Scene, Chance], Ask]


def token_of(caller: str) -> str:
    """The token by which a caller of the demo is known; no secret of anybody's."""
    return f"demo-token-of-{caller}"


def _kv_stream(name: str, caller: StoryCaller) -> Stream:
    headers = (
        f"Authorization: Bearer {token_of(name)}\r\n"
        f"X-Sluicegate-Criticality: {caller.criticality}\r\n"
    )

    def make(scene: Scene, chance: Chance) -> Ask:
        hot = chance.draw() < scene.hot_share
        row = 0 if hot else int(chance.draw() * ROWS)
        path = f"/v1/tables/listings/rows/{row}/0"
        if not hot and chance.draw() < caller.writes:
            return Ask("kv", name, "PUT", path, headers, "a house by the lake, with a garden")
        return Ask("kv", name, "GET", path, headers)

    def rate(scene: Scene) -> float:
        times = scene.noise if name == "nightly" else 1 + 4 * scene.hot_share
        return caller.per_s * times

    return Stream("kv", rate, make)


def _check_stream(path: str, per_s: float, user: str, users: int) -> Stream:
    def make(_scene: Scene, chance: Chance) -> Ask:
        # The first of them asks most.
        number = int(users * chance.draw() ** 2)
        name = path.split("/")[1]
        body = (
            f'{{"user_id": "{user}-{number}", "resource_path": "{path}", '
            f'"headers": {{"x-request-name": "{name}"}}}}'
        )
        headers = "Content-Type: application/json\r\n"
        return Ask("limiter", user, "POST", "/v1/check", headers, body)

    return Stream("limiter", lambda _: per_s, make)


def _message(_scene: Scene, chance: Chance) -> Ask:
    channel = f"deliveries-{int(3 * chance.draw())}"
    body = f'{{"data": {{"parcel": {int(1_000 * chance.draw())}}}}}'
    headers = "Content-Type: application/json\r\n"
    return Ask("pubsub", "courier", "POST", f"/v1/channels/{channel}/messages", headers, body)


def image_stream(origin: str) -> Stream:
    """Thumbnails of pictures of this origin; the first are asked for most."""

    def make(_scene: Scene, chance: Chance) -> Ask:
        number = int(PICTURES * chance.draw() ** 3)
        spec = SPECS[int(len(SPECS) * chance.draw())]
        url = quote(f"{origin}/{number}.png", safe="")
        return Ask("images", "customers", "GET", f"/img/{spec}/{url}")

    return Stream("images", lambda _: 25, make)


STREAMS: Final = (
    *(_kv_stream(name, caller) for name, caller in CALLERS.items()),
    _check_stream("/checkout", 40, "customer", USERS),
    _check_stream("/search", 50, "visitor", USERS),
    _check_stream("/export/orders", 4, "report", 2),
    Stream("pubsub", lambda _: 10, _message),
)


def picture(number: int) -> bytes:
    """A PNG; of `PICTURES` numbers some share one, as in a catalogue. None has the last ten."""
    content = number % CONTENTS
    width, height = 160, 120
    rows = b"".join(
        b"\0" + bytes(v for x in range(width) for v in ((x + content) % 256, y * 2, content))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
