"""Kafka as brought here keeps what our adapters will lean on, shown with the plain client.

Only what a broker and its client promise is tested: order, headers, acknowledgement. What
Sluicegate makes of it belongs to the adapters' tests.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from tests.engines.kafka import KafkaCluster

SAFE = {"acks": "all", "enable.idempotence": True}


def test_messages_come_back_in_order_with_their_keys_and_headers(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic("orders")
    producer = kafka.producer(SAFE)
    for number in range(100):
        producer.produce(
            topic,
            key=f"key-{number}",
            value=f"value-{number}",
            headers=[("trace", f"t-{number}".encode()), ("trace", b"again"), ("empty", b"")],
        )
    assert producer.flush(30) == 0

    read = kafka.read_back(topic, at_least=100)

    assert [(m.offset(), m.key(), m.value()) for m in read] == [
        (n, f"key-{n}".encode(), f"value-{n}".encode()) for n in range(100)
    ]
    assert read[42].headers() == [("trace", b"t-42"), ("trace", b"again"), ("empty", b"")]


def test_a_group_goes_on_where_it_committed(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic("jobs")
    producer = kafka.producer(SAFE)
    for number in range(10):
        producer.produce(topic, value=str(number))
    assert producer.flush(30) == 0

    group = {"group.id": topic, "enable.auto.commit": False}
    with kafka.consumer(group) as first:
        first.subscribe([topic])
        taken = [values(first.consume(1, timeout=30)) for _ in range(4)]
        first.commit(asynchronous=False)
    with kafka.consumer(group) as second:
        second.subscribe([topic])
        rest = [values(second.consume(1, timeout=30)) for _ in range(6)]

    assert taken + rest == [[number] for number in range(10)]


def test_an_aborted_transaction_is_not_read(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic("ledger")
    producer = kafka.producer({"transactional.id": topic})
    producer.init_transactions(30)
    for number, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.produce(topic, value=str(number))
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)  # it is written, and then taken back
            producer.abort_transaction(30)

    assert values(kafka.read_back(topic, at_least=2)) == [0, 2]


def test_what_was_acknowledged_outlives_a_killed_broker(kafka_trio: KafkaCluster) -> None:
    total, flushed_at, killed_at = 5_000, 1_000, 2_500
    topic = kafka_trio.create_topic("payments", partitions=6)
    victim = kafka_trio.leaders(topic)[0]
    acknowledged: list[int] = []
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.extend(values([message]))
        else:
            refused.append(error)

    producer = kafka_trio.producer({**SAFE, "linger.ms": 5, "delivery.timeout.ms": 60_000})
    acknowledged_before = under_way = 0
    for number in range(total):
        if number == flushed_at:
            assert producer.flush(30) == 0
        if number == killed_at:
            acknowledged_before, under_way = len(acknowledged), len(producer)
            kafka_trio.kill(victim)
        producer.produce(topic, key=str(number), value=str(number), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(90) == 0

    # It was in the middle: some had been acknowledged, and some were on their way.
    assert flushed_at <= acknowledged_before < killed_at
    assert under_way > 0
    assert refused == []
    assert sorted(acknowledged) == list(range(total))
    assert victim not in kafka_trio.leaders(topic).values()
    # Each exactly once, and in each partition in the order of writing; the victim is still dead.
    read = kafka_trio.read_back(topic, at_least=total)
    assert Counter(values(read)) == Counter(range(total))
    for partition in range(6):
        written = values([m for m in read if m.partition() == partition])
        assert written == sorted(written)

    kafka_trio.restart(victim)

    kafka_trio.await_in_sync(topic)
    assert set(kafka_trio.in_sync(topic).values()) == {(1, 2, 3)}


def test_without_two_copies_nothing_is_acknowledged(kafka_trio: KafkaCluster) -> None:
    topic = kafka_trio.create_topic("strict")
    leader = kafka_trio.leaders(topic)[0]
    outcomes: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        outcomes.append("acknowledged" if error is None else error.name())

    producer = kafka_trio.producer({**SAFE, "delivery.timeout.ms": 3_000, "linger.ms": 0})
    producer.produce(topic, value="1", on_delivery=delivered)
    assert producer.flush(30) == 0
    for broker in kafka_trio.numbers:
        if broker != leader:
            kafka_trio.kill(broker)
    producer.produce(topic, value="2", on_delivery=delivered)
    assert producer.flush(30) == 0

    assert outcomes == ["acknowledged", "_MSG_TIMED_OUT"]


def values(messages: list[Message]) -> list[int]:
    return [int(message.value() or b"") for message in messages]
