"""The page of a report: one HTML file that needs nothing else, and the same plots as PNG.

Plots stand in it as SVG in the colours of the page (see `command_line/page.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Final

from sluicegate import __version__
from sluicegate.command_line.page import cell, quiet, render_page, row, table
from sluicegate.lab import plots
from sluicegate.lab.goals import GoalResult
from sluicegate.lab.plots_style import png, svg, theme_style
from sluicegate.lab.report.results import LabReport, ScenarioReport
from sluicegate.lab.report.rig_text import MODES, describe_rigs
from sluicegate.lab.scenario import PlotSpec, repeat_command
from sluicegate.lab.text import format_number, format_time_left, join_names, slug
from sluicegate.wire.timestamps import utc_text

PAGE: Final = "report.html"
_FAILS: Final = '<span class="met">fails</span>'
_WIDE_POINTS: Final = 600  # a plot of more than one panel
_MARGINS_TITLE: Final = "How far each claim is from its bound"

_STYLE: Final = f"""{theme_style()}
main {{ max-width: 1120px; }}
h1 {{ margin-bottom: 4px; }}
h2 {{ margin: 0; }}
h2 .number {{ color: var(--muted); font-weight: 400; margin-right: 6px; }}
a {{ color: inherit; text-decoration-color: var(--muted); text-underline-offset: 2px; }}
.met {{ color: var(--good); white-space: nowrap; }}
.missed {{ color: var(--must-fail); font-weight: 600; white-space: nowrap; }}
nav {{ display: flex; flex-wrap: wrap; gap: 6px; margin: 16px 0 20px; }}
nav a {{ background: var(--soft); border-radius: 5px; font-size: 13px; padding: 2px 9px;
  text-decoration: none; }}
section {{ margin-top: 40px; padding-top: 24px; }}
.overview table {{ width: 100%; }}
.plots {{ display: grid; gap: 20px 32px; grid-template-columns: 1fr 1fr; margin-top: 16px; }}
figure {{ margin: 0; min-width: 0; }}
figure.margins {{ margin-bottom: 20px; }}
figure.wide {{ grid-column: 1 / -1; }}
figure.wide svg {{ max-width: 100%; }}
figcaption {{ font-size: 14px; font-weight: 600; }}
figcaption span {{ color: var(--muted); display: block; font-size: 12.5px; font-weight: 400; }}
svg {{ margin-top: 4px; stroke-linejoin: round; }}
pre {{ background: var(--soft); border-radius: 6px; font-size: 12.5px; margin: 8px 0;
  overflow-x: auto; padding: 10px 12px; }}
