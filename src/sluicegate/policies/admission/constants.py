"""Constants: the tuned numbers of the gate, and what each decides.

`sluicegate lab zoo --sensitivity` plays the zoo with each of them halved and doubled. Decision 37
has the experiments. Weights of averages and bounds of memory are not tuned.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_QUEUE: Final = "sluicegate.kernels.fair_queue"
_LIMIT: Final = "sluicegate.kernels.found_limit"
_TIMES: Final = "sluicegate.kernels.service_times"
_GATE: Final = "sluicegate.policies.admission.gate"
_FLEET: Final = "sluicegate.policies.admission.fleet"
_CHAIN: Final = "sluicegate.apps.kv.chain"


class TunedConstant(NamedTuple):
    """The name, place and purpose of a tuned number."""

    name: str
    module: str
    attribute: str
    why: str


TUNED: Final = (
    TunedConstant(
        "queue: share of the patience",
        _QUEUE,
        "PATIENCE_SHARE",
        "a queue that takes more of it serves by importance",
    ),
    TunedConstant(
        "queue: share of lower ranks",
        _QUEUE,
        "LOW_SHARE",
        "time owed to a rank that waits",
    ),
    TunedConstant(
        "queue: arrivals remembered",
        _QUEUE,
        "GAIN_MAX",
        "units served beyond arrivals after which the queue empties",
    ),
    TunedConstant("limit: target", _LIMIT, "TARGET_SHARE", "time at the resource, of the patience"),
    TunedConstant("limit: half", _LIMIT, "HALF", "work that takes more of the patience is blamed"),
    TunedConstant(
        "limit: room", _LIMIT, "ROOM", "least target, as a multiple of the time of the work"
    ),
    TunedConstant("limit: window", _LIMIT, "WINDOW", "units between two changes of the limit"),
    TunedConstant(
        "limit: growth",
        _LIMIT,
        "GROWTH",
        "largest step up, and smallest change that counts",
    ),
    TunedConstant("times: half a window", _TIMES, "HALF_US", "how soon new times count"),
    TunedConstant("times: samples", _TIMES, "SAMPLES_MIN", "before a time is known"),
    TunedConstant(
        "times: least", _TIMES, "LEAST_SHARE", "of the work that could still finish in time"
    ),
    TunedConstant("gate: turn", _GATE, "TURN_US", "work begun in one turn of a late loop"),
    TunedConstant("kv: late loop", _CHAIN, "LAGGING_US", "a loop so late is the bottleneck"),
    TunedConstant("fleet: beat", _FLEET, "BEAT_US", "between two reports of a dispatcher"),
)
