from __future__ import annotations

import heapq
import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.two_choices import (
    WEIGHT_MAX,
    HostLoad,
    LoadSettings,
    choose,
    pick_two,
)

SECOND = 1_000_000
LAST_DRAW = 1.0 - 2.0**-53

draws = st.floats(0.0, 1.0, exclude_max=True)


def host(**fields: int) -> HostLoad:
    return HostLoad(LoadSettings(**fields))


# Drawing two.


def test_two_draws_give_two_different_hosts_and_every_pair_alike() -> None:
    pairs = Counter(
        pick_two(5, first / 5 + 0.01, second / 4 + 0.01)
        for first in range(5)
        for second in range(4)
    )
    assert len(pairs) == 20
    assert set(pairs.values()) == {1}
    assert all(first != second for first, second in pairs)


@given(st.integers(2, 1_000_000), draws, draws)
def test_no_draws_leave_the_range_or_meet(count: int, first: float, second: float) -> None:
    pair = pick_two(count, first, second)
    assert pair[0] != pair[1]
    assert min(pair) >= 0
    assert max(pair) < count


def test_the_last_draws_reach_the_last_hosts() -> None:
    assert pick_two(3, LAST_DRAW, LAST_DRAW) == (2, 1)
    assert pick_two(3, 0.0, LAST_DRAW) == (0, 2)


def test_the_less_loaded_of_the_two_is_chosen() -> None:
    hosts = [host() for _ in range(3)]
    hosts[1].start(0)
    assert choose(hosts, 0, 0.4, 0.0) == 0  # drawn: 1, then 0
    assert choose(hosts, 0, 0.0, 0.4) == 0  # drawn: 0, then 1
    assert choose(hosts, 0, 0.4, 0.9) == 2  # drawn: 1, then 2


def test_equal_loads_go_to_the_first_drawn() -> None:
    hosts = [host() for _ in range(2)]
    assert (choose(hosts, 0, 0.0, 0.0), choose(hosts, 0, 0.9, 0.0)) == (0, 1)


def test_a_host_that_was_never_asked_is_soon() -> None:
    """Its peak fades at once and that of the other in steps, which rounding must not tell apart."""
    rng = Random(1)
    for _ in range(1_000):
        hosts, now_us = [host(), host()], 0
        for _ in range(40):
            if choose(hosts, now_us, rng.random(), rng.random()) == 1:
                break
            hosts[0].start(now_us)
            hosts[0].succeed(now_us, now_us + rng.randrange(500, 15_000))
            now_us += 16_000
        else:
            raise AssertionError("forty calls in line, and none went there")


def test_a_single_host_needs_no_choice() -> None:
    assert choose([host()], 0, 0.99, 0.99) == 0


# The load of one host.


def test_load_is_latency_times_the_calls_in_flight_and_one() -> None:
    one = host(latency_us_start=1_000)
    assert one.load(0) == 1_000.0
    one.start(0)
    one.start(0)
    assert (one.load(0), one.inflight) == (3_000.0, 2)


def test_a_slow_answer_counts_at_once_and_is_forgiven_by_half_every_half_life() -> None:
    one = host(half_life_us=SECOND, latency_us_start=1)
    one.start(0)
    one.succeed(0, 8_000)
    assert one.load(8_000) == 8_000.0
    assert one.load(8_000 + SECOND) == pytest.approx(4_000.0)
    assert one.load(8_000 + 3 * SECOND) == pytest.approx(1_000.0)


def test_a_failure_counts_as_the_penalty_however_fast_it_came() -> None:
    one = host(penalty_us=5 * SECOND)
    one.start(0)
    one.fail(0, 10)
    assert one.load(10) == 5.0 * SECOND


def test_a_failure_that_took_longer_than_its_penalty_counts_as_long_as_it_took() -> None:
    one = host(penalty_us=100, latency_us_start=1)
    one.start(0)
    one.fail(0, 700)
    assert one.load(700) == 700.0


@pytest.mark.parametrize(
    ("asked_us", "counted_us"), [(2 * SECOND, 2 * SECOND), (10**12, 300 * SECOND)]
)
def test_the_servers_own_word_replaces_the_penalty_up_to_its_bound(
    asked_us: int, counted_us: int
) -> None:
    one = host()
    one.start(0)
    one.fail(0, 10, retry_after_us=asked_us)
    assert one.load(10) == float(counted_us)


def test_a_cancelled_call_says_nothing() -> None:
    one = host(latency_us_start=1_000)
    one.start(0)
    one.cancel(0)
    assert (one.load(0), one.inflight) == (1_000.0, 0)


def test_calls_that_do_not_come_back_make_a_host_look_as_slow_as_they_are_old() -> None:
    one = host(latency_us_start=1_000)
    one.start(0)
    one.start(4 * SECOND)
    assert one.load(10 * SECOND) == 8.0 * SECOND * 3  # 10 and 6 seconds old
    one.cancel(0)
    assert one.load(10 * SECOND) == 6.0 * SECOND * 2


