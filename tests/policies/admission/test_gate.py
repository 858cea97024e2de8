"""Gate: one queue and one limit for each resource, on a clock that tests move."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, final

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.admission.gate import LIMIT_MAX, WAITER_BYTES, Gate, GatePermit
from sluicegate.policies.admission.settings import GateSettings
from tests.policies.virtual import VirtualLoop, pause_us, run

MS = 1_000
CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality


@final
class Service:
    """Work behind a gate: it takes as long as its request's key says, in milliseconds."""

    def __init__(self, loop: VirtualLoop, slots: int = 1, **more: Any) -> None:
        self.loop = loop
        made = {name: more.pop(name) for name in ("size_bytes",) if name in more}
        self.gate = Gate(GateSettings(slots=slots, **more), **made)
        self.order: list[str] = []
        self.inflight = self.most = 0

    async def do(self, name: str, work_ms: int = 10, **claims: Any) -> Decision | None:
        """Work once admitted; return the refusal if there is one."""
        left_us = claims.pop("left_us", None)
        over_quota = claims.pop("over_quota", False)
        now_us = self.loop.now_us()
        request = Request(name, arrived_us=now_us, operation=f"{work_ms} ms", **claims)
        request.over_quota = over_quota
        if left_us is not None:
            request.deadline_us = now_us + left_us
        permit = await self.gate.admit(request, self.loop)
        if isinstance(permit, Decision):
            return permit
        self.order.append(name)
        self.inflight += 1
        self.most = max(self.most, self.inflight)
        await pause_us(work_ms * MS)
        self.inflight -= 1
        assert permit.end(Outcome.SUCCESS, self.loop.now_us())
        assert not permit.end(Outcome.SUCCESS, self.loop.now_us())
        return None

    def begin(self, name: str, *args: Any, **claims: Any) -> asyncio.Task[Decision | None]:
        return asyncio.get_running_loop().create_task(self.do(name, *args, **claims))

    async def learn(self, work_ms: int = 10) -> None:
        """Work so often that the gate knows how long it takes."""
        for _ in range(9):  # eight that began after the first had ended
            await self.do("learned", work_ms)
        self.order.clear()


