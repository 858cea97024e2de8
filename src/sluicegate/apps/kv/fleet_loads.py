"""Fleet loads: dispatchers report their units in flight and in the queue to each other.

It is for engines whose slots are known (`--slots`) and for fleets with a store; what is done with
the sums is in `policies/admission/fleet.py`. One script call in a beat tells the changes here and
reads the sums, so its cost does not grow with the fleet.

    {KEY}:at         sorted set   name -> instant of the last beat, by the store's clock
    {KEY}:sum        hash         number of a resource -> its sum over all dispatchers
    {KEY}:ended      hash         resource -> units that have ended at any of them
    {KEY}:of:NAME    hash         what NAME has told, subtracted when it is gone

A number is `RESOURCE` NUL `PLACE`: place 0 is what is in flight, and place r what waits of rank
r - 1. Numbers are absolute values, so a repeated beat changes nothing but `ended`. A dispatcher
that was idle for `IDLE_US` sends no beats. Bounds: the fleet sends `BEATS_PER_S` beats a second in
all, each with at most `RESOURCES_MAX` resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.admission.fleet import BEAT_US, FleetShare, SharedLoad
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.resource import RANKS
from sluicegate.stores.redis.errors import reply_of
from sluicegate.stores.redis.script import Script
from sluicegate.wire.resp import Part

if TYPE_CHECKING:
    from sluicegate.stores.redis.client import RedisClient

KEY_DEFAULT: Final = "sluicegate:kv:loads"
WATCHED: Final = "loads"
BEATS_PER_S: Final = 2_000  # of all dispatchers together
RESOURCES_MAX: Final = 128
IDLE_US: Final = 1_000_000
GONE_US: Final = 1_000_000
TIMEOUT_S: Final = 0.5

_PARTS: Final = """
local base, sep = KEYS[1], string.char(0)
local at, sums, ended = base .. ':at', base .. ':sum', base .. ':ended'

local function add(field, change)
  if redis.call('HINCRBY', sums, field, string.format('%.0f', change)) <= 0 then
    redis.call('HDEL', sums, field)
  end
end

local function forget(name)
  local own = base .. ':of:' .. name
  local told = redis.call('HGETALL', own)
  for i = 1, #told, 2 do add(told[i], -tonumber(told[i + 1])) end
  redis.call('DEL', own)
  redis.call('ZREM', at, name)
end
"""
# KEYS: the base. ARGV: name, us until one is gone, how many resources are told; for each its name,
# the units that have ended since the last beat, and its numbers; at most 8 that are gone are
# forgotten in a beat. Returns the names and the numbers of all resources with load, but of no more
# than are told if there are many, then the ended units of each resource told.
LOADS: Final = Script(
    _PARTS
    + f"""
local places = {RANKS + 1}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local gone, told = tonumber(ARGV[2]), tonumber(ARGV[3])
local function far(low, high)
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', at, low, high, 'LIMIT', 0, 8)) do forget(one) end
end
far('-inf', string.format('(%.0f', now - gone))
far(string.format('(%.0f', now + gone), '+inf')
local own = base .. ':of:' .. ARGV[1]
redis.call('ZADD', at, string.format('%.0f', now), ARGV[1])
local names, arg = {{}}, 4
for i = 1, told do
  local name = ARGV[arg]
  names[i] = name
  redis.call('HINCRBY', ended, name, ARGV[arg + 1])
  local fields = {{}}
  for place = 0, places - 1 do fields[place + 1] = name .. sep .. place end
  local before = redis.call('HMGET', own, unpack(fields))
  for place = 1, places do
    local value = tonumber(ARGV[arg + 1 + place])
    local was = tonumber(before[place] or '0')
    if value ~= was then
      add(fields[place], value - was)
      if value > 0 then
        redis.call('HSET', own, fields[place], string.format('%.0f', value))
      else
        redis.call('HDEL', own, fields[place])
      end
    end
  end
  arg = arg + 2 + places
end
local ends = math.ceil(gone / 500)
for _, key in ipairs({{at, sums, own}}) do redis.call('PEXPIRE', key, ends) end
redis.call('PEXPIRE', ended, ends * 30)
local found
if redis.call('HLEN', sums) <= {RESOURCES_MAX} * places then
  found = redis.call('HGETALL', sums)
