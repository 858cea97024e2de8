"""A caller far over its quota is slowed at its connections; others are not, over real sockets."""

from __future__ import annotations

import asyncio
import re

import pytest

from sluicegate.contracts.access import EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext, Row
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT, Reason
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.policies.quota.refusal_pace import RefusalPace, RefusalPaceSettings
from sluicegate.system import SystemClock
from sluicegate.testing.clock import HandClock
from sluicegate.wire.resp import command
from tests.doors.listening import run
from tests.doors.resp.service import Tokens
from tests.doors.resp.talk import listening

GET = command("GET", "t:k")
DEPTH = 64
BURST = 200
DELAY_MS = 1_000
TABLES = {"*": EVERY_TABLE_GRANT}


class Quotas:
    """A service with nothing left for one caller; of another every second request is too much."""

    def __init__(self, reason: Reason, *, at_once: bool, later_s: float = 0.0) -> None:
        self.calls: dict[str, int] = {}
        self._decision = Decision(False, 0, 1_000, 1_000, reason, "ru")
        self._at_once = at_once
        self._later_s = later_s

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        name = call.identity.name
        count = self.calls[name] = self.calls.get(name, 0) + 1
        refused = name == "hammer" or (name == "busy" and count % 2 == 1)
        if not self._at_once:
            return self._later(refused)
        if refused:
            raise Refused(self._decision)
        return None

    async def _later(self, refused: bool) -> Row | None:
        await asyncio.sleep(self._later_s)
        if refused:
            raise Refused(self._decision)
        return None


async def talk(port: int, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(command("AUTH", name))
    assert await reader.readline() == b"+OK\r\n"
    return reader, writer


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int
) -> list[bytes]:
    writer.write(GET * count)
    return [await reader.readline() for _ in range(count)]


@pytest.mark.parametrize(
    ("reason", "at_once"),
    [(QUOTA_SPENT, True), (QUOTA_SPENT, False), (COST_ABOVE_LIMIT, True)],
)
def test_after_a_burst_of_refusals_a_connection_is_read_less_often_and_is_told(
    reason: Reason, at_once: bool
) -> None:
    async def story() -> None:
        quotas = Quotas(reason, at_once=at_once)
        tokens = Tokens({name: Identity(name, (), TABLES) for name in ("hammer", "busy", "good")})
        # Whoever is put off is known to be gone when that is over.
        settings = RefusalPaceSettings(burst=BURST, refusals_per_s=1, delay_us_max=DELAY_MS * 1_000)
        pace = RefusalPace(settings)
        door = RespDoor(quotas, tokens, RespSettings(), KEY_VALUES, SystemClock(), pace)
        async with listening(door) as port:
            hammer, second = [await talk(port, "hammer") for _ in range(2)]
            said = b""
            while pace.slowed == 0:
                assert quotas.calls.get("hammer", 0) <= BURST + 3 * DEPTH
                said = (await ask(*hammer, DEPTH))[-1]
            assert said.startswith(reason.resp_error.encode().join((b"-", b" ")))
            # What is refused later is known a read later.
            assert quotas.calls["hammer"] <= BURST + (2 if at_once else 3) * DEPTH
            # Another connection of this caller is told, and then put off too.
            for _ in range(1 if at_once else 2):
                said = (await ask(*second, 1))[0]
            found = re.search(rb" slowed_ms=(\d+)\r\n", said)
            assert found
            told_ms = int(found[1])
            assert 0 < told_ms <= DELAY_MS
            assert pace.slowed == 2
            until_s = asyncio.get_running_loop().time() + told_ms / 1_000
            ran = quotas.calls["hammer"]
            for _, writer in (hammer, second):
                writer.write(GET * DEPTH)
            # Others are served as ever, also one who asks for twice its quota.
            busy, good = await talk(port, "busy"), await talk(port, "good")
            for _ in range(20):
                answers = await ask(*busy, DEPTH)
                assert sum(b"slowed_ms" in one for one in answers) == 0
                assert await ask(*good, 1) == [b"$-1\r\n"]
            if asyncio.get_running_loop().time() < until_s:  # else they may have been read again
                assert quotas.calls["hammer"] == ran
                assert pace.slowed == 2
            for _, writer in (hammer, second, busy, good):
                writer.transport.abort()
            while door.connected:
                await asyncio.sleep(0.01)

    run(story)


def test_pipeline_rejected_in_later_turns_is_slowed() -> None:
    """With the real clock, a delay of 1 ms ends before a slow machine checks it."""

    async def story() -> None:
        quotas = Quotas(QUOTA_SPENT, at_once=False, later_s=0.005)
        tokens = Tokens({"hammer": Identity("hammer", (), TABLES)})
        settings = RefusalPaceSettings(burst=BURST, refusals_per_s=1, delay_us_max=1_000)
        pace = RefusalPace(settings)
        turns = RespSettings(turn_commands_max=DEPTH)
        door = RespDoor(quotas, tokens, turns, KEY_VALUES, HandClock(), pace)
        async with listening(door) as port:
            hammer = await talk(port, "hammer")
            for _ in range(20):
                await ask(*hammer, 3 * DEPTH // 2)
            hammer[1].transport.abort()
            while door.connected:
                await asyncio.sleep(0.01)
        assert pace.slowed >= 10

    run(story)
