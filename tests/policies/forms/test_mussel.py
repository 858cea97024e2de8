"""Mussel's form: prices and penalty by the latency ratio, and the CoDel pool."""

from __future__ import annotations

import asyncio
import math

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import QUEUE_TIMEOUT, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import Weights
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.forms.mussel import (
    MusselChain,
    MusselPrices,
    MusselSettings,
    P2Ratio,
    P2Span,
)
from sluicegate.policies.forms.mussel.prices import CALLERS_MAX, PENALTY_MILLI, PRICE_MILLI, STRIKES
from sluicegate.policies.forms.mussel.ratio import NEUTRAL, SECOND_US
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, StackPermit
from tests.policies.virtual import VirtualLoop, pause_us, run

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
MS = 1_000
USUAL_US = 10 * MS
PER_S = 100


class Service:
    """Ends of work at an even pace, on time that is moved by hand."""

    def __init__(self, prices: MusselPrices) -> None:
        self.prices = prices
        self.now_us = 0

    def serve(self, seconds: int, times: float = 1.0, slow_caller: str = "") -> None:
        """Serve requests that take `times` the usual, of one caller or of all."""
        for _ in range(seconds * PER_S):
            self.now_us += SECOND_US // PER_S
            for caller in ("shop", "scraper"):
                request = Request("k", caller=caller, criticality=BULK)
                self.prices.price_milli(request, self.now_us)
                slow = not slow_caller or caller == slow_caller
                request.measured = Measured(round(USUAL_US * (times if slow else 1.0)))
                self.prices.record_end(request, Outcome.SUCCESS, self.now_us)


def quick() -> MusselPrices:
    """Prices that know after a minute what is usual."""
    return MusselPrices(P2Ratio(long_us=60 * SECOND_US))


def test_ratio_is_neutral_while_cold() -> None:
    ratio = P2Ratio()
    assert ratio.ratio(0) == NEUTRAL
    ratio.add(1.0, 0)
    assert ratio.ratio(SECOND_US) == NEUTRAL
    assert ratio.slow_us() == 0.0


def test_ratio_of_slow_work_is_past_over_present() -> None:
    service = Service(quick())
    service.serve(60)
    service.serve(11, 4.0)
    assert service.prices.ratio.ratio(service.now_us) == pytest.approx(0.25, abs=0.03)
    assert service.prices.ratio.stressed


def test_ratio_of_long_slow_down_is_neutral_again() -> None:
    """The long span fills with slow work: the fault of this form."""
    service = Service(quick())
    service.serve(60)
    service.serve(125, 4.0)
    assert service.prices.ratio.ratio(service.now_us) > 0.9


def test_span_with_few_samples_keeps_last_answer() -> None:
    span = P2Span(0.5, SECOND_US, 10)
    for _ in range(20):
        span.add(5.0, 0)
    span.add(100.0, SECOND_US)
    span.roll(2 * SECOND_US)
    assert span.value() == 5.0


def test_price_below_threshold_rises_class_by_class() -> None:
    prices = quick()
    service = Service(prices)
    service.serve(60)
    assert prices.prices_milli() == (1_000,) * 4
    service.serve(12, 4.0)
    assert prices.prices_milli() == (1_000, 1_000, 1_000, PRICE_MILLI)
    service.serve(12, 40.0)
    assert prices.prices_milli() == (1_000, PRICE_MILLI, PRICE_MILLI, PRICE_MILLI)
    critical = Request("k", caller="shop", criticality=CRITICAL)
    assert prices.price_milli(critical, service.now_us) == 1_000


def test_prices_in_safe_range_are_released() -> None:
    prices = quick()
    service = Service(prices)
    service.serve(60)
    service.serve(12, 4.0)
    service.serve(12)
    assert prices.prices_milli() == (1_000,) * 4


def test_caller_that_stays_slow_pays_penalty() -> None:
    prices = quick()
    service = Service(prices)
    service.serve(60)
    service.serve(12, 8.0, slow_caller="scraper")
    assert prices.penalized() == ["scraper"]
    paid = [
        prices.price_milli(Request("k", caller=caller, criticality=member), service.now_us)
        for caller in ("scraper", "shop")
        for member in (CRITICAL, DEGRADED)
    ]
    assert paid == [1_000, PENALTY_MILLI, 1_000, 1_000]
    service.serve(10 + STRIKES)
    assert prices.penalized() == []


