"""Table: the concepts that have a picture, by the name of their page."""

from __future__ import annotations

from typing import Final

from tests.site.concepts import (
    callers,
    concurrency,
    costs,
    holds,
    keys,
    limits,
    lookups,
    measures,
    queues,
)
from tests.site.concepts.panel import Draw

DRAWINGS: Final[dict[str, Draw]] = {
    draw.__name__: draw
    for draw in (
        limits.gcra,
        limits.token_bucket,
        limits.fixed_window,
        limits.sliding_window,
        queues.codel,
        queues.adaptive_lifo,
        queues.fair_queue,
        concurrency.found_limit,
        queues.utilization_shed,
        callers.backoff,
        callers.breaker,
        callers.client_throttle,
        callers.retry_budget,
        callers.two_choices,
        callers.hash_ring,
        measures.suppression,
        measures.moving_rate,
        measures.p2_quantile,
        measures.count_min,
        measures.space_saving,
        measures.burn_rate,
        measures.windowed_quantile,
        callers.outlier,
        costs.call_plan,
        holds.permits,
        holds.leased_block,
        holds.cell_throttle,
        lookups.rule_index,
        lookups.path_index,
        lookups.glob_index,
        costs.cost_model,
        costs.key_span,
        costs.lending,
        costs.quota_tuning,
        keys.lru_ttl,
        keys.digest_filter,
        keys.image_fit,
        keys.perceptual_hash,
    )
}
