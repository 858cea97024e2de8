"""The queue of Facebook's form in a protected service."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.world import World, run
from sluicegate.resilience.server.asgi import ProtectedApp
from sluicegate.resilience.server.metrics import families
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience
from sluicegate.telemetry.prometheus import page
from tests.resilience.server.virtual_client import Answer, ask, protected, reply

MS = 1_000
HIGH = 200  # the high watermark of the form
FACEBOOK = Resilience(slots=1, form="facebook")


def serving(world: World, work_ms: int, order: list[str]) -> ProtectedApp:
    """Return an application of one slot that notes the order of its requests."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        order.append(scope["path"])
        await asyncio.sleep(work_ms / 1_000)
        await reply(send)

    return protected(world, app, FACEBOOK)


def test_standing_queue_serves_newest_first() -> None:
    async def main(world: World) -> list[str]:
        order: list[str] = []
        app = serving(world, 30, order)
        tasks = []
        for number in range(40):  # one each 10 ms, and three fit in the time of one
            tasks.append(world.spawn(ask(world, app, f"/{number}"), str(number)))
            await world.until_us((number + 1) * 10 * MS)
        answers = [await task for task in tasks]
        assert {answer.status for answer in answers} == {200, 503}
        return order

    order = [int(path[1:]) for path in run(main, 1).value]
    assert order[:4] == [0, 1, 2, 3]  # in the order of their arrival
    assert order[4:7] == [11, 10, 9]  # once the queue has stood for 100 ms


def test_queue_at_high_watermark_rejects_at_once() -> None:
    async def main(world: World) -> None:
        app = serving(world, 1_000, [])
        tasks = [world.spawn(ask(world, app), str(n)) for n in range(HIGH + 1)]
        await world.until_us(MS)
        assert app.protection.stats().gate.queued == HIGH
        assert app.protection.stats().gate.queued_bytes >= HIGH * 2_048
        refused = await ask(world, app)
        assert (refused.status, refused.ended_us - refused.sent_us) == (503, 0)
        answers = [await task for task in tasks]
        assert [answer.status for answer in answers].count(503) == HIGH  # timed out
        later = await ask(world, app)
        assert later.status == 200
        assert app.protection.stats().gate.inflight == 0
        assert b"sluicegate_resilience" in page(families(app.protection))

    run(main, 1)


def test_caller_that_hangs_up_leaves_queue_of_form() -> None:
    async def main(world: World) -> None:
        order: list[str] = []
        app = serving(world, 50, order)
        first = world.spawn(ask(world, app, "/first"), "first")
        await world.until_us(MS)
        gone = world.spawn(ask(world, app, "/gone", patience_us=20 * MS), "gone")
        last = world.spawn(ask(world, app, "/last"), "last")
        answers: list[Answer] = [await first, await gone, await last]
        assert [answer.served for answer in answers] == [True, False, True]
        assert order == ["/first", "/last"]
        stats = app.protection.stats().gate
        assert (stats.queued, stats.inflight, stats.hung_up) == (0, 0, 1)

    run(main, 1)


def test_deadline_that_cannot_be_met_frees_slot_of_form() -> None:
    async def main(world: World) -> None:
        app = serving(world, 50, [])
        assert (await ask(world, app)).served
        late = await ask(world, app, fields=[(b"x-sluicegate-deadline-ms", b"0")])
        assert late.status == 504
        assert (await ask(world, app)).served

    run(main, 1)


@pytest.mark.parametrize(
    ("settings", "threaded"),
    [(Resilience(form="facebook"), False), (FACEBOOK, True)],
)
def test_form_without_slots_or_with_threads_is_rejected(
    settings: Resilience, threaded: bool
) -> None:
    with pytest.raises(BadValue) as caught:
        Protection(settings, threaded=threaded)
    assert caught.value.field == "resilience.form"


def test_unknown_form_is_rejected() -> None:
    with pytest.raises(BadValue, match="facebook"):
        Resilience(form="codel")
