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
from sluicegate.lab.ycsb.run import MIXES, Mix, Timings, YcsbResult, YcsbRun, YcsbSettings
from sluicegate.lab.ycsb.targets import EngineTarget, RespTarget, YcsbTarget
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
    """Add the flags."""
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
        ("seed", 0, "of the requests"),
    ):
        parser.add_argument(
            f"--{name}", metavar="N", default=str(value), help=f"{words} (default {value})"
        )
    parser.add_argument("--table", metavar="NAME", default="ycsb", help="the table of a target")
    parser.add_argument(
        "--stale-ok",
        action="store_true",
        help="read as other callers do, and accept values from a cache, which several dispatchers "
        "behind one address return",
    )


def run(arguments: Namespace) -> int:
    """Run the mixes, one after the other."""
    mixes = parse_mixes(arguments.mix)
    settings = YcsbSettings(
        rows=_number(arguments, "rows"),
        ops=_number(arguments, "ops"),
        tasks=_number(arguments, "tasks"),
        value_bytes=_number(arguments, "bytes"),
        strong=not arguments.stale_ok,
    )
    results = asyncio.run(_run(arguments, mixes, settings))
    return 0 if all(result.right for result in results) else 1


def parse_mixes(text: str) -> list[Mix]:
    """The mixes that a flag names."""
    names = _ORDER if text == ALL else [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in MIXES:
            raise BadValue("--mix", name, f"give {', '.join(MIXES)} or {ALL}")
    return [MIXES[name] for name in names]


async def _run(
    arguments: Namespace, mixes: Sequence[Mix], settings: YcsbSettings
) -> list[YcsbResult]:
    bar = ProgressBar(write_status, live=sys.stderr.isatty())
    random_source = RandomSource(_number(arguments, "seed"))
    chance = SystemChance()
    results = []
    for mix in mixes:
        target = await _open(arguments, settings, chance)
        try:
            ycsb = YcsbRun(
                target,
                mix,
                settings,
                lambda name, mix=mix: random_source.of(f"{mix.name} {name}"),  # type: ignore[misc]
                run=int(chance.draw() * 2**48),
                progress=bar.show,
            )
            result = await ycsb.run()
        finally:
            await target.close()
        results.append(result)
        sys.stdout.write(render_result(result))
        sys.stdout.flush()
    return results


async def _open(arguments: Namespace, settings: YcsbSettings, chance: Chance) -> YcsbTarget:
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


def render_result(result: YcsbResult) -> str:
    """Return a run's figures, for people."""
    run_s = max(result.run_s, 1e-9)
    loaded = f"{result.rows:,} rows loaded at {result.rows / max(result.load_s, 1e-9):,.0f}/s"
    length = f"{result.tasks} tasks, {result.run_s:.1f} s"
    heads = "".join(f"{head:>{width}}" for head, width in _HEADS)
    lines = [
        f"mix {result.mix} on {result.target}: {result.ops / run_s:,.0f} operations/s",
        f"  {loaded}, {length}",
        f"  {'':8}{heads}",
    ]
    lines += [_line(name, timings, run_s) for name, timings in result.timings.items()]
    verdict = "every value read was right" if not result.wrong else _faults_text(result)
    if result.rows_changed or "change" in result.timings:
        verdict += (
            f"; {result.rows_changed:,} rows changed, {result.conflicts:,} conflicts, "
            f"{result.changes_lost:,} changes lost, {result.changes_extra:,} made twice"
        )
    lines.append(f"  {verdict}")
    lines += [f"  {text}" for text in result.shown]
    return "\n".join(lines) + "\n"


def _line(name: str, timings: Timings, run_s: float) -> str:
    middle, late = timings.sketch.quantile(0.5), timings.sketch.quantile(0.99)
    return (
        f"  {name:8}{timings.done:>10,}{timings.refused:>10,}{timings.failed:>10,}"
        f"{timings.done / run_s:>12,.0f}{middle or 0.0:>12,.0f}{late or 0.0:>12,.0f}"
    )


def _faults_text(result: YcsbResult) -> str:
    return "WRONG: " + ", ".join(f"{count:,} {what}" for what, count in result.wrong.items())


def _number(arguments: Namespace, name: str) -> int:
    return parse_whole(f"--{name}", getattr(arguments, name), 0, SEED_MAX)
