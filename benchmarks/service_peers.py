"""The rate-limit service beside throttlecrab (Rust) and gubernator (Go), each built from source.

Not a bar but a place on the map: three servers that answer the same kind of question, each held to
core 0 with the client on core 1, by turns, medians. `make bench-peers` runs it, `make bench` does
not: Cargo and Go build for minutes, once, into the cache that the engines of the tests use, and
from where they take sources is the machine's setting. A peer whose toolchain is missing is left
out, and the line says how to get it.

    python -m benchmarks.service_peers              all, some minutes after the builds
    python -m benchmarks.service_peers --seconds 1  quickly
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import grpc

from benchmarks.doors import (
    CLIENTS,
    METHOD,
    STREAMS,
    Limiter,
    ask,
    field,
    framed,
    medians,
    pinned,
    redis_benchmark,
)
from benchmarks.rounds import build_of
from tests.engines.child import Child, EngineFailedError, free_port, until
from tests.engines.h2spec import GO_APT
from tests.engines.maven import home
from tests.engines.need import Missing

PROTOC_APT = "apt-get install -y protobuf-compiler"
CARGO_APT = "apt-get install -y cargo, or a newer one by rustup"
BUILD_S_MAX = 3_600
BUILD_SAY_S = 20.0
READY_S_MAX = 30.0
KEYS = 100_000
LIMIT, WINDOW_MS = 1_000_000_000, 1_000
BURST, COUNT, PERIOD_S = 100, 1_000_000, 1
RESP_CALLS_PER_S = {1: 100_000, 16: 400_000}
OUR_GRPC_CALLS_PER_S = 100_000
THEIR_GRPC_CALLS_PER_S = 20_000
# redis-benchmark opens with two questions about the configuration, which throttlecrab counts too.
OPENING_CALLS = 2
GET_RATE_LIMITS = "/pb.gubernator.V1/GetRateLimits"

# gubernator's own command finds its peers by gossip, on a fixed port of every interface. This
# starts the same daemon, alone and on loopback.
GUBERNATOR_MAIN = """\
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/mailgun/gubernator/v2"
)

func main() {
	alone := gubernator.PeerInfo{GRPCAddress: os.Args[1], HTTPAddress: os.Args[2]}
	daemon, err := gubernator.SpawnDaemon(context.Background(), gubernator.DaemonConfig{
		GRPCListenAddress: alone.GRPCAddress,
		HTTPListenAddress: alone.HTTPAddress,
	})
	if err != nil {
		log.Fatal(err)
	}
	daemon.PeerInfo = alone
	daemon.SetPeers([]gubernator.PeerInfo{alone})
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	daemon.Close()
}
"""
GUBERNATOR_MOD = """\
module sluicegate.invalid/gubernator

go 1.20

require github.com/mailgun/gubernator/v2 {version}
"""

NOT_COMPARABLE = """
What is compared, and what is not
  "CPU a call" is the server's processor time, all threads, and "busy" its share of one core: well
  below 100% means that it waited, for a client at its own end, for the network or for whatever
  else this machine runs. Where "busy" is low, the CPU compares, and the calls do not.
  One core each. The peers are threaded (tokio, goroutines) and would take more cores in one
  process; sluicegate takes them by --workers, one process each. Nothing here tells how either
  grows. throttlecrab: GCRA on both sides, the limit in every command, {keys:,} keys. Its command
  allows max_burst at once, ours max_burst + 1, so each is given its own number for the same burst.
  It sends the answers of a pipeline one by one and leaves Nagle's algorithm on, so that a pipelined
  client waits for delayed acknowledgements; its CPU a call is the fairer figure there. gubernator:
  it is told the limit in every call and counts a window that starts at the first hit. sluicegate
  finds the limit in its rulebook, slides the window and fills Envoy's answer. One key, the same
  headers in every call. Gubernator runs alone here, inside a main function of ours; what it is made
  for (peers, batches, global counts) is not asked for. sluicegate notes its decisions for
  `sluicegate why` too, its peers do not. Its shedding is off.
