"""h2spec finds no fault with our HTTP/2: generic, RFC 7540 and HPACK, strict cases too.

It knows nothing of gRPC, so what it asks for is answered with 405 and 415, which are answers like
any other to it. No case is left out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

import pytest
import trustme

from tests.doors.grpc.servers import Native, Work, native
from tests.engines.h2spec import H2SPEC, run
from tests.engines.need import engine

pytestmark = pytest.mark.engine

CASES = 145
STRICT_CASES = 146


@pytest.fixture(scope="module", autouse=True)
def tester() -> None:
    engine("h2spec", [H2SPEC])


@pytest.fixture
def server() -> Iterator[Native]:
    with native(Work().methods()) as made:
        yield made


@pytest.mark.parametrize("path", ["/", "/t.Test/Echo"])
def test_every_case_passes(server: Native, path: str) -> None:
    tally = run(server.port, "-P", path)
    assert (tally.tests, tally.passed, tally.skipped) == (CASES, CASES, 0), tally.output


def test_every_strict_case_passes(server: Native) -> None:
    tally = run(server.port, "--strict")
    assert (tally.tests, tally.passed, tally.skipped) == (STRICT_CASES, STRICT_CASES, 0), (
        tally.output
    )


def test_every_case_passes_over_tls() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.set_alpn_protocols(["h2"])
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    with native(Work().methods(), tls=tls) as server:
        tally = run(server.port, "--tls", "--insecure")
        assert (tally.tests, tally.passed, tally.skipped) == (CASES, CASES, 0), tally.output


def test_the_server_is_well_afterwards(server: Native) -> None:
    run(server.port)
    server.running.do(emptied(server))  # its last connections may still be on their way out
    assert server.door.streams == 0
    assert server.door.counts.connections == 0


async def emptied(server: Native) -> None:
    while server.door.open:
        await asyncio.wait([each.closed for each in server.door.open])
