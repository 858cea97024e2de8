"""Top lines: a picture of `board_rates.py` as lines for people. Pure: no terminal, no time.

Callers choose their names and keys, so no character of either may control the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluicegate.apps.kv.shield.keys import place_of
from sluicegate.command_line.text import counted, harmless, limit_words, rate, table
from sluicegate.contracts.errors import BadValue

NAME_CHARS_MAX: Final = 40
KEY_CHARS_SHOWN: Final = 48
ROWS_MAX: Final = 10
_CALM: Final = "calm"
_INSTEAD: Final = "\N{REPLACEMENT CHARACTER}"
_CUT: Final = "\N{HORIZONTAL ELLIPSIS}"

Picture = Mapping[str, Any]


def top_lines(picture: Picture, *, rows: int = ROWS_MAX) -> list[str]:
    """All of it."""
    sections = (
        _head(picture),
        _callers(picture["callers"], rows),
        _refusals(picture["refusals"], rows),
        _classes(picture["classes"]),
        _slow(picture["slow"], rows),
        _engine(picture["engine"], rows),
        hot_lines(picture, rows=min(rows, 5)),
        _uploads(picture["uploads"], rows),
    )
    lines: list[str] = []
    for section in sections:
        if section:
            lines += [*([""] if lines else []), *section]
    return lines


def hot_lines(picture: Picture, *, rows: int = ROWS_MAX) -> list[str]:
    """The board of hot keys."""
    shield = picture["shield"]
    reads = shield["looked"]
    spared = (shield["served"] + shield["joined"] + shield["stale_served"]) / reads if reads else 0
    head = (
        f"hot keys: {rate(reads)} point reads/s, {share(spared)} without the engine; "
        f"{shield['cached']:,} kept in {size(shield['cached_bytes'])}, "
        f"{shield['waiting']:,} waiting"
    )
    if not picture["hot"]:
        return [head, "  none is hot"]
    cells = [
        (
            spelt(one["key"]),
            share(one["share"]),
            rate(one["rate"]),
            rate(one["served"]),
            rate(one["forwarded"]),
            size(one["size_bytes"]),
        )
        for one in picture["hot"][:rows]
    ]
    columns = ("key", "share", "reads/s", "cached/s", "forwarded/s", "bytes")
    return [head, *table(columns, cells), *_more(picture["hot"], rows, "key")]


def silent_lines(picture: Picture) -> list[str]:
    """A line for each dispatcher that does not answer, and why."""
    return [
        f"  {printable(one['url'], 80)} does not answer: {printable(one['error'], 80)}"
        for one in picture["dispatchers"]
        if one["error"]
    ]


def printable(text: object, chars_max: int = NAME_CHARS_MAX) -> str:
    """What a stranger has chosen, on one line, harmless, and not too long."""
    clean = harmless(str(text)[: chars_max + 1])
    clean = "".join(one if one.isprintable() else _INSTEAD for one in clean)
    return clean if len(clean) <= chars_max else clean[: chars_max - 1] + _CUT


def spelt(key: str) -> str:
    """A hot key as people write it: table:partition:sort."""
    try:
        table_name, partition, sort = place_of(key)
    except BadValue:
        return printable(key, KEY_CHARS_SHOWN)
    parts = [table_name, partition.decode("utf-8", "replace")]
    if sort:
        parts.append(sort.decode("utf-8", "replace"))
    return printable(":".join(parts), KEY_CHARS_SHOWN)


def share(value: float) -> str:
    """A part of a whole."""
    return f"{value:.1%}"


def size(count: float) -> str:
    """Bytes in the unit that leaves few digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_024 or unit == "GiB":
            break
        count /= 1_024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def span(us: float | None) -> str:
    """Return a time in ms; a dash for none."""
    return "-" if us is None else f"{us / 1_000:,.2f} ms"