else
  found = {{}}
  for _, name in ipairs(names) do
    for place = 0, places - 1 do
      local field = name .. sep .. place
      found[#found + 1] = field
      found[#found + 1] = redis.call('HGET', sums, field) or '0'
    end
  end
end
local seen = {{}}
for i = 1, #found, 2 do
  local name = string.match(found[i], '^(.*)%z')
  if not seen[name] then
    seen[name] = true
    names[#names + 1] = name
  end
end
local counts = {{}}
for i, name in ipairs(names) do
  counts[2 * i - 1], counts[2 * i] = name, redis.call('HGET', ended, name) or '0'
end
return {{found, counts}}
""",
    name="loads",
)
FORGET: Final = Script(_PARTS + "forget(ARGV[1]) return 1", name="forget_loads")


@final
class FleetLoads:
    """Tells the load of one gate in a Redis; the client stays its owner's."""

    def __init__(
        self,
        client: RedisClient,
        name: str,
        gate: Gate,
        clock: Clock,
        chance: Chance,
        live: Callable[[], int],
        *,
        key: str = KEY_DEFAULT,
    ) -> None:
        """`live` returns the number of dispatchers, this one included."""
        self.share = FleetShare(gate, chance)
        self.failures = 0
        self._client = client
        self._name = name
        self._gate = gate
        self._clock = clock
        self._live = live
        self._key = "{" + key + "}"
        self._ended: dict[str, int] = {}  # as it was told
        self._admitted = -1
        self._busy_us = 0

    @property
    def every_us(self) -> int:
        """Return the time between two beats: longer in a large fleet."""
        return max(BEAT_US, self._live() * 1_000_000 // BEATS_PER_S)

    async def run(self) -> None:
        """Beat until cancelled; then leave."""
        try:
            while True:
                await asyncio.sleep(self.every_us / 1e6)
                await self.beat()
        finally:
            await self._leave()

    async def beat(self) -> bool:
        """Tell and hear; return whether the store has answered."""
        gate, share, live = self._gate, self.share, max(1, self._live())
        now_us = self._clock.now_us()
        gate.members = live
        told = share.tell(now_us)
        admitted = gate.stats().admitted
        if told or admitted != self._admitted:
            self._admitted, self._busy_us = admitted, now_us
        if live == 1 or now_us - self._busy_us > IDLE_US:
            share.forget(live, now_us)
            return True
        told = dict(islice(told.items(), RESOURCES_MAX))
        args: list[Part] = [self._name, GONE_US, len(told)]
        for name, load in told.items():
            args += (name, load.ended - self._ended.get(name, load.ended), load.inflight)
            args += load.waiting
        try:
            async with asyncio.timeout(TIMEOUT_S):
                call = self._client.run_script(LOADS, [self._key], args)
                reply = await reply_of(call, WATCHED)
        except (Unavailable, TimeoutError):
            self.failures += 1
            share.forget(live, self._clock.now_us())
            return False
        self._ended = {name: load.ended for name, load in told.items()} | {
            name: ended for name, ended in self._ended.items() if name not in told
        }
        share.hear(told, _sums(reply), live, self._clock.now_us())
        return True

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await reply_of(self._client.run_script(FORGET, [self._key], [self._name]), WATCHED)
        except (Unavailable, TimeoutError):
            self.failures += 1


def _sums(reply: Any) -> Mapping[str, SharedLoad]:
    """Read the sums over all dispatchers, by resource."""
    found, counts = reply
    numbers: dict[str, list[int]] = {}
    for field, value in zip(found[::2], found[1::2], strict=True):
        name, _, place = field.decode("utf-8", "replace").rpartition("\0")
        numbers.setdefault(name, [0] * (RANKS + 1))[int(place)] = int(value)
    sums = {}
    for name, ended in zip(counts[::2], counts[1::2], strict=True):
        text = name.decode("utf-8", "replace")
        inflight, *waiting = numbers.get(text, [0] * (RANKS + 1))
        sums[text] = SharedLoad(inflight, int(ended), tuple(waiting))
    return sums
