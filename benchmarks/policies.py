"""What the server chain adds to a request, beside one bare Starlette request.

The chain: the hot-key shield (a counter and a look, of 10,000 keys, most of them cold),
criticality, request units, and the queue with its limit. Every
request is admitted at once, as a dispatcher does it where nobody has to wait, and ends with a
measured time; the clock is the real one, and making the request is part of it. Also printed is what
each stage costs by itself, and the p50 and p99 of single requests, by the wall clock of a machine
that may be shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.asgi import bare, requests_of
from benchmarks.rounds import Bars, build_of, interleaved, print_results, ratio
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import Policy
from sluicegate.contracts.request import Measured, Request, make_request
from sluicegate.policies import stack as stack_module
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.cache.hot_key import HotKey, HotKeySettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, at_once, waits
from sluicegate.system import SystemChance, SystemClock

REQUESTS = 5_000
SINGLE = 20_000
ROUNDS = 9
SHARE_MAX = 1 / 2
BARE, CHAIN = "bare Starlette", "server chain"
CALLERS = [f"caller-{number}" for number in range(100)]
KEYS = [f"key-{number * number % 9_973}" for number in range(10_000)]
MEASURED = Measured(service_us=1_000, rows=1, size_bytes=512)

CLOCK = SystemClock()


def request(number: int) -> Request:
    """One that comes in now, with two seconds to go."""
    now_us = CLOCK.now_us()
    return make_request(
        KEYS[number % 10_000],
        caller=CALLERS[number % 100],
        criticality=Criticality.DEGRADED,
        arrived_us=now_us,
        deadline_us=now_us + 2_000_000,
        operation="get",
    )


def policies() -> dict[str, Policy]:
    """The stages before the queue, none of which has anything to refuse."""
    table = dict.fromkeys(CALLERS, Criticality.CRITICAL)
    plenty = RequestUnitsSettings(rate_ru=1_000_000, burst_ru=1_000_000)
    return {
        "criticality": CriticalityClamp(CriticalitySettings(callers=table)),
        "request units": RequestUnits(plenty),
    }


class Chain(NamedTuple):
    """What a request passes: the shield first, which may have the answer, and then the stack."""

    shield: HotKey[object]
    stack: Stack
    draw: Callable[[], float]


def server_chain() -> Chain:
    """The whole chain."""
    stages = [at_once(name, policy) for name, policy in policies().items()]
    stack = Stack(*stages, waits("queue", Gate(GateSettings())))
    return Chain(HotKey(HotKeySettings()), stack, SystemChance().draw)


def serve(chain: Chain, unit: Request) -> None:
    """In and out; nothing is cached, so even a hot key goes on."""
    chain.shield.look(unit.key, unit.arrived_us, chain.draw())
    now_us = CLOCK.now_us()
    if not chain.stack.ready(unit, now_us):
        raise RuntimeError("a request has to wait where nothing is at work")
    permit = chain.stack.admit_now(unit, now_us)
    if isinstance(permit, Decision):
        raise Refused(permit)
    unit.measured = MEASURED
    permit.end(Outcome.SUCCESS, CLOCK.now_us())


def requests_through(chain: Chain) -> Callable[[], int]:
    """Request after request."""

    def run() -> int:
        for number in range(REQUESTS):
            serve(chain, request(number))
        return REQUESTS

    return run


def requests_at(policy: Policy) -> Callable[[], int]:
    """The same through one stage alone, without a stack."""

    def run() -> int:
        for number in range(REQUESTS):
            unit = request(number)
            permit = policy.admit(unit, unit.arrived_us)
            if isinstance(permit, Decision):
                raise Refused(permit)
            unit.measured = MEASURED
            permit.end(Outcome.SUCCESS, unit.arrived_us)
        return REQUESTS

    return run


def requests_shielded(shield: HotKey[object], draw: Callable[[], float]) -> Callable[[], int]:
    """The same with the shield alone."""

    def run() -> int:
        for number in range(REQUESTS):
            unit = request(number)
            shield.look(unit.key, unit.arrived_us, draw())
            unit.measured = MEASURED
        return REQUESTS

    return run


def only_requests() -> int:
    """Nothing but the requests: what all the others pay too."""
    for number in range(REQUESTS):
        request(number).measured = MEASURED
    return REQUESTS


def singles(chain: Chain) -> list[float]:
    """The times of single requests, in microseconds, sorted."""
    times = []
    for number in range(SINGLE):
        began_ns = time.perf_counter_ns()
        serve(chain, request(number))
        times.append((time.perf_counter_ns() - began_ns) / 1_000)
    return sorted(times)


def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    build = build_of(stack_module.__file__)
    chain = server_chain()
    ones = policies()
    candidates = {BARE: requests_of(bare()), CHAIN: requests_through(chain)}
    candidates["  hot-key shield alone"] = requests_shielded(HotKey(HotKeySettings()), chain.draw)
    candidates |= {f"  {name} alone": requests_at(policy) for name, policy in ones.items()}
    candidates["  making a request"] = only_requests
    results = interleaved(candidates, rounds=ROUNDS)
    print_results(f"A request, {build}", results, BARE)
    times = singles(chain)
    p50, p99 = times[SINGLE // 2], times[SINGLE * 99 // 100]
    print(f"\nSingle requests through the chain: p50 {p50:.1f} us, p99 {p99:.1f} us\n")
    share = 1 / ratio(results, BARE, CHAIN)
    print(f"  the chain is {share:.2f} of a bare Starlette request")
    if build == "compiled":
        bars.check(share <= SHARE_MAX, f"at most half of a bare Starlette request: {share:.2f}")
    bars.exit()


if __name__ == "__main__":
    main()
