"""LabReport, its page: one HTML file that needs nothing else, and the same pictures as PNG.

Pictures stand in it as SVG, their colours are the page's, so it turns dark where its reader's
screen is. There is no script and no address in it; it can be mailed, kept, printed.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Final

from sluicegate import __version__
from sluicegate.lab import plots
from sluicegate.lab.goals import GoalResult
from sluicegate.lab.plots_style import DARK, LIGHT, png, svg
from sluicegate.lab.report.results import LabReport, ScenarioReport
from sluicegate.lab.report.text import MODES, describe_rigs, format_instant
from sluicegate.lab.scenario import PlotSpec, repeat_command
from sluicegate.lab.text import format_number, format_time_left, join_names, slug

PAGE: Final = "report.html"
_WIDE_POINTS: Final = 600  # a picture of more than one panel

_STYLE: Final = """
:root { color-scheme: light dark; --font: system-ui, -apple-system, "Segoe UI", sans-serif;
  --good: #1a7f4b; --soft: #f5f6f8; LIGHT }
@media (prefers-color-scheme: dark) { :root { --good: #56c98d; --soft: #1d2126; DARK } }
* { box-sizing: border-box; }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 var(--font); margin: 0; }
main { margin: 0 auto; max-width: 1120px; padding: 32px 24px 64px; }
h1 { font-size: 26px; letter-spacing: -0.01em; margin: 0 0 4px; }
h2 { font-size: 19px; letter-spacing: -0.01em; margin: 0; }
h2 .number { color: var(--muted); font-weight: 400; margin-right: 6px; }
h3 { font-size: 14px; margin: 24px 0 4px; }
p { margin: 4px 0; max-width: 78ch; }
a { color: inherit; text-decoration-color: var(--muted); text-underline-offset: 2px; }
.quiet { color: var(--muted); }
.met { color: var(--good); white-space: nowrap; }
.missed { color: var(--must-fail); font-weight: 600; white-space: nowrap; }
nav { display: flex; flex-wrap: wrap; gap: 6px; margin: 16px 0 20px; }
nav a { background: var(--soft); border-radius: 5px; font-size: 13px; padding: 2px 9px;
  text-decoration: none; }
section { border-top: 1px solid var(--grid); margin-top: 40px; padding-top: 24px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums;
  margin: 12px 0; }
.scroll { overflow-x: auto; }
th { color: var(--muted); font-weight: 500; text-align: left; }
th, td { border-bottom: 1px solid var(--grid); padding: 4px 18px 4px 0; vertical-align: top; }
td.figure { text-align: right; white-space: nowrap; }
th.figure { text-align: right; }
tr.head td { border-bottom: none; padding-top: 14px; }
tr.head b { font-weight: 600; }
table.overview { width: 100%; }
.plots { display: grid; gap: 20px 32px; grid-template-columns: 1fr 1fr; margin-top: 16px; }
figure { margin: 0; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure.wide svg { max-width: 100%; }
figcaption { font-size: 14px; font-weight: 600; }
figcaption span { color: var(--muted); display: block; font-size: 12.5px; font-weight: 400; }
svg { display: block; stroke-linejoin: round; height: auto; margin-top: 4px; width: 100%; }
pre { background: var(--soft); border-radius: 6px; font-size: 12.5px; margin: 8px 0;
  overflow-x: auto; padding: 10px 12px; }
summary { color: var(--muted); cursor: pointer; font-size: 13.5px; margin-top: 16px; }
.limits { border-left: 3px solid var(--must-fail); margin: 12px 0; padding: 2px 12px; }
@media (max-width: 760px) { .plots { grid-template-columns: 1fr; } }
@media print { section { break-inside: avoid; } }
"""


def write_page(report: LabReport, folder: Path, write: Callable[[str], object]) -> Path:
    """The page and the PNGs, into `folder`; the path of the page."""
    drawn = {played.where: list(_pictures(played, folder, write)) for played in report.scenarios}
    page = folder / PAGE
    page.write_text(html(report, drawn), encoding="utf-8")
    return page


def html(report: LabReport, drawn: dict[str, list[str]]) -> str:
    """The page; `drawn` has the pictures of each scenario."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Sluicegate lab report</title><style>{_styled()}</style></head><body><main>",
        *_head(report),
        *_index(report),
        *_overview(report),
    ]
    for played in report.scenarios:
        parts += _section(played, drawn.get(played.where, []))
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _styled() -> str:
    light, dark = (
        "; ".join(f"--{name}: {colour}" for name, colour in theme.items())
        for theme in (LIGHT, DARK)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark)


def _head(report: LabReport) -> Iterator[str]:
    kept = sum(played.holds() for played in report.scenarios)
    seeds = report.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    yield "<h1>Sluicegate lab report</h1>"
    yield (
        f"<p>{kept} of {len(report.scenarios)} claims hold: ours meets every goal with the "
        "worst of its seeds, and whoever must fail does.</p>"
    )
    yield (
        f'<p class="quiet">{which}; played in {format_time_left(int(report.wall_s * 1e6))} by '
        f"{report.jobs} process{'' if report.jobs == 1 else 'es'}; {format_instant(report.at_us)}; "
        f"sluicegate {escape(__version__)}, Python {platform.python_version()}, "
        f"{escape(platform.machine())}. The same seed gives the same run to the byte.</p>"
    )


def _index(report: LabReport) -> Iterator[str]:
    """Every claim as a mark and a name, to be taken in at a glance."""
    yield "<nav>"
    for played in report.scenarios:
        scenario = played.scenario
        kind, mark = ("met", "&#10003;") if played.holds() else ("missed", "&#10007;")
        yield (
            f'<a href="#{slug(scenario.name)}"><span class="{kind}">{mark}</span>&nbsp;'
            f"{scenario.number}&nbsp;{escape(scenario.name)}</a>"
        )
    yield "</nav>"


def _overview(report: LabReport) -> Iterator[str]:
    """Every claim, its rig and its acceptance figures, in one table."""
    yield '<div class="scroll"><table class="overview">'
    yield (
        "<tr><th>Claim and goals</th><th>Case</th><th class=figure>Goal</th>"
        "<th class=figure>Worst</th><th></th><th>Must fail</th>"
        "<th class=figure>Simulated&nbsp;/ wall</th></tr>"
    )
    for played in report.scenarios:
        scenario = played.scenario
        common, own = describe_rigs(scenario.rigs)
        speed = played.speed(scenario.ours)
        shown_speed = "" if speed is None else f"{format_number(_short(speed))} s/s"
        yield (
            f'<tr class="head"><td colspan="5"><a href="#{slug(scenario.name)}"><b>'
            f"{scenario.number}&ensp;{escape(scenario.title)}</b></a>"
            f'<br><span class="quiet">{escape(common)}</span></td>'
            f"<td>{_must_fail(played)}</td><td class=figure>{shown_speed}</td></tr>"
        )
        told = set()
        for finding in played.judge(scenario.ours):
            case = escape(finding.case)
            if own[finding.case] and finding.case not in told:
                case += f' <span class="quiet">{escape(own[finding.case])}</span>'
            told.add(finding.case)
            yield (
                f"<tr><td>{escape(finding.goal.figure)}</td><td>{case}</td>"
                f"<td class=figure>{_bound(finding, played)}</td>"
                f"<td class=figure>{format_number(finding.worst)}</td>"
                f"<td>{_mark(finding.met)}</td><td></td><td></td></tr>"
            )
    yield "</table></div>"


def _section(played: ScenarioReport, pictures: list[str]) -> Iterator[str]:
    scenario = played.scenario
    mark = _mark(played.meets_goals(scenario.ours))
    yield f'<section id="{slug(scenario.name)}">'
    yield (
        f'<h2><span class="number">{scenario.number}</span>{escape(scenario.title)}'
        f"&ensp;{mark}</h2>"
    )
    yield f"<p>{escape(scenario.why)}</p>"
    if scenario.limits:
        yield f'<p class="limits">Limit: {escape(scenario.limits)}</p>'
    if scenario.scale:
        yield f'<p class="quiet">Scale: {escape(scenario.scale)}</p>'
    yield '<div class="pictures">'
    yield from pictures
    yield "</div>"
    yield from _goals(played)
    yield from _everyone(played)
    yield from _commands(played)
    yield "</section>"


def _goals(played: ScenarioReport) -> Iterator[str]:
    """Goal by goal: ours as simulated, drills beside it, and who must fail."""
    scenario = played.scenario
    beside = [name for name in played.drills() if name != scenario.ours]
    failing = [name for name in scenario.must_fail if name in played.figures]
    names = [scenario.ours, *beside, *failing]
    columns = {name: played.judge(name) for name in names if any(played.figures[name].values())}
    yield '<div class="scroll"><table><tr><th>Goal</th><th>Case</th><th class=figure>Bound</th>'
    for name in columns:
        mode = MODES.get(scenario.candidate(name).mode, scenario.candidate(name).mode)
        role = "must fail" if name in failing else mode
        yield f"<th class=figure>{escape(name)}<br>{escape(role)}</th>"
    yield "<th></th></tr>"
    rows = [(finding.case, finding.goal) for finding in played.judge(scenario.ours)]
    for at, (case, goal) in enumerate(rows):
        ours = columns[scenario.ours][at]
        yield (
            f"<tr><td>{escape(goal.figure)}</td><td>{escape(case)}</td>"
            f"<td class=figure>{_bound(ours, played)}</td>"
        )
        for name, findings in columns.items():
            found = next((f for f in findings if f.case == case and f.goal is goal), None)
            yield f"<td class=figure>{_worst(found, mark=name != scenario.ours)}</td>"
        yield f"<td>{_mark(ours.met)}</td></tr>"
    yield "</table></div>"
    yield f"<p>{_must_fail_words(played)}</p>"


def _everyone(played: ScenarioReport) -> Iterator[str]:
    """The figures of all who contend, folded away."""
    scenario = played.scenario
    shown = scenario.columns
    yield "<details><summary>All candidates: the mean of their seeds</summary>"
    yield '<div class="scroll"><table><tr><th>Case</th><th>Candidate</th>'
    yield "".join(f"<th class=figure>{escape(name)}</th>" for name in shown)
    yield "<th class=figure>runs</th><th class=figure>simulated&nbsp;/ wall</th></tr>"
    for case in scenario.rigs:
        for who, cases in played.figures.items():
            runs = list(cases[case].values())
            if not runs:
                continue
            cells = []
            for name in shown:
                values = [found[name] for found in runs if name in found]
                mean = format_number(sum(values) / len(values)) if values else ""
                cells.append(f"<td class=figure>{mean}</td>")
            speed = played.speed(who)
            told = "" if speed is None else format_number(_short(speed))
            name = f"<b>{escape(who)}</b>" if who == scenario.ours else escape(who)
            yield (
                f"<tr><td>{escape(case)}</td><td>{name}</td>{''.join(cells)}"
                f"<td class=figure>{len(runs)}</td><td class=figure>{told}</td></tr>"
            )
    yield "</table></div></details>"


def _commands(played: ScenarioReport) -> Iterator[str]:
    scenario = played.scenario
    name = played.where if played.where.endswith(".py") else scenario.name
    lines = [
        f"sluicegate lab run {name}",
        f"sluicegate lab compare {name} --with {','.join(scenario.must_fail)}",
    ]
    for finding in played.judge(scenario.ours):
        if not finding.met:
            lines.append(  # noqa: PERF401 - a comprehension of this length is no help
                repeat_command(
                    scenario, scenario.ours, finding.case, finding.seed, where=played.where
                )
            )
    yield f"<pre>{escape(chr(10).join(lines))}</pre>"


def _pictures(
    played: ScenarioReport, folder: Path, write: Callable[[str], object]
) -> Iterator[str]:
    scenario = played.scenario
    seen = plots.PlotData(played.figures, played.curves)
    for at, picture in enumerate(scenario.plots, 1):
        name = f"{slug(scenario.name)}-{at}"
        figure = plots.draw(scenario, picture, seen, titled=True)
        if figure is None:
            write(f"{scenario.name}: nothing to draw of {picture.title!r}\n")
            continue
        (folder / f"{name}.png").write_bytes(png(figure))
        figure = plots.draw(scenario, picture, seen, titled=False)
        assert figure is not None
        wide = figure.get_figwidth() * 72 > _WIDE_POINTS
        yield _picture(played, picture, seen, svg(figure, name, picture.title), wide=wide)


def _picture(
    played: ScenarioReport, picture: PlotSpec, seen: plots.PlotData, drawn: str, *, wide: bool
) -> str:
    missing = plots.left_out(played.scenario, picture, seen)
    note = f"<span>not drawn: {escape(join_names(missing))}</span>" if missing else ""
    kind = ' class="wide"' if wide else ""
    return f"<figure{kind}><figcaption>{escape(picture.title)}{note}</figcaption>{drawn}</figure>"


def _must_fail(played: ScenarioReport) -> str:
    """Who must fail, and a mark for whether it does."""
    marks = []
    for name in played.scenario.must_fail:
        fails = not played.meets_goals(name)
        marks.append(f"{escape(name)} {'<span class=met>fails</span>' if fails else _mark(False)}")
    return "<br>".join(marks)


def _must_fail_words(played: ScenarioReport) -> str:
    told = []
    for name in played.scenario.must_fail:
        findings = played.judge(name)
        missed = sum(not finding.met for finding in findings)
        if missed:
            told.append(f"{escape(name)} must fail: it misses {missed} of {len(findings)} goals.")
        else:
            told.append(
                f'<span class="missed">{escape(name)} must fail, and meets every goal: '
                "the scenario proves nothing.</span>"
            )
    return " ".join(told)


def _bound(finding: GoalResult, played: ScenarioReport) -> str:
    bound = finding.goal.bound(played.scenario.rigs[finding.case])
    sign = "&le;" if finding.goal.at_least is None else "&ge;"
    return f"{sign}&nbsp;{format_number(bound)}"


def _worst(finding: GoalResult | None, *, mark: bool) -> str:
    if finding is None:
        return ""
    text = format_number(finding.worst)
    if mark and not finding.met:
        return f'<span class="missed">{text}</span>'
    return text


def _mark(met: bool) -> str:
    return (
        '<span class="met">&#10003; met</span>'
        if met
        else '<span class="missed">&#10007; MISSED</span>'
    )


def _short(value: float) -> float:
    """To two digits: a speed on a shared machine means no more."""
    return float(f"{value:.2g}")
