"""What one node on one core delivers to 1,000 WebSocket subscribers, and what a connection costs.

    python -m benchmarks.pubsub              all, some minutes
    python -m benchmarks.pubsub --seconds 1  quickly

The peers, in the same run and by turns: a bare broadcast by `websockets` on uvloop
(`benchmarks.pubsub_peer`), and mosquitto (Debian: mosquitto) at QoS 0. Ours syncs each message to
disk before it is delivered; the peers keep nothing. Servers have one core, the client the other.
A publisher sends so many messages at once, and the next when all subscribers have them all.

Beside them the floor (`benchmarks.pubsub_send`): a loop that does nothing but `send`. No server in
Python that calls the kernel for each subscriber is quicker, so where the floor is not twice as
quick as the bare broadcast, nor can anything be.

Others work on the machine too, so what is compared is deliveries for each second of CPU time of the
server, all its threads; the wall clock is printed beside it, and how much of a delivery's CPU time
is the kernel's. The bar is met where messages come together, since a subscriber's are one write
here.

One at a time it is missed where `send` alone has not much more than twice the bare broadcast. On
two shared cores with much other work on them (Python 3.11, interpreted, rounds by turns) a delivery
takes 6.9 to 7.1 us of CPU here, 9.1 to 10.1 in the bare broadcast, 8.6 to 9.5 in mosquitto, and
`send` alone 5.0 to 5.3. Of what is between, 0.6 us are the publish itself (its JSON, its limits,
its sync to disk: 570 us for 1,000 deliveries); the rest is the loop over those who read as one
(`apps/pubsub/reading_group.py`), and a kernel that does other things too. Translated by mypyc
(tried: all of `apps/pubsub` that a publish and its delivery pass) it is the same within 3%. It was
11.2 us in the same run with a place, a turn and a transport for each. `send` is dearer on such a
machine: 3.3 us where its reader is awake already, and 5 where it has to be woken.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import selectors
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.rounds import Bars, build_of
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.kernels import token_bucket
from sluicegate.policies.suppression.suppress_master import AccountLimit
from sluicegate.system import SystemChance
from tests.engines.child import Child, free_port, until

SUBSCRIBERS = 1_000
IDLE = 9_900
ROUNDS = 3
BURSTS = (1, 16)  # messages at once
BYTES = 100
PER_S_MIN = 20_000
BROKER_SHARE_MIN = 0.5
BARE_TIMES_MIN = 2.0
ADMIT_NS_MAX = 1_000
SAMPLES = 20  # subscribers whose latencies are looked at
SERVER_CORE, CLIENT_CORE = 0, 1
UNLIMITED = "--channel-rate 0 --account-rate 0 --received-rate 1000000 --sent-rate 0 --sent-bytes 0"


class Run(NamedTuple):
    """One candidate, one round."""

    per_cpu_s: float
    per_s: float
    p99_ms: float
    kernel_us: float  # of the CPU time of a delivery


class Target(NamedTuple):
    """A server that runs, and how it is spoken to."""

    pid: int
    subscribe: Callable[[], socket.socket]
    publisher: Callable[[], socket.socket]
    publish: Callable[[int], bytes]  # one message, of an identity of eight digits


def connected(port: int, source: str = "") -> socket.socket:
    """A connection."""
    sock = socket.socket()
    if source:
        sock.bind((source, 0))
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def websocket(port: int, path: str, source: str = "") -> socket.socket:
    """A WebSocket, after its handshake."""
    sock = connected(port, source)
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += sock.recv(4_096)
    assert head.startswith(b"HTTP/1.1 101"), head
    return sock


def masked(text: bytes) -> bytes:
    """A client's frame; a mask of zeros changes nothing."""
    size = bytes([len(text) | 0x80]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + text


def padded(number: int) -> str:
    """A message's data: its number, and as much as makes it `BYTES` long."""
    return f"#{number:08d}#".ljust(BYTES, "x")


@contextmanager
def ours(folder: Path, *flags: str) -> Iterator[Target]:
    """`sluicegate pubsub`."""
    port = free_port("127.0.0.1")
    words = [sys.executable, "-m", "sluicegate.cli", "pubsub", "--listen", f"127.0.0.1:{port}"]
    words += ["--history", str(folder / f"history-{port}"), *UNLIMITED.split(), *flags]
    child = Child("sluicegate pubsub", pinned(words), folder / f"ours-{port}.log")

    def subscribe(source: str = "") -> socket.socket:
        sock = websocket(port, "/v1/socket", source)
        sock.sendall(masked(b'{"type":"subscribe","id":1,"channel":"bench"}'))
        told = b""
        while b"subscribed" not in told:
            told += sock.recv(4_096)
        return sock

    def publish(number: int) -> bytes:
        asked = {"type": "publish", "id": number, "channel": "bench", "data": padded(number)}
        return masked(json.dumps(asked).encode())

    try:
        wait_for(child, port)
        yield Target(child.pid, subscribe, lambda: websocket(port, "/v1/socket"), publish)
    finally:
        child.stop()


@contextmanager
def bare(folder: Path, module: str = "benchmarks.pubsub_peer") -> Iterator[Target]:
    """The bare broadcast, or the floor."""
    port = free_port("127.0.0.1")
    words = [sys.executable, "-m", module, str(port)]
    child = Child(module, pinned(words), folder / f"bare-{port}.log")
    try:
        wait_for(child, port)
        yield Target(
            child.pid,
            lambda: websocket(port, "/sub"),
            lambda: websocket(port, "/pub"),
            lambda number: masked(padded(number).encode()),
        )
    finally:
        child.stop()


@contextmanager
def mosquitto(folder: Path) -> Iterator[Target]:
    """mosquitto, spoken to in MQTT 3.1.1 at QoS 0."""
    port = free_port("127.0.0.1")
    settings = folder / f"mosquitto-{port}.conf"
    # What waits for a client is dropped beyond this: with a burst of 16 it never is.
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        "max_queued_messages 0\npersistence false\nuser root\n"
    )
    words = [shutil.which("mosquitto") or "mosquitto", "-c", str(settings)]
    child = Child("mosquitto", pinned(words), folder / f"mosquitto-{port}.log")

    def client() -> socket.socket:
        sock = connected(port)
        name = os.urandom(6).hex().encode()
        body = b"\0\4MQTT\4\2\0\0" + len(name).to_bytes(2, "big") + name
        sock.sendall(bytes([0x10, len(body)]) + body)
        assert sock.recv(4) == b"\x20\2\0\0"
        return sock

    def subscribe() -> socket.socket:
        sock = client()
        body = b"\0\1\0\5bench\0"
        sock.sendall(bytes([0x82, len(body)]) + body)
        assert sock.recv(5) == b"\x90\3\0\1\0"
        return sock

    def publish(number: int) -> bytes:
        body = b"\0\5bench" + padded(number).encode()
        assert len(body) < 128
        return bytes([0x30, len(body)]) + body

    try:
        wait_for(child, port)
        yield Target(child.pid, subscribe, client, publish)
    finally:
        child.stop()


