"""URLs into settings: what they may say, and what errors never say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.redis.settings import Endpoint, RedisSettings, parse_url
from sluicegate.stores.urls import redacted


@pytest.mark.parametrize(
    ("url", "topology", "tls", "endpoints", "db"),
    [
        ("redis://", "single", False, [("127.0.0.1", 6379, "")], 0),
        ("redis://cache", "single", False, [("cache", 6379, "")], 0),
        ("redis://cache:6380/3", "single", False, [("cache", 6380, "")], 3),
        ("redis://cache?db=4", "single", False, [("cache", 6379, "")], 4),
        ("REDIS://[2001:db8::1]:7000", "single", False, [("2001:db8::1", 7000, "")], 0),
        ("rediss://cache", "single", True, [("cache", 6379, "")], 0),
        ("valkey://cache", "single", False, [("cache", 6379, "")], 0),
        ("valkeys://cache", "single", True, [("cache", 6379, "")], 0),
        ("async+redis://cache", "single", False, [("cache", 6379, "")], 0),
        ("unix:///run/redis.sock?db=2", "single", False, [("", 0, "/run/redis.sock")], 2),
        ("redis+unix:///run/redis.sock", "single", False, [("", 0, "/run/redis.sock")], 0),
        ("valkey+unix:///run/redis.sock", "single", False, [("", 0, "/run/redis.sock")], 0),
        (
            "redis+cluster://a:7000,b:7001,c",
            "cluster",
            False,
            [("a", 7000, ""), ("b", 7001, ""), ("c", 6379, "")],
            0,
        ),
        ("async+valkey+cluster://a:7000", "cluster", False, [("a", 7000, "")], 0),
        ("rediss+cluster://a", "cluster", True, [("a", 6379, "")], 0),
        (
            "redis+sentinel://a:26379,b/mymaster",
            "sentinel",
            False,
            [("a", 26379, ""), ("b", 26379, "")],
            0,
        ),
        ("valkey+sentinel://a/mymaster/2", "sentinel", False, [("a", 26379, "")], 2),
        ("redis+sentinel://a?service_name=mymaster", "sentinel", False, [("a", 26379, "")], 0),
    ],
)
def test_a_url_says_where_the_servers_are(
    url: str, topology: str, tls: bool, endpoints: list[tuple[str, int, str]], db: int
) -> None:
    settings = parse_url(url)
    assert (settings.topology, settings.tls, settings.db) == (topology, tls, db)
    assert list(settings.endpoints) == endpoints
    assert settings.service == ("mymaster" if topology == "sentinel" else "")


def test_credentials_are_percent_decoded_and_may_be_a_password_alone() -> None:
    settings = parse_url("redis://ann%40home:p%2Fa%3As%40s@cache")
    assert (settings.user, settings.password) == ("ann@home", "p/a:s@s")
    settings = parse_url("redis://:secret@cache")
    assert (settings.user, settings.password) == ("", "secret")
    settings = parse_url("redis+unix://:secret@/run/redis.sock")
    assert (settings.password, settings.endpoints[0].path) == ("secret", "/run/redis.sock")


def test_a_query_sets_bounds_and_times_in_its_units() -> None:
    settings = parse_url("redis://cache?timeout_ms=2.5&inflight_max=10&tls_verify=false&user=&db=1")
    assert settings.timeout_us == 2_500
    assert settings.inflight_max == 10
    assert settings.tls_verify is False
    settings = parse_url(
        "rediss://cache?socket_timeout=0.5&ssl_cert_reqs=none&ssl_ca_certs=/ca.pem"
    )
    assert (settings.timeout_us, settings.tls_verify, settings.tls_ca) == (
        500_000,
        False,
        "/ca.pem",
    )


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("cache:6379", "begin it with"),
        ("http://cache", "begin it with"),
        ("redis://a,b", "name one server"),
        ("redis://cache:port", "host:port"),
        ("redis://cache:0", "host:port"),
        ("redis://cache:70000", "host:port"),
        ("redis+cluster://a:7000,,b", "host:port"),
        ("redis://[::1", "write scheme"),
        ("redis://cache/three", "database's number"),
        ("redis+cluster://a/1", "only database 0"),
        ("redis+sentinel://a", "master's name"),
        ("redis+unix://", "socket's path"),
        ("redis://cache?timeout=3", "ask for one of"),
        ("redis://cache?timeout_ms=soon", "milliseconds"),
        ("redis://cache?timeout_ms=inf", "milliseconds"),
        ("redis://cache?timeout_ms=0", "from 100 to"),
        ("redis://cache?inflight_max=0", "from 1 to"),
        ("redis://cache?tls_verify=maybe", "true or false"),
        ("redis://cache?timeout_ms", "write scheme"),
        ("redis://ann@cache", "give the password too"),
        ("redis://cache#here", "%23"),
    ],
)
def test_a_wrong_url_says_what_would_be_right(url: str, remedy: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_url(url)
    assert remedy in str(caught.value)
    assert caught.value.field.startswith("redis.")


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@cache:port",
        f"redis://ann:{SECRET}@a,b",
        f"redis://ann:{SECRET}/more@cache",
        f"redis://ann:more#{SECRET}@cache",
        f"redis://ann:more?{SECRET}@cache",
        f"redis://ann:x@{SECRET}@cache/three",
        f"redis://:{SECRET}@[::1",
        f"redis://cache:bad?password={SECRET}",
        f"redis://cache?password={SECRET}&db=x",
        f"http://:{SECRET}@cache",
        f"{SECRET}@cache",
        f"redis+sentinel://a?sentinel_password={SECRET}",
    ],
)
def test_no_error_tells_the_password(url: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_url(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        assert SECRET not in repr(getattr(error, "value", ""))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_the_settings_do_not_show_the_password() -> None:
    settings = parse_url(f"redis+sentinel://:{SECRET}@a/m?sentinel_password={SECRET}")
    assert settings.sentinel_password == SECRET
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)


@given(st.text(), st.text())
def test_nothing_before_the_last_at_is_shown(secret: str, host: str) -> None:
    assert redacted(f"redis://{secret}@end").startswith("redis://***@")
    parts = redacted(f"redis://:{SECRET}{secret}@{host}")
    assert SECRET not in parts


@given(st.text(alphabet="redis:/+@?#[]%,=&0 ", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        settings = parse_url("redis://" + text)
    except BadValue:
        return
    assert settings.endpoints


def test_settings_made_by_hand_are_checked_too() -> None:
    with pytest.raises(BadValue, match=r"redis\.backoff_us_max"):
        RedisSettings(backoff_us=2_000_000, backoff_us_max=1_000_000)
    with pytest.raises(BadValue, match=r"redis\.endpoints"):
        RedisSettings(endpoints=())
    assert str(Endpoint("::1", 6379)) == "[::1]:6379"
    assert str(Endpoint("", 0, "/run/redis.sock")) == "/run/redis.sock"
