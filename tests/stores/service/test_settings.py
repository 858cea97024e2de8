"""Where a service is: what a URL may say, and what it must."""

from __future__ import annotations

import pytest

from sluicegate import BadValue, Limiter, Permits
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.service.settings import is_service, parse_service_url


def test_a_url_says_where_and_how() -> None:
    settings = parse_service_url("sluicegates://:to%2Fken@limits:7071?timeout_ms=50&tls_verify=no")
    assert [str(endpoint) for endpoint in settings.endpoints] == ["limits:7071"]
    assert (settings.tls, settings.password, settings.timeout_us, settings.tls_verify) == (
        True,
        "to/ken",
        50_000,
        False,
    )
    assert settings.kind == "Sluicegate"


def test_what_a_url_does_not_say_has_a_default() -> None:
    settings = parse_service_url("sluicegate://")
    assert [str(endpoint) for endpoint in settings.endpoints] == ["127.0.0.1:7070"]
    assert (settings.tls, settings.password, settings.timeout_us) == (False, "", None)
    assert parse_service_url("sluicegate://a?timeout_ms=50", timeout_us=5_000).timeout_us == 5_000


def test_several_addresses_must_be_said_to_share_their_counts() -> None:
    with pytest.raises(BadValue, match=r"add \?shared=yes if all of them count in one store"):
        parse_service_url("sluicegate://a:7070,b:7070")
    settings = parse_service_url("sluicegate://a:7070,b?shared=yes")
    assert [str(endpoint) for endpoint in settings.endpoints] == ["a:7070", "b:7070"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://a", "sluicegate.url: .* begin it with one of sluicegate://, sluicegates://"),
        ("sluicegate://a/3", "sluicegate.url: .* nothing is behind it"),
        ("sluicegate://a:x", "sluicegate.url: .* host:port"),
        ("sluicegate://a?colour=red", "sluicegate.url: 'colour'"),
        ("sluicegate://a?timeout_ms=soon", r"sluicegate.url\?timeout_ms: 'soon'"),
        ("sluicegate://a?timeout_ms=0", "sluicegate.timeout_us: 0"),
    ],
)
def test_a_wrong_url_is_told_in_the_services_own_terms(url: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        parse_service_url(url)


def test_a_secret_is_in_no_error() -> None:
    with pytest.raises(BadValue) as error:
        parse_service_url("sluicegate://:secret@a/3")
    assert "secret" not in str(error.value)


def test_a_redis_url_names_no_service_and_says_nothing_of_sharing() -> None:
    assert not is_service("redis://a")
    assert is_service("SLUICEGATES://a")
    with pytest.raises(BadValue, match="begin it with one of redis://"):
        parse_url("sluicegate://a")
    with pytest.raises(BadValue, match=r"redis\.shared"):
        parse_url("redis://a?shared=yes")


def test_a_limiter_tells_a_wrong_url_when_it_is_made() -> None:
    with pytest.raises(BadValue, match=r"sluicegate\.url"):
        Limiter("5/s", store_url="sluicegate://a/3")
    with pytest.raises(BadValue, match="sluicegate://host:7070"):
        Limiter("5/s", store_url="sluicegate")


def test_permits_are_not_kept_by_a_service() -> None:
    with pytest.raises(BadValue, match="begin it with one of redis://"):
        Permits(5, store_url="sluicegate://a")
