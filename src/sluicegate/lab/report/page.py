"""The page of a report: one HTML file that needs nothing else (see `command_line/page.py`)."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from sluicegate import __version__
from sluicegate.command_line.page import cell, quiet, render_page, row, table
from sluicegate.lab.charts import (
    CHART_STYLE,
    MarginRow,
    Panel,
    margin_chart,
    panel_chart,
    theme_style,
)
from sluicegate.lab.goals import GoalResult
from sluicegate.lab.report.results import LabReport, ScenarioReport
from sluicegate.lab.scenario import repeat_command
from sluicegate.lab.text import format_number, format_time_left, slug
from sluicegate.wire.timestamps import utc_text

PAGE: Final = "report.html"
PANELS_MAX: Final = 4  # of a plot
_FAILS: Final = '<span class="met">fails</span>'
_MARGINS_TITLE: Final = "How far each claim is from its bound"
_STYLE: Final = f"""{theme_style()}{CHART_STYLE}
h2 .number {{ color: var(--muted); font-weight: 400; margin-right: 6px; }}
a {{ color: inherit; text-decoration-color: var(--muted); text-underline-offset: 2px; }}
.met {{ color: var(--good); white-space: nowrap; }}
.missed {{ color: var(--must-fail); font-weight: 600; white-space: nowrap; }}
figure {{ margin: 0; max-width: 860px; overflow-x: auto; }}
figcaption {{ font-size: 14px; font-weight: 600; }}
figcaption span {{ color: var(--muted); display: block; font-size: 12.5px; font-weight: 400; }}
pre {{ background: var(--soft); border-radius: 6px; font-size: 12.5px; margin: 8px 0;
  overflow-x: auto; padding: 10px 12px; }}
