"""`sluicegate limiter --traces`: a real collector is sent what was decided, and for whose span."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import redis

from sluicegate.protos.rate_limiter_pb2 import RateLimitRequest
from sluicegate.protos.rate_limiter_pb2_grpc import RateLimiterStub
from tests.apps.collector import ASKING, NOT_SAMPLED, SAMPLED, TRACE, Collector
from tests.apps.limiter.process import LimiterProcess, rules_file

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

RULES = """\
version: 1
rules:
  - rule_id: playback
    resource_path: /playback
    limit: 1
    window_seconds: 3600
"""
CHECK = "sluicegate.v1.RateLimiter/Check"


def ask_all_doors(limiter: LimiterProcess, traceparent: str) -> None:
    """One check over each, of which the first alone is within the limit."""
    with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
        request = RateLimitRequest(user_id="ann", resource_path="/playback")
        answer = RateLimiterStub(channel).Check(request, metadata=(("traceparent", traceparent),))
        assert answer.allowed
    body = {"user_id": "ann", "resource_path": "/playback"}
    _, answer = limiter.ask("/v1/check", body, headers={"traceparent": traceparent})
    assert not answer["allowed"]
    client = redis.Redis(port=limiter.port)
    pipe: Any = client.pipeline(transaction=False)
    pipe.execute_command("SG.TRACE", traceparent)
    pipe.execute_command("SG.CHECK", "ann", "/playback")
    pipe.execute_command("SG.CHECK", "ann", "/playback")  # the span was that of the first alone
    assert pipe.execute()[0] in (b"OK", True)
    client.close()


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "redis"])
def test_each_door_takes_the_callers_span_up(
    tmp_path: Path, redis_server: RedisServer, shared: bool
) -> None:
    store = ["--store", redis_server.patient_url] if shared else []
    rules = rules_file(tmp_path, RULES.replace("playback", f"playback{tmp_path.name}", 1))
    with Collector() as collector:
        flags = ["--rules", rules, "--traces", collector.url, "--traces-share", "0", *store]
        with LimiterProcess(tmp_path, *flags) as limiter:
            limiter.check("bob", "/playback")  # nobody asks for a span, and none is drawn
            ask_all_doors(limiter, SAMPLED)
            assert limiter.metric("sluicegate_limiter_traces_total", what="begun") == 3
        requests = [
            *collector.named(CHECK),
            *collector.named("POST /v1/check"),
            *collector.named("SG.CHECK"),
        ]
        assert [one.parent for one in requests] == [ASKING] * 3
        assert {one.trace for one in collector.spans} == {TRACE}
        assert {one.service for one in collector.spans} == {"sluicegate-limiter"}
        decisions = collector.named("sluicegate.decision")
        assert [one.parent for one in decisions] == [one.id for one in requests]
        assert [one.attributes["sluicegate.allowed"] for one in decisions] == [True, False, False]
        for one in [*requests[1:], *decisions[1:]]:
            assert one.attributes["sluicegate.reason"] == "rate_limited"
            assert one.attributes["sluicegate.rule"].startswith("playback")
        assert requests[0].attributes["rpc.grpc.status_code"] == 0
        assert requests[1].attributes["http.response.status_code"] == 200
        assert not any(one.failed for one in collector.spans)
        assert not any("ann" in str(one.attributes) for one in collector.spans)
        assert bool(collector.named("sluicegate.store")) == shared
        asked = {one.id for one in requests}
        assert all(one.parent in asked for one in collector.named("sluicegate.store"))


def test_who_traces_nothing_is_not_traced_and_too_many_are_not_either(tmp_path: Path) -> None:
    with Collector() as collector:
        flags = ["--rules", rules_file(tmp_path, RULES), "--traces", collector.url]
        with LimiterProcess(
            tmp_path, *flags, "--traces-share", "1", "--traces-per-s", "2"
        ) as limiter:
            ask_all_doors(limiter, NOT_SAMPLED)  # all but the last command, which says nothing
            for _ in range(50):
                limiter.check("bob", "/other")
            over = limiter.metric("sluicegate_limiter_traces_total", what="over")
            begun = limiter.metric("sluicegate_limiter_traces_total", what="begun")
        assert over + begun == 51
        assert over > 0
        roots = [one for one in collector.spans if one.name != "sluicegate.decision"]
        assert len(roots) == begun
        assert [one.parent for one in roots] == [""] * len(roots)
        assert TRACE not in {one.trace for one in roots}


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['opentelemetry.exporter'] = None\n"
    run = "from sluicegate.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["limiter", "--listen", "127.0.0.1:0", "--traces", "http://127.0.0.1:4318"]
    ended = subprocess.run(
        [sys.executable, "-c", hide + run, *words], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "pip install '.[otlp]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_collector_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    flags = ["--rules", rules_file(tmp_path, RULES), "--traces-share", "1"]
    with LimiterProcess(tmp_path, *flags, "--traces", "http://127.0.0.1:9") as limiter:
        for number in range(20):
            assert limiter.check(f"user {number}", "/playback")["allowed"]
        assert limiter.end() == 0
        assert "Traceback" not in limiter.log.read_text()