async def settled() -> None:
    """Let all tasks that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def reason_of(decision: Decision | None) -> str:
    return "" if decision is None or decision.reason is None else decision.reason.name


def test_slots_bound_work_in_flight() -> None:
    async def story(loop: VirtualLoop) -> int:
        service = Service(loop, 3)
        await asyncio.gather(*[service.do(str(number)) for number in range(20)])
        return service.most

    assert run(story) == 3


def test_classes_are_served_in_order_and_over_quota_after_its_class() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(loop)
        tasks = [service.begin("first")]
        await settled()
        tasks += [
            service.begin("bulk", criticality=BULK),
            service.begin("over", criticality=DEGRADED, over_quota=True),
            service.begin("best effort", criticality=BEST_EFFORT),
            service.begin("degraded", criticality=DEGRADED),
            service.begin("critical", criticality=CRITICAL),
        ]
        await asyncio.gather(*tasks)
        return service.order

    assert run(story) == ["first", "critical", "degraded", "over", "best effort", "bulk"]


def test_callers_of_ten_times_the_cost_share_the_time() -> None:
    async def story(loop: VirtualLoop) -> Counter[str]:
        service = Service(loop)
        await service.learn(1)
        await service.learn(10)
        tasks = [
            service.begin(caller, work_ms, caller=caller)
            for _ in range(300)
            for caller, work_ms in (("cheap", 1), ("expensive", 10))
        ]
        await pause_us(220 * MS)
        for task in tasks:
            task.cancel()
        return Counter(service.order)

    counts = run(story)
    assert counts["cheap"] == pytest.approx(110, rel=0.2)
    assert counts["expensive"] == pytest.approx(11, rel=0.2)


def test_requests_without_caller_share_by_operation() -> None:
    async def story(loop: VirtualLoop) -> Counter[str]:
        service = Service(loop)
        await service.learn(1)
        await service.learn(10)
        tasks = [service.begin("expensive", 10) for _ in range(300)]
        await settled()
        tasks += [service.begin("cheap", 1) for _ in range(20)]
        await pause_us(80 * MS)
        for task in tasks:
            task.cancel()
        return Counter(service.order)

    assert run(story)["cheap"] == 20


def test_standing_queue_serves_newest_first() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(loop)
        await service.learn()
        tasks = [service.begin("0")]
        for number in range(1, 6):
            await pause_us(4 * MS)
            tasks.append(service.begin(str(number)))
        await asyncio.gather(*tasks)
        return service.order

    assert run(story) == ["0", "2", "4", "5", "3", "1"]


def test_request_that_cannot_end_in_time_is_rejected_at_that_instant() -> None:
    """Work of 10 ms and 50 ms left: it may begin until 40 ms have passed."""

    async def story(loop: VirtualLoop) -> tuple[str, int]:
        service = Service(loop)
        await service.learn()
        shard = service.gate.resources[""]
        least_us = shard.least_us(Request("", operation="10 ms"), loop.now_us())
        holds = service.begin("holds", 1_000)
        await settled()
        began_us = loop.now_us()
        refused = await service.do("late", left_us=50 * MS)
        holds.cancel()
        return reason_of(refused), loop.now_us() - began_us - (50 * MS - least_us)

    name, late_us = run(story)
    assert name == "deadline"
    assert 0 <= late_us <= 1_100  # the loop has whole milliseconds


@pytest.mark.parametrize("left_us", [0, 5 * MS])
def test_request_that_arrives_too_late_never_waits(left_us: int) -> None:
    async def story(loop: VirtualLoop) -> str:
        service = Service(loop)
        await service.learn()
        return reason_of(await service.do("late", left_us=left_us))

    assert run(story) == "deadline"


def test_full_queue_evicts_oldest_of_lowest_class() -> None:
    async def story(loop: VirtualLoop) -> tuple[list[str], list[str]]:
        service = Service(loop, length_max=2)
        tasks = {"holds": service.begin("holds")}
        await settled()
        for name, criticality in (
            ("bulk 1", BULK),
            ("bulk 2", BULK),
            ("bulk 3", BULK),  # evicts the first
            ("degraded", DEGRADED),  # evicts the second
            ("critical", CRITICAL),  # evicts the third
            ("best effort", BEST_EFFORT),  # nothing lower waits
        ):
            tasks[name] = service.begin(name, criticality=criticality)
            await settled()
        answers = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        return service.order, [name for name in tasks if reason_of(answers[name]) == "queue_full"]

    order, full = run(story)
    assert order == ["holds", "critical", "degraded"]
    assert full == ["bulk 1", "bulk 2", "bulk 3", "best effort"]


def test_queue_is_bounded_in_bytes() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(
            loop, bytes_max=WAITER_BYTES + 1_500, size_bytes=lambda request: len(request.key) * 100
        )
        tasks = [service.begin("h")]
        await settled()
        tasks += [service.begin("x" * 16), service.begin("x" * 15)]
        await settled()
        assert service.gate.queued_bytes == WAITER_BYTES + 1_500
        return [reason_of(one) for one in await asyncio.gather(*tasks)]

    assert run(story) == ["", "queue_full", ""]


def test_cancelled_wait_leaves_the_queue() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(loop)
        first = service.begin("first")
        await settled()
        gone, last = service.begin("gone"), service.begin("last")
        await settled()
        gone.cancel()
        await settled()
        assert (service.gate.queued, service.gate.queued_bytes) == (1, WAITER_BYTES)
        await asyncio.gather(first, last)
        assert service.gate.stats().hung_up == 1
        return service.order

    assert run(story) == ["first", "last"]


def test_cancelled_after_slot_was_given_passes_it_on() -> None:
    async def story(loop: VirtualLoop) -> tuple[list[str], int]:
        service = Service(loop)
        first = await service.gate.admit(Request("first"), loop)
        assert isinstance(first, GatePermit)
        gone, last = service.begin("gone"), service.begin("last")
        await settled()
        first.end(Outcome.SUCCESS, loop.now_us())  # gives the slot to `gone`
        gone.cancel()
        await last
        return service.order, service.gate.stats().inflight

    assert run(story) == (["last"], 0)


def test_late_loop_starts_a_turn_of_work_at_a_time_by_class() -> None:
    """All have a slot; after a turn's work the loop reads what has arrived, which is CRITICAL."""

    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(loop, 100)
        await service.learn()
        service.gate.lagging = True
        tasks = [service.begin(f"bulk {number}", criticality=BULK) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.append(service.begin("critical", criticality=CRITICAL))
        await asyncio.gather(*tasks)
        return service.order

    order = run(story)
    assert sorted(order) == sorted(["critical", *(f"bulk {number}" for number in range(5))])
    assert order.index("critical") <= 2


def test_without_queue_a_quarter_of_slots_is_for_critical() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        gate = Gate(GateSettings(slots=8))
        found = []
        for criticality in [DEGRADED] * 7 + [CRITICAL] * 3:
            admitted = gate.admit_or_refuse(Request("", criticality=criticality), loop.now_us())
            found.append(reason_of(admitted) if isinstance(admitted, Decision) else "admitted")
        return found

    assert run(story) == [*["admitted"] * 6, "overloaded", *["admitted"] * 2, "overloaded"]


def test_without_queue_a_late_unit_rejects_no_other() -> None:
    async def story(loop: VirtualLoop) -> list[bool]:
        gate = Gate(GateSettings(slots=0))
        admitted = []
        for pause_ms in (200, 0, 0, 0):
            request = Request("", deadline_us=loop.now_us() + 100 * MS)
            admitted.append(isinstance(gate.admit_or_refuse(request, loop.now_us()), GatePermit))
            await pause_us(pause_ms * MS)
        return admitted

    assert run(story) == [True] * 4


def test_slow_work_without_deadline_holds_up_no_other() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(loop, slots=0)
        for _ in range(20):
            await service.do("quick", left_us=500 * MS)
        exports = []
        for _ in range(4):
            exports.append(service.begin("export", 30_000))
            await pause_us(1_000 * MS)
        found = [reason_of(await service.do("quick", left_us=500 * MS)) for _ in range(4)]
        for export in exports:
            await export
        return found

    assert run(story) == [""] * 4


def test_no_more_is_sent_into_a_standstill() -> None:
    async def story(loop: VirtualLoop) -> tuple[int, int]:
        service = Service(loop, slots=0)
        stalled = [service.begin("stalled", 10_000, left_us=100 * MS) for _ in range(10)]
        await pause_us(200 * MS)
        stalled += [service.begin("more", 10_000, left_us=100 * MS) for _ in range(10)]
        for one in stalled:
            await one
        limited = service.most
        await service.do("well again", left_us=100 * MS)
        return limited, service.gate.stats().limit

    assert run(story) == (11, LIMIT_MAX)


def test_each_resource_has_its_own_slots_and_a_higher_limit_serves_at_once() -> None:
    async def story(loop: VirtualLoop) -> list[str]:
        service = Service(loop)
        tasks = [service.begin(f"{shard}{at}", shard=shard) for at in range(3) for shard in "ab"]
        await settled()
        assert service.order == ["a0", "b0"]
        service.gate.set_limit(service.gate.resource_named("b"), 3, loop.now_us())
        await settled()
        assert service.order == ["a0", "b0", "b1", "b2"]
        await asyncio.gather(*tasks)
        return service.order[4:]

    assert sorted(run(story)) == ["a1", "a2"]


def test_without_slots_there_is_no_limit_until_work_is_late() -> None:
    async def story(loop: VirtualLoop) -> tuple[int, int]:
        service = Service(loop, 0)
        await asyncio.gather(*[service.do(str(number)) for number in range(500)])
        return service.most, service.gate.stats().limit

    assert run(story) == (500, LIMIT_MAX)


def test_unspent_permit_teaches_nothing() -> None:
    async def story(loop: VirtualLoop) -> tuple[float, int]:
        gate = Gate(GateSettings(slots=1))
        for outcome, spent in ((Outcome.SUCCESS, False), (Outcome.IGNORE, True)):
            permit = await gate.admit(Request("", operation="get"), loop)
            assert isinstance(permit, GatePermit)
            await pause_us(MS)
            permit.end(outcome, loop.now_us(), spent=spent)
        return gate.resources[""].mean_us, gate.stats().inflight

    assert run(story) == (0.0, 0)


def test_gate_settings_out_of_range_are_named() -> None:
    with pytest.raises(BadValue, match=r"gate\.slots"):
        GateSettings(slots=-1)
    with pytest.raises(BadValue, match=r"gate\.bytes_max"):
        GateSettings(bytes_max=1)
