"""After SIGTERM a limiter is not ready, but accepts and serves until `--leave-s` is over."""

from __future__ import annotations

import http.client
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.apps.limiter.process import LimiterProcess
from tests.engines.child import PATIENCE_S, until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

LONG = ("--leave-s", "3600")


def readiness(limiter: LimiterProcess) -> int:
    return limiter.ask("/readyz")[0]


def leave(limiter: LimiterProcess) -> None:
    limiter.signal(signal.SIGTERM)
    until(lambda: readiness(limiter) == 503, "not ready", children=[limiter.child])


def test_leaving_limiter_serves_old_and_new_connections(tmp_path: Path) -> None:
    with LimiterProcess(tmp_path, *LONG) as limiter:
        kept = http.client.HTTPConnection("127.0.0.1", limiter.port, timeout=PATIENCE_S)
        kept.request("GET", "/healthz")
        kept.getresponse().read()
        client = redis.Redis(port=limiter.port)
        client.ping()
        with grpc.insecure_channel(f"127.0.0.1:{limiter.port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            leave(limiter)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            kept.request("GET", "/healthz")
            answer = kept.getresponse()
            answer.read()
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
            assert limiter.check("ann")["allowed"]
            assert client.ping()
            with redis.Redis(port=limiter.port) as late:
                assert late.ping()
            client.close()
            limiter.signal(signal.SIGTERM)
            assert limiter.child.wait(PATIENCE_S) == 0


def test_sigint_ends_limiter_without_leave_s(tmp_path: Path) -> None:
    with LimiterProcess(tmp_path, *LONG) as limiter:
        limiter.signal(signal.SIGINT)
        assert limiter.child.wait(PATIENCE_S) == 0


def test_workers_leave_together_and_end_on_second_signal(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    store = ("--store", redis_server.patient_url, "--workers", "2")
    with LimiterProcess(tmp_path, *LONG, *store) as limiter:
        leave(limiter)
        # Each connection goes to either worker, and both are not ready.
        until(lambda: all(readiness(limiter) == 503 for _ in range(20)), "both are not ready")
        limiter.signal(signal.SIGINT)
        assert limiter.child.wait(PATIENCE_S) == 0
