"""Leased budget: what callers may spend at one of several dispatchers, an epoch at a time.

A `Budget` (`budgets.py`) whose buckets are local and synchronous, and refilled each epoch. Source:
the dispatchers of Airbnb's Mussel (Gaonkar, Getz and Cho, 2025): all refill at the same instants
without speaking to each other. `form` says what an epoch brings to this dispatcher:

    leases    blocks of the quota, taken from the store in advance and by this dispatcher's own
              demand; the default
    live      quota / live dispatchers, whatever the demand; the form of Mussel

Equal parts admit less than the quota wherever demand is uneven: a caller that comes through two of
ten dispatchers gets a fifth.

A leased block is debited in the store before a unit of it is spent, and dies with its epoch, so all
dispatchers together never spend more than the quota; one that is killed loses a block, for as long
as an epoch. Nothing here speaks to a store: a task (`apps/kv/quota_leases.py`) takes
`block_requests` to it and brings back what to `credit`. A block is what is spent in a tenth of an
epoch (`blocks`), twice that if it was spent in half the time, and never more than can be spent
before the epoch ends; at half of it the next is requested.

*Without the store* (`detach_store`) each epoch brings share * quota, the share being what was
obtained lately (`lease_account.py`). A caller whose block is late gets its share in advance
(`lend`): when the block arrives, the advance is taken back, and its spent part is owed. When the
store is back, what was filled here is spent first; for `RETURN_EPOCHS` more nobody leases beyond
the share, because others may not know yet.

Latency and stress have no influence here. They raise the price, so a bucket drains faster; how much
comes into it is the same.

What costs more than the quota is admitted when that much is here, and owes the rest, up to
`debt_epochs` of quota. What was spent beyond the prediction is owed likewise. Debt outlives the
epoch and is paid first; it is the only way to exceed the quota, and the next epoch repays it.

It has two faces. `RequestUnits` charges it as a `Budget`, at a price and settled afterwards. As a
policy of its own, `admit` charges `request.cost_ru` and gives it back if the request is unwound.

Cost: a look-up and a few integers a charge; `renew` looks at each account once an epoch. Bounds:
`callers_max` accounts, of 340 bytes each, and those of named callers; other callers beyond share
one account. One without demand is soon forgotten. `NAMED_MAX` quotas, of 21 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.cost_model import MILLI
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.policies.quota.budgets import CHARGED
from sluicegate.policies.quota.lease_account import LeaseAccount
from sluicegate.policies.settings import within

LEASES: Final = "leases"
LIVE: Final = "live"
FORMS: Final = (LEASES, LIVE)
RU_MAX: Final = 1 << 40
CALLERS_MAX: Final = 1 << 24
NAMED_MAX: Final = 1_000_000  # as many as rules may name
LIVE_MAX: Final = 1 << 20
RETURN_EPOCHS: Final = 2
OTHERS: Final = "~others"  # whose account those beyond `callers_max` share
NO_QUOTAS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedBudgetSettings:
    """What callers may spend an epoch, over all dispatchers, and how it comes here."""

    name: str = "quota"  # in the decisions of `admit`
    form: str = LEASES
    quota_ru: int = 1_000  # of whoever is not named
    quotas_ru: Mapping[str, int] = field(default_factory=lambda: NO_QUOTAS)
    epoch_us: int = 1_000_000
    debt_epochs: int = 1
    live: int = 1
    callers_max: int = 100_000  # 34 MB
    blocks: int = 10  # an epoch is meant to be spent in so many
    memory: float = 0.3  # weight of the latest epoch in what is learned

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise BadValue("budget.form", self.form, f"give one of {', '.join(FORMS)}")
        within("budget.callers_max", self.callers_max, 1, CALLERS_MAX)
        _check_quotas(self.quota_ru, self.quotas_ru)
        within("budget.epoch_us", self.epoch_us, 1_000, 86_400_000_000)
        within("budget.debt_epochs", self.debt_epochs, 0, 1_000)
        within("budget.live", self.live, 1, LIVE_MAX)
        within("budget.blocks", self.blocks, 1, 1_000)
        if not 0.0 < self.memory <= 1.0:
            raise BadValue("budget.memory", self.memory, "give a part above 0, 1 at most")


class BlockRequest(NamedTuple):
    """A request to the store: the first of `ladder` (in milli-RU, falling) that fits."""

    caller: str
    quota_mru: int
    ladder: list[int]


class BudgetStanding(NamedTuple):
    """The state of one caller's account here."""

    caller: str
    quota_mru: int
    level_mru: int  # below zero it owes
    brought_mru: int  # by this epoch so far
    demand_mru: int  # an epoch, lately
    share: float  # of the quota, were the store gone


