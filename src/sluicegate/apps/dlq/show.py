"""Show: dead letters as lines, for people or for programs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator

from sluicegate.apps.dlq.letters import follow, read, since_us
from sluicegate.contracts.reasons import REASONS
from sluicegate.limits.dead_letter import DeadLetter, ProcessMark, pack
from sluicegate.wire.timestamps import utc_text


def show(arguments: Namespace) -> int:
    """Print the letters that were asked for."""
    from_us = since_us(arguments)
    count = 0
    for one in _letters(arguments):
        if one is None:
            sys.stdout.flush()
        elif isinstance(one, DeadLetter) and matches(one, arguments, from_us):
            count += 1
            sys.stdout.write((as_json(one) if arguments.json else line(one)) + "\n")
    if not count and not arguments.json:
        sys.stdout.write("no letters\n")
    return 0


def _letters(arguments: Namespace) -> Iterator[DeadLetter | ProcessMark | None]:
    return follow(arguments) if arguments.follow else read(arguments)


def matches(letter: DeadLetter, arguments: Namespace, from_us: int) -> bool:
    """Return whether the flags ask for this letter."""
    return (
        letter.at_us >= from_us
        and arguments.user in {"", letter.user}
        and arguments.rule in {"", letter.rule_id}
    )


def as_json(letter: DeadLetter) -> str:
    """Return a line for programs: the letter as the log has it, and its id."""
    fields = {"id": letter.id, **json.loads(pack(letter))}
    return json.dumps(fields, separators=(",", ":"))


def line(letter: DeadLetter) -> str:
    """Return a line for people."""
    word = "admitted" if letter.allowed else "refused"
    text = (
        f"{instant(letter.at_us)}  {word:<8}  {printable(letter.user)}  "
        f"by {printable(letter.rule_id)}  cost {letter.cost:,}  {letter.priority.name}"
    )
    marks = [name for name in ("shadow", "harsh") if getattr(letter, name)]
    if not letter.degraded:
        marks.append("by the store")
    if letter.reason:
        reason = REASONS.get(letter.reason)
        marks.append(letter.reason if reason is None else reason.name)
    if letter.why:
        marks.append(printable(letter.why))
    if marks:
        text += f"  {'; '.join(marks)}"
    return f"{text}  [{printable(letter.id)}]"


def instant(at_us: int) -> str:
    """Return an instant to the millisecond."""
    return utc_text(at_us).replace(" UTC", f".{at_us // 1_000 % 1_000:03} UTC")


def printable(text: str) -> str:
    """Return a name that somebody else chose, without what would act on a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
