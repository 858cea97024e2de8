"""A letter comes out of its body as it went in, and what is none is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.dead_letter import (
    CLOSED,
    DeadLetter,
    ProcessMark,
    limit_words,
    pack,
    pack_mark,
    read_limit,
    unpack,
    unpack_mark,
)

LIMITS = (
    Limit(1, period_us=1),
    Limit(100, period_us=60_000_000, burst=7),
    Limit(5, period_us=1_000, algorithm=Algorithm.FIXED_WINDOW),
    Limit(50, period_us=60_000_000, cells=6, algorithm=Algorithm.SLIDING_WINDOW),
    Limit(50, period_us=60_000_000, burst=9, algorithm=Algorithm.TOKEN_BUCKET),
    Limit(50, period_us=60_000_000, algorithm=Algorithm.SLIDING_LOG),
)


def fields(letter: DeadLetter) -> dict[str, object]:
    return {name: getattr(letter, name) for name in DeadLetter.__slots__}


@given(
    st.text(), st.text(), st.integers(0, 2**53), st.integers(0, 2**60),
    st.sampled_from([None, *LIMITS]), st.sampled_from(Criticality),
    st.tuples(*[st.booleans()] * 4), st.text(), st.integers(0, 2**60),
)  # fmt: skip
def test_a_letter_comes_back_as_it_was(
    user: str,
    rule: str,
    weight: int,
    at_us: int,
    limit: Limit | None,
    priority: Criticality,
    marks: tuple[bool, bool, bool, bool],
    why: str,
    number: int,
) -> None:
    allowed, degraded, shadow, harsh = marks
    letter = DeadLetter(
        user, rule, weight, at_us, allowed=allowed, limit=limit, priority=priority,
        degraded=degraded, shadow=shadow, harsh=harsh, reason=why, why=why,
        process="node/1/2", number=number, before=weight,
    )  # fmt: skip

    copy = unpack(pack(letter))

    assert isinstance(copy, DeadLetter)
    assert fields(copy) == fields(letter)


def test_a_usual_letter_is_compact_and_says_its_version() -> None:
    letter = DeadLetter("ann", "r", 1, 1_700_000_000_000_000, allowed=True, limit=LIMITS[1])

    body = pack(letter)

    assert len(body) < 250
    assert json.loads(body)["v"] == 1
    assert "shadow" not in json.loads(body)
    assert b" " not in body


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_limit_comes_back_as_it_was(limit: Limit) -> None:
    assert read_limit(json.loads(json.dumps(limit_words(limit)))) == limit


@pytest.mark.parametrize(
    "value", [None, 5, {}, {"count": 1, "period_us": 1, "algorithm": "guess"}, {"count": True}]
)
def test_what_is_no_limit_is_refused(value: object) -> None:
    with pytest.raises(BadValue):
        read_limit(value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (b"{", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"v":2}', "version is 2"),
        (b'{"v":1}', "cannot be understood"),
    ],
)
def test_what_is_no_letter_is_named(change: bytes, why: str) -> None:
    assert why in str(unpack(change))
    assert why in str(unpack_mark(CLOSED, change, 0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", "1"),
        ("weight", True),
        ("at_us", 1.5),
        ("user", 3),
        ("priority", "LOUD"),
        ("limit", {"count": 0, "period_us": 1, "algorithm": "gcra"}),
    ],
)
def test_a_letter_with_a_wrong_field_is_named(name: str, value: object) -> None:
    document = json.loads(pack(DeadLetter("ann", "r", 1, 1, allowed=True, limit=None)))

    assert "cannot be understood" in str(unpack(json.dumps({**document, name: value}).encode()))


def test_what_a_later_program_adds_is_left_alone() -> None:
    document = json.loads(pack(DeadLetter("ann", "r", 1, 1, allowed=True, limit=None)))

    assert isinstance(unpack(json.dumps({**document, "new": 1}).encode()), DeadLetter)


def test_a_mark_comes_back_as_it_was() -> None:
    mark = ProcessMark(CLOSED, "n/1/2", 7, 70, 99)

    assert unpack_mark(CLOSED, pack_mark(mark), 99) == mark
