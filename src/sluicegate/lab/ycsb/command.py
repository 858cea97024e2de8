"""The verb `sluicegate lab ycsb`: YCSB's mixes against an engine or a running dispatcher.

It exits with 1 if a value was wrong or a change was lost, whatever the times.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import SEED_MAX, parse_whole
from sluicegate.lab.progress import ProgressBar, write_status
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.ycsb.run import MIXES, Mix, Outcome, Timings, YcsbRun, YcsbSettings
from sluicegate.lab.ycsb.targets import EngineTarget, RespTarget, Target
from sluicegate.stores.open_engine import open_engine
from sluicegate.system import SystemChance

EXAMPLES: Final = """\
examples:
  sluicegate lab ycsb --engine lmdb:/tmp/ycsb --mix all --rows 100000 --ops 100000
  sluicegate lab ycsb --engine cassandra://127.0.0.1/ycsb --mix F --tasks 64
  sluicegate lab ycsb --target redis://127.0.0.1:7080 --mix B --rows 10000 --ops 50000
  sluicegate lab ycsb --target redis://me:secret@kv.internal:7080 --mix A --connections 8
"""
ALL: Final = "all"
# As its authors run them; here each mix loads its rows anew.
_ORDER: Final = "ABCFDE"
_HEADS: Final = (
    ("done", 10),
    ("refused", 10),
    ("failed", 10),
    ("per s", 12),
    ("p50 us", 12),
    ("p99 us", 12),
)


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--target", metavar="URL", help="a running sluicegate kv: redis://host:port")
    where.add_argument(
        "--engine", metavar="URL", help="an engine directly, as sluicegate kv names it"
    )
    parser.add_argument("--mix", default=ALL, help="A to F, several with commas, or all (default)")
    for name, value, words in (
        ("rows", 10_000, "rows to load"),
        ("ops", 100_000, "operations a mix"),
        ("tasks", 32, "callers at once"),
        ("bytes", 1_000, "of a value"),
        ("connections", 1, "to a target"),
        ("seed", 0, "of what is asked"),
    ):
        parser.add_argument(
            f"--{name}", metavar="N", default=str(value), help=f"{words} (default {value})"
        )
    parser.add_argument("--table", metavar="NAME", default="ycsb", help="the table of a target")
    parser.add_argument(
        "--stale-ok",
        action="store_true",
        help="ask as others do, and do not hold against it a value that a cache had kept: "
        "several dispatchers behind one address do that",
    )


def run(arguments: Namespace) -> int:
    """Run the mixes, one after the other."""
    mixes = chosen(arguments.mix)
    settings = YcsbSettings(
        rows=_number(arguments, "rows"),
        ops=_number(arguments, "ops"),
        tasks=_number(arguments, "tasks"),
        value_bytes=_number(arguments, "bytes"),
        strong=not arguments.stale_ok,
    )
    outcomes = asyncio.run(_run(arguments, mixes, settings))
    return 0 if all(outcome.right for outcome in outcomes) else 1


def chosen(text: str) -> list[Mix]:
    """The mixes that are named."""
    names = _ORDER if text == ALL else [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in MIXES:
            raise BadValue("--mix", name, f"give {', '.join(MIXES)} or {ALL}")
    return [MIXES[name] for name in names]


async def _run(arguments: Namespace, mixes: Sequence[Mix], settings: YcsbSettings) -> list[Outcome]:
    bar = ProgressBar(write_status, live=sys.stderr.isatty())
    random_source = RandomSource(_number(arguments, "seed"))
    chance = SystemChance()
    outcomes = []
    for mix in mixes:
        target = await _open(arguments, settings, chance)
        try:
            run = YcsbRun(
                target,
                mix,
                settings,
                lambda name, mix=mix: random_source.of(f"{mix.name} {name}"),  # type: ignore[misc]
                run=int(chance.draw() * 2**48),
                progress=bar.show,
            )
            outcome = await run.outcome()
        finally:
            await target.close()
        outcomes.append(outcome)
        sys.stdout.write(shown(outcome))
        sys.stdout.flush()
    return outcomes


async def _open(arguments: Namespace, settings: YcsbSettings, chance: Chance) -> Target:
    if arguments.engine is not None:
        # A space of its own: whatever else the engine holds is left alone.
        space = f"ycsb.{int(chance.draw() * 2**48):012x}"
        return EngineTarget(open_engine(arguments.engine), space)
    target = RespTarget(
        arguments.target,
        chance,
        table=arguments.table,
        connections=_number(arguments, "connections"),
        strong=settings.strong,
    )
    try:
        await target.connect()
    except BaseException:
        await target.close()
        raise
    return target


def shown(outcome: Outcome) -> str:
    """A run's figures, for people."""
    run_s = max(outcome.run_s, 1e-9)
    loaded = f"{outcome.rows:,} rows loaded at {outcome.rows / max(outcome.load_s, 1e-9):,.0f}/s"
    length = f"{outcome.tasks} tasks, {outcome.run_s:.1f} s"
    heads = "".join(f"{head:>{width}}" for head, width in _HEADS)
    lines = [
        f"mix {outcome.mix} on {outcome.target}: {outcome.ops / run_s:,.0f} operations/s",
        f"  {loaded}, {length}",
        f"  {'':8}{heads}",
    ]
    lines += [_line(name, timings, run_s) for name, timings in outcome.timings.items()]
    verdict = "every value read was right" if not outcome.wrong else _wrong(outcome)
    if outcome.rows_changed or "change" in outcome.timings:
        verdict += (
            f"; {outcome.rows_changed:,} rows changed, {outcome.conflicts:,} conflicts, "
            f"{outcome.changes_lost:,} changes lost, {outcome.changes_extra:,} made twice"
        )
    lines.append(f"  {verdict}")
    lines += [f"  {text}" for text in outcome.shown]
    return "\n".join(lines) + "\n"


def _line(name: str, timings: Timings, run_s: float) -> str:
    middle, late = timings.sketch.quantile(0.5), timings.sketch.quantile(0.99)
    return (
        f"  {name:8}{timings.done:>10,}{timings.refused:>10,}{timings.failed:>10,}"
        f"{timings.done / run_s:>12,.0f}{middle or 0.0:>12,.0f}{late or 0.0:>12,.0f}"
    )


def _wrong(outcome: Outcome) -> str:
    return "WRONG: " + ", ".join(f"{count:,} {what}" for what, count in outcome.wrong.items())


def _number(arguments: Namespace, name: str) -> int:
    return parse_whole(f"--{name}", getattr(arguments, name), 0, SEED_MAX)
