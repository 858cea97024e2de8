"""Book: all native rules of one version, compiled, immutable, looked up without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from headgate.contracts.criticality import Criticality
from headgate.rules.resources.paths import ResourceIndex, Rules
from headgate.rules.resources.priorities import Priorities
from headgate.rules.resources.rule import ResourceRule


@final
class ResourceBook:
    """Rules by path, kind of client and priority, and the tables that settle a priority."""

    __slots__ = ("_index", "_named", "priorities")

    def __init__(
        self,
        index: ResourceIndex,
        priorities: Priorities,
        named: Mapping[str, ResourceRule | None],
    ) -> None:
        self._index: Final = index
        self._named = named
        self.priorities: Final = priorities

    def __len__(self) -> int:
        return len(self._named)

    def rule(self, rule_id: str) -> ResourceRule | None:
        """The rule of that name; None if there is none, or it is off."""
        return self._named.get(rule_id)

    def find(self, path: str, client_type: str, priority: Criticality) -> Rules:
        """The rules that apply together to a plain path (see `plain_path`)."""
        return self._index.find(path, client_type, priority)


EMPTY_BOOK: Final = ResourceBook(ResourceIndex(), Priorities(), {})
