"""What one worker on one core answers, by its three doors, with the client on the other core.

gRPC is asked by `h2load` (Debian: nghttp2-client), RESP by `redis-benchmark` (redis-tools), both of
which are quicker than anything they are pointed at here. The peer of the gRPC door is the same
service behind grpcio's asyncio server (`benchmarks.grpcio_server`); that of the RESP door is a real
redis-server answering GET, which decides nothing. Everyone takes turns; ratios are of medians.

    python -m benchmarks.doors              all, some minutes
    python -m benchmarks.doors --seconds 1  quickly
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc

from benchmarks.rounds import Bars, build_of
from tests.engines.child import Child, free_port, until

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULES = """\
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1000000000}
"""
ROUNDS = 3
VERIFIED = 1_000
GRPC_TIMES_MIN = 10.0
GRPC_AIM_PER_S = 40_000
REDIS_SHARE_MIN = 0.40
P99_MS_MAX = 2.0
RATES = (2_500, 20_000)
REDIS_RATE = 2_500
RESP_SHARE_MIN = 0.40
RESP_PIPELINED_SHARE_MIN = 0.25
CLIENTS, STREAMS = 8, 64
# At a steady rate h2load asks in bursts, each hundredth of a second; a mesh has few connections.
STEADY_CLIENTS = 4
GET = ["GET", "key"]


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of a message shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def ask(user: str) -> bytes:
    """A RateLimitRequest with one descriptor."""
    entry = field(1, b"user") + field(2, user.encode())
    return field(1, b"bench") + field(2, field(1, entry))


def framed(message: bytes) -> bytes:
    """As gRPC sends it."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Limiter:
    """One rate-limit service on the first core; `grpcio`: its gRPC is that of grpcio."""

    def __init__(self, folder: Path, name: str, *flags: str, grpcio: bool = False) -> None:
        self.port = self.grpc_port = free_port("127.0.0.1")
        module = ["sluicegate.cli", "limiter"]
        if grpcio:
            self.grpc_port = free_port("127.0.0.1")
            module = ["benchmarks.grpcio_server", f"127.0.0.1:{self.grpc_port}"]
        rules = folder / "rules.yaml"
        rules.write_text(RULES)
        command = [
            *pinned(0), sys.executable, "-m", *module,
            "--listen", f"127.0.0.1:{self.port}", "--rules", str(rules), "--shed", "off",
            "--log", "warning", *flags,
        ]  # fmt: skip
        self.child = Child(name, command, folder / f"{name}.log")
        until(self.ready, name, 30.0, [self.child])

    def ready(self) -> bool:
        """Whether it takes traffic."""
        return self.get("/readyz") is not None

    def get(self, path: str) -> str:
        """What its HTTP door answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def allowed(self) -> int:
        """How many asks it has allowed."""
        found = re.findall(
            r'^sluicegate_limiter_decisions_total\{[^}]*outcome="allowed"\} (\d+)$',
            self.get("/metrics"),
            re.MULTILINE,
        )
        return sum(map(int, found))


def pinned(core: int | None) -> list[str]:
    """The beginning of a command that stays on one core, where that can be said."""
    return ["taskset", "-c", str(core)] if core is not None and shutil.which("taskset") else []


def h2load(port: int, body: Path, *flags: str, clients: int = CLIENTS) -> str:
    """Run it on the other core, and return what it says."""
    url = f"http://127.0.0.1:{port}{METHOD}"
    command = [
        *pinned(1), "h2load", "-t", "1", "-c", str(clients), "-d", str(body),
        "-H", "content-type: application/grpc", "-H", "te: trailers", *flags, url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return done.stdout


def rate_of(limiter: Limiter, body: Path, calls: int) -> float:
    """Calls a second at full speed; every one must have been counted as allowed."""
    before = limiter.allowed()
    said = h2load(limiter.grpc_port, body, "-m", str(STREAMS), "-n", str(calls))
    counted = limiter.allowed() - before
    succeeded = re.search(r"(\d+) succeeded", said)
    if succeeded is None or int(succeeded[1]) != calls or counted != calls:
        sys.exit(f"asked {calls} times, but the server allowed {counted}:\n{said}")
    found = re.search(r"([\d.]+) req/s", said)
    assert found is not None
    return float(found[1])


def p99_ms(limiter: Limiter, body: Path, rate: int, seconds: float, folder: Path) -> float:
    """The 99th percentile of all calls at a steady rate."""
    log = folder / "calls.tsv"
    log.unlink(missing_ok=True)
    each = rate // STEADY_CLIENTS
    h2load(
        limiter.grpc_port, body, "-m", str(STREAMS), "--rps", str(each),
        "-n", str(int(each * STEADY_CLIENTS * seconds)), "--log-file", str(log),
        clients=STEADY_CLIENTS,
    )  # fmt: skip
    took_us = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
    return took_us[int(len(took_us) * 0.99)] / 1_000


def verify(limiter: Limiter) -> int:
    """Ask by a grpcio client; how many answers were OK with the user's own remaining count."""
    channel = grpc.insecure_channel(f"127.0.0.1:{limiter.grpc_port}")
    call: Callable[..., bytes] = channel.unary_unary(METHOD)
    good = 0
    for number in range(VERIFIED):
        answer = call(ask(f"verified {number}"), timeout=5)
        # overall_code = OK is field 1 with value 1; the status says the limit and what remains.
        good += answer.startswith(b"\x08\x01\x12") and b"\x80\x94\xeb\xdc\x03" in answer
    channel.close()
    return good


def redis_benchmark(port: int, command: list[str], calls: int, pipeline: int) -> float:
    """Commands a second."""
    line = [
        *pinned(1), "redis-benchmark", "-p", str(port), "-c", "50", "-n", str(calls),
        "-P", str(pipeline), "--csv", *command,
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=600)
    return float(done.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))


