"""Blobs in S3, against a real server: the contract, conditions enforced, every trouble told.

A tap between the two does what networks do: it is silent, cuts in the middle, hides a header.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.contracts.blob_store import Blob, BlobStore
from sluicegate.contracts.errors import BadValue, Conflict, MissingPackage, Unavailable
from sluicegate.stores.blob_stores import open_blobs
from sluicegate.stores.blobs import s3 as s3_module
from sluicegate.stores.blobs.s3_url import S3Settings, parse_url
from tests.stores.blobs.conformance import MANY, BlobStoreConformance, value
from tests.stores.blobs.races import ROOT, race
from tests.stores.blobs.s3_server import SECRETS, S3Server
from tests.stores.blobs.tap import Tap

ONCE = "&retries=0"


class TestS3(BlobStoreConformance):
    @pytest.fixture
    def url(self, s3_server: S3Server) -> str:
        return s3_server.url()


@pytest.fixture
def tap(s3_server: S3Server) -> Iterator[Tap]:
    tap = Tap(s3_server.port)
    yield tap
    tap.close()


@pytest.fixture
def tapped(s3_server: S3Server, tap: Tap) -> BlobStore:
    return open_blobs(s3_server.url(port=tap.port, settings=ONCE))


def answer(status: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return (head + body).encode()


def refusal(status: str, code: str) -> bytes:
    secrets = ", ".join(SECRETS.values())
    return answer(
        status, f"<Error><Code>{code}</Code><Message>you said {secrets}</Message></Error>"
    )


# Conditions.


def test_processes_that_race_lose_nothing(s3_server: S3Server) -> None:
    race(s3_server.url(), 10)


@pytest.mark.parametrize(
    ("header", "conditions"),
    [("If-None-Match", {"if_absent": True}), ("If-Match", {"if_tag": "x"})],
)
def test_a_server_that_does_not_mind_conditions_is_found_out_before_anything_is_lost(
    tapped: BlobStore, tap: Tap, header: str, conditions: dict[str, object]
) -> None:
    tapped.put("orders/7.json", b"first")
    tap.deaf = True
    for _ in range(2):
        with pytest.raises(Unavailable, match=rf"does not enforce .*\({header}\).* lost"):
            tapped.put("orders/7.json", b"second", **conditions)  # type: ignore[arg-type]
    assert value(tapped, "orders/7.json") == b"first"
    # What needs no condition goes on, and the same server with its senses back is taken.
    tapped.put("nodes/one.json", b"report")
    tap.deaf = False
    with pytest.raises(Conflict):
        tapped.put("orders/7.json", b"second", **conditions)  # type: ignore[arg-type]
    assert list(tapped.names()) == ["nodes/one.json", "orders/7.json"]


def test_a_server_is_asked_once_whether_it_minds(tapped: BlobStore, tap: Tap) -> None:
    tag = tapped.put("a", b"one", if_absent=True)
    assert tap.requests == 3  # the second probe has to be refused
    tapped.put("b", b"one", if_absent=True)
    assert tap.requests == 4
    for data in (b"two", b"three"):
        tag = tapped.put("a", data, if_tag=tag)
    assert tap.requests == 7
    assert list(tapped.names()) == ["a", "b"]


def test_a_later_store_finds_the_probe_of_an_earlier_one(s3_server: S3Server, tap: Tap) -> None:
    url = s3_server.url(port=tap.port)
    open_blobs(url).put("a", b"one", if_absent=True)
    before = tap.requests
    open_blobs(url).put("b", b"one", if_absent=True)
    assert tap.requests == before + 2


def test_conditional_write_without_any_answer_is_unavailable(
    s3_server: S3Server, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "_GAP_US_MIN", 1_000)
    blobs = open_blobs(s3_server.url(port=tap.port))
    tag = blobs.put("warm", b"x", if_absent=True)
    blobs.put("warm", b"y", if_tag=tag)
    old = blobs.put("orders/1", b"old")
    for name, conditions in (("orders/0", {"if_absent": True}), ("orders/1", {"if_tag": old})):
        before, tap.cut_after = tap.requests, 0
        with pytest.raises(Unavailable):
            blobs.put(name, b"new", **conditions)
        assert before + 3 <= tap.requests <= before + 9  # each is repeated twice at most
        tap.cut_after = -1
        assert value(blobs, name) == b"new"  # it had happened


def test_conditional_writes_survive_slow_down(
    s3_server: S3Server, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "_GAP_US_MIN", 100)
    monkeypatch.setattr(s3_module, "_GAP_US_MAX", 1_000)
    tap.slow_down = random.Random(7)
    blobs = open_blobs(s3_server.url(port=tap.port))
    for number in range(40):
        name, first, second = f"orders/{number}", b"first %d" % number, b"second"
        tag = blobs.put(name, first, if_absent=True)
        assert blobs.get(name, bytes_max=MANY) == Blob(first, tag)
        later = blobs.put(name, second, if_tag=tag)
        assert blobs.get(name, bytes_max=MANY) == Blob(second, later)
        # A blob with other bytes stays a conflict, whatever the number of attempts.
        with pytest.raises(Conflict):
            blobs.put(name, b"third", if_tag=tag)
        with pytest.raises(Conflict):
            blobs.put(name, first, if_absent=True)
    assert min(tap.slowed) > 20


def test_write_replaced_by_another_before_its_repeat_is_conflict(
    s3_server: S3Server, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = open_blobs(s3_server.url(port=tap.port))
    tag = blobs.put("a", b"one", if_absent=True)
    tag = blobs.put("a", b"two", if_tag=tag)
    writes = blobs._write  # type: ignore[attr-defined]
    calls: list[str] = []

    def hastily(store: object, name: str, data: bytes, mode: object) -> str:
        calls.append(name)
        made: str = writes(store, name, data, mode)
        if len(calls) == 1:
            writes(store, name, b"another's", {"e_tag": made})
            raise OSError("503 Slow Down, status code: 503")
        return made

    monkeypatch.setattr(blobs, "_write", hastily)
    with pytest.raises(Conflict):
        blobs.put("a", b"three", if_tag=tag)
    assert value(blobs, "a") == b"another's"


@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down"])
def test_a_conditional_write_that_a_hasty_server_refuses_is_not_called_a_conflict(
    tapped: BlobStore, tap: Tap, status: str
) -> None:
    tapped.put("a", b"one", if_absent=True)
    tap.answer = refusal(status, "SlowDown")
    with pytest.raises(Unavailable, match=status[:3]):
        tapped.put("b", b"two", if_absent=True)


def test_two_writes_at_one_moment_are_a_conflict_for_who_is_refused(
    tapped: BlobStore, tap: Tap
) -> None:
    tag = tapped.put("a", b"one", if_absent=True)
    tapped.put("a", b"two", if_tag=tag)
    tap.answer = refusal("409 Conflict", "ConditionalRequestConflict")
    for conditions in ({"if_absent": True}, {"if_tag": tag}):
        with pytest.raises(Conflict):
            tapped.put("a", b"three", **conditions)


# Much.


def test_a_listing_of_several_pages_is_whole(s3_server: S3Server, tap: Tap) -> None:
    # The server is told a page's size; its own is a thousand names.
    blobs = open_blobs(s3_server.url(port=tap.port))
    names = [f"n/{number:03d}" for number in range(s3_server.page * 2 + 1)]
    for name in names:
        blobs.put(name, b"")
    before = tap.requests
    assert list(blobs.names("n/")) == names
    assert tap.requests == before + 3
    with pytest.raises(BadValue, match="names_max"):
        blobs.names("n/", names_max=len(names) - 1)


def test_a_prefix_that_makes_the_server_list_too_much_is_refused(s3_server: S3Server) -> None:
    blobs = open_blobs(s3_server.url(settings="&listed_max=3"))
    for name in ("a/1", "a/2", "b/1", "b/2"):
        blobs.put(name, b"")
    assert list(blobs.names("b/")) == ["b/1", "b/2"]
    with pytest.raises(BadValue, match="longer prefix"):
        blobs.names("b")


def test_a_blob_that_is_too_large_is_not_downloaded(s3_server: S3Server, tap: Tap) -> None:
    url = s3_server.url(port=tap.port)
    blobs, settings = open_blobs(url), parse_url(url)
    size = 20_000_000
    path = f"/{settings.bucket}/{settings.prefix}/large"
    assert s3_server.ask("PUT", path, bytes(size)) == 200
    before = tap.passed
    with pytest.raises(BadValue, match="20,000,000 bytes"):
        blobs.get("large", bytes_max=size - 1)
    assert tap.passed - before < size / 2  # what the sockets on the way hold, and no more


def test_what_else_is_in_the_bucket_is_not_listed(s3_server: S3Server) -> None:
    url = s3_server.url()
    blobs = open_blobs(url)
    blobs.put("a", b"x")
    settings = parse_url(url)
    for name in (".hidden", "two%20words", "a~"):
        assert s3_server.ask("PUT", f"/{settings.bucket}/{settings.prefix}/{name}", b"x") == 200
    assert s3_server.ask("PUT", f"/{settings.bucket}/{settings.prefix}9/outside", b"x") == 200
    assert list(blobs.names()) == ["a"]


def test_a_bucket_may_be_used_whole(s3_server: S3Server) -> None:
    url = s3_server.url()
    bucket = f"s3://whole-{os.getpid()}/?{url.partition('?')[2]}"
    assert s3_server.ask("PUT", f"/whole-{os.getpid()}") == 200
    blobs = open_blobs(bucket)
    tag = blobs.put("a/b", b"x")
    assert blobs.get("a/b", bytes_max=9) == Blob(b"x", tag)
    assert list(blobs.names()) == ["a/b"]


# Trouble.


def test_a_bucket_that_is_not_there_is_no_empty_store(s3_server: S3Server) -> None:
    blobs = open_blobs(s3_server.url().replace("s3://rules/", "s3://no-such-bucket/"))
    for ask in (
        lambda: blobs.get("a", bytes_max=MANY),
        lambda: blobs.put("a", b"x"),
        lambda: blobs.put("a", b"x", if_absent=True),
        lambda: blobs.put("a", b"x", if_tag="x"),
        lambda: blobs.delete("a"),
        blobs.names,
    ):
        with pytest.raises(Unavailable, match="404 NoSuchBucket; make the bucket"):
            ask()


@pytest.mark.parametrize(
    "reply",
    [
        answer("404 Not Found", "<html>nothing here</html>"),
        refusal("404 Not Found", "NoSuchBucket"),
    ],
    ids=["a proxy that knows nothing", "a bucket that was removed"],
)
def test_not_found_is_no_empty_store_and_no_conflict_unless_the_server_says_so_of_the_blob(
    tapped: BlobStore, tap: Tap, reply: bytes
) -> None:
    tag = tapped.put("a", b"x", if_absent=True)
    tag = tapped.put("a", b"y", if_tag=tag)
    tap.answer = reply
    for ask in (
        lambda: tapped.get("a", bytes_max=MANY),
        lambda: tapped.put("b", b"z", if_absent=True),
        lambda: tapped.put("a", b"z", if_tag=tag),
        lambda: tapped.delete("a"),
        tapped.names,
    ):
        with pytest.raises(Unavailable, match="404"):
            ask()
    tap.answer = b""
    assert value(tapped, "a") == b"y"


@pytest.mark.parametrize("conditions", [{"if_absent": True}, {"if_tag": "x"}], ids=min)
def test_a_probe_that_does_not_come_through_proves_nothing(
    tapped: BlobStore, tap: Tap, conditions: dict[str, object]
) -> None:
    tap.answer = answer("404 Not Found", "")
    with pytest.raises(Unavailable, match="404"):
        tapped.put("a", b"x", **conditions)  # type: ignore[arg-type]
    tap.answer, tap.deaf = b"", True
    with pytest.raises(Unavailable, match="does not enforce"):
        tapped.put("a", b"x", **conditions)  # type: ignore[arg-type]


def test_a_server_that_is_killed_is_told_at_once_and_comes_back(tmp_path: Path) -> None:
    server = S3Server(tmp_path)
    try:
        blobs = open_blobs(server.url(settings="&retries=1"))
        blobs.put("a", b"x", if_absent=True)
        server.child.kill()
        for ask in (
            lambda: blobs.get("a", bytes_max=MANY),
            lambda: blobs.put("a", b"x"),
            lambda: blobs.put("b", b"x", if_absent=True),
            blobs.names,
        ):
            with pytest.raises(Unavailable, match="the connection was refused"):
                ask()
        server.restart()  # with nothing in it
        assert blobs.get("a", bytes_max=MANY) is None
        blobs.put("a", b"y", if_absent=True)
        assert value(blobs, "a") == b"y"
    finally:
        server.stop()


def test_a_server_that_is_silent_is_given_up_on(s3_server: S3Server, tap: Tap) -> None:
    url = s3_server.url(port=tap.port, settings=ONCE)
    tag = open_blobs(url).put("a", b"x", if_absent=True)
    hasty = open_blobs(f"{url}&timeout_ms=150")
    tap.silent = True
    began = time.monotonic()
    for ask in (
        lambda: hasty.get("a", bytes_max=MANY),
        lambda: hasty.put("a", b"y"),
        lambda: hasty.put("a", b"y", if_tag=tag),
        hasty.names,
    ):
        with pytest.raises(Unavailable, match="did not answer in time"):
            ask()
    assert time.monotonic() - began < 20  # the driver's own patience is 30 s for each
    tap.silent = False
    assert value(open_blobs(url), "a") == b"x"


def test_an_answer_that_ends_in_the_middle_is_no_blob(tapped: BlobStore, tap: Tap) -> None:
    tapped.put("a", bytes(100_000))
    for cut in (0, 10, 50_000):
        tap.cut_after = cut
        with pytest.raises(Unavailable):
            tapped.get("a", bytes_max=MANY)
    tap.cut_after = -1
    assert value(tapped, "a") == bytes(100_000)


def test_with_no_retries_trouble_is_told_at_once(tapped: BlobStore, tap: Tap) -> None:
    tapped.put("a", b"x")
    tap.failing = 1
    with pytest.raises(Unavailable):
        tapped.get("a", bytes_max=MANY)
    assert value(tapped, "a") == b"x"


def test_trouble_that_passes_is_ridden_out_within_the_retries(
    s3_server: S3Server, tap: Tap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "_GAP_US_MIN", 1_000)
    url = s3_server.url(port=tap.port, settings="&retries=2")
    blobs = open_blobs(url)
    blobs.put("a", b"x")
    before, tap.answer = tap.requests, refusal("503 Service Unavailable", "SlowDown")
    with pytest.raises(Unavailable, match="503"):
        blobs.get("a", bytes_max=MANY)
    assert tap.requests == before + 3
    tap.answer, tap.failing = b"", 2
    assert value(blobs, "a") == b"x"
    tap.failing = 3
    with pytest.raises(Unavailable):
        blobs.get("a", bytes_max=MANY)
    assert tap.failing == 0
    # What will not pass is asked once.
    before, tap.answer = tap.requests, refusal("403 Forbidden", "AccessDenied")
    with pytest.raises(Unavailable, match="403 AccessDenied; grant"):
        blobs.put("a", b"x")
    assert tap.requests == before + 1


# Secrets.


def test_no_secret_is_told(
    s3_server: S3Server, tap: Tap, tapped: BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    del s3_server
    tapped.put("a", b"x")
    messages = [
        repr(tapped),
        repr(getattr(tapped, "settings", "")),
        repr(getattr(tapped, "_store", "")),
    ]
    for status, code in (
        ("403 Forbidden", "SignatureDoesNotMatch"),
        ("403 Forbidden", "InvalidAccessKeyId"),
        ("400 Bad Request", "ExpiredToken"),
        ("404 Not Found", "NoSuchBucket"),
        ("412 Precondition Failed", "PreconditionFailed"),
        ("500 Internal Server Error", "InternalError"),
    ):
        tap.answer = refusal(status, code)
        for ask in (
            lambda: tapped.get("a", bytes_max=MANY),
            lambda: tapped.put("a", b"x", if_absent=True),
            lambda: tapped.put("a", b"x", if_tag="x"),
            lambda: tapped.delete("a"),
            tapped.names,
        ):
            try:
                ask()
            except (Unavailable, Conflict) as error:
                messages += [str(error), repr(error), "".join(traceback.format_exception(error))]
    assert len(messages) > 50
    for secret in SECRETS.values():
        assert not any(secret in text for text in [*messages, caplog.text])


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:hush@bucket/prefix",
        "s3://bucket/prefix?access_key_id=KEY&secret_access_key=hush",
        "s3://bucket/prefix?secret_access_key=hush",
        "s3://bucket/prefix?AWS_SESSION_TOKEN=hush",
        "s3://bucket/prefix?endpoint=https://KEY:hush@host:9000",
        "s3://bucket/prefix?endpoint=http://KEY:hush@host:9000&allow_http=1",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(
        BadValue, match="leave the credentials out; set AWS_ACCESS_KEY_ID"
    ) as describe:
        open_blobs(url)
    message = f"{describe.value} {describe.value!r} {describe.value.value!r}"
    assert "hush" not in message
    assert "KEY:" not in message


@pytest.mark.parametrize(
    "environment",
    [
        {"AWS_METADATA_ENDPOINT": "http://127.0.0.1:1"},  # where a machine would be given its own
        {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nonexistent",
        },
        {"AWS_ACCESS_KEY_ID": "half"},
    ],
    ids=min,
)
def test_without_credentials_it_says_where_they_belong(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(Unavailable, match="no credentials; set AWS_ACCESS_KEY_ID"):
        open_blobs(s3_server.url(settings=ONCE)).get("a", bytes_max=MANY)


# Settings.


def test_the_environment_does_not_overrule_the_url(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_CONDITIONAL_PUT": "disabled",
        "AWS_BUCKET": "another",
        "AWS_REGION": "nowhere-1",
    }.items():
        monkeypatch.setenv(name, text)
    blobs = open_blobs(s3_server.url(settings=ONCE))
    tag = blobs.put("a", b"one", if_absent=True)
    blobs.put("a", b"two", if_tag=tag)
    assert value(blobs, "a") == b"two"


def test_an_endpoint_of_http_from_the_environment_must_be_allowed_too(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    path = s3_server.url().partition("?")[0]
    with pytest.raises(Unavailable, match="say allow_http=1"):
        open_blobs(f"{path}?retries=0").put("a", b"x")
    open_blobs(f"{path}?retries=0&allow_http=1").put("a", b"x")


def test_an_environment_that_makes_no_sense_is_told(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_S3_EXPRESS", "perhaps")
    with pytest.raises(Unavailable, match="the driver gave up"):
        open_blobs(s3_server.url()).put("a", b"x")


def test_a_url_says_everything_there_is_to_set() -> None:
    assert parse_url(
        "s3://my.bucket-1/a/b/?endpoint=https://host:9000&region=eu-west-1&allow_http=0"
        "&connect_ms=100&timeout_ms=1500&retries=0&bytes_max=7&listed_max=9"
    ) == S3Settings(
        bucket="my.bucket-1",
        prefix="a/b",
        endpoint="https://host:9000",
        region="eu-west-1",
        connect_us=100_000,
        timeout_us=1_500_000,
        retries=0,
        bytes_max=7,
        listed_max=9,
    )
    assert parse_url("s3://bucket") == S3Settings(bucket="bucket")


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://UP",
        "s3://b",
        "s3://bucket/../x",
        "s3://bucket/a//b",
        "s3://bucket/.x",
        "s3://bucket/" + "a/" * 220,
        "s3://bucket#x",
        "s3://bucket?region=EU WEST",
        "s3://bucket?endpoint=host:9000",
        "s3://bucket?endpoint=ftp://host",
        "s3://bucket?endpoint=http://host",
        "s3://bucket?endpoint=https://host:port",
        "s3://bucket?endpoint=https://",
        "s3://bucket?endpoint=https://host?x=y",
        "s3://bucket?allow_http=maybe",
        "s3://bucket?retries=-1",
        "s3://bucket?retries=1000",
        "s3://bucket?timeout_ms=0",
        "s3://bucket?timeout_ms=inf",
        "s3://bucket?listed_max=0",
        "s3://bucket?colour=red",
        "s3://bucket?endpoint",
        "s3://[bucket",
        "s4://bucket",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_a_remedy(url: str) -> None:
    with pytest.raises(BadValue) as refused:
        open_blobs(url)
    assert refused.value.remedy


def test_opening_connects_to_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        open_blobs(f"s3://bucket/prefix?endpoint=http://127.0.0.1:{port}&allow_http=1").close()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_driver_that_is_missing_is_named_after_a_wrong_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "sluicegate.stores.blobs.s3")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BadValue, match="allow_http"):
        open_blobs("s3://bucket?endpoint=http://host")
    with pytest.raises(MissingPackage, match=r"\.\[s3\]"):
        open_blobs("s3://bucket")


def test_other_stores_do_not_load_the_driver(tmp_path: Path) -> None:
    program = (
        "import sys; from sluicegate.stores.blob_stores import open_blobs; "
        f"open_blobs('memory:'); open_blobs('files:{tmp_path}'); "
        "sys.exit('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT, timeout=60)
    assert done.returncode == 0


def test_a_child_of_a_fork_is_told_and_does_not_wait_forever(s3_server: S3Server) -> None:
    program = (
        "import os, sys\n"
        "from sluicegate.contracts.errors import Unavailable\n"
        "from sluicegate.stores.blob_stores import open_blobs\n"
        f"before = open_blobs({s3_server.url()!r})\n"
        "before.put('a', b'x')\n"
        "if os.fork():\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        f"for blobs in (before, open_blobs({s3_server.url()!r})):\n"
        "    try:\n"
        "        blobs.get('a', bytes_max=9)\n"
        "    except Unavailable as error:\n"
        "        assert 'before a fork' in str(error)\n"
        "    else:\n"
        "        os._exit(3)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
