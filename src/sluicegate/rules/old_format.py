"""Old format: rules files with `limits:`, translated into the format there is.

    limits:                  rules:
      - name: users     ->     - rule_id: users
        match: {path: /u/*}      match: {path: "/u/{any}"}

The text is edited in place, so that comments and order stay, and read again: it must say exactly
what the translated values say. Where it cannot be edited so, the values are written as JSON, which
is YAML; nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.plain_values import form_of, read_text
from sluicegate.rules.web.rule_set import WebRuleSet

_OLD: Final = "limits"
_ANY: Final = "any"
_TOP: Final = {
    "yaml": re.compile(r"((?:^|[{,])[ \t]*)limits(?=[ \t]*:)", re.MULTILINE),
    "toml": re.compile(r"^([ \t]*(?:\[\[?[ \t]*)?)limits(?=[ \t]*[.=\]])", re.MULTILINE),
}
_NAMES: Final = {
    "yaml": re.compile(r"((?:^|[-{,])[ \t]*)name(?=[ \t]*:)", re.MULTILINE),
    "toml": re.compile(r"((?:^|[{,])[ \t]*)name(?=[ \t]*=)", re.MULTILINE),
}


def convert(text: str, source: str, target: str) -> str:
    """Return the text of a file in the present format; `target` is its new name.

    Raises `BadRules` for invalid rules, `BadValue` if they cannot be written.
    """
    form = form_of(source)
    old = read_text(text, form=form, source=source).value
    if not isinstance(old, dict) or not isinstance(old.get(_OLD), dict | list):
        raise BadValue("OLD", source, "give a rules file with `limits:`, the old format")
    patterns: dict[str, str] = {}
    new = _converted(old, patterns)
    after: str | None = None
    if form_of(target) == form:
        after = _edited(text, form, patterns, listed=isinstance(old[_OLD], list))
        if not _says(after, form, new):
            after = None
    if after is None:
        if form_of(target) == "toml":
            remedy = "this file cannot be converted as TOML; name the new file with .yaml"
            raise BadValue("-o", target, remedy)
        after = json.dumps(new, indent=2, ensure_ascii=False) + "\n"
    WebRuleSet.parse(after, form=form_of(target), source=target)
    return after


def _converted(old: Mapping[str, Any], patterns: dict[str, str]) -> dict[str, Any]:
    """Return the same rules in the present format, and note changed paths in `patterns`."""
    rules = old[_OLD]
    new: object
    if isinstance(rules, dict):
        new = {name: _rule(rule, patterns) for name, rule in rules.items()}
    else:
        new = [_rule(rule, patterns) for rule in rules]
        for rule in new:
            if isinstance(rule, dict) and "name" in rule:
                rule["rule_id"] = rule.pop("name")
    return {
        "rules" if field == _OLD else field: new if field == _OLD else value
        for field, value in old.items()
    }


def _rule(rule: Any, patterns: dict[str, str]) -> Any:
    if not isinstance(rule, dict):
        return rule
    match = rule.get("match")
    if not isinstance(match, dict) or "path" not in match:
        return {**rule}
    path = match["path"]
    if isinstance(path, list):
        path = [_path(one, patterns) for one in path]
    return {**rule, "match": {**match, "path": _path(path, patterns)}}


def _path(path: Any, patterns: dict[str, str]) -> Any:
    """A path with a name for each `*`, which no other segment of it has."""
    if not isinstance(path, str) or "*" not in path.split("/"):
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        name, number = _ANY, 1
        while f"{{{name}}}" in path or f"{{{name}}}" in segments:
            number += 1
            name = f"{_ANY}{number}"
        segments.append(f"{{{name}}}" if segment == "*" else segment)
    patterns[path] = "/".join(segments)
    return patterns[path]


def _says(text: str, form: str, values: object) -> bool:
    try:
        return read_text(text, form=form, source="the new file").value == values
    except BadValue:
        return False


def _edited(text: str, form: str, patterns: Mapping[str, str], *, listed: bool) -> str:
    if listed:
        text = _NAMES[form].sub(r"\1rule_id", text)
    text = _TOP[form].sub(r"\1rules", text)
    for before, after in patterns.items():
        path = re.compile(rf"""(?<![^\s"'\[{{,:=])(["']?){re.escape(before)}\1(?![^\s"'\]}},])""")
        text = path.sub(json.dumps(after, ensure_ascii=False), text)
    return text
