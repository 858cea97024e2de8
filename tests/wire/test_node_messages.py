"""Messages of nodes: read as they were written, and nothing else believed."""

from __future__ import annotations

import contextlib

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from sluicegate.wire.node_messages import (
    WHOLE_MAX,
    encode_answer,
    encode_report,
    encode_totals,
    encode_usage,
    parse_answer,
    parse_report,
    parse_totals,
    parse_usage,
)

names = st.text(st.characters(codec="utf-8", exclude_characters="\\"), min_size=1, max_size=40)
wholes = st.integers(0, WHOLE_MAX)
fractions = st.floats(0.0, 1.0)
counts = st.builds(
    lambda name, one, other, factor, late: AccountCount(
        name, min(one, other), max(one, other), factor, min(one, other, late)
    ),
    names, wholes, wholes, fractions, wholes,
)  # fmt: skip
reports = st.builds(
    SuppressReport, names, wholes, st.lists(counts, max_size=4).map(tuple), wholes, wholes,
    leaving=st.booleans(), stood_us=wholes, woke_us=wholes,
)  # fmt: skip
factors = st.builds(AccountFactor, names, fractions, wholes, wholes)
answers = st.none() | st.builds(
    FactorMessage, names, wholes, wholes, wholes, wholes, st.lists(factors, max_size=4).map(tuple)
)


def parts_of(payload: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(payload)
    parts: list[bytes] = reader.gets()
    return parts


@given(reports)
def test_a_report_is_read_as_it_was_written(report: SuppressReport) -> None:
    assert parse_report(parts_of(encode_report(report))) == report


@given(answers)
def test_so_is_an_answer(answer: FactorMessage | None) -> None:
    reader = hiredis.Reader()
    reader.feed(encode_answer(answer))
    assert parse_answer(reader.gets()) == answer


REPORT = parts_of(encode_report(SuppressReport("n", 1, (AccountCount("a", 1, 2, 0.5),), 1, 1)))


@pytest.mark.parametrize(
    ("at", "word", "field"),
    [
        (1, b"1", "report.version"),
        (2, b"", "report.node"),
        (2, b"n" * 1_025, "report.node"),
        (3, b"-1", "report.boot"),
        (3, b"1e3", "report.boot"),
        (4, b"9007199254740992", "report.term"),
        (6, b"2", "report.leaving"),
        (7, b"-1", "report.stood_us"),
        (8, b"x", "report.woke_us"),
        (9, b"", "report.account"),
        (10, b"3", "report.delta"),
        (12, b"nan", "report.factor"),
        (12, b"1.5", "report.factor"),
        (12, b"\xff", "report.factor"),
        (13, b"2", "report.late"),
    ],
)
def test_a_report_that_no_node_would_send_names_what_is_wrong(
    at: int, word: bytes, field: str
) -> None:
    parts = [*REPORT]
    parts[at] = word
    with pytest.raises(BadValue, match=field):
        parse_report(parts)


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_any_words_are_a_report_or_a_bad_value(words: list[bytes]) -> None:
    for parts in ([b"SG.REPORT", *words], [*REPORT[:2], *words]):
        with contextlib.suppress(BadValue):
            assert isinstance(parse_report(parts), SuppressReport)


@given(st.recursive(st.none() | st.integers() | st.binary(), st.lists, max_leaves=10))
def test_any_reply_is_an_answer_or_a_bad_value(reply: object) -> None:
    with contextlib.suppress(BadValue):
        assert isinstance(parse_answer(reply), FactorMessage | None)


# Usage.

NAME = st.text(min_size=1, max_size=20).filter(lambda text: "\\" not in text)
PERIODS = st.tuples(wholes, wholes, wholes, wholes).map(
    lambda one: PeriodCount(one[0], one[1], min(one[1:]), one[3])
)


def parsed(data: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


@given(NAME, wholes, st.lists(st.builds(UsageCount, NAME, PERIODS, PERIODS, wholes, wholes)))
def test_usage_report_survives_encode_and_parse(
    node: str, boot: int, counts: list[UsageCount]
) -> None:
    report = UsageReport(node, boot, tuple(counts))
    words = parsed(encode_usage(report))
    assert isinstance(words, list)
    assert parse_usage(words) == report


@given(NAME, st.lists(st.builds(UsageTotal, NAME, *[wholes] * 8)))
def test_totals_survive_encode_and_parse(master: str, totals: list[UsageTotal]) -> None:
    answer = UsageAnswer(master, tuple(totals))
    assert parse_totals(parsed(encode_totals(answer))) == answer


GOOD = [b"SG.USAGE", b"1", b"n", b"1", b"a", *[b"1", b"5", b"2", b"3"] * 2, b"0", b"0"]


@pytest.mark.parametrize(
    ("at", "word"),
    [(1, b"2"), (2, b""), (3, b"-1"), (4, b""), (5, b"x"), (7, b"4"), (7, b"6"), (13, b"1e9")],
)
def test_usage_that_no_node_would_say_is_refused(at: int, word: bytes) -> None:
    assert parse_usage(GOOD).counts[0].month == (1, 5, 2, 3)
    with pytest.raises(BadValue):
        parse_usage([*GOOD[:at], word, *GOOD[at + 1 :]])
    with pytest.raises(BadValue):
        parse_usage(GOOD[:-1])


@pytest.mark.parametrize("reply", [None, b"OK", [], [b"2", b"m"], [b"1", b"m", b"a", 1]])
def test_totals_that_no_master_would_say_is_refused(reply: object) -> None:
    with pytest.raises(BadValue):
        parse_totals(reply)
