"""Client: asks a rate-limit service before each unit of work, and spares it what it can.

    client = Client("sluicegate://limits:7070", failure="open")
    if not await client.check("ann", "/api/v1/playback"):
        ...

A request is answered here if it can be: from a refusal that still stands, or from units leased
before. What must be asked in one tick of the event loop leaves in one write, and its answers come
in one read; that is all the batching there is, and nobody waits for a batch to fill. If the service
cannot be asked in time the failure policy answers, and marks it: `open` admits, `closed` refuses,
`local` counts here by a limit of this client's own. A request that may have been counted is not
repeated.

A client belongs to the event loop it is first asked in. `SyncClient` is for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, final

from sluicegate.client.answer import Answer, parse_answer
from sluicegate.client.blocks import BARRED_US, HOT_ASKS, UNITS_MAX, BlockRest, Blocks, PairBlock
from sluicegate.client.blocks import PAIRS_MAX as LEASES_MAX
from sluicegate.client.failure_policy import OPEN, ClientFailurePolicy
from sluicegate.client.pair import Pair, check_command, check_cost, lease_command, pair_of
from sluicegate.client.refusals import PAIRS_MAX, PairRefusals
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.contracts.must_await import must_await
from sluicegate.contracts.request import NO_ATTRIBUTES
from sluicegate.contracts.rule import Limit
from sluicegate.stores.service.fleet import WorkerFleet
from sluicegate.stores.service.settings import parse_service_url
from sluicegate.system import SystemChance, SystemClock
from sluicegate.wire.resp import command

AUTO: Final = "auto"
SWEEP_S: Final = 0.5  # between looks for idle leases
TIMEOUT_MS_MAX: Final = 3_600_000.0
_NO_GRANT: Final = "NOPERM"


class ServiceLink(Protocol):
    """A way to a service; bound to the event loop it is first used in.

    A request goes to any worker, except what belongs to a lease: that goes to the worker that gave
    it, for only that one may know it. The real one is a `WorkerFleet`.
    """

    async def ask(self, payload: bytes, via: object = None) -> Any:
        """The reply to a command; `Unavailable` if there is none, `BadValue` if it makes none."""

    async def ask_one(self, payload: bytes) -> tuple[Any, object]:
        """The same, and the worker that answered, for whoever must ask that one again."""

    async def connect(self) -> None:
        """Return when a worker has answered, or raise what prevents it."""

    async def close(self) -> None:
        """End it."""


class ClientStats(NamedTuple):
    """Counts since the start."""

    checks: int  # asked of this client
    asked: int  # of those: by the service, one question each
    leased: int  # from units leased before
    denied: int  # from a refusal that still stood
    degraded: int  # by the failure policy
    leases: int  # taken
    units_leased: int
    units_returned: int
    units_lapsed: int  # died unspent
    pairs_leased: int  # now
    pairs_denied: int  # now
    failure: str  # what was last seen of a service that could not be asked


@final
class Client:
    """Asks the service at `url`: `sluicegate://`, or `sluicegates://` for TLS.

    `lease`: "auto" leases for pairs of user and resource that request often, a number leases so
    many units for every pair, None never leases; `lease_max` bounds the units of one lease.
    `failure`: open, closed, or local with `local_limit` for each pair. `timeout_ms` goes before
    what the URL says; it is counted from the write of a question, and `check` can be told a shorter
    one for all. `link` takes the place of a URL.
    """

    def __init__(
        self,
        url: str = "sluicegate://127.0.0.1:7070",
        *,
        lease: str | int | None = AUTO,
        lease_max: int = UNITS_MAX,
        leases_max: int = LEASES_MAX,
        hot_asks: int = HOT_ASKS,
        failure: str = OPEN,
        local_limit: Limit | None = None,
        denials_max: int = PAIRS_MAX,
        timeout_ms: float | None = None,
        link: ServiceLink | None = None,
        clock: Clock | None = None,
    ) -> None:
        for name, value, least in (
            ("lease_max", lease_max, 1),
            ("leases_max", leases_max, 1),
            ("hot_asks", hot_asks, 1),
            ("denials_max", denials_max, 0),
        ):
            if value < least:
                raise BadValue(name, value, f"give a number, at least {least}")
        timeout_us = None if timeout_ms is None else round(_timeout_s(timeout_ms) * 1e6)
        self._settings = None if link else parse_service_url(url, timeout_us=timeout_us)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._failure_policy = ClientFailurePolicy(failure, local_limit, self._clock)
        self._refusals = PairRefusals(pairs_max=denials_max)
        self._blocks: Blocks | None = None
        if lease is not None:
            fixed = _fixed(lease, lease_max)
            self._blocks = Blocks(
                fixed=fixed, hot_asks=hot_asks, units_max=lease_max, pairs_max=leases_max
            )
        self._link: ServiceLink | None = link
        self._loop: asyncio.AbstractEventLoop | None = None
        self._filled: dict[PairBlock, asyncio.Future[None]] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        self._request_count = self._degraded = 0
        self._leases = self._units_leased = self._units_returned = 0
        self._failure = ""

    # Ask.

    def check(
        self,
        user: str,
        resource: str,
        cost: int = 1,
        *,
        priority: Criticality | str | None = None,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
        timeout_ms: float | None = None,
    ) -> Coroutine[Any, Any, Answer]:
        """May `cost` units of work enter? It is counted if so.

        With `timeout_ms` the answer comes by then, the failure policy's if there is no other.
        """
        pair = pair_of(user, resource, priority, headers)
        return must_await(self._check(pair, cost, timeout_ms), "Client.check")

    async def _check(self, pair: Pair, cost: int, timeout_ms: float | None) -> Answer:
        answer_here = self.answer_here(pair, check_cost(cost))
        if answer_here is not None:
            return answer_here
        try:
            if timeout_ms is None:
                return await self._ask_service(pair, cost)
            async with asyncio.timeout(_timeout_s(timeout_ms)):
                return await self._ask_service(pair, cost)
        except TimeoutError:
            return self._answer_failure(pair, cost, f"no answer in {timeout_ms:g} ms")

    def peek(
        self,
        user: str,
        resource: str,
        cost: int = 1,
        *,
        priority: Criticality | str | None = None,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> Coroutine[Any, Any, Answer]:
        """What the service would answer; nothing is counted. `Unavailable` if it does not."""
        pair = pair_of(user, resource, priority, headers)
        return must_await(self._peek(pair, cost), "Client.peek")

    async def _peek(self, pair: Pair, cost: int) -> Answer:
        return parse_answer(await self._ask(check_command("SG.PEEK", pair, check_cost(cost))))

    def reset(
        self,
        user: str,
        resource: str,
        *,
        priority: Criticality | str | None = None,
        headers: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> Coroutine[Any, Any, int]:
        """Forget what was counted; how many rules. `Unavailable` if that cannot be done now."""
        pair = pair_of(user, resource, priority, headers)
        return must_await(self._reset(pair), "Client.reset")

    async def _reset(self, pair: Pair) -> int:
        self._refusals.forget(pair)
        if self._blocks is not None:
            self._blocks.forget(pair)
        return int(await self._ask(command("SG.RESET", *pair)))

    def answer_here(self, pair: Pair, cost: int) -> Answer | None:
        """What can be answered without the service, in any thread; None if it must be asked."""
        now_us = self._clock.now_us()
        answer = self._refusals.find(pair, cost, now_us)
        if answer is not None or self._blocks is None or not cost:
            return answer
        return self._blocks.spend(pair, cost, now_us)

    # The client itself.

    def connect(self) -> Coroutine[Any, Any, None]:
        """Return when connected, or raise what prevents it. The first request does it too."""
        return must_await(self._connect(), "Client.connect")

    async def _connect(self) -> None:
        await self._here().connect()

    def stats(self) -> ClientStats:
        """Counts since the start; any thread may ask."""
        blocks = self._blocks
        leased = 0 if blocks is None else blocks.spent
        denied = self._refusals.found
        return ClientStats(
            self._request_count + leased + denied + self._degraded,
            self._request_count,
            leased,
            denied,
            self._degraded,
            self._leases,
            self._units_leased,
            self._units_returned,
            0 if blocks is None else blocks.lapsed,
            0 if blocks is None else len(blocks),
            len(self._refusals),
            self._failure,
        )

    def close(self) -> Coroutine[Any, Any, None]:
        """Give back what is leased, and end. What is asked afterwards is unavailable."""
        return must_await(self._close(), "Client.close")

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        if self._blocks is not None:
            self._give_back(self._blocks.take_idle(self._clock.now_us(), every=True))
        if self._returning:
            await asyncio.gather(*self._returning)
        if self._link is not None:
            await self._link.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.close()

    # Inside.

    def _here(self) -> ServiceLink:
        """Return the link, within the loop it belongs to."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise RuntimeError(
                    "a client belongs to the event loop it was first asked in; make one for each"
                )
            self._loop = loop
        if self._closed:
            raise Unavailable("the service", "the client is closed")
        if self._link is None:
            assert self._settings is not None
            self._link = WorkerFleet(self._settings, SystemChance())
        return self._link

    async def _ask(self, payload: bytes) -> Any:
        return await self._here().ask(payload)

    async def _ask_service(self, pair: Pair, cost: int) -> Answer:
        """Ask the service, for a lease or for this alone."""
        blocks = self._blocks
        try:
            link = self._here()
            if blocks is not None and cost:
                block = blocks.block_for(pair, self._clock.now_us())
                if block is not None:
                    answer = await self._from_lease(link, blocks, block, pair, cost)
                    if answer is not None:
                        return answer
            sent_us = self._clock.now_us()
            answer = parse_answer(await link.ask(check_command("SG.CHECK", pair, cost)))
        except BadValue:
            raise
        except SluicegateError as error:
            failure = error.detail if isinstance(error, Unavailable) else str(error)
            return self._answer_failure(pair, cost, failure)
        self._request_count += 1
        if blocks is not None:
            blocks.note_limit(pair, answer.limit)
        if not answer.allowed:
            self._refusals.remember(pair, cost, answer, sent_us)
        return answer

    async def _from_lease(
        self, link: ServiceLink, blocks: Blocks, block: PairBlock, pair: Pair, cost: int
    ) -> Answer | None:
        """Fill the pair's block, or wait for whoever is filling it; None if that did not help."""
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        if block.filling:
            waiting = self._filled.get(block)
            if waiting is None:
                return None
            await asyncio.shield(waiting)
        else:
            block.filling = True
            filled = self._filled[block] = asyncio.get_running_loop().create_future()
            try:
                await self._fill(link, blocks, block, pair, cost)
            finally:
                block.filling = False
                del self._filled[block]
                filled.set_result(None)
        return blocks.spend(pair, cost, self._clock.now_us())

    async def _fill(
        self, link: ServiceLink, blocks: Blocks, block: PairBlock, pair: Pair, cost: int
    ) -> None:
        sent_us = self._clock.now_us()
        units = blocks.size(block, cost, sent_us)
        try:
            reply, via = await link.ask_one(lease_command(pair, units))
        except Unavailable as error:
            if not error.detail.startswith(_NO_GRANT):
                raise
            blocks.bar(block, BARRED_US, sent_us)  # it may check, and that is enough
            return
        lease_id, units, valid_ms = _parse_lease(reply)
        answer = parse_answer(reply, 3)
        if units <= 0:
            # Whether this one cost may enter, and if not until when, is asked for by itself.
            blocks.bar(block, answer.retry_after_us, sent_us)
            return
        self._leases += 1
        self._units_leased += units
        if self._closed:
            return  # what was on its way lapses
        before = blocks.fill(block, lease_id, units, valid_ms * 1_000, answer, sent_us, via)
        if before is not None:
            self._give_back([before])

    def _sweep(self) -> None:
        """Give back what is idle, and look again while there is anything."""
        self._sweeping = None
        blocks = self._blocks
        if blocks is None or self._closed:
            return
        self._give_back(blocks.take_idle(self._clock.now_us()))
        if len(blocks):
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _give_back(self, left: list[BlockRest]) -> None:
        """In the background, for nobody needs to wait for it."""
        for one in left:
            task = asyncio.get_running_loop().create_task(self._return(one))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _return(self, left: BlockRest) -> None:
        link = self._link
        if link is None:
            return
        try:
            accepted = await link.ask(command("SG.GIVEBACK", left.lease_id, left.units), left.via)
        except SluicegateError:
            return  # it lapses
        self._units_returned += int(accepted)

    def _answer_failure(self, pair: Pair, cost: int, failure: str) -> Answer:
        self._degraded += 1
        self._failure = failure
        return self._failure_policy.answer(pair, cost)


def _parse_lease(reply: object) -> tuple[str, int, int]:
    """Return the three words before the nine."""
    if isinstance(reply, list) and len(reply) > 3:
        lease_id, units, valid_ms = reply[:3]
        if isinstance(lease_id, bytes) and isinstance(units, int) and isinstance(valid_ms, int):
            return lease_id.decode("utf-8", "surrogateescape"), units, valid_ms
    raise Unavailable("the service", f"its answer is not understood: {reply!r:.80}")


def _fixed(lease: str | int, lease_max: int) -> int:
    """Return the size of every block; 0 if it follows the pace."""
    if lease == AUTO:
        return 0
    if isinstance(lease, str) or not 1 <= lease <= lease_max:
        raise BadValue("lease", lease, f'give "auto", None, or from 1 to {lease_max:,} units')
    return lease


def _timeout_s(timeout_ms: float) -> float:
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        raise BadValue("timeout_ms", timeout_ms, "give milliseconds, above 0 and up to an hour")
    return timeout_ms / 1e3
