"""What traces cost a service: the CPU time of one request, with them and without.

The same server four times, asked in turn over RESP, 200 commands a write: without `--traces`; with
them, and requests that nobody traces; with one in a hundred traced, the default, as many a second
as there are; with each traced. The spans go to an address where nobody listens, and are dropped
there. It is CPU time of the server's process, so a busy machine disturbs it little. The peer is the
same program without traces; `--before SRC` adds the sources of another commit as a peer.

    python -m benchmarks.traces
    python -m benchmarks.traces --before ../other/src
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
from pathlib import Path

import sluicegate.kernels.gcra as kernel
from benchmarks.doors import RULES
from benchmarks.rounds import Bars, build_of
from tests.engines.child import Child, free_port, until

ROUNDS = 9
BATCH = 200
BATCHES = 40
OFF_TIMES_MAX = 1.05  # two processes of the same program differ by up to 4%
UNSAMPLED_TIMES_MAX = 1.25
COLLECTOR = "http://127.0.0.1:9"
ALL = ("--traces-per-s", "1000000")
SERVERS = {
    "limiter": (b"SG.CHECK", b"ann", b"/free"),
    "kv": (b"SET", b"homes:ann", b"value"),
}


class Server:
    """One service; `us` is what a command takes it."""

    def __init__(self, folder: Path, name: str, app: str, source: str, *flags: str) -> None:
        self.port = free_port("127.0.0.1")
        (folder / "rules.yaml").write_text(RULES)
        more = {
            "limiter": ["--rules", str(folder / "rules.yaml"), "--shed", "off"],
            "kv": ["--engine", "memory:", "--quota-ru", "1000000000"],
        }[app]
        path = ["env", f"PYTHONPATH={source}"] if source else []
        command = [
            *path, sys.executable, "-m", "sluicegate.cli", app,
            "--listen", f"127.0.0.1:{self.port}", "--log", "warning", *more, *flags,
        ]  # fmt: skip
        log = folder / f"{app}-{name}.log"
        self.child = Child(name, command, log)
        until(lambda: "is ready" in log.read_text(), name, 30.0, [self.child])
        words = SERVERS[app]
        one = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
        self.client = socket.create_connection(("127.0.0.1", self.port))
        self.client.settimeout(60)
        self.batch = one * BATCH
        self.client.sendall(one)
        self.reply = len(self.client.recv(1 << 16))

    def cpu_s(self) -> float:
        """CPU time that its process has had."""
        threads = Path(f"/proc/{self.child.pid}/task").iterdir()
        return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e9

    def us(self) -> float:
        """CPU time of one command, in microseconds."""
        before = self.cpu_s()
        for _ in range(BATCHES):
            self.client.sendall(self.batch)
            left = self.reply * BATCH
            while left > 0:
                left -= len(self.client.recv(1 << 18))
        return (self.cpu_s() - before) / (BATCH * BATCHES) * 1e6


def measure(app: str, before: str, bars: Bars) -> None:
    """One service in all its forms."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = {
            "off": Server(folder, "off", app, ""),
            "nobody asks": Server(folder, "nobody", app, "", *to(0)),
            "one in a hundred": Server(folder, "hundredth", app, "", *to(0.01), *ALL),
            "each": Server(folder, "each", app, "", *to(1), *ALL),
        }
        if before:
            servers["before"] = Server(folder, "before", app, before)
        seen: dict[str, list[float]] = {one: [] for one in servers}
        try:
            for turn in range(ROUNDS + 1):
                for one, server in servers.items():
                    took = server.us()
                    if turn:
                        seen[one].append(took)
        finally:
            for server in servers.values():
                server.client.close()
                server.child.stop()
    print(f"\n{app}: CPU time of the server for one {SERVERS[app][0].decode()}")
    for one, each in seen.items():
        middle = statistics.median(each)
        print(f"  {one:<18} {middle:7.1f} us  {middle / statistics.median(seen['off']):5.2f} x off")
    off = statistics.median(seen["off"])
    unsampled = statistics.median(seen["nobody asks"]) / off
    bars.check(
        unsampled <= UNSAMPLED_TIMES_MAX,
        f"what nobody traces takes at most {UNSAMPLED_TIMES_MAX} times as long ({unsampled:.3f})",
    )
    if before:
        times = off / statistics.median(seen["before"])
        bars.check(
            times <= OFF_TIMES_MAX,
            f"without traces at most {OFF_TIMES_MAX} times the other commit's time ({times:.3f})",
        )


def to(share: float) -> list[str]:
    """The flags that trace a share."""
    return ["--traces", COLLECTOR, "--traces-share", str(share)]


def main() -> None:
    """Measure both services."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", default="", metavar="SRC", help="another commit's `src`")
    arguments = parser.parse_args()
    bars = Bars()
    print(f"{build_of(str(kernel.__file__))} build")
    for app in SERVERS:
        measure(app, arguments.before, bars)
    bars.exit()


if __name__ == "__main__":
    main()
