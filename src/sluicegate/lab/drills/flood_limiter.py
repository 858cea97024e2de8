"""Flood of a limiter: connections of the lowest class that never pause, by RESP and by gRPC.

What `flood` asks of the dispatcher, of the doors of the rate-limit service: it answers inside the
loop too, so what stands in line stands in sockets. The crowd asks for what has room, then for what
is far over its limit, and is refused as fast as it asks. The caller that matters has half as much
again as it needs, and all that it asks is admitted: the limiter sheds, since its loop is full, and
goes by what rules and claims say that a check matters. The control has it ask as one of the crowd,
without its class.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.beside import play_each
from sluicegate.lab.drills.closed_loop import ClosedLoop
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
from sluicegate.lab.drills.drill import LAYERS, NONE, Drill, DrillOutcome, DrillSetting
from sluicegate.lab.drills.flood import CONNECTIONS, READS_PER_S, SIZES, WARM_US
from sluicegate.lab.drills.grpc_calls import GrpcCall, rate_limit_call
from sluicegate.lab.drills.load import LoadStream
from sluicegate.lab.drills.slots import QUOTA_TIMES, TIMEOUT_US
from sluicegate.wire.resp import command

CROWD: Final = DrillCaller("crowd", "BULK")
CRITICAL: Final = DrillCaller("critical", "CRITICAL")
UNBOUNDED: Final = "unbounded"
BOUNDED: Final = "bounded"
LIMITS: Final = {  # checks a second, of whom one asks about
    UNBOUNDED: 1_000_000_000,
    BOUNDED: 100,
    CRITICAL.name: int(QUOTA_TIMES * READS_PER_S),
}
DEPTH: Final = 16  # with one at a time, who presses is busier than a service that only counts
PATH: Final = "/drill"
DOMAIN: Final = "drill"
KEY: Final = "caller"

SERVED_MIN: Final = 0.999

_CLAIMS: Final = f"version: 1\ncallers: {{names: {{{CRITICAL.name}: CRITICAL}}}}\nrules:\n"
_PATHS: Final = _CLAIMS + "".join(
    f"  - {{rule_id: {name}, resource_path: {PATH}/{name}, limit: {limit}, window_seconds: 1}}\n"
    for name, limit in LIMITS.items()
)
_MESH: Final = f"domain: {DOMAIN}\ndescriptors:\n" + "".join(
    f"  - key: {KEY}\n    value: {name}\n"
    f"    priority: {CRITICAL.criticality if name == CRITICAL.name else CROWD.criticality}\n"
    f"    rate_limit: {{unit: second, requests_per_unit: {limit}}}\n"
    for name, limit in LIMITS.items()
)


def drill_resp(setting: DrillSetting) -> DrillOutcome:
    """By SG.CHECK."""
    return _drill(setting, grpc=False)


def drill_grpc(setting: DrillSetting) -> DrillOutcome:
    """By Envoy's ShouldRateLimit."""
    return _drill(setting, grpc=True)


def _drill(setting: DrillSetting, *, grpc: bool) -> DrillOutcome:
    """Alone, then beside each crowd."""
    asks = CRITICAL if setting.policy == LAYERS else CROWD
    with DrillFleet((CROWD, CRITICAL)) as fleet:
        port = fleet.limiter((_PATHS, _MESH)).port
        stream = LoadStream(
            name=CRITICAL.name,
            ports=(port,),
            commands=_commands(asks, CRITICAL.name, grpc=grpc),
            greeting=() if grpc else asks.greeting,
            arrivals=Poisson(READS_PER_S),
            timeout_us=TIMEOUT_US,
            connections=CONNECTIONS,
            depth=1,
        )
        loops = {
            f"{size:,} connections{'' if about == UNBOUNDED else ' over their limit'}": (
                ClosedLoop(
                    port=port,
                    commands=_commands(CROWD, about, grpc=grpc),
                    greeting=() if grpc else CROWD.greeting,
                    connections=size,
                    depth=DEPTH,
                ),
                more_ms,
            )
            for about in (UNBOUNDED, BOUNDED)
            for size, more_ms in SIZES.items()
        }
        return play_each(setting, stream, WARM_US, "CRITICAL", loops, SERVED_MIN)


def _commands(
    asks: DrillCaller, about: str, *, grpc: bool
) -> tuple[bytes, ...] | tuple[GrpcCall, ...]:
    """The check that a caller makes, about itself or another."""
    if grpc:
        return (rate_limit_call(asks.token, DOMAIN, KEY, about),)
    return (command("SG.CHECK", about, f"{PATH}/{about}", "PRIORITY", asks.criticality),)


RESP: Final = Drill(
    name="flood-resp",
    title="Checks of the lowest class that never pause, by RESP, on a rate-limit service",
    why="What came in one turn of the loop is served by class, not by socket.",
    seconds=5.0,
    seconds_min=2.0,
    play=drill_resp,
    policies=(LAYERS, NONE),
)
GRPC: Final = Drill(
    name="flood-grpc",
    title="Checks of the lowest class that never pause, by gRPC, on a rate-limit service",
    why="What came in one turn of the loop is served by class, not by socket.",
    seconds=5.0,
    seconds_min=2.0,
    play=drill_grpc,
    policies=(LAYERS, NONE),
)
