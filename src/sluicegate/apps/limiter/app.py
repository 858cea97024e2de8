"""App: one worker of the rate-limit service, its parts in the order in which they need one another.

Nothing here decides or speaks a protocol.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, final

from sluicegate import __version__
from sluicegate.apps.limiter.dead_letters import DeadLetterWriter
from sluicegate.apps.limiter.fleet_state import FleetState, SharedMark
from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.apps.limiter.metrics import (
    CLASSES,
    of_capture,
    of_dead_letters,
    of_gate,
    of_mesh,
    of_rules,
    of_unmatched,
)
from sluicegate.apps.limiter.monitor import Monitor
from sluicegate.apps.limiter.namespaced_store import NamespacedStore
from sluicegate.apps.limiter.rule_search import RuleSearch
from sluicegate.apps.limiter.service import LimiterService
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.apps.limiter.status import LimiterStatus
from sluicegate.apps.limiter.store_watch import LimiterStoreWatch
from sluicegate.apps.limiter.throttle import RemoteThrottle, Throttle
from sluicegate.apps.limiter.trial_rules import TrialRules
from sluicegate.command_line.text import counted
from sluicegate.contracts.access import Access
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.store import Store
from sluicegate.doors.grpc.mesh import MeshServicer
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.rate_limiter import RateLimiterServicer
from sluicegate.doors.http.handler import HttpHandler
from sluicegate.doors.http.limiter.handler import LimiterHttp, LimiterHttpSettings
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.limits.dead_letters import DeadLetters
from sluicegate.limits.glass.follower import GlassFollower, follow
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.rule import Failure
from sluicegate.policies.admission.utilization_gate import (
    OpenGate,
    UtilizationGate,
    UtilizationSettings,
)
from sluicegate.protos import MESH, SLUICEGATE, descriptor_set
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.following.release_counts import release_counts
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import HEADER_NAMES, MeshSettings
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.unmatched import UnmatchedRequests
from sluicegate.service.app import App, GrpcServices, Site
from sluicegate.service.rules_source import RulesSource
from sluicegate.service.siblings import ALONE, WorkerId
from sluicegate.service.status import Part
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.traffic import ALL
from sluicegate.stores.event_logs import check_log, open_log
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import SystemChance, SystemClock, now_us
from sluicegate.telemetry.audit_ring import AuditRing
from sluicegate.telemetry.observer_group import ObserverGroup
from sluicegate.telemetry.prometheus import MetricFamily, gauge
from sluicegate.telemetry.service_metrics import OUTCOMES, ServiceMetrics
from sluicegate.telemetry.store_metrics import StoreMetrics

# What gRPC health answers for: all of it, the name that meshes configure, and each service.
SERVICES: Final = (
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
    "sluicegate.v1.RateLimiter",
)
BULK_BYTES_MAX: Final = 64 << 10  # of one word of a RESP command
SHEDS: Final = "sheds"  # the name of the mark of limiters that shed
LETTERS_MAX: Final = 10_000  # dead letters in memory until they are written
CAPTURED_US: Final = 72 * 3_600_000_000  # how long captured requests are kept
Connects = tuple[Callable[[], Awaitable[None]], ...]
Shared = tuple[SharedMark, LimiterStoreWatch]
_log: Final = logging.getLogger("sluicegate.limiter")


@final
class LimiterApp(App[LimiterSettings]):
    """One worker of `sluicegate limiter`."""

    name: ClassVar[str] = "limiter"

    def __init__(self, settings: LimiterSettings, worker: WorkerId = ALONE) -> None:
        super().__init__(settings, worker)
        self.service_metrics = ServiceMetrics()
        self.ring = AuditRing(refusals_max=settings.audit_refusals)
        self.store_metrics = StoreMetrics(self.clock)
        self.book: ServiceRuleSet | None = None
        self.books: FleetBooks | None = None
        self.trial_rules: TrialRules | None = None
        self.dead_letters = _dead_letters(settings, worker)
        box = None
        if self.dead_letters is not None:
            box = DeadLetterWriter(
                self.dead_letters,
                lambda: self.store_metrics.last_failure,
                harsh=settings.rls_semantics == Semantics.ENVOY.value,
            )
        spans = None if self.tracing is None else self.tracing.decisions
        self.ledger = ServiceLedger(self.service_metrics, self.ring, box, spans)
        self.gate = _gate(settings)
        self.store, self.limiter, self.throttle, self._connects, shared = _stores(
            settings,
            self.store_metrics
            if self.tracing is None
            else ObserverGroup(self.store_metrics, self.tracing.round_trips),
            lambda: self.store_metrics.failures,
        )
        self.fleet: FleetState | None = None
        self.store_watch = LimiterStoreWatch()
        self._watches_store = shared is not None
        if shared is not None:
            mark, self.store_watch = shared
            node = f"{settings.node or socket.gethostname()}-{worker.number}"
            self.fleet = FleetState(self.gate, mark, node, self.clock)
        self.limiter.pin()
        self.follower: GlassFollower | None = None
        if settings.glass:
            self.follower = follow(settings.glass, clock=self.clock)
        self.glass = None if self.follower is None else self.follower.glass
        self.unmatched = UnmatchedRequests()
        self.mesh, self.checker = self._deciders(self.ledger)
        self.service = LimiterService(
            self.mesh,
            self.checker,
            self.throttle,
            NamespacedStore(self.store),
            self.ledger,
            self.serving,
            self.glass,
        )
        self.rules = RulesSource(self.put_in_force, self.put_fleet, self.counts)
        self.capture = _capture(settings, self.clock)
        self.service.recorder = self.capture

    # Life.

    async def start(self) -> None:
        """Read the rules and follow them, connect to the store, and measure for the gate."""
        self.rules.start(
            self.settings,
            self.worker,
            self.clock,
            semantics=self.settings.rls_semantics,
            merge_domains=self.settings.rls_merge_domains,
        )
        if self.follower is not None:
            self.follower.start()
        await self._connect()
        if isinstance(self.gate, UtilizationGate):
            monitor = Monitor(
                self.gate,
                self.service_metrics,
                self.store_watch,
                machine=self.settings.shed_machine,
                pressure=self.settings.shed_pressure,
            )
            self.background.start("monitor", monitor.run)
        if self.fleet is not None:
            self.background.start("fleet", self.fleet.run)
        if self._watches_store:
            self.background.start("store", self.store_watch.run)

    async def close(self) -> None:
        """Close the parts, the last that was made first."""
        self.rules.close()
        if self.capture is not None:
            self.capture.close()
        if self.follower is not None:
            await asyncio.to_thread(self.follower.close)
        await self.throttle.close()
        await self.limiter.aclose()
        await self.store.close()
        if self.dead_letters is not None:
            stats = self.dead_letters.close()
            lost = stats.offered - stats.written
            if lost:
                _log.warning("%d dead letters were not written: %s", lost, stats.last_error)

    def change(self, before: LimiterSettings) -> None:
        """From where on it sheds."""
        if isinstance(self.gate, UtilizationGate):
            self.gate.replace(_gate_settings(self.settings))

    def reload(self) -> None:
        """Read the rules again."""
        self.rules.reload()

    # Rules.

    def put_in_force(self, book: ServiceRuleSet) -> None:
        """Go by this book from now on."""
        self.limiter.replace_rules(book.rules_beside(self.book))
        self._take(book)
        self._follow_headers(book)

    def put_fleet(self, books: FleetBooks) -> None:
        """Go by what a rollout says: the live book, and one on trial."""
        before, trial = self.books, self.service.trial
        self.limiter.replace_rules(books.rules_beside(before))
        if before is None or before.live_version != books.live_version:
            self.ledger.reset_counts()
        self._take(books.live)
        if books.canary is None:
            self.service.trial = None
            if self.trial_rules is not None:
                self.trial_rules.end()
        elif trial is not None and trial.version == books.canary_version:
            self.service.trial = trial.with_share(books.runs_canary)
        else:
            trial_rules = self._trial_rules()
            trial = trial_rules.begin(books.canary_version, books.runs_canary, books.canary)
            self.service.trial = trial
        self._follow_headers(*(one for one in (books.live, books.canary) if one is not None))
        self.books = books

    def counts(self) -> Mapping[str, Sequence[int]]:
        """Decisions by release and class, how many and how many refused, for the node's reports."""
        trial = self.service.trial
        return release_counts(self.books, self.ledger, None if trial is None else trial.ledger)

    def _follow_headers(self, *books: ServiceRuleSet) -> None:
        """Capture the headers by which these rules tell requests apart."""
        if self.capture is not None:
            self.capture.follow_rules([book.resources.priorities for book in books])

    def _take(self, book: ServiceRuleSet) -> None:
        self.mesh.book = book.mesh
        self.checker.book = book.resources
        self.book = book

    def _deciders(self, ledger: ServiceLedger) -> tuple[Mesh, Checker]:
        """What decides by Envoy's rules and by our own, and records in this ledger."""
        bounds = _mesh_settings(self.settings)
        glass, unmatched = self.glass, self.unmatched
        mesh = Mesh(
            self.limiter, self.gate, ledger, settings=bounds, glass=glass, unmatched=unmatched
        )
        return mesh, Checker(self.limiter, self.gate, ledger, glass=glass, unmatched=unmatched)

    def _trial_rules(self) -> TrialRules:
        """What decides for those on trial, made when the first trial begins."""
        if self.trial_rules is None:
            ledger = self.ledger.fork()
            mesh, checker = self._deciders(ledger)
            self.trial_rules = TrialRules(checker, mesh, ledger)
            self.service.trial_checker = self.trial_rules.checker
        return self.trial_rules

    # Doors.

    def grpc(self) -> GrpcServices:
        """Envoy's service and our own."""
        service = self.service
        mesh, ours = (
            MeshServicer(service, marks=self.settings.rls_mark),
            RateLimiterServicer(service),
        )
        methods = Methods({**mesh.unary, **ours.unary}, {}, grants={**mesh.grants, **ours.grants})
        return GrpcServices(methods, [descriptor_set(SLUICEGATE), descriptor_set(MESH)], SERVICES)

    def resp(self, access: Access) -> RespDoor:
        """CL.THROTTLE and our own commands."""
        most = self.settings.message_bytes_max
        bounds = RespSettings(
            command_bytes_max=most,
            bulk_bytes_max=min(most, BULK_BYTES_MAX),
            version=__version__,
        )
        return RespDoor(self.service, access, bounds, clock=self.clock)

    def http(self, site: Site) -> HttpHandler:
        """Checks, leases, the audit, Envoy's question as JSON."""
        bounds = LimiterHttpSettings(
            hosts=site.hosts, metrics_open=self.settings.metrics_open, version=__version__
        )
        status = LimiterStatus(site.status, self.rules.status, self.ring)
        search = RuleSearch(lambda: self.book, self.service_metrics)
        return LimiterHttp(self.service, status, site.access, self.clock, bounds, (search.route(),))

    # What there is to see.

    def summary(self) -> str:
        """The rules and where counts are."""
        rules = "no rules" if self.book is None else counted(len(self.book), "rule")
        version = "" if self.book is None else f" (version {self.book.version})"
        store = "memory" if not self.settings.shared else self.settings.store.partition(":")[0]
        return f"{rules}{version}, counts in {store}"

    def state(self) -> Mapping[str, Part]:
        """The parts of /v1/state."""
        parts: dict[str, Part] = {
            "decisions": self._decisions,
            "store": self.store_metrics.snapshot,
            "rulebook": self.rules.status,
        }
        if isinstance(self.gate, UtilizationGate):
            parts["gate"] = self.gate.stats
        if self.fleet is not None:
            parts["fleet"] = self.fleet.state
        if self._watches_store:
            parts["store_watch"] = self.store_watch.state
        if self.follower is not None:
            parts["glass"] = self.follower.state
        if self.dead_letters is not None:
            parts["dead_letters"] = self.dead_letters.stats
        if self.capture is not None:
            parts["capture"] = self.capture.stats
        return parts

    def metrics(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        trial_rules = self.trial_rules
        yield from self.service_metrics.families()
        yield from self.store_metrics.families()
        yield from self.store_watch.metrics()
        yield from of_rules(self.rules, 0 if self.book is None else len(self.book))
        yield from of_mesh(
            self.mesh.stats(), () if trial_rules is None else trial_rules.mesh.stats()
        )
        yield of_unmatched(self.unmatched)
        yield from self.rules.metrics(self.clock.now_us())
        if self.capture is not None:
            yield from of_capture(self.capture.stats())
        if isinstance(self.gate, UtilizationGate):
            yield from of_gate(self.gate.stats())
        if self.dead_letters is not None:
            yield from of_dead_letters(self.dead_letters.stats())
        leases = self.checker.leases_open + (
            0 if trial_rules is None else trial_rules.checker.leases_open
        )
        yield gauge("sluicegate_limiter_leases_open", "Open leases.", leases)

    def _decisions(self) -> object:
        return {
            name: dict(zip(OUTCOMES, counts, strict=True))
            for name, counts in zip(CLASSES, self.service_metrics.classes, strict=True)
        }

    async def _connect(self) -> None:
        """Connect to the store, or find out that it cannot be now.

        Until the first attempt has ended a client lets requests wait for it, here longer than
        callers wait for us. After it, whoever asks without a store is told so at once.
        """
        attempts = (connect() for connect in self._connects)
        for ended in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(ended, SluicegateError):
                _log.warning("%s; until it answers, failure policies decide", ended)
                return
            if ended is not None:
                raise ended


def _dead_letters(settings: LimiterSettings, worker: WorkerId) -> DeadLetters | None:
    if not settings.dlq:
        return None
    url = settings.dlq
    if worker.workers > 1 and url.startswith("files:"):
        # One writer a folder; `sluicegate dlq` reads those below a folder as one.
        path, mark, options = url.partition("?")
        url = f"{path.rstrip('/')}/worker-{worker.number}{mark}{options}"
    check_log(url)
    return DeadLetters(
        open_log(url),
        node=f"{socket.gethostname()}-{worker.number}",
        clock=SystemClock(),
        buffer_max=LETTERS_MAX,
    )


def _capture(settings: LimiterSettings, clock: Clock) -> Capture | None:
    if not settings.capture:
        return None
    bounds = CaptureSettings(
        folder=settings.capture,
        share=round(settings.capture_share * ALL),
        retain_bytes=settings.capture_bytes_max,
        retain_us=CAPTURED_US,
    )
    return Capture(bounds, clock=clock)


def _gate(settings: LimiterSettings) -> UtilizationGate | OpenGate:
    return (
        UtilizationGate(SystemChance(), _gate_settings(settings)) if settings.shed else OpenGate()
    )


def _gate_settings(settings: LimiterSettings) -> UtilizationSettings:
    return UtilizationSettings(ramps=settings.ramps)


def _stores(
    settings: LimiterSettings, observer: Observer, failures: Callable[[], int]
) -> tuple[Store, Limiter, Throttle, Connects, Shared | None]:
    failure = Failure(settings.failure)
    if not settings.shared:
        limiter = Limiter(failure=failure, keys_max=settings.keys_max)
        store: Store = MemoryStore(now_us, keys_max=settings.keys_max)
        return store, limiter, Throttle(now_us, settings.keys_max, None, failure), (), None
    store, throttle, connects, shared = _open_redis(settings.store, observer, failures)
    limiter = Limiter(
        open_store=lambda: store,
        failure=failure,
        keys_max=settings.keys_max,
        observer=observer,
    )
    return store, limiter, Throttle(now_us, settings.keys_max, throttle, failure), connects, shared


def _open_redis(
    url: str, observer: Observer, failures: Callable[[], int]
) -> tuple[Store, RemoteThrottle, Connects, Shared]:
    # Here, because memory needs none of it and no package for it.
    from sluicegate.stores.redis.settings import parse_url, schemes_text  # noqa: PLC0415
    from sluicegate.stores.redis.store import RedisStore  # noqa: PLC0415
    from sluicegate.stores.redis.throttle import RedisThrottle  # noqa: PLC0415

    if not url.startswith(("redis", "valkey", "unix")):
        scheme = url.partition(":")[0] + ":..."
        raise BadValue("--store", scheme, f"give memory:, or begin it with {schemes_text()}")
    redis = parse_url(url)
    store = RedisStore(redis, SystemChance(), observer=observer, clock=now_us)
    throttle = RedisThrottle(redis, SystemChance(), observer=observer, clock=now_us)
    watch = LimiterStoreWatch(
        store.evictions, lambda: [*store.paths, *throttle.paths], failures=failures
    )
    return store, throttle, (store.connect, throttle.connect), (store.mark(SHEDS), watch)


def _mesh_settings(settings: LimiterSettings) -> MeshSettings:
    return MeshSettings(
        semantics=Semantics(settings.rls_semantics),
        global_shadow=settings.rls_shadow,
        header_names=HEADER_NAMES if settings.rls_headers else None,
        metadata=settings.rls_metadata,
        local_cache_max=settings.rls_local_cache,
        stop_when_over=settings.rls_stop_when_over,
        near_ratio=settings.rls_near_share,
    )
