"""Overview: what is admitted and refused, how fast, and how close to its bounds the fleet is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from sluicegate.apps.console.pages.frame import SPANS_S
from sluicegate.apps.console.picture import CLASSES, FleetPicture
from sluicegate.apps.console.readings import FleetReadings, Reading
from sluicegate.command_line.charts import ChartScale, Curve, line_chart
from sluicegate.command_line.page import cell, escape_name, number, quiet, row, section, table
from sluicegate.command_line.text import limit_words, per_second, percent
from sluicegate.contracts.reasons import REASONS

SLOW_SHOWN: Final = 5
_NONE: Final = "-"


def overview(picture: FleetPicture, readings: FleetReadings, span_s: int) -> dict[str, str]:
    """Return the parts of the page."""
    return {
        "numbers": _numbers(picture),
        "span": _spans(span_s),
        "charts": _charts(readings, span_s),
        "classes": section("By criticality", _classes(picture)),
        "slow": section("Slow shards", slow_shards(picture, SLOW_SHOWN)),
        "reasons": section("Refused, by reason", _reasons(picture)),
    }


def span(us: float | None) -> str:
    """Return a time in ms; a dash for none."""
    if us is None:
        return _NONE
    return f"{us / 1_000:,.1f} ms" if us < 100_000 else f"{us / 1_000:,.0f} ms"


def slow_shards(picture: FleetPicture, rows_max: int) -> str:
    """Return the shards that take longer than usual, the slowest first."""
    rows = [
        row(
            cell(escape_name(one.node), "name"),
            cell(escape_name(one.shard or "all")),
            cell(escape_name(one.operation)),
            number(f"{one.ratio:.2f}", bad=one.ratio < 0.5),
            number(f"{one.waiting:,}", bad=one.waiting > 0),
            number(limit_words(one.limit, one.origin)),
        )
        for one in picture.slow[:rows_max]
    ]
    if not rows:
        return quiet("Every operation takes about as long as usual.")
    more = len(picture.slow) - rows_max
    rest = quiet(f'<a href="/queues">{more:,} more</a>') if more > 0 else ""
    heads = ("latency ratio", "waiting", "limit")
    return table(("node", "shard", "operation"), heads, rows) + rest


def _numbers(picture: FleetPicture) -> str:
    latency = picture.dispatchers.get("latency", {})
    p50 = max((one["p50_us"] for one in latency.values()), default=None)
    ratio = picture.ratio
    utilization = picture.utilization
    answering = len(picture.nodes) - len(picture.silent)
    numbers = (
        (per_second(picture.admitted), "admitted", "callers", ""),
        (per_second(picture.from_memory), "answered from memory", "hot-keys", ""),
        (per_second(picture.refused), "refused", "callers", ""),
        (span(p50), "latency, p50", "queues", ""),
        (span(picture.p99_us), "latency, p99", "queues", ""),
        (span(picture.queue_us), "queue delay", "queues", ""),
        (_NONE if ratio is None else f"{ratio:.2f}", "latency ratio, usual is 1", "queues", ""),
        (_NONE if utilization is None else f"{utilization:.0%}", "fullest limiter", "nodes", ""),
        (per_second(picture.degraded), "decided without store", "nodes", _alarm(picture.degraded)),
        (f"{answering:,} of {len(picture.nodes):,}", "services answer", "nodes", ""),
    )
    items = "".join(
        f'<li><a href="/{page}"><b class="{kind}">{escape(value)}</b>'
        f"<span>{escape(words)}</span></a></li>"
        for value, words, page, kind in numbers
    )
    return f'<ul class="numbers">{items}</ul>'


def _alarm(value: float) -> str:
    return "bad" if value else ""


def _spans(span_s: int) -> str:
    links = [
        f"<b>{one // 60} min</b>" if one == span_s else f'<a href="?span={one}">{one // 60} min</a>'
        for one in SPANS_S
    ]
    return quiet(f"The last {' | '.join(links)}")


def _charts(readings: FleetReadings, span_s: int) -> str:
    def refused_of(at: int) -> Callable[[Reading], float | None]:
        return lambda reading: reading.refused_by_class[at]

    def draw(
        title: str,
        curves: Sequence[Curve],
        label_of: Callable[[float], str],
        unit: tuple[float, str],
        most: float | None = None,
    ) -> str:
        begins = f"{span_s // 60} min ago"
        chart = line_chart(
            title,
            curves,
            "now",
            label_of,
            most=most,
            begins=begins,
            scale=ChartScale(span_s, *unit),
        )
        return f"<div><h2>{escape(title)}</h2>{chart}</div>"

    curve = readings.curve
    charts = (
        draw(
            "Asked, admitted and refused a second",
            [
                Curve("asked", "c0", curve(span_s, _demand)),
                Curve("memory", "c1", curve(span_s, lambda one: one.from_memory)),
                Curve("admitted", "admitted", curve(span_s, lambda one: one.admitted)),
                Curve("refused", "refused", curve(span_s, lambda one: one.refused)),
            ],
            _short,
            (1, "/s"),
        ),
        draw(
            "Refused a second, by criticality",
            [
                Curve(name.lower().replace("_", " "), f"c{at}", curve(span_s, refused_of(at)))
                for at, name in enumerate(CLASSES)
            ],
            _short,
            (1, "/s"),
        ),
        draw(
            "Latency, p99 of the slowest class",
            [Curve("p99", "one", curve(span_s, lambda one: one.p99_us, worst=True))],
            _ms,
            (0.001, " ms"),
        ),
        draw(
            "Delay in the queue",
            [Curve("delay", "one", curve(span_s, lambda one: one.queue_us, worst=True))],
            _ms,
            (0.001, " ms"),
        ),
        draw(
            "Latency ratio, 1 is usual",
            [Curve("ratio", "one", curve(span_s, lambda one: one.ratio))],
            lambda value: f"{value:.1f}",
            (1, ""),
            most=1.0,
        ),
        draw(
            "Utilization of the fullest limiter",
            [Curve("full", "one", curve(span_s, lambda one: one.utilization, worst=True))],
            lambda value: f"{value:.0%}",
            (100, "%"),
            most=1.0,
        ),
    )
    words = (
        "Rest on a chart to read its values, drag across to zoom, double-click to see all. By "
        "keyboard: arrows move, + and - zoom, Escape shows all."
    )
    return f'<div class="charts">{"".join(charts)}</div>' + quiet(words)


def _demand(reading: Reading) -> float:
    return reading.admitted + reading.from_memory + reading.refused


def _short(value: float) -> str:
    return f"{value / 1_000:,.4g}k" if value >= 10_000 else f"{value:,.4g}"


def _ms(us: float) -> str:
    return f"{us / 1_000:,.4g} ms"


def _classes(picture: FleetPicture) -> str:
    latency = picture.dispatchers.get("latency", {})
    priced = any(flow.price is not None for flow in picture.classes)
    rows = []
    for flow in picture.classes:
        took = latency.get(flow.name, {})
        rows.append(
            row(
                cell(escape(flow.name)),
                number(per_second(flow.admitted)),
                number(per_second(flow.refused)),
                number(per_second(flow.shed), bad=flow.shed > 0),
                number(percent(flow.shed_share)),
                *([_price(flow.price)] if priced else []),
                number(span(took.get("p50_us"))),
                number(span(took.get("p99_us"))),
            )
        )
    price = ("price",) if priced else ()
    heads = ("admitted", "refused", "of these shed", "shed share", *price, "p50", "p99")
    words = (
        "Shed is what is refused to protect the service; the rest of what is refused is over its "
        "caller's own limit."
    )
    if priced:
        words += " A price above 1 makes work spend its quota that much faster."
    return table(("criticality",), heads, rows) + quiet(words)


def _price(price: float | None) -> str:
    price = 1.0 if price is None else price
    return number(f"{price:.2f}", bad=price > 1)


def _reasons(picture: FleetPicture) -> str:
    if not picture.reasons:
        return quiet("Nothing is refused.")
    rows = []
    for name, per_s in picture.reasons:
        reason = REASONS.get(name)
        sentence = "" if reason is None else reason.sentence
        rows.append(row(cell(escape(name)), cell(escape(sentence)), number(per_second(per_s))))
    return table(("reason", "what callers read"), ("refused",), rows)