@contextmanager
def redis_server(folder: Path, core: int | None) -> Iterator[int]:
    """A real one, that writes nothing to disk; without a core, wherever there is room."""
    port = free_port("127.0.0.1")
    command = [*pinned(core), "redis-server", "--port", str(port), "--save", "", "--bind",
               "127.0.0.1", "--dir", str(folder)]  # fmt: skip
    child = Child("redis-server", command, folder / f"redis-{port}.log")
    try:
        until(
            lambda: subprocess.run(
                ["redis-cli", "-p", str(port), "ping"], capture_output=True, check=False
            ).stdout.startswith(b"PONG"),
            "redis-server", 10.0, [child],
        )  # fmt: skip
        yield port
    finally:
        child.stop()


def medians(candidates: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Every candidate once a round, in turns."""
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(ROUNDS):
        names = list(candidates)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seen[name].append(candidates[name]())
    return {name: statistics.median(rates) for name, rates in seen.items()}


def grpc_doors(folder: Path, seconds: float, bars: Bars) -> None:
    """Native against grpcio, memory and Redis."""
    body = folder / "ask.bin"
    body.write_bytes(framed(ask("ann")))
    with redis_server(folder, core=None) as redis_port:
        native = Limiter(folder, "native")
        grpcio = Limiter(folder, "grpcio", grpcio=True)
        # Redis decides beside us, on the same two cores; with time enough to decide all of it.
        store = f"redis://127.0.0.1:{redis_port}?timeout_ms=1000"
        far = Limiter(folder, "far", "--store", store)
        usual: Limiter | None = None
        try:
            rates = medians(
                {
                    "native": lambda: rate_of(native, body, int(40_000 * seconds)),
                    "grpcio": lambda: rate_of(grpcio, body, int(3_000 * seconds)),
                    "native, Redis": lambda: rate_of(far, body, int(15_000 * seconds)),
                }
            )
            print("\ngRPC ShouldRateLimit, one descriptor, calls a second")
            for name, rate in rates.items():
                print(f"  {name:<14} {rate:9,.0f}")
            times = rates["native"] / rates["grpcio"]
            bars.check(times >= GRPC_TIMES_MIN, f"{times:.1f} x grpcio (bar {GRPC_TIMES_MIN:g} x)")
            bars.check(
                rates["native"] >= GRPC_AIM_PER_S,
                f"{rates['native']:,.0f} calls/s (aim {GRPC_AIM_PER_S:,})",
            )
            share = rates["native, Redis"] / rates["native"]
            bars.check(
                share >= REDIS_SHARE_MIN,
                f"with Redis {share:.2f} of memory (bar {REDIS_SHARE_MIN:g})",
            )
            good = verify(native)
            bars.check(good == VERIFIED, f"{good:,} of {VERIFIED:,} answers verified by grpcio")
            seconds = max(seconds, 2.0)
            for rate in RATES:
                p99 = statistics.median(
                    [p99_ms(native, body, rate, seconds, folder) for _ in range(ROUNDS)]
                )
                bars.check(
                    p99 < P99_MS_MAX, f"p99 {p99:.2f} ms at {rate:,}/s (bar {P99_MS_MAX:g} ms)"
                )
            # With every default, the store's timeout too; beside memory, in turns.
            usual = Limiter(folder, "usual", "--store", f"redis://127.0.0.1:{redis_port}")
            sides = {"Redis": usual, "memory": native}
            p99s = medians(
                {
                    name: partial(p99_ms, side, body, REDIS_RATE, seconds, folder)
                    for name, side in sides.items()
                }
            )
            bars.check(
                p99s["Redis"] <= P99_MS_MAX,
                f"with Redis p99 {p99s['Redis']:.2f} ms at {REDIS_RATE:,}/s, "
                f"in memory {p99s['memory']:.2f} ms (bar {P99_MS_MAX:g} ms)",
            )
        finally:
            for one in (native, grpcio, far, usual):
                if one is not None:
                    one.child.stop()


def resp_doors(folder: Path, seconds: float, bars: Bars) -> None:
    """CL.THROTTLE against GET."""
    throttle = ["CL.THROTTLE", "key:__rand_int__", "100", "1000000", "1", "1"]
    with redis_server(folder, core=0) as redis_port:
        limiter = Limiter(folder, "resp")
        try:
            for pipeline, least in ((1, RESP_SHARE_MIN), (16, RESP_PIPELINED_SHARE_MIN)):
                calls = int((60_000 if pipeline == 1 else 300_000) * seconds)
                sides = {"sluicegate": (limiter.port, throttle), "redis GET": (redis_port, GET)}
                rates = medians(
                    {
                        name: partial(redis_benchmark, port, command, calls, pipeline)
                        for name, (port, command) in sides.items()
                    }
                )
                print(f"\nRESP, 50 clients, pipelined by {pipeline}, commands a second")
                for name, rate in rates.items():
                    print(f"  {name:<14} {rate:9,.0f}")
                share = rates["sluicegate"] / rates["redis GET"]
                bars.check(share >= least, f"{share:.2f} of redis-server's GET (bar {least:g})")
        finally:
            limiter.child.stop()


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
            ("redis-server", "redis-server"),
        )
        if shutil.which(tool) is None
    ]
    if missing:
        sys.exit(f"this benchmark needs {', '.join(missing)}")
    import sluicegate.kernels.gcra

    print(f"one worker on one core, {build_of(str(sluicegate.kernels.gcra.__file__))}")
    bars = Bars()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grpc_doors(folder, arguments.seconds, bars)
        resp_doors(folder, arguments.seconds, bars)
    bars.exit()


if __name__ == "__main__":
    main()
