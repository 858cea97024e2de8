"""A mark is read as it was written, and nothing else passes for one."""

from __future__ import annotations

import pytest

from sluicegate.resilience.overload_mark import (
    AFTER_MS_MAX,
    OverloadMark,
    overload_mark,
    parse_overload_mark,
)


@pytest.mark.parametrize(
    "mark",
    [OverloadMark(False, 0, 0), OverloadMark(True, 250, 120), OverloadMark(True, 600_000, 1_000)],
)
def test_a_mark_is_read_as_it_was_written(mark: OverloadMark) -> None:
    assert parse_overload_mark([mark.text()]) == mark
    assert dict(mark.http_fields())["x-sluicegate-overload"] == mark.text()
    assert dict(mark.grpc_trailers())["x-sluicegate-overload"] == mark.text()


def test_plain_clients_are_given_the_field_they_obey() -> None:
    """Whole seconds for HTTP, never zero; -1 for a gRPC client that must not retry."""
    assert dict(OverloadMark(True, 1_200, 0).http_fields())["retry-after"] == "2"
    assert dict(OverloadMark(False, 0, 0).http_fields())["retry-after"] == "1"
    assert dict(OverloadMark(True, 250, 0).grpc_trailers())["grpc-retry-pushback-ms"] == "250"
    assert dict(OverloadMark(False, 250, 0).grpc_trailers())["grpc-retry-pushback-ms"] == "-1"


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["retry=1, after-ms=1, admitted-permille=1"] * 2,
        ["retry=2, after-ms=1, admitted-permille=1"],
        ["retry=1,after-ms=1,admitted-permille=1"],
        ["retry=1, after-ms=-1, admitted-permille=1"],
        ["retry=1, after-ms=01, admitted-permille=1"],
        ["retry=1, after-ms=600001, admitted-permille=1"],
        ["retry=1, after-ms=1, admitted-permille=1001"],
        ["retry=1, after-ms=1, admitted-permille=1\n"],
        ["retry=1, after-ms=\u0661, admitted-permille=1"],
        ["retry=1, after-ms=1, admitted-permille=" + "1" * 10_000],
    ],
)
def test_garbage_is_no_mark(values: list[str]) -> None:
    assert parse_overload_mark(values) is None


def test_jitter_only_lengthens_and_every_mark_can_be_read() -> None:
    def after_ms(draw: float, after_us: int = 100_000) -> int:
        mark = overload_mark(
            retry=False, after_us=after_us, jitter=0.5, draw=draw, admitted_permille=5_000
        )
        assert parse_overload_mark([mark.text()]) == mark
        return mark.after_ms

    assert after_ms(0.0) == 100
    assert after_ms(0.5) == 125
    assert after_ms(0.5, 1 << 60) == AFTER_MS_MAX
    assert after_ms(0.5, -1) == 0
