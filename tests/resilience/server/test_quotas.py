"""Quotas by caller from the rulebook, before a protected service: counted here or by a service."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sluicegate import Limiter
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.rules.web.guard import RulesGuard
from tests.doors.test_frameworks import served
from tests.stores.service.door import Service

RULES = """
version: 1
limits:
  by-caller: {{match: {{path: /page}}, key: "header:x-caller", limit: {limit}/hour}}
"""


def shop(limiter: Limiter) -> ProtectedApp:
    async def show(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/close":  # in the loop that its connections are of
            await limiter.aclose()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    return protect(show)


@contextlib.contextmanager
def limiter_of(counted_by: str) -> Iterator[Limiter]:
    if counted_by == "itself":
        yield Limiter()
        return
    with Service() as service:
        yield Limiter(store_url=service.url, prefix="shop")


def ask(port: int, caller: str, times: int) -> Counter[int]:
    fields = {"x-caller": caller}
    url = f"http://127.0.0.1:{port}/page"
    with httpx.Client(verify=False, headers=fields) as driver:
        return Counter(driver.get(url).status_code for _ in range(times))


@pytest.mark.parametrize("counted_by", ["itself", "a service"])
def test_each_caller_has_its_quota_and_a_new_rule_holds_from_the_next_request_on(
    counted_by: str, tmp_path: Path
) -> None:
    """Who is over it takes no place and is told 429; whoever is not is served by the same app."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(limit=3))
    with limiter_of(counted_by) as limiter:
        app = shop(limiter)
        guard = RulesGuard(rules, limiter, watch_every_s=None)
        with served(LimitMiddleware(app, guard, exempt=["/healthz", "/close"])) as port:
            assert ask(port, "ann", 5) == {200: 3, 429: 2}
            assert ask(port, "ben", 2) == {200: 2}
            assert app.protection.stats().light.admitted == 5
            rules.write_text(RULES.format(limit=7))
            assert guard.reload()
            assert ask(port, "ann", 9)[429] >= 2
            assert ask(port, "cid", 7) == {200: 7}
            for spared in ("healthz", "close"):
                assert httpx.get(f"http://127.0.0.1:{port}/{spared}").status_code == 200
        guard.close()
