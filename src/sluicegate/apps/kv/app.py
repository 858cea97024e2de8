"""App: one worker of the dispatcher, its parts in the order in which they need one another.

Nothing here decides or speaks a protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, final

from sluicegate import __version__
from sluicegate.apps.kv.admission import Admission, attributes_of
from sluicegate.apps.kv.board import CallerUse, ClassUse, EngineUse, board
from sluicegate.apps.kv.callers import CallerTable
from sluicegate.apps.kv.chain import BULK, PolicyChain
from sluicegate.apps.kv.cost_records import CostRecords
from sluicegate.apps.kv.dispatcher import Dispatcher
from sluicegate.apps.kv.glass_budget import GlassBudget
from sluicegate.apps.kv.heartbeats import HeartbeatMembers
from sluicegate.apps.kv.loop_lateness import LoopLateness
from sluicegate.apps.kv.metrics import (
    of_callers,
    of_engine,
    of_pace,
    of_pressure,
    of_shield,
    of_stack,
    of_store,
)
from sluicegate.apps.kv.quota_capture import CapturedBudget, open_capture
from sluicegate.apps.kv.quotas import Quotas, minute_quota, node_of
from sluicegate.apps.kv.refusals import RefusalRing
from sluicegate.apps.kv.rollups import Rollups
from sluicegate.apps.kv.settings import NO_QUOTA_RU, KvSettings
from sluicegate.apps.kv.shield.hot_reads import HotReads
from sluicegate.apps.kv.shield.settings import HotPlace, ShieldSettings
from sluicegate.apps.kv.status import KvStatus
from sluicegate.apps.kv.still_watch import StillWatch
from sluicegate.apps.kv.store_watch import START, StoreWatch
from sluicegate.apps.kv.tables.catalogue import Catalogue, TableView
from sluicegate.apps.kv.tables.catalogue_state import UploadState
from sluicegate.apps.kv.tables.jobs import TableJobs
from sluicegate.apps.kv.tables.keeper import TableKeeper
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.apps.kv.tables.uploads import TableUploads
from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.apps.kv.weights import read_weights_file
from sluicegate.command_line.text import limit_words
from sluicegate.contracts.access import Access, Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import Engine
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.key_values import CallContext, Upload
from sluicegate.doors.grpc.key_values import KeyValuesServicer
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.kv.handler import KvHttp
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.kv.plan import REPLY_BYTES_MAX
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.limits.glass.follower import GlassFollower, follow
from sluicegate.policies.quota.refusal_pace import RefusalPace
from sluicegate.policies.stack import StackPermit
from sluicegate.protos import KEY_VALUES as KEY_VALUES_PROTO
from sluicegate.protos import descriptor_set
from sluicegate.service.app import App, GrpcServices, Site
from sluicegate.service.background import busy_share, measure_lag
from sluicegate.service.engine_health import EngineHealthWatch
from sluicegate.service.rules_source import RulesSource
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part
from sluicegate.stores.open_engine import open_engine
from sluicegate.system import SystemChance, thread_times
from sluicegate.telemetry.prometheus import MetricFamily
from sluicegate.telemetry.usage_files import UsageWriter
from sluicegate.wire.key_values_messages import KvBounds

if TYPE_CHECKING:
    from sluicegate.apps.kv.spans import WorkSpans

_LOOK_US: Final = 250_000  # between two looks at how full the event loop is
_FAILING_US: Final = 1_000_000  # until that is no moment's trouble
FORGET_US: Final = 10_000_000  # without traffic it is tried again: no request, no answer
START_TRIES: Final = 30  # one a second
SERVICES: Final = ("", "sluicegate.v1.KeyValues")  # that gRPC health is asked for
PART_BYTES_MAX: Final = 8 << 20
COMMAND_BYTES_BESIDE: Final = 64 << 10  # of a command, beside its longest word
COMMAND_PART_BYTES: Final = (
    256  # of memory for a part, beside its text: 190 with its row and change
)
REPLIES_OWED_MAX: Final = 128  # values may be long, and who does not read is owed them
_LOWEST: Final = Criticality.BULK
HOT_SHOWN: Final = 20  # keys on the board
USAGE_DAYS: Final = 35
_JITTER: Final = 0.1
_PROBES: Final = 64  # partitions; in a cluster they are not all in one shard
_log: Final = logging.getLogger("sluicegate.kv")


@final
class KvApp(App[KvSettings]):
    """One worker of `sluicegate kv`."""

    name: ClassVar[str] = "kv"

    def __init__(self, settings: KvSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self.chance = SystemChance()
        self.node = node_of(settings, worker.number)
        self.usage = CallerUsage()
        self.pace = RefusalPace() if settings.charges else None
        self.engine = open_engine(settings.engine)
        self.engine_health = EngineHealthWatch(self.engine, self.clock)
        self.quotas = Quotas(settings, worker.number, self.clock, self.chance)
        self.minute_quota = minute_quota(settings, self.clock, self.chance)
        budget = self.quotas.spent_from
        self.follower: GlassFollower | None = None
        if settings.glass:
            self.follower = follow(settings.glass, clock=self.clock)
            budget = GlassBudget(budget, self.follower.glass)
        self.capture = open_capture(settings, self.clock)
        captured: CapturedBudget | None = None
        if self.capture is not None:
            captured = CapturedBudget(budget, self.capture)
        self.store = self._make_store_watch()
        spans = self._work_spans()
        self.chain = PolicyChain(
            settings,
            self.usage,
            budget=captured or budget,
            weights=read_weights_file(settings.weights),
            minute_quota=self.minute_quota,
            spans=spans,
        )
        layered = self.chain.layered
        self.callers = CallerTable(
            settings.epoch_ms * 1_000,
            set_quotas=self.quotas.set_quotas,
            set_classes=self.chain.replace_classes,
            set_penalties=self.chain.units.penalize if captured is None else captured.penalize,
        )
        if captured is not None:
            self.chain.units.penalize(captured)
        self.engine_watch = StoreWatch(
            self.clock,
            "what needs it is refused",
            what=f"the engine {self.engine.name}",
            forget_us=FORGET_US,
        )
        self.still = StillWatch(
            self.chain.stack.stats, self.clock, f"the engine {self.engine.name}"
        )
        self.refusals = RefusalRing(
            self.chain, self.quotas.standing, entries_max=settings.audit_refusals
        )
        self.lateness = LoopLateness()
        self.admission = Admission(
            self.chain,
            self.clock,
            self.quotas.supply if layered else None,
            self.engine_watch,
            self.refusals,
            spans,
            captured,
            self.lateness,
        )
        tables = TableSettings(value_bytes_max=settings.value_bytes_max)
        self.catalogue = Catalogue(self.engine, self.clock, tables)
        self.tables = Tables(self.engine, self.catalogue, self.clock, tables)
        jobs = TableJobs(
            self.engine, self.catalogue, self.clock, tables, self._admit_bulk, holder=self.node
        )
        self.keeper = TableKeeper(jobs)
        self.uploads = TableUploads(jobs, self.keeper)
        self.hot: HotReads | None = None
        if settings.hot and layered:
            self.hot = HotReads(
                _shield(settings),
                self.chance,
                self.chain.requeue,
                self.admission.refuse_shared,
                self.admission.load,
            )
        self.dispatcher = Dispatcher(
            self.admission,
            self.chain,
            self.tables,
            self.hot,
            self.uploads,
            self.clock,
            value_bytes_max=settings.value_bytes_max,
            chunk_ru=settings.chunk_ru,
            one_shard=len(shards_of(self.engine)) == 1,
        )
        self.costs = CostRecords(
            self.chain.units,
            self.dispatcher.spans,
            self.engine,
            self.clock,
            self.node,
        )
        self.rollups: Rollups | None = None
        if settings.usage:
            writer = UsageWriter(settings.usage, self.node, days=USAGE_DAYS)
            self.rollups = Rollups(self.usage, writer, self.clock)
        self.rules = RulesSource(self.callers.put_in_force, self.callers.put_fleet)
        self._bounds = KvBounds(value_bytes_max=settings.value_bytes_max)
        self._views: Mapping[str, TableView] = {}
        self._times, self._times_us = thread_times(), self.clock.now_us()

    def _work_spans(self) -> WorkSpans | None:
        if self.tracing is None:
            return None
        from sluicegate.apps.kv.spans import WorkSpans  # noqa: PLC0415 - its packages are optional

        return WorkSpans(self.tracing.provider)

    # Life.

    async def start(self) -> None:
        """Read the rules and the book of tables, and begin what runs by itself."""
        self.rules.start(self.settings, self.worker, self.clock)
        if self.follower is not None:
            self.follower.start()
        await self._connect_store()
        connect = getattr(self.engine, "connect", None)
        if connect is not None:
            await connect()
        await self._first_look()
        self._views = self.catalogue.views
        self.catalogue.on_change = self._replace_changed_tables
        background = self.background
        self.quotas.start(background, self.chain.gate)
        background.start("loop lag", partial(measure_lag, self._loop_lag))
        background.start("still", self.still.run)
        background.start("catalogue", self.catalogue.follow)
        background.start("keeper", self.keeper.follow)
        background.start("sweep", self.keeper.follow_sweep)
        if self.rollups is not None:
            background.start("rollups", self.rollups.run)
        if self.chain.layered:
            await self.costs.load()
            background.start("costs", self.costs.run)

    async def close(self) -> None:
        """Give everything back, the last that was made first."""
        self.rules.close()
        if self.hot is not None:
            await self.hot.close()
        await self.quotas.close()
        if self.minute_quota is not None:
            await self.minute_quota.close()
        if self.chain.layered:
            await self.costs.close()
        if self.capture is not None:
            self.capture.close()
        if self.follower is not None:
            await asyncio.to_thread(self.follower.close)
        await self.engine.close()

    def change(self, before: KvSettings) -> None:
        """Quotas, times, what is shed, what is hot, and how much is kept of refusals."""
        self.quotas.change(self.settings)
        self.callers.apply()
        self.dispatcher.scans.chunk_ru = self.settings.chunk_ru
        self.chain.change(self.settings)
        self.refusals.resize(self.settings.audit_refusals)
        if self.hot is not None:
            self.hot.replace(_shield(self.settings))

    def reload(self) -> None:
        """Read the rules again."""
        self.rules.reload()
        self.quotas.reload()

    def change_callers(self, identities: Sequence[Identity]) -> None:
        """Know whom the access file names, with their classes."""
        self.callers.know(identities)

    # Doors.

    def grpc(self) -> GrpcServices:
        """The key-value service."""
        servicer = KeyValuesServicer(self.dispatcher, self.clock, self._bounds)
        methods = Methods({}, {}, with_metadata=servicer.with_metadata, grants=servicer.grants)
        return GrpcServices(methods, [descriptor_set(KEY_VALUES_PROTO)], SERVICES)

    def resp(self, access: Access) -> RespDoor:
        """Redis's commands and our own."""
        return RespDoor(
            self.dispatcher,
            access,
            _resp_settings(self.settings),
            KEY_VALUES,
            self.clock,
            self.pace,
        )

    def http(self, site: Site) -> HttpHandler:
        """Rows, ranges, uploads, what there is to see, backups."""
        settings = self.settings
        bounds = KvHttpSettings(
            hosts=site.hosts,
            metrics_open=settings.metrics_open,
            quota_status=settings.quota_status,
            bounds=self._bounds,
            part_bytes_max=min(PART_BYTES_MAX, settings.message_bytes_max),
            version=__version__,
        )
        status = KvStatus(
            site.status,
            hot=self.hot_board,
            refusals=self.refusals,
            engine=self.engine,
            backups=settings.backups,
        )
        return KvHttp(self.dispatcher, status, site.access, self.clock, bounds)

    # What there is to see.

    def summary(self) -> str:
        """Where values and quotas are."""
        settings = self.settings
        policy = "" if settings.policy == "layers" else f", policy {settings.policy}"
        shared = f", quotas in {settings.store.partition(':')[0]}" if settings.store else ""
        limit = limit_words(*self.chain.limit_of(""))
        return f"values in {self.engine.name}{shared}{policy}, limit {limit}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        chain = self.chain
        return {
            "board": self._board,
            "stages": lambda: chain.stack.stats().stages,
            "quotas": self.quotas.state,
            "store": lambda: {} if self.store is None else self.store.state(),
            "rulebook": self.rules.status,
            "glass": lambda: None if self.follower is None else self.follower.state(),
            "request_units": chain.units.stats,
            "costs": self.costs.state,
            "prices": lambda: (
                None
                if chain.mussel is None
                else {
                    "prices_milli": chain.prices_milli,
                    "penalized": chain.mussel.prices.penalized(),
                }
            ),
            "keeper": self.keeper.stats,
            "capture": lambda: None if self.capture is None else self.capture.stats(),
            "slots": lambda: chain.pressure(self.clock.now_us()),
            "engine": lambda: {
                "name": self.engine.name,
                "durability": self.engine.durability,
                **self.engine_watch.state(),
                "health": self.engine_health.look(),
                "still": self.still.why(),
            },
        }

    def not_ready(self) -> str:
        """Return why it should get no traffic: draining, an unusable engine, or a full fleet."""
        unusable = self.engine_health.not_ready()
        if unusable:
            return super().not_ready() or unusable
        engine = self.engine_watch.stats()
        failing = engine.gone and self.clock.now_us() - engine.since_us >= _FAILING_US
        if failing and not self._serves_some_shards():
            return super().not_ready() or f"the engine {self.engine.name} fails: {engine.why}"
        return super().not_ready() or self.still.why() or self.quotas.not_counted()

    def not_alive(self) -> str:
        """Why only a restart can help: its engine has not recovered by itself."""
        return self.engine_health.not_alive()

    def hot_board(self, k: int) -> list[HotPlace]:
        """The hottest keys, and what became of their reads."""
        return [] if self.hot is None else self.hot.board(k)

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        now_us = self.clock.now_us()
        chain = self.chain
        yield from of_stack(self.admission.stats(), self.usage)
        yield from of_callers(self.usage)
        yield from of_pressure(chain.pressure(now_us), chain.prices_milli)
        if self.pace is not None:
            yield from of_pace(self.pace)
        yield from of_engine(
            self.engine_watch.stats(), self.engine_health.look(), still=self.still.still
        )
        if self.hot is not None:
            yield from of_shield(self.hot.stats())
        yield from self.quotas.families()
        if self.store is not None:
            yield from of_store(self.store.stats())
        yield from self.costs.families()
        yield from self.rules.metrics(now_us)

    def _board(self) -> object:
        now_us = self.clock.now_us()
        chain, hot = self.chain, self.hot
        quotas = self.callers.quotas_a_second()
        others_ru = self.settings.others_ru if self.settings.charges else 0
        if others_ru >= NO_QUOTA_RU:
            others_ru = 0
        if self.quotas.groups is not None:
            quotas, others_ru = {}, 0  # a group's quota is no caller's
        usage = {
            name: CallerUse(
                used.mru,
                used.admitted + used.cached,
                used.refused,
                quotas.get(name, others_ru),
                used.refused_mru,
            )
            for name, used in self.usage.now().items()
        }
        engine = {name: EngineUse(*used) for name, used in self.usage.operations().items()}
        return board(
            at_us=now_us,
            node=self.node,
            stack=self.admission.stats(),
            refusals=self.usage.reasons,
            refused=self.usage.refusals(),
            usage=usage,
            pressure=chain.pressure(now_us),
            slow=chain.slow(),
            classes=self._classes(),
            engine=engine,
            took=self.usage.took(),
            shield=None if hot is None else hot.stats(),
            hot=self.hot_board(HOT_SHOWN),
            remembered=0 if hot is None else hot.remembered,
            store=None if self.store is None else self.store.stats(),
            engine_state=self.engine_watch.stats(),
            uploads=[_upload(one) for one in self.catalogue.state.uploads.values()],
        )

    # Inside.

    def _serves_some_shards(self) -> bool:
        """Whether only some shards of the engine fail: the rows of the others are still served."""
        if self.catalogue.most_shards_answer():
            return True
        quiet_us = self.clock.now_us() - self.engine_watch.answered_us
        return len(shards_of(self.engine)) > 1 and quiet_us < _FAILING_US

    def _make_store_watch(self) -> StoreWatch | None:
        """The watch over the store, which all who use it notify; None if there is no store."""
        settings, quotas, minute = self.settings, self.quotas, self.minute_quota
        if not settings.store or settings.policy == "none":
            return None
        if minute is not None:
            watch = minute.watch = StoreWatch(self.clock, "each dispatcher counts by itself")
            return watch
        watch = StoreWatch(self.clock, "each caller has its last share")
        quotas.leases.watch = watch
        if isinstance(quotas.members, HeartbeatMembers):
            quotas.members.watch = watch
        return watch

    async def _connect_store(self) -> None:
        leaning = self.quotas if self.minute_quota is None else self.minute_quota
        try:
            await leaning.connect()
        except SluicegateError as error:
            if self.store is not None:
                self.store.failed(START, error)

    async def _first_look(self) -> None:
        """Read the book of tables; an engine that is yet to come up has a while for it."""
        for left in range(START_TRIES, -1, -1):
            try:
                await self.catalogue.refresh()
            except Unavailable as error:
                if not left:
                    raise
                _log.warning("%s; asking again for %d s", error, left)
                await asyncio.sleep(1.0)
            else:
                return

    def _loop_lag(self, late_us: int) -> None:
        # The CPU of the whole machine is left out: who else works there is no business of ours,
        # and our own shows in the loop.
        self.chain.set_lag(late_us)
        now_us = self.clock.now_us()
        self.lateness.record(late_us, now_us)
        passed_us = now_us - self._times_us
        if passed_us >= _LOOK_US:
            times = thread_times()
            self.chain.busy_share = busy_share(self._times, times, passed_us)
            self._times, self._times_us = times, now_us

    async def _admit_bulk(self, call: CallContext, rows: int, size_bytes: int) -> StackPermit:
        """How uploads, folding and sweeping enter: as everything else does, in the lowest class."""
        request = self.admission.request(
            BULK,
            "",
            BULK,
            "",
            CallContext(call.identity, criticality=_LOWEST, deadline_us=call.deadline_us),
            attributes_of(rows, size_bytes),
        )
        return await self.admission.later(request)

    def _replace_changed_tables(self) -> None:
        """Drop from the shield what it keeps of tables whose view has changed."""
        before, self._views = self._views, self.catalogue.views
        if self.hot is None:
            return
        for name, view in self._views.items():
            was = before.get(name)
            if was is None or was.overlay != view.overlay or was.epoch != view.epoch:
                self.hot.replace_table(name)

    def _classes(self) -> list[ClassUse]:
        """Return the outcomes of each class since the start."""
        refused = dict.fromkeys(Criticality, 0)
        for (_, member), count in self.usage.refusals().items():
            refused[member] += count
        admitted = dict.fromkeys(Criticality, 0)
        for (_, member), times in self.usage.took().items():
            admitted[member] += sum(times.counts)
        prices = self.chain.prices_milli or (0,) * len(Criticality)
        return [ClassUse(one, admitted[one], refused[one], prices[one]) for one in Criticality]


