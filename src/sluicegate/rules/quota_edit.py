"""Quota edit: the quotas of a rules file, changed in place; not a byte of anything else is.

The parser gives the place of each quota, and only that text is replaced; a quota that is not there
yet becomes a line of its own after the others. The result is read again: unless it holds what the
file held before, with exactly these quotas, nothing is changed. So what is not understood here is
refused, and never spoilt.

    callers:
      quotas:
        shop: 100/s     # a line each, as a rate; mappings and {braces} are for a person to change

Bounds: files as large as the service reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import BadValue
from sluicegate.rules.parser import is_native, parse_native
from sluicegate.rules.plain_values import form_of, read_text, read_yaml
from sluicegate.rules.problems import Problems, with_item_lines
from sluicegate.rules.shared_limits import SharedLimits

_BOM: Final = "\ufeff"
_SECOND_US: Final = 1_000_000
_REMEDY: Final = "write quotas a line each, as `name: 100/s` under `callers:` and `quotas:`"
_QUOTES: Final = ("'", '"')
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9._@-]*")
_NEW_FILE: Final = "version: 1\n"


class _Change(NamedTuple):
    """This text in the place of what stands from `start` to `end`."""

    start: int
    end: int
    text: str


def quotas_in(text: str, source: str) -> dict[str, int]:
    """The quotas that a rules file says, in request units a second, as `sluicegate kv` reads it."""
    if not text.strip():
        return {}
    read = read_text(text, form=form_of(source), source=source)
    if not is_native(read.value):
        return {}
    problems = Problems(source, with_item_lines(read.lines))
    native = parse_native(read.value, problems, SharedLimits())
    problems.raise_if_any()
    if native is None or native.callers is None:
        return {}
    return {name: _a_second(rule.kind.limit) for name, rule in native.callers.quotas.items()}


def with_quotas(text: str, quotas: Mapping[str, int], source: str) -> str:
    """The same file with these quotas, in request units a second."""
    if form_of(source) != "yaml":
        raise BadValue("--rules", source, "only YAML is edited; change this file by hand")
    mark = _BOM if text.startswith(_BOM) else ""
    before = text[len(mark) :]
    values, _ = read_yaml(before, source)
    if values is None and _compose(before) is None:
        before += _end_of_line(before) + _NEW_FILE
        values = {"version": 1}
    if not isinstance(values, Mapping) or not (is_native(values) or set(values) == {"version"}):
        raise BadValue("--rules", source, "it is no rules file of ours: give one with `callers:`")
    if not quotas:
        return text
    parts, copied = [], 0
    for change in sorted(_changes(before, quotas, source)):
        parts += [before[copied : change.start], change.text]
        copied = change.end
    after = "".join([*parts, before[copied:]])
    _check(values, after, quotas, source)
    return mark + after


def _changes(text: str, quotas: Mapping[str, int], source: str) -> list[_Change]:
    """What is to be replaced, and what put in."""
    top = _compose(text)
    found, new = [], dict(quotas)
    callers = _field(top, "callers")
    block = None if callers is None else _field(callers[1], "quotas")
    for key, value in () if block is None or _is_empty(block[1]) else _pairs(block[1], source):
        if key.value not in new:
            continue
        start, end = value.start_mark.index, value.end_mark.index
        plain = _is_scalar(value) and key.end_mark.index < start < end and text[start] not in "&!|>"
        if not plain:
            values = " ".join(text[start:end].split())
            remedy = f"it is no plain rate; {_REMEDY}"
            raise BadValue(f"{source}: callers.quotas.{key.value}", values, remedy)
        quote = text[start] if text[start] in _QUOTES else ""
        found.append(_Change(start, end, f"{quote}{new.pop(key.value)}/s{quote}"))
    if new:
        found.append(_added_lines(text, top, callers, block, new, source))
    return found


def _added_lines(
    text: str, top: Any, callers: Any, block: Any, new: Mapping[str, int], source: str
) -> _Change:
    """Lines for those who had no quota, after the others, and what they stand under."""
    under: tuple[Any, Any] = block or callers or (None, top)
    key, node = under
    heads = [] if block else ["quotas:"] if callers else ["callers:", "  quotas:"]
    if _is_empty(node):
        indent = _indent(text, key, source) + "  "
        at = key.end_mark.index
    else:
        indent = _indent(text, _pairs(node, source)[0][0], source)
        at = len(text) if callers is None else _end(node)
    below = indent + "  " * len(heads)
    lines = [f"{indent}{head}" for head in heads]
    lines += [f"{below}{_quote(name)}: {ru}/s" for name, ru in new.items()]
    ending = _ending(text)
    line_end = text.find("\n", at)
    if line_end >= 0:
        return _Change(line_end + 1, line_end + 1, "".join(line + ending for line in lines))
    before = _end_of_line(text)
    return _Change(len(text), len(text), before + ending.join(lines) + ("" if before else ending))


def _check(
    values: Mapping[str, object], after: str, quotas: Mapping[str, int], source: str
) -> None:
    """Refuse a result that is not the file before with these quotas."""
    callers = values.get("callers") or {}
    before = (callers.get("quotas") if isinstance(callers, Mapping) else None) or {}
    now, _ = read_yaml(after, source)
    rates = {name: f"{ru}/s" for name, ru in quotas.items()}
    if isinstance(callers, Mapping) and isinstance(before, Mapping):
        expected = {**values, "callers": {**callers, "quotas": {**before, **rates}}}
        if now == expected:
            rates_read = quotas_in(after, source)
            for name, ru in quotas.items():
                if rates_read.get(name) != ru:
                    remedy = "what `defaults:` says of every limit makes it another; say it there"
                    raise BadValue(f"{source}: callers.quotas.{name}", f"{ru}/s", remedy)
            return
    raise BadValue("--rules", source, f"its quotas cannot be changed safely; {_REMEDY}")


# Nodes of YAML.


def _compose(text: str) -> Any:
    import yaml  # noqa: PLC0415 - only who writes YAML needs it; `read_yaml` says where to get it

    return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _field(node: Any, name: str) -> tuple[Any, Any] | None:
    """The key and the value of a mapping's field."""
    if node is None or node.id != "mapping":
        return None
    return next((pair for pair in node.value if pair[0].value == name), None)


