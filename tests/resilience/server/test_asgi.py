"""A protected application on a real server: deadlines, marks, bypass, and what must not change."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.resilience.context import remaining_us, served_request
from sluicegate.resilience.overload_mark import parse_overload_mark
from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import EndpointSettings, Resilience
from sluicegate.system import now_us
from sluicegate.testing import HandClock
from tests.doors.test_frameworks import served


@final
class Service:
    """Tells what it sees of the context; on /hold it waits until the test opens the gate."""

    def __init__(self) -> None:
        self.begun = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        if scope["path"] == "/hold":
            self.entered.release()
            await asyncio.to_thread(self.gate.wait, 30)
        if scope["path"] == "/bug":
            raise RuntimeError("a bug of the service")
        found = served_request()
        left_us = remaining_us(now_us())
        text = "none" if found is None else f"{found.criticality.name} {found.caller} {left_us}"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})


def few_places(**more: Any) -> Resilience:
    return Resilience(slots=1, queue_length=2, **more)


def in_line(app: ProtectedApp) -> int:
    return app.protection.gate.queued


def test_the_service_sees_deadline_criticality_and_caller() -> None:
    settings = Resilience(callers={"shop": Criticality.CRITICAL})
    app = protect(Service(), settings, caller=lambda scope: "shop")
    fields = {"x-sluicegate-deadline-ms": "5000", "x-sluicegate-criticality": "critical"}
    with served(app) as port:
        words = httpx.get(f"http://127.0.0.1:{port}/", headers=fields).text.split()
    assert words[:2] == ["CRITICAL", "shop"]
    assert 0 < int(words[2]) <= 5_000_000


def test_a_stranger_cannot_claim_to_be_critical() -> None:
    fields = {"x-sluicegate-criticality": "critical"}
    with served(protect(Service())) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/", headers=fields).text.startswith("DEGRADED")


def test_an_endpoint_grants_at_most_its_own_time() -> None:
    settings = Resilience(endpoints={"/": EndpointSettings(timeout_s=1.0)})
    with served(protect(Service(), settings)) as port:
        url = f"http://127.0.0.1:{port}/"
        for fields in ({}, {"x-sluicegate-deadline-ms": "60000"}):
            assert int(httpx.get(url, headers=fields).text.split()[-1]) <= 1_000_000


def test_only_the_time_that_its_caller_grants_makes_an_answer_vain() -> None:
    """An endpoint's own time stops what it calls; who waits longer is answered, however late."""

    async def late(scope: Any, receive: Any, send: Any) -> None:
        while remaining_us(now_us()):
            await asyncio.sleep(0.005)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"page"})

    settings = Resilience(endpoints={"/": EndpointSettings(timeout_s=0.05)})
    with served(protect(late, settings)) as port:
        for fields in ({}, {"x-sluicegate-deadline-ms": "60000"}):
            found = httpx.get(f"http://127.0.0.1:{port}/", headers=fields)
            assert (found.status_code, found.text) == (200, "page")


def test_expired_work_is_never_begun() -> None:
    service = Service()
    with served(protect(service)) as port:
        response = httpx.get(f"http://127.0.0.1:{port}/", headers={"x-sluicegate-deadline-ms": "0"})
    assert response.status_code == 504
    assert response.json()["reason"] == "deadline"
    assert "x-sluicegate-overload" not in response.headers  # nothing is wrong with the service
    assert service.begun == 0


@pytest.mark.parametrize("value", ["soon", "-1", "9" * 400])
def test_a_claim_that_cannot_be_understood_is_named(value: str) -> None:
    service = Service()
    with served(protect(service)) as port:
        fields = {"x-sluicegate-deadline-ms": value}
        response = httpx.get(f"http://127.0.0.1:{port}/", headers=fields)
    assert response.status_code == 400
    assert "x-sluicegate-deadline-ms" in response.text
    assert service.begun == 0


