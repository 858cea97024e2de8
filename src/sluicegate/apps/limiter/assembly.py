"""Assembly: the parts of one worker, made and joined, before anything listens.

Everything is made here in the order in which it is needed, and closed in the reverse order by
`close`. Nothing here decides or speaks a protocol.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, final

from sluicegate.apps.limiter.figures import (
    CLASSES,
    Loads,
    of_capture,
    of_gate,
    of_letters,
    of_mesh,
    of_rules,
)
from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.apps.limiter.letters import LetterBox
from sluicegate.apps.limiter.monitor import Monitor
from sluicegate.apps.limiter.remote import RemoteStore
from sluicegate.apps.limiter.service import LimiterService
from sluicegate.apps.limiter.settings import Settings
from sluicegate.apps.limiter.throttling import FarThrottle, Throttling
from sluicegate.apps.limiter.trial import Beside
from sluicegate.contracts.checks import Gate
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.contracts.event_log import EventLog
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.store import Store
from sluicegate.kernels.utilization_shed import DEFAULT_RAMPS, Ramp
from sluicegate.limits.dead_letters import DeadLetters
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.rule import Failure
from sluicegate.policies.utilization_gate import GateSettings, OpenGate, UtilizationGate
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import HEADER_NAMES, MeshSettings
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.service_rules import ServiceRules
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import HEADERS_DEFAULT, CaptureSettings
from sluicegate.shadow.captured import ALL
from sluicegate.stores.event_logs import open_log
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import SystemChance, SystemClock, memory_bytes, now_us
from sluicegate.telemetry.audit_ring import AuditRing
from sluicegate.telemetry.prometheus import MetricFamily, gauge
from sluicegate.telemetry.service_metrics import OUTCOMES, ServiceMetrics
from sluicegate.telemetry.store_metrics import StoreMetrics

# An answer is due within 20 ms, Envoy's own time-out; so the store has this long.
STORE_TIMEOUT_US: Final = 5_000
Connects = tuple[Callable[[], Awaitable[None]], ...]
_log: Final = logging.getLogger("sluicegate.limiter")


class KeptRules(Loads, Protocol):
    """What keeps the rules as they should be: files that are watched, or a fleet's orders."""

    def reload(self) -> None:
        """Look now."""

    def close(self) -> None:
        """Stop."""


