"""A small honest service behind the HTTP door, and raw clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    LeaseResponse,
    MaybeAwaitable,
    MeshLimit,
    MeshRequest,
    MeshResponse,
    MeshStatus,
    ThrottleRequest,
    ThrottleResponse,
)
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED, SHED
from sluicegate.contracts.store import Store
from sluicegate.doors.http.limiter.handler import LimiterHttp, LimiterHttpSettings
from sluicegate.doors.http.message import Handler
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.listener import Language, Listener, ListenerSettings
from sluicegate.doors.tls import Tls
from sluicegate.testing import HandClock
from tests.doors.listening import WAIT_S, Caller

NOW_US = 1_700_000_000_000_000


class Counting:
    """Five units a user, for ever; `far` answers later, as a store elsewhere would."""

    LIMIT = 5

    def __init__(self, *, far: bool = False) -> None:
        self.far = far
        self.spent: dict[str, int] = {}
        self.requests: list[CheckRequest] = []
        self.by: list[str] = []
        self.ready = ""
        self.failed = ""
        self.audits: list[tuple[str, int | None, int]] = []
        self.leases = {"lease-1": 10}
        self.hold: asyncio.Event | None = None

    def _decide(self, ask: CheckRequest, by: Identity, *, count: bool) -> CheckResponse:
        by.require(Grant.CHECK)
        self.requests.append(ask)
        self.by.append(by.name)
        if ask.user_id == "bug":
            raise ZeroDivisionError
        if ask.user_id == "silent":
            raise Unavailable("the store", "nothing for a second")
        if ask.user_id == "nobody":
            return CheckResponse(Decision(True, 0, 0, 0, None, ""), -1, DEFAULT_CRITICALITY)
        spent = self.spent.get(ask.user_id, 0)
        reason = None
        if ask.user_id == "shed":
            reason = SHED
        elif ask.cost > self.LIMIT:
            reason = COST_ABOVE_LIMIT
        elif spent + ask.cost > self.LIMIT:
            reason = RATE_LIMITED
        elif count:
            spent = self.spent[ask.user_id] = spent + ask.cost
        retry_us = 0 if reason is None else -1 if reason is COST_ABOVE_LIMIT else 1_500_000
        decision = Decision(reason is None, self.LIMIT - spent, retry_us, 60_000_000, reason, "r-1")
        if ask.user_id == "dark":
            decision = decision.with_marks(degraded=True)
        return CheckResponse(decision, self.LIMIT, ask.priority or DEFAULT_CRITICALITY)

    def check(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        if self.far or self.hold is not None:
            return self._check_later(ask, by)
        return self._decide(ask, by, count=True)

    async def _check_later(self, ask: CheckRequest, by: Identity) -> CheckResponse:
        if self.hold is None:
            await asyncio.sleep(0)
        else:
            await self.hold.wait()
        return self._decide(ask, by, count=True)

    def check_each(
        self, asks: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        return [self._decide(ask, by, count=True) for ask in asks]

    def peek(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        return self._decide(ask, by, count=False)

    async def reset(self, ask: CheckRequest, by: Identity) -> int:
        by.require(Grant.RESET)
        return int(self.spent.pop(ask.user_id, 0) > 0)

    async def lease(self, ask: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        by.require(Grant.LEASE)
        self.leases["lease-2"] = units
        return LeaseResponse("lease-2", units, 900_000, self._decide(ask, by, count=False))

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        by.require(Grant.LEASE)
        return min(units, self.leases.pop(lease_id, 0))

    def should_rate_limit(self, ask: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        by.require(Grant.CHECK)
        if not ask.domain:
            raise BadValue("domain", "", "say which")
        over = ask.cost > self.LIMIT
        status = MeshStatus(over, MeshLimit(self.LIMIT, 1), 0 if over else self.LIMIT, 500_000)
        return MeshResponse(over, [status] * len(ask.descriptors))

    def throttle(self, ask: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        raise NotImplementedError

    def store(self, by: Identity) -> Store:
        raise NotImplementedError

    def serving(self) -> bool:
        return not self.ready

    # The desk.

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        return {"version": 3, "files": ["rules.yaml"], "last_load": {"result": "accepted"}}

    def state(self, by: Identity) -> Mapping[str, object]:
        return {"users": len(self.spent), "odd": "\ud800"}

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> MaybeAwaitable[Sequence[Mapping[str, object]]]:
        self.audits.append((user, since_us, count_max))
        return [{"rule": "r-1", "allowed": False}]

    def metrics(self) -> str:
        return "# TYPE up gauge\nup 1\n"

    def not_ready(self) -> str:
        return self.ready

    def not_alive(self) -> str:
        return self.failed


class Doorkeeper:
    """Two tokens, one certificate, and perhaps everybody."""

    def __init__(self, *, everybody: bool = True) -> None:
        self.anonymous = Identity("anybody", EVERY_GRANT) if everybody else None

    def by_token(self, token: str) -> Identity | None:
        grants: dict[str, set[Grant]] = {"checks": {Grant.CHECK}, "all": set(EVERY_GRANT)}
        return Identity(token, grants[token]) if token in grants else None

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return Identity("gateway", {Grant.CHECK}) if "gateway" in names else None


class Answer(NamedTuple):
    """A response, read from the wire by hand."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningDoor:
    """A listener with the HTTP door behind it."""

    def __init__(self, listener: Listener, door: HttpDoor, service: Counting) -> None:
        self.listener = listener
        self.door = door
        self.service = service

    @property
    def port(self) -> int:
        return self.listener.addresses[0].port

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def call(self, data: bytes = b"") -> Caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return Caller(reader, writer)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own."""
        caller = await self.call(request(method, path, self.host, body, **headers))
        reply = await answer(caller, head=method == "HEAD")
        await caller.leave()
        return reply


def request(method: str, path: str, own: str, /, body: Any = None, **headers: str) -> bytes:
    """The bytes of a request; a body that is no bytes is JSON."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1"]
    if "host" not in fields:
        lines.append(f"host: {own}")
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines.append(f"content-length: {len(data)}")
        if "content-type" not in fields:
            lines.append("content-type: application/json")
    lines += [f"{name}: {value}" for name, value in fields.items() if value]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def answer(caller: Caller, *, head: bool = False) -> Answer:
    """The next response."""
    async with asyncio.timeout(WAIT_S):
        lines = (await caller.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        size = 0 if head else int(headers.get("content-length", "0"))
        return Answer(status, headers, await caller.reader.readexactly(size))


@asynccontextmanager
async def running_door(
    *,
    service: Counting | None = None,
    everybody: bool = True,
    handler: Handler | None = None,
    http: HttpSettings | None = None,
    tls: Tls | None = None,
    address: str = "127.0.0.1:0",
    listener: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[RunningDoor]:
    """A door that listens, and is closed afterwards; its clock stands still if none is given."""
    serves = Counting() if service is None else service
    clock = HandClock(NOW_US) if clock is None else clock
    limiter = LimiterHttp(
        serves, serves, Doorkeeper(everybody=everybody), clock, LimiterHttpSettings(**settings)
    )
    door = HttpDoor(handler or limiter.handle, clock, http)
    bounds = ListenerSettings(**{"look_s": 0.02, **(listener or {})})
    async with Listener([address], {Language.HTTP1: door}, settings=bounds, tls=tls) as listening:
        yield RunningDoor(listening, door, serves)
    # What was cut off is told so in the loop's next turns.
    async with asyncio.timeout(60):
        while door.under_way:
            await asyncio.sleep(0.005)
