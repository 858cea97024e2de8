from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from sluicegate import Claim, Decision, Limit, Limiter

limiter = Limiter("10/minute", rules={"login": "5/minute", "api": Limit(10, period_us=1_000_000)})

decision: Decision = limiter.take("user:1", cost=2, rule="login")
wait_s: float | None = decision.retry_after_s
both: Decision = limiter.take_all(Claim("ann"), Claim("10.0.0.1", "api", cost=3))


@limiter.limit("10/s", key=lambda name, size: f"user:{name}", cost=lambda name, size: size)
def greet(name: str, size: int) -> str:
    return name * size


@limiter.limit(key="everyone")
async def fetch(url: str) -> bytes:
    return url.encode()


greeting: str = greet("ann", 3)
typed_greet: Callable[[str, int], str] = greet
typed_fetch: Callable[[str], Coroutine[Any, Any, bytes]] = fetch

limiter.take("a", cost=1.5)  # type: ignore[arg-type]
limiter.take(1)  # type: ignore[arg-type]
limiter.limit("10/s")  # type: ignore[call-arg]
greet(1, "x")  # type: ignore[arg-type]


async def forget() -> None:
    if limiter.atake("ann"):  # type: ignore[truthy-bool]
        return
    if not limiter.atake_all(Claim("ann")):  # type: ignore[truthy-bool]
        return
    given: Decision = await limiter.atake("ann")
    limiter.atake("ann")  # type: ignore[unused-coroutine]
    assert given
