from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluicegate.kernels.outlier import (
    FAILURES,
    IN_A_ROW,
    LATENCY,
    SUCCESS_RATE,
    THROUGHPUT,
    TIME_IS_UP,
    HostStats,
    HostVerdict,
    SweepSettings,
    ejected_max,
    evidence,
    panics,
    slow_start,
    sweep,
)

SECOND = 1_000_000
DEFAULTS = SweepSettings()


def well(name: str, latency_us: int = 10_000) -> HostStats:
    return HostStats(name, requests=1_000, failures=1, latency_us_p95=latency_us)


def group(*odd: HostStats, size: int = 10) -> list[HostStats]:
    return [*odd, *(well(f"well {n}") for n in range(size - len(odd)))]


def ejected(hosts: list[HostStats], settings: SweepSettings = DEFAULTS) -> dict[str, str]:
    decisions = sweep(hosts, settings, 0, 0.0)
    return {decision.name: decision.reason for decision in decisions if decision.ejected}


def only(**fields: int | float) -> SweepSettings:
    """Settings with all rules off but those named, and room for all."""
    rules = {"failures_in_row": 0, "failure_percent": 0, "deviations": 0.0, "latency_ratio": 0.0}
    rules["throughput_percent"] = 0
    return SweepSettings(**{**rules, "ejected_percent_max": 100, "jitter_us": 0, **fields})  # type: ignore[arg-type]


# The five rules.


def test_hosts_that_are_all_well_stay() -> None:
    assert ejected(group()) == {}


def test_five_failures_in_a_row_are_enough_however_few_the_calls() -> None:
    assert ejected(group(HostStats("bad", requests=5, failures=5, failures_in_row=5))) == {
        "bad": IN_A_ROW
    }
    almost = group(HostStats("bad", requests=5, failures=4, failures_in_row=4))
    assert ejected(almost, only(failures_in_row=5)) == {}


def test_half_of_the_calls_failing_are_enough_once_there_are_enough_calls() -> None:
    assert ejected(group(HostStats("bad", requests=20, failures=10))) == {"bad": FAILURES}
    few = group(HostStats("bad", requests=19, failures=19))
    assert ejected(few, only(failure_percent=50)) == {}
    under = group(HostStats("under", requests=249, failures=124))
    assert ejected(under, only(failure_percent=50)) == {}


def test_a_share_of_failures_needs_no_others_to_compare_with() -> None:
    assert ejected([HostStats("bad", requests=20, failures=10), well("other")]) == {"bad": FAILURES}


def test_a_success_rate_far_below_the_others_is_seen_before_it_is_half() -> None:
    assert ejected(group(HostStats("bad", requests=100, failures=20))) == {"bad": SUCCESS_RATE}


def test_the_deviation_is_that_of_all_hosts_and_its_edge_is_not_below_it() -> None:
    # Five rates 0.8 and one 0.2: mean 0.7, deviation sqrt(0.05) = 0.2236, the edge at 0.2 is 2.236.
    hosts = [HostStats(str(n), requests=100, failures=20) for n in range(5)]
    hosts.append(HostStats("bad", requests=100, failures=80))
    assert ejected(hosts, only(deviations=2.23)) == {"bad": SUCCESS_RATE}
    assert ejected(hosts, only(deviations=2.24)) == {}


def test_a_healthy_host_is_not_suspect_for_being_a_little_less_well() -> None:
    assert ejected(group(HostStats("a little", requests=100, failures=5))) == {}
    assert ejected(group(HostStats("less", requests=1_000, failures=51))) == {"less": SUCCESS_RATE}


def test_a_few_failures_of_a_few_calls_are_chance() -> None:
    # One call in a hundred fails anywhere; a host with 20 calls that failed 3 is no outlier.
    others = [HostStats(f"well {n}", requests=1_000, failures=10) for n in range(9)]
    assert ejected([*others, HostStats("unlucky", requests=20, failures=3)]) == {}
    assert ejected([*others, HostStats("bad", requests=20, failures=9)]) == {"bad": SUCCESS_RATE}
    assert ejected([*others, HostStats("bad", requests=200, failures=20)]) == {"bad": SUCCESS_RATE}


