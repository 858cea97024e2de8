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
from dataclasses import replace
from typing import Any, Final, final

from headgate.apps.limiter.ledger import ServiceLedger
from headgate.apps.limiter.letters import LetterBox
from headgate.apps.limiter.monitor import Monitor
from headgate.apps.limiter.remote import RemoteStore
from headgate.apps.limiter.service import LimiterService
from headgate.apps.limiter.settings import Settings
from headgate.apps.limiter.throttling import FarThrottle, Throttling
from headgate.contracts.checks import Gate
from headgate.contracts.errors import BadValue, HeadgateError
from headgate.contracts.observer import Observer
from headgate.contracts.store import Store
from headgate.kernels.utilization_shed import DEFAULT_RAMPS, Ramp
from headgate.limits.dead_letters import DeadLetters
from headgate.limits.limiter import Limiter
from headgate.limits.rule import Failure
from headgate.policies.utilization_gate import GateSettings, OpenGate, UtilizationGate
from headgate.rules.mesh.rule import Semantics
from headgate.rules.mesh.service import Mesh
from headgate.rules.mesh.settings import HEADER_NAMES, MeshSettings
from headgate.rules.resources.service import Checker
from headgate.rules.service_book import ServiceBook
from headgate.rules.service_watch import ServiceRules
from headgate.stores.event_logs import open_log
from headgate.stores.memory.store import MemoryStore
from headgate.system import SystemChance, SystemClock, memory_bytes, now_us
from headgate.telemetry.audit_ring import AuditRing
from headgate.telemetry.prometheus import Family, Sample
from headgate.telemetry.service_tally import OUTCOMES, ServiceTally
from headgate.telemetry.store_tally import StoreTally

# An answer is due within 20 ms, Envoy's own time-out; so the store has this long.
STORE_TIMEOUT_US: Final = 5_000
Connects = tuple[Callable[[], Awaitable[None]], ...]
_log: Final = logging.getLogger("headgate.limiter")


@final
class Assembly:
    """One worker's parts. Made within the loop that serves."""

    def __init__(self, settings: Settings, worker: int) -> None:
        self.settings = settings
        self.draining = False
        self.clock = SystemClock()
        self.tally = ServiceTally()
        self.ring = AuditRing(
            refusals_max=settings.audit_refusals, admissions_max=settings.audit_admissions
        )
        self.store_tally = StoreTally(self.clock)
        self.book: ServiceBook | None = None
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
        self.rules: ServiceRules | None = None

    def load(self) -> None:
        """Read the rules and follow them; what is wrong with them is raised."""
        if self.settings.rules:
            self.rules = ServiceRules(
                self.settings.rules,
                self.put_in_force,
                semantics=self.settings.rls_semantics,
                merge_domains=self.settings.rls_merge_domains,
                loop=asyncio.get_running_loop(),
                clock=self.clock,
            )
            self.rules.start()

    async def connect(self) -> None:
        """Connect to the store, or find out that it cannot be now.

        Until the first attempt has ended a client lets those who ask wait for it; here that would
        be longer than they wait for us. After it, whoever asks without a store hears so at once.
        """
        tried = (connect() for connect in self._connects)
        for ended in await asyncio.gather(*tried, return_exceptions=True):
            if isinstance(ended, HeadgateError):
                _log.warning("%s; until it answers, failure policies decide", ended)
                return
            if ended is not None:
                raise ended

    def put_in_force(self, book: ServiceBook) -> None:
        """Let everything that comes from now on go by this book."""
        self.limiter.replace_rules(book.rules_beside(self.book))
        self.mesh.book = book.mesh
        self.checker.book = book.resources
        self.book = book

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
        return parts

    def _decisions(self) -> object:
        return {
            name: dict(zip(OUTCOMES, counts, strict=True))
            for name, counts in zip(_CLASSES, self.tally.classes, strict=True)
        }

    def _process(self) -> object:
        return {
            "pid": os.getpid(),
            "memory_bytes": memory_bytes(),
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
        }

    def families(self) -> Iterable[Family]:
        """The metrics of all parts."""
        yield from self.tally.families()
        yield from self.store_tally.families()
        yield from self._rules_families()
        if isinstance(self.gate, UtilizationGate):
            yield from _gate_families(self.gate)
        if self.letters is not None:
            stats = self.letters.stats()
            yield _counter("headgate_dead_letters_written", "Dead letters kept.", stats.written)
            yield _counter("headgate_dead_letters_dropped", "Dead letters lost.", stats.dropped)
            yield _gauge("headgate_dead_letters_depth", "Dead letters waiting.", stats.depth)
        yield _gauge("headgate_limiter_memory_bytes", "Memory of the process.", memory_bytes())

    def _rules_families(self) -> Iterable[Family]:
        accepted, refused = (1, 0) if self.rules is None else self.rules.counts
        loads = [
            Sample("_total", (("result", result),), count)
            for result, count in (("accepted", accepted), ("refused", refused))
        ]
        last: Any = self.rulebook()["last_load"]
        yield Family("headgate_limiter_rules_loads", "counter", "", "Loads of rules.", loads)
        yield _gauge(
            "headgate_limiter_rules_last_load_refused",
            "1 while the files as they are now were refused.",
            int(last["result"] == "refused"),
        )
        count = 0 if self.book is None else len(self.book)
        yield _gauge("headgate_limiter_rules", "Rules in force.", count)
        yield _gauge("headgate_limiter_leases_open", "Open leases.", self.checker.leases_open)
        tallies = self.mesh.tallies()
        for name, meaning in _MESH_COUNTS:
            samples = [
                Sample("_total", (("rule", one.key),), getattr(one, name)) for one in tallies
            ]
            yield Family(
                f"headgate_mesh_{name.removeprefix('total_')}", "counter", "", meaning, samples
            )

    # Inside.

    def _why(self) -> str:
        return self.store_tally.last_failure


