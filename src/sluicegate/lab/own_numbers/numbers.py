"""The numbers of a station: who works, for how long, what comes, who waits for how long.

Flags and the fields of a TOML file have the same names and the same values, so both are read here;
an error names whichever was written. Arrivals are a shape and how much of it:

    2x                    independent callers, twice what the workers can do
    poisson:400           the same, 400 a second; poisson:1.5x is a multiple
    on-off:50ms/50ms      bursts, and rests between them, around these means
    pareto:50ms/50ms      the same, of times with a heavy tail
    diurnal:20s           a rate that swings by half as a sine, in so long a day
    trace:FILE            the instants of a file, as `lab replay` reads it

Behind each `@` says how much on average: `on-off:50ms/50ms@1.5x`, `diurnal:20s@900`. Without it the
mean is twice the capacity, and a trace goes as fast as it was recorded. All classes share one
stream, in which each arrival is of a class by chance: bursts are everybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Any, Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import (
    parse_service,
    parse_share,
    parse_us,
    parse_whole,
    read_float,
)
from sluicegate.lab.arrivals import (
    RATE_PER_S_MAX,
    Arrivals,
    Diurnal,
    OnOff,
    ParetoOnOff,
    Poisson,
    Replay,
)
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.rig import WORKERS_MAX
from sluicegate.lab.traces import open_trace
from sluicegate.service.toml_file import read_toml

LOAD_DEFAULT: Final = 2.0
SECONDS_MAX: Final = 3_600
WARM_US: Final = 2_000_000  # before the seconds that are counted
ARRIVALS_MAX: Final = 2_000_000  # a run
_BURST_US: Final = 50_000  # and the rest after it
FILE_BYTES_MAX: Final = 1 << 16
SHAPES: Final = "2x, poisson:RATE, on-off:ON/OFF, pareto:ON/OFF, diurnal:DAY, trace:FILE"
NAMES: Final = (
    "workers",
    "work",
    "service",
    "arrivals",
    "mix",
    "deadline",
    "seconds",
    "with",
    "as",
)
FIGURES: Final = ("goodput", "p50", "p99", "refused-p99")
_US: Final = 1e6
_MEAN_PER_S_MAX: Final = RATE_PER_S_MAX / 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNumbers:
    """A station, its load, and who is to be compared in it."""

    workers: int = 32
    work_us: int = 10_000
    service: Duration = Exponential(10_000.0)  # noqa: RUF009 - frozen
    arrivals: Arrivals = Poisson(6_400.0)  # noqa: RUF009 - frozen
    mix: Mapping[Criticality, float] = field(default_factory=lambda: {DEFAULT_CRITICALITY: 1.0})
    deadlines_us: Mapping[Criticality, int] = field(default_factory=dict)
    deadline_us: int = 500_000  # of the classes without one of their own
    seconds: int = 8
    others: tuple[str, ...] = ("fifo",)
    ours: str = "dispatcher"
    goals: tuple[Goal, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)  # each field as it was written
    places: Mapping[str, str] = field(default_factory=dict)  # and where, if not in its flag

    @property
    def capacity_per_s(self) -> float:
        """What the workers can do."""
        return self.workers * _US / self.service.mean_us

    @property
    def counted_us(self) -> int:
        """The seconds whose arrivals are counted."""
        return self.seconds * 1_000_000

    def patience_us(self, of: Criticality) -> int:
        """How long callers of a class wait."""
        return self.deadlines_us.get(of, self.deadline_us)

    def place(self, name: str) -> str:
        """Where a field is written, or would be."""
        return self.places.get(name, f"--{name}")

    def instants_us(self, chance: Chance) -> list[int]:
        """When work comes, of all classes, warm-up included."""
        end_us = WARM_US + self.counted_us
        instants: list[int] = []
        for at_us in islice(self.arrivals.instants_us(chance), ARRIVALS_MAX + 1):
            if at_us >= end_us:
                return instants
            instants.append(at_us)
        if isinstance(self.arrivals, Replay) and instants[-1:] < [WARM_US]:
            remedy = "it ends within the warm-up of 2 s; give a longer one, or less of it a second"
            raise BadValue(self.place("arrivals"), self.words.get("arrivals"), remedy)
        if len(instants) > ARRIVALS_MAX:
            remedy = f"one run may have {ARRIVALS_MAX:,} requests; give fewer, or a lower rate"
            raise BadValue(self.place("seconds"), self.seconds, remedy)
        return instants


def read_file(path: str) -> dict[str, Any]:
    """The fields of a TOML file, as they were written."""
    found = read_toml("NAME", path, FILE_BYTES_MAX)
    for name in found:
        if name not in {*NAMES, "goals"}:
            raise BadValue(f"{path}: {name}", found[name], f"give one of {', '.join(NAMES)}, goals")
    return found


def read_numbers(flags: Mapping[str, str], path: str | None = None) -> OwnNumbers:
    """Read a file's fields and flags; what a flag says counts."""
    file = {} if path is None else read_file(path)
    goals = file.pop("goals", {})
    fields: dict[str, tuple[str, str]] = {}  # by name: where it was written, and what
    for name, value in file.items():
        if isinstance(value, bool) or not isinstance(value, str | int | list):
            remedy = f"give a text or a whole number, as the flag --{name} takes it"
            raise BadValue(f"{path}: {name}", value, remedy)
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        fields[name] = (f"{path}: {name}", text)
    fields |= {name: (f"--{name}", text) for name, text in flags.items()}
    numbers = _read(fields, "--" if path is None else f"{path}: ")
    return replace(numbers, goals=tuple(_goals(path or "", goals, numbers)))


