"""Members: which dispatchers are alive, and the demand on each.

A heartbeat is a field of one hash in the store, written and read by one script at the store's own
time. A dispatcher without a heartbeat for `gone_us` is gone; one that was paused is back with its
next. While the store does not answer, the last known members stand.

A heartbeat carries demand by caller and the hottest keys, as JSON with a version, at most
`payload_bytes_max`; what matters least is left out first. One of a newer version counts as alive,
but is not read. Without a store, a number or a list of names gives the members.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.policies.leased_budget import SHARE_ONE
from sluicegate.policies.settings import within
from sluicegate.stores.redis.errors import reply_of
from sluicegate.stores.redis.script import Script
from sluicegate.wire.resp import Part

if TYPE_CHECKING:
    from sluicegate.stores.redis.client import RedisClient

VERSION: Final = 1
KEY_DEFAULT: Final = "sluicegate:kv:members"
WATCHED: Final = "heartbeat"  # as the store's watch knows this
NAME_BYTES_MAX: Final = 240
MEMBERS_MAX: Final = 1_000
SEED_PART: Final = 0.02  # of the quota: as if each were asked for so much more
NOTHING: Final[Mapping[str, int]] = {}

# KEYS: the hash. ARGV: name (or "" to only look), payload, us until one is gone, members at most.
BEAT: Final = Script(
    """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local key, name, gone, most = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local all, out, count = redis.call('HGETALL', key), {}, 0
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^%d+') or '0')
  local bar = string.find(all[i + 1], '|', 1, true)
  local age = now - at
  if age >= gone or age < -gone or not bar then
    redis.call('HDEL', key, all[i])
  elseif all[i] ~= name then
    out[#out + 1], out[#out + 2] = all[i], age > 0 and age or 0
    out[#out + 1] = string.sub(all[i + 1], bar + 1)
    count = count + 1
  end
end
if name ~= '' and count < most then
  redis.call('HSET', key, name, string.format('%.0f', now) .. '|' .. ARGV[2])
  redis.call('PEXPIRE', key, math.ceil(gone / 1000) * 10)
end
return out
""",
    name="beat",
)


class NodeHeartbeat(NamedTuple):
    """The last heartbeat of another dispatcher."""

    name: str
    age_us: int
    demand_mru: Mapping[str, int]  # an epoch, by caller
    hot: Mapping[str, int]  # hits a second, by key


class Members(Protocol):
    """The dispatchers of a fleet. `demand_mru` is the demand on this one."""

    demand_mru: Mapping[str, int]

    def live(self) -> int:
        """How many dispatchers, this one included."""

    def names(self) -> Sequence[str]:
        """Their names, this one's first."""

    def others(self) -> Sequence[NodeHeartbeat]:
        """Return the last heartbeats of the others."""

    def tell(self, demand_mru: Mapping[str, int]) -> None:
        """What the others are to know of this one's demand."""


def demand_shares(members: Members, quota_mru_of: Callable[[str], int]) -> dict[str, int]:
    """This dispatcher's share of each caller, in millionths; all members' add up to one at most.

    Everyone counts as asked for a little more than it is, so that who begins somewhere is not
    refused there until the others have heard.
    """
    own, others = members.demand_mru, members.others()
    callers = set(own)
    for beat in others:
        callers.update(beat.demand_mru)
    live = max(members.live(), 1)
    shares: dict[str, int] = {}
    for caller in callers:
        demand = own.get(caller, 0)
        demands = [beat.demand_mru.get(caller, 0) for beat in others]
        little = quota_mru_of(caller) * SEED_PART
        total = demand + sum(demands) + live * little
        shares[caller] = min(int((demand + little) / total * SHARE_ONE), SHARE_ONE)
    return shares


@final
class StaticMembers:
    """A number or a list from the settings; the demand on others is unknown."""

    __slots__ = ("_names", "demand_mru")

    def __init__(self, members: int | Sequence[str], own: str = "") -> None:
        if isinstance(members, int):
            within("members", members, 1, MEMBERS_MAX)
            names = [own or "1", *(str(place) for place in range(2, members + 1))]
        else:
            names = [*dict.fromkeys(members)]
            within("members", len(names), 1, MEMBERS_MAX)
            if own:
                if own not in names:
                    raise BadValue("members", own, f"name this one too; named are {names}")
                names.remove(own)
                names.insert(0, own)
        self._names = names
        self.demand_mru: Mapping[str, int] = NOTHING

    def live(self) -> int:
        """As it was written down."""
        return len(self._names)

    def names(self) -> Sequence[str]:
        """Likewise."""
        return list(self._names)

    def others(self) -> Sequence[NodeHeartbeat]:
        """Return nothing: the others send no heartbeats."""
        return []

    def tell(self, demand_mru: Mapping[str, int]) -> None:
        """Record it; nobody receives it."""
        self.demand_mru = demand_mru


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    """How often, and for how long one counts."""

    key: str = KEY_DEFAULT
    every_us: int = 500_000
    gone_us: int = 2_000_000
    payload_bytes_max: int = 16_384
    members_max: int = 256

    def __post_init__(self) -> None:
        within("members.every_us", self.every_us, 10_000, 60_000_000)
        within("members.gone_us", self.gone_us, self.every_us * 2, 600_000_000)
        within("members.payload_bytes_max", self.payload_bytes_max, 64, 1 << 20)
        within("members.members_max", self.members_max, 1, MEMBERS_MAX)


class HeartbeatStats(NamedTuple):
    """Levels now, counts since the beginning."""

    live: int
    beats: int
    failures: int
    failing: bool  # the last beat was not answered
    unread: int  # beats of a version that is not known here


@final
class HeartbeatMembers:
    """Beats in a Redis; make it within the loop that uses it. The client stays its owner's."""

    def __init__(
        self,
        client: RedisClient,
        name: str,
        *,
        settings: HeartbeatSettings | None = None,
        hot: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
            raise BadValue("members.name", name, f"give 1 to {NAME_BYTES_MAX} bytes")
        self.name = name
        self.settings = settings or HeartbeatSettings()
        self.hot = hot
        self.watch: StoreWatch | None = None  # who hears whether the store answers
        self.demand_mru: Mapping[str, int] = NOTHING
        self._client = client
        self._others: list[NodeHeartbeat] = []
        self._beats = self._failures = self._unread = 0
        self._failing = False

    def live(self) -> int:
        """Return how many are alive, this one included."""
        return 1 + len(self._others)

    def names(self) -> Sequence[str]:
        """Likewise."""
        return [self.name, *(beat.name for beat in self._others)]

    def others(self) -> Sequence[NodeHeartbeat]:
        """Return their last heartbeats."""
        return self._others

    def tell(self, demand_mru: Mapping[str, int]) -> None:
        """For the next beat."""
        self.demand_mru = demand_mru

    async def run(self) -> None:
        """Beat until cancelled; then leave."""
        try:
            while True:
                await self.beat()
                await asyncio.sleep(self.settings.every_us / 1e6)
        finally:
            await self.leave()

    async def beat(self) -> bool:
        """Send a heartbeat and read those of the others; return whether the store answered."""
        settings = self.settings
        hot = self.hot() if self.hot is not None else NOTHING
        payload = encode_payload(self.demand_mru, hot, settings.payload_bytes_max)
        args: list[Part] = [self.name, payload, settings.gone_us, settings.members_max]
        try:
            async with asyncio.timeout(settings.every_us / 1e6):
                call = self._client.run_script(BEAT, [settings.key], args)
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
        self._others = [self._read(*reply[at : at + 3]) for at in range(0, len(reply), 3)]
        return True

    async def leave(self) -> None:
        """Remove this one from the store, if it answers."""
        try:
            async with asyncio.timeout(self.settings.every_us / 1e6):
                key = self.settings.key
                await reply_of(self._client.call("HDEL", key, self.name, key=key), WATCHED)
        except (Unavailable, TimeoutError):
            self._failures += 1

    def stats(self) -> HeartbeatStats:
        """What it looks like now."""
        return HeartbeatStats(self.live(), self._beats, self._failures, self._failing, self._unread)

    def _read(self, name: bytes, age_us: int, payload: bytes) -> NodeHeartbeat:
        demand, hot, version = parse_payload(payload)
        if not version:
            self._unread += 1
        return NodeHeartbeat(name.decode("utf-8", "replace"), age_us, demand, hot)


def encode_payload(demand_mru: Mapping[str, int], hot: Mapping[str, int], bytes_max: int) -> bytes:
    """Return a payload of at most so many bytes, with the largest of each kind."""
    demands = sorted(demand_mru.items(), key=_count, reverse=True)
    hottest = sorted(hot.items(), key=_count, reverse=True)
    while True:
        record = {"v": VERSION, "demand": dict(demands), "hot": dict(hottest)}
        payload = json.dumps(record, separators=(",", ":")).encode()
        if len(payload) <= bytes_max or not (demands or hottest):
            return payload
        fitting = bytes_max / len(payload)  # below one
        demands = demands[: int(len(demands) * fitting)]
        hottest = hottest[: int(len(hottest) * fitting)]


def parse_payload(payload: bytes) -> tuple[Mapping[str, int], Mapping[str, int], bool]:
    """Demand, hot keys, and whether it could be read; what another wrote is believed of nothing."""
    try:
        record: Any = json.loads(payload)
        if record["v"] != VERSION:
            return NOTHING, NOTHING, False
        return _counts(record["demand"]), _counts(record["hot"]), True
    except (ValueError, TypeError, KeyError, AttributeError):
        return NOTHING, NOTHING, False


def _counts(record: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in record.items() if type(count) is int and count > 0}


def _count(item: tuple[str, int]) -> int:
    return item[1]
