"""The client on a real socket, against the real door: tasks, threads, processes, and outages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate import BadValue, Unavailable
from sluicegate.client import Client, SyncClient
from sluicegate.client.blocks import HOT_ASKS
from sluicegate.contracts.access import Grant
from tests.client.world import window
from tests.stores.service.door import Service

TIMEOUT_S = 20
A_DAY_S = 86_400  # a window whose end no test meets


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


def test_what_is_asked_in_one_turn_leaves_in_one_write(service: Service) -> None:
    async def story() -> None:
        async with Client(service.url, lease=None) as client:
            await client.connect()
            before = service.reads
            answers = await asyncio.gather(
                *(client.check(f"user {n}", "/play") for n in range(100))
            )
            assert all(answer and answer.remaining == 99 for answer in answers)
            assert service.reads - before <= 2

    asyncio.run(story())


def test_a_hot_pair_is_leased_and_closing_gives_it_back(service: Service) -> None:
    service.checks.limit = window(100_000, s=A_DAY_S)

    async def story() -> int:
        async with Client(service.url) as client:
            for _ in range(3_000):
                assert await client.check("ann", "/play")
            stats = client.stats()
            assert stats.leased > 2_900
            assert stats.asked == HOT_ASKS - 1
        return client.stats().units_returned

    returned = asyncio.run(story())
    assert returned > 0
    lent = sum(lease.units - lease.back for lease in service.checks.leases.values())
    assert lent + HOT_ASKS - 1 == 3_000


def test_an_idle_lease_goes_back_by_itself(service: Service) -> None:
    async def story() -> int:
        async with Client(service.url, lease=10) as client:
            await client.check("ann", "/play")
            await until(lambda: client.stats().pairs_leased == 0)
            # Closing waits for what is on its way back, and gives back nothing more.
        return client.stats().units_returned

    # A machine that is held up for as long as a lease lives lets it lapse instead.
    assert 9 in [asyncio.run(story()) for _ in range(3)]


def test_several_clients_admit_together_what_the_limit_allows(service: Service) -> None:
    service.checks.limit = window(500, s=3_600)

    async def story() -> int:
        clients = [Client(service.url, lease=lease) for lease in ("auto", 7, None)]
        allowed = 0
        for _ in range(40):
            answers = await asyncio.gather(
                *(client.check("ann", "/play") for client in clients for _ in range(8))
            )
            allowed += sum(map(bool, answers))
        for client in clients:
            await client.close()
        return allowed

    # A lease may be left with one while another is refused, but none is ever made up.
    assert 400 <= asyncio.run(story()) <= 500


def test_a_client_without_the_grant_to_lease_still_checks() -> None:
    async def story(url: str) -> None:
        async with Client(url, lease=10, failure="closed") as client:
            answers = [await client.check("ann", "/play") for _ in range(3)]
            assert [answer.source for answer in answers] == ["service"] * 3
            assert all(answers)

    with Service(grants=frozenset({Grant.CHECK})) as service:
        asyncio.run(story(service.url))


def test_a_service_that_goes_is_answered_for_and_found_again(service: Service) -> None:
    async def story() -> None:
        async with Client(service.url, lease=None, timeout_ms=TIMEOUT_S * 1_000) as client:
            assert not (await client.check("ann", "/play")).degraded
            service.shut()
            await asyncio.sleep(0.05)
            async with asyncio.timeout(TIMEOUT_S):  # none of them waits for one
                for _ in range(50):
                    answer = await client.check("ann", "/play")
                    assert answer
                    assert answer.degraded
            service.open()
            async with asyncio.timeout(60):
                while (await client.check("ann", "/play")).degraded:
                    await asyncio.sleep(0.01)
            service.shut()
            await asyncio.sleep(0.05)
            with pytest.raises(Unavailable):
                await client.reset("ann", "/play")

    asyncio.run(story())


def test_a_silent_service_costs_a_time_out_and_not_more(service: Service) -> None:
    async def story() -> None:
        async with Client(service.url, timeout_ms=30, failure="closed") as client:
            await client.connect()
            service.silent = True
            async with asyncio.timeout(60):
                answer = await client.check("ann", "/play")
            assert (answer.allowed, answer.degraded) == (False, True)

    asyncio.run(story())


def test_a_wrong_token_is_told_at_connect_and_in_the_stats() -> None:
    async def story(url: str) -> None:
        client = Client(url)
        with pytest.raises(Unavailable, match="WRONGPASS"):
            await client.connect()
        assert (await client.check("ann", "/play")).degraded
        assert "WRONGPASS" in client.stats().failure
        assert "guess" not in client.stats().failure
        await client.close()

    with Service(token="s3cret") as service:
        asyncio.run(story(service.url.replace("s3cret", "guess")))


def test_what_the_service_cannot_use_is_a_bad_value(service: Service) -> None:
    async def story() -> None:
        async with Client(service.url) as client:
            with pytest.raises(BadValue, match="headers"):
                await client.check("a", "b", headers={str(n): "" for n in range(99)})

    asyncio.run(story())


# Threads.


def test_threads_ask_one_client(service: Service) -> None:
    service.checks.limit = window(50, s=A_DAY_S)
    patient = SyncClient(service.url, lease=None, timeout_ms=TIMEOUT_S * 1_000)
    with patient as client, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.check("ann", "/play"), range(80)))
        assert sum(map(bool, answers)) == 50
        stats = client.stats()
        assert stats.checks == 80
        assert stats.denied >= 20
        # A standing refusal does not leave the thread.
        assert client.check("ann", "/play").source == "denial"
        assert client.peek("ann", "/play").source == "service"
        assert client.reset("ann", "/play") == 1
        assert client.check("ann", "/play")


def test_threads_spend_leases_and_closing_gives_them_back(service: Service) -> None:
    service.checks.limit = window(10_000, s=A_DAY_S)
    with SyncClient(service.url, lease=100, timeout_ms=TIMEOUT_S * 1_000) as client:
        client.connect()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: client.check("ann", "/play"), range(1_050)))
        assert all(answers)
        answers_by_service = client.stats().asked
    spent = sum(lease.units - lease.back for lease in service.checks.leases.values())
    assert spent + answers_by_service == 1_050
    assert answers_by_service < 200


def test_a_sync_client_tells_wrong_settings_at_once_and_has_stats_before_it_asks() -> None:
    with pytest.raises(BadValue, match="failure"):
        SyncClient(failure="ajar")
    with pytest.raises(TypeError):
        SyncClient(colour="red")
    client = SyncClient()
    assert client.stats().checks == 0
    client.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_after_a_fork_leases_for_itself(service: Service) -> None:
    code = f"""
