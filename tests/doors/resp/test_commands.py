"""The table of commands: what each answers, to whom."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.resp.limiter.commands import LIMITER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import Part, command
from tests.doors.resp.service import LIMIT, RULE, Service, Tokens
from tests.doors.resp.talk import Talk
from tests.stores.redis.live import run

ANN = Identity("ann", EVERY_GRANT)
ONLY_CHECKS = Identity("web", {Grant.CHECK})
MINUTE = 60_000_000
CHARGE = ("login", "gcra", 5, MINUTE, 5, 1, "k", "")


class Client:
    """Says one command and reads its one reply."""

    def __init__(
        self, service: Service | None = None, access: Tokens | None = None, **options: Any
    ) -> None:
        self.service = service or Service()
        self.door = RespDoor(self.service, access or Tokens(), RespSettings(**options))
        self.talk = Talk(self.door)
        self.reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")

    async def say(self, *parts: Part) -> Any:
        self.reader.feed(await self.talk.request(command(*parts)))
        reply = self.reader.gets()
        assert self.reader.gets() is False, "one reply, and nothing more"
        return str(reply) if isinstance(reply, hiredis.ReplyError) else reply

    @property
    def closed(self) -> bool:
        return self.talk.wire.is_closing()


def test_the_words_of_a_greeting() -> None:
    async def story() -> None:
        client = Client()
        assert await client.say("PING") == "PONG"
        assert await client.say("ping", "a") == "a"
        assert await client.say("Echo", "b") == "b"
        assert await client.say("SELECT", 0) == "OK"
        assert await client.say("SELECT", 1) == "ERR DB index is out of range"
        assert await client.say("SELECT", "x") == "ERR value is not an integer or out of range"
        assert await client.say("PING", 1, 2) == "ERR wrong number of arguments for 'ping' command"
        assert await client.say("SELECT") == "ERR wrong number of arguments for 'select' command"
        unknown = "ERR unknown command 'GET', with args beginning with: 'a' 'b'"
        assert (await client.say("GET", "a", "b")).strip() == unknown
        assert await client.say("QUIT") == "OK"
        assert client.closed

    run(story())


def test_hello_changes_the_protocol() -> None:
    async def story() -> None:
        client = Client(version="9.8.7")
        answer = await client.say("HELLO")
        assert answer[:6] == ["server", "sluicegate", "version", "9.8.7", "proto", 2]
        answer = await client.say("HELLO", 3, "SETNAME", "me")
        assert answer == {
            "server": "sluicegate", "version": "9.8.7", "proto": 3, "id": 1,
            "mode": "standalone", "role": "master", "modules": [],
        }  # fmt: skip
        assert await client.say("CLIENT", "GETNAME") == "me"
        assert await client.say("HELLO", 4) == "NOPROTO unsupported protocol version"
        assert (
            await client.say("HELLO", "x")
            == "ERR Protocol version is not an integer or out of range"
        )
        assert await client.say("HELLO", 2, "FOO") == "ERR Syntax error in HELLO option 'FOO'"
        assert "Client names" in await client.say("HELLO", 2, "SETNAME", "a b")
        assert (await client.say("HELLO"))["proto"] == 3  # those that failed have changed nothing
        assert await client.say("RESET") == "RESET"
        assert (await client.say("HELLO"))[5] == 2
        assert await client.say("CLIENT", "GETNAME") is None

    run(story())


def test_one_who_is_not_known_may_only_say_who_they_are() -> None:
    async def story() -> None:
        client = Client(access=Tokens({"s3cret": ANN, "t": ONLY_CHECKS}, everybody=False))
        for name in LIMITER.by_name:
            row = LIMITER.by_name[name]
            if not row.open:
                assert await client.say(name, *["a"] * 3) == "NOAUTH Authentication required."
        assert await client.say("NONSENSE") == "NOAUTH Authentication required."
        assert (await client.say("HELLO", 3)).startswith("NOAUTH HELLO must be called")
        wrong = "WRONGPASS invalid username-password pair or user is disabled."
        assert await client.say("AUTH", "wrong") == wrong
        assert await client.say("AUTH", "bob", "s3cret") == wrong
        assert await client.say("HELLO", 3, "AUTH", "default", "x") == wrong
        assert await client.say("PING") == "NOAUTH Authentication required."
        assert await client.say("AUTH", "s3cret") == "OK"
        assert await client.say("AUTH", "ann", "s3cret") == "OK"
        assert await client.say("PING") == "PONG"
        assert await client.say("RESET") == "RESET"
        assert await client.say("PING") == "NOAUTH Authentication required."
        assert (await client.say("HELLO", 3, "AUTH", "default", "t"))["proto"] == 3
        assert "user=web" in await client.say("CLIENT", "INFO")

    run(story())


def test_who_guesses_too_often_or_says_nothing_is_ended() -> None:
    async def story() -> None:
        client = Client(access=Tokens(everybody=False), auth_failures_max=3, auth_timeout_s=5)
        for _ in range(3):
            assert not client.closed
            assert (await client.say("AUTH", "guess")).startswith("WRONGPASS")
        assert client.closed
        silent = Client(access=Tokens(everybody=False), auth_timeout_s=5)
        now_s = asyncio.get_running_loop().time()
        silent.talk.protocol.tick(now_s + 4)
        assert not silent.closed
        silent.talk.protocol.tick(now_s + 6)
        assert silent.closed

    run(story())


def test_a_stranger_may_say_little_and_one_who_is_known_more() -> None:
    async def story() -> None:
        access = Tokens({"t": ANN}, everybody=False)
        caller = Client(access=access, stranger_bulk_bytes_max=100, stranger_parts_max=8)
        await caller.say("AUTH", "t")
        assert await caller.say("ECHO", "x" * 101) == "x" * 101
        stranger = Client(access=access, stranger_bulk_bytes_max=100, stranger_parts_max=8)
        assert "invalid bulk length" in await stranger.say("AUTH", "x" * 101)
        assert stranger.closed
        wordy = Client(access=access, stranger_parts_max=8)
        assert "invalid multibulk length" in await wordy.say(*["AUTH"] * 9)

    run(story())


def test_a_certificate_says_who_speaks() -> None:
    async def story() -> None:
        door = RespDoor(Service(), Tokens(everybody=False))
        for names, reply in ((("known",), b"+PONG"), (("other",), b"-NOAUTH"), ((), b"-NOAUTH")):
            talk = Talk(door, names)
            assert talk.say(command("PING")).startswith(reply)
            talk.lose()

    run(story())


def test_what_is_not_granted_is_refused() -> None:
    async def story() -> None:
        client = Client(access=Tokens({"t": ONLY_CHECKS}))
        await client.say("AUTH", "t")
        assert (await client.say("SG.CHECK", "u", "/"))[0] == 1
        for words in (
            ("SG.RESET", "u", "/"),
            ("SG.LEASE", "u", "/", 5),
            ("SG.TAKE", 1, 0, 1, *CHARGE, 1),
            ("SG.FORGET", 1, *CHARGE, 1),
        ):
            assert (await client.say(*words)).startswith("NOPERM web may not do this")

    run(story())


def test_client_and_its_kin() -> None:
    async def story() -> None:
        client = Client()
        assert await client.say("CLIENT", "ID") == 1
        assert await client.say("CLIENT", "SETNAME", "a b") == (
            "ERR Client names cannot contain spaces, newlines or special characters."
        )
        assert "Client names" in await client.say("CLIENT", "SETNAME", "x" * 257)
        assert await client.say("CLIENT", "SETNAME", "me") == "OK"
        assert await client.say("CLIENT", "SETINFO", "lib-name", "redis-py") == "OK"
        assert await client.say("CLIENT", "SETINFO", "LIB-VER", "1.2") == "OK"
        assert "lib-ver" in await client.say("CLIENT", "SETINFO", "LIB-VER", "1 2")
        assert "Unrecognized" in await client.say("CLIENT", "SETINFO", "COLOUR", "red")
        assert await client.say("CLIENT", "NO-EVICT", "on") == "OK"
        assert await client.say("CLIENT", "NO-TOUCH", "maybe") == "ERR syntax error"
        line = await client.say("CLIENT", "INFO")
        assert "id=1 addr=here:1 name=me " in line
        assert "lib-name=redis-py lib-ver=1.2 resp=2" in line
        assert await client.say("CLIENT", "KILL") == (
            "ERR unknown subcommand 'KILL'. Try CLIENT HELP."
        )
        assert "wrong number" in await client.say("CLIENT", "SETNAME")

    run(story())


def test_a_client_is_told_of_those_of_its_own_name_alone() -> None:
    async def story() -> None:
        client = Client(access=Tokens({"a": ANN, "w": ONLY_CHECKS}))
        other, third = Talk(client.door), Talk(client.door)
        other.say(command("AUTH", "w"))
        third.say(command("AUTH", "a"))
        await client.say("AUTH", "a")
        answer = await client.say("CLIENT", "LIST")
        assert [line.split()[0] for line in answer.splitlines()] == ["id=1", "id=3"]
        other.lose()
        third.lose()

    run(story())


def test_the_table_tells_of_itself() -> None:
    async def story() -> None:
        client = Client()
        assert await client.say("COMMAND", "COUNT") == len(LIMITER.by_name)
        assert len(await client.say("COMMAND")) == len(LIMITER.by_name)
        assert sorted(await client.say("COMMAND", "LIST")) == sorted(
            name.decode().lower() for name in LIMITER.by_name
        )
        assert await client.say("COMMAND", "INFO", "sg.check", "get") == [
            ["sg.check", -3, ["fast"], 1, 1, 1],
            None,
        ]
        docs = await client.say("COMMAND", "DOCS", "PING")
        assert docs[0] == "ping"
        assert "unknown subcommand" in await client.say("COMMAND", "GETKEYS", "x")
        info = await client.say("INFO")
        assert "loading:0" in info
        assert "connected_clients:1" in info
        assert (await client.say("INFO", "replication")).startswith("# Replication\r\nrole:master")
        assert await client.say("INFO", "nonsense") == ""

    run(story())


class Later(Service):
    """Answers CL.THROTTLE as a service does that requests another process."""

    async def throttle(self, request: ThrottleRequest, by: Identity) -> ThrottleResponse:
        await asyncio.sleep(0)
        return self.near.throttle(request)


@pytest.mark.parametrize("service", [Service, Later])
def test_cl_throttle_answers_and_complains_as_redis_cell_does(service: type[Service]) -> None:
    async def story() -> None:
        client = Client(service())
        request = ("CL.THROTTLE", "ann", 2, 30, 60)
        assert [await client.say(*request) for _ in range(4)] == [
            [0, 3, 2, -1, 2], [0, 3, 1, -1, 4], [0, 3, 0, -1, 6], [1, 3, 0, 2, 6],
        ]  # fmt: skip
        assert await client.say(*request, 0) == [0, 3, 0, -1, 6]
        assert await client.say(*request, 4) == [1, 3, 0, -1, 6]  # no wait can help
        assert await client.say(*request, -1) == [0, 3, 1, -1, 4]
        usage = (
            "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> "
            "<period> [<quantity>]"
        )
        for words in (request[:1], request[:4], (*request, 1, 1)):
            assert await client.say(*words) == usage
        for place in (2, 3, 4):
            answer = await client.say(*request[:place], "1.5", *request[place + 1 :])
            assert answer == "Cell error: Store error: Couldn't parse as integer: 1.5"
        zero = "Cell error: Store error: Zero rates are not supported"
        for rate in ((1, 0, 60), (1, 1, 0), (1, -1, 60), (1, 1, -60), (1, 10**9 + 1, 1)):
            assert await client.say("CL.THROTTLE", "ann", *rate) == zero
        assert "too large" in await client.say("CL.THROTTLE", "ann", 2**62, 1, 60)

    run(story())


def test_hg_check_tells_nine_things() -> None:
    async def story() -> None:
        client = Client()
        service = client.service
        assert await client.say("SG.CHECK", "ann", "/a") == [
            1, 4, 0, 12_000, LIMIT.count, RULE, "", "", 0,
        ]  # fmt: skip
        assert (await client.say("SG.PEEK", "ann", "/a", "weight", 2))[:2] == [1, 2]
        service.clock.advance(us=1)
        assert await client.say("SG.CHECK", "ann", "/a", "WEIGHT", 5) == [
            0, 4, 12_000, 12_000, LIMIT.count, RULE, "rate_limited", "", 0,
        ]  # fmt: skip
        assert (await client.say("SG.CHECK", "ann", "/a", "WEIGHT", 6))[2] == -1
        assert (await client.say("SG.CHECK", "shed", "/a"))[7] == "DEGRADED_MODE"
        assert await client.say("SG.RESET", "ann", "/a") == 1
        assert (await client.say("SG.PEEK", "ann", "/a", "WEIGHT", 0))[1] == 5

    run(story())


def test_waits_are_rounded_up_to_a_millisecond() -> None:
    async def story() -> None:
        client = Client()
        await client.say("SG.CHECK", "ann", "/a", "WEIGHT", 5)
        client.service.clock.advance(us=1_500)
        answer = await client.say("SG.CHECK", "ann", "/a")
        assert answer[2:4] == [11_999, 59_999]  # 11,998.5 and 59,998.5

    run(story())


def test_options_of_a_check_reach_the_service() -> None:
    async def story() -> None:
        client = Client(headers_max=2)
        await client.say(
            "sg.check", "ann", "/a", "HEADER", "X-Request-Name", "Play", "PRIORITY", "best-effort",
            "HEADER", "b", b"\xff", "WEIGHT", 3,
        )  # fmt: skip
        requested = client.service.request[-1]
        assert (requested.user_id, requested.resource_path, requested.cost) == ("ann", "/a", 3)
        assert requested.headers == {"x-request-name": "Play", "b": "\\xff"}
        assert requested.priority is Criticality.BEST_EFFORT
        await client.say("SG.PEEK", "ann", "/a")
        assert client.service.request[-1].priority is None
        for words, why in (
            (("WEIGHT",), "option: 'WEIGHT'"),
            (("WEIGHT", "x"), "weight: 'x'"),
            (("WEIGHT", -1), "weight: '-1'"),
            (("PRIORITY", "high"), "priority: 'high'"),
            (("HEADER", "a"), "option: 'HEADER'"),
            (("COLOUR", "red"), "option: 'COLOUR'"),
        ):
            answer = await client.say("SG.CHECK", "ann", "/a", *words)
            assert answer.startswith("ERR ")
            assert why in answer
        await client.say("SG.CHECK", "ann", "/a", *[w for n in "abc" for w in ("HEADER", n, n)])
        assert client.service.request[-1].headers == {"a": "a", "b": "b"}

    run(story())


def test_leases() -> None:
    async def story() -> None:
        client = Client()
        answer = await client.say("SG.LEASE", "ann", "/a", 4)
        assert answer == ["lease-1", 4, 1_999, 1, 1, 0, 48_000, 5, RULE, "", "", 0]
        assert await client.say("SG.GIVEBACK", "lease-1", 2) == 2
        assert await client.say("SG.GIVEBACK", "other", 2) == 0
        assert (await client.say("SG.LEASE", "ann", "/a", 5))[:2] == ["lease-1", 1]
        assert (await client.say("SG.LEASE", "ann", "/a", 5))[:2] == ["", 0]
        assert "units: '0'" in await client.say("SG.LEASE", "ann", "/a", 0)
        assert "units: 'x'" in await client.say("SG.GIVEBACK", "lease-1", "x")

    run(story())


def test_the_operations_of_a_store() -> None:
    async def story() -> None:
        client = Client()
        now_us = client.service.clock.now_us()
        take = (
            "SG.TAKE",
            1,
            0,
            2,
            *CHARGE,
            2,
            "pages",
            "fixed_window",
            9,
            MINUTE,
            9,
            1,
            "k",
            "",
            1,
        )
        answer = await client.say(*take)
        assert answer[:6] == [now_us, 1, 3, 0, 24_000_000, ""]
        assert answer[6:8] == [1, 8]
        assert (await client.say("SG.TAKE", 0, 0, 1, *CHARGE, 3))[1:3] == [1, 0]
        assert (await client.say("SG.TAKE", 1, 0, 1, *CHARGE, 4))[1:6] == [
            0, 3, 12_000_000, 24_000_000, "rate_limited",
        ]  # fmt: skip
        assert await client.say("SG.TAKESOME", *CHARGE, 0, 3, 5, 3, 1) == [
            now_us, 3, 1, 0, 0, 60_000_000, "",
        ]  # fmt: skip
        assert (await client.say("SG.TAKESOME", *CHARGE, 0, 1, 2))[1:3] == [0, 0]
        assert await client.say("SG.SETTLE", now_us, 1, *CHARGE, -2) == "OK"
        assert await client.say("SG.SETTLE", -1, 1, *CHARGE, 1) == "OK"
        assert (await client.say("SG.TAKE", 0, 0, 1, *CHARGE, 0))[2] == 1
        assert await client.say("SG.FORGET", 1, *CHARGE, 1) == "OK"
        assert (await client.say("SG.TAKE", 0, 0, 1, *CHARGE, 0))[2] == 5
        assert (await client.say("SG.TAKE", 1, 1, 1, *CHARGE, 6))[5] == "cost_above_limit"
        assert await client.say("SG.TAKE", 1, 0, 0) == [now_us]

    run(story())


def test_what_was_taken_long_ago_is_not_given_back() -> None:
    async def story() -> None:
        client = Client()
        then_us = client.service.clock.now_us()
        await client.say("SG.TAKE", 1, 0, 1, *CHARGE, 5)
        client.service.clock.advance(s=61)
        assert (await client.say("SG.TAKE", 1, 0, 1, *CHARGE, 1))[2] == 4
        await client.say("SG.SETTLE", then_us, 1, *CHARGE, -5)
        assert (await client.say("SG.TAKE", 0, 0, 1, *CHARGE, 0))[2] == 4
        await client.say("SG.SETTLE", -1, 1, *CHARGE, -5)
        assert (await client.say("SG.TAKE", 0, 0, 1, *CHARGE, 0))[2] == 5

    run(story())


def test_every_limit_can_be_said() -> None:
    async def story() -> None:
        client = Client(limits_kept_max=2)
        for rate in (
            ("gcra", 5, 7, 9, 1), ("token_bucket", 5, 7, 5, 1),
            ("fixed_window", 5, 7, 5, 1), ("sliding_window", 5, 60, 5, 10),
            ("sliding_log", 5, 7, 5, 1),
        ):  # fmt: skip
            answer = await client.say("SG.TAKE", 1, 0, 1, str(rate), *rate, "k", "", 1)
            assert answer[1] == 1
        assert len(client.door._shared.table_state) <= 2
        for rate, why in (
            (("gcra", 0, 7, 1, 1), "count"), (("gcra", 5, 0, 5, 1), "period_us"),
            (("nonsense", 5, 7, 5, 1), "algorithm"), (("fixed_window", 5, 7, 6, 1), "burst"),
            (("gcra", 5, 7, 5, 2), "cells"), (("sliding_window", 5, 7, 5, 1_001), "limit.cells"),
        ):  # fmt: skip
            assert f"ERR {why}: " in await client.say("SG.TAKE", 1, 0, 1, "l", *rate, "k", "", 1)

    run(story())


def test_charges_that_do_not_add_up_are_named() -> None:
    async def story() -> None:
        client = Client(charges_max=2)
        for words, why in (
            (("SG.TAKE", 2, 0, 1, *CHARGE, 1), "keep: '2'"),
            (("SG.TAKE", 1, "x", 1, *CHARGE, 1), "count_refused: 'x'"),
            (("SG.TAKE", 1, 0, 2, *CHARGE, 1), "n: 2"),
            (("SG.TAKE", 1, 0, 3, *CHARGE, 1, *CHARGE, 1, *CHARGE, 1), "charges_max"),
            (("SG.TAKE", 1, 0, "x", *CHARGE, 1), "n: 'x'"),
            (("SG.TAKE", 1, 0, 1, *CHARGE, -1), "cost: '-1'"),
            (("SG.TAKE", 1, 0, 1, *CHARGE, 2**53 + 1), "cost: "),
            (("SG.TAKESOME", *CHARGE, 1), "charge: "),
            (("SG.TAKESOME", *CHARGE, 1, 3, 1, 2, 3), "charges_max"),
            (("SG.TAKESOME", *CHARGE, 1, 2, 1), "n: 2"),
            (("SG.TAKESOME", *CHARGE, 1, 1, -1), "rung: '-1'"),
            (("SG.SETTLE", -2, 1, *CHARGE, 1), "taken_us: '-2'"),
            (("SG.SETTLE", "x", 1, *CHARGE, 1), "taken_us: 'x'"),
            (("SG.FORGET", 1, *CHARGE), "n: 1"),
        ):
            answer = await client.say(*words)
            assert answer.startswith("ERR ")
            assert why in answer, answer
        client.service.broken = RuntimeError()
        answer = await client.say("SG.TAKE", 1, 0, 1, *CHARGE, 1)
        assert answer == "BUSY Redis is unavailable: it is gone"

    run(story())


def test_any_bytes_are_a_key_of_their_own() -> None:
    async def story() -> None:
        client = Client()
        keys = [b"", b"\xff", b"\xc3\xbf", b"\x00", b"a b", b"\r\n", "\ufffd\xff".encode(), b"\xc3"]
        answers = [await client.say("CL.THROTTLE", key, 0, 1, 60) for key in keys]
        assert [one[0] for one in answers] == [0] * len(keys)
        answers = [await client.say("CL.THROTTLE", key, 0, 1, 60) for key in keys]
        assert [one[0] for one in answers] == [1] * len(keys)

    run(story())
