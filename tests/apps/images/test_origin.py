"""Origin: a stranger that misbehaves costs a bounded time, and reaches nothing of ours."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from sluicegate.apps.images.origin import Origin, OriginSettings, Validators, check_url
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.image import ImageErrorKind, ImageFailure
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.system import SystemClock
from tests.apps.images.origin_server import OriginServer, Page

FORBIDDEN, ORIGIN_DOWN = ImageErrorKind.FORBIDDEN, ImageErrorKind.ORIGIN_DOWN
TIMEOUT, NOT_FOUND = ImageErrorKind.TIMEOUT, ImageErrorKind.NOT_FOUND
TOO_LARGE, WRONG_TYPE = ImageErrorKind.TOO_LARGE, ImageErrorKind.WRONG_TYPE
LOOPBACK = ("127.0.0.1/32",)


class Names(AbstractResolver):
    """Answers each look-up with the next of its addresses, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.looked_up = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.looked_up += 1
        addresses = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        return [
            ResolveResult(
                hostname=host, host=one, port=port, family=socket.AF_INET, proto=0, flags=0
            )
            for one in addresses
        ]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def origin_of(
    resolver: AbstractResolver | None = None, **settings: Any
) -> AsyncIterator[tuple[OriginServer, Origin]]:
    async with OriginServer() as server:
        values: dict[str, Any] = {"networks": LOOPBACK, "idle_s": 0.2, "timeout_s": 2.0} | settings
        origin = Origin(OriginSettings(**values), SystemClock(), resolver)
        try:
            yield server, origin
        finally:
            await origin.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


async def error_of(origin: Origin, url: str) -> ImageFailure:
    with pytest.raises(ImageFailure) as raised:
        await origin.fetch(url)
    return raised.value


