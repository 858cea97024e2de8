"""Nodes of `sluicegate pubsub` as a user starts them, and a load on them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.histories import homes_of_parts, part_of
from sluicegate.client.pubsub import PubSubClient
from sluicegate.contracts.errors import Refused, SluicegateError
from sluicegate.contracts.reasons import SUPPRESSED
from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.policies.access import token_digest
from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import free_port

TICK_S = 0.01
PARTS = 4


def token_of(name: str) -> str:
    return f"the token of {name}".ljust(43, ".")


def write_access(file: Path, nodes: Sequence[str], accounts: Sequence[str]) -> str:
    callers = [(name, '"report"') for name in nodes]
    callers += [(name, '"publish", "subscribe", "audit"') for name in accounts]
    file.write_text(
        "\n".join(
            f'[[callers]]\nname = "{name}"\ntoken_sha256 = "{token_digest(token_of(name))}"\n'
            f"grants = [{grants}]\n"
            for name, grants in callers
        )
    )
    return str(file)


class PubSubCluster:
    """Nodes n1, n2... on this machine; `apart`, each is alone and knows nothing of the others."""

    def __init__(
        self,
        folder: Path,
        count: int,
        *flags: str,
        accounts: Sequence[str] = ("ann", "bob"),
        strangers: Sequence[str] = (),
        apart: bool = False,
    ) -> None:
        self.names = [f"n{number + 1}" for number in range(count)]
        self.ports = {name: free_port("127.0.0.1") for name in self.names}
        self.members = ",".join(f"{name}=127.0.0.1:{self.ports[name]}" for name in self.names)
        self.access = write_access(folder / "access.toml", [*self.names, *strangers], accounts)
        self._folder = folder
        self._flags = flags
        self._apart = apart
        with ThreadPoolExecutor(count) as pool:
            self.nodes = dict(zip(self.names, pool.map(self.start, self.names), strict=True))

    def start(self, name: str) -> PubSubProcess:
        """Start a node, for the first time or again."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        cluster = ("--node", name, "--members", self.members, "--node-token", token_of(name))
        flags = () if self._apart else cluster
        return PubSubProcess(
            folder,
            "--access",
            self.access,
            *flags,
            *self._flags,
            port=self.ports[name],
            log_folder=self._folder,
        )

    def home_of(self, channel: str, account: str = "ann") -> str:
        """The node that has a channel."""
        parts = self.parts
        if parts > 1:
            return homes_of_parts(self.names, parts)[part_of(ChannelKey(account, channel), parts)]
        return Rendezvous(dict.fromkeys(self.names, 1.0)).owner(f"{account}/{channel}")

    @property
    def urls(self) -> dict[str, str]:
        """Where a client finds each."""
        return {name: f"ws://127.0.0.1:{port}" for name, port in self.ports.items()}

    @property
    def parts(self) -> int:
        """Of a log that all nodes share; 1 is files."""
        return PARTS if PubSubProcess.log_flags(self._folder) else 1

    def channel_at(self, home: str, account: str = "ann", prefix: str = "c") -> str:
        """A channel whose home is that node."""
        return next(
            name
            for name in (f"{prefix}{number}" for number in range(10_000))
            if self.home_of(name, account) == home
        )

    def restart(self, name: str) -> None:
        """Start one that has ended."""
        self.nodes[name].log.unlink()  # or its old line would say that it is ready
        self.nodes[name] = self.start(name)

    def state(self, node: PubSubProcess, account: str = "ann") -> dict[str, Any]:
        """What a node says of the cluster."""
        _, page = node.ask("/v1/state", token=token_of(account))
        found: dict[str, Any] = page["cluster"]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.child.kill()


class Cluster(Protocol):
    """Nodes, as a load needs them."""

    @property
    def urls(self) -> dict[str, str]:
        """Where a client finds each."""


class Load:
    """Accounts that publish at rates of their own at all nodes, and what came of it.

    Nothing waits for an answer before the next is sent, so a slow node does not slow the load.
    """

    def __init__(self, cluster: Cluster, accounts: Sequence[str]) -> None:
        self.admitted: dict[str, list[float]] = {name: [] for name in accounts}  # when
        self.refused: dict[str, list[float]] = {name: [] for name in accounts}
        self.failed: dict[str, list[float]] = {name: [] for name in accounts}
        self._cluster = cluster
        self._clients: dict[tuple[str, str], PubSubClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts = accounts
        self._began_s = 0.0

    async def run(
        self,
        seconds: float,
        rates: dict[str, float],
        place: Callable[[str, float, int], tuple[str, str]],
        events: Sequence[tuple[float, Callable[[], object]]] = (),
        enough: Callable[[float], bool] = lambda _: False,
    ) -> None:
        """Publish for so long, or until it is `enough`; `place` says at which node and in
        which channel, by the account, the instant and the number of the publish."""
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for account in self._accounts:
                for name, url in self._cluster.urls.items():
                    client = PubSubClient(url, token=token_of(account), timeout_ms=3_000)
                    self._clients[account, name] = await stack.enter_async_context(client)
            left = list(events)
            self._began_s = loop.time()
            sent = dict.fromkeys(rates, 0)
            while (now_s := loop.time() - self._began_s) < seconds and not enough(now_s):
                for at_s, do in [one for one in left if one[0] <= now_s]:
                    do()
                    left.remove((at_s, do))
                for account, rate in rates.items():
                    while sent[account] < rate * now_s:
                        name, channel = place(account, now_s, sent[account])
                        sent[account] += 1
                        task = loop.create_task(self._publish(account, name, channel))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
                await asyncio.sleep(TICK_S)
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _publish(self, account: str, name: str, channel: str) -> None:
        sent_s = asyncio.get_running_loop().time() - self._began_s
        try:
            await self._clients[account, name].publish(channel, sent_s)
        except Refused as refused:
            suppressed = refused.decision.reason is SUPPRESSED
            (self.refused if suppressed else self.failed)[account].append(sent_s)
        except SluicegateError:
            self.failed[account].append(sent_s)
        else:
            self.admitted[account].append(sent_s)

    def rate(self, account: str, begin_s: float, end_s: float) -> float:
        """What was admitted a second of what was sent between two instants."""
        count = sum(begin_s <= at_s < end_s for at_s in self.admitted[account])
        return count / (end_s - begin_s)

    def highest(self, account: str, begin_s: float, end_s: float, span_s: float) -> float:
        """The highest rate of any span between them."""
        spans = int((end_s - begin_s - span_s) / 0.1) + 1
        return max(
            self.rate(account, begin_s + at / 10, begin_s + at / 10 + span_s) for at in range(spans)
        )
