"""Play: a shape with its candidates, alone or many shapes in several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from sluicegate.command_line.process_pool import process_pool
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.random_source import derive_seed
from sluicegate.lab.zoo.engine import play_engine
from sluicegate.lab.zoo.engines import engines
from sluicegate.lab.zoo.oracle import play_oracle
from sluicegate.lab.zoo.outcome import Record, ShapeOutcome
from sluicegate.lab.zoo.service import play_service
from sluicegate.lab.zoo.services import services
from sluicegate.lab.zoo.shape import SERVICE, ZooRequest, ZooShape, draw_load
from sluicegate.lab.zoo.simple import SIMPLE, play_simple

KNOWN: Final = "known"
FOUND: Final = "found"
ORACLE: Final = "oracle"
PRODUCT: Final = (KNOWN, FOUND)  # the product, with its limit given or found
CANDIDATES: Final = (*PRODUCT, *SIMPLE, ORACLE)


class ConstantChange(NamedTuple):
    """A constant, and the value it has in a run."""

    module: str
    attribute: str
    value: Any


class Play(NamedTuple):
    """One unit of work for a process: a shape with some candidates."""

    seed: int
    shape: ZooShape
    candidates: tuple[str, ...]
    change: ConstantChange | None = None


Outcomes = dict[str, ShapeOutcome]


def all_shapes(seed: int) -> list[ZooShape]:
    """Return all shapes of a seed."""
    return services(seed) + engines(seed)


def choose(shapes: Sequence[ZooShape], names: str) -> list[ZooShape]:
    """Return the shapes that contain one of the names, separated by semicolons; all for ""."""
    wanted = [name.strip() for name in names.split(";") if name.strip()]
    found = [one for one in shapes if not wanted or any(name in key_of(one) for name in wanted)]
    if not found:
        raise BadValue("--shapes", names, "give parts of names that --list shows")
    return found


def key_of(shape: ZooShape) -> str:
    """Return the name of a shape with its family."""
    return f"{shape.family}: {shape.name}"


def play(one: Play) -> Outcomes:
    """Play a shape with each of the candidates that differ for it."""
    if one.change is not None:
        return _changed(one, one.change)
    shape = one.shape
    seed = derive_seed(one.seed, key_of(shape)) >> 1
    load = draw_load(shape, seed)
    found: Outcomes = {}
    for name in one.candidates:
        if name == KNOWN and not shape.known:
            continue
        try:
            found[name] = _record(shape, load, seed, name).outcome()
        except Exception as error:
            error.add_note(f"in the shape {key_of(shape)!r} of seed {one.seed}, played by {name}")
            raise
    return found


def _record(shape: ZooShape, load: Sequence[ZooRequest], seed: int, name: str) -> Record:
    if name == ORACLE:
        return play_oracle(shape, load)
    if name not in PRODUCT:
        return play_simple(shape, load, SIMPLE[name], seed)
    play_product = play_service if shape.family == SERVICE else play_engine
    return play_product(shape, load, seed, known=name == KNOWN)


def play_all(plays: Iterable[Play], jobs: int) -> Iterator[Outcomes]:
    """Play all of them, in order."""
    if jobs == 1:
        yield from map(play, plays)
        return
    with process_pool(jobs) as pool:
        yield from pool.map(play, plays)


def _changed(one: Play, change: ConstantChange) -> Outcomes:
    """Play with a constant of another value."""
    module = import_module(change.module)
    before = getattr(module, change.attribute)
    setattr(module, change.attribute, change.value)
    try:
        return play(one._replace(change=None))
    finally:
        setattr(module, change.attribute, before)
