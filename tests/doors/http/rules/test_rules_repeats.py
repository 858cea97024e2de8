"""A call with a key is done once, however often it is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.rules.idempotency import IdempotencyKeys, digest_of, key_of
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.testing import HandClock
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin
from tests.doors.http.rules.serving import identity, rules_of, running_rules_door
from tests.doors.listening import run

PROPOSALS = "/v1/rules/proposals"
PROPOSE = {"base": "live", "changes": {"shop.yaml": rules_of(3)}, "message": "m"}


def test_a_repeated_call_gets_the_first_answer_and_is_done_once() -> None:
    async def story() -> None:
        clock = HandClock()
        async with running_rules_door(clock=clock, keys_kept_s=100) as here:
            first = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key="k-1")
            assert (first.status, first.headers["idempotency-key-kept-s"]) == (201, "100")
            assert "idempotent-replayed" not in first.headers
            again = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key="k-1")
            assert (again.status, again.body) == (201, first.body)
            assert again.headers["idempotent-replayed"] == "true"
            assert again.headers["location"] == first.headers["location"]
            listed = (await here.ask("GET", PROPOSALS)).json["proposals"]
            assert len(listed) == 1
            other = {**PROPOSE, "message": "other"}
            got = await here.ask("POST", PROPOSALS, other, idempotency_key="k-1")
            assert (got.status, got.json["field"]) == (422, "idempotency-key")
            got = await here.ask("POST", f"{PROPOSALS}/x/judge", idempotency_key="k-1")
            assert got.status == 422
            got = await here.ask("POST", PROPOSALS, PROPOSE, who="paul", idempotency_key="k-1")
            assert got.json["id"] != first.json["id"], "a key is its caller's"
            clock.advance(s=101)
            got = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key="k-1")
            assert "idempotent-replayed" not in got.headers
            assert got.json["id"] != first.json["id"]
            stats = here.http.stats()
            assert (stats.keys, stats.replayed) == (1, 3)

    run(story)


def test_what_did_nothing_is_tried_again_under_its_key() -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            one = (await here.propose(rules_of(7)))["id"]
            path = f"{PROPOSALS}/{one}"
            got = await here.ask("POST", f"{path}/publish", who="ada", idempotency_key="k")
            assert got.status == 400
            await here.ask("POST", f"{path}/approve", {"override": "o"}, who="ada")
            got = await here.ask("POST", f"{path}/publish", who="ada", idempotency_key="k")
            assert (got.status, got.json["state"]) == (200, "live")
            again = await here.ask("POST", f"{path}/publish", who="ada", idempotency_key="k")
            assert again.body == got.body

    run(story)


def test_a_call_that_comes_again_while_it_is_under_way_waits_for_its_answer() -> None:
    gate, begun = threading.Event(), threading.Event()

    def slowly(_: Mapping[str, str]) -> dict[str, Any] | None:
        begun.set()
        assert gate.wait(60)
        return {}

    async def story() -> None:
        admin = MemoryRuleAdmin(slowly)
        http = HttpSettings(answer_timeout_s=0.05)
        async with running_rules_door(admin=admin, http=http) as here:
            got = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key="k")
            assert got.status == 504, "it took longer than an answer may"
            assert here.http.stats().calls == 1, "and goes on"
            second = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key="k")
            assert second.status == 504
            assert (here.http.stats().calls, here.http.stats().replayed) == (1, 1)
            gate.set()
            while second.status == 504:  # as long as this machine takes
                second = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key="k")
            assert (second.status, second.headers["idempotent-replayed"]) == (201, "true")
        assert len(admin.proposals(by=identity("bob"))) == 1

    run(story)
    assert begun.is_set()


@pytest.mark.parametrize("key", ["a b", "é", "x" * 256, " "])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    async def story() -> None:
        async with running_rules_door() as here:
            got = await here.ask("POST", PROPOSALS, PROPOSE, idempotency_key=key)
            assert (got.status, got.json["field"]) == (400, "idempotency-key")
            assert len((await here.ask("GET", PROPOSALS)).json["proposals"]) == 0

    run(story)


def request(*headers: tuple[bytes, bytes], path: str = "/a", query: bytes = b"") -> HttpRequest:
    return HttpRequest("POST", path, query, list(headers), PeerInfo("h", 1, Address("h", 1)))


def test_two_keys_are_none() -> None:
    key = (b"idempotency-key", b"k")
    assert key_of(request()) == ""
    assert key_of(request(key)) == "k"
    for odd in (request(key, key), request((b"idempotency-key", b""))):
        with pytest.raises(BadValue):
            key_of(odd)


def test_the_digest_is_of_all_that_is_asked() -> None:
    calls = [
        digest_of(request(), b""),
        digest_of(request(), b"x"),
        digest_of(request(path="/b"), b""),
        digest_of(request(path="/", query=b"a"), b""),
        digest_of(request(query=b"a"), b""),
        digest_of(request((b"if-match", b"x")), b""),
    ]
    assert len(set(calls)) == len(calls)
    assert digest_of(request((b"x-other", b"1")), b"") == calls[0]


STEP = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 9),
    st.integers(0, 40),
    st.sampled_from((200, 200, 400)),
    st.sampled_from((0, 0, 0, 1, 30)),
)


@given(st.lists(STEP, max_size=60))
def test_what_is_remembered_stays_within_all_bounds_and_is_what_was_answered(
    steps: list[tuple[str, int, int, int, int]],
) -> None:
    clock = HandClock()
    bounds = RulesHttpSettings(
        keys_kept_s=50, keys_max=8, keys_of_caller_max=4, keys_bytes_max=1_024
    )
    repeats = IdempotencyKeys(clock, bounds)
    last: dict[tuple[str, str], tuple[int, bytes]] = {}

    async def story() -> None:
        for caller, number, size, status, later_s in steps:
            key = f"k{number}"
            found = repeats.find(caller, key)
            if found is not None:
                at_us, body = last[caller, key]
                assert found.reply.result().body == body
                assert clock.now_us() < at_us + 50_000_000
            else:
                reply: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
                repeats.begin(caller, key, "d", reply)
                waiting = repeats.find(caller, key)
                assert waiting is not None
                assert waiting.reply is reply
                body = bytes(size * 10)
                reply.set_result(HttpReply(status, body))
                await asyncio.sleep(0)
                again = repeats.find(caller, key)
                assert (again is not None) == (status == 200 and len(body) <= 1_024)
                if again is not None:
                    last[caller, key] = (clock.now_us(), body)
            assert len(repeats) <= 8
            for name in "abc":
                remembered = [at for at in last if at[0] == name and repeats.find(*at)]
                assert len(remembered) <= 4
                total = sum(len(last[at][1]) for at in remembered)
                assert total <= 1_024
            clock.advance(s=later_s)

    asyncio.run(story())


def test_the_oldest_goes_first_and_at_its_time_to_the_microsecond() -> None:
    clock = HandClock()
    bounds = RulesHttpSettings(keys_kept_s=50, keys_of_caller_max=2, keys_max=3)
    repeats = IdempotencyKeys(clock, bounds)

    async def done(caller: str, key: str, size: int = 1) -> None:
        reply: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
        repeats.begin(caller, key, "d", reply)
        reply.set_result(HttpReply(200, bytes(size)))
        await asyncio.sleep(0)

    def remembered() -> str:
        at = [(caller, key) for caller in "ab" for key in "123"]
        return " ".join(f"{caller}{key}" for caller, key in at if repeats.find(caller, key))

    async def story() -> None:
        for key in "123":
            await done("a", key)
        assert remembered() == "a2 a3"
        await done("b", "1")
        await done("b", "2")
        assert remembered() == "a3 b1 b2"
        clock.advance(us=49_999_999)
        assert remembered() == "a3 b1 b2"
        clock.advance(us=1)
        assert remembered() == ""
        assert len(repeats) == 0

    asyncio.run(story())


def test_the_bytes_of_all_answers_are_bounded() -> None:
    repeats = IdempotencyKeys(HandClock(), RulesHttpSettings(keys_bytes_max=2_000))

    async def story() -> None:
        for number in range(10):
            reply: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
            repeats.begin("a", str(number), "d", reply)
            reply.set_result(HttpReply(200, bytes(900)))
            await asyncio.sleep(0)
        assert [number for number in range(10) if repeats.find("a", str(number))] == [8, 9]

    asyncio.run(story())
