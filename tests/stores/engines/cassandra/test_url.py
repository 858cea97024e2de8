"""What a Cassandra's URL may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.stores.engines.cassandra.schema import BUCKETS, _id_of, bucket_of
from sluicegate.stores.engines.cassandra.session import CassandraSession, VerifyFlags
from sluicegate.stores.engines.cassandra.url import parse_url


def test_a_url_says_nodes_keyspace_and_settings() -> None:
    settings = parse_url(
        "cassandra://me:s%40cret@a,b:9043/shop?consistency=local_quorum&replication=2&order=paxos"
        "&timeout_ms=250&create=no&datacenter=eu-1"
    )
    assert (settings.hosts, settings.port) == (("a", "b"), 9043)
    assert (settings.keyspace, settings.consistency, settings.order) == (
        "shop",
        "local_quorum",
        "paxos",
    )
    assert (settings.replication, settings.timeout_us, settings.create) == (2, 250_000, False)
    assert (settings.user, settings.password, settings.datacenter) == ("me", "s@cret", "eu-1")
    assert "s@cret" not in repr(settings)


def test_what_is_not_said_has_its_default() -> None:
    settings = parse_url("cassandra://[::1]:9999")
    assert (settings.hosts, settings.port, settings.keyspace) == (("::1",), 9999, "sluicegate")
    assert (settings.consistency, settings.order, settings.create) == ("quorum", "clock", True)


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("cassandra:a", "engine"),
        ("cassandra://a:1,b:2/k", "engine"),
        ("cassandra://a:port/k", "engine"),
        ("cassandra://a/k?x", "engine"),
        ("cassandra://a/k?x=1", "engine"),
        ("cassandra://a/k@b", "engine"),
        ("cassandra://me@a/k", "cassandra.user"),
        ("cassandra://a/Drop", "cassandra.keyspace"),
        ("cassandra://a/k;drop", "cassandra.keyspace"),
        ("cassandra://a/k?consistency=one", "cassandra.consistency"),
        ("cassandra://a/k?order=none", "cassandra.order"),
        ("cassandra://a/k?tls=yes&tls_ca=ca&tls_verify=much", "cassandra.tls_verify"),
        ("cassandra://a/k?tls=yes&tls_verify=name", "cassandra.tls_verify"),
        ("cassandra://a/k?datacenter=a'b", "cassandra.datacenter"),
        ("cassandra://a/k?timeout_ms=soon", "engine?timeout_ms"),
        ("cassandra://a/k?inflight_max=4", "cassandra.load_max"),
        ("cassandra://a/k?replication=0", "cassandra.replication"),
    ],
)
def test_a_url_that_cannot_be_meant_names_what_is_wrong(url: str, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_url(url)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("query", "bits", "names"),
    [("", 1, False), ("&tls_verify=address", 3, False), ("&tls_verify=name", 5, True)],
)
def test_what_is_verified_of_a_node_is_as_it_was_said(
    query: str, bits: int, names: bool, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("an authority")
    settings = parse_url(f"cassandra://a/k?tls=yes&tls_ca={tmp_path}/ca.pem{query}")
    options = CassandraSession(settings)._tls()
    assert options["ssl_verify_flags"] == VerifyFlags(bits)
    assert options["hostname_resolution"] is names


def test_a_password_is_never_in_an_error() -> None:
    with pytest.raises(BadValue) as caught:
        parse_url("cassandra://me:s3cret@a:port/k")
    assert "s3cret" not in str(caught.value)


def test_a_table_has_one_id_whoever_makes_it_and_another_in_another_keyspace() -> None:
    assert _id_of("kv", "rows_1") == _id_of("kv", "rows_1")
    assert len({_id_of("kv", "rows_1"), _id_of("kv", "parts_1"), _id_of("kv2", "rows_1")}) == 3
    assert [len(part) for part in _id_of("kv", "rows_1").split("-")] == [8, 4, 4, 4, 12]


def test_buckets_are_what_they_were_in_what_is_stored() -> None:
    assert BUCKETS == 64
    assert [bucket_of(one) for one in (b"a", b"user1", b"\xff" * 240)] == [3, 21, 23]
