"""Quota: each caller's request units, filled at the start of every epoch.

Judges one unit by what its caller has left of this epoch. Source: the dispatchers of Airbnb's
Mussel (Gaonkar, Getz and Cho, 2025): at the start of every epoch each adds a caller's quota to a
local bucket, and all do so at the same instants without speaking to each other; the step is
`kernels/token_bucket.py`. What a dispatcher adds is its part of the caller's quota, by `form`:

    live      quota / live dispatchers, as if demand were spread evenly; the form of the seed
    shares    quota * what `share` has said of this caller here, `live` until it has said anything

The second is the default. Fixed equal parts admit less than the quota wherever demand is uneven:
one that comes through two of ten dispatchers gets a fifth. Shares are computed elsewhere, from what
each dispatcher was *asked*, and told here; as long as they add up to 1 the quota holds.

It has two faces. As a policy it charges `request.cost_ru`, and gives it back if the request is
unwound. As a budget it keeps what `RequestUnits` charges, at a price and settled afterwards; then it
is no stage of its own.

    Stack(..., at_once("request_units", RequestUnits(settings, budget=quota)), ...)

Up to `kept_epochs` of quota are kept, so a caller may spend that much at once, and across an
epoch's edge twice. What costs more than a whole bucket is admitted when it is full, and owes the
rest, up to `debt_epochs`. Callers beyond `callers_max` share one bucket of the default quota.

Cost: a few integers a decision. Bounds: `callers_max` and the number of quotas named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.token_bucket import epoch_step
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.policies.settings import within

FORMS: Final = ("shares", "live")
MILLI: Final = 1_000
RU_MAX: Final = 1 << 40
SHARE_ONE: Final = 1_000_000
CALLERS_MAX: Final = 1 << 24
LIVE_MAX: Final = 1 << 20
LOOKS: Final = 4
NO_QUOTAS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """What callers may spend an epoch, over all dispatchers."""

    name: str = "quota"
    form: str = "shares"
    quota_ru: int = 1_000  # of whoever is not named
    quotas_ru: Mapping[str, int] = field(default_factory=lambda: NO_QUOTAS)
    epoch_us: int = 1_000_000
    kept_epochs: int = 1
    debt_epochs: int = 1
    live: int = 1
    callers_max: int = 10_000

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise BadValue("quota.form", self.form, f"give one of {', '.join(FORMS)}")
        within("quota.callers_max", self.callers_max, 1, CALLERS_MAX)
        within("quota.quota_ru", self.quota_ru, 1, RU_MAX)
        if len(self.quotas_ru) > self.callers_max:
            raise BadValue(
                "quota.quotas_ru",
                len(self.quotas_ru),
                f"name at most callers_max ({self.callers_max:,})",
            )
        for caller, quota_ru in self.quotas_ru.items():
            within(f"quota.quotas_ru.{caller}", quota_ru, 1, RU_MAX)
        within("quota.epoch_us", self.epoch_us, 1, 86_400_000_000)
        within("quota.kept_epochs", self.kept_epochs, 1, 1_000)
        within("quota.debt_epochs", self.debt_epochs, 0, 1_000)
        within("quota.live", self.live, 1, LIVE_MAX)


class QuotaStats(NamedTuple):
    """Levels now, counts since the beginning."""

    callers: int
    live: int
    under_way: int
    admitted: int
    refused: int
    charged_mru: int
    shared: int  # charges to the one bucket of those beyond callers_max


@final
class _Bucket:
    """What one caller has left here; below zero it owes."""

    __slots__ = ("epoch", "fresh", "level", "quota_mru", "share_millionths")

    def __init__(self, quota_mru: int) -> None:
        self.quota_mru = quota_mru
        self.share_millionths = -1  # not told
        self.level = 0
        self.epoch = 0
        self.fresh = True


@final
class QuotaPermit:
    """Work that has been charged for."""

    __slots__ = ("_caller", "_cost_mru", "_open", "_quota")

    def __init__(self, quota: Quota, caller: str, cost_mru: int) -> None:
        self._quota = quota
        self._caller = caller
        self._cost_mru = cost_mru
        self._open = True

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """What was not begun is given back."""
        if not self._open:
            return False
        self._open = False
        self._quota.ended()
        if not spent:
            self._quota.settle(self._caller, -self._cost_mru, now_us)
        return True


@final
class Quota:
    """The buckets of one dispatcher."""

    __slots__ = (
        "_admitted",
        "_buckets",
        "_charged_mru",
        "_default_mru",
        "_live",
        "_named",
        "_others",
        "_refused",
        "_shared",
        "_under_way",
        "settings",
    )

    def __init__(self, settings: QuotaSettings) -> None:
        self.settings = settings
        self._live = settings.live
        self._default_mru = settings.quota_ru * MILLI
        # Who is named keeps its bucket, however many strangers come.
        self._named = {name: _Bucket(ru * MILLI) for name, ru in settings.quotas_ru.items()}
        self._buckets: dict[str, _Bucket] = {}
        self._others = _Bucket(self._default_mru)
        self._admitted = self._refused = self._under_way = 0
        self._charged_mru = self._shared = 0

    def admit(self, request: Request, now_us: int) -> QuotaPermit | Decision:
        """Charge `request.cost_ru`."""
        cost_mru = request.cost_ru * MILLI
        verdict = self.charge(request.caller, cost_mru, now_us)
        if verdict.allowed:
            self._under_way += 1
            return QuotaPermit(self, request.caller, cost_mru)
        never = verdict.retry_after_us == NEVER
        return Decision(
            False,
            verdict.remaining // MILLI,
            verdict.retry_after_us,
            verdict.reset_after_us,
            COST_ABOVE_LIMIT if never else QUOTA_SPENT,
            self.settings.name,
        )

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Take so much of what this caller has left here, or say when there will be enough."""
        settings = self.settings
        bucket = self._bucket(caller, now_us)
        quota = self._local(bucket)
        capacity = quota * settings.kept_epochs
        self._fill(bucket, now_us, quota, capacity)
        need = mru if mru < capacity else capacity
        epoch_us = settings.epoch_us
        if mru - capacity > quota * settings.debt_epochs:
            self._refused += 1
            # More than all dispatchers together would ever lend, or than this one's part today.
            never = mru > bucket.quota_mru * (settings.kept_epochs + settings.debt_epochs)
            retry_us = NEVER if never else epoch_us - now_us % epoch_us
            return self._verdict(bucket, False, retry_us, now_us, quota, capacity)
        _, _, allowed, retry_us = epoch_step(
            bucket.level, bucket.epoch, now_us, need, epoch_us, quota, capacity
        )
        if not allowed:
            self._refused += 1
            return self._verdict(bucket, False, retry_us, now_us, quota, capacity)
        bucket.level -= mru
        self._admitted += 1
        self._charged_mru += mru
        return self._verdict(bucket, True, 0, now_us, quota, capacity)

    def settle(self, caller: str, mru: int, now_us: int) -> None:
        """Take so much more, or give it back if negative: no fuller than full, no deeper in debt.

        What is given back after its epoch is over fills the bucket no further than a new one would.
        """
        bucket = self._bucket(caller, now_us)
        quota = self._local(bucket)
        capacity = quota * self.settings.kept_epochs
        self._fill(bucket, now_us, quota, capacity)
        deepest = -quota * self.settings.debt_epochs
        level = bucket.level - mru
        if mru > 0 and level < deepest:
            # A debt that is already deeper (its share has shrunk) is left as it is, not forgiven.
            level = deepest if bucket.level > deepest else bucket.level
        bucket.level = level  # above full it is cut whenever it is looked at

    def set_live(self, live: int) -> None:
        """So many dispatchers share the quotas from now on."""
        within("quota.live", live, 1, LIVE_MAX)
        self._live = live

    def share(self, caller: str, millionths: int | None, now_us: int) -> bool:
        """What part of this caller's quota is spent here; None: nobody knows any more.

        False if it could not be kept: the form does not ask for it, or there is no room.
        """
        if millionths is not None:
            within("quota.share", millionths, 0, SHARE_ONE)
        if self.settings.form != "shares":
            return False
        bucket = self._bucket(caller, now_us)
        if bucket is self._others:
            return False
        bucket.share_millionths = -1 if millionths is None else millionths
        return True

    def ended(self) -> None:
        """One has ended; only a permit says so."""
        self._under_way -= 1

    def stats(self) -> QuotaStats:
        """What it looks like now."""
        return QuotaStats(
            len(self._buckets) + len(self._named),
            self._live,
            self._under_way,
            self._admitted,
            self._refused,
            self._charged_mru,
            self._shared,
        )

    def _local(self, bucket: _Bucket) -> int:
        """What this dispatcher adds each epoch; never nothing, or nobody could ever ask again."""
        share = bucket.share_millionths
        if share < 0:
            part = bucket.quota_mru // self._live
        else:
            part = bucket.quota_mru * share // SHARE_ONE
        return part if part > 1 else 1

    def _fill(self, bucket: _Bucket, now_us: int, quota: int, capacity: int) -> None:
        if bucket.fresh:
            bucket.fresh = False
            bucket.level = capacity
            bucket.epoch = now_us // self.settings.epoch_us
            return
        bucket.level, bucket.epoch, _, _ = epoch_step(
            bucket.level, bucket.epoch, now_us, 0, self.settings.epoch_us, quota, capacity
        )
        if bucket.level > capacity:  # Its share has shrunk.
            bucket.level = capacity

    def _verdict(
        self,
        bucket: _Bucket,
        allowed: bool,
        retry_us: int,
        now_us: int,
        quota: int,
        capacity: int,
    ) -> Verdict:
        missing = capacity - bucket.level
        full_us = (bucket.epoch - (-missing // quota)) * self.settings.epoch_us
        remaining = bucket.level if bucket.level > 0 else 0
        return Verdict(allowed, remaining, retry_us, full_us - now_us if missing else 0)

    def _bucket(self, caller: str, now_us: int) -> _Bucket:
        bucket = self._named.get(caller) or self._buckets.get(caller)
        if bucket is not None:
            return bucket
        if len(self._buckets) >= self.settings.callers_max and not self._room(now_us):
            self._shared += 1
            return self._others
        bucket = _Bucket(self._default_mru)
        self._buckets[caller] = bucket
        return bucket

    def _room(self, now_us: int) -> bool:
        """Forget one that is full and has no share: a new one would be the same."""
        buckets = self._buckets
        for _ in range(min(LOOKS, len(buckets))):
            caller = next(iter(buckets))
            bucket = buckets.pop(caller)
            if bucket.share_millionths < 0:
                quota = self._local(bucket)
                capacity = quota * self.settings.kept_epochs
                self._fill(bucket, now_us, quota, capacity)
                if bucket.level >= capacity:
                    return True
            buckets[caller] = bucket  # behind the others: the next one looks elsewhere
        return False
