from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.permits import PermitSet
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000
MINUTE = 60 * SECOND


def test_so_many_are_admitted_and_the_next_is_told_when_the_first_expires() -> None:
    places = PermitSet(2, MINUTE)
    first = places.acquire("a", 1, 0)
    assert (first.allowed, first.remaining, first.retry_after_us) == (True, 1, 0)
    assert first.reset_after_us == MINUTE
    assert places.acquire("b", 1, 10 * SECOND).remaining == 0
    refused = places.acquire("c", 1, 15 * SECOND)
    assert not refused
    assert refused.retry_after_us == 45 * SECOND
    assert refused.reset_after_us == 55 * SECOND


def test_a_released_place_is_free_at_once_and_is_released_once() -> None:
    places = PermitSet(1, MINUTE)
    places.acquire("a", 1, 0)
    assert places.release("a", 1)
    assert not places.release("a", 1)
    assert places.acquire("b", 1, 1)


def test_who_never_comes_back_holds_a_place_until_the_microsecond_of_its_expiry() -> None:
    places = PermitSet(1, MINUTE)
    places.acquire("a", 1, 0)
    assert not places.acquire("b", 1, MINUTE - 1)
    assert places.acquire("b", 1, MINUTE)


def test_a_release_that_comes_too_late_frees_nobody_elses_place() -> None:
    places = PermitSet(1, MINUTE)
    places.acquire("a", 1, 0)
    places.acquire("b", 1, MINUTE)
    assert not places.release("a", MINUTE)
    assert places.used(MINUTE) == 1
    assert not places.acquire("c", 1, MINUTE)


def test_a_renewed_permit_lasts_the_whole_time_from_then_and_loses_its_rank() -> None:
    places = PermitSet(2, MINUTE)
    places.acquire("a", 1, 0)
    places.acquire("b", 1, SECOND)
    assert places.renew("a", 30 * SECOND)
    assert places.acquire("c", 1, 40 * SECOND).retry_after_us == 21 * SECOND
    assert places.acquire("c", 1, 61 * SECOND)
    assert places.used(MINUTE + 30 * SECOND - 1) == 2
    assert places.used(MINUTE + 30 * SECOND) == 1


def test_a_renewal_that_comes_too_late_does_not_revive_though_the_place_is_free() -> None:
    places = PermitSet(2, MINUTE)
    places.acquire("a", 1, 0)
    assert not places.renew("a", MINUTE)
    assert places.used(MINUTE) == 0


def test_a_heavy_permit_waits_for_as_many_places_as_it_lacks() -> None:
    places = PermitSet(5, MINUTE)
    places.acquire("a", 2, 0)
    places.acquire("b", 1, 1)
    places.acquire("c", 2, 2)
    assert places.look(1, 2).retry_after_us == MINUTE - 2
    assert places.look(2, 2).retry_after_us == MINUTE - 2
    assert places.look(3, 2).retry_after_us == MINUTE - 1
    assert places.look(4, 2).retry_after_us == MINUTE
    assert places.look(6, 2).retry_after_us == NEVER
    assert places.release("c", 2)
    assert places.look(2, 2).allowed
    assert places.used(2) == 3


def test_a_clock_that_goes_back_neither_frees_nor_prolongs() -> None:
    places = PermitSet(1, MINUTE)
    places.acquire("a", 1, MINUTE)
    refused = places.acquire("b", 1, 0)
    assert refused.retry_after_us == 2 * MINUTE
    assert places.renew("a", 0)
    assert not places.acquire("b", 1, 2 * MINUTE - 1)
    assert places.acquire("b", 1, 2 * MINUTE)


def test_values_that_make_no_sense_are_refused() -> None:
    for limit, expires_after_us in ((0, 1), (1 << 54, 1), (1, 0), (1, 1 << 54)):
        with pytest.raises(ValueError, match="must be from 1"):
            PermitSet(limit, expires_after_us)
    places = PermitSet(1, 1)
    for ask in (places.look, lambda count, now_us: places.acquire("a", count, now_us)):
        with pytest.raises(ValueError, match="count must be at least 1"):
            ask(0, 0)
    places.acquire("a", 1, 0)
    with pytest.raises(ValueError, match="held already"):
        places.acquire("a", 1, 0)


class Oracle:
    """As slow and obvious as can be: a list of (name, until, count)."""

    def __init__(self, limit: int, span: int) -> None:
        self.limit = limit
        self.span = span
        self.rows: list[tuple[str, int, int]] = []

    def live_rows(self, now: int) -> list[tuple[str, int, int]]:
        return [row for row in self.rows if row[1] > now]

    def used(self, now: int) -> int:
        return sum(count for _, _, count in self.live_rows(now))

    def acquire(self, name: str, count: int, now: int) -> tuple[bool, int, int, int]:
        answer = self.look(count, now)
        if not answer[0]:
            return answer
        self.rows.append((name, now + self.span, count))
        _, _, _, reset = self.look(1, now)
        return True, self.limit - self.used(now), 0, reset

    def look(self, count: int, now: int) -> tuple[bool, int, int, int]:
        left = self.limit - self.used(now)
        reset = max((until - now for _, until, _ in self.live_rows(now)), default=0)
        if count <= left:
            return True, left, 0, reset
        retry = NEVER
        if count <= self.limit:
            instants = sorted(until for _, until, _ in self.live_rows(now))
            retry = next(
                until - now for until in instants if self.used(until) + count <= self.limit
            )
        return False, left, retry, reset

    def renew(self, name: str, now: int) -> bool:
        own_rows = [row for row in self.live_rows(now) if row[0] == name]
        self.rows = [row for row in self.rows if row[0] != name]
        self.rows += [(name, now + self.span, count) for _, _, count in own_rows]
        return bool(own_rows)

    def release(self, name: str, now: int) -> bool:
        own_rows = [row for row in self.live_rows(now) if row[0] == name]
        self.rows = [row for row in self.rows if row[0] != name]
        return bool(own_rows)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),  # how long since the step before
        st.sampled_from(["acquire", "acquire", "look", "renew", "release"]),
        st.integers(1, 4),  # count
        st.integers(0, 12),  # which of the names so far
    ),
    max_size=40,
)


@given(limit=st.integers(1, 5), span=st.integers(1, 9), steps=STEPS)
def test_any_story_is_told_as_the_oracle_tells_it(
    limit: int, span: int, steps: list[tuple[int, str, int, int]]
) -> None:
    places, oracle = PermitSet(limit, span), Oracle(limit, span)
    now = names = 0
    for passed, step, count, which in steps:
        now += passed
        if step == "acquire":
            names += 1
            answer = places.acquire(f"p{names}", count, now)
            expected = oracle.acquire(f"p{names}", count, now)
        elif step == "look":
            answer, expected = places.look(count, now), oracle.look(count, now)
        else:
            name = f"p{which}"
            if step == "renew":
                assert places.renew(name, now) == oracle.renew(name, now)
            else:
                assert places.release(name, now) == oracle.release(name, now)
            continue
        fields = (answer.allowed, answer.remaining, answer.retry_after_us, answer.reset_after_us)
        assert fields == expected
        assert places.used(now) == oracle.used(now) <= limit
