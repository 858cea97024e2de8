"""Cost of an uncached GET: its Python calls, and the files that they are in."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path
from types import FrameType

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.shield.settings import ShieldSettings
from sluicegate.contracts.key_values import CallContext, Write
from sluicegate.policies.access import EVERYBODY, OpenAccess
from sluicegate.service import app as service
from sluicegate.service.settings import settings_from
from sluicegate.testing import HandClock
from tests.doors.resp.talk import Talk

WARM, MEASURED = 200, 100
CALLS_MAX = 110
FILES_MAX = 30


async def traces_of(app: KvApp) -> list[list[tuple[str, str]]]:
    """Return the calls of each measured GET over RESP, as file and name."""
    keys = [b"k%d" % number for number in range(WARM + MEASURED)]
    await app.dispatcher.write("t", [Write(key, b"", b"v") for key in keys], CallContext(EVERYBODY))
    assert app.hot is not None
    app.hot.replace(ShieldSettings(saved_min=1e9))  # no key is hot
    for _ in range(1_000):  # until the service has settled: then a read needs no waiting
        found = app.dispatcher.get("t", keys[0], b"", CallContext(EVERYBODY))
        if not isinstance(found, Awaitable):
            break
        await found
        await asyncio.sleep(0.01)
    talk = Talk(app.resp(OpenAccess()))
    traces: list[list[tuple[str, str]]] = []

    def record(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and "/sluicegate/" in code.co_filename:
            traces[-1].append((code.co_filename, code.co_qualname))

    for number, key in enumerate(keys):
        traces.append([])
        if number >= WARM:
            sys.setprofile(record)
        try:
            talk.protocol.data_received(b"*2\r\n$3\r\nGET\r\n$%d\r\nt:%b\r\n" % (len(key) + 2, key))
            while len(talk.wire.writes) == number:
                await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
        assert talk.wire.writes[-1] == b"$1\r\nv\r\n"
    talk.lose()
    return traces[WARM:]


def test_uncached_get_takes_few_calls_in_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SystemClock", HandClock)  # all requests take the same time

    async def story() -> list[list[tuple[str, str]]]:
        flags = ("--engine", f"lmdb:{tmp_path / 'data'}", "--quota-ru", str(1 << 40))
        app = KvApp(settings_from(KvSettings, *flags))
        # On a busy machine the event loop is late, and requests take turns for that.
        app._loop_lag = lambda late_us: None  # type: ignore[method-assign]
        await app.start()
        try:
            return await traces_of(app)
        finally:
            await app.end()

    # Now and then a request also ends a window or an epoch.
    least = min(asyncio.run(story()), key=len)
    assert len(least) <= CALLS_MAX, least
    assert len({file for file, _ in least}) <= FILES_MAX, least
    assert [name for _, name in least].count("SpaceSaving.update") <= 1
