"""A shop's catalogue before and after `sluicegate images`: every picture made once.

    python examples/image_catalogue.py --urls 200 --calls 2000

It starts an origin with a catalogue in which 40% of the URLs have the bytes of another, an image
service before it, has all thumbnails made by one prefetch, then asks as customers do: a few
pictures very often, most of them hardly ever. At the end it prints what was saved.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import quote

import pyvips

SPECS = ("w=240,format=webp", "w=80,h=80,fit=cover,crop=attention,format=webp")
SEED = 7


class Catalogue(BaseHTTPRequestHandler):
    """The origin: a picture for each path."""

    pictures: ClassVar[dict[str, bytes]] = {}
    downloads = 0

    def do_GET(self) -> None:
        """Send a picture."""
        Catalogue.downloads += 1
        picture = self.pictures[self.path]
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(picture)))
        self.end_headers()
        self.wfile.write(picture)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def photo(number: int) -> bytes:
    """A picture that no other number has."""
    noise = pyvips.Image.gaussnoise(480, 360, mean=128, sigma=60, seed=number).gaussblur(6)
    bands = [noise, noise.rot180(), noise.fliphor()]
    data: bytes = bands[0].bandjoin(bands[1:]).cast("uchar").jpegsave_buffer(Q=85)
    return data


@contextmanager
def origin(urls: int) -> Iterator[list[str]]:
    """The URLs of a catalogue, served."""
    chance = random.Random(SEED)
    own = urls * 6 // 10
    photos = [photo(number) for number in range(own)]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Catalogue)
    for number in range(urls):
        content = number if number < own else chance.randrange(own)
        Catalogue.pictures[f"/{number}.jpg"] = photos[content]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [f"http://127.0.0.1:{server.server_port}{path}" for path in Catalogue.pictures]
    server.shutdown()


@contextmanager
def image_service(folder: str) -> Iterator[HTTPConnection]:
    """A connection to a service whose stores are below this folder."""
    command = [
        sys.executable, "-m", "sluicegate.cli", "images", "serve", "--listen", "127.0.0.1:0",
        "--kv", f"lmdb:{folder}/kv", "--blobs", f"files:{folder}/blobs",
        "--origin-networks", "127.0.0.1/32",  # this origin is not on the internet
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        port = int(ready.partition("127.0.0.1:")[2].partition(";")[0])
        yield HTTPConnection("127.0.0.1", port, timeout=60)
        process.terminate()


def prefetch(service: HTTPConnection, urls: list[str]) -> None:
    """Have every thumbnail made; the reply tells of each as it is done."""
    images = [{"url": url, "spec": spec} for url in urls for spec in SPECS]
    body = json.dumps({"images": images}).encode()
    service.request("POST", "/v1/prefetch", body, {"Content-Type": "application/json"})
    failed = 0
    for line in service.getresponse():
        told = json.loads(line)
        failed += "failed" in told
    say(f"prefetched {told['done']:,} of {told['of']:,} thumbnails, {failed} failed")


def browse(service: HTTPConnection, urls: list[str], calls: int) -> None:
    """Ask as customers do."""
    chance = random.Random(SEED)
    weights = [1 / rank for rank in range(1, len(urls) + 1)]
    times = []
    for url in chance.choices(urls, weights, k=calls):
        begun = time.perf_counter()
        service.request("GET", f"/img/{chance.choice(SPECS)}/{quote(url, safe='')}")
        answer = service.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        times.append((time.perf_counter() - begun) * 1e3)
    deciles = statistics.quantiles(times, n=10)
    say(f"{calls:,} calls: p50 {deciles[4]:.2f} ms, p90 {deciles[8]:.2f} ms")


def say(line: str) -> None:
    """Print it."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """Show it."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--urls", type=int, default=200)
    parser.add_argument("--calls", type=int, default=2_000)
    flags = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        origin(flags.urls) as urls,
        image_service(folder) as service,
    ):
        prefetch(service, urls)
        browse(service, urls, flags.calls)
        service.request("GET", "/v1/state")
        counts = json.loads(service.getresponse().read())["pipeline"]
    say(
        f"{Catalogue.downloads:,} downloads, {counts['duplicates']:,} of bytes that were there; "
        f"{counts['processed']:,} pictures processed, "
        f"{counts['saved_us'] / 1e6:.1f} s of processing not needed again"
    )


if __name__ == "__main__":
    main()
