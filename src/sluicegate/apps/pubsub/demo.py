"""`sluicegate pubsub cluster`: a cluster on this machine, with an account far over its limit.

Each node is a process of its own. One account publishes at ten times its limit at all of them, and
another at 99% of the same limit, moving from node to node; both are shown as they are held to it,
or not refused at all. What it has made is gone when it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TextIO

from sluicegate.apps.pubsub.accounts_view import lines_of
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.apps.pubsub.top import read_nodes
from sluicegate.command_line.account_rates import picture_of
from sluicegate.command_line.live_view import add_view_flags, check_view_flags, open_view
from sluicegate.command_line.process_pool import process_pool
from sluicegate.command_line.service_client import ServiceAddress
from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.policies.access import token_digest
from sluicegate.service.command import new_token, reader_of
from sluicegate.service.settings import settings_from

OVER: Final = "over"
FAIR: Final = "fair"
NODES_MAX: Final = 32
READY_S_MAX: Final = 30.0
TICK_S: Final = 0.01
UNDER_WAY_MAX: Final = 2_000  # publishes that wait for their answer; more are not sent
CHANNELS: Final = 50
MOVES_S: Final = 2.0  # between two nodes that the one that conforms publishes at
NODE_FLAGS: Final = ("--estimate", "--suppression", "--report-s", "--node-ratio")
EXAMPLES: Final = """\
examples:
  sluicegate pubsub cluster                    five nodes
  sluicegate pubsub cluster -n 3 --rate 500    three, and 500 messages/s an account
  sluicegate pubsub cluster --plain            lines, not in place

the source's first attempt, which swings between too much and nothing (--report-s 2: slowly):
  sluicegate pubsub cluster --estimate linear --suppression coin --node-ratio 0

