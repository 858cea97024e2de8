"""One run: a crowd asks, faults follow each other, and after each the crowd is served again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluicegate.system import now_us
from tests.chaos.crowds import CROWDS, Crowd, ThreadCrowd
from tests.chaos.faults import Engine, Faults
from tests.chaos.proxy import ROOT, FaultyProxy
from tests.stores.redis.live import LOOPS

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

RECOVERY_S = 2.0  # after a fault's end, as promised
PATIENCE_S = 60.0
QUIET_S = 0.03  # between two faults, at least


@dataclass
class Outcome:
    """Results of one run."""

    answers: int = 0
    failed: int = 0
    foreign: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    recovery_s: dict[str, float] = field(default_factory=dict)  # the longest after each fault

    def __str__(self) -> str:
        slowest = ", ".join(f"{name} {s:.2f} s" for name, s in sorted(self.recovery_s.items()))
        return f"{self.answers:,} answers, {self.failed:,} failed; recovery: {slowest}"


@contextmanager
def service_process() -> Iterator[tuple[int, Engine]]:
    """Start a service in a separate process; yield its port and how to stop it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.service"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield (
            port,
            Engine(
                lambda: process.send_signal(signal.SIGSTOP),
                lambda: process.send_signal(signal.SIGCONT),
            ),
        )
    finally:
        process.communicate(timeout=20)


@contextmanager
def place_of(
    row: str, redis: RedisServer | RedisCluster | None
) -> Iterator[tuple[str, FaultyProxy, Engine]]:
    """The URL for a crowd, the proxy behind it, and the engine behind that."""
    with ExitStack() as stack:
        if row == "service":
            port, engine = stack.enter_context(service_process())
            proxy = stack.enter_context(FaultyProxy(port))
            # It shares its processor with the crowd, and decides 2,000 times a second.
            yield f"sluicegate://127.0.0.1:{proxy.ports[0]}?timeout_ms=300", proxy, engine
            return
        assert redis is not None
        numbers = [*redis.ports]
        proxy = stack.enter_context(FaultyProxy(*redis.ports.values()))
        addresses = ",".join(f"127.0.0.1:{port}" for port in proxy.ports)
        scheme = "redis+cluster" if row == "cluster" else "redis"
        # One node of a cluster is stopped at a time.
        engine = Engine(lambda: redis.pause(numbers[0]), lambda: redis.resume(numbers[0]))
        yield f"{scheme}://{addresses}", proxy, engine


def chaos(
    row: str,
    url: str,
    proxy: FaultyProxy,
    engine: Engine,
    *,
    loop: str,
    seed: int,
    answers: int,
    quiet_s: float = QUIET_S,
) -> Outcome:
    """Ask until `answers` have arrived and every fault has struck."""
    outcome = Outcome()

    async def story() -> None:
        here = asyncio.get_running_loop()
        here.set_exception_handler(lambda _, about: outcome.complaints.append(repr(about)))
        crowd = CROWDS[row](url)
        faults = Faults(proxy, engine, seed)
        await crowd.prepare()
        try:
            asking = here.create_task(crowd.ask())
            try:
                struck = 0
                while crowd.tally.answers < answers or struck < len(faults.names):
                    name = faults.next_name()
                    await faults.strike(name)
                    took_s = await recovered(crowd)
                    outcome.recovery_s[name] = max(outcome.recovery_s.get(name, 0.0), took_s)
                    await asyncio.sleep(quiet_s)
                    struck += 1
            finally:
                crowd.running = False
                await asking
        finally:
            await crowd.close()
        tally = crowd.tally
        outcome.answers, outcome.failed = tally.answers, tally.failed
        outcome.foreign, outcome.raised = tally.foreign, tally.raised

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(story())
    return outcome


async def recovered(crowd: Crowd) -> float:
    """Return when a burst that began after this was answered as a whole; how long that took."""
    here = asyncio.get_running_loop()
    began = here.time()
    mark = now_us() / 1e6 if isinstance(crowd, ThreadCrowd) else began
    while crowd.tally.last_good_began < mark:
        waited_s = here.time() - began
        assert waited_s < PATIENCE_S, f"not served again after {waited_s:.1f} s"
        await asyncio.sleep(0.005)
    return here.time() - began


def check(outcome: Outcome, answers: int) -> None:
    """Check that no answer was foreign, nothing was raised, and `answers` arrived."""
    sys.stdout.write(f"{outcome}\n")
    assert outcome.foreign == []
    assert outcome.raised == []
    assert outcome.complaints == []
    assert outcome.answers >= answers
