"""Rule text: rules as people read them, in a sentence or a row of a table, and as programs do."""

from __future__ import annotations

from typing import NamedTuple

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.limits.rates import format_rate
from sluicegate.limits.rule import Mode, Rule
from sluicegate.rules.mesh.rule import VARYING, MeshRule, Path
from sluicegate.rules.resources.rule import ANY_PRIORITY, ResourceRule
from sluicegate.rules.web.rule import MatchRule

EXEMPT = "not limited"
HEAD = ("rule", "matches", "counted by", "limits", "terms")


class RuleLine(NamedTuple):
    """A rule in a table, as `HEAD` names its columns."""

    name: str
    matches: str
    key: str
    limits: str
    terms: str


def line_of(rule: MatchRule | ResourceRule) -> RuleLine:
    """Return the line of a match rule or a row."""
    if isinstance(rule, ResourceRule):
        return _row_line(rule)
    return RuleLine(rule.rule_id, str(rule.match), _key_text(rule), _limit_text(rule), _terms(rule))


def row_json(row: RuleLine) -> dict[str, object]:
    """Return a service's rule for programs."""
    return {**row._asdict(), "limits": [] if row.limits == EXEMPT else row.limits.split("; ")}


def _row_line(rule: ResourceRule) -> RuleLine:
    matches = rule.path or "every path"
    if rule.client_type:
        matches += f" by {rule.client_type}"
    if rule.priority != ANY_PRIORITY:
        matches += f", {Criticality(rule.priority).name}"
    kind = rule.kind
    terms = "shadow" if kind.shadow else "-"
    return RuleLine(rule.rule_id, matches, kind.per.value, rate_text(kind.limit), terms)


def mesh_row(path: Path, rule: MeshRule | None) -> RuleLine:
    """A rule of a service, in Envoy's format; without one, the path takes requests from others."""
    matches = ", ".join(key if value is None else f"{key}={value}" for key, value in path)
    if rule is None:
        return RuleLine("-", matches, "-", EXEMPT, "-")
    form = rule.form
    varying = [path[at][0] for at, level in enumerate(form.levels) if level == VARYING]
    limits = [
        "nothing passes" if one.limit is None else rate_text(one.limit) for one in form.countings
    ]
    terms = [word for word, on in (("shadow", form.shadow), ("quota", form.quota)) if on]
    return RuleLine(
        rule.rule_id,
        matches,
        ", ".join(varying) or "everyone",
        "; ".join(limits) or EXEMPT,
        ", ".join(terms) or "-",
    )


def _key_text(entry: MatchRule) -> str:
    if entry.key is None:
        return "-"
    if entry.or_key is not None:
        return f"{entry.key}, or {entry.or_key}"
    return str(entry.key)


def _limit_text(entry: MatchRule) -> str:
    if entry.rule is None:
        return EXEMPT
    return "; ".join(rate_text(limit) for limit in entry.rule.limits if isinstance(limit, Limit))


def rate_text(limit: Limit) -> str:
    """Return a limit as a rate, with its algorithm if that is not the usual one."""
    usual = limit.algorithm is Algorithm.GCRA
    return format_rate(limit) + ("" if usual else f" by {limit.algorithm.value}")


def _terms(entry: MatchRule) -> str:
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


def rule_json(entry: MatchRule | ResourceRule) -> dict[str, object]:
    """Return a rule of an application for programs."""
    if isinstance(entry, ResourceRule):
        return row_json(_row_line(entry))
    return {
        "name": entry.rule_id,
        "matches": str(entry.match),
        "exempt": entry.exempt,
        "key": None if entry.key is None else [part.text for part in entry.key.parts],
        "or_key": None if entry.or_key is None else [part.text for part in entry.or_key.parts],
        "limits": [] if entry.rule is None else _limit_text(entry).split("; "),
        "mode": "off" if entry.off else "enforce" if entry.rule is None else entry.rule.mode.value,
        "terms": _terms(entry),
        "stop": entry.stop,
    }
