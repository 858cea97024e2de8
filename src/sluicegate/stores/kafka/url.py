"""Where the brokers are and how to speak to them: a URL read into frozen settings.

    kafka://host:9092,host2:9092/topic?partition=0&timeout_ms=30000&sasl.mechanism=PLAIN

`kafka+ssl://` speaks TLS. A name and password before the @ are those of SASL. What has a dot in its
name is a setting of librdkafka and passed on, if it is about security, sockets or the size of
batches; what would weaken the promise of a log is not. A secret is in no repr and in no error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.urls import (
    Query,
    bounded,
    check_bounds,
    parse_query,
    query_of,
    redacted,
    split_url,
)

SKIP: Final = "skip"
STOP: Final = "stop"
BROKERS_MAX: Final = 64
TOPIC_CHARS_MAX: Final = 249
_SCHEMES: Final = {"kafka": False, "kafka+ssl": True}
# Of librdkafka, by what their names begin with.
_DRIVER_PREFIXES: Final = (
    "sasl.",
    "ssl.",
    "security.",
    "socket.",
    "client.",
    "broker.",
    "reconnect.",
    "compression.",
    "linger.",
    "batch.",
    "message.max.",
    "fetch.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Everything a log in Kafka is told; checked when made."""

    brokers: str  # host:port,host:port
    topic: str
    partition: int = bounded(0, 0, 1 << 20)  # a log has one order, so it has one partition
    # An event that was not acknowledged in this time fails; it may be there all the same.
    timeout_us: int = bounded(30_000_000, 10_000, 86_400_000_000)
    pending_max: int = bounded(100_000, 1, 10_000_000)  # events that wait for their acknowledgement
    pending_bytes_max: int = bounded(64 << 20, 1_024, 1 << 31)
    damage: str = SKIP  # for readers: report what is no event and go on, or stop there
    driver_settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_bounds(self, "kafka")
        if not self.topic or len(self.topic) > TOPIC_CHARS_MAX or not _plain(self.topic):
            raise BadValue(
                "kafka.topic", self.topic, "end the URL with the topic: letters, digits, . _ -"
            )
        if self.damage not in {SKIP, STOP}:
            raise BadValue("kafka.damage", self.damage, "give skip or stop")


_QUERY: Final[Query] = {
    **query_of(KafkaSettings, "brokers", "topic", "driver_settings"),
}


def parse_url(url: str) -> KafkaSettings:
    """Return the settings that a URL says; what it does not say has its default."""
    shown = redacted(url)
    scheme, colon, _ = url.partition("://")
    tls = _SCHEMES.get(scheme)
    if not colon or tls is None:
        raise BadValue("event_log.url", shown, "begin it with kafka:// or kafka+ssl://")
    parts, pairs = split_url(url, "event_log.url", "kafka://host:port/topic")
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    values: dict[str, object] = {"brokers": _brokers(hosts, shown)}
    driver_settings: dict[str, str] = {}
    if tls or user:
        driver_settings["security.protocol"] = ("SASL_" if user else "") + (
            "SSL" if tls else "PLAINTEXT"
        )
    if user:
        driver_settings["sasl.mechanism"] = "PLAIN"
        driver_settings["sasl.username"], driver_settings["sasl.password"] = (
            unquote(user),
            unquote(password),
        )
    for name, text in pairs:
        if "." in name:
            if not name.startswith(_DRIVER_PREFIXES):
                raise BadValue(
                    "event_log.url",
                    name,
                    f"only what begins with {', '.join(_DRIVER_PREFIXES)} passes",
                )
            driver_settings[name] = text
    ours = [(name, text) for name, text in pairs if "." not in name]
    values.update(parse_query(ours, _QUERY, "event_log.url"))
    topic = unquote(parts.path.strip("/"))
    return KafkaSettings(topic=topic, driver_settings=tuple(driver_settings.items()), **values)  # type: ignore[arg-type]


def _brokers(hosts: str, shown: str) -> str:
    found = []
    for text in hosts.split(","):
        host, colon, port = text.rpartition(":")
        if not colon or "]" in port:
            host, port = text, "9092"
        if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
            raise BadValue("event_log.url", shown, "give each broker as host:port, split by commas")
        found.append(f"{host}:{port}")
    if len(found) > BROKERS_MAX:
        raise BadValue("event_log.url", shown, f"name at most {BROKERS_MAX} brokers")
    return ",".join(found)


def _plain(topic: str) -> bool:
    return topic.isascii() and all(c.isalnum() or c in "._-" for c in topic)
