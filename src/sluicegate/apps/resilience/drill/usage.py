"""Usage: memory, file descriptors and processor time of the service, read from /proc.

The service is the session of the process that the drill has started. Processor time includes the
time that a thread was ready and had no core: on a busy machine, a service that computes all the
time gets less than a core, and lacks it all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")
_SESSION, _USER_TICKS, _SYSTEM_TICKS = 3, 11, 12  # after the name in /proc/PID/stat


class Usage(NamedTuple):
    """Levels of all processes together, and the processor time of each so far."""

    memory_bytes: int
    files: int
    cpu_us: Mapping[int, int]  # by process

    def busiest_us(self, before: Usage) -> int:
        """Return the processor time since then of the process that had the most."""
        return max((us - before.cpu_us.get(pid, us) for pid, us in self.cpu_us.items()), default=0)


def usage_of(session: int) -> Usage | None:
    """Return the usage of a session; None where /proc does not show it."""
    memory_bytes = files = 0
    cpu_us: dict[int, int] = {}
    for pid, fields in _processes(session):
        try:
            memory_bytes += _resident_bytes(pid)
            files += len(os.listdir(_PROC / str(pid) / "fd"))
            ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            cpu_us[pid] = max(ticks * _TICK_US, _demand_us(pid))
        except OSError:
            continue  # it has just ended
    return Usage(memory_bytes, files, cpu_us) if cpu_us else None


def _processes(session: int) -> Iterator[tuple[int, list[str]]]:
    try:
        names = os.listdir(_PROC)
    except OSError:
        return
    for name in filter(str.isdigit, names):
        try:
            text = (_PROC / name / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        if int(fields[_SESSION]) == session and fields[0] != "Z":
            yield int(name), fields


def _resident_bytes(pid: int) -> int:
    text = (_PROC / str(pid) / "statm").read_text(encoding="ascii")
    return int(text.split()[1]) * _PAGE_BYTES


def _demand_us(pid: int) -> int:
    """Return how long its threads ran, or could have run."""
    total_ns = 0
    for thread in (_PROC / str(pid) / "task").iterdir():
        try:
            ran, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
        except (OSError, ValueError):
            continue
        total_ns += int(ran) + int(waited)
    return total_ns // 1_000
