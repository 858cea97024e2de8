"""Services in processes of their own at many times their capacity: protected, and as they were."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

import pytest

from tests.resilience.server import slots_service
from tests.resilience.server.load import PATIENCE_S, Answers, caller_of, send, until_ready
from tests.resilience.server.slots_service import CAPACITY
from tests.resilience.service_process import running

pytestmark = pytest.mark.prove

SPAN_S = 2.0
TRIES_MAX = 3


class Seen(NamedTuple):
    """What callers and the service's own counts say."""

    work: Answers
    slow: Answers
    health: Answers
    begun_late: int


def under_load(door: str, kind: str, load: float, slow: float = 0.0) -> Seen:
    async def story(port: int) -> Seen:
        work, slow_ones, health = Answers(), Answers(), Answers()
        caller, watcher = caller_of(door, port), caller_of(door, port)
        await until_ready(watcher.ask)
        await asyncio.gather(
            send(caller.ask, "/work", load * CAPACITY, SPAN_S, work),
            send(caller.ask, "/slow", slow * CAPACITY, SPAN_S, slow_ones),
            send(watcher.ask, "/healthz", 20, SPAN_S, health, patience_s=30.0),
        )
        _, body = await watcher.ask("/healthz", 30.0)
        await caller.close()
        await watcher.close()
        return Seen(work, slow_ones, health, json.loads(body)["begun_late"])

    for _ in range(TRIES_MAX):
        with running(slots_service.__name__, door, kind) as port:
            seen = asyncio.run(story(port))
        if seen.work.on_time:
            break  # else the load was another than it says, and is played again
    return seen


@pytest.mark.parametrize(("door", "load"), [("asgi", 10), ("wsgi", 3), ("grpc", 5)])
def test_far_beyond_its_capacity_a_protected_service_answers_what_it_can(
    door: str, load: float
) -> None:
    plain = under_load(door, "fifo", load)
    ours = under_load(door, "protected", load)
    assert len(ours.work.in_time) >= 1.5 * len(plain.work.in_time)
    assert ours.begun_late == 0
    assert len(ours.health.in_time) == ours.health.sent
    # Whoever is refused hears of it while it still waits.
    refused = sorted(ours.work.refused)
    assert refused[len(refused) * 9 // 10] <= PATIENCE_S


def test_below_its_capacity_a_protected_service_refuses_hardly_anybody() -> None:
    seen = under_load("asgi", "protected", 0.4)
    assert len(seen.work.refused) <= 0.05 * seen.work.sent


def test_a_slow_endpoint_leaves_the_quick_one_what_it_needs() -> None:
    """Both ask for less than half of the places, and the slow one takes fifty times as long."""
    plain = under_load("asgi", "fifo", 0.4, slow=0.2)
    ours = under_load("asgi", "protected", 0.4, slow=0.2)
    assert len(ours.work.in_time) >= 2 * len(plain.work.in_time)
