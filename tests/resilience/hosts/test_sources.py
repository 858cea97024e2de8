from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.resilient import resilient
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import dns_source, file_source, list_source, split_host


def names(group: HostGroup) -> int:
    return group.balance.stats().hosts


def test_hosts_come_from_a_list_a_file_a_name_and_a_callback(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    text = "10.0.0.1:80\n# out of order\n\n[::1]:81  # here\n"
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text(text, encoding=encoding)
        assert file_source(str(file))() == ["10.0.0.1:80", "[::1]:81"]
    assert list_source(["a:1"])() == ("a:1",)
    assert f"{socket.gethostbyname('localhost')}:80" in dns_source("localhost", 80)()
    assert names(HostGroup(lambda: ["a:1", "b:1"])) == 2


@pytest.mark.parametrize(
    "wrong", ["a", "a:", ":1", "a:0", "a:65536", "a:x", "::1:80", "[]:1", "a b:1"]
)
def test_what_is_no_host_is_refused(wrong: str) -> None:
    with pytest.raises(BadValue, match="address:port"):
        split_host(wrong)
    assert "address:port" in HostGroup(lambda: [wrong]).failure


@pytest.mark.parametrize("wrong", ["10.0.0.1:80", None, 5])
def test_what_is_no_list_of_hosts_is_named(wrong: Any) -> None:
    with pytest.raises(BadValue, match="give a list of them"):
        list_source(wrong)
    assert "give a list of them" in HostGroup(lambda: wrong).failure
    assert "address:port" in HostGroup(lambda: [5]).failure  # type: ignore[list-item] # a bug


@pytest.mark.parametrize(("name", "port"), [("", 80), ("search.internal", 0), ("a b", 80)])
def test_a_name_that_cannot_be_looked_up_is_refused_at_once(name: str, port: int) -> None:
    with pytest.raises(BadValue, match="address:port"):
        dns_source(name, port)


def test_why_there_is_no_host_is_logged_once_and_told_to_who_asks(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    group = HostGroup(file_source(str(file)))
    client = ResilientClient(None, group)
    with pytest.raises(Refused) as refused:
        resilient(client, "search")(int)()
    assert str(file) in refused.value.decision.cause
    for _ in range(3):
        group.refresh()
    assert [str(file) in text for text in caplog.messages] == [True]
    file.write_text("10.0.0.1:80\n", encoding="utf-8")
    assert group.refresh()
    file.unlink()
    assert not group.refresh()
    assert "1 stay known" in caplog.messages[-1]


def test_a_source_that_fails_or_names_nobody_leaves_the_hosts_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("10.0.0.1:80\n10.0.0.2:80\n", encoding="utf-8")
    group = HostGroup(file_source(str(file)))
    for text in ("", "no host\n", None):
        if text is None:
            file.unlink()
        else:
            file.write_text(text, encoding="utf-8")
        assert not group.refresh()
        assert group.failure
        assert names(group) == 2
    file.write_text("10.0.0.3:80\n", encoding="utf-8")
    assert group.refresh()
    assert (names(group), group.failure) == (1, "")


def test_a_group_follows_its_source_whatever_that_raises() -> None:
    hosts = ["a:1"]
    failures: list[Exception] = [httpx.ConnectError("a registry of its own"), KeyError(), OSError()]

    def ask() -> list[str]:
        if len(hosts) == 2 and failures:
            raise failures.pop()
        return list(hosts)

    group = HostGroup(ask, refresh_us=1_000)

    async def story() -> None:
        following = asyncio.create_task(group.follow())
        hosts.append("b:1")
        async with asyncio.timeout(10):
            while names(group) < 2:
                await asyncio.sleep(0.001)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(story())
    assert not failures
    assert not HostGroup(lambda: None).refresh()  # type: ignore[arg-type,return-value] # a bug