@pytest.mark.parametrize("requests", [20, 50, 66, 120])
@pytest.mark.parametrize(("others", "others_failures"), [(180, 0), (565, 0), (1_080, 11)])
def test_evidence_is_the_chance_of_so_many_failures(
    requests: int, others: int, others_failures: int
) -> None:
    """The oracle: of all ways to spread the failures over the calls, those that are as bad."""
    for failures in range(4, requests // 2):
        all_, in_all = requests + others, failures + others_failures
        chance = sum(
            math.comb(requests, k) * math.comb(others, in_all - k)
            for k in range(failures, min(requests, in_all) + 1)
        ) / math.comb(all_, in_all)
        strength = evidence(failures, requests, in_all, all_)
        assert chance / 20 <= math.exp(-strength) <= 20 * chance


def test_no_more_failures_than_the_others_have_are_no_evidence() -> None:
    assert evidence(1, 100, 1 + 99, 100 + 9_900) == 0.0
    assert evidence(0, 100, 5, 1_000) == 0.0
    assert evidence(100, 100, 200, 200) == 0.0


def test_that_the_others_failed_not_at_all_is_chance_too() -> None:
    """One call in a hundred fails anywhere, and the others had none of five hundred."""
    lucky = [HostStats(f"lucky {n}", requests=141) for n in range(4)]
    assert ejected([HostStats("unlucky", requests=66, failures=5), *lucky]) == {}
    assert ejected([HostStats("bad", requests=66, failures=9), *lucky]) == {"bad": SUCCESS_RATE}


def test_a_p95_of_few_calls_says_little() -> None:
    few = HostStats("few", requests=100, failures=1, latency_us_p95=900_000)
    assert ejected(group(few)) == {}
    enough = HostStats("enough", requests=101, failures=1, latency_us_p95=900_000)
    assert ejected(group(enough)) == {"enough": LATENCY}


def test_the_deviation_is_blind_when_a_quarter_is_equally_bad_and_the_share_is_not() -> None:
    def hosts(bad: int) -> list[HostStats]:
        return group(*(HostStats(f"bad {n}", requests=100, failures=60) for n in range(bad)))

    assert len(ejected(hosts(2), only(deviations=1.9))) == 2
    assert ejected(hosts(3), only(deviations=1.9)) == {}
    assert len(ejected(hosts(3), only(failure_percent=50))) == 3


def test_hosts_that_answer_less_and_fail_more_are_seen_though_others_are_as_bad() -> None:
    """A third of the group fails 4 of its 12 calls, and the rest are asked instead."""
    bad = [HostStats(f"bad {n}", requests=12, failures=4) for n in range(3)]
    settings = SweepSettings(ejected_percent_max=100)
    assert ejected(group(*bad), settings) == {f"bad {n}": THROUGHPUT for n in range(3)}
    assert ejected(group(*bad), SweepSettings(throughput_percent=0)) == {}


@pytest.mark.parametrize(
    "host",
    [
        HostStats("quiet", requests=12),
        HostStats("chance", requests=12, failures=1),
        HostStats("a lost connection", requests=2, failures=2),
        HostStats("as busy as the others", requests=570, failures=70),
        HostStats("never called"),
    ],
)
def test_few_answers_or_failures_alone_are_no_sign(host: HostStats) -> None:
    assert ejected(group(host), only(throughput_percent=50)) == {}


def test_what_is_half_of_the_median_is_not_less_than_that() -> None:
    edge = SweepSettings(deviations=0.0, throughput_percent=50)
    others = [HostStats(f"well {n}", requests=1_000) for n in range(5)]
    assert ejected([HostStats("bad", requests=600, failures=100), *others], edge) == {}
    assert ejected([HostStats("bad", requests=600, failures=101), *others], edge) == {
        "bad": THROUGHPUT
    }
    assert ejected([HostStats("bad", requests=600, failures=101), *others[:3]], edge) == {}


def test_hosts_that_are_all_equally_bad_are_no_outliers() -> None:
    for failures in range(50):
        hosts = [HostStats(str(n), requests=70, failures=failures) for n in range(7)]
        assert ejected(hosts, only(deviations=0.5)) == {}


def test_a_p95_of_more_than_three_times_the_median_is_too_slow() -> None:
    assert ejected(group(well("slow", 30_001))) == {"slow": LATENCY}
    assert ejected(group(well("slow", 30_000))) == {}


def test_a_few_slow_hosts_do_not_move_the_median() -> None:
    slow = [well(f"slow {n}", 900_000) for n in range(4)]
    assert len(ejected(group(*slow), only(latency_ratio=3.0))) == 4


def test_the_median_of_an_even_number_lies_between_the_two_in_the_middle() -> None:
    hosts = [well(str(n), us) for n, us in enumerate([1_000, 2_000, 4_000, 8_999])]
    assert ejected(hosts, only(latency_ratio=3.0, hosts_min=4)) == {}
    hosts[3] = well("3", 9_001)
    assert ejected(hosts, only(latency_ratio=3.0, hosts_min=4)) == {"3": LATENCY}


@pytest.mark.parametrize(("slow_us", "out"), [(9_000, []), (9_001, ["4"])])
def test_the_median_of_an_odd_number_is_the_one_in_the_middle(slow_us: int, out: list[str]) -> None:
    hosts = [well(str(n), us) for n, us in enumerate([1_000, 2_000, 3_000, 4_000, slow_us])]
    assert list(ejected(hosts, only(latency_ratio=3.0))) == out


def test_one_failure_in_a_row_can_be_enough() -> None:
    assert list(
        ejected(
            group(HostStats("bad", requests=1, failures=1, failures_in_row=1)),
            only(failures_in_row=1),
        )
    ) == ["bad"]


def test_below_a_least_latency_nobody_is_slow() -> None:
    hosts = [well(str(n), 100) for n in range(6)]
    assert ejected([*hosts, well("slow", 1_000)], only(latency_ratio=3.0)) == {}
    assert ejected([*hosts, well("slow", 1_001)], only(latency_ratio=3.0)) == {"slow": LATENCY}


@pytest.mark.parametrize(
    "bad",
    [HostStats("bad", requests=100, failures=49), well("bad", 900_000)],
    ids=["fails", "slow"],
)
def test_comparing_needs_five_hosts_with_twenty_calls_each(bad: HostStats) -> None:
    idle = [HostStats(f"idle {n}", requests=19, latency_us_p95=10_000) for n in range(9)]
    assert ejected([*group(bad, size=4), *idle]) == {}
    awake = HostStats("awake", requests=20, latency_us_p95=10_000)
    assert list(ejected([*group(bad, size=4), *idle, awake])) == ["bad"]


def test_a_host_whose_latency_is_not_known_is_left_out_of_the_median() -> None:
    unknown = [HostStats(f"unknown {n}", requests=100) for n in range(20)]
    assert ejected([*unknown, *group(well("slow", 40_000))]) == {"slow": LATENCY}


def test_an_ejected_host_does_not_count_among_the_others() -> None:
    hosts = group(HostStats("bad", requests=100, failures=20), size=5)
    hosts[1].ejected, hosts[1].until_us = True, 10
    assert ejected(hosts, only(deviations=1.0)) == {}


@pytest.mark.parametrize(
    "rule",
    ["failures_in_row", "failure_percent", "deviations", "throughput_percent", "latency_ratio"],
)
def test_a_rule_at_zero_is_off(rule: str) -> None:
    bad = {
        "failures_in_row": HostStats("bad", requests=10, failures=9, failures_in_row=9),
        "failure_percent": HostStats("bad", requests=100, failures=90),
        "deviations": HostStats("bad", requests=100, failures=20),
        "throughput_percent": HostStats("bad", requests=10, failures=5),
        "latency_ratio": well("bad", 900_000),
    }[rule]
    usual = {"failures_in_row": 5, "failure_percent": 50, "deviations": 1.9, "latency_ratio": 3.0}
    usual["throughput_percent"] = 50
    assert list(ejected(group(bad), only(**{rule: usual[rule]}))) == ["bad"]
    assert ejected(group(bad), only()) == {}
    assert ejected(group(HostStats("dead", requests=100, failures=100)), only()) == {}


# How many.


def test_no_more_than_a_tenth_of_the_hosts_go_and_the_worst_go_first() -> None:
    bad = [HostStats(f"bad {n}", requests=100, failures=60 + n) for n in range(5)]
    assert list(ejected(group(*bad, size=20))) == ["bad 4", "bad 3"]


def test_hosts_that_fail_go_before_hosts_that_are_slow() -> None:
    hosts = group(
        well("slow", 900_000), well("slower", 990_000), HostStats("bad", requests=100, failures=60)
    )
    assert list(ejected(hosts)) == ["bad"]
    assert list(ejected(hosts, SweepSettings(ejected_percent_max=20))) == ["bad", "slower"]


def test_equally_bad_hosts_go_in_the_order_they_are_listed() -> None:
    bad = [HostStats(name, requests=100, failures=60) for name in ("q", "b", "m")]
    assert list(ejected(group(*bad, size=20))) == ["q", "b"]


def test_hosts_already_out_take_up_room() -> None:
    ejected_host = HostStats("gone", ejected=True, until_us=1)
    assert ejected(group(ejected_host, HostStats("bad", requests=100, failures=99))) == {}
    many = [HostStats(f"gone {n}", ejected=True, until_us=1) for n in range(5)]
    assert ejected(group(*many, HostStats("bad", requests=100, failures=99))) == {}


@pytest.mark.parametrize(
    ("hosts", "percent", "most"),
    [(0, 10, 0), (1, 100, 0), (2, 10, 1), (19, 10, 1), (20, 10, 2), (5, 0, 0), (10, 100, 10)],
)
def test_one_of_two_or_more_hosts_may_always_be_out(hosts: int, percent: int, most: int) -> None:
    assert ejected_max(hosts, percent) == most


def test_with_half_of_the_hosts_out_all_are_used_again() -> None:
    assert [panics(10, out, 50) for out in (0, 5, 6, 10)] == [False, False, True, True]
    assert not panics(10, 10, 0)


# How long.


def test_an_ejection_lasts_longer_each_time_up_to_its_bound() -> None:
    spans = []
    for ejections in (0, 1, 2, 9, 10, 500):
        bad = HostStats("bad", requests=100, failures=99, ejections=ejections, until_us=7 * SECOND)
        spans.append(sweep(group(bad), SweepSettings(jitter_us=0), 7 * SECOND, 0.0)[0])
    assert [(one.until_us // SECOND - 7, one.ejections) for one in spans] == [
        (30, 1),
        (60, 2),
        (90, 3),
        (300, 10),
        (300, 11),
        (300, 501),
    ]


@pytest.mark.parametrize(
    ("calm_us", "ejections"),
    [(0, 5), (30 * SECOND - 1, 5), (30 * SECOND, 4), (95 * SECOND, 2), (10**15, 1)],
)
def test_each_calm_half_minute_forgives_one_ejection(calm_us: int, ejections: int) -> None:
    bad = HostStats("bad", requests=100, failures=99, ejections=4, until_us=SECOND)
    assert sweep(group(bad), DEFAULTS, SECOND + calm_us, 0.0)[0].ejections == ejections


def test_the_returns_of_hosts_ejected_together_are_spread() -> None:
    bad = [HostStats(f"bad {n}", requests=100, failures=60) for n in range(10)]
    settings = SweepSettings(ejected_percent_max=50, jitter_us=10 * SECOND)
    ends = sorted(one.until_us for one in sweep(group(*bad, size=20), settings, 0, 0.9))
    assert 30 * SECOND <= ends[0] <= 31.5 * SECOND
    assert 38.5 * SECOND <= ends[-1] <= 40 * SECOND
    assert max(b - a for a, b in itertools.pairwise(ends)) < 2 * SECOND


def test_the_draw_places_the_first_return() -> None:
    bad = group(HostStats("bad", requests=100, failures=99))
    settings = SweepSettings(jitter_us=4 * SECOND)
    assert [sweep(bad, settings, 0, draw)[0].until_us / SECOND for draw in (0.0, 0.5)] == [30, 32]


def test_when_the_time_is_up_a_host_is_taken_back_and_not_judged_in_the_same_sweep() -> None:
    ejected_host = HostStats(
        "gone", requests=100, failures=100, ejected=True, until_us=50, ejections=3
    )
    assert sweep(group(ejected_host), DEFAULTS, 49, 0.0) == []
    assert sweep(group(ejected_host), DEFAULTS, 50, 0.0) == [
        HostVerdict("gone", False, 50, 3, TIME_IS_UP)
    ]


def test_a_host_taken_back_makes_room_for_another() -> None:
    ejected_host = HostStats("gone", ejected=True, until_us=50)
    hosts = group(ejected_host, HostStats("bad", requests=100, failures=99))
    assert [one.name for one in sweep(hosts, DEFAULTS, 50, 0.0)] == ["gone", "bad"]


def test_a_returning_host_starts_slowly() -> None:
    weights = [slow_start(now_us, 100, 1_000, 0.1) for now_us in (100, 600, 1_099, 1_100, 9_999)]
    assert weights == [0.1, pytest.approx(0.55), pytest.approx(0.9991), 1.0, 1.0]
    assert slow_start(100, 100, 0, 0.1) == 1.0


# Clocks and bad input.


def test_a_clock_that_goes_back_takes_nobody_back_and_forgives_nothing() -> None:
    ejected_host = HostStats("gone", ejected=True, until_us=50)
    assert sweep(group(ejected_host), DEFAULTS, -(10**15), 0.0) == []
    bad = HostStats("bad", requests=100, failures=99, ejections=2, until_us=10**15)
    assert sweep(group(bad), DEFAULTS, 0, 0.0)[0].ejections == 3
    assert slow_start(0, 100, 1_000, 0.1) == 0.1


def test_an_empty_group_needs_nothing() -> None:
    assert sweep([], DEFAULTS, 0, 0.0) == []


@pytest.mark.parametrize("draw", [-0.1, 1.0, math.nan])
def test_a_bad_draw_is_refused(draw: float) -> None:
    with pytest.raises(ValueError, match="draw"):
        sweep([], DEFAULTS, 0, draw)


@pytest.mark.parametrize(
    "fields",
    [
        {"requests": 1, "failures": 2},
        {"failures": -1},
        {"failures_in_row": -1},
        {"latency_us_p95": -1},
        {"ejections": -1},
    ],
)
def test_impossible_statistics_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="odd"):
        HostStats("odd", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("least", [0.0, 1.1, math.nan])
def test_a_slow_start_out_of_range_is_refused(least: float) -> None:
    with pytest.raises(ValueError, match="least"):
        slow_start(0, 0, 1, least)
    with pytest.raises(ValueError, match="ramp_us"):
        slow_start(0, 0, -1, 1.0)


def test_the_defaults_are_what_the_page_says() -> None:
    defaults = {
        "failures_in_row": 5,
        "failure_percent": 50,
        "deviations": 1.9,
        "healthy_percent": 95,
        "evidence_min": 16.0,
        "throughput_percent": 50,
        "latency_requests_min": 100,
        "latency_ratio": 3.0,
        "latency_us_min": 1_000,
        "hosts_min": 5,
        "requests_min": 20,
        "ejected_percent_max": 10,
        "panic_percent": 50,
        "base_us": 30 * SECOND,
        "ejected_us_max": 300 * SECOND,
        "jitter_us": 3 * SECOND,
        "calm_us": 30 * SECOND,
    }
    assert {field: getattr(DEFAULTS, field) for field in defaults} == defaults
    fresh = HostStats("fresh")
    assert (fresh.requests, fresh.failures_in_row, fresh.until_us, fresh.ejections) == (0, 0, 0, 0)
    assert (fresh.failures, fresh.latency_us_p95, fresh.ejected) == (0, 0, False)


def test_settings_at_the_ends_of_their_ranges_are_allowed() -> None:
    highest = SweepSettings(deviations=1e6, latency_ratio=1e6, hosts_min=2, calm_us=1)
    lowest = SweepSettings(latency_ratio=1.0, base_us=1, ejected_us_max=1, jitter_us=0)
    off = SweepSettings(healthy_percent=0, latency_us_min=0, panic_percent=0, requests_min=1)
    assert (highest.deviations, highest.latency_ratio, highest.hosts_min) == (1e6, 1e6, 2)
    assert (lowest.latency_ratio, lowest.base_us, lowest.ejected_us_max) == (1.0, 1, 1)
    assert (off.healthy_percent, off.latency_us_min, off.requests_min) == (0, 0, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("failures_in_row", -1),
        ("failure_percent", 101),
        ("deviations", -0.1),
        ("deviations", math.nan),
        ("deviations", math.inf),
        ("deviations", 1.1e6),
        ("latency_ratio", 1.1e6),
        ("healthy_percent", 101),
        ("latency_ratio", 0.5),
        ("latency_ratio", math.nan),
        ("latency_us_min", -1),
        ("latency_requests_min", 0),
        ("evidence_min", -0.1),
        ("evidence_min", math.inf),
        ("hosts_min", 1),
        ("requests_min", 0),
        ("ejected_percent_max", 101),
        ("panic_percent", 101),
        ("base_us", 0),
        ("ejected_us_max", 29_999_999),
        ("jitter_us", -1),
        ("calm_us", 0),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field} must be"):
        SweepSettings(**{field: value})  # type: ignore[arg-type]


hosts_of = st.builds(
    lambda requests, share, row, latency, out, until, ejections: HostStats(
        "",
        requests=requests,
        failures=int(requests * share),
        failures_in_row=row,
        latency_us_p95=latency,
        ejected=out,
        until_us=until,
        ejections=ejections,
    ),
    st.sampled_from([0, 10, 20, 100, 1_000]),
    st.sampled_from([0.0, 0.001, 0.04, 0.1, 0.3, 0.5, 1.0]),
    st.sampled_from([0, 0, 0, 4, 5]),
    st.sampled_from([0, 500, 9_000, 10_000, 11_000, 35_000, 900_000]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([0, 40 * SECOND, 100 * SECOND, 101 * SECOND]),
    st.integers(0, 12),
)


def beyond_chance(host: HostStats, rest: list[HostStats]) -> bool:
    """The oracle's bound: the likelihood of two coins, of one host and of the others, over one."""

    def best(failures: int, requests: int) -> float:
        sides = (failures, requests - failures)
        return sum(side * math.log(side / requests) for side in sides if side > 0)

    requests = sum(other.requests for other in rest) - host.requests
    failures = sum(other.failures for other in rest) - host.failures
    if host.failures * requests <= failures * host.requests:
        return False
    alone = best(host.failures, host.requests) + best(failures, requests)
    strength = alone - best(host.failures + failures, host.requests + requests)
    assume(abs(strength - DEFAULTS.evidence_min) > 1e-6)
    return strength >= DEFAULTS.evidence_min


def slow_sweep(hosts: list[HostStats], now_us: int) -> tuple[set[str], dict[str, tuple[int, int]]]:
    """The oracle: the rules with their default figures, read one by one with a library."""
    back = {host.name for host in hosts if host.ejected and host.until_us <= now_us}
    out = [host for host in hosts if host.ejected and host.until_us > now_us]
    rest = [host for host in hosts if not host.ejected]
    busy = [host for host in rest if host.requests >= 20]
    rates = [1 - host.failures / host.requests for host in busy]
    p95s = [host.latency_us_p95 for host in busy if host.latency_us_p95]
    suspects = []
    for host in rest:
        bad = host.failures_in_row >= 5
        answered = [one.requests - one.failures for one in rest if one.requests]
        if host.requests and len(answered) >= 5:
            few = host.requests - host.failures < statistics.median(answered) / 2
            low = host.requests - host.failures < 0.95 * host.requests
            bad = bad or (few and low and host.failures >= 3 and beyond_chance(host, rest))
        if host in busy:
            rate = 1 - host.failures / host.requests
            bad = bad or rate <= 0.5
            if len(rates) >= 5:
                edge = statistics.fmean(rates) - 1.9 * statistics.pstdev(rates)
                assume(abs(rate - edge) > 1e-6 or statistics.pstdev(rates) < 1e-12)
                beyond = beyond_chance(host, rest)
                bad = bad or (rate < edge - 1e-9 and rate < 0.95 and beyond)
            if len(p95s) >= 5 and host.requests - host.failures >= 100:
                bad = bad or host.latency_us_p95 > max(1_000, 3 * statistics.median(p95s))
        if bad:
            suspects.append(host)
    share = {host.name: host.failures / host.requests if host.requests else 1.0 for host in rest}
    suspects.sort(key=lambda host: (share[host.name], host.latency_us_p95), reverse=True)
    room = 0 if len(hosts) < 2 else max(1, len(hosts) * 30 // 100)
    ejections = {}
    for host in suspects[: max(0, room - len(out))]:
        forgiven = max(0, (now_us - host.until_us) // (30 * SECOND))
        count = max(0, host.ejections - forgiven) + 1
        ejections[host.name] = (now_us + min(30 * count, 300) * SECOND, count)
    return back, ejections


def values_of(host: HostStats) -> list[object]:
    calls = [host.requests, host.failures, host.failures_in_row, host.latency_us_p95]
    return [host.name, *calls, host.ejected, host.until_us, host.ejections]


@given(st.lists(hosts_of, max_size=14))
def test_it_decides_what_the_rules_read_one_by_one_decide(hosts: list[HostStats]) -> None:
    for at, host in enumerate(hosts):
        host.name = str(at)
    settings = SweepSettings(ejected_percent_max=30, jitter_us=0)
    before = [values_of(host) for host in hosts]
    decisions = sweep(hosts, settings, 100 * SECOND, 0.5)
    back, ejections = slow_sweep(hosts, 100 * SECOND)
    assert {one.name for one in decisions if not one.ejected} == back
    assert {
        one.name: (one.until_us, one.ejections) for one in decisions if one.ejected
    } == ejections
    # It decides and does nothing else.
    assert before == [values_of(host) for host in hosts]


@given(st.lists(hosts_of, max_size=30), st.integers(0, 100))
def test_never_more_than_the_share_is_out(hosts: list[HostStats], percent: int) -> None:
    settings = SweepSettings(ejected_percent_max=percent)
    decisions = sweep(hosts, settings, 100 * SECOND, 0.5)
    out = sum(host.ejected and host.until_us > 100 * SECOND for host in hosts)
    added = sum(one.ejected for one in decisions)
    assert added == 0 or out + added <= ejected_max(len(hosts), percent)
