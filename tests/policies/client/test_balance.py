from __future__ import annotations

import heapq
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.client.balance import Balance, BalancePermit, BalanceSettings
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.outlier import Outlier, OutlierSettings
from sluicegate.testing import SeededChance

S = 1_000_000
HOSTS = [f"h{n}" for n in range(10)]
OFF = OutlierSettings(
    failures_in_row=0, failure_percent=0, deviations=0.0, throughput_percent=0, latency_ratio=0.0
)


def balance(
    hosts: list[str] = HOSTS, *, eject: bool = True, settings: OutlierSettings | None = None
) -> Balance:
    chance = SeededChance(5)
    chosen = settings if settings is not None else (OutlierSettings() if eject else OFF)
    return Balance(hosts, chance, None, Outlier(hosts, chance, chosen))


def simulated(
    policy: Balance,
    seconds: int,
    per_s: int,
    bad: str,
    kind: ResultKind,
    took_us: int,
    good_us: int,
) -> Counter[str]:
    """How many calls went to each host."""
    calls: Counter[str] = Counter()
    ends: list[tuple[int, int, BalancePermit, ResultKind]] = []
    for n in range(seconds * per_s):
        now_us = n * S // per_s
        while ends and ends[0][0] <= now_us:
            at_us, _, ended, how = heapq.heappop(ends)
            assert ended.end_with(CallResult(how), at_us)
        permit = policy.admit(Request(f"k{n}"), now_us)
        assert isinstance(permit, BalancePermit)
        calls[permit.host] += 1
        if permit.host == bad:
            heapq.heappush(ends, (now_us + took_us, n, permit, kind))
        else:
            heapq.heappush(ends, (now_us + good_us, n, permit, ResultKind.OK))
    assert policy.stats().inflight == len(ends)
    for at_us, _, ended, how in sorted(ends, key=lambda end: end[:2]):
        assert ended.end_with(CallResult(how), at_us)
    assert policy.stats().inflight == 0
    return calls


@pytest.mark.parametrize("eject", [True, False])
def test_a_host_that_fails_fast_is_no_black_hole(eject: bool) -> None:
    calls = simulated(balance(eject=eject), 20, 500, "h3", ResultKind.FAILED, 1_000, 10_000)
    assert calls["h3"] < 20, "an even share is 1,000, and fast failures would draw 2,000"


@pytest.mark.parametrize("eject", [True, False])
def test_a_slow_host_gets_little(eject: bool) -> None:
    calls = simulated(balance(eject=eject), 20, 500, "h3", ResultKind.OK, 100_000, 10_000)
    assert calls["h3"] < 200
    assert min(calls[host] for host in HOSTS if host != "h3") > 800


def doubting(**settings: int) -> Balance:
    """A group of which `h3` has just failed, with calls enough before."""
    policy = balance(settings=OutlierSettings(**settings))
    for n in range(1_200):
        policy.outlier.record(HOSTS[n % 10], CallResult(ResultKind.OK), 1_000, "", n * 1_000)
    now_us = 1_200_000
    policy.outlier.sweep(now_us)
    fail(policy, "h3", now_us)
    return policy


def fail(policy: Balance, host: str, now_us: int) -> None:
    others = [name for name in HOSTS if name != host]
    permit = policy.admit(Request(""), now_us, others)
    assert isinstance(permit, BalancePermit)
    permit.end_with(CallResult(ResultKind.FAILED), now_us + 1_000)


def picked(policy: Balance, now_us: int, criticality: Criticality, avoid: list[str]) -> list[str]:
    permits = [policy.admit(Request("", criticality=criticality), now_us, avoid) for _ in range(20)]
    return [permit.host for permit in permits if isinstance(permit, BalancePermit)]


