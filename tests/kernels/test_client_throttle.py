from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.client_throttle import ThrottleSettings, ThrottleWindow, refuse_probability

SECOND = 1_000_000
HOUR = 3_600 * SECOND
ALMOST_ONE = 1 - 2**-53


def throttle(**settings: float) -> ThrottleWindow:
    """Ten buckets of a second, and no probes unless said."""
    chosen = {
        "history_us": 10 * SECOND,
        "buckets": 10,
        "requests_min": 1,
        "probe_us": 24 * HOUR,
    } | settings
    return ThrottleWindow(ThrottleSettings(**chosen))  # type: ignore[arg-type]


def ask(caller: ThrottleWindow, draw: float, now_us: int) -> bool:
    """Ask for a call that ends at once."""
    passed = caller.admit(draw, now_us)
    if passed:
        caller.record_end(now_us)
    return passed


@pytest.mark.parametrize(
    ("requests", "accepts", "multiplier", "probability"),
    [
        (0, 0, 2.0, 0.0),
        (100, 100, 2.0, 0.0),
        (100, 50, 2.0, 0.0),
        (99, 25, 2.0, 0.49),
        (99, 0, 2.0, 0.99),
        (99, 49, 1.0, 0.5),
        (10, 20, 1.0, 0.0),
    ],
)
def test_the_formula(requests: int, accepts: int, multiplier: float, probability: float) -> None:
    assert refuse_probability(requests, accepts, multiplier) == pytest.approx(probability)


def test_while_everything_is_accepted_everything_passes() -> None:
    caller = throttle()
    for at in range(1_000):
        assert ask(caller, 0.0, at)
        caller.record_accept(at)


def test_a_call_is_refused_when_the_draw_is_below_the_probability() -> None:
    for draw, passed in ((0.49, True), (0.489, False)):
        caller = throttle()
        for _ in range(99):
            ask(caller, ALMOST_ONE, 0)
        for _ in range(25):
            caller.record_accept(0)
        assert ask(caller, draw, 0) is passed


def test_calls_refused_here_count_as_requests() -> None:
    caller = throttle()
    passed = [ask(caller, 0.5, 0) for _ in range(100)]
    assert caller.counts(0) == (100, 0)
    assert passed == [True] * 2 + [False] * 98  # 0/1, 1/2: the draw is not below; 2/3: it is


def test_calls_under_way_are_no_refusals_until_they_have_ended() -> None:
    caller = throttle()
    assert all(caller.admit(0.0, 0) for _ in range(1_000))
    assert caller.counts(0) == (0, 0)
    for _ in range(1_000):
        caller.record_end(1)
    assert not caller.admit(0.99, 1)


def test_below_the_least_number_of_requests_nothing_is_refused() -> None:
    caller = throttle(requests_min=10)
    assert [ask(caller, 0.0, 0) for _ in range(12)] == [True] * 10 + [False] * 2


def test_what_is_older_than_the_history_is_forgotten_a_bucket_at_a_time() -> None:
    caller = throttle()
    for second in range(10):
        ask(caller, ALMOST_ONE, second * SECOND)
        caller.record_accept(second * SECOND + SECOND - 1)
    assert caller.counts(10 * SECOND - 1) == (10, 10)
    assert caller.counts(10 * SECOND) == (9, 9)
    assert caller.counts(18 * SECOND) == (1, 1)
    assert caller.counts(19 * SECOND) == (0, 0)
    assert caller.counts(HOUR) == (0, 0)


@pytest.mark.parametrize("silence_s", [10, 11, 19, 20, 3_600])
def test_a_silence_longer_than_the_history_forgets_everything(silence_s: int) -> None:
    caller = throttle()
    for second in range(10):
        ask(caller, ALMOST_ONE, second * SECOND)
    assert caller.counts((9 + silence_s) * SECOND) == (0, 0)


