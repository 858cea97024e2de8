"""Outlier: which hosts of a group to leave out for a while, and which to take back.

Source: outlier detection as in Envoy and in gRPC's proposal A50 (2022), with two rules added. A
sweep looks at all hosts at once, once a second, and answers what is to be done; it changes nothing
itself. A host is suspect by the first of these rules that it breaks, each of which may be off:

    in a row       `failures_in_row` failures with no success between them
    failures       `failure_percent` or more of its calls failed
    success rate   below  mean - `deviations` * standard deviation  of all hosts' rates, and below
                   `healthy_percent`, and too bad for chance
    throughput     it answered less than `throughput_percent` of what the median of all hosts did,
                   is below `healthy_percent`, and too bad for chance
    latency        its p95 is more than `latency_ratio` times the median of all hosts' p95s

In a row and throughput take any number of calls of the host, the others `requests_min`, latency
`latency_requests_min`; the last three compare, and so need `hosts_min` such hosts. Suspects are
ejected worst first, the highest share of failures and then the longest p95, while no more than
`ejected_percent_max` of the group is out (one may always be, of two or more). An ejection lasts

    min(base_us * number of ejections, ejected_us_max) + jitter

where each `calm_us` since the host was last taken back is one ejection forgiven.

What was changed, and why.
Sweeps come every second, not every ten: a host that fails fast does its harm in the first seconds.
The standard deviation is blind when a share f of the hosts is equally bad, for they stand only
sqrt((1 - f) / f) deviations below the mean: at 1.9 it sees nothing from f = 22 per cent on, so the
share of failures has a rule of its own. And it is jumpy when all are well, 99.99 beside 99.9 per
cent; a host above `healthy_percent` is never suspect by it.
And chance makes outliers of small numbers: where one call in a hundred fails anywhere, a host with
20 calls has failed two of them every minute or so. So its failures must be beyond chance: how much
likelier what was seen is with a rate of the host's own than with one rate for all, in powers of e,
must be `evidence_min`; 16 is one in nine million. Ten hosts, 120 calls a second, 1 % failing, an
hour long: 40 false ejections without it, none with it, where 14 put a host out in one of 100 hours.
The others' rate is counted, too, and low by chance at times. Chernoff's bound, which takes it as
known, put a host out in 181 of 10,000,000 windows of five healthy ones; the ratio of likelihoods
does in 2. For the same reason a p95 must have five calls above it.
Whoever fails is asked less by a balancer that prices failures, so its calls may stay too few for a
share or a deviation, and several such hosts hide each other from the deviation. So few answers and
failures beyond chance, three at least, are a sign together, however few the calls.
Slow hosts are compared by the ratio to the median, which one slow host cannot move.
Worst first: with little room, the order in which hosts are listed must not decide.
One draw serves the whole sweep. The n-th ejection uses the fraction of draw + n * 0.618..., which
spreads any number of returns evenly where separate draws would clump.
Forgiving goes by time and not by sweeps, so that it does not depend on how often one sweeps.

`panics` says when so many are out that all must be used again. `slow_start` is the weight of a host
that has just come back, from `least` up to 1 over `ramp_us`.

Not good at: telling a bad host from a bad request. A key that breaks whatever host serves it ejects
them one after the other, up to the bound; and when every host is bad there is no outlier.

A clock that goes backwards ejects and forgives as if no time had passed; ejected hosts stay so.

Cost: a few passes over the hosts and two sorts, a sweep.
Bounds: `ejected_percent_max` of the hosts, `ejected_us_max` plus `jitter_us` each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Final, NamedTuple, final

from sluicegate.kernels.backoff import WAIT_US_MAX, between_us
from sluicegate.kernels.bounds import check_ranges, ranged, within

IN_A_ROW: Final = "failures in a row"
FAILURES: Final = "share of failures"
SUCCESS_RATE: Final = "success rate below the others"
THROUGHPUT: Final = "fewer answers and more failures than the others"
LATENCY: Final = "latency above the others"
TIME_IS_UP: Final = "ejection time is over"

COUNT_MAX: Final = 1 << 30
RATIO_MAX: Final = 1e6
FAILURES_MIN: Final = 3  # to be beyond chance: a lost connection takes two calls with it
_GOLDEN: Final = 0.6180339887498949
_NOISE: Final = 1e-9  # rates closer than this are equal, whatever the rounding of a mean


@final
class HostStats:
    """One host as a sweep sees it: its recent calls, and how it stands."""

    __slots__ = (
        "ejected",
        "ejections",
        "failures",
        "failures_in_row",
        "latency_us_p95",
        "name",
        "requests",
        "until_us",
    )

    def __init__(
        self,
        name: str,
        *,
        requests: int = 0,
        failures: int = 0,
        failures_in_row: int = 0,
        latency_us_p95: int = 0,
        ejected: bool = False,
        until_us: int = 0,
        ejections: int = 0,
    ) -> None:
        if not 0 <= failures <= requests:
            raise ValueError(f"failures of {name} must be from 0 to {requests}, not {failures}")
        if failures_in_row < 0 or latency_us_p95 < 0 or ejections < 0:
            raise ValueError(f"counts and latency of {name} must be 0 or more")
        self.name = name
        self.requests = requests
        self.failures = failures
        self.failures_in_row = failures_in_row
        self.latency_us_p95 = latency_us_p95  # 0: not known
        self.ejected = ejected
        self.until_us = until_us  # the end of the present or last ejection
        self.ejections = ejections  # as the last decision said


class HostVerdict(NamedTuple):
    """What to do with one host; to be kept and handed to the next sweep in its `HostStats`."""

    name: str
    ejected: bool
    until_us: int
    ejections: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """When a host is suspect, and for how long it goes; a rule at 0 is off."""

    failures_in_row: int = ranged(5, 0, COUNT_MAX)
    failure_percent: int = ranged(50, 0, 100)
    deviations: float = 1.9
    healthy_percent: int = ranged(95, 0, 100)
    evidence_min: float = 16.0
    throughput_percent: int = ranged(50, 0, 100)
    latency_ratio: float = 3.0
    latency_us_min: int = ranged(1_000, 0, WAIT_US_MAX)
    latency_requests_min: int = ranged(100, 1, COUNT_MAX)
    hosts_min: int = ranged(5, 2, COUNT_MAX)
    requests_min: int = ranged(20, 1, COUNT_MAX)
    ejected_percent_max: int = ranged(10, 0, 100)
    panic_percent: int = ranged(50, 0, 100)
    base_us: int = ranged(30_000_000, 1, WAIT_US_MAX)
    ejected_us_max: int = 300_000_000
    jitter_us: int = ranged(3_000_000, 0, WAIT_US_MAX)
    calm_us: int = ranged(30_000_000, 1, WAIT_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)
        within("ejected_us_max", self.ejected_us_max, self.base_us, WAIT_US_MAX)
        if not 0.0 <= self.deviations <= RATIO_MAX:
            raise ValueError(f"deviations must be from 0 to 1e6, not {self.deviations}")
        if not 0.0 <= self.evidence_min <= RATIO_MAX:
            raise ValueError(f"evidence_min must be from 0 to 1e6, not {self.evidence_min}")
        if self.latency_ratio != 0.0 and not 1.0 <= self.latency_ratio <= RATIO_MAX:
            raise ValueError(f"latency_ratio must be 0 or from 1 to 1e6, not {self.latency_ratio}")


def sweep(
    hosts: Sequence[HostStats], settings: SweepSettings, now_us: int, draw: float
) -> list[HostVerdict]:
    """Whom to take back and whom to eject, of hosts that all have different names."""
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"draw must be at least 0 and below 1, not {draw}")
    decisions: list[HostVerdict] = []
    candidates: list[HostStats] = []
    out = 0
    for host in hosts:
        if not host.ejected:
            candidates.append(host)
        elif host.until_us > now_us:
            out += 1
        else:
            decisions.append(
                HostVerdict(host.name, False, host.until_us, host.ejections, TIME_IS_UP)
            )
    room = ejected_max(len(hosts), settings.ejected_percent_max) - out
    for nth, (_, _, at, reason) in enumerate(sorted(_suspects(candidates, settings))):
        if nth >= room:
            break
        host = candidates[at]
        ejections = _ejections_left(host, settings.calm_us, now_us) + 1
        spread = (draw + nth * _GOLDEN) % 1.0
        until_us = (
            now_us
            + min(settings.base_us * ejections, settings.ejected_us_max)
            + between_us(0, settings.jitter_us, spread)
        )
        decisions.append(HostVerdict(host.name, True, until_us, ejections, reason))
    return decisions


def ejected_max(hosts: int, percent: int) -> int:
    """How many hosts of a group may be out: the share, but one of two or more, unless it is 0."""
    if hosts < 2 or percent == 0:
        return 0
    return max(1, hosts * percent // 100)


def evidence(failures: int, requests: int, failures_all: int, requests_all: int) -> float:
    """How far a host's failures are beyond the others', in powers of e: a likelihood ratio.

    Were it like the others, as many would be about as rare as e to minus this. The counts of all
    include the host's own.
    """
    if failures * requests_all <= failures_all * requests:
        return 0.0
    of_all = failures_all / requests_all
    others = requests_all - requests
    found = requests * _divergence(failures / requests, of_all)
    return found + others * _divergence((failures_all - failures) / others, of_all)


def panics(hosts: int, out: int, panic_percent: int) -> bool:
    """Whether fewer than `panic_percent` of the hosts are in, so that all should be used."""
    return 100 * (hosts - out) < panic_percent * hosts


def slow_start(now_us: int, since_us: int, ramp_us: int, least: float) -> float:
    """The weight of a host that came back at `since_us`: `least` at first, 1 after `ramp_us`."""
    if not 0.0 < least <= 1.0:
        raise ValueError(f"least must be above 0 and at most 1, not {least}")
    if ramp_us < 0:
        raise ValueError(f"ramp_us must be 0 or more, not {ramp_us}")
    age_us = now_us - since_us
    if age_us >= ramp_us:
        return 1.0
    return least + (1.0 - least) * age_us / ramp_us if age_us > 0 else least


def _divergence(rate: float, expected: float) -> float:
    """The relative entropy of two rates, of which the second is neither 0 nor 1."""
    found = rate * log(rate / expected) if rate > 0.0 else 0.0
    return found + (1.0 - rate) * log((1.0 - rate) / (1.0 - expected)) if rate < 1.0 else found


def _ejections_left(host: HostStats, calm_us: int, now_us: int) -> int:
    """The host's ejections, less those forgiven for the calm since it came back."""
    calm = (now_us - host.until_us) // calm_us
    if calm <= 0:
        return host.ejections
    return host.ejections - calm if calm < host.ejections else 0


