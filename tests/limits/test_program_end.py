"""A program that ends while its store cannot be reached says so once, and no more at its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Names are looked up by threads that the interpreter ends before the limiter's own, which goes on
# trying to connect for as long as some other thread keeps the program alive. On one Redis the
# limiter has no thread of its own.
PROGRAM = """\
import asyncio, sys, threading
from sluicegate import Limiter

tried = threading.Event()
lookup = asyncio.base_events.BaseEventLoop.getaddrinfo

async def counted(*arguments, **more):
    try:
        return await lookup(*arguments, **more)
    except RuntimeError:
        tried.set()
        raise

asyncio.base_events.BaseEventLoop.getaddrinfo = counted
limiter = Limiter("5/s", store_url=sys.argv[1])
assert limiter.take("ann").degraded

def linger():
    threading.main_thread().join()
    assert sys.argv[1].startswith("redis:") or tried.wait(60)
    assert limiter.take("ann").degraded  # another turn of the limiter's loop

threading.Thread(target=linger).start()
"""


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "sluicegate"])
def test_its_end_adds_nothing_to_the_warning(scheme: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"{scheme}://localhost:1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (warning,) = ended.stderr.splitlines()
    assert warning.endswith("; admitting everything: failure=open")
    assert ended.returncode == 0
