"""Queue readings: what waits before work, in whichever service. Pure.

Those of all dispatchers are one; a protected service has two, one for each weight of work. Image
services have theirs on their own page, beside their workers.

Bound: of a service the first `LANES_READ_MAX` lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sluicegate.command_line.board_rates import per_s
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.reasons import DEADLINE, OVERLOADED, QUEUE_FULL, QUEUE_TIMEOUT

State = Mapping[str, Any]
LANES_READ_MAX: Final = 64
_OF_DISPATCHERS: Final = (OVERLOADED.name, QUEUE_FULL.name, QUEUE_TIMEOUT.name, DEADLINE.name)


class QueueReading(NamedTuple):
    """One queue; rates are a second."""

    name: str
    places: int
    inflight: int
    queued: int
    queued_bytes: int
    delay_us: float | None  # of those who left it lately
    refused: tuple[tuple[str, float], ...]  # by reason, the most frequent first
    refuses: bool | None  # its watermark does, now; None: it has none
    stress: str = ""  # of its service, why, and what that leaves out; empty while there is none


class LaneReading(NamedTuple):
    """A lane of a protected service: its queue, and what it does with each class."""

    queue: QueueReading
    admitted: Mapping[str, float]
    refused: Mapping[str, Mapping[str, float]]  # by class, then by reason


def read_dispatchers(picture: Mapping[str, Any]) -> QueueReading | None:
    """Return the queue of all dispatchers, of `board_rates.picture`; None where there is none."""
    if not picture["dispatchers"]:
        return None
    queue, rates = picture["queue"], picture["refusals"]
    return QueueReading(
        "all dispatchers",
        queue["places"],
        queue["inflight"],
        queue["queued"],
        queue["queued_bytes"],
        queue["delay_us"],
        _by_rate((reason, rates.get(reason, 0.0)) for reason in _OF_DISPATCHERS),
        None,
    )


def read_lanes(url: str, before: State | None, state: State) -> list[LaneReading]:
    """Return the lanes of the services that this process protects."""
    old = {} if before is None else dict(_lanes(before))
    lanes = list(_lanes(state))[:LANES_READ_MAX]
    return [
        _read(f"{name}, {weight}, at {url}", before, state, old.get((name, weight), {}), lane)
        for (name, weight), lane in lanes
    ]


def _lanes(state: State) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    for one in state.get("protections", ()):
        shared = {"stress": one.get("stress", {}), "degrade": one.get("degrade", ())}
        for lane in one["lanes"]:
            yield (str(one["protection"]), str(lane["name"])), {**lane, **shared}


def _stress(lane: Mapping[str, Any]) -> str:
    words = ", ".join(str(why) for why in lane["stress"].get("why", ()))
    parts = ", ".join(str(one["part"]) for one in lane["degrade"] if one["left_out"])
    said = f"{str(lane['stress']['level']).lower()}: {words}" if words else ""
    left_out = f"leaves out {parts}" if parts else ""
    return "; ".join(filter(None, (said, left_out)))


def _read(
    name: str,
    before: State | None,
    state: State,
    old: Mapping[str, Any],
    lane: Mapping[str, Any],
) -> LaneReading:
    def rate(was: Mapping[str, Any], now: Mapping[str, Any], count: str) -> float:
        return per_s(before, state, int(was.get(count, 0)), int(now[count]))

    classes = [member.name for member in Criticality if member.name in lane["admitted"]]
    was_refused = old.get("refused", {})
    refused = {
        one: {
            str(reason): rate(was_refused.get(one, {}), lane["refused"][one], reason)
            for reason in lane["refused"][one]
        }
        for one in classes
    }
    sums: dict[str, float] = {}
    for reasons in refused.values():
        for reason, per_second in reasons.items():
            sums[reason] = sums.get(reason, 0.0) + per_second
    left = rate(old, lane, "left_queue")
    queue = QueueReading(
        name,
        int(lane["places"]),
        int(lane["inflight"]),
        int(lane["queued"]),
        0,
        rate(old, lane, "waited_us") / left if left else None,
        _by_rate(sums.items()),
        bool(lane["refuses"]),
        _stress(lane),
    )
    admitted = {one: rate(old.get("admitted", {}), lane["admitted"], one) for one in classes}
    return LaneReading(queue, admitted, refused)


def _by_rate(rates: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((one for one in rates if one[1] > 0), key=lambda one: (-one[1], one[0])))
