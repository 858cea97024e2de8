from __future__ import annotations

import random
import sys
import threading

import pytest

from sluicegate import Algorithm, BadValue, Claim, Limit, Limiter
from sluicegate.kernels.verdict import NEVER
from sluicegate.testing import HandClock

SECOND = 1_000_000

every_algorithm = pytest.mark.parametrize("algorithm", [member.value for member in Algorithm])


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
    assert limiter.take("a", rule=Limit(5, period_us=SECOND)).remaining == 4


def test_two_spellings_of_one_limit_share_its_state() -> None:
    limiter = Limiter(clock=HandClock())
    assert limiter.take("a", rule="1/minute")
    assert not limiter.take("a", rule="1 per 60s")
    assert not limiter.take("a", rule=Limit(1, period_us=60 * SECOND))


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


def test_an_unknown_name_lists_the_rules_there_are() -> None:
    limiter = Limiter(rules={"login": "5/minute", "api": "9/s"})
    with pytest.raises(BadValue, match=r"^rule: 'signin' .* \(there are: 'api', 'login'\); write"):
        limiter.take("a", rule="signin")
    with pytest.raises(BadValue, match=r"there are: none"):
        Limiter().take("a", rule="signin")
    many = Limiter(rules={f"r{number}": "1/s" for number in range(99)})
    with pytest.raises(BadValue, match=r"'r0', .* and 89 more\)"):
        many.take("a", rule="r100")
    with pytest.raises(BadValue, match=r"no unit"):
        limiter.take("a", rule="5/fortnight")


def test_a_limiter_tells_how_many_keys_it_tracks() -> None:
    limiter = Limiter("1/minute", clock=HandClock())
    for key in "abc":
        limiter.take(key)
    assert limiter.keys_tracked() == 3
    with pytest.raises(BadValue, match="rule: None"):
        Limiter().keys_tracked()


@every_algorithm
def test_every_algorithm_goes_by_its_name(algorithm: str) -> None:
    limiter = Limiter("5/minute", algorithm=algorithm, clock=HandClock())
    assert sum(bool(limiter.take("a")) for _ in range(9)) == 5


def test_the_same_rate_by_two_algorithms_is_counted_apart() -> None:
    limiter = Limiter("1/minute", clock=HandClock())
    window = Limit(1, period_us=60 * SECOND, algorithm=Algorithm.FIXED_WINDOW)
    assert limiter.take("a")
    decision = limiter.take("a", rule=window)
    assert (decision.allowed, decision.rule_id) == (True, "1/minute by fixed_window")


def test_the_real_clock_is_the_default() -> None:
    limiter = Limiter("1/hour")
    assert limiter.take("a")
    assert 0 < limiter.take("a").retry_after_us <= 3_600 * SECOND


# Looking, giving back, charging, forgetting.


@every_algorithm
def test_a_peek_tells_what_a_take_would_and_takes_nothing(algorithm: str) -> None:
    limiter = Limiter("5/minute", algorithm=algorithm, clock=HandClock())
    assert limiter.peek("a").remaining == 4
    assert limiter.peek("a", 6).retry_after_us == NEVER
    limiter.take("a", 4)
    assert limiter.peek("a", 2) == limiter.peek("a", 2)
    assert limiter.peek("a", 2).retry_after_us == limiter.take("a", 2).retry_after_us
    assert limiter.take("a", 1)


@every_algorithm
def test_what_is_refunded_can_be_taken_again_and_no_more(algorithm: str) -> None:
    limiter = Limiter("5/minute", algorithm=algorithm, clock=HandClock())
    limiter.take("a", 5)
    limiter.refund("a", 2)
    assert limiter.take("a", 2)
    assert not limiter.take("a")
    limiter.refund("a", 1_000)
    assert limiter.peek("a", 0).remaining == 5
    limiter.refund("never seen")
    assert limiter.keys_tracked() == 1


@every_algorithm
def test_work_that_is_done_is_charged_whether_it_fits_or_not(algorithm: str) -> None:
    clock = HandClock()
    limiter = Limiter("5/minute", algorithm=algorithm, clock=clock)
    limiter.charge("a", 3)
    assert limiter.peek("a", 0).remaining == 2
    limiter.charge("a", 1_000_000)
    assert not limiter.take("a")
    clock.advance(s=180)  # a debt is one burst at most, so this is enough for every algorithm
    assert limiter.take("a", 5)


@every_algorithm
def test_a_reset_forgets_one_key_and_no_other(algorithm: str) -> None:
    limiter = Limiter("1/minute", algorithm=algorithm, clock=HandClock())
    limiter.take("a")
    limiter.take("b")
    limiter.reset("a")
    limiter.reset("never seen")
    assert limiter.keys_tracked() == 1
    assert limiter.take("a")
    assert not limiter.take("b")


# Reserve and settle.


def test_an_estimate_is_settled_with_the_true_cost_once() -> None:
    limiter = Limiter("1000/minute", clock=HandClock())
    reservation = limiter.reserve("a", 400)
    assert reservation
    assert reservation.settle(150)
    assert limiter.peek("a", 0).remaining == 850
    assert not reservation.settle(0)
    assert not reservation.cancel()
    assert limiter.peek("a", 0).remaining == 850


