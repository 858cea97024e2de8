from __future__ import annotations

import math

import pytest

from sluicegate.kernels.aimd import Aimd

MS = 1_000
SECOND = 1_000_000


def test_aimd_grows_by_one_while_the_limit_is_used() -> None:
    aimd = Aimd(initial=20)
    assert aimd.update(10 * MS, 10, False, 0.5) == 21
    assert aimd.update(10 * MS, 10, False, 0.5) == 21  # 10 of 21: not half
    assert aimd.update(10 * MS, 11, False, 0.5) == 22


def test_aimd_falls_by_a_tenth_for_a_drop_or_a_timeout_and_by_one_at_least() -> None:
    aimd = Aimd(initial=100, timeout_us=50 * MS)
    assert aimd.update(1, 1, True, 0.5) == 90
    assert aimd.update(50 * MS, 100, False, 0.5) == 91
    assert aimd.update(50 * MS + 1, 1, False, 0.5) == 81
    small = Aimd(initial=5, backoff=0.9)
    assert [small.update(1, 1, True, 0.5) for _ in range(6)] == [4, 3, 2, 1, 1, 1]
    assert Aimd(initial=20, backoff=math.nextafter(1, 0)).update(1, 1, True, 0.5) == 19


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"backoff": 0.49}, "backoff"),
        ({"backoff": 1.0}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
    ],
)
def test_aimd_refuses_a_backoff_outside_its_range(settings: dict[str, float], field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from 0.5"):
        Aimd(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_us", [0, 3_600 * SECOND + 1])
def test_aimd_refuses_a_timeout_outside_its_range(timeout_us: int) -> None:
    with pytest.raises(ValueError, match="timeout_us must be from 1"):
        Aimd(timeout_us=timeout_us)
