"""Fleet: asks every service for its state, again and again, and keeps the last two answers.

Rates come of two answers and the time between them. A service that does not answer keeps the error
and the time of its last answer. The others do not wait for it: a round ends on time without the
slow, who are asked again when they have answered, and who is gone is asked less often. A name whose
URL begins with `dns+` stands for a service at each of its addresses, which are looked up again and
again; one that the name has no more is shown as gone for `gone_s`, and then no longer. Bounds: two
states a service, `ASKED_AT_ONCE` asked at a time, `timeout_s` for each answer, and `NODES_MAX` of
them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, final
from urllib.parse import urlsplit

from sluicegate.apps.console.settings import DNS, NODES_MAX
from sluicegate.command_line.service_client import ServiceAddress, ServiceClient, check_grant
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.resilience.hosts.sources import HostSource, dns_source

ASKED_AT_ONCE: Final = 32
REST_S_MAX: Final = 8.0
LOOKUP_S: Final = 5.0
GONE_S: Final = 600.0  # for which an address that its name has no more is shown as gone
State = dict[str, Any]


@final
class Node:
    """One service, as it was at the last look."""

    __slots__ = ("_client", "address", "answered_us", "before", "due_s", "error", "failures", "now")

    def __init__(self, address: ServiceAddress, timeout_s: float) -> None:
        self.address = address
        self.before: State | None = None
        self.now: State | None = None  # None while it does not answer
        self.error = "not asked yet"
        self.answered_us = 0
        self.failures = 0  # in a row
        self.due_s = 0.0  # for the next look, on the loop's clock
        self._client = ServiceClient(address, address.url, timeout_s=timeout_s)

    def ask(self, path: str) -> Any:
        """Return what it answers; an error says what to do."""
        answer = self._client.call("GET", path, None, {})
        check_grant(self.address.url, answer, "audit")
        if not answer.ok:
            raise Unavailable(self.address.url, f"it answers {answer.status}: {answer.error}")
        return answer.body

    def look(self, now_us: Callable[[], int]) -> None:
        """Ask for its state, and keep it."""
        try:
            state = self.ask("/v1/state")
            if not (isinstance(state, dict) and isinstance(state.get("app"), str)):
                raise Unavailable(self.address.url, "this is no state of a sluicegate service")
        except SluicegateError as error:
            self.before = self.now = None
            self.failures += 1
            self.error = error.detail if isinstance(error, Unavailable) else str(error)
            return
        self.before, self.now, self.error = self.now, state, ""
        self.failures = 0
        self.answered_us = now_us()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@final
class FleetName:
    """A name that stands for a service at each of its addresses."""

    def __init__(self, address: ServiceAddress, timeout_s: float, gone_s: float) -> None:
        at = urlsplit(address.url.removeprefix(DNS))
        self._address = address
        self._scheme, self._path = at.scheme, at.path
        self._host = at.hostname or ""
        self._source: HostSource = dns_source(self._host, at.port or 0)
        self._timeout_s = timeout_s
        self._gone_s = gone_s
        self._nodes: dict[str, tuple[Node, float]] = {}  # and when the name had it last
        # Is shown while the name has no address yet, and never asked.
        self._nobody = Node(address, timeout_s)
        self._nobody.error = "its name has no address; is it right, and does anything run there?"
        self._nobody.due_s = math.inf
        self._nobody_shown = False

    def look_up(self) -> Sequence[str]:
        """Return its addresses, or none where nobody knows them."""
        try:
            return self._source()
        except OSError:
            return ()

    def update(
        self, found: Sequence[str], now_s: float, busy: Set[Node], room: int
    ) -> tuple[list[Node], list[Node]]:
        """Take the addresses it has now; return the services that are new, and those to forget."""
        if not found and not self._nodes:
            shown, self._nobody_shown = self._nobody_shown, True
            return [] if shown else [self._nobody], []
        new: list[Node] = []
        for host in found:
            node = self._nodes[host][0] if host in self._nodes else None
            if node is None:
                if len(new) >= room:
                    continue
                node = Node(self._at(host), self._timeout_s)
                new.append(node)
            self._nodes[host] = node, now_s
        gone = [
            host
            for host, (node, had_s) in self._nodes.items()
            if found and now_s - had_s > self._gone_s and node.now is None and node not in busy
        ]
        forgotten = [self._nodes.pop(host)[0] for host in gone]
        if self._nobody_shown:
            self._nobody_shown = False
            forgotten.append(self._nobody)
        return new, forgotten

    def _at(self, host: str) -> ServiceAddress:
        tls_name = self._host if self._scheme == "https" else ""
        return self._address._replace(url=f"{self._scheme}://{host}{self._path}", tls_name=tls_name)


@final
class Fleet:
    """All services."""

    def __init__(
        self,
        addresses: Sequence[ServiceAddress],
        clock: Clock,
        *,
        every_s: float,
        timeout_s: float,
        gone_s: float,
    ) -> None:
        self.nodes = [
            Node(address, timeout_s) for address in addresses if not address.url.startswith(DNS)
        ]
        self.clock = clock
        self._names = [
            FleetName(address, timeout_s, gone_s)
            for address in addresses
            if address.url.startswith(DNS)
        ]
        self._lookup_due_s = 0.0
        self.rounds = 0
        self._timeout_s = timeout_s
        self._every_s = every_s
        self._looks: dict[asyncio.Future[None], Node] = {}  # under way
        most = ASKED_AT_ONCE if self._names else min(len(addresses), ASKED_AT_ONCE)
        self._pool = ThreadPoolExecutor(most, "console-fleet")

    async def watch(self, changed: Callable[[], None]) -> None:
        """Look at all and call `changed`, again and again; half of the time is for others."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            await self.look()
            changed()
            took_s = loop.time() - began_s
            await asyncio.sleep(max(self._every_s - took_s, took_s))

    async def look(self) -> None:
        """Look at all that are due, and wait for them as long as a round may take."""
        loop = asyncio.get_running_loop()
        if self._names and self._lookup_due_s <= loop.time():
            await self._look_up(loop)
        now_s = loop.time()
        busy = {*self._looks.values()}
        for node in self.nodes:
            if node.due_s <= now_s and node not in busy:
                look = loop.run_in_executor(self._pool, node.look, self.clock.now_us)
                self._looks[look] = node
                look.add_done_callback(self._ended)
        if self._looks:
            await asyncio.wait(self._looks, timeout=self._every_s)
        self.rounds += 1

    async def _look_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask for the addresses of all names; a name that is not known keeps those it had."""
        found = await asyncio.gather(
            *(loop.run_in_executor(self._pool, name.look_up) for name in self._names)
        )
        now_s = loop.time()
        self._lookup_due_s = now_s + LOOKUP_S
        busy = {*self._looks.values()}
        for name, addresses in zip(self._names, found, strict=True):
            there, gone = name.update(addresses, now_s, busy, NODES_MAX - len(self.nodes))
            self.nodes += there
            for node in gone:
                self.nodes.remove(node)
                node.close()

    def _ended(self, look: asyncio.Future[None]) -> None:
        node = self._looks.pop(look)
        rest_s = min(2.0 ** (node.failures - 1), REST_S_MAX) if node.failures else 0.0
        node.due_s = look.get_loop().time() + rest_s
        if not look.cancelled():
            look.result()  # a bug is raised in the loop, and shows in its log

    async def ask_each(
        self, path: str, apps: Sequence[str], most: int = NODES_MAX
    ) -> list[tuple[str, Any, str]]:
        """Ask those that answer: of each its URL, the answer or None, and the error.

        Only those that are one of `apps`, and the first `most` of them.
        """
        alive = [
            node for node in self.nodes if node.now is not None and node.now.get("app") in apps
        ][:most]
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(
                loop.run_in_executor(self._pool, partial(_ask, node.address, path, self._timeout_s))
                for node in alive
            )
        )

    async def close(self) -> None:
        """Close all connections, when nobody uses them any more."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._pool.shutdown)
        for node in self.nodes:
            node.close()


def _ask(address: ServiceAddress, path: str, timeout_s: float) -> tuple[str, Any, str]:
    """On a connection of its own: the node's is busy with looks."""
    node = Node(address, timeout_s)
    try:
        return address.url, node.ask(path), ""
    except SluicegateError as error:
        return address.url, None, str(error)
    finally:
        node.close()