While it runs, end a node: its process number is printed. `sluicegate pubsub top`, curl and the page
work with the address and the token that it prints.
"""


class _DemoNode(NamedTuple):
    name: str
    port: int
    flags: tuple[str, ...]

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"


class _DemoCluster(NamedTuple):
    nodes: Sequence[_DemoNode]
    tokens: Mapping[str, str]  # of accounts
    folder: Path


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("-n", type=int, default=5, metavar="N", help="nodes (default 5)")
    parser.add_argument(
        "--rate", type=int, default=100, metavar="N", help="an account's messages/s (default 100)"
    )
    parser.add_argument(
        "--over", type=float, default=10.0, metavar="X", help="limits that one attempts (10)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="S", help="end after so long (0: at Ctrl-C)"
    )
    for flag in NODE_FLAGS:
        parser.add_argument(flag, metavar="...", help="of each node, as of `sluicegate pubsub`")
    add_view_flags(parser)


def run(arguments: Namespace, out: TextIO | None = None) -> int:
    """Start the nodes, publish, and show until it is interrupted."""
    for flag, value, least, most in (
        ("-n", arguments.n, 1, NODES_MAX),
        ("--rate", arguments.rate, 1, 100_000),
        ("--over", arguments.over, 0, 1_000),
        ("--seconds", arguments.seconds, 0, 86_400),
    ):
        if not least <= value <= most:
            raise BadValue(flag, value, f"give a number from {least:,} to {most:,}")
    check_view_flags(arguments)
    place = sys.stdout if out is None else out
    flags = ["--account-rate", str(arguments.rate)]
    for flag in NODE_FLAGS:
        value = getattr(arguments, flag[2:].replace("-", "_"))
        flags += [] if value is None else [flag, value]
    settings_from(PubSubSettings, *flags)
    with suppress(KeyboardInterrupt), _started(arguments.n, flags) as cluster:
        for line in _greeting(cluster, arguments):
            place.write(f"{line}\n")
        place.flush()
        asyncio.run(_demonstrate(cluster, arguments, place))
    return 0


@contextmanager
def _started(count: int, flags: Sequence[str]) -> Iterator[_DemoCluster]:
    """Nodes that serve, and are gone at the end with all that they kept."""
    with TemporaryDirectory(prefix="sluicegate-pubsub-", ignore_cleanup_errors=True) as name:
        cluster = _prepared(Path(name), count, flags)
        with ExitStack() as stack:
            # A pool of its own for each: one that ends takes its pool with it.
            for node in cluster.nodes:
                pool = stack.enter_context(process_pool(1))
                pool.submit(_serve, node.flags, _log_of(cluster, node))
            try:
                asyncio.run(_wait_until_ready(cluster))
                yield cluster
            finally:
                _end_nodes(cluster)


def _end_nodes(cluster: _DemoCluster) -> None:
    for node in cluster.nodes:
        pid = _pid_of(cluster, node)
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _prepared(folder: Path, count: int, flags: Sequence[str]) -> _DemoCluster:
    names = [f"n{number + 1}" for number in range(count)]
    ports = _free_ports(count)
    node_tokens = {name: new_token() for name in names}
    accounts = {name: new_token() for name in (OVER, FAIR)}
    access = folder / "accounts.toml"
    callers = [(name, token, '"report"') for name, token in node_tokens.items()]
    grants = '"publish", "subscribe", "audit"'
    callers += [(name, token, grants) for name, token in accounts.items()]
    access.write_text(
        "\n".join(
            f'[[callers]]\nname = "{name}"\ntoken_sha256 = "{token_digest(token)}"\n'
            f"grants = [{granted}]\n"
            for name, token, granted in callers
        )
    )
    members = ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip(names, ports, strict=True))
    nodes = [
        _DemoNode(
            name,
            port,
            (
                "--listen", f"127.0.0.1:{port}", "--access", str(access), "--log", "warning",
                "--node", name, "--members", members, "--node-token", node_tokens[name],
                "--history", str(folder / name), "--channel-rate", "0",
                "--leave-s", "0", "--grace-s", "1", *flags,
            ),
        )
        for name, port in zip(names, ports, strict=True)
    ]  # fmt: skip
    return _DemoCluster(nodes, accounts, folder)


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; all are held until all are known."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _log_of(cluster: _DemoCluster, node: _DemoNode) -> str:
    return str(cluster.folder / f"{node.name}.log")


def _serve(flags: Sequence[str], log: str) -> int:
    """Serve one node, in a process of the pool; what it prints goes into its log."""
    # They bring the doors and the stores.
    import logging  # noqa: PLC0415

    from sluicegate.apps.pubsub.app import PubSubApp  # noqa: PLC0415
    from sluicegate.service.host import serve  # noqa: PLC0415
    from sluicegate.service.settings import add_flags  # noqa: PLC0415

    with Path(log).open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    Path(f"{log}.pid").write_text(str(os.getpid()))
    logging.basicConfig(level="WARNING")
    parser = ArgumentParser()
    add_flags(parser, PubSubSettings)
    settings = reader_of(PubSubSettings, parser.parse_args(flags), {})()
    return serve("pubsub", settings, PubSubApp)


def _pid_of(cluster: _DemoCluster, node: _DemoNode) -> int:
    try:
        return int(Path(f"{_log_of(cluster, node)}.pid").read_text() or 0)
    except OSError:
        return 0


async def _wait_until_ready(cluster: _DemoCluster) -> None:
    try:
        async with asyncio.timeout(READY_S_MAX):
            while not all(
                sample.state for sample in await asyncio.to_thread(read_nodes, _sources(cluster))
            ):
                await asyncio.sleep(0.1)
    except TimeoutError:
        detail = Path(_log_of(cluster, cluster.nodes[0])).read_text()[-300:]
        raise Unavailable("the cluster", f"it did not start in time: {detail}") from None


def _sources(cluster: _DemoCluster) -> list[ServiceAddress]:
    return [ServiceAddress(node.url, cluster.tokens[FAIR], "") for node in cluster.nodes]


def _greeting(cluster: _DemoCluster, arguments: Namespace) -> list[str]:
    nodes = ", ".join(
        f"{node.name} {node.url} (process {_pid_of(cluster, node)})" for node in cluster.nodes
    )
    urls = ",".join(node.url for node in cluster.nodes)
    rate, over = arguments.rate, arguments.over
    return [
        f"nodes: {nodes}",
        f"accounts, each limited to {rate:,} messages/s over all nodes:",
        f"  {OVER} attempts {over * rate:,.0f} at all of them; {FAIR} {0.99 * rate:,.0f}, moving",
        f"page: {cluster.nodes[0].url}/ with the token {cluster.tokens[FAIR]}",
        f"also: sluicegate pubsub top --at {urls} --token {cluster.tokens[FAIR]}",
        "",
    ]


async def _demonstrate(cluster: _DemoCluster, arguments: Namespace, out: TextIO) -> None:
    """Publish and show, until it is time."""
    loop = asyncio.get_running_loop()
    load = asyncio.create_task(_publish(cluster, arguments.rate, arguments.over))
    try:
        with ExitStack() as stack:
            show = open_view(arguments, out, os.environ.get("TERM", ""), stack)
            began_s = loop.time()
            before = await asyncio.to_thread(read_nodes, _sources(cluster))
            while not load.done():
                await asyncio.sleep(arguments.every)
                after = await asyncio.to_thread(read_nodes, _sources(cluster))
                show(lines_of(picture_of(before, after)))
                before = after
                over = 0 < arguments.seconds <= loop.time() - began_s
                if over or arguments.once:
                    break
        if load.done():
            await load
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)


async def _publish(cluster: _DemoCluster, rate: int, over: float) -> None:
    """Both accounts at their rates. What is refused is not sent again, so attempts are as said."""
    from sluicegate.client.pubsub import PubSubClient  # noqa: PLC0415 - an extra

    loop = asyncio.get_running_loop()
    began_s = loop.time()
    under_way: set[asyncio.Task[None]] = set()
    sent = {OVER: 0, FAIR: 0}
    rates = {OVER: over * rate, FAIR: 0.99 * rate}
    where: dict[str, Callable[[int], int]] = {
        OVER: lambda number: number,
        FAIR: lambda _: int((loop.time() - began_s) / MOVES_S),
    }
    async with AsyncExitStack() as stack:
        clients = {
            name: [
                await stack.enter_async_context(
                    PubSubClient(f"ws://127.0.0.1:{node.port}", token=token, timeout_ms=2_000)
                )
                for node in cluster.nodes
            ]
            for name, token in cluster.tokens.items()
        }

        async def publish(name: str, number: int) -> None:
            there = [one for one in clients[name] if one.connected or not one.reconnects]
            if there:
                client = there[where[name](number) % len(there)]
                with suppress(SluicegateError):
                    await client.publish(f"channel-{number % CHANNELS}", {"number": number})

        while True:
            for name, per_s in rates.items():
                while sent[name] < per_s * (loop.time() - began_s):
                    sent[name] += 1
                    if len(under_way) < UNDER_WAY_MAX:
                        task = loop.create_task(publish(name, sent[name]))
                        under_way.add(task)
                        task.add_done_callback(under_way.discard)
            await asyncio.sleep(TICK_S)
