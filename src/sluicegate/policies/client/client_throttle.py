"""Client throttle: decides whether a backend that refuses is worth another call.

One throttle for each backend and class: in one for all, the refusals of bulk work would silence
what is critical. The kernel is `kernels/client_throttle.py`: calls refused here count as requests,
those that were sent when they end, and one call a `probe_us` passes in any case.

Beside it stands the gate of the backend's own word. A result may carry the least class that the
backend `admits` at present; for `level_hold_us` what matters less is refused here at once, before
it has cost anything. It ends by itself, and CRITICAL always passes it. A call is sent if both let
it; what the gate refuses is not counted, for the throttle is to learn from what was asked.

What a result means to the throttle: accepted is whatever the backend worked on, were it with an
error of its own. Overload, a time-out and no connection are not. A quota's refusal will not get
better by asking less, a cancelled call says nothing, and one that was unwound was never sent: they
are entered as accepted, so that they hold nothing back. So is the overload of a backend that itself
admits all that comes: it hands on what a backend of its own said.

A backend that says itself that it has too much (our overload mark, not a mere status) is sent less:
`multiplier_told` times what it accepts, while it says so. That is not the rule for others, since
with 1.5 a backend that loses 40% of its calls whatever is asked of it (hosts that are down behind
one name) would be asked for less and less, down to nothing. Nor is it where the mark speaks for a
few of many: if the part that it says is admitted is less than half of what was accepted.

Cost: two look-ups, a draw, a division and a permit. Bounds: `keys_max` throttles and as many gates;
one that is idle for the history has nothing to remember, and what comes above that passes unjudged
and is counted as `untracked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD, Admission
from sluicegate.contracts.reasons import CLIENT_THROTTLED
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.client_throttle import ThrottleSettings, ThrottleWindow
from sluicegate.policies.client.call_result import ADMITS_ALL, CallResult, ResultKind
from sluicegate.policies.keyed_table import KEYS_MAX, Key, KeyedTable, key_of
from sluicegate.policies.settings import check_ranges, wrong_setting

RULE_ID: Final = "client_throttle"
_SHARE_WEIGHT: Final = 1 / 16
_SHARE_PERMILLE: Final = 100  # below that all marks are alike
NOT_ACCEPTED: Final = (ResultKind.OVERLOADED, ResultKind.TIMED_OUT, ResultKind.UNREACHED)


@final
@dataclass(frozen=True, kw_only=True)
class ClientThrottleSettings(ThrottleSettings):
    """The settings of each window; which calls share one, and how long a backend's word holds."""

    level_hold_us: int = ranged(1_000_000, 0, WAIT_US_MAX)
    by_operation: bool = False
    by_criticality: bool = True
    keys_max: int = ranged(1_000, 1, KEYS_MAX)

    def __post_init__(self) -> None:
        check_ranges("client_throttle", self)
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None


class ClientThrottleStats(NamedTuple):
    """Calls sent, held back by the throttle and by the gate, under way; throttles entry."""

    sent: int
    throttled: int
    gated: int
    inflight: int
    keys: int
    untracked: int


@final
class _Entry:
    """One window and when it was last used."""

    __slots__ = ("history_us", "share", "used_us", "window")

    def __init__(self, window: ThrottleWindow, history_us: int) -> None:
        self.window = window
        self.history_us = history_us
        self.share = 1.0  # accepted lately, of what was sent
        self.used_us = 0

    def at_rest(self, now_us: int) -> bool:
        """Whether its history is empty by now."""
        return now_us - self.used_us > self.history_us


@final
class _Level:
    """The least class that a backend admits by its own word, and until when that holds."""

    __slots__ = ("least", "until_us")

    def __init__(self) -> None:
        self.least = int(Criticality.BULK)
        self.until_us = 0

    def at_rest(self, now_us: int) -> bool:
        """Whether its time is over."""
        return now_us >= self.until_us


