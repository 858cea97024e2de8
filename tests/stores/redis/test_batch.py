"""Decisions that travel together: who leaves with whom, and what one may do to another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge
from sluicegate.stores.redis.batch import LANES_MAX, ChargeGroup, ScriptBatches
from sluicegate.stores.redis.connection import ReplyReceiver
from sluicegate.stores.redis.counters import RedisCounter, counter_for
from sluicegate.stores.redis.script import Script, load_scripts
from sluicegate.testing import START_US
from tests.stores.redis.live import run
from tests.stores.redis.storing import MINUTE, at, limit_of, stored

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

TEN = limit_of(Algorithm.GCRA)


class HandClient:
    """A client whose answers are given by hand."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any], list[Any]]] = []
        self.answers: list[ReplyReceiver] = []

    def send_script(
        self, receiver: ReplyReceiver, script: Script, keys: Any, args: Any, slot: int
    ) -> None:
        self.calls.append((script.name, list(keys), list(args)))
        self.answers.append(receiver)

    def run_script(self, script: Script, keys: Any, args: Any = ()) -> asyncio.Future[Any]:
        raise NotImplementedError

    def call(self, *parts: Any, key: Any = None) -> asyncio.Future[Any]:
        raise NotImplementedError

    def push(self) -> None:
        """Nothing waits here."""

    def unavailable_reason(self, slot: int) -> str:
        return ""

    async def connect(self) -> None:
        """It is."""

    async def close(self) -> None:
        """It is."""


def by_hand(*, asks_max: int = 256, hold_us: int = 0, spread: bool = False) -> Any:
    client: Any = HandClient()
    loop = asyncio.get_running_loop()
    scripts = load_scripts()
    batches = ScriptBatches(
        client, scripts, loop, spread=spread, asks_max=asks_max, hold_us=hold_us
    )
    return client, batches


def counter(limit: Limit = TEN, name: str = "r") -> RedisCounter:
    return counter_for("p", name, limit)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_asks_of_one_turn_leave_in_one_call_and_a_key_is_sent_once() -> None:
    async def story() -> None:
        client, batches = by_hand()
        ten = counter()
        asks = [batches.ask(ten, who, 1, True) for who in ("ann", "bob", "ann", "ann")]
        assert client.calls == []
        await turn()
        ((name, keys, args),) = client.calls
        assert name == "take_paced"
        assert keys == [b"p:{ann}:r:60s", b"p:{bob}:r:60s"]
        assert args[:4] == [b"", b"1", b"2", b"3,1"]
        assert batches.stats() == (4, 1, 4, 0, 1, 0, 0)
        six_us = 6_000_000
        client.answers[0].set_result([START_US, 0, START_US + six_us, START_US + 2 * six_us, 0])
        await turn()
        left = [ask.result().decisions[0].remaining for ask in asks]
        assert left == [9, 9, 8, 7]
        assert batches.stats().calls_in_flight == 0

    run(story())


def test_costs_modes_and_kinds_are_told_once_each_and_in_as_few_calls_as_there_are_scripts() -> (
    None
):
    async def story() -> None:
        client, batches = by_hand()
        ten, fixed = counter(), counter(limit_of(Algorithm.FIXED_WINDOW), "f")
        for who in ("ann", "bob"):
            batches.ask(ten, who, 1, True)
            batches.ask(ten, who, 2, True)
            batches.ask(ten, who, 1, False)
            batches.ask(fixed, who, 1, True)
            batches.ask(counter(limit_of(Algorithm.SLIDING_LOG), "l"), who, 1, True)
        await turn()
        calls = sorted((name, len(keys), args[1]) for name, keys, args in client.calls)
        assert calls == [
            ("take", 2, b"1"),
            ("take_fixed", 2, b"1"),
            ("take_paced", 2, b""),
            ("take_paced", 4, b"1"),
        ]

    run(story())


def test_a_full_call_leaves_and_the_next_one_takes_the_rest() -> None:
    async def story() -> None:
        client, batches = by_hand(asks_max=4)
        ten = counter()
        for number in range(6):
            batches.ask(ten, f"k{number}", 1, True)
        for _ in range(9):
            batches.ask(ten, "hot", 1, True)
        groups = [ChargeGroup([(ten, b"a", 1), (ten, b"b", 1)], True, False) for _ in range(5)]
        for group in groups:
            batches.submit_group(group)
        await turn()
        alone = [keys for name, keys, _ in client.calls if name == "take_paced"]
        assert [len(keys) for keys in alone] == [4, 3, 1, 1]
        together = [len(keys) for name, keys, _ in client.calls if name == "take"]
        assert sorted(together) == [2, 8]
        assert batches.stats().asks_in_call_max == 4
        assert batches.stats().asks == 20

    run(story())


