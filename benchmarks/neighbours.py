"""How long an honest caller waits beside one client that pipelines without end, and reads.

The peer is a real redis-server beside the same client. Each is asked in turns, by itself: a prober
sends PING and waits for the answer, again and again, while another process sends as fast as it is
read. The door is tried on uvloop and on asyncio's own loop, by RESP arrays, lines and CL.THROTTLE,
and by HTTP/1.1, whose prober asks for /healthz.

    python -m benchmarks.neighbours              all, about a minute
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.doors import RULES, redis_server
from benchmarks.rounds import Bars, build_of
from tests.engines.child import Child, free_port, until

ROUNDS = 3
TIMES_MAX = 2.0  # of redis-server's p99
BLOCK_BYTES = 1 << 18
PROBE_EVERY_S = 0.002
PING = b"*1\r\n$4\r\nPING\r\n"
THROTTLE = (
    b"*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$3\r\n100\r\n$7\r\n1000000\r\n$1\r\n1\r\n$1\r\n1\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
FLOODS = {"arrays": PING, "lines": b"PING\r\n", "CL.THROTTLE": THROTTLE, "HTTP/1.1": HEALTH}
PEER = "redis-server"


def flood(port: int, unit: bytes) -> None:
    """Send it again and again, and read what comes, for ever."""
    block = unit * (BLOCK_BYTES // len(unit))
    with socket.create_connection(("127.0.0.1", port)) as sock:

        def read() -> None:
            while sock.recv(1 << 20):
                pass
            os._exit(0)

        threading.Thread(target=read, daemon=True).start()
        while True:
            sock.sendall(block)


def p99_s(port: int, ask: bytes, seconds: float) -> float:
    """The 99th percentile of what a prober waits."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        over = time.perf_counter() + seconds
        while time.perf_counter() < over:
            began = time.perf_counter()
            sock.sendall(ask)
            sock.recv(65_536)
            took.append(time.perf_counter() - began)
            time.sleep(PROBE_EVERY_S)
    took.sort()
    return took[math.ceil(len(took) * 0.99) - 1]


def beside_flood(folder: Path, port: int, unit: bytes, seconds: float) -> float:
    """What a prober waits beside the client that sends `unit`."""
    command = [
        sys.executable,
        "-m",
        __name__ if __name__ != "__main__" else "benchmarks.neighbours",
    ]
    child = Child("flood", [*command, "--flood", str(port), unit.decode()], folder / "flood.log")
    try:
        p99_s(port, HEALTH if unit == HEALTH else PING, 0.3)  # until it has begun
        return p99_s(port, HEALTH if unit == HEALTH else PING, seconds)
    finally:
        child.stop()


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
        flood(int(arguments.flood[0]), arguments.flood[1].encode())
    import sluicegate.kernels.gcra

    print(f"one worker, {build_of(str(sluicegate.kernels.gcra.__file__))}")
    bars = Bars()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        ports = {PEER: stack.enter_context(redis_server(folder, core=None))}
        for loop in ("uvloop", "asyncio"):
            ports[loop] = stack.enter_context(limiter(folder, loop))
        sides = {(PEER, "arrays"): PING, (PEER, "lines"): FLOODS["lines"]}
        for loop in ("uvloop", "asyncio"):
            sides |= {(loop, kind): unit for kind, unit in FLOODS.items()}
        waits: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side, unit in sides.items():
                waits[side].append(beside_flood(folder, ports[side[0]], unit, arguments.seconds))
        peer_s = max(statistics.median(waits[PEER, kind]) for kind in ("arrays", "lines"))
        for (server, kind), found in waits.items():
            p99 = statistics.median(found)
            line = f"{server:<12} beside {kind:<11} p99 {p99 * 1_000:7.1f} ms"
            if server == PEER:
                print(f"  {line}")
            else:
                bars.check(p99 <= TIMES_MAX * peer_s, f"{line}, {p99 / peer_s:.1f} x {PEER}'s")
    bars.exit()


if __name__ == "__main__":
    main()
