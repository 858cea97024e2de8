"""Edit of one field in a rules file: its text changes there and nowhere else.

A file keeps its comments and its order. The place is found by the parser's marks, the text is put
there, and the whole is read again: unless exactly the field that was meant has changed, nothing is
returned and the caller is told to edit the file. So a field that came by an alias or a merge, or
in TOML one of a rule or table without a head of its own (`[[rules]]`, `[degrade]`), is refused and
not guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.rules.mesh.identity import named_descriptors
from sluicegate.rules.plain_values import form_of, read_text
from sluicegate.rules.problems import FieldPath
from sluicegate.rules.resources.callers import QUOTA_MARK

_SWITCHES: Final = "degrade"
_NONE: Final = object()
_FLAGS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?")
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./%+-]*|[1-9][0-9]*[a-z]+")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # a key of TOML that needs no quotes
_WORDS: Final = frozenset({"true", "false", "null"})


class FieldPlace(NamedTuple):
    """A field of a rule: its path in the values of a file. It need not be there yet."""

    file: str
    path: FieldPath
    before: object  # None where the file does not say it
    target: str  # what was asked for, RULE.FIELD


def find_field(texts: Mapping[str, str], target: str) -> FieldPlace:
    """Where `RULE.FIELD` stands; of names that begin alike, the longest rule's."""
    places: dict[tuple[str, FieldPath], tuple[str, FieldPath, object]] = {}
    names: list[str] = []
    for file, text in texts.items():
        value = read_text(text, form=form_of(file), source=file).value
        for name, path in _rules_of(value):
            names.append(name)
            if target.startswith(f"{name}.") and len(target) > len(name) + 1:
                places[file, path] = (name, path, value)
    longest = max((len(name) for name, _, _ in places.values()), default=0)
    found = [(file, it) for (file, _), it in places.items() if len(it[0]) == longest]
    if not found:
        if target.startswith(f"{_SWITCHES}."):
            remedy = "no file has a table `degrade` yet; propose one that has"
            raise BadValue("RULE", target, remedy)
        near = get_close_matches(target.rpartition(".")[0], names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadValue("RULE", target, f"give RULE.FIELD, with the id of a rule that is live{hint}")
    if len(found) > 1:
        files = ", ".join(sorted(file for file, _ in found))
        raise BadValue("RULE", target, f"several rules are called so ({files}); edit a file")
    file, (name, path, value) = found[0]
    field = target[len(name) + 1 :]
    whole = (*path, field) if path == (_SWITCHES,) else (*path, *field.split("."))
    return FieldPlace(file, whole, _at(value, whole), target)


def set_field(text: str, place: FieldPlace, written: str) -> str:
    """The text with another value of the field, as somebody has typed it."""
    form = form_of(place.file)
    value = _value_of(place.target, written)
    literal = _literal(value, written, form)
    before = read_text(text, form=form, source=place.file).value
    edit = _edit_yaml if form == "yaml" else _edit_toml
    after = edit(text, place.path, literal)
    if after is not None:
        try:
            result = read_text(after, form=form, source=place.file).value
        except SluicegateError:
            result = _NONE
        if result == _with(before, place.path, value):
            return after
    field = ".".join(map(str, place.path))
    raise BadValue(field, written, f"{place.file} is not written so that it can be set; edit it")


# Inside.


def _rules_of(value: object) -> Iterator[tuple[str, FieldPath]]:
    """The ids of the rules in a file, and where each is."""
    if not isinstance(value, Mapping):
        return
    rules = value.get("rules")
    for at, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, Mapping) and isinstance(rule.get("rule_id"), str):
            yield rule["rule_id"], ("rules", at)
    for name in rules if isinstance(rules, Mapping) else ():
        yield str(name), ("rules", name)
    callers = value.get("callers")
    quotas = callers.get("quotas") if isinstance(callers, Mapping) else None
    for name in quotas if isinstance(quotas, Mapping) else ():
        yield f"{QUOTA_MARK}{name}", ("callers", "quotas", name)
    if isinstance(value.get(_SWITCHES), Mapping):
        yield _SWITCHES, (_SWITCHES,)  # its fields are the switches
    domain = value.get("domain")
    if isinstance(domain, str):
        for name, place, _ in named_descriptors(value, domain):
            yield name, place