def test_who_is_cancelled_before_the_call_leaves_is_not_charged_and_afterwards_disturbs_no_one(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            at(store, START_US)
            one = Charge("r", TEN, "ann", 1)
            both = [one, Charge("r", TEN, "bob", 1)]
            asks = [asyncio.ensure_future(store.take([one])) for _ in range(6)]
            pairs = [asyncio.ensure_future(store.take(both)) for _ in range(2)]
            await asyncio.sleep(0)
            for early in (asks[0], asks[3], pairs[0]):
                early.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asks[1].cancel()
            results = await asyncio.gather(*asks, *pairs, return_exceptions=True)
            cancelled = [isinstance(one, asyncio.CancelledError) for one in results]
            assert cancelled == [True, True, False, True, False, False, True, False]
            (left,) = (await store.take([one], keep=False)).decisions
            assert left.remaining == 10 - 4 - 1 - 1

    run(story())


def test_a_value_that_cannot_be_sent_fails_alone(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            one = Charge("r", TEN, "ann", 1)
            log = Limit(5_000, period_us=MINUTE, algorithm=Algorithm.SLIDING_LOG)
            wrong = [
                one._replace(cost=-1),
                one._replace(rule_id="log", limit=log),
            ]
            asks = [store.take([charge]) for charge in (one, *wrong, one)]
            results = await asyncio.gather(*asks, return_exceptions=True)
            assert [type(one) for one in results[1:-1]] == [BadValue] * len(wrong)
            assert not isinstance(results[0], BaseException)
            assert not isinstance(results[-1], BaseException)
            assert results[-1].decisions[0].remaining == 8

    run(story())


def test_a_call_that_fails_fails_all_in_it_each_with_an_error_of_their_own() -> None:
    async def story() -> None:
        client, batches = by_hand()
        asks = [batches.ask(counter(), who, 1, True) for who in ("ann", "bob")]
        asks.append(batches.submit_group(ChargeGroup([(counter(), b"k", 1)], True, False)))
        await turn()
        for answer in client.answers:
            answer.set_exception(Unavailable("Redis at x", "it is gone"))
        errors = await asyncio.gather(*asks, return_exceptions=True)
        assert {str(error) for error in errors} == {"Redis at x is unavailable: it is gone"}
        assert len({id(error) for error in errors}) == 3

    run(story())


@pytest.mark.parametrize("answer", [[START_US], [START_US, "word"], None, [START_US, -1]])
def test_an_answer_that_makes_no_sense_leaves_nobody_waiting(answer: Any) -> None:
    async def story() -> None:
        client, batches = by_hand()
        asks = [batches.ask(counter(), "ann", 1, True)]
        asks.append(batches.submit_group(ChargeGroup([(counter(), b"k", 1)], True, False)))
        await turn()
        for future in client.answers:
            future.set_result(answer)
        errors = await asyncio.gather(*asks, return_exceptions=True)
        assert [type(error) for error in errors] == [Unavailable, Unavailable]

    run(story())


def test_a_script_that_disagrees_with_the_kernel_is_not_believed() -> None:
    async def story() -> None:
        client, batches = by_hand()
        ask = batches.ask(counter(), "ann", 1, True)
        both = batches.submit_group(ChargeGroup([(counter(), b"k", 1)], True, False))
        await turn()
        alone, together = client.answers
        alone.set_result([START_US, -1])  # refused, although nothing was taken before
        together.set_result([START_US, 1, START_US + MINUTE])  # admitted, although all was
        for answer in (ask, both):
            with pytest.raises(Unavailable, match="do not agree"):
                await answer

    run(story())


def test_while_a_call_is_under_way_asks_wait_for_it_and_share_the_next() -> None:
    async def story() -> None:
        client, batches = by_hand(hold_us=100_000)
        ten = counter()
        first = batches.ask(ten, "ann", 1, True)
        await turn()
        assert len(client.calls) == 1
        for who in ("bob", "eve"):
            batches.ask(ten, who, 1, True)
            await turn()
        assert len(client.calls) == 1
        assert batches.stats().asks_waiting == 2
        assert batches.stats()[-2:] == (1, 100_000)

        async def ask_again() -> None:
            await first
            batches.ask(ten, "ann", 1, True)

        again = asyncio.ensure_future(ask_again())
        await turn()
        client.answers[0].set_result([START_US, 0])
        await turn()
        await again
        # Who was told just now leaves with those who have waited.
        assert [len(keys) for _, keys, _ in client.calls] == [1, 3]
        batches.ask(ten, "zoe", 1, True)
        await turn()
        assert len(client.calls) == 2
        client.answers[1].set_result([START_US, 0, 0, 0])
        await turn()
        assert len(client.calls) == 3  # though nobody has asked since

    run(story())


def test_asks_wait_no_longer_than_they_are_told_to() -> None:
    async def story() -> None:
        client, batches = by_hand(hold_us=1_000)
        time = asyncio.get_running_loop().time
        ten = counter()
        batches.ask(ten, "ann", 1, True)
        await turn()
        began = time()
        batches.ask(ten, "bob", 1, True)
        while len(client.calls) < 2:
            assert time() - began < 1
            await asyncio.sleep(0.0005)
        assert time() - began >= 0.001

    run(story())


def test_on_a_cluster_each_slot_has_its_call_and_nobody_waits() -> None:
    async def story() -> None:
        client, batches = by_hand(hold_us=100_000, spread=True)
        ten, five = counter(), counter(Limit(5, period_us=MINUTE), "five")
        for who in ("ann", "bob", "ann"):
            batches.ask(ten, who, 1, True)
            batches.ask(five, who, 1, True)
        await turn()
        keys = sorted(keys for _, keys, _ in client.calls)
        assert keys == [
            [b"p:{ann}:r:60s", b"p:{ann}:five:60s"],
            [b"p:{bob}:r:60s", b"p:{bob}:five:60s"],
        ]
        batches.ask(ten, "eve", 1, True)
        await turn()
        assert len(client.calls) == 3

    run(story())


def test_lanes_are_bounded_whatever_costs_are_asked_for() -> None:
    async def story() -> None:
        client, batches = by_hand(asks_max=4_096)
        ten = counter(Limit(1_000_000, period_us=MINUTE))
        for cost in range(LANES_MAX + 10):
            batches.ask(ten, "ann", cost, True)
        await turn()
        assert sum(map(len, batches._lanes.values())) <= LANES_MAX
        assert sum(len(keys) for _, keys, _ in client.calls) == LANES_MAX + 10

    run(story())


def test_four_hundred_at_once_take_exactly_what_there_is(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with stored(redis_server.url, batch_max=37) as store:
            at(store, START_US)
            for algorithm in Algorithm:
                limit = limit_of(algorithm, 100)
                hot = Charge(algorithm.value, limit, "hot", 1)
                beside = Charge("beside", limit_of(Algorithm.GCRA, 1_000), algorithm.value, 1)
                alone = [store.take([hot]) for _ in range(200)]
                both = [store.take([hot, beside]) for _ in range(200)]
                rulings = await asyncio.gather(*alone, *both)
                assert sum(ruling.allowed for ruling in rulings) == 100
                (left,) = (await store.take([beside], keep=False)).decisions
                assert 999 - left.remaining == sum(ruling.allowed for ruling in rulings[200:])

    run(story())


def test_a_key_that_stands_twice_in_a_group_is_one_charge_of_both() -> None:
    async def story() -> None:
        client, batches = by_hand()
        ten = counter()
        charges = [(ten, b"a", 1), (ten, b"b", 2), (ten, b"a", 3)]
        waiter = batches.submit_group(ChargeGroup(charges, True, False))
        await turn()
        ((name, keys, args),) = client.calls
        assert (name, keys) == ("take", [b"a", b"b"])
        six, twelve = b"24000000", b"12000000"
        assert args[-7:] == [b"2", b"1", six, b"0", b"1", twelve, b"0"]
        client.answers[0].set_result([START_US, 1, 0, 0])
        left = [decision.remaining for decision in (await waiter).decisions]
        assert left == [6, 8, 6]

    run(story())


def test_unsendable_call_fails_its_waiters() -> None:
    async def story() -> None:
        client, batches = by_hand()
        client.send_script = _raise
        waiter = batches.ask(counter(), "ann", 1, True)
        await turn()
        assert isinstance(waiter.exception(), Unavailable)
        assert batches.stats().calls_in_flight == 0

    run(story())


def test_raising_flush_fails_its_waiters() -> None:
    async def story() -> None:
        client, batches = by_hand()
        client.push = _raise
        waiter = batches.ask(counter(), "ann", 1, True)
        with pytest.raises(ValueError, match="raised"):
            batches.flush()
        assert isinstance(waiter.exception(), Unavailable)
        client.push = lambda: None
        again = batches.ask(counter(), "ann", 1, True)
        batches.flush()
        client.answers[-1].set_result([START_US, 0])
        assert again.done()

    run(story())


def _raise(*_: object) -> None:
    raise ValueError("raised")
