"""Five nodes in network namespaces of their own, and a bridge that is taken apart. Not a test.

    unshare --net --pid --fork --mount-proc --kill-child python -m tests.apps.pubsub.namespaces DIR

It runs in namespaces of its own, so the machine's network is left alone and all ends with it. A
node has two links: one to the bridge on which the nodes hear each other, and one to the load, which
is never cut. For a while two nodes, the account's master among them, are on a bridge of their own.
Prints when what was published was admitted, and what was refused or failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from sluicegate.kernels.hash_ring import Rendezvous
from tests.apps.pubsub.cluster import Load, token_of, write_access
from tests.engines.child import Child, until

NAMES = ("n1", "n2", "n3", "n4", "n5")
PORT = 7_090
L = 50
TIMES = 6
CUT_S, WHOLE_S, OVER_S = 9.0, 18.0, 25.0


def do(words: str) -> None:
    subprocess.run(words.split(), check=True)


class Nodes:
    """In the order of their names, their addresses end with 1, 2, ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.access = write_access(folder / "access.toml", NAMES, ("ann",))
        self.members = ",".join(f"{name}=10.77.0.{at}:{PORT}" for at, name in self.numbered)
        self.urls = {name: f"ws://10.77.{at}.1:{PORT}" for at, name in self.numbered}
        do("ip link set lo up")
        for bridge in ("whole", "apart"):
            do(f"ip link add {bridge} type bridge")
            do(f"ip link set {bridge} up")
        self.children = [self.start(at, name) for at, name in self.numbered]

    @property
    def numbered(self) -> list[tuple[int, str]]:
        return list(enumerate(NAMES, 1))

    def start(self, at: int, name: str) -> Child:
        """A namespace, its two links, and the node in it."""
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ours = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != ours, "a namespace")
        enter = f"nsenter --target {holder.pid} --net"
        do(f"ip link add peers{at} type veth peer name peers netns {holder.pid}")
        do(f"ip link set peers{at} master whole up")
        do(f"ip link add load{at} type veth peer name load netns {holder.pid}")
        do(f"ip addr add 10.77.{at}.254/24 dev load{at}")
        do(f"ip link set load{at} up")
        for link, address in (("peers", f"10.77.0.{at}"), ("load", f"10.77.{at}.1")):
            do(f"{enter} ip addr add {address}/24 dev {link}")
            do(f"{enter} ip link set {link} up")
        do(f"{enter} ip link set lo up")
        words = [*enter.split(), sys.executable, "-m", "sluicegate.cli", "pubsub"]
        words += ["--listen", f"0.0.0.0:{PORT}", "--insecure", "--access", self.access]
        words += ["--node", name, "--members", self.members, "--node-token", token_of(name)]
        words += ["--account-rate", str(L), "--channel-rate", "0"]
        words += ["--history", str(self.folder / name)]
        return Child(name, words, self.folder / f"{name}.log")

    def wait(self) -> None:
        """Until all listen."""
        for child in self.children:
            until(lambda log=child.log: "is ready" in log.read_text(), child.name)  # type: ignore[misc]

    def home_channel(self, name: str) -> str:
        """A channel of the account that is at home at this node."""
        ring = Rendezvous(dict.fromkeys(NAMES, 1.0))
        return next(one for one in map(str, range(1_000)) if ring.owner(f"ann/{one}") == name)

    def move(self, names: list[str], bridge: str) -> None:
        for at, name in self.numbered:
            if name in names:
                do(f"ip link set peers{at} master {bridge}")


def main(folder: Path) -> None:
    nodes = Nodes(folder)
    nodes.wait()
    master = Rendezvous(dict.fromkeys(NAMES, 1.0)).owner("ann")
    aside = [master, next(name for name in NAMES if name != master)]
    channels = {name: nodes.home_channel(name) for name in NAMES}
    load = Load(nodes, ("ann",))

    def place(_: str, __: float, number: int) -> tuple[str, str]:
        name = NAMES[number % len(NAMES)]
        return name, channels[name]

    events = [
        (CUT_S, lambda: nodes.move(aside, "apart")),
        (WHOLE_S, lambda: nodes.move(aside, "whole")),
    ]
    asyncio.run(load.run(OVER_S, {"ann": float(TIMES * L)}, place, events))
    found = {"admitted": load.admitted, "refused": load.refused, "failed": load.failed}
    json.dump({what: each["ann"] for what, each in found.items()}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
