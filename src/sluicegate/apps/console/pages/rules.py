"""Rules: those in force, as limiters answer them, and what became of one's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote

from sluicegate.command_line.page import cell, escape_name, escape_words, number, quiet, row, table
from sluicegate.command_line.text import counted, duration

Answers = Sequence[tuple[str, object, str]]
_OUTCOMES: Final = ("allowed", "refused", "shed", "degraded_allowed", "shadow_refused")


def found(letters: str, answers: Answers, limiters: int) -> dict[str, str]:
    """Return the form, and a page of what one limiter found."""
    form = (
        '<form class="search" action="/rules"><label for="q">Letters of a name or a path</label>'
        f'<input id="q" name="q" value="{escape(letters)}" maxlength="256" '
        'placeholder="playback, /api/"><button>Search</button></form>'
    )
    if not answers:
        return {"form": form, "found": quiet("No limiter answers.")}
    url, body, error = answers[0]
    if not isinstance(body, dict) or not isinstance(body.get("rules"), list):
        words = error or "its answer cannot be understood"
        return {"form": form, "found": quiet(f"{escape_name(url)}: {escape_words(words)}")}
    try:
        rows = [_row(rule) for rule in body["rules"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return {"form": form, "found": quiet("The limiter is of a version that is not known here.")}
    names = ("rule", "path or domain", "client", "priority", "per")
    heads = ("at most", "in", "allowed", "refused")
    shown = table(names, heads, rows) if rows else quiet("No rule has these letters.")
    follows = body.get("next")
    if isinstance(follows, int):
        more = f"/rules?q={quote(letters, safe='')}&after={follows}"
        shown += f'<p><a href="{escape(more)}">The next ones</a></p>'
    others = f"; {counted(limiters, 'limiter')} answer" if limiters > 1 else ""
    of = quiet(
        f"Of {counted(int(body.get('of') or 0), 'rule')} of version "
        f"{escape_name(str(body.get('version')))} at {escape_name(url)}{others}. Counts are those "
        "of one worker since its start; a name leads to those of all limiters."
    )
    return {"form": form, "found": shown + of}


def detail(rule_id: str, answers: Answers, *, changes: bool) -> dict[str, str]:
    """Return one rule: its terms, and what each limiter counts of it."""
    rows, terms, errors = [], "", ""
    for url, body, error in answers:
        rules = body.get("rules") if isinstance(body, dict) else None
        if not isinstance(rules, list):
            errors += quiet(f"{escape_name(url)} does not say: {escape_words(error)}")
            continue
        for rule in rules:
            if not isinstance(rule, dict) or rule.get("rule_id") != rule_id:
                continue
            try:
                terms = terms or _terms(rule)
            except (KeyError, TypeError, ValueError):
                errors += quiet(f"{escape_name(url)} is of a version that is not known here.")
                continue
            counts = rule.get("counts") or {}
            cells = [number(f"{int(counts.get(name, 0)):,}") for name in _OUTCOMES]
            version = str(body.get("version")) if isinstance(body, dict) else ""
            rows.append(row(cell(escape_name(url), "name"), cell(escape_name(version)), *cells))
    parts = {"about": f"<h2>{escape_name(rule_id)}</h2>" + terms}
    if rows:
        heads = [name.replace("_", " ") for name in _OUTCOMES]
        parts["counts"] = table(("limiter", "version"), heads, rows)
    else:
        parts["counts"] = quiet("No limiter that answers has this rule in force.")
    place = f"/changes/rule?rule={quote(rule_id, safe='', errors='replace')}"
    history = f' <a href="{escape(place)}">Its history</a>' if changes else ""
    parts["more"] = errors + f'<p><a href="/rules">All rules</a>{history}</p>'
    return parts


def _terms(rule: Mapping[str, Any]) -> str:
    limits = [_limit(one) for one in (rule, *(rule.get("further_limits") or ()))]
    per = f"per {rule['per']}" if rule.get("per") else "all together"
    if "domain" in rule:  # of Envoy's format
        pairs = [("domain", rule["domain"]), ("priority", rule.get("priority") or "default")]
    else:
        pairs = [
            ("path", rule.get("resource_path") or "every path"),
            ("client", rule.get("client_type") or "any"),
            ("priority", rule.get("priority") or "any"),
            ("at once", rule.get("burst")),
        ]
    pairs += [
        ("limit", "; ".join(limits)),
        ("counted", f"{rule.get('algorithm')}, {per}"),
        ("mode", "shadow: refuses nobody" if rule.get("shadow") else "enforced"),
    ]
    rows = [row(cell(name), cell(escape_name(str(value)), "name")) for name, value in pairs]
    return table((), (), rows)


def _limit(terms: Mapping[str, Any]) -> str:
    if terms.get("limit") is None:
        return "none"
    if terms.get("period_us") is None:
        return "nothing is admitted"
    return f"{int(terms['limit']):,} in {duration(terms['period_us'])}"


def _row(rule: Mapping[str, Any]) -> str:
    name = str(rule["rule_id"])
    counts = rule.get("counts") or {}
    refused = int(counts.get("refused", 0))
    limit, period_us = rule["limit"], rule["period_us"]
    native = "domain" not in rule
    place = (rule.get("resource_path") or "every path") if native else rule["domain"]
    link = f"/rules?rule={quote(name, safe='', errors='replace')}"
    return row(
        cell(f'<a href="{escape(link)}">{escape_name(name)}</a>', "name"),
        cell(escape_name(str(place)), "name"),
        cell(escape_name(str(rule.get("client_type") or ("any" if native else "-")))),
        cell(escape_name(str(rule.get("priority") or ("any" if native else "default")))),
        cell(escape_name(str(rule.get("per") or "-"))),
        number("-" if limit is None else f"{int(limit):,}"),
        number("-" if period_us is None else duration(period_us)),
        number(f"{int(counts.get('allowed', 0)):,}"),
        number(f"{refused:,}", bad=refused > 0),
    )
