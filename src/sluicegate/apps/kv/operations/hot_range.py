"""Hot range: the answer of a range, or of places of a partition, that the shield knows as hot."""

from __future__ import annotations

from sluicegate.apps.kv.admission import Admission
from sluicegate.apps.kv.shield.ranges import RangeAnswer, RangeFetch, RangeQuestion, RangeShield
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.hot_key import MISS, REFRESH


async def ask(
    admission: Admission,
    clock: Clock,
    ranges: RangeShield,
    question: RangeQuestion,
    state: int,
    held: RangeAnswer | None,
    request: Request,
    fetch: RangeFetch,
) -> RangeAnswer:
    """The answer of a question that is not cold, from the cache or by a shared fetch."""
    if state == REFRESH and held is not None:
        ranges.fetch_ahead(question, request, clock, fetch)
        admission.cached(request.caller, clock.now_us(), request, ranges.shield, question.key)
        return held
    stale = None if state == MISS else held
    answer = await ranges.read(question, stale, request, clock, fetch)
    measured = request.measured
    if measured is not None and measured.from_cache:
        admission.cached(request.caller, clock.now_us(), request)
    return answer
