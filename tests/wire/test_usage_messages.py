"""What nodes say was used up: there and back, and nothing that no node would say."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.usage import (
    PeriodCount,
    UsageAnswer,
    UsageCount,
    UsageReport,
    UsageTotal,
)
from sluicegate.wire.usage_messages import (
    encode_totals,
    encode_usage,
    parse_totals,
    parse_usage,
)

WHOLE = st.integers(0, (1 << 53) - 1)
NAME = st.text(min_size=1, max_size=20).filter(lambda text: "\\" not in text)
PERIODS = st.tuples(WHOLE, WHOLE, WHOLE, WHOLE).map(
    lambda one: PeriodCount(one[0], one[1], min(one[1:]), one[3])
)


def parsed(data: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


@given(NAME, WHOLE, st.lists(st.builds(UsageCount, NAME, PERIODS, PERIODS, WHOLE, WHOLE)))
def test_a_report_is_read_as_it_was_said(node: str, boot: int, counts: list[UsageCount]) -> None:
    report = UsageReport(node, boot, tuple(counts))
    words = parsed(encode_usage(report))
    assert isinstance(words, list)
    assert parse_usage(words) == report


@given(NAME, st.lists(st.builds(UsageTotal, NAME, *[WHOLE] * 8)))
def test_an_answer_is_read_as_it_was_said(master: str, totals: list[UsageTotal]) -> None:
    answer = UsageAnswer(master, tuple(totals))
    assert parse_totals(parsed(encode_totals(answer))) == answer


GOOD = [b"SG.USAGE", b"1", b"n", b"1", b"a", *[b"1", b"5", b"2", b"3"] * 2, b"0", b"0"]


@pytest.mark.parametrize(
    ("at", "word"),
    [(1, b"2"), (2, b""), (3, b"-1"), (4, b""), (5, b"x"), (7, b"4"), (7, b"6"), (13, b"1e9")],
)
def test_what_no_node_would_say_is_refused(at: int, word: bytes) -> None:
    assert parse_usage(GOOD).counts[0].month == (1, 5, 2, 3)
    with pytest.raises(BadValue):
        parse_usage([*GOOD[:at], word, *GOOD[at + 1 :]])
    with pytest.raises(BadValue):
        parse_usage(GOOD[:-1])


@pytest.mark.parametrize("reply", [None, b"OK", [], [b"2", b"m"], [b"1", b"m", b"a", 1]])
def test_what_no_master_would_say_is_refused(reply: object) -> None:
    with pytest.raises(BadValue):
        parse_totals(reply)
