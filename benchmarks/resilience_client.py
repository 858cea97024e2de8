"""What a client's parts cost a call that goes well, beside what people use for the same.

    python -m benchmarks.resilience_client

Synchronous, in one thread, around a function that returns at once. Each peer as its page shows it:
pybreaker's, circuitbreaker's and purgatory's breakers, tenacity's and stamina's retry. aiobreaker
and hyx have only asynchronous forms; they stand in a table of their own, each a coroutine stepped
to its end, so that no event loop is measured.

The bars, for the compiled build: the breaker at most 1/3 of the cheapest peer's time; the retry at
most 1/20 of stamina's and tenacity's and no more than hyx's; the whole stack at most 25 us.

The breaker misses its bar: 0.76 to 0.79 of circuitbreaker's time in four runs (306 of 390 ns).
To that peer a success is three fields set anew. Ours counts it in a window of time, and a call that
it refuses may come back by the time, so it is told when each begins and ends. Two looks at the
clock are 0.32 of the peer's time before anything is decided; where the time is given, as by a
client, whose parts share what was read, the policy is 0.45 of it: a look-up by backend, a permit
that ends once, the window, and the call within a call that every one of these has (0.08).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from importlib import import_module
from typing import Any

from benchmarks.rounds import Bars, build_of, interleaved, print_results
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.request import Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client import breaker as policy_module
from sluicegate.policies.client.breaker import Breaker, BreakerPermit
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of_value
from sluicegate.policies.client.retry import Retry
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.resilient import resilient
from sluicegate.system import SystemChance, now_us

CALLS = 2_000
BREAKER_BAR = 1 / 3
RETRY_BAR = 1 / 20
STACK_US_BAR = 25


def work() -> int:
    """What is called."""
    return 1


async def work_async() -> int:
    """What is awaited."""
    return 1


def repeat(function: Callable[[], Any]) -> Callable[[], int]:
    """A candidate that calls a function."""

    def run() -> int:
        for _ in range(CALLS):
            function()
        return CALLS

    return run


def repeat_async(function: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], int]:
    """A candidate that steps a coroutine that never waits."""

    def run() -> int:
        for _ in range(CALLS):
            try:
                function().send(None)
            except StopIteration:
                continue
            raise AssertionError("it waited")
        return CALLS

    return run


def our_breaker() -> Callable[[], int]:
    """The policy alone: a look-up by backend, a permit, the result."""
    breaker = Breaker(SystemChance())
    request = Request("", shard="b", operation="get")
    good: CallResult[object] = CallResult(ResultKind.OK)

    def call() -> int:
        permit = breaker.admit(request, now_us())
        value = work()
        if isinstance(permit, BreakerPermit):
            permit.end_with(good, now_us())
        else:
            assert permit is NOTHING_HELD
        return value

    return call


def our_breaker_given(instant_us: int) -> Callable[[], int]:
    """The same where the time is known, as to a client, whose parts share what was read."""
    breaker = Breaker(SystemChance())
    request = Request("", shard="b", operation="get")
    good: CallResult[object] = CallResult(ResultKind.OK)

    def call() -> int:
        permit = breaker.admit(request, instant_us)
        value = work()
        if isinstance(permit, BreakerPermit):
            permit.end_with(good, instant_us)
        else:
            assert permit is NOTHING_HELD
        return value

    return call


def our_wrapper() -> Callable[[], int]:
    """A floor: a call within a call."""

    def call() -> int:
        return work()

    return call


def our_clock() -> Callable[[], int]:
    """A floor: the same, and the clock read before and after."""

    def call() -> int:
        now_us()
        value = work()
        now_us()
        return value

    return call


def our_retry() -> Callable[[], int]:
    """The policy alone: a deposit into the budget, and the result judged."""
    retry = Retry(SystemChance())
    request = Request("", shard="b", operation="get")

    def call() -> int:
        retry.begin(request, now_us())
        try:
            result = result_of_value(work())
            assert retry.next_wait_us(result, request, 0, 0, idempotent=True) == NEVER
            return result.unwrap()
        finally:
            retry.end()

    return call


def main() -> None:
    """Measure and print."""
    # By name: few of them have types, and none is needed to read this file.
    aiobreaker, circuitbreaker, purgatory, pybreaker, stamina, tenacity, hyx = map(
        import_module,
        (
            "aiobreaker",
            "circuitbreaker",
            "purgatory",
            "pybreaker",
            "stamina",
            "tenacity",
            "hyx.retry",
        ),
    )
    build = build_of(policy_module.__file__)
    purgatory_breaker = purgatory.SyncCircuitBreakerFactory()(circuit="b")
    breakers = interleaved(
        {
            "sluicegate": repeat(our_breaker()),
            "sluicegate, given the time": repeat(our_breaker_given(now_us())),
            "floor: a call within a call": repeat(our_wrapper()),
            "floor: and two looks at the clock": repeat(our_clock()),
            "pybreaker": repeat(pybreaker.CircuitBreaker()(work)),
            "circuitbreaker": repeat(circuitbreaker.circuit(work)),
            "purgatory": repeat(purgatory_breaker(work)),
        }
    )
    print_results(f"A breaker around a call that goes well, {build}", breakers, "sluicegate")
    aio_breaker = aiobreaker.CircuitBreaker(fail_max=5, timeout_duration=timedelta(seconds=60))
    stack = ResilientClient()
    asynchronous = interleaved(
        {
            "aiobreaker": repeat_async(aio_breaker(work_async)),
            "hyx retry": repeat_async(hyx.retry(on=OSError, attempts=3)(work_async)),
        }
    )
    print_results("Asynchronous peers", asynchronous, "hyx retry")
    retries = interleaved(
        {
            "sluicegate": repeat(our_retry()),
            "tenacity": repeat(tenacity.retry(stop=tenacity.stop_after_attempt(3))(work)),
            "stamina": repeat(stamina.retry(on=OSError, attempts=3)(work)),
            "sluicegate, whole stack": repeat(resilient(stack, "b", idempotent=True)(work)),
        }
    )
    print_results(f"A retry around a call that goes well, {build}", retries, "sluicegate")
    whole_us = retries["sluicegate, whole stack"].median_ns / 1_000
    peers = ("pybreaker", "circuitbreaker", "purgatory")
    cheapest_ns = min(
        *(breakers[peer].median_ns for peer in peers), asynchronous["aiobreaker"].median_ns
    )
    breaker_share = breakers["sluicegate"].median_ns / cheapest_ns
    for name in ("floor: and two looks at the clock", "sluicegate, given the time"):
        print(f"  {name}, of a peer's: {breakers[name].median_ns / cheapest_ns:.2f}")
    cheapest_retry_ns = min(retries["tenacity"].median_ns, retries["stamina"].median_ns)
    retry_share = retries["sluicegate"].median_ns / cheapest_retry_ns
    hyx_share = retries["sluicegate"].median_ns / asynchronous["hyx retry"].median_ns
    bars = Bars()
    bars.check(whole_us <= STACK_US_BAR, f"the stack at most {STACK_US_BAR} us: {whole_us:.1f}")
    figures = [
        (breaker_share <= BREAKER_BAR, f"breaker at most 1/3 of a peer's: {breaker_share:.2f}"),
        (retry_share <= RETRY_BAR, f"retry at most 1/20 of a peer's: {retry_share:.3f}"),
        (hyx_share <= 1.0, f"retry no more than hyx's: {hyx_share:.2f}"),
    ]
    for met, text in figures:
        if build == "compiled":
            bars.check(met, text)
        else:
            print(f"  {text}")
    bars.exit()


if __name__ == "__main__":
    main()