def _suspects(
    candidates: list[HostStats], settings: SweepSettings
) -> list[tuple[float, int, int, str]]:
    """Share of failures and latency (both negated, worst first), position and reason of each."""
    rate_min = _rate_min(candidates, settings)
    answers_min = _answers_min(candidates, settings)
    latency_us_max = _latency_us_max(candidates, settings)
    requests = sum([host.requests for host in candidates])
    failures = sum([host.failures for host in candidates])
    found: list[tuple[float, int, int, str]] = []
    for at, host in enumerate(candidates):
        share = host.failures / host.requests if host.requests else 1.0
        reason = ""
        if 0 < settings.failures_in_row <= host.failures_in_row:
            reason = IN_A_ROW
        elif (
            host.requests >= settings.requests_min
            and 0 < settings.failure_percent * host.requests <= 100 * host.failures
        ):
            reason = FAILURES
        elif (comparison := _comparison(host, share, rate_min, answers_min, settings)) and evidence(
            host.failures, host.requests, failures, requests
        ) >= settings.evidence_min:
            reason = comparison
        elif host.requests < settings.requests_min:
            continue
        elif (
            host.latency_us_p95 > latency_us_max
            and host.requests - host.failures >= settings.latency_requests_min
        ):
            reason = LATENCY
        if reason:
            found.append((-share, -host.latency_us_p95, at, reason))
    return found


