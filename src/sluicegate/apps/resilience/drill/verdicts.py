"""Verdicts: the findings of a stage, from its records. No time, no input or output.

Each function takes the records of one kind of stage and returns its findings; a stage without
findings held. A finding has a name, a sentence with the figures, and the fix of `FIXES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple, final

from sluicegate.apps.resilience.drill.load import DrillRecord
from sluicegate.apps.resilience.drill.settings import DrillSettings
from sluicegate.apps.resilience.drill.usage import CpuTime, Usage
from sluicegate.command_line.text import size

CALM_GOOD: Final = 0.99
BACK_GOOD: Final = 0.95
CPU_BOUND: Final = 0.9  # of one core, by one process; the rest is measuring error
# Growth in each half of a stage: a warm process that leaks nothing stays below.
LEAKED_BYTES_MIN: Final = 2 << 20
LEAKED_FILES_MIN: Final = 8
_BAD_GATEWAY: Final = 502

ENDED: Final = "process ended"
WRONG: Final = "wrong answers"
UNEXPECTED: Final = "answers without content"
BROKEN: Final = "broken connections"
HUNG: Final = "callers hung up"
SLOW: Final = "low goodput"
HEALTH: Final = "slow health check"
CPU: Final = "CPU-bound"
MEMORY: Final = "memory leak"
FILES: Final = "file descriptor leak"
RECOVERY: Final = "no recovery"
WAITS: Final = "waits for its dependency"
SHARED: Final = "shared fate"
QUOTA: Final = "quota"
CALM: Final = "not calm"

FIXES: Final[Mapping[str, str]] = MappingProxyType({
    ENDED: "bound what it holds: slots and queue bytes with protect(app), connections in its "
    "server; run it under a supervisor that restarts it",
    WRONG: "reject what it cannot do with 503, before the work: put protect(app) outermost; its "
    "log has the error",
    UNEXPECTED: "answer 503 if the content is missing; check the fallbacks of soft dependencies",
    BROKEN: "raise the server's backlog and `ulimit -n`, and reject with 503 instead of closing",
    HUNG: "reject early instead of queueing: put protect(app) outermost; for WSGI, run "
    "`sluicegate resilience serve`",
    SLOW: "make rejections cheap: put protect(app) outermost, before authentication, parsing and "
    "logging",
    HEALTH: "answer it before the queue: name it in `bypass`, and let it call no dependency; for "
    "WSGI, run `sluicegate resilience serve`",
    CPU: "run one process for each core with 1 or 2 slots, and compute in a process pool, not in "
    "the event loop; if it mostly waited, stop what else runs on this machine",
    MEMORY: "bound caches, queues and the state of each request; compare two snapshots of "
    "tracemalloc",
    FILES: "close responses, sockets and files; share one HTTP client between all requests",
    RECOVERY: "drop queued requests whose callers are gone: protect(app) does at their deadline; "
    "do not retry inside",
    WAITS: "give its calls a timeout below the patience of callers, and a breaker: [client] "
    "timeout_us",
    SHARED: "give each dependency its own slots: [dependencies.NAME]",
    QUOTA: "raise the quota while the drill runs: all its requests come from one caller",
    CALM: "fix what fails at half load first; overload cannot be judged before",
})  # fmt: skip


class StageFinding(NamedTuple):
    """One thing that broke: its name in `FIXES`, and a sentence with the figures."""

    name: str
    words: str

    @property
    def fix(self) -> str:
        """What to change."""
        return FIXES[self.name]


class StageResult(NamedTuple):
    """One row: what was sent, what became of it in a sentence, and what broke."""

    name: str
    record: DrillRecord
    words: str
    findings: tuple[StageFinding, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing broke."""
        return not self.findings


