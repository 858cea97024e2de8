from __future__ import annotations

from collections.abc import Mapping

from sluicegate import Criticality, Decision, Limit, Limiter
from sluicegate.client import Answer, Client, ClientStats, SyncClient

client = Client("sluicegate://:token@limits:7070", lease="auto", failure="open", timeout_ms=20)
fixed = Client(
    "sluicegates://limits", lease=100, failure="local", local_limit=Limit(10, period_us=1_000_000)
)
limiter = Limiter("5/s", store_url="sluicegate://limits:7070")
headers: Mapping[str, str] = {"x-request-name": "home"}


async def serve() -> float:
    answer: Answer = await client.check("ann", "/play", 2, priority="bulk", headers=headers)
    await client.check("ann", "/play", cost=2, priority=Criticality.CRITICAL, timeout_ms=5)
    decision: Decision = answer.decision
    if decision or answer:
        return 0.0
    forgotten: int = await client.reset("ann", "/play")
    stats: ClientStats = client.stats()
    async with fixed as entered:
        looked: Answer = await entered.peek("ann", "/play")
    return (answer.retry_after_s or 0.0) + forgotten + stats.leased + looked.remaining


with SyncClient("sluicegate://limits", lease=None) as sync:
    allowed: bool = sync.check("ann", "/play").allowed

client.check("ann")  # type: ignore[call-arg, unused-coroutine]
client.check("ann", "/play", priority=3.5)  # type: ignore[arg-type, unused-coroutine]
Client(lease=1.5)  # type: ignore[arg-type]
SyncClient().check("ann", "/play", "2")  # type: ignore[arg-type]