def test_a_host_that_has_failed_is_given_one_call_soon_to_show_whether_it_fails() -> None:
    policy, after_us = doubting(), 1_201_000
    degraded = Criticality.DEGRADED
    assert "h3" not in picked(policy, after_us + 49_999, degraded, [])
    assert "h3" not in picked(policy, after_us + 50_000, Criticality.CRITICAL, [])
    assert "h3" not in picked(policy, after_us + 50_000, degraded, ["h4"]), (
        "a repeat finds out less"
    )
    assert picked(policy, after_us + 50_000, degraded, []).count("h3") == 1
    assert "h3" not in picked(policy, after_us + 900_000, degraded, []), "its answer is waited for"


def test_a_doubt_ends_with_a_success_that_began_after_the_failure() -> None:
    policy = doubting()
    good = CallResult[object](ResultKind.OK)
    policy.outlier.record("h3", good, 500_000, "", 1_210_000)
    assert policy.outlier.next_probe(1_300_000) == "h3", "that call began before"
    policy.outlier.record("h3", good, 50_000, "", 1_310_000)
    assert policy.outlier.next_probe(9_000_000) == ""


@pytest.mark.parametrize(
    "settings", [{"probe_us": 0}, {"probe_calls_min": 1_201}, {"failures_in_row": 0}]
)
def test_nobody_is_sent_to_a_doubted_host_for_what_would_not_be_found_out(
    settings: dict[str, int],
) -> None:
    """Of few calls five are too many to spend; and without the rule nothing comes of them."""
    assert doubting(**settings).outlier.next_probe(2_000_000) == ""


def test_a_host_that_fails_late_is_not_asked_to_show_it() -> None:
    policy = doubting()
    late: CallResult[object] = CallResult(ResultKind.TIMED_OUT)
    policy.outlier.record("h3", late, 250_001, "", 1_500_000)
    assert policy.outlier.next_probe(2_000_000) == ""


def test_a_doubted_host_that_stays_for_want_of_room_is_not_asked_for_ever() -> None:
    policy = doubting(ejected_percent_max=0)
    asked = 1
    for now_us in range(1_300_000, 9_000_000, 10_000):
        if policy.outlier.next_probe(now_us):
            fail(policy, "h3", now_us)
            asked += 1
    assert asked == 10


def test_a_host_that_refuses_gets_little_and_is_not_ejected() -> None:
    policy = balance()
    calls = simulated(policy, 20, 500, "h3", ResultKind.OVERLOADED, 1_000, 10_000)
    assert calls["h3"] < 20
    assert policy.outlier.stats().ejections == 0


def test_equal_hosts_get_equal_shares() -> None:
    calls = simulated(balance(), 20, 500, "", ResultKind.OK, 0, 10_000)
    assert len(calls) == 10
    assert max(calls.values()) < 1.3 * min(calls.values())


def test_who_is_ejected_gets_nothing_until_it_is_taken_back_and_then_little_at_first() -> None:
    policy = balance()
    for n in range(10):
        policy.outlier.record("h3", CallResult(ResultKind.FAILED), 1, f"k{n}", 0)
    policy.outlier.sweep(S)
    until_us = policy.outlier.standing("h3").until_us
    calls: Counter[str] = Counter()
    for n in range(2000):
        permit = policy.admit(Request("k"), S + n * 1_000)
        assert isinstance(permit, BalancePermit)
        calls[permit.host] += 1
        permit.end_with(CallResult(ResultKind.OK), S + n * 1_000 + 500)
    assert calls["h3"] == 0
    assert policy.stats().usable == 9
    back_us = until_us + 1
    policy.outlier.sweep(back_us)
    early: Counter[str] = Counter()
    permits = []
    for n in range(1000):
        permit = policy.admit(Request("k"), back_us + n * 100)
        assert isinstance(permit, BalancePermit)
        early[permit.host] += 1
        permits.append((permit, back_us + n * 100))
        if len(permits) > 40:
            old, at_us = permits.pop(0)
            old.end_with(CallResult(ResultKind.OK), at_us + 10_000)
    assert 0 < early["h3"] < 50, "an even share is 100"


