"""Who speaks on an open connection, once who may do what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import OK, command
from tests.doors.resp.service import Service, Tokens
from tests.doors.resp.talk import Talk
from tests.stores.redis.live import run

PING, PONG = command("PING"), b"+PONG\r\n"
ASK = command("CL.THROTTLE", "ann", 2, 1, 60)
ANN = Identity("ann", EVERY_GRANT)


class Callers(Tokens):
    """A table of tokens and one of certificates, both of which can be changed."""

    def __init__(self) -> None:
        super().__init__({"secret": ANN}, everybody=False)
        self.certificates = {"gate.test": Identity("gate", EVERY_GRANT)}

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return next((found for one in names if (found := self.certificates.get(one))), None)


def door_to(callers: Tokens, **options: Any) -> RespDoor:
    return RespDoor(Service(), callers, RespSettings(**options))


def reload(*talks: Talk) -> None:
    for one in talks:
        one.protocol.check_callers(reloaded=True)


def refused(data: bytes, code: bytes = b"-NOAUTH") -> bool:
    return data.startswith(code)


def test_whose_token_is_void_is_nobody_at_the_next_command() -> None:
    async def story() -> None:
        callers = Callers()
        door = door_to(callers)
        talk, other = Talk(door), Talk(door)
        assert talk.say(command("AUTH", "secret") + PING) == OK + PONG
        callers.tokens["new secret"] = callers.tokens.pop("secret")  # the same name, another token
        assert other.say(command("AUTH", "new secret")) == OK
        assert talk.say(PING) == PONG  # nobody has said that anything is new
        reload(talk, other)
        assert refused(talk.say(PING))
        assert refused(talk.say(ASK))
        assert other.say(PING) == PONG
        assert talk.say(command("AUTH", "new secret") + PING) == OK + PONG
        talk.lose()
        other.lose()

    run(story())


def test_who_said_hello_with_a_token_is_asked_anew_too() -> None:
    async def story() -> None:
        callers = Callers()
        door = door_to(callers)
        talk = Talk(door)
        assert talk.say(command("HELLO", 2, "AUTH", "ann", "secret")).startswith(b"*14")
        reload(talk)
        assert talk.say(PING) == PONG
        callers.tokens["secret"] = Identity("ben", EVERY_GRANT)  # it was ann who spoke here
        reload(talk)
        assert refused(talk.say(PING))
        talk.lose()

    run(story())


def test_grants_are_those_of_now() -> None:
    async def story() -> None:
        callers = Callers()
        door = door_to(callers)
        talk = Talk(door)
        talk.say(command("AUTH", "secret"))
        assert talk.say(ASK).startswith(b"*5")
        callers.tokens["secret"] = Identity("ann", [Grant.AUDIT])
        reload(talk)
        assert refused(talk.say(ASK), b"-NOPERM")
        assert talk.say(PING) == PONG
        callers.tokens["secret"] = ANN
        reload(talk)
        assert talk.say(ASK).startswith(b"*5")
        talk.lose()

    run(story())


def test_a_void_token_is_nobody_even_where_nobody_in_particular_may_speak() -> None:
    async def story() -> None:
        callers = Tokens({"secret": ANN})
        door = door_to(callers)
        named, unnamed = Talk(door), Talk(door)
        named.say(command("AUTH", "secret"))
        del callers.tokens["secret"]
        reload(named, unnamed)
        assert refused(named.say(PING))  # what it says was never meant to be anonymous
        assert named.say(command("RESET") + PING) == b"+RESET\r\n" + PONG
        assert unnamed.say(PING) == PONG
        reload(named, unnamed)
        assert named.say(PING) == PONG  # whatever became of the token
        callers.anonymous = None
        reload(named, unnamed)
        assert refused(unnamed.say(PING))
        assert refused(named.say(PING))
        named.lose()
        unnamed.lose()

    run(story())


def test_a_certificate_is_looked_up_anew_and_so_is_what_reset_goes_back_to() -> None:
    async def story() -> None:
        callers = Callers()
        door = door_to(callers)
        with_token, named = Talk(door, ("gate.test",)), Talk(door, ("gate.test",))
        assert with_token.say(PING) == PONG
        named.say(command("AUTH", "secret"))
        callers.certificates.clear()
        reload(with_token, named)
        assert refused(with_token.say(PING))
        assert named.say(PING) == PONG
        assert refused(named.say(command("RESET") + PING)[len(b"+RESET\r\n") :])
        callers.certificates["gate.test"] = ANN
        reload(with_token, named)
        assert with_token.say(PING) == named.say(PING) == PONG
        with_token.lose()
        named.lose()

    run(story())


def test_who_is_nobody_any_more_has_the_bounds_and_the_time_of_a_stranger() -> None:
    async def story() -> None:
        callers = Callers()
        door = door_to(callers, stranger_bulk_bytes_max=64, auth_timeout_s=5)
        talk = Talk(door)
        long = command("ECHO", "x" * 1_000)
        assert talk.say(command("AUTH", "secret") + long).endswith(b"x\r\n")
        callers.tokens.clear()
        reload(talk)
        began_s = next(iter(door._shared.sessions.values())).began_s
        talk.protocol.tick(began_s + 4)
        assert not talk.wire.is_closing()
        talk.protocol.tick(began_s + 5)
        assert talk.wire.is_closing()
        assert refused(talk.wire.writes[-1])
        talk.lose()

        callers.tokens["secret"] = ANN
        talk = Talk(door)
        talk.say(command("AUTH", "secret"))
        callers.tokens.clear()
        reload(talk)
        assert b"ERR" in talk.say(long)
        assert talk.wire.is_closing()
        talk.lose()

    run(story())


def test_a_token_is_never_shown() -> None:
    async def story() -> None:
        door = door_to(Callers())
        talk = Talk(door)
        talk.say(command("AUTH", "secret"))
        assert b"secret" not in talk.say(command("CLIENT", "INFO") + command("CLIENT", "LIST"))
        talk.lose()

    run(story())