def shards_of(engine: Engine) -> set[str]:
    """The shards that some partitions are in."""
    return {engine.shard_of("probe", b"%d" % at) for at in range(_PROBES)}


def _upload(state: UploadState) -> Upload:
    return Upload(
        state.table,
        state.name,
        state.mode,
        state.state,
        range(state.parts),
        state.rows,
        state.bytes,
        state.begun_us,
        state.by,
    )


def _shield(settings: KvSettings) -> ShieldSettings:
    # So much is taken off at most; what is kept is never older than was said.
    ttl_us = settings.hot_ttl_ms * 1_000
    return ShieldSettings(
        ttl_us=ttl_us,
        jitter=_JITTER,
        cache_bytes_max=settings.cache_bytes,
        entry_bytes_max=min(settings.cache_bytes, 4 << 20),
    )


def _resp_settings(settings: KvSettings) -> RespSettings:
    bulk = max(settings.value_bytes_max, PART_BYTES_MAX)
    command = max(settings.message_bytes_max, bulk) + COMMAND_BYTES_BESIDE
    return RespSettings(
        parts_max=command // COMMAND_PART_BYTES,
        command_bytes_max=command,
        bulk_bytes_max=bulk,
        unread_bytes_max=2 * command,
        replies_owed_max=REPLIES_OWED_MAX,
        reply_bytes_max=2 * REPLY_BYTES_MAX,  # values, and the keys of as many rows
        turn_by_class=settings.policy != "none",
        version=__version__,
    )
