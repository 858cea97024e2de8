"""Node messages: what nodes of a cluster report to masters as commands, and the replies.

    SG.REPORT 2 node boot term generation leaving stood_us woke_us COUNT*
        with the COUNT of each account: account delta total factor late
    1 master term generation valid_us nodes (account factor per_s burst)*    or nil: it is void

    SG.USAGE 1 node boot (account  hour used included heard  month used included heard
                          connections channels)*
    1 master (account  hour used own  month used own  connections channels)*

The first word is the version of what follows. A factor is written in decimal, as Python's `repr`
does; all other numbers are whole. Each word of another node is checked: its size and sign, that it
is a number, and that a total is not less than its delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.suppression import (
    AccountCount,
    AccountFactor,
    FactorMessage,
    SuppressReport,
)
from sluicegate.contracts.usage import (
    PeriodCount,
    UsageAnswer,
    UsageCount,
    UsageReport,
    UsageTotal,
)
from sluicegate.wire.resp import Part, command, encode_reply, whole_number
from sluicegate.wire.text import text_of, word_of

NAME_BYTES_MAX: Final = 1_024
WHOLE_MAX: Final = (1 << 53) - 1
ANSWER_VERSION: Final = 1
REPORT_VERSION: Final = 2
NULL: Final = encode_reply(None)
_HEAD_WORDS: Final = 9  # of a report, the command's name included
_ANSWER_WORDS: Final = 6
_FACTOR_WORDS: Final = 4  # of an account in an answer
_COUNT_WORDS: Final = 5  # and in a report
USAGE_VERSION: Final = 1
_USAGE_HEAD_WORDS: Final = 4  # of a report, the command's name included
_TOTALS_HEAD_WORDS: Final = 2
_USAGE_WORDS_EACH: Final = 11
_TOTAL_WORDS_EACH: Final = 9


def encode_report(report: SuppressReport) -> bytes:
    """A report as the command that says it."""
    parts: list[Part] = [
        "SG.REPORT",
        REPORT_VERSION,
        word_of(report.node),
        report.boot,
        report.term,
        report.generation,
        int(report.leaving),
        report.stood_us,
        report.woke_us,
    ]
    for count in report.counts:
        factor = repr(count.factor)
        parts += (word_of(count.account), count.delta, count.total, factor, count.late)
    return command(*parts)


def parse_report(parts: Sequence[bytes]) -> SuppressReport:
    """Parse the report of a command; raise `BadValue` if no node would send it."""
    if len(parts) < _HEAD_WORDS or (len(parts) - _HEAD_WORDS) % _COUNT_WORDS:
        raise BadValue(
            "report", f"{len(parts)} words", "give version node boot term generation leaving "
            "stood_us woke_us, and account delta total factor late of each account"
        )  # fmt: skip
    check_version("report.version", parts[1], REPORT_VERSION)
    counts: list[AccountCount] = []
    for at in range(_HEAD_WORDS, len(parts), _COUNT_WORDS):
        delta = whole_of("report.delta", parts[at + 1], WHOLE_MAX)
        total = whole_of("report.total", parts[at + 2], WHOLE_MAX)
        if delta > total:
            raise BadValue("report.delta", delta, f"give at most the total, {total}")
        factor = _fraction("report.factor", parts[at + 3])
        late = whole_of("report.late", parts[at + 4], delta)
        name = name_of("report.account", parts[at])
        counts.append(AccountCount(name, delta, total, factor, late))
    return SuppressReport(
        name_of("report.node", parts[2]),
        whole_of("report.boot", parts[3], WHOLE_MAX),
        tuple(counts),
        whole_of("report.term", parts[4], WHOLE_MAX),
        whole_of("report.generation", parts[5], WHOLE_MAX),
        leaving=whole_of("report.leaving", parts[6], 1) == 1,
        stood_us=whole_of("report.stood_us", parts[7], WHOLE_MAX),
        woke_us=whole_of("report.woke_us", parts[8], WHOLE_MAX),
    )


def encode_answer(message: FactorMessage | None) -> bytes:
    """A master's answer as a reply."""
    if message is None:
        return NULL
    words: list[object] = [
        ANSWER_VERSION,
        word_of(message.master),
        message.term,
        message.generation,
        message.valid_us,
        message.nodes,
    ]
    for factor in message.factors:
        words += (word_of(factor.account), repr(factor.factor), factor.per_s, factor.burst)
    return encode_reply(words)


