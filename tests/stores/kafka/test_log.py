"""The log in Kafka against real brokers, one and three, killed and returned."""

from __future__ import annotations

import time
from collections.abc import Sized
from concurrent.futures import Future, wait
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.event_log import Event, Reader
from sluicegate.limits.dead_letter import BEGUN, CLOSED, DEAD_LETTER, DeadLetter, unpack
from sluicegate.limits.dead_letters import DeadLetters
from sluicegate.stores.event_logs import open_log
from sluicegate.stores.kafka.envelope import AT_HEADER, KIND_HEADER
from sluicegate.stores.kafka.url import parse_url
from sluicegate.system import SystemClock
from sluicegate.testing import START_US
from tests.engines.child import until

if TYPE_CHECKING:
    from tests.engines.kafka import KafkaCluster

# So many appends or offers end while the broker is dead: one that waited for it would be the last.
CALLS_MIN = 2_000


def url(cluster: KafkaCluster, topic: str, query: str = "") -> str:
    return f"kafka://{cluster.bootstrap}/{topic}?{query}".rstrip("?")


def kill_and_return(cluster: KafkaCluster, calls: Sized) -> None:
    """Kill the broker amid the calls, and let it return when many more have ended."""
    until(lambda: len(calls) > 100, "waiting for calls")
    cluster.kill(1)
    calls_before = len(calls)
    until(lambda: len(calls) > calls_before + CALLS_MIN, "waiting for calls without a broker")
    cluster.restart(1)


def all_of(reader: Reader, at_least: int) -> list[Event]:
    events: list[Event] = []
    for _ in range(400):
        events += reader.read(1_000, 100_000)
        if reader.at_end and len(events) >= at_least:
            break
    reader.close()
    return events