def _read(fields: Mapping[str, tuple[str, str]], unwritten: str) -> OwnNumbers:
    """Read each field; what others depend on comes first."""

    def of(name: str, default: str) -> tuple[str, str]:
        return fields.get(name, (f"{unwritten}{name}", default))

    flag, text = of("workers", "32")
    workers = parse_whole(flag, text, 1, WORKERS_MAX)
    work_us = parse_us(*of("work", "10ms"))
    service = parse_service(*of("service", "exponential"), work_us)
    capacity = workers * _US / service.mean_us
    flag, text = of("seconds", "8")
    seconds = parse_whole(flag, text, 1, SECONDS_MAX)
    arrivals = parse_arrivals(*of("arrivals", "2x"), capacity)
    mix = parse_mix(*of("mix", f"{DEFAULT_CRITICALITY.name}=100%"))
    deadline_us, deadlines_us = parse_deadlines(*of("deadline", "500ms"))
    others = parse_names(of("with", "fifo")[1])
    return OwnNumbers(
        workers=workers,
        work_us=work_us,
        service=service,
        arrivals=arrivals,
        mix=mix,
        deadlines_us=deadlines_us,
        deadline_us=deadline_us,
        seconds=seconds,
        others=others,
        ours=of("as", "dispatcher")[1],
        words={name: text for name, (_, text) in fields.items()},
        places={name: of(name, "")[0] for name in NAMES},
    )


