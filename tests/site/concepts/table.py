"""Table: the concepts that have a picture, by the name of their page."""

from __future__ import annotations

from typing import Final

from tests.site.concepts import callers, concurrency, limits, measures, queues
from tests.site.concepts.panel import Draw

DRAWINGS: Final[dict[str, Draw]] = {
    draw.__name__: draw
    for draw in (
        limits.gcra,
        limits.token_bucket,
        limits.leaky_bucket,
        limits.fixed_window,
        limits.sliding_window,
        concurrency.concurrency_limit,
        concurrency.aimd,
        concurrency.vegas,
        concurrency.gradient2,
        concurrency.fast_limit,
        queues.codel,
        queues.adaptive_lifo,
        queues.burst_allowance,
        queues.weighted_queue,
        queues.utilization_shed,
        queues.priority_shed,
        callers.backoff,
        callers.breaker,
        callers.client_throttle,
        callers.retry_budget,
        callers.two_choices,
        callers.hash_ring,
        measures.suppression,
        measures.moving_rate,
        measures.latency_ratio,
        measures.p2_quantile,
        measures.count_min,
        measures.space_saving,
        measures.burn_rate,
    )
}
