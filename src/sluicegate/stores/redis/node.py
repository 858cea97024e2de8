"""Node: one server, the connection to it, and whether calls to it can succeed.

    never connected    the first calls wait for the first attempt, however it ends
    connected          calls pass straight to the connection
    no connection      calls fail at once; the node connects again in the background, with backoff
    breaker open       calls fail at once; the node asks PING in the background, with backoff, so
                       that no caller's time is spent on finding out that nothing has changed
    half-open          PING is answered again and the open time is over: a few calls are let in,
                       and decide whether the breaker closes

The breaker counts ticks, not calls: a read that brought answers in time is a success, a sweep that
found calls timed out is a failure, and so is every LOADING, BUSY, READONLY and their like. What a
server does in one tick it does to every call of that tick, and one hiccup under load would
otherwise count a thousand times.

A call is sent again only when the server has said that it did nothing: NOSCRIPT (the script is
loaded first, once for all that miss it), MOVED and ASK (by the topology). What timed out, or was
lost with its connection, may have been done; it is never sent twice.

Nothing here knows where else a key might be; that is the topology's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.kernels.backoff import reconnect_backoff
from sluicegate.kernels.breaker import (
    CLOSED,
    FAILURE,
    IGNORED,
    REFUSED,
    STATES,
    SUCCESS,
    Circuit,
    CircuitSettings,
)
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.stores.redis.connection import (
    RedisCall,
    RedisClient,
    RedisConnection,
    Reply,
    ReplyReceiver,
    open_connection,
)
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.wire.resp import (
    ASK,
    DENIED,
    MOVED,
    NO_SCRIPT,
    NO_WRITES,
    NOT_HERE,
    NOT_MASTER,
    NOT_NOW,
    ErrorReply,
    Part,
    command,
    error_reply,
)

# Recovery is found by PING, so the open time only has to spare the server, not the callers.
BREAKER_DEFAULT: Final = CircuitSettings(
    failures_in_row=5,
    failure_percent=50,
    calls_min=20,
    window_us=1_000_000,
    open_us=100_000,
    open_us_max=500_000,
    probe_us_max=1_000_000,
)


# Errors that say nothing of the command: whoever asked should do as if there were no server.
UNAVAILABLE: Final = frozenset({NOT_NOW, NO_WRITES, NOT_HERE, NOT_MASTER, DENIED})


class NodeOwner(Protocol):
    """The topology, as a node sees it."""

    def redirect(self, node: RedisNode, call: RedisCall, error: ErrorReply) -> bool:
        """Send the call where MOVED or ASK says; False if it must fail with that error."""

    def on_failure(self, node: RedisNode) -> None:
        """The node has lost its connection, opened its breaker, or is a replica now."""


@final
class RedisNode(RedisClient):
    """Make it within a running loop; `close` ends what it has started."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: RedisSettings,
        chance: Chance,
        *,
        breaker: CircuitSettings = BREAKER_DEFAULT,
        owner: NodeOwner | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.what = f"{settings.kind} at {endpoint}"
        self._settings = settings
        self._path = PathTimeout(settings.timeout_us)  # outlives connections
        self._draw = chance.draw
        self._breaker = Circuit(breaker)
        self._backoff = reconnect_backoff(settings.backoff_us, settings.backoff_us_max)
        self._owner = owner
        self._resends_max = settings.resends_max
        self._loop = asyncio.get_running_loop()
        self._connection: RedisConnection | None = None
        self._repair_task: asyncio.Task[None] | None = None
        self._waiting_calls: list[RedisCall] = []
        self._scripts_loading: set[str] = (
            set()
        )  # scripts on their way to the server on this connection
        self._rejected_scripts: dict[
            str, str
        ] = {}  # scripts that the server does not take, and why
        self._attempted = False  # to connect, at least once and to the end
        self._answers = True  # PING has been answered since the breaker opened
        self._last_failure = "it was never reached"  # why
        self._closed = False

    # The calls.

    def send(self, call: RedisCall) -> None:
        """Have the call answered, or fail it; never raises, never waits."""
        connection = self._connection
        if connection is None or self._breaker.state != CLOSED:
            self._send_carefully(call)
            return
        if call.asking:
            self._send_asking(connection, call)
        connection.send(call)

    def push(self) -> None:
        """Write what was sent in this tick now, for whoever knows that it is all."""
        if self._connection is not None:
            self._connection.push()

    @property
    def connected(self) -> bool:
        """Whether there is a connection, and PING was answered since the breaker last opened."""
        return self._connection is not None and self._answers

    @property
    def pending(self) -> int:
        """Calls without an answer."""
        connection = self._connection
        return len(self._waiting_calls) if connection is None else connection.inflight

    @property
    def state(self) -> str:
        """For people: the breaker's state, or that there is no connection."""
        return STATES[self._breaker.state] if self._connection else "not connected"

    def call_each(self, *parts: Part) -> Mapping[str, asyncio.Future[Reply]]:
        """Send one command to this node."""
        return {self.what: self.call(*parts)}

    @property
    def paths(self) -> Sequence[PathTimeout]:
        """The time-out of this node."""
        return (self._path,)

    def unavailable_reason(self, slot: int = -1) -> str:
        """Return why a call would fail at once."""
        if self._connection is None:
            return self._last_failure if self._attempted or self._closed else ""
        return "" if self._answers else self._last_failure

    def start(self) -> None:
        """Begin to connect, if there is no connection."""
        if self._connection is None:
            self._repair()

    async def connect(self) -> None:
        """Return when connected, or raise what prevents it; one attempt, if none is under way."""
        if self._closed:
            raise Unavailable(self.what, "the client is closed")
        if self._connection is not None:
            return
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self._attempted:
            # The mender has its own pace; this asker wants to know now.
            self._adopt(await open_connection(self.endpoint, self._settings))
            return
        self._send_carefully(RedisCall(future, command("PING")))
        await future

    async def close(self) -> None:
        """Fail every call, end every task, and return when the socket is closed."""
        self._closed = True
        self._last_failure = "the client is closed"
        mender, self._repair_task = self._repair_task, None
        if mender is not None:
            mender.cancel()
            await asyncio.gather(mender, return_exceptions=True)
        self._fail_waiting(Unavailable(self.what, self._last_failure))
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close(self._last_failure)

    # What the connection tells.

    def on_replies(self) -> None:
        """Answers came in time."""
        breaker = self._breaker
        if breaker.state == CLOSED:
            breaker.leave(breaker.generation, SUCCESS, 0, self._now_us(), 0.0)

    def on_timeout(self, failure: str) -> None:
        """Calls have timed out."""
        self._count_failure(failure)

    def on_error(self, call: RedisCall, error: ErrorReply) -> None:
        """This call was answered with an error."""
        kind = error.kind
        if kind == NO_SCRIPT and call.script is not None and self._load_and_resend(call):
            return
        if kind in (MOVED, ASK):
            if self._owner is None:
                failure = "it is a node of a cluster; say redis+cluster:// in the URL"
                call.fail(Unavailable(self.what, failure))
                return
            if call.resends < self._resends_max:
                call.resends += 1
                if self._owner.redirect(self, call, error):
                    return
            call.fail(Unavailable(self.what, f"sent on {call.resends} times, last by {error}"))
            return
        if kind in (NOT_NOW, NOT_MASTER):
            self._count_failure(str(error))
            if kind == NOT_MASTER and self._owner is not None:
                self._owner.on_failure(self)
        elif kind == NOT_HERE and self._owner is not None:
            self._owner.on_failure(self)
        if kind not in UNAVAILABLE:
            call.fail(error)
            return
        failed = Unavailable(self.what, str(error))
        failed.__cause__ = error
        call.fail(failed)

    def on_close(self, failure: str) -> None:
        """The connection has ended."""
        self._connection = None
        self._scripts_loading.clear()
        self._rejected_scripts.clear()
        self._repair()  # first: the calls below may raise, and only this connects again
        self._count_failure(failure)
        if self._owner is not None and not self._closed:
            self._owner.on_failure(self)

    # Inside.

    def _now_us(self) -> int:
        return int(self._loop.time() * 1e6)

    def _send_carefully(self, call: RedisCall) -> None:
        """The way of a call while not all is well."""
        connection = self._connection
        if connection is None:
            if (
                self._attempted
                or self._closed
                or len(self._waiting_calls) >= self._settings.inflight_max
            ):
                call.fail(Unavailable(self.what, self._last_failure))
                return
            self._waiting_calls.append(call)
            self._repair()
            return
        now_us = self._now_us()
        generation = self._breaker.enter(now_us) if self._answers else REFUSED
        if generation == REFUSED:
            call.fail(Unavailable(self.what, f"{self._last_failure}; calls are held back"))
            return
        if call.asking:
            self._send_asking(connection, call)
        connection.send(call)
        call.future.add_done_callback(lambda future: self._judge(generation, now_us, future))

    def _judge(self, generation: int, sent_us: int, future: ReplyReceiver) -> None:
        """How a call went that was let in while half-open."""
        if future.cancelled():
            outcome = IGNORED
        elif isinstance(error := future.exception(), Unavailable) and not _takes_no_writes(error):
            outcome = FAILURE
        else:
            outcome = SUCCESS
        now_us = self._now_us()
        before = self._breaker.state
        after = self._breaker.leave(generation, outcome, now_us - sent_us, now_us, self._draw())
        if after not in (before, CLOSED):
            self._on_breaker_open()

    def _count_failure(self, failure: str) -> None:
        self._last_failure = failure
        breaker = self._breaker
        if breaker.state != CLOSED or self._closed:
            return
        breaker.leave(breaker.generation, FAILURE, 0, self._now_us(), self._draw())
        if breaker.state != CLOSED:
            self._on_breaker_open()

    def _on_breaker_open(self) -> None:
        self._answers = False
        self._repair()
        if self._owner is not None:
            self._owner.on_failure(self)

    def _load_and_resend(self, call: RedisCall) -> bool:
        """On this connection, in this order: load the script unless it is on its way, then ask."""
        script, connection = call.script, self._connection
        if script is None or connection is None or call.resends >= self._resends_max:
            return False
        call.resends += 1
        if (text := self._rejected_scripts.get(script.sha)) is not None:
            call.fail(error_reply(text))
            return True
        if script.sha not in self._scripts_loading:
            self._scripts_loading.add(script.sha)
            future: asyncio.Future[Reply] = self._loop.create_future()
            future.add_done_callback(lambda done: self._loaded(script, done))
            connection.send(RedisCall(future, script.load), again=True)
        if call.asking:
            self._send_asking(connection, call)
        connection.send(call, again=True)
        return True

    def _loaded(self, script: Script, future: asyncio.Future[Reply]) -> None:
        self._scripts_loading.discard(script.sha)
        error = future.exception()
        if isinstance(error, ErrorReply):
            self._rejected_scripts[script.sha] = error.text

    def _send_asking(self, connection: RedisConnection, call: RedisCall) -> None:
        # Both leave in one tick, so nothing comes between them.
        asking = connection.ask("ASKING")
        asking.add_done_callback(_ignore_result)

    def _repair(self) -> None:
        if self._repair_task is None and not self._closed:
            self._repair_task = self._loop.create_task(
                self._repair_until_well(), name=f"mend {self.what}"
            )

    async def _repair_until_well(self) -> None:
        """Connect, and have PING answered; wait longer after each failure."""
        attempt = 0
        try:
            while not await self._probe():
                await asyncio.sleep(self._backoff.wait_us(attempt, self._draw()) / 1e6)
                attempt += 1
        finally:
            self._repair_task = None

    async def _probe(self) -> bool:
        connection = self._connection
        try:
            if connection is None:
                self._adopt(await open_connection(self.endpoint, self._settings))
            elif not self._answers:
                await connection.ask("PING")
        except SluicegateError as error:
            self._note_attempt(error)
            return False
        except Exception as error:
            # Not foreseen. The node is repaired by this task alone, so the task must go on.
            self._note_attempt(Unavailable(self.what, f"connecting failed ({error!r})"))
            self._loop.call_exception_handler(
                {"message": f"{self.what}: connecting failed", "exception": error}
            )
            return False
        self._answers = True
        return self._connection is not None

    def _note_attempt(self, error: SluicegateError) -> None:
        self._last_failure = error.detail if isinstance(error, Unavailable) else str(error)
        self._attempted = True
        self._fail_waiting(error)

    def _adopt(self, connection: RedisConnection) -> None:
        """Use this connection from now on, first for those that have waited for it."""
        if self._connection is not None or self._closed:
            connection.end("another connection is in use")
            return
        connection.serve(self, self._path)
        self._connection = connection
        self._attempted = True
        self._answers = True
        early, self._waiting_calls = self._waiting_calls, []
        for call in early:
            if not call.future.done():
                self.send(call)

    def _fail_waiting(self, error: SluicegateError) -> None:
        early, self._waiting_calls = self._waiting_calls, []
        for call in early:
            call.fail(type(error)(*error.__reduce__()[1]))


def _takes_no_writes(error: Unavailable) -> bool:
    """Whether the server said so: it answers, and what it has can be read."""
    cause = error.__cause__
    return isinstance(cause, ErrorReply) and cause.kind == NO_WRITES


def _ignore_result(future: asyncio.Future[Reply]) -> None:
    """An answer nobody waits for; its error shows in the call behind it."""
    if not future.cancelled():
        future.exception()