def _letters(settings: Settings, worker: int) -> DeadLetters | None:
    if not settings.dlq:
        return None
    url = settings.dlq
    if settings.workers > 1 and url.startswith("files:"):
        # One writer a folder; `headgate dlq` reads those below a folder as one.
        path, mark, options = url.partition("?")
        url = f"{path.rstrip('/')}/worker-{worker}{mark}{options}"
    return DeadLetters(
        open_log(url),
        node=f"{socket.gethostname()}-{worker}",
        clock=SystemClock(),
        buffer_max=settings.dlq_buffer,
    )


def _gate(settings: Settings, tally: ServiceTally) -> tuple[Gate, Monitor | None]:
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
    settings: Settings, observer: StoreTally
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
    from headgate.stores.redis.store import RedisStore  # noqa: PLC0415
    from headgate.stores.redis.throttle import RedisThrottle  # noqa: PLC0415
    from headgate.stores.redis.url import parse_url  # noqa: PLC0415

    if not url.startswith(("redis", "valkey", "unix")):
        shown = url.partition(":")[0] + ":..."
        raise BadValue("--store", shown, "give memory:, redis://... or redis+cluster://...")
    redis = parse_url(url)
    if "timeout" not in url:
        redis = replace(redis, timeout_us=STORE_TIMEOUT_US)
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


def _gate_families(gate: UtilizationGate) -> Iterable[Family]:
    stats = gate.stats()
    readings = stats.readings
    limits = gate.settings
    yield _gauge("headgate_limiter_utilization", "What the gate goes by.", stats.utilization)
    yield Family(
        "headgate_limiter_reading",
        "gauge",
        "",
        "Each reading as a share of what counts as full.",
        [
            Sample("", (("signal", name),), value)
            for name, value in (
                ("cpu", readings.cpu),
                ("io", (readings.io or 0.0) / limits.io_full),
                ("memory", (readings.memory or 0.0) / limits.memory_full),
                ("lag", readings.lag_us / limits.lag_us_full),
                ("queue", readings.queue_us / limits.queue_us_full),
            )
        ],
    )
    yield Family(
        "headgate_limiter_shed_share",
        "gauge",
        "",
        "The share of each class that is shed now.",
        [
            Sample("", (("priority", name),), value)
            for name, value in zip(_CLASSES, stats.shares, strict=True)
        ],
    )


def _counter(name: str, meaning: str, value: float) -> Family:
    return Family(name, "counter", "", meaning, [Sample("_total", (), value)])


def _gauge(name: str, meaning: str, value: float) -> Family:
    return Family(name, "gauge", "", meaning, [Sample("", (), value)])


_CLASSES: Final = ("CRITICAL", "DEGRADED", "BEST_EFFORT", "BULK")
_MESH_COUNTS: Final = (
    ("total_hits", "Hits by rule of the mesh."),
    ("over_limit", "Hits over the limit."),
    ("near_limit", "Hits near the limit."),
    ("over_limit_with_local_cache", "Hits over the limit that needed no store."),
    ("within_limit", "Hits within the limit."),
    ("shadow_mode", "Hits over a limit that is only tried out."),
)
