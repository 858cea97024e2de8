"""Services by one name: each of its addresses is one, and those that it has no more go in time."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import trustme

from sluicegate.apps.console import fleet as fleet_module
from sluicegate.apps.console.fleet import Fleet, FleetName
from sluicegate.apps.console.settings import ConsoleSettings
from sluicegate.command_line.service_client import ServiceAddress
from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import settings_from
from sluicegate.system import SystemClock
from tests.apps.console.process import ConsoleProcess
from tests.apps.limiter.process import NATIVE, LimiterProcess, rules_file
from tests.engines.child import until

NAME = ServiceAddress("dns+https://limiter.internal:7070/state", "secret")


def name(gone_s: float = 60.0) -> FleetName:
    return FleetName(NAME, 1.0, gone_s)


def test_each_address_is_a_service_with_the_token_and_a_certificate_for_the_name() -> None:
    (first, second), gone = name().update(["10.0.0.1:7070", "[::1]:7070"], 0.0, set(), 10)
    assert gone == []
    assert first.address == ServiceAddress(
        "https://10.0.0.1:7070/state", "secret", "", "limiter.internal"
    )
    assert second.address.url == "https://[::1]:7070/state"


def test_one_that_the_name_has_no_more_is_shown_as_gone_and_forgotten_in_time() -> None:
    names = name(gone_s=60.0)
    (first, second), _ = names.update(["10.0.0.1:7070", "10.0.0.2:7070"], 0.0, set(), 10)
    left = ["10.0.0.2:7070"]
    assert names.update(left, 60.0, set(), 10) == ([], [])
    first.now = {"app": "limiter"}
    assert names.update(left, 61.0, set(), 10) == ([], [])  # it answers still
    first.now = None
    assert names.update(left, 62.0, {first}, 10) == ([], [])  # it is being asked
    assert names.update(left, 63.0, set(), 10) == ([], [first])
    assert names.update([], 999.0, set(), 10) == ([], [])  # nobody knows the name: keep what it had
    ((again,), _) = names.update(["10.0.0.1:7070", *left], 999.0, set(), 10)
    assert again is not first
    assert second.address.url == "https://10.0.0.2:7070/state"


def test_no_more_services_than_there_is_room_for() -> None:
    names = name()
    hosts = [f"10.0.0.{n}:7070" for n in range(1, 9)]
    assert len(names.update(hosts, 0.0, set(), 3)[0]) == 3
    assert len(names.update(hosts, 5.0, set(), 5)[0]) == 5


def test_a_name_without_an_address_is_shown_until_it_has_one() -> None:
    names = name()
    ((nobody,), _) = names.update([], 0.0, set(), 10)
    assert "no address" in nobody.error
    assert names.update([], 5.0, set(), 10) == ([], [])
    new, gone = names.update(["10.0.0.1:7070"], 10.0, set(), 10)
    assert (len(new), gone) == (1, [nobody])


@pytest.mark.parametrize("url", ["dns+https://limiter.internal", "dns+ftp://x:1", "dns+http://:1"])
def test_a_name_is_written_with_a_scheme_and_a_port(url: str) -> None:
    with pytest.raises(BadValue, match="--services"):
        settings_from(ConsoleSettings, "--services", url)


def test_the_addresses_of_a_name_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(fleet_module, "LOOKUP_S", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: list(found))

    async def play() -> list[list[str]]:
        fleet = Fleet(
            [ServiceAddress("dns+http://limiter:1")],
            SystemClock(),
            every_s=0.05,
            timeout_s=0.05,
            gone_s=60.0,
        )
        shown = []
        for addresses in ([], ["127.0.0.2"], ["127.0.0.2", "127.0.0.3"]):
            found[:] = [(2, 1, 6, "", (address, 1)) for address in addresses]
            await fleet.look()
            shown.append([node.address.url for node in fleet.nodes])
        await fleet.close()
        return shown

    assert asyncio.run(play()) == [
        ["dns+http://limiter:1"],
        ["http://127.0.0.2:1"],
        ["http://127.0.0.2:1", "http://127.0.0.3:1"],
    ]


def test_a_real_limiter_is_found_by_name_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    chain = authority.issue_cert("localhost")  # for the name, and for no address
    chain.private_key_and_cert_chain_pem.write_to_path(tmp_path / "limiter.pem")
    tls = ["--tls-cert", str(tmp_path / "limiter.pem"), "--tls-key", str(tmp_path / "limiter.pem")]
    with (
        LimiterProcess(tmp_path, "--rules", rules_file(tmp_path, NATIVE), *tls) as limiter,
        ConsoleProcess(
            tmp_path,
            "--services", f"dns+https://localhost:{limiter.port}",
            "--ca", str(tmp_path / "ca.pem"),
            "--every-s", "0.2",
        ) as console,
    ):  # fmt: skip
        url = f"https://127.0.0.1:{limiter.port}"

        def answers() -> bool:
            nodes = console.ask("/v1/state")[1]["nodes"]
            return any(node["url"] == url and not node["error"] for node in nodes)

        until(answers, "the limiter to be shown")
