"""Members that are found out: leases in a real Redis, and addresses of a name."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed

from sluicegate.apps.pubsub.member_sources import LeasedMembers, address_of
from sluicegate.apps.pubsub.members import MemberList
from sluicegate.apps.pubsub.node_settings import MEMBERS
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.service.settings import settings_from
from sluicegate.stores.redis.settings import Endpoint, parse_url
from sluicegate.system import SystemChance
from tests.apps.pubsub.cluster import token_of, write_access
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import talk
from tests.engines.child import PATIENCE_S, free_port, until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

ANN = token_of("ann")
QUICK = ("--look-s", "0.1", "--lease-s", "1", "--home-s", "0")
UNLIMITED = ("--account-rate", "0", "--channel-rate", "0", "--heartbeat-s", "0.5")
S = 1_000_000
CHANNELS = [f"c{number}" for number in range(12)]
A, B, C = (Endpoint(f"10.0.0.{number}", 7090) for number in (1, 2, 3))


def test_a_node_that_is_found_no_more_stays_for_a_while() -> None:
    members = MemberList("a", A, 10 * S)
    assert members.members == {"a": A}
    assert members.update({"a": A, "b": B}, 0) == {"a": A, "b": B}
    assert members.update({"b": C}, 5 * S) == {"a": A, "b": C}, "it has moved to another address"
    assert members.update({}, 15 * S) == {"a": A, "b": C}
    assert members.update({}, 15 * S + 1) == {"a": A}
    assert members.update({"b": B}, 99 * S) == {"a": A, "b": B}


def test_of_two_nodes_with_the_same_positions_one_is_left_out() -> None:
    taken = "n2"
    twin = next(
        name
        for name in (f"twin{number}" for number in range(100_000))
        if MemberList(name, A, 0).update({taken: B}, 0) == {name: A}
    )
    assert MemberList("a", A, 0).update({taken: B, twin: C}, 0) == {"a": A, taken: B}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("dns://nodes.internal", "dns://NAME:PORT"),
        ("dns://nodes.internal:7090/path", "dns://NAME:PORT"),
        ("dns://:7090", "dns://NAME:PORT"),
        ("dns://nodes.internal:99999", "dns://NAME:PORT"),
        ("etcd://10.0.0.1:2379", "redis://"),
        ("redis://10.0.0.1:port", "host:port"),
    ],
)
def test_what_says_no_members_is_named_with_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(BadValue, match="--members") as raised:
        MEMBERS.parse(text, "--members")
    assert remedy in raised.value.remedy


def test_no_secret_of_a_url_is_shown() -> None:
    with pytest.raises(BadValue) as raised:
        MEMBERS.parse("redis://user:secret@host:port", "--members")
    assert "secret" not in str(raised.value)


def test_a_lease_is_seen_by_others_until_it_runs_out_or_is_let_go(
    redis_server: RedisServer,
) -> None:
    redis_server.heal()  # nodes of another file may have left their leases
    url = f"redis://127.0.0.1:{redis_server.port}"

    def member(name: str, address: Endpoint, lease_s: float) -> LeasedMembers:
        return LeasedMembers(parse_url(url), name, address, int(lease_s * S), SystemChance())

    async def tell() -> None:
        a, b, c = member("a", A, 30), member("b", B, 30), member("c", C, 2)
        assert await a.begin() == {"a": A}
        assert await b.begin() == {"a": A, "b": B}
        assert await c.begin() == {"a": A, "b": B, "c": C}
        assert await a.look() == {"a": A, "b": B, "c": C}
        async with asyncio.timeout(PATIENCE_S):
            while await a.look() != {"a": A, "b": B}:
                await asyncio.sleep(0.05)
        await b.close()
        assert await a.look() == {"a": A}
        # Another by the same name waits for its lease, and no longer.
        twin = member("a", B, 0.1)
        with pytest.raises(BadValue, match=r"10\.0\.0\.1:7090 goes by it"):
            await twin.begin()
        assert await a.look() == {"a": A}
        for one in (a, c, twin):
            await one.close()

    asyncio.run(tell())


class Found:
    """Nodes n1, n2... that find each other."""

    def __init__(self, folder: Path, members: str, *flags: str) -> None:
        self.folder = folder
        self.members = members
        self.flags = (*QUICK, *flags, *UNLIMITED)
        self.nodes: dict[str, PubSubProcess] = {}
        self._access = write_access(folder / "access.toml", [f"n{n}" for n in range(1, 5)], ["ann"])

    def start(self, name: str) -> PubSubProcess:
        node = self.nodes[name] = PubSubProcess(
            self.folder / name,
            "--access", self._access, "--node", name, "--node-token", token_of(name),
            "--members", self.members, *self.flags,
            log_folder=self.folder,
        )  # fmt: skip
        return node

    def until_members(self, *names: str) -> None:
        def agree() -> bool:
            return all(self.seen_by(name) == sorted(names) for name in names)

        children = [self.nodes[name].child for name in names]
        until(agree, f"{names} to be the members", children=children)

    def seen_by(self, name: str) -> list[str]:
        _, page = self.nodes[name].ask("/v1/state", token=ANN)
        seen: list[str] = page["cluster"]["members"]
        return seen


@pytest.fixture
def leased(tmp_path: Path, redis_server: RedisServer) -> Iterator[Found]:
    found = Found(tmp_path, f"redis://127.0.0.1:{redis_server.port}")
    yield found
    for node in found.nodes.values():
        node.child.kill()


def test_nodes_find_each_other_by_leases_and_who_reads_goes_on_when_they_come_and_go(
    leased: Found,
) -> None:
    n1 = leased.start("n1")
    with Subscriber(n1, "news", 0, token=ANN) as reader:
        assert n1.accept("news", 0, ANN) > 0
        assert reader.take(1) == [0]
        n2 = leased.start("n2")
        leased.start("n3")
        leased.until_members("n1", "n2", "n3")
        # Each channel has one home, whoever is asked: all that is accepted has one order.
        for channel in CHANNELS:
            positions = [leased.nodes[f"n{n}"].accept(channel, n, ANN) for n in (1, 2, 3)]
            assert positions == sorted(set(positions))
            for node in leased.nodes.values():
                page = node.history(channel, token=ANN)
                assert [one["position"] for one in page["messages"]] == positions
        leased.nodes["n3"].child.kill()
        leased.until_members("n1", "n2")
        for channel in CHANNELS:
            assert n1.accept(channel, "after", ANN) > 0
        # Whatever became of the channel's home, who reads it misses nothing without being told.
        n2.accept("news", 1, ANN)
        told = [reader.next()]
        while told[-1][1].get("data") != 1:
            told.append(reader.next())
        gaps = [value["lost"] for kind, value in told if kind == "gap"]
        again = [value["data"] for kind, value in told[:-1] if kind == "message"]
        assert set(gaps) <= {0, None}
        # Files stay where they are: a channel that comes back has what it had before.
        assert again == [] or (again == [0] and None in gaps)
    assert n2.end() == 0
    until(lambda: leased.seen_by("n1") == ["n1"], "n2 to let go of its lease")


@pytest.mark.engine
def test_who_has_entered_members_is_to_come_again_when_their_home_moves(leased: Found) -> None:
    n1 = leased.start("n1")
    ring = Rendezvous({"n1": 1.0, "n2": 1.0})
    stays, moves = (
        next(name for name in map("c{}".format, range(1_000)) if ring.owner(f"ann/{name}") == home)
        for home in ("n1", "n2")
    )
    with talk(n1, ANN) as staying, talk(n1, ANN) as moving:
        assert staying.ask("enter", channel=stays, member="mia")["type"] == "entered"
        assert moving.ask("enter", channel=moves, member="tom")["type"] == "entered"
        leased.start("n2")
        with pytest.raises(ConnectionClosed):
            moving.next()
        (there,) = staying.ask("members", channel=stays)["members"]
        assert there["member"] == "mia"
    with talk(n1, ANN) as again:
        until(
            lambda: again.ask("enter", channel=moves, member="tom")["type"] == "entered",
            "the new home",
        )
        assert [one["member"] for one in again.ask("members", channel=moves)["members"]] == ["tom"]


@pytest.mark.engine
def test_a_paused_node_loses_its_lease_and_takes_it_again(leased: Found) -> None:
    leased.start("n1")
    n2 = leased.start("n2")
    leased.until_members("n1", "n2")
    n2.signal(signal.SIGSTOP)
    until(lambda: leased.seen_by("n1") == ["n1"], "the lease to run out")
    n2.signal(signal.SIGCONT)
    leased.until_members("n1", "n2")


@pytest.mark.engine
def test_a_redis_that_is_away_changes_nothing(leased: Found, redis_server: RedisServer) -> None:
    leased.start("n1")
    leased.start("n2")
    leased.until_members("n1", "n2")
    redis_server.pause()
    try:
        until(
            lambda: "nobody knows who comes and goes" in leased.nodes["n1"].log.read_text(),
            "the failure to be said",
        )
        leased.until_members("n1", "n2")
        assert leased.nodes["n1"].publish("news", 1, ANN)[0] == 200
    finally:
        redis_server.resume()


# Names.


def may_mount() -> bool:
    """Whether a process may have an /etc/hosts of its own."""
    tried = subprocess.run(
        ["unshare", "-m", "mount", "--bind", "/etc/hostname", "/etc/hosts"],
        check=False,
        capture_output=True,
    )
    return tried.returncode == 0


class NamedProcess(PubSubProcess):
    """One whose system's resolver reads a file of the test's."""

    hosts = Path()

    def __init__(self, folder: Path, host: str, port: int, *flags: str) -> None:
        self.host = host
        super().__init__(folder, "--listen", f"{host}:{port}", *flags, port=port)

    def command(self) -> list[str]:
        own = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
        return [*own, str(self.hosts), *super().command()]


def test_each_address_of_a_name_is_a_node_and_they_come_and_go(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("a process may not have an /etc/hosts of its own here")
    port = free_port("127.0.0.1")
    NamedProcess.hosts = hosts = tmp_path / "hosts"
    access = write_access(tmp_path / "access.toml", ["n1", "n2"], ["ann"])
    # Only changed in place: it is mounted.
    hosts.write_text("127.0.0.1 localhost\n127.0.0.1 nodes.internal\n127.0.0.2 nodes.internal\n")

    def start(name: str, host: str) -> NamedProcess:
        return NamedProcess(
            tmp_path / name, host, port,
            "--access", access, "--node", name, "--node-token", token_of(name),
            "--members", f"dns://nodes.internal:{port}", *QUICK, *UNLIMITED,
        )  # fmt: skip

    def begin(name: str, host: str) -> tuple[NamedProcess, dict[str, int]]:
        """Start it, and publish as soon as it accepts anything."""
        node, accepted = start(name, host), dict[str, int]()

        def accept(channel: str) -> bool:
            status, reply = node.publish(channel, name, ANN)
            if status == 200:
                accepted[channel] = reply["position"]
            return status == 200

        for channel in CHANNELS:
            until(partial(accept, channel), f"{channel} to have a home")
        return node, accepted

    def members() -> list[str]:
        found: list[str] = n1.ask("/v1/state", token=ANN)[1]["cluster"]["members"]
        return found

    with ExitStack() as stack:
        with ThreadPoolExecutor(2) as pool:
            began = list(pool.map(begin, ("n1", "n2"), ("127.0.0.1", "127.0.0.2")))
        n1, n2 = (stack.enter_context(node) for node, _ in began)
        # None of them took itself for the home of everything before it knew of the other.
        for channel in CHANNELS:
            page = n1.history(channel, token=ANN)
            positions = sorted(accepted[channel] for _, accepted in began)
            assert [one["position"] for one in page["messages"]] == positions, channel
        assert members() == ["n1", "n2"]
        assert n1.metric("sluicegate_pubsub_forwarded_total") > 0
        hosts.write_text("127.0.0.1 localhost\n127.0.0.1 nodes.internal\n")
        until(lambda: members() == ["n1"], "n2 to have left the name")
        n2.child.kill()
        hosts.write_text("127.0.0.1 localhost\n")
        until(
            lambda: "nobody knows who comes and goes" in n1.log.read_text(),
            "a name without addresses to be told",
        )
        assert members() == ["n1"]
        assert n1.publish("news", 1, ANN)[0] == 200


def test_a_node_that_others_could_not_reach_or_would_lose_is_refused() -> None:
    flags = (
        "--node", "n1", "--node-token", token_of("n1"), "--access", "accounts.toml", "--insecure",
        "--members", "redis://127.0.0.1:1",
    )  # fmt: skip
    with pytest.raises(BadValue, match="--lease-s"):
        settings_from(PubSubSettings, *flags, "--lease-s", "1", "--look-s", "0.9")
    settings = settings_from(PubSubSettings, *flags, "--listen", "0.0.0.0:7090")
    with pytest.raises(BadValue, match="--advertise"):
        address_of(settings, settings.listen)
    settings = settings_from(PubSubSettings, *flags, "--advertise", "10.0.0.1:7090")
    assert address_of(settings, settings.listen) == A