def test_what_is_appended_is_read_back_in_order_with_its_envelope(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic("log")
    log = open_log(url(kafka, topic))

    promises = [log.append("news", f"body {n}\n\0".encode(), START_US + n) for n in range(100)]
    offsets = [promise.result(60) for promise in promises]
    log.close(1_000_000)

    assert offsets == list(range(100))
    assert all_of(log.reader(), 100) == [
        Event(n, START_US + n, "news", f"body {n}\n\0".encode()) for n in range(100)
    ]
    assert [event.offset for event in all_of(log.reader(97), 3)] == [97, 98, 99]
    message = kafka.read_back(topic, 100)[3]
    headers = dict(message.headers() or [])
    assert headers[KIND_HEADER] == b"news"
    assert headers[AT_HEADER] == str(START_US + 3).encode()
    assert message.timestamp()[1] == START_US // 1_000


def test_a_foreign_message_is_reported_and_passed_over_or_ends_the_reading(
    kafka: KafkaCluster,
) -> None:
    topic = kafka.create_topic("mixed")
    log = open_log(url(kafka, topic))
    log.append("news", b"one", START_US).result(60)
    producer = kafka.producer()
    producer.produce(topic, value=b"who knows", partition=0)
    producer.flush(30)
    log.append("news", b"two", START_US).result(60)
    log.close()

    reader = log.reader()
    assert [event.body for event in all_of(reader, 2)] == [b"one", b"two"]
    assert [(one.at, one.why) for one in reader.damage] == [(1, "the message has no envelope")]
    strict = open_log(url(kafka, topic, "damage=stop")).reader()
    with pytest.raises(Unavailable, match="damage=skip reads on"):
        all_of(strict, 3)
    strict.close()


def test_a_reader_follows_and_knows_when_it_is_at_the_end(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic("followed")
    log = open_log(url(kafka, topic))
    reader = log.reader()
    for n in range(3):
        log.append("tick", str(n).encode(), START_US).result(60)
        events: list[Event] = []
        for _ in range(100):
            events += reader.read(10, 100_000)
            if events:
                break
        assert [event.body for event in events] == [str(n).encode()]
    for _ in range(100):
        assert not reader.read(10, 50_000)
        if reader.at_end:
            break
    assert reader.at_end
    reader.close()
    log.close()
    with pytest.raises(Unavailable, match="closed"):
        reader.read(1, 0)


def test_a_topic_that_is_not_there_breaks_its_promises_in_time(kafka: KafkaCluster) -> None:
    log = open_log(url(kafka, "nowhere", "timeout_ms=1000"))

    error = log.append("news", b"", START_US).exception(30)

    assert isinstance(error, Unavailable)
    assert "nowhere" in str(error)
    log.close()
    assert isinstance(log.append("news", b"", START_US).exception(1), Unavailable)


def test_a_full_queue_breaks_the_promise_at_once() -> None:
    pytest.importorskip("confluent_kafka")
    from sluicegate.stores.kafka.log import KafkaLog

    log = KafkaLog(parse_url("kafka://127.0.0.1:1/t?pending_max=5"))

    promises = [log.append("news", b"", START_US) for _ in range(7)]

    assert [promise.done() for promise in promises] == [False] * 5 + [True] * 2
    assert "pending_max" in str(promises[6].exception())
    log.close()
    assert all(isinstance(promise.exception(1), Unavailable) for promise in promises)
    assert log.last_error


def test_a_killed_broker_that_returns_loses_nothing_acknowledged_and_blocks_nobody(
    kafka: KafkaCluster,
) -> None:
    topic = kafka.create_topic("killed")
    log = open_log(url(kafka, topic, "timeout_ms=60000"))
    promises: list[tuple[bytes, Future[int]]] = []
    broker = Thread(target=kill_and_return, args=(kafka, promises))
    broker.start()
    while broker.is_alive():
        body = str(len(promises)).encode()
        promises.append((body, log.append("news", body, START_US)))
        time.sleep(0.001)
    broker.join()
    wait([promise for _, promise in promises], 60)
    log.close(1_000_000)

    acknowledged = {
        promise.result(): body for body, promise in promises if promise.exception() is None
    }
    read = {event.offset: event.body for event in all_of(log.reader(), len(acknowledged))}
    assert len(acknowledged) > 100
    assert {offset: read.get(offset) for offset in acknowledged} == acknowledged
    assert set(read.values()) <= {body for body, _ in promises}


def test_three_brokers_lose_nothing_acknowledged_when_the_leader_is_killed(
    kafka_trio: KafkaCluster,
) -> None:
    topic = kafka_trio.create_topic("trio")
    log = open_log(url(kafka_trio, topic, "timeout_ms=60000"))
    promises = [log.append("news", str(n).encode(), START_US) for n in range(2_000)]
    promises[200].result(60)
    kafka_trio.kill(kafka_trio.leaders(topic)[0])
    promises += [log.append("news", str(n).encode(), START_US) for n in range(2_000, 3_000)]
    wait(promises, 60)
    log.close(1_000_000)

    assert all(promise.exception() is None for promise in promises)
    events = all_of(log.reader(), 3_000)
    assert [event.body for event in events] == [str(n).encode() for n in range(3_000)]
    assert all(a.offset < b.offset for a, b in pairwise(events))


@pytest.mark.parametrize("buffer_max", [100_000, 200])
def test_no_decision_waits_for_a_killed_kafka_and_what_is_lost_is_counted(
    kafka: KafkaCluster, buffer_max: int
) -> None:
    topic = kafka.create_topic("letters")
    log = open_log(url(kafka, topic, "timeout_ms=60000"))
    letters = DeadLetters(log, node="n", clock=SystemClock(), buffer_max=buffer_max)
    letters_offered: list[DeadLetter] = []
    broker = Thread(target=kill_and_return, args=(kafka, letters_offered))
    broker.start()
    # A decision loop: one decision a millisecond, each of which failed and is offered.
    while broker.is_alive():
        user = f"user-{len(letters_offered)}"
        letter = DeadLetter(user, "r", 1, START_US, allowed=True, limit=None)
        letters.offer(letter)
        letters_offered.append(letter)
        time.sleep(0.001)
    broker.join()
    stats = letters.close(60_000_000)

    assert stats.offered == len(letters_offered) > CALLS_MIN
    assert stats.depth == 0
    assert stats.offered == stats.written + stats.dropped
    events = all_of(log.reader(), stats.written + 2)
    assert (events[0].kind, events[-1].kind) == (BEGUN, CLOSED)
    read = [unpack(event.body) for event in events if event.kind == DEAD_LETTER]
    numbers = {one.number for one in read if isinstance(one, DeadLetter)}
    assert len(numbers) == stats.written
    assert (stats.dropped > 0) == (buffer_max == 200)
