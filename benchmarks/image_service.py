"""The image service: hot variants beside uvicorn and nginx, and a catalogue's week beside no maps.

    python -m benchmarks.image_service              2,000 URLs, 20,000 calls a week
    python -m benchmarks.image_service --part weeks --urls 20000 --calls 200000 --html weeks.html

*Hot variants.* h2load asks the service, uvicorn with a bare ASGI application, and nginx for the
same bytes, over HTTP/1.1, in turns; each server on one core, h2load on the other. Bars: 0.5 of
uvicorn's rate, 0.25 of nginx's (if it is installed).

*A catalogue.* 40% of its URLs have the bytes of another; popularity is Zipf's. A warm-up week, then
a week in which at most half a percent of the calls are for new pairs of content and specification,
half of them by images that changed (the caller says so by Last-Modified). One caller, real origin,
real engine. Bars: exactly the new pairs are processed, each content is stored once, warm p50 within
3 ms and p90 within 10. The same calls, `WITHOUT_CALLS` of them, against a pipeline without maps:
download and process, each time. `--html FILE` draws how long calls took in all three.
"""

from __future__ import annotations

import argparse
import http.client
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import sha256
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image

from benchmarks.rounds import ROUNDS, Bars
from sluicegate.command_line.charts import Curve, line_chart
from sluicegate.command_line.page import color_key, render_page
from sluicegate.contracts.image import ImageLimits
from sluicegate.contracts.image_spec import parse_spec
from sluicegate.stores.images import vips
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.process import ImagesProcess, origin_in_thread, path
from tests.engines.child import Child, free_port, until

CLIENTS: Final = 16
HOT_CALLS: Final = 20_000
DUPLICATES: Final = 0.4
SPECS: Final = ("w=320,format=webp", "w=120,h=120,fit=cover,format=jpeg")
CHANGED: Final = 1_000_000  # numbers of contents from here on are of changed images
NEW_SPEC: Final = "w=64,format=webp"
WITHOUT_CALLS: Final = 200
P50_MS, P90_MS = 3.0, 10.0
KINDS: Final = (("cold", "cold week"), ("warm", "warm week"), ("without", "no maps"))
BARE: Final = """
import sys
from pathlib import Path
BODY = Path(sys.argv[1]).read_bytes()
HEAD = [(b"content-type", b"image/webp"), (b"content-length", b"%d" % len(BODY)),
        (b"cache-control", b"public, max-age=3600"), (b"etag", b'"00"')]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": HEAD})
    await send({"type": "http.response.body", "body": BODY})
import uvicorn
uvicorn.run(app, port=int(sys.argv[2]), loop="uvloop", http="httptools", access_log=False,
            log_level="warning", lifespan="off")
"""


class Shipped(ImagesProcess):
    """The service as users start it, on the first core."""

    def command(self) -> list[str]:
        """The words that start it."""
        serve = [sys.executable, "-m", "sluicegate.cli", "images", "serve", "--log", "warning"]
        return [*pinned(0), *serve]


def pinned(core: int) -> list[str]:
    """The beginning of a command that stays on one core, where that can be said."""
    return ["taskset", "-c", str(core)] if shutil.which("taskset") else []


