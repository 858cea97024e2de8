"""Rule set: all native rules of one version, compiled, immutable, looked up without any I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.resources.packed import PackedIndex
from sluicegate.rules.resources.paths import NO_RULES, ResourceIndex, Rules
from sluicegate.rules.resources.priorities import Priorities
from sluicegate.rules.resources.rule import ResourceRule

PORTION: Final = 1_000


@final
class ResourceRuleSet:
    """Rules by path, kind of client and priority, and the tables that settle a priority.

    One that was read from files has its rules by name; a packed one finds the few that are asked
    for by name in its index.
    """

    __slots__ = ("_by_id", "_index", "_listed", "_packed", "_unlisted", "priorities")

    def __init__(
        self,
        index: ResourceIndex | PackedIndex,
        priorities: Priorities,
        by_id: Mapping[str, ResourceRule | None] | None = None,
    ) -> None:
        self._packed = index if isinstance(index, PackedIndex) else None
        self._index = index if isinstance(index, ResourceIndex) else None
        self._by_id = by_id
        # Made while somebody looks through, a portion at a time: a million at once is a pause.
        self._listed: list[ResourceRule | None] = []
        self._unlisted: Iterator[ResourceRule | None] = (
            iter(()) if by_id is None else iter(by_id.values())
        )
        self.priorities: Final = priorities

    def __len__(self) -> int:
        if self._packed is not None:
            return len(self._packed)
        return 0 if self._by_id is None else len(self._by_id)

    def rule(self, rule_id: str) -> ResourceRule | None:
        """The rule of that name; None if there is none, or it is off."""
        if self._packed is not None:
            return self._packed.rule(rule_id)
        return None if self._by_id is None else self._by_id.get(rule_id)

    @property
    def portions(self) -> int:
        """How many portions there are to look through."""
        if self._packed is not None:
            return self._packed.portions
        return -(-len(self) // PORTION)

    def portion(self, number: int, needle: str) -> list[ResourceRule]:
        """The rules of a portion whose name or path has these letters, without those that are off.

        A portion is little work, so whoever looks through a million lets others in between.
        """
        if self._packed is not None:
            return self._packed.portion(number, needle)
        ends = (number + 1) * PORTION
        if len(self._listed) < ends:
            self._listed += islice(self._unlisted, ends - len(self._listed))
        return [
            rule
            for rule in self._listed[ends - PORTION : ends]
            if rule is not None and (needle in rule.rule_id or needle in rule.path)
        ]

    def find(self, path: str, client_type: str, priority: Criticality) -> Rules:
        """The rules that apply together to a plain path (see `plain_path`)."""
        if self._packed is not None:
            return self._packed.find(path, client_type, priority)
        return NO_RULES if self._index is None else self._index.find(path, client_type, priority)


EMPTY_RULE_SET: Final = ResourceRuleSet(ResourceIndex(), Priorities(), {})
