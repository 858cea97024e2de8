"""Makes logs of letters for these tests, and runs the command on them."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.cli import CommandEntry, _run
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.dead_letter import (
    BEGUN,
    CLOSED,
    DEAD_LETTER,
    DeadLetter,
    ProcessMark,
    pack,
    pack_mark,
)
from sluicegate.stores.event_logs import open_log
from sluicegate.system import now_us

SECOND = 1_000_000
MINUTE = 60 * SECOND
TEN_AN_HOUR = Limit(10, period_us=60 * MINUTE, algorithm=Algorithm.SLIDING_LOG)
COMMAND = CommandEntry("dlq", "show, check and replay dead letters", "sluicegate.apps.dlq.command")


def dlq(*words: str) -> int:
    """`sluicegate dlq ...`, as the command line runs it."""
    return _run(COMMAND, [*words])


def letters_of(
    *fields: tuple[str, int, bool, int], limit: Limit = TEN_AN_HOUR, process: str = "n/1/1"
) -> list[DeadLetter]:
    """Letters by (user, weight, allowed, seconds ago), all of them within one hour of the clock."""
    now, before, letters = now_us(), 0, []
    if now % (60 * MINUTE) < MINUTE:
        now -= MINUTE
    for number, (user, weight, allowed, ago_s) in enumerate(fields):
        letters.append(
            DeadLetter(
                user,
                "login",
                weight,
                now - ago_s * SECOND,
                allowed=allowed,
                limit=limit,
                reason="" if allowed else "store_unavailable",
                why="Redis said nothing",
                process=process,
                number=number,
                before=before,
            )
        )
        before += weight
    return letters


def write(url: str, letters: Sequence[DeadLetter], *, closed: bool = True) -> str:
    """A log of these letters, of one process from its beginning to its end."""
    log, process = open_log(url), letters[0].process
    end = letters[-1]
    events = [(BEGUN, pack_mark(ProcessMark(BEGUN, process, 0, 0, 0)), letters[0].at_us)]
    events += [(DEAD_LETTER, pack(letter), letter.at_us) for letter in letters]
    if closed:
        last = ProcessMark(CLOSED, process, end.number + 1, end.before + end.cost, 0)
        events.append((CLOSED, pack_mark(last), end.at_us))
    for promise in [log.append(*event) for event in events]:
        promise.result(60)
    log.close(SECOND)
    return url
