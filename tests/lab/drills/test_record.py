from __future__ import annotations

from array import array
from math import inf

import pytest

from sluicegate.lab.drills.record import (
    FIRST_ERROR,
    SERVED,
    UNANSWERED,
    UNSENT,
    ErrorText,
    LoadRecord,
    StreamRecord,
    error_word,
    slice_of,
)

BUSY, ERR, NIL = FIRST_ERROR, FIRST_ERROR + 1, FIRST_ERROR + 2
SECOND = 1_000_000


def stream_record(*rows: tuple[int, int, int], timeout_us: int = 100) -> StreamRecord:
    """Rows of due, took and became."""
    due, took, became = zip(*rows, strict=True) if rows else ((), (), ())
    return StreamRecord(timeout_us, array("q", due), array("q", took), array("B", became))


def record(
    late_p99_us: int = 0, busy: float = 0.1, unsent: int = 0, **streams: StreamRecord
) -> LoadRecord:
    return LoadRecord(
        streams,
        ("BUSY", "ERR", "NIL"),
        late_p99_us=late_p99_us,
        busy=busy,
        unsent=unsent,
        lost=0,
    )


MIXED = record(
    a=stream_record(
        (0, 50, SERVED),
        (10, 100, SERVED),  # just in time
        (20, 101, SERVED),  # just too late
        (30, 7, BUSY),
        (40, 9, ERR),
        (50, 0, UNANSWERED),
        (60, 0, UNSENT),
    ),
    b=stream_record((15, 30, SERVED), timeout_us=10),
)


def test_good_is_what_was_served_within_the_timeout_of_its_own_stream() -> None:
    part = slice_of(MIXED, begin_us=0, end_us=100)
    assert (part.offered, part.served, part.good) == (8, 4, 2)
    assert part.success == 2 / 8
    assert part.good_per_s == 2 * SECOND / 100
    assert slice_of(MIXED, "b", begin_us=0, end_us=100).good == 0


def test_a_part_is_of_what_was_due_in_it_from_its_begin_to_before_its_end() -> None:
    part = slice_of(MIXED, "a", begin_us=10, end_us=20)
    assert (part.offered, part.good) == (1, 1)
    assert part.p_us(1.0) == 100


def test_a_refusal_is_an_error_that_says_so_and_other_errors_are_none() -> None:
    part = slice_of(MIXED, "a", begin_us=0, end_us=100)
    assert part.refused_p_us(1.0) == 7
    assert part.errors() == {"BUSY": 1, "ERR": 1, "unanswered": 1, "unsent": 1}
    assert (
        slice_of(record(a=stream_record((0, 9, NIL))), begin_us=0, end_us=1).refused_p_us(0.5)
        == inf
    )


def test_quantiles_are_those_of_the_good_and_of_nothing_never() -> None:
    part = slice_of(
        record(a=stream_record(*((at, at, SERVED) for at in range(1, 201)), timeout_us=100)),
        begin_us=0,
        end_us=SECOND,
    )
    assert part.p_us(0.5) == 50
    assert part.p_us(0.99) == 99
    assert slice_of(record(a=stream_record()), begin_us=0, end_us=1).p_us(0.99) == inf
    assert slice_of(record(a=stream_record()), begin_us=0, end_us=1).success == 0.0


def test_what_was_answered_in_a_span_counts_whenever_it_was_due() -> None:
    part = slice_of(
        record(
            a=stream_record((0, 30, SERVED), (10, 30, SERVED), (20, 30, SERVED), (20, 900, SERVED))
        ),
        begin_us=0,
        end_us=100,
    )
    assert part.answered_per_s(30, 50) == 2 * SECOND / 20


def test_over_time_each_request_stands_in_the_bin_it_was_due_in() -> None:
    curves = slice_of(MIXED, "a", begin_us=0, end_us=80).over_time(40)
    assert curves["offered"] == [(20e-6, 4 * SECOND / 40), (60e-6, 3 * SECOND / 40)]
    assert curves["good"] == [(20e-6, 2 * SECOND / 40), (60e-6, 0)]
    assert curves["refused"] == [(20e-6, SECOND / 40), (60e-6, 0)]
    assert slice_of(MIXED, "a", begin_us=0, end_us=80).shares(40) == [(20e-6, 0.5), (60e-6, 0.0)]
    assert slice_of(MIXED, "a", begin_us=0, end_us=80).times_ms(40) == [(20e-6, 0.1)]


def test_a_bin_without_requests_has_no_share() -> None:
    assert slice_of(record(a=stream_record((50, 1, SERVED))), begin_us=0, end_us=80).shares(40) == [
        (60e-6, 1.0)
    ]


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({"late_p99_us": 5_001}, "late"),
        ({"busy": 0.81}, "busy"),
        ({"unsent": 1}, "no connection"),
    ],
)
def test_a_generator_that_measured_itself_makes_the_run_void(
    figures: dict[str, float], word: str
) -> None:
    streams = {"a": stream_record(*((at, 1, SERVED) for at in range(999)))}
    [reason] = record(**figures, **streams).void_reasons()  # type: ignore[arg-type]
    assert word in reason


def test_one_at_its_bounds_does_not() -> None:
    streams = {"a": stream_record(*((at, 1, SERVED) for at in range(1_000)))}
    assert record(late_p99_us=5_000, busy=0.8, unsent=1, **streams).void_reasons() == []


def test_meaning_of_reply_is_first_word_of_its_error() -> None:
    assert error_word(None) == "NIL"
    assert error_word(ErrorText("BUSY shed")) == "BUSY"
    assert error_word(b"a value") == error_word([]) == ""
