"""Heartbeats: the members of a fleet, and sums of their reports, in one Redis hash slot.

A beat writes the instant, and the changes of its dispatcher's report: its demand by caller. The
script adds the changes to sums over all dispatchers, so a beat reads sums and no other dispatcher's
report. Its cost does not grow with the fleet.

    {KEY}:at         sorted set   name -> instant of the last beat, by the store's clock
    {KEY}:changes    number       of joins and leaves
    {KEY}:demand     hash         caller -> demand on all dispatchers
    {KEY}:of:NAME    hash         what NAME has reported, subtracted when it is gone

Reports are absolute values, so a beat that is repeated changes nothing. A dispatcher that the store
does not know, since it was gone or the store was emptied, joins again and reports everything. While
the store does not answer, the last known members stand.

The members of a fleet share budgets of beats, changes and reads per second, so each member of a
larger fleet beats, reports and reads less often: see the constants below. Other bounds:
`members_max` members, beyond which a dispatcher is not counted, logs an error and is not ready;
`changes_max` changes of `report_bytes_max` bytes in a beat. The largest changes go first, such as
callers that are new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from sluicegate.apps.kv.members import NOTHING
from sluicegate.apps.kv.settings import BEATERS_MAX
from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.policies.settings import within
from sluicegate.stores.redis.errors import reply_of
from sluicegate.stores.redis.script import Script
from sluicegate.wire.resp import Part

if TYPE_CHECKING:
    from sluicegate.stores.redis.client import RedisClient

KEY_DEFAULT: Final = "sluicegate:kv:members"
WATCHED: Final = "heartbeat"  # as the store's watch knows this
NAME_BYTES_MAX: Final = 240
# How far demand moves before it is reported again: an estimate varies by as much between epochs.
DEMAND_NEWS: Final = 0.05
CALLERS_READ_MAX: Final = 256  # up to this number all are read; beyond it, those with demand here
# Over all members, in a second. With 1,000 members each is 2 to 5% of a core of Redis.
BEATS_PER_S: Final = 1_000
CHANGES_PER_S: Final = 4_000
DEMAND_READS_PER_S: Final = 500
NAME_LISTS_PER_S: Final = 50  # of changed names, and each is as long as the fleet
GONE_BEATS: Final = 4  # that a member misses
_VALUE_BYTES: Final = 20  # of a number as text, at most
_LONG_US: Final = 1 << 40
_US: Final = 1_000_000
_FULL: Final = -1

_log: Final = logging.getLogger("sluicegate.kv")

_PARTS: Final = """
local base = KEYS[1]
local at, demand = base .. ':at', base .. ':demand'

local function add(caller, change)
  if redis.call('HINCRBY', demand, caller, string.format('%.0f', change)) <= 0 then
    redis.call('HDEL', demand, caller)
  end
end

local function forget(name)
  local own = base .. ':of:' .. name
  local told = redis.call('HGETALL', own)
  for i = 1, #told, 2 do add(told[i], -tonumber(told[i + 1])) end
  redis.call('DEL', own)
  if redis.call('ZREM', at, name) == 1 then redis.call('INCR', base .. ':changes') end
end
"""
# KEYS: the base. ARGV: name, us until one is gone, members at most, the changes that were known,
# whether names are wanted, callers read at most, reported changes, us until one is gone for each
# member; then caller and demand of each change; then the callers to read. At most 16 that are gone
# are forgotten in a beat.
BEAT: Final = Script(
    _PARTS
    + """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local name, most = ARGV[1], tonumber(ARGV[3])
local gone = math.max(tonumber(ARGV[2]), redis.call('ZCARD', at) * tonumber(ARGV[8]))
local own, ends = base .. ':of:' .. name, math.ceil(gone / 1000) * 10
local function far(low, high)
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', at, low, high, 'LIMIT', 0, 8)) do forget(one) end
end
far('-inf', string.format('(%.0f', now - gone))
far(string.format('(%.0f', now + gone), '+inf')
local joined = redis.call('ZSCORE', at, name) == false
if joined then
  local count = redis.call('ZCARD', at)
  if count >= most then return {-1, count} end
  forget(name)
  redis.call('INCR', base .. ':changes')
