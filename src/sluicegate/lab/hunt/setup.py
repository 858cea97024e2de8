"""Setup: what is played, as one value that a file can hold and a person can read and change.

All stages are set up in the same few words: loads, faults, and knobs (whole numbers by name, those
of the stage where nothing is said). So whatever was found is shrunk by the same few steps. Times
are milliseconds here, because people read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar, final

from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.json_objects import parse_object

T = TypeVar("T")

VERSION: Final = 1
SPAN_MS_MAX: Final = 3_600_000
FILE_BYTES_MAX: Final = 1 << 20
NO_KNOBS: Final[Mapping[str, int]] = {}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of work: who comes, how often, with what class, and how patient."""

    name: str
    criticality: str = "DEGRADED"  # the most that its callers may claim
    claims: str = ""  # what they claim; the same if nothing is said
    per_s: int = 100
    on_ms: int = 0  # with both: bursts, else steady; Poisson either way
    off_ms: int = 0
    timeout_ms: int = 500  # 0: no deadline
    callers: int = 1
    keys: int = 1
    rows: int = 1  # that it really looks at
    rows_said: int = 0  # what its callers say; the truth if nothing is said
    cancelled_permille: int = 0  # who give up at any moment
    writes_permille: int = 0
    idempotent: bool = True

    def __post_init__(self) -> None:
        parse_criticality(self.criticality, field=f"{self.name}.criticality")
        if self.claims:
            parse_criticality(self.claims, field=f"{self.name}.claims")
        for name in ("per_s", "on_ms", "off_ms", "timeout_ms"):
            if not 0 <= getattr(self, name) <= 10_000_000:
                raise BadValue(f"{self.name}.{name}", getattr(self, name), "give 0 to 10,000,000")
        for name in ("callers", "keys", "rows"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise BadValue(f"{self.name}.{name}", getattr(self, name), "give 1 to 1,000,000")

    @property
    def allowed(self) -> Criticality:
        """The highest class of its callers."""
        return Criticality[self.criticality.upper()]

    @property
    def claimed(self) -> Criticality:
        """What its callers say that they are."""
        return Criticality[(self.claims or self.criticality).upper()]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong from when to when, where (all, if nothing is said), and how much.

    A stage knows its own words: `slow` (to so many thousandths of its speed), `pause`, `fail`,
    `refuse`, `limit`, `unreached`, `lose` (so many of a thousand), `cut`, `gone`, `takeover`,
    `jump` (of the clock, in milliseconds).
    """

    what: str
    from_ms: int = 0
    until_ms: int = 0
    where: str = ""
    much: int = 1_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One play."""

    stage: str
    seed: int
    span_ms: int
    loads: tuple[Load, ...]
    faults: tuple[Fault, ...] = ()
    knobs: Mapping[str, int] = field(default_factory=lambda: NO_KNOBS)

    def __post_init__(self) -> None:
        if not 1 <= self.span_ms <= SPAN_MS_MAX:
            raise BadValue("span_ms", self.span_ms, f"give 1 to {SPAN_MS_MAX:,}")
        if self.seed < 0:
            raise BadValue("seed", self.seed, "give a whole number from 0")
        names = [load.name for load in self.loads]
        if not names or len(set(names)) < len(names):
            raise BadValue("loads", names, "give at least one, and each a name of its own")

    def knob(self, name: str, otherwise: int) -> int:
        """A number of the stage's, or what it is if nothing is said."""
        return self.knobs.get(name, otherwise)

    @property
    def span_us(self) -> int:
        """How long work comes."""
        return self.span_ms * 1_000


def written(setup: Setup, breaks: str = "") -> str:
    """As a file: what is as usual is left out."""
    said: dict[str, Any] = {"sluicegate_hunt": VERSION}
    if breaks:
        said["breaks"] = breaks
    said |= {"stage": setup.stage, "seed": setup.seed, "span_ms": setup.span_ms}
    said["loads"] = [_said(load) for load in setup.loads]
    if setup.faults:
        said["faults"] = [_said(fault) for fault in setup.faults]
    if setup.knobs:
        said["knobs"] = dict(setup.knobs)
    return json.dumps(said, indent=2) + "\n"


def read(text: str) -> Setup:
    """The setup of a file."""
    said = parse_object(text, "setup")
    if said.get("sluicegate_hunt") != VERSION:
        raise BadValue("sluicegate_hunt", text[:40], f"it must say version {VERSION}")
    try:
        return Setup(
            stage=str(said["stage"]),
            seed=int(said["seed"]),
            span_ms=int(said["span_ms"]),
            loads=tuple(_made(Load, one) for one in said["loads"]),
            faults=tuple(_made(Fault, one) for one in said.get("faults", ())),
            knobs={str(name): int(value) for name, value in said.get("knobs", {}).items()},
        )
    except (KeyError, TypeError) as error:
        raise BadValue("setup", str(error), "compare it with a file that the hunt wrote") from None


def read_file(path: Path) -> Setup:
    """The setup in a file."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise BadValue("file", str(path), f"it is larger than {FILE_BYTES_MAX:,} bytes")
    return read(path.read_text(encoding="utf-8"))


def _said(value: Load | Fault) -> dict[str, Any]:
    usual = {one.name: one.default for one in fields(value)}
    return {name: told for name, told in asdict(value).items() if told != usual[name]}


def _made(kind: type[T], said: Any) -> T:
    if not isinstance(said, dict):
        raise BadValue("setup", said, "give an object for each load and each fault")
    return kind(**said)