def test_full_queue_rejects_lower_class_with_mark_and_serves_health() -> None:
    """One works, two wait, and BULK finds the queue full; when it is empty all may come."""
    service = Service()
    app = protect(service, few_places())
    with served(app) as port, ThreadPoolExecutor(3) as pool:
        url = f"http://127.0.0.1:{port}"
        held = [pool.submit(httpx.get, f"{url}/hold", timeout=30) for _ in range(3)]
        try:
            assert service.entered.acquire(timeout=60)
            while in_line(app) < 2:
                httpx.get(f"{url}/healthz")  # a turn of the loop each
            bulk = {"x-sluicegate-criticality": "bulk"}
            refused = httpx.get(f"{url}/other", headers=bulk)
            assert httpx.get(f"{url}/healthz").text == "none"
        finally:
            service.gate.set()
        assert [one.result().status_code for one in held] == [200, 200, 200]
        assert httpx.get(f"{url}/other").status_code == 200
    assert refused.status_code == 503
    assert refused.json()["reason"] == "queue_full"
    mark = parse_overload_mark(refused.headers.get_list("x-sluicegate-overload"))
    assert mark is not None
    assert not mark.retry
    assert 250 <= mark.after_ms <= 375
    assert refused.headers.get_list("retry-after") == ["1"]


@pytest.mark.parametrize("mounted", [True, False])
def test_health_bypasses_queue_below_mount_and_root_path(mounted: bool) -> None:
    service = Service()

    async def main() -> list[int]:
        app: Any = protect(service, few_places(endpoints={"/page": EndpointSettings(timeout_s=9)}))
        root = "" if mounted else "/api"
        served = Starlette(routes=[Mount("/api", app)]) if mounted else app
        transport = httpx.ASGITransport(served, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop/api") as client:
            texts = [(await client.get(path)).text for path in ("/healthz", "/page", "/apiary")]
        assert texts[0] == "none"  # no context: nothing has judged it
        return [int(text.split()[-1] != "None") for text in texts[1:]]

    assert asyncio.run(main()) == [1, 0]


def test_streams_that_bypass_by_the_name_of_their_endpoint_hold_no_place() -> None:
    """As many subscribers as come, before a service of one place that goes on answering."""
    service = Service()
    app = protect(
        service,
        few_places(bypass=("stream",)),
        endpoint=lambda scope: "stream" if scope["path"] == "/hold" else scope["path"],
    )
    with served(app) as port, ThreadPoolExecutor(5) as pool:
        url = f"http://127.0.0.1:{port}"
        held = [pool.submit(httpx.get, f"{url}/hold", timeout=30) for _ in range(5)]
        try:
            assert all(service.entered.acquire(timeout=60) for _ in held)
            assert httpx.get(f"{url}/other").status_code == 200
        finally:
            service.gate.set()
        assert [one.result().text for one in held] == ["none"] * 5


def test_what_is_admitted_ends_however_the_service_does() -> None:
    app = protect(Service(), few_places())
    with served(app) as port:
        for path in ("/bug", "/", "/bug", "/"):
            status = httpx.get(f"http://127.0.0.1:{port}{path}").status_code
            assert status == (500 if path == "/bug" else 200)
    stats = app.protection.stats().gate
    assert (stats.inflight, stats.admitted) == (0, 4)


def test_an_observer_that_fails_leaves_nothing_taken() -> None:
    class Exporter:
        def record_refusal(
            self, request: Request, stage: str, decision: Decision, now_us: int
        ) -> None: ...

        def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
            raise OSError("the collector is down")

    clock = HandClock()
    protection = Protection(Resilience(slots=2), clock=clock, threaded=True, observer=Exporter())
    for endpoint in ("/page", "/other", "/page", "/page"):
        now_us = clock.now_us()
        admitted = protection.admit_now(protection.begin(endpoint, now_us), now_us)
        assert isinstance(admitted, GatePermit)
        clock.advance(ms=20)
        with pytest.raises(OSError, match="collector"):
            protection.end(admitted, Outcome.SUCCESS)
        clock.advance(s=1)
    stats = protection.stats().gate
    assert (stats.inflight, stats.admitted) == (0, 4)
