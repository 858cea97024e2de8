"""How long an honest caller waits beside clients that pipeline without end, and read.

The peer is a real redis-server beside as many clients. Each is asked in turns, by itself: a prober
sends PING and waits for the answer, again and again, while another process sends as fast as it is
read. The door is tried on uvloop and on asyncio's own loop, by RESP arrays, lines and CL.THROTTLE,
by HTTP/1.1, whose prober asks for /healthz, and by gRPC, whose prober calls as its neighbours do:
beside one of them, and beside four.

    python -m benchmarks.neighbours              all, about a minute and a half
    python -m benchmarks.neighbours --seconds 1  quickly
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hpack import Encoder

from benchmarks.doors import METHOD, RULES, ask, framed, redis_server
from benchmarks.rounds import Bars, build_of
from sluicegate.wire.h2 import frames
from tests.engines.child import Child, free_port, until

ROUNDS = 3
TIMES_MAX = 2.0  # of redis-server's p99
FEW = 4  # clients that pipeline together
BLOCK_BYTES = 1 << 18
PROBE_EVERY_S = 0.002
PING = b"*1\r\n$4\r\nPING\r\n"
THROTTLE = (
    b"*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$3\r\n100\r\n$7\r\n1000000\r\n$1\r\n1\r\n$1\r\n1\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
GRPC = "gRPC"
FLOODS = {"arrays": PING, "lines": b"PING\r\n", "CL.THROTTLE": THROTTLE, "HTTP/1.1": HEALTH}
PEER = "redis-server"
GREETING = b"".join(
    (
        frames.PREFACE,
        frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)]),
        frames.window_update(0, frames.WINDOW_MAX - frames.WINDOW_FIRST),
    )
)
HEAD = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


def grpc_call() -> Callable[[int], bytes]:
    """What calls the limiter on a stream; the same bytes but for the stream's number."""
    block = Encoder().encode([(name, value, True) for name, value in HEAD], huffman=False)
    body = framed(ask("ann"))
    head = frames.frame_head(len(block), frames.HEADERS, frames.END_HEADERS, 0)[:5]
    data = frames.frame_head(len(body), frames.DATA, frames.END_STREAM, 0)[:5]

    def call(stream: int) -> bytes:
        word = stream.to_bytes(4, "big")
        return b"".join((head, word, block, data, word, body))

    return call


def blocks_of(kind: str) -> Iterator[bytes]:
    """What a flood sends, without end."""
    if kind != GRPC:
        unit = FLOODS[kind]
        block = unit * (BLOCK_BYTES // len(unit))
        while True:
            yield block
    call = grpc_call()
    yield GREETING
    streams = 2 * (BLOCK_BYTES // len(call(1)))
    for first in range(1, frames.STREAM_ID_MAX - streams, streams):
        yield b"".join([call(stream) for stream in range(first, first + streams, 2)])


def flood(port: int, kind: str) -> None:
    """Send it again and again, and read what comes, for ever."""
    with socket.create_connection(("127.0.0.1", port)) as sock:

        def read() -> None:
            while sock.recv(1 << 20):
                pass
            os._exit(0)

        threading.Thread(target=read, daemon=True).start()
        for block in blocks_of(kind):
            sock.sendall(block)


def asks_of(kind: str) -> Iterator[tuple[bytes, bytes]]:
    """What a prober asks, one after the other, and what is in the end of each answer."""
    if kind != GRPC:
        while True:
            yield (HEALTH if kind == "HTTP/1.1" else PING), b""
    call, ends = grpc_call(), frames.END_HEADERS | frames.END_STREAM
    for stream in range(1, frames.STREAM_ID_MAX, 2):
        tail = bytes((frames.HEADERS, ends)) + stream.to_bytes(4, "big")
        yield call(stream) if stream > 1 else GREETING + call(stream), tail


def p99_s(port: int, kind: str, seconds: float) -> float:
    """The 99th percentile of what a prober waits."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        over = time.perf_counter() + seconds
        for said, tail in asks_of(kind):
            began = time.perf_counter()
            if began >= over:
                break
            sock.sendall(said)
            answer = sock.recv(65_536)
            while answer and tail not in answer:
                answer += sock.recv(65_536)
            took.append(time.perf_counter() - began)
            time.sleep(PROBE_EVERY_S)
    took.sort()
    return took[math.ceil(len(took) * 0.99) - 1]


def beside_flood(folder: Path, port: int, kind: str, clients: int, seconds: float) -> float:
    """What a prober waits beside so many clients that send that."""
    command = [
        sys.executable,
        "-m",
        __name__ if __name__ != "__main__" else "benchmarks.neighbours",
    ]
    with ExitStack() as stack:
        for number in range(clients):
            log = folder / f"flood-{number}.log"
            child = Child("flood", [*command, "--flood", str(port), kind], log)
            stack.callback(child.stop)
        p99_s(port, kind, 0.3)  # until they have begun
        return p99_s(port, kind, seconds)


@contextmanager
def limiter(folder: Path, name: str) -> Iterator[int]:
    """A service on the loop of that name."""
    port = free_port("127.0.0.1")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    start = "import sys; from sluicegate.cli import main; sys.exit(main())"
    if name == "asyncio":
        start = f"import sys; sys.modules['uvloop'] = None; {start}"
    command = [
        sys.executable, "-c", start, "limiter", "--listen", f"127.0.0.1:{port}",
        "--rules", str(rules), "--shed", "off", "--log", "warning",
    ]  # fmt: skip
    child = Child(name, command, folder / f"{name}.log")
    try:
        until(lambda: _answers(port), name, 30.0, [child])
        yield port
    finally:
        child.stop()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round")
    parser.add_argument("--flood", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        flood(int(arguments.flood[0]), arguments.flood[1])
    import sluicegate.kernels.gcra

    print(f"one worker, {build_of(str(sluicegate.kernels.gcra.__file__))}")
    bars = Bars()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        ports = {PEER: stack.enter_context(redis_server(folder, core=None))}
        for loop in ("uvloop", "asyncio"):
            ports[loop] = stack.enter_context(limiter(folder, loop))
        sides = [(PEER, "arrays", 1), (PEER, "lines", 1), (PEER, "arrays", FEW)]
        for loop in ("uvloop", "asyncio"):
            sides += [(loop, kind, 1) for kind in (*FLOODS, GRPC)]
            sides.append((loop, GRPC, FEW))
        waits: dict[tuple[str, str, int], list[float]] = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for server, kind, clients in sides:
                wait_s = beside_flood(folder, ports[server], kind, clients, arguments.seconds)
                waits[server, kind, clients].append(wait_s)
        medians = {side: statistics.median(found) for side, found in waits.items()}
        one_s = max(medians[PEER, "arrays", 1], medians[PEER, "lines", 1])
        peers = {1: one_s, FEW: medians[PEER, "arrays", FEW]}
        for (server, kind, clients), p99 in medians.items():
            line = f"{server:<12} beside {clients} x {kind:<11} p99 {p99 * 1_000:7.1f} ms"
            if server == PEER:
                print(f"  {line}")
            else:
                times = p99 / peers[clients]
                bars.check(times <= TIMES_MAX, f"{line}, {times:.1f} x {PEER}'s")
    bars.exit()


if __name__ == "__main__":
    main()
