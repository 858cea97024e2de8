from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sluicegate.policies.client.call_result import CallResult
from sluicegate.resilience import Client, gather, gather_now, protect, resilient, soft
from sluicegate.resilience.server.asgi import ProtectedApp
from sluicegate.resilience.server.wsgi import ProtectedWsgiApp
from sluicegate.testing import set_testing

client = Client(timeout_s=2.0, attempts=3, on=(KeyError, ValueError), hosts=["10.0.0.1:80"])


@resilient(client, "prices", idempotent=True, ignore=lambda error: "old" in str(error))
async def price(item: str) -> int:
    return 12


@resilient(attempts=2)
def stock(item: str) -> float:
    return 1.0


@soft(default=list, timeout_s=0.3)
async def reviews(item: str, most: int = 3) -> list[str]:
    return []


@soft(default=str)
def color(item: str) -> str:
    return "red"


async def page(item: str) -> None:
    cost, texts = await gather(price(item), reviews(item), timeout_s=1.0)
    whole: int = cost.unwrap()
    lines: list[str] = texts.unwrap()
    named = await gather({"a": price(item), "b": price(item)})
    other: CallResult[int] = named["a"]
    asked: int = await client.run("prices", lambda: price(item))
    same: list[str] = await reviews(item, most=2)
    result: CallResult[list[str]] = await reviews.result(item)
    _ = (whole, lines, other, asked, same, result)

    cost.unwrap().upper()  # type: ignore[attr-defined]
    await reviews(3)  # type: ignore[arg-type]
    await price(3)  # type: ignore[arg-type]
    await gather(stock)  # type: ignore[call-overload]


def page_now(item: str) -> None:
    shade, many = gather_now(lambda: color(item), lambda: stock(item), timeout_s=1.0)
    text: str = shade.unwrap()
    number: float = many.unwrap()
    counted: float = client.run_now("stock", lambda: stock(item))
    plain: str = color.result(item).unwrap()
    _ = (text, number, counted, plain)
    with set_testing(True, attempts=2):
        color(item)
    color(3)  # type: ignore[arg-type]


async def asgi(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    return None


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    return []


protected: ProtectedApp = protect(asgi)
protected_wsgi: ProtectedWsgiApp = protect(wsgi)
Client(timeout_s="2")  # type: ignore[arg-type]
soft(default=3)  # type: ignore[arg-type]
