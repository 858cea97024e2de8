"""Rule set: all domains in force, immutable; from what a request says to the rule for it.

One index a domain (see `kernels/rule_index.py`): a look-up takes as many steps as the descriptor
has pairs, whatever the number of rules. A set is made whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, final

from sluicegate.kernels.rule_index import RuleIndex
from sluicegate.rules.mesh.identity import plain_text
from sluicegate.rules.mesh.parser import DEPTH_MAX, Domain
from sluicegate.rules.mesh.rule import MeshRule
from sluicegate.rules.portions import Portions
from sluicegate.rules.problems import BadRules, Problem

GLOB_TRIES_MAX_DEFAULT: Final = 1_000


@final
class MeshRuleSet:
    """The rules of all files.

    A domain stands in one file only, unless `merge_domains`. `glob_tries_max` bounds what globs may
    cost a look-up, at the worst value there is.
    """

    __slots__ = ("_count", "_indexes", "_listed")

    def __init__(
        self,
        domains: Iterable[Domain] = (),
        *,
        merge_domains: bool = False,
        glob_tries_max: int = GLOB_TRIES_MAX_DEFAULT,
    ) -> None:
        parts: dict[str, list[Domain]] = {}
        for domain in domains:
            found = parts.setdefault(domain.name, [])
            if found and not merge_domains:
                where = f" ({found[0].source})" if found[0].source else ""
                merge = "or say merge_domains (--rls-merge-domains)"
                remedy = f"another file has it{where}; keep one of them, {merge}"
                raise _refused(domain, remedy)
            found.append(domain)
        self._indexes: dict[str, RuleIndex[MeshRule]] = {}
        self._count = 0
        for name, same in parts.items():
            if len(same) > 1:
                _check_roots(same)
            try:
                index = RuleIndex(
                    [one for domain in same for one in domain.rules],
                    depth_max=DEPTH_MAX,
                    tries_max=glob_tries_max,
                )
            except ValueError as error:
                raise _refused(same[-1], f"its rules cannot be told apart: {error}") from None
            self._indexes[name] = index
            self._count += len(index)
        every = chain.from_iterable(index.payloads() for index in self._indexes.values())
        self._listed: Portions[MeshRule] = Portions(every, self._count)

    def __len__(self) -> int:
        return self._count

    @property
    def domains(self) -> list[str]:
        """Their names."""
        return list(self._indexes)

    @property
    def portions(self) -> int:
        """How many portions there are to look through."""
        return len(self._listed)

    def portion(self, number: int, needle: str) -> list[MeshRule]:
        """The rules of a portion whose name, as written or as meant, has these letters."""
        return [
            rule
            for rule in self._listed.portion(number)
            if needle in rule.rule_id or needle in plain_text(rule.rule_id)
        ]

    def index(self, domain: str) -> RuleIndex[MeshRule] | None:
        """The rules of a domain; None if there are none."""
        return self._indexes.get(domain)

    def find(self, domain: str, entries: Sequence[tuple[str, str]]) -> MeshRule | None:
        """The rule for what a request says of itself; None if none applies."""
        index = self._indexes.get(domain)
        return None if index is None else index.find(entries)


def _check_roots(same: Sequence[Domain]) -> None:
    """Two files may share a domain, and neither may go on below what the other has begun."""
    owner: dict[tuple[str, str | None], Domain] = {}
    for domain in same:
        for path, _ in domain.rules:
            key, value = path[0]
            if owner.setdefault((key, value), domain) is not domain:
                shown = key if value is None else f"{key}: {value}"
                raise _refused(domain, f"{shown!r} stands in another file of this domain too")


def _refused(domain: Domain, remedy: str) -> BadRules:
    return BadRules(domain.source, [Problem("domain", domain.name, remedy, domain.line)])
