"""Cassandra session: one session of the driver, its statements, and what its errors mean.

It connects at the first request; requests meanwhile wait, and for a while after a failure they fail
at once with its message. At most `inflight_max` requests are sent, and `waiting_max` wait.

Where it creates the tables, nodes learn of them one after the other. One that has not yet refuses a
request and has done nothing: for `heard_us` from the session's beginning it is sent again.

A read, and a plain write with its instant fixed, may be sent again by the driver to another node:
both are idempotent. A conditional write never is. A write that may have been made raises
`OutcomeUnknown`, one that no node has taken `Unavailable`, and one that the cluster has refused as
invalid `BadValue`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, final

from sluicegate.contracts.errors import (
    BadValue,
    MissingPackage,
    OutcomeUnknown,
    SluicegateError,
    Unavailable,
)
from sluicegate.stores.engines.cassandra.schema import (
    GREETING,
    SPECULATE_AFTER_MS,
    STATEMENTS,
    create_keyspace,
    create_tables,
)
from sluicegate.stores.engines.cassandra.url import (
    ADDRESS,
    CERTIFICATE,
    LOCAL_QUORUM,
    NAME,
    CassandraSettings,
)

if TYPE_CHECKING:
    from types import ModuleType

# The driver's own objects: it has no types.
Statement: TypeAlias = Any
Rows: TypeAlias = "list[tuple[Any, ...]]"
T = TypeVar("T")

# The driver's errors, by the beginning of their names. A reader needs no distinction.
ANY_ERROR: Final = ("",)
# Of a plain write, which the driver may have sent to another node before the one that failed.
WRITE_NOT_MADE: Final = (
    "CassErrorServerInvalidQuery",
    "CassErrorServerConfigError",
    "CassErrorServerSyntaxError",
    "CassErrorServerUnauthorized",
    "CassErrorServerUnprepared",
    "CassErrorServerBadCredentials",
    "CassErrorLibRequestQueueFull",
    "CassErrorLibNoAvailableIoThread",
)
# Of a conditional write, which is sent to one node. "Unavailable" is not among these: copies may
# become unreachable after the nodes have agreed.
SWAP_NOT_MADE: Final = (
    *WRITE_NOT_MADE,
    "CassErrorServerOverloaded",
    "CassErrorServerIsBootstrapping",
    "CassErrorLibNoHostsAvailable",
    "CassErrorLibNoStreams",
)
# What a node says of a keyspace or a table that it has not heard of.
_UNHEARD: Final = ("does not exist", "doesn't exist", "unconfigured table")
_UNHEARD_PAUSE_S: Final = 0.05
_TOO_LARGE: Final = ("oversized mutation", "too big", "too large")
_SEEN_CHARS_MAX: Final = 200
_CLOSE_S_MAX: Final = 5.0
# A node that answers no heartbeat for as long has its connections closed, and gets no requests
# until it answers again. Above a long pause of a node's garbage collector.
HEARTBEAT_S: Final = 1
SILENT_S: Final = 5
# A conditional write cannot be sent twice. Its node has a third of the time-out, so that the rest
# is enough to find out whether it was made, and to ask another node.
CONDITIONAL_TRIES: Final = 3
# Bits of the C++ client (CASS_SSL_VERIFY_...): the certificate, its address, its name.
_VERIFY: Final = {CERTIFICATE: 1, ADDRESS: 1 | 2, NAME: 1 | 4}
# When a node has just returned, the driver's threads may still call a session that has closed.
# Freeing the session then aborts the process, so the last 16 are kept.
_ended: deque[Any] = deque(maxlen=16)


class VerifyFlags(NamedTuple):
    """What is verified of a node. The driver's own enumeration has no two of its bits together."""

    value: int


def driver() -> ModuleType:
    """acsylla, or what to install."""
    try:
        import acsylla  # noqa: PLC0415 - only where a Cassandra is asked for
    except ImportError:
        raise MissingPackage("acsylla", "cassandra") from None
    module: ModuleType = acsylla
    return module


