"""A dispatcher goes by a rulebook: quotas change on a commit, without a restart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import redis

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.service.settings import settings_from
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.apps.rulebook.stories import Book, book
from tests.engines.child import until

__all__ = ["book"]


def rules(**callers: object) -> str:
    return f"version: 1\ncallers: {json.dumps(callers)}\nrules: []\n"


def admitted(client: redis.Redis, count: int) -> int:
    done = 0
    for _ in range(count):
        try:
            client.set("t:1", "x")
            done += 1
        except redis.exceptions.ResponseError:
            continue
    return done


def test_20000_named_callers_need_no_setting(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(20_000)]
    callers = {"quotas": dict.fromkeys(names, "5/s"), "names": dict.fromkeys(names, "BULK")}
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"version": 1, "rules": [], "callers": callers}))

    async def story() -> None:
        app = KvApp(settings_from(KvSettings, "--engine", "memory:", "--rules", str(path)))
        await app.start()
        try:
            assert app.quotas.budget.quota_mru(names[-1]) == 5_000
        finally:
            await app.end()

    asyncio.run(story())


def test_a_quota_of_the_rulebook_is_in_force_without_a_restart(book: Book, tmp_path: Path) -> None:
    book.init(rules(quotas={"shop": "1/s"}))
    access = access_file(tmp_path, {"shop": 'tables = { "*" = ["read", "write"] }'})
    following = [
        "--rulebook", f"files:{book.folder}/blobs",
        "--rulebook-keys", f"{book.folder}/keys/signing.pub.pem",
        "--rulebook-folder", str(tmp_path / "kept"),
        "--rulebook-events", f"files:{book.folder}/events",
        "--rulebook-report-s", "0.2",
        "--node", "kv-1",
    ]  # fmt: skip
    flags = ["--engine", "memory:", "--access", access]
    with KvProcess(tmp_path, *flags, *following) as kv:
        shop = kv.redis(token_of("shop"))
        assert admitted(shop, 10) == 0  # a write costs seven, and it has one a second
        proposal = book.propose(rules(quotas={"shop": "1000000/s"}))
        book.at("approve", proposal, "--override", "nothing captured yet")
        version = book.json("publish", proposal)["version"]
        until(
            lambda: [one.get("version") for one in book.json("status")["nodes"]] == [version],
            f"version {version}",
        )
        until(lambda: admitted(shop, 20) == 20, "the new quota")