@final
class Assembly:
    """One worker's parts. Made within the loop that serves."""

    def __init__(self, settings: Settings, worker: int) -> None:
        self.settings = settings
        self.draining = False
        self.clock = SystemClock()
        self.tally = ServiceMetrics()
        self.ring = AuditRing(
            refusals_max=settings.audit_refusals, admissions_max=settings.audit_admissions
        )
        self.store_tally = StoreMetrics(self.clock)
        self.book: ServiceRuleSet | None = None
        self.letters = _letters(settings, worker)
        box = None
        if self.letters is not None:
            box = LetterBox(
                self.letters, self._why, harsh=settings.rls_semantics == Semantics.ENVOY.value
            )
        self.ledger = ServiceLedger(self.tally, self.ring, box)
        self.gate, self.monitor = _gate(settings, self.tally)
        self.store, self.limiter, throttling, self._connects = _stores(settings, self.store_tally)
        self.limiter.pin()
        self.throttling = throttling
        self.mesh = Mesh(self.limiter, self.gate, self.ledger, settings=_mesh_settings(settings))
        self.checker = Checker(self.limiter, self.gate, self.ledger)
        self.service = LimiterService(
            self.mesh,
            self.checker,
            throttling,
            RemoteStore(self.store),
            self.ledger,
            self.serving,
        )
        self.rules: KeptRules | None = None
        self.books: FleetBooks | None = None
        self.beside: Beside | None = None
        self.capture = _capture(settings, self.clock)
        self.service.witness = self.capture
        self._worker = worker
        self._announcements: EventLog | None = None
        self._follower: Any = None

    def load(self) -> None:
        """Read the rules and follow them; what is wrong with them is raised."""
        loop = asyncio.get_running_loop()
        if self.settings.rulebook:
            # It takes packages that only this needs.
            from sluicegate.rules.following.node import follow, start  # noqa: PLC0415

            follower, self._announcements = follow(
                self.settings,
                self._worker,
                self.put_fleet,
                self.counts,
                loop=loop,
                clock=self.clock,
            )
            self.rules = self._follower = start(follower, self.settings)
        elif self.settings.rules:
            self.rules = ServiceRules(
                self.settings.rules,
                self.put_in_force,
                semantics=self.settings.rls_semantics,
                merge_domains=self.settings.rls_merge_domains,
                loop=loop,
                clock=self.clock,
            ).start()

    async def connect(self) -> None:
        """Connect to the store, or find out that it cannot be now.

        Until the first attempt has ended a client lets those who ask wait for it; here that would
        be longer than they wait for us. After it, whoever asks without a store hears so at once.
        """
        tried = (connect() for connect in self._connects)
        for ended in await asyncio.gather(*tried, return_exceptions=True):
            if isinstance(ended, SluicegateError):
                _log.warning("%s; until it answers, failure policies decide", ended)
                return
            if ended is not None:
                raise ended

    def put_in_force(self, book: ServiceRuleSet) -> None:
        """Let everything that comes from now on go by this book."""
        self.limiter.replace_rules(book.rules_beside(self.book))
        self._take(book)

    def put_fleet(self, books: FleetBooks) -> None:
        """The same for what a fleet is ordered to run: the live book, and one on trial."""
        before, trial = self.books, self.service.trial
        self.limiter.replace_rules(books.rules_beside(before))
        if before is None or before.live_version != books.live_version:
            self.ledger.count_anew()
        self._take(books.live)
        if books.canary is None:
            self.service.trial = None
            if self.beside is not None:
                self.beside.end()
        elif trial is not None and trial.version == books.canary_version:
            self.service.trial = trial.with_share(books.runs_canary)
        else:
            beside = self._beside()
            trial = beside.begin(books.canary_version, books.runs_canary, books.canary)
            self.service.trial = trial
        self.books = books

    def counts(self) -> dict[str, list[int]]:
        """What was decided since, by version and class, for the node's reports."""
        from sluicegate.apps.limiter.following import counts_of  # noqa: PLC0415 - as in `load`

        trial = self.service.trial
        ledgers = [self.ledger] if trial is None else [self.ledger, trial.ledger]
        return counts_of(self.books, ledgers)

    def rulebook(self) -> Mapping[str, object]:
        """What GET /v1/rulebook tells."""
        if self.rules is not None:
            return self.rules.status()
        return {
            "version": "",
            "files": [],
            "last_load": {
                "result": "accepted",
                "file": None,
                "line": None,
                "reason": "no rules were given (--rules); CL.THROTTLE brings its own",
                "at": "",
            },
        }

    def serving(self) -> bool:
        """Whether new work is welcome."""
        return not self.draining

    def not_ready(self) -> str:
        """Why not; empty if it is."""
        return "this instance is going away" if self.draining else ""

    async def close(self) -> None:
        """Give everything back, the last that was made first."""
        if self.rules is not None:
            self.rules.close()
        if self._announcements is not None:
            self._announcements.close()
        if self.capture is not None:
            self.capture.close()
        if self.monitor is not None:
            await self.monitor.close()
        await self.throttling.close()
        await self.limiter.aclose()
        await self.store.close()
        if self.letters is not None:
            stats = self.letters.close()
            lost = stats.offered - stats.written
            if lost:
                _log.warning("%d dead letters were not written: %s", lost, stats.last_error)

    # What there is to see.

    def parts(self) -> dict[str, Any]:
        """The parts of /v1/state, each by a function that tells it."""
        parts: dict[str, Any] = {
            "process": self._process,
            "decisions": self._decisions,
            "store": self.store_tally.snapshot,
            "rulebook": self.rulebook,
        }
        if isinstance(self.gate, UtilizationGate):
            parts["gate"] = self.gate.stats
        if self.letters is not None:
            parts["dead_letters"] = self.letters.stats
        if self.capture is not None:
            parts["capture"] = self.capture.stats
        return parts

    def _decisions(self) -> object:
        return {
            name: dict(zip(OUTCOMES, counts, strict=True))
            for name, counts in zip(CLASSES, self.tally.classes, strict=True)
        }

    def _process(self) -> object:
        return {
            "pid": os.getpid(),
            "memory_bytes": memory_bytes(),
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
        }

    def families(self) -> Iterable[MetricFamily]:
        """The metrics of all parts."""
        yield from self.tally.families()
        yield from self.store_tally.families()
        yield from of_rules(self.rules, 0 if self.book is None else len(self.book))
        beside = self.beside
        yield from of_mesh(self.mesh.tallies(), () if beside is None else beside.mesh.tallies())
        if self._follower is not None:
            from sluicegate.rules.following.node import of_following  # noqa: PLC0415 - as in `load`

            yield from of_following(self._follower, self.clock.now_us())
        if self.capture is not None:
            yield from of_capture(self.capture.stats())
        if isinstance(self.gate, UtilizationGate):
            yield from of_gate(self.gate.stats(), self.gate.settings)
        if self.letters is not None:
            yield from of_letters(self.letters.stats())
        leases = self.checker.leases_open + (0 if beside is None else beside.checker.leases_open)
        yield gauge("sluicegate_limiter_leases_open", "Open leases.", leases)
        yield gauge("sluicegate_limiter_memory_bytes", "Memory of the process.", memory_bytes())

    # Inside.

    def _take(self, book: ServiceRuleSet) -> None:
        self.mesh.book = book.mesh
        self.checker.book = book.resources
        self.book = book

    def _beside(self) -> Beside:
        """What decides for those on trial, made when somebody is for the first time."""
        if self.beside is None:
            ledger = self.ledger.beside()
            self.beside = Beside(
                Checker(self.limiter, self.gate, ledger),
                Mesh(self.limiter, self.gate, ledger, settings=_mesh_settings(self.settings)),
                ledger,
            )
            self.service.beside = self.beside.checker
        return self.beside

    def _why(self) -> str:
        return self.store_tally.last_failure


