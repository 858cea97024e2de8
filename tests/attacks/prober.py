"""Prober: a real service under attack, what that costs it, and how an honest caller fares beside.

    with LimiterProcess(folder) as server, http_health(server.port) as probe:
        control = measure(server, lambda: harmless(server.port), probe)
        report = measure(server, lambda: attack(server.port), probe)
        assert report.cpu_s_per_kb < 5 * control.cpu_s_per_kb

An attack returns the bytes it has sent, once the service has dealt with them: it waits for the last
answer, or for the end of its connection. It makes its bytes before it is measured, since it shares
this process with the prober.

The machine is busy and its speed is anybody's guess. So a bound is CPU time for each KB that was
sent, a count, or a ratio to a control of the same run: never a latency by itself.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.apps.server_process import ServerProcess

TIMEOUT_S: Final = 60.0
PROBE_EVERY_S: Final = 0.005
_CLEAR_PEAK: Final = "5"  # of /proc/PID/clear_refs

Attack = Callable[[], int]
Probe = Callable[[], None]


@dataclass(frozen=True)
class Report:
    """What an attack has cost, and how long the probes beside it took."""

    sent_bytes: int
    cpu_s: float  # of the service, all its processes
    peak_bytes: int  # what it grew by, at most
    latencies_s: tuple[float, ...]  # of the probes, sorted

    @property
    def cpu_s_per_kb(self) -> float:
        """CPU time for each KB that the attack has sent."""
        return self.cpu_s / (self.sent_bytes / 1_024)

    def latency_s(self, share: float) -> float:
        """The latency that this share of the probes stayed within, as 0.99."""
        at = math.ceil(len(self.latencies_s) * share) - 1
        return self.latencies_s[max(at, 0)]


def measure(server: ServerProcess, attack: Attack, probe: Probe | None = None) -> Report:
    """Run the attack, with the probe beside it if there is one."""
    meter = Meter(server.child.pid)
    if probe is None:
        sent = attack()
        latencies: tuple[float, ...] = ()
    else:
        with Prober(probe) as prober:
            sent = attack()
        latencies = tuple(sorted(prober.latencies_s))
    return Report(sent, meter.cpu_s(), meter.peak_bytes(), latencies)


class Meter:
    """What a service and its workers use from now on."""

    def __init__(self, pid: int) -> None:
        self._processes = list(_family(Path(f"/proc/{pid}")))
        for process in self._processes:
            (process / "clear_refs").write_text(_CLEAR_PEAK)
        self._cpu_s = self._total_cpu_s()
        self._bytes = self._total_bytes("VmRSS")

    def cpu_s(self) -> float:
        """CPU time."""
        return self._total_cpu_s() - self._cpu_s

    def peak_bytes(self) -> int:
        """The most memory at any time, beyond that at the beginning."""
        return max(0, self._total_bytes("VmHWM") - self._bytes)

    def _total_cpu_s(self) -> float:
        # Another process's clock, as clock_getcpuclockid(3) names it: /proc has it in hundredths.
        return sum(time.clock_gettime(~int(one.name) << 3 | 2) for one in self._processes)

    def _total_bytes(self, name: str) -> int:
        total = 0
        for process in self._processes:
            for line in (process / "status").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    total += int(line.split()[1]) * 1_024
        return total


def _family(process: Path) -> Iterator[Path]:
    """A process and all that it has started."""
    yield process
    for thread in (process / "task").iterdir():
        for child in (thread / "children").read_text().split():
            yield from _family(Path(f"/proc/{child}"))


class Prober:
    """An honest caller that asks again and again, in a thread of its own, as long as it is open.

    What it fails by, it raises at the end: whoever is honest is served, whatever else goes on.
    """

    def __init__(self, probe: Probe) -> None:
        self.latencies_s: list[float] = []
        self._probe = probe
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Prober:
        self._ask()  # it is connected, and served, before the attack begins
        self.latencies_s.clear()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(TIMEOUT_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.wait(PROBE_EVERY_S):
                self._ask()
            self._ask()
        except BaseException as error:
            self._error = error

    def _ask(self) -> None:
        began = time.perf_counter()
        self._probe()
        self.latencies_s.append(time.perf_counter() - began)


# What honest callers ask, each on one connection that stays open.


@contextmanager
def connected(port: int, *, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    """A connection; `receive_bytes` is what its kernel may hold of what is not read."""
    with socket.socket() as sock:
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(TIMEOUT_S)
        sock.connect(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


@contextmanager
def http_health(port: int) -> Iterator[Probe]:
    """GET /healthz."""
    with connected(port) as sock:
        yield _exchange(sock, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200")


@contextmanager
def resp_ping(port: int) -> Iterator[Probe]:
    """PING."""
    with connected(port) as sock:
        yield _exchange(sock, b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")


def _exchange(sock: socket.socket, request: bytes, answer: bytes) -> Probe:
    """Ask the same again and again; each answer is small enough to come in one piece."""

    def ask() -> None:
        sock.sendall(request)
        found = sock.recv(65_536)
        assert found.startswith(answer), found

    return ask
