from __future__ import annotations

import random
import sys
import threading

import pytest

from headgate import Algorithm, BadValue, Limit, Limiter
from headgate.kernels.verdict import NEVER
from headgate.testing import HandClock

SECOND = 1_000_000


def test_a_key_is_admitted_up_to_its_limit_and_told_when_to_return() -> None:
    clock = HandClock()
    limiter = Limiter("3/minute", clock=clock)
    decisions = [limiter.take("user:1") for _ in range(4)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False]
    refused = decisions[-1]
    assert refused.reason is not None
    assert (refused.reason.name, refused.rule_id) == ("rate_limited", "3/minute")
    clock.advance(us=refused.retry_after_us - 1)
    assert not limiter.take("user:1")
    clock.advance(us=1)
    assert limiter.take("user:1")


def test_keys_do_not_pay_for_each_other() -> None:
    limiter = Limiter("1/minute", clock=HandClock())
    assert limiter.take("alice")
    assert limiter.take("bob")
    assert not limiter.take("alice")


def test_costs_are_weighed() -> None:
    limiter = Limiter("10/minute", clock=HandClock())
    assert limiter.take("a", cost=8).remaining == 2
    assert not limiter.take("a", cost=8)
    assert limiter.take("a", 2)
    assert limiter.take("a", cost=11).retry_after_us == NEVER


def test_a_rule_can_come_with_the_call_and_is_counted_apart() -> None:
    limiter = Limiter(clock=HandClock())
    assert limiter.take("a", rule="1/minute")
    assert not limiter.take("a", rule="1/minute")
    assert limiter.take("a", rule="10/s burst 20").remaining == 19
    assert limiter.take("a", rule=Limit(5, SECOND)).remaining == 4


def test_two_spellings_of_one_limit_share_its_state() -> None:
    limiter = Limiter(clock=HandClock())
    assert limiter.take("a", rule="1/minute")
    assert not limiter.take("a", rule="1 per 60s")
    assert not limiter.take("a", rule=Limit(1, 60 * SECOND))


def test_named_rules_have_keys_of_their_own_even_at_one_rate() -> None:
    limiter = Limiter(rules={"read": "1/minute", "write": "1/minute"}, clock=HandClock())
    assert limiter.take("a", rule="read").rule_id == "read"
    assert not limiter.take("a", rule="read")
    assert limiter.take("a", rule="write")
    assert limiter.take("a", rule="1/minute")
    assert (limiter.keys_tracked("read"), limiter.keys_tracked("1/minute")) == (1, 1)


def test_a_bad_named_rule_is_named() -> None:
    with pytest.raises(BadValue, match=r"^rules\.login: 'often' cannot be used"):
        Limiter(rules={"login": "often"})
    with pytest.raises(BadValue, match=r"^rules: '1/s' .* without a slash"):
        Limiter(rules={"1/s": "1/s"})


def test_a_limiter_tells_how_many_keys_it_tracks() -> None:
    limiter = Limiter("1/minute", clock=HandClock())
    for key in "abc":
        limiter.take(key)
    assert limiter.keys_tracked() == 3
    with pytest.raises(BadValue, match="rule: None"):
        Limiter().keys_tracked()


@pytest.mark.parametrize("algorithm", [member.value for member in Algorithm])
def test_every_algorithm_goes_by_its_name(algorithm: str) -> None:
    limiter = Limiter("5/minute", algorithm=algorithm, clock=HandClock())
    assert sum(bool(limiter.take("a")) for _ in range(9)) == 5


def test_the_same_rate_by_two_algorithms_is_counted_apart() -> None:
    limiter = Limiter("1/minute", clock=HandClock())
    window = Limit(1, 60 * SECOND, algorithm=Algorithm.FIXED_WINDOW)
    assert limiter.take("a")
    decision = limiter.take("a", rule=window)
    assert (decision.allowed, decision.rule_id) == (True, "1/minute by fixed_window")


def test_the_real_clock_is_the_default() -> None:
    limiter = Limiter("1/hour")
    assert limiter.take("a")
    assert 0 < limiter.take("a").retry_after_us <= 3_600 * SECOND


# Bad input.


