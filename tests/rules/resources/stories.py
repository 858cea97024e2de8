"""What the tests of native rules tell their stories with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sluicegate.contracts.checks import CheckRequest, CheckResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit
from sluicegate.limits.glass.break_glass import Glass
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.parser import NativeFile, parse_native
from sluicegate.rules.plain_values import read_text
from sluicegate.rules.problems import BadRules, FieldPath, Problem, Problems
from sluicegate.rules.resources.compiler import compile_rules
from sluicegate.rules.resources.rule_set import ResourceRuleSet
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.testing import HandClock, SeededChance, hand_limiter


class OpenGate:
    """Sheds what it was told to shed."""

    def __init__(self) -> None:
        self.shed: dict[Criticality, Decision] = {}
        self.word = ""
        self.requests: list[tuple[Criticality, str]] = []

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        self.requests.append((priority, caller))
        return self.shed.get(priority)

    def status(self) -> str:
        return self.word

    def node_status(self) -> str:
        return self.word


class RecordingLedger:
    """A ledger that is read afterwards."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, int, Criticality, bool]] = []
        self.decisions: list[Decision] = []
        self.began: list[int] = []

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
        self.lines.append((entity, rule_id, cost, priority, decision.allowed))
        self.decisions.append(decision)
        self.began.append(began_us)


def rule(
    rule_id: str, path: str | None = None, limit: int = 10, **options: object
) -> dict[str, Any]:
    fields: dict[str, Any] = {"rule_id": rule_id, "limit": limit, "window_seconds": 60, **options}
    if "window" in options:
        del fields["window_seconds"]
    if path is not None:
        fields["resource_path"] = path
    return fields


def native(*rules: Mapping[str, object], **top: object) -> dict[str, object]:
    return {"version": 1, **top, "rules": [*rules]}


def parsed(value: object, source: str = "rules.yaml") -> tuple[NativeFile, SharedLimits]:
    """What a file says, from plain values or from YAML; all that is wrong is raised."""
    lines: dict[FieldPath, int] = {}
    if isinstance(value, str):
        value, lines = read_text(value, form="yaml", source=source)
    problems, shared_limits = Problems(source, lines), SharedLimits()
    file = parse_native(value, problems, shared_limits)
    problems.raise_if_any()
    assert file is not None
    return file, shared_limits


def book_of(*files: object) -> tuple[ResourceRuleSet, SharedLimits]:
    both = SharedLimits()
    read: list[NativeFile] = []
    wrong: list[Problem] = []
    for value in files:
        file, shared_limits = parsed(value)
        both.rules.update(shared_limits.rules)
        read.append(file)

    def complain(number: int, at: FieldPath, value: object, remedy: str) -> None:
        wrong.append(Problem(f"{number}:{'.'.join(map(str, at))}", value, remedy))

    book = compile_rules(read, complain)
    if wrong:
        raise BadRules("book", wrong)
    return book, both


class Story:
    """A checker on a hand-moved clock, its gate and its ledger."""

    def __init__(
        self, *rules: Mapping[str, object], top: Mapping[str, object] = {}, **settings: Any
    ):
        limiter_settings = settings.pop("limiter", {})
        self.book, self.shared_limits = book_of(native(*rules, **top))
        self.limiter: Limiter
        self.clock: HandClock
        self.limiter, self.clock = hand_limiter(rules=self.shared_limits.rules, **limiter_settings)
        self.gate, self.ledger = OpenGate(), RecordingLedger()
        self.glass = Glass()
        self.checker = Checker(
            self.limiter,
            self.gate,
            self.ledger,
            book=self.book,
            chance=SeededChance(7),
            glass=self.glass,
            **settings,
        )

    @property
    def now(self) -> int:
        return self.clock.now_us()

    def check(
        self, user: str = "ann", path: str = "/", cost: int = 1, **options: Any
    ) -> CheckResponse:
        request = CheckRequest(user, path, cost=cost, **options)
        return cast("CheckResponse", self.checker.check(request, self.now))

    def peek(self, user: str = "ann", path: str = "/", **options: Any) -> CheckResponse:
        return cast(
            "CheckResponse", self.checker.peek(CheckRequest(user, path, **options), self.now)
        )

    def admitted(self, times: int, *args: Any, **options: Any) -> int:
        return sum(self.check(*args, **options).decision.allowed for _ in range(times))


def problems_of(value: object) -> Sequence[str]:
    """What is wrong with a file, each as it is told."""
    try:
        parsed(value)
    except BadRules as error:
        return [str(problem) for problem in error.problems]
    return []