def test_callers_watched_are_bounded() -> None:
    prices = MusselPrices()
    for number in range(CALLERS_MAX + 1):
        request = Request("k", caller=str(number))
        request.measured = Measured(USUAL_US)
        prices.record_end(request, Outcome.SUCCESS, 0)
    assert len(prices._callers) == CALLERS_MAX


def chain(**some: int) -> MusselChain:
    return MusselChain(
        MusselSettings(**some), CriticalityClamp(CriticalitySettings(callers={"till": CRITICAL}))
    )


def stack_of(form: MusselChain) -> Stack:
    settings = RequestUnitsSettings(
        weights=Weights(1.0, 0.0, 0.0, 0.0),
        rate_ru=8,
        burst_ru=8,
        debt_ru=0,
    )
    units = RequestUnits(settings, pricing=form.prices)
    return Stack(*form.stages(units), observers=form.observers())


def test_priced_class_gets_fewer_requests_for_its_quota() -> None:
    form = chain()
    stack = stack_of(form)
    form.prices.priced = 1
    form.prices._end_us = 1 << 60  # no window ends here
    passed = {DEGRADED: 0, BULK: 0}
    for member in passed:
        for _ in range(8):
            request = Request("k", caller=member.name, criticality=member)
            permit = stack.admit_now(request, 1)
            if isinstance(permit, StackPermit):
                permit.end(Outcome.SUCCESS, 1)
                passed[member] += 1
            else:
                assert permit.reason is QUOTA_SPENT
    assert passed == {DEGRADED: 8, BULK: 2}


def test_claim_above_own_class_is_lowered_first() -> None:
    form = chain()
    stack = stack_of(form)
    request = Request("k", caller="bot", criticality=CRITICAL)
    assert isinstance(stack.admit_now(request, 1), StackPermit)
    assert request.criticality is DEGRADED


def test_pool_in_overload_rejects_what_has_waited() -> None:
    """Twice the capacity for two seconds: without CoDel the queue would be a second long."""

    async def story(loop: VirtualLoop) -> None:
        form = chain(slots=4)
        waits: list[int] = []
        reasons: list[object] = []

        async def work() -> None:
            begun_us = loop.now_us()
            given = await form.pool.admit(Request("k"), loop)
            if isinstance(given, Decision):
                reasons.append(given.reason)
                return
            waits.append(loop.now_us() - begun_us)
            await pause_us(10 * MS)
            given.end(Outcome.SUCCESS, loop.now_us())

        works = []
        for _ in range(1_600):
            works.append(loop.create_task(work()))
            await pause_us(1_250)
        await asyncio.gather(*works)
        assert {*reasons} == {QUEUE_TIMEOUT}
        assert len(waits) >= 0.95 * 800
        assert sorted(waits)[len(waits) * 95 // 100] < 120 * MS
        assert form.pool.inflight == form.pool.queued == 0

    run(story)


@pytest.mark.parametrize("latency_us", [-1.0, math.nan])
def test_latency_below_zero_raises(latency_us: float) -> None:
    with pytest.raises(ValueError, match="latency_us must be 0 or more"):
        P2Ratio().add(latency_us, 0)


def test_ratio_settings_that_disagree_raise() -> None:
    with pytest.raises(ValueError, match="enter and leave must be from 0 to 1"):
        P2Ratio(enter=0.9, leave=0.8)
    with pytest.raises(ValueError, match="short_us must be below long_us"):
        P2Ratio(10, 10)
    with pytest.raises(ValueError, match="a span must be from 1"):
        P2Ratio(0, 10)
    with pytest.raises(ValueError, match="samples_min must be from 1"):
        P2Ratio(samples_min=0)


def test_pool_setting_out_of_range_is_named() -> None:
    with pytest.raises(BadValue, match=r"mussel\.slots"):
        MusselSettings(slots=0)