summary {{ color: var(--muted); cursor: pointer; font-size: 13.5px; margin-top: 16px; }}
.limits {{ border-left: 3px solid var(--must-fail); margin: 12px 0; padding: 2px 12px; }}
@media (max-width: 760px) {{
  .plots {{ grid-template-columns: 1fr; }}
  figure.wide {{ overflow-x: auto; }}
  figure.wide svg {{ max-width: none; width: 720px; }}
  figure.margins svg {{ width: 520px; }}
}}
"""


def write_page(report: LabReport, folder: Path, write: Callable[[str], object]) -> Path:
    """Write the page and the PNGs into `folder`; return the path of the page."""
    drawn = {one.where: list(_plots(one, folder, write)) for one in report.scenarios}
    path = folder / PAGE
    path.write_text(render_report(report, drawn, _margins(report, folder)), encoding="utf-8")
    return path


def render_report(report: LabReport, drawn: dict[str, list[str]], picture: str = "") -> str:
    """Return the page; `drawn` has the plots of each scenario, `picture` the margins of all."""
    body = [*_head(report), picture, *_links(report), *_overview(report)]
    for one in report.scenarios:
        body += _section(one, drawn.get(one.where, []))
    return render_page("Sluicegate lab report", body, _STYLE, inline_styles=True)


def _head(report: LabReport) -> Iterator[str]:
    holding = sum(one.holds() for one in report.scenarios)
    seeds = report.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    yield "<h1>Sluicegate lab report</h1>"
    yield (
        f"<p>{holding} of {len(report.scenarios)} claims hold: ours meets every goal with the "
        "worst of its seeds, and whoever must fail does.</p>"
    )
    yield quiet(
        f"{which}; run in {format_time_left(int(report.wall_s * 1e6))} by "
        f"{report.jobs} process{'' if report.jobs == 1 else 'es'}; {utc_text(report.at_us)}; "
        f"sluicegate {escape(__version__)}, Python {platform.python_version()}, "
        f"{escape(platform.machine())}. The same seed gives the same run to the byte."
    )


def _links(report: LabReport) -> Iterator[str]:
    """A link to each section, with a mark for whether the claim holds."""
    yield "<nav>"
    for one in report.scenarios:
        kind, mark = ("met", "&#10003;") if one.holds() else ("missed", "&#10007;")
        yield (
            f'<a href="#{slug(one.scenario.name)}"><span class="{kind}">{mark}</span>&nbsp;'
            f"{one.scenario.number}&nbsp;{escape(one.scenario.name)}</a>"
        )
    yield "</nav>"


def _margins(report: LabReport, folder: Path) -> str:
    """The picture that the page opens with: every claim, and how far it is from its bound."""
    rows = []
    for one in report.scenarios:
        ours = one.margin(one.scenario.ours)
        if ours is None:
            continue
        found = [one.margin(name) for name in one.scenario.must_fail]
        failing = [margin.used for margin in found if margin is not None]
        rows.append(plots.MarginRow(one.scenario.name, ours.used, failing))
    if not rows:
        return ""
    (folder / "margins.png").write_bytes(png(plots.draw_margins(rows)))
    drawn = svg(plots.draw_margins(rows), "margins", _MARGINS_TITLE)
    words = "a dot is ours, a cross whoever must fail; left of the line a goal is met"
    caption = f"<figcaption>{_MARGINS_TITLE}<span>{words}</span></figcaption>"
    return f'<figure class="wide margins">{caption}{drawn}</figure>'


def _overview(report: LabReport) -> Iterator[str]:
    """A row for each claim: its tightest goal, what ours leaves of it, and who must fail."""
    rows = []
    for one in report.scenarios:
        scenario = one.scenario
        link = (
            f'<a href="#{slug(scenario.name)}">{scenario.number}&ensp;{escape(scenario.name)}</a>'
        )
        margin = one.margin(scenario.ours)
        if margin is None:
            continue
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
    words = ("Claim", "Its tightest goal")
    numbers = ("Bound", "Worst", "Margin", "Seeds that hold", "Goals met")
    heads = [f"<th>{word}</th>" for word in words]
    heads += [f"<th class=number>{word}</th>" for word in numbers]
    lines = [row(*heads, "<th></th><th>Must fail</th>"), *rows]
    yield f'<div class="overview">{table([], [], lines)}'
    yield quiet(
        "The margin is what the worst run leaves of what the goal allows: of at most 60 ms, 45 ms "
        "leave 25%; of a share of at least 0.98, 0.995 leaves 75%. Every goal is in its section."
    )
    yield "</div>"


def _left(used: float) -> str:
    """The margin that is left, in percent; by how much it is missed otherwise."""
    if used <= 1:
        return f"{1 - used:.0%}"
    return f'<span class="missed">{format_number(used)} times what is allowed</span>'


def _section(one: ScenarioReport, drawn: list[str]) -> Iterator[str]:
    scenario = one.scenario
    yield f'<section id="{slug(scenario.name)}">'
    yield (
        f'<h2><span class="number">{scenario.number}</span>{escape(scenario.title)}'
        f"&ensp;{_mark(one.meets_goals(scenario.ours))}</h2>"
    )
    yield f"<p>{escape(scenario.why)}</p>"
    common, _ = describe_rigs(scenario.rigs)
    if common:
        yield quiet(escape(common))
    if scenario.limits:
        yield f'<p class="limits">Limit: {escape(scenario.limits)}</p>'
    if scenario.scale:
        yield quiet(f"Scale: {escape(scenario.scale)}")
    for setting, reason in scenario.own_settings.items():
        yield quiet(f"Own setting: {escape(setting)}: {escape(reason)}")
    yield f'<div class="plots">{"".join(drawn)}</div>'
    yield from _goals(one)
    yield from _all_candidates(one)
    yield from _commands(one)
    yield "</section>"


def _goals(one: ScenarioReport) -> Iterator[str]:
    """Goal by goal: ours as simulated, drills beside it, and who must fail."""
    scenario = one.scenario
    beside = [name for name in one.drills() if name != scenario.ours]
    failing = [name for name in scenario.must_fail if name in one.figures]
    names = [scenario.ours, *beside, *failing]
    columns = {name: one.judge(name) for name in names if any(one.figures[name].values())}
    heads = ["<th>Goal</th><th>Case</th><th class=number>Bound</th>"]
    for name in columns:
        mode = MODES.get(scenario.candidate(name).mode, scenario.candidate(name).mode)
        role = "must fail" if name in failing else mode
        heads.append(f"<th class=number>{escape(name)}<br>{escape(role)}</th>")
    rows = [row(*heads, "<th></th>")]
    _, own = describe_rigs(scenario.rigs)
    described = set()
    for ours in columns[scenario.ours]:
        case = escape(ours.case)
        if own[ours.case] and ours.case not in described:
            case += f' <span class="quiet">{escape(own[ours.case])}</span>'
        described.add(ours.case)
        cells = []
        for name, results in columns.items():
            found = next((r for r in results if r.case == ours.case and r.goal is ours.goal), None)
            cells.append(_number(_worst(found, mark=name != scenario.ours)))
        rows.append(
            row(
                cell(escape(ours.goal.figure)),
                cell(case),
                _number(_bound(ours, one)),
                *cells,
                cell(_mark(ours.met)),
            )
        )
    yield table([], [], rows)
    yield f"<p>{_must_fail_sentences(one)}</p>"


def _all_candidates(one: ScenarioReport) -> Iterator[str]:
    """The figures of all candidates, folded away."""
    scenario = one.scenario
    rows = []
    for case in scenario.rigs:
        for who, cases in one.figures.items():
            runs = list(cases[case].values())
            if not runs:
                continue
            cells = []
            for name in scenario.columns:
                values = [run[name] for run in runs if name in run]
                cells.append(format_number(sum(values) / len(values)) if values else "")
            name = f"<b>{escape(who)}</b>" if who == scenario.ours else escape(who)
            numbers = [*cells, str(len(runs)), _speed(one, who)]
            rows.append(row(cell(escape(case)), cell(name), *map(_number, numbers)))
    numbers = [*scenario.columns, "runs", "simulated\N{NO-BREAK SPACE}/ wall"]
    yield "<details><summary>All candidates: the mean of their seeds</summary>"
    yield table(["Case", "Candidate"], numbers, rows)
    yield "</details>"


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


def _plots(one: ScenarioReport, folder: Path, write: Callable[[str], object]) -> Iterator[str]:
    scenario = one.scenario
    data = plots.PlotData(one.figures, one.curves)
    for at, spec in enumerate(scenario.plots, 1):
        name = f"{slug(scenario.name)}-{at}"
        figure = plots.draw(scenario, spec, data, titled=True)
        if figure is None:
            write(f"{scenario.name}: nothing to draw of {spec.title!r}\n")
            continue
        (folder / f"{name}.png").write_bytes(png(figure))
        figure = plots.draw(scenario, spec, data, titled=False)
        assert figure is not None
        wide = figure.get_figwidth() * 72 > _WIDE_POINTS
        yield _plot(one, spec, data, svg(figure, name, spec.title), wide=wide)


def _plot(
    one: ScenarioReport, spec: PlotSpec, data: plots.PlotData, drawn: str, *, wide: bool
) -> str:
    missing = plots.left_out(one.scenario, spec, data)
    note = f"<span>not drawn: {escape(join_names(missing))}</span>" if missing else ""
    kind = ' class="wide"' if wide else ""
    return f"<figure{kind}><figcaption>{escape(spec.title)}{note}</figcaption>{drawn}</figure>"


def _must_fail_marks(one: ScenarioReport) -> str:
    """Who must fail, and a mark for whether it does."""
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


def _worst(result: GoalResult | None, *, mark: bool) -> str:
    if result is None:
        return ""
    text = format_number(result.worst)
    return f'<span class="missed">{text}</span>' if mark and not result.met else text


def _mark(met: bool) -> str:
    if met:
        return '<span class="met">&#10003; met</span>'
    return '<span class="missed">&#10007; MISSED</span>'


def _speed(one: ScenarioReport, candidate: str) -> str:
    """To two digits: a speed on a shared machine means no more."""
    speed = one.speed(candidate)
    return "" if speed is None else format_number(float(f"{speed:.2g}"))
