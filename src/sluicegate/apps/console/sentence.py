"""Sentence: what is going on, for whoever looks first. Pure: a picture in, words out.

What makes people get up stands before what the services deal with by themselves, and one sentence
is enough: the pages have the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from sluicegate.apps.console.picture import FleetPicture
from sluicegate.apps.console.queue_readings import QueueReading
from sluicegate.command_line.text import counted, per_second
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.kernels.breaker import FORCED_CLOSED, STATES

# Below this share of a class a refusal is no news.
REFUSED_SHARE_MIN: Final = 0.001
HOT_SHARE_MIN: Final = 0.2
ONE_CALLER_SHARE_MIN: Final = 0.5
_CRITICAL: Final = Criticality.CRITICAL.name


class Urgency(Enum):
    """What the colour at the top says."""

    CALM = "calm"
    DEFENDING = "defending"  # the services deal with it
    ALARM = "alarm"  # somebody should look


class Sentence(NamedTuple):
    """What is going on, and the page that has more of it."""

    urgency: Urgency
    words: str
    page: str


def sentence_of(picture: FleetPicture) -> Sentence:
    """Return the most important thing there is to say, after what is not enforced."""
    said = _most_important(picture)
    openings = picture.openings
    if not openings:
        return said
    besides = "" if said.urgency is Urgency.CALM else f" {said.words}"
    one, more = openings[0], f", and {len(openings) - 1:,} more" if openings[1:] else ""
    stopped = f"{one.about()}, by {one.by} ({one.why}){more}; it ends by itself"
    if picture.uncounted > 0:  # worse, since no operator decided it
        return said._replace(words=f"{said.words} An operator stopped {stopped}.")
    words = f"Limits are not enforced everywhere: {stopped}.{besides}"
    return Sentence(Urgency.ALARM, words, "emergency")


def _most_important(picture: FleetPicture) -> Sentence:
    for rule in _RULES:
        found = rule(picture)
        if found is not None:
            return found
    images = sum(one.from_memory + one.requests for one in picture.images)
    if not picture.admitted and images:
        words = f"All is calm: images are asked for at {per_second(images)}."
        return Sentence(Urgency.CALM, words, "images")
    messages = sum(one.admitted for one in picture.accounts)
    if not picture.admitted and messages:
        words = f"All is calm: messages of accounts are admitted at {per_second(messages)}."
        return Sentence(Urgency.CALM, words, "accounts")
    if not picture.admitted:
        return Sentence(Urgency.CALM, "All is calm: nobody asks.", "nodes")
    rate = per_second(picture.admitted)
    if picture.refused:
        some = per_second(picture.refused)
        words = f"All is calm: {rate} admitted, {some} refused as their limits say."
    else:
        words = f"All is calm: {rate} admitted, none refused."
    return Sentence(Urgency.CALM, words, "callers")


def _silent(picture: FleetPicture) -> Sentence | None:
    silent = picture.silent
    if not silent:
        return None
    if len(picture.nodes) == 1:
        words = f"{silent[0].url} does not answer: {silent[0].error}."
    elif len(silent) == len(picture.nodes):
        words = f"None of {len(silent):,} services answers: {silent[0].error}."
    else:
        names = ", ".join(node.url for node in silent[:3])
        more = f" and {len(silent) - 3:,} more" if len(silent) > 3 else ""
        verb = "does" if len(silent) == 1 else "do"
        of = f"{len(silent):,} of {len(picture.nodes):,} services"
        words = f"{of} {verb} not answer: {names}{more}."
    return Sentence(Urgency.ALARM, words, "nodes")


def _engine(picture: FleetPicture) -> Sentence | None:
    engine = picture.dispatchers.get("engine_state") or {}
    if engine.get("gone_for"):
        who = counted(engine["gone_for"], "dispatcher")
        words = f"The engine of {who} fails: {engine.get('why') or 'no reason is given'}."
        return Sentence(Urgency.ALARM, words, "queues")
    if engine.get("still"):
        who = counted(engine["still"], "dispatcher")
        words = f"The engine stands still: of the work of {who} none has ended."
        return Sentence(Urgency.ALARM, words, "queues")
    return None


def _uncounted(picture: FleetPicture) -> Sentence | None:
    """Return what is admitted without being counted: nothing is worse for a limiter."""
    if not picture.uncounted > 0:
        return None
    share = picture.uncounted / max(picture.admitted + picture.refused, picture.uncounted)
    words = (
        f"Limits are not enforced: {share:.1%} uncounted, {per_second(picture.uncounted)}; "
        f"the store of counts {_store_state(picture)}."
    )
    return Sentence(Urgency.ALARM, words, "nodes")


def _store_state(picture: FleetPicture) -> str:
    if not picture.slow_us:
        return "is down"
    return f"is slow (it answers in {picture.slow_us / 1_000:,.0f} ms)"


def _store(picture: FleetPicture) -> Sentence | None:
    if picture.degraded > 0:
        words = (
            f"The store of counts {_store_state(picture)}: {per_second(picture.degraded)} are "
            "decided by the failure policies of their rules."
        )
        return Sentence(Urgency.ALARM, words, "nodes")
    if picture.evicted > 0:
        words = (
            f"The store of counts drops counters, {per_second(picture.evicted)}: their limits "
            "admit more; it needs more memory and maxmemory-policy noeviction."
        )
        return Sentence(Urgency.ALARM, words, "nodes")
    store = picture.dispatchers.get("store") or {}
    if store.get("gone_for"):
        who = counted(store["gone_for"], "dispatcher")
        words = f"The store of quotas does not answer {who}: each caller keeps its last share."
        return Sentence(Urgency.ALARM, words, "nodes")
    return None


def _rules(picture: FleetPicture) -> Sentence | None:
    late = [node for node in picture.nodes if node.rules_trouble]
    if not late:
        return None
    who = late[0].url if len(late) == 1 else counted(len(late), "service")
    runs = "runs" if len(late) == 1 else "run"
    words = f"{who} {runs} older rules: {late[0].rules_trouble}."
    return Sentence(Urgency.ALARM, words, "nodes")


def _not_ready(picture: FleetPicture) -> Sentence | None:
    waiting = [node for node in picture.nodes if node.not_ready]
    if not waiting:
        return None
    more = f" and {counted(len(waiting) - 1, 'more service')}" if waiting[1:] else ""
    are = "are" if more else "is"
    words = f"{waiting[0].url}{more} {are} not ready: {waiting[0].not_ready}."
    return Sentence(Urgency.DEFENDING, words, "nodes")


def _images(picture: FleetPicture) -> Sentence | None:
    # A worker that is being replaced is away for a moment: who has work that waits is worse off.
    dead = [one for one in picture.images if not one.alive and one.queued]
    if not dead:
        return None
    words = f"{dead[0].node} makes no images: none of its {dead[0].workers} workers lives."
    return Sentence(Urgency.ALARM, words, "images")


def _critical_refused(picture: FleetPicture) -> Sentence | None:
    flow = next((one for one in picture.classes if one.name == _CRITICAL), None)
    if flow is None or flow.shed_share < REFUSED_SHARE_MIN:
        return None
    words = f"{_CRITICAL} work is refused: {per_second(flow.shed)}, {flow.shed_share:.1%} of it."
    return Sentence(Urgency.ALARM, words, "queues")


def _slow(picture: FleetPicture) -> Sentence | None:
    if not picture.slow:
        return None
    slow = picture.slow[0]
    shard = slow.shard if slow.shard.startswith("shard") else f"shard {slow.shard}"
    where = f" on {shard}" if slow.shard else ""
    words = (
        f"The backend is slow{where}: {slow.operation} takes {_times(slow.ratio)} its usual time"
    )
    if slow.waiting:
        words += f", and {counted(slow.waiting, 'request')} wait"
    return Sentence(Urgency.DEFENDING, f"{words}; {_untouched(picture)}.", "queues")


def _shedding(picture: FleetPicture) -> Sentence | None:
    hit = [flow for flow in picture.classes if flow.shed_share >= REFUSED_SHARE_MIN]
    if not hit:
        return None
    rate = per_second(sum(flow.shed for flow in hit))
    gate = max(picture.gates, key=lambda one: max(one.shed, default=0.0), default=None)
    if gate is not None and max(gate.shed, default=0.0) > 0:
        why = f"The limiter is at {gate.utilization:.0%} of its {gate.worst}"
    elif (queue := picture.dispatchers.get("queue", {})).get("overloaded"):
        why = f"There is more work than the engine can do{_waits(queue.get('delay_us'))}"
    elif any(_overflow(one) for one in picture.queues):
        most = max(picture.queues, key=_overflow)
        why = f"There is more work than {most.name} can do{_waits(most.delay_us)}"
    else:
        why = "The service is under stress"
    names = _list([flow.name for flow in hit])
    words = f"{why}: of {names} {rate} are refused; {_untouched(picture)}."
    return Sentence(Urgency.DEFENDING, words, "queues")


def _origins(picture: FleetPicture) -> Sentence | None:
    hosts = [host for one in picture.images for host, _ in one.unwell]
    if not hosts:
        return None
    more = f" and {counted(len(hosts) - 1, 'other')}" if hosts[1:] else ""
    words = f"The origin {hosts[0]}{more} fails: its images are served as they were before."
    return Sentence(Urgency.DEFENDING, words, "images")


def _breakers(picture: FleetPicture) -> Sentence | None:
    failing = [one for one in picture.breakers if one.state != STATES[FORCED_CLOSED]]
    held = sorted({one.backend or one.client for one in failing})
    if not held:
        return None
    more = f" and {counted(len(held) - 1, 'other')}" if held[1:] else ""
    words = f"The backend {held[0]}{more} fails: its clients do not call it for now."
    return Sentence(Urgency.DEFENDING, words, "queues")


def _hot(picture: FleetPicture) -> Sentence | None:
    hottest = next(iter(picture.dispatchers.get("hot", ())), None)
    if hottest is None or hottest["share"] < HOT_SHARE_MIN or not hottest["rate"]:
        return None
    words = (
        f"One key has {hottest['share']:.0%} of all point reads, {per_second(hottest['rate'])}, "
        f"of which {per_second(hottest['forwarded'])} reach the engine."
    )
    return Sentence(Urgency.DEFENDING, words, "hot-keys")


def _one_caller(picture: FleetPicture) -> Sentence | None:
    callers = picture.dispatchers.get("callers", ())
    refused = sum(one["refused"] for one in callers)
    most = max(callers, key=lambda one: float(one["refused"]), default=None)
    if most is None or not refused or most["refused"] < ONE_CALLER_SHARE_MIN * refused:
        return None
    words = (
        f"{most['caller']} asks for more than its quota: {per_second(most['refused'])} of its "
        f"requests are refused, {per_second(most['admitted'])} admitted."
    )
    return Sentence(Urgency.DEFENDING, words, "callers")


def _account(picture: FleetPicture) -> Sentence | None:
    over = [one for one in picture.factors if one["factor"] > 0]
    if not over:
        return None
    most = max(over, key=lambda one: float(one["attempted"] - one["admitted"]))
    more = f" (and {counted(len(over) - 1, 'account')} more)" if over[1:] else ""
    words = (
        f"Account {most['account']}{more} sends more than its limit of "
        f"{per_second(most['limit'])}: {most['factor']:.1%} of its messages are refused."
    )
    return Sentence(Urgency.DEFENDING, words, "accounts")


_RULES: Final[tuple[Callable[[FleetPicture], Sentence | None], ...]] = (
    _uncounted,
    _silent,
    _engine,
    _store,
    _images,
    _critical_refused,
    _rules,
    _not_ready,
    _slow,
    _shedding,
    _origins,
    _breakers,
    _hot,
    _one_caller,
    _account,
)


def _untouched(picture: FleetPicture) -> str:
    flow = next((one for one in picture.classes if one.name == _CRITICAL), None)
    if flow is None or not flow.admitted + flow.refused:
        return f"no {_CRITICAL} work came"
    if flow.shed_share < REFUSED_SHARE_MIN:
        return f"{_CRITICAL} is untouched"
    return f"of {_CRITICAL} {flow.shed_share:.1%} are refused"


def _overflow(queue: QueueReading) -> float:
    """Return how many a second a protected service rejects for want of slots."""
    if not queue.of_service:
        return 0.0
    return sum(rate for reason, rate in queue.refused if reason != DEADLINE.name)


def _waits(delay_us: float | None) -> str:
    return "" if delay_us is None else f" (work waits {delay_us / 1_000:,.1f} ms)"


def _times(ratio: float) -> str:
    """What a latency ratio says: it is the usual time over that of now."""
    return f"{1 / ratio:.2g} x" if ratio > 0.01 else "100 x or more"


def _list(names: list[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