end
redis.call('ZADD', at, string.format('%.0f', now), name)
local told = tonumber(ARGV[7])
if told > 0 then
  local fields, set, dropped = {}, {}, {}
  for i = 1, told do fields[i] = ARGV[7 + 2 * i] end
  local before = redis.call('HMGET', own, unpack(fields))
  for i = 1, told do
    local value, was = tonumber(ARGV[8 + 2 * i]), tonumber(before[i] or '0')
    if value ~= was then add(fields[i], value - was) end
    if value > 0 then
      set[#set + 1], set[#set + 2] = fields[i], ARGV[8 + 2 * i]
    else
      dropped[#dropped + 1] = fields[i]
    end
  end
  if #set > 0 then redis.call('HSET', own, unpack(set)) end
  if #dropped > 0 then redis.call('HDEL', own, unpack(dropped)) end
end
redis.call('PEXPIRE', own, ends * 2)
for _, key in ipairs({at, demand, base .. ':changes'}) do redis.call('PEXPIRE', key, ends) end
local changes = redis.call('GET', base .. ':changes')
local out = {joined and 1 or 0, redis.call('ZCARD', at), changes, {}, {}}
local first, read_max = 9 + 2 * told, tonumber(ARGV[6])
if read_max > 0 then
  if redis.call('HLEN', demand) <= read_max then
    out[4] = redis.call('HGETALL', demand)
  elseif ARGV[first] then
    local callers = {unpack(ARGV, first)}
    for i, total in ipairs(redis.call('HMGET', demand, unpack(callers))) do
      out[4][2 * i - 1], out[4][2 * i] = callers[i], total or '0'
    end
  end
end
if ARGV[5] == '1' and changes ~= ARGV[4] then out[5] = redis.call('ZRANGE', at, 0, -1) end
return out
""",
    name="beat",
)
LEAVE: Final = Script(_PARTS + "forget(ARGV[1]) return 1", name="leave")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    """How often, for how long one counts, and how much a beat carries."""

    key: str = KEY_DEFAULT
    every_us: int = 500_000
    gone_us: int = 2_000_000
    members_max: int = 1_000
    changes_max: int = 128
    report_bytes_max: int = 16_384

    def __post_init__(self) -> None:
        within("members.every_us", self.every_us, 10_000, 60_000_000)
        within("members.gone_us", self.gone_us, self.every_us * 2, 600_000_000)
        within("members.members_max", self.members_max, 1, BEATERS_MAX)
        within("members.changes_max", self.changes_max, 1, 1_000)
        within("members.report_bytes_max", self.report_bytes_max, 512, 1 << 20)


class HeartbeatStats(NamedTuple):
    """Levels now, counts since the beginning."""

    live: int
    beats: int
    failures: int
    failing: bool  # the last beat was not answered
    full: bool  # the fleet has `members_max` dispatchers, and this one is not counted


@final
class HeartbeatMembers:
    """Beats in a Redis; make it within the loop that uses it. The client stays its owner's.

    With `demand` the demand by caller is reported and read; only some forms of quotas need it.
    """

    def __init__(
        self,
        client: RedisClient,
        name: str,
        *,
        demand: bool = True,
        settings: HeartbeatSettings | None = None,
    ) -> None:
        if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
            raise BadValue("members.name", name, f"give 1 to {NAME_BYTES_MAX} bytes")
        self.name = name
        self.settings = settings or HeartbeatSettings()
        self.watch: StoreWatch | None = None  # is notified whether the store answers
        self.demand_mru: Mapping[str, int] = NOTHING
        self._client = client
        self._key = "{" + self.settings.key + "}"
        self._demand = demand
        self._told: dict[str, int] = {}  # what the store has of this one
        self._live = 1
        self._names: list[str] = []  # of the others
        self._changes = b""  # when they were read
        self._elsewhere_mru: Mapping[str, int] = NOTHING
        # Since they were read; as of now they never were.
        self._demand_age_us = self._names_age_us = _LONG_US
        self._beats = self._failures = 0
        self._failing = self._full = False

    def live(self) -> int:
        """Return how many are alive, this one included."""
        return self._live

    def names(self) -> Sequence[str]:
        """Return their names; in a large fleet as of some seconds ago."""
        return [self.name, *self._names]

    def demand_elsewhere_mru(self) -> Mapping[str, int]:
        """Return the demand on the others together."""
        return self._elsewhere_mru

    def tell(self, demand_mru: Mapping[str, int]) -> None:
        """For the next beat."""
        self.demand_mru = demand_mru

    def why_not_counted(self) -> str:
        """Return why the fleet does not count this dispatcher; empty if it does."""
        if not self._full:
            return ""
        most = self.settings.members_max
        return f"the fleet has --members-max {most:,} dispatchers; raise it at each of them"

    @property
    def every_us(self) -> int:
        """Return the time between two beats: longer in a large fleet."""
        return max(self.settings.every_us, self._apart_us(BEATS_PER_S))

    async def run(self) -> None:
        """Beat until cancelled; then leave."""
        try:
            while True:
                await self.beat()
                await asyncio.sleep(self.every_us / _US)
        finally:
            await self.leave()

    async def beat(self) -> bool:
        """Report what has changed and read the sums; return whether the store answered."""
        settings = self.settings
        every_us = self.every_us
        self._demand_age_us += every_us
        self._names_age_us += every_us
        demand_wanted = self._demand and self._demand_age_us >= self._apart_us(DEMAND_READS_PER_S)
        names_wanted = self._names_age_us >= self._apart_us(NAME_LISTS_PER_S)
        told = self._report()
        args: list[Part] = [
            self.name,
            settings.gone_us,
            settings.members_max,
            self._changes,
            int(names_wanted),
            CALLERS_READ_MAX if demand_wanted else 0,
            len(told),
            GONE_BEATS * _US // BEATS_PER_S,
        ]
        for caller, demand in told.items():
            args += (caller, demand)
        if demand_wanted:
            args += list(self.demand_mru)[:CALLERS_READ_MAX]
        try:
            async with asyncio.timeout(settings.every_us / _US):
                call = self._client.run_script(BEAT, [self._key], args)
                reply = await reply_of(call, WATCHED)
        except (Unavailable, TimeoutError) as error:
            self._failures += 1
            self._failing = True
            if self.watch is not None:
                self.watch.failed(WATCHED, error)
            return False
        self._beats += 1
        self._failing = False
        if self.watch is not None:
            self.watch.answered(WATCHED)
        self._take(reply, told, demand_wanted, names_wanted)
        return True

    async def leave(self) -> None:
        """Remove this one from the store, if it answers."""
        try:
            async with asyncio.timeout(self.settings.every_us / _US):
                await reply_of(self._client.run_script(LEAVE, [self._key], [self.name]), WATCHED)
        except (Unavailable, TimeoutError):
            self._failures += 1

    def stats(self) -> HeartbeatStats:
        """Return levels and counts."""
        return HeartbeatStats(self._live, self._beats, self._failures, self._failing, self._full)

    # Inside.

    def _apart_us(self, per_s: int) -> int:
        """Return the pause between two actions here, of `per_s` by all members."""
        return self._live * _US // per_s

    def _report(self) -> dict[str, int]:
        """Return changes since the last report, the largest first."""
        now: dict[str, int] = {}
        if self._demand:
            now = {caller: mru for caller, mru in self.demand_mru.items() if mru > 0}
        told = self._told
        changes = [
            (_change(told.get(caller, 0), now.get(caller, 0)), caller) for caller in {*now, *told}
        ]
        changed = sorted((one for one in changes if one[0] > DEMAND_NEWS), reverse=True)
        report: dict[str, int] = {}
        left = self.settings.report_bytes_max
        most = CHANGES_PER_S * self.every_us // (_US * self._live)
        for _, caller in changed[: max(1, min(most, self.settings.changes_max))]:
            left -= len(caller.encode()) + _VALUE_BYTES
            if left < 0:
                break
            report[caller] = now.get(caller, 0)
        return report

    def _take(
        self,
        reply: Any,
        report: Mapping[str, int],
        demand_read: bool,
        names_read: bool,
    ) -> None:
        if reply[0] == _FULL:
            self._set_full(True)
            self._live = int(reply[1]) + 1
            self._told.clear()
            return
        self._set_full(False)
        joined, live, changes, demand, names = reply
        if joined:
            self._told.clear()
        self._told.update(report)
        for caller in [caller for caller, mru in report.items() if not mru]:
            del self._told[caller]
        self._live = max(int(live), 1)
        if demand_read:
            self._demand_age_us = 0
            self._elsewhere_mru = self._without_own(demand)
        if names_read and changes != self._changes:
            self._names_age_us = 0
            self._changes = changes
            self._names = [
                text for name in names if (text := name.decode("utf-8", "replace")) != self.name
            ]

    def _without_own(self, sums: Sequence[bytes]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, total in zip(sums[::2], sums[1::2], strict=True):
            text = name.decode("utf-8", "replace")
            elsewhere = int(total) - self._told.get(text, 0)
            if elsewhere > 0:
                found[text] = elsewhere
        return found

    def _set_full(self, full: bool) -> None:
        if full and not self._full:
            self._full = True
            _log.error("this dispatcher is not counted: %s", self.why_not_counted())
        elif self._full and not full:
            self._full = False
            _log.info("this dispatcher is counted in the fleet")


def _change(told: int, now: int) -> float:
    """How far a value has moved, as a part of the larger one."""
    return abs(now - told) / max(now, told, 1)
