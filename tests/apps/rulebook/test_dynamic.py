"""What the rulebook says of callers acts on what runs: limiters, and programs of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from sluicegate import Limiter
from sluicegate.contracts.checks import CheckRequest, CheckResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit
from sluicegate.policies.admission.utilization_gate import OpenGate
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.follower import Follower
from sluicegate.rules.releases.signatures import Verifier
from sluicegate.rules.releases.store import ReleaseStore
from sluicegate.rules.resources.service import Checker
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.event_logs import open_log
from sluicegate.system import now_us
from tests.apps.limiter.process import LimiterProcess
from tests.apps.rulebook.stories import Book
from tests.apps.rulebook.test_fleet import admitted, following
from tests.engines.child import PATIENCE_S, until
from tests.engines.redis import RedisServer


def rules(**callers: object) -> str:
    """Ten an hour for everybody, and what is said of callers."""
    return (
        f"version: 1\ncallers: {json.dumps(callers)}\n"
        "rules: [{rule_id: play, resource_path: /play, limit: 10, window: 1h}]\n"
    )


class Change:
    """Publishes callers' tables, and waits until what runs goes by them."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def __call__(self, runs: Callable[[int], bool], **callers: object) -> None:
        proposal = self._book.propose(rules(**callers))
        self._book.at("approve", proposal, "--override", "nothing captured yet")
        version = self._book.json("publish", proposal)["version"]
        until(lambda: runs(version), f"version {version}")


def changes_act(book: Book, limiter: LimiterProcess, nodes: int) -> None:
    """Each table in turn, on a limiter that is never restarted."""

    def runs(version: int) -> bool:
        status = book.json("status")["nodes"]
        return [one.get("version") for one in status] == [version] * nodes

    change = Change(book)
    assert admitted(limiter, "nobody", 12) == 10
    change(runs, quotas={"q": {"limit": 3, "window": "1h"}})
    assert admitted(limiter, "q", 12) == 3
    change(runs, penalties={"p": 5})
    assert admitted(limiter, "p", 12) == 2
    change(runs, names={"c": "CRITICAL"}, pins=["c"])
    assert limiter.check("c", "/play", priority="CRITICAL")["priority"] == "CRITICAL"
    assert limiter.check("x", "/play", priority="CRITICAL")["priority"] == "DEGRADED"
    assert admitted(limiter, "q", 12) == 7  # its quota is gone, what it has counted is not
    change(runs, names={"c": "BULK"})
    assert limiter.check("c", "/play", priority="CRITICAL")["priority"] == "BULK"


def test_tables_of_callers_act_at_once_where_counts_are_in_memory(book: Book) -> None:
    book.init(rules())
    events = ["--rulebook-events", f"files:{book.folder}/events", "--node", "n1"]
    with LimiterProcess(book.folder, *following(book, *events)) as one:
        changes_act(book, one, nodes=1)
        assert one.metric("sluicegate_rules_lag_seconds") < PATIENCE_S


def test_and_with_redis_on_all_workers(book: Book, redis_server: RedisServer) -> None:
    book.init(rules())
    more = [
        "--rulebook-events", f"files:{book.folder}/events", "--node", "n1", "--workers", "2",
        "--store", f"redis://127.0.0.1:{redis_server.port}?timeout_ms=1000",
        "--capture", f"{book.folder}/capture",
    ]  # fmt: skip
    with LimiterProcess(book.folder, *following(book, *more)) as one:
        changes_act(book, one, nodes=2)
    assert {one["node"] for one in book.json("status")["nodes"]} == {"n1-0", "n1-1"}
    # What both workers have captured is read as one.
    verdict = book.json("propose", book.file(rules(names={"c": "DEGRADED"})), "-m", "x")["verdict"]
    assert verdict["report"]["capture"]["requests"] == 12 * 3 + 3 + 12


class Silent:
    def record_decision(
        self,
        entity: str,
        rule_id: str,
        cost: int,
        priority: Criticality,
        decision: Decision,
        began_us: int,
        limit: Limit | None = None,
    ) -> None: ...


def test_a_program_of_ones_own_follows_too(book: Book, tmp_path: Path) -> None:
    book.init(rules())
    limiter = Limiter()
    checker = Checker(limiter, OpenGate(), Silent())
    versions: list[FleetBooks] = []

    def put_in_force(books: FleetBooks) -> None:
        limiter.replace_rules(books.rules_beside(versions[-1] if versions else None))
        checker.book = books.live.resources
        versions.append(books)

    def allowed(caller: str) -> int:
        answers = [checker.check(CheckRequest(caller, "/play"), now_us()) for _ in range(12)]
        return sum(isinstance(one, CheckResponse) and one.decision.allowed for one in answers)

    events = open_log(f"files:{book.folder}/events")
    verifier = Verifier.read([book.folder / "keys" / "signing.pub.pem"])
    store = ReleaseStore(open_blobs(f"files:{book.folder}/blobs"), verifier)
    with Follower(
        store, put_in_force, node="mine", folder=tmp_path / "last", announcements=events
    ) as follower:
        assert allowed("q") == 10
        change = Change(book)
        quotas = {"r": {"limit": 3, "window": "1h"}}
        change(
            lambda version: follower.books.live_version == version,
            quotas=quotas, names={"c": "CRITICAL"},
        )  # fmt: skip
        assert allowed("r") == 3
        callers = follower.books.live.resources.priorities.callers
        assert callers.clamp("c", Criticality.CRITICAL) is Criticality.CRITICAL
        assert callers.clamp("x", Criticality.CRITICAL) is Criticality.DEGRADED
    events.close(1_000_000)
