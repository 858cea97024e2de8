"""Contenders for a station: the product's own, made for a rig, and the baselines.

The production policies are run as they are, with their defaults; what is set here is what any user
sets: how many may be at work at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from sluicegate.lab import baselines, fast, full
from sluicegate.lab.baselines.fifo_pool import fifo_pool
from sluicegate.lab.fast import MakeLine
from sluicegate.lab.full import MakePolicy
from sluicegate.lab.ledger import Ledger
from sluicegate.lab.lines import KernelLine
from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import KERNELS, TASKS, Contender
from sluicegate.lab.world import World
from sluicegate.policies.queue.queue import Queue, QueueSettings

# The p99 of an exponential service is this many times its mean.
_P99_OF_MEAN: Final = 4.605
TIMEOUT_S: Final = 0.5

StationContender: TypeAlias = "Contender[Rig, Ledger]"


def in_line(make_line: MakeLine) -> StationContender:
    """A contender that is a line before the workers, in the kernel-only mode."""
    return Contender(lambda rig, seed: fast.play(rig, make_line, seed), KERNELS)


def in_world(make_policy: MakePolicy) -> StationContender:
    """A contender that is a policy, as it runs in production, on virtual time."""
    return Contender(lambda rig, seed: full.play(rig, make_policy, seed), TASKS)


def queue(rig: Rig, world: World) -> Queue:
    """The queue policy, as many places as there are workers."""
    return Queue(QueueSettings(places=rig.workers))


def queue_lifo(rig: Rig, world: World) -> Queue:
    """The same, the newest first once it has stood for an interval."""
    return Queue(QueueSettings(places=rig.workers, standing_us=100_000))


def queue_folly(rig: Rig, world: World) -> Queue:
    """The same with folly's own rule, which lets go when the delay is short again."""
    return Queue(QueueSettings(places=rig.workers, form="folly"))


def queue_facebook(rig: Rig, world: World) -> Queue:
    """Controlled delay with adaptive LIFO, as Maurer tells it."""
    return Queue(QueueSettings(places=rig.workers, form="facebook", standing_us=100_000))


def kernel_line(rig: Rig) -> KernelLine:
    """Adaptive LIFO, CoDel's timeout and the slack rule, scaled to the service time."""
    mean_us = rig.service.mean_us
    return KernelLine(
        length_max=max(round(rig.capacity_per_s * TIMEOUT_S), 1),
        slack_us=round(_P99_OF_MEAN * mean_us),
        normal_us=round(1.5 * mean_us),
        aggressive_us=round(mean_us / 2),
    )


OURS: Final[Mapping[str, StationContender]] = {
    "queue": in_world(queue),
    "queue-lifo": in_world(queue_lifo),
    "queue-folly": in_world(queue_folly),
    "queue-facebook": in_world(queue_facebook),
    "kernels": in_line(kernel_line),
}
BASELINES: Final[Mapping[str, StationContender]] = {
    **{name: in_line(make_line) for name, make_line in baselines.TABLE.items()},
    "fifo-pool": in_world(fifo_pool),
}
ALL: Final[Mapping[str, StationContender]] = {**OURS, **BASELINES}
