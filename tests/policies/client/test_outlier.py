from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.outlier import Outlier, OutlierSettings
from sluicegate.testing import SeededChance

S = 1_000_000
HOSTS = [f"h{n}" for n in range(10)]
OK: CallResult[object] = CallResult(ResultKind.OK)
FAILED: CallResult[object] = CallResult(ResultKind.FAILED)


def outlier(hosts: list[str] = HOSTS, **settings: object) -> Outlier:
    return Outlier(hosts, SeededChance(1), OutlierSettings(**settings))  # type: ignore[arg-type]


def second(
    judge: Outlier, now_us: int, bad: dict[str, ResultKind], took: dict[str, int] | None = None
) -> None:
    """A second of 50 calls to each host, each with a key of its own."""
    for n in range(50):
        for host in HOSTS:
            kind = bad.get(host, ResultKind.OK)
            took_us = (took or {}).get(host, 10_000)
            at_us = now_us + n * 20_000
            judge.record(host, CallResult(kind), took_us, f"{host} {now_us} {n}", at_us)


def weights(judge: Outlier, now_us: int) -> list[float]:
    return [judge.weight(host, now_us) for host in HOSTS]


@pytest.mark.parametrize("kind", [ResultKind.FAILED, ResultKind.TIMED_OUT, ResultKind.UNREACHED])
def test_a_failing_host_is_out_within_a_second_and_comes_back_slowly(kind: ResultKind) -> None:
    judge = outlier()
    second(judge, 0, {"h3": kind})
    assert weights(judge, S) == [1.0] * 3 + [0.0] + [1.0] * 6
    standing = judge.standing("h3")
    assert standing.ejected
    assert standing.ejections == 1
    assert 30 * S <= standing.until_us - S <= 33 * S
    for n in range(1, 40):
        second(judge, n * S, {})
        if judge.weight("h3", n * S) > 0:
            break
    back = judge.weight("h3", n * S + 1)
    assert 0.1 <= back < 0.2
    assert 0.5 <= judge.weight("h3", (n + 5) * S) <= 0.7
    assert judge.weight("h3", (n + 11) * S) == 1.0
    assert judge.stats()[:6] == (10, 0, False, 1, 1, judge.stats().recorded)


def test_what_it_did_before_its_ejection_does_not_eject_it_again() -> None:
    judge = outlier(windows=100, base_us=5 * S, jitter_us=0)
    second(judge, 0, {"h3": ResultKind.FAILED})
    for n in range(1, 12):
        second(judge, n * S, {})
    assert judge.weight("h3", 12 * S) > 0.0
    assert judge.stats().ejections == 1


def test_a_host_ten_times_slower_than_the_others_is_out() -> None:
    judge = outlier()
    for n in range(16):
        assert weights(judge, n * S)[7] == 1.0, "fifteen sweeps in a row must find it slow"
        second(judge, n * S, {}, {"h7": 100_000})
    assert weights(judge, 16 * S)[7] == 0.0
    assert judge.standing("h7").reason == "latency above the others"


def test_one_bad_second_ejects_nobody_though_the_window_holds_it_for_ten() -> None:
    judge = outlier()
    for n in range(30):
        second(judge, n * S, {}, {"h7": 100_000} if n in {5, 6} else {})
        assert weights(judge, (n + 1) * S)[7] == 1.0
    hasty = outlier(latency_sweeps=1)
    for n in range(8):
        second(hasty, n * S, {}, {"h7": 100_000} if n in {5, 6} else {})
    assert weights(hasty, 8 * S)[7] == 0.0


@pytest.mark.parametrize(
    "kind", [ResultKind.OVERLOADED, ResultKind.LIMITED, ResultKind.CANCELLED, ResultKind.REJECTED]
)
def test_a_host_that_refuses_is_not_ejected(kind: ResultKind) -> None:
    judge = outlier()
    second(judge, 0, {"h3": kind})
    assert weights(judge, S) == [1.0] * 10


def test_when_all_are_bad_nobody_is_an_outlier_for_long() -> None:
    judge = outlier(ejected_percent_max=100)
    for n in range(3):
        second(judge, n * S, dict.fromkeys(HOSTS, ResultKind.FAILED))
    assert judge.stats().panics
    assert weights(judge, 3 * S) == [1.0] * 10