def _letters(settings: Settings, worker: int) -> DeadLetters | None:
    if not settings.dlq:
        return None
    url = settings.dlq
    if settings.workers > 1 and url.startswith("files:"):
        # One writer a folder; `sluicegate dlq` reads those below a folder as one.
        path, mark, options = url.partition("?")
        url = f"{path.rstrip('/')}/worker-{worker}{mark}{options}"
    return DeadLetters(
        open_log(url),
        node=f"{socket.gethostname()}-{worker}",
        clock=SystemClock(),
        buffer_max=settings.dlq_buffer,
    )


def _capture(settings: Settings, clock: Clock) -> Capture | None:
    if not settings.capture:
        return None
    said = CaptureSettings(
        folder=settings.capture,
        key_file=settings.capture_key,
        share=round(settings.capture_share * ALL),
        plain_values=settings.capture_clear,
        headers=(*HEADERS_DEFAULT, *settings.capture_headers),
        mesh_keys=settings.capture_mesh_keys,
        retain_bytes=settings.capture_bytes_max,
        retain_us=settings.capture_hours * 3_600_000_000,
    )
    return Capture(said, clock=clock)


def _gate(settings: Settings, tally: ServiceMetrics) -> tuple[Gate, Monitor | None]:
    if not settings.shed:
        return OpenGate(), None
    critical = None
    ramps = [ramp for ramp in DEFAULT_RAMPS if ramp is not None]
    lowest = Ramp(min(settings.shed_from, ramps[-1].full), ramps[-1].full)
    if settings.shed_critical_from < 1:
        begin = settings.shed_critical_from
        critical = Ramp(begin, 1.0)
        ramps[0] = Ramp(min(ramps[0].begin, begin), min(ramps[0].full, begin))
    gate = UtilizationGate(
        SystemChance(), GateSettings(ramps=(critical, ramps[0], ramps[1], lowest))
    )
    return gate, Monitor(gate, tally)


def _stores(
    settings: Settings, observer: StoreMetrics
) -> tuple[Store, Limiter, Throttling, Connects]:
    failure = Failure(settings.failure)
    if not settings.shared:
        limiter = Limiter(failure=failure, keys_max=settings.keys_max)
        store: Store = MemoryStore(now_us, keys_max=settings.keys_max)
        return store, limiter, Throttling(now_us, settings.keys_max, None, failure), ()
    store, throttle, connects = _open_redis(settings.store, observer)
    limiter = Limiter(
        open_store=lambda: store,
        failure=failure,
        keys_max=settings.keys_max,
        observer=observer,
    )
    return store, limiter, Throttling(now_us, settings.keys_max, throttle, failure), connects


def _open_redis(url: str, observer: Observer) -> tuple[Store, FarThrottle, Connects]:
    # Here, because memory needs none of it and no package for it.
    from sluicegate.stores.redis.settings import parse_url  # noqa: PLC0415
    from sluicegate.stores.redis.store import RedisStore  # noqa: PLC0415
    from sluicegate.stores.redis.throttle import RedisThrottle  # noqa: PLC0415

    if not url.startswith(("redis", "valkey", "unix")):
        shown = url.partition(":")[0] + ":..."
        raise BadValue("--store", shown, "give memory:, redis://... or redis+cluster://...")
    redis = parse_url(url, defaults={"timeout_us": STORE_TIMEOUT_US})
    store = RedisStore(redis, SystemChance(), observer=observer, clock=now_us)
    throttle = RedisThrottle(redis, SystemChance(), observer=observer, clock=now_us)
    return store, throttle, (store.connect, throttle.connect)


def _mesh_settings(settings: Settings) -> MeshSettings:
    return MeshSettings(
        semantics=Semantics(settings.rls_semantics),
        global_shadow=settings.rls_shadow,
        header_names=HEADER_NAMES if settings.rls_headers else None,
        metadata=settings.rls_metadata,
        local_cache_max=settings.rls_local_cache,
        stop_when_over=settings.rls_stop_when_over,
        near_ratio=settings.rls_near_ratio,
    )
