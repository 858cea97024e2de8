"""The replay decides as the checker and the mesh do when each request is put to them in full."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import Limiter
from sluicegate.contracts.checks import CheckRequest, CheckResponse, MeshResponse, Override
from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.resources.service import Checker
from sluicegate.shadow.analysis import Analysis, analyse
from sluicegate.shadow.pair import EARLY, LATER
from sluicegate.shadow.replay import ReplayResult, replay
from sluicegate.shadow.replay_parts import CalmGate, DecisionLedger
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.side import Query
from sluicegate.shadow.traffic import CapturedTraffic
from sluicegate.testing import HandClock
from tests.shadow.replay.captures import captured, check, envoy, limit, mesh, native, rules, vips

OWN = native(
    limit("play", 2, 5, resource_path="/play"),
    limit("minute", 3, 7, resource_path="/login", algorithm="sliding_window"),
    limit("day", 5, 31, resource_path="/login"),
    limit("try", 1, 9, resource_path="/login", mode="shadow", algorithm="gcra"),
    limit("title", 4, 6, resource_path="/titles/{id}", per="resource", algorithm="token_bucket"),
    limit("both", 2, 3, resource_path="/both", per="user+resource", algorithm="sliding_log"),
    limit("tv", 3, 4, resource_path="/tv", count_refused=True),
    limit("trial", 2, 8, resource_path="/trial", mode="shadow"),
    limit("vip", 2, 4, resource_path="/vip", priority_bucket="CRITICAL"),
    callers=vips("ann", quotas={"bob": "7/10s"}, penalties={"cat": 2.5}),
)
SHOP = envoy(
    {"key": "user", "rate_limit": {"unit": "second", "requests_per_unit": 2}},
    {"key": "path", "value": "/a", "rate_limit": {"unit": "minute", "requests_per_unit": 3}},
    {"key": "path", "value": "/none", "rate_limit": {"unit": "minute", "requests_per_unit": 0}},
    {"key": "free", "rate_limit": {"unlimited": True}},
    {
        "key": "tried",
        "shadow_mode": True,
        "rate_limit": {"unit": "second", "requests_per_unit": 1},
    },
    {
        "key": "slow",
        "quota_mode": True,
        "rate_limit": {"unit": "second", "requests_per_unit": 1},
    },
    {
        "key": "named",
        "rate_limit": {
            "unit": "second",
            "requests_per_unit": 1,
            "name": "named",
            "replaces": [{"name": "user"}],
        },
    },
)
CURRENT = {**OWN, **SHOP}
CANDIDATE = {
    **native(
        limit("play", 1, 5, resource_path="/play"),
        limit("minute", 2, 7, resource_path="/login", algorithm="gcra"),
        limit("day", 4, 13, resource_path="/login", algorithm="sliding_window", cells=4),
        limit("all", 9, 11),
        callers=vips("bob"),
    ),
    **envoy({"key": "user", "rate_limit": {"unit": "minute", "requests_per_unit": 4}}),
}

users = st.sampled_from(["ann", "bob", "cat", "dan"])
paths = st.sampled_from(
    ["/play", "/login", "/titles/1", "/both", "/tv", "/trial", "/vip", "/x//?q"]
)
checks = st.builds(
    check,
    users,
    paths,
    weight=st.sampled_from([0, 1, 1, 1, 2, 6]),
    claim=st.sampled_from([None, *Criticality]),
)
pairs = st.tuples(
    st.sampled_from(["user", "path", "free", "tried", "slow", "named", "other"]),
    st.sampled_from(["a", "/a", "/none"]),
)
meshes = st.builds(
    lambda several, hits, own, override: mesh(
        *[[pair] for pair in several], hits=hits, own=own, override=override
    ),
    st.lists(pairs, min_size=0, max_size=3),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([-1, -1, 0, 1, 3]),
    st.sampled_from([None, None, None, Override(2, 1), Override(1, 9)]),
)
UNHEARD = check("", "/play")  # no user: it cannot be asked


class Plain:
    """Answers one request after another, each in full, and knows nothing beforehand."""

    def __init__(self, made: ReplayRules, settings: MeshSettings, clock: HandClock) -> None:
        gate, self.ledger = CalmGate(), DecisionLedger()
        limiter = Limiter(rules=made.book.rules, clock=clock)
        self.checker = Checker(limiter, gate, self.ledger, book=made.book.resources)
        self.mesh = Mesh(limiter, gate, self.ledger, settings=settings, book=made.book.mesh)
        self.clock = clock

    def answer(self, query: object) -> tuple[bool, str] | None:
        """Whether it is refused, and by which rule; None where it cannot be asked."""
        self.ledger.begin()
        try:
            if isinstance(query, CheckRequest):
                made = self.checker.check(query, self.clock.now_us())
                decision = cast("CheckResponse", made).decision
                return not decision.allowed, "" if decision.allowed else decision.rule_id
            answered = self.mesh.should_rate_limit(query, self.clock.now_us())  # type: ignore[arg-type]
        except ValueError:
            return None
        over = cast("MeshResponse", answered).over
        return over, self.ledger.refusing if over else ""


def in_full(
    made: CapturedTraffic, current: ReplayRules, candidate: ReplayRules, settings: MeshSettings
) -> dict[tuple[int, str, str], int]:
    """For each ask and both rules that refuse it, or none, how often."""
    counts: dict[tuple[int, str, str], int] = {}
    clock = HandClock(0)
    sides = [Plain(one, settings, clock) for one in (current, candidate)]
    for at_us, query in zip(made.at_us, made.which, strict=True):
        clock.advance(us=max(0, at_us - clock.now_us()))
        one, other = [side.answer(made.queries[query]) for side in sides]
        if one is not None and other is not None:
            place = (query, one[1], other[1])
            counts[place] = counts.get(place, 0) + 1
    return counts


def replayed_as(replayed: ReplayResult) -> dict[tuple[int, str, str], int]:
    """The same of a replay."""
    counts: dict[tuple[int, str, str], int] = {}
    pair = replayed.pair
    for query in range(len(replayed.traffic.queries)):
        names = [
            ["", *[rule.rule_id for rule in side.prepared[query].rules]]
            for side in (pair.current, pair.candidate)
        ]
        for phase in (EARLY, LATER):
            for did, would, times in pair.outcomes_of(query, phase):
                place = (query, names[0][did], names[1][would])
                counts[place] = counts.get(place, 0) + times
    return counts


@settings(max_examples=40)
@given(
    queries=st.lists(st.one_of(checks, checks, meshes, st.just(UNHEARD)), min_size=1, max_size=8),
    steps=st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from([-0.5, 0, 0.01, 0.3, 1, 4])), max_size=70
    ),
    semantics=st.sampled_from([*Semantics]),
    shadowed=st.booleans(),
    cached=st.sampled_from([0, 4]),
)
def test_a_replay_answers_as_each_request_put_in_full(
    queries: list[CheckRequest],
    steps: list[tuple[int, float]],
    semantics: Semantics,
    shadowed: bool,
    cached: int,
) -> None:
    at_s, requests = 0.0, []
    for query, step_s in steps:
        at_s += step_s
        requests.append((at_s, queries[query % len(queries)]))
    made = captured(requests)
    mesh_settings = MeshSettings(
        semantics=semantics, global_shadow=shadowed, local_cache_max=cached
    )
    current = rules(CURRENT, semantics=semantics)
    candidate = rules(CANDIDATE, semantics=semantics)
    replayed = replay(made, current, candidate, mesh=mesh_settings)
    assert replayed_as(replayed) == in_full(made, current, candidate, mesh_settings)


SINGLE: list[Query] = [
    *[check(user, path) for user in ("ann", "bob", "cat") for path in ("/play", "/login", "/vip")],
    *[check("ann", path) for path in ("/titles/1", "/both", "/tv", "/trial", "/x")],
    check("bob", "/titles/1"),
    check("cat", "/play", weight=0),
    check("cat", "/login", weight=2),
    *[mesh([(key, "a")]) for key in ("user", "free", "tried", "slow", "named", "other")],
    *[mesh([("path", value)]) for value in ("/a", "/none", "/b")],
    mesh([("user", "a")], own=0),
    mesh([("user", "a")], own=2),
    mesh([("user", "a")], override=Override(3, 2)),
    mesh([("user", "a")], [("path", "/a")]),
    mesh([("slow", "a")], [("user", "b")]),
    mesh([("named", "a")], [("user", "c")]),
    UNHEARD,
]


@pytest.mark.parametrize("semantics", [*Semantics])
@pytest.mark.parametrize("shadowed", [False, True])
@pytest.mark.parametrize("cached", [0, 4])
def test_every_kind_of_ask_is_answered_as_in_full(
    semantics: Semantics, shadowed: bool, cached: int
) -> None:
    # Each is asked a dozen times in a row, and all of them four times over.
    turns = [query for _ in range(4) for query in SINGLE for _ in range(12)]
    made = captured([(0.02 * at, query) for at, query in enumerate(turns)])
    mesh_settings = MeshSettings(
        semantics=semantics, global_shadow=shadowed, local_cache_max=cached
    )
    current = rules(CURRENT, semantics=semantics)
    candidate = rules(CANDIDATE, semantics=semantics)
    replayed = replay(made, current, candidate, mesh=mesh_settings)
    assert replayed_as(replayed) == in_full(made, current, candidate, mesh_settings)


def test_rules_that_are_tried_out_are_counted_and_refuse_nobody() -> None:
    made = captured([(0.1 * at, query) for at in range(9) for query in (TRIAL, LOGIN, TRIED_THERE)])
    analysis = analysis_of(made)
    trials = {row.rule_id: row.tried_by_current for row in analysis.rows if row.tried_by_current}
    # Of nine each: two enter the trial; three enter the login at all, and one of them its trial.
    assert trials == {"trial": 7, "try": 2, "shop/tried": 8}
    assert {row.rule_id: row.refused_by_current for row in analysis.rows}["minute"] == 6


TRIAL = check("ann", "/trial")
LOGIN = check("ann", "/login")
TRIED_THERE = mesh([("tried", "a")])


def analysis_of(made: CapturedTraffic) -> Analysis:
    return analyse(replay(made, rules(CURRENT), rules(CANDIDATE)))
