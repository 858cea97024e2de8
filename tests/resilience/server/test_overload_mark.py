"""A refusal tells callers to hold back where there is too little, and only there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import GatePermit
from sluicegate.policies.client.call_result import ResultKind
from sluicegate.resilience.client.grpc_results import result_of_code
from sluicegate.resilience.client.http_results import result_of_response
from sluicegate.resilience.overload_mark import FIELD
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.testing import HandClock, SeededChance
from tests.policies.virtual import VirtualLoop, pause_us, run
from tests.resilience.server.test_overload import receive

MARK = "retry=0, after-ms=250, admitted-permille=120"


def test_deadline_missed_in_queue_is_marked_as_overload() -> None:
    protection = Protection(Resilience(slots=1), clock=HandClock(0), chance=SeededChance(1))
    request = Request("k")
    late = Decision(False, 0, -1, 0, DEADLINE, "queue")
    assert protection.mark_of(late, request) is None  # too little time to begin with
    permit = protection.try_admit(request, 0)
    assert isinstance(permit, GatePermit)
    assert protection.mark_of(late, request) is not None


def test_client_reads_overload_of_protected_application() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await pause_us(300_000)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(app: Any, deadline_ms: int) -> ResultKind:
        heads: list[Any] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                heads.append(message)

        headers = [(b"x-sluicegate-deadline-ms", b"%d" % deadline_ms)]
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
        await app(scope, receive, send)
        fields = [(name.decode(), value.decode()) for name, value in heads[0]["headers"]]

        def values(name: str) -> list[str]:
            return [value for field, value in fields if field == name.lower()]

        return result_of_response(None, heads[0]["status"], values).kind

    async def story(loop: VirtualLoop) -> list[ResultKind]:
        app = protect(application, protection=Protection(Resilience(slots=1), clock=loop))
        return list(await asyncio.gather(ask(app, 5_000), ask(app, 100)))

    assert run(story) == [ResultKind.OK, ResultKind.OVERLOADED]


@pytest.mark.parametrize(
    ("code", "kind"),
    [("DEADLINE_EXCEEDED", ResultKind.OVERLOADED), ("INTERNAL", ResultKind.FAILED)],
)
def test_grpc_client_reads_mark_beside_code_of_refusals(code: str, kind: ResultKind) -> None:
    assert result_of_code(None, code, [(FIELD, MARK)]).kind is kind