def test_a_host_that_was_silent_for_ever_still_counts_its_calls_in_flight() -> None:
    one = host()
    one.start(0)
    one.succeed(0, 1_000)
    century = 100 * 365 * 86_400 * SECOND
    assert one.load(century) == 1.0
    one.start(century)
    assert one.load(century) == 2.0


def test_a_host_of_half_the_weight_looks_twice_as_loaded() -> None:
    whole, half = host(), host()
    half.set_weight(0.5)
    assert half.load(0) == 2 * whole.load(0)
    large = host()
    large.set_weight(WEIGHT_MAX)
    assert large.load(0) == whole.load(0) / 1_000_000


def test_a_host_that_starts_slowly_is_given_its_share() -> None:
    counts, rng = [0] * 4, Random(1)
    hosts = [host(latency_us_start=10_000) for _ in range(4)]
    hosts[0].set_weight(0.2)
    for _ in range(4_000):  # nothing ends: the counts in flight must follow the weights
        chosen = choose(hosts, 0, rng.random(), rng.random())
        hosts[chosen].start(0)
        counts[chosen] += 1
    assert counts[0] == pytest.approx(4_000 * 0.2 / 3.2, rel=0.05)


# Clocks and bad input.


def test_a_clock_that_goes_back_makes_nothing_younger_and_no_age_negative() -> None:
    one = host(latency_us_start=1_000)
    assert one.load(0) == 1_000.0
    one.start(10 * SECOND)
    assert one.load(0) == 2_000.0
    one.succeed(10 * SECOND, 0)  # an answer before its question: nothing to learn
    assert one.load(10 * SECOND) == 1_000.0
    one.start(10 * SECOND)
    one.fail(10 * SECOND, 15 * SECOND)
    assert one.load(0) == 5.0 * SECOND


@pytest.mark.parametrize("how", ["succeed", "fail", "cancel"])
def test_a_call_that_ends_twice_is_refused(how: str) -> None:
    one = host()
    one.start(0)
    one.cancel(0)
    with pytest.raises(ValueError, match="ended twice"):
        one.cancel(0) if how == "cancel" else getattr(one, how)(0, 1)
    assert one.inflight == 0


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf, 1_000_001.0])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        host().set_weight(weight)


@pytest.mark.parametrize("bad", [-0.1, 1.0, math.nan, math.inf])
def test_a_draw_out_of_range_is_refused(bad: float) -> None:
    for pair in ((bad, 0.0), (0.0, bad)):
        with pytest.raises(ValueError, match="draws"):
            pick_two(3, *pair)


@pytest.mark.parametrize("count", [0, 1])
def test_two_of_fewer_than_two_cannot_be_drawn(count: int) -> None:
    with pytest.raises(ValueError, match="count"):
        pick_two(count, 0.0, 0.0)
    if count == 0:
        with pytest.raises(ValueError, match="count"):
            choose([], 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"half_life_us": 0}, "half_life_us"),
        ({"latency_us_start": 0}, "latency_us_start"),
        ({"latency_us_start": (1 << 52) + 1}, "latency_us_start"),
        ({"penalty_us": -1}, "penalty_us"),
        ({"penalty_us": (1 << 52) + 1}, "penalty_us"),
        ({"penalty_us": 10, "penalty_us_max": 9}, "penalty_us_max"),
        ({"penalty_us_max": (1 << 52) + 1}, "penalty_us_max"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong} must be"):
        LoadSettings(**fields)


def test_out_of_the_box_a_new_host_counts_as_30_ms_and_forgets_half_in_five_seconds() -> None:
    one = host()
    assert one.load(5 * SECOND) == 30_000.0
    one.start(5 * SECOND)
    one.succeed(5 * SECOND, 5 * SECOND + 2_000)
    assert one.load(5 * SECOND + 2_000) == 2_000.0
    assert one.load(10 * SECOND + 2_000) == pytest.approx(1_000.0, rel=1e-9)


def answering(took_us: int, *, well: bool = True) -> HostLoad:
    one = host()
    one.start(0)
    if well:
        one.succeed(0, took_us)
    else:
        one.fail(0, took_us)
    return one


@pytest.mark.parametrize("back", [False, True], ids=["new", "taken back"])
def test_who_has_not_answered_yet_is_as_quick_as_the_other_and_no_slower_than_the_start(
    back: bool,
) -> None:
    one = answering(1_000, well=False) if back else host()
    if back:
        one.forget()
    at_us = SECOND // 10
    quick, slow, failing = answering(2_000), answering(90_000), answering(2_000, well=False)
    assert not one.is_above(quick, at_us)
    assert not quick.is_above(one, at_us)
    one.start(at_us)
    assert one.is_above(quick, at_us)
    assert not one.is_above(slow, at_us), "30 ms twice"
    one.start(at_us)
    assert one.is_above(slow, at_us)
    assert failing.is_above(one, at_us)
    one.succeed(at_us, at_us + 500)
    one.cancel(at_us)
    assert quick.is_above(one, at_us + 500)


