"""Shrink: a smaller setup that breaks the same, found greedily, each step played again.

Less of everything first (kinds, faults, knobs, time), then plainer values, then rounder numbers. A
step is kept if the same invariant is still broken; it ends when no step is, or after `tries_max`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple, TypeAlias

from sluicegate.lab.hunt.setup import HuntFault, HuntLoad, Setup

Breaks: TypeAlias = Callable[[Setup], bool]

TRIES_MAX: Final = 300
SPAN_MS_MIN: Final = 10
SEEDS_TRIED: Final = 3
# What a load is without, in the order in which it is tried.
PLAIN: Final = (
    "claims",
    "timeout_ms",
    "on_ms",
    "off_ms",
    "cancelled_permille",
    "writes_permille",
    "rows",
    "rows_said",
    "keys",
    "callers",
    "idempotent",
)
MUCH: Final = 1_000  # as usual
COUNTED: Final = ("per_s", "rows", "keys", "callers")


class Shrunk(NamedTuple):
    """The smallest that was found, and what it took."""

    setup: Setup
    tries: int
    steps: int


def shrink(setup: Setup, breaks: Breaks, *, tries_max: int = TRIES_MAX) -> Shrunk:
    """Return the smallest setup found for which `breaks` is still true."""
    tries = steps = 0
    before: Setup | None = None
    while before != setup:
        before = setup
        for smaller_by in STEPS:
            found: Setup | None = setup
            while found is not None:
                setup, found = found, None
                for smaller in smaller_by(setup):
                    if tries >= tries_max:
                        return Shrunk(setup, tries, steps)
                    tries += 1
                    if breaks(smaller):
                        found, steps = smaller, steps + 1
                        break
    return Shrunk(setup, tries, steps)


def _shorter(setup: Setup) -> Iterator[Setup]:
    for span_ms in (setup.span_ms // 4, setup.span_ms // 2, setup.span_ms * 3 // 4):
        if SPAN_MS_MIN <= span_ms < setup.span_ms:
            yield replace(setup, span_ms=span_ms)


def _fewer_loads(setup: Setup) -> Iterator[Setup]:
    for at in range(len(setup.loads)):
        if len(setup.loads) > 1:
            yield replace(setup, loads=setup.loads[:at] + setup.loads[at + 1 :])


def _fewer_faults(setup: Setup) -> Iterator[Setup]:
    for at in range(len(setup.faults)):
        yield replace(setup, faults=setup.faults[:at] + setup.faults[at + 1 :])


def _fewer_knobs(setup: Setup) -> Iterator[Setup]:
    for name in setup.knobs:
        fewer = {other: value for other, value in setup.knobs.items() if other != name}
        yield replace(setup, knobs=fewer)


def _plainer_loads(setup: Setup) -> Iterator[Setup]:
    for at, load in enumerate(setup.loads):
        for plainer in _plainer(load):
            yield _with_load(setup, at, plainer)


def _simpler_faults(setup: Setup) -> Iterator[Setup]:
    for at, fault in enumerate(setup.faults):
        for simpler in _simpler(fault, setup.span_ms):
            yield _with_fault(setup, at, simpler)


def _smaller_seed(setup: Setup) -> Iterator[Setup]:
    for seed in range(min(setup.seed, SEEDS_TRIED)):
        yield replace(setup, seed=seed)


def _plainer(load: HuntLoad) -> Iterator[HuntLoad]:
    usual = {one.name: one.default for one in fields(load)}
    for name in PLAIN:
        if getattr(load, name) != usual[name]:
            yield _changed(load, name, usual[name])
    for name in COUNTED:
        value = getattr(load, name)
        if value > 1:
            yield _changed(load, name, value // 2)


def _simpler(fault: HuntFault, span_ms: int) -> Iterator[HuntFault]:
    if fault.where:
        yield replace(fault, where="")
    if fault.much != MUCH:
        yield replace(fault, much=MUCH)
    if fault.from_ms:
        yield replace(fault, from_ms=0)
    if fault.until_ms > span_ms:
        yield replace(fault, until_ms=span_ms)
    lasts_ms = fault.until_ms - fault.from_ms
    if lasts_ms > 1:
        yield replace(fault, until_ms=fault.from_ms + lasts_ms // 2)


def _rounder(setup: Setup) -> Iterator[Setup]:
    span_ms = rounded(setup.span_ms)
    if span_ms != setup.span_ms and span_ms >= 1:
        yield replace(setup, span_ms=span_ms)
    for at, load in enumerate(setup.loads):
        for name in COUNTED:
            value = getattr(load, name)
            if rounded(value) != value:
                yield _with_load(setup, at, _changed(load, name, rounded(value)))
    for at, fault in enumerate(setup.faults):
        plain = replace(
            fault, from_ms=rounded(fault.from_ms), until_ms=rounded(fault.until_ms, up=True)
        )
        if plain != fault:
            yield _with_fault(setup, at, plain)
    for name, value in setup.knobs.items():
        if rounded(value) != value:
            yield replace(setup, knobs={**setup.knobs, name: rounded(value)})


def _changed(load: HuntLoad, name: str, value: Any) -> HuntLoad:
    changes: dict[str, Any] = {name: value}
    return replace(load, **changes)


def rounded(value: int, *, up: bool = False) -> int:
    """To one digit and zeros."""
    scale = int(10 ** (len(str(value)) - 1))
    return -(-value // scale) * scale if up else value // scale * scale


def _with_load(setup: Setup, at: int, load: HuntLoad) -> Setup:
    return replace(setup, loads=(*setup.loads[:at], load, *setup.loads[at + 1 :]))


def _with_fault(setup: Setup, at: int, fault: HuntFault) -> Setup:
    return replace(setup, faults=(*setup.faults[:at], fault, *setup.faults[at + 1 :]))


# The largest steps first.
STEPS: Final[tuple[Callable[[Setup], Iterator[Setup]], ...]] = (
    _shorter,
    _fewer_loads,
    _fewer_faults,
    _fewer_knobs,
    _plainer_loads,
    _simpler_faults,
    _rounder,
    _smaller_seed,
)
