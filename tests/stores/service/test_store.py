"""The service store on a real socket: what travels, who may ask, and what happens without it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate import BadValue, Limit, Unavailable
from sluicegate.contracts.access import Grant
from sluicegate.contracts.store import Charge, Ruling
from sluicegate.stores.service.commands import (
    PREFIX_DEFAULT,
    StoreCommands,
    error_of,
    grant_of,
    ruling_of,
)
from sluicegate.stores.service.store import ServiceStore
from sluicegate.testing import SeededChance
from sluicegate.wire.resp import error_reply
from tests.redis.certificates import make_certificates
from tests.stores.service.checks import Checks
from tests.stores.service.door import Service

DAILY = Limit(5, period_us=86_400_000_000)
ONE = [Charge("daily", DAILY, "ann")]


PATIENT_S = 40.0
PATIENT = f"?timeout_ms={PATIENT_S * 1_000:.0f}&connect_timeout_ms={PATIENT_S * 1_000:.0f}"


def opened(url: str, prefix: str = PREFIX_DEFAULT) -> ServiceStore:
    return ServiceStore(url, SeededChance(1), prefix=prefix)


def test_what_is_asked_in_one_turn_leaves_in_one_write(service: Service) -> None:
    async def story() -> None:
        store = opened(service.url)
        await store.connect()
        before = service.reads
        await asyncio.gather(
            *(store.take([Charge("daily", DAILY, f"user {n}")]) for n in range(50))
        )
        assert service.reads - before <= 2
        await store.close()

    asyncio.run(story())


def test_a_prefix_keeps_apart_programs_that_name_their_rules_alike(service: Service) -> None:
    async def story() -> None:
        one, other = opened(service.url), opened(service.url, "shop")
        for store in (one, other):
            remaining = [(await store.take(ONE)).decisions[0].remaining for _ in range(2)]
            assert remaining == [4, 3]
            await store.close()

    asyncio.run(story())
    assert StoreCommands("shop").name("daily") == "shop:daily"
    assert StoreCommands().name("daily") == "daily"


def test_a_token_opens_and_a_wrong_one_does_not() -> None:
    async def story(url: str) -> None:
        store = opened(url)
        try:
            assert (await store.take(ONE)).allowed
        finally:
            await store.close()

    with Service(token="s3cret") as service:
        asyncio.run(story(service.url))
        for wrong in (service.url.replace("s3cret", "guess"), f"sluicegate://{service.address}"):
            with pytest.raises(Unavailable) as error:
                asyncio.run(story(wrong))
            assert "guess" not in str(error.value)


def test_who_may_not_count_here_is_told_so() -> None:
    async def story(url: str) -> None:
        store = opened(url)
        with pytest.raises(Unavailable, match="NOPERM"):
            await store.take(ONE)
        await store.close()

    with Service(grants=frozenset({Grant.CHECK})) as service:
        asyncio.run(story(service.url))


def test_it_speaks_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)

    async def story(url: str) -> None:
        store = opened(url)
        try:
            assert (await store.take(ONE)).allowed
        finally:
            await store.close()

    with Service(tls=context) as service:
        asyncio.run(story(f"{service.url}&tls_ca={certificates.authority}"))
        with pytest.raises(Unavailable, match="TLS failed"):
            asyncio.run(story(service.url))


# Without it.


def test_a_service_that_is_gone_is_unavailable_at_once_and_is_found_again(
    service: Service,
) -> None:
    async def story() -> None:
        store = opened(service.url.partition("?")[0] + PATIENT)
        assert (await store.take(ONE)).allowed
        service.shut()
        await _until(lambda: store.unavailable(ONE) is not None)
        async with asyncio.timeout(PATIENT_S / 2):  # it does not wait for a time-out
            with pytest.raises(Unavailable, match="Sluicegate at 127"):
                await store.take(ONE)
        service.open()
        await _until(lambda: store.unavailable(ONE) is None)
        ruling = await store.take(ONE)
        assert ruling.decisions[0].remaining == 3
        await store.close()

    asyncio.run(story())


def test_a_service_that_is_silent_costs_one_time_out(service: Service) -> None:
    async def story() -> None:
        store = opened(service.url.replace("5000", "40"))
        await store.connect()
        service.silent = True
        with pytest.raises(Unavailable, match="no answer in 40 ms"):
            await store.take(ONE)
        await store.close()

    asyncio.run(story())


def test_a_closed_store_is_unavailable(service: Service) -> None:
    async def story() -> None:
        store = opened(service.url)
        await store.close()
        for charges in (ONE, []):
            with pytest.raises(Unavailable, match="closed"):
                await store.take(charges)

    asyncio.run(story())


def test_a_store_that_was_never_reached_says_why() -> None:
    async def story() -> None:
        store = opened("sluicegate://127.0.0.1:1")
        with pytest.raises(Unavailable, match="cannot connect"):
            await store.connect()
        with pytest.raises(Unavailable, match="cannot connect"):
            await store.take(ONE)
        await store.close()

    asyncio.run(story())


# Several workers of one service.


def test_all_workers_are_asked_and_count_as_one() -> None:
    async def story(url: str) -> None:
        store = opened(url)
        await store.connect()
        await _until(lambda: all(node.connected for node in store._fleet.nodes))
        await asyncio.gather(*(store.take([Charge("x", DAILY, str(n))]) for n in range(200)))
        rulings = [await store.take(ONE) for _ in range(6)]
        assert [ruling.allowed for ruling in rulings] == [True] * 5 + [False]
        await store.close()

    with Service() as one, Service(checks=one.checks) as other:
        asyncio.run(story(_both(one, other)))
        assert one.door.commands > 20
        assert other.door.commands > 20


def test_when_a_worker_goes_the_other_is_asked_and_nobody_hears_of_it() -> None:
    async def story(one: Service, other: Service) -> None:
        store = opened(_both(one, other))
        await asyncio.gather(*(store.take([Charge("x", DAILY, str(n))]) for n in range(50)))
        one.shut()
        await asyncio.sleep(0.05)
        assert store.unavailable(ONE) is None
        for n in range(50):
            assert (await store.take([Charge("x", DAILY, f"later {n}")])).allowed
        before = one.ready
        one.open()
        await _until(lambda: one.ready > before)
        other.shut()
        await asyncio.sleep(0.05)
        await _until(lambda: store.unavailable(ONE) is None)
        for n in range(20):
            assert (await store.take([Charge("x", DAILY, f"last {n}")])).allowed
        one.shut()
        await _until(lambda: store.unavailable(ONE) is not None)
        with pytest.raises(Unavailable):
            await store.take(ONE)
        await store.close()

    with Service() as one, Service(checks=one.checks) as other:
        asyncio.run(story(one, other))


def test_a_worker_that_is_dead_from_the_start_delays_nobody() -> None:
    async def story(service: Service) -> None:
        # 240.0.0.1 answers nothing, so connecting to it takes until the time-out.
        store = opened(f"sluicegate://240.0.0.1:7070,{service.address}{PATIENT}&shared=yes")
        async with asyncio.timeout(PATIENT_S / 2):
            assert (await store.take(ONE)).allowed
        await store.close()

    with Service() as service:
        asyncio.run(story(service))


def test_a_silent_workers_calls_fail_once_and_are_not_sent_again() -> None:
    async def story(one: Service, other: Service) -> None:
        store = opened(_both(one, other).replace("timeout_ms=5000", "timeout_ms=1000"))
        await store.connect()
        await _until(lambda: all(node.connected for node in store._fleet.nodes))
        await asyncio.gather(*(store.take([Charge("x", DAILY, str(n))]) for n in range(20)))
        one.silent = True
        results = await asyncio.gather(
            *(store.take([Charge("y", DAILY, "ann")]) for _ in range(4)), return_exceptions=True
        )
        lost = sum(isinstance(one, Unavailable) for one in results)
        counted = (await _answered(store)).decisions[0].remaining
        # What the silent one has had was never asked of the other.
        assert counted == 5 - (4 - lost)
        await store.close()

    with Service() as one, Service(checks=one.checks) as other:
        asyncio.run(story(one, other))


# Words.


def test_a_cost_below_nothing_is_no_charge(service: Service) -> None:
    async def story() -> None:
        store = opened(service.url)
        charge = Charge("daily", DAILY, "ann", -1)
        with pytest.raises(BadValue, match="cost"):
            await store.take([charge])
        with pytest.raises(BadValue, match="cost"):
            await store.take_some(charge, [2, -1])
        with pytest.raises(BadValue, match="ladder"):
            await store.take_some(charge, [])
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "reply", [None, 1, [], [1], [1, 0, 0, 0, 0, b""], [1, 1, 0, 0, 0, b"moon"], [1, 1, 0, 0, 0, 7]]
)
def test_what_is_no_answer_is_no_decision(reply: object) -> None:
    with pytest.raises(Unavailable, match="not understood"):
        ruling_of(reply, ONE)
    with pytest.raises(Unavailable, match="not understood"):
        grant_of(reply, ONE[0])


def test_an_error_is_told_as_what_it_was_there() -> None:
    bad = error_of("it", error_reply("ERR limit.count: 0 cannot be used; give more"))
    assert isinstance(bad, BadValue)
    assert (bad.field, bad.value, bad.remedy) == ("limit.count", "0", "give more")
    unavailable = error_of("it", error_reply("ERR unknown command 'SG.TAKE'"))
    assert isinstance(unavailable, Unavailable)


def test_words_kept_are_bounded_and_follow_a_limit_that_changes() -> None:
    words = StoreCommands(limits_max=2)
    for n in range(5):
        words.take([Charge(f"rule {n}", DAILY, "ann")], keep=True, count_refused=False)
    assert len(words._limit_words) == 2
    one = words.take([Charge("rule 4", DAILY, "ann")], keep=True, count_refused=False)
    more = Limit(6, period_us=86_400_000_000)
    other = words.take([Charge("rule 4", more, "ann")], keep=True, count_refused=False)
    assert one != other


# Inside.


def _both(one: Service, other: Service) -> str:
    return f"sluicegate://{one.address},{other.address}?shared=yes&timeout_ms=5000"


async def _until(true: Callable[[], bool], within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)


async def _answered(store: ServiceStore) -> Ruling:
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.take([Charge("y", DAILY, "ann", 0)], keep=False)
            except Unavailable:
                await asyncio.sleep(0.01)


def test_the_service_of_these_tests_is_the_real_door(service: Service) -> None:
    assert type(service.door).__module__ == "sluicegate.doors.resp.protocol"
    assert isinstance(service.checks, Checks)
