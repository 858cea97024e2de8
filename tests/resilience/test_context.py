"""What is being served follows tasks and their threads, and ends with its block."""

from __future__ import annotations

import asyncio

from sluicegate.contracts.criticality import Criticality
from sluicegate.resilience.context import (
    ServedRequest,
    is_expired,
    remaining_us,
    serve,
    served_request,
)


def test_outside_of_a_request_nothing_is_set_and_nothing_expires() -> None:
    assert served_request() is None
    assert remaining_us(5) is None
    assert not is_expired(1 << 60)


def test_the_time_that_remains_ends_at_zero() -> None:
    with serve(ServedRequest(deadline_us=1_000)):
        assert remaining_us(400) == 600
        assert remaining_us(2_000) == 0
        assert not is_expired(999)
        assert is_expired(1_000)
    with serve(ServedRequest(criticality=Criticality.BULK)):
        assert remaining_us(400) is None
        assert not is_expired(400)


def test_an_inner_request_gives_way_to_the_outer_one() -> None:
    with serve(ServedRequest(caller="outer")) as outer:
        with serve(ServedRequest(caller="inner")) as inner:
            assert served_request() is inner
        assert served_request() is outer


def test_tasks_and_their_threads_see_the_request_they_were_begun_for() -> None:
    async def caller() -> str:
        served = await asyncio.to_thread(served_request)
        assert served is not None
        return served.caller

    async def both() -> list[str]:
        tasks = []
        for name in ("a", "b"):
            with serve(ServedRequest(caller=name)):
                tasks.append(asyncio.create_task(caller()))
        return await asyncio.gather(*tasks)

    assert asyncio.run(both()) == ["a", "b"]
