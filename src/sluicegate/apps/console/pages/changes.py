"""Changes: what is live, what wants to be, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from sluicegate.apps.console.forms import button, text_field
from sluicegate.command_line.page import (
    cell,
    escape_name,
    escape_words,
    number,
    quiet,
    row,
    section,
    table,
)
from sluicegate.command_line.text import ago, count, counted, duration, percent, printable
from sluicegate.contracts.rulebook import (
    APPROVED,
    CANARY,
    FAILED,
    LIVE,
    OPEN,
    PASSED,
    REJECTED,
)
from sluicegate.wire.timestamps import rfc3339, utc_text

NODES_MAX: Final = 50
LINES_MAX: Final = 2_000
WORDS_MAX: Final = 300
_SHARES: Final = (100, 500, 2_500, 5_000, 10_000)
_GOOD: Final = frozenset({LIVE, PASSED, APPROVED})
_BAD: Final = frozenset({REJECTED, FAILED})


def proposal_path(proposal: str) -> str:
    """Return where a proposal is shown."""
    return f"/changes/proposal?id={quote(proposal, safe='')}"


def changes(
    status: Mapping[str, Any],
    proposals: Sequence[Mapping[str, Any]],
    files: Sequence[Mapping[str, Any]],
    *,
    may_change: bool,
) -> dict[str, str]:
    """Return the parts of the first page: what runs, files to edit, the latest proposals."""
    now_us = int(status.get("at_us", 0))
    shown = [
        row(
            cell(
                f'<a href="/changes/edit?file={escape(quote(str(one["name"]), safe=""))}">'
                f"{escape_name(str(one['name']))}</a>"
                if may_change
                else escape_name(str(one["name"])),
                "name",
            ),
            cell(escape_name(str(one.get("format") or "cannot be read"))),
            number(f"{int(one.get('rules') or 0):,}"),
        )
        for one in files
    ]
    return {
        "running": running(status),
        "files": section("Rules files", table(("file", "format"), ("rules",), shown)),
        "proposals": section("Proposals", _proposals(proposals, now_us)),
    }


def running(status: Mapping[str, Any]) -> str:
    """Return what is live, what is on trial, and how far the nodes are."""
    live, canary = status.get("live"), status.get("canary")
    parts = ['<p class="going-on calm">Nothing is live yet.</p>']
    if live:
        state = "defending" if canary else "calm"
        words = (
            f"Release {int(live['version']):,} is live, by {escape_name(str(live['by']))}: "
            f"{_clipped(live.get('why'))}{_canary(canary, int(status.get('at_us', 0)))}"
        )
        parts = [f'<p class="going-on {state}" role="status">{words}</p>']
    for name, why in (status.get("troubles") or {}).items():
        parts.append(f'<p class="bad">{escape_name(str(name))}: {_clipped(why)}</p>')
    nodes = status.get("nodes") or []
    versions = status.get("versions") or {}
    said = ", ".join(
        f"{counted(count, 'node')} on release {escape_name(version)}"
        for version, count in versions.items()
    )
    parts.append(quiet(said or "No node has reported yet."))
    rows = [
        row(
            cell(escape_name(str(one["node"])), "name"),
            cell(
                escape_words(_cut(one.get("trouble"))) or ("silent" if one.get("stale") else "ok"),
                "bad" if one.get("trouble") or one.get("stale") else "good",
            ),
            number(str(one.get("version") or "-")),
            number(str(one.get("canary") or "-")),
            number(str(one.get("behind", "-")), bad=bool(one.get("behind"))),
            number(duration(one.get("took_us"))),
        )
        for one in nodes[:NODES_MAX]
    ]
    if rows:
        heads = ("release", "canary", "rollouts behind", "to the swap")
        parts.append(table(("node", "is"), heads, rows))
        if len(nodes) > NODES_MAX:
            parts.append(quiet(f"and {counted(len(nodes) - NODES_MAX, 'node')} more"))
    return "".join(parts)


def _canary(canary: Mapping[str, Any] | None, now_us: int) -> str:
    if not canary:
        return ""
    share = int(canary["share"]) / 100
    since = ago(now_us - int(canary.get("since_us", now_us)))
    return (
        f". Release {int(canary['version']):,} is on trial for {share:g}% of "
        f"{escape_name(str(canary['by']))} since {since}: "
        f'<a href="{escape(proposal_path(str(canary["proposal"])))}">the proposal</a>.'
        f' <meter min="0" max="100" value="{share:g}" aria-label="share on trial"></meter>'
    )


def _proposals(several: Sequence[Mapping[str, Any]], now_us: int) -> str:
    rows = [
        row(
            cell(
                f'<a href="{escape(proposal_path(str(one["id"])))}">{_clipped(one["message"])}</a>'
            ),
            cell(escape_name(str(one["proposer"])), "name"),
            _state(str(one["state"])),
            _state(str(one.get("judged", ""))),
            cell(ago(now_us - int(one.get("at_us", 0)))),
        )
        for one in several
    ]
    heads = ("proposal", "by", "state", "captured traffic", "when")
    return table(heads, (), rows) if rows else quiet("There are none.")


def _state(name: str) -> str:
    return cell(escape_name(name), "good" if name in _GOOD else "bad" if name in _BAD else "")


def proposal(
    one: Mapping[str, Any],
    diff: Mapping[str, Any] | str,
    status: Mapping[str, Any],
    mark: str,
    *,
    may_change: bool,
) -> dict[str, str]:
    """Return the parts of the page of a proposal."""
    verdict: Mapping[str, Any] = one.get("verdict") or {}
    result = str(verdict.get("result") or one.get("judged") or "not judged")
    kind = "calm" if result == PASSED else "alarm" if result == FAILED else "defending"
    report = ""
    if verdict.get("report"):
        there = f"/changes/report?id={quote(str(one['id']), safe='')}"
        report = f' <a href="{escape(there)}">The report, with its charts</a>'
    parts = {
        "about": (
            f"<h2>{_clipped(one['message'])}</h2>"
            + quiet(
                f"{escape_name(str(one['id'])[:12])}, proposed by "
                f"{escape_name(str(one['proposer']))}; it is <b>{escape(str(one['state']))}</b>"
            )
            + (f"<p>{_clipped(one['reason'])}</p>" if one.get("reason") else "")
        ),
        "verdict": (
            f'<p class="going-on {kind}">On captured traffic: {escape(result)}. '
            f"{_clipped(verdict.get('sentence'))}{report}</p>"
            + _newly_refused(verdict.get("newly_refused") or ())
        ),
        "progress": running(status) if one["state"] in (CANARY, LIVE) else "",
    }
    if may_change:
        parts["actions"] = section("What to do", *_actions(one, mark))
    parts["diff"] = section("What changes", diff_view(diff))
    parts["history"] = section(
        "History", timeline(one.get("history") or (), int(status.get("at_us", 0)))
    )
    return parts


def _newly_refused(classes: Sequence[Mapping[str, Any]]) -> str:
    """Return what of each class only the proposal refuses."""
    if not classes:
        return quiet("Newly refused by class: unknown, since no traffic was replayed.")
    rows = [
        row(
            cell(escape_name(str(one["class"])), "name"),
            number(count(one["requests"])),
            number(count(one["newly_refused"]), bad=bool(one["newly_refused"])),
            number(percent(one["share"])),
        )
        for one in classes
    ]
    return table(("class",), ("requests", "newly refused", "share"), rows)


def _actions(one: Mapping[str, Any], mark: str) -> list[str]:
    state, fields = one["state"], {"id": str(one["id"])}
    act = "/changes/act"
    reject = button(
        act, "Turn down", mark, {**fields, "what": "reject"}, text_field("reason", "Why")
    )
    found = []
    if state == OPEN or (state == REJECTED and one.get("judged") == FAILED):
        passed = one.get("judged") == PASSED
        why = text_field(
            "override",
            "Why, although the captured traffic does not say yes" if not passed else "Why",
            required=not passed,
        )
        found = [
            button(act, "Approve", mark, {**fields, "what": "approve"}, why),
            *([reject] if state == OPEN else []),
            button(act, "Judge again", mark, {**fields, "what": "judge"}),
            quiet("Somebody else than the proposer approves, unless the rulebook allows it."),
        ]
    elif state == APPROVED:
        found = [
            button(act, "Publish to all", mark, {**fields, "what": "publish"}),
            _share(act, "Begin a canary", mark, fields, 0),
            reject,
        ]
    elif state == CANARY:
        found = [
            _share(act, "Widen the canary", mark, fields, int(one.get("share") or 0)),
            button(act, "Take the canary back", mark, {**fields, "what": "canary", "share": "0"}),
        ]
    return found or [
        quiet('Nothing: it is over. <a href="/changes/history">History</a> rolls back.')
    ]


def _share(act: str, label: str, mark: str, fields: Mapping[str, str], least: int) -> str:
    options = "".join(
        f'<option value="{share}">{share / 100:g}% of callers</option>'
        for share in _SHARES
        if share > least
    )
    inside = f'<label>For <select name="share">{options}</select></label>'
    return button(act, label, mark, {**fields, "what": "canary"}, inside)


def diff_view(diff: Mapping[str, Any] | str) -> str:
    """Return a difference of revisions, by rules and by lines; or why there is none to show."""
    if isinstance(diff, str):
        return quiet(escape_words(diff))
    rules = diff.get("rules") or {}
    words = [
        f"{kind} ({len(rules[kind]):,}): "
        + ", ".join(escape_name(str(name)) for name in rules[kind][:20])
        for kind in ("added", "removed", "changed")
        if rules.get(kind)
    ]
    parts = [f"<p>Rules {'; '.join(words)}.</p>" if words else ""]
    for file in diff.get("files") or ():
        lines = file.get("lines") or ()
        parts.append(f"<h3>{escape_name(str(file.get('name')))}</h3>" + lines_view(lines))
    return "".join(parts) or quiet("Nothing.")


def lines_view(lines: Sequence[str]) -> str:
    """Return a unified diff, its lines in colours that are not all that tells them apart."""
    shown = "".join(
        f'<span class="{_line_kind(line)}">{_file_line(line)}</span>\n'
        for line in lines[:LINES_MAX]
    )
    return f'<pre class="diff" tabindex="0">{shown}</pre>'


def _line_kind(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "at"
    return {"+": "plus", "-": "minus"}.get(line[:1], "same")


def _file_line(line: str) -> str:
    """Return a line of a file: what would turn the direction of writing is shown as an escape."""
    return escape(printable(line.replace("\t", "    ")[:WORDS_MAX]))


def history(
    versions: Sequence[Mapping[str, Any]],
    audit: Sequence[Mapping[str, Any]],
    now_us: int,
    mark: str,
    *,
    may_change: bool,
) -> dict[str, str]:
    """Return the releases, each with the way back to it, and the audit as a timeline."""
    rows = []
    for one in versions:
        number_ = int(one["version"])
        back = "live" if one.get("live") else "on trial" if one.get("canary") else ""
        if may_change and not back:
            back = button(
                "/changes/rollback",
                f"Roll back to {number_}",
                mark,
                {"to": str(number_)},
                text_field("reason", "Why"),
            )
        rows.append(
            row(
                cell(f"{number_:,}"),
                cell(back, "good" if one.get("live") else ""),
                cell(escape_name(str(one.get("by"))), "name"),
                cell(_clipped(one.get("why"))),
                cell(ago(now_us - int(one.get("at_us", now_us)))),
            )
        )
    heads = ("release", "", "by", "why", "when")
    return {
        "releases": section("Releases", table(heads, (), rows) if rows else quiet("None yet.")),
        "audit": section("Audit", timeline(audit, now_us)),
    }


class RuleStory(NamedTuple):
    """What releases did to a rule: of those `compared`, the newest first, those that changed it.

    `older` and `newer` are the releases before which the pages beside this one begin; 0: none.
    """

    name: str
    found: Sequence[tuple[str, Mapping[str, Any]]]
    compared: Sequence[int]
    older: int
    newer: int


def rule_history(story: RuleStory, now_us: int) -> dict[str, str]:
    """Return the releases in which a rule was added, changed or removed, the newest first."""
    name, found, compared = story.name, story.found, story.compared
    rows = [
        row(
            cell(f"{int(one['version']):,}"),
            cell(escape(kind)),
            cell(escape_name(str(one.get("by"))), "name"),
            cell(_clipped(one.get("why"))),
            cell(ago(now_us - int(one.get("at_us", now_us)))),
        )
        for kind, one in found
    ]
    shown = table(("release", "it was", "by", "why", "when"), (), rows)
    if not compared:
        span = "There are no releases here."
    else:
        span = f"Releases {compared[-1]:,} to {compared[0]:,}" + (
            ":" if rows else " have not changed it."
        )
    rule = escape(quote(name, safe="", errors="replace"))
    links = [f'<a href="/rules?rule={rule}">What it counts now</a>']
    for words, before in (("Older releases", story.older), ("Newer releases", story.newer)):
        if before:
            links.append(f'<a href="/changes/rule?rule={rule}&amp;before={before}">{words}</a>')
    return {
        "about": f"<h2>{escape_name(name)}</h2>",
        "releases": quiet(span) + (shown if rows else "") + f"<p>{' '.join(links)}</p>",
    }


def timeline(several: Sequence[Mapping[str, Any]], now_us: int = 0) -> str:
    """Return who did what when, in order."""
    items = []
    for one in several:
        what = str(one.get("sentence") or f"{one.get('by')}: {one.get('what')}")
        why = f" <q>{_clipped(one['why'])}</q>" if one.get("why") else ""
        at_us = int(one.get("at_us", 0))
        when = ago(now_us - at_us) if now_us else ""
        no = one.get("result") == "refused" or str(one.get("what")).endswith(tuple(_BAD))
        kind = "refused" if no else "done"
        items.append(
            f'<li class="{kind}"><time datetime="{_instant(at_us)}" title="{utc_text(at_us)}">'
            f"{when or utc_text(at_us)}</time> {_clipped(what)}{why}</li>"
        )
    return f'<ol class="timeline">{"".join(items)}</ol>' if items else quiet("Nothing yet.")


def _instant(at_us: int) -> str:
    return rfc3339(at_us - at_us % 1_000_000)


def _cut(words: object) -> str:
    text = "" if words is None else str(words)
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]}..."


def _clipped(words: object) -> str:
    return escape_words(_cut(words))


def sign_in(next_path: str, mistake: str, url: str) -> dict[str, str]:
    """Return the form that asks for a token of the rulebook."""
    wrong = f'<p class="bad" role="alert">{escape_words(mistake)}</p>' if mistake else ""
    return {
        "form": wrong
        + '<form class="search" method="post" action="/changes/sign-in">'
        + f'<input type="hidden" name="next" value="{escape(next_path)}">'
        + '<label for="token">Token of the rulebook</label>'
        + '<input id="token" name="token" type="password" autocomplete="current-password" '
        + "autofocus required><button>Sign in</button></form>"
        + quiet(
            f"The rulebook at {escape_name(url)} decides what you may do; the console shows it "
            "your token and has none of its own."
        )
    }


def mistake(words: str) -> str:
    """Return what went wrong, in words that say what to do."""
    return f'<p class="going-on alarm" role="alert">{escape_words(_cut(words))}</p>'
