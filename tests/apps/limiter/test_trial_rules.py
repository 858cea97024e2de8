"""A share of the callers goes by rules that are on trial, and whoever watches sees every ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sluicegate.apps.limiter.app import LimiterApp
from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.apps.limiter.namespaced_store import NamespacedStore
from sluicegate.apps.limiter.service import LimiterService
from sluicegate.apps.limiter.settings import LimiterSettings
from sluicegate.apps.limiter.throttle import Throttle
from sluicegate.apps.limiter.trial_rules import TrialRules, caller_of
from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    Descriptor,
    MeshRequest,
    MeshResponse,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.limits.limiter import Limiter
from sluicegate.limits.rule import Failure
from sluicegate.policies.access import EVERYBODY
from sluicegate.policies.admission.utilization_gate import OpenGate
from sluicegate.rules.following.fleet_books import FleetBooks
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.service.settings import settings_from
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.system import now_us
from sluicegate.telemetry.audit_ring import AuditRing
from sluicegate.telemetry.service_metrics import ServiceMetrics

LIVE = """
version: 1
rules: [{rule_id: play, resource_path: /play, limit: 5, window: 1h}]
"""
TRIAL = LIVE.replace("limit: 5", "limit: 2")
MESH = """
domain: edge
descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]
"""


class RecordingCapture:
    """A recorder that keeps everything."""

    def __init__(self) -> None:
        self.checks: list[tuple[str, int, bool]] = []
        self.meshes: list[tuple[str, bool]] = []

    def note_check(self, ask: CheckRequest, now_us: int, refused: bool) -> None:
        self.checks.append((ask.user_id, ask.cost, refused))

    def note_mesh(self, ask: MeshRequest, now_us: int, refused: bool) -> None:
        self.meshes.append((caller_of(ask), refused))


class Service:
    """A whole service whose live rules admit five of each, and those on trial two."""

    def __init__(self, folder: Path) -> None:
        live = self.book(folder / "live", LIVE, MESH)
        trial = self.book(folder / "tried", TRIAL, MESH.replace("5}}", "2}}"))
        limiter = self.limiter = Limiter(rules={**live.rules, **trial.rules})
        self.ledger = ServiceLedger(ServiceMetrics(), AuditRing(), None)
        beside = self.ledger.fork()
        gate = OpenGate()
        self.service = LimiterService(
            Mesh(limiter, gate, self.ledger, book=live.mesh),
            Checker(limiter, gate, self.ledger, book=live.resources),
            Throttle(now_us, 100, None, Failure.OPEN),
            NamespacedStore(MemoryStore(now_us)),
            self.ledger,
            lambda: True,
        )
        self.trial_rules = TrialRules(
            Checker(limiter, gate, beside), Mesh(limiter, gate, beside), beside
        )
        self.trial = self.trial_rules.begin(7, lambda caller: caller.endswith("bob"), trial)
        self.service.trial_checker = self.trial_rules.checker

    @staticmethod
    def book(folder: Path, *texts: str) -> ServiceRuleSet:
        folder.mkdir()
        for at, text in enumerate(texts):
            (folder / f"{at}.yaml").write_text(text)
        return ServiceRuleSet.load([folder])

    def admitted(self, user: str, times: int = 10) -> int:
        answers = [self.service.check(CheckRequest(user, "/play"), EVERYBODY) for _ in range(times)]
        return sum(one.decision.allowed for one in answers if isinstance(one, CheckResponse))

    def passed(self, user: str, times: int = 10) -> int:
        ask = MeshRequest("edge", [Descriptor([("user", user)])])
        answers = [self.service.should_rate_limit(ask, EVERYBODY) for _ in range(times)]
        return sum(not one.over for one in answers if isinstance(one, MeshResponse))


def test_those_on_trial_go_by_the_rules_on_trial_and_others_by_those_in_force(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path)
    service.service.trial = service.trial
    assert (service.admitted("ann"), service.admitted("bob")) == (5, 2)
    assert (service.passed("ann"), service.passed("bob")) == (5, 2)


def test_each_counts_what_it_has_decided(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.service.trial = service.trial
    service.admitted("ann")
    service.admitted("bob")
    beside = service.trial.ledger
    place = Criticality.DEGRADED
    assert (service.ledger.decided[place], service.ledger.refused[place]) == (10, 5)
    assert (beside.decided[place], beside.refused[place]) == (10, 8)
    assert service.ledger.metrics.decisions == 20  # and the metrics have both
    beside.reset_counts()
    assert sum(beside.decided) == 0


def test_when_a_trial_ends_its_callers_go_on_with_their_counts(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.service.trial = service.trial
    assert service.admitted("bob", 1) == 1
    service.service.trial = None
    # Another limit is another count; had the rule stayed as it is, one would be gone.
    assert service.admitted("bob") == 5


def test_several_asks_at_once_are_each_decided_where_they_belong(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.service.trial = service.trial
    asks = [CheckRequest(user, "/play") for user in ("ann", "bob") for _ in range(4)]

    async def story() -> list[bool]:
        answering = service.service.check_each(asks, EVERYBODY)
        assert not isinstance(answering, list)
        return [one.decision.allowed for one in await answering]  # type: ignore[misc] # later

    assert asyncio.run(story()) == [True] * 4 + [True, True, False, False]


def test_what_was_leased_on_trial_can_be_given_back(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.service.trial = service.trial

    async def story(*, ended: bool) -> int:
        lease = await service.service.lease(CheckRequest("bob", "/play"), 2, EVERYBODY)
        assert lease.units == 2
        if ended:
            service.service.trial = None
            service.trial_rules.end()
        return await service.service.give_back(lease.lease_id, 2, EVERYBODY)

    assert asyncio.run(story(ended=False)) == 2
    assert asyncio.run(story(ended=True)) == 2
    assert service.trial_rules.checker.leases_open == 0


def test_the_next_trial_counts_from_nothing_and_decides_by_its_own_book(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.service.trial = service.trial
    assert service.admitted("bob") == 2
    third = service.book(tmp_path / "third", TRIAL.replace("limit: 2", "limit: 3"))
    service.limiter.replace_rules(third.rules)
    service.service.trial = service.trial_rules.begin(8, lambda name: name.endswith("bob"), third)
    assert sum(service.service.trial.ledger.decided) == 0
    assert service.service.trial.version == 8
    assert service.admitted("bob") == 3
    assert service.passed("bob") == 10  # no rule of the third is for a mesh
    service.trial_rules.end()
    service.service.trial = None


def made(*words: str) -> LimiterApp:
    return LimiterApp(settings_from(LimiterSettings, *words))


def test_what_a_trial_has_counted_stays_in_the_metrics_when_it_ends_and_goes_live(
    tmp_path: Path,
) -> None:
    live = Service.book(tmp_path / "live", LIVE, MESH)
    trial = Service.book(tmp_path / "tried", TRIAL, MESH.replace("5}}", "2}}"))

    async def story() -> None:
        app = made("--shed", "off")

        def hits() -> float:
            (family,) = [one for one in app.metrics() if one.name == "sluicegate_mesh_hits"]
            return sum(sample.value for sample in family.samples)

        def ask() -> int:
            asks = [MeshRequest("edge", [Descriptor([("user", f"u{n}")])]) for n in range(20)]
            answers = [app.service.should_rate_limit(one, EVERYBODY) for one in asks * 3]
            return sum(isinstance(one, MeshResponse) and not one.over for one in answers)

        app.put_fleet(FleetBooks(live, 1))
        assert (ask(), hits()) == (60, 60)
        app.put_fleet(FleetBooks(live, 1, trial, 2, 5_000, "salt"))
        assert ask() < 60
        assert hits() == 120
        half = app.counts()
        assert {name.partition("/")[0] for name in half} == {"1", "2"}
        app.put_fleet(FleetBooks(live, 1, trial, 2, 9_000, "salt"))
        assert app.counts() == half  # a larger share is the same trial
        app.put_fleet(FleetBooks(trial, 2))
        assert hits() == 120
        ask()
        assert hits() == 180  # also of rules that were counted on trial first
        assert sum(sum(pair) for pair in app.counts().values()) >= 60
        await app.end()

    asyncio.run(story())


def test_a_witness_sees_every_ask_and_what_came_of_it(tmp_path: Path) -> None:
    service = Service(tmp_path)
    recording = service.service.recorder = RecordingCapture()
    service.admitted("ann", 6)
    service.passed("ann", 6)
    service.service.check(CheckRequest("ann", "/play", cost=0), EVERYBODY)  # only a look

    async def story() -> None:
        await service.service.lease(CheckRequest("eve", "/play"), 4, EVERYBODY)
        asks = [CheckRequest("joe", "/play", cost=3), CheckRequest("joe", "/play", cost=3)]
        await service.service.check_each(asks, EVERYBODY)  # type: ignore[misc] # it is awaited

    asyncio.run(story())
    assert recording.checks == [
        *[("ann", 1, False)] * 5, ("ann", 1, True),
        ("eve", 4, False), ("joe", 3, False), ("joe", 3, True),
    ]  # fmt: skip
    assert recording.meshes == [*[("edge/ann", False)] * 5, ("edge/ann", True)]