def parse_answer(reply: object) -> FactorMessage | None:
    """Parse an answer that hiredis has read; raise `BadValue` if it is malformed."""
    if reply is None:
        return None
    words: Sequence[object] = reply if isinstance(reply, list) else ()
    if len(words) < _ANSWER_WORDS or (len(words) - _ANSWER_WORDS) % _FACTOR_WORDS:
        raise BadValue("answer", type(reply).__name__, "let a master of this version answer")
    check_version("answer.version", words[0], ANSWER_VERSION)
    factors = [
        AccountFactor(
            name_of("answer.account", words[at]),
            _fraction("answer.factor", words[at + 1]),
            whole_of("answer.per_s", words[at + 2], WHOLE_MAX),
            whole_of("answer.burst", words[at + 3], WHOLE_MAX),
        )
        for at in range(_ANSWER_WORDS, len(words), _FACTOR_WORDS)
    ]
    return FactorMessage(
        name_of("answer.master", words[1]),
        whole_of("answer.term", words[2], WHOLE_MAX),
        whole_of("answer.generation", words[3], WHOLE_MAX),
        whole_of("answer.valid_us", words[4], WHOLE_MAX),
        whole_of("answer.nodes", words[5], WHOLE_MAX),
        tuple(factors),
    )


def _fraction(field: str, word: object) -> float:
    try:
        fraction = float(word.decode("ascii")) if isinstance(word, bytes) else -1.0
    except ValueError:
        fraction = -1.0
    if not 0.0 <= fraction <= 1.0:  # rejects NaN as well
        raise BadValue(field, word, "give a fraction from 0 to 1")
    return fraction


def encode_usage(report: UsageReport) -> bytes:
    """A report as the command that says it."""
    parts: list[Part] = ["SG.USAGE", USAGE_VERSION, word_of(report.node), report.boot]
    for count in report.counts:
        parts += (word_of(count.account), *count.hour, *count.month)
        parts += (count.connections, count.channels)
    return command(*parts)


def parse_usage(parts: Sequence[bytes]) -> UsageReport:
    """Parse the report of a command; raise `BadValue` if no node would send it."""
    if len(parts) < _USAGE_HEAD_WORDS or (len(parts) - _USAGE_HEAD_WORDS) % _USAGE_WORDS_EACH:
        remedy = f"give version node boot, and {_USAGE_WORDS_EACH} words of each account"
        raise BadValue("usage", f"{len(parts)} words", remedy)
    check_version("usage.version", parts[1], USAGE_VERSION)
    counts: list[UsageCount] = []
    for at in range(_USAGE_HEAD_WORDS, len(parts), _USAGE_WORDS_EACH):
        numbers = [
            whole_of("usage", part, WHOLE_MAX) for part in parts[at + 1 : at + _USAGE_WORDS_EACH]
        ]
        periods = PeriodCount(*numbers[0:4]), PeriodCount(*numbers[4:8])
        for period in periods:
            if period.included > min(period.used, period.heard):
                remedy = "give at most the units used there plus those heard of"
                raise BadValue("usage.included", period.included, remedy)
        counts.append(UsageCount(name_of("usage.account", parts[at]), *periods, *numbers[8:]))
    node = name_of("usage.node", parts[2])
    return UsageReport(node, whole_of("usage.boot", parts[3], WHOLE_MAX), tuple(counts))


def encode_totals(answer: UsageAnswer) -> bytes:
    """A master's sums as a reply."""
    words: list[object] = [USAGE_VERSION, word_of(answer.master)]
    for total in answer.totals:
        words += (word_of(total.account), *total[1:])
    return encode_reply(words)


def parse_totals(reply: object) -> UsageAnswer:
    """Parse sums that hiredis has read; raise `BadValue` if they are malformed."""
    words: Sequence[object] = reply if isinstance(reply, list) else ()
    if len(words) < _TOTALS_HEAD_WORDS or (len(words) - _TOTALS_HEAD_WORDS) % _TOTAL_WORDS_EACH:
        raise BadValue("totals", type(reply).__name__, "let a master of this version answer")
    check_version("totals.version", words[0], USAGE_VERSION)
    totals = [
        UsageTotal(
            name_of("totals.account", words[at]),
            *(whole_of("totals", one, WHOLE_MAX) for one in words[at + 1 : at + _TOTAL_WORDS_EACH]),
        )
        for at in range(_TOTALS_HEAD_WORDS, len(words), _TOTAL_WORDS_EACH)
    ]
    return UsageAnswer(name_of("totals.master", words[1]), tuple(totals))


def check_version(field: str, word: object, version: int) -> None:
    """Refuse what is of another version."""
    found = whole_of(field, word, WHOLE_MAX)
    if found != version:
        raise BadValue(field, found, f"run nodes that say version {version}")


def name_of(field: str, word: object) -> str:
    """A name of a node or an account."""
    if not isinstance(word, bytes) or not 0 < len(word) <= NAME_BYTES_MAX:
        raise BadValue(field, word, f"give from 1 to {NAME_BYTES_MAX} bytes")
    return text_of(word)


def whole_of(field: str, word: object, most: int) -> int:
    """A whole number from 0 to `most`."""
    number = -1
    if isinstance(word, bytes):
        try:
            number = whole_number(word)
        except ValueError:
            raise BadValue(field, text_of(word), "give a whole number") from None
    elif isinstance(word, int):
        number = word
    if not 0 <= number <= most:
        raise BadValue(field, word, f"give a whole number from 0 to {most}")
    return number
