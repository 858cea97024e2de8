"""Rigs as a report shows them. No figure is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from sluicegate.lab.rig import Rig
from sluicegate.lab.scenario import DRILL, KERNELS, TASKS, WALL
from sluicegate.lab.text import format_number

MODES: Final = {
    KERNELS: "simulated, kernels only",
    TASKS: "simulated, production policies",
    DRILL: "drill, real processes",
    WALL: "by the clock on the wall",
}
PART_CHARS_MAX: Final = 60


def describe_rigs(rigs: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """What all cases have in common, and what is each case's own."""
    parts = {case: rig_parts(rig) for case, rig in rigs.items()}
    every = list(parts.values())
    common = [part for part in every[0] if all(part in other for other in every)]
    own = {
        case: ", ".join(part for part in found if part not in common)
        for case, found in parts.items()
    }
    return ", ".join(common), own


def rig_parts(rig: Any) -> list[str]:
    """A rig, part by part: its fields by name, as far as they are plain numbers and words."""
    if isinstance(rig, Rig):
        return _station(rig)
    if not is_dataclass(rig):
        return []
    parts = []
    for field in fields(rig):
        value = getattr(rig, field.name)
        if isinstance(value, bool):
            parts.append(f"{_spoken(field.name)}: {'yes' if value else 'no'}")
        elif isinstance(value, int | float):
            parts.append(_quantity(field.name, value))
        elif isinstance(value, str) and 0 < len(value) <= PART_CHARS_MAX:
            parts.append(f"{_spoken(field.name)} {value}")
    return parts


def _station(rig: Rig) -> list[str]:
    service = type(rig.service).__name__.lower()
    parts = [f"{rig.workers} workers of {_time(rig.service.mean_us)} ({service})"]
    for kind in rig.kinds:
        rates = getattr(kind.arrivals, "per_s", None)
        name = "" if len(rig.kinds) == 1 else f"{kind.name}: "
        if isinstance(rates, int | float):
            parts.append(f"{name}{format_number(rates)} a second come")
        else:
            parts.append(f"{name}{type(kind.arrivals).__name__.lower()} arrivals")
        parts.append(f"{name}callers wait {_time(kind.timeout_us)}")
        if kind.cost != 1:
            parts.append(f"{name}cost {kind.cost}")
    if rig.speed_profile.changes:
        parts += [
            f"speed {speed:g} from {_time(at_us)} on" for at_us, speed in rig.speed_profile.changes
        ]
    if rig.retries is not None:
        budget = "no budget" if rig.retries.budget_milli is None else "a retry budget"
        parts.append(f"{rig.retries.attempts} attempts with {budget}")
    if rig.refusal_cost:
        parts.append(f"a refusal costs {100 * rig.refusal_cost:g}%")
    parts.append(f"{_time(rig.span_us)} long, of which {_time(rig.warm_us)} to warm up")
    return parts


def _quantity(name: str, value: float) -> str:
    for suffix, words in (
        ("_us", _time),
        ("_per_s", lambda rate: f"{format_number(rate)} a second"),
    ):
        if name.endswith(suffix):
            return f"{_spoken(name.removesuffix(suffix))} {words(value)}"
    return f"{_spoken(name)} {format_number(value)}"


def _time(us: float) -> str:
    if us >= 1_000_000:
        return f"{format_number(us / 1_000_000)} s"
    return f"{format_number(us / 1_000)} ms" if us >= 1_000 else f"{format_number(us)} us"


def _spoken(name: str) -> str:
    return name.replace("_", " ")