def test_a_true_cost_above_the_estimate_is_charged_too() -> None:
    limiter = Limiter("1000/minute", clock=HandClock())
    assert limiter.reserve("a", 400).settle(900)
    assert limiter.peek("a", 0).remaining == 100


def test_a_block_that_fails_gives_its_estimate_back() -> None:
    limiter = Limiter("1000/minute", clock=HandClock())
    with pytest.raises(RuntimeError, match="no luck"), limiter.reserve("a", 400):
        raise RuntimeError("no luck")
    assert limiter.peek("a", 0).remaining == 1000
    with limiter.reserve("a", 400):
        pass
    assert limiter.peek("a", 0).remaining == 600


def test_a_refused_reservation_has_nothing_to_settle() -> None:
    limiter = Limiter("10/minute", clock=HandClock())
    reservation = limiter.reserve("a", 11)
    assert not reservation
    assert not reservation.settle(3)
    assert limiter.peek("a", 0).remaining == 10


# Several limits at once.


def test_a_refused_request_takes_nothing_from_any_limit() -> None:
    clock = HandClock()
    limiter = Limiter("1/minute; 10/hour", clock=clock)
    assert sum(limiter.take("a").allowed for _ in range(5)) == 1
    clock.advance(s=60)
    # Four refusals did not eat the hour: it has given one, and by now regained a sixth of one.
    assert limiter.peek("a").rule_id == "1/minute; 10/hour: 1/minute"
    admitted = 0
    for _ in range(9):
        admitted += limiter.take("a").allowed
        clock.advance(s=60)
    assert admitted == 9


def test_the_binding_limit_speaks_for_all() -> None:
    limiter = Limiter("5/s; 3/hour", clock=HandClock())
    allowed = limiter.take("a")
    assert (allowed.remaining, allowed.rule_id) == (2, "5/second; 3/hour: 3/hour")
    limiter.take("a", 2)
    refused = limiter.take("a")
    assert refused.retry_after_us == 1_200 * SECOND
    assert limiter.take("a", 4).retry_after_us == NEVER


def test_claims_on_different_keys_are_taken_all_or_none() -> None:
    limiter = Limiter(rules={"user": "2/minute", "address": "3/minute"}, clock=HandClock())

    def ask(user: str) -> bool:
        return limiter.take_all(Claim(user, "user"), Claim("10.0.0.1", "address")).allowed

    assert [ask("ann"), ask("ann"), ask("ann")] == [True, True, False]
    assert [ask("bob"), ask("bob")] == [True, False]
    # Refused by the address: bob's own limit still has what that refusal did not take.
    assert limiter.peek("bob", 0, "user").remaining == 1


def test_requests_and_tokens_are_claimed_together() -> None:
    limiter = Limiter(clock=HandClock())
    decision = limiter.take_all(Claim("ann", "60/minute"), Claim("ann", "10000/minute", cost=4_000))
    assert decision
    refused = limiter.take_all(Claim("ann", "60/minute"), Claim("ann", "10000/minute", cost=7_000))
    assert refused.rule_id == "10000/minute"
    assert limiter.peek("ann", 0, "60/minute").remaining == 59


def test_two_claims_on_one_key_are_one_claim_of_both() -> None:
    limiter = Limiter(rules={"r": "3/minute"}, clock=HandClock())
    assert not limiter.take_all(Claim("a", "r", 2), Claim("a", "r", 2))
    assert limiter.take_all(Claim("a", "r", 2), Claim("a", "r", 1))
    assert limiter.peek("a", 0, "r").remaining == 0


def test_a_claim_that_finds_no_room_in_a_full_table_gives_the_others_back() -> None:
    limiter = Limiter(rules={"wide": "9/minute", "full": "1/minute"}, keys_max=1, clock=HandClock())
    limiter.take("first", rule="full")
    assert limiter.take_all(Claim("a", "wide"), Claim("b", "full"))  # from the overflow
    refused = limiter.take_all(Claim("a", "wide"), Claim("c", "full"))
    assert refused.reason is not None
    assert refused.reason.name == "keys_exhausted"
    assert limiter.peek("a", 0, "wide").remaining == 8


def test_the_number_of_claims_is_bounded() -> None:
    limiter = Limiter("1/s")
    with pytest.raises(BadValue, match="claims: 0"):
        limiter.take_all()
    with pytest.raises(BadValue, match="claims: 65"):
        limiter.take_all(*[Claim("a")] * 65)


def test_threads_that_claim_in_opposite_orders_do_not_wait_for_each_other() -> None:
    limiter = Limiter(rules={"x": "1000/hour", "y": "1000/hour"}, clock=HandClock())
    admitted = [0, 0]

    def claim(thread: int, *names: str) -> None:
        for _ in range(2_000):
            admitted[thread] += limiter.take_all(*(Claim("k", name) for name in names)).allowed

    threads = [
        threading.Thread(target=claim, args=(0, "x", "y"), daemon=True),
        threading.Thread(target=claim, args=(1, "y", "x"), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert sum(admitted) == 1_000
    assert limiter.peek("k", 0, "x").remaining == limiter.peek("k", 0, "y").remaining == 0


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


def test_a_key_of_ten_megabytes_is_limited_like_any_other() -> None:
    limiter = Limiter("1/s", clock=HandClock())
    long = "x" * 10_000_000
    assert limiter.take(long)
    assert not limiter.take(long)
    assert limiter.take(long + "y")


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
