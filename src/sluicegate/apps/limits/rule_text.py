"""Rule text: rules as people read them, in a sentence or a row of a table, and as programs do."""

from __future__ import annotations

from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rates import format_rate
from sluicegate.limits.rule import Mode, Rule
from sluicegate.rules.web.rule import WebRule

EXEMPT = "not limited"


def key_text(entry: WebRule) -> str:
    """Whose requests are counted together."""
    if entry.key is None:
        return "-"
    if entry.or_key is not None:
        return f"{entry.key}, or {entry.or_key}"
    return str(entry.key)


def limit_text(entry: WebRule) -> str:
    """Return how much."""
    if entry.rule is None:
        return EXEMPT
    return "; ".join(rate_text(limit) for limit in entry.rule.limits if isinstance(limit, Limit))


def rate_text(limit: Limit) -> str:
    """Return a limit as a rate, with its algorithm if that is not the usual one."""
    usual = limit.algorithm is Algorithm.GCRA
    return format_rate(limit) + ("" if usual else f" by {limit.algorithm.value}")


def terms_text(entry: WebRule) -> str:
    """On which terms; what is as usual is left out."""
    words: list[str] = []
    if entry.off or (entry.rule is not None and entry.rule.mode is not Mode.ENFORCE):
        words.append("off" if entry.off else "shadow")
    if entry.rule is not None:
        words += _rule_terms(entry.rule)
    if entry.cost != 1:
        words.append(f"cost {entry.cost}")
    if entry.stop:
        words.append("stop")
    return ", ".join(words) or "-"


def _rule_terms(rule: Rule) -> list[str]:
    words = []
    if rule.failure is not None:
        words.append(f"failure {rule.failure.value}")
    if rule.local_share is not None:
        words.append(f"local share {rule.local_share:g}")
    if rule.lease is not None:
        words.append(f"lease {rule.lease}")
    if rule.count_refused:
        words.append("refused count")
    return words


def entry_json(entry: WebRule) -> dict[str, object]:
    """Return a rule for programs."""
    return {
        "name": entry.name,
        "matches": str(entry.match),
        "exempt": entry.exempt,
        "key": None if entry.key is None else [part.text for part in entry.key.parts],
        "or_key": None if entry.or_key is None else [part.text for part in entry.or_key.parts],
        "limits": [] if entry.rule is None else limit_text(entry).split("; "),
        "mode": "off" if entry.off else "enforce" if entry.rule is None else entry.rule.mode.value,
        "terms": terms_text(entry),
        "stop": entry.stop,
    }