def photo(number: int, side: int = 640) -> bytes:
    """A JPEG like a photo: gradients and noise, of which no other number has the same."""
    chance = random.Random(number)
    small = Image.new("RGB", (24, 18))
    small.putdata([tuple(chance.randrange(256) for _ in range(3)) for _ in range(24 * 18)])
    large = small.resize((side, side * 3 // 4), Image.Resampling.BICUBIC)
    out = BytesIO()
    large.save(out, "JPEG", quality=85)
    return out.getvalue()


# Hot variants.


@contextmanager
def uvicorn(folder: Path, body: Path) -> Iterator[str]:
    """A bare ASGI application that answers these bytes."""
    program, port = folder / "bare.py", free_port("127.0.0.1")
    program.write_text(BARE)
    command = [*pinned(0), sys.executable, str(program), str(body), str(port)]
    with running(folder, "uvicorn", command, port):
        yield f"http://127.0.0.1:{port}/image"


@contextmanager
def nginx(folder: Path, body: Path) -> Iterator[str]:
    """The file, served."""
    port = free_port("127.0.0.1")
    config = folder / "nginx.conf"
    places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{one}_temp_path {folder}/{one}; " for one in places)
    user = "user root; " if os.geteuid() == 0 else ""  # who may read the folder of this run
    config.write_text(
        f"{user}daemon off; worker_processes 1; pid {folder}/nginx.pid;\n"
        f"error_log {folder}/nginx.err; events {{}}\n"
        f"http {{ access_log off; keepalive_requests 10000000; sendfile on; {temporary}\n"
        f"  server {{ listen 127.0.0.1:{port}; root {body.parent}; }} }}\n"
    )
    with running(folder, "nginx", [*pinned(0), "nginx", "-c", str(config)], port):
        yield f"http://127.0.0.1:{port}/{body.name}"


@contextmanager
def running(folder: Path, name: str, command: list[str], port: int) -> Iterator[int]:
    """A server until it is not needed; its process."""

    def answers() -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        return True

    child = Child(name, command, folder / f"{name}.log")
    try:
        until(answers, name, children=[child])
        yield child.pid
    finally:
        child.stop()


def rate_of(url: str, size: int) -> float:
    """Requests a second, every one of which brought the whole image."""
    command = [
        *pinned(1), "h2load", "--h1", "-t", "1", "-c", str(CLIENTS), "-n", str(HOT_CALLS), url,
    ]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    succeeded = re.search(r"(\d+) succeeded", said)
    received = re.search(r"\((\d+)\) data", said)
    if (
        succeeded is None
        or received is None
        or int(succeeded[1]) != HOT_CALLS
        or int(received[1]) != HOT_CALLS * size
    ):
        sys.exit(f"not every request brought the image:\n{said}")
    found = re.search(r"([\d.]+) req/s", said)
    assert found is not None
    return float(found[1])


def hot(folder: Path, bars: Bars) -> None:
    """The rates, in turns."""
    if not shutil.which("h2load"):
        print("\nhot variants: h2load is missing (Debian: nghttp2-client); skipped")
        return
    with origin_in_thread() as origin, Shipped(folder) as server:
        origin.pages["/a.jpg"] = Page(photo(1))
        url = origin.url("/a.jpg")
        body = server.image(url, SPECS[0]).body
        kept = folder / "www" / "image.webp"
        kept.parent.mkdir()
        kept.write_bytes(body)
        with uvicorn(folder, kept) as bare:
            urls = {"sluicegate": server.url + path(url, SPECS[0]), "uvicorn": bare}
            if shutil.which("nginx"):
                with nginx(folder, kept) as file:
                    compare({**urls, "nginx": file}, len(body), bars)
            else:
                compare(urls, len(body), bars)


def compare(urls: dict[str, str], size: int, bars: Bars) -> None:
    """A table, and the bars."""
    rates: dict[str, list[float]] = {name: [] for name in urls}
    for url in urls.values():
        rate_of(url, size)  # warm
    for _ in range(ROUNDS):
        for name, url in urls.items():
            rates[name].append(rate_of(url, size))
    print(f"\nhot variants: {size:,} bytes, {CLIENTS} connections, requests a second")
    for name, found in rates.items():
        median, least, most = statistics.median(found), min(found), max(found)
        print(f"  {name:<12}{median:10,.0f}  ({least:,.0f} to {most:,.0f})")
    for peer, share in (("uvicorn", 0.5), ("nginx", 0.25)):
        if peer in rates:
            pairs = zip(rates["sluicegate"], rates[peer], strict=True)
            ratio = statistics.median(ours / theirs for ours, theirs in pairs)
            bars.check(ratio >= share, f"{ratio:.2f} of {peer}'s rate (bar: {share})")


# A catalogue.

# A URL, a specification, and the version that the image is changed to before, if it is.
Call = tuple[int, str, int]


class Catalogue:
    """URLs with contents, some of which are alike."""

    def __init__(self, origin: OriginServer, urls: int, seed: int) -> None:
        self.origin = origin
        self.chance = random.Random(seed)
        own = int(urls * (1 - DUPLICATES))
        self.contents = [at if at < own else self.chance.randrange(own) for at in range(urls)]
        self._weights = [1 / (rank + 1) for rank in range(urls)]
        self._order = self.chance.sample(range(urls), urls)
        self._photos: dict[int, bytes] = {}
        self.pairs: set[tuple[int, str]] = set()
        for at in range(urls):
            self.show(at, 0)

    def show(self, at: int, version: int) -> str:
        """Let the origin have this URL's content; the date that goes with this version."""
        date = formatdate(1_700_000_000 + version, usegmt=True)
        body = self.photo(self.contents[at])
        self.origin.pages[f"/{at}.jpg"] = Page(body, headers={"Last-Modified": date})
        return date

    def change(self, at: int, version: int) -> str:
        """Let the origin have another content at this URL, that no other has."""
        self.contents[at] = CHANGED + version
        return self.show(at, version)

    def photo(self, content: int) -> bytes:
        """The bytes of a content."""
        if content not in self._photos:
            self._photos[content] = photo(content)
        return self._photos[content]

    def calls(self, count: int) -> list[Call]:
        """A week's calls."""
        ranks = self.chance.choices(range(len(self._order)), self._weights, k=count)
        return [(self._order[rank], self.chance.choice(SPECS), 0) for rank in ranks]


def quantiles_ms(times: list[float]) -> tuple[float, float]:
    """The median and the ninth decile."""
    cuts = statistics.quantiles(times, n=10)
    return cuts[4] * 1e3, cuts[8] * 1e3


def play(server: ImagesProcess, catalogue: Catalogue, calls: list[Call]) -> list[float]:
    """Make these calls, one after the other, on one connection; how long each took."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    times = []
    for at, spec, version in calls:
        target = path(catalogue.origin.url(f"/{at}.jpg"), spec)
        headers = {"Last-Modified": catalogue.change(at, version)} if version else {}
        begun = time.perf_counter()
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        times.append(time.perf_counter() - begun)
        if answer.status != 200:
            sys.exit(f"{target}: {answer.status} {body!r}")
        catalogue.pairs.add((catalogue.contents[at], spec))
    connection.close()
    return times


def second_week(catalogue: Catalogue, before: list[Call], calls: int) -> list[Call]:
    """Calls like those before, but for images that changed and calls for another size.

    A changed image makes new pairs of all that is asked of its URL later in the week: changes are
    made while all new pairs together are at most half a percent of the calls.
    """
    chance, week = catalogue.chance, catalogue.chance.choices(before, k=calls)
    places: dict[int, list[int]] = {}
    for place, (url, _, _) in enumerate(week):
        places.setdefault(url, []).append(place)
    left, number, changed = calls // 200, 0, set[int]()
    for place in chance.sample(range(calls), calls):
        url, spec, _ = week[place]
        if url in changed:
            continue
        if number % 2:
            week[place] = (url, NEW_SPEC, 0)
            left -= 1
        else:
            later = {week[at][1] for at in places[url] if at >= place}
            if len(later) > left:
                continue
            week[place] = (url, spec, number + 1)
            changed.add(url)
            left -= len(later)
        number += 1
        if left <= 0:
            break
    return week


def without_maps(catalogue: Catalogue, calls: list[Call]) -> list[float]:
    """Download and process, each time; the engine in this process, which spares it a way."""
    vips.set_up()
    specs = {spec: parse_spec(spec) for spec in (*SPECS, NEW_SPEC)}
    connection = http.client.HTTPConnection("127.0.0.1", catalogue.origin.port, timeout=60)
    times = []
    for at, spec, _ in catalogue.chance.sample(calls, min(WITHOUT_CALLS, len(calls))):
        begun = time.perf_counter()
        connection.request("GET", f"/{at}.jpg")
        original = connection.getresponse().read()
        vips.process_image(original, specs[spec], ImageLimits())
        times.append(time.perf_counter() - begun)
    return times


def draw(weeks: dict[str, list[float]], file: str, words: str) -> None:
    """Write a page: how long so many of a hundred calls took at most, in each."""
    shares = [at / 200 for at in range(201)]
    ordered = {name: sorted(times) for name, times in weeks.items()}
    curves = [
        Curve(name, kind, [math.log10(quantile(times, share) * 1e6) for share in shares])
        for (name, times), kind in zip(ordered.items(), dict(KINDS), strict=True)
    ]
    chart = line_chart(
        "Time of a call, the fastest first", curves, "all calls",
        lambda value: f"{10 ** value / 1_000:,.5g} ms", begins="the fastest",
    )  # fmt: skip
    style = "".join(
        f":root {{ --{kind}: {light}; }} "
        f"@media (prefers-color-scheme: dark) {{ :root {{ --{kind}: {dark}; }} }} "
        f".line.{kind} {{ stroke: var(--{kind}); }} .fill.{kind} {{ fill: var(--{kind}); }} "
        for kind, light, dark in (
            ("cold", "#1d5fa8", "#7db7f5"), ("warm", "#1f7a4d", "#58c58f"),
            ("without", "#b3261e", "#ff8f84"),
        )
    )  # fmt: skip
    body = [
        "<h1>A week of calls for images</h1>",
        f"<p>{escape(words)}</p>",
        chart,
        color_key(KINDS),
    ]
    Path(file).write_text(render_page("Images", body, style), encoding="utf-8")


def quantile(times: list[float], share: float) -> float:
    """The time that this share of them does not exceed."""
    return times[min(len(times) - 1, int(share * len(times)))]


def catalogue_weeks(folder: Path, urls: int, calls: int, bars: Bars, html: str) -> None:
    """Two weeks, and the same without maps."""
    processed = "sluicegate_images_processed_total"
    with (
        origin_in_thread() as origin,
        Shipped(folder, "--recheck-s", "0", "--near", "off") as server,
    ):
        catalogue = Catalogue(origin, urls, seed=11)
        print(f"\na catalogue: {urls:,} URLs, {calls:,} calls a week")
        first = catalogue.calls(calls)
        cold = play(server, catalogue, first)
        pairs = len(catalogue.pairs)
        bars.check(server.metric(processed) == pairs, f"cold: {pairs:,} pairs, each processed once")
        week = second_week(catalogue, first, calls)
        warm = play(server, catalogue, week)
        new = len(catalogue.pairs) - pairs
        made = int(server.metric(processed)) - pairs
        bars.check(new <= calls // 200, f"warm: {new:,} pairs are new (at most {calls // 200:,})")
        bars.check(made == new, f"warm: {made:,} processed, {new:,} pairs are new")
        bars.check(made < calls / 100, f"that is {made / calls:.2%} of the calls (bar: 1%)")
        stored = [one.name for one in (folder / "blobs").rglob("*") if len(one.stem) == 64]
        digests = {sha256(catalogue.photo(one)).hexdigest() for one, _ in catalogue.pairs}
        twice = len(stored) - len(set(stored))
        bars.check(digests <= set(stored) and not twice, "each distinct content is stored once")
        without = without_maps(catalogue, week)
    weeks = {"cold week": cold, "warm week": warm, "no maps": without}
    for name, times in weeks.items():
        p50, p90 = quantiles_ms(times)
        print(f"  {name:<10}  p50 {p50:8.2f} ms   p90 {p90:8.2f} ms")
    p50, p90 = quantiles_ms(warm)
    bars.check(p50 <= P50_MS, f"warm p50 {p50:.2f} ms (bar: {P50_MS:g})")
    bars.check(p90 <= P90_MS, f"warm p90 {p90:.2f} ms (bar: {P90_MS:g})")
    if html:
        words = f"{urls:,} URLs, {calls:,} calls a week, {made:,} of the warm week processed."
        draw(weeks, html, words)


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--urls", type=int, default=2_000)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--part", choices=("hot", "weeks"), help="only this one")
    parser.add_argument("--html", default="", metavar="FILE", help="draw the weeks")
    flags = parser.parse_args()
    bars = Bars()
    parts: dict[str, Callable[[Path], None]] = {
        "hot": lambda folder: hot(folder, bars),
        "weeks": lambda folder: catalogue_weeks(folder, flags.urls, flags.calls, bars, flags.html),
    }
    for name, part in parts.items():
        if flags.part in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))
    bars.exit()


if __name__ == "__main__":
    main()
