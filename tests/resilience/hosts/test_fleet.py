"""Clients of one group tell each other what they have ejected, and believe most of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import redis

from sluicegate.kernels.outlier import HostVerdict
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.outlier import TOLD, OutlierSettings
from sluicegate.resilience.hosts.fleet import (
    FRESH_MS,
    HELD_TIMES,
    Exchange,
    FleetView,
    directory_exchange,
    redis_exchange,
)
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from sluicegate.testing import HandClock, SeededChance
from tests.engines.redis import RedisServer

HOSTS = [f"10.0.0.{number}:80" for number in range(10)]
S = 1_000_000


class Fleet:
    """Clients with a view each, and one clock."""

    def __init__(self, exchange_of: Callable[[str], Exchange], count: int = 4) -> None:
        self.clock = HandClock()
        settings = OutlierSettings(base_us=20 * S, jitter_us=0)
        self.groups = [
            HostGroup(
                list_source(HOSTS), None, settings, clock=self.clock, chance=SeededChance(number)
            )
            for number in range(count)
        ]
        self.views = [
            FleetView(group, exchange_of(f"client-{number}"), clock=self.clock)
            for number, group in enumerate(self.groups)
        ]

    def find_bad(self, client: int, *hosts: str) -> None:
        """Have a client see five failures in a row of each."""
        outlier = self.groups[client].balance.outlier
        for host in hosts:
            for number in range(5):
                failed: CallResult[object] = CallResult(ResultKind.FAILED)
                outlier.record(host, failed, 1_000, f"{host} {number}", self.clock.now_us())
        outlier.sweep(self.clock.now_us())

    def look(self) -> list[tuple[str, ...]]:
        """Have all report and look twice, so that order is no matter; who is out for each."""
        for view in (*self.views, *self.views):
            assert view.refresh(), view.failure
        return self.out()

    def out(self) -> list[tuple[str, ...]]:
        now_us = self.clock.now_us()
        return [
            tuple(host for host in HOSTS if group.balance.outlier.weight(host, now_us) == 0.0)
            for group in self.groups
        ]


@pytest.fixture(params=["directory", "redis"])
def exchange_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Exchange]:
    if request.param == "directory":
        return lambda name: directory_exchange(tmp_path / "hosts", name)
    server: RedisServer = request.getfixturevalue("redis_server")
    client = redis.Redis.from_url(server.url)
    client.delete("fleet")
    return lambda name: redis_exchange(client, "fleet", name)


def test_what_two_of_three_others_found_bad_is_out_for_all_and_comes_back(
    exchange_of: Callable[[str], Exchange],
) -> None:
    fleet = Fleet(exchange_of)
    fleet.find_bad(0, HOSTS[3])
    assert fleet.look() == [(HOSTS[3],), (), (), ()], "one client alone is not believed"
    verdicts: list[HostVerdict] = []
    fleet.groups[2].subscribe(lambda verdict, _: verdicts.append(verdict))
    fleet.find_bad(1, HOSTS[3])
    assert fleet.look() == [(HOSTS[3],)] * 4
    assert [(one.name, one.ejected, one.reason) for one in verdicts] == [(HOSTS[3], True, TOLD)]
    fleet.clock.advance(us=19 * S)
    assert fleet.look() == [(HOSTS[3],)] * 4, "as long as they say so"
    fleet.clock.advance(us=2 * S)  # for the two that found it the time is over
    fleet.look()
    fleet.clock.advance(us=HELD_TIMES * S)
    assert fleet.look() == [()] * 4, "and what was told is not told on"
    now_us = fleet.clock.now_us()
    assert fleet.groups[2].balance.outlier.weight(HOSTS[3], now_us) == 0.1, "slowly"


def test_a_client_whose_own_network_is_broken_ejects_nothing_for_others(tmp_path: Path) -> None:
    fleet = Fleet(lambda name: directory_exchange(tmp_path, name))
    fleet.find_bad(0, *HOSTS)
    assert fleet.look()[1:] == [()] * 3


def test_no_more_is_left_out_than_the_group_allows(tmp_path: Path) -> None:
    """Nine others say all at once that half of the hosts are bad."""

    def told(bad: Sequence[str]) -> list[list[str]]:
        return [HOSTS[:5]] * 9

    fleet = Fleet(lambda name: told, count=1)
    assert fleet.look() == [(HOSTS[0],)]


def test_reports_that_are_old_or_broken_count_for_nothing_and_hide_no_other(
    tmp_path: Path,
) -> None:
    fleet = Fleet(lambda name: directory_exchange(tmp_path, name), count=3)
    for number in range(5):
        (tmp_path / f"old-{number}.json").write_text(json.dumps(HOSTS[:1]))
        os.utime(tmp_path / f"old-{number}.json", (1_000, 1_000 + number))
        recent = (tmp_path / "client-0.json", tmp_path / f"late-{number}.json")
        fleet.views[0].refresh()
        recent[1].write_text(json.dumps(HOSTS[:1]))
        at_ns = recent[0].stat().st_mtime_ns - (FRESH_MS + 1_000) * 1_000_000
        os.utime(recent[1], ns=(at_ns, at_ns))
    (tmp_path / "broken.json").write_bytes(b"\xff{")
    (tmp_path / "deep.json").write_text("[" * 60_000)
    (tmp_path / "long.json").write_text(json.dumps(["x" * 70_000]))
    fleet.find_bad(0, HOSTS[2])
    fleet.find_bad(1, HOSTS[2])
    (tmp_path / "strange.json").write_text('{"10.0.0.1:80": 1}')
    assert fleet.look() == [(HOSTS[2],), (HOSTS[2],), ()], "two of six others are too few"
    for name in ("broken", "deep", "long", "strange"):
        (tmp_path / f"{name}.json").unlink()
    assert fleet.look() == [(HOSTS[2],)] * 3
    assert not list(tmp_path.glob("old-*")), "what is forgotten is removed"


def test_what_is_no_report_in_redis_is_removed_and_hides_no_other(
    redis_server: RedisServer,
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete("fleet")
        soon_ms = client.time()[0] * 1_000 + 10 * FRESH_MS
        odd: dict[str | bytes, str | bytes] = {
            "a": "x",
            b"\xff": b"\xff \xff",
            "later": f"{soon_ms} []",
        }
        client.hset("fleet", mapping=odd)
        client.hset("fleet", "deep", f"{client.time()[0] * 1_000} " + "[" * 60_000)
        exchange = redis_exchange(client, "fleet", "client-0")
        redis_exchange(client, "fleet", "client-1")(["10.0.0.1:80"])
        assert sorted(exchange([]), key=len) == [[], ["10.0.0.1:80"]]
        assert {*client.hkeys("fleet")} == {b"client-0", b"client-1", b"deep", b"later"}


def test_a_view_that_fails_changes_nothing_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def broken(bad: Sequence[str]) -> list[list[str]]:
        raise ConnectionRefusedError("no way to the others")

    fleet = Fleet(lambda name: broken, count=1)
    fleet.find_bad(0, HOSTS[1])
    for _ in range(3):
        assert not fleet.views[0].refresh()
    assert fleet.views[0].failure == "no way to the others"
    assert ["no way to the others" in text for text in caplog.messages] == [True]
    assert fleet.out() == [(HOSTS[1],)]