def test_a_body_and_its_validators_are_downloaded() -> None:
    async def story() -> None:
        async with origin_of() as (server, origin):
            headers = {"ETag": '"a"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            server.pages["/a?b=%20c"] = Page(b"body" * 100_000, headers=headers)
            found = await origin.fetch(server.url("/a?b=%20c#fragment"))
            assert found.body == b"body" * 100_000
            assert found.validators == Validators(*headers.values())
            (_, head) = server.heads[0]
            assert head["accept-encoding"] == "identity"

    run(story)


def test_what_has_not_changed_is_not_downloaded_again() -> None:
    async def story() -> None:
        async with origin_of() as (server, origin):
            server.pages["/tag"] = Page(b"one", headers={"ETag": '"a"'})
            date = "Mon, 01 Jan 2024 00:00:00 GMT"
            server.pages["/date"] = Page(b"one", headers={"Last-Modified": date})
            for path, known in (("/tag", Validators('"a"')), ("/date", Validators("", date))):
                found = await origin.fetch(server.url(path), known)
                assert (found.body, found.validators) == (None, known)
            # Older than before, and other bytes: what the origin says now is what counts.
            server.pages["/date"] = Page(
                b"old", headers={"Last-Modified": "Sun, 01 Jan 2023 00:00:00 GMT"}
            )
            found = await origin.fetch(server.url("/date"), Validators("", date))
            assert found.body == b"old"
            assert origin.unchanged == 2

    run(story)


@pytest.mark.parametrize("value", ['"\x01"', '"\u2603"', "a" * 1_025])
def test_what_cannot_be_sent_back_is_not_kept(value: str) -> None:
    async def story() -> None:
        async with origin_of() as (server, origin):
            server.pages["/a"] = Page(b"one", headers={"ETag": value, "Last-Modified": value})
            assert (await origin.fetch(server.url("/a"))).validators == Validators()

    run(story)


def test_another_image_of_the_same_date_where_a_url_redirects_to_is_downloaded() -> None:
    async def story() -> None:
        async with origin_of() as (server, origin):
            date = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            for version in (b"one", b"two"):
                to = f"/{version.decode()}"
                server.pages["/a"] = Page(status=302, headers={"Location": to})
                server.pages[to] = Page(version, headers=date)
                found = await origin.fetch(server.url("/a"), Validators("", *date.values()))
                assert found.body == version

    run(story)


FAULTS: dict[str, tuple[Page, str]] = {
    "endless": (Page(endless=True), TOO_LARGE),
    "says that it is large": (Page(b"x", length=1 << 40), TOO_LARGE),
    "is large": (Page(bytes(2 << 20)), TOO_LARGE),
    "ends before its length": (Page(b"short", length=500_000), ORIGIN_DOWN),
    "stalls": (Page(bytes(5_000), stall_after=100), TIMEOUT),
    "does not begin": (Page(b"x", head_after_s=30), TIMEOUT),
    "resets": (Page(reset=True), ORIGIN_DOWN),
    "is not there": (Page(status=404), NOT_FOUND),
    "is gone": (Page(status=410), NOT_FOUND),
    "asks for a password": (Page(status=401), ORIGIN_DOWN),
    "fails": (Page(status=500), ORIGIN_DOWN),
    "says it has not changed, unasked": (Page(status=304), ORIGIN_DOWN),
    "is coded": (Page(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}), WRONG_TYPE),
    "redirects to itself": (Page(status=302, headers={"Location": "/x"}), ORIGIN_DOWN),
    "redirects nowhere": (Page(status=302), ORIGIN_DOWN),
    "redirects to a file": (
        Page(status=302, headers={"Location": "file:///etc/passwd"}),
        ORIGIN_DOWN,
    ),
    "redirects to the cloud's metadata": (
        Page(status=302, headers={"Location": "http://169.254.169.254/latest/"}),
        FORBIDDEN,
    ),
    "redirects to IPv6 loopback": (
        Page(status=307, headers={"Location": "http://[::1]:80/"}),
        FORBIDDEN,
    ),
    "redirects to another of loopback": (
        Page(status=301, headers={"Location": "http://127.0.0.2/"}),
        FORBIDDEN,
    ),
    "redirects to a name without a part": (
        Page(status=302, headers={"Location": "http://a..example/"}),
        ORIGIN_DOWN,
    ),
    "redirects to a name that is too long": (
        Page(status=302, headers={"Location": f"http://{'a' * 300}/"}),
        ORIGIN_DOWN,
    ),
    "redirects to a number": (
        Page(status=301, headers={"Location": "http://2130706434/"}),  # 127.0.0.2
        ORIGIN_DOWN,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_origin_that_misbehaves_ends_as_an_error_with_a_name(fault: str) -> None:
    page, kind = FAULTS[fault]

    async def story() -> None:
        async with origin_of(bytes_max=1 << 20) as (server, origin):
            server.pages["/x"] = page
            error = await error_of(origin, server.url("/x"))
            assert error.kind == kind, error
            assert origin.failed == {kind: 1}

    run(story)


def test_what_comes_after_the_length_that_was_said_is_no_part_of_any_body() -> None:
    async def story() -> None:
        async with origin_of() as (server, origin):
            server.pages["/x"] = Page(b"image and more", length=5)
            server.pages["/y"] = Page(b"whole")
            try:  # as the bytes happen to come
                found: object = (await origin.fetch(server.url("/x"))).body
            except ImageFailure as error:
                found = error.kind
            assert found in (b"image", ORIGIN_DOWN)
            assert (await origin.fetch(server.url("/y"))).body == b"whole"

    run(story)


def test_a_drip_of_bytes_ends_with_the_whole_time() -> None:
    async def story() -> None:
        async with origin_of(timeout_s=0.5, bytes_max=1 << 30) as (server, origin):
            server.pages["/x"] = Page(b".", endless=True)
            assert (await error_of(origin, server.url("/x"))).kind == TIMEOUT

    run(story)


def test_loopback_is_not_asked_unless_the_setting_says_so() -> None:
    async def story() -> None:
        async with origin_of(networks=()) as (server, origin):
            server.pages["/x"] = Page(b"secret")
            for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
                error = await error_of(origin, f"http://{host}:{server.port}/x")
                assert error.kind == FORBIDDEN, error
            assert not server.asked

    run(story)


def test_a_name_that_turns_to_loopback_after_it_was_judged_reaches_nothing() -> None:
    async def story() -> None:
        names = Names(["127.0.0.1"], ["127.0.0.3"])
        async with origin_of(names, networks=["127.0.0.1/32"]) as (server, origin):
            # Judged good, and connected to: the only look-up there is.
            server.pages["/x"] = Page(b"good", headers={"Connection": "close"}, length=4)
            url = f"http://rebind.example:{server.port}/x"
            assert (await origin.fetch(url)).body == b"good"
            assert names.looked_up == 1
            # The next connection is judged anew, by the address that it goes to.
            assert (await error_of(origin, url)).kind == FORBIDDEN
            assert server.asked["/x"] == 1

    run(story)


def test_a_name_with_a_good_and_a_bad_address_is_asked_at_the_good_one_alone() -> None:
    async def story() -> None:
        names = Names(["127.0.0.9", "127.0.0.1", "10.0.0.1"])
        async with origin_of(names) as (server, origin):
            server.pages["/x"] = Page(b"good")
            url = f"http://several.example:{server.port}/x"
            assert (await origin.fetch(url)).body == b"good"

    async def control() -> None:
        async with origin_of(Names(["127.0.0.9", "10.0.0.1"])) as (server, origin):
            error = await error_of(origin, f"http://several.example:{server.port}/x")
            assert error.kind == FORBIDDEN

    run(story)
    run(control)


def test_a_host_that_is_not_of_the_setting_is_not_even_looked_up() -> None:
    async def story() -> None:
        names = Names(["127.0.0.1"])
        async with origin_of(names, hosts=["img.example"]) as (server, origin):
            server.pages["/x"] = Page(status=302, headers={"Location": "http://evil.example/"})
            error = await error_of(origin, f"http://img.example:{server.port}/x")
            assert (error.kind, names.looked_up) == (FORBIDDEN, 1)

    run(story)


def test_download_beyond_slots_of_host_waits_and_another_host_does_not() -> None:
    async def story() -> None:
        async with origin_of(per_host=2, idle_s=20, timeout_s=20) as (server, origin):
            gate = threading.Event()
            server.pages["/slow"] = Page(b"x", gate=gate)
            slow = [asyncio.ensure_future(origin.fetch(server.url("/slow"))) for _ in range(9)]
            while server.asked["/slow"] < 2:
                await asyncio.sleep(0.01)
            async with OriginServer() as other:
                other.pages["/y"] = Page(b"y")
                assert (await origin.fetch(other.url("/y"))).body == b"y"
            assert origin.slots.waiting == 7
            gate.set()
            assert [one.body for one in await asyncio.gather(*slow)] == [b"x"] * 9
            assert server.most_at_once == 2
            assert origin.slots.waiting == 0

    run(story)


def test_waiting_download_is_served_by_criticality_and_raise_moves_it() -> None:
    async def story() -> None:
        async with origin_of(per_host=1, idle_s=20, timeout_s=20) as (server, origin):
            gate = threading.Event()
            server.pages["/first"] = Page(b"x", gate=gate)
            tasks = [asyncio.ensure_future(origin.fetch(server.url("/first")))]
            raised = Request("raised", criticality=Criticality.BULK)
            classes = (
                ("/bulk", Request("bulk", criticality=Criticality.BULK)),
                ("/raised", raised),
                ("/critical", Request("critical", criticality=Criticality.CRITICAL)),
            )
            for path, request in classes:
                server.pages[path] = Page(b"x")
                tasks.append(asyncio.ensure_future(origin.fetch(server.url(path), None, request)))
            while origin.slots.waiting < len(classes):
                await asyncio.sleep(0.01)
            raised.criticality = Criticality.DEGRADED
            origin.requeue(raised, SystemClock().now_us())
            gate.set()
            await asyncio.gather(*tasks)
            assert [path for path, _ in server.heads] == [
                "/first", "/critical", "/raised", "/bulk",
            ]  # fmt: skip

    run(story)


def test_download_that_waited_until_its_deadline_is_refused_by_name() -> None:
    async def story() -> None:
        async with origin_of(per_host=1, idle_s=20, timeout_s=20) as (server, origin):
            gate = threading.Event()
            server.pages["/slow"] = Page(b"x", gate=gate)
            first = asyncio.ensure_future(origin.fetch(server.url("/slow")))
            while not server.asked["/slow"]:
                await asyncio.sleep(0.01)
            late = Request("late", deadline_us=SystemClock().now_us() + 50_000)
            with pytest.raises(Refused) as raised:
                await origin.fetch(server.url("/slow"), None, late)
            assert raised.value.decision.reason is DEADLINE
            gate.set()
            assert (await first).body == b"x"
            assert origin.failed == {}  # the wait is no failure of the origin

    run(story)


def test_a_host_that_keeps_failing_is_left_alone_and_one_that_lacks_images_is_not() -> None:
    async def story() -> None:
        async with origin_of() as (server, origin):
            server.pages["/bad"] = Page(status=500)
            for _ in range(40):
                await error_of(origin, server.url("/none"))
            assert server.asked["/none"] == 40
            refused = 0
            for _ in range(40):
                try:
                    await origin.fetch(server.url("/bad"))
                except Refused:
                    refused += 1
                except ImageFailure:
                    pass
            assert refused > 0

    run(story)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/b",
        "file:///etc/passwd",
        "http://",
        "http://a:99999/",
        "http://user:secret@a/",
        "http://a/b c",
        "http://a/\udcff",
        "http://a/\r\nHost: b",
        "javascript:alert(1)",
        "http://[::1",
        "http://a/" + "x" * 5_000,
    ],
)
def test_what_is_no_url_of_an_image_is_named(url: str) -> None:
    with pytest.raises(BadValue) as raised:
        check_url(url)
    assert raised.value.field == "url"


def test_urls_that_mean_the_same_are_written_alike() -> None:
    assert check_url("HTTP://Example.COM:80#x") == "http://example.com/"
    assert check_url("https://example.com:443/A?b=C") == "https://example.com/A?b=C"
    assert check_url("http://[2001:DB8::1]:8080/") == "http://[2001:db8::1]:8080/"
