"""Setup: what is played, as one value that a file can hold and a person can read and change.

All stages are set up in the same few words: loads, faults, and knobs (whole numbers by name, those
of the stage where none is given). So whatever was found is shrunk by the same few steps. Times
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
from sluicegate.policies.settings import within
from sluicegate.wire.json_objects import parse_object

T = TypeVar("T")

VERSION: Final = 1
SPAN_MS_MAX: Final = 3_600_000
FILE_BYTES_MAX: Final = 1 << 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HuntLoad:
    """One kind of work: its callers, rate, class and patience."""

    name: str
    criticality: str = "DEGRADED"  # the most that its callers may claim
    claims: str = ""  # what they claim; the same if empty
    per_s: int = 100
    on_ms: int = 0  # with both: bursts, else steady; Poisson either way
    off_ms: int = 0
    timeout_ms: int = 500  # 0: no deadline
    callers: int = 1
    keys: int = 1
    rows: int = 1  # that it really looks at
    rows_said: int = 0  # what its callers declare; the truth if 0
    cancelled_permille: int = 0  # of the callers give up at any moment
    writes_permille: int = 0
    idempotent: bool = True

    def __post_init__(self) -> None:
        parse_criticality(self.criticality, field=f"{self.name}.criticality")
        if self.claims:
            parse_criticality(self.claims, field=f"{self.name}.claims")
        for name in ("per_s", "on_ms", "off_ms", "timeout_ms"):
            within(f"{self.name}.{name}", getattr(self, name), 0, 10_000_000)
        for name in ("callers", "keys", "rows"):
            within(f"{self.name}.{name}", getattr(self, name), 1, 1_000_000)

    @property
    def allowed(self) -> Criticality:
        """The highest class of its callers."""
        return Criticality[self.criticality.upper()]

    @property
    def claimed(self) -> Criticality:
        """The class its callers claim."""
        return Criticality[(self.claims or self.criticality).upper()]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HuntFault:
    """What goes wrong from when to when, where (everywhere, if empty), and how much.

    A stage knows its own kinds: `slow` (to so many thousandths of its speed), `pause`, `fail`,
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
    loads: tuple[HuntLoad, ...]
    faults: tuple[HuntFault, ...] = ()
    knobs: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        within("span_ms", self.span_ms, 1, SPAN_MS_MAX)
        if self.seed < 0:
            raise BadValue("seed", self.seed, "give a whole number from 0")
        names = [load.name for load in self.loads]
        if not names or len(set(names)) < len(names):
            raise BadValue("loads", names, "give at least one, and each a name of its own")

    def knob(self, name: str, default: int) -> int:
        """Return a number of the stage's, or its default."""
        return self.knobs.get(name, default)

    @property
    def span_us(self) -> int:
        """How long work comes."""
        return self.span_ms * 1_000


def render(setup: Setup, breaks: str = "") -> str:
    """Return the text of a file; defaults are left out."""
    document: dict[str, Any] = {"sluicegate_hunt": VERSION}
    if breaks:
        document["breaks"] = breaks
    document |= {"stage": setup.stage, "seed": setup.seed, "span_ms": setup.span_ms}
    document["loads"] = [_changed_fields(load) for load in setup.loads]
    if setup.faults:
        document["faults"] = [_changed_fields(fault) for fault in setup.faults]
    if setup.knobs:
        document["knobs"] = dict(setup.knobs)
    return json.dumps(document, indent=2) + "\n"


def parse(text: str) -> Setup:
    """Return the setup of a file's text."""
    document = parse_object(text, "setup")
    if document.get("sluicegate_hunt") != VERSION:
        raise BadValue("sluicegate_hunt", text[:40], f"give version {VERSION}")
    try:
        return Setup(
            stage=str(document["stage"]),
            seed=int(document["seed"]),
            span_ms=int(document["span_ms"]),
            loads=tuple(_build(HuntLoad, one) for one in document["loads"]),
            faults=tuple(_build(HuntFault, one) for one in document.get("faults", ())),
            knobs={str(name): int(value) for name, value in document.get("knobs", {}).items()},
        )
    except (KeyError, TypeError) as error:
        raise BadValue("setup", str(error), "compare it with a file that the hunt wrote") from None


def read_file(path: Path) -> Setup:
    """Return the setup in a file."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise BadValue("file", str(path), f"it is larger than {FILE_BYTES_MAX:,} bytes")
    return parse(path.read_text(encoding="utf-8"))


def _changed_fields(value: HuntLoad | HuntFault) -> dict[str, Any]:
    usual = {one.name: one.default for one in fields(value)}
    return {name: field for name, field in asdict(value).items() if field != usual[name]}


def _build(kind: type[T], document: Any) -> T:
    if not isinstance(document, dict):
        raise BadValue("setup", document, "give an object for each load and each fault")
    return kind(**document)