@final
class CassandraSession:
    """One session, used by one event loop."""

    def __init__(self, settings: CassandraSettings) -> None:
        self._driver = driver()
        self._settings = settings
        self.what = f"Cassandra at {settings.hosts[0]}:{settings.port}"
        self._session: Any = None
        self._held: tuple[Any, asyncio.Future[Any]] | None = None  # cluster, its opening
        self._prepared: dict[str, Any] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._failed: tuple[float, SluicegateError] | None = None  # when, and what was seen
        self.engine_id = b""  # given by the cluster, when the session began
        self._ahead_us = 0  # of the loop's clock, by the cluster's
        self._heard_s = 0.0  # by the loop's clock: every node should know the tables from then on
        self._inflight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    # Statements. Whoever makes one has awaited `ready`.

    async def ready(self) -> None:
        """Return when there is a session, or raise why there is none."""
        if self._session is None:
            await self._open()

    def now_us(self) -> int:
        """Return the instant by the cluster's clock, read when the session began."""
        return self._ahead_us + int(asyncio.get_running_loop().time() * 1e6)

    def bound(self, name: str, values: Sequence[object], *, again: bool = True) -> Statement:
        """One statement with its values; `again` if it may be sent twice."""
        statement = self._prepared[name].bind()
        statement.bind_list(values)
        if again:
            statement.set_is_idempotent(True)
        return statement

    def serial(self, statement: Statement) -> Statement:
        """The same, reading behind every conditional write that is under way."""
        local = self._settings.consistency == LOCAL_QUORUM
        kind = self._driver.Consistency
        statement.set_consistency(kind.LOCAL_SERIAL if local else kind.SERIAL)
        return statement

    def batch(self, statements: Sequence[Statement], *, again: bool) -> Statement:
        """Statements of one partition, done all or none and at one instant."""
        timeout_us = self._settings.timeout_us
        if not again:
            timeout_us //= CONDITIONAL_TRIES
        batch = self._driver.create_batch_unlogged(timeout=timeout_us / 1e6)
        for statement in statements:
            batch.add_statement(statement)
        if again:
            batch.set_is_idempotent(True)
        return batch

    async def run(
        self, statement: Statement, *, batch: bool = False, not_made: tuple[str, ...] = ANY_ERROR
    ) -> Rows:
        """Run a statement; `not_made` names the driver's errors that leave a write not made."""
        await self._enter()
        try:
            while True:
                session = self._session
                if session is None:
                    raise Unavailable(self.what, "the engine is closed")
                try:
                    result = await (
                        session.execute_batch(statement) if batch else session.execute(statement)
                    )
                    return [] if result is None else [row.as_tuple() for row in result.all()]
                except self._driver.errors.CassException as error:
                    if not self._unheard(error):
                        raise self._translate(error, not_made) from None
                await asyncio.sleep(_UNHEARD_PAUSE_S)
        finally:
            self._leave()

    async def close(self) -> None:
        """End the session. What is under way fails or ends first."""
        self._closed = True
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
        held, self._held = self._held, None
        self._session = None
        self._prepared = {}
        if held is not None:
            await self._end(*held)

    # The bound of what is under way.

    async def _enter(self) -> None:
        if self._inflight < self._settings.inflight_max and not self._waiters:
            self._inflight += 1
            return
        if len(self._waiters) >= self._settings.waiting_max:
            raise Unavailable(self.what, f"{len(self._waiters)} requests wait (waiting_max)")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()
            elif place in self._waiters:
                self._waiters.remove(place)
            raise

    def _leave(self) -> None:
        while self._waiters:
            place = self._waiters.popleft()
            if not place.done():
                place.set_result(None)  # ours is theirs now
                return
        self._inflight -= 1

    # The session.

    async def _open(self) -> None:
        if self._closed:
            raise Unavailable(self.what, "the engine is closed")
        loop = asyncio.get_running_loop()
        if self._failed is not None:
            at, error = self._failed
            if loop.time() - at < self._settings.backoff_us / 1e6:
                raise type(error)(*error.__reduce__()[1])
        if self._connecting is None:
            self._connecting = loop.create_task(self._connect(), name="connect to Cassandra")
            self._connecting.add_done_callback(_look_away)
        # Whoever is cancelled leaves the others' attempt alone.
        await asyncio.shield(self._connecting)

    async def _connect(self) -> None:
        cluster = self._create()
        opening = asyncio.ensure_future(cluster.create_session())
        try:
            try:
                # The driver answers even if we stop waiting, so the cluster must still exist.
                session = await asyncio.shield(opening)
                await self._prepare(session)
            except self._driver.errors.CassException as error:
                raise self._translate(error) from None
            self._failed = None
            self._session, self._held = session, (cluster, opening)
        except SluicegateError as error:
            self._failed = (asyncio.get_running_loop().time(), error)
            raise
        finally:
            self._connecting = None
            if self._held is None:
                await self._end(cluster, opening)

    async def _prepare(self, session: Any) -> None:
        settings = self._settings
        self._heard_s = 0.0
        await create_keyspace(session, settings)
        if settings.create:
            self._heard_s = asyncio.get_running_loop().time() + settings.heard_us / 1e6
            await self._await_response(partial(create_tables, session, settings.keyspace))
        told_ms, name = (await session.query(GREETING)).first().as_tuple()
        self.engine_id = str(name).encode()
        self._ahead_us = told_ms * 1_000 - int(asyncio.get_running_loop().time() * 1e6)
        for name, text in STATEMENTS.items():
            statement = text.format(keyspace=settings.keyspace)
            self._prepared[name] = await self._await_response(
                partial(session.create_prepared, statement)
            )

    async def _await_response(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What a node answers that has heard of the tables."""
        while True:
            try:
                return await ask()
            except self._driver.errors.CassException as error:
                if not self._unheard(error):
                    raise
            await asyncio.sleep(_UNHEARD_PAUSE_S)

    def _unheard(self, error: Exception) -> bool:
        """Whether a node has refused, and done nothing, for what it may soon hear of."""
        errors = self._driver.errors
        refused = (errors.CassErrorServerInvalidQuery, errors.CassErrorServerConfigError)
        return (
            isinstance(error, refused)
            and any(words in str(error) for words in _UNHEARD)
            and asyncio.get_running_loop().time() < self._heard_s
        )

    async def _end(self, cluster: Any, opening: asyncio.Future[Any]) -> None:
        """Close a session once it is open, and free what its cluster holds."""
        try:
            async with asyncio.timeout(_CLOSE_S_MAX):
                session = await opening
                _ended.append(session)
                await session.close()
        except TimeoutError:
            return  # the driver's threads still write to the cluster's sockets
        except self._driver.errors.CassException:
            pass  # it never opened, or closed with an error: no request is in flight
        cluster.destroy()  # which closes its sockets

    def _create(self) -> Any:
        settings = self._settings
        kind = self._driver.Consistency
        local = settings.consistency == LOCAL_QUORUM
        more: dict[str, object] = {}
        if settings.user:
            more |= {"username": settings.user, "password": settings.password}
        if settings.datacenter:
            more["load_balance_dc_aware"] = settings.datacenter
        if settings.tls:
            more |= self._tls()
        return self._driver.create_cluster(
            list(settings.hosts),
            port=settings.port,
            consistency=kind[settings.consistency.upper()],
            serial_consistency=kind.LOCAL_SERIAL if local else kind.SERIAL,
            connect_timeout=settings.connect_timeout_us / 1e6,
            request_timeout=settings.timeout_us / 1e6,
            num_threads_io=settings.io_threads,
            core_connections_per_host=settings.connections,
            # For statements marked idempotent alone: the second attempt goes to another node.
            speculative_execution_policy=self._driver.SpeculativeExecutionPolicy(
                constant_delay_ms=SPECULATE_AFTER_MS, max_speculative_executions=1
            ),
            heartbeat_interval_sec=HEARTBEAT_S,
            idle_timeout_sec=SILENT_S,
            # Each request's instant is the wall clock's here, and never one that was given before.
            timestamp_gen="monotonic",
            exponential_reconnect_base_delay_ms=200,
            exponential_reconnect_max_delay_ms=2_000,
            log_level="disabled",  # whatever goes wrong is raised, with what was seen
            application_name="sluicegate",
            **more,
        )

    def _tls(self) -> dict[str, object]:
        settings = self._settings
        more: dict[str, object] = {"ssl_enabled": True}
        named = {
            "ssl_trusted_cert": settings.tls_ca,
            "ssl_cert": settings.tls_cert,
            "ssl_private_key": settings.tls_key,
        }
        for name, file in named.items():
            if file:
                try:
                    more[name] = Path(file).read_text(encoding="ascii")
                except (OSError, UnicodeError) as error:
                    raise BadValue("engine.tls", file, f"give a file to read ({error})") from None
        if settings.tls_ca:
            more["ssl_verify_flags"] = VerifyFlags(_VERIFY[settings.tls_verify])
            more["hostname_resolution"] = settings.tls_verify == NAME
        return more

    def _translate(
        self, error: Exception, not_made: tuple[str, ...] = ANY_ERROR
    ) -> SluicegateError:
        errors = self._driver.errors
        detail = str(error)[:_SEEN_CHARS_MAX]
        if isinstance(error, errors.CassErrorServerInvalidQuery) and any(
            words in detail for words in _TOO_LARGE
        ):
            return BadValue(
                "value",
                detail,
                "write less at once, or give the nodes a larger commitlog_segment_size",
            )
        if type(error).__name__.startswith(not_made):
            return Unavailable(self.what, detail)
        return OutcomeUnknown(self.what, detail)


def _look_away(task: asyncio.Task[None]) -> None:
    """Consume the error of a connection nobody awaits; it is stored for the next caller."""
    if not task.cancelled():
        task.exception()