def test_one_call_passes_every_probe_time_whatever_the_draw() -> None:
    caller = throttle(probe_us=2 * SECOND)
    passed = [at for at in range(100) if ask(caller, 0.0, at * SECOND // 10)]
    # The first of all; afterwards 2 s after the last that passed.
    assert passed == [0, 20, 40, 60, 80]


def test_a_call_that_passes_by_its_draw_puts_the_probe_off() -> None:
    caller = throttle(probe_us=2 * SECOND)
    for _ in range(50):
        ask(caller, 0.0, 0)
    assert ask(caller, ALMOST_ONE, SECOND)
    assert not ask(caller, 0.0, 3 * SECOND - 1)
    assert ask(caller, 0.0, 3 * SECOND)


def test_while_the_service_says_that_it_has_too_much_less_is_sent_of_what_it_accepts() -> None:
    """10 of 20 accepted: two for each pass, and one and a half do not."""
    caller = throttle(probe_us=HOUR, told_us=SECOND)
    for _ in range(10):
        ask(caller, 0.0, 0)
        caller.record_accept(0)
        caller.record_end(0)
    assert caller.counts(0) == (20, 10)
    caller.record_told(0)
    edge = 5 / 21
    assert not ask(caller, edge - 1e-6, SECOND - 1)
    assert caller.counts(SECOND - 1) == (21, 10)
    assert ask(caller, 1 / 22, SECOND), "it has not said so for a second"


def test_a_multiplier_that_is_less_already_stays() -> None:
    caller = throttle(probe_us=HOUR, multiplier=1.0, multiplier_told=1.5)
    for _ in range(10):
        ask(caller, 0.0, 0)
        caller.record_accept(0)
        caller.record_end(0)
    caller.record_told(0)
    assert not ask(caller, 10 / 21 - 1e-6, 0)


def test_a_clock_that_goes_back_forgets_nothing_and_lets_time_go_on_from_there() -> None:
    caller = throttle(probe_us=2 * SECOND)
    for _ in range(100):
        ask(caller, 0.0, HOUR)
    assert caller.counts(0) == (100, 0)
    assert not ask(caller, 0.0, SECOND)
    assert ask(caller, 0.0, 2 * SECOND)
    assert caller.counts(10 * SECOND - 1) == (102, 0)
    assert caller.counts(10 * SECOND) == (2, 0)


def outage(history_us: int, probe_us: int) -> tuple[int, float]:
    """Calls sent in vain into 60 s without any acceptance, and seconds to 90% afterwards."""
    caller = ThrottleWindow(ThrottleSettings(history_us=history_us, probe_us=probe_us))
    chance = random.Random(1)
    in_vain = 0
    recent: list[bool] = []
    for number in range(1_000_000):
        now_us = number * SECOND // 100
        passed = ask(caller, chance.random(), now_us)
        if 60 * SECOND <= now_us < 120 * SECOND:
            in_vain += passed
        elif passed:
            caller.record_accept(now_us)
        if now_us >= 120 * SECOND:
            recent.append(passed)
            if sum(recent[-100:]) >= 90:
                return in_vain, len(recent) / 100 - 1
    raise AssertionError("it never recovered")


@pytest.mark.parametrize(
    ("history_s", "in_vain", "recovery_s", "without_probes_s"),
    [(5, 427, 15, 28), (10, 783, 34, 45), (30, 2_241, 82, 130)],
)
def test_a_short_history_reacts_and_recovers_sooner_and_so_do_probes(
    history_s: int, in_vain: int, recovery_s: float, without_probes_s: float
) -> None:
    sent, seconds = outage(history_s * SECOND, SECOND)
    assert (sent, round(seconds)) == (in_vain, recovery_s)
    assert round(outage(history_s * SECOND, 24 * HOUR)[1]) == without_probes_s


def test_a_service_far_above_its_capacity_refuses_about_one_call_for_each_it_accepts() -> None:
    caller = ThrottleWindow()
    chance = random.Random(1)
    accepted = refused = 0
    for number in range(60_000):
        now_us = number * SECOND // 1_000
        if not ask(caller, chance.random(), now_us):
            continue
        if accepted < now_us // (SECOND // 100):  # it can do 100/s of the 1,000/s asked
            caller.record_accept(now_us)
            accepted += 1
        elif now_us > 20 * SECOND:
            refused += 1
    assert accepted > 5_900
    assert 0.8 < refused / 4_000 < 1.2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"buckets": 1}, "buckets must be from 2 to 1000, not 1"),
        ({"buckets": 1_001}, "buckets must be from 2 to 1000, not 1001"),
        ({"history_us": 9}, "history_us must be from 10 to"),
        ({"history_us": 24 * HOUR + 1}, "history_us must be from 10 to"),
        ({"multiplier": 0.99}, "multiplier must be from 1 to 1000"),
        ({"multiplier": float("inf")}, "multiplier must be from 1 to 1000"),
        ({"multiplier": float("nan")}, "multiplier must be from 1 to 1000"),
        ({"requests_min": 0}, "requests_min must be from 1, not 0"),
        ({"probe_us": 0}, "probe_us must be from 1"),
        ({"probe_us": 24 * HOUR + 1}, "probe_us must be from 1"),
    ],
)
def test_settings_outside_their_range_are_refused(
    settings: dict[str, float], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        throttle(**settings)


@pytest.mark.parametrize("draw", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_draw_that_is_none_is_refused_and_counts_for_nothing(draw: float) -> None:
    caller = throttle()
    with pytest.raises(ValueError, match="draw must be from 0 to below 1"):
        ask(caller, draw, 0)
    assert caller.counts(0) == (0, 0)


class SlowThrottle:
    """The oracle: a list of every instant, counted anew for every call."""

    def __init__(
        self, history_us: int, buckets: int, multiplier: float, requests_min: int, probe_us: int
    ) -> None:
        self.history_us = history_us
        self.buckets = buckets
        self.multiplier = multiplier
        self.requests_min = requests_min
        self.probe_us = probe_us
        self.requests_us: list[int] = []
        self.accepts_us: list[int] = []
        self.passed_us: list[int] = []

    def bucket(self, at_us: int) -> int:
        return at_us * self.buckets // self.history_us

    def within(self, instants_us: list[int], now_us: int) -> int:
        oldest = self.bucket(now_us) - self.buckets + 1
        return sum(self.bucket(at_us) >= oldest for at_us in instants_us)

    def admit(self, draw: float, now_us: int) -> bool:
        requests = self.within(self.requests_us, now_us)
        accepts = self.within(self.accepts_us, now_us)
        self.requests_us.append(now_us)
        probability = max(0.0, (requests - self.multiplier * accepts) / (requests + 1))
        if (
            requests < self.requests_min
            or draw >= probability
            or all(at_us <= now_us - self.probe_us for at_us in self.passed_us)
        ):
            self.passed_us.append(now_us)
            return True
        return False


@given(
    st.integers(20, 200),
    st.integers(2, 20),
    st.sampled_from([1.0, 1.5, 2.0]),
    st.integers(1, 5),
    st.integers(1, 100),
    st.lists(
        st.tuples(
            st.integers(-20, 40), st.booleans(), st.floats(0, 1, exclude_max=True), st.booleans()
        ),
        max_size=80,
    ),
)
def test_it_passes_what_the_slow_throttle_passes(
    history_us: int,
    buckets: int,
    multiplier: float,
    requests_min: int,
    probe_us: int,
    moves: list[tuple[int, bool, float, bool]],
) -> None:
    caller = ThrottleWindow(
        ThrottleSettings(
            history_us=history_us,
            buckets=buckets,
            multiplier=multiplier,
            requests_min=requests_min,
            probe_us=probe_us,
        )
    )
    oracle = SlowThrottle(history_us, buckets, multiplier, requests_min, probe_us)
    told_us = passed_us = 0
    for gap_us, asks, draw, accept in moves:
        told_us += gap_us
        passed_us += max(0, gap_us)
        if asks:
            assert ask(caller, draw, told_us) == oracle.admit(draw, passed_us)
        elif accept:
            caller.record_accept(told_us)
            oracle.accepts_us.append(passed_us)
        assert caller.counts(told_us) == (
            oracle.within(oracle.requests_us, passed_us),
            oracle.within(oracle.accepts_us, passed_us),
        )