def _head(picture: Picture) -> list[str]:
    lines = []
    alive = [one for one in picture["dispatchers"] if not one["error"]]
    work, stress, queue = picture["work"], picture["stress"], picture["queue"]
    shield = picture["shield"]
    spared = shield["served"] + shield["joined"] + shield["stale_served"]
    lines.append(
        f"{counted(len(alive), 'dispatcher')}: {rate(work['entered'] + spared)} asked/s, "
        f"{rate(spared)} answered from memory, "
        f"{rate(work['admitted'])} admitted, {rate(work['refused'])} refused, "
        f"{work['under_way']:,} under way"
    )
    lines += silent_lines(picture)
    engine = picture["engine_state"]
    if engine["gone_for"]:
        lines.insert(0, _outage("the engine fails", engine))
    if engine["still"]:
        who = counted(engine["still"], "dispatcher")
        lines.insert(0, f"the engine stands still: of the work of {who} none has ended")
    if picture["store"]["gone_for"]:
        lines.append(_outage("the store does not answer", picture["store"]))
    calm = not (engine["gone_for"] or engine["still"])
    if stress and (calm or stress["level"] != _CALM):
        why = (
            f" ({', '.join(printable(one) for one in stress.get('why', ()))})"
            if stress["why"]
            else ""
        )
        slowest = f" of {printable(stress['slowest'])}" if stress.get("slowest") else ""
        lines.append(
            f"{printable(stress['level'])}{why}: latency ratio {stress['ratio']:.2f}{slowest}"
        )
    overloaded = ", overloaded" if queue["overloaded"] else ""
    slots = limit_words(queue["slots"], queue["origin"])
    lines.append(
        f"queue: {queue['queued']:,} waiting ({size(queue['queued_bytes'])}), "
        f"delay {span(queue['delay_us'])}, "
        f"{queue['inflight']:,} in flight, limit {slots}{overloaded}"
    )
    return lines


def _outage(what: str, state: Mapping[str, Any]) -> str:
    return (
        f"{what} {state['gone_for']:,} of {counted(state['asked_by'], 'dispatcher')}, "
        f"for {state['gone_us'] / 1e6:,.0f} s: {printable(state['why'], 80)}"
    )


def _callers(callers: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    if not callers:
        return []
    cells = [
        (
            printable(one["caller"]),
            rate(one["ru"]),
            f"{one['ru'] / one['quota_ru']:.0%}" if one["quota_ru"] else "-",
            rate(one["admitted"]),
            rate(one["refused"]),
        )
        for one in callers[:rows]
    ]
    return [
        *table(("caller", "RU/s", "of quota", "admitted/s", "refused/s"), cells),
        *_more(callers, rows, "caller"),
    ]


def _refusals(refusals: Mapping[str, float], rows: int) -> list[str]:
    cells = [(printable(name), rate(value)) for name, value in refusals.items() if value > 0]
    return table(("refused as", "per s"), cells[:rows]) if cells else []


def _classes(classes: Sequence[Mapping[str, Any]]) -> list[str]:
    if not classes:
        return []
    priced = any(one["price"] is not None for one in classes)
    heads = ("class", "price") if priced else ("class",)
    cells = [
        (
            printable(one["class"]),
            *((f"{one['price'] or 1.0:,.2f}",) if priced else ()),
            rate(one["admitted"]),
            rate(one["refused"]),
        )
        for one in classes
    ]
    return table((*heads, "admitted/s", "refused/s"), cells)


def _slow(slow: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    cells = [
        (
            printable(one["shard"] or "all"),
            printable(one["operation"]),
            f"{one['ratio']:.2f}",
            f"{one['waiting']:,}",
            limit_words(one["limit"], one["origin"]),
        )
        for one in slow[:rows]
    ]
    heads = ("slow shard", "operation", "latency ratio", "waiting", "limit")
    return [*table(heads, cells), *_more(slow, rows, "shard")] if cells else []


def _engine(engine: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    cells = [
        (
            printable(one["operation"]),
            rate(one["worked"]),
            span(one["mean_us"]),
            rate(one["failed"]),
        )
        for one in engine[:rows]
    ]
    return table(("engine", "per s", "mean", "failed/s"), cells) if cells else []


def _uploads(uploads: Sequence[Mapping[str, Any]], rows: int) -> list[str]:
    cells = [
        (
            printable(f"{one['table']}/{one['name']}"),
            printable(one["mode"]),
            printable(one["state"]),
            f"{one['rows']:,}",
            size(one["bytes"]),
            printable(one["by"]),
        )
        for one in uploads[:rows]
    ]
    return table(("upload", "mode", "state", "rows", "bytes", "by"), cells) if cells else []


def _more(entries: Sequence[object], rows: int, thing: str) -> list[str]:
    rest = len(entries) - rows
    return [f"  and {counted(rest, thing)} more"] if rest > 0 else []
