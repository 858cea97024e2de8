"""What these tests share: a mesh with counts in this process, and how to ask it."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate import Limiter
from sluicegate.contracts.checks import (
    COST_UNSET,
    STATUS_DEGRADED,
    STATUS_NORMAL,
    Descriptor,
    MeshRequest,
    MeshResponse,
    Override,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import SHED
from sluicegate.contracts.rule import Limit
from sluicegate.limits.glass.break_glass import Glass
from sluicegate.rules.mesh.parser import Domain, parse_domain
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.plain_values import read_text
from sluicegate.rules.problems import Problems
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.testing import HandClock

ENVOY, SLUICEGATE = Semantics.ENVOY, Semantics.SLUICEGATE


class OpenGate:
    """Sheds the classes it is told to."""

    def __init__(self) -> None:
        self.sheds: set[Criticality] = set()
        self.callers: list[str] = []

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        self.callers.append(caller)
        return Decision(False, 0, 1_500_000, 0, SHED, "shed") if priority in self.sheds else None

    def status(self) -> str:
        return STATUS_DEGRADED if self.sheds else STATUS_NORMAL

    def node_status(self) -> str:
        return self.status()


class Noted:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, int, Criticality, Decision]] = []

    def record_decision(
        self,
        entity: str,
        rule_id: str,
        cost: int,
        priority: Criticality,
        decision: Decision,
        began_us: int,
        limit: Limit | None = None,
    ) -> None:
        self.entries.append((entity, rule_id, cost, priority, decision))


def domain_of(
    text: str,
    semantics: Semantics = ENVOY,
    shared_limits: SharedLimits | None = None,
    source: str = "mesh.yaml",
) -> Domain:
    """The domain that a file says, or `BadRules`."""
    read = read_text(text, form="yaml", source=source)
    problems = Problems(source, read.lines)
    domain = parse_domain(
        read.value,
        problems,
        SharedLimits() if shared_limits is None else shared_limits,
        semantics,
        source=source,
        line=read.lines.get(("domain",), 0),
    )
    problems.raise_if_any()
    assert domain is not None
    return domain


class World:
    """A mesh, its clock, its gate and its ledger."""

    def __init__(
        self,
        text: str,
        settings: MeshSettings | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.settings = settings or MeshSettings()
        self.clock = HandClock()
        self.gate, self.ledger = OpenGate(), Noted()
        self.limiter = limiter or Limiter(clock=self.clock)
        self.glass = Glass()
        self.mesh = Mesh(
            self.limiter, self.gate, self.ledger, settings=self.settings, glass=self.glass
        )
        self.load(text)

    def load(self, text: str) -> None:
        """Have these rules instead."""
        shared_limits = SharedLimits()
        domain = domain_of(text, self.settings.semantics, shared_limits)
        self.limiter.replace_rules(shared_limits.rules)
        self.mesh.book = MeshRuleSet([domain])

    def ask(self, *descriptors: Descriptor, domain: str = "shop", hits: int = 0) -> MeshResponse:
        """The answer, which is there at once."""
        ask = MeshRequest(domain, descriptors, hits)
        answer = self.mesh.should_rate_limit(ask, self.clock.now_us())
        assert isinstance(answer, MeshResponse)
        return answer


def by(
    *entries: tuple[str, str], hits: int = COST_UNSET, override: Override | None = None
) -> Descriptor:
    """A descriptor."""
    return Descriptor(entries, cost=hits, override=override)


def overs(answer: MeshResponse) -> Sequence[bool]:
    """Which descriptors are over."""
    return [status.over for status in answer.statuses]


def lefts(answer: MeshResponse) -> Sequence[int]:
    """What is left of each."""
    return [status.remaining for status in answer.statuses]
