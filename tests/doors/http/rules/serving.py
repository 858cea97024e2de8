"""A rulebook's door on real sockets: on this loop, or on a loop of its own for blocking clients."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sluicegate.contracts.access import Grant, Identity, PeopleAccess
from sluicegate.contracts.clock import Clock
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.rules.handler import RulesHttp
from sluicegate.doors.http.rules.settings import RulesHttpSettings
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.listener import Language, Listener, ListenerSettings
from sluicegate.doors.tls import Tls
from sluicegate.policies.access import Credential, KnownCallers, token_digest
from sluicegate.testing import HandClock
from tests.doors.http.rules.memory_admin import MemoryRuleAdmin, no_gate
from tests.doors.http.serving import Answer, answer, request
from tests.doors.listening import Caller

READS = frozenset({Grant.READ_RULES})
GRANTS = {
    "rita": READS,
    "paul": READS | {Grant.PROPOSE},
    "ada": READS | {Grant.APPROVE},
    "bob": READS | {Grant.APPROVE, Grant.PROPOSE, Grant.AUDIT},
    "chuck": frozenset({Grant.CHECK}),
}
LOOK_S = 0.01


def token_of(who: str) -> str:
    """Whoever has it is them."""
    return f"{who}-{who}-secret-0123456789"


def identity(who: str) -> Identity:
    """As the access knows them."""
    return Identity(who, GRANTS[who])


def access(*, anonymous: frozenset[Grant] = frozenset()) -> KnownCallers:
    """Everybody above, by token and by certificate."""
    return KnownCallers(
        [
            Credential(who, grants, token_digest(token_of(who)), f"{who}.example")
            for who, grants in GRANTS.items()
        ],
        anonymous=anonymous,
    )


class Well:
    """Vitals of a service that is well, until `ready` says why not."""

    def __init__(self) -> None:
        self.ready = ""
        self.failed = ""

    def metrics(self) -> str:
        return "# TYPE up gauge\nup 1\n"

    def not_ready(self) -> str:
        return self.ready

    def not_alive(self) -> str:
        return self.failed


class RunningRulesDoor:
    """A listener with the rulebook's door behind it."""

    def __init__(
        self,
        listener: Listener,
        door: HttpDoor,
        http: RulesHttp,
        admin: MemoryRuleAdmin,
        well: Well,
    ) -> None:
        self.listener = listener
        self.door = door
        self.http = http
        self.admin = admin
        self.well = well
        self.port = listener.addresses[0].port
        self.host = f"127.0.0.1:{self.port}"

    async def call(self, data: bytes = b"") -> Caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return Caller(reader, writer)

    async def ask(
        self, method: str, path: str, body: Any = None, *, who: str = "bob", **headers: str
    ) -> Answer:
        """One request on a connection of its own; `who` empty is nobody."""
        if who:
            headers.setdefault("authorization", f"Bearer {token_of(who)}")
        if method == "POST":
            body = {} if body is None else body
        caller = await self.call(request(method, path, self.host, body, **headers))
        reply = await answer(caller, head=method == "HEAD" or "if_none_match" in headers)
        await caller.leave()
        return reply

    async def propose(self, text: str, *, who: str = "paul", name: str = "shop.yaml") -> Any:
        """A proposal for that file."""
        live = (await self.ask("GET", "/v1/rules")).json["commit"]
        got = await self.ask(
            "POST",
            "/v1/rules/proposals",
            {"base": live, "changes": {name: text}, "message": "Change it", "reason": "So"},
            who=who,
        )
        assert got.status == 201, got.json
        return got.json


def rules_of(limit: int) -> str:
    """A file that is in order."""
    return f"rules:\n  - rule_id: shop\n    limit: {limit}\n"


@asynccontextmanager
async def running_rules_door(
    *,
    admin: MemoryRuleAdmin | None = None,
    doorkeeper: PeopleAccess | None = None,
    http: HttpSettings | None = None,
    tls: Tls | None = None,
    address: str = "127.0.0.1:0",
    reports: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[RunningRulesDoor]:
    """A door that listens, and is closed afterwards."""
    serves = MemoryRuleAdmin(no_gate) if admin is None else admin
    time = HandClock() if clock is None else clock
    well = Well()
    bounds = RulesHttpSettings(**{"wait_look_s": LOOK_S, **settings})
    rules = RulesHttp(
        serves,
        well,
        access() if doorkeeper is None else doorkeeper,
        time,
        bounds,
        reports=reports,
    )
    door = HttpDoor(rules.handle, time, http)
    look = ListenerSettings(look_s=0.02)
    try:
        async with Listener([address], {Language.HTTP1: door}, settings=look, tls=tls) as listening:
            yield RunningRulesDoor(listening, door, rules, serves, well)
    finally:
        rules.close()
    async with asyncio.timeout(60):
        while door.under_way or rules.stats().calls:
            await asyncio.sleep(0.002)


@contextmanager
def rules_door_in_thread(**how: Any) -> Iterator[RunningRulesDoor]:
    """The same on a loop in a thread of its own."""
    made: list[RunningRulesDoor] = []
    open_now, failed = threading.Event(), []
    loop = asyncio.new_event_loop()
    ends = asyncio.Event()

    async def live() -> None:
        async with running_rules_door(**how) as here:
            made.append(here)
            open_now.set()
            await ends.wait()

    def run() -> None:
        try:
            loop.run_until_complete(live())
        except BaseException as error:
            failed.append(error)
        finally:
            open_now.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    open_now.wait(60)
    try:
        if failed:
            raise failed[0]
        yield made[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ends.set)
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def whole_text(got: Answer) -> str:
    """A whole answer as text, to look for what must not be in it."""
    return json.dumps(dict(got.headers)) + got.body.decode("utf-8", "replace")
