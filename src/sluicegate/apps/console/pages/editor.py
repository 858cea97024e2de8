"""Editor: a rules file as text, what is wrong with it as one types, and what each field means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from sluicegate.apps.console.forms import text_field
from sluicegate.apps.console.pages.changes import lines_view
from sluicegate.command_line.page import cell, escape_name, escape_words, quiet, row, table
from sluicegate.command_line.text import counted
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.problems import BadRules, Problem

# What a rule may say: the field, an example, and what it means. A test compares it with the parser.
RULE_FIELDS: Final[Sequence[tuple[str, str, str]]] = (
    ("rule_id", "playback", "its name; one rule has it, and counts go by it"),
    ("resource_path", "/api/*", "which paths; left out: all"),
    ("priority_bucket", "BULK", "which priority; left out: all"),
    ("client_type", "TV", "which kind of client; left out: all"),
    ("limit", "5000", "so many units in the window"),
    ("window_seconds", "60", "the window in seconds"),
    ("window", "5m", "the same in words; one of the two"),
    ("burst_capacity", "1.2", "times the limit is what the window holds; 1 to 10"),
    ("per", "user", "counted together: user, resource, user+resource"),
    ("algorithm", "gcra", "how it is counted; sliding_window if nothing is said"),
    ("cells", "10", "in how many parts a sliding window is counted"),
    ("failure", "closed", "while the store does not answer: open, closed, local"),
    ("local_share", "0.25", "the part that one process admits under local"),
    ("mode", "shadow", "enforce; shadow refuses nobody; off is as if not there"),
    ("lease", "10%", "blocks taken ahead from a far store: auto, a share, units"),
    ("count_refused", "true", "what is refused is counted all the same"),
)


class Draft(NamedTuple):
    """A text being edited, with its file and the commit it was made from.

    `asked` names the changed limits for which the rulebook requires a confirmation.
    """

    file: str
    text: str
    base: str
    message: str = ""
    reason: str = ""
    confirm: bool = False
    asked: str = ""


def editor(draft: Draft, mark: str, findings: str, above: str = "") -> dict[str, str]:
    """Return the parts of the page; `findings` is what is wrong so far, and what changes."""
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in (("file", draft.file), ("base", draft.base))
    )
    form = (
        f'<form id="editor" method="post" action="/changes/propose">{mark}{hidden}'
        f'<label for="text">{escape_name(draft.file)}, from {escape_name(draft.base[:12])}</label>'
        # HTML drops one newline after the tag.
        f'<textarea id="text" name="text" rows="24" spellcheck="false" wrap="off" '
        f'autocapitalize="off" aria-describedby="findings">\n{escape(draft.text)}</textarea>'
        '<div class="two">'
        + text_field("message", "What it does, in a line", value=draft.message)
        + text_field("reason", "Why; the audit keeps it", value=draft.reason, required=False)
        + f"</div>{_confirmation(draft.asked)}<button>Propose</button></form>"
        + quiet(
            "Proposing changes nothing yet: the rulebook tries it on captured traffic, and "
            "somebody approves it."
        )
    )
    rows = [
        row(cell(f"<code>{name}</code>"), cell(f"<code>{escape(example)}</code>"), cell(words))
        for name, example, words in RULE_FIELDS
    ]
    fields = table(("field", "as in", "means"), (), rows)
    return {
        "conflict": above,
        "edit": form,
        "findings": findings,
        "help": f"<details open><summary>What a rule may say</summary>{fields}</details>",
    }


def _confirmation(asked: str) -> str:
    """Return the checkbox that confirms large changes; empty unless the rulebook requires it."""
    if not asked:
        return ""
    changes = asked.partition("; send ")[0]
    return (
        f'<p class="bad" role="alert">{escape_words(changes)}. A limit that changes 10-fold, or '
        "is removed, takes a confirmation.</p>"
        '<label><input type="checkbox" name="confirm" value="yes" required> '
        "I confirm these limits</label>"
    )


def findings(
    error: BadValue | None, lines: Sequence[str], rules: Mapping[str, Sequence[str]]
) -> str:
    """Return what is wrong with a text, or that nothing is, and what it changes."""
    if error is None:
        words = [f"{counted(len(names), 'rule')} {kind}" for kind, names in rules.items() if names]
        said = f": {', '.join(words)}" if words else ": no rule says anything else"
        state = f'<p class="good" role="status">These rules can be used{escape(said)}.</p>'
        return state + (lines_view(lines) if lines else "")
    return problems_view(error)


def problems_view(error: BadValue) -> str:
    """Return what is wrong: line, field, value and remedy of each."""
    listed: Iterable[Problem | BadValue] = (
        error.problems if isinstance(error, BadRules) else (error,)
    )
    rows = []
    for one in listed:
        line = one.line if isinstance(one, Problem) else 0
        go = f'<button type="button" data-line="{line}">{line}</button>' if line else ""
        rows.append(
            row(
                cell(go),
                cell(escape_name(one.field), "name"),
                cell("" if one.value is None else escape_name(str(one.value)), "name"),
                cell(escape_words(one.remedy)),
            )
        )
    more = error.more if isinstance(error, BadRules) else 0
    rest = quiet(f"and {more:,} more") if more else ""
    head = f'<p class="bad" role="alert">{counted(len(rows) + more, "problem")}.</p>'
    return head + table(("line", "field", "value", "what to do"), (), rows) + rest
