"""Identity: which counter a request meets, and what it is called.

A counter belongs to a domain, the keys of a path and the values that came with them. It is named in
two halves. The rule's half is readable and says all that the rule fixes:

    shop/tenant=acme/path        shop/path=%2Fapi%2F*/user

A key with a value is an exact one, with a `*` in it a glob; a key alone stands for any value. The
entity's half is what varies from request to request: the one value as it is, or several with `|`
between them. In both, what would look like a mark is escaped, so no two counters have one name,
whatever is in the values: `a`, `b_c` and `a_b`, `c` are two. What is too long ends in a digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sluicegate.rules.mesh.rule import SHARED_BY_PATTERN, VARYING, Form, MeshRule, Path
from sluicegate.rules.problems import FieldPath
from sluicegate.wire.text import shorten

CHARS_MAX: Final = 300
_DEPTH_MAX: Final = 32  # of descriptors, as far as they are named
ANYONE: Final = "*"  # the entity where nothing varies

_MARKS: Final = re.compile(r"[\x00-\x1f\x7f%/=#]")


def rule_id(domain: str, path: Path) -> str:
    """The rule's half."""
    steps = [_escape(domain)]
    for key, value in path:
        steps.append(_escape(key) if value is None else f"{_escape(key)}={_escape(value)}")
    return shorten("/".join(steps), CHARS_MAX)


def entity_of(form: Form, entries: Sequence[tuple[str, str]]) -> str:
    """The entity's half."""
    varying = form.varying
    if varying == -1:
        return ANYONE
    if varying >= 0:
        return shorten(entries[varying][1], CHARS_MAX)
    levels = form.levels
    values: list[str] = []
    for at in range(len(levels)):
        if levels[at] == VARYING:
            value = entries[at][1]
            if "|" in value or "\\" in value:
                value = value.replace("\\", "\\\\").replace("|", "\\|")
            values.append(value)
    return shorten("|".join(values), CHARS_MAX)


def stats_key(rule: str, form: Form, entries: Sequence[tuple[str, str]]) -> str:
    """What a rule is called in the statistics, with the real values that it wants there."""
    steps = [_plain(step) for step in rule.split("/")]
    steps_shown = [steps[0][0]]
    for at in range(len(form.levels)):
        if at in form.real and form.levels[at] != SHARED_BY_PATTERN:
            steps_shown.append(f"{entries[at][0]}_{entries[at][1]}")
        elif at + 1 < len(steps):
            key, value = steps[at + 1]
            steps_shown.append(f"{key}_{value}" if value else key)
    return shorten(".".join(steps_shown), CHARS_MAX)


def varying_keys(rule: MeshRule) -> list[str]:
    """The keys whose values have a counter each."""
    steps = rule.rule_id.split("/")[1:]
    levels = rule.form.levels
    return [
        _plain(step)[0]
        for step, level in zip(steps, levels, strict=False)  # too long a name has lost some
        if level == VARYING
    ]


def plain_text(text: str) -> str:
    """A name without its escapes: to be read and searched, no name any more."""
    return _PERCENT.sub(lambda found: chr(int(found[1], 16)), text) if "%" in text else text


def named_descriptors(
    node: Mapping[str, Any], domain: str, above: Path = (), at: FieldPath = ()
) -> Iterator[tuple[str, FieldPath, Mapping[str, Any]]]:
    """The descriptors in plain values of a file: the name of a rule there, its place, its fields.

    Nothing is checked; what cannot be a descriptor is passed over.
    """
    if len(above) >= _DEPTH_MAX:
        return
    nodes = node.get("descriptors")
    for place, one in enumerate(nodes if isinstance(nodes, list) else ()):
        if not isinstance(one, Mapping):
            continue
        value = None if one.get("value") is None else str(one["value"])
        path = (*above, (str(one.get("key")), value))
        here = (*at, "descriptors", place)
        yield rule_id(domain, path), here, one
        yield from named_descriptors(one, domain, path, here)


def _escape(text: str) -> str:
    return _MARKS.sub(_percent, text) if _MARKS.search(text) else text


def _percent(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _plain(step: str) -> tuple[str, str]:
    key, _, value = step.partition("=")
    return plain_text(key), plain_text(value)


_PERCENT: Final = re.compile("%([0-9A-F]{2})")
