"""All of `deploy/kv/` as shipped, but for ports and folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pytest
import yaml

from sluicegate.apps.kv.app import FORGET_US
from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.errors import Unavailable
from sluicegate.testing import HandClock
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.apps.manifest import Manifest
from tests.engines.child import until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

DEPLOY = Path(__file__).parents[3] / "deploy" / "kv"


def test_the_kubernetes_manifest_starts_a_dispatcher_that_is_ready(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = Path(access_file(tmp_path, {"shop": 'tables = { homes = ["read", "write"] }'}))
    manifest = Manifest(
        DEPLOY / "kubernetes.yaml", tmp_path, rules=DEPLOY / "rules", callers=callers.read_text()
    )
    assert manifest.container["command"] == ["sluicegate", "kv"]
    manifest.check_labels()
    manifest.set_environment("SLUICEGATE_KV_", monkeypatch, redis_port=redis_server.port)
    context, token = manifest.context, token_of("shop")
    with KvProcess(tmp_path) as kv:
        for path in manifest.probes():
            assert kv.ask(path, context=context)[0] == 200
        row = "/v1/tables/homes/rows/ann"

        def answered(status: int, body: object = None, method: str = "GET") -> bool:
            asked = kv.ask(row, body, method=method, token=token, context=context)[0]
            assert asked in (status, 429)  # its share of the quota may still be on the way
            return asked == status

        until(lambda: answered(204, {"n": 1}, "PUT"), "a row to be written")
        until(lambda: answered(200), "it to be read")
        assert kv.ask(row, context=context)[0] == 401
        assert kv.ask("/metrics", context=context)[0] == 200  # Prometheus has no token


def test_the_dashboard_and_the_alerts_ask_only_for_metrics_that_there_are(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    dashboard, alerts = DEPLOY / "grafana-dashboard.json", DEPLOY / "alerts.yml"
    names = set(re.findall(r"\bsluicegate_[a-z_]+\b", dashboard.read_text() + alerts.read_text()))
    store = f"redis://127.0.0.1:{redis_server.port}?timeout_ms=5000"
    with KvProcess(tmp_path, "--engine", "memory:", "--store", store) as kv:
        row = "/v1/tables/t/rows/1"
        until(lambda: kv.ask(row, {"n": 1}, method="PUT")[0] < 300, "a row to be written")
        page = str(kv.ask("/metrics")[1])
    there = set(re.findall(r"^(?:# TYPE )?(sluicegate_[a-z_]+)", page, re.MULTILINE))
    assert names
    assert names - there == set()
    assert len(json.loads(dashboard.read_text())["panels"]) > 10
    (group,) = yaml.safe_load(alerts.read_text())["groups"]
    assert all(rule["annotations"]["what_to_do"] for rule in group["rules"])


def test_an_engine_that_fails_wakes_somebody_although_its_traffic_is_taken_away() -> None:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    (rule,) = [rule for rule in group["rules"] if rule["alert"] == "SluicegateEngineFails"]
    of_a_minute = r"avg_over_time\(sluicegate_kv_engine_answers\[1m\]\) < ([0-9.]+)"
    (least,) = map(float, re.findall(of_a_minute, rule["expr"]))

    def answers(failing_s: int, every_s: int, lasts_s: int = 300) -> list[int]:
        """What is scraped each second; it fails for so long, then nobody asks until the next."""
        clock = HandClock()
        watch = StoreWatch(clock, "-", forget_us=FORGET_US)
        scraped = []
        for second in range(lasts_s):
            if second % every_s < failing_s:
                watch.failed("put", Unavailable("the engine lmdb", "full"))
            clock.advance(s=1)
            scraped.append(int(not watch.stats().gone))
        return scraped

    def low(scraped: list[int]) -> list[bool]:
        return [mean(scraped[at - 60 : at]) < least for at in range(60, len(scraped))]

    assert all(low(answers(failing_s=2, every_s=30)))
    assert not any(low(answers(failing_s=1, every_s=1_000)))  # a moment's trouble
