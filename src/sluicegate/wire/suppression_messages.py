"""Suppression messages: a node's report as a command, a master's answer as a reply.

    SG.REPORT 2 node boot term generation leaving stood_us woke_us COUNT*
        with the COUNT of each account: account delta total factor late
    1 master term generation valid_us nodes (account factor per_s burst)*    or nil: it is void

The first word is the version of what follows. A factor is written in decimal, as Python's `repr`
does. What comes from another node is checked to the last word: sizes, signs, what is not a number,
and totals that say less than their deltas.
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
from sluicegate.wire.node_words import WHOLE_MAX, check_version, name_of, whole_of
from sluicegate.wire.resp import Part, command, encode_reply
from sluicegate.wire.text import word_of

VERSION: Final = 1  # of an answer
REPORT_VERSION: Final = 2
NULL: Final = encode_reply(None)
_HEAD_WORDS: Final = 9  # of a report, the command's name included
_ANSWER_WORDS: Final = 6
_WORDS_EACH: Final = 4  # of an account in an answer
_COUNT_WORDS: Final = 5  # and in a report


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
    """The report that a command says; `BadValue` for whatever no node of ours would say."""
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
        VERSION,
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
    """The answer that a reply says, as hiredis reads it; `BadValue` for whatever is none."""
    if reply is None:
        return None
    words: Sequence[object] = reply if isinstance(reply, list) else ()
    if len(words) < _ANSWER_WORDS or (len(words) - _ANSWER_WORDS) % _WORDS_EACH:
        raise BadValue("answer", type(reply).__name__, "let a master of this version answer")
    check_version("answer.version", words[0], VERSION)
    factors = [
        AccountFactor(
            name_of("answer.account", words[at]),
            _fraction("answer.factor", words[at + 1]),
            whole_of("answer.per_s", words[at + 2], WHOLE_MAX),
            whole_of("answer.burst", words[at + 3], WHOLE_MAX),
        )
        for at in range(_ANSWER_WORDS, len(words), _WORDS_EACH)
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
    if not 0.0 <= fraction <= 1.0:  # what is not a number is not either
        raise BadValue(field, word, "give a fraction from 0 to 1")
    return fraction
