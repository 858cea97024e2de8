"""Lab: what can be run, what was, and two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from html import escape
from typing import Final

from sluicegate.apps.console.forms import button
from sluicegate.apps.console.lab_runs import DRILL, MET, SCENARIO, SEEDS_MAX, LabChoice, LabRun
from sluicegate.apps.console.pages.changes import lines_view
from sluicegate.command_line.page import cell, escape_name, number, quiet, row, section, table
from sluicegate.command_line.text import ago, printable

LINES_MAX: Final = 2_000


def lab(
    trials: Sequence[LabChoice], runs: Sequence[LabRun], mark: str, now_us: int, above: str
) -> dict[str, str]:
    """Return the form that starts one, and the runs that are kept."""
    options = ""
    for kind, label in ((SCENARIO, "Scenarios, on virtual time"), (DRILL, "Drills, real servers")):
        options += f'<optgroup label="{label}">' + "".join(
            f'<option value="{escape(f"{one.kind} {one.name}")}">'
            f"{escape_name(one.name)}: {escape_name(one.title)}</option>"
            for one in trials
            if one.kind == kind
        )
        options += "</optgroup>"
    form = (
        f'<form class="lines" method="post" action="/lab/start">{mark}'
        f'<label>Run <select name="trial">{options}</select></label>'
        '<div class="two"><label>First seed '
        '<input name="seed" value="0" inputmode="numeric" required></label>'
        f"<label>Seeds of a scenario, at most {SEEDS_MAX} "
        '<input name="seeds" value="1" inputmode="numeric" required></label></div>'
        "<button>Start</button></form>"
        + quiet(
            "It runs on the machine of this console, as a process of its own. A drill wants the "
            "machine for itself."
        )
    )
    return {
        "mistake": above,
        "form": form,
        "runs": section("Runs", _runs([*reversed(runs)], now_us)),
    }


def _runs(runs: Sequence[LabRun], now_us: int) -> str:
    if not runs:
        return quiet("None yet.")
    rows = [
        row(
            cell(f'<a href="/lab/run?id={one.number}">{one.number}: {escape(one.trial.name)}</a>'),
            cell(escape(one.trial.kind)),
            number(str(one.seed)),
            cell(escape_name(one.by), "name"),
            cell(ago(now_us - one.began_us)),
            _state(one),
        )
        for one in runs
    ]
    form = ""
    if len(runs) > 1:
        choices = "".join(
            f'<option value="{one.number}">{one.number}: {escape(one.trial.name)}</option>'
            for one in runs
        )
        form = (
            '<form class="act" action="/lab/compare">'
            f'<label>Compare <select name="id">{choices}</select></label>'
            f'<label>with <select name="other">{choices}</select></label>'
            "<button>Compare</button></form>"
        )
    heads = ("run", "is a", "seed", "by", "when", "state")
    return table(heads, (), rows) + form


def _state(one: LabRun) -> str:
    kind = "" if not one.ended else "good" if one.ended == MET else "bad"
    return cell(escape(one.ended or "runs"), kind)


def run(one: LabRun, mark: str) -> dict[str, str]:
    """Return a run, and the button that stops it."""
    about = quiet(
        f"{escape(one.trial.kind)} {escape_name(one.trial.name)} from seed {one.seed}: "
        f"{escape_name(one.trial.title)}"
    )
    stop = "" if one.ended else button("/lab/stop", "Stop", mark, {"id": str(one.number)})
    return {
        "about": about,
        "stop": stop,
        "output": output(one),
        "more": '<p><a href="/lab">All runs</a></p>',
    }


def output(one: LabRun) -> str:
    """Return what it has printed, and whether it has ended."""
    state = one.ended or "It runs."
    kind = "calm" if one.ended == MET else "alarm" if one.ended else "defending"
    ended = ' data-ended="yes"' if one.ended else ""
    lines = "\n".join(printable(line) for line in one.output.splitlines()[-LINES_MAX:])
    return (
        f'<p class="going-on {kind}"{ended} role="status">{escape(state)}</p>'
        f'<pre tabindex="0">{escape(lines)}</pre>'
    )


def compare(one: LabRun, other: LabRun) -> dict[str, str]:
    """Return what two runs have printed, as a difference and side by side."""
    named = [f"run {it.number}: {it.trial.name}, seed {it.seed}" for it in (one, other)]
    before, after = (it.output.splitlines()[-LINES_MAX:] for it in (one, other))
    diff = [*unified_diff(before, after, named[0], named[1], lineterm="")]
    both = "".join(
        f"<div><h2>{escape(name)}</h2>{output(it)}</div>"
        for name, it in zip(named, (one, other), strict=True)
    )
    same = "" if diff else quiet("They have printed the same.")
    return {
        "diff": section("What differs", lines_view(diff) if diff else same),
        "both": f'<div class="charts">{both}</div><p><a href="/lab">All runs</a></p>',
    }