def _pairs(node: Any, source: str) -> list[tuple[Any, Any]]:
    if node.id != "mapping" or node.flow_style or not node.value:
        line = node.start_mark.line + 1
        remedy = f"line {line} is not written a field a line; {_REMEDY}"
        raise BadValue("--rules", source, remedy)
    pairs: list[tuple[Any, Any]] = node.value
    return pairs


def _is_scalar(node: Any) -> bool:
    return bool(node.id == "scalar")


def _is_empty(node: Any) -> bool:
    """`callers:` and nothing behind it."""
    return _is_scalar(node) and bool(node.start_mark.index == node.end_mark.index)


def _end(node: Any) -> int:
    """Where a node ends; a block's own mark is where the next begins."""
    while node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        if node.id == "mapping":
            if last[1].start_mark.index < last[0].start_mark.index:  # an alias stands elsewhere
                return int(last[0].end_mark.index)
            last = last[1]
        node = last
    return int(node.end_mark.index)


def _indent(text: str, key: Any, source: str) -> str:
    """What stands before a key on its line, which must be nothing but spaces."""
    at = key.start_mark.index
    before = text[text.rfind("\n", 0, at) + 1 : at]
    if before.strip(" "):
        raise BadValue("--rules", source, f"line {key.start_mark.line + 1}: {_REMEDY}")
    return before


# Texts.


def _ending(text: str) -> str:
    """How the first line of this text ends."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _end_of_line(text: str) -> str:
    """What is missing for the next line to be one."""
    return "" if not text or text.endswith("\n") else _ending(text)


def _a_second(limit: Any) -> int:
    return max(1, round(Fraction(limit.count * _SECOND_US, limit.period_us)))


def _quote(name: str) -> str:
    """A name as YAML reads it back; without quotes where nobody could doubt it."""
    if _PLAIN.fullmatch(name):
        return name
    return '"' + "".join(map(_escape, name)) + '"'


def _escape(one: str) -> str:
    if one in '"\\':
        return f"\\{one}"
    return one if one.isprintable() else f"\\U{ord(one):08x}"
