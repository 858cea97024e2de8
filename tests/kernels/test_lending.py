"""Lending: shared out by guarantee, then by weight; nobody's stays nobody's."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.lending import QuotaClaim, share_out


def claim(guarantee: int, demand: int, ceiling: int = 10**9, weight: int = 1) -> QuotaClaim:
    return QuotaClaim(guarantee, max(ceiling, guarantee), weight, demand)


CLAIMS = st.lists(
    st.builds(
        claim,
        st.integers(0, 1_000),
        st.integers(0, 3_000),
        st.integers(0, 3_000),
        st.integers(1, 9),
    ),
    max_size=12,
)


def filled(amount: int, claims: list[QuotaClaim]) -> list[Fraction]:
    """The obvious way: raise the water until it is all gone, in exact fractions."""
    parts = [Fraction(min(c.demand, c.guarantee)) for c in claims]
    left = Fraction(amount) - sum(parts)
    while left > 0:
        hungry = [i for i, c in enumerate(claims) if parts[i] < min(c.demand, c.ceiling)]
        if not hungry:
            break
        weights = sum(claims[i].weight for i in hungry)
        rise = min(
            left / weights,
            *(
                (min(c.demand, c.ceiling) - parts[i]) / c.weight
                for i, c in enumerate(claims)
                if i in hungry
            ),
        )
        for i in hungry:
            parts[i] += rise * claims[i].weight
        left -= rise * weights
    return parts


def test_what_one_leaves_is_lent_to_the_others_by_weight() -> None:
    claims = [claim(600, 0), claim(200, 2_000), claim(200, 2_000, weight=3)]
    assert share_out(1_000, claims, 0) == [0, 350, 650]


def test_a_part_of_every_guarantee_is_never_lent() -> None:
    assert share_out(1_000, [claim(600, 0), claim(400, 2_000)], 100) == [60, 940]


def test_nobody_borrows_beyond_its_ceiling_and_the_rest_stays_in_the_pool() -> None:
    assert share_out(1_000, [claim(500, 0), claim(500, 2_000, 700)], 0) == [0, 700]


def test_what_nobody_demands_is_not_shared_out() -> None:
    assert share_out(1_000, [claim(500, 10), claim(500, 20)], 0) == [10, 20]


def test_guarantees_beyond_the_amount_are_cut_in_proportion() -> None:
    assert share_out(500, [claim(750, 750), claim(250, 250)], 0) == [375, 125]


def test_what_no_longer_divides_goes_one_by_one() -> None:
    assert share_out(5, [claim(0, 9, weight=9), claim(0, 9, weight=9)], 0) == [3, 2]


@given(amount=st.integers(0, 10_000), claims=CLAIMS, kept_milli=st.integers(0, 1_000))
def test_no_more_than_the_amount_nor_any_ceiling_and_no_less_than_guaranteed(
    amount: int, claims: list[QuotaClaim], kept_milli: int
) -> None:
    parts = share_out(amount, claims, kept_milli)
    assert sum(parts) <= amount
    assert all(0 <= part <= one.ceiling for part, one in zip(parts, claims, strict=True))
    if sum(one.guarantee for one in claims) <= amount:
        for part, one in zip(parts, claims, strict=True):
            assert part >= min(one.demand, one.guarantee)
            assert part >= one.guarantee * kept_milli // 1_000


@given(amount=st.integers(0, 10_000), claims=CLAIMS)
def test_it_is_the_filling_with_water_that_anyone_would_draw(
    amount: int, claims: list[QuotaClaim]
) -> None:
    amount = max(amount, sum(one.guarantee for one in claims))
    for part, exact in zip(share_out(amount, claims, 0), filled(amount, claims), strict=True):
        assert abs(part - exact) <= len(claims)


@given(amount=st.integers(0, 10_000), claims=CLAIMS)
def test_nothing_is_kept_from_who_wants_it(amount: int, claims: list[QuotaClaim]) -> None:
    parts = share_out(amount, claims, 0)
    wanting = [1 for part, c in zip(parts, claims, strict=True) if part < min(c.demand, c.ceiling)]
    assert not wanting or sum(parts) == amount


def test_a_ceiling_binds_its_owner_too() -> None:
    assert share_out(1_000, [QuotaClaim(10, 5, 1, 10)], 0) == [5]
