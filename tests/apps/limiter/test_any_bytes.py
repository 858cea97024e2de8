"""Whatever bytes a caller sends of itself, the answer is a decision, on a counter of its own.

Asked as Envoy asks, with raw bytes over gRPC, where counts are in the process and where they are in
Redis. A proxy that lets traffic pass when the question fails makes of every error a way in.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import grpc
import pytest
from envoy.service.ratelimit.v3 import rls_pb2
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.protos import rate_limiter_pb2
from tests.apps.limiter.process import LimiterProcess, rules_file
from tests.engines.child import run_to_end, until

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

MESH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CHECK = "/sluicegate.v1.RateLimiter/Check"
OK, OVER = rls_pb2.RateLimitResponse.OK, rls_pb2.RateLimitResponse.OVER_LIMIT

RULES = """\
domain: shop
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: tenant
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: /api/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: path
    value: '*.png'
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: path
    value: '/named/\\xff'
    rate_limit: {unit: hour, requests_per_unit: 1}
"""
NATIVE = """\
version: 1
rules:
  - {rule_id: each, resource_path: /each, limit: 2, window: 1h}
  - {rule_id: below, resource_path: /below/*, limit: 2, window: 1h}
  - {rule_id: both, resource_path: /both/*, limit: 2, window: 1h, per: user+resource}
"""

VALUES = [
    b"",
    b"ann",
    b"\xff",
    b"\xfe",
    b"\xff\xff",
    b"\xc3\xbf",  # the character of 0xff
    b"\xc3",
    b"\xed\xa0\x80",  # half of a character
    b"\xc0\x80",
    b"\\xff",
    b"\\x5cxff",
    b"\\\xff",
    b"\xef\xbf\xbd",
    b"\x00",
    b"\x00\x00",
    b"\x1f",
    b"ann\x1fshop/user",
    b"ann\n",
    b"ann\r\n",
    b"ann\xc2\x85",
    b"*",
    b"%",
    b"%25",
    b"}",
    b"{}",
    b'"',
    b"|",
    b"a" * 299 + b"\xff",
    b"a" * 300,
    b"a" * 301,
    b"a" * 302,
    b"\xff" * 60_000,
    b"\xff" * 59_999 + b"\xfe",
    b"a" * 60_000,
    b"a" * 59_999 + b"b",
    b"}" * 60_000,
    "🎈".encode() * 15_000,
    b"a" * 200_000,
    b"a" * 199_999 + b"b",
    b"\xff" * 199_999 + b"b",
]


def field(number: int, data: bytes) -> bytes:
    """A field of a message: a length and bytes, which need not be what the .proto says they are."""
    size, length = len(data), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def mesh_request(*descriptors: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Envoy's question."""
    return field(1, b"shop") + b"".join(
        field(2, b"".join(field(1, field(1, key) + field(2, value)) for key, value in entries))
        for entries in descriptors
    )


Call: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"


class Asker:
    """Asks over one connection, in bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.mesh_call: Call = channel.unary_unary(MESH)
        self.check_call: Call = channel.unary_unary(CHECK)

    def mesh(self, *entries: tuple[bytes, bytes]) -> rls_pb2.RateLimitResponse:
        answer = self.mesh_call(mesh_request(entries), timeout=60)
        return rls_pb2.RateLimitResponse.FromString(answer)

    def code(self, *entries: tuple[bytes, bytes]) -> int:
        return int(self.mesh(*entries).overall_code)

    def check(self, user: bytes, path: bytes, headers: bytes = b"") -> bool:
        request = field(1, user) + field(2, path) + headers
        answer = self.check_call(request, timeout=60)
        return rate_limiter_pb2.RateLimitResponse.FromString(answer).allowed


@contextmanager
def limiter(folder: Path, *flags: str) -> Iterator[tuple[LimiterProcess, Asker]]:
    rules = folder / "rules"
    rules.mkdir()
    rules_file(rules, RULES, "mesh.yaml")
    rules_file(rules, NATIVE, "native.yaml")
    with (
        LimiterProcess(folder, "--rules", str(rules), "--shed", "off", *flags) as process,
        grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel,
    ):
        yield process, Asker(channel)


@pytest.fixture(scope="module", params=["memory", "redis"])
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LimiterProcess, Asker]]:
    folder = tmp_path_factory.mktemp("limiter")
    flags = ["--rls-metadata", "on"]
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        # Time enough for a busy machine: what is decided without the store proves nothing here.
        flags += ["--store", f"redis://127.0.0.1:{server.port}?timeout_ms=5000"]
    with limiter(folder, *flags) as found:
        yield found


@pytest.fixture
def asker(asked: tuple[LimiterProcess, Asker]) -> Asker:
    return asked[1]


@pytest.fixture
def process(asked: tuple[LimiterProcess, Asker]) -> LimiterProcess:
    return asked[0]


def test_any_value_is_a_key_of_its_own(asker: Asker) -> None:
    for expected in (OK, OK, OVER):
        for value in VALUES:
            assert asker.code((b"user", value)) == expected, value[:40]


def test_values_do_not_run_together_where_several_make_a_key(asker: Asker) -> None:
    pairs = [
        (b"a", b"b|c"),
        (b"a|b", b"c"),
        (b"a\x1fb", b"c"),
        (b"a", b"b\x1fc"),
        (b"\xff", b"\xff\xff"),
        (b"\xff\xff", b"\xff"),
        (b"\xc3", b"\xbf"),
        (b"", b"\xc3\xbf"),
        (b"\xc3\xbf", b""),
    ]
    for expected in (OK, OK, OVER):
        for tenant, user in pairs:
            assert asker.code((b"tenant", tenant), (b"user", user)) == expected


def test_a_rule_matches_what_stands_around_such_a_byte(asker: Asker) -> None:
    paths = [b"/api/\xff", b"/api/\xfe\xfd", b"/api/" + b"\xff" * 2_000]
    assert [asker.code((b"path", path)) for path in paths] == [OK, OK, OVER]
    assert [asker.code((b"path", path)) for path in (b"\xff.png", b"\xfe\xff.png")] == [OK, OVER]


def test_a_rule_can_name_such_a_byte(asker: Asker) -> None:
    assert [asker.code((b"path", b"/named/\xff")) for _ in range(2)] == [OK, OVER]
    # What only looks like it is something else, of which no rule speaks.
    assert [asker.code((b"path", b"/named/\\xff")) for _ in range(2)] == [OK, OK]


def test_a_key_that_is_no_text_is_a_key_without_a_rule(asker: Asker) -> None:
    assert asker.code((b"\xff", b"x")) == OK
    assert asker.code((b"user\x00", b"x")) == OK


def test_a_descriptor_too_much_for_any_rule_takes_none_of_the_others_away(asker: Asker) -> None:
    deep = [(b"user", b"deep")] * 17
    request = mesh_request(deep, [(b"user", b"beside")])
    codes = [
        rls_pb2.RateLimitResponse.FromString(asker.mesh_call(request)).overall_code
        for _ in range(3)
    ]
    assert codes == [OK, OK, OVER]


@pytest.mark.parametrize("size", [100, 17_000, 61_000])
def test_what_a_proxy_passes_on_of_its_clients_trace_is_no_way_past_the_limit(
    asker: Asker, size: int
) -> None:
    request = mesh_request([(b"user", b"traced %d" % size)])
    state = (("tracestate", "a=" + "~" * size),)
    codes = [
        rls_pb2.RateLimitResponse.FromString(
            asker.mesh_call(request, timeout=60, metadata=state)
        ).overall_code
        for _ in range(3)
    ]
    assert codes == [OK, OK, OVER]


def test_envoy_is_told_of_it_in_text(asker: Asker) -> None:
    answer = asker.mesh((b"user", b"told \xff"))
    entries = answer.dynamic_metadata["descriptors"][0]["entries"]
    assert list(entries) == ["user=told \\xff"]


def test_any_user_and_path_are_decided_by_the_native_service(asker: Asker) -> None:
    users = [*VALUES, *(b"u" * size for size in (1_023, 1_024, 1_025, 1_026))]
    for expected in (True, True, False):
        for user in users:
            assert asker.check(user, b"/each") is expected, user[:40]


def test_a_path_of_any_bytes_and_length_is_below_its_rule(asker: Asker) -> None:
    paths = [b"/below/\xff", b"/below/" + b"a/" * 5_000, b"/below/" + b"\xff" * 50_000]
    assert [asker.check(b"path", path) for path in paths] == [True, True, False]


def test_users_and_paths_that_are_long_and_wide_have_a_key_together(asker: Asker) -> None:
    wide = "🎈".encode()
    user, path = wide * 2_000, b"/both/" + wide * 4_000
    assert [asker.check(user, path) for _ in range(3)] == [True, True, False]
    assert asker.check(user + b"a", path)
    assert asker.check(user, path + b"a")


def test_more_headers_than_are_read_and_a_header_twice_end_in_a_decision(asker: Asker) -> None:
    headers = b"".join(
        field(3, field(1, b"x-%d" % number) + field(2, b"\xff")) for number in range(16_000)
    )
    twice = field(3, field(1, b"x-a") + field(2, b"1")) + field(
        3, field(1, b"X-A") + field(2, b"2")
    )
    for sent in (headers, twice):
        assert asker.check(b"headers" + sent[-1:], b"/each", sent)


def test_why_finds_such_a_user_by_its_bytes_and_by_what_is_shown(
    asker: Asker, process: LimiterProcess
) -> None:
    for _ in range(3):
        asker.code((b"user", b"zo\xeb"))
    status, found = process.ask("/v1/audit?user=zo%EB")
    assert status == 200
    assert found["user"] == "zo\\xeb"
    assert {one["entity"] for one in found["decisions"]} == {"zo\\xeb"}
    assert {one["allowed"] for one in found["decisions"]} == {True, False}
    assert process.ask("/v1/audit?user=zo%5Cxeb")[1] == found
    for word in (b"zo\xeb", b"zo\\xeb"):
        told = subprocess.run(
            [sys.executable, "-m", "sluicegate.cli", "why", word, "--at", process.url],
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert b"REFUSED by rule 'shop/user'" in told.stdout


def test_the_page_of_metrics_can_be_read_whatever_a_label_holds(
    asker: Asker, process: LimiterProcess
) -> None:
    odd = [b'"\n\\', b"\xff\r\n", b"\\n", b"\xe2\x80\xa8", b"\x00"]
    for value in odd:
        asker.code((b"user", value))
    _, page = process.ask("/metrics")
    samples = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
    assert len(samples) == len(set(samples))
    shown = {labels["rule"] for _, pairs in samples if "rule" in (labels := dict(pairs))}
    assert {f"shop.user_{text}" for text in ('"\n\\', "\\xff\r\n", "\\n", "\u2028")} <= shown


def test_the_same_user_is_one_through_every_door(asker: Asker, process: LimiterProcess) -> None:
    import redis

    user, path = b"zo\xeb everywhere", b"/each"
    client = redis.Redis(port=process.port)
    assert client.execute_command("SG.CHECK", user, path)[0] == 1  # type: ignore[no-untyped-call]
    headers = {"x-sluicegate-user": user.decode("latin-1"), "x-sluicegate-resource": path.decode()}
    status, told = process.ask("/v1/check", headers=headers)
    assert (status, told["allowed"]) == (200, True)
    assert not asker.check(user, path)
    client.close()


def test_json_names_half_of_a_character_and_is_decided(process: LimiterProcess) -> None:
    answers = [process.check("\udbff", "/each")["allowed"] for _ in range(3)]
    assert answers == [True, True, False]
    assert process.check("\udbfe", "/each")["allowed"]
    long = [process.check("j" * 200_000, "/each")["allowed"] for _ in range(3)]
    assert long == [True, True, False]
    headers = {f"x-{number}": "\udfff" for number in range(500)}
    assert process.check("json headers", "/each", headers=headers)["allowed"]


def test_a_dead_letter_keeps_such_a_user(tmp_path: Path, redis_server: RedisServer) -> None:
    letters = tmp_path / "letters"
    store = f"redis://127.0.0.1:{redis_server.port}"
    with limiter(tmp_path, "--store", store, "--dlq", f"files:{letters}") as (process, asker):
        redis_server.pause()
        try:
            asker.code((b"user", b"lost \xff\n"))
            until(lambda: process.metric("sluicegate_dead_letters_written_total") >= 1, "it")
        finally:
            redis_server.resume()
    told = run_to_end(
        [sys.executable, "-m", "sluicegate.cli", "dlq", "show", f"files:{letters}", "--json"]
    )
    assert "lost \\\\xff\\n" in told.stdout
