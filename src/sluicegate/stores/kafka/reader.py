"""Reader: reads one partition from an offset on, without a group: who reads keeps the place.

A message that is no event of ours is reported and passed over, or ends the reading, by setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from sluicegate.contracts.errors import MissingPackage, Unavailable
from sluicegate.contracts.event_log import Damage, Event
from sluicegate.stores.kafka.envelope import unwrap
from sluicegate.stores.kafka.url import STOP, KafkaSettings

try:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
except ImportError as error:
    raise MissingPackage("confluent-kafka", "kafka") from error

DAMAGE_MAX: Final = 1_000  # reports kept
# It is asked for by the client, and never used: nothing is committed.
_GROUP: Final = "sluicegate-reader"


@final
class KafkaReader:
    """A `contracts.event_log.Reader`, of one thread at a time."""

    def __init__(self, settings: KafkaSettings, offset: int) -> None:
        self.what = f"the event log {settings.topic} in Kafka at {settings.brokers}"
        self._settings = settings
        self._next_offset = offset
        self._end = False
        self._closed = False
        self._damage: list[Damage] = []
        self._consumer = Consumer(reader_config(settings))
        place = OFFSET_BEGINNING if offset <= 0 else offset
        self._consumer.assign([TopicPartition(settings.topic, settings.partition, place)])

    def read(self, events_max: int, wait_us: int) -> Sequence[Event]:
        """Return the next events, oldest first. With none there yet, one is waited for so long."""
        if self._closed:
            raise Unavailable(self.what, "its reader is closed")
        first = self._consumer.poll(wait_us / 1e6)
        if first is None:
            return []
        events: list[Event] = []
        self._accept(first, events)
        if len(events) < events_max and not self._end:
            for message in self._consumer.consume(events_max - len(events), timeout=0):
                self._accept(message, events)
        return events

    @property
    def at_end(self) -> bool:
        """Whether everything that was there at the last look has been read."""
        return self._end

    @property
    def damage(self) -> Sequence[Damage]:
        """What was passed over so far because it could not be read."""
        return self._damage

    def close(self) -> None:
        """Leave the brokers."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    # Inside.

    def _accept(self, message: Message, events: list[Event]) -> None:
        failure = message.error()
        if failure is not None:
            if failure.code() == KafkaError._PARTITION_EOF:
                self._end = True
            elif not failure.retriable() and failure.code() not in _TRANSIENT:
                raise Unavailable(self.what, failure.str())
            return
        self._end = False
        offset = message.offset() or 0
        if offset < self._next_offset:
            return
        event = unwrap(offset, message.value())
        self._next_offset = offset + 1
        if isinstance(event, Event):
            events.append(event)
        else:
            self._report(offset, event)

    def _report(self, offset: int, why: str) -> None:
        place = f"{self._settings.topic}[{self._settings.partition}]"
        damage = Damage(place, offset, offset, why)
        if self._settings.damage == STOP:
            raise Unavailable(self.what, f"{damage} (damage=skip reads on)")
        if len(self._damage) < DAMAGE_MAX:
            self._damage.append(damage)


def reader_config(settings: KafkaSettings) -> dict[str, Any]:
    """What a consumer of librdkafka is told."""
    return {
        "log_level": 0,
        **{
            name: text for name, text in settings.driver_settings if not name.startswith(_PRODUCERS)
        },
        "bootstrap.servers": settings.brokers,
        "group.id": _GROUP,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",  # where retention was faster than we
        "isolation.level": "read_committed",
    }


# What only a producer is told.
_PRODUCERS: Final = ("compression.", "linger.", "batch.")
# A broker that is away comes back, and is asked again without us.
_TRANSIENT: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
    }
)