def pinned(words: list[str]) -> list[str]:
    """A command on the servers' core."""
    return ["taskset", "-c", str(SERVER_CORE), *words]


def wait_for(child: Child, port: int) -> None:
    """Until it accepts connections."""

    def accepts() -> bool:
        try:
            connected(port).close()
        except OSError:
            return False
        return True

    until(accepts, child.name, children=[child])


def cpu_s(pid: int) -> float:
    """CPU time of a process, all its threads."""
    return time.clock_gettime(~pid << 3 | 2)


def kernel_s(pid: int) -> float:
    """How much of that was the kernel's, to a hundredth."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[12]) / os.sysconf("SC_CLK_TCK")


def measure(target: Target, burst: int, seconds: float) -> Run:
    """Publish burst after burst, each when the last has reached everybody."""
    subscribers = [target.subscribe() for _ in range(SUBSCRIBERS)]
    selector = selectors.EpollSelector()
    for at, sock in enumerate(subscribers):
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, at)
    publisher = target.publisher()
    delivered = number = 0
    latencies: list[float] = []
    began, cpu_began, kernel_began = time.perf_counter(), cpu_s(target.pid), kernel_s(target.pid)
    while (now := time.perf_counter()) - began < seconds:
        numbers = range(number, number + burst)
        number += burst
        publisher.sendall(b"".join(target.publish(one) for one in numbers))
        delivered += receive(selector, burst, now, latencies)
        publisher.setblocking(False)
        with suppress(BlockingIOError):
            publisher.recv(1 << 16)  # acknowledgements, where there are any
        publisher.setblocking(True)
    took, cpu = time.perf_counter() - began, cpu_s(target.pid) - cpu_began
    kernel_us = (kernel_s(target.pid) - kernel_began) * 1e6 / delivered
    for sock in (*subscribers, publisher):
        sock.close()
    selector.close()
    latencies.sort()
    p99 = latencies[len(latencies) * 99 // 100]
    return Run(delivered / cpu, delivered / took, p99 * 1e3, kernel_us)


def receive(
    selector: selectors.EpollSelector, burst: int, began: float, latencies: list[float]
) -> int:
    """Until everybody has the whole burst; how many deliveries that were."""
    missing = [burst] * SUBSCRIBERS
    waiting = SUBSCRIBERS
    give_up = began + 30
    while waiting:
        for key, _ in selector.select(1):
            data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            before = missing[key.data]
            # Each message has two of these; one cut in the middle is counted with its end.
            missing[key.data] -= data.count(b"#") / 2
            if missing[key.data] <= 0 < before:  # not a ping that comes after it
                waiting -= 1
                if key.data % (SUBSCRIBERS // SAMPLES) == 0:
                    latencies.append(time.perf_counter() - began)
        if time.perf_counter() > give_up:
            raise TimeoutError(f"{waiting} subscribers have not got everything")
    return burst * SUBSCRIBERS


def memory(folder: Path) -> float:
    """KiB a connection that is subscribed and idle."""
    flags = ("--subscribers-max", "20000")
    with ours(folder, *flags) as target:
        before = resident_kib(target.pid)
        # So many of one address as may be.
        sockets = [target.subscribe(f"127.0.0.{2 + at // 2_000}") for at in range(IDLE)]  # type: ignore[call-arg]
        after = resident_kib(target.pid)
        for sock in sockets:
            sock.close()
    return (after - before) / IDLE


def resident_kib(pid: int) -> int:
    """What a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ValueError(pid)


