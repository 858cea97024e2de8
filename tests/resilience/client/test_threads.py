"""Threads that share a client: one decision at a time, no listener in the lock, newest hosts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import final

import pytest

from sluicegate.contracts.errors import Refused
from sluicegate.contracts.request import Request
from sluicegate.policies.client.breaker import BreakerChange
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.subscribers import EVENTS_MAX, Subscribers
from sluicegate.testing import HandClock

THREADS = 4
S = 1_000_000


@final
class WatchedChance:
    """Counts the draws that found another one under way; each gives the others time to come in."""

    def __init__(self) -> None:
        self._drawing = False
        self.draws = 0
        self.overlaps = 0

    def draw(self) -> float:
        self.draws += 1
        self.overlaps += self._drawing
        self._drawing = True
        time.sleep(0.0005)
        self._drawing = False
        return 0.5


def made(hosts: HostGroup | None = None, chance: WatchedChance | None = None) -> ResilientClient:
    table = {"retry": {"base_us": 1}, "breaker": {"failures_in_row": 1, "open_us": 60 * S}}
    return ResilientClient(client_settings(table), hosts, chance=chance, pause=lambda _: None)


def test_calls_of_many_threads_are_decided_one_at_a_time_and_each_is_counted() -> None:
    chance = WatchedChance()
    client = made(chance=chance)
    ended: list[None] = []

    def work() -> None:
        ended.append(None)

    call = resilient(client, "b")(work)
    with ThreadPoolExecutor(THREADS) as pool:
        for one in [pool.submit(call) for _ in range(40)]:
            one.result(60)
    assert chance.overlaps == 0
    assert chance.draws >= 40
    assert len(ended) == client.retry.stats().calls == client.breaker.stats().admitted == 40
    assert client.throttle.stats().inflight == client.breaker.stats().inflight == 0


def test_clients_of_one_group_share_its_lock() -> None:
    chance = WatchedChance()
    group = HostGroup(lambda: ["a:1", "b:1"], chance=chance)
    clients = [made(group) for _ in range(THREADS)]

    def call(client: ResilientClient) -> None:
        result = CallResult(ResultKind.OK, "done")
        client.call_now(lambda _: result, Request("", shard="b")).unwrap()

    with ThreadPoolExecutor(THREADS) as pool:
        for one in [pool.submit(call, clients[number % THREADS]) for number in range(40)]:
            one.result(60)
    assert chance.overlaps == 0
    assert group.balance.stats().picked == 40
    assert group.balance.stats().inflight == 0


def test_a_listener_may_use_the_client_and_wait_for_a_thread_that_does() -> None:
    client = made()
    heard: list[str] = []

    @resilient(client, "good")
    def good() -> str:
        return "done"

    @resilient(client, "bad")
    def bad() -> str:
        raise ConnectionResetError

    with ThreadPoolExecutor(1) as pool:

        def listen(change: object) -> None:
            heard.append(good())
            heard.append(pool.submit(good).result(30))

        client.subscribe(listen)
        with pytest.raises(ConnectionResetError):
            bad()
        with pytest.raises(Refused):
            bad()
    assert heard == ["done", "done"]
    assert client.breaker.stats().inflight == 0


def test_a_listener_to_ejections_may_use_the_group() -> None:
    clock = HandClock()
    group = HostGroup(lambda: [f"{name}:1" for name in "abcdefghij"], clock=clock)
    client = ResilientClient(None, group, clock=clock)
    heard: list[tuple[str, bool]] = []

    def call() -> CallResult[str]:
        return client.call_now(lambda _: CallResult(ResultKind.OK, "done"), Request(""))

    with ThreadPoolExecutor(1) as pool:
        group.subscribe(
            lambda verdict, _: heard.append((verdict.name, pool.submit(call).result(30).ok))
        )
        eject(group, "a:1", clock)
        assert call().ok
    assert heard == [("a:1", True)]


def eject(group: HostGroup, host: str, clock: HandClock) -> None:
    """Let it fail so often that the sweep of the next call ejects it."""
    for _ in range(20):
        group.balance.outlier.record(host, CallResult(ResultKind.FAILED), S, "", clock.now_us())
    clock.advance(us=2 * S)


@final
class HookedChance:
    """Calls a function once, in the midst of a draw."""

    def __init__(self) -> None:
        self.hook: Callable[[], None] | None = None

    def draw(self) -> float:
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        return 0.5


def test_a_refresh_waits_for_the_decision_that_is_being_made() -> None:
    """The sweep of one thread ejects a host that another one takes out of the group meanwhile."""
    clock, chance = HandClock(), HookedChance()
    hosts = [f"{name}:1" for name in "abcdefghij"]
    group = HostGroup(lambda: list(hosts), clock=clock, chance=chance)
    client = ResilientClient(None, group, clock=clock)
    eject(group, "a:1", clock)
    refreshed = threading.Event()

    def refresh() -> None:
        group.refresh()
        refreshed.set()

    def hook() -> None:
        hosts.remove("a:1")
        thread.start()
        refreshed.wait(0.2)  # it cannot be, as long as this call decides

    thread = threading.Thread(target=refresh)
    chance.hook = hook
    result = client.call_now(lambda _: CallResult(ResultKind.OK, "done"), Request(""))
    thread.join(30)
    assert result.ok
    assert refreshed.is_set()
    assert group.balance.stats().hosts == 9


def test_what_an_older_look_found_never_replaces_what_a_newer_one_did() -> None:
    entered, gate = threading.Event(), threading.Event()
    looks = 0

    def source() -> Sequence[str]:
        nonlocal looks
        looks += 1
        if looks == 2:
            entered.set()
            gate.wait(30)
            return ["old:1"]
        return ["new:1", "new:2", "new:3"]

    group = HostGroup(source)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(group.refresh)
        assert entered.wait(30)
        assert group.refresh()
        gate.set()
        assert slow.result(30)
    assert group.balance.stats().hosts == 3


def test_a_listener_that_fails_fails_no_call_and_hides_nothing_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = ResilientClient(client_settings({"breaker": {"failures_in_row": 1}}))
    heard: list[BreakerChange] = []

    def broken(change: BreakerChange) -> None:
        raise KeyError(change.after)

    client.subscribe(broken)
    client.subscribe(heard.append)

    @resilient(client, "down")
    def ask() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        ask()
    assert [change.after for change in heard] == ["open"]
    assert "a listener failed" in caplog.text


def test_changes_are_reported_once_in_order_and_a_slow_listener_is_bounded() -> None:
    subscribers: Subscribers[int] = Subscribers()
    subscribers.record(-1)
    heard: list[int] = []

    def listen(event: int) -> None:
        heard.append(event)
        if event == 0:
            for late in range(1, EVENTS_MAX + 3):
                subscribers.record(late)
            subscribers.notify()  # nothing, for this one is notifying

    subscribers.subscribe(listen)
    subscribers.record(0)
    subscribers.notify()
    assert heard == [0, *range(3, EVENTS_MAX + 3)]
    assert subscribers.dropped == 2