def parse_names(text: str) -> tuple[str, ...]:
    """`fifo,lifo`; `none` is nobody."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return () if names == ["none"] else tuple(dict.fromkeys(names))


def parse_mix(flag: str, text: str) -> dict[Criticality, float]:
    """`critical=20%,bulk=80%`: the share of each class, the highest first."""
    mix: dict[Criticality, float] = {}
    for one in text.split(","):
        name, mark, share = one.strip().partition("=")
        if not mark:
            raise BadValue(flag, text, "give a share to each class: critical=20%,bulk=80%")
        of = parse_criticality(name, field=flag)
        if of in mix:
            raise BadValue(flag, text, f"name {of.name} once")
        mix[of] = parse_share(flag, share)
    total = sum(mix.values())
    if abs(total - 1) > 1e-6:
        raise BadValue(flag, text, f"make the shares 100% together; they are {total:.4g} of it")
    return {of: mix[of] for of in sorted(mix)}


def parse_deadlines(flag: str, text: str) -> tuple[int, dict[Criticality, int]]:
    """`500ms`, or `500ms,bulk=5s`: how long callers wait, and those of some classes."""
    waits_us: dict[Criticality | None, int] = {}
    for one in text.split(","):
        name, mark, time = one.strip().rpartition("=")
        of = parse_criticality(name, field=flag) if mark else None
        if of in waits_us:
            raise BadValue(flag, text, f"say once how long {of.name if of else 'callers'} wait")
        waits_us[of] = parse_us(flag, time)
    common_us = waits_us.pop(None, 500_000)
    return common_us, {of: us for of, us in waits_us.items() if of is not None}


def parse_arrivals(flag: str, text: str, capacity_per_s: float) -> Arrivals:
    """What comes, as the head of this file has it."""
    shape, _, how = text.strip().partition(":")
    if text.strip().endswith((":", "@", "/")):
        raise BadValue(
            flag, text, f"say what comes behind its last mark, or leave it out: {SHAPES}"
        )
    if shape == "trace":
        return _trace(flag, text, how, capacity_per_s)
    how, mark, much = how.partition("@")
    if not how and not mark:
        shape, mark, much = shape.partition("@")
    if shape == "poisson" or shape[:1].isdigit() or shape[:1] == ".":
        rate = (how or much) if shape == "poisson" else shape
        if (how and much) or (shape != "poisson" and (how or much)):
            raise BadValue(flag, text, f"say once how much: {SHAPES}")
        return Poisson(_rate(flag, text, rate or f"{LOAD_DEFAULT}x", capacity_per_s))
    make = _SHAPES.get(shape)
    if make is None:
        raise BadValue(flag, text, f"give one of {SHAPES}; behind it, @1.5x or @400 on average")
    return make(flag, how, _rate(flag, text, much or f"{LOAD_DEFAULT}x", capacity_per_s))


def _rate(flag: str, text: str, much: str, capacity_per_s: float) -> float:
    """`400`, `400/s`, or `1.5x` of what can be done."""
    times = much.endswith("x")
    try:
        value = read_float(much.removesuffix("/s").removesuffix("x"))
    except ValueError:
        value = 0.0
    rate = value * capacity_per_s if times else value
    if not 0 < rate < inf:
        raise BadValue(flag, text, "say how much: 400 a second, or 1.5x of what can be done")
    if rate > _MEAN_PER_S_MAX:
        remedy = f"that is {rate:,.0f} a second, and at most {_MEAN_PER_S_MAX:,.0f} can be played"
        raise BadValue(flag, text, f"{remedy}; give less of it, fewer workers, or longer work")
    return rate


def _on_off(flag: str, how: str, mean_per_s: float) -> OnOff:
    on_us, off_us = _pair(flag, how)
    return OnOff(on_per_s=_peak(flag, how, mean_per_s, on_us, off_us), on_us=on_us, off_us=off_us)


def _pareto(flag: str, how: str, mean_per_s: float) -> ParetoOnOff:
    on_us, off_us = _pair(flag, how)
    peak = _peak(flag, how, mean_per_s, on_us, off_us)
    return ParetoOnOff(on_per_s=peak, on_us=on_us, off_us=off_us)


def _diurnal(flag: str, how: str, mean_per_s: float) -> Diurnal:
    return Diurnal(mean_per_s=mean_per_s, day_us=parse_us(flag, how or "20s"))


def _pair(flag: str, how: str) -> tuple[int, int]:
    on, mark, off = how.partition("/")
    if not how:
        return _BURST_US, _BURST_US
    if not mark:
        raise BadValue(flag, how, "give how long it is on and how long off: on-off:50ms/50ms")
    return parse_us(flag, on), parse_us(flag, off)


def _peak(flag: str, how: str, mean_per_s: float, on_us: int, off_us: int) -> float:
    peak = mean_per_s * (on_us + off_us) / on_us
    if peak > RATE_PER_S_MAX:
        raise BadValue(flag, how, f"its bursts come at {peak:,.0f} a second; make them longer")
    return peak


_SHAPES: Final[Mapping[str, Callable[[str, str, float], Arrivals]]] = {
    "on-off": _on_off,
    "pareto": _pareto,
    "diurnal": _diurnal,
}


def _trace(flag: str, text: str, how: str, capacity_per_s: float) -> Replay:
    """The instants of a file; with `@` at another mean rate."""
    path, mark, much = how.rpartition("@")
    if not mark:
        path, much = how, ""
    try:
        trace = open_trace(path)
        us = tuple([row.at_us for row in islice(trace.rows(), ARRIVALS_MAX)])
    except BadValue as error:
        if error.field != "trace":
            raise  # it names the file and the line
        told = "give a trace whose format and columns show in what it holds"
        raise BadValue(flag, text, told if "--" in error.remedy else error.remedy) from None
    if not us:
        raise BadValue(flag, text, "give a trace that has rows")
    speed = 1.0
    if much:
        speed = _rate(flag, text, much, capacity_per_s) * max(us[-1], 1) / _US / len(us)
    return Replay(us, speed)


def _goals(path: str, goals: Any, numbers: OwnNumbers) -> Iterator[Goal]:
    """`[goals]`: shares that are to be reached, and times that are not to be passed."""
    if not isinstance(goals, dict):
        raise BadValue(f"{path}: goals", goals, "make it a table: [goals], then goodput = 0.95")
    classes = [of.name for of in numbers.mix]
    for name, bound in goals.items():
        where, upper = f"{path}: goals.{name}", name.upper().replace("-", "_")
        if name in {"p50", "p99", "refused-p99"}:
            yield Goal(figure=f"{upper.lower()}_ms", at_most=parse_us(where, str(bound)) / 1_000)
        elif name == "goodput" or upper in classes:
            share = parse_share(where, str(bound))
            yield Goal(figure=name if name == "goodput" else upper, at_least=share)
        else:
            known = ", ".join([*FIGURES, *map(str.lower, classes)])
            raise BadValue(where, bound, f"give one of {known}")
