"""What the rulebook's door does when there is too much of everything, or it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from sluicegate.doors.http.rules.thread_calls import ThreadCalls
from sluicegate.doors.http.settings import HttpSettings
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin
from tests.doors.http.rules.serving import identity, rules_of, running_rules_door, token_of
from tests.doors.http.serving import request
from tests.doors.listening import run, until

PROPOSE = {"base": "live", "changes": {"shop.yaml": rules_of(3)}, "message": "m"}
WAIT = "/v1/rules/wait?version=2"


def test_calls_beyond_the_threads_and_the_queue_are_refused_at_once_and_health_is_not() -> None:
    gate = threading.Event()

    def slowly(_: Mapping[str, str]) -> dict[str, Any] | None:
        assert gate.wait(60)
        return {}

    async def story() -> None:
        async with running_rules_door(
            admin=MemoryRuleAdmin(slowly), calls_max=1, calls_waiting_max=1
        ) as here:
            asks = [
                asyncio.ensure_future(here.ask("POST", "/v1/rules/proposals", PROPOSE))
                for _ in range(2)
            ]
            await until(lambda: here.http.stats().calls == 2)
            got = await here.ask("GET", "/v1/rules")
            assert (got.status, got.headers["retry-after"]) == (503, "1")
            assert got.json["what"] == "the rulebook's door"
            assert (await here.ask("GET", "/healthz")).status == 200
            assert (await here.ask("GET", "/metrics")).status == 200
            got = await here.ask("GET", f"{WAIT}&timeout_s=0", who="nobody")
            assert got.status == 401
            gate.set()
            assert [one.status for one in await asyncio.gather(*asks)] == [201, 201]
            assert (await here.ask("GET", "/v1/rules")).status == 200
            stats = here.http.stats()
            assert (stats.calls, stats.calls_refused, stats.calls_done) == (0, 1, 3)

    run(story)


def test_a_wait_is_answered_when_the_nodes_report_and_takes_no_calls_thread() -> None:
    async def story() -> None:
        async with running_rules_door(calls_max=1, calls_waiting_max=0, waits_max=2) as here:
            waits = [
                asyncio.ensure_future(here.ask("GET", f"{WAIT}&nodes={nodes}")) for nodes in (1, 2)
            ]
            await until(lambda: here.http.stats().waits == 2)
            assert (await here.ask("GET", WAIT)).status == 503
            assert (await here.ask("GET", "/v1/rules/status")).status == 200
            here.admin.reports("n-1", 2)
            got = await waits[0]
            assert (got.status, got.json["reached"]) == (200, True)
            assert not waits[1].done()
            here.admin.reports("n-2", 2)
            got = await waits[1]
            assert [one["node"] for one in got.json["nodes"]] == ["n-1", "n-2"]
            calls = here.admin.calls
            assert (await here.ask("GET", WAIT)).json["reached"]
            assert here.admin.calls == calls + 1, "it is not looked at again"

    run(story)


def test_one_caller_never_takes_all_the_places() -> None:
    async def story() -> None:
        bounds = {"waits_max": 3, "waits_of_caller_max": 2, "calls_of_caller_max": 1}
        async with running_rules_door(**bounds) as here:  # type: ignore[arg-type]
            waits = [asyncio.ensure_future(here.ask("GET", WAIT, who="rita")) for _ in range(2)]
            await until(lambda: here.http.stats().waits == 2)
            assert (await here.ask("GET", WAIT, who="rita")).status == 503
            assert (await here.ask("GET", "/v1/rules", who="rita")).status == 200
            other = asyncio.ensure_future(here.ask("GET", WAIT, who="paul"))
            await until(lambda: here.http.stats().waits == 3)
            here.admin.reports("n-1", 2)
            assert [(await one).status for one in (*waits, other)] == [200] * 3
            assert (await here.ask("GET", WAIT, who="rita")).status == 200

    run(story)


def test_a_wait_ends_with_its_time_and_never_takes_longer_than_the_bound() -> None:
    async def story() -> None:
        async with running_rules_door(wait_s_max=0.05) as here:
            for path in (f"{WAIT}&timeout_s=0", f"{WAIT}&timeout_s=0.02", f"{WAIT}&timeout_s=9999"):
                got = await here.ask("GET", path)
                assert (got.status, got.json["reached"]) == (200, False)

    run(story)


def test_a_wait_ends_soon_after_the_door_does() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            caller = await here.call()
            headers = {"authorization": f"Bearer {token_of('bob')}"}
            caller.writer.write(request("GET", WAIT, here.host, **headers))
            await until(lambda: here.http.stats().waits == 1)
            here.http.close()
            await until(lambda: here.http.stats().waits == 0)
            assert (await here.ask("GET", "/v1/rules")).status == 503
            assert (await here.ask("GET", "/healthz")).status == 200

    run(story)


def test_a_call_that_nobody_waits_for_any_more_is_not_begun() -> None:
    gate = threading.Event()
    admin = MemoryRuleAdmin(lambda _: {} if gate.wait(60) else None)

    async def story() -> None:
        http = HttpSettings(answer_timeout_s=0.05)
        async with running_rules_door(admin=admin, http=http, calls_max=1) as here:
            first = asyncio.ensure_future(here.ask("POST", "/v1/rules/proposals", PROPOSE))
            await until(lambda: here.http.stats().calls == 1)
            second = await here.ask("POST", "/v1/rules/proposals", PROPOSE)
            assert second.status == 504
            assert (await first).status == 504
            gate.set()
            await until(lambda: here.http.stats().calls == 0)
        assert len(admin.proposals(by=identity("bob"))) == 1

    run(story)


def test_a_body_beyond_the_bound_is_refused_before_it_has_come() -> None:
    async def story() -> None:
        async with running_rules_door(http=HttpSettings(body_bytes_max=100)) as here:
            ask = {**PROPOSE, "reason": "x" * 200}
            assert (await here.ask("POST", "/v1/rules/proposals", ask)).status == 413
            assert here.admin.calls == 0

    run(story)


def test_a_pool_counts_what_fails_and_takes_nothing_after_its_end() -> None:
    async def story() -> None:
        calls = ThreadCalls("test", threads_max=1, waiting_max=0, of_caller_max=1)

        def fails() -> int:
            raise ZeroDivisionError

        failing = calls.start("ann", fails)
        assert failing is not None
        with pytest.raises(ZeroDivisionError):
            await failing
        await until(lambda: calls.under_way == 0)
        assert (calls.done, calls.refused) == (1, 0)
        calls.close()
        assert calls.start("ann", fails) is None
        assert (calls.under_way, calls.refused) == (0, 1)

    run(story)


def test_what_ends_after_its_loop_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    made: list[ThreadCalls] = []

    async def story() -> None:
        made.append(ThreadCalls("test", threads_max=1, waiting_max=0, of_caller_max=1))
        made[0].start("ann", lambda: gate.wait(60))
        made[0].close()

    asyncio.run(story())
    gate.set()
    made[0]._pool.shutdown(wait=True)
    assert made[0].under_way == 0
    assert caplog.text == ""
