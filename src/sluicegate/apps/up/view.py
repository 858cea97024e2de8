"""A snapshot as a screen. `frame` is a pure function of numbers and size, `LiveView` shows it.

Two colours carry the meaning, one for what is admitted and one for what is refused; everything else
is the terminal's own. What a key is called was said by a stranger, so it is shown only after
`safe`: no character of it may command the terminal.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from textwrap import wrap
from typing import Final, NamedTuple, TextIO, final

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from sluicegate.apps.up.charts import (
    HALF_LINE,
    LEVELS,
    LINE,
    bar,
    columns,
    count_text,
    latency_text,
    levels,
    share_text,
    uptime_text,
)
from sluicegate.apps.up.counts import SECOND_US, RuleCount, Snapshot
from sluicegate.apps.up.settings import NamedRule
from sluicegate.contracts.reasons import REASONS

GAP_S: Final = 0.5
WIDTH_MIN: Final = 60
WIDTH_MAX: Final = 150
HEIGHT_MIN: Final = 12
LOWER_ROWS_MAX: Final = 12

ADMITTED: Final = "#3aa99f"
REFUSED: Final = "#da702c"
# From nothing refused to everything refused, for a chart of one row.
MIX: Final = (ADMITTED, "#879a39", "#d0a215", REFUSED)
QUIET: Final = "dim"
STRONG: Final = "bold"
THIN_LINE: Final = "─"


class About(NamedTuple):
    """What does not change while it runs."""

    url: str
    rules: dict[str, NamedRule]
    compiled: bool
    insecure: bool = False


class Cell(NamedTuple):
    """A piece of a row: its text, its width, and how it stands in it."""

    text: str | Text
    width: int
    style: str = ""
    right: bool = False


def frame(
    snapshot: Snapshot,
    about: About,
    keys: dict[str, int],
    load: str,
    size: tuple[int, int],
    services: Sequence[str] = (),
) -> list[Text]:
    """The screen, as lines of at most `size` = width and height."""
    width = min(max(size[0], WIDTH_MIN), WIDTH_MAX) - 2
    height = max(size[1], HEIGHT_MIN)
    top = _top(snapshot, about, width)
    bottom = _bottom(snapshot, keys, load, width)
    bottom += [_fit(Text(safe(one)), width) for one in services]
    room = height - len(top) - len(bottom) - 1
    tall = room >= 2 * len(about.rules) + 8
    rules = _rules(snapshot, about, keys, width, tall=tall)
    if len(rules) > room:
        hidden = len(rules) - room + 1
        rules = [*rules[: room - 1], Text(f"… and {hidden} more", QUIET)]
    room -= len(rules) + 1
    lower = _lower(snapshot, width, min(room, LOWER_ROWS_MAX)) if room >= 3 else []
    lines = [*top, *rules, *([Text(""), *lower] if lower else [])]
    lines += [Text("")] * (min(height, len(lines) + len(bottom) + 1) - len(lines) - len(bottom))
    return [Text(" ").append_text(_fit(line, width)) for line in lines + bottom]


def safe(text: str) -> str:
    """Text with nothing in it but what prints."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _top(snapshot: Snapshot, about: About, width: int) -> list[Text]:
    total = snapshot.admitted + snapshot.refused
    built = "compiled" if about.compiled else "interpreted"
    left = Text.assemble(("sluicegate up", STRONG), "  ", about.url)
    right = Text(f"{built} · up {uptime_text(snapshot.uptime_us)}", QUIET)
    if about.insecure:
        right = Text("--insecure: anyone may ask", REFUSED)
    name = next(iter(about.rules))
    ask = Text.assemble(("try it  ", QUIET), f"curl -i '{about.url}/v1/check?rule={name}&key=you'")
    totals = Text.assemble(
        (f"{snapshot.per_s:,.0f}", STRONG),
        (" decisions/s    ", QUIET),
        (count_text(snapshot.admitted), f"{STRONG} {ADMITTED}"),
        (f" admitted {share_text(snapshot.admitted, total)}    ", QUIET),
        (count_text(snapshot.refused), f"{STRONG} {REFUSED}"),
        (f" refused {share_text(snapshot.refused, total)}", QUIET),
    )
    return [
        _ends(left, right, width),
        _fit(ask, width),
        Text(""),
        _fit(totals, width),
        _split_bar(snapshot.admitted, snapshot.refused, width),
        Text(""),
    ]


