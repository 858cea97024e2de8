"""What a request claims of itself is understood whole, or an error."""

from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.claims import criticality_of, left_us_of, strong_of


def test_a_class_may_be_written_in_any_case_and_with_space_around_it() -> None:
    assert criticality_of([b" Best-Effort "]) is Criticality.BEST_EFFORT
    assert criticality_of([b"critical" + b" " * 100]) is Criticality.CRITICAL
    assert criticality_of([]) is None


@pytest.mark.parametrize("behind", [b" " * 24 + b"; but not really", b" " * 24 + b"x", b"-" * 25])
def test_a_longer_claim_is_never_cut_to_one_that_was_not_made(behind: bytes) -> None:
    with pytest.raises(BadValue, match=r"^x-sluicegate-criticality: .* at most 32 characters"):
        criticality_of([b"critical" + behind])


def test_a_claim_that_is_none_is_an_error() -> None:
    for claimed in (
        lambda: criticality_of([b"urgent"]),
        lambda: criticality_of([b"bulk", b"bulk"]),
        lambda: left_us_of([b"12345678901"]),
        lambda: strong_of([b"maybe"]),
    ):
        with pytest.raises(BadValue):
            claimed()