.limits {{ border-left: 3px solid var(--must-fail); margin: 12px 0; padding: 2px 12px; }}
"""


def write_page(report: LabReport, folder: Path) -> Path:
    """Write the page into `folder`, and return its path."""
    path = folder / PAGE
    path.write_text(render_report(report), encoding="utf-8")
    return path


def render_report(report: LabReport) -> str:
    """Return the page."""
    body = [*_head(report), *_margins(report), *_overview(report)]
    for one in report.scenarios:
        body += _section(one)
    return render_page("Sluicegate lab report", body, _STYLE)


def _head(report: LabReport) -> Iterator[str]:
    holding = sum(one.holds() for one in report.scenarios)
    seeds = report.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    yield "<h1>Sluicegate lab report</h1>"
    yield (
        f"<p>{holding} of {len(report.scenarios)} claims hold: ours meets every goal with the "
        "worst of its seeds, and each candidate that must fail does.</p>"
    )
    yield quiet(
        f"{which}; run in {format_time_left(int(report.wall_s * 1e6))} by "
        f"{report.jobs} process{'' if report.jobs == 1 else 'es'}; {utc_text(report.at_us)}; "
        f"sluicegate {escape(__version__)}, Python {platform.python_version()}, "
        f"{escape(platform.machine())}. The same seed gives the same run to the byte."
    )


def _margins(report: LabReport) -> Iterator[str]:
    """The picture that the page opens with: every claim, and how far it is from its bound."""
    rows = []
    for one in report.scenarios:
        ours = one.margin(one.scenario.ours)
        if ours is not None:
            found = [one.margin(name) for name in one.scenario.must_fail]
            failing = [margin.used for margin in found if margin is not None]
            rows.append(MarginRow(one.scenario.name, ours.used, failing))
    if rows:
        words = "a dot is ours, a plus a candidate that must fail; left of the line a goal is met"
        yield _figure(_MARGINS_TITLE, margin_chart(_MARGINS_TITLE, rows), words)


def _figure(title: str, drawn: str, words: str = "") -> str:
    note = f"<span>{escape(words)}</span>" if words else ""
    return f"<figure><figcaption>{escape(title)}{note}</figcaption>{drawn}</figure>"


def _overview(report: LabReport) -> Iterator[str]:
    """A row for each claim: its tightest goal, what ours leaves of it, and what must fail."""
    rows = []
    for one in report.scenarios:
        scenario = one.scenario
        margin = one.margin(scenario.ours)
        if margin is None:
            continue
        link = (
            f'<a href="#{slug(scenario.name)}">{scenario.number}&ensp;{escape(scenario.name)}</a>'
        )
        result = margin.result
        judged = one.judge(scenario.ours)
        met = sum(each.met for each in judged)
        rows.append(
            row(
                cell(link),
                cell(f"{escape(result.goal.figure)}, {escape(result.case)}"),
                _number(_bound(result, one)),
                _number(format_number(result.worst)),
                _number(_left(margin.used)),
                _number(f"{result.held} of {result.runs}"),
                _number(f"{met} of {len(judged)}"),
                cell(_mark(met == len(judged))),
                cell(_must_fail_marks(one)),
            )
        )
    names = ("Claim", "Its tightest goal")
    numbers = ("Bound", "Worst", "Margin", "Seeds that hold", "Goals met")
    yield table(names, numbers, rows, ("", "Must fail"))
    yield quiet(
        "The margin is what the worst run leaves of what the goal allows: of at most 60 ms, 45 ms "
        "leave 25%; of a share of at least 0.98, 0.995 leaves 75%. Every goal is in its section."
    )


def _left(used: float) -> str:
    """The margin that is left, in percent; by how much it is missed otherwise."""
    if used <= 1:
        return f"{1 - used:.0%}"
    return f'<span class="missed">{format_number(used)} times what is allowed</span>'


def _section(one: ScenarioReport) -> Iterator[str]:
    scenario = one.scenario
    yield f'<section id="{slug(scenario.name)}">'
    yield (
        f'<h2><span class="number">{scenario.number}</span>{escape(scenario.title)}'
        f"&ensp;{_mark(one.meets_goals(scenario.ours))}</h2>"
    )
    yield f"<p>{escape(scenario.why)}</p>"
    if scenario.limits:
        yield f'<p class="limits">Limit: {escape(scenario.limits)}</p>'
    if scenario.scale:
        yield quiet(f"Scale: {escape(scenario.scale)}")
    for setting, reason in scenario.own_settings.items():
        yield quiet(f"Own setting: {escape(setting)}: {escape(reason)}")
    yield from _plots(one)
    yield from _goals(one)
    yield from _commands(one)
    yield "</section>"


def _plots(one: ScenarioReport) -> Iterator[str]:
    scenario = one.scenario
    for spec in scenario.plots:
        panels = []
        for case in scenario.rigs:
            lines = {
                who: points
                for who in (scenario.ours, *scenario.must_fail)
                if (points := one.curves.get(who, {}).get(case, {}).get(spec.curve))
            }
            if lines:
                panel = Panel(case, spec.y, "s", lines, None, scenario.must_fail, spec.log_y)
                panels.append(panel_chart(panel))
        if panels:
            yield _figure(spec.title, "".join(panels[:PANELS_MAX]))


def _goals(one: ScenarioReport) -> Iterator[str]:
    """Goal by goal: ours, and each candidate that must fail."""
    scenario = one.scenario
    names = [scenario.ours, *scenario.must_fail]
    columns = {name: one.judge(name) for name in names}
    rows = []
    for at, ours in enumerate(columns[scenario.ours]):
        worst = [
            _worst(results[at], mark=name != scenario.ours) for name, results in columns.items()
        ]
        rows.append(
            row(
                cell(escape(ours.goal.figure)),
                cell(escape(ours.case)),
                _number(_bound(ours, one)),
                *map(_number, worst),
                cell(_mark(ours.met)),
            )
        )
    heads = [scenario.ours, *(f"{name} must fail" for name in scenario.must_fail)]
    yield table(("Goal", "Case"), ("Bound", *heads), rows, ("",))
    yield f"<p>{_must_fail_sentences(one)}</p>"


def _commands(one: ScenarioReport) -> Iterator[str]:
    scenario = one.scenario
    name = one.where if one.where.endswith(".py") else scenario.name
    lines = [
        f"sluicegate lab run {name}",
        f"sluicegate lab compare {name} --with {','.join(scenario.must_fail)}",
    ]
    lines += [
        repeat_command(scenario, scenario.ours, result.case, result.seed, where=one.where)
        for result in one.judge(scenario.ours)
        if not result.met
    ]
    yield f"<pre>{escape(chr(10).join(lines))}</pre>"


def _must_fail_marks(one: ScenarioReport) -> str:
    """The candidates that must fail, and a mark for whether each does."""
    return "<br>".join(
        f"{escape(name)} " + (_mark(False) if one.meets_goals(name) else _FAILS)
        for name in one.scenario.must_fail
    )


def _must_fail_sentences(one: ScenarioReport) -> str:
    sentences = []
    for name in one.scenario.must_fail:
        results = one.judge(name)
        missed = sum(not result.met for result in results)
        if missed:
            of = f"{missed} of {len(results)} goals"
            sentences.append(f"{escape(name)} must fail: it misses {of}.")
        else:
            sentences.append(
                f'<span class="missed">{escape(name)} must fail, and meets every goal: '
                "the scenario proves nothing.</span>"
            )
    return " ".join(sentences)


def _number(inside: str) -> str:
    return cell(inside, "number")


def _bound(result: GoalResult, one: ScenarioReport) -> str:
    bound = result.goal.bound(one.scenario.rigs[result.case])
    sign = "&le;" if result.goal.at_least is None else "&ge;"
    return f"{sign}&nbsp;{format_number(bound)}"


def _worst(result: GoalResult, *, mark: bool) -> str:
    text = format_number(result.worst)
    return f'<span class="missed">{text}</span>' if mark and not result.met else text


def _mark(met: bool) -> str:
    if met:
        return '<span class="met">&#10003; met</span>'
    return '<span class="missed">&#10007; MISSED</span>'
