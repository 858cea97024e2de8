"""Resource: what it expects of an operation whose first requests were slow."""

from __future__ import annotations

from sluicegate.contracts.request import Request
from sluicegate.kernels.service_times import SAMPLES_MIN
from sluicegate.policies.admission.resource import Resource

SECOND_US = 1_000_000
COLD = Request("", operation="cold")


def slow_at_first(busy: int) -> Resource:
    """Eight slots, `busy` of them with other work; two waves of cold requests took 3 s each."""
    resource = Resource("r", 8)
    for wave in range(2):
        sent_us = 3 * wave * SECOND_US
        for _ in range(SAMPLES_MIN):
            window = resource.start(COLD, sent_us)
            now_us = sent_us + 3 * SECOND_US
            resource.end(COLD, sent_us, window, 1, 3 * SECOND_US, now_us, late=True)
    for _ in range(busy):
        resource.start(Request("", operation="other"), 6 * SECOND_US)
    return resource


def test_slow_start_of_operation_is_forgotten_beside_other_work() -> None:
    """Nothing else would correct it: while it counts, callers with two seconds are rejected."""
    resource = slow_at_first(busy=2)
    assert resource.least_us(COLD, 7 * SECOND_US) > 0
    assert resource.least_us(COLD, 15 * SECOND_US) == 0
    assert resource.least_us(COLD, 15 * SECOND_US) > 0  # one request is tried


def test_slow_operation_is_not_tried_where_it_would_displace_others() -> None:
    assert slow_at_first(busy=8).least_us(COLD, 15 * SECOND_US) > 0