import os, sys
from sluicegate.client import SyncClient
client = SyncClient({service.url!r}, lease=10)
assert client.check("ann", "/play").source == "lease"
child = os.fork()
if not child:
    try:
        sources = [client.check("ann", "/play").source for _ in range(3)]
        client.close()
        os._exit(0 if sources == ["lease"] * 3 else 1)
    except BaseException as error:
        print(error, file=sys.stderr)
        os._exit(2)
_, status = os.waitpid(child, 0)
assert client.check("ann", "/play").source == "lease"
client.close()
sys.exit(status >> 8)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(service.checks.leases) == 2


# What must be installed.


def test_without_hiredis_the_import_says_what_to_install() -> None:
    code = """
import sys
sys.modules["hiredis"] = None
from sluicegate import Limiter
try:
    from sluicegate.client import Client
except Exception as error:
    print(type(error).__name__, error)
try:
    Limiter("5/s", store_url="sluicegate://here").take("ann")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message = (
        "MissingPackage the package hiredis is missing; pip install '.[redis]' in the checkout"
    )
    assert done.stdout.splitlines() == [message, message]


def test_importing_sluicegate_does_not_import_the_client() -> None:
    code = (
        "import sluicegate, sys; "
        "print([n for n in sys.modules if n.startswith('sluicegate.client')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
