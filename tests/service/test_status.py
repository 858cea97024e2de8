from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path

import pytest

from sluicegate import __version__
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import Forbidden
from sluicegate.service.siblings import ALONE, WorkerId, socket_of
from sluicegate.service.status import WorkerStatus
from sluicegate.telemetry.prometheus import MetricFamily, MetricSample

LOOKS = Identity("ann", {Grant.AUDIT})
NOBODY = Identity("bob", ())
THEIRS = '# TYPE asked counter\nasked_total{worker="1"} 2\n'


def status(worker: WorkerId = ALONE, *, alone: bool = False) -> WorkerStatus:
    family = MetricFamily("asked", "counter", "", "Asks.", [MetricSample("_total", (), 1)])
    return WorkerStatus(
        "thing",
        worker,
        parts={"engine": lambda: {"name": "memory"}, "calls": lambda: 7},
        metrics=lambda: [family],
        not_ready=lambda: "it begins",
        not_alive=lambda: "",
        alone=alone,
    )


def test_the_state_is_who_it_is_and_what_each_part_says_of_itself() -> None:
    async def story() -> Mapping[str, object]:
        return status().state(LOOKS)

    state = asyncio.run(story())
    assert (state["app"], state["version"], state["not_ready"]) == (
        "thing",
        __version__,
        "it begins",
    )
    assert (state["worker"], state["workers"]) == (0, 1)
    assert (state["engine"], state["calls"]) == ({"name": "memory"}, 7)
    up_us = state["up_us"]
    assert isinstance(up_us, int)
    assert 0 <= up_us < 60_000_000


def test_whoever_may_not_look_sees_nothing() -> None:
    with pytest.raises(Forbidden):
        status().state(NOBODY)


def test_one_worker_tells_its_metrics_at_once_and_without_a_label() -> None:
    page = status().metrics()
    assert isinstance(page, str)
    assert "asked_total 1" in page.splitlines()


def test_one_of_several_tells_those_of_all_unless_it_is_one_of_them_that_asks(
    tmp_path: Path,
) -> None:
    async def answer_status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(THEIRS)}\r\n\r\n{THEIRS}".encode())
        await writer.drain()
        writer.close()

    async def story() -> None:
        worker = WorkerId(0, 2, str(tmp_path))
        mine = status(worker, alone=True).metrics()
        assert isinstance(mine, str)
        assert 'asked_total{worker="0"} 1' in mine.splitlines()
        server = await asyncio.start_unix_server(answer_status, socket_of(str(tmp_path), 1))
        async with server:
            pages = status(worker).metrics()
            assert isinstance(pages, Awaitable)
            lines = (await pages).splitlines()
        assert 'asked_total{worker="0"} 1' in lines
        assert 'asked_total{worker="1"} 2' in lines

    asyncio.run(story())
