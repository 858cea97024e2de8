"""Three masters of a Redis Cluster, with a replica each if wanted.

How the nodes are made one cluster, when they agree, and how slots and masters change hands lives
here. What clients make of that must not.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Literal
from urllib.parse import quote

from redis.crc import key_slot

from tests.engines.child import PORTS, until
from tests.redis.builds import Build
from tests.redis.members import ASK_S_MAX, HOST, READY_S_MAX, RedisMembers

MASTERS = range(1, 4)
SLOTS = 16_384
BUS_OFFSET = 10_000  # where a node's bus is unless it is told, and 6.2 cannot be told


class RedisCluster(RedisMembers):
    """Masters 1 to 3, a third of the slots each; replicas, if there are any, 4 to 6."""

    member = "node"

    def __init__(
        self,
        replicas: Literal[0, 1] = 0,
        build: Build | None = None,
        *,
        durable: bool = False,
        password: str | None = None,
        node_timeout_ms: int = 1_000,
        settings: Sequence[str] = (),
    ) -> None:
        more = [
            "cluster-enabled yes",
            f"cluster-node-timeout {node_timeout_ms}",
            "cluster-require-full-coverage no",
            *settings,
        ]
        size = len(MASTERS) * (1 + replicas)
        super().__init__(size, build, durable=durable, password=password, settings=more)
        self.ids: dict[int, str] = {}  # what a node calls itself; it keeps that over restarts
        self._moved: set[int] = set()

    @property
    def nodes(self) -> list[tuple[str, int]]:
        """Every node's address, also of one that is down just now."""
        return [(HOST, port) for port in self.ports.values()]

    @property
    def url(self) -> str:
        """All nodes in one."""
        who = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis+cluster://{who}{','.join(f'{host}:{port}' for host, port in self.nodes)}"

    # Who has what.

    def slot_map(self, by: int | None = None) -> dict[range, int]:
        """Slots and their masters' numbers, in the eyes of this node or of the first that runs."""
        node_asked = by or next(n for n in self.alive if n not in self._paused)
        numbers = {port: number for number, port in self.ports.items()}
        slots = self.ask("CLUSTER", "SLOTS", number=node_asked)
        return {range(first, last + 1): numbers[at[1]] for first, last, at, *_ in slots}

    def owner(self, slot: int, by: int | None = None) -> int:
        """The number of the master that has a slot."""
        return _owner(self.slot_map(by), slot)

    def key_of(self, number: int, name: str = "key") -> str:
        """A key that this master has now; another name gives another key."""
        slots = self.slot_map()
        if number not in slots.values():
            raise LookupError(f"node {number} is master of no slot just now")
        keys = (f"{name}:{n}" for n in count())
        return next(key for key in keys if _owner(slots, slot_of(key)) == number)

    # Slots that change hands.

    @contextmanager
    def moving(self, slot: int, to: int) -> Iterator[int]:
        """A slot on its way: of what its source no longer has, it answers ASK.

        Gives the source's number. After the block all keys have followed and all nodes agree.
        """
        source = self.owner(slot)
        self._moved.add(slot)
        self.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source], number=to)
        self.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[to], number=source)
        try:
            yield source
        finally:
            self._settle(slot, source, to)

    def move_slot(self, slot: int, to: int) -> None:
        """Give a slot and its keys to another master."""
        if self.owner(slot) != to:
            with self.moving(slot, to):
                pass

    def migrate(self, *keys: str, source: int, to: int) -> None:
        """Carry these keys over; their slot must be on its way."""
        auth = ("AUTH", self.password) if self.password else ()
        timeout_ms = int(ASK_S_MAX * 1_000)
        words = ("MIGRATE", HOST, self.ports[to], "", 0, timeout_ms, *auth, "KEYS", *keys)
        self.ask(*words, number=source)

    def _settle(self, slot: int, source: int, to: int) -> None:
        while keys := self.ask("CLUSTER", "GETKEYSINSLOT", slot, 100, number=source):
            self.migrate(*keys, source=source, to=to)
        # The new owner first: else, were this to end here, a slot would be nobody's.
        for number in dict.fromkeys([to, source, *self._masters()]):
            self.ask("CLUSTER", "SETSLOT", slot, "NODE", self.ids[to], number=number)
        for number in self.alive:
            is_settled = partial(self._sees, slot, to, number)
            what = f"waiting for node {number} to know that {to} has slot {slot}"
            until(is_settled, what, self.ready_s_max)

    def _sees(self, slot: int, owner: int, by: int) -> bool:
        return self.owner(slot, by) == owner

    # Masters that change.

    def replica_of(self, master: int) -> int:
        """The other of the pair, whichever leads it now."""
        return master + len(MASTERS) if master in MASTERS else master - len(MASTERS)

    def failover(self, master: int) -> int:
        """Let the replica of a living master take over in order; gives its number."""
        self.ask("CLUSTER", "FAILOVER", number=self.replica_of(master))
        return self.await_takeover(master)

    def await_takeover(self, master: int) -> int:
        """Return when the replica of this master leads in its place, and all that run agree."""
        replica = self.replica_of(master)
        what = f"waiting for node {replica} to take over from {master}"
        until(lambda: replica in self._masters(), what, self.ready_s_max)
        self.await_ready()
        return replica

    def _masters(self) -> list[int]:
        return [n for n in self.alive if self.ask("ROLE", number=n)[0] == "master"]

    # What `Cluster` asks for.

    def await_ready(self) -> None:
        if not self.ids:
            self._form()
        super().await_ready()
        until(self._agree, "waiting for the nodes to agree on who has what", self.ready_s_max)

    def _agree(self) -> bool:
        # Who follows whom too: a master ignores a failover that a stranger asks for.
        return len({(self._slots(n), self._following(n)) for n in self._members}) == 1

    def _slots(self, by: int) -> frozenset[tuple[range, int]]:
        return frozenset(self.slot_map(by).items())

    def _following(self, by: int) -> frozenset[tuple[str, str]]:
        nodes: str = self.ask("CLUSTER", "NODES", number=by)
        return frozenset((line.split()[0], line.split()[3]) for line in nodes.splitlines())

    def _form(self) -> None:
        """Make the nodes one cluster, as `redis-cli --cluster create` would."""
        for number in self.numbers:
            name = partial(self.ask, "CLUSTER", "MYID", number=number)
            children = [self._children[number]]
            self.ids[number] = until(name, f"waiting for node {number}", READY_S_MAX, children)
            self.ask("CLUSTER", "SET-CONFIG-EPOCH", number, number=number)
        for number in MASTERS:
            self.ask("CLUSTER", "ADDSLOTS", *home_slots(number), number=number)
        for port in self.ports.values():
            self.ask("CLUSTER", "MEET", HOST, port)
        for number in self.numbers[len(MASTERS) :]:
            master = self.ids[self.replica_of(number)]
            follow = partial(self.ask, "CLUSTER", "REPLICATE", master, number=number)
            until(follow, f"waiting for node {number} to know its master", READY_S_MAX)

    def _answers(self, number: int) -> bool:
        text: str = self.ask("CLUSTER", "INFO", number=number)
        info = dict(line.split(":", 1) for line in text.split())
        all_run = len(self._members) == len(self.numbers)
        if info["cluster_state"] != "ok" or (all_run and info["cluster_slots_ok"] != str(SLOTS)):
            return False
        unseen = {self.ids[n] for n in self._members}
        nodes: str = self.ask("CLUSTER", "NODES", number=number)
        for line in nodes.splitlines():
            node, _, flags, _, _, _, _, link, *_ = line.split()
            if link == "connected" and "fail" not in flags:
                unseen.discard(node)
        role = self.ask("ROLE", number=number)
        return not unseen and (role[0] == "master" or role[3] == "connected")

    def _tidy(self) -> None:
        for number in set(MASTERS).difference(self._masters()):
            self.failover(self.replica_of(number))
        for number in MASTERS:
            self.ask("FLUSHALL", number=number)
            self.ask("SCRIPT", "FLUSH", number=number)
        for slot in sorted(self._moved):
            self.move_slot(slot, next(n for n in MASTERS if slot in home_slots(n)))
        self._moved.clear()

    def _free_port(self) -> int:
        while True:  # the bus must be below the kernel's own pick too, and free
            port = super()._free_port()
            if port + BUS_OFFSET in PORTS and _can_listen(port + BUS_OFFSET):
                return port


def slot_of(key: str) -> int:
    """By the key's hash tag if it has one."""
    return key_slot(key.encode())


def home_slots(master: int) -> range:
    """What a master has at first."""
    edges = [SLOTS * n // len(MASTERS) for n in range(len(MASTERS) + 1)]
    return range(edges[master - 1], edges[master])


def _owner(slots: dict[range, int], slot: int) -> int:
    found = next((number for part, number in slots.items() if slot in part), None)
    if found is None:
        raise LookupError(f"no master has slot {slot}")
    return found


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
