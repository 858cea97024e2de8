"""Trial: rules that are in force for a share of the callers, beside those of everybody else.

Both decide by the same limiter and the same gate, so a rule that is in both counts in one place,
whoever it is asked by. What differs is the book, and that each keeps count of what it has decided:
that is what the share is widened by, or taken back.

The halves that decide for those on trial are made once and kept: what was leased under a trial can
be given back after it, and what its rules have counted stays in the metrics when they go live.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.contracts.checks import CheckRequest, MeshRequest
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.resources.rule_set import EMPTY_RULE_SET, ResourceRuleSet
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet


@final
class Trial:
    """The halves of a service as they are for some callers; `takes` says for whom."""

    __slots__ = ("_takes", "checker", "ledger", "mesh", "version")

    def __init__(
        self,
        version: int,
        takes: Callable[[str], bool],
        checker: Checker,
        mesh: Mesh,
        ledger: ServiceLedger,
    ) -> None:
        self.version = version
        self._takes = takes
        self.checker = checker
        self.mesh = mesh
        self.ledger = ledger

    def takes_check(self, request: CheckRequest) -> bool:
        """Whether this request is decided here."""
        return self._takes(request.user_id)

    def takes_mesh(self, request: MeshRequest) -> bool:
        """Likewise. A mesh's caller is who its first descriptor names first."""
        return self._takes(caller_of(request))

    def with_share(self, takes: Callable[[str], bool]) -> Trial:
        """The same for more callers, or for fewer; what was counted stays."""
        return Trial(self.version, takes, self.checker, self.mesh, self.ledger)


@final
class TrialRules:
    """What decides for those on trial, one after the other."""

    __slots__ = ("checker", "ledger", "mesh")

    def __init__(self, checker: Checker, mesh: Mesh, ledger: ServiceLedger) -> None:
        self.checker = checker
        self.mesh = mesh
        self.ledger = ledger

    def begin(self, version: int, takes: Callable[[str], bool], book: ServiceRuleSet) -> Trial:
        """Another trial, of this book; what it decides is counted from nothing."""
        self._decide_by(book.mesh, book.resources)
        self.ledger.reset_counts()
        return Trial(version, takes, self.checker, self.mesh, self.ledger)

    def end(self) -> None:
        """Nobody is on trial any more."""
        self._decide_by(MeshRuleSet(), EMPTY_RULE_SET)  # the rules themselves need not be kept

    def _decide_by(self, mesh: MeshRuleSet, resources: ResourceRuleSet) -> None:
        self.mesh.book = mesh
        self.checker.book = resources


def caller_of(request: MeshRequest) -> str:
    """Whose request it is, as far as a mesh says it."""
    if not request.descriptors or not request.descriptors[0].entries:
        return request.domain
    return f"{request.domain}/{request.descriptors[0].entries[0][1]}"
