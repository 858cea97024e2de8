"""`sluicegate kv --traces`: a real collector is sent what became of a request, stage by stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from sluicegate.protos.key_values_pb2 import GetRequest
from sluicegate.protos.key_values_pb2_grpc import KeyValuesStub
from tests.apps.collector import ASKING, SAMPLED, TRACE, CollectedSpan, Collector
from tests.apps.kv.process import KvProcess

METADATA = (("traceparent", SAMPLED),)


def refused(span: CollectedSpan) -> tuple[object, ...]:
    """What a span says of a refusal."""
    names = ("allowed", "stage", "reason", "operation", "price_milli")
    return tuple(span.attributes.get(f"sluicegate.{name}") for name in names)


def test_what_became_of_a_request_is_in_its_callers_trace(tmp_path: Path) -> None:
    with Collector() as collector:
        flags = ["--engine", "memory:", "--quota-ru", "1", "--epoch-ms", "10000"]
        with KvProcess(tmp_path, *flags, "--traces", collector.url, "--traces-share", "0") as kv:
            client = kv.redis()
            pipe: Any = client.pipeline(transaction=False)
            pipe.execute_command("SG.TRACE", SAMPLED)
            pipe.set("homes:ann", b"secret words")
            pipe.get("homes:ann")  # the span was that of the first alone
            pipe.execute(raise_on_error=False)
            with grpc.insecure_channel(f"127.0.0.1:{kv.port}") as channel:
                get = KeyValuesStub(channel).Get
                request = GetRequest(table="homes", partition=b"ann")
                codes = [get.future(request, metadata=METADATA).code() for _ in range(30)]
                assert codes[-1] is grpc.StatusCode.RESOURCE_EXHAUSTED
            path = "/v1/tables/homes/rows/ann"
            status, _ = kv.ask(path, headers={"traceparent": SAMPLED})
            assert status == 429
            client.close()
        set_, *more = collector.named("SET")
        assert not more
        (work,) = [one for one in collector.named("sluicegate.work") if one.parent == set_.id]
        assert (work.attributes["sluicegate.operation"], work.attributes["sluicegate.table"]) == (
            "put",
            "homes",
        )
        assert work.attributes["sluicegate.outcome"] == "success"
        assert work.attributes["sluicegate.cost_mru"] > 0
        assert set_.attributes["sluicegate.allowed"] is True
        assert set_.begun_ns <= work.ended_ns <= set_.ended_ns
        spent = ("request_units", "quota_spent", "get", 1_000)
        *_, last = collector.named("sluicegate.v1.KeyValues/Get")
        assert refused(last) == (False, *spent)
        assert last.attributes["rpc.grpc.status_code"] == 8
        (over_http,) = [one for one in collector.spans if "http.route" in one.attributes]
        assert refused(over_http) == (False, *spent)
        assert over_http.attributes["http.response.status_code"] == 429
        assert not collector.named("GET")
        asked = {one.id for one in collector.spans}
        assert {one.parent for one in collector.spans} <= {ASKING, *asked}
        assert {one.trace for one in collector.spans} == {TRACE}
        assert not any("ann" in str(one) or "secret" in str(one) for one in collector.spans)
