"""Collector: collects the records of native rules, and what must be known of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, final
from zlib import crc32

from sluicegate.contracts.criticality import Criticality
from sluicegate.kernels.path_index import plain_pattern
from sluicegate.rules.parser import NativeFile
from sluicegate.rules.resources.packed import Forms, form_of
from sluicegate.rules.resources.pages import (
    CELL_BITS,
    PAGES,
    flag_of,
    key_of,
    off_key,
    page_of,
    record_of,
)
from sluicegate.rules.resources.rule import ANY_PRIORITY
from sluicegate.rules.snapshot.digests import canonical, mark_of

# What a record says of a rule itself; all else is its kind.
_OWN: Final = frozenset({"rule_id", "resource_path", "client_type", "priority_bucket"})


class CollectedRules(NamedTuple):
    """All native rules of a commit."""

    pages: list[bytes]
    kinds: Mapping[bytes, bytes]
    uses: Mapping[bytes, int]
    forms: Forms


@final
class RuleCollector:
    """Takes file after file, in the order in which rules count together."""

    __slots__ = ("_forms", "_kinds", "_order", "_rows", "_uses")

    def __init__(self) -> None:
        # For each page: the checksum, the key, the place among the records of the key, the record.
        self._rows: list[list[tuple[int, bytes, int, bytes]]] = [[] for _ in range(PAGES)]
        self._kinds: dict[bytes, bytes] = {}
        self._uses: Counter[bytes] = Counter()
        self._forms: dict[tuple[int, str], list[int]] = {}
        self._order = 0

    def add(
        self, head: Mapping[str, object], written: list[dict[str, object]], file: NativeFile
    ) -> None:
        """Take the rules of a file: as they were written, and as they were understood."""
        context = {
            "version": head.get("version"),
            "defaults": _without_nulls(head.get("defaults") or {}),
        }
        parsed = iter(file.rules)
        rule = next(parsed, None)
        for fields, rule_id in zip(written, file.rule_ids, strict=True):
            own = {name: fields[name] for name in fields if name not in _OWN}
            kind = self._kind(canonical({**context, "rule": _without_nulls(own)}))
            if rule is not None and rule.rule_id == rule_id:
                key = key_of(rule.path, rule.client_type)
                self._add(key, rule.priority, flag_of(rule.path), rule.kind.shadow, kind, rule_id)
                self._count(key)
                rule = next(parsed, None)
            else:
                self._add(_off(fields, rule_id), _priority(fields), 0, False, kind, rule_id)

    def end(self) -> CollectedRules:
        """Everything, in pages; a `ValueError` if a page cannot hold what it should."""
        pages: list[bytes] = []
        for rows in self._rows:
            rows.sort()
            pages.append(page_of([row[3] for row in rows]))
            rows.clear()
        forms = {form: (counts[0], counts[1]) for form, counts in self._forms.items()}
        return CollectedRules(pages, self._kinds, dict(self._uses), forms)

    def _add(
        self, key: bytes, priority: int, flag: int, shadow: bool, kind: bytes, rule_id: str
    ) -> None:
        checksum = crc32(key)
        record = record_of(key, priority | flag, kind, rule_id.encode())
        # What is enforced stands first; else as in the files.
        self._order += 1
        place = (priority << 1 | shadow) << 32 | self._order
        self._rows[checksum >> CELL_BITS].append((checksum, key, place, record))

    def _kind(self, text: bytes) -> bytes:
        mark = mark_of(text)
        previous = self._kinds.setdefault(mark, text)
        if previous != text:
            raise ValueError("two limits have the same digest; change one of them a little")
        self._uses[mark] += 1
        return mark

    def _count(self, key: bytes) -> None:
        family, shape, typed = form_of(key)
        self._forms.setdefault((family, shape), [0, 0])[typed] += 1


def _without_nulls(fields: object) -> object:
    """Fields without those that say nothing."""
    if not isinstance(fields, Mapping):
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def _priority(fields: Mapping[str, object]) -> int:
    bucket = fields.get("priority_bucket")
    return ANY_PRIORITY if bucket is None else int(Criticality[str(bucket)])


def _off(fields: Mapping[str, object], rule_id: str) -> bytes:
    """The key of a rule that is off."""
    path = fields.get("resource_path")
    client_type = fields.get("client_type")
    pattern = "" if path is None else plain_pattern(str(path))
    return off_key(key_of(pattern, "" if client_type is None else str(client_type)), rule_id)
