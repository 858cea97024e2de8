"""Fleet loads: dispatchers report their units in flight and in the queue to each other.

It is for fleets with a store; what is done with the sums is in `policies/admission/fleet.py`. One
script call in a beat tells the changes here and reads the sums, so its cost does not grow with the
fleet.

    {KEY}:at         sorted set   name -> instant of the last beat, by the store's clock
    {KEY}:sum        hash         number of a resource -> its sum over all dispatchers
    {KEY}:ended      hash         resource NUL count -> units that have ended at any of them, their
                                  time, and the patience of their callers
    {KEY}:of:NAME    hash         resource -> numbers that NAME has told, subtracted when it is gone
    {KEY}:leads      string       the dispatcher that finds limits; another one if it is silent
    {KEY}:limit      hash         resource -> the limit that was found

A number is `RESOURCE` NUL `PLACE`: place 0 is what is in flight, and place r what waits of rank
r - 1. Numbers are absolute values, so a repeated beat changes nothing but `ended`. A dispatcher
that was idle for `IDLE_US` sends no beats. Bounds: the fleet sends `BEATS_PER_S` beats a second in
all, each with at most `RESOURCES_MAX` resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.policies.admission.fleet import MEMBERS_MAX, FleetShare, beat_us
from sluicegate.policies.admission.fleet_limit import NOTHING, SharedLoad
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.resource import RANKS
from sluicegate.stores.redis.errors import reply_of
from sluicegate.stores.redis.script import Script
from sluicegate.wire.resp import Part

if TYPE_CHECKING:
    from sluicegate.stores.redis.client import RedisClient

KEY_DEFAULT: Final = "sluicegate:kv:loads"
WATCHED: Final = "loads"
RESOURCES_MAX: Final = 128
IDLE_US: Final = 1_000_000
GONE_US: Final = 1_000_000
TIMEOUT_S: Final = 0.5


class _Counts(NamedTuple):
    """The counts of one resource here; they only grow."""

    ended: int
    spent_us: int
    patience_us: int

    def since(self, before: _Counts) -> tuple[int, int, int]:
        """Return what was added; all of it if the resource was forgotten meanwhile."""
        if self.ended < before.ended:
            return self
        return (
            self.ended - before.ended,
            self.spent_us - before.spent_us,
            self.patience_us - before.patience_us,
        )


COUNTS: Final = len(_Counts._fields)
_PARTS: Final = """
local base, sep = KEYS[1], string.char(0)
local at, sums, ended = base .. ':at', base .. ':sum', base .. ':ended'
local leads, limits = base .. ':leads', base .. ':limit'

local function add(field, change)
  if redis.call('HINCRBY', sums, field, string.format('%.0f', change)) <= 0 then
    redis.call('HDEL', sums, field)
  end
end

