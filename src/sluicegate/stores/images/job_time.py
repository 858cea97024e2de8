"""Job time: what counts of a job's time on a machine that does other things too.

A bound on a job is a bound on what its image takes. Were it on the clock alone, a machine that has
no processor for the worker (others are more important, a container is over its share) would have
good images remembered as ones that take too long. So while a job runs a look is taken every now and
then at what passed since the last one:

- what the worker computed counts, and so does what it slept;
- what it waited for a processor does not, or for a page of memory. Linux keeps count of the first
  for each thread (`schedstat`), but only once the wait is over: so it is asked who waits now, too;
- nor does what passed while this loop did not run itself, which looked too late.

What does not count has a bound of its own, and where it is over nothing was learned of the image.
Elsewhere than on Linux all that passes counts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, NamedTuple, final

LOOKS: Final = 8  # at a job that takes as long as it may
_MICROSECONDS: Final = 1_000_000
_NANOSECONDS: Final = 1_000
_READY: Final = (b"R", b"D")


class CpuTimes(NamedTuple):
    """What a process computed, and waited for a processor, in microseconds, until now."""

    used_us: int
    waited_us: int
    ready: bool = False  # a thread runs, or would if it could


def cpu_times(pid: int) -> CpuTimes:
    """Those of all threads that live; zero where the system does not say."""
    used = waited = 0
    ready = False
    try:
        for thread in os.scandir(f"/proc/{pid}/task"):
            with open(f"{thread.path}/schedstat", "rb") as file:
                fields = file.read().split()
            used += int(fields[0])
            waited += int(fields[1])
            with open(f"{thread.path}/stat", "rb") as file:
                ready |= file.read().rpartition(b") ")[2][:1] in _READY
    except (OSError, ValueError, IndexError):  # another system, or it ended meanwhile
        return CpuTimes(0, 0)
    return CpuTimes(used // _NANOSECONDS, waited // _NANOSECONDS, ready)


def counted_us(passed_us: int, before: CpuTimes, now: CpuTimes, look_us: int) -> int:
    """How much of what passed between two looks, `look_us` apart if in time, is the job's."""
    passed_us = min(passed_us, look_us)
    used_us = max(0, now.used_us - before.used_us)
    slept_us = 0 if now.ready else passed_us - max(0, now.waited_us - before.waited_us)
    return min(passed_us, max(used_us, slept_us))


@final
class JobTime:
    """Watches one job, and calls `end` once when its time is over.

    `starved` says that it was not: it had no processor for `starved_us_max` besides.
    """

    __slots__ = (
        "_before",
        "_begun_s",
        "_bound_us",
        "_counted_us",
        "_end",
        "_last_s",
        "_look_us",
        "_loop",
        "_most_us",
        "_pid",
        "_timer",
        "starved",
    )

    def __init__(self, pid: int, job_us: int, starved_us_max: int, end: Callable[[], None]) -> None:
        self.starved = False
        self._pid = pid
        self._bound_us = job_us
        self._most_us = job_us + starved_us_max
        self._end = end
        self._counted_us = 0
        # Most jobs are over before the first look, and cost no more than a timer.
        self._before: CpuTimes | None = None
        self._look_us = max(1, job_us // LOOKS)
        self._loop = asyncio.get_running_loop()
        self._begun_s = self._last_s = self._loop.time()
        self._timer = self._loop.call_later(self._look_us / _MICROSECONDS, self._look)

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _look(self) -> None:
        now_s, times = self._loop.time(), cpu_times(self._pid)
        passed_us = int((now_s - self._last_s) * _MICROSECONDS)
        before = times if self._before is None else self._before
        self._counted_us += counted_us(passed_us, before, times, self._look_us)
        self._last_s, self._before = now_s, times
        self.starved = self._counted_us < self._bound_us
        if self.starved and (now_s - self._begun_s) * _MICROSECONDS < self._most_us:
            wait_us = min(self._look_us, self._bound_us - self._counted_us)
            self._timer = self._loop.call_later(wait_us / _MICROSECONDS, self._look)
        else:
            self._end()
