"""The log in Kafka: a producer of librdkafka, and one thread that polls its deliveries.

Appending puts the event into librdkafka's queue, which is bounded, and never waits for a broker.
Every copy that must be in sync has an event before it is acknowledged (`acks=all`), and a retry of
the producer does not double it (idempotence). After an error that ends an idempotent producer for
good, a new one takes its place; what the old one still had fails, and may be sent again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Final, final

from sluicegate.contracts.errors import MissingPackage, SluicegateError, Unavailable
from sluicegate.contracts.event_log import OLDEST
from sluicegate.stores.files.entries import encode_kind
from sluicegate.stores.kafka.envelope import headers, wrap
from sluicegate.stores.kafka.reader import KafkaReader, reader_config
from sluicegate.stores.kafka.url import KafkaSettings

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicPartition,
    )
except ImportError as error:
    raise MissingPackage("confluent-kafka", "kafka") from error

_POLL_S: Final = 0.1
_END_S_MAX: Final = 5.0
_CLOSED: Final = "it is closed"


@final
class KafkaLog:
    """A `contracts.event_log.EventLog`. It connects by itself, whenever there is a broker."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.what = f"the event log {settings.topic} in Kafka at {settings.brokers}"
        self.last_error = ""  # what librdkafka said last, of brokers or deliveries
        self._pid = os.getpid()
        self._lock = Lock()  # the producer is not changed while an event is handed to it
        self._closed = self._ended = self._fatal = False
        self._producer: Producer | None = None
        self._thread: Thread | None = None
        self._looking = Lock()
        self._looker: Consumer | None = None

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        """Keep one event; the promise is its offset, once it is durable. Never waits."""
        encode_kind(kind, body, at_us)
        promise: Future[int] = Future()
        promise.set_running_or_notify_cancel()

        def on_delivery(failure: KafkaError | None, message: Message) -> None:
            self._settle(promise, failure, message)

        try:
            with self._lock:
                if self._closed or self._pid != os.getpid():
                    why = _CLOSED if self._closed else "it was opened before a fork"
                    raise Unavailable(self.what, why)
                if self._producer is None:
                    self._producer = self._begin()
                self._producer.produce(
                    self.settings.topic,
                    wrap(kind, body, at_us),
                    partition=self.settings.partition,
                    headers=headers(kind, at_us),
                    timestamp=max(at_us // 1_000, 0),
                    on_delivery=on_delivery,
                )
        except BufferError:
            why = f"{self.settings.pending_max:,} events wait already (pending_max)"
            promise.set_exception(Unavailable(self.what, why))
        except KafkaException as error:
            promise.set_exception(self._unavailable(error.args[0]))
        except SluicegateError as error:
            promise.set_exception(error)
        return promise

    def reader(self, offset: int = OLDEST) -> KafkaReader:
        """Return a reader of every event from `offset` on."""
        return KafkaReader(self.settings, offset)

    def end(self) -> int:
        """The offset behind the last event, whoever appended it; it waits for an answer."""
        place = TopicPartition(self.settings.topic, self.settings.partition)
        answer = self._ask(
            lambda looker: looker.get_watermark_offsets(place, _END_S_MAX, cached=False)
        )
        if answer is None:
            raise Unavailable(self.what, f"no answer in {_END_S_MAX:g} s")
        return int(answer[1])

    def offset_since(self, at_us: int) -> int:
        """The offset before which all events are older; it waits for an answer."""
        place = TopicPartition(self.settings.topic, self.settings.partition, max(at_us // 1_000, 0))
        (found,) = self._ask(lambda looker: looker.offsets_for_times([place], _END_S_MAX))
        if found.error is not None:
            raise self._unavailable(found.error)
        return int(found.offset) if found.offset >= 0 else self.end()

    def close(self, grace_us: int = 0) -> None:
        """Wait at most so long for what is under way; what is not durable then fails."""
        with self._lock:
            self._closed = True
        with self._looking:
            if self._looker is not None:
                self._looker.close()
        producer, thread = self._producer, self._thread
        if producer is not None and thread is not None:
            producer.flush(grace_us / 1e6)
            self._purge(producer)
            self._ended = True
            thread.join(_POLL_S * 10)

    # Inside.

    def _ask(self, question: Callable[[Consumer], Any]) -> Any:
        try:
            with self._looking:
                if self._closed:
                    raise Unavailable(self.what, _CLOSED)
                if self._looker is None:
                    self._looker = Consumer(reader_config(self.settings))
                return question(self._looker)
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None

    def _begin(self) -> Producer:
        producer = self._make()
        self._thread = Thread(
            target=self._run, args=(producer,), name="sluicegate-kafka", daemon=True
        )
        self._thread.start()
        return producer

    def _make(self) -> Producer:
        settings: dict[str, Any] = {
            "log_level": 0,  # what it has to say comes by `error_cb`
            "compression.type": "lz4",
            **dict(self.settings.driver_settings),
            "bootstrap.servers": self.settings.brokers,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": max(self.settings.timeout_us // 1_000, 10),
            "queue.buffering.max.messages": self.settings.pending_max,
            "queue.buffering.max.kbytes": max(self.settings.pending_bytes_max // 1_024, 1),
            "error_cb": self._note_error,
        }
        try:
            return Producer(settings)
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None

    def _run(self, producer: Producer) -> None:
        while not self._ended:
            producer.poll(_POLL_S)
            if self._fatal and not self._closed:
                producer = self._replace(producer)

    def _replace(self, old: Producer) -> Producer:
        self._fatal = False
        fresh = self._make()
        with self._lock:
            self._producer = fresh
        self._purge(old)
        return fresh

    def _purge(self, producer: Producer) -> None:
        """Fail whatever it still has."""
        producer.purge()
        producer.flush(1.0)

    def _note_error(self, error: KafkaError) -> None:
        self.last_error = error.str()
        self._fatal = self._fatal or error.fatal()

    def _settle(self, promise: Future[int], failure: KafkaError | None, message: Message) -> None:
        if failure is None:
            promise.set_result(message.offset() or 0)
            return
        self._note_error(failure)
        promise.set_exception(self._unavailable(failure))

    def _unavailable(self, error: object) -> Unavailable:
        return Unavailable(self.what, error.str() if isinstance(error, KafkaError) else str(error))
