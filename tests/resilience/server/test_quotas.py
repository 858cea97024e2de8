"""Quotas by caller from rules, before a protected service: counted here or by a service."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from sluicegate import Limiter
from sluicegate.cli import main
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.resilience.rulebook import follow_rulebook
from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import FollowedRulebook, Resilience
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.guard import RulebookGuard
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.service_rules import ServiceRules
from sluicegate.rules.web.guard import RulesGuard
from tests.doors.test_frameworks import served
from tests.engines.child import until
from tests.rules.web.arrivals import PlainArrival
from tests.stores.service.door import Service

BOOK = """
version: 1
callers:
  names: {{ann: CRITICAL, ben: CRITICAL, cid: CRITICAL}}
  quotas: {{ann: {ann}/h, 10.0.0.1: 1/h}}
rules:
  - {{rule_id: all, resource_path: /page, limit: 9, window: 1h}}
  - {{rule_id: all-too, resource_path: /page, limit: 9, window: 1d, mode: shadow}}
  - {{rule_id: few, resource_path: /page, priority_bucket: BULK, limit: 1, window: 1h}}
"""
RULES = """
version: 1
rules:
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
            assert app.protection.stats().gate.admitted == 5
            rules.write_text(RULES.format(limit=7))
            assert guard.reload()
            assert ask(port, "ann", 9)[429] >= 2
            assert ask(port, "cid", 7) == {200: 7}
            for spared in ("healthz", "close"):
                assert httpx.get(f"http://127.0.0.1:{port}/{spared}").status_code == 200
        guard.close()


@pytest.mark.parametrize("counted_by", ["itself", "a service"])
def test_the_rulebook_says_the_quotas_and_a_new_release_holds_from_the_next_request_on(
    counted_by: str, tmp_path: Path
) -> None:
    """The same rules that a limiter would decide by, in the service itself."""
    file = tmp_path / "rules.yaml"
    file.write_text(BOOK.format(ann=3))
    with limiter_of(counted_by) as limiter:
        app = shop(limiter)
        guard = RulebookGuard(limiter)
        user = named_user
        with served(LimitMiddleware(app, guard, user=user, exempt=["/close"])) as port:
            url = f"http://127.0.0.1:{port}/page"
            assert ask(port, "ann", 4) == {200: 4}  # no rules are in force yet
            rules = ServiceRules([file], lambda book: guard.put_in_force(FleetBooks(book, 1)))
            assert ask(port, "ann", 5) == {200: 3, 429: 2}
            refused = httpx.get(url, headers={"x-caller": "ann"})
            assert refused.json()["rule"] == "quota:ann"
            assert '"quota:ann";q=3;w=3600' in refused.headers["ratelimit-policy"]
            bulk = {"x-caller": "ben", "x-sluicegate-criticality": "bulk"}
            assert [httpx.get(url, headers=bulk).status_code for _ in range(2)] == [200, 429]
            assert ask(port, "cid", 10) == {200: 9, 429: 1}
            wrong = {"x-caller": "dan", "x-sluicegate-criticality": "utmost"}
            assert httpx.get(url, headers=wrong).status_code == 400  # the protection says so
            (tmp_path / "new").write_text(BOOK.format(ann=5))
            (tmp_path / "new").replace(file)
            assert rules.poll()
            assert ask(port, "ann", 9)[200] in {2, 5}  # what was counted may count on
            assert httpx.get(f"http://127.0.0.1:{port}/close").status_code == 200


def named_user(scope: Any) -> str | None:
    return next((value.decode() for key, value in scope["headers"] if key == b"x-caller"), None)


def test_who_is_not_known_is_counted_by_address_and_a_canary_is_for_its_callers(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(BOOK.format(ann=3))
    live = ServiceRuleSet.load([file])
    file.write_text(BOOK.format(ann=1))
    guard = RulebookGuard(Limiter())
    guard.put_in_force(FleetBooks(live, 1, ServiceRuleSet.load([file]), 2, 10_000, "salt"))
    found = [guard.judge(PlainArrival("/page", user="ann")) for _ in range(2)]
    assert [one is not None and one.decision.allowed for one in found] == [True, False]
    nobody = PlainArrival("/page")
    found = [guard.judge(nobody) for _ in range(2)]
    assert [one is not None and one.decision.allowed for one in found] == [True, False]
    assert guard.judge(PlainArrival("/else", user="ann")) is not None
    assert guard.judge(PlainArrival("/else", user="ben")) is None


def test_a_node_reports_what_the_live_release_and_a_canary_of_its_quotas_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By its commands and a real follower: what the rulebook judges a canary by."""
    file, book = tmp_path / "rules.yaml", tmp_path / "book"
    file.write_text(BOOK.format(ann=3))
    flags = ("--rulebook", str(book))
    assert main(["rules", "init", str(book), "--rules", str(file), "--alone"]) == 0
    settings = Resilience(
        rulebook=FollowedRulebook(
            blobs=f"files:{book}/blobs",
            keys=(f"{book}/keys/signing.pub.pem",),
            events=f"files:{book}/events",
            node="shop-1",
            folder=str(tmp_path / "last-good"),
        )
    )
    guard = RulebookGuard(Limiter())

    def ask(caller: str, times: int) -> None:
        claim = {"x-sluicegate-criticality": "critical"}
        path = "/page" if caller == "ann" else "/else"
        for _ in range(times):
            guard.judge(PlainArrival(path, user=caller, headers=claim))

    with follow_rulebook(settings, Protection(settings), guard) as follower:
        ask("ann", 5)
        ask("ben", 2)  # whom no rule is about
        assert nonzero(follower.report().counts) == {"1/CRITICAL": [7, 2]}
        file.write_text(BOOK.format(ann=1))
        capfd.readouterr()
        assert main(["rules", "propose", str(file), "-m", "fewer", "--json", *flags]) == 0
        proposal = json.loads(capfd.readouterr().out)["id"]
        assert main(["rules", "approve", proposal, "--override", "no traffic", *flags]) == 0
        assert main(["rules", "canary", proposal, "--share", "99.99%", *flags]) == 0
        until(lambda: follower.books.canary_version == 2, "the canary")
        ask("ann", 4)
        counts = nonzero(follower.report().counts)
        assert counts["1/CRITICAL"] == [7, 2]
        assert counts["2/CRITICAL"][0] == 4
        assert counts["2/CRITICAL"][1] >= 3
        assert main(["rules", "publish", proposal, *flags]) == 0
        until(lambda: follower.books.live_version == 2, "it is live")
        ask("ann", 1)
        assert nonzero(follower.report().counts) == {"2/CRITICAL": [1, 1]}


def nonzero(counts: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    return {name: pair for name, pair in counts.items() if any(pair)}
