"""What a faulty engine is told: a `faulty+` URL, or a control file, read into a frozen plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from sluicegate.contracts.engine import Engine
from sluicegate.contracts.errors import BadValue
from sluicegate.stores.urls import Query, as_ms, as_truth, check_numbers, pairs_in, parse_query
from sluicegate.wire.json_objects import parse_object

PREFIX: Final = "faulty+"
SHARD: Final = "shard"
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What goes slowly, and what wrong; may be exchanged while the engine is at work."""

    slots: int = 0  # operations at work at a time; 0 is without a bound
    work_us: int = 0  # that each of them takes
    rows_a_slot: int = 0  # a scan, walk or load works once for each so many rows; 0 is once
    row_us: int = 0  # that each row of a scan, walk or load takes besides
    slow_shard: int = -1  # which shard is slow; -1 is none
    slow_times: float = 1.0  # as slow as the others
    error_share: float = 0.0  # of operations that fail after their work
    stalled: bool = False  # nothing is answered until it is not

    def __post_init__(self) -> None:
        check_numbers(self, _BOUNDS, "faulty")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "slots": (0, 1_000_000),
    "work_us": (0, 600_000_000),
    "rows_a_slot": (0, 1 << 30),
    "row_us": (0, 600_000_000),
    "slow_shard": (-1, 1 << 16),
    "slow_times": (0, 1_000_000),
    "error_share": (0, 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultySettings:
    """How the engine is laid out; stays as it is."""

    slots_by: str = ALL  # whether the slots are for all shards together, or for each
    shards: int = 1
    line_max: int = 100_000  # operations that wait for a slot; more are refused
    stall_after_us: int = 0  # a stall that begins so long after the first operation,
    stall_us: int = 0  # and lasts so long; 0 is none
    control: str = ""  # the file that changes the plan

    def __post_init__(self) -> None:
        if self.slots_by not in {ALL, SHARD}:
            raise BadValue("faulty.slots_by", self.slots_by, "give all or shard")
        check_numbers(self, _LAYOUT_BOUNDS, "faulty")


_LAYOUT_BOUNDS: Final = {
    "shards": (1, 1 << 16),
    "line_max": (1, 10_000_000),
    "stall_after_us": (0, 1 << 50),
    "stall_us": (0, 1 << 50),
}


_MS: Final = "milliseconds"
_WHOLE: Final = "a whole number"
_PLAN_QUERY: Final[Query] = {
    "slots": ("slots", int, _WHOLE),
    "work_ms": ("work_us", as_ms, _MS),
    "rows_a_slot": ("rows_a_slot", int, _WHOLE),
    "row_us": ("row_us", int, "microseconds"),
    "slow_shard": ("slow_shard", int, _WHOLE),
    "slow_times": ("slow_times", float, "a number"),
    "error_share": ("error_share", float, "a number from 0 to 1"),
    "stalled": ("stalled", as_truth, "on or off"),
}
_LAYOUT_QUERY: Final[Query] = {
    "slots_by": ("slots_by", str, "all or shard"),
    "shards": ("shards", int, _WHOLE),
    "line_max": ("line_max", int, _WHOLE),
    "stall_after_ms": ("stall_after_us", as_ms, _MS),
    "stall_ms": ("stall_us", as_ms, _MS),
    "control": ("control", str, "the path of a file"),
}


def parse_url(url: str) -> tuple[str, FaultPlan, FaultySettings]:
    """Return the URL of the inner engine, the plan and the layout."""
    inner, _, query = url.removeprefix(PREFIX).partition("?")
    pairs = pairs_in(query, url, "engine", "faulty+URL?name=value&name=value")
    plan = parse_query([one for one in pairs if one[0] in _PLAN_QUERY], _PLAN_QUERY, "engine")
    layout = parse_query([one for one in pairs if one[0] in _LAYOUT_QUERY], _LAYOUT_QUERY, "engine")
    others = [one for one in pairs if one[0] not in _PLAN_QUERY and one[0] not in _LAYOUT_QUERY]
    if others:
        inner += "?" + urlencode(others)
    return inner, FaultPlan(**plan), FaultySettings(**layout)  # type: ignore[arg-type]


def open_inner(opener: Callable[[str], Engine], inner: str) -> Engine:
    """Open the inner engine; an error for an unknown option names those of both."""
    try:
        return opener(inner)
    except BadValue as error:
        if error.field != "engine":
            raise
        ours = ", ".join([*_PLAN_QUERY, *_LAYOUT_QUERY])
        raise BadValue(
            error.field, error.value, f"{error.remedy}; faulty+ itself knows {ours}"
        ) from None


def read_control(text: str, plan: FaultPlan) -> FaultPlan:
    """Return the plan changed by a control file: JSON, with the names of the URL."""
    try:
        fields = parse_object(text)
    except BadValue:
        raise BadValue("faulty.control", text, 'write JSON: {"work_ms": 20}') from None
    pairs = [(name, str(value)) for name, value in fields.items()]
    return replace(plan, **parse_query(pairs, _PLAN_QUERY, "faulty.control"))  # type: ignore[arg-type]
