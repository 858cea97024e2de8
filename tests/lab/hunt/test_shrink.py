from __future__ import annotations

from sluicegate.lab.hunt.setup import HuntFault, HuntLoad, Setup
from sluicegate.lab.hunt.shrink import rounded, shrink

LARGE = Setup(
    stage="server",
    seed=977,
    span_ms=9_731,
    loads=(
        HuntLoad(name="a", per_s=317, callers=33, cancelled_permille=200, claims="CRITICAL"),
        HuntLoad(name="b", per_s=1_234, rows=20, on_ms=7, off_ms=9, criticality="BULK"),
        HuntLoad(name="c"),
    ),
    faults=(
        HuntFault(what="pause", from_ms=13, until_ms=1_900, where="s1"),
        HuntFault(what="slow", from_ms=77, until_ms=5_000, where="s0", much=20),
    ),
    knobs={"workers": 7, "cap": 3, "pool": 100},
)


def test_what_does_not_matter_goes_and_what_does_stays() -> None:
    def breaks(setup: Setup) -> bool:
        return (
            any(load.criticality == "BULK" and load.per_s >= 100 for load in setup.loads)
            and any(fault.what == "slow" for fault in setup.faults)
            and setup.knobs.get("cap") == 3
        )

    small = shrink(LARGE, breaks).setup
    assert breaks(small)
    assert [load.name for load in small.loads] == ["b"]
    assert small.loads[0].per_s == 100
    assert (small.loads[0].on_ms, small.loads[0].off_ms, small.loads[0].rows) == (0, 0, 1)
    assert [fault.what for fault in small.faults] == ["slow"]
    assert small.faults[0].where == ""
    assert small.knobs == {"cap": 3}
    assert small.span_ms <= 20
    assert small.seed == 0


def test_what_breaks_only_as_it_is_stays_as_it_is() -> None:
    result = shrink(LARGE, lambda setup: setup == LARGE)
    assert result.setup is LARGE
    assert result.steps == 0


def test_it_ends_after_as_many_tries_as_it_is_given() -> None:
    played: list[Setup] = []

    def breaks(setup: Setup) -> bool:
        played.append(setup)
        return True

    assert shrink(LARGE, breaks, tries_max=5).tries == len(played) == 5


def test_numbers_are_rounded_to_one_digit() -> None:
    assert [rounded(value) for value in (0, 7, 10, 19, 317, 1_234)] == [0, 7, 10, 10, 300, 1_000]
    assert [rounded(value, up=True) for value in (0, 7, 11, 301)] == [0, 7, 20, 400]
