"""Picture: what a fleet of services does, between the last two looks at each. Pure.

A service may be of another version: what is missing counts as nothing, and a state that cannot be
read at all makes its node one that does not answer, beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sluicegate.apps.console.fleet import Node, State
from sluicegate.apps.console.image_readings import ImageReading, read_images
from sluicegate.apps.console.queue_readings import QueueReading, read_dispatchers, read_services
from sluicegate.command_line.account_rates import NodeSample
from sluicegate.command_line.account_rates import picture_of as accounts_of
from sluicegate.command_line.board_rates import per_s, picture
from sluicegate.command_line.boards import BoardSample, board_in
from sluicegate.command_line.text import counted
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.reasons import (
    COST_ABOVE_LIMIT,
    QUOTA_SPENT,
    RATE_LIMITED,
    SHED,
    STORE_UNAVAILABLE,
)
from sluicegate.limits.glass.break_glass import Opening
from sluicegate.wire.timestamps import parse_instant

DISPATCHER: Final = "kv"
IMAGES: Final = "images"
LIMITER: Final = "limiter"
PUBSUB: Final = "pubsub"
CLIENT: Final = "client"
CLASSES: Final = tuple(member.name for member in Criticality)
ACCOUNTS_READ_MAX: Final = 200  # of a node; the suppressed come first, then the busiest
_ADMITTED: Final = ("allowed", "degraded_allowed", "shadow_refused")
_REFUSED: Final = {
    "refused": RATE_LIMITED.name,
    "shed": SHED.name,
    "degraded_refused": STORE_UNAVAILABLE.name,
}
# Reasons that are limits of those who ask.
_LIMITS: Final = frozenset({RATE_LIMITED.name, COST_ABOVE_LIMIT.name, QUOTA_SPENT.name})
# What comes of a state that is not of the form it should have.
_UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class NodeRow(NamedTuple):
    """One service: what it is, and whether it answers."""

    url: str
    error: str  # why it does not answer; empty if it does
    answered_us: int
    app: str = ""
    name: str = ""
    version: str = ""
    release: str = ""  # of the rules that it runs
    rules_age_us: int = -1  # since it last heard that none are newer; -1: it follows no rulebook
    rules_trouble: str = ""  # why it does not run the newest
    up_us: int = 0
    memory_bytes: int = 0
    not_ready: str = ""
    admitted: float = 0.0
    refused: float = 0.0


class ClassFlow(NamedTuple):
    """What becomes of a class of work, a second; the price is the highest anywhere.

    Of what is refused, `shed` is for the sake of the service; the rest are limits of those who ask.
    """

    name: str
    admitted: float = 0.0
    refused: float = 0.0
    shed: float = 0.0
    price: float | None = None  # None: there are no prices

    @property
    def shed_share(self) -> float:
        """Of what came, the share that was refused for the sake of the service."""
        offered = self.admitted + self.refused
        return self.shed / offered if offered else 0.0


class SlowShard(NamedTuple):
    """A shard on which an operation takes longer than usual."""

    node: str
    shard: str
    operation: str
    ratio: float  # the usual time over the time now
    waiting: int
    limit: int  # 0: none found yet
    origin: str  # of the limit: "set", "found" or "none yet"


class GateReading(NamedTuple):
    """How full a limiter is, and what makes it so."""

    node: str
    utilization: float
    worst: str
    shed: tuple[float, ...]  # the share of each class


class AccountReading(NamedTuple):
    """What a node of a pub/sub cluster does with its accounts; rates are a second."""

    node: str
    admitted: float
    suppressed: float  # refused by a factor that a master said
    fused: float  # refused by the node's own fuse
    accounts: int
    suppressed_accounts: int
    mastered: int  # of which this node is the master
    nodes: int  # that its master has heard
    untracked: int


class BreakerReading(NamedTuple):
    """A breaker of a client that is not closed: whose calls it holds back, and to where."""

    node: str
    client: str
    backend: str
    operation: str
    state: str


class LetterReading(NamedTuple):
    """The dead letters of a limiter."""

    node: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FleetPicture:
    """The fleet, at one instant; rates are a second."""

    at_us: int
    nodes: tuple[NodeRow, ...] = ()
    classes: tuple[ClassFlow, ...] = ()
    reasons: tuple[tuple[str, float], ...] = ()  # refusals, the most frequent first
    slow: tuple[SlowShard, ...] = ()
    gates: tuple[GateReading, ...] = ()
    degraded: float = 0.0  # decided without the store
    uncounted: float = 0.0  # of those, admitted
    slow_us: int = 0  # the round trip of a store of counts that answers too late; 0: none does
    evicted: float = 0.0  # counters that the store dropped
    openings: tuple[Opening, ...] = ()  # what is not enforced just now (break-glass)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    letters: tuple[LetterReading, ...] = ()
    accounts: tuple[AccountReading, ...] = ()
    # Of each account, over all nodes, as `account_rates.picture_of` has it.
    factors: Sequence[Mapping[str, Any]] = ()
    images: tuple[ImageReading, ...] = ()
    breakers: tuple[BreakerReading, ...] = ()
    queues: tuple[QueueReading, ...] = ()
    dispatchers: Mapping[str, Any] = field(default_factory=dict)  # as `board_rates.picture` has it

    @property
    def admitted(self) -> float:
        """Of all classes."""
        return sum(flow.admitted for flow in self.classes)

    @property
    def refused(self) -> float:
        """Of all classes."""
        return sum(flow.refused for flow in self.classes)

    @property
    def from_memory(self) -> float:
        """Point reads that dispatchers answered without their engine, beside what is admitted."""
        shield: Mapping[str, float] = self.dispatchers.get("shield", {})
        return sum(shield.get(name, 0.0) for name in ("served", "joined", "stale_served"))

    @property
    def silent(self) -> tuple[NodeRow, ...]:
        """Those that do not answer."""
        return tuple(node for node in self.nodes if node.error)

    @property
    def p99_us(self) -> float | None:
        """The worst of any class; None where nothing ended."""
        latency: Mapping[str, Mapping[str, float]] = self.dispatchers.get("latency", {})
        return max((one["p99_us"] for one in latency.values()), default=None)

    @property
    def queue_us(self) -> float | None:
        """The longest that work waited in a queue; None where none did."""
        delays = [one.delay_us for one in self.queues if one.delay_us is not None]
        return max(delays, default=None)

    @property
    def ratio(self) -> float | None:
        """The lowest latency ratio of any dispatcher."""
        ratio: float | None = (self.dispatchers.get("stress") or {}).get("ratio")
        return ratio

    @property
    def utilization(self) -> float | None:
        """Of the fullest limiter."""
        return max((gate.utilization for gate in self.gates), default=None)


def picture_of(nodes: Sequence[Node], at_us: int) -> FleetPicture:
    """Return the picture of all nodes."""
    rows: list[NodeRow] = []
    readings: list[_NodeReading] = []
    openings: dict[str, Opening] = {}
    before: list[BoardSample] = []
    after: list[BoardSample] = []
    for node in nodes:
        url, state = node.address.url, node.now
        if state is None:
            rows.append(NodeRow(url, node.error, node.answered_us))
            continue
        try:
            reading, earlier, later = _read(url, node.before, state)
            shown = _row(node, state, reading)
            stopped = _openings_in(state)
        except (SluicegateError, *_UNREADABLE) as error:
            why = f"its state cannot be understood ({type(error).__name__}: {error})"
            rows.append(NodeRow(url, why, node.answered_us))
            continue
        openings.update((one.id, one) for one in stopped)
        readings.append(reading)
        rows.append(shown)
        before += earlier
        after += later
    dispatchers = picture(before, after)
    of_dispatchers = read_dispatchers(dispatchers)
    queues = [] if of_dispatchers is None else [of_dispatchers]
    return FleetPicture(
        at_us,
        nodes=tuple(rows),
        classes=_classes(readings),
        reasons=_reasons(readings),
        slow=tuple(SlowShard(**one) for one in dispatchers["slow"]),
        gates=tuple(one.gate for one in readings if one.gate is not None),
        degraded=sum(one.degraded for one in readings),
        uncounted=sum(one.uncounted for one in readings),
        slow_us=max((one.slow_us for one in readings), default=0),
        evicted=sum(one.evicted for one in readings),
        openings=tuple(openings.values()),
        dead_letters=_sums(one.dead_letters for one in readings),
        letters=tuple(
            LetterReading(one.url, one.dead_letters) for one in readings if one.dead_letters
        ),
        accounts=tuple(one.accounts for one in readings if one.accounts is not None),
        factors=accounts_of(
            [one.cluster_before for one in readings if one.cluster_before is not None],
            [one.cluster for one in readings if one.cluster is not None],
        )["accounts"],
        images=tuple(one.images for one in readings if one.images is not None),
        breakers=tuple(breaker for one in readings for breaker in one.breakers),
        queues=(*queues, *(queue for one in readings for queue in one.queues)),
        dispatchers=dispatchers,
    )


@dataclass(slots=True)
class _NodeReading:
    """What one node adds to the picture."""

    url: str
    flows: dict[str, ClassFlow] = field(default_factory=dict)
    reasons: dict[str, float] = field(default_factory=dict)
    gate: GateReading | None = None
    degraded: float = 0.0
    uncounted: float = 0.0
    slow_us: int = 0
    evicted: float = 0.0
    dead_letters: dict[str, int] = field(default_factory=dict)
    accounts: AccountReading | None = None
    cluster: NodeSample | None = None
    cluster_before: NodeSample | None = None
    images: ImageReading | None = None
    breakers: list[BreakerReading] = field(default_factory=list)
    queues: list[QueueReading] = field(default_factory=list)

    @property
    def admitted(self) -> float:
        """What the node admits a second, of whatever kind it serves."""
        admitted = sum(flow.admitted for flow in self.flows.values())
        if self.accounts is not None:
            admitted += self.accounts.admitted
        if self.images is not None:
            admitted += self.images.admitted
        return admitted

    @property
    def refused(self) -> float:
        """What it refuses a second."""
        refused = sum(flow.refused for flow in self.flows.values())
        if self.accounts is not None:
            refused += self.accounts.suppressed + self.accounts.fused
        if self.images is not None:
            refused += self.images.refused
        return refused


def _read(
    url: str, before: State | None, state: State
) -> tuple[_NodeReading, list[BoardSample], list[BoardSample]]:
    if state["app"] == DISPATCHER:
        return _read_dispatcher(url, before, state)
    if state["app"] == LIMITER:
        return _read_limiter(url, before, state), [], []
    if state["app"] == PUBSUB:
        return _read_pubsub(url, before, state), [], []
    if state["app"] == IMAGES:
        return _NodeReading(url, images=read_images(url, before, state)), [], []
    if state["app"] == CLIENT:
        return _read_client(url, before, state), [], []
    return _NodeReading(url), [], []


def _read_client(url: str, before: State | None, state: State) -> _NodeReading:
    names = BreakerReading._fields[1:]
    breakers = [
        BreakerReading(url, *(str(one[name]) for name in names))
        for one in state["breakers"]["not_closed"]
    ]
    services = read_services(url, before, state)
    reading = _NodeReading(url, breakers=breakers, queues=[one.queue for one in services])
    for service in services:
        for name, admitted in service.admitted.items():
            more, flow = _flow(name, admitted, service.refused[name]), reading.flows.get(name)
            reading.flows[name] = more if flow is None else _sum_flow(name, (flow, more))
        for reason, rate in service.queue.refused:
            reading.reasons[reason] = reading.reasons.get(reason, 0.0) + rate
    return reading


def _read_pubsub(url: str, before: State | None, state: State) -> _NodeReading:
    node, master = state["accounts"]["node"], state["accounts"]["master"]
    old = {} if before is None else before["accounts"]["node"]
    rates = {
        name: per_s(before, state, int(old.get(name, 0)), int(node[name]))
        for name in ("admitted", "suppressed", "fused")
    }
    accounts = AccountReading(
        url,
        **rates,
        accounts=int(node["accounts"]),
        suppressed_accounts=int(node["suppressed_accounts"]),
        mastered=int(master["accounts"]),
        nodes=int(master["nodes"]),
        untracked=int(node["untracked"]) + int(master["untracked"]),
    )
    if "cluster" not in state:
        return _NodeReading(url, accounts=accounts)
    found = sorted(state["cluster"]["accounts"], key=lambda one: one["factor"] <= 0)
    cluster = {**state["cluster"], "accounts": found[:ACCOUNTS_READ_MAX]}
    later = NodeSample(url, cluster)
    earlier = NodeSample(url, None if before is None else before.get("cluster"))
    accounts_of([earlier], [later])  # alone, so that one that cannot be read spoils no other
    return _NodeReading(url, accounts=accounts, cluster=later, cluster_before=earlier)


def _read_dispatcher(
    url: str, before: State | None, state: State
) -> tuple[_NodeReading, list[BoardSample], list[BoardSample]]:
    board = board_in(state, url)
    earlier = [] if before is None else [BoardSample(url, board_in(before, url))]
    later = [BoardSample(url, board)]
    own = picture(earlier, later)  # alone, so that a board that cannot be read spoils no other
    reading = _NodeReading(url, reasons=dict(own["refusals"]))
    prices = {one["class"]: one["price"] for one in own["classes"]}
    for name, flow in own["flows"].items():
        reading.flows[name] = _flow(name, flow["done"], flow["refused"], prices.get(name))
    return reading, earlier, later


def _read_limiter(url: str, before: State | None, state: State) -> _NodeReading:
    reading = _NodeReading(url)
    for name in CLASSES:
        new = state["decisions"].get(name, {})
        old = {} if before is None else before["decisions"].get(name, {})
        rates = {
            outcome: per_s(before, state, old.get(outcome, 0), count)
            for outcome, count in new.items()
        }
        admitted = sum(rates.get(outcome, 0.0) for outcome in _ADMITTED)
        refused = {reason: rates.get(outcome, 0.0) for outcome, reason in _REFUSED.items()}
        reading.flows[name] = _flow(name, admitted, refused)
        for reason, rate in refused.items():
            reading.reasons[reason] = reading.reasons.get(reason, 0.0) + rate
        reading.uncounted += rates.get("degraded_allowed", 0.0)
        reading.degraded += rates.get("degraded_allowed", 0.0) + rates.get("degraded_refused", 0.0)
    watch = state.get("store_watch") or {}
    watched = {} if before is None else before.get("store_watch") or {}
    if watch.get("health") == "slow":
        reading.slow_us = int(watch["trip_us"])
    reading.evicted = per_s(before, state, watched.get("evicted", 0), watch.get("evicted", 0))
    gate = state.get("gate")
    if gate is not None:
        shed = tuple(float(share) for share in gate["shares"])
        reading.gate = GateReading(url, float(gate["utilization"]), str(gate["worst"]), shed)
    letters = state.get("dead_letters") or {}
    reading.dead_letters = {
        name: count for name, count in letters.items() if isinstance(count, int)
    }
    return reading


def _openings_in(state: State) -> list[Opening]:
    """Return what a limiter or a dispatcher does not enforce just now."""
    openings = (state.get("glass") or {}).get("openings", ())
    found = [Opening(*(one.get(name, "") for name in Opening._fields)) for one in openings]
    return [one for one in found if not one.rate]  # with a rate, limits are enforced


def _flow(
    name: str, admitted: float, refused: Mapping[str, float], price: float | None = None
) -> ClassFlow:
    shed = sum(rate for reason, rate in refused.items() if reason not in _LIMITS)
    return ClassFlow(name, admitted, sum(refused.values()), shed, price)


def _row(node: Node, state: State, reading: _NodeReading) -> NodeRow:
    board = state.get("board") or {}
    return NodeRow(
        node.address.url,
        "",
        node.answered_us,
        app=str(state["app"]),
        name=str(board.get("node", "")),
        version=str(state.get("version", "")),
        **_rules_of(state),
        up_us=int(state.get("up_us", 0)),
        memory_bytes=int((state.get("process") or {}).get("memory_bytes", 0)),
        not_ready=str(state.get("not_ready", "")),
        admitted=reading.admitted,
        refused=reading.refused,
    )


def _rules_of(state: State) -> dict[str, Any]:
    """Which rules a service runs, and how far it is behind; by a rulebook, or by files."""
    rules = state.get("rulebook") or {}
    last, fleet = rules.get("last_load") or {}, rules.get("fleet")
    refused = last.get("result") == "refused"
    trouble = f"the newest are refused: {last.get('reason')}" if refused else ""
    if not fleet:
        return {"release": str(rules.get("version", "")), "rules_trouble": trouble}
    canary = fleet["canary"]
    behind = int(fleet["orders_seen"]) - int(fleet["orders"])
    return {
        "release": f"release {fleet['version']}" + (f", canary {canary}" if canary else ""),
        "rules_age_us": max(0, int(state.get("at_us", 0)) - parse_instant(fleet["checked"])),
        "rules_trouble": trouble or (f"{counted(behind, 'change')} behind" if behind > 0 else ""),
    }


def _classes(readings: Sequence[_NodeReading]) -> tuple[ClassFlow, ...]:
    return tuple(
        _sum_flow(name, [one.flows[name] for one in readings if name in one.flows])
        for name in CLASSES
    )


def _sum_flow(name: str, of: Sequence[ClassFlow]) -> ClassFlow:
    return ClassFlow(
        name,
        sum(flow.admitted for flow in of),
        sum(flow.refused for flow in of),
        sum(flow.shed for flow in of),
        max((flow.price for flow in of if flow.price is not None), default=None),
    )


def _reasons(readings: Sequence[_NodeReading]) -> tuple[tuple[str, float], ...]:
    sums: dict[str, float] = {}
    for reading in readings:
        for reason, rate in reading.reasons.items():
            sums[reason] = sums.get(reason, 0.0) + rate
    found = [(reason, rate) for reason, rate in sums.items() if rate > 0]
    return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def _sums(several: Any) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in several:
        for name, count in one.items():
            sums[name] = sums.get(name, 0) + count
    return sums