def test_settings_at_the_ends_of_their_ranges_are_allowed() -> None:
    highest = LoadSettings(latency_us_start=1 << 52, penalty_us=1 << 52, penalty_us_max=1 << 52)
    lowest = LoadSettings(half_life_us=1, latency_us_start=1, penalty_us=0, penalty_us_max=0)
    assert (highest.latency_us_start, highest.penalty_us) == (1 << 52, 1 << 52)
    assert (lowest.latency_us_start, lowest.penalty_us, lowest.penalty_us_max) == (1, 0, 0)


class SlowHost:
    """The oracle: every latency ever seen and every start still open, looked through each time."""

    def __init__(self, half_life_us: int, start_us: int) -> None:
        self.half_life_us = half_life_us
        self.start_us = start_us
        self.samples: list[tuple[int, float]] = []
        self.open: list[int] = []

    def load(self, now_us: int) -> float:
        aged = [
            value * math.exp2((at_us - now_us) / self.half_life_us) for at_us, value in self.samples
        ]
        aged = aged or [float(self.start_us)]
        ages = [now_us - started_us for started_us in self.open]
        mean_age = sum(ages) / len(ages) if ages else 0.0
        return max(1.0, mean_age, *aged) * (len(self.open) + 1)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3_000_000),
            st.sampled_from(["start", "start", "good", "bad", "cancel"]),
            st.floats(0.0, 1.0, exclude_max=True),
            st.sampled_from([0, 0, 200_000, 900_000_000]),
        ),
        max_size=50,
    )
)
def test_it_knows_what_the_list_of_all_calls_knows(
    history: list[tuple[int, str, float, int]],
) -> None:
    one = host(half_life_us=2 * SECOND, latency_us_start=500, penalty_us=SECOND)
    oracle, now_us = SlowHost(2 * SECOND, 500), 0
    for gap_us, action, which, asked_us in history:
        now_us += gap_us
        if action == "start":
            one.start(now_us)
            oracle.open.append(now_us)
        elif oracle.open:
            started_us = oracle.open.pop(int(which * len(oracle.open)))
            took_us = now_us - started_us
            if action == "good":
                one.succeed(started_us, now_us)
                oracle.samples.append((now_us, took_us))
            elif action == "bad":
                one.fail(started_us, now_us, asked_us)
                penalty_us = min(asked_us or SECOND, 300 * SECOND)
                oracle.samples.append((now_us, max(took_us, penalty_us)))
            else:
                one.cancel(started_us)
        assert one.load(now_us) == pytest.approx(oracle.load(now_us), rel=1e-9)
        assert one.inflight == len(oracle.open)


# The simulation behind the table in the kernel's essay.


def calls_to_the_bad_host(bad_us: int, *, penalty_us: int, by_age: bool) -> int:
    """10 hosts, 1000 calls a second for 40 s; host 0 fails every call after `bad_us`."""
    rng, chosen = Random(1), LoadSettings(penalty_us=penalty_us)
    hosts = [HostLoad(chosen) for _ in range(10)]
    ends: list[tuple[int, int, int, int]] = []
    sent = 0

    def load(at: int, now_us: int) -> float:
        if by_age:
            return hosts[at].load(now_us)
        gap_us = now_us - hosts[at]._at_us
        return hosts[at]._peak_us * math.exp2(-gap_us / 5_000_000) * (hosts[at].inflight + 1)

    for call in range(40_000):
        now_us = call * 1_000
        while ends and ends[0][0] <= now_us:
            ended_us, _, at, started_us = heapq.heappop(ends)
            if at == 0:
                hosts[at].fail(started_us, ended_us)
            else:
                hosts[at].succeed(started_us, ended_us)
        first, second = pick_two(10, rng.random(), rng.random())
        at = second if load(second, now_us) < load(first, now_us) else first
        hosts[at].start(now_us)
        sent += at == 0
        took_us = bad_us if at == 0 else int(rng.expovariate(1 / 10_000)) + 1
        heapq.heappush(ends, (now_us + took_us, call, at, now_us))
    return sent


def test_a_host_that_fails_fast_draws_no_traffic_once_failures_are_penalised() -> None:
    assert calls_to_the_bad_host(1_000, penalty_us=0, by_age=True) > 7_500
    assert calls_to_the_bad_host(1_000, penalty_us=5 * SECOND, by_age=True) < 10


def test_a_host_that_hangs_is_seen_by_the_age_of_its_calls() -> None:
    assert calls_to_the_bad_host(30 * SECOND, penalty_us=5 * SECOND, by_age=False) > 100
    assert calls_to_the_bad_host(30 * SECOND, penalty_us=5 * SECOND, by_age=True) < 10