"""


@dataclass(frozen=True)
class Built(ABC):
    """A program that a toolchain builds from its published source, in one version."""

    name: str
    version: str
    tool: str
    get_tool: str

    @property
    def path(self) -> Path:
        """The program in the cache."""
        return home() / f"{self.name}-{self.version}" / self.name

    @abstractmethod
    def command(self, tool: str, folder: Path) -> tuple[list[str], Path] | Missing:
        """What builds it within a folder, and where the program then is."""

    def bring(self) -> str | Missing:
        """Look, and build it when it is not there and its toolchain is."""
        if not self.path.exists():
            tool = shutil.which(self.tool)
            if tool is None:
                return Missing(f"no {self.tool} to build {self.name} with", self.get_tool)
            home().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home(), prefix="building-") as name:
                folder = Path(name)
                steps = self.command(tool, folder)
                if isinstance(steps, Missing):
                    return steps
                self._build(*steps, folder)
        return f"{self.name} {self.version} in {self.path.parent}"

    def _build(self, command: list[str], built: Path, folder: Path) -> None:
        say(f"{self.name} {self.version}: {self.tool} builds it, once; this takes minutes")
        began = time.monotonic()
        child = Child(f"{self.tool} for {self.name}", command, folder / "build.log")
        try:
            while child.wait(BUILD_SAY_S) is None:
                took_s = time.monotonic() - began
                if took_s > BUILD_S_MAX:
                    raise EngineFailedError(f"not built in {BUILD_S_MAX} s\n{child.tail()}")
                say(f"  {took_s:5.0f} s: {child.tail(1).splitlines()[-1].strip()}")
        finally:
            child.stop()
        if child.exit_code != 0 or not built.exists():
            raise EngineFailedError(f"{self.tool} could not build {self.name}\n{child.tail()}")
        self.path.parent.mkdir(exist_ok=True)
        built.rename(self.path)  # whole or not at all, whoever builds at the same time
        say(f"  built in {time.monotonic() - began:.0f} s: {self.path}")


class Crate(Built):
    """A program on its own, by `cargo install`, with the versions that its authors locked."""

    def command(self, tool: str, folder: Path) -> tuple[list[str], Path] | Missing:
        """Cargo's, told of a protoc: without one this crate half builds and then fails."""
        protoc = shutil.which("protoc") or protoc_of_python(folder)
        if protoc is None:
            return Missing(f"no protoc to build {self.name} with", PROTOC_APT)
        install = [tool, "install", self.name, "--version", self.version, "--locked"]
        return (
            ["env", f"PROTOC={protoc}", *install, "--root", str(folder)],
            folder / "bin" / self.name,
        )


class GoMain(Built):
    """A main function of ours around somebody's module; Go's checksums are checked as ever."""

    def command(self, tool: str, folder: Path) -> tuple[list[str], Path] | Missing:
        """Go's, in a module of ours that requires theirs."""
        (folder / "main.go").write_text(GUBERNATOR_MAIN)
        (folder / "go.mod").write_text(GUBERNATOR_MOD.format(version=self.version))
        built = folder / self.name
        return [tool, "build", "-C", str(folder), "-mod=mod", "-o", str(built), "."], built


THROTTLECRAB = Crate("throttlecrab-server", "0.4.40", "cargo", CARGO_APT)
# By the path of its first home: the newest release that the public checksum database vouches for.
GUBERNATOR = GoMain("gubernator", "v2.4.0", "go", GO_APT)


class Server(Protocol):
    """One that runs, and says how many asks it has allowed."""

    port: int
    child: Child

    def allowed(self) -> int:
        """So many since it was started."""


