"""Our semantics as a property: a refused request has changed no counter."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate import Limiter
from sluicegate.contracts.checks import COST_UNSET, Descriptor, MeshRequest, MeshResponse, Override
from sluicegate.rules.mesh.parser import parse_domain
from sluicegate.rules.mesh.rule import MeshRule
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.problems import Problems
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.testing import HandClock
from tests.rules.mesh.reference import SECONDS, ReferenceDescriptor
from tests.rules.mesh.test_reference import STEPS, trees
from tests.rules.mesh.world import SLUICEGATE, Noted, OpenGate

WAYS = ("sliding_window", "gcra", "fixed_window", "token_bucket", "sliding_log")


def ours(tree: list[dict[str, Any]], shared_limits: SharedLimits) -> MeshRuleSet:
    """The book of a tree."""
    problems = Problems("tree", {})
    domain = parse_domain({"domain": "d", "descriptors": tree}, problems, shared_limits, SLUICEGATE)
    problems.raise_if_any()
    assert domain is not None
    return MeshRuleSet([domain])


def with_ways(tree: list[dict[str, Any]], ways: list[str]) -> list[dict[str, Any]]:
    """The same tree, each limit counted in one way or another."""
    for at, node in enumerate(tree):
        limit = node.get("rate_limit")
        if limit is not None and not limit.get("unlimited"):
            limit["algorithm"] = ways[at % len(ways)]
        with_ways(node.get("descriptors", []), ways)
    return tree


def parse_mesh_request(descriptors: list[ReferenceDescriptor], hits: int) -> MeshRequest:
    """As it comes from a door."""
    return MeshRequest(
        "d",
        [
            Descriptor(
                descriptor.entries,
                cost=COST_UNSET if descriptor.hits is None else descriptor.hits,
                override=None if descriptor.override is None else Override(*descriptor.override),
            )
            for descriptor in descriptors
        ],
        hits,
    )


async def room(mesh: Mesh, limiter: Limiter, ask: MeshRequest) -> list[tuple[bool, int]]:
    """What every counter that this request could meet has left, asked behind the mesh's back."""
    left = []
    assert mesh.book is not None
    for descriptor in ask.descriptors:
        rule: MeshRule | None = mesh.book.find("d", descriptor.entries)
        if descriptor.override is not None or rule is None:
            continue
        answer = mesh.should_rate_limit(
            MeshRequest("d", [Descriptor(descriptor.entries, cost=0)]), 10**15
        )
        status = (answer if isinstance(answer, MeshResponse) else await answer).statuses[0]
        left.append((status.over, status.remaining))
    return left


async def story(
    tree: list[dict[str, Any]], steps: Any, ways: list[str], clock: HandClock, limiter: Limiter
) -> None:
    shared_limits = SharedLimits()
    book = ours(with_ways(tree, ways), shared_limits)
    limiter.replace_rules(shared_limits.rules)
    ledger = Noted()
    mesh = Mesh(limiter, OpenGate(), ledger, book=book)
    for advance_s, descriptors, hits in steps:
        clock.advance(s=advance_s)
        ask = parse_mesh_request(descriptors, hits)
        before = await room(mesh, limiter, ask)
        lines_before = len(ledger.entries)
        answer = mesh.should_rate_limit(ask, clock.now_us())
        if not isinstance(answer, MeshResponse):
            answer = await answer
        lines = ledger.entries[lines_before:]
        if answer.over:
            assert await room(mesh, limiter, ask) == before
            assert lines
            assert not any(decision.allowed for *_, decision in lines)
        else:
            assert len(answer.statuses) == len(descriptors)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(tuple(SECONDS)), STEPS, st.lists(st.sampled_from(WAYS), min_size=1, max_size=3))
def test_a_refused_request_changes_no_counter(
    tree: list[dict[str, Any]], steps: Any, ways: list[str]
) -> None:
    clock = HandClock()
    asyncio.run(story(tree, steps, ways, clock, Limiter(clock=clock)))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(tuple(SECONDS)), STEPS, st.lists(st.sampled_from(WAYS), min_size=1, max_size=3))
def test_nor_does_it_in_a_store_that_answers_later(
    tree: list[dict[str, Any]], steps: Any, ways: list[str]
) -> None:
    clock = HandClock()
    far = Limiter(clock=clock, open_store=lambda: MemoryStore(clock.now_us))
    asyncio.run(story(tree, steps, ways, clock, far))