def _at(value: Any, path: FieldPath) -> object:
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        else:
            return None
    return value


def _with(value: Any, path: FieldPath, new: object) -> object:
    changed = deepcopy(value)
    inner = _at(changed, path[:-1])
    if not isinstance(inner, dict):
        return _NONE
    inner[path[-1]] = new
    return changed


def _value_of(target: str, written: str) -> bool | int | float | str:
    """What a file would say with this text: a number, a yes or no, or a text."""
    if not written.strip() or "\n" in written:
        raise BadValue(target, written, "give a value in one line")
    if written in _FLAGS:
        return _FLAGS[written]
    if _NUMBER.fullmatch(written):
        return float(written) if "." in written else int(written)
    return written


def _literal(value: bool | float | str, written: str, form: str) -> str:
    """The value as the file has it: a text in quotes, unless YAML takes it for nothing else."""
    if not isinstance(value, str):
        return written
    plain = form == "yaml" and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)


def _edit_yaml(text: str, path: FieldPath, literal: str) -> str | None:
    import yaml  # noqa: PLC0415 - only who writes YAML needs it

    node: Any = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    lines = text.splitlines(keepends=True)
    for step in path[:-1]:
        node = _child(yaml, node, step)
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return None
    field = str(path[-1])
    value = _child(yaml, node, field)
    if value is not None:
        if not isinstance(value, yaml.ScalarNode):
            return None
        start, end = _offset(lines, value.start_mark), _offset(lines, value.end_mark)
        return f"{text[:start]}{literal}{text[end:]}"
    _, first = node.value[0]
    end = _offset(lines, first.end_mark)
    if node.flow_style:
        return f"{text[:end]}, {field}: {literal}{text[end:]}"
    if not isinstance(first, yaml.ScalarNode) or first.style in ("|", ">"):
        return None
    break_at = text.find("\n", end)
    if break_at < 0:
        break_at = len(text)
    indent = " " * node.value[0][0].start_mark.column
    return f"{text[:break_at]}\n{indent}{field}: {literal}{text[break_at:]}"


def _child(yaml: Any, node: Any, step: str | int) -> Any:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step]
    return None


def _offset(lines: list[str], mark: Any) -> int:
    return sum(len(line) for line in lines[: mark.line]) + int(mark.column)


def _edit_toml(text: str, path: FieldPath, literal: str) -> str | None:
    head = _toml_head(text, path[:-1])
    if head is None:
        return None
    begin = head.end()
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, begin)
    end = len(text) if following is None else following.start()
    line = re.compile(
        rf"^([ \t]*{_toml_key(path[-1])}[ \t]*=[ \t]*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s#]+)",
        re.MULTILINE,
    ).search(text, begin, end)
    if line is None:
        field = str(path[-1])
        written = field if _BARE.fullmatch(field) else json.dumps(field, ensure_ascii=False)
        after_head = "" if text[:begin].endswith("\n") else "\n"
        return f"{text[:begin]}{after_head}{written} = {literal}\n{text[begin:]}"
    return f"{text[: line.end(1)]}{literal}{text[line.end() :]}"


def _toml_head(text: str, table: FieldPath) -> re.Match[str] | None:
    """The line that opens a table, or one of `[[rules]]`; None where there is no such line."""
    *names, last = table
    at = last if isinstance(last, int) else None
    keys = r"[ \t]*\.[ \t]*".join(map(_toml_key, table if at is None else names))
    brackets = 1 if at is None else 2
    opening, closing = r"\[" * brackets, r"\]" * brackets
    line = rf"^[ \t]*{opening}[ \t]*{keys}[ \t]*{closing}[^\n]*\n?"
    heads = [*re.finditer(line, text, re.MULTILINE)]
    return heads[at or 0] if (at or 0) < len(heads) else None


def _toml_key(name: str | int) -> str:
    """A pattern for a key, bare or in quotes."""
    key = re.escape(str(name))
    return rf"(?:{key}|\"{key}\"|'{key}')"