local function numbers(packed)
  local list = {}
  for number in string.gmatch(packed or '', '%d+') do list[#list + 1] = tonumber(number) end
  return list
end

local function change(resource, before, after)
  for place = 1, math.max(#before, #after) do
    local difference = (after[place] or 0) - (before[place] or 0)
    if difference ~= 0 then add(resource .. sep .. place - 1, difference) end
  end
end

local function forget(name)
  local own = base .. ':of:' .. name
  local told = redis.call('HGETALL', own)
  for i = 1, #told, 2 do change(told[i], numbers(told[i + 1]), {}) end
  redis.call('DEL', own)
  redis.call('ZREM', at, name)
  if redis.call('GET', leads) == name then redis.call('DEL', leads) end
end
"""
# KEYS: the base. ARGV: name; us until one is gone; how many limits who leads tells, or -1, and for
# each its resource and itself; how many resources follow, and for each its name, its counts
# since the last beat, and its numbers in one text. At most 8 that are gone are forgotten in a beat.
# Returns whether this one leads, then the sums, the counts and the limits of all resources, or of
# those in the call if there are many.
LOADS: Final = Script(
    _PARTS
    + f"""
local places, kinds = {RANKS + 1}, {COUNTS}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local gone, given = tonumber(ARGV[2]), tonumber(ARGV[3])
local ends = math.ceil(gone / 500)
local function far(low, high)
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', at, low, high, 'LIMIT', 0, 8)) do forget(one) end
end
far('-inf', string.format('(%.0f', now - gone))
far(string.format('(%.0f', now + gone), '+inf')
local own = base .. ':of:' .. ARGV[1]
redis.call('ZADD', at, string.format('%.0f', now), ARGV[1])
local leader = redis.call('GET', leads) or ARGV[1]
if leader == ARGV[1] then redis.call('SET', leads, leader, 'PX', math.ceil(gone / 1000)) end
local names, arg = {{}}, 4
if leader == ARGV[1] and given >= 0 then
  redis.call('DEL', limits)
  for i = 1, given do redis.call('HSET', limits, ARGV[2 + 2 * i], ARGV[3 + 2 * i]) end
end
arg = arg + 2 * math.max(0, given)
local told = tonumber(ARGV[arg])
arg = arg + 1
for i = 1, told do
  local name, packed = ARGV[arg], ARGV[arg + 1 + kinds]
  names[i] = name
  for kind = 1, kinds do
    if ARGV[arg + kind] ~= '0' then
      redis.call('HINCRBY', ended, name .. sep .. kind, ARGV[arg + kind])
    end
  end
  local before = redis.call('HGET', own, name)
  if before ~= packed then
    change(name, numbers(before), numbers(packed))
    if string.find(packed, '[1-9]') then
      redis.call('HSET', own, name, packed)
    else
      redis.call('HDEL', own, name)
    end
  end
  arg = arg + 2 + kinds
end
for _, key in ipairs({{at, sums, own, limits}}) do redis.call('PEXPIRE', key, ends) end
redis.call('PEXPIRE', ended, ends * 30)
local leading = leader == ARGV[1] and 1 or 0
local most = {RESOURCES_MAX}
if redis.call('HLEN', sums) <= most * places and redis.call('HLEN', ended) <= most * kinds then
  return {{leading, redis.call('HGETALL', sums), redis.call('HGETALL', ended),
    redis.call('HGETALL', limits)}}
end
local found = {{{{}}, {{}}, {{}}}}
local function read(key, field, into)
  into[#into + 1] = field
  into[#into + 1] = redis.call('HGET', key, field) or '0'
end
for _, name in ipairs(names) do
  for place = 0, places - 1 do read(sums, name .. sep .. place, found[1]) end
  for kind = 1, kinds do read(ended, name .. sep .. kind, found[2]) end
  read(limits, name, found[3])
end
return {{leading, found[1], found[2], found[3]}}
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
        self._counts: dict[str, _Counts] = {}  # as last reported
        self._leads = False
        self._admitted = -1
        self._busy_us = 0

    async def run(self) -> None:
        """Beat until cancelled; then leave."""
        try:
            while True:
                await asyncio.sleep(beat_us(self._live()) / 1e6)
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
        if not 1 < live <= MEMBERS_MAX or now_us - self._busy_us > IDLE_US:
            share.forget(live, now_us)
            return True
        told = dict(islice(told.items(), RESOURCES_MAX))
        args: list[Part] = [self._name, GONE_US]
        if self._leads:
            limits = dict(islice(share.found().items(), RESOURCES_MAX))
            args.append(len(limits))
            for name, slots in limits.items():
                args += (name, slots)
        else:
            args.append(-1)
        args.append(len(told))
        for name, load in told.items():
            counts = _counts_of(load)
            before = self._counts.get(name, counts)
            args.append(name)
            args += counts.since(before)
            args.append(" ".join(map(str, (load.inflight, *load.waiting))))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                call = self._client.run_script(LOADS, [self._key], args)
                reply = await reply_of(call, WATCHED)
        except (Unavailable, TimeoutError):
            self.failures += 1
            self._leads = False
            share.forget(live, self._clock.now_us())
            return False
        self._counts |= {name: _counts_of(load) for name, load in told.items()}
        if len(self._counts) > len(gate.resources):
            self._counts = {
                name: was for name, was in self._counts.items() if name in gate.resources
            }
        self._leads = bool(reply[0])
        share.hear(told, _sums(told, reply), live, self._clock.now_us(), leads=self._leads)
        return True

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await reply_of(self._client.run_script(FORGET, [self._key], [self._name]), WATCHED)
        except (Unavailable, TimeoutError):
            self.failures += 1


def _counts_of(load: SharedLoad) -> _Counts:
    return _Counts(load.ended, load.spent_us, load.patience_us)


def _sums(told: Iterable[str], reply: Any) -> Mapping[str, SharedLoad]:
    """Read the sums of the fleet for all resources with load, and for those `told`."""
    _, sums, counts, limits = reply
    loads = dict.fromkeys(told, NOTHING)
    numbers: dict[str, list[int]] = {}
    for name, place, value in _fields(sums):
        numbers.setdefault(name, [0] * (RANKS + 1))[place] = value
    for name, (inflight, *waiting) in numbers.items():
        loads[name] = NOTHING._replace(inflight=inflight, waiting=tuple(waiting))
    totals: dict[str, list[int]] = {}
    for name, kind, value in _fields(counts):
        totals.setdefault(name, [0] * COUNTS)[kind - 1] = value
    slots = dict(zip(map(_text, limits[::2]), map(int, limits[1::2]), strict=True))
    for name, load in loads.items():
        ended, spent_us, patience_us = totals.get(name, (0, 0, 0))
        loads[name] = load._replace(
            ended=ended,
            spent_us=spent_us,
            patience_us=patience_us,
            slots=slots.get(name, 0),
        )
    return loads


def _fields(pairs: Sequence[bytes]) -> Iterator[tuple[str, int, int]]:
    """Return resource, number after it and value of each field of a hash."""
    for field, value in zip(pairs[::2], pairs[1::2], strict=True):
        name, _, number = _text(field).rpartition("\0")
        yield name, int(number), int(value)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