class LeasedBudgetStats(NamedTuple):
    """Levels now, counts since the beginning."""

    callers: int
    form: str
    live: int
    alone: bool  # the store is gone
    epochs: int
    admitted: int
    refused: int
    charged_mru: int
    granted_mru: int  # by the store
    filled_mru: int  # without the store
    lapsed_mru: int  # granted, and void when it came
    shared: int  # charges to the one account of those beyond callers_max


@final
class BudgetPermit:
    """Work that has been charged for."""

    __slots__ = ("_budget", "_caller", "_cost_mru", "_open")

    def __init__(self, budget: LeasedBudget, caller: str, cost_mru: int) -> None:
        self._budget = budget
        self._caller = caller
        self._cost_mru = cost_mru
        self._open = True

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it; the cost of work that was not begun is given back."""
        if not self._open:
            return False
        self._open = False
        if not spent:
            self._budget.settle(self._caller, -self._cost_mru, now_us)
        return True


@final
class LeasedBudget:
    """The buckets of one dispatcher."""

    __slots__ = (
        "_accounts",
        "_admitted",
        "_alone",
        "_charged_mru",
        "_edge_late_us",
        "_edge_us",
        "_epochs",
        "_filled_mru",
        "_granted_mru",
        "_lapsed_mru",
        "_leases",
        "_live",
        "_others",
        "_quota_mru",
        "_quotas_ru",
        "_refused",
        "_returned",
        "_shared",
        "_synced",
        "_trip_us",
        "_wanting",
        "_window",
        "on_request",
        "settings",
    )

    def __init__(self, settings: LeasedBudgetSettings) -> None:
        self.settings = settings
        self._leases = settings.form == LEASES
        self._live = settings.live
        self._quota_mru = settings.quota_ru * MILLI
        self._quotas_ru: Mapping[str, int] = dict(settings.quotas_ru)
        self._accounts: dict[str, LeaseAccount] = {}
        self._others = LeaseAccount(OTHERS, self._quota_mru, -1)
        self._window = -1  # the epoch, by the store's clock once it has said one
        self._edge_us = 0  # where it ends, by ours: never later than it does by the store's
        self._edge_late_us = 0  # and never earlier
        self._synced = False  # the store's clock
        self._trip_us = 1_000  # there and back, the last time
        self._alone = False
        self._returned = -1  # the last epoch in which nobody leases beyond the share
        self._wanting: list[LeaseAccount] = []
        self.on_request: Callable[[], None] | None = None
        self._epochs = self._admitted = self._refused = self._shared = 0
        self._charged_mru = self._granted_mru = self._filled_mru = self._lapsed_mru = 0

    def admit(self, request: Request, now_us: int) -> BudgetPermit | Decision:
        """Charge `request.cost_ru`."""
        cost_mru = request.cost_ru * MILLI
        verdict = self.charge(request.caller, cost_mru, now_us)
        if verdict.allowed:
            return BudgetPermit(self, request.caller, cost_mru)
        return Decision(
            False,
            verdict.remaining // MILLI,
            verdict.retry_after_us,
            verdict.reset_after_us,
            COST_ABOVE_LIMIT if verdict.retry_after_us == NEVER else QUOTA_SPENT,
            self.settings.name,
        )

    # As a budget.

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Take so much of what this caller has here, or say when there could be enough."""
        account = self._account(caller, now_us)
        account.demand_mru += mru
        quota = account.quota_mru
        if mru - quota > quota * self.settings.debt_epochs:
            self._refused += 1
            return self._refusal(account, NEVER, now_us)
        gain = need = mru
        if account.level_mru < mru:  # what costs more than an epoch brings needs that much
            gain = account.part_mru(self._live) if account.local else quota
            need = mru if mru < gain else gain
        if account.level_mru >= need:
            account.level_mru -= mru
            self._admitted += 1
            self._charged_mru += mru
            if not account.local and account.level_mru * 2 < account.block_mru:
                self._request(account, MILLI)
            return CHARGED
        self._refused += 1
        missing = need - account.level_mru
        owed = -account.level_mru if account.level_mru < 0 else 0
        if not account.local:
            if missing <= quota - account.granted_mru:
                account.add_shortage(missing)
                if self._request(account, missing):
                    return self._refusal(account, self._trip_us, now_us)
            elif owed:  # Not in this epoch; but what is owed can be paid.
                account.add_shortage(owed)
                self._request(account, owed)
        epochs = -(-(need + owed) // gain)
        edge_us = self._edge_us if account.local else self._edge_late_us
        retry_us = max(edge_us - now_us, 1) + (epochs - 1) * self.settings.epoch_us
        return self._refusal(account, retry_us, now_us)

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Debit an amount, or refund it if negative; return the part that was not debited.

        No fuller than what this epoch has brought here, no deeper in debt than `debt_epochs`.
        """
        account = self._account(caller, now_us)
        before = account.level_mru
        level = before - mru
        left = 0
        if mru > 0:
            deepest = -account.quota_mru * self.settings.debt_epochs
            if level < deepest:
                # A debt that is already deeper (its quota has shrunk) is left, not forgiven.
                level = deepest if before > deepest else before
                left = mru - (before - level)
        else:
            full = account.granted_mru
            if level > full:
                level = full if before < full else before
        account.level_mru = level
        return left

    def payable_mru(self, caller: str, now_us: int) -> int:
        """What an epoch brings here, and the debt that it may leave."""
        account = self._account(caller, now_us)
        gain = account.part_mru(self._live) if account.local else account.quota_mru
        return gain * (1 + self.settings.debt_epochs)

    # For the keeper.

    def empty(self, caller: str, now_us: int) -> bool:
        """Whether nothing is left here but the store could have more; then request a block."""
        if self._alone or not self._leases:
            return False
        account = self._account(caller, now_us)
        return account.level_mru <= 0 and not account.local and self._request(account, MILLI)

    def awaits_block(self, caller: str, now_us: int) -> bool:
        """Return whether a block is requested or on its way: a refused request may wait for it."""
        account = self._account(caller, now_us)
        return account.wanting or account.asking

    def block_requests(self, count_max: int, now_us: int) -> list[BlockRequest]:
        """Take what is to be requested of the store; each must be answered before the next."""
        self._advance(now_us)
        requests: list[BlockRequest] = []
        settings = self.settings
        while self._wanting and len(requests) < count_max:
            account = self._wanting.pop()
            account.wanting = False
            self._enter(account)
            if account.local:
                continue
            cap = account.quota_mru
            if self._window <= self._returned:
                cap = account.part_mru(self._live) - account.granted_mru
            left_us = self._edge_us - now_us
            ladder = account.ladder(now_us, left_us, settings.epoch_us, settings.blocks, cap)
            if ladder:
                account.asking = True
                requests.append(BlockRequest(account.caller, account.quota_mru, ladder))
            else:
                account.dry_mru = 1
        return requests

    def credit(
        self,
        request: BlockRequest,
        granted_mru: int,
        left_mru: int,
        at_us: int,
        sent_us: int,
        received_us: int,
    ) -> None:
        """Take in a block of `granted_mru`; `left_mru` of the quota is left in the store.

        It was given at `at_us` by the store's clock. The request was sent at `sent_us` and answered
        at `received_us`, by ours.
        """
        self._trip_us = max(received_us - sent_us, 1)
        epoch_us = self.settings.epoch_us
        window, rest_us = at_us // epoch_us, epoch_us - at_us % epoch_us
        if not self._synced:  # Until now our clock stood for the store's.
            self._synced = True
            self._begin(window, sent_us + rest_us, received_us + rest_us)
        elif window == self._window:
            self._edge_us = max(self._edge_us, sent_us + rest_us)
            self._edge_late_us = min(self._edge_late_us, received_us + rest_us)
        elif window != self._window - 1 or sent_us + rest_us > received_us:
            # A new epoch there, or its clock was set, or the epoch began too early here: slow
            # answers tell only roughly when it ends. If it has ended since, its block is void.
            self._begin(window, sent_us + rest_us, received_us + rest_us)
        account = self._find(request.caller)
        account.asking = False
        self._advance(received_us)
        self._enter(account)
        if window != self._window or account.local:
            self._lapsed_mru += granted_mru
            if not account.local:
                self._request(account, MILLI)
            return
        self._granted_mru += granted_mru
        account.repay()
        account.level_mru += granted_mru
        account.granted_mru += granted_mru
        account.left_mru = left_mru
        if granted_mru:
            account.block_mru = granted_mru
            account.block_us = received_us
        if not granted_mru:
            account.dry_mru = request.ladder[-1]

    def fall_back(self, request: BlockRequest, now_us: int) -> None:
        """Fill an account whose request was not answered: for this epoch it has its share."""
        account = self._find(request.caller)
        account.asking = False
        self._advance(now_us)
        self._enter(account)
        if not account.local:
            self._filled_mru += account.fill(self._live)

    def lend(self, caller: str, now_us: int) -> None:
        """Advance its share to an account whose block is late; the block pays it back."""
        account = self._find(caller)
        self._advance(now_us)
        self._enter(account)
        if not account.local:
            account.borrow(self._live)

    def renew(self, now_us: int) -> int:
        """Request first blocks if an epoch has begun; return the instant at which it ends."""
        self._advance(now_us)
        idle: list[str] = []
        for caller, account in self._accounts.items():
            self._enter(account)
            if account.pace_mru > 0:
                if not account.local and account.level_mru < MILLI:
                    self._request(account, MILLI)
            elif account.idle() and not self._alone:
                idle.append(caller)
        for caller in idle:
            del self._accounts[caller]
        return self._edge_us

    def detach_store(self, now_us: int) -> None:
        """Do without the store: from now on the last share is what an epoch brings."""
        if self._leases and not self._alone:
            self._advance(now_us)
            self._alone = True
            for account in self._wanting:
                account.wanting = False
            self._wanting.clear()

    def attach_store(self, now_us: int) -> None:
        """Lease from the store again; what was filled here is spent first."""
        if self._alone:
            self._advance(now_us)
            self._alone = self._synced = False
            self._returned = self._window + RETURN_EPOCHS

    # For membership.

    def set_live(self, live: int) -> None:
        """Set the number of dispatchers that share the quotas from now on."""
        within("budget.live", live, 1, LIVE_MAX)
        self._live = live

    def set_quotas(self, quota_ru: int, quotas_ru: Mapping[str, int]) -> None:
        """Set the quotas, from the next block or epoch on."""
        _check_quotas(quota_ru, quotas_ru)
        self._quota_mru = quota_ru * MILLI
        self._quotas_ru = dict(quotas_ru)
        self._others.quota_mru = self._quota_mru
        for caller, account in self._accounts.items():
            account.quota_mru = self.quota_mru(caller)

    def quota_mru(self, caller: str) -> int:
        """Return what this caller may spend an epoch, over all dispatchers."""
        named = self._quotas_ru.get(caller)
        return self._quota_mru if named is None else named * MILLI

    def standing(self, caller: str, now_us: int) -> BudgetStanding:
        """Return the state of one account."""
        return self._standing(self._account(caller, now_us))

    def stats(self) -> LeasedBudgetStats:
        """Return levels now and counts since the beginning."""
        return LeasedBudgetStats(
            len(self._accounts),
            self.settings.form,
            self._live,
            self._alone,
            self._epochs,
            self._admitted,
            self._refused,
            self._charged_mru,
            self._granted_mru,
            self._filled_mru,
            self._lapsed_mru,
            self._shared,
        )

    # Inside.

    def _standing(self, account: LeaseAccount) -> BudgetStanding:
        demand = max(account.pace_mru, account.demand_mru)
        part = account.part_mru(self._live) / account.quota_mru
        return BudgetStanding(
            account.caller,
            account.quota_mru,
            account.level_mru,
            account.granted_mru,
            min(demand, account.quota_mru),
            part if part < 1.0 else 1.0,
        )

    def _begin(self, window: int, edge_us: int, edge_late_us: int) -> None:
        self._window = window
        self._edge_us = edge_us
        self._edge_late_us = edge_late_us
        self._epochs += 1

    def _advance(self, now_us: int) -> None:
        """Begin the epoch of now, if the last known one is over."""
        if now_us < self._edge_us:
            return
        epoch_us = self.settings.epoch_us
        if self._window < 0:
            window = now_us // epoch_us
            self._begin(window, (window + 1) * epoch_us, (window + 1) * epoch_us)
            return
        step = 1 + (now_us - self._edge_us) // epoch_us
        ahead_us = step * epoch_us
        self._begin(self._window + step, self._edge_us + ahead_us, self._edge_late_us + ahead_us)

    def _enter(self, account: LeaseAccount) -> None:
        """Have the account in the epoch of now, and filled if nobody else fills it."""
        if account.window != self._window:
            learns = self._leases and not self._alone and account.window > self._returned
            passed = self._window - account.window
            account.enter(self._window, self._live, self.settings.memory, learns=learns)
            if passed > 1 and (self._alone or not self._leases):
                account.pay(passed - 1, self._live)
        if (self._alone or not self._leases) and not account.local:
            self._filled_mru += account.fill(self._live)

    def _request(self, account: LeaseAccount, mru: int) -> bool:
        """Have the keeper ask for this one; False if the store has not so much in this epoch."""
        if 0 < account.dry_mru <= mru or self._alone:
            return False
        if not account.asking and not account.wanting:
            account.wanting = True
            self._wanting.append(account)
            if self.on_request is not None:
                self.on_request()
        return True

    def _find(self, caller: str) -> LeaseAccount:
        return self._accounts.get(caller) or self._others

    def _account(self, caller: str, now_us: int) -> LeaseAccount:
        if now_us >= self._edge_us:
            self._advance(now_us)
        account = self._accounts.get(caller)
        if account is None:
            account = self._open(caller)
        elif account.window == self._window and (
            account.local or (self._leases and not self._alone)
        ):
            return account
        self._enter(account)
        return account

    def _open(self, caller: str) -> LeaseAccount:
        """Open an account; a named caller has room, however many strangers come."""
        if len(self._accounts) >= self.settings.callers_max and caller not in self._quotas_ru:
            self._shared += 1
            return self._others
        account = LeaseAccount(caller, self.quota_mru(caller), self._window)
        self._accounts[caller] = account
        return account

    def _refusal(self, account: LeaseAccount, retry_us: int, now_us: int) -> Verdict:
        level = account.level_mru
        return Verdict(
            False, level if level > 0 else 0, retry_us, max(self._edge_late_us - now_us, 0)
        )


def _check_quotas(quota_ru: int, quotas_ru: Mapping[str, int]) -> None:
    within("budget.quota_ru", quota_ru, 1, RU_MAX)
    if len(quotas_ru) > NAMED_MAX:
        count = f"{len(quotas_ru):,} callers"
        raise BadValue("budget.quotas_ru", count, f"name at most {NAMED_MAX:,}")
    for caller, ru in quotas_ru.items():
        within(f"budget.quotas_ru.{caller}", ru, 1, RU_MAX)
