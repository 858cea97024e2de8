"""The real clock, real chance, and the machine's load. Nothing else in sluicegate asks for these.

Everything below is handed `now_us` and draws; everything above is handed this module's objects, or
those of `sluicegate.testing`.
"""

from __future__ import annotations

import os
import random
import time
from typing import Final, NamedTuple, final

# Seconds as a double tell microseconds apart for 285 years of uptime, and cost a compiled caller
# half of what the nanoseconds do.
_monotonic_s: Final = time.monotonic
_STARTED_AT_US: Final = time.time_ns() // 1_000 - int(time.monotonic() * 1e6)
_generator: Final = random.Random(os.urandom(16))
_PSI_DIR: Final = "/proc/pressure"
_CGROUP_DIR: Final = "/sys/fs/cgroup"


def now_us() -> int:
    """Microseconds since the epoch as this process counts them.

    The wall clock is read once, at start; from then on time is monotonic, so it never goes back and
    never jumps. It may drift from the wall by what the wall was corrected since.
    """
    return _STARTED_AT_US + int(_monotonic_s() * 1e6)


@final
class SystemClock:
    """The real clock, as a `contracts.clock.Clock`."""

    __slots__ = ()

    def now_us(self) -> int:
        """The instant."""
        return _STARTED_AT_US + int(_monotonic_s() * 1e6)


@final
class SystemChance:
    """Real draws, as a `contracts.chance.Chance`; seeded from the operating system.

    All draw from one generator. A process that is forked seeds it anew: workers that drew the same
    would wait for the same times and choose the same hosts.
    """

    __slots__ = ("draw",)

    def __init__(self) -> None:
        self.draw = _generator.random


def _seed_anew() -> None:
    _generator.seed(os.urandom(16))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_seed_anew)


class PressureStall(NamedTuple):
    """Shares of the last ten seconds, 0 to 1, in which some task waited for a resource (PSI)."""

    cpu: float
    io: float
    memory: float


class Load(NamedTuple):
    """The machine's load. `pressure` is None where the kernel does not tell it."""

    cpu: float  # busy share of all cores since the last look, 0 to 1
    pressure: PressureStall | None


@final
class LoadMeter:
    """Looks at CPU time and pressure; each look covers the time since the one before."""

    __slots__ = ("_busy", "_total")

    def __init__(self) -> None:
        self._busy, self._total = _cpu_times()

    def look(self) -> Load:
        """The load since the last look; 0 for CPU if no time has passed or none can be told."""
        busy, total = _cpu_times()
        passed = total - self._total
        cpu = (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._total = busy, total
        return Load(min(max(cpu, 0.0), 1.0), read_pressure())


class ThreadTimes(NamedTuple):
    """What a thread has done since it began, in microseconds."""

    ran_us: int  # on a core
    waited_us: int  # ready, while others had the core; 0 where the kernel does not tell it


def thread_times() -> ThreadTimes:
    """Return the times of the thread that asks."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            ran_ns, waited_ns, _ = file.read().split()
        return ThreadTimes(int(ran_ns) // 1_000, int(waited_ns) // 1_000)
    except (OSError, ValueError):
        return ThreadTimes(time.thread_time_ns() // 1_000, 0)


@final
class Throttling:
    """How long the CPU limit of this process's cgroup has held it back."""

    __slots__ = ("_path",)

    def __init__(self, path: str = "/proc/self/cgroup", root: str = _CGROUP_DIR) -> None:
        self._path = _cpu_stat_path(path, root)

    def held_us(self) -> int:
        """Return the microseconds since the cgroup began; 0 where it has no limit."""
        try:
            with open(self._path, encoding="ascii") as file:
                found = dict(line.split() for line in file)
        except (OSError, ValueError):
            return 0
        # The second version of cgroups counts microseconds, the first nanoseconds.
        held_us = found.get("throttled_usec")
        return int(found.get("throttled_time", 0)) // 1_000 if held_us is None else int(held_us)


def _cpu_stat_path(path: str, root: str) -> str:
    """Return the file with the times of this process's cgroup; empty if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except (OSError, ValueError):
        return ""
    for _, controllers, group in lines:
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = f"{root}/{controllers}" if controllers else root
        # Within a container the root of what is mounted is the container's own cgroup.
        for found in (f"{folder}{group.rstrip('/')}/cpu.stat", f"{folder}/cpu.stat"):
            if os.path.exists(found):
                return found
    return ""


def memory_bytes() -> int:
    """What this process holds of the machine's memory; 0 where it cannot be told."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def read_pressure() -> PressureStall | None:
    """Linux pressure stall information, averaged over ten seconds; None where there is none."""
    try:
        return PressureStall(
            *(_some_avg10(f"{_PSI_DIR}/{name}") for name in ("cpu", "io", "memory"))
        )
    except (OSError, ValueError):
        return None


def _some_avg10(path: str) -> float:
    # some avg10=1.53 avg60=0.87 avg300=0.29 total=58761459
    with open(path, encoding="ascii") as file:
        for field in file.readline().split():
            name, _, value = field.partition("=")
            if name == "avg10":
                return float(value) / 100
    raise ValueError(f"{path} has no avg10")


def _cpu_times() -> tuple[int, int]:
    """Busy and total CPU time of the whole machine, in clock ticks; zeros where it cannot tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    user, nice, system, idle, iowait, irq, softirq, steal = (ticks + [0] * 8)[:8]
    busy = user + nice + system + irq + softirq + steal
    return busy, busy + idle + iowait