@final
class ClientThrottle:
    """Refuses locally what the backend would refuse."""

    __slots__ = (
        "_by_criticality",
        "_by_operation",
        "_chance",
        "_gated",
        "_inflight",
        "_levels",
        "_sent",
        "_throttled",
        "_windows",
        "settings",
    )

    def __init__(self, chance: Chance, settings: ClientThrottleSettings | None = None) -> None:
        self.settings = ClientThrottleSettings() if settings is None else settings
        self._by_operation = self.settings.by_operation
        self._by_criticality = self.settings.by_criticality
        self._chance = chance
        self._windows: KeyedTable[_Entry] = KeyedTable(self.settings.keys_max)
        self._levels: KeyedTable[_Level] = KeyedTable(self.settings.keys_max)
        self._sent = self._throttled = self._gated = self._inflight = 0

    def admit(self, request: Request, now_us: int) -> Admission:
        """A permit for a call worth sending, else when the next probe surely is."""
        if self._levels.entries:
            level = self._levels.entries.get((request.shard, "", -1))
            if (
                level is not None
                and now_us < level.until_us
                and level.least < request.criticality
                and request.criticality > Criticality.CRITICAL
            ):
                self._gated += 1
                return _refusal(level.until_us - now_us)
        key = key_of(request, by_operation=self._by_operation, by_criticality=self._by_criticality)
        entry = self._windows.entries.get(key)
        if entry is None:
            entry = self._enter(key, now_us)
            if entry is None:
                return NOTHING_HELD
        entry.used_us = now_us
        if not entry.window.admit(self._chance.draw(), now_us):
            self._throttled += 1
            return _refusal(self.settings.probe_us)
        self._sent += 1
        self._inflight += 1
        return ClientThrottlePermit(self, entry, request.shard)

    def record_level(self, shard: str, admits: Criticality, now_us: int) -> None:
        """Record the least class that a backend admits; CRITICAL is the least possible."""
        key = (shard, "", -1)
        level = self._levels.entries.get(key)
        if level is None:
            if admits is Criticality.BULK or not self._levels.has_room(now_us):
                return
            level = _Level()
            self._levels.entries[key] = level
        level.least = int(admits)
        level.until_us = now_us + self.settings.level_hold_us

    def stats(self) -> ClientThrottleStats:
        """What was decided so far, and how things stand."""
        return ClientThrottleStats(
            self._sent,
            self._throttled,
            self._gated,
            self._inflight,
            len(self._windows),
            self._windows.untracked,
        )

    def _enter(self, key: Key, now_us: int) -> _Entry | None:
        if not self._windows.has_room(now_us):
            return None
        entry = _Entry(ThrottleWindow(self.settings), self.settings.history_us)
        self._windows.entries[key] = entry
        return entry

    def _record_end(self, entry: _Entry, accepted: bool, told_permille: int, now_us: int) -> None:
        """A call has ended; the part that the backend says it admits, or -1."""
        self._inflight -= 1
        entry.used_us = max(entry.used_us, now_us)
        entry.window.record_end(now_us)
        if accepted:
            entry.window.record_accept(now_us)
        entry.share += ((1.0 if accepted else 0.0) - entry.share) * _SHARE_WEIGHT
        if told_permille >= 0 and 1_000 * entry.share <= 2 * told_permille + _SHARE_PERMILLE:
            entry.window.record_told(now_us)


def _refusal(wait_us: int) -> Decision:
    return Decision(False, 0, wait_us, wait_us, CLIENT_THROTTLED, RULE_ID)


@final
class ClientThrottlePermit:
    """The right to send one call, to be ended with its result."""

    __slots__ = ("_ended", "_entry", "_policy", "_shard")

    def __init__(self, policy: ClientThrottle, entry: _Entry, shard: str) -> None:
        self._policy = policy
        self._entry = entry
        self._shard = shard
        self._ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it; DROPPED was not accepted, everything else holds nothing back."""
        return self._end(not spent or outcome is not Outcome.DROPPED, -1, now_us)

    def end_with(self, result: CallResult[object], now_us: int) -> bool:
        """End it with the result of the call, and record the level that it carries."""
        accepted = result.kind not in NOT_ACCEPTED or result.admitted_permille == ADMITS_ALL
        told = not accepted and result.kind is ResultKind.OVERLOADED and not result.unproven
        if not self._end(accepted, result.admitted_permille if told else -1, now_us):
            return False
        if result.admits is not None:
            self._policy.record_level(self._shard, result.admits, now_us)
        return True

    def _end(self, accepted: bool, told_permille: int, now_us: int) -> bool:
        if self._ended:
            return False
        self._ended = True
        self._policy._record_end(self._entry, accepted, told_permille, now_us)
        return True
