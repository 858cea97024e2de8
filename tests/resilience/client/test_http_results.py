"""What a refused response says: marks, times in both forms, and what is none of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.http_results import AFTER_S_MAX, result_of_response

MS = 1_000
S = 1_000_000
MARK = "retry=1, after-ms=250, admitted-permille=120"
NOON = "Tue, 24 Nov 2026 12:00:00 GMT"
LATER = "Tue, 24 Nov 2026 12:00:07 GMT"


def result(status: int = 503, **fields: str | Sequence[str]) -> CallResult[str]:
    named = {name.replace("_", "-"): value for name, value in fields.items()}

    def values(name: str) -> Sequence[str]:
        found = named.get(name.lower(), ())
        return [found] if isinstance(found, str) else found

    return result_of_response("it", status, values)


def overload(mark: str | Sequence[str], **more: str | Sequence[str]) -> CallResult[str]:
    return result(503, x_sluicegate_overload=mark, **more)


def test_a_mark_says_whether_and_when_and_that_nothing_was_begun() -> None:
    found = overload(MARK, retry_after="1")
    assert found.kind is ResultKind.OVERLOADED
    assert found.retry_after_us == 250 * MS, "the mark is finer than the seconds beside it"
    assert not found.dont_retry
    assert not found.may_have_run
    assert overload(MARK.replace("retry=1", "retry=0")).dont_retry
    assert overload(MARK.replace("250", "0")).retry_after_us == 1, "told: at once"
    late = result(504, x_sluicegate_overload=MARK)  # the queue has left too little time
    assert (late.kind, late.may_have_run) == (ResultKind.OVERLOADED, False)
    assert late.admitted_permille == 120


def test_a_plain_time_is_an_overload_of_which_nothing_is_proven() -> None:
    found = result(retry_after=" 5 ")
    assert found.kind is ResultKind.OVERLOADED
    assert found.retry_after_us == 5 * S
    assert found.may_have_run


def test_without_either_a_503_is_a_failure_and_a_429_a_quota() -> None:
    assert result().kind is ResultKind.FAILED
    assert result(429).kind is ResultKind.LIMITED
    found = result(429, x_sluicegate_overload=MARK.replace("retry=1", "retry=0"))
    assert (found.kind, found.dont_retry) == (ResultKind.LIMITED, True)
    assert result(500, x_sluicegate_overload=MARK).kind is ResultKind.FAILED
    assert result(504, retry_after="5").kind is ResultKind.FAILED
    assert result(404, retry_after="5").kind is ResultKind.REJECTED
    assert result(200, x_sluicegate_overload=MARK).kind is ResultKind.OK


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "+5",
        "1.5",
        "5s",
        "soon",
        "1, 2",
        "\u0665",
        "1_0",
        "0x5",
        "9" * 65,
        "Tue, 99 Nov 2026 12:00:00 GMT",
        "Tue, 24 Nov 0000 12:00:00 GMT",
        f"{LATER}, {LATER}",
        "\x00\xff",
    ],
)
def test_a_time_that_is_none_says_nothing(text: str) -> None:
    assert result(retry_after=text, date=NOON).kind is ResultKind.FAILED
    assert result(429, retry_after=text, date=NOON).retry_after_us == 0


def test_a_field_that_came_twice_says_nothing() -> None:
    assert result(retry_after=["5", "5"]).kind is ResultKind.FAILED
    assert overload([MARK, MARK]).kind is ResultKind.FAILED
    assert overload([MARK, MARK], retry_after="5").unproven, "what stands without a mark"
    assert overload(MARK + ";").kind is ResultKind.FAILED
    assert result(retry_after=LATER, date=[NOON, NOON]).kind is ResultKind.FAILED


def test_a_date_counts_from_the_servers_own_clock_however_far_off_ours_is() -> None:
    assert result(retry_after=LATER, date=NOON).retry_after_us == 7 * S
    for year in ("1970", "2199"):
        until, sent = (text.replace("2026", year) for text in (LATER, NOON))
        assert result(retry_after=until, date=sent).retry_after_us == 7 * S
    assert result(retry_after=LATER).kind is ResultKind.FAILED, "no clock, so no date"
    assert result(retry_after=NOON, date=LATER).kind is ResultKind.FAILED, "it is over"


def test_a_time_has_a_bound() -> None:
    assert result(retry_after="9" * 64).retry_after_us == AFTER_S_MAX * S
    far = result(retry_after=NOON.replace("2026", "9999"), date=NOON)
    assert far.retry_after_us == AFTER_S_MAX * S
