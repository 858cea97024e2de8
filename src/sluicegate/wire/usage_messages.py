"""Usage messages: what a node says was used, as a command; a master's sums, as a reply.

    SG.USAGE 1 node boot (account  hour used included heard  month used included heard
                          connections channels)*
    1 master (account  hour used own  month used own  connections channels)*

The first word is the version of what follows; all numbers are whole. What comes from another node
is checked to the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.usage import (
    PeriodCount,
    UsageAnswer,
    UsageCount,
    UsageReport,
    UsageTotal,
)
from sluicegate.wire.node_words import WHOLE_MAX, check_version, name_of, whole_of
from sluicegate.wire.resp import Part, command, encode_reply
from sluicegate.wire.text import word_of

VERSION: Final = 1
_HEAD_WORDS: Final = 4  # of a report, the command's name included
_ANSWER_WORDS: Final = 2
_WORDS_EACH: Final = 11
_TOTAL_WORDS_EACH: Final = 9


def encode_usage(report: UsageReport) -> bytes:
    """A report as the command that says it."""
    parts: list[Part] = ["SG.USAGE", VERSION, word_of(report.node), report.boot]
    for count in report.counts:
        parts += (word_of(count.account), *count.hour, *count.month)
        parts += (count.connections, count.channels)
    return command(*parts)


def parse_usage(parts: Sequence[bytes]) -> UsageReport:
    """The report that a command says; `BadValue` for whatever no node of ours would say."""
    if len(parts) < _HEAD_WORDS or (len(parts) - _HEAD_WORDS) % _WORDS_EACH:
        remedy = f"give version node boot, and {_WORDS_EACH} words of each account"
        raise BadValue("usage", f"{len(parts)} words", remedy)
    check_version("usage.version", parts[1], VERSION)
    counts: list[UsageCount] = []
    for at in range(_HEAD_WORDS, len(parts), _WORDS_EACH):
        numbers = [whole_of("usage", part, WHOLE_MAX) for part in parts[at + 1 : at + _WORDS_EACH]]
        periods = PeriodCount(*numbers[0:4]), PeriodCount(*numbers[4:8])
        for period in periods:
            if period.included > min(period.used, period.heard):
                remedy = "give at most what was used there and what was heard"
                raise BadValue("usage.included", period.included, remedy)
        counts.append(UsageCount(name_of("usage.account", parts[at]), *periods, *numbers[8:]))
    node = name_of("usage.node", parts[2])
    return UsageReport(node, whole_of("usage.boot", parts[3], WHOLE_MAX), tuple(counts))


def encode_totals(answer: UsageAnswer) -> bytes:
    """A master's sums as a reply."""
    words: list[object] = [VERSION, word_of(answer.master)]
    for total in answer.totals:
        words += (word_of(total.account), *total[1:])
    return encode_reply(words)


def parse_totals(reply: object) -> UsageAnswer:
    """The sums that a reply says, as hiredis reads it; `BadValue` for whatever is none."""
    words: Sequence[object] = reply if isinstance(reply, list) else ()
    if len(words) < _ANSWER_WORDS or (len(words) - _ANSWER_WORDS) % _TOTAL_WORDS_EACH:
        raise BadValue("totals", type(reply).__name__, "let a master of this version answer")
    check_version("totals.version", words[0], VERSION)
    totals = [
        UsageTotal(
            name_of("totals.account", words[at]),
            *(whole_of("totals", one, WHOLE_MAX) for one in words[at + 1 : at + _TOTAL_WORDS_EACH]),
        )
        for at in range(_ANSWER_WORDS, len(words), _TOTAL_WORDS_EACH)
    ]
    return UsageAnswer(name_of("totals.master", words[1]), tuple(totals))
