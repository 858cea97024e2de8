"""Rule set: all native rules of one version, compiled, immutable, looked up without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.portions import Portions
from sluicegate.rules.resources.packed import PackedIndex
from sluicegate.rules.resources.paths import NO_RULES, ResourceIndex, Rules
from sluicegate.rules.resources.priorities import Priorities
from sluicegate.rules.resources.rule import ResourceRule

_NO_SWITCHES: Final[Mapping[str, str]] = {}


@final
class ResourceRuleSet:
    """Rules by path, kind of client and priority, and the tables beside them.

    `degrade` has the levels of the switches of `policies/admission/degradation.py`.

    One that was read from files has its rules by name; a packed one finds the few that are asked
    for by name in its index.
    """

    __slots__ = ("_by_id", "_index", "_listed", "_packed", "degrade", "priorities")

    def __init__(
        self,
        index: ResourceIndex | PackedIndex,
        priorities: Priorities,
        by_id: Mapping[str, ResourceRule | None] | None = None,
        degrade: Mapping[str, str] = _NO_SWITCHES,
    ) -> None:
        self._packed = index if isinstance(index, PackedIndex) else None
        self._index = index if isinstance(index, ResourceIndex) else None
        self._by_id = by_id
        listed: Mapping[str, ResourceRule | None] = {} if by_id is None else by_id
        self._listed = Portions(listed.values(), len(listed))
        self.priorities: Final = priorities
        self.degrade: Final = degrade

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
        return len(self._listed)

    def portion(self, number: int, needle: str) -> list[ResourceRule]:
        """The rules of a portion whose name or path has these letters, without those that are off.

        A portion is little work, so whoever looks through a million lets others in between.
        """
        if self._packed is not None:
            return self._packed.portion(number, needle)
        return [
            rule
            for rule in self._listed.portion(number)
            if rule is not None and (needle in rule.rule_id or needle in rule.path)
        ]

    def find(self, path: str, client_type: str, priority: Criticality) -> Rules:
        """The rules that apply together to a plain path (see `plain_path`)."""
        if self._packed is not None:
            return self._packed.find(path, client_type, priority)
        return NO_RULES if self._index is None else self._index.find(path, client_type, priority)


EMPTY_RULE_SET: Final = ResourceRuleSet(ResourceIndex(), Priorities(), {})
