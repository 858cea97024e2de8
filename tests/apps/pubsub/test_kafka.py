"""History in a real Kafka: the suites of files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluicegate.apps.pubsub.fenced_log import ANSWER_KIND
from sluicegate.stores.kafka.envelope import KIND_HEADER
from tests.apps.pubsub.cluster import PARTS, PubSubCluster, token_of
from tests.apps.pubsub.on_kafka import on_kafka
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.test_members import Found
from tests.apps.pubsub.test_nodes import (
    cluster,
    test_a_home_that_is_killed_takes_its_channels_with_it_and_nothing_else,
    test_a_node_reads_a_channel_once_however_many_read_it_there,
    test_what_is_published_anywhere_reaches_subscribers_everywhere_in_one_order,
    test_who_resumes_at_another_node_misses_nothing_and_gets_nothing_twice,
)
from tests.apps.pubsub.test_presence import (
    test_to_enter_and_update_is_charged_and_refused_like_a_publish_and_to_leave_is_charged,
)
from tests.apps.pubsub.test_usage import (
    test_an_account_is_warned_then_restricted_and_a_kill_changes_neither,
)
from tests.apps.pubsub.test_whole import (
    server,
    test_a_kill_loses_nothing_that_was_accepted,
    test_a_position_of_another_history_is_a_gap,
    test_a_subscriber_resumes_where_it_was,
    test_any_json_arrives_as_it_was_sent,
    test_history_is_read_in_pages,
    test_what_is_published_reaches_each_subscriber_of_the_channel,
    test_what_was_accepted_survives_the_process,
)
from tests.engines.child import PATIENCE_S, until

if TYPE_CHECKING:
    from tests.engines.kafka import KafkaCluster
    from tests.engines.redis import RedisServer

pytestmark = pytest.mark.engine
ANN = token_of("ann")
WRITERS = 8
SUITES = (
    cluster,
    server,
    test_a_home_that_is_killed_takes_its_channels_with_it_and_nothing_else,
    test_a_kill_loses_nothing_that_was_accepted,
    test_a_node_reads_a_channel_once_however_many_read_it_there,
    test_a_position_of_another_history_is_a_gap,
    test_a_subscriber_resumes_where_it_was,
    test_an_account_is_warned_then_restricted_and_a_kill_changes_neither,
    test_any_json_arrives_as_it_was_sent,
    test_history_is_read_in_pages,
    test_to_enter_and_update_is_charged_and_refused_like_a_publish_and_to_leave_is_charged,
    test_what_is_published_anywhere_reaches_subscribers_everywhere_in_one_order,
    test_what_is_published_reaches_each_subscriber_of_the_channel,
    test_what_was_accepted_survives_the_process,
    test_who_resumes_at_another_node_misses_nothing_and_gets_nothing_twice,
)


@pytest.fixture(scope="module", autouse=True)
def _on_kafka(kafka: KafkaCluster) -> Iterator[None]:
    with on_kafka(kafka):
        yield


def test_a_channel_moves_to_another_node_with_all_its_messages(tmp_path: Path) -> None:
    """And who resumes there from a position of the old home misses nothing and hears of no gap."""
    flags = ("--account-rate", "0", "--channel-rate", "0")
    with PubSubCluster(tmp_path, 2, *flags) as two:
        channels = [f"moving-{number}" for number in range(20)]
        before = {name: two.home_of(name) for name in channels}
        positions = {
            name: [two.nodes["n1"].accept(name, number, ANN) for number in range(3)]
            for name in channels
        }
        for node in two.nodes.values():
            node.child.kill()
    for folder in ("n1", "n2"):  # disks are lost, too
        for file in (tmp_path / folder).rglob("*"):
            if file.is_file():
                file.unlink()
    with PubSubCluster(tmp_path, 3, *flags) as three:
        moved = [name for name in channels if three.home_of(name) != before[name]]
        assert len(moved) > 2
        for name in channels:
            page = three.nodes["n3"].history(name, token=ANN)
            assert [one["data"] for one in page["messages"]] == [0, 1, 2], name
            assert [one["position"] for one in page["messages"]] == positions[name]
            last = three.nodes["n2"].accept(name, 3, ANN)
            assert last > positions[name][-1]
        with Subscriber(three.nodes["n1"], moved[0], positions[moved[0]][0], token=ANN) as reader:
            assert reader.take(3) == [1, 2, 3]


def test_a_home_that_was_paused_while_another_took_over_accepts_nothing_more(
    tmp_path: Path,
) -> None:
    flags = ("--channel-rate", "0", "--account-rate", "0", "--heartbeat-s", "0.5")
    with (
        ThreadPoolExecutor(WRITERS) as pool,
        PubSubProcess(tmp_path / "old", *flags, log_folder=tmp_path) as old,
        Subscriber(old, "news") as reader,
        Subscriber(old, "quiet") as idle,
    ):
        positions = [old.accept("news", number) for number in range(3)]
        old.signal(signal.SIGSTOP)
        try:
            # Under way when it wakes up, before it can have noticed anything.
            late = [pool.submit(old.publish, "news", f"late {n}") for n in range(WRITERS)]
            new = PubSubProcess(tmp_path / "new", *flags, log_folder=tmp_path)
            positions.append(new.accept("news", 3))
        finally:
            old.signal(signal.SIGCONT)
        with new:
            for one in late:
                status, reply = one.result()
                assert (status, reply["reason"]) == (503, "home_unavailable")
            assert reader.take(3) == [0, 1, 2]
            for waiting in (reader, idle):
                kind, gap = waiting.next()
                assert (kind, gap["lost"]) == ("gap", 0)
            with Subscriber(old, "news") as refused:
                assert refused.status == 503
            positions.append(new.accept("news", 4))
            assert positions == sorted(set(positions))
            with Subscriber(new, "news", positions[0]) as resumed:
                assert resumed.take(4) == [1, 2, 3, 4]
            new.child.kill()
    with PubSubProcess(tmp_path / "next", *flags, log_folder=tmp_path) as server:
        page = server.history("news")
        assert [one["data"] for one in page["messages"]] == [0, 1, 2, 3, 4]
        assert [one["position"] for one in page["messages"]] == positions


def test_a_home_that_nobody_publishes_at_notices_that_it_is_none_any_more(tmp_path: Path) -> None:
    with (
        PubSubProcess(tmp_path / "old", log_folder=tmp_path) as old,
        Subscriber(old, "news") as idle,
        PubSubProcess(tmp_path / "new", log_folder=tmp_path) as new,
    ):
        kind, gap = idle.next()
        assert (kind, gap["lost"]) == ("gap", 0)
        assert old.publish("news", 1)[1]["reason"] == "home_unavailable"
        new.accept("news", 1)


def test_homes_that_a_stranger_took_stay_his_while_he_lives_and_come_back_by_themselves(
    tmp_path: Path, kafka: KafkaCluster
) -> None:
    flags = ("--account-rate", "0", "--channel-rate", "0")
    with PubSubCluster(tmp_path, 2, *flags) as two:
        mine = {name: two.channel_at(name) for name in two.names}
        for name, channel in mine.items():
            assert two.nodes[name].accept(channel, 0, ANN) > 0

        def refused(name: str) -> bool:
            status, reply = two.nodes[name].publish(mine[name], "refused", ANN)
            return (status, reply.get("reason")) == (503, "home_unavailable")

        with (
            Subscriber(two.nodes["n1"], mine["n1"], 0, token=ANN) as reader,
            # Alone it is the home of everything: it was started without the list.
            PubSubProcess(
                tmp_path / "stranger", *flags, "--access", two.access, log_folder=tmp_path
            ) as stranger,
        ):
            for name, channel in mine.items():
                until(partial(refused, name), f"{name} to find out")
                assert stranger.accept(channel, 1, ANN) > 0
            _, url, *_ = PubSubProcess.log_flags(tmp_path)
            answers = partial(count_answers, kafka, url.rpartition("/")[2])
            until(lambda: answers() >= PARTS, "the stranger to be asked, and to answer")
            assert all(map(refused, mine)), "nobody takes from him what he has"
            stranger.child.kill()
            for name, channel in mine.items():
                until(
                    lambda name=name, channel=channel: (  # type: ignore[misc]
                        two.nodes[name].publish(channel, 2, ANN)[0] == 200
                    ),
                    f"{name} to be the home again",
                )
                page = two.nodes[name].history(channel, token=ANN)
                assert [one["data"] for one in page["messages"]] == [0, 1, 2]
            told = [reader.next() for _ in range(4)]
            assert [value["data"] for kind, value in told if kind == "message"] == [0, 1, 2]
            assert [value["lost"] for kind, value in told if kind == "gap"] == [0]


def count_answers(kafka: KafkaCluster, topic: str) -> int:
    return sum(
        dict(one.headers() or ()).get(KIND_HEADER) == ANSWER_KIND.encode()
        for one in kafka.read_back(topic, 1)
    )


def test_channels_move_as_nodes_come_and_go_and_nobody_misses_a_message(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    found = Found(tmp_path, f"redis://127.0.0.1:{redis_server.port}", "--lease-s", "2")
    channels = [f"moving-{number}" for number in range(8)]  # in all parts
    accepted: dict[str, list[int]] = {channel: [] for channel in channels}
    numbers = iter(range(1 << 30))

    def publish_at(name: str, rounds: int) -> None:
        for _ in range(rounds):
            for channel in channels:
                until(partial(accept, name, channel), f"{channel} to have a home")

    def accept(name: str, channel: str) -> bool:
        number = next(numbers)
        status, reply = found.nodes[name].publish(channel, number, ANN)
        if status == 200:
            accepted[channel].append(number)
        else:  # for certain not accepted
            assert reply["reason"] == "home_unavailable", reply
        return status == 200

    def check(reader: Subscriber, channel: str) -> None:
        left = list(accepted[channel])
        while left:
            kind, value = reader.next()
            if kind == "gap":
                assert value["lost"] == 0
            else:
                assert value["data"] == left.pop(0)

    with ExitStack() as stack:
        try:
            found.start("n1")
            readers = [
                stack.enter_context(Subscriber(found.nodes["n1"], channel, 0, token=ANN))
                for channel in channels
            ]
            publish_at("n1", 3)
            found.start("n2")
            found.until_members("n1", "n2")
            publish_at("n2", 3)
            found.start("n3")
            found.until_members("n1", "n2", "n3")
            publish_at("n3", 3)
            found.nodes["n2"].child.kill()
            publish_at("n1", 3)
            assert found.nodes["n3"].end() == 0
            found.until_members("n1")
            publish_at("n1", 3)
            for reader, channel in zip(readers, channels, strict=True):
                check(reader, channel)
                page = found.nodes["n1"].history(channel, token=ANN)
                assert [one["data"] for one in page["messages"]] == accepted[channel]
        finally:
            for node in found.nodes.values():
                node.child.kill()


def test_a_log_that_is_none_is_named(tmp_path: Path) -> None:
    server = PubSubProcess(tmp_path, "--event-log", "amqp://user:secret@host/topic", wait=False)
    try:
        assert server.child.wait(PATIENCE_S) not in (0, None)
        said = server.log.read_text()
        assert "--event-log" in said
        assert "kafka://HOST:PORT/TOPIC" in said
        assert "secret" not in said
    finally:
        server.child.kill()
