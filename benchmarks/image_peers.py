"""Images made for a second of CPU: the whole service, beside thumbor on the same originals.

    python -m benchmarks.image_peers PROGRAM [--imgproxy PROGRAM] [--calls 24]

PROGRAM is `thumbor` (of an environment of its own: `pip install thumbor`), and imgproxy's is built
by Go beside libvips; it keeps nothing. All are asked over HTTP
for JPEGs of quality 80, about 400 pixels wide, from photographs of 3000 x 2000, by so many callers
at once, and give the same: size, subsampling, one scan, tables made for the image. They have the
originals in files. Each call is for a width of its photograph that was not asked for before, so
that all bytes are new: the service makes the variant, hashes and stores it, durably. Its originals
are in memory ("sluicegate"), as they are for an image that is asked for in several sizes at about
the same time, or are read and verified each time ("no memory": `--recent-bytes 0`). "thumbor,
keeping" stores what it makes too, as one has it in production. "thumbor" keeps nothing, which is
less work than ours. What counts is the CPU time of all processes of a server; the client's is
nobody's. Each server has one core, the same, and the callers the other: two that work at once would
be in each other's way. Bar, when busy: at least as many images as each, but for thumbor that keeps
nothing.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image
from PIL.JpegImagePlugin import get_sampling

from benchmarks.image_processing import cpu_s, originals
from benchmarks.image_service import Shipped, pinned, running
from benchmarks.rounds import ROUNDS, Bars
from tests.apps.images.origin_server import Page
from tests.apps.images.process import ImagesProcess, origin_in_thread, path
from tests.engines.child import free_port

CALLS: Final = 24
WIDTH: Final = 380
CALLERS: Final = (1, 4)  # the bar is for the last
ONE: Final = ("--processes", "1")
OURS, READING = "sluicegate", "no memory"
PEER, BARE, GO = "thumbor, keeping", "thumbor", "imgproxy"
CONFIG: Final = """
LOADER = "thumbor.loaders.file_loader"
FILE_LOADER_ROOT_PATH = "{folder}"
STORAGE = "thumbor.storages.no_storage"
RESULT_STORAGE = {results}
RESULT_STORAGE_FILE_STORAGE_ROOT_PATH = "{folder}/results"
RESULT_STORAGE_STORES_UNSAFE = True
ALLOW_UNSAFE_URL = True
PROGRESSIVE_JPEG = False
QUALITY = 80
"""
KEEPING: Final = '"thumbor.result_storages.file_storage"'


def reading_folder(folder: Path) -> Path:
    """A folder for the stores of a second service."""
    second = folder / "second"
    second.mkdir()
    return second


def family(pid: int) -> list[int]:
    """A process, and all that came of it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def get(port: int, target: str) -> bytes:
    """A picture, whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", target)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        sys.exit(f"{target}: {answer.status} {body[:300]!r}")
    return body


@contextmanager
def thumbor(folder: Path, program: str, name: str, results: str) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    port, config = free_port("127.0.0.1"), folder / f"{name}.conf"
    config.write_text(CONFIG.format(folder=folder, results=results))
    command = [
        *pinned(0),
        program,
        "-p",
        str(port),
        "-i",
        "127.0.0.1",
        "-c",
        str(config),
        "-l",
        "error",
    ]
    with running(folder, name, command, port) as pid:
        yield port, pid


@contextmanager
def imgproxy(folder: Path, program: str) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    port = free_port("127.0.0.1")
    settings = {"BIND": f"127.0.0.1:{port}", "LOCAL_FILESYSTEM_ROOT": str(folder)}
    words = [f"IMGPROXY_{name}={value}" for name, value in settings.items()]
    command = [*pinned(0), "env", *words, "IMGPROXY_LOG_LEVEL=error", program]
    with running(folder, "imgproxy", command, port) as pid:
        yield port, pid


def kind(data: bytes) -> tuple[object, ...]:
    """What must be equal in what is compared: format, size, colours, subsampling, scans."""
    picture = Image.open(BytesIO(data))
    progressive = bool(picture.info.get("progressive"))
    return picture.format, picture.size, picture.mode, get_sampling(picture), progressive


def main(program: str, go_program: str, calls: int) -> None:
    """Ask all, in turns."""
    bars = Bars()
    with tempfile.TemporaryDirectory() as name, origin_in_thread() as origin:
        folder = Path(name)
        for number, data in enumerate(originals()):
            (folder / f"{number}.jpg").write_bytes(data)
            origin.pages[f"/{number}.jpg"] = Page(data)
        count = len(origin.pages)
        with (
            Shipped(folder, *ONE) as server,
            Shipped(reading_folder(folder), *ONE, "--recent-bytes", "0") as reading,
            thumbor(folder, program, "keeping", KEEPING) as (keeping, keeping_pid),
            thumbor(folder, program, "bare", "None") as (bare, bare_pid),
            ExitStack() as more,
        ):
            ask: dict[str, Callable[[int], bytes]] = {
                OURS: lambda call: get(server.port, own(server, origin.url, call, count)),
                READING: lambda call: get(reading.port, own(reading, origin.url, call, count)),
                PEER: lambda call: get(keeping, theirs(call, count)),
                BARE: lambda call: get(bare, theirs(call, count)),
            }
            pids = {
                OURS: server.child.pid,
                READING: reading.child.pid,
                PEER: keeping_pid,
                BARE: bare_pid,
            }
            if go_program:
                go, pids[GO] = more.enter_context(imgproxy(folder, go_program))
                ask[GO] = lambda call: get(go, by_imgproxy(call, count))
            if len({kind(work(0)) for work in ask.values()}) > 1:
                sys.exit(f"not the same work: {[kind(work(0)) for work in ask.values()]}")
            done = 1
            for callers in CALLERS:
                done = busy(ask, pids, callers, calls, done, bars)
    bars.exit()


def busy(
    ask: dict[str, Callable[[int], bytes]],
    pids: dict[str, int],
    callers: int,
    calls: int,
    done: int,
    bars: Bars,
) -> int:
    """Have all asked by so many at once, and print what they made; how many calls were made."""
    made: dict[str, list[float]] = {one: [] for one in ask}
    names = list(ask)
    with ThreadPoolExecutor(callers) as pool:
        for turn in range(ROUNDS + 1):  # the first is to warm
            for one in names[turn % len(names) :] + names[: turn % len(names)]:
                before = sum(map(cpu_s, family(pids[one])))
                size = sum(map(len, pool.map(ask[one], range(done, done + calls))))
                used = sum(map(cpu_s, family(pids[one]))) - before
                if turn:
                    made[one].append(calls / used)
                elif callers == CALLERS[0]:
                    print(f"{one}: {size / calls:,.0f} bytes an image")
            done += calls
    print(f"\n{callers} at once")
    for one, found in made.items():
        low, high, median = min(found), max(found), statistics.median(found)
        print(f"  {one:<18}{median:7.1f} images/CPU s  ({low:.1f} to {high:.1f})")
    for own_name in (OURS, READING):
        for peer in [one for one in made if one not in (OURS, READING)]:
            pairs = zip(made[own_name], made[peer], strict=True)
            ratio = statistics.median(ours / theirs for ours, theirs in pairs)
            if own_name == OURS and peer != BARE and callers == CALLERS[-1]:
                bars.check(ratio >= 1, f"{ratio:.2f} of {peer} (bar: 1)")
            else:
                print(f"          {own_name}: {ratio:.2f} of {peer}")
    return done


def own(server: ImagesProcess, url: Callable[[str], str], call: int, count: int) -> str:
    """The path of a variant that was not made yet."""
    return path(url(f"/{call % count}.jpg"), f"w={width(call, count)},format=jpeg,q=80")


def theirs(call: int, count: int) -> str:
    """The path of one that thumbor was not asked for yet."""
    return f"/unsafe/{width(call, count)}x0/{call % count}.jpg"


def by_imgproxy(call: int, count: int) -> str:
    """Likewise, of imgproxy."""
    options = f"rs:fit:{width(call, count)}:0/q:80"
    return f"/unsafe/{options}/plain/local:///{call % count}.jpg@jpg"


def width(call: int, count: int) -> int:
    """About 400: it grows by one when all photographs were asked for."""
    return WIDTH + call // count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("thumbor", help="where it is, as /path/to/bin/thumbor")
    parser.add_argument("--imgproxy", default="", help="where it is, to have it compared too")
    parser.add_argument("--calls", type=int, default=CALLS, help="of a round")
    flags = parser.parse_args()
    main(flags.thumbor, flags.imgproxy, flags.calls)
