"""Why: the last decisions about a caller, of all services, with what led to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from sluicegate.command_line.decision_words import describe
from sluicegate.command_line.page import cell, escape_name, escape_words, quiet, row, table
from sluicegate.command_line.text import clip


class AuditAnswer(NamedTuple):
    """What one service says about a caller; or why it says nothing."""

    url: str
    decisions: Sequence[Mapping[str, Any]]
    error: str = ""


def why(caller: str, answers: Sequence[AuditAnswer], now_us: int) -> dict[str, str]:
    """Return the form, and what was found about `caller`, if one is asked for."""
    form = (
        '<form class="search" action="/why"><label for="caller">Caller</label>'
        f'<input id="caller" name="caller" value="{escape(caller)}" required '
        'placeholder="a caller of a dispatcher, a user_id of a limiter">'
        "<button>Ask</button></form>"
    )
    if not caller:
        return {"form": form}
    entries = [
        (int(entry.get("last_us", 0)), answer.url, entry)
        for answer in answers
        for entry in answer.decisions
    ]
    entries.sort(key=lambda one: -one[0])
    summary = _summary(caller, [entry for _, _, entry in entries])
    rows = [
        row(cell(escape_name(url), "name"), cell(escape_words(_words(entry, now_us))))
        for _, url, entry in entries
    ]
    errors = "".join(
        quiet(f"{escape_name(one.url)} does not say: {escape_words(one.error)}")
        for one in answers
        if one.error
    )
    if not rows:
        nothing = (
            f"Nothing is kept about {escape_name(caller)}: it did not ask, or newer decisions "
        )
        return {"form": form, "found": quiet(nothing + "took its place.") + errors}
    note = quiet("The newest come first. Limiters remember both, dispatchers refusals alone.")
    found = table(("service", "decision"), (), rows) + note + errors
    return {"form": form, "summary": summary, "found": found}


def _summary(caller: str, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence what is remembered about a caller, the most frequent reason first."""
    admitted, refused = 0, Counter[str]()
    for entry in entries:
        times = entry.get("times", 1)
        count = times if isinstance(times, int) else 1
        if entry.get("allowed"):
            admitted += count
        else:
            refused[str(entry.get("reason") or "refused")] += count
    if not entries:
        return ""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in refused.most_common())
    what = f"{refused.total():,} refused ({reasons})" if refused else "none refused"
    if admitted:  # which dispatchers do not remember, so "none" would often be wrong
        what += f", {admitted:,} admitted"
    words = f"Remembered about {clip(caller)}: {what}."
    kind = "defending" if refused else "calm"
    return f'<p class="going-on {kind}">{escape_words(words)}</p>'


def _words(entry: Mapping[str, Any], now_us: int) -> str:
    try:
        return describe(dict(entry), now_us)
    except (KeyError, TypeError, ValueError):
        return "this decision cannot be read: the service has another version"