@final
@dataclass
class DrillResult:
    """The whole drill."""

    capacity: float = 0.0
    stages: list[StageResult] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing broke."""
        return all(stage.holds for stage in self.stages)


class HealthWatch(NamedTuple):
    """How long each health check of a stage took, and on which path."""

    path: str
    took_us: Sequence[int]


def calm_findings(record: DrillRecord) -> list[StageFinding]:
    """Judge half of the load that it can do."""
    good = record.share(len(record.good_us))
    if good >= CALM_GOOD:
        return []
    refused = record.share(len(record.refused_us))
    if refused > 1 - CALM_GOOD:
        return [StageFinding(QUOTA, f"it rejects {refused:.0%} at half of its capacity")]
    return [
        StageFinding(CALM, f"it answers {good:.1%} at half of its capacity"),
        *wrong_findings(record, 1 - CALM_GOOD),
    ]


def overload_findings(
    record: DrillRecord,
    wanted: float,
    settings: DrillSettings,
    health: HealthWatch | None,
    cpu: CpuTime | None,
) -> list[StageFinding]:
    """Judge an overload; `wanted` is the goodput it can have, `cpu` that of its busiest process."""
    found: list[StageFinding] = []
    share = record.goodput / wanted
    if share < settings.goodput_min:
        if record.hung > len(record.refused_us):
            hung = record.share(record.hung)
            words = f"{hung:.0%} got no answer in time: it works for callers that are gone"
            found.append(StageFinding(HUNG, words))
        else:
            words = f"{share:.0%} of its capacity is left: rejections and errors take the rest"
            found.append(StageFinding(SLOW, words))
    found += wrong_findings(record, settings.wrong_max)
    if health is not None and health.took_us:
        worst_us = max(health.took_us)
        if worst_us > settings.health_us_max:
            words = f"{health.path} took {worst_us / 1_000:.0f} ms, so a load balancer removes it"
            found.append(StageFinding(HEALTH, words))
    if found and cpu is not None and sum(cpu) >= CPU_BOUND:
        words = f"one process ran {cpu.ran:.0%} of the time, and waited for a core "
        words += f"{cpu.waited:.0%} of it"
        found.append(StageFinding(CPU, words))
    return found


def wrong_findings(
    record: DrillRecord, share_max: float, *, allowed: frozenset[int] = frozenset()
) -> list[StageFinding]:
    """Judge answers that are neither good nor rejections, and connections without an answer."""
    found: list[StageFinding] = []
    wrong = {status: count for status, count in record.wrong.items() if status not in allowed}
    share = record.share(sum(wrong.values()))
    if share > share_max:
        statuses = ", ".join(f"{count:,} x {status}" for status, count in sorted(wrong.items()))
        found.append(
            StageFinding(WRONG, f"{share:.0%} got an error instead of a rejection: {statuses}")
        )
    share = record.share(record.unexpected)
    if share > share_max:
        words = f"{share:.0%} got a success without the expected content"
        found.append(StageFinding(UNEXPECTED, words))
    share = record.share(record.broken)
    if share > share_max:
        words = f"{share:.0%} of connections were refused, reset or cut"
        found.append(StageFinding(BROKEN, words))
    return found


def dependency_findings(
    record: DrillRecord, other: DrillRecord | None, settings: DrillSettings
) -> list[StageFinding]:
    """Judge a slow or dead dependency; `other` is the path that needs none.

    502 is a correct answer here, and so is a rejection: the service cannot do better.
    """
    found: list[StageFinding] = []
    hung = record.share(record.hung)
    if hung > settings.hung_max:
        words = f"{hung:.0%} of callers hung up before it did: it waits longer than they do"
        found.append(StageFinding(WAITS, words))
    found += wrong_findings(record, settings.wrong_max, allowed=frozenset({_BAD_GATEWAY}))
    if other is not None:
        good = other.share(len(other.good_us))
        if good < settings.beside_min:
            words = f"{settings.beside} needs no dependency, and {good:.0%} of it was answered"
            found.append(StageFinding(SHARED, words))
    return found


def leak_findings(samples: Sequence[Usage], sent: int) -> list[StageFinding]:
    """Judge growth in equal spans of calm load: samples are before, between and after them."""
    found: list[StageFinding] = []
    memory = [one.memory_bytes for one in samples]
    if _growth_min(memory) >= LEAKED_BYTES_MIN:
        grown = memory[-1] - memory[0]
        words = f"memory grew by {size(grown)} in {sent:,} requests of calm load"
        found.append(StageFinding(MEMORY, f"{words}, {size(grown // max(sent, 1))} each"))
    files = [one.files for one in samples]
    if _growth_min(files) >= LEAKED_FILES_MIN:
        words = f"{files[-1] - files[0]:,} more files and sockets are open after {sent:,} requests"
        found.append(StageFinding(FILES, words))
    return found


def _growth_min(levels: Sequence[int]) -> int:
    """Return the least growth between two samples, so that one step is no leak."""
    return min((after - before for before, after in pairwise(levels)), default=0)
