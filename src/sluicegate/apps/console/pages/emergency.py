"""Emergency: what is not enforced just now, and the form that stops enforcement."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from sluicegate.apps.console.forms import button, text_field
from sluicegate.apps.console.pages.changes import timeline
from sluicegate.command_line.page import cell, escape_name, escape_words, quiet, row, section, table
from sluicegate.command_line.text import duration
from sluicegate.limits.glass.break_glass import GlassView, Opening
from sluicegate.limits.glass.page import AuditEntry, UnreadableLine

_MINUTES: Final = (5, 15, 30, 60, 120)


def stopped_words(words: str) -> str:
    """Return what went wrong."""
    return f'<p class="going-on alarm" role="alert">{escape_words(words)}</p>'


def emergency(
    view: GlassView,
    audit: Sequence[AuditEntry | UnreadableLine],
    mark: str,
    name: str,
    mistake: str,
) -> dict[str, str]:
    """Return the parts of the page; without a mark there are no forms."""
    rows = [_row(one, view.now_us, mark, name) for one in view.openings]
    if view.damage:
        state = stopped_words(f"Everything is enforced, since {view.damage}")
    elif rows:
        state = '<p class="going-on alarm" role="status">Limits are not enforced everywhere.</p>'
        state += table(("not enforced", "for", "by", "why", ""), (), rows)
    else:
        state = '<p class="going-on calm" role="status">Every limit is enforced.</p>'
    parts = {"mistake": stopped_words(mistake) if mistake else "", "state": state}
    parts["form"] = section("Stop enforcement", _form(mark, name)) if mark else ""
    parts["audit"] = section("Audit", timeline([_entry(one) for one in reversed(audit)]))
    return parts


def _form(mark: str, name: str) -> str:
    options = "".join(
        f'<option value="{minutes}"{" selected" if minutes == 15 else ""}>'
        f"{minutes} minutes</option>"
        for minutes in _MINUTES
    )
    who = "" if name else text_field("by", "Who you are")
    return (
        f'<form class="lines" method="post" action="/emergency/break">{mark}'
        + text_field("rule", "Rule; empty for every rule", required=False)
        + text_field("key", "Key or caller; empty for every key", required=False)
        + '<label class="tick"><input type="checkbox" name="all" value="yes"> '
        "Every rule for every key, if both are empty</label>"
        f'<label>For <select name="minutes">{options}</select></label>'
        + who
        + text_field("why", "Why; the audit keeps it")
        + '<button class="danger">Stop enforcement</button></form>'
        + quiet(
            "It ends by itself, even if this console is gone. Limiters, dispatchers and "
            "applications that follow the same glass store (--glass, Limiter(glass=...)) obey "
            "within two seconds; what protects a service from overload stays."
        )
    )


def _row(one: Opening, now_us: int, mark: str, name: str) -> str:
    end = ""
    if mark:
        who = "" if name else text_field("by", "Who you are")
        end = button("/emergency/mend", "Enforce again", mark, {"id": one.id}, who)
    return row(
        cell(escape_words(one.about()), "name"),
        cell(escape(duration(one.until_us - now_us))),
        cell(escape_name(one.by), "name"),
        cell(escape_words(one.why), "name"),
        cell(end),
    )


def _entry(one: AuditEntry | UnreadableLine) -> dict[str, object]:
    if isinstance(one, UnreadableLine):
        return {"sentence": f"a line that cannot be read: {one.text}"}
    about = "what could not be read" if one.opening is None else one.opening.about()
    return {"at_us": one.at_us, "sentence": f"{one.by}: {one.what} {about}", "why": one.why}
