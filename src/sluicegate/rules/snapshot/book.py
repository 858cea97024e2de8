"""Book: the rules in force that a snapshot says.

They are understood by the readers of the files themselves: each kind is read as the one rule of a
file that has its defaults, and each head as a file without rules. What was read for the book before
is taken from it, so what a change costs follows from what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sluicegate.limits.rule import Rule
from sluicegate.rules.mesh.parser import Domain, parse_domain
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.parser import NativeFile, parse_native
from sluicegate.rules.problems import BadRules, FieldPath, Problems
from sluicegate.rules.resources.compiler import tables_of
from sluicegate.rules.resources.packed import PackedIndex
from sluicegate.rules.resources.priorities import Priorities
from sluicegate.rules.resources.rule import LimitKind
from sluicegate.rules.resources.rule_set import ResourceRuleSet
from sluicegate.rules.service_rule_set import ENVOY, ServiceRuleSet
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.rules.snapshot.sections import DamagedSnapshot
from sluicegate.rules.snapshot.snapshot import RulesSnapshot

_NO_BOUND: Final = 1 << 62  # the bounds were kept when the files were compiled
_UPGRADE: Final = "upgrade this node; it may be older than who made the snapshot"


class ParsedKind(NamedTuple):
    """What a kind means here; nothing for one that is off."""

    kind: LimitKind | None
    rule: Rule | None


class ParsedHead(NamedTuple):
    """What a file says besides its native rules."""

    domain: Domain | None
    native: NativeFile | None
    shared_limits: Mapping[str, Rule]


class ReusableParts(NamedTuple):
    """What the next book can be made of."""

    semantics: Semantics
    merge_domains: bool
    kinds: Mapping[bytes, ParsedKind]
    heads: Mapping[tuple[str, bytes], ParsedHead]
    order: tuple[tuple[str, bytes], ...]
    mesh: MeshRuleSet
    priorities: Priorities
    degrade: Mapping[str, str]


def book_of(
    snapshot: RulesSnapshot, *, version: str, before: ServiceRuleSet | None = None
) -> ServiceRuleSet:
    """The rules of a snapshot, ready to be put in force; `Damaged` if they cannot be understood."""
    earlier = (
        before.remade if before is not None and isinstance(before.remade, ReusableParts) else None
    )
    if earlier is not None and earlier.semantics is not snapshot.semantics:
        earlier = None
    kinds = _kinds(snapshot, {} if earlier is None else earlier.kinds)
    heads = _heads(snapshot, {} if earlier is None else earlier.heads)
    order = tuple(heads)
    if (
        earlier is not None
        and order == earlier.order
        and earlier.merge_domains == snapshot.merge_domains
    ):
        mesh, priorities, degrade = earlier.mesh, earlier.priorities, earlier.degrade
    else:
        mesh, priorities, degrade = _tables([*heads.values()], snapshot.merge_domains)
    rules: dict[str, Rule] = {}
    for head in heads.values():
        rules.update(head.shared_limits)
    by_mark: dict[bytes, LimitKind] = {}
    for mark, now in kinds.items():
        if now.kind is not None and now.rule is not None:
            by_mark[mark] = now.kind
            rules[now.kind.shared_id] = now.rule
    index = PackedIndex(snapshot.pages, snapshot.forms, by_mark, snapshot.native)
    return ServiceRuleSet(
        mesh,
        ResourceRuleSet(index, priorities, degrade=degrade),
        rules,
        version,
        snapshot.files,
        remade=ReusableParts(
            snapshot.semantics,
            snapshot.merge_domains,
            kinds,
            heads,
            order,
            mesh,
            priorities,
            degrade,
        ),
    )


def _kinds(snapshot: RulesSnapshot, earlier: Mapping[bytes, ParsedKind]) -> dict[bytes, ParsedKind]:
    """What all kinds mean."""
    kinds: dict[bytes, ParsedKind] = {}
    unknown: list[bytes] = []
    for mark in snapshot.kinds:
        now = earlier.get(mark)
        if now is None:
            unknown.append(mark)
        else:
            kinds[mark] = now
    files: dict[str, tuple[dict[str, Any], list[bytes]]] = {}
    for mark in unknown:
        fields = _json(snapshot.kinds[mark])
        if not isinstance(fields, dict) or not isinstance(fields.get("rule"), dict):
            raise DamagedSnapshot("it has a limit that says nothing")
        rule = fields.pop("rule")
        file, marks = files.setdefault(repr(fields), ({**fields, "rules": []}, []))
        file["rules"].append({**rule, "rule_id": f"k{len(marks)}"})
        marks.append(mark)
    for file, marks in files.values():
        kinds.update(_parse_kinds(file, marks))
    return kinds


def _parse_kinds(file: dict[str, Any], marks: Sequence[bytes]) -> dict[bytes, ParsedKind]:
    problems = Problems("a snapshot", {})
    shared_limits = SharedLimits(_NO_BOUND)
    native = parse_native(file, problems, shared_limits, rules_max=_NO_BOUND)
    _raise_if_any(problems)
    native_kinds = {} if native is None else {rule.rule_id: rule.kind for rule in native.rules}
    kinds: dict[bytes, ParsedKind] = {}
    for place, mark in enumerate(marks):
        kind = native_kinds.get(f"k{place}")
        kinds[mark] = ParsedKind(
            kind, None if kind is None else shared_limits.rules[kind.shared_id]
        )
    return kinds


def _heads(
    snapshot: RulesSnapshot, earlier: Mapping[tuple[str, bytes], ParsedHead]
) -> dict[tuple[str, bytes], ParsedHead]:
    """What all files say, in their order."""
    heads: dict[tuple[str, bytes], ParsedHead] = {}
    for file, text, digest in zip(
        snapshot.files, snapshot.heads, snapshot.head_digests, strict=True
    ):
        name = (file.name, digest)
        now = earlier.get(name)
        heads[name] = (
            _head(file.name, file.format, text, snapshot.semantics) if now is None else now
        )
    return heads


def _head(name: str, form: str, text: bytes, semantics: Semantics) -> ParsedHead:
    value = _json(text)
    problems = Problems(name, {})
    shared_limits = SharedLimits(_NO_BOUND)
    domain, native = None, None
    if form == ENVOY:
        domain = parse_domain(value, problems, shared_limits, semantics, source=name)
    else:
        whole = {**value, "rules": []} if isinstance(value, dict) else value
        native = parse_native(whole, problems, shared_limits)
    _raise_if_any(problems)
    return ParsedHead(domain, native, shared_limits.rules)


def _tables(
    heads: Sequence[ParsedHead], merge_domains: bool
) -> tuple[MeshRuleSet, Priorities, Mapping[str, str]]:
    domains = [head.domain for head in heads if head.domain is not None]
    try:
        mesh = MeshRuleSet(domains, merge_domains=merge_domains)
    except BadRules as error:
        raise _incompatible(error) from None
    natives = [head.native for head in heads if head.native is not None]
    return mesh, *tables_of(natives, _complain)


def _complain(_number: int, at: FieldPath, _value: object, remedy: str) -> None:
    raise DamagedSnapshot(f"{'.'.join(map(str, at))}: {remedy}", _UPGRADE)


def _raise_if_any(problems: Problems) -> None:
    try:
        problems.raise_if_any()
    except BadRules as error:
        raise _incompatible(error) from None


def _incompatible(error: BadRules) -> DamagedSnapshot:
    return DamagedSnapshot(f"it says what is not understood here: {error}", _UPGRADE)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedSnapshot("it holds what is no JSON") from None
