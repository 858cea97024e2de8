"""Quotas: the budgets of a dispatcher, what supplies them, and who else is in the fleet.

    --store given    blocks of each quota come out of it, and heartbeats in it say who is there
    no store         this dispatcher has the whole of each quota, or 1 / --members of it
    --policy mussel  1 / live dispatchers of each quota, as heartbeats or --members count them
    --groups given   what is left of a quota is lent inside its group

When the store fails, the last share stands; no request waits for anything here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

from sluicegate.apps.kv.admission import Supply
from sluicegate.apps.kv.fleet_loads import FleetLoads
from sluicegate.apps.kv.generation_one import GenerationOne, GenerationOneSettings
from sluicegate.apps.kv.group_leases import KEEPER_RU, GroupLeases
from sluicegate.apps.kv.heartbeats import HeartbeatMembers, HeartbeatSettings
from sluicegate.apps.kv.members import Members, StaticMembers
from sluicegate.apps.kv.quota_leases import QuotaLeases
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.tables.jobs import KEEPER
from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.store import Store
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.quota.budgets import Budget
from sluicegate.policies.quota.group_settings import ResourceGroupsSettings, read_groups
from sluicegate.policies.quota.leased_budget import (
    LEASES,
    LIVE,
    BudgetStanding,
    LeasedBudget,
    LeasedBudgetSettings,
)
from sluicegate.policies.quota.resource_groups import ResourceGroups
from sluicegate.rules.plain_values import read_yaml
from sluicegate.service.background import Background
from sluicegate.telemetry.prometheus import MetricFamily, counter, gauge

if TYPE_CHECKING:
    from sluicegate.stores.redis.client import RedisClient
    from sluicegate.stores.redis.settings import RedisSettings

# A round is for the next moments of an epoch; who waits for it waits for a few milliseconds.
STORE_TIMEOUT_US: Final = 250_000
GROUPS_BYTES_MAX: Final = 10_000_000
_MS: Final = 1_000

_log: Final = logging.getLogger("sluicegate.kv")


@final
class Quotas:
    """The budget, and the tasks that keep it. Made within the loop that serves."""

    def __init__(self, settings: KvSettings, worker: int, clock: Clock, chance: Chance) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._store: Store | None = None
        self._client: RedisClient | None = None
        self.members: Members = StaticMembers(settings.members or 1)
        if settings.store and settings.charges:
            self._open(settings, worker, chance)
        self.budget = LeasedBudget(
            LeasedBudgetSettings(
                form=form_of(settings),
                quota_ru=max(1, settings.others_ru * settings.epoch_ms // 1_000),
                epoch_us=settings.epoch_ms * _MS,
                live=max(1, settings.members),
            )
        )
        store = self._open_store(settings)
        self.leases = QuotaLeases(
            self.budget, clock, store=store, members=None if settings.groups else self.members
        )
        self.groups: GroupLeases | None = None
        if settings.groups:
            self.groups = GroupLeases(
                ResourceGroups(groups_of(settings)),
                self.leases,
                self.members,
                leases=store is not None,
            )

    def start(self, background: Background, gate: Gate | None) -> None:
        """Keep the budget supplied, and beat; share the slots of the gate as well."""
        members = self.members
        if isinstance(members, HeartbeatMembers):
            background.start("heartbeat", members.run)
            if self._client is not None and gate is not None:
                loads = FleetLoads(
                    self._client, members.name, gate, self._clock, self._chance, members.live
                )
                background.start("loads", loads.run)
        if self.groups is None or self.groups.leases:
            background.start("budget", self.leases.run)
        if self.groups is not None:
            background.start("groups", partial(self._follow, self.groups))

    @property
    def spent_from(self) -> Budget:
        """The budget that request units are charged to."""
        return self.budget if self.groups is None else self.groups

    @property
    def supply(self) -> Supply:
        """Where more of a quota may come from."""
        return self.leases if self.groups is None else self.groups

    async def connect(self) -> None:
        """Connect to the store, or find out that it cannot be now."""
        store = self._store
        connect = getattr(store, "connect", None)
        if connect is not None:
            await connect()

    def standing(self, caller: str, now_us: int) -> BudgetStanding | None:
        """What a caller has left here; None where its group has it, or nothing is charged."""
        if self.groups is not None or not self._settings.charges:
            return None
        return self.budget.standing(caller, now_us)

    def change(self, settings: KvSettings) -> None:
        """Go by these from the next `set_quotas` on."""
        self._settings = settings

    def set_quotas(self, quotas_ru: Mapping[str, int]) -> None:
        """Those of named callers, an epoch; with groups, these have them."""
        settings = self._settings
        if self.groups is not None:
            return
        base_ru = max(1, settings.others_ru * settings.epoch_ms // 1_000)
        self.budget.set_quotas(base_ru, {**quotas_ru, KEEPER: KEEPER_RU})

    def reload(self) -> None:
        """Read the groups again; a file that cannot be used changes nothing, and is logged."""
        if self.groups is None:
            return
        try:
            self.groups.replace(groups_of(self._settings), self._clock.now_us())
        except SluicegateError as error:
            _log.warning("the groups stay as they are: %s", error)
        else:
            _log.info("the groups of %s are in force", self._settings.groups)

    def state(self) -> Mapping[str, object]:
        """Return the budget, its supply and the fleet."""
        return {
            "budget": self.budget.stats(),
            "leases": self.leases.stats(),
            "members": self.members.names(),
            "groups": () if self.groups is None else self.groups.tree.groups(self._clock.now_us()),
        }

    def not_counted(self) -> str:
        """Return why the fleet does not count this dispatcher; empty if it does."""
        members = self.members
        return members.why_not_counted() if isinstance(members, HeartbeatMembers) else ""

    def families(self) -> Iterable[MetricFamily]:
        """The same as metrics."""
        stats = self.budget.stats()
        yield gauge("sluicegate_kv_members", "Dispatchers in the fleet.", self.members.live())
        yield gauge(
            "sluicegate_kv_member_counted",
            "Whether the fleet counts this dispatcher: 0 beyond --members-max.",
            0 if self.not_counted() else 1,
        )
        yield counter(
            "sluicegate_kv_granted_ru", "Taken out of the store.", stats.granted_mru / 1e3
        )

    async def close(self) -> None:
        """Close the store, once the tasks have ended."""
        if self._store is not None:
            await self._store.close()
        if self._client is not None:
            await self._client.close()

    async def _follow(self, groups: GroupLeases) -> None:
        """Each dispatcher has its part of every group."""
        while True:
            groups.follow(self._clock.now_us())
            await asyncio.sleep(self._settings.epoch_ms / 1e3)

    def _open(self, settings: KvSettings, worker: int, chance: Chance) -> None:
        # Here, because a dispatcher that is alone needs no driver.
        from sluicegate.stores.redis.client import open_client  # noqa: PLC0415
        from sluicegate.stores.redis.store import RedisStore  # noqa: PLC0415

        redis = redis_of(settings)
        self._store = RedisStore(redis, chance)
        if not settings.members:
            self._client = open_client(redis, chance)
            self.members = HeartbeatMembers(
                self._client,
                node_of(settings, worker),
                demand=needs_demand(settings),
                settings=HeartbeatSettings(members_max=settings.members_max),
            )

    def _open_store(self, settings: KvSettings) -> Store | None:
        """Return the store of leases; equal parts need only the members."""
        return self._store if form_of(settings) == LEASES else None


def form_of(settings: KvSettings) -> str:
    """Return how dispatchers share a quota; those of Mussel have equal parts of it."""
    return LIVE if settings.policy == "mussel" else LEASES


def needs_demand(settings: KvSettings) -> bool:
    """Whether parts follow demand, so that dispatchers have to report theirs."""
    return bool(settings.groups) and form_of(settings) != LIVE


def groups_of(settings: KvSettings) -> ResourceGroupsSettings:
    """Return the tree of groups in the YAML file of --groups."""
    try:
        with open(settings.groups, encoding="utf-8") as file:
            text = file.read(GROUPS_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue("--groups", settings.groups, f"it cannot be read: {error}") from None
    document, _ = read_yaml(text, settings.groups)
    if not isinstance(document, Mapping):
        raise BadValue("--groups", settings.groups, "write `groups:` and `callers:` in it")
    parsed = read_groups(document)

    def an_epochs(ru: int | None) -> int | None:
        """Convert a quota a second to one an epoch."""
        return None if ru is None else ru * settings.epoch_ms // 1_000

    groups = {
        name: replace(
            group, quota_ru=an_epochs(group.quota_ru) or 0, ceiling_ru=an_epochs(group.ceiling_ru)
        )
        for name, group in parsed.groups.items()
    }
    return replace(
        parsed, groups=groups, quota_ru=an_epochs(parsed.quota_ru), epoch_us=settings.epoch_ms * _MS
    )


def node_of(settings: KvSettings, worker: int) -> str:
    """What this process is called among the others."""
    name = settings.node or f"{socket.gethostname()}-{os.getpid()}"
    return f"{name}-{worker}" if settings.workers > 1 else name


def minute_quota(settings: KvSettings, clock: Clock, chance: Chance) -> GenerationOne | None:
    """With generation one: a counter a minute for each caller, in the store or here."""
    if settings.policy != "generation-one":
        return None
    store: Store | None = None
    if settings.store:
        from sluicegate.stores.redis.store import RedisStore  # noqa: PLC0415 - as in `_open`

        store = RedisStore(redis_of(settings), chance)
    return GenerationOne(GenerationOneSettings(qps=settings.qps), clock, store=store)


def redis_of(settings: KvSettings) -> RedisSettings:
    """Where the store is."""
    from sluicegate.stores.redis.settings import parse_url  # noqa: PLC0415 - likewise

    return parse_url(settings.store, defaults={"timeout_us": STORE_TIMEOUT_US})