def asked(policy: Balance, begin_us: int, seconds: int) -> Counter[str]:
    """How many calls of 2 ms, one each 4 ms, went to each host."""
    calls: Counter[str] = Counter()
    for now_us in range(begin_us, begin_us + seconds * S, 4_000):
        permit = policy.admit(Request("k"), now_us)
        assert isinstance(permit, BalancePermit)
        calls[permit.host] += 1
        permit.end_with(CallResult(ResultKind.OK), now_us + 2_000)
    return calls


def test_who_is_taken_back_is_not_kept_away_by_what_its_failures_were_priced_at() -> None:
    """It would be asked 22 s later, when 5 s have faded to the 2 ms of the others."""
    policy = balance()
    elsewhere = [name for name in HOSTS if name != "h3"]
    asked(policy, 0, 1)
    for n in range(5):
        permit = policy.admit(Request(f"k{n}"), S, avoid=elsewhere)
        assert isinstance(permit, BalancePermit)
        permit.end_with(CallResult(ResultKind.FAILED), S + 1_000)
    policy.outlier.sweep(2 * S)
    back_us = policy.outlier.standing("h3").until_us
    assert asked(policy, 2 * S, (back_us - 2 * S) // S)["h3"] == 0
    begun_us = back_us + 2 * S + OutlierSettings().ramp_us
    asked(policy, back_us, (begun_us - back_us) // S)
    assert asked(policy, begun_us, 2)["h3"] == pytest.approx(50, rel=0.4)


def test_a_new_host_has_its_share_beside_quick_ones_at_once() -> None:
    """Four of its first fifty calls, where it counted as 30 ms."""
    policy = balance(HOSTS[1:])
    asked(policy, 0, 5)
    policy.set_hosts(HOSTS, 5 * S)
    assert asked(policy, 5 * S, 2)["h0"] == pytest.approx(50, rel=0.4)


def test_in_a_panic_all_hosts_are_used() -> None:
    policy = balance(settings=OutlierSettings(ejected_percent_max=100))
    for n in range(10):
        for host in HOSTS[:8]:
            policy.outlier.record(host, CallResult(ResultKind.FAILED), 1, f"k {host} {n}", 0)
    policy.outlier.sweep(S)
    assert policy.outlier.stats().panics
    policy.admit(Request("k"), S)
    assert policy.stats().usable == 10


def test_a_second_attempt_goes_elsewhere_if_there_is_an_elsewhere() -> None:
    policy = balance(["a", "b"])
    for _ in range(20):
        permit = policy.admit(Request("k"), 0, avoid=("a",))
        assert isinstance(permit, BalancePermit)
        assert permit.host == "b"
    alone = balance(["a"]).admit(Request("k"), 0, avoid=("a",))
    assert isinstance(alone, BalancePermit)
    assert alone.host == "a"


def test_a_retry_after_keeps_a_host_away_for_as_long_as_it_said() -> None:
    policy = balance(["a", "b"], eject=False)
    permit = policy.admit(Request("k"), 0, avoid=("b",))
    assert isinstance(permit, BalancePermit)
    permit.end_with(CallResult(ResultKind.OVERLOADED, retry_after_us=300 * S), 1)
    # After 30 s a penalty of 5 s would be forgiven: six half-lives, 80 ms.
    for n in range(30 * S, 30 * S + 100):
        other = policy.admit(Request("k"), n)
        assert isinstance(other, BalancePermit)
        assert other.host == "b"
        other.end_with(CallResult(ResultKind.OK), n + 200_000)


@pytest.mark.parametrize("kind", [ResultKind.CANCELLED, ResultKind.LIMITED])
def test_what_says_nothing_of_a_host_leaves_its_load_alone(kind: ResultKind) -> None:
    policy = balance(["a", "b"])
    for n in range(100):
        permit = policy.admit(Request("k"), n, avoid=("b",))
        assert isinstance(permit, BalancePermit)
        permit.end_with(CallResult(kind), n + 60 * S)
    chosen = Counter()  # type: Counter[str]
    for n in range(400):
        permit = policy.admit(Request("k"), 1000 + n)
        assert isinstance(permit, BalancePermit)
        chosen[permit.host] += 1
        permit.end(Outcome.IGNORE, 1000 + n)
    assert 100 < chosen["a"] < 300


def test_what_was_unwound_was_never_sent() -> None:
    policy = balance(["a", "b"])
    for n in range(100):
        permit = policy.admit(Request("k"), n, avoid=("b",))
        assert isinstance(permit, BalancePermit)
        assert permit.end(Outcome.DROPPED, n, spent=False)
    assert policy.outlier.stats().recorded == 0
    dropped = policy.admit(Request("k"), 0)
    assert isinstance(dropped, BalancePermit)
    dropped.end(Outcome.DROPPED, 0)
    assert policy.outlier.stats().recorded == 1


def test_a_group_without_hosts_refuses_with_its_reason() -> None:
    policy = balance([])
    refusal = policy.admit(Request("k"), 0)
    assert isinstance(refusal, Decision)
    assert refusal.reason is not None
    assert refusal.reason.name == "no_host"
    assert refusal.retry_after_us == S
    policy.set_hosts(["a"], 0)
    assert isinstance(policy.admit(Request("k"), 0), BalancePermit)
    assert policy.stats() == (1, 1, 1, 1, 1)


def test_a_host_that_leaves_with_calls_in_flight_leaks_nothing() -> None:
    policy = balance(["a", "b"])
    permit = policy.admit(Request("k"), 0, avoid=("b",))
    assert isinstance(permit, BalancePermit)
    policy.set_hosts(["b"], 1)
    assert permit.end_with(CallResult(ResultKind.OK), 2)
    assert policy.stats() == (1, 0, 0, 1, 1)


def test_wrong_settings_are_refused_by_name() -> None:
    with pytest.raises(BadValue, match=r"balance\.penalty_us"):
        BalanceSettings(penalty_us=-1)


Step = tuple[int, int, int]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, S)), max_size=60))
def test_a_permit_ends_exactly_once_and_nothing_leaks(steps: list[Step]) -> None:
    policy = balance(["a", "b", "c"], settings=OutlierSettings(ejected_percent_max=50))
    kinds = list(ResultKind)
    permits: list[BalancePermit] = []
    ended: list[BalancePermit] = []
    now_us = 0
    for what, which, later_us in steps:
        now_us += later_us
        if what == 0 or not permits:
            permit = policy.admit(Request(str(which)), now_us)
            assert isinstance(permit, BalancePermit), "a group with hosts never refuses"
            permits.append(permit)
        elif what == 1 and ended:
            assert not ended[which % len(ended)].end(Outcome.SUCCESS, now_us)
            assert not ended[which % len(ended)].end_with(CallResult(ResultKind.FAILED), now_us)
        elif what == 4:
            policy.set_hosts("abc"[: 1 + which % 3], now_us)
        else:
            permit = permits.pop(which % len(permits))
            if what == 2:
                assert permit.end_with(CallResult(kinds[which % len(kinds)]), now_us)
            else:
                assert permit.end(Outcome.DROPPED, now_us, spent=which % 2 == 0)
            ended.append(permit)
        assert policy.stats().inflight == len(permits)
    for permit in permits:
        assert permit.end(Outcome.SUCCESS, now_us)
    assert policy.stats().inflight == 0


def test_a_host_whose_calls_were_given_up_for_quicker_ones_is_taken_for_slow() -> None:
    policy = balance(["slow", "quick"])
    recorded = policy.outlier.stats().recorded
    for at_us in range(10):
        permit = policy.admit(Request("k"), at_us, avoid=["quick"])
        assert isinstance(permit, BalancePermit)
        assert permit.end_late(at_us + S)
        assert not permit.end_with(CallResult(ResultKind.OK), at_us + S)
    assert policy.stats().inflight == 0
    assert policy.outlier.stats().recorded == recorded, (
        "nothing is known of what it would have said"
    )
    for _ in range(10):
        permit = policy.admit(Request("k"), S)
        assert isinstance(permit, BalancePermit)
        assert permit.host == "quick"
        permit.end_with(CallResult(ResultKind.OK), S)
