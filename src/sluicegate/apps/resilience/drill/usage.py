"""Usage: memory, file descriptors and processor time of the service, read from /proc.

The service is the session of the process that the drill has started. Time that its threads were
ready and had no core counts too: on a busy machine a service that computes all the time runs less.
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


class CpuTime(NamedTuple):
    """How long a process ran, and was ready and had no core: microseconds, or shares of a span."""

    ran: float
    waited: float


class Usage(NamedTuple):
    """Levels of all processes together, and the processor time of each so far."""

    memory_bytes: int
    files: int
    cpu_us: Mapping[int, CpuTime]  # by process

    def busiest(self, before: Usage, passed_us: int) -> CpuTime:
        """Return the shares of this span of the process that needed the most."""
        spent = [
            CpuTime((time.ran - old.ran) / passed_us, (time.waited - old.waited) / passed_us)
            for pid, time in self.cpu_us.items()
            if (old := before.cpu_us.get(pid)) is not None
        ]
        return max(spent, key=sum, default=CpuTime(0.0, 0.0))


def usage_of(session: int) -> Usage | None:
    """Return the usage of a session; None where /proc does not show it."""
    memory_bytes = files = 0
    cpu_us: dict[int, CpuTime] = {}
    for pid, fields in _processes(session):
        try:
            memory_bytes += _resident_bytes(pid)
            files += len(os.listdir(_PROC / str(pid) / "fd"))
            ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            cpu_us[pid] = CpuTime(ticks * _TICK_US, _waited_us(pid))
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


def _waited_us(pid: int) -> int:
    total_ns = 0
    for thread in (_PROC / str(pid) / "task").iterdir():
        try:
            _, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
        except (OSError, ValueError):
            continue
        total_ns += int(waited)
    return total_ns // 1_000