def admit_ns(calls: int = 100_000) -> float:
    """The decision on a publish, by the account's limiter."""
    limit = AccountLimit(1 << 30, 1 << 30)
    limiter = AccountLimiter("node", 1, lambda _: limit, SystemChance(), 1)
    request = Request("shop", caller="shop", cost=11)
    began = time.thread_time_ns()
    for now_us in range(1_000_000, 1_000_000 + calls):
        permit = limiter.admit(request, now_us)
        assert not isinstance(permit, Decision)
        permit.end(Outcome.SUCCESS, now_us)
    return (time.thread_time_ns() - began) / calls


def main() -> None:
    """Measure, print, and check the bars."""
    parser = argparse.ArgumentParser(description="What one pub/sub node delivers.")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    seconds = parser.parse_args().seconds
    candidates: dict[str, Callable[[Path], AbstractContextManager[Target]]] = {
        "sluicegate pubsub": ours,
        "bare broadcast": bare,
        "nothing but send": partial(bare, module="benchmarks.pubsub_send"),
    }
    if shutil.which("mosquitto"):
        candidates["mosquitto"] = mosquitto
    else:
        print("mosquitto is missing: apt-get install -y mosquitto")
    os.sched_setaffinity(0, {CLIENT_CORE})
    print(f"{SUBSCRIBERS:,} subscribers, {BYTES} bytes, {build_of(token_bucket.__file__)} build")
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for burst in BURSTS:
            runs: dict[str, list[Run]] = {one: [] for one in candidates}
            for _ in range(ROUNDS):
                for one, start in candidates.items():
                    with start(folder) as target:
                        runs[one].append(measure(target, burst, seconds))
            middle = {one: medians(found) for one, found in runs.items()}
            print(f"\nbursts of {burst}")
            for one, found in middle.items():
                print(
                    f"  {one:<18} {found.per_cpu_s:10,.0f} deliveries a CPU second"
                    f"  {found.per_s:10,.0f} a second  p99 {found.p99_ms:6.1f} ms"
                    f"  {1e6 / found.per_cpu_s:5.2f} us each, {found.kernel_us:5.2f} the kernel's"
                )
            mine = middle["sluicegate pubsub"]
            rate = mine.per_s
            bars.check(rate >= PER_S_MIN, f"{rate:,.0f} of {PER_S_MIN:,} deliveries a second")
            times = mine.per_cpu_s / middle["bare broadcast"].per_cpu_s
            bars.check(times >= BARE_TIMES_MIN, f"{times:.2f} of {BARE_TIMES_MIN} x bare broadcast")
            floor = middle["nothing but send"].per_cpu_s / middle["bare broadcast"].per_cpu_s
            print(f"          {floor:.2f} x is what nothing but `send` has: no Python has more")
            if "mosquitto" in middle:
                share = mine.per_cpu_s / middle["mosquitto"].per_cpu_s
                bars.check(
                    share >= BROKER_SHARE_MIN, f"{share:.2f} of {BROKER_SHARE_MIN} x mosquitto"
                )
        print(f"\nmemory: {memory(folder):.1f} KiB a subscribed idle connection, of {IDLE:,}")
    build, took_ns = build_of(token_bucket.__file__), admit_ns()
    print(f"\nadmit and end: {took_ns:,.0f} ns, {build}")
    if build == "compiled":
        bars.check(took_ns <= ADMIT_NS_MAX, f"{took_ns:,.0f} of at most {ADMIT_NS_MAX:,} ns")
    bars.exit()


def medians(runs: list[Run]) -> Run:
    """The middle of each."""
    return Run(*(statistics.median(column) for column in zip(*runs, strict=True)))


if __name__ == "__main__":
    main()
