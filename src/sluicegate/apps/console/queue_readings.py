"""Queue readings: what waits before work, in whichever service. Pure.

Those of all dispatchers are one, and each protected service has one. Image services have theirs on
their own page, next to their workers.

Bound: of a process the first `QUEUES_READ_MAX` queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sluicegate.command_line.board_rates import per_s
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.reasons import DEADLINE, OVERLOADED, QUEUE_FULL, QUEUE_TIMEOUT

State = Mapping[str, Any]
QUEUES_READ_MAX: Final = 64
_OF_DISPATCHERS: Final = (OVERLOADED.name, QUEUE_FULL.name, QUEUE_TIMEOUT.name, DEADLINE.name)


class QueueReading(NamedTuple):
    """One queue; rates are a second."""

    name: str
    slots: int  # 0: there is no limit
    inflight: int
    queued: int
    queued_bytes: int
    delay_us: float | None  # of those who left it lately
    refused: tuple[tuple[str, float], ...]  # by reason, the most frequent first
    of_service: bool = False  # else it is of dispatchers
    origin: str = ""  # of the slots: "set", "found" or "none yet"
    overload: str = ""  # of its service, and what that leaves out; empty while it is calm


class ServiceReading(NamedTuple):
    """A protected service: its queue, and what it does with each class."""

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
        queue["slots"],
        queue["inflight"],
        queue["queued"],
        queue["queued_bytes"],
        queue["delay_us"],
        _by_rate((reason, rates.get(reason, 0.0)) for reason in _OF_DISPATCHERS),
        origin=queue["origin"],
    )


def read_services(url: str, before: State | None, state: State) -> list[ServiceReading]:
    """Return the services that this process protects."""
    old = {} if before is None else {one["protection"]: one for one in _services(before)}
    return [
        _read(url, before, state, old.get(one["protection"], {}), one) for one in _services(state)
    ]


def _services(state: State) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = state.get("protections", ())
    return found[:QUEUES_READ_MAX]


def _overload(service: Mapping[str, Any]) -> str:
    parts = ", ".join(str(one["part"]) for one in service["degrade"] if one["left_out"])
    level = str(service["level"]).lower()
    left_out = f"leaves out {parts}" if parts else ""
    return "; ".join(filter(None, ("" if level == "calm" else level, left_out)))


def _read(
    url: str,
    before: State | None,
    state: State,
    old: Mapping[str, Any],
    service: Mapping[str, Any],
) -> ServiceReading:
    def rate(was: Mapping[str, Any], now: Mapping[str, Any], count: str) -> float:
        return per_s(before, state, int(was.get(count, 0)), int(now[count]))

    classes = [member.name for member in Criticality if member.name in service["admitted"]]
    was_refused = old.get("refused", {})
    refused = {
        one: {
            str(reason): rate(was_refused.get(one, {}), service["refused"][one], reason)
            for reason in service["refused"][one]
        }
        for one in classes
    }
    sums: dict[str, float] = {}
    for reasons in refused.values():
        for reason, per_second in reasons.items():
            sums[reason] = sums.get(reason, 0.0) + per_second
    admitted = {one: rate(old.get("admitted", {}), service["admitted"], one) for one in classes}
    left = sum(admitted.values()) + sum(sums.values())
    queue = QueueReading(
        f"{service['protection']}, at {url}",
        int(service["slots"]),
        int(service["inflight"]),
        int(service["queued"]),
        int(service["queued_bytes"]),
        rate(old, service, "waited_us") / left if left else None,
        _by_rate(sums.items()),
        of_service=True,
        origin=str(service.get("origin", "")),
        overload=_overload(service),
    )
    return ServiceReading(queue, admitted, refused)


def _by_rate(rates: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((one for one in rates if one[1] > 0), key=lambda one: (-one[1], one[0])))