def test_no_more_than_a_share_is_out() -> None:
    judge = outlier(ejected_percent_max=30)
    for n in range(3):
        second(judge, n * S, dict.fromkeys(HOSTS[:6], ResultKind.FAILED))
    assert judge.stats().out == 3
    assert not judge.stats().panics


def test_a_request_that_breaks_whatever_serves_it_is_no_hosts_fault() -> None:
    judge = outlier(ejected_percent_max=100)
    for n in range(200):
        for host in HOSTS:
            at_us = n * 10_000
            judge.record(host, FAILED, 1_000, "poison", at_us)
            judge.record(host, OK, 10_000, f"good {n}", at_us)
    assert weights(judge, 3 * S) == [1.0] * 10
    assert judge.stats().poisonous == 1
    off = outlier(ejected_percent_max=100, poison_keys_max=0)
    for n in range(200):
        for host in HOSTS:
            off.record(host, FAILED, 1_000, "poison", n * 10_000)
    assert off.stats().out > 0


def test_one_hot_key_does_not_protect_a_bad_host() -> None:
    judge = outlier(ejected_percent_max=30)
    for n in range(100):
        for host in HOSTS:
            answer = FAILED if host in {"h1", "h2"} else OK
            judge.record(host, answer, 10_000, "hot", n * 20_000)
    judge.sweep(2 * S)
    assert judge.weight("h1", 2 * S) == 0.0
    assert judge.weight("h2", 2 * S) == 0.0


def test_failures_in_a_row_have_no_success_between_them() -> None:
    judge = outlier(failure_percent=0, deviations=0.0)
    for n in range(100):
        judge.record("h1", OK if n % 5 == 4 else FAILED, 1, f"k{n}", 0)
    judge.sweep(S)
    assert judge.weight("h1", S) == 1.0


def test_a_key_that_fails_on_one_host_only_blames_it_every_time() -> None:
    judge = outlier()
    for _ in range(5):
        judge.record("h1", FAILED, 1, "k", 0)
    judge.sweep(S)
    assert judge.weight("h1", S) == 0.0
    assert judge.stats().poisonous == 0


def test_a_key_that_has_succeeded_somewhere_is_not_poison() -> None:
    judge = outlier()
    for host in HOSTS[:3]:
        judge.record(host, FAILED, 1, "k", 0)
    assert judge.stats().poisonous == 1
    judge.record("h9", OK, 1, "k", 0)
    assert judge.stats().poisonous == 0


def test_keys_that_failed_are_bounded() -> None:
    judge = outlier(poison_keys_max=4, poison_hosts=2, failures_in_row=0)
    for n in range(100):
        judge.record("h1", FAILED, 1, f"k{n}", 0)
        judge.record("h2", FAILED, 1, f"k{n}", 0)
    assert judge.stats().poisonous == 4


def test_a_group_that_changes_keeps_the_standing_of_who_stays() -> None:
    judge = outlier()
    second(judge, 0, {"h3": ResultKind.FAILED})
    judge.sweep(S)
    version = judge.version
    judge.set_hosts(["h3", "h4", "new", "h3"])
    assert judge.version > version
    assert judge.stats().hosts == 3
    assert judge.weight("h3", S) == 0.0
    assert judge.weight("new", S) == 1.0
    assert judge.weight("h0", S) == 0.0
    judge.record("h0", FAILED, 1, "k", S)


def test_a_clock_that_goes_back_changes_nobodys_standing() -> None:
    judge = outlier()
    second(judge, 10 * S, {"h3": ResultKind.FAILED})
    assert judge.weight("h3", 11 * S) == 0.0
    assert judge.weight("h3", 0) == 0.0
    judge.record("h1", OK, 1, "k", 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("sweep_us", 0), ("weight_least", 0.0), ("deviations", -1.0), ("hosts_max", 0)],
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"outlier\.{field}"):
        outlier(HOSTS, **{field: value})
    with pytest.raises(BadValue, match=r"outlier\.hosts"):
        outlier(hosts=["a", "b"], hosts_max=1)
