"""Board: what a dispatcher shows of itself under `board` in `GET /v1/state`.

Counts since the start, and current levels; no rates. A viewer takes two boards and divides by the
time between them (`command_line/board_rates.py`), so any number of viewers may look without
disturbing each other. Values are plain JSON with a version; a viewer refuses a newer version and
treats missing values as unknown. Bounds: `CALLERS_MAX` callers by what they spent and the rest as
one, `KEYS_MAX` keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.apps.kv.shield.settings import HotPlace, ShieldStats
from sluicegate.apps.kv.store_watch import StoreState
from sluicegate.command_line.boards import VERSION
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.key_values import Upload
from sluicegate.policies.admission.pressure import Pressure, SlowResource, origin_of
from sluicegate.policies.stack import StackStats
from sluicegate.telemetry.snapshot import Histogram

CALLERS_MAX: Final = 100
KEYS_MAX: Final = 100
UPLOADS_MAX: Final = 20
OTHERS: Final = "(others)"  # no caller can be called so


class CallerUse(NamedTuple):
    """What one caller did since the beginning, units in thousandths; and its quota a second."""

    mru: int
    admitted: int
    refused: int
    quota_ru: int = 0  # over all dispatchers; 0 is none, or not known
    refused_mru: int = 0  # what the refused would have been charged


class ClassUse(NamedTuple):
    """The requests of one class, and the price of a unit in thousandths; 0: no price."""

    member: Criticality
    admitted: int
    refused: int
    price_milli: int


class EngineUse(NamedTuple):
    """What one class of operations did in the engine since the beginning."""

    worked: int
    failed: int
    service_us: int  # of all together, without any queue of ours


def board(
    *,
    at_us: int,
    node: str = "",
    stack: StackStats | None = None,
    refusals: Mapping[str, int] | None = None,
    refused: Mapping[tuple[str, Criticality], int] | None = None,
    usage: Mapping[str, CallerUse] | None = None,
    pressure: Pressure | None = None,
    slow: Sequence[SlowResource] = (),
    classes: Sequence[ClassUse] = (),
    engine: Mapping[str, EngineUse] | None = None,
    took: Mapping[tuple[str, Criticality], Histogram] | None = None,
    shield: ShieldStats | None = None,
    hot: Sequence[HotPlace] = (),
    remembered: int = 0,
    uploads: Sequence[Upload] = (),
    store: StoreState | None = None,
    engine_state: StoreState | None = None,
) -> Mapping[str, object]:
    """One dispatcher at one instant; what it has not (another policy, say) is left out.

    `refusals` counts by the name of the reason, `refused` by that and the class, `engine` by class
    of operation, `took` how long requests took, by operation and class; `hot` and `remembered` are
    the shield's `board(k)` and `remembered`.
    """
    values: dict[str, object] = {"version": VERSION, "at_us": at_us, "node": node}
    if stack is not None:
        values["stack"] = _stack(stack)
    values["refusals"] = dict(refusals or {})
    values["refused"] = _refused(refused or {})
    values["callers"] = _callers(usage or {})
    if pressure is not None:
        values["stress"] = _stress(pressure)
        values["queue"] = _queue(pressure)
    values["slow"] = [_slow(one) for one in slow]
    values["classes"] = [_class(one) for one in classes]
    values["engine"] = {name: use._asdict() for name, use in (engine or {}).items()}
    values["latency"] = _latency(took or {})
    if shield is not None:
        values["shield"] = _shield(shield, remembered)
    values["hot"] = [place._asdict() for place in hot[:KEYS_MAX]]
    if store is not None:
        values["store"] = store._asdict()
    if engine_state is not None:
        values["engine_state"] = engine_state._asdict()
    values["uploads"] = [_upload(upload) for upload in uploads[:UPLOADS_MAX]]
    return values


def _stack(stack: StackStats) -> dict[str, object]:
    return {
        "entered": stack.entered,
        "admitted": stack.admitted,
        "refused": stack.refused,
        "under_way": stack.under_way,
        "ended": stack.ended,
        "stages": {stage.name: stage.refused for stage in stack.stages},
    }


def _refused(refused: Mapping[tuple[str, Criticality], int]) -> dict[str, dict[str, int]]:
    """By criticality, then by the name of the reason."""
    classes: dict[str, dict[str, int]] = {}
    for (reason, criticality), count in refused.items():
        classes.setdefault(criticality.name, {})[reason] = count
    return classes


def _callers(usage: Mapping[str, CallerUse]) -> list[dict[str, object]]:
    """The callers that spent most, and the others as one."""
    by_use = sorted(usage.items(), key=lambda one: (-one[1].mru, one[0]))
    callers: list[tuple[str, CallerUse]] = by_use[:CALLERS_MAX]
    rest = [use for _, use in by_use[CALLERS_MAX:]]
    if rest:
        others = CallerUse(*(sum(column) for column in zip(*rest, strict=True)))
        callers.append((OTHERS, others._replace(quota_ru=0)))
    return [{"caller": caller, **use._asdict()} for caller, use in callers]


def _stress(pressure: Pressure) -> dict[str, object]:
    return {
        "level": pressure.level.name.lower(),
        "why": list(pressure.why),
        "ratio": pressure.ratio,
        "slowest": pressure.slowest,
        "queue_us": pressure.queue_us,
        "lag_us": pressure.lag_us,
    }


def _slow(slow: SlowResource) -> dict[str, object]:
    return {
        "shard": slow.resource,
        "operation": slow.operation,
        "ratio": slow.ratio,
        "waiting": slow.waiting,
        "limit": slow.limit,
        "origin": slow.origin,
    }


def _class(use: ClassUse) -> dict[str, object]:
    """The counts of a class, and its price if there are prices."""
    shown = {"class": use.member.name, "admitted": use.admitted, "refused": use.refused}
    return {**shown, "price_milli": use.price_milli} if use.price_milli else shown


def _queue(pressure: Pressure) -> dict[str, object]:
    return {
        "slots": pressure.limit,
        "origin": origin_of(pressure.limit, pressure.found),
        "inflight": pressure.inflight,
        "queued": pressure.queued,
        "queued_bytes": pressure.queued_bytes,
        "waited": pressure.waited,
        "overloaded": bool(pressure.level),
    }


def _latency(took: Mapping[tuple[str, Criticality], Histogram]) -> dict[str, object]:
    """By criticality how many requests took so long, of all operations together."""
    if not took:
        return {}
    classes: dict[str, list[int]] = {}
    for (_, criticality), histogram in took.items():
        counts = classes.setdefault(criticality.name, [0] * len(histogram.counts))
        for at, count in enumerate(histogram.counts):
            counts[at] += count
    return {"bounds_us": next(iter(took.values())).bounds, "classes": classes}


def _shield(shield: ShieldStats, remembered: int) -> dict[str, object]:
    hot, flights = shield.hot, shield.flights
    return {
        "looked": hot.cold + hot.missed + hot.served + hot.stale + hot.untracked,
        "served": hot.served,
        "joined": flights.joined,
        "flown": flights.flown,
        "flights": flights.flights,
        "waiting": flights.waiting,
        "cached": hot.cached,
        "cached_bytes": hot.cached_bytes,
        "stale_served": shield.stale_served,
        "remembered": remembered,
    }


def _upload(upload: Upload) -> dict[str, object]:
    return {
        "table": upload.table,
        "name": upload.name,
        "mode": upload.mode,
        "state": upload.state,
        "rows": upload.rows,
        "bytes": upload.bytes,
        "by": upload.by,
    }