@pytest.mark.parametrize(
    "cost", [-1, 1.5, float("nan"), float("inf"), "3", None, (1 << 53) + 1, [1]]
)
def test_a_cost_that_is_no_whole_number_is_named(cost: object) -> None:
    limiter = Limiter("10/minute", clock=HandClock())
    with pytest.raises(BadValue, match=r"^cost: .* give a whole number from 0 to 2\^53$"):
        limiter.take("a", cost=cost)  # type: ignore[arg-type]
    assert limiter.take("a", cost=0).remaining == 10


def test_whatever_says_it_is_a_whole_number_is_one() -> None:
    class Tokens:
        def __index__(self) -> int:
            return 3

    assert Limiter("10/minute", clock=HandClock()).take("a", cost=Tokens()).remaining == 7


def test_a_cost_at_two_to_the_53_is_counted_exactly() -> None:
    limiter = Limiter(f"{1 << 53}/s", clock=HandClock())
    assert limiter.take("a", cost=(1 << 53) - 1).remaining == 1
    assert limiter.take("a").remaining == 0
    assert not limiter.take("a")


def test_a_key_of_ten_megabytes_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(BadValue, match="use a hash of it") as error:
        Limiter("1/s").take("x" * 10_000_000)
    assert len(str(error.value)) < 300


def test_a_key_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Limiter("1/s").take(42)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["", "0/s", "fast", "1/parsec"])
def test_a_bad_rule_is_named_at_once(rule: str) -> None:
    with pytest.raises(BadValue, match=r"^rule: "):
        Limiter(rule)
    with pytest.raises(BadValue, match=r"^rule: "):
        Limiter().take("a", rule=rule)


def test_a_take_without_any_rule_says_where_to_give_one() -> None:
    with pytest.raises(BadValue, match=r'rule: None .* rule="100/minute"'):
        Limiter().take("a")


def test_bad_settings_are_named() -> None:
    with pytest.raises(BadValue, match="keys_max: 0"):
        Limiter("1/s", keys_max=0)
    with pytest.raises(BadValue, match="rules_max: 0"):
        Limiter("1/s", rules_max=0)
    with pytest.raises(BadValue, match=r"algorithm: 'magic' .* gcra, token_bucket"):
        Limiter("1/s", algorithm="magic")


def test_rules_that_vary_with_each_request_are_stopped_at_their_bound() -> None:
    limiter = Limiter(rules_max=10, clock=HandClock())
    for n in range(1, 11):
        limiter.take("a", rule=f"{n}/s")
    with pytest.raises(BadValue, match="10 rules are in use already"):
        limiter.take("a", rule="11/s")
    assert limiter.take("b", rule="10/s")
    # Spellings of a known rule are remembered up to a bound, and understood beyond it.
    for n in range(100):
        assert limiter.take(f"c{n}", rule="10/s" + " " * n)


def test_a_clock_going_backwards_admits_nothing_extra() -> None:
    clock = HandClock()
    limiter = Limiter("10/s", clock=clock)
    admitted = 0
    draw = random.Random(5)
    for _ in range(2_000):
        if draw.random() < 0.5:
            clock.go_back(us=draw.randrange(3 * SECOND))
        else:
            clock.advance(us=draw.randrange(SECOND))
        admitted += limiter.take("a").allowed
    # The clock never passes a few seconds beyond its start, however often it went to and fro.
    highest_s = max(1, (clock.now_us() - 10**15) // SECOND + 60)
    assert admitted <= 10 + 10 * highest_s


def test_a_limiter_with_a_bound_of_one_key_still_limits() -> None:
    limiter = Limiter("2/minute", keys_max=1, clock=HandClock())
    assert sum(bool(limiter.take("a")) for _ in range(5)) == 2
    others = [limiter.take(f"other:{n}") for n in range(50)]
    assert sum(decision.allowed for decision in others) == 2
    assert not limiter.take("a")


# Threads.


def test_threads_together_are_admitted_exactly_the_limit() -> None:
    limiter = Limiter("20/hour", clock=HandClock(), keys_max=500)
    keys = [f"user:{n}" for n in range(400)]
    admitted = [0] * 8
    barrier = threading.Barrier(8)

    def hammer(thread: int) -> None:
        barrier.wait()
        for key in keys:
            for _ in range(8):
                admitted[thread] += limiter.take(key).allowed

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # at this pace others lose counts within a second
    try:
        threads = [threading.Thread(target=hammer, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(admitted) == 400 * 20
