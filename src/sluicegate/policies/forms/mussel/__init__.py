"""Mussel's form: prices per class on a latency ratio, a penalty per caller, and a CoDel pool.

Source: "From Static Rate Limiting to Adaptive Traffic Management in Airbnb's Key-Value Store"
(Gaonkar, Getz and Cho, 2025). Its three signals:

    latency ratio    long-term p95 over short-term p95, by P2 (`ratio.py`)
    criticality      below a ratio of 0.3 the request units of a class cost more, then of more
                     classes; callers that persistently trigger the ratio pay a penalty
                     (`prices.py`)
    CoDel pool       a request that has waited too long fails early (`form.py`)

All of them run inside one dispatcher; there is no ratio per shard or operation.
"""

from __future__ import annotations

from sluicegate.policies.forms.mussel.form import MusselChain, MusselSettings
from sluicegate.policies.forms.mussel.prices import MusselPrices
from sluicegate.policies.forms.mussel.ratio import P2Ratio, P2Span

__all__ = ["MusselChain", "MusselPrices", "MusselSettings", "P2Ratio", "P2Span"]
