"""What Flask, Django and Celery report while a real Redis is killed and started again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from celery import Celery
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from flask import Flask

from sluicegate import Limiter
from sluicegate.doors.celery import limited
from sluicegate.doors.django import ratelimit
from sluicegate.doors.flask import SluicegateLimits
from sluicegate.limits import outage_watch
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from tests.doors import project
from tests.doors.guards import ByAddress
from tests.engines.redis import RedisServer
from tests.telemetry.threads import in_threads

ASKS = 5  # of each thread
THREADS = 4

project.set_up(urls="tests.doors.test_django")


def on_flask(limiter: Limiter) -> Callable[[], object]:
    app = Flask(__name__)
    SluicegateLimits(guard=ByAddress(limiter=limiter)).init_app(app)
    app.get("/")(lambda: "hello")
    return lambda: app.test_client().get("/").status_code == 200


def on_django(limiter: Limiter) -> Callable[[], object]:
    @ratelimit("pages", limiter=limiter)
    def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("hello")

    return lambda: page(RequestFactory().get("/")).status_code == 200


def on_celery(limiter: Limiter) -> Callable[[], object]:
    app = Celery("t", broker="memory://", set_as_current=False)

    @app.task(shared=False)
    @limited(ByAddress(limiter=limiter), refused="fail")
    def work() -> bool:
        return True

    app.finalize()  # or the threads would all do it, at once
    return lambda: work.apply().get()


def outages(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the limiter has logged; Celery logs each task."""
    return [one for one in caplog.records if one.name.startswith("sluicegate")]


@pytest.mark.parametrize("door", [on_flask, on_django, on_celery])
def test_an_outage_is_said_once_and_each_failure_of_it_counted(
    door: Callable[[Limiter], Callable[[], object]],
    redis_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outage_watch, "CALM_US", 0)
    caplog.set_level(logging.INFO, "sluicegate.limits")
    metrics, pause = DecisionMetrics(), threading.Event()
    url = f"{redis_server.url}?timeout_ms=5000"
    with Limiter(rules={"pages": "1000/minute"}, store_url=url, observer=metrics) as limiter:
        ask = door(limiter)

        def ask_much() -> None:
            in_threads(THREADS, lambda _: [ask() for _ in range(ASKS)])

        ask_much()
        assert metrics.snapshot().count("allowed") == THREADS * ASKS
        assert outages(caplog) == []
        redis_server.kill()
        for _ in range(ASKS):
            ask()
        counted = metrics.snapshot()
        assert counted.store_failures == counted.count("degraded_allowed") == ASKS
        ask_much()
        counted = metrics.snapshot()
        assert counted.count("degraded_allowed") == ASKS + THREADS * ASKS
        # Those of one moment share a round trip, and its failure.
        assert ASKS + ASKS <= counted.store_failures <= ASKS + THREADS * ASKS
        (line,) = outages(caplog)
        assert line.levelname == "WARNING"
        assert "admitting everything: failure=open" in line.message
        why = limiter.take("ann", rule="pages").explain()
        assert "The limit's store could not be asked" in why
        assert f"Redis at 127.0.0.1:{redis_server.port}" in why
        redis_server.restart()
        for _ in range(10_000):
            if ask() and limiter.take("bob", rule="pages").cause == "":
                break
            pause.wait(0.01)
        assert not limiter.take("bob", rule="pages").degraded
        _, back = outages(caplog)
        assert back.levelname == "WARNING"
        assert "answers again" in back.message
        failures = metrics.snapshot().store_failures
        ask_much()
        assert metrics.snapshot().store_failures == failures
