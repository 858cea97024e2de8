"""What a refused publish costs, at its channel's home and at a node that would pass it on.

    python -m benchmarks.pubsub_refusals

CPU time of a session from a message's text to its reply, interpreted or compiled as the build is.
The account attempts far more than its limit. The bar is 20 us a refused attempt, with no message to
another node. The whole of a connection, from the socket to the socket, is in `--processes`: two
nodes, a flood of pipelined publishes at each, and the CPU time of both by `/proc`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Final

from websockets.frames import Opcode

from benchmarks.rounds import Bars, build_of
from sluicegate.policies.suppression import suppress
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.apps.pubsub.refused import RefusedAccount
from tests.apps.pubsub.socket import frame, handshake

ATTEMPTS: Final = 20_000
ROUNDS: Final = 5
BAR_US: Final = 20.0
WINDOW: Final = 64  # publishes under way
TICKS_S: Final = os.sysconf("SC_CLK_TCK")


async def cost_us(home: str) -> tuple[float, int, int]:
    """CPU of a refused attempt; how many were refused, and how many let in."""
    refused = RefusedAccount(home)
    texts = [refused.publish_text(number) for number in range(ATTEMPTS)]
    began = time.process_time()
    for text in texts:
        refused.session.receive(text)
    used_us = (time.process_time() - began) * 1e6
    await asyncio.sleep(0)
    return used_us / ATTEMPTS, refused.socket.refused, refused.let_in


def cpu_s(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def flood(port: int, channel: str, count: int) -> int:
    """Publish `count` messages in portions; return the number rejected."""
    frames = [
        frame(
            Opcode.TEXT,
            json.dumps({"type": "publish", "id": n, "channel": channel, "data": "x" * 20}).encode(),
        )
        for n in range(count)
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(handshake(port, f"Authorization: Bearer {token_of('ann')}"))
        sent = answered = refused = 0
        data = b""
        while answered < count:
            more = min(WINDOW - sent + answered, count - sent)
            sock.sendall(b"".join(frames[sent : sent + more]))
            sent += more
            data += sock.recv(1 << 16)
            done = data.rfind(b"}") + 1
            answered += data[:done].count(b'"type":"accepted"')
            answered += (over := data[:done].count(b'"reason":"suppressed"'))
            refused += over
            data = data[done:]
    return refused


def processes() -> None:
    """Two nodes as users start them."""
    flags = ("--account-rate", "100", "--channel-rate", "0", "--received-rate", "1000000")
    with (
        tempfile.TemporaryDirectory() as folder,
        PubSubCluster(Path(folder), 2, *flags, "--received-bytes", "1000000000") as cluster,
    ):
        channel = cluster.channel_at("n1")
        for name, node in cluster.nodes.items():
            flood(node.port, channel, ATTEMPTS // 10)
            before = {other: cpu_s(one.child.pid) for other, one in cluster.nodes.items()}
            refused = flood(node.port, channel, ATTEMPTS)
            used = [
                f"{other} {(cpu_s(one.child.pid) - before[other]) / ATTEMPTS * 1e6:.0f} us"
                for other, one in cluster.nodes.items()
            ]
            print(
                f"  at {name}: {refused:,} of {ATTEMPTS:,} refused; an attempt: {', '.join(used)}"
            )


def main() -> None:
    """Measure, and compare with the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", action="store_true", help="two nodes, too")
    more = parser.parse_args().processes
    bars = Bars()
    print(f"CPU of a refused publish, best of {ROUNDS} rounds, {build_of(suppress.__file__)}")
    for home, where in (("", "at the home"), ("n1", "at another node")):
        rounds = [asyncio.run(cost_us(home)) for _ in range(ROUNDS)]
        best, refused, let_in = min(rounds)
        print(f"  {where}: {best:.1f} us, {refused:,} of {ATTEMPTS:,} refused, {let_in} let in")
        met = best < BAR_US and refused + let_in == ATTEMPTS and let_in < ATTEMPTS // 100
        bars.check(met, f"a refusal {where} costs at most {BAR_US:.0f} us, and is passed to nobody")
    if more:
        processes()
    bars.exit()


if __name__ == "__main__":
    main()