def _rules(
    snapshot: Snapshot, about: About, keys: dict[str, int], width: int, *, tall: bool
) -> list[Text]:
    wide = width >= 92
    gap = 2 if wide else 1
    names = min(max(len(rule) for rule in about.rules), 16)
    rates = min(max(len("limit per key"), *(len(rule.rate) for rule in about.rules.values())), 24)
    counts = 8 if wide else 7
    spark = 60 if width >= 128 else 30 if wide else 20 if width >= 70 else 10
    bars = width - names - rates - 5 - 2 * counts - 4 - spark - 7 * gap
    if bars < 4:
        rates, bars = max(rates - 4 + bars, 4), 4
    head = (
        Cell("rule", names),
        Cell("limit per key", rates),
        Cell("/s", 5, right=True),
        Cell("admitted" if wide else "in", counts, right=True),
        Cell("refused", counts, right=True),
        Cell("", 4),
        Cell("", bars),
        Cell(f"{'the last minute':<{spark - 3}}now" if spark >= 20 else "a minute", spark),
    )
    lines = [_row(*head, gap=gap, style=QUIET)]
    for rule in snapshot.rules:
        total = rule.admitted + rule.refused
        up, down = _sparks(rule, snapshot.at_us // SECOND_US, spark, tall=tall)
        row: tuple[Cell, ...] = (
            Cell(rule.name, names, STRONG),
            Cell(about.rules[rule.name].rate, rates),
            Cell(count_text(rule.per_s), 5, right=True),
            Cell(count_text(rule.admitted), counts, ADMITTED, right=True),
            Cell(count_text(rule.refused), counts, REFUSED, right=True),
            Cell(share_text(rule.refused, total), 4, right=True),
            Cell(_split_bar(rule.admitted, rule.refused, bars), bars),
            Cell(up, spark),
        )
        lines.append(_row(*row, gap=gap))
        if tall:
            algorithm = about.rules[rule.name].limit.algorithm.value
            row = (
                Cell("", names),
                Cell(algorithm, rates, QUIET),
                Cell(f"{count_text(keys[rule.name])} keys", 5 + gap + counts, QUIET, right=True),
                Cell("", counts + gap + 4 + gap + bars),
                Cell(down, spark),
            )
            lines.append(_row(*row, gap=gap))
    return lines


def _sparks(rule: RuleCount, end_s: int, width: int, *, tall: bool) -> tuple[Text, Text]:
    admitted = columns(rule.minute_admitted, end_s, width)
    refused = columns(rule.minute_refused, end_s, width)
    up, down = Text(), Text()
    # Seven eighths at most, so that the charts of two rules do not touch.
    if not tall:
        both = [a + r for a, r in zip(admitted, refused, strict=True)]
        for height, a, r in zip(levels(both, max(both), 7), admitted, refused, strict=True):
            mix = MIX[round(r / (a + r) * (len(MIX) - 1))] if height else ""
            up.append(LEVELS[height], mix)
        return up, down
    top = max(*admitted, *refused)
    for height in levels(admitted, top, 7):
        up.append(LEVELS[height], ADMITTED)
    for height in levels(refused, top, 7):
        # Hangs from the line: the empty part of the cell is drawn, and the whole cell reversed.
        down.append(LEVELS[8 - height] if height else " ", f"{REFUSED} reverse" if height else "")
    return up, down


def _lower(snapshot: Snapshot, width: int, rows: int) -> list[Text]:
    """Why, and who: side by side."""
    gap = 4
    half = (width - gap) // 2
    left, right = _why(snapshot, half), _who(snapshot, width - gap - half)
    lines = []
    for i in range(min(rows, max(len(left), len(right)))):
        line = _fit(left[i] if i < len(left) else Text(""), half)
        line.append(" " * gap)
        lines.append(line.append_text(right[i] if i < len(right) else Text("")))
    return lines


def _why(snapshot: Snapshot, width: int) -> list[Text]:
    lines = [_row(Cell("why refused", width), style=QUIET)]
    refused = snapshot.refused
    bars = max(width - 18 - 6 - 4 - 3 * 2, 4)
    for name, count in snapshot.reasons.items():
        lines.append(
            _row(
                Cell(name, width - bars - 6 - 4 - 3 * 2),
                Cell(Text(bar(count / refused, bars), REFUSED), bars),
                Cell(count_text(count), 6, right=True),
                Cell(share_text(count, refused), 4, right=True),
            )
        )
        if name in REASONS:
            lines += [Text(words, QUIET) for words in wrap(REASONS[name].sentence, width)]
    if not snapshot.reasons:
        lines.append(Text("nothing yet", QUIET))
    return lines


def _who(snapshot: Snapshot, width: int) -> list[Text]:
    lines = [_row(Cell("keys refused most of late", width), style=QUIET)]
    rules = min(max((len(key.rule) for key in snapshot.refused_keys), default=4), 10)
    bars = max(min((width - rules - 4 - 3 * 2) // 3, 24), 4)
    names = width - rules - bars - 4 - 3 * 2
    lines += [
        _row(
            Cell(safe(key.key), names),
            Cell(key.rule, rules, QUIET),
            Cell(Text(bar(key.share, bars), REFUSED), bars),
            Cell(share_text(key.share, 1), 4, right=True),
        )
        for key in snapshot.refused_keys
    ]
    if not snapshot.refused_keys:
        lines.append(Text("none", QUIET))
    return lines


def _bottom(snapshot: Snapshot, keys: dict[str, int], load: str, width: int) -> list[Text]:
    numbers = Text()
    for words, value in (
        ("decision p50", latency_text(snapshot.decision.p50_us)),
        (" p99", latency_text(snapshot.decision.p99_us)),
        ("   answer p50", latency_text(snapshot.answer.p50_us)),
        (" p99", latency_text(snapshot.answer.p99_us)),
        ("   keys", count_text(sum(keys.values()))),
    ):
        numbers.append(f"{words} ", QUIET).append(value)
    if snapshot.bad_requests:
        numbers.append("   bad requests ", QUIET).append(count_text(snapshot.bad_requests))
    if snapshot.faults:
        numbers.append(f"   our own faults {count_text(snapshot.faults)}", REFUSED)
    ends = Text(f"Ctrl-C ends it · {load}", QUIET)
    return [_fit(numbers, width), _fit(ends, width)]


def _split_bar(admitted: int, refused: int, width: int) -> Text:
    """One bar of two colours; without colours the second part is hatched by its thinner line."""
    total = admitted + refused
    if not total:
        return Text(THIN_LINE * width, QUIET)
    solid = round(width * admitted / total)
    solid = min(max(solid, 1 if admitted else 0), width - (1 if refused else 0))
    return Text.assemble((LINE * solid, ADMITTED), (THIN_LINE * (width - solid), REFUSED))


def _row(*cells: Cell, gap: int = 2, style: str = "") -> Text:
    line = Text()
    for place, cell in enumerate(cells):
        text = cell.text if isinstance(cell.text, Text) else Text(cell.text, cell.style or style)
        line.append_text(_fit(text, cell.width, right=cell.right))
        if place < len(cells) - 1:
            line.append(" " * gap)
    return line


def _ends(left: Text, right: Text, width: int) -> Text:
    gap = width - cell_len(left.plain) - cell_len(right.plain)
    if gap < 2:
        return _fit(left, width)
    return Text.assemble(left, " " * gap, right)


def _fit(text: Text, width: int, *, right: bool = False) -> Text:
    """Exactly `width` cells, cut with an ellipsis."""
    cut = text.copy()
    cut.truncate(width, overflow="ellipsis")
    fill = " " * (width - cell_len(cut.plain))
    # Appended to an unstyled text: what follows on the line must not inherit this one's style.
    fitted = Text(fill if right else "").append_text(cut)
    return fitted if right else fitted.append(fill)


def can_show(out: TextIO) -> bool:
    """Whether `out` is a terminal that can be drawn on."""
    console = Console(file=out)
    return console.is_terminal and not console.is_dumb_terminal and _can_write(out)


def _can_write(out: TextIO) -> bool:
    try:
        (LEVELS + LINE + HALF_LINE + THIN_LINE + "µ·…").encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@final
class LiveView:
    """The terminal's other screen while it runs, and everything as it was afterwards."""

    gap_s = GAP_S

    def __init__(self, out: TextIO, about: About) -> None:
        self._about = about
        self._console = Console(file=out, highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> LiveView:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, self._pause)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTSTP)

    def _pause(self) -> None:
        """Ctrl-Z: give the terminal back, stop, and take it again when we are continued."""
        self._live.stop()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._live.start()

    def show(
        self, snapshot: Snapshot, keys: dict[str, int], load: str, services: Sequence[str]
    ) -> None:
        """Draw one frame."""
        lines = frame(snapshot, self._about, keys, load, self._console.size, services)
        self._live.update(_joined(lines), refresh=True)


def _joined(lines: Sequence[Text]) -> Text:
    page = Text("\n").join(lines)
    page.no_wrap, page.overflow = True, "crop"
    return page
