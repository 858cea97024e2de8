"""The store goes and comes back: said once each, and told in the state and the metrics."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluicegate.apps.kv.generation_one import GenerationOne, GenerationOneSettings
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.store_watch import QUIET_US, START, StoreState, StoreWatch
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.request import Request
from sluicegate.policies.quota.leased_budget import LeasedBudgetSettings
from sluicegate.service.settings import settings_from
from sluicegate.testing import HandClock
from tests.apps.kv.fleet import EPOCH_US, RU, Dispatcher, FarStore
from tests.apps.kv.process import KvProcess
from tests.engines.child import until
from tests.policies.virtual import VirtualLoop, pause_us, run

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

UNAVAILABLE = Unavailable("Redis at here", "connection\nrefused")


@pytest.fixture(autouse=True)
def _capture_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluicegate.kv")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_it_is_said_once_when_it_goes_and_once_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    watch = StoreWatch(clock, "each caller has its last share")
    watch.answered("a")
    assert watch.stats() == StoreState(False, 0, "", 0)
    gone_us = clock.now_us()
    for who in ("a", "b", "a"):
        watch.failed(who, UNAVAILABLE)
    assert lines(caplog) == [
        (
            "the store does not answer: Redis at here is unavailable: connection refused; "
            "until it does, each caller has its last share"
        )
    ]
    assert watch.stats()[:2] == (True, gone_us)
    clock.advance(s=3)
    watch.answered("a")
    assert watch.stats().gone  # for b it is
    watch.answered("b")
    watch.answered("b")
    assert lines(caplog)[1:] == ["the store answers again, after 3.0 s"]
    stats = watch.stats()
    assert (stats.gone, stats.since_us, stats.losses) == (False, clock.now_us(), 1)


def test_a_store_that_answers_now_and_then_is_gone_and_not_a_line_a_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    watch = StoreWatch(clock, "-")
    for _ in range(1_000):
        watch.failed("a", TimeoutError())
        watch.answered("a")
        clock.advance(us=1_000)
    assert len(lines(caplog)) == 1
    assert "no answer in time" in lines(caplog)[0]
    clock.advance(us=QUIET_US)
    assert not watch.stats().gone  # also where nobody asks any more
    assert len(lines(caplog)) == 2


def test_who_could_not_connect_at_the_start_is_followed_by_whoever_is_answered_first() -> None:
    clock = HandClock()
    watch = StoreWatch(clock, "-")
    watch.failed(START, UNAVAILABLE)
    clock.advance(s=5)
    assert watch.stats().gone
    watch.answered("heartbeat")
    assert not watch.stats().gone


def test_what_nobody_asks_any_more_is_not_said_to_answer(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    watch = StoreWatch(clock, "-", what="the engine lmdb", forget_us=10_000_000)
    watch.failed("put", UNAVAILABLE)
    clock.advance(s=9)
    watch.answered("get")
    assert watch.stats().gone
    clock.advance(s=1)
    assert not watch.stats().gone
    assert lines(caplog)[1:] == [
        "the engine lmdb counts as answering, after 10.0 s: what failed was not asked for 10 s"
    ]


def test_leases_tell_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    async def story(loop: VirtualLoop) -> None:
        store = FarStore(loop.now_us)
        one = Dispatcher(loop, store, LeasedBudgetSettings(quota_ru=1_000))
        watch = one.leases.watch = StoreWatch(one.clock, "-")
        one.start()
        one.offer("big", 2_000, seed=1, mru=20 * RU)
        await pause_us(3 * EPOCH_US)
        assert watch.stats().losses == 0
        store.down = True
        await pause_us(60 * EPOCH_US)
        assert watch.stats().gone
        assert len(lines(caplog)) == 1
        store.down = False
        await pause_us(5 * EPOCH_US)
        assert watch.stats()[::3] == (False, 1)
        assert len(lines(caplog)) == 2
        await one.kill()

    run(story)


def test_a_probe_that_is_answered_is_enough() -> None:
    async def story(loop: VirtualLoop) -> None:
        one = Dispatcher(loop, FarStore(loop.now_us), LeasedBudgetSettings(quota_ru=1_000))
        watch = one.leases.watch = StoreWatch(one.clock, "-")
        one.leases._failed(None)
        one.leases._set_alone(True, one.clock.now_us())
        one.start()
        await pause_us(EPOCH_US // 2)
        assert watch.stats().gone
        await pause_us(2 * EPOCH_US)
        assert not watch.stats().gone
        await one.kill()

    run(story)


def test_generation_one_tells_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    store = FarStore(clock.now_us, trip_us=0)
    these = GenerationOne(GenerationOneSettings(qps=1), clock, store=store)
    watch = these.watch = StoreWatch(clock, "each dispatcher counts by itself")

    def ask() -> None:
        async def story() -> None:
            for _ in range(20):
                await these.admit(Request("k", caller="a"), clock)

        asyncio.run(story())
        clock.advance(s=1)

    ask()
    store.down = True
    ask()
    ask()
    assert watch.stats().gone
    assert len(lines(caplog)) == 1
    store.down = False
    ask()
    assert not watch.stats().gone
    assert len(lines(caplog)) == 2


@pytest.mark.parametrize("policy", ["layers", "mussel"])
def test_groups_go_with_every_form_of_quotas_and_with_or_without_a_store(policy: str) -> None:
    for store in ((), ("--store", "redis://127.0.0.1:1")):
        flags = ("--groups", "groups.yaml", "--policy", policy, *store)
        assert settings_from(KvSettings, *flags).groups == "groups.yaml"


@pytest.mark.parametrize(
    "flags",
    [
        ("--policy", "layers"),
        ("--policy", "mussel"),
        ("--policy", "generation-one"),
    ],
)
def test_a_store_that_dies_in_service_is_told_everywhere(
    flags: tuple[str, ...], tmp_path: Path, redis_server: RedisServer
) -> None:
    from tests.engines.redis import RedisServer

    with (
        RedisServer(redis_server.build) as store,
        KvProcess(tmp_path, "--engine", "memory:", "--store", store.url, *flags) as kv,
    ):
        message = "the store does not answer"

        def ask() -> None:
            for _ in range(5):
                kv.redis().set("t:1", "x")

        ask()
        assert kv.metric("sluicegate_kv_store_answers") == 1
        assert message not in kv.log.read_text()
        store.kill(1)

        def has_gone() -> bool:
            ask()
            return bool(kv.ask("/v1/state")[1]["store"]["gone"])

        until(has_gone, "the store is told to be gone", children=[kv.child])
        assert kv.log.read_text().count(message) == 1
        assert kv.metric("sluicegate_kv_store_answers") == 0
        assert kv.ask("/v1/state")[1]["board"]["store"]["gone"]
        assert kv.ask("/readyz")[0] == 200
        store.restart(1)

        def back() -> bool:
            ask()
            return not kv.ask("/v1/state")[1]["store"]["gone"]

        until(back, "the store is told to be back", children=[kv.child])
        assert kv.log.read_text().count("the store answers again") == 1
        assert kv.metric("sluicegate_kv_store_losses_total") == 1


def test_a_store_that_is_not_there_at_the_start_is_told_once(tmp_path: Path) -> None:
    for policy in ("layers", "generation-one"):
        folder = tmp_path / policy
        folder.mkdir()
        flags = ("--engine", "memory:", "--store", "redis://127.0.0.1:1", "--policy", policy)
        with KvProcess(folder, *flags) as kv:
            kv.redis().set("t:1", "x")
            assert kv.log.read_text().count("the store does not answer") == 1
            assert kv.ask("/v1/state")[1]["store"]["losses"] == 1