def _comparison(
    host: HostStats, share: float, rate_min: float, answers_min: float, settings: SweepSettings
) -> str:
    """The rule by which it does worse than the others, if that is not chance."""
    if host.requests >= settings.requests_min and 1.0 - share < rate_min:
        return SUCCESS_RATE
    if host.failures < FAILURES_MIN:
        return ""
    if host.requests - host.failures < answers_min and 100 * (1.0 - share) < (
        settings.healthy_percent
    ):
        return THROUGHPUT
    return ""


def _answers_min(candidates: list[HostStats], settings: SweepSettings) -> float:
    """The answers below which a host has dropped behind; 0 when there is nothing to compare."""
    answers = sorted([host.requests - host.failures for host in candidates if host.requests])
    if len(answers) < settings.hosts_min:
        return 0.0
    return settings.throughput_percent * _median(answers) / 100


def _median(ordered: list[int]) -> float:
    return (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) / 2


def _rate_min(candidates: list[HostStats], settings: SweepSettings) -> float:
    """The success rate below which a host is suspect; 0 when there is nothing to compare."""
    rates = [
        1.0 - host.failures / host.requests
        for host in candidates
        if host.requests >= settings.requests_min
    ]
    if settings.deviations == 0.0 or len(rates) < settings.hosts_min:
        return 0.0
    mean = sum(rates) / len(rates)
    deviation = sqrt(sum([(rate - mean) ** 2 for rate in rates]) / len(rates))
    return min(mean - settings.deviations * deviation - _NOISE, settings.healthy_percent / 100)


def _latency_us_max(candidates: list[HostStats], settings: SweepSettings) -> float:
    """The p95 above which a host is suspect; more than any when there is nothing to compare."""
    latencies = sorted(
        [
            host.latency_us_p95
            for host in candidates
            if host.requests >= settings.requests_min and host.latency_us_p95 > 0
        ]
    )
    if settings.latency_ratio == 0.0 or len(latencies) < settings.hosts_min:
        return inf
    return max(settings.latency_ratio * _median(latencies), float(settings.latency_us_min))
