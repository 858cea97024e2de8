"""A URL says where Kafka is and how to speak to it, and no secret is ever shown."""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.event_log import Event
from sluicegate.stores.kafka.envelope import unwrap, wrap
from sluicegate.stores.kafka.url import parse_url


def test_a_short_url_has_the_defaults() -> None:
    settings = parse_url("kafka://one,two:9093/events")

    assert (settings.brokers, settings.topic) == ("one:9092,two:9093", "events")
    assert (settings.partition, settings.timeout_us, settings.driver_settings) == (
        0,
        30_000_000,
        (),
    )


def test_a_long_url_says_everything() -> None:
    settings = parse_url(
        "kafka+ssl://ann:p%40ss@[::1]:9093/my.topic-1_x?partition=3&timeout_ms=1500&pending_max=5"
        "&pending_bytes_max=4096&damage=stop&ssl.ca.location=/ca.pem&sasl.mechanism=SCRAM-SHA-512"
    )

    assert (settings.brokers, settings.topic) == ("[::1]:9093", "my.topic-1_x")
    assert (settings.partition, settings.timeout_us, settings.damage) == (3, 1_500_000, "stop")
    assert (settings.pending_max, settings.pending_bytes_max) == (5, 4_096)
    assert dict(settings.driver_settings) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "p@ss",
        "ssl.ca.location": "/ca.pem",
    }
    assert "p@ss" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("kafka://h/t", None),
        ("kafka+ssl://h/t", "SSL"),
        ("kafka://u:p@h/t", "SASL_PLAINTEXT"),
        ("kafka+ssl://u:p@h/t", "SASL_SSL"),
    ],
)
def test_the_scheme_and_the_name_say_how_it_is_protected(url: str, protocol: str | None) -> None:
    assert dict(parse_url(url).driver_settings).get("security.protocol") == protocol


@pytest.mark.parametrize(
    "url",
    [
        "kafka:h/t",
        "http://h/t",
        "kafka://h/",
        "kafka://h/a/b",
        "kafka:///t",
        "kafka://h:0/t",
        "kafka://h:many/t",
        "kafka://h/t?acks=0",
        "kafka://h/t?enable.idempotence=false",
        "kafka://h/t?bootstrap.servers=evil",
        "kafka://h/t?partition=-1",
        "kafka://h/t?partition=x",
        "kafka://h/t?timeout_ms=0",
        "kafka://h/t?damage=hide",
        "kafka://h/t?pending_max",
        "kafka://" + ",".join(["h"] * 65) + "/t",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(BadValue):
        parse_url(url)


def test_an_error_shows_no_secret() -> None:
    for url in ("kafka://u:hush@h:0/t?sasl.password=hush", "kafka://u:hush@h/?sasl.password=hush"):
        with pytest.raises(BadValue) as caught:
            parse_url(url)
        assert "hush" not in str(caught.value)


def test_an_event_comes_out_of_its_envelope_as_it_went_in() -> None:
    assert unwrap(5, wrap("news", b"a\nb\0", 7)) == Event(5, 7, "news", b"a\nb\0")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no envelope"),
        (b"", "no envelope"),
        (b"{}\n", "no envelope"),
        (b"[]\n", "no envelope"),
        (b"?\nbody", "no envelope"),
        (b'{"v":2,"at_us":1,"kind":"k"}\n', "version is 2"),
        (b'{"v":1,"at_us":"1","kind":"k"}\n', "when and what"),
    ],
)
def test_what_is_no_event_is_named(value: bytes | None, why: str) -> None:
    assert why in str(unwrap(0, value))
