"""The verb `sluicegate lab replay`: a trace, whom to play it against, the figures side by side."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sluicegate.contracts.errors import BadValue

if TYPE_CHECKING:
    from sluicegate.lab.traces import Columns, Trace

EXAMPLES: Final = """\
examples:
  sluicegate lab replay requests.csv  columns time,key,size,cost, as far as there
  sluicegate lab replay log.csv.gz --time ts --unit ms --key path --cost none
  sluicegate lab replay azure_llm.csv --capacity 9000 --workers 8 --speed 2
  sluicegate lab replay cluster.csv --format twitter --rows 100000 --as queue
  sluicegate lab replay keys.trace.xz --capacity 2000     keys alone: hit ratio and recall
  sluicegate lab replay bursts                            a made one: zipf, bursts, diurnal,
                                                        hot-shift, scans
"""
NONE: Final = "none"
WORKERS_MAX: Final = 100_000
ROWS_DEFAULT: Final = 200_000
ROWS_MAX: Final = 100_000_000
ENTRIES: Final = 1_000
PER_S: Final = 10_000.0


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("trace", metavar="TRACE", help="a file, or the name of a made shape")
    parser.add_argument("--format", metavar="NAME", help="csv, azure, twitter or keys (else told)")
    for what, purpose in (("time", "of time"), ("key", "of keys"), ("size", "of sizes")):
        parser.add_argument(
            f"--{what}", metavar="COLUMN", help=f"csv: the column {purpose}, its number, or none"
        )
    parser.add_argument("--cost", metavar="A,B", help="csv: the columns whose sum is the cost")
    parser.add_argument("--unit", default="s", help="csv: of time: s, ms, us or ns (default s)")
    parser.add_argument(
        "--bad-rows", metavar="N", default="0", help="csv: pass over so many (default 0)"
    )
    parser.add_argument(
        "--rows", metavar="N", default=str(ROWS_DEFAULT), help="no more than so many"
    )
    parser.add_argument("--speed", metavar="X", default="1", help="play it so many times as fast")
    parser.add_argument(
        "--capacity",
        metavar="C",
        help="cost a second that can be served (default: the mean load is 0.8); "
        "of keys alone, the entries of a cache (default 1000)",
    )
    parser.add_argument("--workers", metavar="N", default="8", help="who share it (default 8)")
    parser.add_argument("--timeout", metavar="MS", help="how long callers wait")
    parser.add_argument("--as", dest="contender", metavar="NAME", help="in place of our chain")
    parser.add_argument(
        "--per-s", metavar="N", default=str(PER_S), help="of keys alone: so many a second"
    )
    parser.add_argument("--seed", metavar="N", default="0", help="the seed (default 0)")


def run(arguments: Namespace) -> int:
    """Replay it."""
    from sluicegate.lab import replay_rig  # noqa: PLC0415 - the policies come with it

    write = sys.stdout.write
    seed = _whole("--seed", arguments.seed, 0, (1 << 63) - 1)
    rows_max = _whole("--rows", arguments.rows, 1, ROWS_MAX)
    trace = opened(arguments, seed)
    if not trace.timed:
        entries = _whole("--capacity", arguments.capacity or str(ENTRIES), 1, replay_rig.CACHE_MAX)
        found = replay_rig.play_keys(
            trace,
            capacity=entries,
            per_s=_number("--per-s", arguments.per_s),
            rows_max=rows_max,
            seed=seed,
        )
        write(f"{trace.name}: keys without times, a cache of {entries:,} entries\n")
        tell_table(found, write)
        return 0
    contender = arguments.contender or replay_rig.OURS
    if contender not in replay_rig.CONTENDERS:
        raise BadValue("--as", contender, f"give one of {', '.join(replay_rig.CONTENDERS)}")
    speed = _number("--speed", arguments.speed)
    seen = replay_rig.survey(trace, speed=speed, rows_max=rows_max)
    place = replay_rig.station(
        seen,
        workers=_whole("--workers", arguments.workers, 1, WORKERS_MAX),
        capacity=_number("--capacity", arguments.capacity) if arguments.capacity else None,
        timeout_us=_milliseconds(arguments.timeout),
        speed=speed,
    )
    tell_survey(trace, seen, place, write)
    figures = {}
    for name in dict.fromkeys((contender, replay_rig.BASELINE)):
        make = replay_rig.CONTENDERS[name]
        ledger = replay_rig.play_trace(trace, place, seen, make, seed)
        figures[name] = replay_rig.figures_of(place, seen, ledger)
    tell_table(figures, write)
    return 0


def opened(arguments: Namespace, seed: int) -> Trace:
    """The trace that is meant: a file if there is one, else a shape of that name."""
    from sluicegate.lab.traces import open_trace  # noqa: PLC0415 - likewise
    from sluicegate.lab.traces.shapes import SHAPES, made  # noqa: PLC0415

    name = arguments.trace
    if not Path(name).exists():
        if name in SHAPES:
            return made(name, seed)
        remedy = f"give a file that is there, or one of {', '.join(SHAPES)}"
        raise BadValue("TRACE", name, remedy)
    return open_trace(name, arguments.format, columns_of(arguments))


def columns_of(arguments: Namespace) -> Columns | None:
    """The columns that were named; None if none was."""
    from sluicegate.lab.traces import Columns  # noqa: PLC0415 - likewise

    named = (arguments.time, arguments.key, arguments.size, arguments.cost)
    bad = _whole("--bad-rows", arguments.bad_rows, 0, 1_000_000)
    if named == (None, None, None, None) and arguments.unit == "s" and not bad:
        return None
    cost = "cost" if arguments.cost is None else arguments.cost
    return Columns(
        time=_column(arguments.time, "time"),
        key=_column(arguments.key, "key"),
        size=_column(arguments.size, "size"),
        cost=tuple(name.strip() for name in cost.split(",") if name.strip() not in {"", NONE}),
        unit=arguments.unit,
        bad_rows_max=bad,
    )


def tell_survey(trace: Trace, seen: object, place: object, write: Callable[[str], object]) -> None:
    """What comes, and what there is to serve it."""
    from sluicegate.lab.replay_rig import Station, Survey  # noqa: PLC0415 - likewise
    from sluicegate.lab.show import number  # noqa: PLC0415

    assert isinstance(seen, Survey)
    assert isinstance(place, Station)
    cut = f", the first {seen.rows:,} rows of more" if seen.cut else ""
    mean, peak = seen.cost_per_s / place.capacity, seen.peak_per_s / place.capacity
    write(f"{trace.name}: {seen.rows:,} rows in {number(seen.span_us / 1e6)} s{cut}\n")
    write(
        f"  {place.workers} workers, {number(place.capacity)} of cost a second; load "
        f"{number(mean)} on average, {number(peak)} in the worst second; "
        f"callers wait {number(place.timeout_us / 1_000)} ms\n"
    )


def tell_table(figures: dict[str, dict[str, float]], write: Callable[[str], object]) -> None:
    """A row for each contender, a column for each figure that any of them has."""
    from sluicegate.lab.show import aligned, number  # noqa: PLC0415 - likewise

    names = list(dict.fromkeys(name for found in figures.values() for name in found))
    rows = [("", *names)]
    for who, found in figures.items():
        rows.append((who, *(number(found[name]) if name in found else "" for name in names)))
    for row in aligned(rows):
        write(f"  {row}\n")


def _column(named: str | None, usual: str) -> str | None:
    if named is None:
        return usual
    return None if named == NONE else named


def _whole(flag: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise BadValue(flag, text, f"give a whole number from {least:,} to {most:,}")
    return int(text)


def _number(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e15:
        raise BadValue(flag, text, "give a number above 0")
    return value


def _milliseconds(text: str | None) -> int | None:
    return None if text is None else max(round(_number("--timeout", text) * 1_000), 1)