class Peer:
    """One built program on the first core, with an HTTP port that tells its counts."""

    def __init__(
        self, built: Built, arguments: list[str], *, health: str, http_port: int, folder: Path
    ) -> None:
        self._http = f"http://127.0.0.1:{http_port}"
        command = [*pinned(0), str(built.path), *arguments]
        self.child = Child(built.name, command, folder / f"{built.name}.log")
        try:
            until(lambda: self.get(health), built.name, READY_S_MAX, [self.child])
        except EngineFailedError:
            self.child.stop()
            raise

    def get(self, path: str) -> str:
        """What its HTTP port answers."""
        with urllib.request.urlopen(f"{self._http}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def total(self, metric: str) -> int:
        """The sum of a counter over its labels."""
        found = re.findall(rf"^{metric}(?:\{{.*\}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return sum(int(float(value)) for value in found)


class Throttlecrab(Peer):
    """Its RESP door; HTTP only for the counts."""

    def __init__(self, folder: Path) -> None:
        self.port, http_port = free_port("127.0.0.1"), free_port("127.0.0.1")
        arguments = [
            "--redis", "--redis-host", "127.0.0.1", "--redis-port", str(self.port),
            "--http", "--http-host", "127.0.0.1", "--http-port", str(http_port),
            "--log-level", "error",
        ]  # fmt: skip
        super().__init__(
            THROTTLECRAB, arguments, health="/health", http_port=http_port, folder=folder
        )

    def allowed(self) -> int:
        """All that it did not refuse."""
        return self.total("throttlecrab_requests_allowed")


class Gubernator(Peer):
    """Its gRPC door; HTTP only for the counts."""

    def __init__(self, folder: Path) -> None:
        self.port, http_port = free_port("127.0.0.1"), free_port("127.0.0.1")
        arguments = [f"127.0.0.1:{self.port}", f"127.0.0.1:{http_port}"]
        super().__init__(
            GUBERNATOR, arguments, health="/v1/HealthCheck", http_port=http_port, folder=folder
        )

    def allowed(self) -> int:
        """All that it decided, less those over the limit."""
        asked = self.total("gubernator_getratelimit_counter")
        return asked - self.total("gubernator_over_limit_counter")


P = TypeVar("P", bound=Peer)


def say(line: str) -> None:
    """At once, also into a pipe."""
    print(line, flush=True)


def protoc_of_python(folder: Path) -> str | None:
    """The protoc inside grpcio-tools, as a command of its own, where that package is."""
    if importlib.util.find_spec("grpc_tools") is None:
        return None
    command = folder / "protoc"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grpc_tools.protoc "$@"\n')
    command.chmod(0o755)
    return str(command)


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def number(tag: int, value: int) -> bytes:
    """A numeric field of a message."""
    return bytes([tag << 3]) + varint(value)


def get_rate_limits() -> bytes:
    """gubernator's request with one item: who, one hit, the limit and its milliseconds."""
    who = field(1, b"bench") + field(2, b"ann")
    return field(1, who + number(3, 1) + number(4, LIMIT) + number(5, WINDOW_MS))


def cpu_s(child: Child) -> float:
    """The processor time of a server so far, all its threads together, where /proc tells it."""
    told = Path(f"/proc/{child.pid}/stat")
    if not told.exists():
        return math.nan
    after_name = told.read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


class Side:
    """A server with its load, and what each round of it has cost the server."""

    def __init__(self, server: Server, calls: int, run: Callable[[], float]) -> None:
        self.server = server
        self.calls = calls
        self.run = run
        self.costs_us: list[float] = []

    def __call__(self) -> float:
        """One round: the calls a second, each of which must have been counted as allowed."""
        allowed, spent_s = self.server.allowed(), cpu_s(self.server.child)
        rate = self.run()
        spent_s = cpu_s(self.server.child) - spent_s
        counted = self.server.allowed() - allowed
        if not self.calls <= counted <= self.calls + OPENING_CALLS:
            name = type(self.server).__name__
            sys.exit(f"{name} was asked {self.calls} times, but allowed {counted}")
        self.costs_us.append(spent_s * 1_000_000 / self.calls)
        return rate

    @property
    def cost_us(self) -> float:
        """Of the server's processor time for a call, the middle round."""
        return statistics.median(self.costs_us)


def h2load(port: int, method: str, body: Path, calls: int) -> float:
    """gRPC calls a second, from the other core."""
    command = [
        *pinned(1), "h2load", "-t", "1", "-c", str(CLIENTS), "-m", str(STREAMS), "-n", str(calls),
        "-d", str(body), "-H", "content-type: application/grpc", "-H", "te: trailers",
        f"http://127.0.0.1:{port}{method}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    succeeded = re.search(r"(\d+) succeeded", done.stdout)
    rate = re.search(r"([\d.]+) req/s", done.stdout)
    if rate is None or succeeded is None or int(succeeded[1]) != calls:
        sys.exit(f"not all of {calls} calls succeeded:\n{done.stdout}")
    return float(rate[1])


def throttled(port: int, command: list[str], allowed: str, limit: int) -> None:
    """One answer, looked at: the flag for allowed, and the same limit on both sides."""
    line = ["redis-cli", "-p", str(port), *command]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=10)
    if done.stdout.split()[:2] != [allowed, str(limit)]:
        sys.exit(f"{' '.join(command)} was answered by: {done.stdout}")


def granted(port: int, method: str, message: bytes) -> None:
    """One answer, looked at by another client: it must name the limit that was meant."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Callable[..., bytes] = channel.unary_unary(method)
        answer = call(message, timeout=5)
    if varint(LIMIT) not in answer:
        sys.exit(f"{method} was answered by: {answer!r}")


@contextmanager
def both(folder: Path, start: Callable[[Path], P]) -> Iterator[tuple[Limiter, P]]:
    """Ours and a peer, both on the first core; who is not asked sleeps."""
    limiter = Limiter(folder, "sluicegate")
    try:
        peer = start(folder)
        try:
            yield limiter, peer
        finally:
            peer.child.stop()
    finally:
        limiter.child.stop()


def beside(title: str, ours: Side, peer: str, theirs: Side) -> None:
    """Rates, what a call costs each server, and ours as a share of theirs."""
    sides = {"sluicegate": ours, peer: theirs}
    rates = medians(dict(sides))
    print(f"\n{title}")
    print(f"  {'':<14} {'calls/s':>9}  {'CPU a call':>10}  {'busy':>5}")
    for name, rate in rates.items():
        cost_us = sides[name].cost_us
        print(f"  {name:<14} {rate:9,.0f}  {cost_us:7.1f} us  {rate * cost_us / 1_000_000:5.0%}")
    calls, cost = rates["sluicegate"] / rates[peer], ours.cost_us / theirs.cost_us
    say(f"  sluicegate: {calls:.2f} x the calls of {peer}, {cost:.2f} x its CPU for each")


def resp_side(server: Server, command: list[str], calls: int, pipeline: int) -> Side:
    """Its load from redis-benchmark."""
    calls -= calls % pipeline  # no part of a pipeline is sent
    line = ["-r", str(KEYS), *command]  # its options end at the first word without a dash
    return Side(server, calls, partial(redis_benchmark, server.port, line, calls, pipeline))


def grpc_side(server: Server, method: str, message: bytes, calls: int, folder: Path) -> Side:
    """Its load from h2load."""
    body = folder / f"{server.port}.bin"
    body.write_bytes(framed(message))
    return Side(server, calls, partial(h2load, server.port, method, body, calls))


def beside_throttlecrab(folder: Path, seconds: float) -> None:
    """CL.THROTTLE against THROTTLE."""
    rate = [str(COUNT), str(PERIOD_S)]
    ours = ["CL.THROTTLE", "key:__rand_int__", str(BURST), *rate]
    theirs = ["THROTTLE", "key:__rand_int__", str(BURST + 1), *rate]
    with both(folder, Throttlecrab) as (limiter, crab):
        throttled(limiter.port, ours, allowed="0", limit=BURST + 1)
        throttled(crab.port, theirs, allowed="1", limit=BURST + 1)
        for pipeline, per_s in RESP_CALLS_PER_S.items():
            beside(
                f"RESP, CL.THROTTLE and THROTTLE, 50 clients, pipelined by {pipeline}",
                resp_side(limiter, ours, int(per_s * seconds), pipeline),
                "throttlecrab",
                resp_side(crab, theirs, int(per_s * seconds), pipeline),
            )


def beside_gubernator(folder: Path, seconds: float) -> None:
    """ShouldRateLimit against GetRateLimits."""
    ours, theirs = ask("ann"), get_rate_limits()
    with both(folder, Gubernator) as (limiter, peer):
        granted(limiter.port, METHOD, ours)
        granted(peer.port, GET_RATE_LIMITS, theirs)
        beside(
            f"gRPC, ShouldRateLimit and GetRateLimits, one item, {CLIENTS} times {STREAMS} streams",
            grpc_side(limiter, METHOD, ours, int(OUR_GRPC_CALLS_PER_S * seconds), folder),
            "gubernator",
            grpc_side(peer, GET_RATE_LIMITS, theirs, int(THEIR_GRPC_CALLS_PER_S * seconds), folder),
        )


PEERS: tuple[tuple[Built, Callable[[Path, float], None]], ...] = (
    (THROTTLECRAB, beside_throttlecrab),
    (GUBERNATOR, beside_gubernator),
)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="about so long for each round")
    arguments = parser.parse_args()
    missing = [
        f"{tool} (Debian: apt-get install {package})"
        for tool, package in (
            ("h2load", "nghttp2-client"),
            ("redis-benchmark", "redis-tools"),
            ("redis-cli", "redis-tools"),
        )
        if shutil.which(tool) is None
    ]
    if missing:
        sys.exit(f"this benchmark needs {', '.join(missing)}")
    import sluicegate.kernels.gcra

    compare: list[Callable[[Path, float], None]] = []
    try:
        for built, compared in PEERS:
            found = built.bring()
            if isinstance(found, Missing):
                say(f"left out: {found}")
            else:
                say(found)
                compare.append(compared)
        if not compare:
            return
        build = build_of(str(sluicegate.kernels.gcra.__file__))
        held = "each server held to core 0" if pinned(0) else "no taskset here: nothing is pinned"
        say(f"\nsluicegate in Python ({build}), throttlecrab in Rust, gubernator in Go; {held}")
        with tempfile.TemporaryDirectory() as name:
            for run in compare:
                run(Path(name), arguments.seconds)
    except EngineFailedError as error:
        sys.exit(str(error))
    print(NOT_COMPARABLE.format(keys=KEYS))


if __name__ == "__main__":
    main()
